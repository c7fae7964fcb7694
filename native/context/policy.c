#include "context/policy.h"

#include "context/context.h"
#include "context/cpu_list.h"
#include "loader/error.h"
#include "loader/thread.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const struct vlci_os_policy none;

/* ---- what was asked for -------------------------------------------------------------------------------- */

const char *vlci_policy_why(int error_number) {
    switch (error_number) {
    case ENOSYS: return "the kernel was built without NUMA";
    case EPERM:
        return "a seccomp filter forbids the system calls, as Docker's does without the capability SYS_NICE";
    default: return strerror(error_number);
    }
}

static int refused(const char *name, int error_number, vlc_error *error) {
    return vlci_fail(error, VLC_SYSTEM, error_number, name, "cannot set a memory policy for context '%s': %s",
                     name, vlci_policy_why(error_number));
}

/* Tries it on a page, so that what the kernel refuses is refused before anything is changed. */
static int try_on_page(struct vlci_os_policy *kernel) {
    void *page = mmap(NULL, VLCI_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return -ENOMEM;
    int failed = vlci_os_policy_bind(page, VLCI_PAGE, kernel);
    if (failed == -EINVAL && kernel->mode == VLCI_OS_PREFERRED_MANY) {
        kernel->mode = VLCI_OS_PREFERRED;
        failed = vlci_os_policy_bind(page, VLCI_PAGE, kernel);
    }
    munmap(page, VLCI_PAGE);
    struct vlci_os_policy now;
    if (!failed) failed = vlci_os_policy_get(&now);
    if (!failed) failed = vlci_os_policy_set(&now);
    return failed;
}

static int check_nodes(const char *name, const uint32_t *nodes, size_t count, const vlci_nodes *allowed,
                       vlci_nodes *set, vlc_error *error) {
    char words[200];
    vlci_cpu_list_print(allowed, words, sizeof words);
    if (!count)
        return vlci_fail(error, VLC_BAD_ARGUMENT, 0, name,
                         "cannot give context '%s' memory on no node at all; name at least one of %s", name,
                         words);
    for (size_t i = 0; i < count; i++) {
        if (nodes[i] >= VLCI_NODES || !CPU_ISSET(nodes[i], allowed)) {
            char subject[16];
            snprintf(subject, sizeof subject, "%u", nodes[i]);
            return vlci_fail(
                error, VLC_BAD_ARGUMENT, 0, subject,
                "cannot give context '%s' memory of NUMA node %u: this process may use memory of "
                "node %s only; choose among these",
                name, nodes[i], words);
        }
        CPU_SET(nodes[i], set);
    }
    return VLC_OK;
}

static int nodes_of_cpus(const char *name, const cpu_set_t *cpus, const vlci_nodes *allowed, vlci_nodes *set,
                         vlc_error *error) {
    char words[200];
    vlci_nodes near;
    vlci_os_nodes_of(cpus, &near);
    CPU_AND(set, &near, allowed);
    if (CPU_COUNT(set)) return VLC_OK;
    vlci_cpu_list_print(allowed, words, sizeof words);
    return vlci_fail(
        error, VLC_BAD_ARGUMENT, 0, name,
        "cannot give context '%s' memory beside its CPUs: their nodes have none that this process "
        "may use; name nodes, of %s",
        name, words);
}

int vlci_policy_make(const char *name, uint32_t memory, const uint32_t *nodes, size_t count,
                     const cpu_set_t *cpus, struct vlci_policy **made, vlc_error *error) {
    static const int modes[] = { VLCI_OS_DEFAULT, VLCI_OS_BIND, VLCI_OS_PREFERRED_MANY, VLCI_OS_INTERLEAVE,
                                 VLCI_OS_LOCAL };
    *made = NULL;
    if (memory > VLC_MEMORY_LOCAL)
        return vlci_fail(error, VLC_BAD_ARGUMENT, 0, name,
                         "cannot give context '%s' the memory policy %u; give a vlc_memory", name, memory);
    if (nodes && (memory == VLC_MEMORY_DEFAULT || memory == VLC_MEMORY_LOCAL))
        return vlci_fail(
            error, VLC_BAD_ARGUMENT, 0, name,
            "cannot give context '%s' nodes with %s, which has none; leave them out, or bind, prefer "
            "or interleave",
            name, memory ? "VLC_MEMORY_LOCAL" : "VLC_MEMORY_DEFAULT");
    if (memory == VLC_MEMORY_DEFAULT) return VLC_OK;
    vlci_nodes allowed;
    int failed = vlci_os_nodes_allowed(&allowed);
    if (failed) return refused(name, -failed, error);
    struct vlci_policy *policy = calloc(1, sizeof *policy);
    if (!policy) return refused(name, ENOMEM, error);
    policy->memory = memory;
    policy->kernel.mode = modes[memory];
    policy->follows = !nodes && memory != VLC_MEMORY_LOCAL;
    int status = VLC_OK;
    if (nodes) status = check_nodes(name, nodes, count, &allowed, &policy->kernel.nodes, error);
    if (policy->follows) status = nodes_of_cpus(name, cpus, &allowed, &policy->kernel.nodes, error);
    if (!status && (failed = try_on_page(&policy->kernel))) status = refused(name, -failed, error);
    if (status)
        free(policy);
    else
        *made = policy;
    return status;
}

int vlci_policy_on(vlc_context *context, const cpu_set_t *cpus, struct vlci_policy **made, vlc_error *error) {
    const struct vlci_policy *now = atomic_load(&context->policy);
    *made = NULL;
    if (!now || !now->follows) return VLC_OK;
    return vlci_policy_make(context->name, now->memory, NULL, 0, cpus, made, error);
}

/* ---- what is in force ---------------------------------------------------------------------------------- */

static bool is_same(const struct vlci_policy *one, const struct vlci_policy *other) {
    return one->memory == other->memory && one->follows == other->follows &&
           one->kernel.mode == other->kernel.mode && CPU_EQUAL(&one->kernel.nodes, &other->kernel.nodes);
}

void vlci_policy_publish(vlc_context *context, struct vlci_policy *made) {
    struct vlci_policy *known = made ? context->policies : NULL;
    while (known && !is_same(known, made)) known = known->older;
    if (known) {
        free(made);
        made = known;
    } else if (made) {
        made->older = context->policies;
        context->policies = made;
    }
    atomic_store(&context->policy, made);
}

bool vlci_policy_replace(vlc_context *context, struct vlci_policy *made) {
    const struct vlci_policy *now = atomic_load(&context->policy);
    bool fits = made && now && now->follows && now->memory == made->memory;
    if (fits)
        vlci_policy_publish(context, made);
    else
        free(made);
    return fits;
}

static void bind_range(struct vlci_region *region, char *from, size_t length, void *policy) {
    if (!vlci_heap_is_anonymous(region)) return;
    const struct vlci_policy *now = policy;
    vlci_os_policy_bind(from, length, now ? &now->kernel : &none);
}

void vlci_policy_spread(vlc_context *context) {
    struct vlci_policy *seen;
    do {
        seen = atomic_load(&context->policy);
        for (char *at = NULL; vlci_zones_step(&context->zones, &at, SIZE_MAX, bind_range, seen);) {
        }
    } while (seen != atomic_load(&context->policy)); /* another thread's change may have come between */
}

int vlci_policy_nodes(vlc_context *context, vlci_nodes *nodes) {
    cpu_set_t cpus;
    vlci_nodes allowed, near;
    const struct vlci_policy *now = atomic_load(&context->policy);
    int failed = vlci_os_nodes_allowed(&allowed);
    if (failed) return failed;
    vlci_context_cpus(context, &cpus);
    vlci_os_nodes_of(&cpus, &near);
    CPU_AND(nodes, now && CPU_COUNT(&now->kernel.nodes) ? &now->kernel.nodes : &near, &allowed);
    if (!CPU_COUNT(nodes)) *nodes = allowed;
    return 0;
}

void vlci_policy_free(vlc_context *context) {
    for (struct vlci_policy *policy; (policy = context->policies);) {
        context->policies = policy->older;
        free(policy);
    }
}

void vlci_policy_apply(vlc_context *context, void *base, size_t length) {
    int saved = errno;
    if (context->huge_pages)
        madvise(base, length, context->huge_pages == VLC_HUGE_PAGES_ALWAYS ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    struct vlci_policy *now = atomic_load(&context->policy), *bound = NULL;
    while (now !=
           bound) { /* one that is published meanwhile may have passed over this range before it was mapped */
        vlci_os_policy_bind(base, length, now ? &now->kernel : &none);
        bound = now;
        now = atomic_load(&context->policy);
    }
    if (bound) vlci_policy_follow(context);
    errno = saved;
}

/* ---- threads ------------------------------------------------------------------------------------------- */

/* What the thread had when it came. False: the kernel does not tell. */
static bool keep(struct vlci_thread *thread, struct vlci_visit *visit) {
    if (visit->has_policy) return true;
    if (vlci_os_policy_get(&visit->kernel_policy)) return false;
    visit->has_policy = true;
    visit->policy = thread->policy;
    if (!thread->policy) thread->own_policy = visit->kernel_policy;
    return true;
}

void vlci_policy_keep(void) {
    struct vlci_thread *thread = vlci_thread_current;
    if (thread) keep(thread, thread->visit);
}

/* Gives this thread the policy, or its own back. */
static void take(struct vlci_thread *thread, struct vlci_visit *visit, const struct vlci_policy *policy) {
    if (!keep(thread, visit)) return;
    vlci_os_policy_set(policy ? &policy->kernel : &thread->own_policy);
    thread->policy = policy;
}

void vlci_policy_enter(vlc_context *context, struct vlci_visit *visit) {
    struct vlci_thread *thread = vlci_thread_current;
    const struct vlci_policy *wanted = atomic_load_explicit(&context->policy, memory_order_acquire);
    visit->has_policy = false;
    if (wanted != thread->policy) take(thread, visit, wanted);
}

void vlci_policy_leave(struct vlci_visit *visit) {
    if (!visit->has_policy) return;
    vlci_os_policy_set(&visit->kernel_policy);
    vlci_thread_current->policy = visit->policy;
}

void vlci_policy_inherit(struct vlci_thread *made) {
    const struct vlci_thread *maker = vlci_thread_current;
    if (!maker || !maker->policy) return;
    made->policy = maker->policy;
    made->own_policy = maker->own_policy;
}

void vlci_policy_begin(vlc_context *context, struct vlci_thread *thread) {
    const struct vlci_policy *wanted = atomic_load_explicit(&context->policy, memory_order_acquire);
    if (wanted != thread->policy) take(thread, &thread->base, wanted);
}

void vlci_policy_follow(vlc_context *context) {
    struct vlci_thread *thread = vlci_thread_current;
    const struct vlci_policy *wanted = atomic_load_explicit(&context->policy, memory_order_acquire);
    if (thread && wanted != thread->policy && thread->visit->context == context)
        take(thread, thread->visit, wanted);
}

/* ---- the public part ----------------------------------------------------------------------------------- */

int vlc_set_memory(vlc_context *context, uint32_t memory, const uint32_t *nodes, size_t count,
                   vlc_error *error) {
    cpu_set_t cpus;
    struct vlci_policy *made = NULL;
    int status = vlci_context_check_open(context, error);
    VLCI_HOLD(&context->resize_lock); /* its nodes may be those of the slice's CPUs */
    vlci_context_cpus(context, &cpus);
    if (!status) status = vlci_policy_make(context->name, memory, nodes, count, &cpus, &made, error);
    if (status) return status;
    vlci_lock_take(&context->slice_lock);
    vlci_policy_publish(context, made);
    vlci_lock_drop(&context->slice_lock);
    vlci_policy_spread(context);
    vlci_policy_follow(context);
    return VLC_OK;
}

static size_t list(const vlci_nodes *set, uint32_t *nodes, size_t capacity) {
    size_t count = 0;
    for (uint32_t node = 0; node < VLCI_NODES; node++) {
        if (!CPU_ISSET(node, set)) continue;
        if (count < capacity) nodes[count] = node;
        count++;
    }
    return count;
}

uint32_t vlc_memory_policy(vlc_context *context, uint32_t *nodes, size_t capacity, size_t *count) {
    const struct vlci_policy *now = atomic_load(&context->policy);
    size_t there = now ? list(&now->kernel.nodes, nodes, capacity) : 0;
    if (count) *count = there;
    return now ? now->memory : VLC_MEMORY_DEFAULT;
}

int vlc_allowed_nodes(uint32_t *nodes, size_t capacity, size_t *count, vlc_error *error) {
    vlci_nodes allowed;
    struct vlci_os_policy own = { .mode = VLCI_OS_LOCAL };
    int failed = vlci_os_nodes_allowed(&allowed);
    if (!failed) failed = try_on_page(&own);
    if (failed)
        return vlci_fail(error, VLC_SYSTEM, -failed, "mbind", "no policy of memory can be set: %s",
                         vlci_policy_why(-failed));
    *count = list(&allowed, nodes, capacity);
    return VLC_OK;
}
