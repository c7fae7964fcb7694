/* The CPUs of a context. */
#include "context/context.h"
#include "context/cpu_list.h"
#include "loader/error.h"
#include "loader/thread.h"
#include "overrides/child.h"

#include <errno.h>
#include <stdio.h>
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

static void move(struct vlci_thread *thread, void *set) { vlci_os_affinity_set(thread->tid, set); }

int vlc_resize(vlc_context *context, const uint32_t *cpus, size_t count, vlc_error *error) {
    cpu_set_t set;
    int status = vlci_context_check_open(context, error);
    if (!status) status = vlci_slice_check(context->name, cpus, count, &set, error);
    if (status) return status;
    struct vlci_child_view *view = vlci_child_view_make(&set);
    if (!view)
        return vlci_fail(error, VLC_SYSTEM, ENOMEM, context->name,
                         "cannot resize context '%s': out of memory", context->name);
    vlci_lock_take(&context->slice_lock);
    context->cpus = set;
    vlci_child_view_set(context, view);
    vlci_lock_drop(&context->slice_lock);
    cpu_set_t moved;
    do { /* another thread's resize may have moved some before us */
        moved = set;
        vlci_thread_each(context, move, &moved);
        vlci_context_cpus(context, &set);
    } while (!CPU_EQUAL(&moved, &set));
    return VLC_OK;
}

void vlci_slice_settle(vlc_context *context, pid_t tid, const cpu_set_t *seen) {
    cpu_set_t before = *seen, now;
    while (vlci_context_cpus(context, &now), !CPU_EQUAL(&before, &now)) {
        vlci_os_affinity_set(tid, &now);
        before = now;
    }
}

void vlci_slice_fork(enum vlci_fork when) { vlci_lock_fork(&allowed_lock, when); }
