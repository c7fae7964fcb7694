#include "lease.h"

#include <stdlib.h>

#include "arrow.h"
#include "buffer.h"
#include "call.h"
#include "handle.h"
#include "status.h"

struct vlci_source {
    struct vlci_realm *owner;
    Py_buffer view;  /* to be released; its shape may have been in the record that it was filled in */
    Py_ssize_t size; /* of what is lent of it */
    atomic_uint references;
    atomic_bool is_large;
    struct vlci_source *next; /* in owner->released */
};

/* What an object of the Lease type holds; in our memory, since the object's goes with its realm. */
struct vlci_lease {
    struct vlci_realm *holder;
    struct vlci_span span;
    struct vlci_lease *next, *previous; /* in holder->leases */
};

/* Layout of the object, the same in every CPython with a GIL: a PyObject's head, and ours. */
struct lease_object {
    Py_ssize_t references;
    void *type;
    struct vlci_lease *lease;
};

/* Of a holder's leases, how many of the newest are asked whether they cover an exported buffer. A
 * miss only costs one more link in the chain that keeps the memory alive. */
enum { SEARCH_DEPTH = 64 };

/* What waits to be freed by its owner is bounded so. Below, an owner is not woken for each: who makes and drops small
 * arrays in turn is served by the calls, and the rest after a moment. Waking a thread took 5 us, a call 1 us. */
enum { MOST_WAITING = 64, MOST_WAITING_BYTES = 1 << 20, MOMENT_MS = 5 };

static void free_source(struct vlci_source *source) {
    source->owner->api.PyBuffer_Release(&source->view);
    vlci_realm_release(source->owner);
    free(source);
}

void vlci_sources_settle(struct vlci_realm *realm) {
    vlci_kept_settle(realm);
    if (!atomic_load_explicit(&realm->released, memory_order_relaxed)) return;
    struct vlci_source *source = atomic_exchange(&realm->released, NULL);
    vlci_object *type, *value, *traceback;
    realm->api.PyErr_Fetch(&type, &value, &traceback); /* destructors run below */
    while (source) {
        struct vlci_source *next = source->next;
        atomic_fetch_sub(&realm->waiting, 1);
        atomic_fetch_sub(&realm->waiting_bytes, (size_t)source->size);
        free_source(source);
        source = next;
    }
    realm->api.PyErr_Restore(type, value, traceback);
}

static int settle_host(void *realm) {
    atomic_store(&((struct vlci_realm *)realm)->settling, false);
    vlci_sources_settle(realm);
    return 0;
}

static void *settle_guest(void *argument) {
    struct vlci_realm *realm = argument;
    vlc_error error = VLC_ERROR_INIT;
    bool waits = atomic_load(&realm->released) || atomic_load(&realm->dropped);
    if (waits && vlci_realm_begin(realm, &error) == VLC_OK) {
        vlci_attach(realm);
        vlci_detach(realm);
        vlci_realm_end(realm);
    }
    vlci_realm_release(realm);
    return NULL;
}

static void *settle_guest_now(void *realm) {
    atomic_store(&((struct vlci_realm *)realm)->settling, false);
    return settle_guest(realm);
}

static void *settle_guest_later(void *realm) {
    atomic_store(&((struct vlci_realm *)realm)->settling_later, false);
    return settle_guest(realm);
}

/* Has the owner free what waits, on a thread of its own: soon, or now. False: the next call does. */
static bool ask_to_settle(struct vlci_realm *owner, bool now) {
    vlc_error error = VLC_ERROR_INIT;
    if (vlci_realm_begin(owner, &error) != VLC_OK) return false;
    bool asked;
    if (!owner->context) {
        asked = owner->api.Py_AddPendingCall(settle_host, owner) == 0;
    } else {
        vlci_realm_retain(owner);
        asked = (now ? vlc_submit_on(owner->context, 0, settle_guest_now, owner, NULL, &error)
                     : vlc_submit_after(owner->context, 0, MOMENT_MS, settle_guest_later, owner, &error)) ==
                VLC_OK;
        if (!asked) vlci_realm_release(owner);
    }
    vlci_realm_end(owner);
    return asked;
}

void vlci_settle_soon(struct vlci_realm *owner, bool much) {
    if (!much && vlci_call_returns_to(owner)) return;
    atomic_bool *asked = much || !owner->context ? &owner->settling : &owner->settling_later;
    if (!atomic_exchange(asked, true) && !ask_to_settle(owner, much)) atomic_store(asked, false);
}

void vlci_span_drop(struct vlci_span *span) {
    struct vlci_source *source = span->source;
    if (span->kept) vlci_kept_drop(span->kept);
    span->kept = NULL;
    vlci_layout_release(span->layout);
    span->source = NULL;
    span->layout = NULL;
    if (!source || atomic_fetch_sub(&source->references, 1) != 1) return;
    struct vlci_realm *owner = source->owner;
    vlci_realm_retain(owner);
    size_t size = (size_t)source->size;
    bool much = source->is_large;
    if (atomic_fetch_add(&owner->waiting, 1) >= MOST_WAITING) much = true;
    if (atomic_fetch_add(&owner->waiting_bytes, size) + size >= MOST_WAITING_BYTES) much = true;
    source->next = atomic_load(&owner->released);
    while (!atomic_compare_exchange_weak(&owner->released, &source->next, source));
    vlci_realm_returned(owner);
    vlci_settle_soon(owner, much);
    vlci_realm_release(owner);
}

void vlci_span_is_large(const struct vlci_span *span) { span->source->is_large = true; }

static bool covers(const struct vlci_span *lease, const struct vlci_span *span) {
    return span->data >= lease->data && span->data + span->layout->size <= lease->data + lease->layout->size;
}

/* The lease gives the span its source, where it covers its memory. */
static bool adopt(struct vlci_span *span, const struct vlci_span *lease) {
    if (!covers(lease, span)) return false;
    span->source = lease->source;
    span->readonly |= lease->readonly;
    atomic_fetch_add(&span->source->references, 1);
    return true;
}

/* For memory that a lease lies behind out of sight, as behind a tensor of PyTorch. Of several, one that may be
 * written: the others are of views that forbid it. Where all do, the exporter may only have forgotten, unless the
 * memory is the realm's own and has come home. */
static bool find_lease(struct vlci_realm *realm, struct vlci_span *span) {
    const struct vlci_span *found = NULL;
    bool readonly = span->readonly;
    pthread_mutex_lock(&realm->lock);
    struct vlci_lease *lease = realm->leases;
    for (int i = 0; i < SEARCH_DEPTH && lease; i++, lease = lease->next) {
        if (!covers(&lease->span, span)) continue;
        if (!found || !lease->span.readonly) found = &lease->span;
        if (!found->readonly || readonly) break;
    }
    if (found) adopt(span, found);
    if (found && found->source->owner == realm) span->readonly = readonly;
    pthread_mutex_unlock(&realm->lock);
    return found;
}

int vlci_span_take(struct vlci_span *span, struct vlci_realm *realm, const struct vlci_view *view,
                   Py_buffer *exported, vlci_object *lease) {
    struct vlci_layout *layout = vlci_layout_new(view);
    if (layout) {
        *span = (struct vlci_span){ NULL, layout, view->data - layout->offset, view->readonly, NULL };
        if (lease ? adopt(span, &((struct lease_object *)lease)->lease->span)
                  : layout->size > 0 && find_lease(realm, span)) {
            realm->api.PyBuffer_Release(exported);
            return 0;
        }
    }
    struct vlci_source *source = layout ? calloc(1, sizeof *source) : NULL;
    if (!source) {
        vlci_layout_release(layout);
        realm->api.PyBuffer_Release(exported);
        realm->api.PyErr_NoMemory();
        return -1;
    }
    source->view = *exported;
    source->size = layout->size;
    source->owner = realm;
    vlci_realm_retain(realm);
    atomic_init(&source->references, 1);
    atomic_fetch_add(&realm->lent, 1);
    span->source = source;
    return 0;
}

vlci_object *vlci_span_origin(const struct vlci_span *span, const struct vlci_realm *realm) {
    return span->source->owner == realm ? (vlci_object *)span->source->view.obj : NULL;
}

static void free_lease(struct vlci_lease *lease) {
    struct vlci_realm *holder = lease->holder;
    pthread_mutex_lock(&holder->lock);
    if (lease->previous)
        lease->previous->next = lease->next;
    else
        holder->leases = lease->next;
    if (lease->next) lease->next->previous = lease->previous;
    pthread_mutex_unlock(&holder->lock);
    vlci_span_drop(&lease->span);
    vlci_realm_release(holder);
    free(lease);
}

vlci_object *vlci_lease_new(struct vlci_realm *holder, const struct vlci_span *span) {
    struct vlci_lease *lease = malloc(sizeof *lease);
    if (!lease) return holder->api.PyErr_NoMemory();
    vlci_object *object = holder->api.PyType_GenericAlloc(holder->lease_type, 0);
    if (!object) {
        free(lease);
        return NULL;
    }
    atomic_fetch_add(&span->source->references, 1);
    vlci_layout_retain(span->layout);
    vlci_realm_retain(holder);
    *lease = (struct vlci_lease){ .holder = holder, .span = *span };
    pthread_mutex_lock(&holder->lock);
    lease->next = holder->leases;
    if (lease->next) lease->next->previous = lease;
    holder->leases = lease;
    pthread_mutex_unlock(&holder->lock);
    ((struct lease_object *)object)->lease = lease;
    return object;
}

bool vlci_lease_span(const struct vlci_realm *realm, vlci_object *object, struct vlci_span *span) {
    if (object->type != realm->lease_type) return false;
    *span = ((struct lease_object *)object)->lease->span;
    atomic_fetch_add(&span->source->references, 1);
    vlci_layout_retain(span->layout);
    return true;
}

void vlci_leases_forget(struct vlci_realm *realm) {
    vlci_handles_forget(realm);
    vlci_arrow_forget(realm);
    while (realm->leases) free_lease(realm->leases);
    struct vlci_source *source = atomic_exchange(&realm->released, NULL);
    while (source) {
        struct vlci_source *next = source->next;
        vlci_realm_release(source->owner);
        free(source);
        source = next;
    }
}

static void lease_dealloc(PyObject *self) {
    struct lease_object *object = (struct lease_object *)self;
    struct vlci_realm *holder = object->lease->holder;
    const struct vlci_api *api = &holder->api;
    vlci_realm_retain(holder);
    vlci_object *type = api->PyObject_Type((vlci_object *)self);
    free_lease(object->lease);
    vlci_sources_settle(holder); /* where the memory was the holder's own, sent back to it */
    api->PyObject_Free(self);
    api->Py_DecRef(type); /* PyObject_Type's */
    api->Py_DecRef(type); /* the object's */
    vlci_realm_release(holder);
}

/* An array takes its memory as bytes, and lays out itself. */
static int lease_get_buffer(PyObject *self, Py_buffer *view, int flags) {
    const struct vlci_lease *lease = ((struct lease_object *)self)->lease;
    const struct vlci_api *api = &lease->holder->api;
    const struct vlci_span *span = &lease->span;
    const struct vlci_layout *layout = span->layout;
    if (layout->kind != VLCI_VIEW || (span->readonly && (flags & PyBUF_WRITABLE)))
        return api->PyBuffer_FillInfo(view, (vlci_object *)self, span->data, layout->size, span->readonly,
                                      flags);
    if (!vlci_layout_export(layout, span->data, view, flags)) {
        view->obj = NULL;
        api->PyErr_SetString(*(vlci_object **)api->buffer_error,
                             "the memory of another interpreter is not laid out as asked for");
        return -1;
    }
    view->readonly = span->readonly;
    api->Py_IncRef((vlci_object *)self);
    view->obj = self;
    return 0;
}

static PyObject *lease_get_readonly(PyObject *self, void *unused) {
    (void)unused;
    const struct vlci_lease *lease = ((struct lease_object *)self)->lease;
    return (PyObject *)lease->holder->api.PyBool_FromLong(lease->span.readonly);
}

static PyObject *lease_get_nbytes(PyObject *self, void *unused) {
    (void)unused;
    const struct vlci_lease *lease = ((struct lease_object *)self)->lease;
    return (PyObject *)lease->holder->api.PyLong_FromSsize_t(lease->span.layout->size);
}

static PyObject *lease_take(PyObject *self, PyObject *unused) {
    (void)unused;
    struct vlci_lease *lease = ((struct lease_object *)self)->lease;
    return (PyObject *)vlci_buffer_make(&lease->span, lease->holder);
}

vlci_object *vlci_lease_type_new(const struct vlci_api *api) {
    static PyGetSetDef members[] = {
        { "readonly", lease_get_readonly, NULL, "Whether the owner forbids writing.", NULL },
        { "nbytes", lease_get_nbytes, NULL, "Size in bytes.", NULL },
        { NULL, NULL, NULL, NULL, NULL },
    };
    static PyMethodDef methods[] = {
        { "take", lease_take, METH_NOARGS, "take()\n--\n\nThe object that it stands for." },
        { NULL, NULL, 0, NULL },
    };
    static PyType_Slot slots[] = {
        { Py_tp_doc, "A buffer of another interpreter, shared and not copied (buffer protocol).\n\n"
                     "Keeps its owner alive there; the owner is released by its own interpreter." },
        { Py_tp_dealloc, lease_dealloc },
        { Py_tp_getset, members },
        { Py_tp_methods, methods },
        { Py_bf_getbuffer, lease_get_buffer },
        { 0, NULL },
    };
    static PyType_Spec spec = {
        .name = "vlcs._core._native.Lease",
        .basicsize = sizeof(struct lease_object),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    return api->PyType_FromSpec(&spec);
}
