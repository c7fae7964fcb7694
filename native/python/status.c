#include "status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int vlci_refuse(vlc_error *error, int status, const char *subject, const char *format, ...) {
    error->status = status;
    error->os_error = 0;
    snprintf(error->subject, sizeof error->subject, "%s", subject ? subject : "");
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    return status;
}

/* Records are cut at a byte, which may fall inside a character. */
static PyObject *text(const char *bytes) {
    return PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)strlen(bytes), "replace");
}

PyObject *vlci_raise(const vlc_error *error) {
    PyObject *message = text(error->message);
    PyObject *subject = text(error->subject);
    PyObject *errors = message && subject ? PyImport_ImportModule("vlcs._core._errors") : NULL;
    PyObject *exception = errors ? PyObject_CallMethod(errors, "from_status", "iOOi", (int)error->status,
                                                       message, subject, (int)error->os_error)
                                 : NULL;
    if (exception) {
        PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
        Py_DECREF(exception);
    }
    Py_XDECREF(errors);
    Py_XDECREF(subject);
    Py_XDECREF(message);
    return NULL;
}

void vlci_raise_in(const struct vlci_realm *realm, const vlc_error *error) {
    const struct vlci_api *api = &realm->api;
    const char *texts[2] = { error->message, error->subject };
    vlci_object *items[4] = { api->PyLong_FromLongLong((long long)error->status) };
    for (int i = 0; i < 2; i++)
        items[1 + i] = api->PyUnicode_DecodeUTF8(texts[i], (Py_ssize_t)strlen(texts[i]), "replace");
    items[3] = api->PyLong_FromLongLong((long long)error->os_error);
    vlci_object *exception = NULL;
    if (items[0] && items[1] && items[2] && items[3])
        exception = api->PyObject_CallFunctionObjArgs(realm->from_status, items[0], items[1], items[2],
                                                      items[3], NULL);
    if (exception) {
        api->Py_IncRef(exception->type);
        api->PyErr_Restore(exception->type, exception, NULL);
    }
    for (int i = 0; i < 4; i++) api->Py_DecRef(items[i]); /* NULL is fine */
}
