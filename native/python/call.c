#include "call.h"

#include <stdlib.h>
#include <string.h>

#include "guest.h"
#include "interrupt.h"
#include "lease.h"
#include "status.h"

struct spans {
    struct vlci_span *items;
    Py_ssize_t count;
};

struct call {
    struct vlci_realm *guest;
    struct call *outer; /* that this thread was in before */
    char *payload;      /* the host's bytes on the way there */
    Py_ssize_t payload_size;
    struct spans sent;
    char *answer; /* a copy: the guest's bytes cannot be held without its GIL */
    Py_ssize_t answer_size;
    struct spans received;
    bool interrupted; /* by KeyboardInterrupt, outside what `serve` guards */
};

static _Thread_local struct call *innermost;

unsigned vlci_calls_inside(const struct vlci_realm *guest) {
    unsigned count = 0;
    for (const struct call *call = innermost; call; call = call->outer) count += call->guest == guest;
    return count;
}

static void drop(struct spans *spans) {
    for (Py_ssize_t i = 0; i < spans->count; i++) vlci_span_drop(&spans->items[i]);
    free(spans->items);
    *spans = (struct spans){ NULL, 0 };
}

/* -1: an exception is set in the realm whose API it is. */
static int reserve(struct spans *spans, Py_ssize_t count, const struct vlci_api *api) {
    spans->items = count > 0 ? calloc((size_t)count, sizeof *spans->items) : NULL;
    if (!spans->items && count > 0) {
        api->PyErr_NoMemory();
        return -1;
    }
    return 0;
}

/* Takes `span` as the next of `spans`, or fails with an exception in the realm. */
static int add(struct spans *spans, struct vlci_realm *realm, vlci_object *exporter) {
    if (!exporter || vlci_span_take(&spans->items[spans->count], realm, exporter) < 0) return -1;
    spans->count++;
    return 0;
}

/* A list of the holder's Lease objects, in the guest. */
static vlci_object *leases_in_guest(struct vlci_realm *guest, const struct spans *spans) {
    const struct vlci_api *api = &guest->api;
    vlci_object *list = api->PyList_New(0);
    for (Py_ssize_t i = 0; list && i < spans->count; i++) {
        vlci_object *lease = vlci_lease_new(guest, &spans->items[i]);
        if (!lease || api->PyList_Append(list, lease) < 0) {
            api->Py_DecRef(list);
            list = NULL;
        }
        api->Py_DecRef(lease);
    }
    return list;
}

static vlci_object *ask(struct call *call) {
    const struct vlci_api *api = &call->guest->api;
    vlci_object *payload = api->PyBytes_FromStringAndSize(call->payload, call->payload_size);
    vlci_object *leases = payload ? leases_in_guest(call->guest, &call->sent) : NULL;
    vlci_object *arguments = leases ? api->PyTuple_New(2) : NULL;
    if (!arguments) {
        api->Py_DecRef(leases);
        api->Py_DecRef(payload);
        return NULL;
    }
    api->PyTuple_SetItem(arguments, 0, payload); /* both are given away */
    api->PyTuple_SetItem(arguments, 1, leases);
    vlci_object *result = api->PyObject_CallObject(call->guest->serve, arguments);
    api->Py_DecRef(arguments);
    return result;
}

/* Takes the guest's (bytes, list) over. -1: an exception is set there. */
static int keep_answer(struct call *call, vlci_object *result) {
    const struct vlci_api *api = &call->guest->api;
    vlci_object *bytes = api->PyTuple_GetItem(result, 0); /* borrowed, as is the next */
    vlci_object *buffers = bytes ? api->PyTuple_GetItem(result, 1) : NULL;
    char *data;
    if (!buffers || api->PyBytes_AsStringAndSize(bytes, &data, &call->answer_size) < 0) return -1;
    Py_ssize_t count = api->PyList_Size(buffers);
    if (count < 0 || reserve(&call->received, count, api) < 0) return -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (add(&call->received, call->guest, api->PyList_GetItem(buffers, i)) < 0) return -1;
    }
    call->answer = malloc((size_t)call->answer_size + 1);
    if (!call->answer) {
        api->PyErr_NoMemory();
        return -1;
    }
    memcpy(call->answer, data, (size_t)call->answer_size);
    return 0;
}

static int failed(struct call *call, vlc_error *error) {
    const struct vlci_api *api = &call->guest->api;
    vlci_object *pending[3];
    api->PyErr_Fetch(&pending[0], &pending[1], &pending[2]);
    call->interrupted = api->PyErr_GivenExceptionMatches(pending[0], call->guest->keyboard_interrupt);
    api->PyErr_Restore(pending[0], pending[1], pending[2]);
    char why[512];
    vlci_guest_explain(call->guest, why, sizeof why);
    return vlci_refuse(
        error, VLC_BUG, call->guest->name,
        "the call into the Python of the context '%s' failed outside the called function, with %s. "
        "Please report it.",
        call->guest->name, why);
}

/* The guest's part, without the host's GIL. */
static int converse(struct call *call, struct vlci_interruptible *interruptible, vlc_error *error) {
    int status = vlc_enter(call->guest->context, error);
    if (status != VLC_OK) return status;
    vlci_attach(call->guest);
    vlci_interrupt_begin(interruptible);
    vlci_object *result = ask(call);
    if (!result || keep_answer(call, result) < 0) status = failed(call, error);
    vlci_interrupt_end(interruptible);
    call->guest->api.Py_DecRef(result);
    vlci_detach(call->guest);
    vlc_error left = VLC_ERROR_INIT;
    int leave_status = vlc_leave(call->guest->context, &left);
    if (status == VLC_OK && leave_status != VLC_OK) {
        *error = left;
        return leave_status;
    }
    return status;
}

static PyObject *answer(const struct call *call) {
    PyObject *list = PyList_New(call->received.count);
    for (Py_ssize_t i = 0; list && i < call->received.count; i++) {
        PyObject *lease = (PyObject *)vlci_lease_new(vlci_host(), &call->received.items[i]);
        if (!lease || PyList_SetItem(list, i, lease) < 0) Py_CLEAR(list);
    }
    PyObject *bytes = list ? PyBytes_FromStringAndSize(call->answer, call->answer_size) : NULL;
    PyObject *pair = bytes ? PyTuple_Pack(2, bytes, list) : NULL;
    Py_XDECREF(bytes);
    Py_XDECREF(list);
    return pair;
}

static int take_arguments(struct call *call, PyObject *payload, PyObject *buffers) {
    if (PyBytes_AsStringAndSize(payload, &call->payload, &call->payload_size) < 0) return -1;
    Py_ssize_t count = PySequence_Size(buffers);
    struct vlci_realm *host = vlci_host();
    if (count < 0 || reserve(&call->sent, count, &host->api) < 0) return -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *buffer = PySequence_GetItem(buffers, i);
        int result = add(&call->sent, host, (vlci_object *)buffer);
        Py_XDECREF(buffer);
        if (result < 0) return -1;
    }
    return 0;
}

/* Between the realms; the host's exception, if any, is set. -1 then. */
static int cross(struct call *call) {
    vlc_error error = VLC_ERROR_INIT;
    struct vlci_interruptible interruptible;
    if (vlci_interrupt_prepare(&interruptible, call->guest) < 0) return -1;
    if (vlci_realm_begin(call->guest, &error) != VLC_OK) {
        vlci_raise(&error);
        return -1;
    }
    PyThreadState *state = PyEval_SaveThread();
    call->outer = innermost;
    innermost = call;
    int status = converse(call, &interruptible, &error);
    innermost = call->outer;
    drop(&call->sent); /* what the guest kept lives on by its leases */
    vlci_realm_end(call->guest);
    PyEval_RestoreThread(state);
    vlci_sources_settle(vlci_host());
    if (PyErr_CheckSignals() < 0) return -1;
    if (call->interrupted)
        PyErr_SetNone(PyExc_KeyboardInterrupt);
    else if (status != VLC_OK)
        vlci_raise(&error);
    return call->interrupted || status != VLC_OK ? -1 : 0;
}

PyObject *vlci_call(struct vlci_realm *guest, PyObject *payload, PyObject *buffers) {
    struct call call = { .guest = guest };
    PyObject *result = NULL;
    vlci_realm_retain(guest);
    if (take_arguments(&call, payload, buffers) == 0 && cross(&call) == 0) result = answer(&call);
    drop(&call.sent);
    drop(&call.received);
    free(call.answer);
    vlci_realm_release(guest);
    return result;
}
