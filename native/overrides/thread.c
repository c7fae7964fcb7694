/* Threads that a library of a context makes belong to it: pinned into its slice, counted, listed. */
#include "loader/thread.h"
#include "context/context.h"
#include "context/evict.h"
#include "loader/key.h"
#include "loader/stack.h"
#include "loader/unwind.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <threads.h>

/* A thread that somebody has to join: its stack stays until then. Libraries whose threads never end never join
 * them, so it is done for them when their context is closed. */
struct vlci_joinable {
    struct vlci_joinable *next;
    pthread_t handle;
};

static void joinable_add(vlc_context *context, pthread_t handle) {
    struct vlci_joinable *made = malloc(sizeof *made);
    if (!made) return; /* its stack stays */
    VLCI_HOLD(&context->joinable_lock);
    *made = (struct vlci_joinable){ context->joinable, handle };
    context->joinable = made;
}

static void joinable_remove(vlc_context *context, pthread_t handle) {
    VLCI_HOLD(&context->joinable_lock);
    for (struct vlci_joinable **link = &context->joinable, *at; (at = *link); link = &at->next)
        if (pthread_equal(at->handle, handle)) {
            *link = at->next;
            free(at);
            return;
        }
}

void vlci_thread_join_rest(vlc_context *context) {
    vlci_stacks_join(context);
    for (struct vlci_joinable *at; (at = context->joinable);) {
        context->joinable = at->next;
        pthread_join(at->handle, NULL);
        free(at);
    }
}

int vlci_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *),
                        void *argument, vlc_context *context) {
    int state = PTHREAD_CREATE_JOINABLE;
    if (attributes) pthread_attr_getdetachstate(attributes, &state);
    int failed = vlci_thread_create(context, thread, attributes, function, argument);
    if (!failed && state == PTHREAD_CREATE_JOINABLE && !context->slots) joinable_add(context, *thread);
    return failed;
}

/* For libc a resident context's thread is always joinable. */
static bool is_detached(vlc_context *context, pthread_t thread) {
    const struct vlci_stack *stack = vlci_stack_of(context, thread);
    return stack && stack->detached;
}

static int joined(vlc_context *context, pthread_t thread, int failed) {
    if (!failed && !context->slots) joinable_remove(context, thread);
    return vlci_thread_joined(context, thread, failed);
}

int vlci_pthread_join(pthread_t thread, void **value, vlc_context *context) {
    if (is_detached(context, thread)) return EINVAL;
    return joined(context, thread, pthread_join(thread, value));
}
int vlci_pthread_tryjoin(pthread_t thread, void **value, vlc_context *context) {
    if (is_detached(context, thread)) return EINVAL;
    return joined(context, thread, pthread_tryjoin_np(thread, value));
}
int vlci_pthread_timedjoin(pthread_t thread, void **value, const struct timespec *until,
                           vlc_context *context) {
    if (is_detached(context, thread)) return EINVAL;
    return joined(context, thread, pthread_timedjoin_np(thread, value, until));
}
int vlci_pthread_clockjoin(pthread_t thread, void **value, clockid_t clock, const struct timespec *until,
                           vlc_context *context) {
    if (is_detached(context, thread)) return EINVAL;
    return joined(context, thread, pthread_clockjoin_np(thread, value, clock, until));
}
int vlci_pthread_detach(pthread_t thread, vlc_context *context) {
    struct vlci_stack *stack = vlci_stack_of(context, thread);
    return stack ? vlci_stack_detach(context, stack) : joined(context, thread, pthread_detach(thread));
}

/* thrd_t is pthread_t in glibc, and thrd_join gives the low half of the pointer that the thread returned. By the
 * functions that tools know which watch threads: ThreadSanitizer has never heard of thrd_join. */
int vlci_thrd_join(thrd_t thread, int *value, vlc_context *context) {
    void *result;
    int failed = vlci_pthread_join((pthread_t)thread, &result, context);
    if (!failed && value) *value = (int)(intptr_t)result;
    return failed ? thrd_error : thrd_success;
}
int vlci_thrd_detach(thrd_t thread, vlc_context *context) {
    return vlci_pthread_detach((pthread_t)thread, context) ? thrd_error : thrd_success;
}

/* What libc does not know of a stack that it was given. */
int vlci_pthread_getattr(pthread_t thread, pthread_attr_t *attributes, vlc_context *context) {
    int failed = pthread_getattr_np(thread, attributes);
    const struct vlci_stack *stack = failed ? NULL : vlci_stack_of(context, thread);
    if (!stack) return failed;
    pthread_attr_setguardsize(attributes, stack->guard);
    pthread_attr_setdetachstate(attributes,
                                stack->detached ? PTHREAD_CREATE_DETACHED : PTHREAD_CREATE_JOINABLE);
    return 0;
}

struct c11_start {
    thrd_start_t function;
    void *argument;
};

static void *c11_begin(void *argument) {
    struct c11_start start = *(struct c11_start *)argument;
    free(argument);
    return (void *)(intptr_t)start.function(start.argument);
}

int vlci_thrd_create(thrd_t *thread, thrd_start_t function, void *argument, vlc_context *context) {
    struct c11_start *start = malloc(sizeof *start);
    if (!start) return thrd_nomem;
    *start = (struct c11_start){ function, argument };
    int failed = vlci_pthread_create((pthread_t *)thread, NULL, c11_begin, start, context);
    if (!failed) return thrd_success;
    free(start);
    return failed == EAGAIN ? thrd_nomem : thrd_error;
}

/* libc unwinds the stack with the host's unwinder, so that cleanups and destructors run. */
__attribute__((noreturn)) void vlci_pthread_exit(void *value, vlc_context *context) {
    vlci_unwind_add_stack(context);
    pthread_exit(value);
}

/* Destructors of C++ thread_local objects. `object_handle` needs no count: memory goes with the context. */
int vlci_cxa_thread_atexit(void (*function)(void *), void *object, void *object_handle,
                           vlc_context *context) {
    (void)object_handle;
    return vlci_thread_exit_add(context, function, object);
}

int vlci_tss_create(tss_t *key, tss_dtor_t destructor, vlc_context *context) {
    return vlci_key_create((pthread_key_t *)key, destructor, context) ? thrd_error : thrd_success;
}
int vlci_tss_set(tss_t key, void *value) {
    return vlci_key_set((pthread_key_t)key, value) ? thrd_error : thrd_success;
}
void vlci_tss_delete(tss_t key) { vlci_key_delete((pthread_key_t)key); }

/* A context's thread cannot block the signal that ends it when its context is closed. */
int vlci_sigmask(int how, const sigset_t *set, sigset_t *old) {
    sigset_t allowed;
    if (set && how != SIG_UNBLOCK) {
        allowed = *set;
        sigdelset(&allowed, vlci_evict_signal());
        set = &allowed;
    }
    return pthread_sigmask(how, set, old);
}

int vlci_sigprocmask(int how, const sigset_t *set, sigset_t *old) {
    int failed = vlci_sigmask(how, set, old);
    if (!failed) return 0;
    errno = failed;
    return -1;
}
