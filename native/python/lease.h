/* Memory of one realm, looked at from another, shared and not copied.
 *
 * A source is a buffer that its owner exported (`Py_buffer`, taken under the owner's GIL). A lease is
 * a holder's Python object on a part of a source: a read or read-write buffer. A source
 * lives while a lease on it does; then it is queued for its owner, who frees it under his own GIL.
 * What a holder sends on is a lease on the same source, so the memory of a chain of calls is pinned
 * by its owner alone.
 */
#ifndef VLCI_LEASE_H
#define VLCI_LEASE_H

#include "layout.h"
#include "realm.h"

/* A part of a source, on its way between two realms; holds a reference on the source and one on the layout. Or a
 * kept object, likewise. */
struct vlci_span {
    struct vlci_source *source;
    struct vlci_layout *layout;
    char *data; /* the lowest address */
    int readonly;
    struct vlci_kept *kept; /* or no memory, but an object that stays in its realm (kept.h) */
};

/* Makes the Lease type of an interpreter (its realm's lease_type). Under its GIL; NULL: an exception is set there. */
vlci_object *vlci_lease_type_new(const struct vlci_api *api);

/* A span on the object that `view` is of, under the GIL of `realm`; `exported` is its buffer, which the span takes over
 * and the object gets back by PyBuffer_Release. `lease`, or NULL, is the Lease that the memory comes from. -1: an
 * exception is set there, and the buffer is released. */
int vlci_span_take(struct vlci_span *span, struct vlci_realm *realm, const struct vlci_view *view,
                   Py_buffer *exported, vlci_object *lease);

/* The object that exported the memory, borrowed, where it is one of `realm`; else NULL. */
vlci_object *vlci_span_origin(const struct vlci_span *span, const struct vlci_realm *realm);

/* Gives up the span's references. Any thread, with any GIL or none. */
void vlci_span_drop(struct vlci_span *span);

/* A Lease object of `holder` on the span, under the holder's GIL; the span keeps its own reference.
 * NULL: an exception is set there. */
vlci_object *vlci_lease_new(struct vlci_realm *holder, const struct vlci_span *span);

/* The span of a Lease object, with a reference of its own; false: the object is no Lease of `realm`. */
bool vlci_lease_span(const struct vlci_realm *realm, vlci_object *object, struct vlci_span *span);

/* Says that it stands for much memory, so that its owner gets it back at once. */
void vlci_span_is_large(const struct vlci_span *span);

/* Has the realm free what was given back to it, on a thread of its own: where it is not much, after a moment. Any thread. */
void vlci_settle_soon(struct vlci_realm *realm, bool much);

/* Frees what nobody holds any more, under the realm's GIL; its kept objects too. */
void vlci_sources_settle(struct vlci_realm *realm);

/* Gives up every lease that a realm holds, and its own sources that wait to be freed: its interpreter
 * is finalised and its memory unmapped. */
void vlci_leases_forget(struct vlci_realm *realm);

#endif
