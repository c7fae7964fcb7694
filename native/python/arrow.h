/* Tables by the Arrow C data and stream interfaces (arrow.apache.org/docs/format/CDataInterface.html), between realms.
 *
 * An array's memory is given back by a callback of the library that made it, which is to run in its own context, and
 * where it drops Python objects under its own GIL. So the arrays stay with their realm, in an object that lends a
 * description of them as a buffer, which crosses as any (lease.h): when nobody holds it any more, its owner ends
 * it. The receiver's library gets copies of the descriptions; their callbacks give up the lease, which any thread
 * may do, with any GIL or none. No type needs to be understood for that, nor any size. */
#ifndef VLCI_ARROW_H
#define VLCI_ARROW_H

#include "realm.h"

/* What `capsule`, an "arrow_array_stream", gives, read to its end, as an object with a buffer to be lent. None where
 * the stream fails; NULL: an exception is set. Under the realm's GIL, as is the next. */
vlci_object *vlci_arrow_lend(struct vlci_realm *realm, vlci_object *capsule);

/* An object with the method __arrow_c_stream__ on what was lent; None where `lease` is no Lease of the realm. */
vlci_object *vlci_arrow_borrow(struct vlci_realm *realm, vlci_object *lease);

/* Gives up what libraries of the realm still hold: its memory is unmapped. */
void vlci_arrow_forget(struct vlci_realm *realm);

#endif
