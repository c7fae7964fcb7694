#include "array.h"

#include <stdlib.h>
#include <string.h>

/* NumPy's letters for the types of numbers. Of two names for one size, that which dtype.str gives back. */
static const char letters[] = "?bBhHiIlLefdgFDG";

enum { NUMBERS = sizeof letters - 1 };

/* What the realm's NumPy is; its references. */
struct vlci_numpy {
    vlci_object *array_type;
    vlci_object *dtype_type;
    vlci_object *dtypes[NUMBERS]; /* made when they are first needed */
};

bool vlci_array_is_known(const struct vlci_realm *realm) { return atomic_load(&realm->numpy) != NULL; }

void vlci_array_learn(struct vlci_realm *realm) {
    const struct vlci_api *api = &realm->api;
    if (vlci_array_is_known(realm)) return;
    vlci_object *module = api->PyDict_GetItemString(api->PyImport_GetModuleDict(), "numpy"); /* borrowed */
    if (!module) return;
    /* Both are missing while it is being imported. */
    vlci_object *array_type = api->PyObject_GetAttrString(module, "ndarray");
    vlci_object *dtype_type = array_type ? api->PyObject_GetAttrString(module, "dtype") : NULL;
    struct vlci_numpy *numpy = dtype_type ? calloc(1, sizeof *numpy) : NULL;
    if (!numpy) {
        api->PyErr_Clear();
        api->Py_DecRef(array_type); /* NULL is fine */
        api->Py_DecRef(dtype_type);
        return;
    }
    numpy->array_type = array_type;
    numpy->dtype_type = dtype_type;
    atomic_store(&realm->numpy, numpy);
}

void vlci_array_forget(struct vlci_realm *guest) {
    struct vlci_numpy *numpy = atomic_exchange(&guest->numpy, NULL);
    if (!numpy) return;
    guest->api.Py_DecRef(numpy->array_type);
    guest->api.Py_DecRef(numpy->dtype_type);
    for (int i = 0; i < NUMBERS; i++) guest->api.Py_DecRef(numpy->dtypes[i]); /* NULL is fine */
    free(numpy);
}

bool vlci_array_is(const struct vlci_realm *realm, const vlci_object *object) {
    const struct vlci_numpy *numpy = atomic_load(&realm->numpy);
    return numpy && object->type == numpy->array_type;
}

/* The index of a buffer's format among `letters`, or -1. */
static int number_of(const char *format) {
    char letter = format[0];
    bool is_complex = letter == 'Z';
    if (is_complex) letter = format[1] == 'f' ? 'F' : format[1] == 'd' ? 'D' : format[1] == 'g' ? 'G' : '\0';
    if (letter == 'q') letter = 'l'; /* both have 64 bits on Linux */
    if (letter == 'Q') letter = 'L';
    const char *found = letter && !format[1 + is_complex] ? strchr(letters, letter) : NULL;
    return found ? (int)(found - letters) : -1;
}

bool vlci_array_take(struct vlci_array *array, struct vlci_message *message, struct vlci_realm *realm,
                     vlci_object *object) {
    Py_buffer view;
    if (realm->api.PyObject_GetBuffer(object, &view, PyBUF_ANY_CONTIGUOUS | PyBUF_FORMAT) < 0) return false;
    int number = view.format ? number_of(view.format) : -1;
    bool fits = number >= 0 && view.len > 0 && view.ndim <= VLCI_ARRAY_DIMENSIONS;
    if (fits) {
        array->number = (uint8_t)number;
        array->dimensions = view.ndim;
        /* Where it is both, as a vector is, C's order. */
        Py_ssize_t expected = view.itemsize;
        array->columns = false;
        for (int i = view.ndim - 1; i >= 0; i--) {
            array->shape[i] = view.shape[i];
            if (view.shape[i] > 1 && view.strides[i] != expected) array->columns = true;
            expected *= view.shape[i];
        }
    }
    realm->api.PyBuffer_Release(&view);
    array->span = (uint32_t)message->span_count;
    return fits && vlci_message_add(message, realm, object) == 0;
}

static vlci_object *dtype_of(struct vlci_realm *realm, int number) {
    const struct vlci_api *api = &realm->api;
    struct vlci_numpy *numpy = atomic_load(&realm->numpy);
    if (!numpy->dtypes[number]) {
        vlci_object *letter = api->PyUnicode_DecodeUTF8(&letters[number], 1, NULL);
        vlci_object *dtype =
            letter ? api->PyObject_CallFunctionObjArgs(numpy->dtype_type, letter, NULL) : NULL;
        api->Py_DecRef(letter);
        numpy->dtypes[number] = dtype;
    }
    return numpy->dtypes[number];
}

static vlci_object *shape_of(const struct vlci_array *array, const struct vlci_api *api) {
    vlci_object *shape = api->PyTuple_New(array->dimensions);
    for (int i = 0; shape && i < array->dimensions; i++) {
        vlci_object *size = api->PyLong_FromSsize_t(array->shape[i]);
        if (size && api->PyTuple_SetItem(shape, i, size) == 0) continue; /* which takes the size */
        api->Py_DecRef(shape);
        shape = NULL;
    }
    return shape;
}

vlci_object *vlci_array_make(const struct vlci_array *array, const struct vlci_message *message,
                             struct vlci_realm *realm) {
    const struct vlci_api *api = &realm->api;
    vlci_object *dtype = dtype_of(realm, array->number); /* borrowed */
    vlci_object *shape = dtype ? shape_of(array, api) : NULL;
    vlci_object *lease = shape ? vlci_lease_new(realm, &message->spans[array->span]) : NULL;
    vlci_object *offset = lease ? api->PyLong_FromSsize_t(0) : NULL;
    vlci_object *order = offset ? api->PyUnicode_DecodeUTF8(array->columns ? "F" : "C", 1, NULL) : NULL;
    vlci_object *made = order
                            ? api->PyObject_CallFunctionObjArgs(atomic_load(&realm->numpy)->array_type, shape,
                                                                dtype, lease, offset, api->none, order, NULL)
                            : NULL;
    vlci_object *done[] = { order, offset, lease, shape };
    for (size_t i = 0; i < sizeof done / sizeof done[0]; i++) api->Py_DecRef(done[i]); /* NULL is fine */
    return made;
}
