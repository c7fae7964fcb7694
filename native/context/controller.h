/* Controllers: what to tell libraries of a context that sized their pools of threads before the slice changed. */
#ifndef VLCI_CONTROLLER_H
#define VLCI_CONTROLLER_H

#include "context/context.h"
#include "loader/key.h"

#define VLCI_CONTROLLED 18 /* libraries of one context that can be told */

/* The numbers of threads that they have for the calling thread, in the order of `controlled`. */
struct vlci_numbers {
    int of[VLCI_CONTROLLED];
};

/* Lists what was loaded since. False: there is nobody to tell. Under the resize lock, as the next two. */
bool vlci_controllers_find(vlc_context *context);

/* Around the change of the slice, inside of the context. `may_set`: this thread is not in the middle of a call there,
 * in which a library may rely on the number that it has read. */
void vlci_controllers_look(vlc_context *context, struct vlci_numbers *numbers);
void vlci_controllers_tell(vlc_context *context, const struct vlci_numbers *before, bool may_set);

/* Whether the calling thread has not followed yet. */
static inline bool vlci_controllers_are_new(vlc_context *context) {
    uint64_t told = atomic_load_explicit(&context->told, memory_order_acquire);
    return told && told != ((uintptr_t)vlci_key_get(context->told_key) & VLCI_TOLD);
}

/* Tells the libraries that have a number for each thread. Inside of the context, and not in the middle of a call. */
void vlci_controllers_follow(vlc_context *context);

/* As a thread begins that its libraries have made. */
void vlci_controllers_begin(vlc_context *context, const void *start);

void vlci_controllers_free(vlc_context *context);

#endif
