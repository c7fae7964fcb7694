/* One call from the host into a guest: bytes and buffers there, bytes and buffers back. */
#ifndef VLCI_CALL_H
#define VLCI_CALL_H

#include "realm.h"

/* Runs the guest's serve(payload, buffers) on this thread and gives (bytes, list of Lease), or NULL
 * with an exception. `payload` is bytes, `buffers` a sequence. Needs the host's GIL, and gives it up. */
PyObject *vlci_call(struct vlci_realm *guest, PyObject *payload, PyObject *buffers);

/* How many calls into the guest this thread is inside of. */
unsigned vlci_calls_inside(const struct vlci_realm *guest);

#endif
