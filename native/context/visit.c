/* Entering and leaving a context: what a thread takes on and gets back. */
#include "context/companion.h"
#include "context/context.h"
#include "context/controller.h"
#include "context/policy.h"
#include "loader/error.h"
#include "loader/memory.h"
#include "loader/thread.h"

#include <errno.h>

bool vlci_visit_is_inside(vlc_context *context) {
    const struct vlci_thread *thread = vlci_thread_current;
    for (const struct vlci_errand *errand = thread ? thread->seat.doing : NULL; thread;
         errand = errand->before) {
        for (const struct vlci_visit *visit = thread->visit; visit; visit = visit->outer)
            if (visit->context == context) return true;
        if (!errand) return false;
        thread = errand->caller;
    }
    return false;
}

vlc_context *vlci_context_current(void) {
    const struct vlci_thread *thread = vlci_thread_current;
    return thread ? thread->visit->context : NULL;
}

static struct vlci_visit *visit_take(struct vlci_thread *thread) {
    struct vlci_visit *visit = thread->spare;
    if (!visit) return vlci_memory_take(sizeof *visit);
    thread->spare = visit->outer;
    return visit;
}

static void visit_give(struct vlci_thread *thread, struct vlci_visit *visit) {
    visit->outer = thread->spare;
    thread->spare = visit;
}

static int enter(vlc_context *context, bool unmoved, vlc_error *error) {
    struct vlci_thread *thread = vlci_thread_self();
    struct vlci_visit *visit = thread ? visit_take(thread) : NULL;
    if (!visit)
        return vlci_fail(error, VLC_SYSTEM, ENOMEM, context->name, "cannot enter context '%s': out of memory",
                         context->name);
    bool follows = vlci_controllers_are_new(context) && !vlci_visit_is_inside(context);
    visit->outer = thread->visit;
    visit->context = context;
    visit->depth = 0;
    visit->has_stack = visit->is_wrapped = false;
    visit->unmoved = unmoved;
    visit->moved = visit->outer->context ? atomic_load(&visit->outer->context->moved) : 0;
    visit->has_cpus = !vlci_os_affinity_get(0, &visit->cpus);
    vlci_policy_enter(context, visit);
    vlci_arch_float_save(&visit->float_state);
    visit->locale = uselocale(context->locale);
    thread->visit = visit;
    if (!unmoved) vlci_slice_enter(thread, visit);
    if (follows) vlci_controllers_follow(context);
    return VLC_OK;
}

int vlci_visit_enter(vlc_context *context, vlc_error *error) { return enter(context, false, error); }

int vlci_visit_run_unmoved(vlc_context *context, vlc_function function, void *argument, vlc_error *error) {
    if (vlci_is_foreign(context)) return vlci_hand_over(context, function, argument, NULL, error);
    int status = vlci_context_check_open(context, error);
    if (!status && !vlci_context_visit_begins(context)) status = vlci_context_check_open(context, error);
    if (status) return status;
    bool inside = vlci_context_current() == context;
    if (!inside) status = enter(context, true, error);
    if (!status) function(argument);
    if (!status && !inside) vlci_visit_leave(context);
    vlci_context_visit_ended(context);
    return status;
}

void vlci_visit_leave(vlc_context *context) {
    struct vlci_thread *thread = vlci_thread_current;
    struct vlci_visit *visit = thread->visit;
    (void)context;
    int saved = errno;
    thread->visit = visit->outer;
    uselocale(visit->locale);
    vlci_arch_float_restore(&visit->float_state);
    if (visit->has_stack) sigaltstack(&visit->stack, NULL);
    vlci_slice_leave(thread, visit);
    vlci_policy_leave(visit);
    if (thread->visit->context)
        vlci_policy_follow(thread->visit->context); /* it may have changed meanwhile */
    visit_give(thread, visit);
    errno = saved;
}

int vlc_enter(vlc_context *context, vlc_error *error) {
    struct vlci_thread *thread = vlci_thread_current;
    if (thread && thread->visit->context == context) { /* already inside: nothing to change */
        thread->visit->depth++;
        return VLC_OK;
    }
    int status = vlci_context_check_open(context, error);
    if (status) return status;
    if (vlci_is_foreign(context))
        return vlci_fail(
            error, VLC_MISUSE, 0, context->name,
            "cannot enter context '%s' on this thread: it is resident, so its code runs on threads of its "
            "own only; use vlc_run, which hands over to one",
            context->name);
    if (!vlci_context_visit_begins(context)) return vlci_context_check_open(context, error);
    status = vlci_visit_enter(context, error);
    if (status) vlci_context_visit_ended(context);
    return status;
}

int vlc_leave(vlc_context *context, vlc_error *error) {
    struct vlci_thread *thread = vlci_thread_current;
    if (!thread || thread->visit->context != context)
        return vlci_fail(
            error, VLC_MISUSE, 0, context->name,
            "cannot leave context '%s': this thread is inside %s%s; leave in the reverse order of entering",
            context->name, thread && thread->visit->context ? "context " : "no context",
            thread && thread->visit->context ? thread->visit->context->name : "");
    if (thread->visit->depth) {
        thread->visit->depth--;
        return VLC_OK;
    }
    if (thread->visit == &thread->base)
        return vlci_fail(error, VLC_MISUSE, 0, context->name,
                         "cannot leave context '%s': this thread was made by it and did not enter",
                         context->name);
    vlci_visit_leave(context);
    vlci_context_visit_ended(context);
    return VLC_OK;
}

int vlc_run(vlc_context *context, vlc_function function, void *argument, void **result, vlc_error *error) {
    if (!function)
        return vlci_fail(error, VLC_BAD_ARGUMENT, 0, context->name,
                         "cannot run NULL in context '%s'; give a function", context->name);
    if (vlci_is_foreign(context)) return vlci_hand_over(context, function, argument, result, error);
    int status = vlc_enter(context, error);
    if (status) return status;
    void *value = function(argument);
    status = vlc_leave(context, error);
    if (!status && result) *result = value;
    return status;
}
