/* Objects that stay in their realm while others refer to them.
 *
 * A record is counted by the handles (handle.h) and messages that refer to it. With the last of these it is queued for
 * its owner, who gives the object up under his own GIL: in the next call, or in a job of its home thread.
 */
#ifndef VLCI_KEPT_H
#define VLCI_KEPT_H

#include "realm.h"

/* A record of the object, with one reference. Its label is the name of a module, class or function, or that of
 * another object's class. Under the owner's GIL; NULL: an exception is set there. */
struct vlci_kept *vlci_kept_new(struct vlci_realm *owner, vlci_object *object);

/* An attribute of a kept object, which is read anew each time that it is used; its label is made of both. */
struct vlci_kept *vlci_kept_attribute(struct vlci_kept *object, vlci_object *name);

/* The object, as a new reference, under the owner's GIL. NULL: an exception is set there. */
vlci_object *vlci_kept_resolve(struct vlci_kept *kept);

struct vlci_realm *vlci_kept_owner(const struct vlci_kept *kept);
const char *vlci_kept_label(const struct vlci_kept *kept);
bool vlci_kept_is_attribute(const struct vlci_kept *kept);

void vlci_kept_retain(struct vlci_kept *kept);

/* Gives up a reference. Any thread, with any GIL or none. */
void vlci_kept_drop(struct vlci_kept *kept);

/* Gives up what nobody refers to any more, under the realm's GIL. */
void vlci_kept_settle(struct vlci_realm *realm);

/* Gives up all of the realm's objects, under its GIL, before it is finalised. */
void vlci_kept_end(struct vlci_realm *realm);

#endif
