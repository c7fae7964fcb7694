#include "call.h"

#include <stdlib.h>
#include <string.h>

#include "buffer.h"
#include "guest.h"
#include "handle.h"
#include "interrupt.h"
#include "status.h"
#include "value.h"

struct call {
    struct vlci_realm *caller, *callee;
    struct call *outer;     /* that this thread was in before */
    struct vlci_name *name; /* of the function; or NULL */
    struct vlci_kept *kept; /* what is operated on; or NULL. With neither, `serve` is called */
    int operation;
    struct vlci_message request; /* plain arguments, or a pickle */
    struct vlci_message answer;  /* a copy: the callee's bytes cannot be held without its GIL */
    bool has_names;
    bool outermost;   /* this thread is in no other call of that realm */
    bool plain;       /* the answer is a value */
    bool unwound;     /* by a KeyboardInterrupt, which is in the answer */
    bool interrupted; /* by one outside of what was called */
    bool too_deep;    /* a thread's stack is used up */
    int status;
    struct vlci_interruptible interruptible;
    vlc_error error;
};

/* Of an attribute's containers: larger ones stay in their realm. */
enum { LARGEST_CONTAINER = 10000 };

/* What a thread needs of its stack for one more call. With CPython 3.11 a call from a function of Python to another
 * takes 4.4 kB; the rest is for what that does. */
enum { STACK_LEAST = 192 << 10 };

static _Thread_local struct call *innermost;

unsigned vlci_calls_inside(const struct vlci_realm *realm) {
    unsigned count = 0;
    for (const struct call *call = innermost; call; call = call->outer) count += call->callee == realm;
    return count;
}

bool vlci_call_returns_to(const struct vlci_realm *realm) {
    const struct call *call = innermost;
    while (call && call->caller != realm) call = call->outer;
    return call;
}

/* Without clearing all of the record: the buffers of its messages and errors are 2.5 kB. */
static void begin(struct call *call, struct vlci_realm *caller, struct vlci_realm *callee) {
    call->caller = caller;
    call->callee = callee;
    call->name = NULL;
    call->kept = NULL;
    vlci_message_begin(&call->request);
    vlci_message_begin(&call->answer);
    call->has_names = call->plain = call->unwound = call->interrupted = call->too_deep = false;
    call->status = VLC_OK;
    call->error.size = sizeof call->error;
    vlci_realm_retain(callee);
}

static void end(struct call *call) {
    vlci_message_end(&call->request);
    vlci_message_end(&call->answer);
    vlci_realm_release(call->callee);
}

/* ---- in the callee ------------------------------------------------------------------------------------- */

/* serve(payload, leases). */
static vlci_object *ask(struct call *call) {
    const struct vlci_api *api = &call->callee->api;
    vlci_object *leases = vlci_message_leases(&call->request, call->callee);
    vlci_object *payload =
        leases ? api->PyBytes_FromStringAndSize(call->request.bytes, (Py_ssize_t)call->request.size) : NULL;
    vlci_object *answer =
        payload ? api->PyObject_CallFunctionObjArgs(call->callee->serve, payload, leases, NULL) : NULL;
    api->Py_DecRef(payload); /* NULL is fine */
    api->Py_DecRef(leases);
    return answer;
}

/* threading.settrace() and setprofile() of the realm: for calls too. False: an exception is set. */
static bool follow_hooks(const struct vlci_realm *realm) {
    const struct vlci_api *api = &realm->api;
    bool set = false;
    for (int i = 0; i < 2; i++) {
        const vlci_object *hook = api->PyDict_GetItemWithError(realm->threading, realm->hooks[i]);
        set = set || (hook && hook != api->none);
    }
    vlci_object *done = set ? api->PyObject_CallObject(realm->follow_hooks, NULL) : NULL;
    api->Py_DecRef(done);
    return !set || done;
}

/* Functions of Python are called as they are, and those of C modules; all others by a function of Python, since
 * they may look at the frame of their caller (exec, globals). */
static vlci_object *apply(const struct vlci_realm *realm, const struct vlci_name *name, vlci_object *function,
                          vlci_object *args, vlci_object *kwargs) {
    const struct vlci_api *api = &realm->api;
    if (function->type == api->function_type ||
        (name && name->frameless && function->type == api->builtin_type))
        return api->PyObject_Call(function, args, kwargs);
    if (!kwargs) kwargs = api->none;
    return api->PyObject_CallFunctionObjArgs(realm->apply, function, args, kwargs, NULL);
}

/* operation(object, *args). */
static vlci_object *operate(const struct vlci_realm *realm, int operation, vlci_object *object,
                            vlci_object *args) {
    const struct vlci_api *api = &realm->api;
    Py_ssize_t count = api->PyTuple_Size(args);
    vlci_object *all = api->PyTuple_New(count + 1);
    for (Py_ssize_t i = 0; all && i <= count; i++) {
        vlci_object *item = i ? api->PyTuple_GetItem(args, i - 1) : object;
        api->Py_IncRef(item);
        api->PyTuple_SetItem(all, i, item); /* which takes it */
    }
    vlci_object *function = api->PyTuple_GetItem(realm->operations, operation);
    vlci_object *result = all && function ? api->PyObject_CallObject(function, all) : NULL;
    api->Py_DecRef(all);
    return result;
}

/* The function's result, or NULL with an exception. */
static vlci_object *perform(struct call *call, vlci_object *values[2]) {
    struct vlci_realm *callee = call->callee;
    if (vlci_value_read(&call->request, callee, values, call->has_names ? 2 : 1) < 0) {
        values[0] = values[1] = NULL;
        return NULL;
    }
    vlci_object *object = call->kept ? vlci_kept_resolve(call->kept) : vlci_name_resolve(callee, call->name);
    vlci_object *result = NULL;
    if (object && (call->name || call->operation == VLCI_CALL))
        result = apply(callee, call->name, object, values[0], values[1]);
    else if (object)
        result = operate(callee, call->operation, object, values[0]);
    callee->api.Py_DecRef(object); /* NULL is fine */
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

static bool is_large(const struct vlci_api *api, const vlci_object *object) {
    const vlci_object *type = object->type;
    if (type != api->list_type && type != api->dict_type && type != api->tuple_type &&
        type != api->set_type && type != api->frozenset_type)
        return false;
    return api->PyObject_Size((vlci_object *)object) > LARGEST_CONTAINER;
}

/* Has the result stay, and a handle to it be the answer. A method is kept by its name: it is made anew by each look,
 * and the caller may keep the handle for all. False: an exception is set. */
static bool stay(struct call *call, vlci_object *result, vlci_object *args) {
    const struct vlci_api *api = &call->callee->api;
    struct vlci_kept *kept;
    vlci_object *method = NULL;
    if (call->operation == VLCI_FETCH && call->kept) {
        vlci_object *object = vlci_kept_resolve(call->kept);
        vlci_object *name = object ? api->PyTuple_GetItem(args, 0) : NULL; /* borrowed */
        if (name)
            method = api->PyObject_CallFunctionObjArgs(call->callee->is_method, object, name, result, NULL);
        kept = method == api->yes ? vlci_kept_attribute(call->kept, name)
               : method           ? vlci_kept_new(call->callee, result)
                                  : NULL;
        api->Py_DecRef(object);
        api->Py_DecRef(method);
    } else {
        kept = vlci_kept_new(call->callee, result);
    }
    if (!kept) return false;
    call->plain = vlci_value_write_kept(&call->answer, kept);
    vlci_kept_drop(kept);
    if (!call->plain) api->PyErr_NoMemory();
    return call->plain;
}

/* The answer to a result that is not plain: a pickle; or NULL where it stays, or with an exception. */
static vlci_object *encode(struct call *call, vlci_object *result, vlci_object *args) {
    const struct vlci_realm *callee = call->callee;
    const struct vlci_api *api = &callee->api;
    if (!call->kept) return api->PyObject_CallFunctionObjArgs(callee->encode_value, result, NULL);
    vlci_object *large = call->operation == VLCI_FETCH ? api->yes : api->no;
    vlci_object *answer = api->PyObject_CallFunctionObjArgs(callee->encode_result, result, large, NULL);
    if (answer != api->none) return answer;
    api->Py_DecRef(answer);
    stay(call, result, args);
    return NULL;
}

/* Calls what is named or kept. NULL: the answer is a value, or an exception is set. */
static vlci_object *call_plainly(struct call *call) {
    struct vlci_realm *callee = call->callee;
    vlci_object *values[2] = { NULL, NULL }, *answer = NULL;
    vlci_object *result = perform(call, values);
    if (result) {
        bool large = call->kept && call->operation == VLCI_FETCH && is_large(&callee->api, result);
        call->plain = !large && vlci_value_write(&call->answer, callee, call->caller, result);
        if (!call->plain) answer = encode(call, result, values[0]);
        callee->api.Py_DecRef(result);
    }
    callee->api.Py_DecRef(values[0]); /* NULL is fine */
    callee->api.Py_DecRef(values[1]);
    return answer;
}

static vlci_object *take_error(struct call *call) {
    struct vlci_realm *callee = call->callee;
    vlci_object *error = take_exception(&callee->api);
    if (!error) return NULL;
    call->unwound =
        callee->api.PyErr_GivenExceptionMatches(error, callee->keyboard_interrupt); /* to be sent home */
    vlci_object *answer = callee->api.PyObject_CallFunctionObjArgs(callee->encode_error, error, NULL);
    callee->api.Py_DecRef(error);
    return answer;
}

/* Shows what was printed. False: an exception is set, a KeyboardInterrupt. */
static bool show(struct vlci_realm *callee) {
    if (!callee->printed) return true;
    callee->printed = false;
    vlci_object *shown = callee->api.PyObject_CallObject(callee->show, NULL);
    callee->api.Py_DecRef(shown);
    return shown;
}

/* Does what is asked for. NULL: the answer is a value, or an exception is set. */
static vlci_object *do_it(struct call *call) {
    struct vlci_realm *callee = call->callee;
    vlci_object *answer = NULL;
    if (follow_hooks(callee)) answer = call->name || call->kept ? call_plainly(call) : ask(call);
    if (!answer && !call->plain) answer = take_error(call);
    if (show(callee)) return answer;
    callee->api.Py_DecRef(answer); /* the interrupt goes before what there was to say */
    call->plain = false;
    return NULL;
}

/* What a pickle leaves beside: memory, or a handle. -1: an exception is set. */
static int lend(struct vlci_message *message, struct vlci_realm *realm, vlci_object *object) {
    struct vlci_kept *kept = vlci_handle_kept(realm, object);
    if (!kept) return vlci_buffer_add(message, realm, object);
    if (vlci_message_add_kept(message, kept)) return 0;
    realm->api.PyErr_NoMemory();
    return -1;
}

/* Takes the callee's (bytes, list) over. -1: an exception is set there. */
static int keep_answer(struct call *call, vlci_object *result) {
    const struct vlci_api *api = &call->callee->api;
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
    vlci_buffers_learn(call->callee); /* what is new there, and so was pickled */
    Py_ssize_t count = api->PyList_Size(buffers);
    if (count < 0) return -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (lend(&call->answer, call->callee, api->PyList_GetItem(buffers, i)) < 0) return -1;
    }
    return 0;
}

static void failed(struct call *call) {
    struct vlci_realm *callee = call->callee;
    const struct vlci_api *api = &callee->api;
    vlci_object *pending[3];
    api->PyErr_Fetch(&pending[0], &pending[1], &pending[2]);
    call->interrupted = api->PyErr_GivenExceptionMatches(pending[0], callee->keyboard_interrupt);
    api->PyErr_Restore(pending[0], pending[1], pending[2]);
    char why[512];
    vlci_guest_explain(callee, why, sizeof why);
    call->status = vlci_refuse(
        &call->error, VLC_BUG, callee->name,
        "the call into the Python of the context '%s' failed outside the called function, with %s. "
        "Please report it.",
        callee->name, why);
}

/* The callee's part, inside its context and without a GIL: on this thread, or on the one that stands for it in a
 * resident context. */
static void *converse(void *argument) {
    struct call *call = argument;
    struct vlci_realm *callee = call->callee;
    if (call->outermost) vlc_follow(callee->context, &call->error);
    struct vlci_interruptible *suspended = callee->context ? NULL : vlci_interrupt_suspend();
    vlci_attach(callee);
    if (callee->context) vlci_interrupt_begin(&call->interruptible);
    vlci_object *answer = do_it(call);
    if (!call->plain && (!answer || keep_answer(call, answer) < 0)) failed(call);
    bool unwound = call->unwound || call->interrupted;
    if (callee->context) vlci_interrupt_end(&call->interruptible, unwound);
    callee->api.Py_DecRef(answer);
    vlci_detach(callee);
    if (!callee->context) vlci_interrupt_resume(suspended, unwound);
    return NULL;
}

/* ---- in between ---------------------------------------------------------------------------------------- */

/* Whether this thread has the stack for one more call. */
static bool has_stack(void) {
    static _Thread_local char *lowest;
    char here;
    if (!lowest) {
        pthread_attr_t attributes;
        void *start;
        size_t size;
        if (pthread_getattr_np(pthread_self(), &attributes)) return true;
        if (!pthread_attr_getstack(&attributes, &start, &size)) lowest = start;
        pthread_attr_destroy(&attributes);
    }
    return (size_t)(&here - lowest) > STACK_LEAST;
}

/* Counts this thread in. */
static int come_in(struct call *call) {
    struct vlci_realm *callee = call->callee;
    if (call->caller->context && callee->shut && vlci_realm_life(callee) == VLCI_RUNNING &&
        !vlci_calls_inside(callee))
        return vlci_refuse(&call->error, VLC_MISUSE, callee->name,
                           "cannot call into the context '%s': it is being closed. Make another context.",
                           callee->name);
    return vlci_realm_begin(callee, &call->error);
}

/* Without a GIL, outside of the caller's context. */
static void *go(void *argument) {
    struct call *call = argument;
    struct vlci_realm *callee = call->callee;
    if (call->caller->context) { /* otherwise `cross` has */
        if ((call->too_deep = !has_stack()) || (call->status = come_in(call)) != VLC_OK) return NULL;
        vlci_interrupt_inherit(&call->interruptible, callee);
    }
    call->outermost = callee->context && vlci_calls_inside(callee) == 0;
    call->outer = innermost;
    innermost = call;
    if (callee->context) {
        int status = vlc_run(callee->context, converse, call, NULL, &call->error);
        if (status != VLC_OK) call->status = status;
    } else {
        converse(call);
    }
    innermost = call->outer;
    vlci_realm_end(callee);
    return NULL;
}

/* The failed call's exception, in the caller. */
static void raise_there(const struct call *call) {
    struct vlci_realm *caller = call->caller;
    const struct vlci_api *api = &caller->api;
    if (call->too_deep) {
        api->PyErr_SetString(api->PyDict_GetItemString(api->PyEval_GetBuiltins(), "RecursionError"),
                             "calls between contexts are nested too deeply: the thread's stack is used up");
    } else if (call->interrupted) {
        api->Py_IncRef(caller->keyboard_interrupt);
        api->PyErr_Restore(caller->keyboard_interrupt, NULL, NULL);
    } else if (!caller->context) {
        vlci_raise(&call->error);
    } else {
        vlci_raise_in(caller, &call->error);
    }
}

/* Between the realms; the caller's exception, if any, is set. -1 then. */
static int cross(struct call *call) {
    struct vlci_realm *caller = call->caller;
    const struct vlci_api *api = &caller->api;
    if ((call->too_deep = !has_stack())) {
        raise_there(call);
        return -1;
    }
    if (!caller->context) {
        if (vlci_interrupt_prepare(&call->interruptible, call->callee) < 0) return -1;
        if (come_in(call) != VLC_OK) {
            vlci_raise(&call->error);
            return -1;
        }
    }
    vlci_thread_state *state = api->PyEval_SaveThread();
    if (caller->context)
        vlc_run_outside(go, call); /* on the thread that called, with its locks and its Ctrl-C */
    else
        go(call);
    vlci_message_end(&call->request); /* what the callee kept lives on by its leases */
    api->PyEval_RestoreThread(state);
    vlci_sources_settle(caller);
    if (!caller->context && PyErr_CheckSignals() < 0) return -1;
    if (!call->too_deep && !call->interrupted && call->status == VLC_OK) return 0;
    raise_there(call);
    return -1;
}

/* ---- in the caller ------------------------------------------------------------------------------------- */

/* (bytes, list of Lease). */
static vlci_object *answer_of(const struct call *call) {
    const struct vlci_api *api = &call->caller->api;
    vlci_object *list = vlci_message_leases(&call->answer, call->caller);
    vlci_object *bytes =
        list ? api->PyBytes_FromStringAndSize(call->answer.bytes, (Py_ssize_t)call->answer.size) : NULL;
    vlci_object *pair = bytes ? api->PyTuple_New(2) : NULL;
    if (!pair) {
        api->Py_DecRef(bytes); /* NULL is fine */
        api->Py_DecRef(list);
        return NULL;
    }
    api->PyTuple_SetItem(pair, 0, bytes); /* which takes it */
    api->PyTuple_SetItem(pair, 1, list);
    return pair;
}

static int take_pickle(struct call *call, vlci_object *payload, vlci_object *buffers) {
    const struct vlci_api *api = &call->caller->api;
    Py_ssize_t size;
    if (api->PyBytes_AsStringAndSize(payload, &call->request.bytes, &size) < 0) return -1;
    call->request.size = (size_t)size;
    call->request.capacity = 0; /* the caller's bytes */
    vlci_buffers_learn(call->caller);
    Py_ssize_t count = api->PyList_Size(buffers);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (lend(&call->request, call->caller, api->PyList_GetItem(buffers, i)) < 0) return -1;
    }
    return count < 0 ? -1 : 0;
}

vlci_object *vlci_call(struct vlci_realm *caller, struct vlci_realm *callee, vlci_object *payload,
                       vlci_object *buffers) {
    struct call call;
    begin(&call, caller, callee);
    vlci_object *result = NULL;
    if (take_pickle(&call, payload, buffers) == 0 && cross(&call) == 0) result = answer_of(&call);
    end(&call);
    return result;
}

static enum vlci_outcome call_with(struct call *call, vlci_object *const *args, Py_ssize_t count,
                                   vlci_object *names, vlci_object **result) {
    struct vlci_realm *caller = call->caller;
    call->has_names = names && caller->api.PyTuple_Size(names) > 0;
    if (!vlci_value_write_call(&call->request, caller, call->callee, args, count, names))
        return VLCI_NOT_PLAIN;
    if (cross(call) < 0) return VLCI_FAILED;
    if (call->plain) return vlci_value_read(&call->answer, caller, result, 1) ? VLCI_FAILED : VLCI_VALUE;
    *result = answer_of(call);
    return *result ? VLCI_ANSWER : VLCI_FAILED;
}

enum vlci_outcome vlci_call_function(struct vlci_realm *guest, struct vlci_name *name,
                                     vlci_object *const *args, Py_ssize_t count, vlci_object *names,
                                     vlci_object **result) {
    struct call call;
    begin(&call, vlci_host(), guest);
    call.name = name;
    enum vlci_outcome outcome = call_with(&call, args, count, names, result);
    end(&call);
    return outcome;
}

enum vlci_outcome vlci_call_kept(struct vlci_realm *caller, struct vlci_kept *kept, int operation,
                                 vlci_object *const *args, Py_ssize_t count, vlci_object *names,
                                 vlci_object **result) {
    struct call call;
    begin(&call, caller, vlci_kept_owner(kept));
    call.kept = kept;
    call.operation = operation;
    enum vlci_outcome outcome = call_with(&call, args, count, names, result);
    end(&call);
    return outcome;
}
