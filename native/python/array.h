/* NumPy's arrays and scalars, of both its versions 1 and 2: read by the layout that NumPy promises to extension
 * modules, and made by calling its types. */
#ifndef VLCI_ARRAY_H
#define VLCI_ARRAY_H

#include "layout.h"
#include "realm.h"

/* Whether the realm has imported NumPy. Without its GIL. */
bool vlci_array_is_known(const struct vlci_realm *realm);

/* Learns whether the realm has imported NumPy by now, under its GIL. */
void vlci_array_learn(struct vlci_realm *realm);

/* Gives up what was learned, under the guest's GIL, before it is finalised. */
void vlci_array_forget(struct vlci_realm *guest);

/* Whether its type is exactly ndarray. */
bool vlci_array_is(const struct vlci_realm *realm, const vlci_object *object);

/* What an array is a view of; borrowed, NULL: of nothing. */
vlci_object *vlci_array_base(vlci_object *array);

/* Views an array; `*keeper`, a new reference or NULL, has to be kept meanwhile. False: its memory cannot be
 * shared (it holds objects), or an exception is set. */
bool vlci_array_view(struct vlci_view *view, struct vlci_realm *realm, vlci_object *array,
                     vlci_object **keeper);

/* An array of `realm` on a buffer that starts at the layout's lowest address; imports NumPy where need be.
 * NULL: an exception is set there. */
vlci_object *vlci_array_make(const struct vlci_layout *layout, struct vlci_realm *realm, vlci_object *buffer);

/* A scalar of a number type, such as numpy.float64(1): the number of its type, and its bytes. False: it is none. */
enum { VLCI_SCALAR_SIZE = 32 };
bool vlci_scalar_read(struct vlci_realm *realm, vlci_object *scalar, uint8_t *number,
                      char bytes[VLCI_SCALAR_SIZE]);

/* It again in `realm`, which knows NumPy; NULL: an exception is set there. */
vlci_object *vlci_scalar_make(struct vlci_realm *realm, uint8_t number, const char bytes[VLCI_SCALAR_SIZE]);

#endif
