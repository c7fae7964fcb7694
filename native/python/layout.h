/* How the items of a buffer lie in its memory; not changed once it is made, and of no interpreter. */
#ifndef VLCI_LAYOUT_H
#define VLCI_LAYOUT_H

#include "python_api.h"

#include <stdatomic.h>
#include <stdbool.h>

enum vlci_kind {
    VLCI_VIEW,  /* a memoryview; `format` is the buffer protocol's */
    VLCI_ARRAY, /* an array of NumPy; `format` tells its dtype, see array.c */
};

/* The same of an object as it is now: what it points to is the object's. */
struct vlci_view {
    enum vlci_kind kind;
    int dimensions, readonly;
    char *data; /* the first item */
    Py_ssize_t itemsize;
    const Py_ssize_t *shape, *strides;
    const char *format;
    Py_ssize_t format_size;
};

struct vlci_layout {
    atomic_uint references;
    enum vlci_kind kind;
    int dimensions;
    Py_ssize_t itemsize;
    Py_ssize_t offset; /* of the first item, from the lowest address */
    Py_ssize_t size;   /* from the lowest address to behind the highest */
    Py_ssize_t format_size;
    const char *format; /* ends with NUL, as do the next two, in the same block */
    Py_ssize_t *shape, *strides;
    Py_ssize_t block[];
};

/* With one reference, or NULL without memory. */
struct vlci_layout *vlci_layout_new(const struct vlci_view *view);
struct vlci_layout *vlci_layout_retain(struct vlci_layout *layout);
void vlci_layout_release(struct vlci_layout *layout);

/* Whether the view has this layout; its memory is not compared. */
bool vlci_layout_fits(const struct vlci_layout *layout, const struct vlci_view *view);

/* Fills what PyObject_GetBuffer asks for, but view->obj, where `data` is the lowest address. False: not so. */
bool vlci_layout_export(const struct vlci_layout *layout, char *data, Py_buffer *view, int flags);

#endif
