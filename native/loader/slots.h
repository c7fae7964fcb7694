/* Slots for initial-exec thread-local storage: at a fixed distance from the thread pointer.
 *
 * There are two places. The pool of the process lies in static TLS of every thread, and is small where vlcs was
 * imported late (native/tls_pool says why). A resident context has slots of its own above the thread pointer, in
 * memory of ours behind the stacks of its threads (stack.h), so that it takes none of the pool; no other thread
 * may run its code then, since another thread has something else at that distance. */
#ifndef VLCI_SLOTS_H
#define VLCI_SLOTS_H

#include "loader/image.h"

#define VLCI_SLOT 64ul               /* unit, and the most alignment that a slot can give */
#define VLCI_SLOTS_SIZE (64ul << 10) /* of a resident context's threads, each */
#define VLCI_SLOTS_EXPECTED                                                                                  \
    (6 * 64l) /* what a context may come to need: libgomp twice, of PyTorch and scikit-learn */

struct vlci_slots {
    ptrdiff_t offset; /* of the first one from the thread pointer */
    size_t size;
    uint8_t used[VLCI_SLOTS_SIZE / VLCI_SLOT];
};

/* Finds the pool of the process, before the first context; again where memory or descriptors had run out then. */
void vlci_slots_start(void);

/* Gives a context slots of its own: it is resident. vlci_stack_start says where they lie. False: no memory. */
bool vlci_slots_make(vlc_context *context);
void vlci_slots_free(vlc_context *context);

/* The tls lock is held and signals are blocked by the caller of these two. False: there is no room. */
bool vlci_slots_take(vlc_context *context, struct vlci_tls_segment *tls);
void vlci_slots_give(vlc_context *context, const struct vlci_tls_segment *tls);

/* Bytes that a segment takes. */
size_t vlci_slots_need(const struct vlci_tls_segment *tls);

/* Bytes of the process's pool, or of a resident context's own slots. */
size_t vlci_slots_size(const vlc_context *context);
size_t vlci_slots_used(const vlc_context *context);

/* Whether the word lies in a resident context's own slots on its thread with that pointer. */
bool vlci_slots_hold(const vlc_context *context, uintptr_t pointer, uintptr_t word);

/* Whether the pool has too little for one more context beside those that are there, each of which is taken to
 * need VLCI_SLOTS_EXPECTED. The lock of the list of contexts is held. */
bool vlci_slots_are_low(void);

#endif
