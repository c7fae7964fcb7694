#include "layout.h"

#include <stdlib.h>
#include <string.h>

struct vlci_layout *vlci_layout_new(const struct vlci_view *view) {
    size_t sizes = (size_t)view->dimensions * sizeof(Py_ssize_t);
    struct vlci_layout *layout = malloc(sizeof *layout + 2 * sizes + (size_t)view->format_size + 1);
    if (!layout) return NULL;
    char *format = (char *)layout->block + 2 * sizes;
    *layout = (struct vlci_layout){
        .kind = view->kind,
        .dimensions = view->dimensions,
        .itemsize = view->itemsize,
        .size = view->itemsize,
        .format_size = view->format_size,
        .format = format,
        .shape = layout->block,
        .strides = layout->block + view->dimensions,
    };
    atomic_init(&layout->references, 1);
    if (sizes) {
        memcpy(layout->shape, view->shape, sizes);
        memcpy(layout->strides, view->strides, sizes);
    }
    memcpy(format, view->format, (size_t)view->format_size);
    format[view->format_size] = '\0';
    for (int i = 0; i < view->dimensions; i++) {
        Py_ssize_t reach = (view->shape[i] - 1) * view->strides[i];
        if (reach < 0) layout->offset -= reach;
        layout->size += reach < 0 ? -reach : reach;
    }
    for (int i = 0; i < view->dimensions; i++) {
        if (!view->shape[i]) layout->size = layout->offset = 0;
    }
    return layout;
}

struct vlci_layout *vlci_layout_retain(struct vlci_layout *layout) {
    atomic_fetch_add_explicit(&layout->references, 1, memory_order_relaxed);
    return layout;
}

void vlci_layout_release(struct vlci_layout *layout) {
    if (layout && atomic_fetch_sub(&layout->references, 1) == 1) free(layout);
}

bool vlci_layout_fits(const struct vlci_layout *layout, const struct vlci_view *view) {
    size_t sizes = (size_t)view->dimensions * sizeof(Py_ssize_t);
    return layout->kind == view->kind && layout->dimensions == view->dimensions &&
           layout->itemsize == view->itemsize && layout->format_size == view->format_size &&
           memcmp(layout->format, view->format, (size_t)view->format_size) == 0 &&
           (!sizes || (memcmp(layout->shape, view->shape, sizes) == 0 &&
                       memcmp(layout->strides, view->strides, sizes) == 0));
}

/* Whether the items follow one another, in the order of the last dimension first or of the first. */
static bool is_contiguous(const struct vlci_layout *layout, bool last_first) {
    Py_ssize_t expected = layout->itemsize;
    for (int i = 0; i < layout->dimensions; i++) {
        if (!layout->shape[i]) return true;
    }
    for (int i = 0; i < layout->dimensions; i++) {
        int dimension = last_first ? layout->dimensions - 1 - i : i;
        if (layout->shape[dimension] > 1 && layout->strides[dimension] != expected) return false;
        expected *= layout->shape[dimension];
    }
    return true;
}

bool vlci_layout_export(const struct vlci_layout *layout, char *data, Py_buffer *view, int flags) {
    bool in_c = is_contiguous(layout, true), in_fortran = is_contiguous(layout, false);
    bool strided = (flags & PyBUF_STRIDES) == PyBUF_STRIDES;
    if ((!strided || (flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS) && !in_c) return false;
    if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && !in_fortran) return false;
    if ((flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS && !in_c && !in_fortran) return false;
    bool shaped = (flags & PyBUF_ND) == PyBUF_ND;
    Py_ssize_t count = 1;
    for (int i = 0; i < layout->dimensions; i++) count *= layout->shape[i];
    *view = (Py_buffer){
        .buf = data + layout->offset,
        .len = count * layout->itemsize,
        .itemsize = layout->itemsize,
        .ndim = shaped ? layout->dimensions : 1,
        .format = (flags & PyBUF_FORMAT) == PyBUF_FORMAT ? (char *)layout->format : NULL,
        .shape = shaped ? layout->shape : NULL,
        .strides = strided ? layout->strides : NULL,
    };
    return true;
}
