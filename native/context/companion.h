/* Companions: threads of a resident context that stand for others inside it.
 *
 * Only a resident context's own threads may run its code (loader/slots.h). Another thread hands over: it asks a
 * companion of its own there, and waits. Companions live as long as both the thread and the context, so that what
 * libraries bind to a thread stays with the caller.
 *
 * A thread with its companions is one thread of control: exactly one of them runs at a time. A callback that leaves
 * the context runs on the companion; when it comes back into a context on the way, it does so on the companion
 * that waits there. */
#ifndef VLCI_COMPANION_H
#define VLCI_COMPANION_H

#include "context/context.h"
#include "loader/thread.h"

enum vlci_errand_state {
    VLCI_UNDONE,
    VLCI_DONE,
    VLCI_LOST,         /* its doer ended */
    VLCI_STAYED_BEHIND /* so did its doer, when this process was forked */
};

/* What one thread asks of another that it stands for, or that stands for it. In memory of who asks and waits, but
 * not on its stack: that may be left by pthread_exit. */
struct vlci_errand {
    vlc_context *context; /* in which it is done; NULL: wherever the doer is */
    vlc_function function;
    void *argument, *result;
    struct vlci_thread *caller;
    struct vlci_errand *before; /* that the caller was in the middle of */
    int error_number;
    sigset_t signals;
    struct vlci_float_state float_state;
    _Atomic(enum vlci_errand_state) state;
    bool visits;                 /* it counts as a visit of its context */
    struct vlci_errand *outer;   /* that its doer is in the middle of */
    struct vlci_errand *pending; /* that its doer waits for meanwhile */
};

/* Whether this thread must hand over to run code of the context. */
static inline bool vlci_is_foreign(const vlc_context *context) {
    return context->slots && (!vlci_thread_current || vlci_thread_current->owner != context);
}

/* Runs function(argument) on this thread's companion in a resident context, inside the context, and waits. errno,
 * the signal mask and the float state are the caller's; what the function makes of the first two comes back.
 * Fails: VLC_MISUSE (closed), VLC_SYSTEM (no thread could be made). */
int vlci_hand_over(vlc_context *context, vlc_function function, void *argument, void **result,
                   vlc_error *error);

/* Runs function(argument) inside the context, on this thread or its companion, also while the context closes. */
int vlci_run_inside(vlc_context *context, vlc_function function, void *argument, vlc_error *error);

/* The calling thread ends, and its companions with it: they are waited for. */
void vlci_companions_leave(struct vlci_thread *thread);
void vlci_companions_forget(struct vlci_thread *thread); /* its last memory here, as its record goes */

/* Tells all companions in the context to end; forgets them, once they have. */
void vlci_companions_end(vlc_context *context);
void vlci_companions_free(vlc_context *context);

void vlci_companion_fork(vlc_context *current, enum vlci_fork when);

#endif
