/* The type Context: a vlc_context. */
#include "native.h"

#include <stdlib.h>

#include "closing.h"
#include "fork.h"
#include "status.h"

static struct vlci_context_object *cast(PyObject *self) { return (struct vlci_context_object *)self; }

vlc_context *vlci_context_use(struct vlci_context_object *self) {
    if (!self->context || self->closed) {
        vlc_error error = VLC_ERROR_INIT;
        const char *name = PyUnicode_AsUTF8AndSize(self->name, NULL);
        vlci_refuse(&error, VLC_MISUSE, name, "cannot use the context '%s': it is closed. Make another.",
                    name);
        vlci_raise(&error);
        return NULL;
    }
    self->uses++;
    self->used = true;
    return self->context;
}

void vlci_context_unuse(struct vlci_context_object *self) { self->uses--; }

/* Where a context still answers although it is closed (its figures, leave). */
static vlc_context *reach(PyObject *self) {
    if (!cast(self)->context) {
        vlc_error error = VLC_ERROR_INIT;
        const char *name = PyUnicode_AsUTF8AndSize(cast(self)->name, NULL);
        vlci_refuse(&error, VLC_MISUSE, name,
                    "cannot ask the context '%s': it is destroyed, and its figures with it.", name);
        vlci_raise(&error);
    }
    return cast(self)->context;
}

PyObject *vlci_number_list(const uint32_t *numbers, size_t count) {
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *number = PyLong_FromUnsignedLong(numbers[i]);
        if (!number || PyList_Append(list, number) < 0) Py_CLEAR(list);
        Py_XDECREF(number);
    }
    return list;
}

static PyObject *none_or_raise(int status, const vlc_error *error) {
    if (status != VLC_OK) return vlci_raise(error);
    Py_RETURN_NONE;
}

/* A sequence of numbers of CPUs or nodes as an array to be given to PyMem_Free. -1: an exception is set. */
static int number_array(PyObject *sequence, uint32_t **numbers, size_t *count) {
    Py_ssize_t size = PySequence_Size(sequence);
    if (size < 0) return -1;
    *numbers = PyMem_Calloc((size_t)size + 1, sizeof **numbers);
    if (!*numbers) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *item = PySequence_GetItem(sequence, i);
        unsigned long number = item ? PyLong_AsUnsignedLong(item) : 0;
        Py_XDECREF(item);
        if (!PyErr_Occurred() && number > UINT32_MAX)
            PyErr_Format(PyExc_OverflowError, "%lu does not fit 32 bits", number);
        if (PyErr_Occurred()) {
            PyMem_Free(*numbers);
            *numbers = NULL;
            return -1;
        }
        (*numbers)[i] = (uint32_t)number;
    }
    *count = (size_t)size;
    return 0;
}

/* None is NULL, none at all. */
static int optional_array(PyObject *sequence, uint32_t **numbers, size_t *count) {
    return sequence == Py_None ? 0 : number_array(sequence, numbers, count);
}

/* A sequence of str as a NULL-ended array of bytes in the file system's encoding; `keep` holds them. */
static const char **string_array(PyObject *sequence, PyObject **keep) {
    Py_ssize_t size = PySequence_Size(sequence);
    *keep = size < 0 ? NULL : PyList_New(0);
    const char **strings = *keep ? PyMem_Calloc((size_t)size + 1, sizeof *strings) : NULL;
    if (*keep && !strings) PyErr_NoMemory();
    for (Py_ssize_t i = 0; strings && i < size; i++) {
        PyObject *item = PySequence_GetItem(sequence, i);
        PyObject *bytes = NULL;
        if (!item || !PyUnicode_FSConverter(item, &bytes) || PyList_Append(*keep, bytes) < 0) {
            PyMem_Free(strings);
            strings = NULL;
        } else {
            strings[i] = PyBytes_AsString(bytes);
        }
        Py_XDECREF(bytes);
        Py_XDECREF(item);
    }
    if (!strings) Py_CLEAR(*keep);
    return strings;
}

static PyObject *context_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = { "name",   "cpus",      "env",          "share",      "threads",
                             "heap",   "residence", "scheduling",   "nice",       "groups",
                             "memory", "nodes",     "memory_limit", "huge_pages", NULL };
    const char *name;
    PyObject *cpus, *env, *share, *nice, *groups, *nodes;
    unsigned threads, heap, residence, scheduling, memory, huge_pages;
    unsigned long long memory_limit;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$zOOOIIIIOOIOKI:Context", names, &name, &cpus, &env,
                                     &share, &threads, &heap, &residence, &scheduling, &nice, &groups,
                                     &memory, &nodes, &memory_limit, &huge_pages))
        return NULL;

    vlc_spec spec = VLC_SPEC_INIT;
    vlc_error error = VLC_ERROR_INIT;
    uint32_t *cpu_numbers = NULL, *node_numbers = NULL;
    PyObject *kept_env = NULL, *kept_share = NULL, *kept_groups = NULL;
    const char **env_strings = string_array(env, &kept_env);
    const char **share_strings = env_strings ? string_array(share, &kept_share) : NULL;
    const char **group_strings = share_strings ? string_array(groups, &kept_groups) : NULL;
    spec.sets_nice = nice != Py_None;
    spec.nice = spec.sets_nice ? (int32_t)PyLong_AsLong(nice) : 0;
    PyObject *self = NULL;
    if (group_strings && !PyErr_Occurred() && optional_array(cpus, &cpu_numbers, &spec.cpu_count) == 0 &&
        optional_array(nodes, &node_numbers, &spec.node_count) == 0) {
        spec.memory = memory;
        spec.nodes = node_numbers;
        spec.memory_limit = memory_limit;
        spec.huge_pages = huge_pages;
        spec.threads = threads;
        spec.heap = heap;
        spec.residence = residence;
        spec.scheduling = scheduling;
        spec.groups = group_strings;
        spec.name = name;
        spec.cpus = cpu_numbers;
        spec.env = env_strings;
        spec.share = share_strings;
        allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
        self = allocate(type, 0);
    }
    if (self) {
        int status;
        Py_BEGIN_ALLOW_THREADS status = vlc_create(&spec, &cast(self)->context, &error);
        Py_END_ALLOW_THREADS if (status == VLC_OK) {
            vlc_stats stats = VLC_STATS_INIT;
            if (vlc_get_stats(cast(self)->context, &stats, &error) == VLC_OK)
                cast(self)->resident = stats.resident;
            cast(self)->name = PyUnicode_FromString(vlc_name(cast(self)->context));
        }
        else {
            vlci_raise(&error);
        }
        vlci_fork_start();
        if (!cast(self)->name) Py_CLEAR(self);
    }
    PyMem_Free(cpu_numbers);
    PyMem_Free(group_strings);
    PyMem_Free(node_numbers);
    PyMem_Free(share_strings);
    PyMem_Free(env_strings);
    Py_XDECREF(kept_groups);
    Py_XDECREF(kept_share);
    Py_XDECREF(kept_env);
    return self;
}

/* A context that nobody destroyed stays open until exit(): closing it here could wait for seconds, in
 * whatever code dropped the last reference. One that nobody has used goes: an exception of a signal handler
 * can arrive before the caller has stored it. */
static void context_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    vlc_error error = VLC_ERROR_INIT;
    if (cast(self)->context && !cast(self)->used) vlc_destroy(cast(self)->context, 0, &error);
    if (cast(self)->guest) vlci_realm_release(cast(self)->guest);
    Py_XDECREF(cast(self)->name);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *context_load(PyObject *self, PyObject *args) {
    PyObject *file = NULL;
    int flags;
    if (!PyArg_ParseTuple(args, "O&i:load", PyUnicode_FSConverter, &file, &flags)) return NULL;
    PyObject *result = NULL;
    vlc_context *context = vlci_context_use(cast(self));
    if (context) {
        vlc_library *library;
        vlc_error error = VLC_ERROR_INIT;
        const char *path = PyBytes_AsString(file);
        int status;
        Py_BEGIN_ALLOW_THREADS status = vlc_load(context, path, flags, &library, &error);
        Py_END_ALLOW_THREADS vlci_context_unuse(cast(self));
        result = status == VLC_OK ? PyLong_FromVoidPtr(library) : vlci_raise(&error);
    }
    Py_DECREF(file);
    return result;
}

static PyObject *context_symbol(PyObject *self, PyObject *args) {
    PyObject *handle;
    const char *name;
    if (!PyArg_ParseTuple(args, "Os:symbol", &handle, &name)) return NULL;
    vlc_library *library = PyLong_AsVoidPtr(handle);
    if (!library && PyErr_Occurred()) return NULL;
    vlc_context *context = vlci_context_use(cast(self));
    if (!context) return NULL;
    void *address;
    vlc_error error = VLC_ERROR_INIT;
    int status;
    Py_BEGIN_ALLOW_THREADS status = vlc_symbol(context, library, name, &address, &error);
    Py_END_ALLOW_THREADS vlci_context_unuse(cast(self));
    return status == VLC_OK ? PyLong_FromVoidPtr(address) : vlci_raise(&error);
}

static PyObject *context_wrap(PyObject *self, PyObject *address) {
    void *function = PyLong_AsVoidPtr(address);
    if (!function && PyErr_Occurred()) return NULL;
    vlc_context *context = vlci_context_use(cast(self));
    if (!context) return NULL;
    void *wrapped;
    vlc_error error = VLC_ERROR_INIT;
    int status = vlc_wrap(context, function, &wrapped, &error); /* short, so with the GIL */
    vlci_context_unuse(cast(self));
    return status == VLC_OK ? PyLong_FromVoidPtr(wrapped) : vlci_raise(&error);
}

/* A resident context is entered call by call, so there is nothing for a block to enter. */
static PyObject *context_enter(PyObject *self, PyObject *unused) {
    (void)unused;
    vlc_context *context = vlci_context_use(cast(self));
    if (!context) return NULL;
    if (cast(self)->resident) {
        vlci_context_unuse(cast(self));
        Py_RETURN_NONE;
    }
    vlc_error error = VLC_ERROR_INIT;
    int status;
    Py_BEGIN_ALLOW_THREADS status = vlc_enter(context, &error);
    Py_END_ALLOW_THREADS vlci_context_unuse(cast(self));
    return none_or_raise(status, &error);
}

static PyObject *context_leave(PyObject *self, PyObject *unused) {
    (void)unused;
    vlc_context *context = reach(self);
    if (!context) return NULL;
    if (cast(self)->resident) Py_RETURN_NONE;
    vlc_error error = VLC_ERROR_INIT;
    int status;
    cast(self)->uses++;
    Py_BEGIN_ALLOW_THREADS status = vlc_leave(context, &error);
    Py_END_ALLOW_THREADS vlci_context_unuse(cast(self));
    return none_or_raise(status, &error);
}

/* A host callable on a thread of the pool. */
static void *run_callable(void *argument) {
    PyObject *function = argument;
    struct vlci_realm *host = vlci_host();
    vlc_error closed = VLC_ERROR_INIT;
    if (vlci_realm_begin(host, &closed) != VLC_OK)
        return NULL; /* the host is at its end; the reference goes with it */
    vlci_attach(host);
    PyObject *result = PyObject_CallNoArgs(function);
    if (!result) PyErr_WriteUnraisable(function);
    Py_XDECREF(result);
    Py_DECREF(function);
    vlci_detach(host);
    vlci_realm_end(host);
    return NULL;
}

static PyObject *context_submit(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = { "function", "thread", NULL };
    PyObject *function;
    int thread = -1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|i:submit", names, &function, &thread)) return NULL;
    vlc_context *context = vlci_context_use(cast(self));
    if (!context) return NULL;
    vlc_error error = VLC_ERROR_INIT;
    int status;
    Py_INCREF(function); /* run_callable's */
    Py_BEGIN_ALLOW_THREADS status =
        thread < 0 ? vlc_submit(context, run_callable, function, NULL, &error)
                   : vlc_submit_on(context, (uint32_t)thread, run_callable, function, NULL, &error);
    Py_END_ALLOW_THREADS vlci_context_unuse(cast(self));
    if (status != VLC_OK) Py_DECREF(function);
    return none_or_raise(status, &error);
}

static PyObject *context_call_address(PyObject *self, PyObject *args) {
    PyObject *address, *argument;
    if (!PyArg_ParseTuple(args, "OO:call_address", &address, &argument)) return NULL;
    void *function = PyLong_AsVoidPtr(address);
    void *pointer = function || !PyErr_Occurred() ? PyLong_AsVoidPtr(argument) : NULL;
    if (PyErr_Occurred()) return NULL;
    vlc_context *context = vlci_context_use(cast(self));
    if (!context) return NULL;
    void *result = NULL;
    vlc_error error = VLC_ERROR_INIT;
    int status;
    Py_BEGIN_ALLOW_THREADS status = vlc_run(context, (vlc_function)function, pointer, &result, &error);
    Py_END_ALLOW_THREADS vlci_context_unuse(cast(self));
    return status == VLC_OK ? PyLong_FromVoidPtr(result) : vlci_raise(&error);
}

static PyObject *context_resize(PyObject *self, PyObject *cpus) {
    uint32_t *numbers;
    size_t count;
    if (number_array(cpus, &numbers, &count) < 0) return NULL;
    PyObject *result = NULL;
    vlc_context *context = vlci_context_use(cast(self));
    if (context) {
        vlc_error error = VLC_ERROR_INIT;
        int status;
        Py_BEGIN_ALLOW_THREADS status = vlc_resize(context, numbers, count, &error);
        Py_END_ALLOW_THREADS vlci_context_unuse(cast(self));
        result = none_or_raise(status, &error);
    }
    PyMem_Free(numbers);
    return result;
}

static PyObject *context_cpus(PyObject *self, PyObject *unused) {
    (void)unused;
    vlc_context *context = reach(self);
    if (!context) return NULL;
    size_t capacity = vlc_cpus(context, NULL, 0), count;
    uint32_t *numbers = PyMem_Calloc(capacity + 1, sizeof *numbers);
    if (!numbers) return PyErr_NoMemory();
    count = vlc_cpus(context, numbers, capacity);
    PyObject *list = vlci_number_list(numbers, count < capacity ? count : capacity);
    PyMem_Free(numbers);
    return list;
}

static PyObject *context_set_memory(PyObject *self, PyObject *args) {
    unsigned memory;
    PyObject *nodes;
    uint32_t *numbers = NULL;
    size_t count = 0;
    if (!PyArg_ParseTuple(args, "IO:set_memory", &memory, &nodes) ||
        optional_array(nodes, &numbers, &count) < 0)
        return NULL;
    PyObject *result = NULL;
    vlc_context *context = vlci_context_use(cast(self));
    if (context) {
        vlc_error error = VLC_ERROR_INIT;
        int status;
        Py_BEGIN_ALLOW_THREADS status = vlc_set_memory(context, memory, numbers, count, &error);
        Py_END_ALLOW_THREADS vlci_context_unuse(cast(self));
        result = none_or_raise(status, &error);
    }
    PyMem_Free(numbers);
    return result;
}

static PyObject *context_memory(PyObject *self, PyObject *unused) {
    (void)unused;
    vlc_context *context = reach(self);
    if (!context) return NULL;
    uint32_t nodes[VLC_NODES];
    size_t count;
    unsigned memory = vlc_memory_policy(context, nodes, VLC_NODES, &count);
    return Py_BuildValue("(IN)", memory, vlci_number_list(nodes, count));
}

static PyObject *context_migrate_memory(PyObject *self, PyObject *unused) {
    (void)unused;
    vlc_context *context = vlci_context_use(cast(self));
    if (!context) return NULL;
    vlc_error error = VLC_ERROR_INIT;
    uint64_t moved = 0, left = 0;
    int status;
    Py_BEGIN_ALLOW_THREADS status = vlc_migrate_memory(context, &moved, &left, &error);
    Py_END_ALLOW_THREADS vlci_context_unuse(cast(self));
    if (status != VLC_OK) return vlci_raise(&error);
    return Py_BuildValue("(KK)", (unsigned long long)moved, (unsigned long long)left);
}

static PyObject *context_memory_nodes(PyObject *self, PyObject *unused) {
    (void)unused;
    vlc_context *context = vlci_context_use(cast(self));
    if (!context) return NULL;
    vlc_error error = VLC_ERROR_INIT;
    uint64_t bytes[VLC_NODES];
    int status;
    Py_BEGIN_ALLOW_THREADS status = vlc_memory_nodes(context, bytes, VLC_NODES, &error);
    Py_END_ALLOW_THREADS vlci_context_unuse(cast(self));
    if (status != VLC_OK) return vlci_raise(&error);
    PyObject *dict = PyDict_New();
    for (size_t node = 0; dict && node < VLC_NODES; node++) {
        if (!bytes[node]) continue;
        PyObject *number = PyLong_FromSize_t(node), *value = PyLong_FromUnsignedLongLong(bytes[node]);
        if (!number || !value || PyDict_SetItem(dict, number, value) < 0) Py_CLEAR(dict);
        Py_XDECREF(number);
        Py_XDECREF(value);
    }
    return dict;
}

static PyObject *context_set_memory_limit(PyObject *self, PyObject *limit) {
    unsigned long long bytes = PyLong_AsUnsignedLongLong(limit);
    if (PyErr_Occurred()) return NULL;
    vlc_context *context = vlci_context_use(cast(self));
    if (!context) return NULL;
    vlc_error error = VLC_ERROR_INIT;
    int status = vlc_set_memory_limit(context, bytes, &error);
    vlci_context_unuse(cast(self));
    return none_or_raise(status, &error);
}

static PyObject *context_threads(PyObject *self, PyObject *unused) {
    (void)unused;
    vlc_context *context = reach(self);
    if (!context) return NULL;
    size_t capacity = vlc_threads(context, NULL, 0) + 16, count; /* some may be born meanwhile */
    int32_t *ids = PyMem_Calloc(capacity, sizeof *ids);
    if (!ids) return PyErr_NoMemory();
    count = vlc_threads(context, ids, capacity);
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < count && i < capacity; i++) {
        PyObject *number = PyLong_FromLong(ids[i]);
        if (!number || PyList_Append(list, number) < 0) Py_CLEAR(list);
        Py_XDECREF(number);
    }
    PyMem_Free(ids);
    return list;
}

static PyObject *context_libraries(PyObject *self, PyObject *unused) {
    (void)unused;
    vlc_context *context = reach(self);
    PyObject *list = context ? PyList_New(0) : NULL;
    const char *path;
    for (size_t i = 0; list && (path = vlc_library_path(context, i)); i++) {
        PyObject *text = PyUnicode_DecodeFSDefault(path);
        if (!text || PyList_Append(list, text) < 0) Py_CLEAR(list);
        Py_XDECREF(text);
    }
    return list;
}

static PyObject *context_control(PyObject *self, PyObject *args) {
    const char *library;
    PyObject *functions[2];
    unsigned most;
    void *addresses[2];
    if (!PyArg_ParseTuple(args, "sOOI:control", &library, &functions[0], &functions[1], &most)) return NULL;
    for (int i = 0; i < 2; i++) {
        addresses[i] = PyLong_AsVoidPtr(functions[i]);
        if (!addresses[i] && PyErr_Occurred()) return NULL;
    }
    vlc_context *context = vlci_context_use(cast(self));
    if (!context) return NULL;
    vlc_error error = VLC_ERROR_INIT;
    int status;
    Py_BEGIN_ALLOW_THREADS status =
        vlc_control(context, library, (int (*)(void))addresses[0], (void (*)(int))addresses[1], most, &error);
    Py_END_ALLOW_THREADS vlci_context_unuse(cast(self));
    return none_or_raise(status, &error);
}

static PyObject *context_pools(PyObject *self, PyObject *unused) {
    (void)unused;
    vlc_context *context = reach(self);
    PyObject *list = context ? PyList_New(0) : NULL;
    vlc_pool pool = VLC_POOL_INIT;
    for (size_t i = 0; list && vlc_get_pool(context, i, &pool); i++) {
        PyObject *path = PyUnicode_DecodeFSDefault(pool.path);
        PyObject *item =
            path ? Py_BuildValue("sOII", pool.library, path, (unsigned)pool.state, (unsigned)pool.threads)
                 : NULL;
        if (!item || PyList_Append(list, item) < 0) Py_CLEAR(list);
        Py_XDECREF(item);
        Py_XDECREF(path);
    }
    return list;
}

static PyObject *context_stats(PyObject *self, PyObject *unused) {
    (void)unused;
    vlc_context *context = reach(self);
    if (!context) return NULL;
    vlc_stats stats = VLC_STATS_INIT;
    vlc_error error = VLC_ERROR_INIT;
    int status;
    cast(self)->uses++;
    Py_BEGIN_ALLOW_THREADS status = vlc_get_stats(context, &stats, &error);
    Py_END_ALLOW_THREADS vlci_context_unuse(cast(self));
    if (status != VLC_OK) return vlci_raise(&error);
    const struct {
        const char *name;
        unsigned long long value;
    } figures[] = {
        { "threads", stats.threads },
        { "visitors", stats.visitors },
        { "libraries", stats.libraries },
        { "cpu_time", stats.cpu_time },
        { "voluntary_switches", stats.voluntary_switches },
        { "involuntary_switches", stats.involuntary_switches },
        { "heap_bytes", stats.heap_bytes },
        { "mapped_bytes", stats.mapped_bytes },
        { "heap_used", stats.heap_used },
        { "memory_bytes", stats.memory_bytes },
        { "memory_peak", stats.memory_peak },
        { "memory_limit", stats.memory_limit },
        { "library_bytes", stats.library_bytes },
        { "static_tls_bytes", stats.static_tls_bytes },
        { "lookups", stats.lookups },
        { "cached", stats.cached },
        { "keys", stats.keys },
        { "resident", stats.resident },
        { "static_tls_left", stats.static_tls_left },
    };
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict && i < sizeof figures / sizeof figures[0]; i++) {
        PyObject *value = PyLong_FromUnsignedLongLong(figures[i].value);
        if (!value || PyDict_SetItemString(dict, figures[i].name, value) < 0) Py_CLEAR(dict);
        Py_XDECREF(value);
    }
    return dict;
}

static PyObject *context_after_fork(PyObject *self, PyObject *unused) {
    (void)unused;
    cast(self)->uses = 0; /* of threads that are not here */
    return PyBool_FromLong(cast(self)->context && cast(self)->guest &&
                           cast(self)->guest == vlci_fork_guest());
}

static PyObject *context_destroy(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = { "timeout_ms", "abandon", NULL };
    int timeout_ms = -1, abandon = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|ip:destroy", names, &timeout_ms, &abandon)) return NULL;
    if (vlci_close(cast(object), timeout_ms, abandon) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *context_get_resident(PyObject *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(cast(self)->resident);
}

static PyObject *context_get_name(PyObject *self, void *unused) {
    (void)unused;
    return Py_NewRef(cast(self)->name);
}

PyObject *vlci_context_type_new(PyObject *module) {
    static PyMethodDef methods[] = {
        { "load", context_load, METH_VARARGS, "load(file, flags)\n--\n\nLoads a library; gives its handle." },
        { "symbol", context_symbol, METH_VARARGS,
          "symbol(library, name)\n--\n\nAddress of a symbol; library 0 means the context's global scope." },
        { "wrap", context_wrap, METH_O,
          "wrap(address)\n--\n\nAddress that enters the context and calls the function." },
        { "enter", context_enter, METH_NOARGS, "enter()\n--\n\nEnters the context on this thread." },
        { "leave", context_leave, METH_NOARGS, "leave()\n--\n\nLeaves it again." },
        { "submit", (PyCFunction)(void (*)(void))context_submit, METH_VARARGS | METH_KEYWORDS,
          "submit(function, thread=-1)\n--\n\nRuns a host callable on a thread of the context's pool, inside "
          "the "
          "context, with the host's GIL." },
        { "call_address", context_call_address, METH_VARARGS,
          "call_address(address, argument)\n--\n\nRuns a native void *(*)(void *) on this thread, without "
          "the GIL." },
        { "resize", context_resize, METH_O, "resize(cpus)\n--\n\nGives the context other CPUs." },
        { "cpus", context_cpus, METH_NOARGS, "cpus()\n--\n\nThe CPUs of its slice, ascending." },
        { "set_memory", context_set_memory, METH_VARARGS,
          "set_memory(memory, nodes)\n--\n\nGives the context another policy of memory." },
        { "memory", context_memory, METH_NOARGS, "memory()\n--\n\nThe policy in force, and its nodes." },
        { "migrate_memory", context_migrate_memory, METH_NOARGS,
          "migrate_memory()\n--\n\nMoves pages to the policy's nodes: bytes moved, and left elsewhere." },
        { "memory_nodes", context_memory_nodes, METH_NOARGS,
          "memory_nodes()\n--\n\nBytes that were touched, by node." },
        { "set_memory_limit", context_set_memory_limit, METH_O,
          "set_memory_limit(limit)\n--\n\nBytes; 0: no limit." },
        { "threads", context_threads, METH_NOARGS, "threads()\n--\n\nIds of its living threads." },
        { "libraries", context_libraries, METH_NOARGS,
          "libraries()\n--\n\nPaths of its libraries, as loaded." },
        { "control", context_control, METH_VARARGS,
          "control(library, getter, setter, most)\n--\n\n`vlc_control`, with the addresses of the "
          "functions." },
        { "pools", context_pools, METH_NOARGS,
          "pools()\n--\n\nLibraries with pools: (name, path, state, threads)." },
        { "stats", context_stats, METH_NOARGS, "stats()\n--\n\nThe figures of vlc_stats." },
        { "after_fork", context_after_fork, METH_NOARGS,
          "after_fork()\n--\n\nIn a forked child: whether it lives on there, as it was its interpreter that "
          "forked." },
        { "destroy", (PyCFunction)(void (*)(void))context_destroy, METH_VARARGS | METH_KEYWORDS,
          "destroy(timeout_ms=-1, abandon=False)\n--\n\nEnds the interpreter, then the context. Again: "
          "nothing.\n\nWaits for calls and threads, 5 s each where timeout_ms is negative; BusyError where "
          "they do not end. While arrays of the interpreter are held outside, the rest goes by itself with "
          "the last of them; abandon=True finalises the interpreter all the same, and its memory stays." },
        { NULL, NULL, 0, NULL },
    };
    static PyGetSetDef members[] = {
        { "name", context_get_name, NULL, "Unique among open contexts.", NULL },
        { "resident", context_get_resident, NULL, "Whether its code runs on threads of its own only.", NULL },
        { NULL, NULL, NULL, NULL, NULL },
    };
    static PyType_Slot slots[] = {
        { Py_tp_doc, "A vlc_context. Methods release the GIL while they wait or load." },
        { Py_tp_new, context_new },
        { Py_tp_dealloc, context_dealloc },
        { Py_tp_methods, methods },
        { Py_tp_getset, members },
        { 0, NULL },
    };
    static PyType_Spec spec = {
        .name = "vlcs._core._native.Context",
        .basicsize = sizeof(struct vlci_context_object),
        .flags = Py_TPFLAGS_DEFAULT,
        .slots = slots,
    };
    return PyType_FromModuleAndSpec(module, &spec, NULL);
}
