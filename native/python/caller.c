/* The type Caller, which VLC is a subclass of: the short way into a guest, for functions that it finds by name and
 * plain values. Whatever else is asked goes the ordinary way, by the subclass's method _run. */
#include "call.h"
#include "door.h"

enum { KNOWN = 128 }; /* functions that are recognised without asking Python for their names */

/* A function that was called before. */
struct known {
    PyObject *reference; /* a weak one */
    PyObject *module;    /* names: str, and a tuple of str */
    PyObject *attributes;
    struct vlci_name *name;
};

struct caller_object {
    struct vlci_block block;
    struct vlci_realm *guest; /* NULL until it is connected, as all below */
    PyObject *interpreter;    /* keeps the guest's context */
    PyObject *decode;         /* decode(fn, payload, leases): the value of an answer, or raises */
    PyObject *find;      /* find(fn): (module, attributes), or None where it has no name to be found by */
    PyObject *names;     /* dict: what `find` gives, to the address of its vlci_name */
    PyObject *keep;      /* "keep" */
    PyObject *pickler;   /* "cloudpickle.cloudpickle" */
    PyObject *by_value;  /* its set of modules to be sent by value; NULL until it is imported */
    struct known *known; /* KNOWN, by address; a later one takes the place of an earlier */
};

static struct caller_object *cast(PyObject *self) { return (struct caller_object *)self; }

static void forget(struct known *known) {
    struct known gone = *known;
    *known = (struct known){ NULL, NULL, NULL, NULL };
    Py_XDECREF(gone.reference);
    Py_XDECREF(gone.module);
    Py_XDECREF(gone.attributes);
}

/* Whether the user has asked cloudpickle to send some modules by value; then `find` is asked each time. */
static bool some_go_by_value(struct caller_object *self) {
    if (!self->by_value) {
        PyObject *module = PyDict_GetItemWithError(PyImport_GetModuleDict(), self->pickler);
        if (!module) return false;
        self->by_value = PyObject_GetAttrString(module, "_PICKLE_BY_VALUE_MODULES");
        PyErr_Clear(); /* of another version, or being imported */
    }
    return !self->by_value || PyObject_Size(self->by_value) != 0;
}

/* Whether the function still is what its name stands for here. */
static bool is_current(PyObject *function, PyObject *module, PyObject *attributes) {
    PyObject *found = PyDict_GetItemWithError(PyImport_GetModuleDict(), module);
    Py_ssize_t count = PyTuple_Size(attributes);
    Py_XINCREF(found);
    for (Py_ssize_t i = 0; found && i < count; i++) {
        PyObject *outer = found;
        found = PyObject_GetAttr(outer, PyTuple_GetItem(attributes, i));
        Py_DECREF(outer);
    }
    if (!found) PyErr_Clear();
    Py_XDECREF(found);
    return found == function;
}

/* The guest's record of a name, made once. NULL: an exception is set. */
static struct vlci_name *name_of(struct caller_object *self, PyObject *names) {
    PyObject *address = PyDict_GetItemWithError(self->names, names);
    if (address) return PyLong_AsVoidPtr(address);
    if (PyErr_Occurred()) return NULL;
    PyObject *module, *attributes;
    if (!PyArg_ParseTuple(names, "UO!:find", &module, &PyTuple_Type, &attributes)) return NULL;
    struct vlci_name *name = vlci_name_new(self->guest, module, attributes);
    address = name ? PyLong_FromVoidPtr(name) : NULL;
    if (!address || PyDict_SetItem(self->names, names, address) < 0) name = NULL;
    Py_XDECREF(address);
    return name;
}

/* A tuple of str with its items interned, as the names of attributes are: found without comparing texts. */
static PyObject *intern_all(PyObject *texts) {
    Py_ssize_t count = PyTuple_Size(texts);
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple && i < count; i++) {
        PyObject *text = Py_NewRef(PyTuple_GetItem(texts, i));
        PyUnicode_InternInPlace(&text);
        if (PyTuple_SetItem(tuple, i, text) < 0) Py_CLEAR(tuple); /* which takes the text */
    }
    return tuple;
}

/* Asks Python. NULL: it has no name, or an exception is set. */
static struct vlci_name *learn(struct caller_object *self, PyObject *function, struct known *known) {
    PyObject *names = PyObject_CallFunctionObjArgs(self->find, function, NULL);
    struct vlci_name *name = names && names != Py_None ? name_of(self, names) : NULL;
    PyObject *attributes = name ? intern_all(PyTuple_GetItem(names, 1)) : NULL;
    PyObject *reference = attributes ? PyWeakref_NewRef(function, NULL) : NULL;
    if (reference) {
        PyObject *module = Py_NewRef(PyTuple_GetItem(names, 0));
        PyUnicode_InternInPlace(&module);
        forget(known);
        *known = (struct known){ reference, module, attributes, name };
    } else {
        Py_XDECREF(attributes);
    }
    Py_XDECREF(names);
    return reference ? name : NULL;
}

/* The name of a function as it is now. NULL: it has none, or an exception is set. */
static struct vlci_name *find_name(struct caller_object *self, PyObject *function) {
    struct known *known = &self->known[((uintptr_t)function >> 4) % KNOWN];
    struct vlci_name *name = known->name;
    if (!name || PyWeakref_GetObject(known->reference) != function) return learn(self, function, known);
    /* Held, since reading attributes may run code, which may call another function of this place. */
    PyObject *module = Py_NewRef(known->module), *attributes = Py_NewRef(known->attributes);
    bool current = !some_go_by_value(self) && is_current(function, module, attributes);
    Py_DECREF(module);
    Py_DECREF(attributes);
    return current ? name : learn(self, function, known);
}

/* self._run(function, args, kwargs). */
static PyObject *go_ordinary(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    Py_ssize_t named = names ? PyTuple_Size(names) : 0;
    PyObject *tuple = PyTuple_New(count - 1), *dict = PyDict_New();
    bool packed = tuple && dict;
    for (Py_ssize_t i = 1; packed && i < count; i++)
        packed = PyTuple_SetItem(tuple, i - 1, Py_NewRef(args[i])) == 0;
    for (Py_ssize_t i = 0; packed && i < named; i++)
        packed = PyDict_SetItem(dict, PyTuple_GetItem(names, i), args[count + i]) == 0;
    PyObject *result = packed ? PyObject_CallMethod(self, "_run", "OOO", args[0], tuple, dict) : NULL;
    Py_XDECREF(dict);
    Py_XDECREF(tuple);
    return result;
}

/* Whether `keep=` is among the names: that is ours. */
static bool is_told_to_keep(const struct caller_object *self, PyObject *names) {
    Py_ssize_t count = names ? PyTuple_Size(names) : 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        if (name == self->keep || PyUnicode_Compare(name, self->keep) == 0) return true;
    }
    return false;
}

/* run(function, *args, **kwargs). */
static PyObject *caller_run(PyObject *object, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    struct caller_object *self = cast(object);
    if (count < 1) {
        PyErr_SetString(PyExc_TypeError, "run() missing 1 required positional argument: 'fn'");
        return NULL;
    }
    bool short_way = self->guest && !is_told_to_keep(self, names);
    struct vlci_name *name = short_way ? find_name(self, args[0]) : NULL;
    if (!name && PyErr_Occurred()) return NULL;
    struct vlci_stay stay;
    if (!name || !vlci_door_enter(self->block.gate, &stay, args[0]))
        return go_ordinary(object, args, count, names);
    Py_ssize_t named = names ? PyTuple_Size(names) : 0;
    PyObject *result;
    enum vlci_outcome outcome =
        vlci_call_function(self->guest, name, (vlci_object *const *)args + 1, count - 1 + named,
                           (vlci_object *)names, (vlci_object **)&result);
    if (outcome == VLCI_ANSWER) {
        PyObject *answer = result;
        result = PyObject_CallFunction(self->decode, "OOO", args[0], PyTuple_GetItem(answer, 0),
                                       PyTuple_GetItem(answer, 1));
        Py_DECREF(answer);
    }
    vlci_door_leave(&stay);
    if (outcome == VLCI_NOT_PLAIN) return go_ordinary(object, args, count, names);
    return outcome == VLCI_FAILED ? NULL : result;
}

static PyObject *caller_connect(PyObject *object, PyTypeObject *class, PyObject *const *args,
                                Py_ssize_t count, PyObject *names) {
    struct caller_object *self = cast(object);
    const struct vlci_module *module = PyType_GetModuleState(class);
    if (count != 3 || names || self->guest || !self->block.gate ||
        !PyObject_TypeCheck(self->block.gate, (PyTypeObject *)module->door_type) ||
        !PyObject_TypeCheck(args[0], (PyTypeObject *)module->interpreter_type)) {
        PyErr_SetString(PyExc_TypeError, "_connect(interpreter, decode, find), once there is a gate");
        return NULL;
    }
    self->names = PyDict_New();
    self->pickler = PyUnicode_InternFromString("cloudpickle.cloudpickle");
    self->keep = PyUnicode_InternFromString("keep");
    self->known = PyMem_Calloc(KNOWN, sizeof *self->known);
    if (!self->names || !self->pickler || !self->keep || !self->known) return PyErr_NoMemory();
    self->interpreter = Py_NewRef(args[0]);
    self->decode = Py_NewRef(args[1]);
    self->find = Py_NewRef(args[2]);
    self->guest = vlci_interpreter_realm(args[0]);
    vlci_realm_retain(self->guest);
    self->guest->vlc = PyWeakref_NewRef(object, NULL);
    if (!self->guest->vlc) return NULL;
    Py_RETURN_NONE;
}

static int caller_traverse(PyObject *object, visitproc visit, void *arg) {
    struct caller_object *self = cast(object);
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->interpreter);
    Py_VISIT(self->block.gate);
    Py_VISIT(self->decode);
    Py_VISIT(self->find);
    return 0;
}

static int caller_clear(PyObject *object) {
    struct caller_object *self = cast(object);
    struct vlci_realm *guest = self->guest;
    self->guest = NULL; /* calls go the ordinary way from here on */
    if (guest) {
        Py_CLEAR(guest->vlc);
        vlci_realm_release(guest);
    }
    Py_CLEAR(self->interpreter);
    Py_CLEAR(self->block.gate);
    Py_CLEAR(self->decode);
    Py_CLEAR(self->find);
    return 0;
}

static void caller_dealloc(PyObject *object) {
    struct caller_object *self = cast(object);
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    caller_clear(object);
    for (size_t i = 0; self->known && i < KNOWN; i++) forget(&self->known[i]);
    PyMem_Free(self->known);
    Py_XDECREF(self->names);
    Py_XDECREF(self->pickler);
    Py_XDECREF(self->keep);
    Py_XDECREF(self->by_value);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static const char run_text[] =
    "run($self, fn, /, *args, **kwargs)\n--\n\n"
    "Calls `fn(*args, **kwargs)` in the context's interpreter, on this thread, and gives its result.\n"
    "\n"
    "In a resident context, on a thread of the context that stands for this one, the same in every call.\n"
    "The thread runs on the slice's CPUs meanwhile. Functions that can be imported cross by name (their\n"
    "module is imported in the context); others, and those of `__main__`, by cloudpickle. NumPy\n"
    "arrays, memoryview, bytearray, array.array, mmap and CPU tensors of PyTorch are shared both ways, not\n"
    "copied: writes are seen by both sides (`docs/values.md`). Everything else is copied, also `bytes`,\n"
    "arrays of objects and subclasses of arrays. A function of one of the context's libraries\n"
    "(`load_library`) is called as it is.\n"
    "\n"
    "With `keep=True` the result stays in the context, and a RemoteObject that stands for it comes. That\n"
    "keyword is never passed to `fn`: for one that has a parameter of that name, use functools.partial.\n"
    "\n"
    "Ctrl-C on the main thread interrupts Python code there, at its next bytecode. A C function that blocks\n"
    "or computes, `time.sleep` too, ends first; and the host's Python waits meanwhile, so handlers\n"
    "of other signals, and handlers of your own for Ctrl-C (asyncio's too), run when the call returns.\n"
    "For what must be answered at once, use `submit` and wait for the future.\n"
    "\n"
    "Raises:\n"
    "    StateError: The context is closed.\n"
    "    PicklingError: An argument, or the result, cannot cross.\n"
    "    RemoteError: `fn` raised what cannot be rebuilt here. Other exceptions of `fn` come as\n"
    "        they are, with the traceback of the context attached.\n";

PyObject *vlci_caller_type_new(PyObject *module, PyObject *block_type) {
    static PyMethodDef methods[] = {
        { "run", (PyCFunction)(void (*)(void))caller_run, METH_FASTCALL | METH_KEYWORDS, run_text },
        { "_connect", (PyCFunction)(void (*)(void))caller_connect,
          METH_METHOD | METH_FASTCALL | METH_KEYWORDS,
          "_connect($self, interpreter, decode, find, /)\n--\n\nOpens the short way." },
        { NULL, NULL, 0, NULL },
    };
    static PyType_Slot slots[] = {
        { Py_tp_doc, "What calls functions of an interpreter." },
        { Py_tp_dealloc, caller_dealloc },
        { Py_tp_traverse, caller_traverse },
        { Py_tp_clear, caller_clear },
        { Py_tp_methods, methods },
        { 0, NULL },
    };
    static PyType_Spec spec = {
        .name = "vlcs._core._native.Caller",
        .basicsize = sizeof(struct caller_object),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
        .slots = slots,
    };
    return PyType_FromModuleAndSpec(module, &spec, block_type);
}
