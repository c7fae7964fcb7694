/* Stacks of a resident context's threads, with slots behind: guard | stack | slots | guard, in one mapping.
 *
 * libc puts a thread's control block at the top of the stack that it is given, so that the slots lie at a constant
 * distance above the thread pointer. Threads are joinable for libc, whatever their maker wants, and reaped here:
 * only a join tells that a thread is through with its stack (unmapping after a flag that a detached one set at its
 * end crashed 58 programs of 200, glibc 2.36). */
#ifndef VLCI_STACK_H
#define VLCI_STACK_H

#include "loader/lock.h"
#include "vlcs.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct vlci_stack {
    struct vlci_stack *next;
    char *map; /* guard, then low to slots, which are the stack's end */
    char *low, *slots;
    size_t size, guard; /* as they were asked for */
    pthread_t handle;   /* once `begun` */
    bool begun, detached;
};

/* Measures the distance from the thread pointer to the slots, once. */
int vlci_stack_start(ptrdiff_t *distance, vlc_error *error);

/* A stack for a new thread of the context, with zeros in its slots, in the context's list; NULL: no memory.
 * `attributes` (NULL: libc's own) say how large. */
struct vlci_stack *vlci_stack_take(vlc_context *context, const pthread_attr_t *attributes);

/* What pthread_create is to be given: a copy of `attributes`, not to be destroyed. */
int vlci_stack_attributes(const struct vlci_stack *stack, const pthread_attr_t *attributes,
                          pthread_attr_t *made);

/* For the new thread itself, at its begin: false where the slots are not where they should be. */
bool vlci_stack_begin(vlc_context *context, struct vlci_stack *stack);

/* Gives up the stack of a thread that was joined, or never made. */
void vlci_stack_drop(vlc_context *context, struct vlci_stack *stack);

/* The stack of the context's thread with this handle, or NULL: it is another's. */
struct vlci_stack *vlci_stack_of(vlc_context *context, pthread_t handle);

/* As pthread_detach: nobody will join the thread. */
int vlci_stack_detach(vlc_context *context, struct vlci_stack *stack);

/* Joins all that are left, once the context has no thread any more. */
void vlci_stacks_join(vlc_context *context);

/* In a forked child: only the calling thread uses its stack. */
void vlci_stacks_forget(vlc_context *context);
void vlci_stack_fork(enum vlci_fork when);

#endif
