#include "loader/thread.h"

#include "context/companion.h"
#include "context/context.h"
#include "context/controller.h"
#include "context/evict.h"
#include "context/policy.h"
#include "context/wrap.h"
#include "loader/error.h"
#include "loader/key.h"
#include "loader/memory.h"
#include "loader/stack.h"
#include "loader/tls.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

__thread struct vlci_thread *vlci_thread_current __attribute__((tls_model("initial-exec")));

static struct vlci_thread *threads;
static pthread_key_t end_key;
static _Atomic(uint64_t) last_number;

/* This thread is past the last destructors of its keys, so nobody will tell when it is gone: if it comes to us
 * once more, its record is lost rather than listed. */
static __thread bool is_over __attribute__((tls_model("initial-exec")));

/* The tls lock is held. */
static void unlist(struct vlci_thread *thread) {
    if (!thread->link) return;
    if ((*thread->link = thread->next)) thread->next->link = thread->link;
    thread->link = NULL;
}

/* A host's thread ends: destructors of a context that is closing are left out, its memory goes anyway. */
static void exits_run_all(struct vlci_thread *thread) {
    for (;;) {
        sigset_t signals;
        vlci_os_signals_block(&signals);
        vlci_lock_take(&vlci_tls_lock);
        struct vlci_thread_exit *exit = thread->exits;
        if (exit) thread->exits = exit->next;
        bool visits = exit && exit->function && exit->context != thread->owner;
        bool run = exit && exit->function && (!visits || vlci_context_visit_begins(exit->context));
        vlci_lock_drop(&vlci_tls_lock);
        vlci_os_signals_restore(&signals);
        if (!exit) return;
        if (run) exit->function(exit->object);
        if (run && visits) vlci_context_visit_ended(exit->context);
        vlci_memory_give(exit, sizeof *exit);
    }
}

/* PTHREAD_DESTRUCTOR_ITERATIONS is 4. ThreadSanitizer ends its record of the thread among the destructors of the
 * fourth, and instrumented code crashes from then on. */
#ifdef __SANITIZE_THREAD__
#define LAST_ROUND 3
#else
#define LAST_ROUND 4
#endif

/* Runs among the destructors of the thread's keys. Others may still use TLS and our keys: it puts itself
 * off to the last round. */
static void thread_end(void *record) {
    struct vlci_thread *thread = record;
    sigset_t signals;
    exits_run_all(thread);
    vlci_key_run_destructors(thread);
    vlci_companions_leave(thread);
    vlci_os_signals_block(&signals);
    if (++thread->destructor_rounds < LAST_ROUND) {
        /* A context's thread sees every round. A host's that first came to us in a destructor may not see the
         * last, so it is listed no longer. */
        vlci_lock_take(&vlci_tls_lock);
        if (!thread->owner) unlist(thread);
        vlci_lock_drop(&vlci_tls_lock);
        vlci_os_signals_restore(&signals);
        pthread_setspecific(end_key, thread);
        return;
    }
    vlc_context *owner = thread->owner;
    for (struct vlci_visit *visit; (visit = thread->visit) != &thread->base;) { /* it ended inside */
        thread->visit = visit->outer;
        vlci_wrap_visit_ended(visit->context, visit->is_wrapped);
        visit->outer = thread->spare;
        thread->spare = visit;
    }
    vlci_lock_take(&vlci_tls_lock);
    vlci_thread_current = NULL;
    is_over = true;
    unlist(thread);
    vlci_tls_thread_free(thread);
    vlci_lock_drop(&vlci_tls_lock);
    vlci_key_thread_free(thread);
    vlci_companions_forget(thread);
    for (struct vlci_visit *visit; (visit = thread->spare);) {
        thread->spare = visit->outer;
        vlci_memory_give(visit, sizeof *visit);
    }
    pid_t tid = thread->tid;
    vlci_memory_give(thread, sizeof *thread);
    if (owner) vlci_context_thread_ended(owner, tid);
    vlci_os_signals_restore(&signals);
}

/* Makes `thread` the record of the calling one, or adopts what a signal handler was quicker to make. */
static void thread_register(struct vlci_thread *thread, vlc_context *owner, void *start) {
    struct vlci_thread *known = vlci_thread_current;
    if (known) {
        known->policy = thread->policy;
        known->own_policy = thread->own_policy;
        vlci_memory_give(thread, sizeof *thread);
        thread = known;
    }
    vlci_lock_take(&vlci_tls_lock);
    thread->owner = owner;
    thread->start = start;
    thread->base.context = owner;
    if (!known) {
        thread->pointer = vlci_arch_thread_pointer();
        thread->tid = vlci_os_thread_id();
        thread->number = atomic_fetch_add(&last_number, 1) + 1;
        thread->handle = pthread_self();
        thread->visit = &thread->base;
        if (!is_over) {
            if ((thread->next = threads)) threads->link = &thread->next;
            thread->link = &threads;
            threads = thread;
        }
    }
    vlci_tls_thread_init(thread);
    vlci_lock_drop(&vlci_tls_lock);
    vlci_thread_current = thread;
    pthread_setspecific(end_key, thread);
}

static __attribute__((noinline)) struct vlci_thread *self_slow(void) {
    int saved = errno;
    sigset_t signals;
    vlci_os_signals_block(&signals);
    struct vlci_thread *thread = vlci_thread_current;
    if (!thread && (thread = vlci_memory_take(sizeof *thread))) thread_register(thread, NULL, NULL);
    vlci_os_signals_restore(&signals);
    errno = saved;
    return thread;
}

struct vlci_thread *vlci_thread_self(void) { return vlci_thread_current ? vlci_thread_current : self_slow(); }

void vlci_thread_pin(vlc_context *context) {
    cpu_set_t slice, now, both;
    vlci_context_cpus(context, &slice);
    if (vlci_os_affinity_get(0, &now)) return;
    CPU_AND(&both, &now, &slice);
    if (CPU_COUNT(&both) == 0) both = slice;
    if (!CPU_EQUAL(&both, &now)) vlci_os_affinity_set(0, &both);
    vlci_slice_settle(context, 0, &slice);
}

struct beginning {
    void *(*function)(void *);
    void *argument;
    vlc_context *context, *maker; /* whose thread made it; NULL: the host's */
    struct vlci_stack *stack;     /* of a resident context's thread */
    bool from_elsewhere;          /* its maker is inside of another context */
    /* Its maker waits until it has begun: for the stack, or since another context, which cannot be closed
     * meanwhile, is read. */
    bool awaited;
    _Atomic(int) state;
    struct vlci_thread *thread; /* made by the creator, who can still say that memory has run out */
};
enum { BEGINS, BEGUN, REFUSED };

/* The record is the new thread's, or its maker's if that waits: gone once it has seen the state. */
static void answer(struct beginning *begin, bool awaited, int state) {
    if (awaited) {
        atomic_store(&begin->state, state);
        vlci_os_wake_word(&begin->state);
    } else {
        free(begin);
    }
}

/* Where it has the mask of the context that its maker is inside of: one narrower than ours is nobody's choice then. */
static void take_slice(vlc_context *context) {
    cpu_set_t slice;
    vlci_context_cpus(context, &slice);
    vlci_os_affinity_set(0, &slice);
}

static void *thread_begin(void *argument) {
    struct beginning begin = *(struct beginning *)argument;
    if (begin.stack && !vlci_stack_begin(begin.context, begin.stack)) { /* no slots for the context's code */
        answer(argument, true, REFUSED);
        return NULL;
    }
    sigset_t signals;
    vlci_os_signals_block(&signals);
    vlci_quality_begin(begin.context,
                       begin.maker); /* before vlc_threads tells of it: 40 ms, with control groups */
    if (begin.from_elsewhere) take_slice(begin.context);
    vlci_policy_begin(begin.context, begin.thread);
    thread_register(begin.thread, begin.context, (void *)begin.function);
    vlci_os_signals_restore(&signals);
    answer(argument, begin.awaited, BEGUN);
    vlci_thread_pin(begin.context);
    vlci_policy_follow(begin.context);
    uselocale(vlci_context_locale(begin.context));
    vlci_os_signal_unblock(vlci_evict_signal()); /* its maker may block all (jemalloc does) */
    void *way_out[5], *result = NULL;
    vlci_controllers_begin(begin.context, (void *)begin.function);
    pthread_sigmask(SIG_SETMASK, NULL, &signals);
    /* evict.c may bring us back. Not by siglongjmp: glibc's runs pthread_cleanup handlers on the way, which wait
     * for mutexes that threads evicted before still hold. */
    if (!__builtin_setjmp(way_out)) {
        vlci_thread_current->way_out = way_out;
        result = begin.function(begin.argument);
    }
    vlci_thread_current->way_out = NULL;
    pthread_sigmask(SIG_SETMASK, &signals, NULL);
    return result;
}

static int wait_for_begin(struct beginning *begin) {
    while (atomic_load(&begin->state) == BEGINS) vlci_os_wait_word(&begin->state, BEGINS, -1);
    return begin->state;
}

static int create_on_stack(struct beginning *begin, pthread_t *handle, const pthread_attr_t *attributes) {
    pthread_attr_t made;
    begin->stack = vlci_stack_take(begin->context, attributes);
    if (!begin->stack) return EAGAIN;
    int failed = vlci_stack_attributes(begin->stack, attributes, &made);
    if (!failed) failed = pthread_create(handle, &made, thread_begin, begin);
    if (!failed) {
        if (wait_for_begin(begin) == BEGUN) return 0;
        pthread_join(*handle, NULL);
        failed = EAGAIN;
    }
    vlci_stack_drop(begin->context, begin->stack);
    return failed;
}

int vlci_thread_create(vlc_context *context, pthread_t *handle, const pthread_attr_t *attributes,
                       void *(*function)(void *), void *argument) {
    const struct vlci_thread *self = vlci_thread_current;
    vlc_context *maker = self ? self->owner : NULL, *around = self ? self->visit->context : NULL;
    bool from_elsewhere = around && around != context;
    bool awaited = context->slots || from_elsewhere || (maker && maker != context);
    struct beginning *begin = malloc(sizeof *begin);
    struct vlci_thread *thread = begin ? vlci_memory_take(sizeof *thread) : NULL;
    int failed = thread && vlci_context_thread_begins(context) ? 0 : EAGAIN;
    if (!failed) {
        vlci_policy_inherit(thread);
        *begin = (struct beginning){
            .function = function,
            .argument = argument,
            .context = context,
            .maker = maker,
            .from_elsewhere = from_elsewhere,
            .awaited = awaited,
            .thread = thread,
        };
        failed = context->slots ? create_on_stack(begin, handle, attributes)
                                : pthread_create(handle, attributes, thread_begin, begin);
        if (!failed && awaited) wait_for_begin(begin);
        if (failed) vlci_context_thread_ended(context, 0);
    }
    if (failed) vlci_memory_give(thread, sizeof *thread);
    if (failed || awaited) free(begin);
    return failed;
}

int vlci_thread_joined(vlc_context *context, pthread_t thread, int failed) {
    struct vlci_stack *stack = failed ? NULL : vlci_stack_of(context, thread);
    if (stack) vlci_stack_drop(context, stack);
    return failed;
}

void vlci_thread_each(vlc_context *context, void (*visit)(struct vlci_thread *, void *), void *argument) {
    sigset_t signals;
    vlci_os_signals_block(&signals);
    vlci_lock_take(&vlci_tls_lock);
    for (struct vlci_thread *thread = threads; thread; thread = thread->next)
        if (!context || thread->owner == context) visit(thread, argument);
    vlci_lock_drop(&vlci_tls_lock);
    vlci_os_signals_restore(&signals);
}

int vlci_thread_exit_add(vlc_context *context, void (*function)(void *), void *object) {
    struct vlci_thread *thread = vlci_thread_self();
    struct vlci_thread_exit *exit = thread ? vlci_memory_take(sizeof *exit) : NULL;
    if (!exit) return -1;
    *exit = (struct vlci_thread_exit){ function, object, context, NULL };
    sigset_t signals;
    vlci_os_signals_block(&signals);
    vlci_lock_take(&vlci_tls_lock);
    exit->next = thread->exits;
    thread->exits = exit;
    vlci_lock_drop(&vlci_tls_lock);
    vlci_os_signals_restore(&signals);
    return 0;
}

void vlci_thread_exits_run(vlc_context *context) {
    struct vlci_thread *thread = vlci_thread_self();
    if (!thread) return;
    for (bool again = true; again;) {
        again = false;
        for (struct vlci_thread_exit *exit = thread->exits; exit; exit = exit->next) {
            if (exit->context != context || !exit->function) continue;
            void (*function)(void *) = exit->function;
            exit->function = NULL;
            function(exit->object);
            again = true; /* it may have added more */
            break;
        }
    }
}

static void exits_drop(struct vlci_thread *thread, void *context) {
    for (struct vlci_thread_exit *exit = thread->exits; exit; exit = exit->next)
        if (exit->context == context) exit->function = NULL;
}

void vlci_thread_exits_drop(vlc_context *context) { vlci_thread_each(NULL, exits_drop, context); }

int vlci_thread_start(vlc_error *error) {
    int failed = pthread_key_create(&end_key, thread_end);
    return failed ? vlci_fail(error, VLC_LIMIT, failed, "pthread_key_create",
                              "cannot start: all %d pthread keys of the process are taken", PTHREAD_KEYS_MAX)
                  : VLC_OK;
}

/* In the child only the calling thread lives; the records of the others are left behind. */
void vlci_thread_fork(enum vlci_fork when) {
    vlci_lock_fork(&vlci_tls_lock, when);
    if (when != VLCI_FORK_CHILD) return;
    struct vlci_thread *self = vlci_thread_current;
    threads = self && self->link ? self : NULL;
    if (!self) return;
    self->next = NULL;
    if (self->link) self->link = &threads;
    self->tid = vlci_os_thread_id();
}
