/* One call from the host into a guest: bytes and buffers there, bytes and buffers back. */
#ifndef VLCI_CALL_H
#define VLCI_CALL_H

#include "name.h"

/* Runs the guest's serve(payload, buffers) on this thread and gives (bytes, list of Lease), or NULL
 * with an exception. `payload` is bytes, `buffers` a sequence. Needs the host's GIL, and gives it up. */
PyObject *vlci_call(struct vlci_realm *guest, PyObject *payload, PyObject *buffers);

enum vlci_outcome {
    VLCI_FAILED,    /* an exception is set */
    VLCI_NOT_PLAIN, /* nothing was done: the arguments have to be pickled */
    VLCI_VALUE,     /* the function's result */
    VLCI_ANSWER,    /* as vlci_call's: the result has to be unpickled, or the function raised */
};

/* Calls a function of the guest on this thread; `names`, a tuple or NULL, are those of the last arguments.
 * Stores a new reference where there is a value or an answer. Needs the host's GIL, and gives it up. */
enum vlci_outcome vlci_call_function(struct vlci_realm *guest, struct vlci_name *name, PyObject *const *args,
                                     Py_ssize_t count, PyObject *names, PyObject **result);

/* Whether this thread is inside of a call from the host, at whose end it frees what waits there. */
bool vlci_call_under_way(void);

/* How many calls into the guest this thread is inside of. */
unsigned vlci_calls_inside(const struct vlci_realm *guest);

#endif
