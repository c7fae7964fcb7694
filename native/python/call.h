/* One call from a realm into another. The host and its guests are alike: any may call any other, to any depth, on
 * whichever thread; a thread holds one GIL at a time.
 *
 * Needs the caller's GIL, and gives it up meanwhile. Where it fails, an exception is set in the caller. */
#ifndef VLCI_CALL_H
#define VLCI_CALL_H

#include "kept.h"
#include "name.h"

/* Runs serve(payload, buffers) of the callee on this thread and gives (bytes, list of Lease and Passage), or NULL.
 * `payload` is bytes, `buffers` a list. */
vlci_object *vlci_call(struct vlci_realm *caller, struct vlci_realm *callee, vlci_object *payload,
                       vlci_object *buffers);

enum vlci_outcome {
    VLCI_FAILED,    /* an exception is set */
    VLCI_NOT_PLAIN, /* nothing was done: the arguments have to be pickled */
    VLCI_VALUE,     /* the function's result */
    VLCI_ANSWER,    /* as vlci_call's: the result has to be unpickled, or the function raised */
};

/* The host calls a function of a guest by its name. Of `args` the last have `names`, a tuple or NULL. Stores a new
 * reference where there is a value or an answer. */
enum vlci_outcome vlci_call_function(struct vlci_realm *guest, struct vlci_name *name,
                                     vlci_object *const *args, Py_ssize_t count, vlci_object *names,
                                     vlci_object **result);

/* Places in `operations` of _serving.py that are known here. */
enum { VLCI_CALL, VLCI_FETCH };

/* Does one of these to a kept object in its realm. Of the result data comes by value, and what has behaviour stays
 * there and comes as a handle. */
enum vlci_outcome vlci_call_kept(struct vlci_realm *caller, struct vlci_kept *kept, int operation,
                                 vlci_object *const *args, Py_ssize_t count, vlci_object *names,
                                 vlci_object **result);

/* Whether this thread is inside of a call from the realm, at whose end it frees what waits there. */
bool vlci_call_returns_to(const struct vlci_realm *realm);

/* How many calls into the realm this thread is inside of. */
unsigned vlci_calls_inside(const struct vlci_realm *realm);

#endif
