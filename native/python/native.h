/* What the types of the extension module share. */
#ifndef VLCI_NATIVE_H
#define VLCI_NATIVE_H

#include "realm.h"

/* The module's state. */
struct vlci_module {
    PyObject *context_type;
    PyObject *interpreter_type;
    PyObject *door_type;
    PyObject *visit_type;
    PyObject *block_type;
    PyObject *caller_type;
};

struct vlci_context_object {
    PyObject_HEAD vlc_context *context; /* NULL once it is destroyed */
    PyObject *name;
    struct vlci_realm *guest; /* its interpreter, running or stopped; or NULL */
    unsigned uses;            /* methods that use `context` without the GIL; guarded by it */
    bool used;                /* by a method */
    bool resident;            /* its code runs on threads of its own only */
    bool closed;              /* vlc_destroy was called: no method but destroy enters any more */
};

struct vlci_module *vlci_module_state(PyObject *module);
PyObject *vlci_context_type_new(PyObject *module);
PyObject *vlci_interpreter_type_new(PyObject *module);
PyObject *vlci_door_type_new(PyObject *module);
PyObject *vlci_visit_type_new(PyObject *module);
PyObject *vlci_block_type_new(PyObject *module);
PyObject *vlci_caller_type_new(PyObject *module, PyObject *block_type);

/* Of an Interpreter; borrowed. */
struct vlci_realm *vlci_interpreter_realm(PyObject *interpreter);

/* A new list; NULL with an exception. */
PyObject *vlci_number_list(const uint32_t *numbers, size_t count);

/* The context, kept from being destroyed until vlci_context_unuse; NULL with StateError when it is closed. */
vlc_context *vlci_context_use(struct vlci_context_object *self);
void vlci_context_unuse(struct vlci_context_object *self);

void vlci_door_fork(enum vlci_fork when);

#endif
