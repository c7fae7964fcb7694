#include "call.h"

#include <stdlib.h>
#include <string.h>

#include "buffer.h"
#include "guest.h"
#include "interrupt.h"
#include "status.h"
#include "value.h"

struct call {
    struct vlci_realm *guest;
    struct call *outer;          /* that this thread was in before */
    struct vlci_name *name;      /* of the function, or NULL: `serve` is called */
    struct vlci_message request; /* plain arguments, or a pickle */
    struct vlci_message answer;  /* a copy: the guest's bytes cannot be held without its GIL */
    bool has_names;
    bool outermost;   /* this thread is in no other call of that guest */
    bool plain;       /* the answer is a value */
    bool interrupted; /* by KeyboardInterrupt, outside what `serve` guards */
    int status;
    struct vlci_interruptible interruptible;
    vlc_error error;
};

static _Thread_local struct call *innermost;

unsigned vlci_calls_inside(const struct vlci_realm *guest) {
    unsigned count = 0;
    for (const struct call *call = innermost; call; call = call->outer) count += call->guest == guest;
    return count;
}

bool vlci_call_under_way(void) { return innermost; }

/* Without clearing all of the record: the buffers of its messages and errors are 2.5 kB. */
static void begin(struct call *call, struct vlci_realm *guest, struct vlci_name *name) {
    call->guest = guest;
    call->name = name;
    vlci_message_begin(&call->request);
    vlci_message_begin(&call->answer);
    call->has_names = call->plain = call->interrupted = false;
    call->status = VLC_OK;
    call->error.size = sizeof call->error;
    vlci_realm_retain(guest);
}

static void end(struct call *call) {
    vlci_message_end(&call->request);
    vlci_message_end(&call->answer);
    vlci_realm_release(call->guest);
}

/* ---- in the guest -------------------------------------------------------------------------------------- */

/* serve(payload, leases). */
static vlci_object *ask(struct call *call) {
    const struct vlci_api *api = &call->guest->api;
    vlci_object *leases = vlci_message_leases(&call->request, call->guest);
    vlci_object *payload =
        leases ? api->PyBytes_FromStringAndSize(call->request.bytes, (Py_ssize_t)call->request.size) : NULL;
    vlci_object *answer =
        payload ? api->PyObject_CallFunctionObjArgs(call->guest->serve, payload, leases, NULL) : NULL;
    api->Py_DecRef(payload); /* NULL is fine */
    api->Py_DecRef(leases);
    return answer;
}

/* threading.settrace() and setprofile() of the guest: for calls too. False: an exception is set. */
static bool follow_hooks(const struct vlci_realm *guest) {
    const struct vlci_api *api = &guest->api;
    bool set = false;
    for (int i = 0; i < 2; i++) {
        const vlci_object *hook = api->PyDict_GetItemWithError(guest->threading, guest->hooks[i]);
        set = set || (hook && hook != api->none);
    }
    vlci_object *done = set ? api->PyObject_CallObject(guest->follow_hooks, NULL) : NULL;
    api->Py_DecRef(done);
    return !set || done;
}

/* Functions of Python are called as they are, and those of C modules; all others by a function of Python, since
 * they may look at the frame of their caller (exec, globals). */
static vlci_object *apply(const struct vlci_realm *guest, const struct vlci_name *name, vlci_object *function,
                          vlci_object *args, vlci_object *kwargs) {
    const struct vlci_api *api = &guest->api;
    if (function->type == api->function_type || (name->frameless && function->type == api->builtin_type))
        return api->PyObject_Call(function, args, kwargs);
    if (!kwargs) kwargs = api->none;
    return api->PyObject_CallFunctionObjArgs(guest->apply, function, args, kwargs, NULL);
}

/* The function's result, or NULL with an exception. */
static vlci_object *perform(struct call *call) {
    const struct vlci_api *api = &call->guest->api;
    vlci_object *values[2] = { NULL, NULL };
    if (!follow_hooks(call->guest)) return NULL;
    if (vlci_value_read(&call->request, call->guest, values, call->has_names ? 2 : 1) < 0) return NULL;
    vlci_object *function = vlci_name_resolve(call->guest, call->name);
    vlci_object *result = function ? apply(call->guest, call->name, function, values[0], values[1]) : NULL;
    api->Py_DecRef(function); /* NULL is fine, as below */
    api->Py_DecRef(values[0]);
    api->Py_DecRef(values[1]);
    return result;
}

/* The pending exception, with its traceback; it is pending no more. A new reference, or NULL. */
static vlci_object *take_exception(const struct vlci_api *api) {
    vlci_object *type, *value, *traceback;
    api->PyErr_Fetch(&type, &value, &traceback);
    api->PyErr_NormalizeException(&type, &value, &traceback);
    if (value && traceback) api->PyException_SetTraceback(value, traceback);
    api->Py_DecRef(type);
    api->Py_DecRef(traceback);
    return value;
}

/* Calls the named function. NULL: the answer is a value, or an exception is set. */
static vlci_object *call_function(struct call *call) {
    struct vlci_realm *guest = call->guest;
    const struct vlci_api *api = &guest->api;
    vlci_object *answer = NULL, *result = perform(call);
    if (result) {
        call->plain = vlci_value_write(&call->answer, guest, vlci_host(), result);
        if (!call->plain) answer = api->PyObject_CallFunctionObjArgs(guest->encode_value, result, NULL);
        api->Py_DecRef(result);
    }
    if (!answer && !call->plain) {
        vlci_object *error = take_exception(api);
        answer = api->PyObject_CallFunctionObjArgs(guest->encode_error, error, NULL);
        api->Py_DecRef(error);
    }
    if (guest->printed) {
        guest->printed = false;
        vlci_object *shown = api->PyObject_CallObject(guest->show, NULL);
        api->Py_DecRef(shown);
        if (!shown) { /* a KeyboardInterrupt, which goes before what there was to say */
            api->Py_DecRef(answer);
            call->plain = false;
            return NULL;
        }
    }
    return answer;
}

/* Takes the guest's (bytes, list) over. -1: an exception is set there. */
static int keep_answer(struct call *call, vlci_object *result) {
    const struct vlci_api *api = &call->guest->api;
    vlci_object *bytes = api->PyTuple_GetItem(result, 0); /* borrowed, as is the next */
    vlci_object *buffers = bytes ? api->PyTuple_GetItem(result, 1) : NULL;
    char *data;
    Py_ssize_t size;
    if (!buffers || api->PyBytes_AsStringAndSize(bytes, &data, &size) < 0) return -1;
    char *room = vlci_message_grow(&call->answer, (size_t)size);
    if (!room) {
        api->PyErr_NoMemory();
        return -1;
    }
    memcpy(room, data, (size_t)size);
    vlci_buffers_learn(call->guest); /* what is new there, and so was pickled */
    Py_ssize_t count = api->PyList_Size(buffers);
    if (count < 0) return -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (vlci_buffer_add(&call->answer, call->guest, api->PyList_GetItem(buffers, i)) < 0) return -1;
    }
    return 0;
}

static void failed(struct call *call) {
    const struct vlci_api *api = &call->guest->api;
    vlci_object *pending[3];
    api->PyErr_Fetch(&pending[0], &pending[1], &pending[2]);
    call->interrupted = api->PyErr_GivenExceptionMatches(pending[0], call->guest->keyboard_interrupt);
    api->PyErr_Restore(pending[0], pending[1], pending[2]);
    char why[512];
    vlci_guest_explain(call->guest, why, sizeof why);
    call->status = vlci_refuse(
        &call->error, VLC_BUG, call->guest->name,
        "the call into the Python of the context '%s' failed outside the called function, with %s. "
        "Please report it.",
        call->guest->name, why);
}

/* The guest's part, inside the context and without the host's GIL: on this thread, or on the one that stands for
 * it in a resident context. */
static void *converse(void *argument) {
    struct call *call = argument;
    struct vlci_realm *guest = call->guest;
    if (call->outermost) vlc_follow(guest->context, &call->error);
    vlci_attach(guest);
    vlci_interrupt_begin(&call->interruptible);
    vlci_object *answer = call->name ? call_function(call) : ask(call);
    if (!call->plain && (!answer || keep_answer(call, answer) < 0)) failed(call);
    vlci_interrupt_end(&call->interruptible);
    guest->api.Py_DecRef(answer);
    vlci_detach(guest);
    return NULL;
}

/* ---- in the host --------------------------------------------------------------------------------------- */

/* Between the realms; the host's exception, if any, is set. -1 then. */
static int cross(struct call *call) {
    if (vlci_interrupt_prepare(&call->interruptible, call->guest) < 0) return -1;
    if (vlci_realm_begin(call->guest, &call->error) != VLC_OK) {
        vlci_raise(&call->error);
        return -1;
    }
    PyThreadState *state = PyEval_SaveThread();
    call->outermost = vlci_calls_inside(call->guest) == 0;
    call->outer = innermost;
    innermost = call;
    int status = vlc_run(call->guest->context, converse, call, NULL, &call->error);
    if (status != VLC_OK) call->status = status;
    innermost = call->outer;
    vlci_message_end(&call->request); /* what the guest kept lives on by its leases */
    vlci_realm_end(call->guest);
    PyEval_RestoreThread(state);
    vlci_sources_settle(vlci_host());
    if (PyErr_CheckSignals() < 0) return -1;
    if (call->interrupted)
        PyErr_SetNone(PyExc_KeyboardInterrupt);
    else if (call->status != VLC_OK)
        vlci_raise(&call->error);
    return call->interrupted || call->status != VLC_OK ? -1 : 0;
}

/* (bytes, list of Lease). */
static PyObject *answer(const struct call *call) {
    PyObject *list = (PyObject *)vlci_message_leases(&call->answer, vlci_host());
    PyObject *bytes =
        list ? PyBytes_FromStringAndSize(call->answer.bytes, (Py_ssize_t)call->answer.size) : NULL;
    PyObject *pair = bytes ? PyTuple_Pack(2, bytes, list) : NULL;
    Py_XDECREF(bytes);
    Py_XDECREF(list);
    return pair;
}

static int take_pickle(struct call *call, PyObject *payload, PyObject *buffers) {
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(payload, &call->request.bytes, &size) < 0) return -1;
    call->request.size = (size_t)size;
    call->request.capacity = 0; /* the host's bytes */
    vlci_buffers_learn(vlci_host());
    Py_ssize_t count = PySequence_Size(buffers);
    if (count < 0) return -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *buffer = PySequence_GetItem(buffers, i);
        int result = buffer ? vlci_buffer_add(&call->request, vlci_host(), (vlci_object *)buffer) : -1;
        Py_XDECREF(buffer);
        if (result < 0) return -1;
    }
    return 0;
}

PyObject *vlci_call(struct vlci_realm *guest, PyObject *payload, PyObject *buffers) {
    struct call call;
    begin(&call, guest, NULL);
    PyObject *result = NULL;
    if (take_pickle(&call, payload, buffers) == 0 && cross(&call) == 0) result = answer(&call);
    end(&call);
    return result;
}

enum vlci_outcome vlci_call_function(struct vlci_realm *guest, struct vlci_name *name, PyObject *const *args,
                                     Py_ssize_t count, PyObject *names, PyObject **result) {
    struct call call;
    begin(&call, guest, name);
    call.has_names = names && PyTuple_Size(names) > 0;
    enum vlci_outcome outcome = VLCI_FAILED;
    vlci_object *value;
    if (!vlci_value_write_call(&call.request, vlci_host(), guest, (vlci_object *const *)args, count,
                               (vlci_object *)names)) {
        outcome = VLCI_NOT_PLAIN;
    } else if (cross(&call) < 0) {
        outcome = VLCI_FAILED;
    } else if (!call.plain) {
        *result = answer(&call);
        if (*result) outcome = VLCI_ANSWER;
    } else if (vlci_value_read(&call.answer, vlci_host(), &value, 1) == 0) {
        *result = (PyObject *)value;
        outcome = VLCI_VALUE;
    }
    end(&call);
    return outcome;
}
