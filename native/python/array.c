#include "array.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* From NumPy's ABI, which its headers compile into every extension module; the same in versions 1 and 2. */
struct array {
    struct vlci_object head;
    char *data;
    int dimensions;
    Py_ssize_t *shape, *strides;
    vlci_object *base;
    struct descriptor {
        struct vlci_object head;
        vlci_object *scalar_type;
        char kind, letter, byte_order, flags;
        int number;
    } *dtype;
    int flags;
};

enum { WRITEABLE = 0x0400 };

/* Letters of the types of numbers by NumPy's numbers of types; then those of the others. */
static const char letters[] = "?bBhHiIlLqQfdgFDG";

enum {
    LETTERS = sizeof letters - 1,
    BYTES = 18, /* after OBJECT */
    TEXT,
    VOID, /* and records */
    DATETIME,
    TIMEDELTA,
    HALF,
    NUMBERS
};

/* What the realm's NumPy is; its references. */
struct vlci_numpy {
    vlci_object *array_type, *dtype_type;
    vlci_object *dtypes[NUMBERS];  /* NULL: not one of numbers */
    vlci_object *scalars[NUMBERS]; /* their types */
    Py_ssize_t sizes[NUMBERS];
    vlci_object *describe, *make; /* functions of _sharing.py for the types of records */
};

/* What a view's format tells of an array's dtype: one letter, numpy.dtype().str ("<M8[s]"), or, of a record, a
 * pickle, which begins as every pickle does. */
enum { PICKLE = 0x80 };

bool vlci_array_is_known(const struct vlci_realm *realm) { return atomic_load(&realm->numpy) != NULL; }

static void forget(const struct vlci_api *api, struct vlci_numpy *numpy) {
    api->Py_DecRef(numpy->array_type); /* NULL is fine, here and below */
    api->Py_DecRef(numpy->dtype_type);
    api->Py_DecRef(numpy->describe);
    api->Py_DecRef(numpy->make);
    for (int i = 0; i < NUMBERS; i++) {
        api->Py_DecRef(numpy->dtypes[i]);
        api->Py_DecRef(numpy->scalars[i]);
    }
    free(numpy);
}

/* -1: an exception is set. */
static Py_ssize_t itemsize_of(const struct vlci_api *api, vlci_object *dtype) {
    int overflow;
    vlci_object *size = api->PyObject_GetAttrString(dtype, "itemsize");
    Py_ssize_t number = size ? (Py_ssize_t)api->PyLong_AsLongLongAndOverflow(size, &overflow) : -1;
    api->Py_DecRef(size);
    return number;
}

static bool learn_number(const struct vlci_api *api, struct vlci_numpy *numpy, int number, char letter) {
    vlci_object *text = api->PyUnicode_DecodeUTF8(&letter, 1, NULL);
    if (text) numpy->dtypes[number] = api->PyObject_CallFunctionObjArgs(numpy->dtype_type, text, NULL);
    if (numpy->dtypes[number])
        numpy->scalars[number] = api->PyObject_GetAttrString(numpy->dtypes[number], "type");
    if (numpy->scalars[number]) numpy->sizes[number] = itemsize_of(api, numpy->dtypes[number]);
    api->Py_DecRef(text);
    return numpy->sizes[number] > 0;
}

void vlci_array_learn(struct vlci_realm *realm) {
    const struct vlci_api *api = &realm->api;
    if (vlci_array_is_known(realm)) return;
    vlci_object *module = api->PyDict_GetItemString(api->PyImport_GetModuleDict(), "numpy"); /* borrowed */
    struct vlci_numpy *numpy = module ? calloc(1, sizeof *numpy) : NULL;
    if (!numpy) return;
    /* Both are missing while it is being imported. */
    numpy->array_type = api->PyObject_GetAttrString(module, "ndarray");
    numpy->dtype_type = numpy->array_type ? api->PyObject_GetAttrString(module, "dtype") : NULL;
    vlci_object *sharing = numpy->dtype_type ? api->PyImport_ImportModule("_vlcs_sharing") : NULL;
    if (sharing) numpy->describe = api->PyObject_GetAttrString(sharing, "describe_record");
    if (numpy->describe) numpy->make = api->PyObject_GetAttrString(sharing, "record_type");
    api->Py_DecRef(sharing);
    bool done = numpy->make && learn_number(api, numpy, HALF, 'e');
    for (int number = 0; done && number < LETTERS; number++)
        done = learn_number(api, numpy, number, letters[number]);
    if (!done) api->PyErr_Clear();
    struct vlci_numpy *none = NULL; /* or another thread's, that came first while NumPy was asked */
    if (!done || !atomic_compare_exchange_strong(&realm->numpy, &none, numpy)) forget(api, numpy);
}

void vlci_array_forget(struct vlci_realm *guest) {
    struct vlci_numpy *numpy = atomic_exchange(&guest->numpy, NULL);
    if (numpy) forget(&guest->api, numpy);
}

bool vlci_array_is(const struct vlci_realm *realm, const vlci_object *object) {
    const struct vlci_numpy *numpy = atomic_load(&realm->numpy);
    return numpy && object->type == numpy->array_type;
}

vlci_object *vlci_array_base(vlci_object *array) { return ((struct array *)array)->base; }

/* The format of a dtype that is not a number in the machine's byte order, as bytes or str; NULL: its memory
 * cannot be shared, or an exception is set. */
static vlci_object *describe(struct vlci_realm *realm, struct descriptor *dtype) {
    const struct vlci_api *api = &realm->api;
    vlci_object *object = &dtype->head;
    if (dtype->number < 0 || dtype->number >= NUMBERS || dtype->number == LETTERS) return NULL;
    if (dtype->number != VOID) return api->PyObject_GetAttrString(object, "str");
    vlci_object *holds = api->PyObject_GetAttrString(object, "hasobject");
    api->Py_DecRef(holds); /* True or False */
    if (holds != api->no) return NULL;
    return api->PyObject_CallFunctionObjArgs(atomic_load(&realm->numpy)->describe, object, NULL);
}

bool vlci_array_view(struct vlci_view *view, struct vlci_realm *realm, vlci_object *object,
                     vlci_object **keeper) {
    const struct vlci_api *api = &realm->api;
    const struct array *array = (const struct array *)object;
    int number = array->dtype->number;
    *view = (struct vlci_view){
        .kind = VLCI_ARRAY,
        .dimensions = array->dimensions,
        .readonly = !(array->flags & WRITEABLE),
        .data = array->data,
        .shape = array->shape,
        .strides = array->strides,
    };
    *keeper = NULL;
    const struct vlci_numpy *numpy = atomic_load(&realm->numpy);
    if (number >= 0 && number < NUMBERS && array->dtype->byte_order != '>' && numpy->dtypes[number]) {
        view->format = number == HALF ? "e" : &letters[number];
        view->format_size = 1;
        view->itemsize = numpy->sizes[number];
        return true;
    }
    *keeper = describe(realm, array->dtype);
    view->itemsize = *keeper ? itemsize_of(api, &array->dtype->head) : -1;
    if (view->itemsize >= 0 && (*keeper)->type == api->str_type)
        view->format = api->PyUnicode_AsUTF8AndSize(*keeper, &view->format_size);
    else if (view->itemsize >= 0)
        api->PyBytes_AsStringAndSize(*keeper, (char **)&view->format, &view->format_size);
    if (view->format) return true;
    api->Py_DecRef(*keeper); /* NULL is fine */
    *keeper = NULL;
    return false;
}

/* A new reference; NULL: an exception is set. */
static vlci_object *dtype_of(const struct vlci_layout *layout, struct vlci_realm *realm) {
    const struct vlci_api *api = &realm->api;
    const struct vlci_numpy *numpy = atomic_load(&realm->numpy);
    const char *found = layout->format_size == 1 ? strchr(letters, *layout->format) : NULL;
    vlci_object *known = found                      ? numpy->dtypes[found - letters]
                         : layout->format_size == 1 ? numpy->dtypes[HALF]
                                                    : NULL;
    if (known) {
        api->Py_IncRef(known);
        return known;
    }
    bool pickled = (unsigned char)*layout->format == PICKLE;
    vlci_object *text = pickled ? api->PyBytes_FromStringAndSize(layout->format, layout->format_size)
                                : api->PyUnicode_DecodeUTF8(layout->format, layout->format_size, NULL);
    vlci_object *make = pickled ? numpy->make : numpy->dtype_type;
    vlci_object *dtype = text ? api->PyObject_CallFunctionObjArgs(make, text, NULL) : NULL;
    api->Py_DecRef(text);
    return dtype;
}

static vlci_object *tuple_of(const struct vlci_api *api, const Py_ssize_t *sizes, int count) {
    vlci_object *tuple = api->PyTuple_New(count);
    for (int i = 0; tuple && i < count; i++) {
        vlci_object *size = api->PyLong_FromSsize_t(sizes[i]);
        if (size && api->PyTuple_SetItem(tuple, i, size) == 0) continue; /* which takes the size */
        api->Py_DecRef(tuple);
        tuple = NULL;
    }
    return tuple;
}

static bool import_numpy(struct vlci_realm *realm) {
    const struct vlci_api *api = &realm->api;
    if (vlci_array_is_known(realm)) return true;
    vlci_object *module = api->PyImport_ImportModule("numpy");
    api->Py_DecRef(module);
    if (module) vlci_array_learn(realm);
    if (module && !vlci_array_is_known(realm)) api->PyErr_NoMemory();
    return vlci_array_is_known(realm);
}

vlci_object *vlci_array_make(const struct vlci_layout *layout, struct vlci_realm *realm,
                             vlci_object *buffer) {
    const struct vlci_api *api = &realm->api;
    if (!import_numpy(realm)) return NULL;
    vlci_object *dtype = dtype_of(layout, realm);
    vlci_object *shape = dtype ? tuple_of(api, layout->shape, layout->dimensions) : NULL;
    vlci_object *strides = shape ? tuple_of(api, layout->strides, layout->dimensions) : NULL;
    vlci_object *offset = strides ? api->PyLong_FromSsize_t(layout->offset) : NULL;
    vlci_object *made = offset
                            ? api->PyObject_CallFunctionObjArgs(atomic_load(&realm->numpy)->array_type, shape,
                                                                dtype, buffer, offset, strides, NULL)
                            : NULL;
    vlci_object *done[] = { offset, strides, shape, dtype };
    for (size_t i = 0; i < sizeof done / sizeof done[0]; i++) api->Py_DecRef(done[i]); /* NULL is fine */
    return made;
}

bool vlci_scalar_read(struct vlci_realm *realm, vlci_object *scalar, uint8_t *number,
                      char bytes[VLCI_SCALAR_SIZE]) {
    const struct vlci_numpy *numpy = atomic_load(&realm->numpy);
    if (!numpy) return false;
    for (uint8_t i = 0; i < NUMBERS; i++) {
        if (scalar->type != numpy->scalars[i]) continue;
        Py_buffer view;
        if (realm->api.PyObject_GetBuffer(scalar, &view, PyBUF_SIMPLE) < 0) return false;
        bool fits = view.len <= VLCI_SCALAR_SIZE;
        memset(bytes, 0, VLCI_SCALAR_SIZE);
        if (fits) memcpy(bytes, view.buf, (size_t)view.len);
        realm->api.PyBuffer_Release(&view);
        *number = i;
        return fits;
    }
    return false;
}

vlci_object *vlci_scalar_make(struct vlci_realm *realm, uint8_t number, const char bytes[VLCI_SCALAR_SIZE]) {
    const struct vlci_api *api = &realm->api;
    const struct vlci_numpy *numpy = atomic_load(&realm->numpy);
    vlci_object *none = api->PyTuple_New(0);
    vlci_object *memory = none ? api->PyBytes_FromStringAndSize(bytes, VLCI_SCALAR_SIZE) : NULL;
    vlci_object *array = memory ? api->PyObject_CallFunctionObjArgs(numpy->array_type, none,
                                                                    numpy->dtypes[number], memory, NULL)
                                : NULL;
    vlci_object *scalar = array ? api->PyObject_GetItem(array, none) : NULL;
    api->Py_DecRef(array); /* NULL is fine, as below */
    api->Py_DecRef(memory);
    api->Py_DecRef(none);
    return scalar;
}
