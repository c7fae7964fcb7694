/* vlcs._core._native: the only door between Python and libvlcs.so. */
#include "native.h"

#include <time.h>

#include "arrow.h"
#include "closing.h"
#include "handle.h"
#include "status.h"

enum { EXIT_WAIT_MS = 500 };

static PyObject *module_limits(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    vlc_limits limits = { .size = sizeof limits };
    vlc_error error = VLC_ERROR_INIT;
    if (vlc_get_limits(&limits, &error) != VLC_OK) return vlci_raise(&error);
    return Py_BuildValue(
        "{sIsIsIsKsKsKsKsKsN}", "contexts", (unsigned)limits.contexts, "resident", (unsigned)limits.resident,
        "next_is_resident", (unsigned)limits.next_is_resident, "resident_tls_total",
        (unsigned long long)limits.resident_tls_total, "static_tls_total",
        (unsigned long long)limits.static_tls_total, "static_tls_used",
        (unsigned long long)limits.static_tls_used, "mappings", (unsigned long long)limits.mappings,
        "mappings_max", (unsigned long long)limits.mappings_max, "host_malloc",
        limits.host_malloc ? PyUnicode_DecodeFSDefault(limits.host_malloc) : Py_NewRef(Py_None));
}

static PyObject *module_allowed_nodes(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    uint32_t nodes[VLC_NODES];
    size_t count;
    vlc_error error = VLC_ERROR_INIT;
    if (vlc_allowed_nodes(nodes, VLC_NODES, &count, &error) != VLC_OK) return vlci_raise(&error);
    return vlci_number_list(nodes, count);
}

static PyObject *module_arrow_lend(PyObject *module, PyObject *capsule) {
    (void)module;
    return (PyObject *)vlci_arrow_lend(vlci_host(), (vlci_object *)capsule);
}

static PyObject *module_arrow_borrow(PyObject *module, PyObject *lease) {
    (void)module;
    return (PyObject *)vlci_arrow_borrow(vlci_host(), (vlci_object *)lease);
}

static PyObject *module_context_name_of(PyObject *module, PyObject *address) {
    (void)module;
    void *pointer = PyLong_AsVoidPtr(address);
    if (!pointer && PyErr_Occurred()) return NULL;
    vlc_context *context = vlc_context_of(pointer);
    if (!context) Py_RETURN_NONE;
    return PyUnicode_FromString(vlc_name(context));
}

static PyObject *module_keep(PyObject *module, PyObject *object) {
    (void)module;
    return (PyObject *)vlci_handle_keep(vlci_host(), (vlci_object *)object);
}

static PyObject *module_furnish(PyObject *module, PyObject *functions) {
    (void)module;
    if (vlci_realm_furnish(vlci_host(), (vlci_object *)functions) < 0) return NULL;
    Py_RETURN_NONE;
}

/* At exit, after the contexts were closed: what a remaining guest thread prints goes to the file
 * descriptor, and what it gives back is left alone, since taking the GIL of an interpreter that is
 * being finalised ends the thread in the middle of the guest's code. */
static PyObject *module_close_host(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    struct vlci_realm *host = vlci_host();
    PyThreadState *state = PyEval_SaveThread();
    vlci_close_lingering(EXIT_WAIT_MS);
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += EXIT_WAIT_MS * 1000000L;
    end.tv_sec += end.tv_nsec / 1000000000L;
    end.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&host->lock);
    host->life = VLCI_STOPPING;
    while (host->inside && pthread_cond_timedwait(&host->changed, &host->lock, &end) == 0);
    pthread_mutex_unlock(&host->lock);
    PyEval_RestoreThread(state);
    Py_RETURN_NONE;
}

/* Registered now, so that it runs after what the package registers later. */
static int close_host_at_exit(PyObject *module) {
    PyObject *function = PyObject_GetAttrString(module, "_close_host");
    PyObject *atexit = function ? PyImport_ImportModule("atexit") : NULL;
    PyObject *result = atexit ? PyObject_CallMethod(atexit, "register", "O", function) : NULL;
    Py_XDECREF(result);
    Py_XDECREF(atexit);
    Py_XDECREF(function);
    return result ? 0 : -1;
}

static int check_library(void) {
    if (vlc_abi_version() != VLC_ABI_VERSION) {
        PyErr_Format(
            PyExc_ImportError,
            "vlcs cannot use this libvlcs.so: it has ABI version %u, and the extension module was built "
            "for %u. Install vlcs again, so that both are of one build.",
            vlc_abi_version(), VLC_ABI_VERSION);
        return -1;
    }
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
        PyErr_SetString(PyExc_ImportError,
                        "vlcs works in the main interpreter only: PyGILState, by which other "
                        "threads enter, knows no other. Import it there.");
        return -1;
    }
    return 0;
}

static int module_exec(PyObject *module) {
    struct vlci_module *state = vlci_module_state(module);
    if (check_library() < 0) return -1;
    struct vlci_realm *host = vlci_host();
    if (!host) {
        PyErr_NoMemory();
        return -1;
    }
    if (!host->lease_type && vlci_realm_make_types(host) < 0) return -1; /* stay as long as the process */
    state->context_type = vlci_context_type_new(module);
    state->interpreter_type = state->context_type ? vlci_interpreter_type_new(module) : NULL;
    state->door_type = state->interpreter_type ? vlci_door_type_new(module) : NULL;
    state->visit_type = state->door_type ? vlci_visit_type_new(module) : NULL;
    state->block_type = state->visit_type ? vlci_block_type_new(module) : NULL;
    state->caller_type = state->block_type ? vlci_caller_type_new(module, state->block_type) : NULL;
    if (!state->caller_type || PyModule_AddObjectRef(module, "Context", state->context_type) < 0 ||
        PyModule_AddObjectRef(module, "Interpreter", state->interpreter_type) < 0 ||
        PyModule_AddObjectRef(module, "Door", state->door_type) < 0 ||
        PyModule_AddObjectRef(module, "Visit", state->visit_type) < 0 ||
        PyModule_AddObjectRef(module, "Block", state->block_type) < 0 ||
        PyModule_AddObjectRef(module, "Caller", state->caller_type) < 0 ||
        PyModule_AddObjectRef(module, "Lease", (PyObject *)host->lease_type) < 0 ||
        PyModule_AddObjectRef(module, "Handle", (PyObject *)host->handle_type) < 0 ||
        PyModule_AddIntConstant(module, "ABI_VERSION", VLC_ABI_VERSION) < 0)
        return -1;
    return close_host_at_exit(module);
}

static int module_traverse(PyObject *module, visitproc visit, void *arg) {
    struct vlci_module *state = vlci_module_state(module);
    Py_VISIT(state->context_type);
    Py_VISIT(state->interpreter_type);
    Py_VISIT(state->door_type);
    Py_VISIT(state->visit_type);
    Py_VISIT(state->block_type);
    Py_VISIT(state->caller_type);
    return 0;
}

static int module_clear(PyObject *module) {
    struct vlci_module *state = vlci_module_state(module);
    Py_CLEAR(state->context_type);
    Py_CLEAR(state->interpreter_type);
    Py_CLEAR(state->door_type);
    Py_CLEAR(state->visit_type);
    Py_CLEAR(state->block_type);
    Py_CLEAR(state->caller_type);
    return 0;
}

static void module_free(void *module) { module_clear(module); }

static PyMethodDef module_methods[] = {
    { "allowed_nodes", module_allowed_nodes, METH_NOARGS,
      "allowed_nodes()\n--\n\nNUMA nodes whose memory may be used." },
    { "limits", module_limits, METH_NOARGS, "limits()\n--\n\nThe figures of vlc_limits." },
    { "arrow_borrow", module_arrow_borrow, METH_O,
      "arrow_borrow(lease)\n--\n\nAn object with __arrow_c_stream__ on what arrow_lend made; None: it is no "
      "lease of this interpreter." },
    { "arrow_lend", module_arrow_lend, METH_O,
      "arrow_lend(capsule)\n--\n\nWhat an Arrow stream gives, as an object with a buffer, to be lent; None: "
      "it fails." },
    { "context_name_of", module_context_name_of, METH_O,
      "context_name_of(address)\n--\n\nName of the context whose library holds the address; 0: that this "
      "thread is "
      "inside of." },
    { "keep", module_keep, METH_O, "keep(object)\n--\n\nA handle to an object of this interpreter." },
    { "furnish", module_furnish, METH_O,
      "furnish(functions)\n--\n\nTakes over what calls into this interpreter use, by name." },
    { "_close_host", module_close_host, METH_NOARGS,
      "_close_host()\n--\n\nLets no guest call the host any more." },
    { NULL, NULL, 0, NULL },
};

static PyModuleDef_Slot module_slots[] = { { Py_mod_exec, module_exec }, { 0, NULL } };

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "vlcs._core._native",
    .m_doc = "The only door between Python and libvlcs.so.",
    .m_size = sizeof(struct vlci_module),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

struct vlci_module *vlci_module_state(PyObject *module) { return PyModule_GetState(module); }

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
