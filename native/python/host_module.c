#include "host_module.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arrow.h"
#include "fork.h"
#include "handle.h"
#include "interrupt.h"
#include "status.h"

/* The object that `ask` is a method of. Its layout is known, so that the realm, and with it the API
 * that fits the object, is found without an API. */
struct host_object {
    Py_ssize_t references;
    void *type;
    struct vlci_realm *guest;
};

/* What a guest asks of the host, and what that says. Texts are UTF-8. */
struct question {
    struct vlci_realm *guest;
    const char *request;
    int fd;
    const char *text; /* kept by the guest's str, as `request` is */
    Py_ssize_t size;
    char *answer; /* a copy of the host's, to be freed; NULL: nothing to say */
    Py_ssize_t answer_size;
    char failure[64]; /* name of a built-in exception; empty: none */
    char why[512];
};

static void fail(struct question *question, const char *exception, const char *why) {
    snprintf(question->failure, sizeof question->failure, "%s", exception);
    snprintf(question->why, sizeof question->why, "%s", why);
}

/* Without an interpreter to ask: during the host's exit. */
static void answer_alone(struct question *question) {
    if (strcmp(question->request, "input") == 0) fail(question, "EOFError", "the host has ended");
    if (strncmp(question->request, "write", 5) != 0) return;
    const char *text = question->text;
    Py_ssize_t left = question->size;
    while (left > 0) {
        ssize_t written = write(question->fd, text, (size_t)left);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) {
            fail(question, "OSError", strerror(errno));
            return;
        }
        text += written;
        left -= written;
    }
}

/* A copy, to be freed, of a str of the host's answer. NULL: an exception is set. */
static char *copy_item(PyObject *tuple, Py_ssize_t place, Py_ssize_t *size) {
    PyObject *item = PyTuple_GetItem(tuple, place); /* borrowed */
    PyObject *bytes = item ? PyUnicode_AsEncodedString(item, "utf-8", "surrogatepass") : NULL;
    char *data, *copy = NULL;
    if (bytes && PyBytes_AsStringAndSize(bytes, &data, size) == 0) {
        copy = malloc((size_t)*size + 1);
        if (copy)
            memcpy(copy, data, (size_t)*size + 1); /* it ends with NUL */
        else
            PyErr_NoMemory();
    }
    Py_XDECREF(bytes);
    return copy;
}

/* Takes over what the host's function gave: (answer, name of an exception, its words). */
static void take_answer(struct question *question, PyObject *result) {
    Py_ssize_t unused;
    question->answer = copy_item(result, 0, &question->answer_size);
    char *failure = question->answer ? copy_item(result, 1, &unused) : NULL;
    char *why = failure ? copy_item(result, 2, &unused) : NULL;
    if (why) fail(question, failure, why);
    free(failure);
    free(why);
}

/* Calls the host's function; with no GIL on entry and on return. False: there is none any more. */
static bool ask_host(struct question *question) {
    struct vlci_realm *host = vlci_host();
    vlc_error closed = VLC_ERROR_INIT;
    if (vlci_realm_begin(host, &closed) != VLC_OK) return false;
    struct vlci_interruptible *call = vlci_interrupt_suspend();
    vlci_attach(host);
    PyObject *function = question->guest->answer;
    if (function) {
        Py_INCREF(function);
        PyObject *result = PyObject_CallFunction(function, "sis#", question->request, question->fd,
                                                 question->text, question->size);
        if (result) take_answer(question, result);
        if (PyErr_Occurred()) { /* it gives what it meets; this came before or after that */
            bool interrupted = PyErr_ExceptionMatches(PyExc_KeyboardInterrupt);
            fail(question, interrupted ? "KeyboardInterrupt" : "RuntimeError", "the host could not answer");
            PyErr_Clear();
        }
        Py_XDECREF(result);
        Py_DECREF(function);
    }
    vlci_detach(host);
    vlci_interrupt_resume(call, strcmp(question->failure, "KeyboardInterrupt") == 0);
    vlci_realm_end(host);
    return function != NULL;
}

static void *ask_there(void *question) { return ask_host(question) ? question : NULL; }

/* ask(request, fd, text), called by the guest under its GIL. Gives a str. */
static PyObject *host_ask(PyObject *self, PyObject *arguments) {
    struct vlci_realm *guest = ((struct host_object *)self)->guest;
    const struct vlci_api *api = &guest->api;
    struct question question = { .guest = guest };
    vlci_object *items[3];
    for (int i = 0; i < 3; i++) {
        items[i] = api->PyTuple_GetItem((vlci_object *)arguments, i); /* borrowed */
        if (!items[i]) return NULL;
    }
    Py_ssize_t unused;
    question.request = api->PyUnicode_AsUTF8AndSize(items[0], &unused);
    question.fd = (int)api->PyLong_AsLong(items[1]);
    question.text = question.request ? api->PyUnicode_AsUTF8AndSize(items[2], &question.size) : NULL;
    if (!question.text) return NULL;
    vlci_thread_state *state = api->PyEval_SaveThread();
    /* on the thread that called, with its locks and its Ctrl-C, not on the one that stands for it */
    if (!vlc_run_outside(ask_there, &question)) answer_alone(&question);
    api->PyEval_RestoreThread(state);
    vlci_object *answer = NULL;
    if (question.failure[0]) {
        vlci_object *class = api->PyDict_GetItemString(api->PyEval_GetBuiltins(), question.failure);
        if (class) api->PyErr_SetString(class, question.why);
    } else {
        const char *bytes = question.answer ? question.answer : "";
        answer = api->PyUnicode_DecodeUTF8(bytes, question.answer_size, "surrogatepass");
    }
    free(question.answer);
    return (PyObject *)answer;
}

/* fork(when), called by the guest around its os.fork(); `when` is a vlci_fork. */
static PyObject *host_fork(PyObject *self, PyObject *arguments) {
    struct vlci_realm *guest = ((struct host_object *)self)->guest;
    vlci_object *when = guest->api.PyTuple_GetItem((vlci_object *)arguments, 0); /* borrowed */
    if (!when) return NULL;
    vlci_fork_of_guest(guest, (enum vlci_fork)guest->api.PyLong_AsLong(when));
    guest->api.Py_IncRef(when);
    return (PyObject *)when;
}

/* follow(), called by the guest where no call of a library is under way on this thread. */
static PyObject *host_follow(PyObject *self, PyObject *unused) {
    (void)unused;
    struct vlci_realm *guest = ((struct host_object *)self)->guest;
    vlc_error error = VLC_ERROR_INIT;
    vlci_thread_state *state = guest->api.PyEval_SaveThread(); /* a library may wait for its threads */
    vlc_follow(guest->context, &error);
    guest->api.PyEval_RestoreThread(state);
    guest->api.Py_IncRef(guest->api.none);
    return (PyObject *)guest->api.none;
}

/* printed(), called by the guest's streams, so that only then a call has to show what is in them. */
static PyObject *host_printed(PyObject *self, PyObject *unused) {
    (void)unused;
    struct vlci_realm *guest = ((struct host_object *)self)->guest;
    guest->printed = true;
    guest->api.Py_IncRef(guest->api.none);
    return (PyObject *)guest->api.none;
}

/* arrow_lend(capsule) and arrow_borrow(lease): arrow.h's. */

static PyObject *host_arrow_lend(PyObject *self, PyObject *capsule) {
    return (PyObject *)vlci_arrow_lend(((struct host_object *)self)->guest, (vlci_object *)capsule);
}

static PyObject *host_arrow_borrow(PyObject *self, PyObject *lease) {
    return (PyObject *)vlci_arrow_borrow(((struct host_object *)self)->guest, (vlci_object *)lease);
}

/* keep(object). */
static PyObject *host_keep(PyObject *self, PyObject *object) {
    return (PyObject *)vlci_handle_keep(((struct host_object *)self)->guest, (vlci_object *)object);
}

int vlci_host_module_add(struct vlci_realm *guest, const char *settings, Py_ssize_t size) {
    static PyMethodDef methods[] = {
        { "arrow_borrow", host_arrow_borrow, METH_O,
          "arrow_borrow(lease): an object with __arrow_c_stream__, or None." },
        { "arrow_lend", host_arrow_lend, METH_O,
          "arrow_lend(capsule): an object with a buffer, to be lent; or None." },
        { "ask", host_ask, METH_VARARGS,
          "ask(request, fd, text): what vlcs._core._streams.answer of the host says." },
        { "follow", host_follow, METH_NOARGS,
          "follow(): this thread's libraries take over the number of threads of a resize." },
        { "fork", host_fork, METH_VARARGS,
          "fork(when): around os.fork(): 0 before, 1 after in the parent, 2 in the child." },
        { "printed", host_printed, METH_NOARGS, "printed(): there may be text to show as the call ends." },
        { "keep", host_keep, METH_O, "keep(object): a handle to an object of this interpreter." },
        { NULL, NULL, 0, NULL },
    };
    static PyType_Slot slots[] = { { Py_tp_methods, methods }, { 0, NULL } };
    static PyType_Spec spec = {
        .name = "_vlcs_host.Host",
        .basicsize = sizeof(struct host_object),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    const struct vlci_api *api = &guest->api;
    vlci_object *type = api->PyType_FromSpec(&spec);
    vlci_object *host = type ? api->PyType_GenericAlloc(type, 0) : NULL;
    if (host) ((struct host_object *)host)->guest = guest;
    vlci_object *bytes = host ? api->PyBytes_FromStringAndSize(settings, size) : NULL;
    vlci_object *module = bytes ? api->PyImport_AddModule("_vlcs_host") : NULL; /* borrowed, as is its dict */
    vlci_object *names = module ? api->PyModule_GetDict(module) : NULL;
    bool added = names && api->PyDict_SetItemString(names, "settings", bytes) == 0 &&
                 api->PyDict_SetItemString(names, "Handle", guest->handle_type) == 0;
    for (const PyMethodDef *method = methods; added && method->ml_name; method++) {
        vlci_object *function = api->PyObject_GetAttrString(host, method->ml_name);
        added = function && api->PyDict_SetItemString(names, method->ml_name, function) == 0;
        api->Py_DecRef(function); /* NULL is fine, as below */
    }
    api->Py_DecRef(bytes);
    api->Py_DecRef(host);
    api->Py_DecRef(type);
    return added ? 0 : -1;
}
