#include "host_module.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "interrupt.h"
#include "status.h"

/* The object that `write` is a method of. Its layout is known, so that the realm, and with it the API
 * that fits the object, is found without an API. */
struct host_object {
    Py_ssize_t references;
    void *type;
    struct vlci_realm *guest;
};

/* What a guest's write asks of the host, and how it went. */
struct writing {
    struct vlci_realm *guest;
    int fd;
    const char *text; /* UTF-8, kept by the guest's str */
    Py_ssize_t size;
    const char *failure; /* name of a built-in exception, or NULL */
    char why[512];
};

/* Without an interpreter to ask: during the host's exit. */
static void write_raw(struct writing *writing) {
    const char *text = writing->text;
    Py_ssize_t left = writing->size;
    while (left > 0) {
        ssize_t written = write(writing->fd, text, (size_t)left);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) {
            writing->failure = "OSError";
            strncpy(writing->why, strerror(errno), sizeof writing->why - 1);
            return;
        }
        text += written;
        left -= written;
    }
}

/* Takes the host's exception over as a built-in of the guest with the same text. */
static void note_failure(struct writing *writing) {
    if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt))
        writing->failure = "KeyboardInterrupt";
    else if (PyErr_ExceptionMatches(PyExc_OSError))
        writing->failure = "OSError";
    else
        writing->failure = "RuntimeError";
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyObject *words = value ? PyObject_Str(value) : NULL;
    PyObject *bytes = words ? PyUnicode_AsEncodedString(words, "utf-8", "backslashreplace") : NULL;
    if (bytes) strncpy(writing->why, PyBytes_AsString(bytes), sizeof writing->why - 1);
    PyErr_Clear();
    Py_XDECREF(bytes);
    Py_XDECREF(words);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
}

/* Calls the host's function; with no GIL on entry and on return. False: there is none any more. */
static bool write_through_host(struct writing *writing) {
    struct vlci_realm *host = vlci_host();
    vlc_error closed = VLC_ERROR_INIT;
    if (vlci_realm_begin(host, &closed) != VLC_OK) return false;
    struct vlci_interruptible *call = vlci_interrupt_suspend();
    vlci_attach(host);
    PyObject *function = writing->guest->write;
    if (function) {
        Py_INCREF(function);
        PyObject *result = PyObject_CallFunction(function, "is#", writing->fd, writing->text, writing->size);
        if (!result) note_failure(writing);
        Py_XDECREF(result);
        Py_DECREF(function);
    }
    vlci_detach(host);
    bool interrupted = writing->failure && strcmp(writing->failure, "KeyboardInterrupt") == 0;
    vlci_interrupt_resume(call, interrupted);
    vlci_realm_end(host);
    return function != NULL;
}

/* write(fd, text), called by the guest under its GIL. Gives the number of characters, as streams do. */
static PyObject *host_write(PyObject *self, PyObject *arguments) {
    struct vlci_realm *guest = ((struct host_object *)self)->guest;
    const struct vlci_api *api = &guest->api;
    vlci_object *fd = api->PyTuple_GetItem((vlci_object *)arguments, 0); /* borrowed, as is the next */
    vlci_object *text = fd ? api->PyTuple_GetItem((vlci_object *)arguments, 1) : NULL;
    struct writing writing = { .guest = guest, .fd = fd ? (int)api->PyLong_AsLong(fd) : -1 };
    writing.text = text ? api->PyUnicode_AsUTF8AndSize(text, &writing.size) : NULL;
    if (!writing.text) return NULL;
    vlci_thread_state *state = api->PyEval_SaveThread();
    if (!write_through_host(&writing)) write_raw(&writing);
    api->PyEval_RestoreThread(state);
    if (!writing.failure) return (PyObject *)api->PyLong_FromSsize_t(api->PyObject_Size(text));
    vlci_object *class = api->PyDict_GetItemString(api->PyEval_GetBuiltins(), writing.failure);
    if (class) api->PyErr_SetString(class, writing.why);
    return NULL;
}

int vlci_host_module_add(struct vlci_realm *guest, const char *settings, Py_ssize_t size) {
    static PyMethodDef methods[] = {
        { "write", host_write, METH_VARARGS,
          "write(fd, text): to the host's sys.stdout (1) or sys.stderr (2)." },
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
    vlci_object *function = host ? api->PyObject_GetAttrString(host, "write") : NULL;
    vlci_object *bytes = function ? api->PyBytes_FromStringAndSize(settings, size) : NULL;
    vlci_object *module = bytes ? api->PyImport_AddModule("_vlcs_host") : NULL; /* borrowed, as is its dict */
    vlci_object *names = module ? api->PyModule_GetDict(module) : NULL;
    bool added = names && api->PyDict_SetItemString(names, "settings", bytes) == 0 &&
                 api->PyDict_SetItemString(names, "write", function) == 0;
    vlci_object *done[] = { bytes, function, host, type };
    for (size_t i = 0; i < sizeof done / sizeof done[0]; i++) api->Py_DecRef(done[i]); /* NULL is fine */
    return added ? 0 : -1;
}
