/* Values of plain types, written flat in one realm and built again in another, several times faster than by
 * pickle and with the same outcome: None, bool, int, float, complex, str, bytes, and tuples, lists, dicts, sets
 * and frozensets of these, scalars of NumPy, buffers (buffer.h) and handles (handle.h). Exactly these types: a subclass has a class that must be found again, which is
 * pickle's work. What is one object stays one, and containers may hold themselves. */
#ifndef VLCI_VALUE_H
#define VLCI_VALUE_H

#include "message.h"

/* Writes a value of `realm` as the message's bytes, for `receiver`, under its GIL. False, with no exception set, where it is not
 * plain, is nested too deeply, or memory ran out: the message is empty then. */
bool vlci_value_write(struct vlci_message *message, struct vlci_realm *realm,
                      const struct vlci_realm *receiver, vlci_object *value);

/* The same for the arguments of a call, of which the last ones have `names`, a tuple or NULL. They are read as
 * a tuple and, where there are names, a dict. */
bool vlci_value_write_call(struct vlci_message *message, struct vlci_realm *realm,
                           const struct vlci_realm *receiver, vlci_object *const *args, Py_ssize_t count,
                           vlci_object *names);

/* Writes a kept object, which arrives as a handle. False: no memory. */
bool vlci_value_write_kept(struct vlci_message *message, struct vlci_kept *kept);

/* Builds what was written in `realm`, under its GIL; each is a new reference. -1: an exception is set there. */
int vlci_value_read(const struct vlci_message *message, struct vlci_realm *realm, vlci_object **values,
                    size_t count);

#endif
