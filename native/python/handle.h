/* Handles: how objects of a realm refer to objects that stay in another, or in their own.
 *
 * The type Handle is what the class RemoteObject (_remote.py) is made of, in every interpreter. What it refers to
 * arrives in its own realm as the object itself, and as a handle in all others; beside a pickle, in a Passage.
 */
#ifndef VLCI_HANDLE_H
#define VLCI_HANDLE_H

#include "kept.h"

/* Make the types of a realm, under its GIL. NULL: an exception is set there. */
vlci_object *vlci_handle_type_new(struct vlci_realm *realm);
vlci_object *vlci_passage_type_new(const struct vlci_api *api);

/* A handle of the realm to its own object, under its GIL; NULL: an exception is set there. */
vlci_object *vlci_handle_keep(struct vlci_realm *realm, vlci_object *object);

/* What stands for a kept object in a realm: in the owner's the object itself. Under the realm's GIL; a new reference;
 * NULL: an exception is set there. */
vlci_object *vlci_handle_arrive(struct vlci_realm *realm, struct vlci_kept *kept);

/* What a handle refers to, borrowed; NULL where the object is none. */
struct vlci_kept *vlci_handle_kept(const struct vlci_realm *realm, const vlci_object *object);

/* What stands for a kept object beside a pickle that has arrived: its take() gives what does; NULL: an exception is set there. */
vlci_object *vlci_passage_new(struct vlci_realm *realm, struct vlci_kept *kept);

/* Gives up every handle of a realm: its interpreter is finalised and its memory unmapped. */
void vlci_handles_forget(struct vlci_realm *realm);

#endif
