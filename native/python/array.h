/* NumPy arrays, as value.c crosses them: what lies in memory stays there, and a description of it is sent.
 *
 * Those of exactly the type ndarray that are contiguous, not empty, and of a number type in the machine's byte
 * order; the others are pickled, by the rules of _sharing.py. */
#ifndef VLCI_ARRAY_H
#define VLCI_ARRAY_H

#include "message.h"

enum { VLCI_ARRAY_DIMENSIONS = 64 }; /* NumPy's own limit */

struct vlci_array {
    uint32_t span;   /* of the message that it is in */
    uint8_t number;  /* the type, by an index of array.c's */
    uint8_t columns; /* Fortran's order */
    int dimensions;
    Py_ssize_t shape[VLCI_ARRAY_DIMENSIONS];
};

/* Whether arrays can cross to the realm: it has imported NumPy. Without its GIL. */
bool vlci_array_is_known(const struct vlci_realm *realm);

/* Learns whether the realm has imported NumPy by now, under its GIL. */
void vlci_array_learn(struct vlci_realm *realm);

/* Whether the object is an array to be taken: its type is exactly ndarray. */
bool vlci_array_is(const struct vlci_realm *realm, const vlci_object *object);

/* Describes an array and adds its memory to the message. False, perhaps with an exception: it has to be pickled. */
bool vlci_array_take(struct vlci_array *array, struct vlci_message *message, struct vlci_realm *realm,
                     vlci_object *object);

/* An array of `realm` on that memory; NULL: an exception is set there. */
vlci_object *vlci_array_make(const struct vlci_array *array, const struct vlci_message *message,
                             struct vlci_realm *realm);

/* Gives up what was learned, under the guest's GIL, before it is finalised. */
void vlci_array_forget(struct vlci_realm *guest);

#endif
