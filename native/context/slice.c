/* The CPUs of a context. */
#include "context/context.h"
#include "context/controller.h"
#include "context/cpu_list.h"
#include "context/policy.h"
#include "loader/error.h"
#include "loader/thread.h"
#include "overrides/child.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void vlci_context_cpus(vlc_context *context, cpu_set_t *cpus) {
    VLCI_HOLD(&context->slice_lock);
    *cpus = context->cpus;
}

/* What the process may use: its main thread's mask when the first context was made, before any was entered. */
static vlci_lock allowed_lock;
static const cpu_set_t *allowed(void) {
    static cpu_set_t cpus;
    VLCI_HOLD(&allowed_lock);
    if (!CPU_COUNT(&cpus) && vlci_os_affinity_get(getpid(), &cpus)) vlci_os_affinity_get(0, &cpus);
    return &cpus;
}

int vlci_slice_check(const char *name, const uint32_t *cpus, size_t count, cpu_set_t *set, vlc_error *error) {
    if (!cpus) {
        *set = *allowed();
        return VLC_OK;
    }
    if (!count)
        return vlci_fail(error, VLC_BAD_ARGUMENT, 0, name,
                         "cannot give context '%s' no CPU at all; name at least one", name);
    CPU_ZERO(set);
    char words[200];
    vlci_cpu_list_print(allowed(), words, sizeof words);
    for (size_t i = 0; i < count; i++) {
        if (cpus[i] >= CPU_SETSIZE || !CPU_ISSET(cpus[i], allowed())) {
            char subject[16];
            snprintf(subject, sizeof subject, "%u", cpus[i]);
            return vlci_fail(
                error, VLC_BAD_ARGUMENT, 0, subject,
                "cannot give CPU %u to context '%s': this process may use only CPUs %s; choose among these",
                cpus[i], name, words);
        }
        CPU_SET(cpus[i], set);
    }
    return VLC_OK;
}

size_t vlc_cpus(vlc_context *context, uint32_t *cpus, size_t capacity) {
    cpu_set_t set;
    size_t count = 0;
    vlci_context_cpus(context, &set);
    for (uint32_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &set)) continue;
        if (count < capacity) cpus[count] = cpu;
        count++;
    }
    return count;
}

/* ---- moving -------------------------------------------------------------------------------------------- */

/* Where the visit's thread is to run: on the slice, or where the host has it run, if that lies within: a narrower
 * mask is somebody's choice. */
static void mask_of(const struct vlci_visit *visit, cpu_set_t *mask) {
    vlci_context_cpus(visit->context, mask);
    if (!visit->outer) return; /* made by the context */
    while (visit->outer->outer) visit = visit->outer;
    if (visit->outer->context || !visit->has_cpus) return; /* made by another */
    cpu_set_t both;
    CPU_AND(&both, &visit->cpus, mask);
    if (CPU_EQUAL(&both, &visit->cpus)) *mask = both;
}

/* A thread that is entering or leaving changes its innermost visit first, then its affinity; who moves it holds it
 * first, then looks at its visit. So either sees the other: nobody moves a thread that has left. */
enum { FREE, HELD, HELD_AND_AWAITED };

static void await_free(struct vlci_thread *thread) {
    for (int held; (held = atomic_load(&thread->held)) != FREE;)
        if (held == HELD_AND_AWAITED ||
            atomic_compare_exchange_strong(&thread->held, &held, HELD_AND_AWAITED))
            vlci_os_wait_word(&thread->held, HELD_AND_AWAITED, -1);
}

static void move(struct vlci_thread *thread, void *context) {
    bool is_other = thread != vlci_thread_current;
    if (is_other) atomic_store(&thread->held, HELD);
    const struct vlci_visit *visit = thread->visit;
    if (visit->context == context && !visit->unmoved) { /* one that is elsewhere moves when it comes back */
        cpu_set_t mask;
        mask_of(visit, &mask);
        vlci_os_affinity_set(thread->tid, &mask);
    }
    if (is_other && atomic_exchange(&thread->held, FREE) == HELD_AND_AWAITED)
        vlci_os_wake_word(&thread->held);
}

/* Of this thread, which has the mask `now` (NULL: it is not known). */
static void take_mask(const struct vlci_visit *visit, const cpu_set_t *now) {
    cpu_set_t mask, before;
    unsigned moves;
    CPU_ZERO(&before);
    if (now) before = *now;
    do { /* a thread that moves us from now on may be overtaken by what we have read before */
        moves = atomic_load(&visit->context->moves);
        mask_of(visit, &mask);
        if (!CPU_EQUAL(&mask, &before)) vlci_os_affinity_set(0, &mask);
        before = mask;
    } while (moves != atomic_load(&visit->context->moves));
}

void vlci_slice_enter(struct vlci_thread *thread, const struct vlci_visit *visit) {
    await_free(thread);
    if (!visit->has_cpus) return;
    const vlc_context *outer = visit->outer->context;
    bool was_moved = outer && visit->moved != atomic_load(&outer->moves); /* since the mask was asked for */
    take_mask(visit, was_moved ? NULL : &visit->cpus);
}

void vlci_slice_leave(struct vlci_thread *thread, const struct vlci_visit *ended) {
    await_free(thread);
    cpu_set_t now; /* asked for, since a library inside may have moved the thread too */
    if (!ended->has_cpus || vlci_os_affinity_get(0, &now)) return;
    const struct vlci_visit *visit = ended->outer;
    if (visit->context && ended->moved != atomic_load(&visit->context->moves))
        take_mask(visit, &now);
    else if (!CPU_EQUAL(&now, &ended->cpus) && !vlci_os_affinity_set(0, &ended->cpus) && visit->context &&
             ended->moved != atomic_load(&visit->context->moves))
        take_mask(visit, &ended->cpus);
}

struct resizing {
    vlc_context *context;
    cpu_set_t cpus;
    struct vlci_child_view *view;
    struct vlci_policy *policy;
    bool may_set; /* the numbers of this thread */
};

static void *change(void *argument) {
    struct resizing *to = argument;
    vlc_context *context = to->context;
    vlci_lock_take(&context->slice_lock);
    context->cpus = to->cpus;
    vlci_child_view_set(context, to->view);
    bool replaced = vlci_policy_replace(context, to->policy);
    atomic_fetch_add(&context->moves, 1);
    vlci_lock_drop(&context->slice_lock);
    vlci_thread_each(NULL, move, context);
    atomic_store(&context->moved, atomic_load(&context->moves));
    if (replaced) vlci_policy_spread(context);
    return NULL;
}

static void *change_and_tell(void *argument) {
    struct resizing *to = argument;
    struct vlci_numbers before = { { 0 } };
    vlci_controllers_look(to->context, &before);
    change(to);
    vlci_controllers_tell(to->context, &before, to->may_set);
    return NULL;
}

void vlci_slice_tell(vlc_context *context) {
    struct vlci_numbers before = { { 0 } };
    VLCI_HOLD(&context->resize_lock);
    if (!vlci_controllers_find(context)) return;
    vlci_controllers_look(context, &before);
    vlci_controllers_tell(context, &before, false);
}

int vlc_resize(vlc_context *context, const uint32_t *cpus, size_t count, vlc_error *error) {
    struct resizing to = { .context = context, .may_set = !vlci_visit_is_inside(context) };
    int status = vlci_context_check_open(context, error);
    if (!status) status = vlci_slice_check(context->name, cpus, count, &to.cpus, error);
    VLCI_HOLD(&context->resize_lock);
    if (!status) status = vlci_policy_on(context, &to.cpus, &to.policy, error);
    if (!status && !(to.view = vlci_child_view_make(&to.cpus)))
        status = vlci_fail(error, VLC_SYSTEM, ENOMEM, context->name,
                           "cannot resize context '%s': out of memory", context->name);
    if (!status && vlci_controllers_find(context))
        status = vlci_visit_run_unmoved(context, change_and_tell, &to, error);
    else if (!status)
        change(&to);
    if (status) { /* nothing has taken them */
        free(to.policy);
        free(to.view);
    }
    return status;
}

void vlci_slice_settle(vlc_context *context, pid_t tid, const cpu_set_t *seen) {
    cpu_set_t before = *seen, now;
    while (vlci_context_cpus(context, &now), !CPU_EQUAL(&before, &now)) {
        vlci_os_affinity_set(tid, &now);
        before = now;
    }
}

void vlci_slice_fork(enum vlci_fork when) { vlci_lock_fork(&allowed_lock, when); }
