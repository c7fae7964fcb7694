#include "interrupt.h"

#include "fork.h"

#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards `innermost` and its `raised` */
static struct vlci_interruptible *innermost;             /* the watched call that the main thread is in */
static pthread_t main_thread;                            /* the host's, where its signal handlers run */
static bool main_known;                                  /* false again in a forked child */

static struct sigaction host_action;  /* what was installed before ours, which ours calls */
static struct sigaction first_action; /* the same, as it was the first time: Python's own */
static sem_t signalled;
static atomic_bool arrived; /* SIGINT, since the latest vlci_interrupt_prepare of the main thread */
static bool watching;       /* the watching thread lives; false again in a forked child */

enum { RECHECK_NS = 100000 };
static int installed = -1; /* what install() gave the last time, on the main thread; -1: to be asked again */
static long long installed_at;

/* Handlers that this thread is in the middle of. Initial-exec: the lazy kind may allocate at its first use. */
static _Thread_local volatile sig_atomic_t depth __attribute__((tls_model("initial-exec")));

static void act(const struct sigaction *action, int number, siginfo_t *info, void *machine) {
    if (action->sa_flags & SA_SIGINFO)
        action->sa_sigaction(number, info, machine);
    else
        action->sa_handler(number);
}

static void on_sigint(int number, siginfo_t *info, void *machine) {
    int saved = errno;
    /* A handler that was installed over ours, and that ours was then installed over again, calls ours as the
     * one before it (faulthandler's `chain`): from there on it is as if ours were the first. */
    if (depth < 2) {
        depth++;
        act(depth == 1 ? &host_action : &first_action, number, info, machine);
        depth--;
    }
    atomic_store(&arrived, true);
    sem_post(&signalled);
    errno = saved;
}

/* The thread as Python's get_ident() knows it: on Linux the pthread_t. */
static void raise_in(struct vlci_interruptible *call) {
    const struct vlci_realm *realm = call->realm;
    call->raised =
        realm->api.PyThreadState_SetAsyncExc((unsigned long)call->thread, realm->keyboard_interrupt) == 1;
}

/* In the guest, which may have changed hands meanwhile: the call is compared, never followed. */
struct forwarding {
    const struct vlci_interruptible *call;
    struct vlci_realm *realm;
};

static void *raise_inside(void *argument) {
    const struct forwarding *forwarding = argument;
    struct vlci_realm *realm = forwarding->realm;
    vlci_attach(realm);
    /* The call may have ended while this thread waited for the GIL; it cannot while it has it. */
    pthread_mutex_lock(&lock);
    if (innermost == forwarding->call && innermost->realm == realm && !innermost->raised &&
        atomic_load(&arrived)) {
        raise_in(innermost);
        if (innermost->raised) atomic_store(&arrived, false); /* calls that it makes get no other */
    }
    pthread_mutex_unlock(&lock);
    vlci_detach(realm);
    return NULL;
}

static void forward(void) {
    vlc_error error = VLC_ERROR_INIT;
    pthread_mutex_lock(&lock);
    struct vlci_interruptible *call = innermost;
    struct vlci_realm *realm = call ? call->realm : NULL;
    if (realm) vlci_realm_retain(realm);
    pthread_mutex_unlock(&lock);
    if (!realm) return;
    if (vlci_realm_begin(realm, &error) == VLC_OK) {
        struct forwarding forwarding = { call, realm };
        vlc_run(realm->context, raise_inside, &forwarding, NULL, &error);
        vlci_realm_end(realm);
    }
    vlci_realm_release(realm);
}

static void *watch(void *unused) {
    (void)unused;
    for (;;) {
        if (sem_wait(&signalled) == 0) forward();
    }
    return NULL;
}

static bool is_main_thread(void) { return main_known && pthread_equal(main_thread, pthread_self()); }

/* In the child the watching thread is none, and the call that the main thread is in only where that forked. */
void vlci_interrupt_fork(enum vlci_fork when) {
    vlci_mutex_fork(&lock, when);
    if (when != VLCI_FORK_CHILD) return;
    if (!is_main_thread()) innermost = NULL;
    watching = main_known = false;
    installed = -1;
}

/* Starts the watching thread. Where it cannot, Ctrl-C waits for the guest's call to return. */
static bool start_watching(void) {
    if (watching) return true;
    if (sem_init(&signalled, 0, 0)) return false;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the new thread must not take the host's signals */
    pthread_t thread;
    watching = pthread_create(&thread, NULL, watch, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (watching) pthread_detach(thread);
    return watching;
}

/* Learns which thread is the host's main thread. -1: an exception is set. */
static int find_main_thread(void) {
    PyObject *threading = PyImport_ImportModule("threading");
    PyObject *thread = threading ? PyObject_CallMethod(threading, "main_thread", NULL) : NULL;
    PyObject *ident = thread ? PyObject_GetAttrString(thread, "ident") : NULL;
    unsigned long number = ident ? PyLong_AsUnsignedLong(ident) : 0;
    Py_XDECREF(ident);
    Py_XDECREF(thread);
    Py_XDECREF(threading);
    if (PyErr_Occurred()) return -1;
    main_thread = (pthread_t)number;
    main_known = true;
    return 0;
}

/* Whether the host's Python answers SIGINT with KeyboardInterrupt: 1, 0, or -1 with an exception. */
static int host_raises(void) {
    PyObject *module = PyImport_ImportModule("_signal");
    if (!module) return -1;
    PyObject *handler = PyObject_CallMethod(module, "getsignal", "i", SIGINT);
    PyObject *raising = PyObject_GetAttrString(module, "default_int_handler");
    int result = handler && raising ? handler == raising : -1;
    Py_XDECREF(raising);
    Py_XDECREF(handler);
    Py_DECREF(module);
    return result;
}

/* Chains our handler before Python's. 1: Ctrl-C is forwarded, 0: it is not, -1: an exception is set. */
static int install(void) {
    struct sigaction current;
    if (sigaction(SIGINT, NULL, &current)) return 0;
    /* Every signal.signal() of the host replaces ours: as long as it is there, nothing has changed. */
    if (current.sa_flags & SA_SIGINFO && current.sa_sigaction == on_sigint) return start_watching();
    if (!(current.sa_flags & SA_SIGINFO) && (current.sa_handler == SIG_DFL || current.sa_handler == SIG_IGN))
        return 0;
    int raises = host_raises();
    if (raises <= 0 || !start_watching()) return raises < 0 ? -1 : 0;
    if (!first_action.sa_handler) first_action = current;
    host_action = current;
    struct sigaction ours = current;
    ours.sa_flags |= SA_SIGINFO;
    ours.sa_sigaction = on_sigint;
    return sigaction(SIGINT, &ours, NULL) == 0;
}

/* install(), but at most every 100 us: to ask the kernel takes 0.2 us, half of a call. A host that has set a
 * handler and put the former back within that time, and calls again at once, has Ctrl-C wait for the end of
 * that call; asyncio.run() alone takes longer. */
static int install_again(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long long time = now.tv_sec * 1000000000LL + now.tv_nsec;
    if (installed < 0 || time - installed_at > RECHECK_NS) {
        installed = install();
        installed_at = time;
    }
    return installed;
}

int vlci_interrupt_prepare(struct vlci_interruptible *call, struct vlci_realm *realm) {
    *call = (struct vlci_interruptible){ .realm = realm };
    if (!main_known && find_main_thread() < 0) return -1;
    if (!is_main_thread()) return 0;
    int forwarded = install_again();
    if (forwarded < 0) return -1;
    call->watched = forwarded;
    atomic_store(&arrived, false);
    return PyErr_CheckSignals(); /* what arrived before is the host's alone */
}

void vlci_interrupt_inherit(struct vlci_interruptible *call, struct vlci_realm *realm) {
    *call = (struct vlci_interruptible){ .realm = realm };
    if (!is_main_thread()) return;
    pthread_mutex_lock(&lock);
    call->watched = innermost;
    pthread_mutex_unlock(&lock);
}

void vlci_interrupt_begin(struct vlci_interruptible *call) {
    call->thread = pthread_self();
    if (call->watched) {
        pthread_mutex_lock(&lock);
        call->outer = innermost;
        innermost = call;
        pthread_mutex_unlock(&lock);
        if (atomic_load(&arrived)) /* between prepare and here */
            sem_post(&signalled);
    } else if (pthread_equal(call->realm->home, pthread_self())) {
        call->outer = call->realm->home_call;
        call->realm->home_call = call;
    }
}

void vlci_interrupt_end(struct vlci_interruptible *call, bool unwound) {
    if (call->watched) {
        pthread_mutex_lock(&lock);
        innermost = call->outer;
        pthread_mutex_unlock(&lock);
        if (call->raised && !unwound && call->outer) {
            atomic_store(&arrived, true);
            sem_post(&signalled);
        }
    } else if (call->realm->home_call == call) {
        call->realm->home_call = call->outer;
    }
    if (call->raised) /* perhaps not yet seen by the guest: it must not hit a later call */
        call->realm->api.PyThreadState_SetAsyncExc((unsigned long)pthread_self(), NULL);
}

struct vlci_interruptible *vlci_interrupt_suspend(void) {
    if (!is_main_thread()) return NULL;
    pthread_mutex_lock(&lock);
    struct vlci_interruptible *call = innermost;
    innermost = NULL;
    pthread_mutex_unlock(&lock);
    return call;
}

void vlci_interrupt_resume(struct vlci_interruptible *call, bool handled) {
    if (!call) return;
    if (handled) atomic_store(&arrived, false);
    pthread_mutex_lock(&lock);
    innermost = call;
    pthread_mutex_unlock(&lock);
    if (atomic_load(&arrived)) sem_post(&signalled);
}

void vlci_interrupt_home(struct vlci_realm *realm) {
    if (realm->home_call && !realm->home_call->raised) raise_in(realm->home_call);
}
