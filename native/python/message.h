/* What crosses between two realms in one direction: bytes, and buffers that stay where they are.
 *
 * Filled under one realm's GIL and read under another's; between them it is held by no interpreter. */
#ifndef VLCI_MESSAGE_H
#define VLCI_MESSAGE_H

#include "lease.h"

#include <stdint.h>

enum { VLCI_MESSAGE_INLINE = 512 }; /* arguments and results of most calls */

struct vlci_message {
    char *bytes; /* `inside`, or of malloc, or somebody else's where the capacity is 0 */
    size_t size, capacity;
    struct vlci_span *spans;
    Py_ssize_t span_count, span_capacity;
    uint32_t kept; /* value.c's: how many of the objects in it may come again */
    char inside[VLCI_MESSAGE_INLINE];
};

void vlci_message_begin(struct vlci_message *message);

/* Frees its memory and gives up its spans. Any thread, with any GIL or none. */
void vlci_message_end(struct vlci_message *message);

/* Room for `size` more bytes, to be written at once, or NULL without memory. */
char *vlci_message_grow(struct vlci_message *message, size_t size);

/* Room for its next span, to be filled at once, or NULL without memory. */
struct vlci_span *vlci_message_add(struct vlci_message *message);

/* Takes a reference of a kept object as its next span. False: no memory. */
bool vlci_message_add_kept(struct vlci_message *message, struct vlci_kept *kept);

/* The holder's list of Lease and Passage objects on its spans, under the holder's GIL; NULL: an exception is set there. */
vlci_object *vlci_message_leases(const struct vlci_message *message, struct vlci_realm *holder);

#endif
