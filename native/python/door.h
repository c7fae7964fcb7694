/* Who is inside of a context: what the types Door and Visit are made of. */
#ifndef VLCI_DOOR_H
#define VLCI_DOOR_H

#include "native.h"

struct vlci_door;
struct vlci_visit_object;

/* One stay of a thread inside of a context; in a Visit, or on the stack of a call. */
struct vlci_stay {
    struct vlci_door *door;
    PyObject *what;                  /* names it in messages; its holder's */
    struct vlci_visit_object *visit; /* whose it is, or NULL */
    bool inside;
    unsigned long long thread;
    unsigned long ident;               /* of that thread, for those who look at it while it is here */
    struct vlci_stay *next, *previous; /* of the door's, the latest first */
};

/* An object of the type Block, or of its subclass Caller. */
struct vlci_block {
    PyObject_HEAD PyObject *gate; /* a Door; or NULL */
};

/* Counts this thread in by `door`, an object of the type Door, with a stay that lasts until vlci_door_leave.
 * False, with no exception set, where the door lets nobody in. Both under the host's GIL. */
bool vlci_door_enter(PyObject *door, struct vlci_stay *stay, PyObject *what);
void vlci_door_leave(struct vlci_stay *stay);

#endif
