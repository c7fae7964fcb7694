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
