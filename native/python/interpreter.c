/* The type Interpreter: a private CPython in a context. */
#include "native.h"

#include <stdlib.h>

#include "call.h"
#include "guest.h"
#include "interrupt.h"
#include "lease.h"
#include "status.h"

struct interpreter_object {
    PyObject_HEAD struct vlci_realm *realm;
    PyObject *context; /* keeps the realm's context */
    PyObject *version;
};

static struct interpreter_object *cast(PyObject *self) { return (struct interpreter_object *)self; }

/* Texts of a sequence of str; `keep` holds their bytes. -1: an exception is set. */
static int text_array(PyObject *sequence, struct vlci_text **texts, Py_ssize_t *count, PyObject **keep) {
    *count = PySequence_Size(sequence);
    if (*count < 0) return -1;
    *keep = PyList_New(0);
    *texts = *keep ? PyMem_Calloc((size_t)*count + 1, sizeof **texts) : NULL;
    if (!*texts) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < *count; i++) {
        PyObject *item = PySequence_GetItem(sequence, i);
        PyObject *bytes = item ? PyUnicode_AsEncodedString(item, "utf-8", "surrogatepass") : NULL;
        char *data;
        int result = bytes ? PyList_Append(*keep, bytes) : -1;
        if (result == 0) result = PyBytes_AsStringAndSize(bytes, &data, &(*texts)[i].size);
        if (result == 0) (*texts)[i].bytes = data;
        Py_XDECREF(bytes);
        Py_XDECREF(item);
        if (result < 0) return -1;
    }
    return 0;
}

static void free_wide(wchar_t **texts) {
    for (wchar_t **text = texts; text && *text; text++) PyMem_Free(*text);
    PyMem_Free(texts);
}

/* The texts of a list of str, to be given to free_wide; ends with NULL. NULL: an exception is set. */
static wchar_t **wide_array(PyObject *sequence) {
    Py_ssize_t size = PySequence_Size(sequence);
    wchar_t **texts = size < 0 ? NULL : PyMem_Calloc((size_t)size + 1, sizeof *texts);
    if (size >= 0 && !texts) PyErr_NoMemory();
    for (Py_ssize_t i = 0; texts && i < size; i++) {
        PyObject *item = PySequence_GetItem(sequence, i);
        texts[i] = item ? PyUnicode_AsWideCharString(item, NULL) : NULL;
        Py_XDECREF(item);
        if (!texts[i]) {
            free_wide(texts);
            return NULL;
        }
    }
    return texts;
}

/* The host's sys.flags. */
static void read_flags(int *flags) {
#define MEMBER(member, datum) #member,
    static const char *const members[] = { VLCI_FLAGS(MEMBER) };
    PyObject *all = PySys_GetObject("flags"); /* borrowed */
    for (int i = 0; all && i < VLCI_FLAG_COUNT; i++) {
        /* Interned: CPython's cache of attributes goes by the name's address, and keeps each new name. */
        PyObject *name = PyUnicode_InternFromString(members[i]);
        PyObject *flag = name ? PyObject_GetAttr(all, name) : NULL;
        flags[i] = flag ? (int)PyLong_AsLong(flag) : 0;
        Py_XDECREF(flag);
        Py_XDECREF(name);
        PyErr_Clear();
    }
}

/* Has the home thread run `start`; the birth's status and error tell how that went. */
static int run_at_home(vlc_context *context, struct vlci_birth *birth) {
    /* On a thread of the pool, waiting for the pool would be waiting for itself. */
    if (vlc_context_of(NULL) == context)
        return vlci_refuse(
            birth->error, VLC_MISUSE, vlc_name(context),
            "cannot start a Python in the context '%s' from inside of it. Start it from outside.",
            vlc_name(context));
    vlc_task *task;
    int status = vlc_submit_on(context, 0, vlci_guest_start, birth, &task, birth->error);
    if (status == VLC_OK) status = vlc_wait(task, NULL, birth->error);
    return status == VLC_OK ? birth->status : status;
}

/* Starts the interpreter of `birth`, whose realm is given one already. False: an exception is set. */
static bool start(struct vlci_context_object *owner, struct vlci_birth *birth) {
    vlc_context *context = birth->realm->context;
    owner->uses++;
    int status;
    Py_BEGIN_ALLOW_THREADS status = run_at_home(context, birth);
    Py_END_ALLOW_THREADS vlci_context_unuse(owner);
    if (status == VLC_OK) return true;
    vlci_realm_set_life(birth->realm, VLCI_STOPPED); /* also where no thread could be made to start it */
    vlci_raise(birth->error);
    return false;
}

/* The one realm of a context. */
static struct vlci_realm *claim(struct vlci_context_object *owner, PyObject *answer) {
    vlc_context *context = vlci_context_use(owner);
    if (!context) return NULL;
    vlci_context_unuse(owner);
    if (owner->guest) {
        vlc_error error = VLC_ERROR_INIT;
        vlci_refuse(&error, VLC_MISUSE, vlc_name(context),
                    "cannot start a Python in the context '%s': it has, or had, one. Make another context.",
                    vlc_name(context));
        vlci_raise(&error);
        return NULL;
    }
    struct vlci_realm *realm = vlci_realm_new(context);
    if (!realm) {
        PyErr_NoMemory();
        return NULL;
    }
    realm->answer = Py_NewRef(answer);
    vlci_realm_retain(realm);
    owner->guest = realm;
    return realm;
}

static PyObject *interpreter_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = { "context",  "libpython", "program",      "sys_path",  "argv", "bootstrap",
                             "settings", "answer",    "warn_options", "x_options", NULL };
    const struct vlci_module *module = PyType_GetModuleState(type);
    PyObject *owner, *libpython = NULL, *program, *path, *argv, *answer, *warnings, *implementation;
    const char *bootstrap, *settings;
    Py_ssize_t settings_size;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!$O&UOOsy#OOO:Interpreter", names, module->context_type,
                                     &owner, PyUnicode_FSConverter, &libpython, &program, &path, &argv,
                                     &bootstrap, &settings, &settings_size, &answer, &warnings,
                                     &implementation))
        return NULL;

    vlc_error error = VLC_ERROR_INIT;
    struct vlci_text *path_texts = NULL, *argv_texts = NULL;
    PyObject *kept_path = NULL, *kept_argv = NULL;
    struct vlci_birth birth = {
        .libpython = PyBytes_AsString(libpython),
        .bootstrap = bootstrap,
        .settings = { settings, settings_size },
        .error = &error,
    };
    wchar_t *wide = PyUnicode_AsWideCharString(program, NULL);
    birth.program = wide;
    birth.warnings = wide ? wide_array(warnings) : NULL;
    birth.implementation = birth.warnings ? wide_array(implementation) : NULL;
    read_flags(birth.flags);
    struct interpreter_object *self = NULL;
    if (birth.implementation &&
        (path == Py_None || text_array(path, &path_texts, &birth.path_count, &kept_path) == 0) &&
        text_array(argv, &argv_texts, &birth.argv_count, &kept_argv) == 0) {
        allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
        self = cast(allocate(type, 0));
    }
    if (self) {
        birth.path = path_texts;
        birth.argv = argv_texts;
        self->context = Py_NewRef(owner);
        self->realm = birth.realm = claim((struct vlci_context_object *)owner, answer);
        if (self->realm && start((struct vlci_context_object *)owner, &birth))
            self->version = PyUnicode_FromString(self->realm->version);
        else if (self->realm)
            Py_CLEAR(self->realm->answer);
        if (!self->version) Py_CLEAR(self);
    }
    PyMem_Free(path_texts);
    PyMem_Free(argv_texts);
    free_wide(birth.warnings);
    free_wide(birth.implementation);
    PyMem_Free(wide);
    Py_XDECREF(kept_path);
    Py_XDECREF(kept_argv);
    Py_DECREF(libpython);
    return (PyObject *)self;
}

/* An interpreter that nobody stopped lives on in its context: finalising it here could wait long, in
 * whatever code dropped the last reference. */
static void interpreter_dealloc(PyObject *object) {
    struct interpreter_object *self = cast(object);
    PyTypeObject *type = Py_TYPE(object);
    if (self->realm) vlci_realm_release(self->realm);
    Py_XDECREF(self->context);
    Py_XDECREF(self->version);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyObject *interpreter_call(PyObject *self, PyObject *args) {
    PyObject *payload, *buffers;
    if (!PyArg_ParseTuple(args, "SO!:call", &payload, &PyList_Type, &buffers)) return NULL;
    return (PyObject *)vlci_call(vlci_host(), cast(self)->realm, (vlci_object *)payload,
                                 (vlci_object *)buffers);
}

struct vlci_realm *vlci_interpreter_realm(PyObject *interpreter) { return cast(interpreter)->realm; }

static void *interrupt_inside(void *argument) {
    struct vlci_realm *realm = argument;
    vlci_attach(realm);
    vlci_interrupt_home(realm);
    vlci_detach(realm);
    return NULL;
}

static PyObject *interpreter_interrupt(PyObject *self, PyObject *unused) {
    (void)unused;
    struct vlci_realm *realm = cast(self)->realm;
    vlc_error error = VLC_ERROR_INIT;
    if (vlci_realm_begin(realm, &error) != VLC_OK) return vlci_raise(&error);
    int status;
    Py_BEGIN_ALLOW_THREADS status = vlc_run(realm->context, interrupt_inside, realm, NULL, &error);
    vlci_realm_end(realm);
    Py_END_ALLOW_THREADS if (status != VLC_OK) return vlci_raise(&error);
    Py_RETURN_NONE;
}

static PyObject *interpreter_dump(PyObject *self, PyObject *fd) {
    long number = PyLong_AsLong(fd);
    if (number == -1 && PyErr_Occurred()) return NULL;
    return PyBool_FromLong(vlci_realm_dump(cast(self)->realm, (int)number));
}

static PyObject *interpreter_get_version(PyObject *self, void *unused) {
    (void)unused;
    return Py_NewRef(cast(self)->version);
}

static PyObject *interpreter_shut(PyObject *self, PyObject *unused) {
    (void)unused;
    cast(self)->realm->shut = true;
    Py_RETURN_NONE;
}

static PyObject *interpreter_is_inside(PyObject *self, PyObject *unused) {
    (void)unused;
    return PyBool_FromLong(vlci_calls_inside(cast(self)->realm) > 0);
}

static PyObject *interpreter_get_inside(PyObject *self, void *unused) {
    (void)unused;
    return PyLong_FromUnsignedLong(vlci_realm_inside(cast(self)->realm));
}

static PyObject *interpreter_get_kept(PyObject *self, void *unused) {
    (void)unused;
    struct vlci_realm *realm = cast(self)->realm;
    pthread_mutex_lock(&realm->lock);
    size_t count = realm->kept_count;
    pthread_mutex_unlock(&realm->lock);
    return PyLong_FromSize_t(count);
}

static PyObject *interpreter_get_leases(PyObject *self, void *unused) {
    (void)unused;
    return PyLong_FromSize_t(atomic_load(&cast(self)->realm->lent));
}

PyObject *vlci_interpreter_type_new(PyObject *module) {
    static PyMethodDef methods[] = {
        { "call", interpreter_call, METH_VARARGS,
          "call(payload, buffers)\n--\n\nRuns the guest's serve(payload, buffers) on this thread; gives its "
          "bytes and "
          "a list of Lease. Buffers cross without a copy, both ways.\n\nCtrl-C interrupts the guest's Python "
          "code; a "
          "call that blocks in C code, time.sleep() too, ends first." },
        { "dump", interpreter_dump, METH_O,
          "dump(fd)\n--\n\nWrites the frames of its threads, as faulthandler does, without its GIL. False: "
          "it "
          "has no function for that, or is not there now." },
        { "interrupt", interpreter_interrupt, METH_NOARGS,
          "interrupt()\n--\n\nRaises KeyboardInterrupt in the call that the guest's home thread is in, at "
          "its next "
          "bytecode. Without such a call: nothing." },
        { "shut", interpreter_shut, METH_NOARGS,
          "shut()\n--\n\nLets in no calls of other contexts any more, but on threads that are inside." },
        { "is_inside", interpreter_is_inside, METH_NOARGS,
          "is_inside()\n--\n\nWhether the calling thread is in a call into it, also out of another "
          "context." },
        { NULL, NULL, 0, NULL },
    };
    static PyGetSetDef members[] = {
        { "version", interpreter_get_version, NULL, "The guest's sys.version.", NULL },
        { "inside", interpreter_get_inside, NULL, "How many calls are inside.", NULL },
        { "kept", interpreter_get_kept, NULL, "How many of its objects are referred to by handles.", NULL },
        { "leases", interpreter_get_leases, NULL, "How many of its buffers are held outside.", NULL },
        { NULL, NULL, NULL, NULL, NULL },
    };
    static PyType_Slot slots[] = {
        { Py_tp_doc,
          "A private CPython in a context, started and stopped on the home thread (the pool's thread 0)." },
        { Py_tp_new, interpreter_new },
        { Py_tp_dealloc, interpreter_dealloc },
        { Py_tp_methods, methods },
        { Py_tp_getset, members },
        { 0, NULL },
    };
    static PyType_Spec spec = {
        .name = "vlcs._core._native.Interpreter",
        .basicsize = sizeof(struct interpreter_object),
        .flags = Py_TPFLAGS_DEFAULT,
        .slots = slots,
    };
    return PyType_FromModuleAndSpec(module, &spec, NULL);
}
