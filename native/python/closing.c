#include "closing.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

#include "call.h"
#include "fork.h"
#include "guest.h"
#include "lease.h"
#include "status.h"

enum {
    DEFAULT_TIMEOUT_MS = 5000, /* as vlc_destroy's */
    SIGNAL_CHECK_MS = 50,      /* how long Ctrl-C may go unseen here */
    PROGRESS_NS = 1000000,     /* CPU time that counts as computing */
};

static struct timespec after(int milliseconds) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    time.tv_nsec += milliseconds % 1000 * 1000000L;
    time.tv_sec += milliseconds / 1000 + time.tv_nsec / 1000000000L;
    time.tv_nsec %= 1000000000L;
    return time;
}

static bool is_past(const struct timespec *time) {
    struct timespec now = after(0);
    return now.tv_sec > time->tv_sec || (now.tv_sec == time->tv_sec && now.tv_nsec >= time->tv_nsec);
}

/* When a wait is over. */
struct limit {
    struct timespec deadline;
    bool patient; /* moves on while the home thread computes: on a busy machine Python's end takes long */
    struct timespec used; /* CPU time of the home thread at the latest look */
};

static struct limit limit_make(int timeout_ms) {
    return (struct limit){ .deadline = after(timeout_ms < 0 ? DEFAULT_TIMEOUT_MS : timeout_ms),
                           .patient = timeout_ms < 0 };
}

static void extend(struct limit *limit, pthread_t home) {
    clockid_t clock;
    struct timespec used;
    if (!limit->patient || pthread_getcpuclockid(home, &clock) || clock_gettime(clock, &used)) return;
    if (used.tv_sec == limit->used.tv_sec && used.tv_nsec - limit->used.tv_nsec < PROGRESS_NS) return;
    limit->used = used;
    limit->deadline = after(DEFAULT_TIMEOUT_MS);
}

static bool has_begun(const struct vlci_realm *realm) { return realm->life != VLCI_STARTING; }
static bool is_empty(const struct vlci_realm *realm) { return !realm->inside || realm->life > VLCI_STOPPING; }
static bool has_ended(const struct vlci_realm *realm) {
    return realm->life == VLCI_LINGERING || realm->life == VLCI_STOPPED;
}

/* Waits for `reached`, with the realm's lock held there. 1: reached, 0: too late, -1: an exception of a
 * signal handler is set. */
static int wait_until(struct vlci_realm *realm, bool (*reached)(const struct vlci_realm *),
                      struct limit *limit) {
    for (;;) {
        bool done;
        Py_BEGIN_ALLOW_THREADS struct timespec slice = after(SIGNAL_CHECK_MS);
        int waited = 0;
        pthread_mutex_lock(&realm->lock);
        while (!(done = reached(realm)) && waited != ETIMEDOUT)
            waited = pthread_cond_timedwait(&realm->changed, &realm->lock, &slice);
        pthread_mutex_unlock(&realm->lock);
        Py_END_ALLOW_THREADS if (PyErr_CheckSignals() < 0) return -1;
        if (done) return 1;
        if (reached == has_ended) extend(limit, realm->home);
        if (is_past(&limit->deadline)) return 0;
    }
}

/* Moves from one life to another; false where it is not in the first. */
static bool move(struct vlci_realm *realm, enum vlci_life from, enum vlci_life to) {
    pthread_mutex_lock(&realm->lock);
    bool moved = realm->life == from;
    if (moved) realm->life = to;
    pthread_mutex_unlock(&realm->lock);
    return moved;
}

/* Has the home thread end the guest, once nobody is inside. Otherwise it runs on. -1: an exception is set. */
static int begin_end(struct vlci_realm *realm, struct limit *limit) {
    vlc_error error = VLC_ERROR_INIT;
    move(realm, VLCI_RUNNING, VLCI_STOPPING);
    int emptied = wait_until(realm, is_empty, limit);
    if (emptied == 1) {
        if (!move(realm, VLCI_STOPPING, VLCI_ENDING)) return 0; /* another thread did */
        vlci_realm_retain(realm);                               /* vlci_guest_stop's */
        int status;
        Py_BEGIN_ALLOW_THREADS status =
            vlc_submit_on(realm->context, 0, vlci_guest_stop, realm, NULL, &error);
        Py_END_ALLOW_THREADS if (status == VLC_OK) return 0;
        vlci_realm_release(realm);
        vlci_realm_set_life(realm, VLCI_RUNNING);
        vlci_raise(&error);
        return -1;
    }
    move(realm, VLCI_STOPPING, VLCI_RUNNING);
    if (emptied == 0) {
        vlci_refuse(
            &error, VLC_BUSY, realm->name,
            "cannot stop the Python of the context '%s': %u calls are still inside. End or interrupt them, "
            "and close it again.",
            realm->name, realm->inside);
        vlci_raise(&error);
    }
    return -1;
}

/* Callbacks of the guest that were handed out: none may come in while it is finalised, or later. -1: an exception
 * is set. */
static int retire(struct vlci_realm *realm, const struct timespec *deadline) {
    for (;;) {
        vlc_error error = VLC_ERROR_INIT;
        int status;
        Py_BEGIN_ALLOW_THREADS status = vlc_retire(realm->context, SIGNAL_CHECK_MS, &error);
        Py_END_ALLOW_THREADS if (PyErr_CheckSignals() < 0) return -1;
        if (status == VLC_OK) return 0;
        if (status == VLC_BUSY && !is_past(deadline)) continue;
        vlci_raise(&error);
        return -1;
    }
}

/* The guest's end, as far as its arrays let it. -1: an exception is set. */
static int end_guest(struct vlci_realm *realm, bool abandon, struct limit *limit) {
    vlc_error error = VLC_ERROR_INIT;
    if (vlci_calls_inside(realm) || vlc_context_of(NULL) == realm->context) {
        vlci_refuse(
            &error, VLC_MISUSE, realm->name,
            "cannot stop the Python of the context '%s' from inside of it. Stop it after the call returns.",
            realm->name);
        vlci_raise(&error);
        return -1;
    }
    if (wait_until(realm, has_begun, limit) < 0) return -1;
    if (abandon) vlci_realm_abandon(realm);
    if (vlci_realm_life(realm) < VLCI_ENDING &&
        (retire(realm, &limit->deadline) < 0 || begin_end(realm, limit) < 0))
        return -1;
    int ended = wait_until(realm, has_ended, limit);
    if (ended < 0) return -1;
    if (!ended) {
        vlci_refuse(
            &error, VLC_BUSY, realm->name,
            "the Python of the context '%s' is not finalised yet: its atexit functions or threads have not "
            "ended. End them, and close it again.",
            realm->name);
        vlci_raise(&error);
        return -1;
    }
    return 0;
}

/* ---- contexts whose arrays are held -------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static pthread_cond_t changed;                           /* on the monotonic clock */
static struct vlci_realm *lingering;                     /* by next_lingering; each counted */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void prepare(void) { vlci_condition_init(&changed); }

/* In a forked child the threads that these wait for do not exist. */
void vlci_closing_fork(enum vlci_fork when) {
    vlci_mutex_fork(&lock, when);
    if (when != VLCI_FORK_CHILD) return;
    vlci_condition_init(&changed);
    lingering = NULL;
}

static void delist(struct vlci_realm *realm) {
    pthread_mutex_lock(&lock);
    struct vlci_realm **link = &lingering;
    while (*link && *link != realm) link = &(*link)->next_lingering;
    bool found = *link;
    if (found) *link = realm->next_lingering;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (found) vlci_realm_release(realm);
}

/* A thread of its own, made only now: the context's threads are to end, and the thread that dropped the
 * last array is somebody's. What does not end in time stays, without costing CPU. */
static void *reap(void *argument) {
    struct vlci_realm *realm = argument;
    vlc_error error = VLC_ERROR_INIT;
    if (vlc_destroy(realm->context, DEFAULT_TIMEOUT_MS, &error) == VLC_OK) vlci_leases_forget(realm);
    delist(realm);
    vlci_realm_release(realm);
    return NULL;
}

/* On the home thread, once the guest of a lingering context is finalised. */
static void finish(struct vlci_realm *realm) {
    if (realm->abandoned) { /* the process ends */
        delist(realm);
        return;
    }
    vlci_realm_retain(realm);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the new thread must not take the host's signals */
    pthread_t thread;
    if (pthread_create(&thread, NULL, reap, realm) == 0)
        pthread_detach(thread);
    else
        vlci_realm_release(realm); /* its memory stays */
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Lets the context go by itself with the last array. */
static int linger(struct vlci_context_object *self) {
    struct vlci_realm *realm = self->guest;
    vlc_error error = VLC_ERROR_INIT;
    int status;
    pthread_once(&once, prepare);
    self->closed = true;
    /* The home thread waits for the arrays, so this only closes the context, for good. */
    Py_BEGIN_ALLOW_THREADS status = vlc_destroy(realm->context, 0, &error);
    Py_END_ALLOW_THREADS if (status == VLC_OK) { /* the process ends, and had it abandoned */
        self->context = NULL;
        vlci_leases_forget(realm);
        return 0;
    }
    if (status != VLC_BUSY) {
        vlci_raise(&error);
        return -1;
    }
    self->context = NULL;
    vlci_realm_retain(realm);
    pthread_mutex_lock(&lock);
    realm->next_lingering = lingering;
    lingering = realm;
    pthread_mutex_unlock(&lock);
    vlci_realm_detach(realm, finish);
    return 0;
}

void vlci_close_lingering(int timeout_ms) {
    pthread_once(&once, prepare);
    struct timespec deadline = after(timeout_ms);
    pthread_mutex_lock(&lock);
    for (struct vlci_realm *realm = lingering; realm; realm = realm->next_lingering)
        vlci_realm_abandon(realm);
    while (lingering && pthread_cond_timedwait(&changed, &lock, &deadline) == 0);
    pthread_mutex_unlock(&lock);
}

/* ---- the context --------------------------------------------------------------------------------------- */

/* Waits until no method of another thread uses the context without the GIL. */
static bool wait_for_uses(struct vlci_context_object *self, const struct timespec *deadline) {
    const struct timespec pause = { 0, 1000000 };
    while (self->uses && !is_past(deadline)) {
        Py_BEGIN_ALLOW_THREADS nanosleep(&pause, NULL);
        Py_END_ALLOW_THREADS
    }
    return !self->uses;
}

static int destroy(struct vlci_context_object *self, int timeout_ms, const struct limit *limit) {
    vlc_error error = VLC_ERROR_INIT;
    self->closed = true;
    if (!wait_for_uses(self, &limit->deadline)) {
        vlci_refuse(
            &error, VLC_BUSY, vlc_name(self->context),
            "cannot destroy the context '%s': %u calls of other threads are still inside. End them, and "
            "close it again.",
            vlc_name(self->context), self->uses);
        vlci_raise(&error);
        return -1;
    }
    vlc_context *context = self->context;
    self->context = NULL; /* nobody may reach it while it goes */
    int status;
    Py_BEGIN_ALLOW_THREADS status = vlc_destroy(context, timeout_ms, &error);
    Py_END_ALLOW_THREADS if (status != VLC_OK) {
        self->context = context;
        vlci_raise(&error);
        return -1;
    }
    if (self->guest) vlci_leases_forget(self->guest);
    return 0;
}

int vlci_close(struct vlci_context_object *self, int timeout_ms, bool abandon) {
    struct limit limit = limit_make(timeout_ms);
    struct vlci_realm *guest = self->guest;
    if (!self->context) return 0;
    vlc_set_memory_limit(self->context, 0, NULL); /* as vlc_destroy does; the interpreter ends before that */
    if (guest) {
        if (end_guest(guest, abandon, &limit) < 0) return -1;
        if (vlci_realm_life(guest) == VLCI_LINGERING) return linger(self);
        Py_CLEAR(guest->answer);
        if (atomic_load(&guest->lent)) return 0; /* abandoned */
    }
    return destroy(self, timeout_ms, &limit);
}
