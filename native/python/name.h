/* The name by which a guest finds a function: its module, and the attributes that lead to it from there.
 *
 * A call of a function that was called before sends its name's address. It is resolved anew in each call, so
 * a module that was loaded again, or changed, is seen. Names last as long as their guest: a program has as
 * many as it has functions that it calls there. */
#ifndef VLCI_NAME_H
#define VLCI_NAME_H

#include "realm.h"

struct vlci_name {
    struct vlci_name *next;  /* of the realm's */
    vlci_object *module;     /* strings of the guest, made when it first resolves the name */
    vlci_object *attributes; /* a tuple */
    vlci_object *ready;      /* the module, once it was seen to be whole; or NULL */
    Py_ssize_t count;        /* of texts */
    bool frameless;          /* it is of no module whose functions look at the frame of their caller */
    const char *texts[];     /* UTF-8: the module's, then the attributes' */
};

/* A new name of `guest`, from a module's name and a tuple of attributes' as the host has them. Under the
 * host's GIL; NULL: an exception is set there. */
struct vlci_name *vlci_name_new(struct vlci_realm *guest, PyObject *module, PyObject *attributes);

/* What it stands for now, importing the module where it must, under the guest's GIL. A new reference; NULL:
 * an exception is set there. */
vlci_object *vlci_name_resolve(struct vlci_realm *guest, struct vlci_name *name);

/* Gives up the guest's strings, under its GIL, before it is finalised. */
void vlci_names_forget(struct vlci_realm *guest);

/* With the realm's record. */
void vlci_names_free(struct vlci_realm *guest);

#endif
