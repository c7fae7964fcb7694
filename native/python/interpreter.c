/* The type Interpreter: a private CPython in a context. */
#include "native.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "call.h"
#include "guest.h"
#include "interrupt.h"
#include "lease.h"
#include "status.h"

enum {
    DEFAULT_TIMEOUT_MS = 5000, /* as vlc_destroy's */
    SIGNAL_CHECK_MS = 50,      /* how long Ctrl-C may go unseen while stop() waits */
};

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

static bool host_is_in_utf8_mode(void) {
    PyObject *flags = PySys_GetObject("flags"); /* borrowed */
    PyObject *mode = flags ? PyObject_GetAttrString(flags, "utf8_mode") : NULL;
    bool result = mode && PyObject_IsTrue(mode) == 1;
    Py_XDECREF(mode);
    PyErr_Clear();
    return result;
}

/* Has the home thread run `start`; the birth's status and error tell how that went. */
static int run_at_home(vlc_context *context, struct vlci_birth *birth) {
    /* On a thread of the pool, waiting for the pool would be waiting for itself. */
    if (vlc_context_of(NULL) == context)
        return vlci_fail(
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
    vlc_context *context = vlci_context_use(owner);
    if (!context) return false;
    int status;
    Py_BEGIN_ALLOW_THREADS status = run_at_home(context, birth);
    Py_END_ALLOW_THREADS vlci_context_unuse(owner);
    if (status != VLC_OK) vlci_raise(birth->error);
    return status == VLC_OK;
}

/* The one realm of a context. */
static struct vlci_realm *claim(struct vlci_context_object *owner, PyObject *write) {
    vlc_context *context = vlci_context_use(owner);
    if (!context) return NULL;
    vlci_context_unuse(owner);
    if (owner->guest) {
        vlc_error error = VLC_ERROR_INIT;
        vlci_fail(&error, VLC_MISUSE, vlc_name(context),
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
    realm->write = Py_NewRef(write);
    vlci_realm_retain(realm);
    owner->guest = realm;
    return realm;
}

static PyObject *interpreter_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = { "context",   "libpython", "program", "sys_path", "argv",
                             "bootstrap", "settings",  "write",   NULL };
    const struct vlci_module *module = PyType_GetModuleState(type);
    PyObject *owner, *libpython = NULL, *program, *path, *argv, *write;
    const char *bootstrap, *settings;
    Py_ssize_t settings_size;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!$O&UOOsy#O:Interpreter", names, module->context_type,
                                     &owner, PyUnicode_FSConverter, &libpython, &program, &path, &argv,
                                     &bootstrap, &settings, &settings_size, &write))
        return NULL;

    vlc_error error = VLC_ERROR_INIT;
    struct vlci_text *path_texts = NULL, *argv_texts = NULL;
    PyObject *kept_path = NULL, *kept_argv = NULL;
    struct vlci_birth birth = {
        .libpython = PyBytes_AsString(libpython),
        .utf8_mode = host_is_in_utf8_mode(),
        .bootstrap = bootstrap,
        .settings = { settings, settings_size },
        .error = &error,
    };
    wchar_t *wide = PyUnicode_AsWideCharString(program, NULL);
    birth.program = wide;
    struct interpreter_object *self = NULL;
    if (wide && (path == Py_None || text_array(path, &path_texts, &birth.path_count, &kept_path) == 0) &&
        text_array(argv, &argv_texts, &birth.argv_count, &kept_argv) == 0) {
        allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
        self = cast(allocate(type, 0));
    }
    if (self) {
        birth.path = path_texts;
        birth.argv = argv_texts;
        self->context = Py_NewRef(owner);
        self->realm = birth.realm = claim((struct vlci_context_object *)owner, write);
        if (self->realm && start((struct vlci_context_object *)owner, &birth))
            self->version = PyUnicode_FromString(self->realm->api.Py_GetVersion());
        else if (self->realm)
            Py_CLEAR(self->realm->write);
        if (!self->version) Py_CLEAR(self);
    }
    PyMem_Free(path_texts);
    PyMem_Free(argv_texts);
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
    if (!PyArg_ParseTuple(args, "SO:call", &payload, &buffers)) return NULL;
    return vlci_call(cast(self)->realm, payload, buffers);
}

static PyObject *interpreter_interrupt(PyObject *self, PyObject *unused) {
    (void)unused;
    struct vlci_realm *realm = cast(self)->realm;
    vlc_error error = VLC_ERROR_INIT;
    if (vlci_realm_begin(realm, &error) != VLC_OK) return vlci_raise(&error);
    Py_BEGIN_ALLOW_THREADS int token = vlci_attach(realm);
    vlci_interrupt_home(realm);
    vlci_detach(realm, token);
    vlci_realm_end(realm);
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static struct timespec after(int milliseconds) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    time.tv_nsec += milliseconds % 1000 * 1000000L;
    time.tv_sec += milliseconds / 1000 + time.tv_nsec / 1000000000L;
    time.tv_nsec %= 1000000000L;
    return time;
}

static bool is_past(const struct timespec *time) {
    struct timespec now = after(0);
    return now.tv_sec > time->tv_sec || (now.tv_sec == time->tv_sec && now.tv_nsec >= time->tv_nsec);
}

static bool is_empty(const struct vlci_realm *realm) { return !realm->inside || realm->life > VLCI_STOPPING; }

static bool is_stopped(const struct vlci_realm *realm) { return realm->life == VLCI_STOPPED; }

/* Waits for `reached`, with the realm's lock held there. 1: reached, 0: too late, -1: an exception of a
 * signal handler is set. */
static int wait_until(struct vlci_realm *realm, bool (*reached)(const struct vlci_realm *),
                      const struct timespec *deadline) {
    for (;;) {
        bool done;
        Py_BEGIN_ALLOW_THREADS struct timespec slice = after(SIGNAL_CHECK_MS);
        int waited = 0;
        pthread_mutex_lock(&realm->lock);
        while (!(done = reached(realm)) && waited != ETIMEDOUT)
            waited = pthread_cond_timedwait(&realm->changed, &realm->lock, &slice);
        pthread_mutex_unlock(&realm->lock);
        Py_END_ALLOW_THREADS if (PyErr_CheckSignals() < 0) return -1;
        if (done) return 1;
        if (is_past(deadline)) return 0;
    }
}

/* Moves from one life to another; false where it is not in the first. */
static bool move(struct vlci_realm *realm, enum vlci_life from, enum vlci_life to) {
    pthread_mutex_lock(&realm->lock);
    bool moved = realm->life == from;
    if (moved) realm->life = to;
    pthread_mutex_unlock(&realm->lock);
    return moved;
}

/* From RUNNING to FINALISING, with nobody inside and nothing lent. Otherwise it runs on, and an
 * exception is set. */
static bool shut(struct vlci_realm *realm, bool abandon, const struct timespec *deadline) {
    vlc_error error = VLC_ERROR_INIT;
    move(realm, VLCI_RUNNING, VLCI_STOPPING);
    int emptied = wait_until(realm, is_empty, deadline);
    size_t lent = atomic_load(&realm->lent);
    if (emptied == 1 && (abandon || !lent)) {
        if (!move(realm, VLCI_STOPPING, VLCI_FINALISING)) return true; /* another thread's stop() did */
        vlci_realm_retain(realm);                                      /* vlci_guest_stop's */
        int status = VLC_OK;
        Py_BEGIN_ALLOW_THREADS if (pthread_equal(realm->home, pthread_self())) vlci_guest_stop(realm);
        else status = vlc_submit_on(realm->context, 0, vlci_guest_stop, realm, NULL, &error);
        Py_END_ALLOW_THREADS if (status == VLC_OK) return true;
        vlci_realm_release(realm);
        vlci_realm_set_life(realm, VLCI_RUNNING);
        vlci_raise(&error);
        return false;
    }
    move(realm, VLCI_STOPPING, VLCI_RUNNING);
    if (emptied == 0)
        vlci_fail(
            &error, VLC_BUSY, realm->name,
            "cannot stop the Python of the context '%s': %u calls are still inside. End or interrupt them, "
            "and close it again.",
            realm->name, realm->inside);
    else if (emptied == 1)
        vlci_fail(
            &error, VLC_BUSY, realm->name,
            "cannot stop the Python of the context '%s': %zu of its arrays are still held outside. Drop or "
            "copy them, and close it again.",
            realm->name, lent);
    if (emptied >= 0) vlci_raise(&error);
    return false;
}

static PyObject *interpreter_stop(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = { "timeout_ms", "abandon", NULL };
    struct vlci_realm *realm = cast(self)->realm;
    int timeout_ms = -1, abandon = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|ip:stop", names, &timeout_ms, &abandon)) return NULL;
    vlc_error error = VLC_ERROR_INIT;
    struct timespec deadline = after(timeout_ms < 0 ? DEFAULT_TIMEOUT_MS : timeout_ms);
    if (vlci_call_is_inside(realm)) {
        vlci_fail(
            &error, VLC_MISUSE, realm->name,
            "cannot stop the Python of the context '%s' from inside of it. Stop it after the call returns.",
            realm->name);
        return vlci_raise(&error);
    }
    if (vlci_realm_life(realm) != VLCI_STOPPED && !shut(realm, abandon, &deadline)) return NULL;
    int stopped = wait_until(realm, is_stopped, &deadline);
    if (stopped < 0) return NULL;
    if (!stopped) {
        vlci_fail(
            &error, VLC_BUSY, realm->name,
            "the Python of the context '%s' is not finalised yet: its atexit functions or threads have not "
            "ended. End them, and close it again.",
            realm->name);
        return vlci_raise(&error);
    }
    Py_CLEAR(realm->write);
    Py_RETURN_NONE;
}

static PyObject *interpreter_get_version(PyObject *self, void *unused) {
    (void)unused;
    return Py_NewRef(cast(self)->version);
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
        { "interrupt", interpreter_interrupt, METH_NOARGS,
          "interrupt()\n--\n\nRaises KeyboardInterrupt in the call that the guest's home thread is in, at "
          "its next "
          "bytecode. Without such a call: nothing." },
        { "stop", (PyCFunction)(void (*)(void))interpreter_stop, METH_VARARGS | METH_KEYWORDS,
          "stop(timeout_ms=-1, abandon=False)\n--\n\nFinalises the interpreter on its home thread. Again: "
          "nothing.\n\n"
          "Waits for calls that are inside, 5 s where timeout_ms is negative. BusyError, and the interpreter "
          "runs on: "
          "calls did not end, or arrays of it are held outside. abandon=True finalises it although they are; "
          "their "
          "memory stays until the context is destroyed, which is refused while they are held." },
        { NULL, NULL, 0, NULL },
    };
    static PyGetSetDef members[] = {
        { "version", interpreter_get_version, NULL, "The guest's sys.version.", NULL },
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
