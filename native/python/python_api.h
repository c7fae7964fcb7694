/* The C API of a Python as a table of functions, and of a few objects, found by name.
 *
 * A guest is another CPython, perhaps of another version, in the same process. What the headers
 * define as macros, inline functions or data (Py_INCREF, Py_None, PyList_Type) belongs to the host's
 * Python and must never meet a guest's object. So objects of either side are opaque here, and all
 * that is done to them goes through the table of their own interpreter. The host has the same table,
 * filled with its own functions, so that code for "an interpreter" is written once.
 */
#ifndef VLCI_PYTHON_API_H
#define VLCI_PYTHON_API_H

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "include/vlcs.h"

typedef struct vlci_object vlci_object;             /* an object of some interpreter */
typedef struct vlci_thread_state vlci_thread_state; /* a PyThreadState of some interpreter */

/* X(result, name, arguments): needed on both sides; in the limited API, so the host's are linked. */
#define VLCI_API_SHARED(X)                                                                                   \
    X(int, Py_AddPendingCall, (int (*)(void *), void *))                                                     \
    X(void, Py_DecRef, (vlci_object *))                                                                      \
    X(void, Py_IncRef, (vlci_object *))                                                                      \
    X(vlci_object *, PyBool_FromLong, (long))                                                                \
    X(int, PyBuffer_FillInfo, (Py_buffer *, vlci_object *, void *, Py_ssize_t, int, int))                    \
    X(void, PyBuffer_Release, (Py_buffer *))                                                                 \
    X(int, PyBytes_AsStringAndSize, (vlci_object *, char **, Py_ssize_t *))                                  \
    X(vlci_object *, PyBytes_FromStringAndSize, (const char *, Py_ssize_t))                                  \
    X(void *, PyCapsule_GetPointer, (vlci_object *, const char *))                                           \
    X(vlci_object *, PyCapsule_New, (void *, const char *, void (*)(PyObject *)))                            \
    X(vlci_object *, PyComplex_FromDoubles, (double, double))                                                \
    X(double, PyComplex_ImagAsDouble, (vlci_object *))                                                       \
    X(double, PyComplex_RealAsDouble, (vlci_object *))                                                       \
    X(vlci_object *, PyDict_GetItemString, (vlci_object *, const char *))                                    \
    X(vlci_object *, PyDict_GetItemWithError, (vlci_object *, vlci_object *))                                \
    X(vlci_object *, PyDict_New, (void))                                                                     \
    X(int, PyDict_Next, (vlci_object *, Py_ssize_t *, vlci_object **, vlci_object **))                       \
    X(int, PyDict_SetItem, (vlci_object *, vlci_object *, vlci_object *))                                    \
    X(int, PyDict_SetItemString, (vlci_object *, const char *, vlci_object *))                               \
    X(Py_ssize_t, PyDict_Size, (vlci_object *))                                                              \
    X(void, PyErr_Clear, (void))                                                                             \
    X(void, PyErr_Fetch, (vlci_object **, vlci_object **, vlci_object **))                                   \
    X(int, PyErr_GivenExceptionMatches, (vlci_object *, vlci_object *))                                      \
    X(vlci_object *, PyErr_NoMemory, (void))                                                                 \
    X(void, PyErr_NormalizeException, (vlci_object **, vlci_object **, vlci_object **))                      \
    X(vlci_object *, PyErr_Occurred, (void))                                                                 \
    X(void, PyErr_Restore, (vlci_object *, vlci_object *, vlci_object *))                                    \
    X(void, PyErr_SetString, (vlci_object *, const char *))                                                  \
    X(vlci_object *, PyEval_GetBuiltins, (void))                                                             \
    X(void, PyEval_RestoreThread, (vlci_thread_state *))                                                     \
    X(vlci_thread_state *, PyEval_SaveThread, (void))                                                        \
    X(int, PyException_SetTraceback, (vlci_object *, vlci_object *))                                         \
    X(double, PyFloat_AsDouble, (vlci_object *))                                                             \
    X(vlci_object *, PyFloat_FromDouble, (double))                                                           \
    X(vlci_object *, PyFrozenSet_New, (vlci_object *))                                                       \
    X(int, PyGILState_Ensure, (void))                                                                        \
    X(vlci_thread_state *, PyGILState_GetThisThreadState, (void))                                            \
    X(vlci_object *, PyImport_GetModuleDict, (void))                                                         \
    X(vlci_object *, PyImport_ImportModule, (const char *))                                                  \
    X(void *, PyInterpreterState_Get, (void))                                                                \
    X(vlci_object *, PyIter_Next, (vlci_object *))                                                           \
    X(vlci_object *, PyList_GetItem, (vlci_object *, Py_ssize_t))                                            \
    X(vlci_object *, PyList_New, (Py_ssize_t))                                                               \
    X(int, PyList_SetItem, (vlci_object *, Py_ssize_t, vlci_object *))                                       \
    X(Py_ssize_t, PyList_Size, (vlci_object *))                                                              \
    X(long, PyLong_AsLong, (vlci_object *))                                                                  \
    X(long long, PyLong_AsLongLongAndOverflow, (vlci_object *, int *))                                       \
    X(vlci_object *, PyLong_FromLongLong, (long long))                                                       \
    X(vlci_object *, PyLong_FromSsize_t, (Py_ssize_t))                                                       \
    X(vlci_object *, PyLong_FromString, (const char *, char **, int))                                        \
    X(vlci_object *, PyMemoryView_FromObject, (vlci_object *))                                               \
    X(vlci_object *, PyNumber_ToBase, (vlci_object *, int))                                                  \
    X(vlci_object *, PyObject_Call, (vlci_object *, vlci_object *, vlci_object *))                           \
    X(vlci_object *, PyObject_CallFunctionObjArgs, (vlci_object *, ...))                                     \
    X(vlci_object *, PyObject_CallObject, (vlci_object *, vlci_object *))                                    \
    X(void, PyObject_Free, (void *))                                                                         \
    X(void, PyObject_GC_UnTrack, (void *))                                                                   \
    X(vlci_object *, PyObject_GetAttr, (vlci_object *, vlci_object *))                                       \
    X(vlci_object *, PyObject_GetAttrString, (vlci_object *, const char *))                                  \
    X(int, PyObject_GetBuffer, (vlci_object *, Py_buffer *, int))                                            \
    X(vlci_object *, PyObject_GetItem, (vlci_object *, vlci_object *))                                       \
    X(vlci_object *, PyObject_GetIter, (vlci_object *))                                                      \
    X(Py_ssize_t, PyObject_Size, (vlci_object *))                                                            \
    X(vlci_object *, PyObject_Str, (vlci_object *))                                                          \
    X(vlci_object *, PyObject_Type, (vlci_object *))                                                         \
    X(int, PySet_Add, (vlci_object *, vlci_object *))                                                        \
    X(vlci_object *, PySet_New, (vlci_object *))                                                             \
    X(Py_ssize_t, PySet_Size, (vlci_object *))                                                               \
    X(void, PyThreadState_Clear, (vlci_thread_state *))                                                      \
    X(void, PyThreadState_Delete, (vlci_thread_state *))                                                     \
    X(vlci_thread_state *, PyThreadState_New, (void *))                                                      \
    X(vlci_object *, PyTuple_GetItem, (vlci_object *, Py_ssize_t))                                           \
    X(vlci_object *, PyTuple_New, (Py_ssize_t))                                                              \
    X(int, PyTuple_SetItem, (vlci_object *, Py_ssize_t, vlci_object *))                                      \
    X(Py_ssize_t, PyTuple_Size, (vlci_object *))                                                             \
    X(vlci_object *, PyType_FromSpec, (PyType_Spec *))                                                       \
    X(vlci_object *, PyType_GenericAlloc, (vlci_object *, Py_ssize_t))                                       \
    X(void *, PyType_GetSlot, (vlci_object *, int))                                                          \
    X(vlci_object *, PyUnicode_AsEncodedString, (vlci_object *, const char *, const char *))                 \
    X(const char *, PyUnicode_AsUTF8AndSize, (vlci_object *, Py_ssize_t *))                                  \
    X(vlci_object *, PyUnicode_DecodeUTF8, (const char *, Py_ssize_t, const char *))                         \
    X(vlci_object *, PyUnicode_FromString, (const char *))                                                   \
    X(vlci_object *, PyUnicode_InternFromString, (const char *))

/* Needed of guests only. */
#define VLCI_API_GUEST(X)                                                                                    \
    X(vlci_object *, Py_CompileString, (const char *, const char *, int))                                    \
    X(vlci_object *, PyEval_EvalCode, (vlci_object *, vlci_object *, vlci_object *))                         \
    X(int, Py_FinalizeEx, (void))                                                                            \
    X(const char *, Py_GetVersion, (void))                                                                   \
    X(vlci_object *, PyImport_AddModule, (const char *))                                                     \
    X(void, Py_InitializeEx, (int))                                                                          \
    X(int, Py_IsInitialized, (void))                                                                         \
    X(int, PyList_Append, (vlci_object *, vlci_object *))                                                    \
    X(vlci_object *, PyModule_GetDict, (vlci_object *))                                                      \
    X(int, PySys_SetObject, (const char *, vlci_object *))                                                   \
    X(int, PyThreadState_SetAsyncExc, (unsigned long, vlci_object *))

/* Left out of the headers of some version, or about to be; NULL where a guest has none. */
#define VLCI_API_OPTIONAL(X)                                                                                 \
    X(void, Py_SetProgramName, (const wchar_t *))                                                            \
    X(void, PySys_AddWarnOption, (const wchar_t *))                                                          \
    X(void, PySys_AddXOption, (const wchar_t *))                                                             \
    X(const char *, _Py_DumpTracebackThreads, (int, void *, vlci_thread_state *)) /* up to 3.12 */

/* X(name of an object, what it is called in libpython): types for comparing, and three values. */
#define VLCI_API_OBJECTS(X)                                                                                  \
    X(none, _Py_NoneStruct)                                                                                  \
    X(no, _Py_FalseStruct)                                                                                   \
    X(yes, _Py_TrueStruct)                                                                                   \
    X(buffer_error, PyExc_BufferError)                                                                       \
    X(bytearray_type, PyByteArray_Type)                                                                      \
    X(bytes_type, PyBytes_Type)                                                                              \
    X(complex_type, PyComplex_Type)                                                                          \
    X(dict_type, PyDict_Type)                                                                                \
    X(float_type, PyFloat_Type)                                                                              \
    X(frozenset_type, PyFrozenSet_Type)                                                                      \
    X(int_type, PyLong_Type)                                                                                 \
    X(list_type, PyList_Type)                                                                                \
    X(memoryview_type, PyMemoryView_Type)                                                                    \
    X(set_type, PySet_Type)                                                                                  \
    X(str_type, PyUnicode_Type)                                                                              \
    X(tuple_type, PyTuple_Type)

/* The head of every object of a CPython with a GIL, of whatever version. */
struct vlci_object {
    Py_ssize_t references;
    vlci_object *type;
};

struct vlci_api {
#define VLCI_API_MEMBER(result, name, arguments) result(*name) arguments;
    VLCI_API_SHARED(VLCI_API_MEMBER)
    VLCI_API_GUEST(VLCI_API_MEMBER)
    VLCI_API_OPTIONAL(VLCI_API_MEMBER)
#undef VLCI_API_MEMBER
#define VLCI_API_OBJECT(name, datum) vlci_object *name;
    VLCI_API_OBJECTS(VLCI_API_OBJECT)
#undef VLCI_API_OBJECT
    /* Learned when the realm is furnished: the limited API hides them. */
    vlci_object *builtin_type, *function_type;
};

/* The functions of this process's own Python; those that only guests need stay NULL. */
void vlci_api_of_host(struct vlci_api *api);

/* Finds a guest's functions in `libpython`. Fails with VLC_LOAD_FAILED, naming the first that is missing. */
int vlci_api_of_guest(struct vlci_api *api, vlc_context *context, vlc_library *libpython, vlc_error *error);

/* Where a guest's data symbol lies (a global setting of C Python), or NULL. */
void *vlci_api_datum(vlc_context *context, vlc_library *libpython, const char *name);

#endif
