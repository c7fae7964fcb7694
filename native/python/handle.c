#include "handle.h"

#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "door.h"
#include "lease.h"

/* What an object of the Handle type holds; in our memory, since the object's goes with its realm. */
struct vlci_handle {
    struct vlci_realm *holder;
    struct vlci_kept *kept;
    PyObject *vlc; /* in the host: what stands for the owner's context, which stays open therefore; or NULL */
    struct vlci_handle *next, *previous; /* in holder->handles, under its lock */
};

/* Layouts of the objects, the same in every CPython with a GIL: a PyObject's head, and ours. */
struct handle_object {
    Py_ssize_t references;
    vlci_object *type;
    struct vlci_handle *handle;
};

struct passage_object {
    Py_ssize_t references;
    vlci_object *type;
    struct vlci_realm *realm;
    vlci_object *object; /* the handle, or where it arrives at home the object itself */
};

enum { FEW_ARGUMENTS = 12 };

static struct vlci_handle *cast(void *object) { return ((struct handle_object *)object)->handle; }

struct vlci_kept *vlci_handle_kept(const struct vlci_realm *realm, const vlci_object *object) {
    if (!realm->remote_object || object->type != realm->remote_object) return NULL;
    return ((const struct handle_object *)object)->handle->kept;
}

/* ---- making -------------------------------------------------------------------------------------------- */

/* The object that stands for the context of `kept`, as a new reference, for handles of the host. */
static PyObject *owner_of(const struct vlci_realm *holder, const struct vlci_kept *kept) {
    const struct vlci_realm *owner = vlci_kept_owner(kept);
    if (holder->context || !owner->vlc) return NULL;
    PyObject *vlc = PyWeakref_GetObject(owner->vlc); /* borrowed */
    return vlc && vlc != Py_None ? Py_NewRef(vlc) : NULL;
}

static vlci_object *new_handle(struct vlci_realm *holder, struct vlci_kept *kept) {
    struct vlci_handle *handle = malloc(sizeof *handle);
    if (!handle) return holder->api.PyErr_NoMemory();
    vlci_object *object = holder->api.PyType_GenericAlloc(holder->remote_object, 0);
    if (!object) {
        free(handle);
        return NULL;
    }
    vlci_kept_retain(kept);
    vlci_realm_retain(holder);
    *handle = (struct vlci_handle){ .holder = holder, .kept = kept, .vlc = owner_of(holder, kept) };
    pthread_mutex_lock(&holder->lock);
    handle->next = holder->handles;
    if (handle->next) handle->next->previous = handle;
    holder->handles = handle;
    pthread_mutex_unlock(&holder->lock);
    ((struct handle_object *)object)->handle = handle;
    return object;
}

vlci_object *vlci_handle_arrive(struct vlci_realm *realm, struct vlci_kept *kept) {
    return vlci_kept_owner(kept) == realm ? vlci_kept_resolve(kept) : new_handle(realm, kept);
}

vlci_object *vlci_handle_keep(struct vlci_realm *realm, vlci_object *object) {
    if (!realm->remote_object) {
        realm->api.PyErr_SetString(
            realm->api.PyDict_GetItemString(realm->api.PyEval_GetBuiltins(), "ReferenceError"),
            "cannot keep an object for others while its interpreter ends");
        return NULL;
    }
    struct vlci_kept *kept = vlci_kept_new(realm, object);
    vlci_object *handle = kept ? new_handle(realm, kept) : NULL;
    if (kept) vlci_kept_drop(kept);
    return handle;
}

static void free_handle(struct vlci_handle *handle) {
    struct vlci_realm *holder = handle->holder;
    pthread_mutex_lock(&holder->lock);
    if (handle->previous)
        handle->previous->next = handle->next;
    else
        holder->handles = handle->next;
    if (handle->next) handle->next->previous = handle->previous;
    pthread_mutex_unlock(&holder->lock);
    vlci_kept_drop(handle->kept);
    vlci_realm_release(holder);
    free(handle);
}

void vlci_handles_forget(struct vlci_realm *realm) {
    while (realm->handles) free_handle(realm->handles);
}

/* ---- using --------------------------------------------------------------------------------------------- */

/* Whether the handle's own interpreter still has what a call needs; it is false for destructors that its end runs. An
 * exception is set then. */
static bool is_usable(const struct vlci_handle *handle) {
    const struct vlci_api *api = &handle->holder->api;
    if (handle->holder->remote_object) return true;
    api->PyErr_SetString(api->PyDict_GetItemString(api->PyEval_GetBuiltins(), "ReferenceError"),
                         "cannot use an object of another interpreter while this one ends");
    return false;
}

/* What is called or done, as words. */
static PyObject *words(const struct vlci_handle *handle, int operation, vlci_object *const *args,
                       Py_ssize_t count) {
    PyObject *module = PyImport_ImportModule("vlcs._core._remote");
    PyObject *said = module ? PyObject_CallMethod(module, "words", "siO", vlci_kept_label(handle->kept),
                                                  operation, count ? (PyObject *)args[0] : Py_None)
                            : NULL;
    Py_XDECREF(module);
    return said;
}

/* Counts a thread of the host in by the context's gate. False: an exception is set. */
static bool enter(const struct vlci_handle *handle, vlci_object *self, int operation,
                  vlci_object *const *args, Py_ssize_t count, struct vlci_stay *stay) {
    PyObject *gate = handle->vlc ? ((struct vlci_block *)handle->vlc)->gate : NULL;
    stay->inside = false;
    stay->door = NULL;
    if (!gate || vlci_door_enter(gate, stay, (PyObject *)self)) return true;
    PyObject *what = words(handle, operation, args, count);
    PyObject *error = what ? PyObject_CallMethod(gate, "refusal", "O", what) : NULL;
    if (error) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
    Py_XDECREF(what);
    return false;
}

static void leave(struct vlci_stay *stay) {
    if (stay->door) vlci_door_leave(stay);
}

static vlci_object *pack(const struct vlci_api *api, vlci_object *const *items, Py_ssize_t count) {
    vlci_object *tuple = api->PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple && i < count; i++) {
        api->Py_IncRef(items[i]);
        api->PyTuple_SetItem(tuple, i, items[i]); /* which takes it */
    }
    return tuple;
}

/* Of the arguments the last, which have names, as a dict. */
static vlci_object *pack_named(const struct vlci_api *api, vlci_object *const *values, vlci_object *names) {
    vlci_object *dict = api->PyDict_New();
    Py_ssize_t count = names ? api->PyTuple_Size(names) : 0;
    for (Py_ssize_t i = 0; dict && i < count; i++) {
        if (api->PyDict_SetItem(dict, api->PyTuple_GetItem(names, i), values[i]) == 0) continue;
        api->Py_DecRef(dict);
        dict = NULL;
    }
    return dict;
}

/* What is at home is used directly. */
static vlci_object *operate_here(struct vlci_realm *realm, struct vlci_kept *kept, int operation,
                                 vlci_object *args, vlci_object *kwargs) {
    const struct vlci_api *api = &realm->api;
    vlci_object *object = vlci_kept_resolve(kept);
    if (!object) return NULL;
    vlci_object *result = NULL;
    if (operation == VLCI_CALL) {
        result = api->PyObject_Call(object, args, kwargs);
    } else {
        vlci_object *items[FEW_ARGUMENTS];
        Py_ssize_t count = api->PyTuple_Size(args);
        items[0] = object;
        for (Py_ssize_t i = 0; i < count; i++) items[i + 1] = api->PyTuple_GetItem(args, i);
        vlci_object *all = pack(api, items, count + 1);
        if (all)
            result =
                api->PyObject_CallObject(api->PyTuple_GetItem(realm->operations, (Py_ssize_t)operation), all);
        api->Py_DecRef(all);
    }
    api->Py_DecRef(object);
    return result;
}

/* By pickle: self._vlcs_ordinary(operation, args, kwargs), or where the object is at home, directly. */
static vlci_object *operate_ordinary(vlci_object *self, int operation, vlci_object *const *args,
                                     Py_ssize_t count, vlci_object *names, bool here) {
    const struct vlci_handle *handle = cast(self);
    const struct vlci_api *api = &handle->holder->api;
    Py_ssize_t named = names ? api->PyTuple_Size(names) : 0;
    vlci_object *tuple = pack(api, args, count - named);
    vlci_object *dict = tuple ? pack_named(api, args + count - named, names) : NULL;
    vlci_object *result = NULL;
    if (dict && here) {
        result = operate_here(handle->holder, handle->kept, operation, tuple, dict);
    } else if (dict) {
        vlci_object *method = api->PyObject_GetAttrString(self, "_vlcs_ordinary");
        vlci_object *number = method ? api->PyLong_FromLongLong(operation) : NULL;
        if (number) result = api->PyObject_CallFunctionObjArgs(method, number, tuple, dict, NULL);
        api->Py_DecRef(number);
        api->Py_DecRef(method);
    }
    api->Py_DecRef(dict);
    api->Py_DecRef(tuple);
    return result;
}

static vlci_object *operate(vlci_object *self, int operation, vlci_object *const *args, Py_ssize_t count,
                            vlci_object *names) {
    const struct vlci_handle *handle = cast(self);
    struct vlci_realm *holder = handle->holder;
    const struct vlci_api *api = &holder->api;
    if (!is_usable(handle)) return NULL;
    if (vlci_kept_owner(handle->kept) == holder)
        return operate_ordinary(self, operation, args, count, names, true);
    struct vlci_stay stay;
    if (!enter(handle, self, operation, args, count, &stay)) return NULL;
    vlci_object *result = NULL;
    enum vlci_outcome outcome = vlci_call_kept(holder, handle->kept, operation, args, count, names, &result);
    leave(&stay);
    if (outcome == VLCI_NOT_PLAIN) return operate_ordinary(self, operation, args, count, names, false);
    if (outcome != VLCI_ANSWER) return outcome == VLCI_VALUE ? result : NULL;
    vlci_object *value = api->PyObject_CallFunctionObjArgs(
        holder->decode, self, api->PyTuple_GetItem(result, 0), api->PyTuple_GetItem(result, 1), NULL);
    api->Py_DecRef(result);
    return value;
}

/* ---- the type Handle ----------------------------------------------------------------------------------- */

static PyObject *handle_call(PyObject *object, PyObject *args, PyObject *kwargs) {
    vlci_object *self = (vlci_object *)object;
    if (!cast(self)) return NULL;
    const struct vlci_api *api = &cast(self)->holder->api;
    Py_ssize_t count = api->PyTuple_Size((vlci_object *)args), place = 0;
    Py_ssize_t named = kwargs ? api->PyDict_Size((vlci_object *)kwargs) : 0;
    vlci_object *inside[FEW_ARGUMENTS], **items = inside, *key, *value;
    if (count + named > FEW_ARGUMENTS) {
        items = malloc((size_t)(count + named) * sizeof *items);
        if (!items) return (PyObject *)api->PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < count; i++) items[i] = api->PyTuple_GetItem((vlci_object *)args, i);
    vlci_object *names = named ? api->PyTuple_New(named) : NULL, *result = NULL;
    bool packed = names || !named;
    for (Py_ssize_t i = 0; names && api->PyDict_Next((vlci_object *)kwargs, &place, &key, &value); i++) {
        api->Py_IncRef(key);
        api->PyTuple_SetItem(names, i, key); /* which takes it */
        items[count + i] = value;
    }
    if (packed) result = operate(self, VLCI_CALL, items, count + named, names);
    api->Py_DecRef(names);
    if (items != inside) free(items);
    return (PyObject *)result;
}

/* _vlcs_operate(number, *args). */
static PyObject *handle_operate(PyObject *object, PyObject *args) {
    vlci_object *self = (vlci_object *)object, *tuple = (vlci_object *)args;
    const struct vlci_api *api = &cast(self)->holder->api;
    vlci_object *items[FEW_ARGUMENTS];
    Py_ssize_t count = api->PyTuple_Size(tuple) - 1;
    vlci_object *number = api->PyTuple_GetItem(tuple, 0);
    if (!number) return NULL;
    if (count >= FEW_ARGUMENTS) {
        api->PyErr_SetString(api->PyDict_GetItemString(api->PyEval_GetBuiltins(), "TypeError"),
                             "too many arguments: no operator takes as many");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) items[i] = api->PyTuple_GetItem(tuple, i + 1);
    return (PyObject *)operate(self, (int)api->PyLong_AsLong(number), items, count, NULL);
}

/* _vlcs_exchange(payload, buffers). */
static PyObject *handle_exchange(PyObject *object, PyObject *args) {
    vlci_object *self = (vlci_object *)object, *tuple = (vlci_object *)args;
    const struct vlci_handle *handle = cast(self);
    const struct vlci_api *api = &handle->holder->api;
    if (!is_usable(handle)) return NULL;
    vlci_object *payload = api->PyTuple_GetItem(tuple, 0);
    vlci_object *buffers = payload ? api->PyTuple_GetItem(tuple, 1) : NULL;
    struct vlci_stay stay;
    if (!buffers || !enter(handle, self, VLCI_CALL, NULL, 0, &stay)) return NULL;
    vlci_object *answer = vlci_call(handle->holder, vlci_kept_owner(handle->kept), payload, buffers);
    leave(&stay);
    return (PyObject *)answer;
}

static int handle_traverse(PyObject *self, visitproc visit, void *arg) {
    vlci_object *type = ((struct handle_object *)self)->type;
    Py_VISIT((PyObject *)type);
    if (cast(self)) Py_VISIT(cast(self)->vlc);
    return 0;
}

/* Only in the host: elsewhere it is NULL. */
static int handle_clear(PyObject *self) {
    if (cast(self)) Py_CLEAR(cast(self)->vlc);
    return 0;
}

static void handle_dealloc(PyObject *self) {
    struct vlci_handle *handle = cast(self);
    if (!handle) return; /* made past us, and without an API to free it by */
    struct vlci_realm *holder = handle->holder;
    const struct vlci_api *api = &holder->api;
    vlci_realm_retain(holder);
    api->PyObject_GC_UnTrack(self);
    vlci_object *type = api->PyObject_Type((vlci_object *)self);
    PyObject *vlc = handle->vlc;
    free_handle(handle);
    Py_XDECREF(vlc);
    freefunc release = (freefunc)api->PyType_GetSlot(type, Py_tp_free);
    release(self);
    api->Py_DecRef(type); /* PyObject_Type's */
    api->Py_DecRef(type); /* the object's */
    vlci_realm_release(holder);
}

static PyObject *handle_get_label(PyObject *self, void *unused) {
    (void)unused;
    const struct vlci_handle *handle = cast(self);
    return (PyObject *)handle->holder->api.PyUnicode_FromString(vlci_kept_label(handle->kept));
}

static PyObject *handle_get_context(PyObject *self, void *unused) {
    (void)unused;
    const struct vlci_handle *handle = cast(self);
    return (PyObject *)handle->holder->api.PyUnicode_FromString(vlci_kept_owner(handle->kept)->name);
}

static PyObject *handle_get_here(PyObject *self, void *unused) {
    (void)unused;
    const struct vlci_handle *handle = cast(self);
    return (PyObject *)handle->holder->api.PyBool_FromLong(vlci_kept_owner(handle->kept) == handle->holder);
}

static PyObject *handle_get_is_attribute(PyObject *self, void *unused) {
    (void)unused;
    const struct vlci_handle *handle = cast(self);
    return (PyObject *)handle->holder->api.PyBool_FromLong(vlci_kept_is_attribute(handle->kept));
}

/* The VLC, or None. */
static PyObject *handle_get_vlc(PyObject *self, void *unused) {
    (void)unused;
    const struct vlci_handle *handle = cast(self);
    const struct vlci_api *api = &handle->holder->api;
    vlci_object *vlc = handle->vlc ? (vlci_object *)handle->vlc : api->none;
    api->Py_IncRef(vlc);
    return (PyObject *)vlc;
}

vlci_object *vlci_handle_type_new(struct vlci_realm *realm) {
    static PyMethodDef methods[] = {
        { "_vlcs_operate", handle_operate, METH_VARARGS,
          "_vlcs_operate(number, *args): does one of _serving.OPERATIONS there." },
        { "_vlcs_exchange", handle_exchange, METH_VARARGS,
          "_vlcs_exchange(payload, buffers): serve() there, as Interpreter.call." },
        { NULL, NULL, 0, NULL },
    };
    static PyGetSetDef members[] = {
        { "_vlcs_label", handle_get_label, NULL, "What it is, in messages.", NULL },
        { "_vlcs_context", handle_get_context, NULL, "Name of the context where it is.", NULL },
        { "_vlcs_is_here", handle_get_here, NULL, "Whether that is this interpreter.", NULL },
        { "_vlcs_is_attribute", handle_get_is_attribute, NULL, "Whether it is read anew at each use.", NULL },
        { "_vlcs_vlc", handle_get_vlc, NULL, "The VLC of that context, in the host.", NULL },
        { NULL, NULL, NULL, NULL, NULL },
    };
    static PyType_Slot slots[] = {
        { Py_tp_doc, "Refers to an object that stays in its interpreter." },
        { Py_tp_call, handle_call },
        { Py_tp_dealloc, handle_dealloc },
        { Py_tp_traverse, handle_traverse },
        { Py_tp_clear, handle_clear },
        { Py_tp_methods, methods },
        { Py_tp_getset, members },
        { 0, NULL },
    };
    static PyType_Spec spec = {
        .name = "vlcs._core._native.Handle",
        .basicsize = sizeof(struct handle_object),
        .flags =
            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    return realm->api.PyType_FromSpec(&spec);
}

/* ---- the type Passage ---------------------------------------------------------------------------------- */

vlci_object *vlci_passage_new(struct vlci_realm *realm, struct vlci_kept *kept) {
    vlci_object *arrived = vlci_handle_arrive(realm, kept);
    vlci_object *object = arrived ? realm->api.PyType_GenericAlloc(realm->passage_type, 0) : NULL;
    if (!object) {
        realm->api.Py_DecRef(arrived); /* NULL is fine */
        return NULL;
    }
    struct passage_object *passage = (struct passage_object *)object;
    passage->object = arrived;
    passage->realm = realm;
    vlci_realm_retain(realm);
    return object;
}

static PyObject *passage_take(PyObject *self, PyObject *unused) {
    (void)unused;
    const struct passage_object *passage = (struct passage_object *)self;
    passage->realm->api.Py_IncRef(passage->object);
    return (PyObject *)passage->object;
}

static void passage_dealloc(PyObject *self) {
    struct passage_object *passage = (struct passage_object *)self;
    struct vlci_realm *realm = passage->realm;
    const struct vlci_api *api = &realm->api;
    vlci_object *type = api->PyObject_Type((vlci_object *)self);
    api->Py_DecRef(passage->object);
    api->PyObject_Free(self);
    api->Py_DecRef(type); /* PyObject_Type's */
    api->Py_DecRef(type); /* the object's */
    vlci_realm_release(realm);
}

vlci_object *vlci_passage_type_new(const struct vlci_api *api) {
    static PyMethodDef methods[] = {
        { "take", passage_take, METH_NOARGS, "take(): what arrived." },
        { NULL, NULL, 0, NULL },
    };
    static PyType_Slot slots[] = {
        { Py_tp_doc, "What arrives beside a pickle for a handle, as a Lease does for memory." },
        { Py_tp_dealloc, passage_dealloc },
        { Py_tp_methods, methods },
        { 0, NULL },
    };
    static PyType_Spec spec = {
        .name = "vlcs._core._native.Passage",
        .basicsize = sizeof(struct passage_object),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    return api->PyType_FromSpec(&spec);
}
