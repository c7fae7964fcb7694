/* What has the buffer protocol, as it crosses between realms: its memory stays where it is, and how it is laid out
 * is told.
 *
 * Arrays of NumPy arrive as arrays (array.h); memoryview, bytearray, array.array and mmap as a memoryview of the
 * same format, shape and strides. What comes home to its owner's realm as it was lent is the very object that
 * was lent. All of exactly these types: a subclass is pickled. */
#ifndef VLCI_BUFFER_H
#define VLCI_BUFFER_H

#include "message.h"

/* Learns which types there are by now, under the realm's GIL. */
void vlci_buffers_learn(struct vlci_realm *realm);

/* Gives up what was learned, under the guest's GIL, before it is finalised. */
void vlci_buffers_forget(struct vlci_realm *guest);

/* Whether the object is of a type that crosses so; its memory may not, all the same. */
bool vlci_buffer_is(const struct vlci_realm *realm, const vlci_object *object);

/* Adds its memory to the message as the next span, under the realm's GIL. -1: an exception is set. */
int vlci_buffer_add(struct vlci_message *message, struct vlci_realm *realm, vlci_object *object);

/* The object of `realm` that the span is: a new reference. NULL: an exception is set there. */
vlci_object *vlci_buffer_make(const struct vlci_span *span, struct vlci_realm *realm);

#endif
