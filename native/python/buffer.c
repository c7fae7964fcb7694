#include "buffer.h"

#include "array.h"

#include <string.h>

enum {
    MODULES = 2, /* with a type of their own that crosses */
    DEEPEST = 16 /* views of views, of which each keeps the next */
};

static const struct {
    const char *module, *type;
} modules[MODULES] = { { "array", "array" }, { "mmap", "mmap" } };

void vlci_buffers_learn(struct vlci_realm *realm) {
    const struct vlci_api *api = &realm->api;
    vlci_array_learn(realm);
    for (int i = 0; i < MODULES; i++) {
        if (realm->buffer_types[i]) continue;
        vlci_object *module = api->PyDict_GetItemString(api->PyImport_GetModuleDict(), modules[i].module);
        if (!module) continue; /* borrowed */
        vlci_object *type = api->PyObject_GetAttrString(module, modules[i].type);
        if (!type) api->PyErr_Clear(); /* it is being imported */
        if (realm->buffer_types[i])    /* by another thread, meanwhile */
            api->Py_DecRef(type);
        else
            realm->buffer_types[i] = type;
    }
}

void vlci_buffers_forget(struct vlci_realm *guest) {
    vlci_array_forget(guest);
    for (int i = 0; i < MODULES; i++) {
        guest->api.Py_DecRef(guest->buffer_types[i]); /* NULL is fine */
        guest->buffer_types[i] = NULL;
    }
}

bool vlci_buffer_is(const struct vlci_realm *realm, const vlci_object *object) {
    const vlci_object *type = object->type;
    return vlci_array_is(realm, object) || type == realm->api.memoryview_type ||
           type == realm->api.bytearray_type || type == realm->buffer_types[0] ||
           type == realm->buffer_types[1];
}

/* The Lease that the object is a view of, borrowed: the object keeps it. NULL: of none. */
static vlci_object *lease_behind(const struct vlci_realm *realm, vlci_object *object) {
    const struct vlci_api *api = &realm->api;
    for (int i = 0; object && i < DEEPEST; i++) {
        if (object->type == realm->lease_type) return object;
        if (vlci_array_is(realm, object)) {
            object = vlci_array_base(object);
        } else if (object->type == api->memoryview_type) {
            object = api->PyObject_GetAttrString(object, "obj");
            api->Py_DecRef(object);
            if (!object) api->PyErr_Clear();
        } else {
            return NULL;
        }
    }
    return NULL;
}

/* Whether items of this format are references to objects, which are their interpreter's alone. */
static bool has_objects(const char *format) {
    for (; *format; format++) {
        if (*format == 'O') return true;
        if (*format == ':' && !(format = strchr(format + 1, ':'))) return false; /* a field's name */
    }
    return false;
}

static struct vlci_view view_of(const Py_buffer *buffer) {
    const char *format = buffer->format ? buffer->format : "B";
    return (struct vlci_view){
        .kind = VLCI_VIEW,
        .dimensions = buffer->ndim,
        .readonly = buffer->readonly,
        .data = buffer->buf,
        .itemsize = buffer->itemsize,
        .shape = buffer->shape,
        .strides = buffer->strides,
        .format = format,
        .format_size = (Py_ssize_t)strlen(format),
    };
}

static int refuse(const struct vlci_realm *realm) {
    const struct vlci_api *api = &realm->api;
    /* Perhaps set already. */
    vlci_object *type, *value, *traceback;
    api->PyErr_Fetch(&type, &value, &traceback);
    if (type)
        api->PyErr_Restore(type, value, traceback);
    else
        api->PyErr_SetString(*(vlci_object **)api->buffer_error, "its memory cannot be shared");
    return -1;
}

int vlci_buffer_add(struct vlci_message *message, struct vlci_realm *realm, vlci_object *object) {
    const struct vlci_api *api = &realm->api;
    struct vlci_view view;
    Py_buffer buffer;
    vlci_object *keeper = NULL;
    if (vlci_array_is(realm, object)) {
        if (!vlci_array_view(&view, realm, object, &keeper)) return refuse(realm);
        /* What PyObject_GetBuffer fills, which refuses times, for which the protocol has no format. */
        buffer = (Py_buffer){ .buf = view.data, .obj = (PyObject *)object, .readonly = view.readonly };
        api->Py_IncRef(object);
    } else {
        if (api->PyObject_GetBuffer(object, &buffer, PyBUF_RECORDS_RO) < 0) return refuse(realm);
        view = view_of(&buffer);
        if (has_objects(view.format)) {
            api->PyBuffer_Release(&buffer);
            return refuse(realm);
        }
    }
    struct vlci_span *span = vlci_message_add(message);
    int result = -1;
    if (!span) {
        api->PyBuffer_Release(&buffer);
        api->PyErr_NoMemory();
    } else {
        result = vlci_span_take(span, realm, &view, &buffer, lease_behind(realm, object));
        if (result < 0) message->span_count--;
    }
    api->Py_DecRef(keeper); /* NULL is fine */
    return result;
}

/* Whether an object of the realm still is what was lent as the span. */
static bool is_unchanged(const struct vlci_span *span, struct vlci_realm *realm, vlci_object *object) {
    const struct vlci_api *api = &realm->api;
    struct vlci_view view;
    Py_buffer buffer = { .obj = NULL };
    vlci_object *keeper = NULL;
    bool viewed;
    if (vlci_array_is(realm, object)) {
        viewed = vlci_array_view(&view, realm, object, &keeper);
    } else {
        viewed = api->PyObject_GetBuffer(object, &buffer, PyBUF_RECORDS_RO) == 0;
        if (viewed) view = view_of(&buffer);
    }
    bool same = viewed && view.data == span->data + span->layout->offset &&
                !view.readonly == !span->readonly && vlci_layout_fits(span->layout, &view);
    if (!viewed) api->PyErr_Clear();
    api->PyBuffer_Release(&buffer);
    api->Py_DecRef(keeper); /* NULL is fine */
    return same;
}

vlci_object *vlci_buffer_make(const struct vlci_span *span, struct vlci_realm *realm) {
    const struct vlci_api *api = &realm->api;
    vlci_object *origin = vlci_span_origin(span, realm);
    if (origin && vlci_buffer_is(realm, origin) && is_unchanged(span, realm, origin)) {
        api->Py_IncRef(origin);
        return origin;
    }
    vlci_object *lease = vlci_lease_new(realm, span);
    vlci_object *made = !lease                             ? NULL
                        : span->layout->kind == VLCI_ARRAY ? vlci_array_make(span->layout, realm, lease)
                                                           : api->PyMemoryView_FromObject(lease);
    api->Py_DecRef(lease);
    return made;
}
