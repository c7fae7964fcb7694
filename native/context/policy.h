/* On which NUMA nodes a context's memory lies: the policy of its threads, and of the ranges that it takes.
 *
 * Both are needed. A thread's policy decides for its stack, the data of libraries and what the kernel takes for it; a
 * range's decides whoever touches it first: a thread of another context, or the kernel in read(). */
#ifndef VLCI_POLICY_H
#define VLCI_POLICY_H

#include "context/os.h"
#include "vlcs.h"

#include <stdbool.h>

struct vlci_visit;
struct vlci_thread;

/* Never changed once a context has it, and never freed before it: threads compare its address with their own. */
struct vlci_policy {
    struct vlci_policy *older;
    uint32_t memory; /* a vlc_memory */
    bool follows;    /* its nodes are those of the slice's CPUs */
    struct vlci_os_policy kernel;
};

/* Checks what was asked for. *made is the caller's, to be published or freed; NULL for VLC_MEMORY_DEFAULT. */
int vlci_policy_make(const char *name, uint32_t memory, const uint32_t *nodes, size_t count,
                     const cpu_set_t *cpus, struct vlci_policy **made, vlc_error *error);

/* The same for a resize: what the present policy becomes on other CPUs. */
int vlci_policy_on(vlc_context *context, const cpu_set_t *cpus, struct vlci_policy **made, vlc_error *error);

/* Takes `made`; under slice_lock. The second only where the present one is of the same kind still. Then without it, the ranges that the context has already. */
void vlci_policy_publish(vlc_context *context, struct vlci_policy *made);
bool vlci_policy_replace(vlc_context *context, struct vlci_policy *made);
void vlci_policy_spread(vlc_context *context);
void vlci_policy_free(vlc_context *context);

/* Where its pages should lie: the policy's nodes, or those of its CPUs where it names none. 0 or -errno. */
int vlci_policy_nodes(vlc_context *context, vlci_nodes *nodes);

/* Why the kernel refuses such calls, in words. */
const char *vlci_policy_why(int error_number);

/* A range that was just mapped, and registered before: gets the policy, and huge pages or none. */
void vlci_policy_apply(vlc_context *context, void *base, size_t length);

/* The calling thread enters, and leaves. Without a policy on either side this is a comparison. */
void vlci_policy_enter(vlc_context *context, struct vlci_visit *visit);
void vlci_policy_leave(struct vlci_visit *visit);

/* The calling thread is about to change its policy by itself: it gets the one before back when it leaves. */
void vlci_policy_keep(void);

/* A thread begins with what its maker had at that moment, which may be another context's: noted by the maker, and
 * put right by the new thread, before others can see it. */
void vlci_policy_inherit(struct vlci_thread *made);
void vlci_policy_begin(vlc_context *context, struct vlci_thread *thread);

/* Where the calling thread may have missed a change, if it is inside of the context. */
void vlci_policy_follow(vlc_context *context);

#endif
