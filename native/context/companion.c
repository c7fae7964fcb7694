#include "context/companion.h"

#include "context/controller.h"
#include "context/evict.h"
#include "loader/error.h"
#include "loader/memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STACK_LEAST (8ul << 20) /* bytes: what a main thread has by default (`ulimit -s`) */

struct vlci_companion {
    struct vlci_companion *next;        /* of the same thread */
    struct vlci_companion *next_inside; /* of the same context */
    struct vlci_thread *root;           /* whom it stands for; NULL: that has ended */
    struct vlci_thread *thread;         /* its own record */
    vlc_context *context;
    pthread_t handle;
    struct vlci_errand *first; /* that it is made for */
    _Atomic(bool) busy;        /* somebody has asked it, and waits */
    _Atomic(bool) ends;        /* it is to end */
};

static vlci_lock lock; /* over both kinds of lists */

static void unlist(struct vlci_companion *companion) {
    struct vlci_companion **link = &companion->root->seat.companions;
    while (*link != companion) link = &(*link)->next;
    *link = companion->next;
    companion->root = NULL;
}

static void unlist_inside(struct vlci_companion *companion) {
    struct vlci_companion **link = &companion->context->companions;
    while (*link != companion) link = &(*link)->next_inside;
    *link = companion->next_inside;
}

static struct vlci_thread *root_of(struct vlci_thread *thread) {
    const struct vlci_companion *companion = thread->seat.companion;
    return companion && companion->root ? companion->root : thread;
}

/* ---- asking and doing ---------------------------------------------------------------------------------- */

/* By address only: whoever is woken may be gone already. */
static void ring(struct vlci_thread *thread) {
    _Atomic(int) *bell = &thread->seat.bell;
    atomic_store(bell, 1);
    vlci_os_wake_word(bell);
}

static void listen(struct vlci_thread *self) {
    while (!atomic_exchange(&self->seat.bell, 0)) vlci_os_wait_word(&self->seat.bell, 0, -1);
}

/* In a forked child, for the innermost errand: neither who asked for it lives, nor the stack that it lies on. */
static bool is_orphaned(const struct vlci_thread *self) { return self->seat.depth <= self->seat.orphaned; }

/* With what comes along: errno, the signal mask, float state. What becomes of the first two goes back. */
static void *call_inside(struct vlci_thread *self, struct vlci_errand *errand) {
    vlc_context *context = errand->context;
    struct vlci_float_state float_state;
    sigset_t signals, theirs = errand->signals;
    bool visits = self->visit->context != context && !vlci_visit_enter(context, NULL);
    vlci_arch_float_save(&float_state);
    vlci_arch_float_restore(&errand->float_state);
    locale_t locale = uselocale(vlci_context_locale(context));
    sigdelset(&theirs, vlci_evict_signal());
    pthread_sigmask(SIG_SETMASK, &theirs, &signals);
    bool is_outermost =
        self->seat.companion && self->seat.depth == 1; /* none of its calls goes on further out */
    if (is_outermost && vlci_controllers_are_new(context)) vlci_controllers_follow(context);
    errno = errand->error_number;
    void *result = errand->function(errand->argument);
    int error_number = errno;
    pthread_sigmask(SIG_SETMASK, &signals, &theirs);
    uselocale(locale);
    vlci_arch_float_restore(&float_state);
    if (visits) vlci_visit_leave(context);
    if (is_orphaned(self)) return NULL;
    errand->error_number = error_number;
    errand->signals = theirs;
    return result;
}

/* False: it is of no use to go on waiting for others, which a fork has left behind. */
static bool perform(struct vlci_thread *self, struct vlci_errand *errand, struct vlci_errand *pending) {
    errand->outer = self->seat.doing;
    errand->pending = pending;
    self->seat.doing = errand;
    self->seat.depth++;
    void *result = errand->context ? call_inside(self, errand) : errand->function(errand->argument);
    bool orphaned = is_orphaned(self);
    self->seat.depth--;
    if (orphaned) {
        self->seat.orphaned = self->seat.depth;
        return false;
    }
    self->seat.doing = errand->outer;
    if (self->seat.companion && !errand->outer) atomic_store(&self->seat.companion->busy, false);
    errand->result = result;
    errand->state = VLCI_DONE;
    ring(errand->caller);
    return true;
}

/* Does what this thread is asked for, until its own errand is done or, where it has none, it is told to end. */
static void attend(struct vlci_thread *self, struct vlci_errand *own) {
    for (;;) {
        listen(self);
        struct vlci_errand *errand = self->seat.errand;
        self->seat.errand = NULL;
        if (!errand) {
            if (own ? own->state != VLCI_UNDONE : atomic_load(&self->seat.companion->ends)) return;
        } else if (!perform(self, errand, own)) {
            if (own) own->state = VLCI_STAYED_BEHIND;
            return;
        }
    }
}

static void *companion_main(void *argument) {
    struct vlci_companion *companion = argument;
    struct vlci_thread *self = vlci_thread_current;
    char name[16];
    snprintf(name, sizeof name, "vlc:%s", companion->context->name);
    pthread_setname_np(pthread_self(), name);
    self->seat.companion = companion;
    companion->thread = self;
    if (perform(self, companion->first, NULL)) attend(self, NULL);
    return NULL;
}

/* ---- making ------------------------------------------------------------------------------------------- */

/* As large as the caller's, which may have been made for deep recursion. */
static size_t stack_size(void) {
    pthread_attr_t attributes;
    size_t standard = 0, own = 0;
    if (!pthread_getattr_default_np(&attributes)) {
        pthread_attr_getstacksize(&attributes, &standard);
        pthread_attr_destroy(&attributes);
    }
    bool is_main =
        vlci_os_thread_id() == getpid(); /* whose size libc reads from a file, and is the standard */
    if (!is_main && !pthread_getattr_np(pthread_self(), &attributes)) {
        pthread_attr_getstacksize(&attributes, &own);
        pthread_attr_destroy(&attributes);
    }
    size_t size = standard > own ? standard : own;
    return size > STACK_LEAST ? size : STACK_LEAST;
}

/* Starts with all signals blocked: it takes on its caller's mask for each errand, and none between. */
static int companion_start(struct vlci_companion *companion) {
    pthread_attr_t attributes;
    sigset_t signals;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, stack_size());
    vlci_os_signals_block(&signals);
    int failed =
        vlci_thread_create(companion->context, &companion->handle, &attributes, companion_main, companion);
    vlci_os_signals_restore(&signals);
    pthread_attr_destroy(&attributes);
    return failed;
}

static int companion_make(struct vlci_thread *root, struct vlci_errand *errand, vlc_error *error) {
    struct vlci_companion *made = calloc(1, sizeof *made);
    int failed = ENOMEM;
    if (made) {
        *made = (struct vlci_companion){
            .root = root, .context = errand->context, .first = errand, .busy = true
        };
        vlci_lock_take(&lock);
        made->next = root->seat.companions;
        root->seat.companions = made;
        made->next_inside = errand->context->companions;
        errand->context->companions = made;
        vlci_lock_drop(&lock);
        if (!(failed = companion_start(made))) return VLC_OK;
        vlci_lock_take(&lock);
        unlist(made);
        unlist_inside(made);
        vlci_lock_drop(&lock);
        free(made);
    }
    const char *name = errand->context->name;
    return vlci_fail(error, VLC_SYSTEM, failed, name,
                     "cannot make a thread that stands for this one in the resident context '%s': %s; see "
                     "`ulimit -u`, `ulimit -v` and the cgroup's pids.max",
                     name, strerror(failed));
}

/* ---- errands -------------------------------------------------------------------------------------------- */

/* NULL: no memory. */
static struct vlci_errand *errand_take(struct vlci_thread *self, vlc_context *context, vlc_function function,
                                       void *argument) {
    struct vlci_errand *errand = self->seat.spare;
    if (errand)
        self->seat.spare = errand->outer;
    else if (!(errand = vlci_memory_take(sizeof *errand)))
        return NULL;
    *errand = (struct vlci_errand){ .context = context, .function = function, .argument = argument };
    return errand;
}

static void errand_give(struct vlci_thread *self, struct vlci_errand *errand) {
    errand->outer = self->seat.spare;
    self->seat.spare = errand;
}

/* ---- handing over -------------------------------------------------------------------------------------- */

/* Of the threads that wait for this one, directly or not, one of the context's own. */
static struct vlci_thread *waiting_inside(const struct vlci_thread *self, const vlc_context *context) {
    const struct vlci_errand *errand = self->seat.doing;
    while (errand && errand->caller->owner != context) errand = errand->before;
    return errand ? errand->caller : NULL;
}

static struct vlci_companion *companion_of(const struct vlci_thread *root, const vlc_context *context) {
    VLCI_HOLD(&lock);
    struct vlci_companion *at = root->seat.companions;
    while (at && at->context != context) at = at->next;
    return at;
}

/* In a signal handler, which may have heard the bell that the interrupted wait is for. */
static void await_again(struct vlci_thread *self, struct vlci_errand *outer) {
    self->seat.awaited = outer;
    if (outer && outer->state != VLCI_UNDONE) ring(self);
}

static int ask(struct vlci_thread *self, struct vlci_thread *doer, struct vlci_errand *errand,
               vlc_error *error) {
    const char *name = errand->context ? errand->context->name : "host";
    struct vlci_companion *companion = doer ? NULL : companion_of(root_of(self), errand->context);
    if (companion && atomic_exchange(&companion->busy, true))
        return vlci_fail(
            error, VLC_MISUSE, 0, name,
            "cannot enter context '%s' from a signal handler: the handler's thread waits for a call "
            "into it",
            name);
    errand->caller = self;
    errand->before = self->seat.doing;
    errand->error_number = errno;
    vlci_arch_float_save(&errand->float_state);
    pthread_sigmask(SIG_SETMASK, NULL, &errand->signals);
    sigset_t signals = errand->signals;
    struct vlci_errand *outer = self->seat.awaited;
    self->seat.awaited = errand;
    if (companion) doer = companion->thread;
    if (doer) {
        doer->seat.errand = errand;
        ring(doer);
    } else {
        int status = companion_make(root_of(self), errand, error);
        if (status) {
            await_again(self, outer);
            return status;
        }
    }
    attend(self, errand);
    await_again(self, outer);
    if (errand->state == VLCI_STAYED_BEHIND)
        return vlci_fail(
            error, VLC_MISUSE, 0, name,
            "context '%s' does not exist in this child of fork(): only the context that forked lives "
            "here",
            name);
    if (errand->state == VLCI_LOST)
        return vlci_fail(
            error, VLC_MISUSE, 0, name,
            "a call into context '%s' did not return: it ended its thread (pthread_exit), which stood "
            "there for this one",
            name);
    if (sigismember(&signals, vlci_evict_signal())) sigaddset(&errand->signals, vlci_evict_signal());
    if (memcmp(&signals, &errand->signals, sizeof signals))
        pthread_sigmask(SIG_SETMASK, &errand->signals, NULL);
    errno = errand->error_number;
    return VLC_OK;
}

/* A new errand of this thread. NULL: no memory. */
static struct vlci_errand *errand_for(vlc_context *context, vlc_function function, void *argument,
                                      vlc_error *error) {
    struct vlci_thread *self = vlci_thread_self();
    struct vlci_errand *errand = self ? errand_take(self, context, function, argument) : NULL;
    if (!errand)
        vlci_fail(error, VLC_SYSTEM, ENOMEM, context->name, "cannot enter context '%s': out of memory",
                  context->name);
    return errand;
}

int vlci_hand_over(vlc_context *context, vlc_function function, void *argument, void **result,
                   vlc_error *error) {
    struct vlci_errand *errand = errand_for(context, function, argument, error);
    if (!errand) return VLC_SYSTEM;
    struct vlci_thread *self = vlci_thread_current;
    struct vlci_thread *doer = waiting_inside(self, context); /* then it is in already, closed or not */
    int status = doer ? VLC_OK : vlci_context_check_open(context, error);
    if (!status && !doer) {
        errand->visits = vlci_context_visit_begins(context);
        if (!errand->visits) status = vlci_context_check_open(context, error);
    }
    if (!status) status = ask(self, doer, errand, error);
    if (errand->visits) vlci_context_visit_ended(context);
    if (!status && result) *result = errand->result;
    errand_give(self, errand);
    return status;
}

void *vlc_run_outside(vlc_function function, void *argument) {
    struct vlci_thread *self = vlci_thread_current, *root = self ? root_of(self) : NULL;
    if (self == root || !self->seat.doing) return function(argument); /* nobody waits for it */
    struct vlci_errand *errand = errand_take(self, NULL, function, argument);
    if (!errand) return function(argument);
    void *result = ask(self, root, errand, NULL) ? NULL : errand->result;
    errand_give(self, errand);
    return result;
}

uint64_t vlc_thread_number(void) {
    struct vlci_thread *self = vlci_context_start(NULL) ? NULL : vlci_thread_self();
    return self ? root_of(self)->number : 0;
}

int vlci_run_inside(vlc_context *context, vlc_function function, void *argument, vlc_error *error) {
    if (vlci_is_foreign(context)) {
        struct vlci_errand *errand = errand_for(context, function, argument, error);
        if (!errand) return VLC_SYSTEM;
        struct vlci_thread *self = vlci_thread_current;
        int status = ask(self, waiting_inside(self, context), errand, error);
        errand_give(self, errand);
        return status;
    }
    int status = vlci_visit_enter(context, error);
    if (status) return status;
    function(argument);
    vlci_visit_leave(context);
    return VLC_OK;
}

/* ---- ending -------------------------------------------------------------------------------------------- */

static void tell_to_end(struct vlci_companion *companion) {
    atomic_store(&companion->ends, true);
    ring(companion->thread);
}

/* A companion that ends by itself is one no more. */
static void resign(struct vlci_thread *self) {
    struct vlci_companion *companion = self->seat.companion;
    vlci_lock_take(&lock);
    if (companion->root) unlist(companion); /* not in a forked child */
    unlist_inside(companion);
    vlci_lock_drop(&lock);
    vlci_pthread_detach(pthread_self(), companion->context);
    self->seat.companion = NULL;
    free(companion);
}

/* The thread ends within what it does for others (pthread_exit): these go on, innermost first. */
static void give_up(struct vlci_thread *self) {
    self->seat.awaited = NULL; /* what waited was left */
    if (self->seat.companion) resign(self);
    for (struct vlci_errand *errand, *pending; (errand = self->seat.doing);) {
        self->seat.doing = errand->outer;
        pending = errand->pending;
        errand->state = VLCI_LOST;
        ring(errand->caller);
        if (!pending) continue;
        attend(self, pending);
        if (pending->visits) vlci_context_visit_ended(pending->context);
        errand_give(self, pending);
    }
}

void vlci_companions_leave(struct vlci_thread *thread) {
    if (thread->seat.doing) give_up(thread);
    for (;;) {
        vlci_lock_take(&lock);
        struct vlci_companion *companion = thread->seat.companions;
        bool visits = false;
        if (companion) {
            unlist(companion);
            /* its context stays while this visits it; one that closes ends it by itself */
            visits = vlci_context_visit_begins(companion->context);
            if (visits) unlist_inside(companion);
        }
        vlci_lock_drop(&lock);
        if (!companion) return;
        if (!visits) continue;
        vlc_context *context = companion->context;
        tell_to_end(companion);
        vlci_thread_joined(context, companion->handle, pthread_join(companion->handle, NULL));
        free(companion);
        vlci_context_visit_ended(context);
    }
}

void vlci_companions_forget(struct vlci_thread *thread) {
    for (struct vlci_errand *errand; (errand = thread->seat.spare);) {
        thread->seat.spare = errand->outer;
        vlci_memory_give(errand, sizeof *errand);
    }
}

void vlci_companions_end(vlc_context *context) {
    vlci_lock_take(&lock);
    for (struct vlci_companion *at = context->companions; at; at = at->next_inside)
        if (at->root) unlist(at);
    vlci_lock_drop(&lock);
    for (struct vlci_companion *at = context->companions; at; at = at->next_inside) tell_to_end(at);
}

void vlci_companions_free(vlc_context *context) {
    for (struct vlci_companion *at; (at = context->companions);) {
        context->companions = at->next_inside;
        free(at);
    }
}

/* In the child only this thread lives; the records of others are left behind. */
void vlci_companion_fork(vlc_context *current, enum vlci_fork when) {
    vlci_lock_fork(&lock, when);
    struct vlci_thread *self = vlci_thread_current;
    if (when != VLCI_FORK_CHILD) return;
    if (current) current->companions = NULL;
    if (!self) return;
    self->seat.companions = NULL;
    self->seat.orphaned = self->seat.depth;
    self->seat.doing = NULL;
    struct vlci_companion *companion = self->seat.companion;
    if (!companion) return;
    companion->root = NULL;
    companion->next_inside = NULL;
    if (current == companion->context) current->companions = companion;
}
