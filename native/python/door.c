/* The types Door, Visit and Block: who is inside of a context.
 *
 * Counting is done in C, under the host's GIL and without a lock: between a call here and the block that it
 * guards no signal handler and no asynchronous exception can come, and a handler or destructor that comes
 * into the same context in the middle of a call finds nothing held. */
#include "door.h"

#include "fork.h"

#include <structmember.h>
#include <time.h>

enum { SIGNAL_CHECK_MS = 50 }; /* how long Ctrl-C may go unseen in wait() */

struct vlci_door {
    PyObject_HEAD struct vlci_stay *stays; /* that are inside, the latest first */
    char open;
    bool dead; /* of a forked process's parent */
};

struct vlci_visit_object {
    PyObject_HEAD struct vlci_stay stay;
    PyObject *context; /* entered too; or NULL */
    char accepted;     /* let in whether the door is open or not */
    bool kept;         /* the door has a reference, until it is left */
};

/* A context that a thread could not leave in its turn; it does after its next visit. */
struct debt {
    PyObject *context;
    unsigned long long thread;
    struct debt *next;
};

static struct debt *debts; /* the latest first, guarded by the GIL */

/* Waiters of all doors; few, and seldom. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* Unlike a thread's ident, never used again; of the thread that this one stands for, if it does. */
static unsigned long long this_thread(void) {
    static _Thread_local unsigned long long number;
    if (!number) number = vlc_thread_number();
    return number;
}

/* Interned: CPython's cache of attributes goes by the name's address, and keeps each new name. */
static PyObject *call_method(PyObject *object, const char *name, PyObject *argument) {
    PyObject *interned = PyUnicode_InternFromString(name);
    PyObject *result = interned ? PyObject_CallMethodObjArgs(object, interned, argument, NULL) : NULL;
    Py_XDECREF(interned);
    return result;
}

static bool is_inside(const struct vlci_door *door) {
    for (const struct vlci_stay *stay = door->stays; stay; stay = stay->next) {
        if (stay->thread == this_thread()) return true;
    }
    return false;
}

static bool admits(const struct vlci_door *door, bool accepted) {
    return !door->dead && (door->open || accepted || is_inside(door));
}

static void wake(void) {
    pthread_mutex_lock(&lock);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void count_in(struct vlci_stay *stay) {
    struct vlci_door *door = stay->door;
    stay->inside = true;
    stay->thread = this_thread();
    stay->ident = (unsigned long)pthread_self(); /* as threading.get_ident() */
    stay->previous = NULL;
    stay->next = door->stays;
    if (stay->next) stay->next->previous = stay;
    door->stays = stay;
}

static void count_out(struct vlci_stay *stay) {
    struct vlci_door *door = stay->door;
    stay->inside = false;
    if (stay->previous)
        stay->previous->next = stay->next;
    else
        door->stays = stay->next;
    if (stay->next) stay->next->previous = stay->previous;
    stay->next = stay->previous = NULL;
    if (!door->open && !door->dead) wake(); /* before, nobody waits */
}

/* Leaves what this thread could not leave before. Any exception that is set stays. */
static void pay_debts(void) {
    if (!debts) return;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    for (struct debt **link = &debts, *debt; (debt = *link);) {
        PyObject *left = debt->thread == this_thread() ? call_method(debt->context, "leave", NULL) : NULL;
        PyErr_Clear();
        if (!left) {
            link = &debt->next;
            continue;
        }
        /* Found again: another thread may have changed the list meanwhile. */
        for (link = &debts; *link != debt;) link = &(*link)->next;
        *link = debt->next;
        Py_DECREF(left);
        Py_DECREF(debt->context);
        PyMem_Free(debt);
        link = &debts;
    }
    PyErr_Restore(type, value, traceback);
}

static void owe(const struct vlci_visit_object *visit) {
    struct debt *debt = PyMem_Malloc(sizeof *debt);
    if (!debt) return;
    *debt = (struct debt){ Py_NewRef(visit->context), visit->stay.thread, debts };
    debts = debt;
}

bool vlci_door_enter(PyObject *door, struct vlci_stay *stay, PyObject *what) {
    *stay = (struct vlci_stay){ .door = (struct vlci_door *)door, .what = what };
    if (!admits(stay->door, false)) return false;
    pay_debts();
    count_in(stay);
    return true;
}

void vlci_door_leave(struct vlci_stay *stay) {
    if (stay->inside) count_out(stay);
    pay_debts();
}

/* ---- Visit --------------------------------------------------------------------------------------------- */

static struct vlci_visit_object *cast_visit(PyObject *self) { return (struct vlci_visit_object *)self; }

static PyObject *visit_enter(PyObject *self, PyObject *unused) {
    (void)unused;
    struct vlci_visit_object *visit = cast_visit(self);
    struct vlci_door *door = visit->stay.door;
    if (visit->stay.inside) {
        PyErr_SetString(PyExc_RuntimeError, "a visit enters once");
        return NULL;
    }
    if (!admits(door, visit->accepted)) {
        PyObject *error = call_method((PyObject *)door, "refusal", visit->stay.what);
        if (error) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_XDECREF(error);
        return NULL;
    }
    pay_debts();
    count_in(&visit->stay);
    if (visit->context) {
        PyObject *entered = call_method(visit->context, "enter", NULL);
        if (!entered) {
            count_out(&visit->stay);
            return NULL;
        }
        Py_DECREF(entered);
    }
    return Py_NewRef(self);
}

static PyObject *visit_stay(PyObject *self, PyObject *unused) {
    PyObject *same = visit_enter(self, unused);
    if (!same) return NULL;
    cast_visit(self)->kept = true;
    Py_DECREF(same);
    Py_INCREF(self); /* the door's */
    Py_RETURN_NONE;
}

static PyObject *visit_exit(PyObject *self, PyObject *unused) {
    (void)unused;
    struct vlci_visit_object *visit = cast_visit(self);
    if (!visit->stay.inside) Py_RETURN_NONE;
    PyObject *left = visit->context ? NULL : Py_NewRef(Py_None);
    if (visit->context) {
        if (visit->stay.thread == this_thread()) left = call_method(visit->context, "leave", NULL);
        if (!left) {
            PyErr_Clear();
            PyObject *error = call_method((PyObject *)visit->stay.door, "misplaced", NULL);
            if (error) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
            Py_XDECREF(error);
        }
    }
    if (!visit->stay.inside) return left; /* leaving released the GIL */
    if (!left) owe(visit);
    count_out(&visit->stay);
    pay_debts();
    if (visit->kept) Py_DECREF(self);
    return left;
}

static void visit_dealloc(PyObject *self) {
    struct vlci_visit_object *visit = cast_visit(self);
    PyTypeObject *type = Py_TYPE(self);
    if (visit->stay.inside) {
        if (visit->context) owe(visit);
        count_out(&visit->stay);
    }
    Py_XDECREF(visit->context);
    Py_XDECREF(visit->stay.what);
    Py_XDECREF((PyObject *)visit->stay.door);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

PyObject *vlci_visit_type_new(PyObject *module) {
    static PyMethodDef methods[] = {
        { "__enter__", visit_enter, METH_NOARGS, "__enter__()\n--\n\nCounts this thread in, or raises." },
        { "stay", visit_stay, METH_NOARGS, "stay()\n--\n\n__enter__() until Door.leave()." },
        { "__exit__", visit_exit, METH_VARARGS, "__exit__(*unused)\n--\n\nCounts it out; again: nothing." },
        { NULL, NULL, 0, NULL },
    };
    static PyType_Slot slots[] = {
        { Py_tp_doc, "One stay inside of a context, for one `with`. Made by Door.visit." },
        { Py_tp_dealloc, visit_dealloc },
        { Py_tp_methods, methods },
        { 0, NULL },
    };
    static PyType_Spec spec = {
        .name = "vlcs._core._native.Visit",
        .basicsize = sizeof(struct vlci_visit_object),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    return PyType_FromModuleAndSpec(module, &spec, NULL);
}

/* ---- Door ---------------------------------------------------------------------------------------------- */

static struct vlci_door *cast(PyObject *self) { return (struct vlci_door *)self; }

static PyObject *door_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)args, (void)kwargs; /* a subclass's __init__ has them */
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PyObject *self = allocate(type, 0);
    if (self) cast(self)->open = 1;
    return self;
}

static void door_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *door_visit(PyObject *self, PyTypeObject *class, PyObject *const *args, Py_ssize_t count,
                            PyObject *names) {
    if (count < 1 || count > 3 || names) {
        PyErr_SetString(PyExc_TypeError, "visit(what, context=None, accepted=False)");
        return NULL;
    }
    const struct vlci_module *module = PyType_GetModuleState(class);
    PyTypeObject *type = (PyTypeObject *)module->visit_type;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    struct vlci_visit_object *visit = cast_visit(allocate(type, 0));
    if (!visit) return NULL;
    visit->stay.visit = visit;
    visit->stay.door = cast(Py_NewRef(self));
    visit->stay.what = Py_NewRef(args[0]);
    visit->context = count > 1 && args[1] != Py_None ? Py_NewRef(args[1]) : NULL;
    visit->accepted = count > 2 && args[2] == Py_True;
    return (PyObject *)visit;
}

static PyObject *door_is_inside(PyObject *self, PyObject *unused) {
    (void)unused;
    pay_debts();
    return PyBool_FromLong(is_inside(cast(self)));
}

static PyObject *door_inside(PyObject *self, PyObject *unused) {
    (void)unused;
    PyObject *list = PyList_New(0);
    for (const struct vlci_stay *stay = cast(self)->stays; list && stay; stay = stay->next) {
        bool latest = true;
        for (const struct vlci_stay *later = stay->previous; later; later = later->previous)
            latest = latest && later->thread != stay->thread;
        if (latest && PyList_Append(list, stay->what) < 0) Py_CLEAR(list);
    }
    return list;
}

static PyObject *door_callers(PyObject *self, PyObject *unused) {
    (void)unused;
    PyObject *list = PyList_New(0);
    for (const struct vlci_stay *stay = cast(self)->stays; list && stay; stay = stay->next) {
        if (stay->visit) continue;
        PyObject *ident = PyLong_FromUnsignedLong(stay->ident);
        if (!ident || PyList_Append(list, ident) < 0) Py_CLEAR(list);
        Py_XDECREF(ident);
    }
    return list;
}

static PyObject *door_wait(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_nsec += SIGNAL_CHECK_MS * 1000000L;
    end.tv_sec += end.tv_nsec / 1000000000L;
    end.tv_nsec %= 1000000000L;
    /* Taken before the GIL is given up: nobody leaves unnoticed in between. */
    pthread_mutex_lock(&lock);
    Py_BEGIN_ALLOW_THREADS pthread_cond_timedwait(&changed, &lock, &end);
    pthread_mutex_unlock(&lock);
    Py_END_ALLOW_THREADS if (PyErr_CheckSignals() < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *door_wake(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    wake();
    Py_RETURN_NONE;
}

void vlci_door_fork(enum vlci_fork when) {
    vlci_mutex_fork(&lock, when);
    if (when == VLCI_FORK_CHILD) pthread_cond_init(&changed, NULL);
}

static PyObject *door_forget(PyObject *self, PyObject *dead) {
    int is_dead = PyObject_IsTrue(dead);
    if (is_dead < 0) return NULL;
    cast(self)->dead = is_dead;
    for (struct vlci_stay *stay = cast(self)->stays, *next; stay; stay = next) {
        next = stay->next;
        if (stay->thread == this_thread()) continue;
        struct vlci_visit_object *visit = stay->visit;
        count_out(stay);
        if (visit && visit->kept) Py_DECREF((PyObject *)visit);
    }
    Py_RETURN_NONE;
}

static PyObject *door_leave(PyObject *self, PyObject *unused) {
    (void)unused;
    struct vlci_visit_object *chosen = NULL;
    for (const struct vlci_stay *stay = cast(self)->stays; stay; stay = stay->next) {
        if (!stay->visit || !stay->visit->kept) continue;
        bool mine = stay->thread == this_thread();
        if (!chosen || mine) chosen = stay->visit;
        if (mine) break;
    }
    if (!chosen) Py_RETURN_NONE;
    Py_INCREF((PyObject *)chosen);
    PyObject *left = visit_exit((PyObject *)chosen, NULL);
    Py_DECREF((PyObject *)chosen);
    return left;
}

static PyObject *door_expel(PyObject *self, PyObject *unused) {
    (void)unused;
    for (struct vlci_stay *stay = cast(self)->stays; stay;) {
        if (stay->thread != this_thread()) {
            stay = stay->next;
            continue;
        }
        PyObject *visit = Py_XNewRef((PyObject *)stay->visit);
        PyObject *left = visit ? visit_exit(visit, NULL) : NULL;
        if (!visit) count_out(stay); /* a call that is in the middle */
        Py_XDECREF(visit);
        if (visit && !left) return NULL;
        Py_XDECREF(left);
        stay = cast(self)->stays;
    }
    Py_RETURN_NONE;
}

PyObject *vlci_door_type_new(PyObject *module) {
    static PyMethodDef methods[] = {
        { "visit", (PyCFunction)(void (*)(void))door_visit, METH_METHOD | METH_FASTCALL | METH_KEYWORDS,
          "visit(what, context=None, accepted=False, /)\n--\n\nA stay, for `with`; enters `context` too." },
        { "is_inside", door_is_inside, METH_NOARGS,
          "is_inside()\n--\n\nWhether the calling thread is inside." },
        { "inside", door_inside, METH_NOARGS, "inside()\n--\n\nWhat each thread that is inside does there." },
        { "callers", door_callers, METH_NOARGS,
          "callers()\n--\n\nIdents of the threads that are in a call made in C, one for each call." },
        { "wait", door_wait, METH_NOARGS,
          "wait()\n--\n\nWaits until somebody leaves a door that is not open, a moment at most." },
        { "wake", door_wake, METH_NOARGS, "wake()\n--\n\nEnds wait()." },
        { "leave", door_leave, METH_NOARGS,
          "leave()\n--\n\nEnds the latest Visit.stay() of this thread, or of another that this one goes on "
          "for." },
        { "forget", door_forget, METH_O,
          "forget(dead)\n--\n\nIn a forked child: forgets other threads, and lets nobody in any more where "
          "it is dead." },
        { "expel", door_expel, METH_NOARGS, "expel()\n--\n\nEnds all visits of the calling thread." },
        { NULL, NULL, 0, NULL },
    };
    static PyMemberDef members[] = {
        { "open", T_BOOL, offsetof(struct vlci_door, open), 0, "Whether newcomers are let in." },
        { NULL, 0, 0, 0, NULL },
    };
    static PyType_Slot slots[] = {
        { Py_tp_doc, "Counts who is inside. A subclass has refusal(what) and misplaced(), which make the "
                     "exceptions." },
        { Py_tp_new, door_new },
        { Py_tp_dealloc, door_dealloc },
        { Py_tp_methods, methods },
        { Py_tp_members, members },
        { 0, NULL },
    };
    static PyType_Spec spec = {
        .name = "vlcs._core._native.Door",
        .basicsize = sizeof(struct vlci_door),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
        .slots = slots,
    };
    return PyType_FromModuleAndSpec(module, &spec, NULL);
}

/* ---- Block --------------------------------------------------------------------------------------------- */

/* In C: before the first line of a function of Python handlers of signals run, and an exception of one would
 * leave the thread inside. */
static PyObject *block_exit(PyObject *self, PyObject *unused) {
    (void)unused;
    PyObject *gate = ((struct vlci_block *)self)->gate;
    if (!gate) Py_RETURN_NONE;
    Py_INCREF(gate);
    PyObject *left = call_method(gate, "leave", NULL);
    Py_DECREF(gate);
    return left;
}

static void block_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(((struct vlci_block *)self)->gate);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

PyObject *vlci_block_type_new(PyObject *module) {
    static PyMethodDef methods[] = {
        { "__exit__", block_exit, METH_VARARGS,
          "__exit__(*unused)\n--\n\nLeaves the context that this thread entered last by `with`." },
        { NULL, NULL, 0, NULL },
    };
    static PyMemberDef members[] = {
        { "_gate", T_OBJECT_EX, offsetof(struct vlci_block, gate), 0, "The Door that is left." },
        { NULL, 0, 0, 0, NULL },
    };
    static PyType_Slot slots[] = {
        { Py_tp_doc, "What can stand in a `with`, as far as leaving goes." },
        { Py_tp_dealloc, block_dealloc },
        { Py_tp_methods, methods },
        { Py_tp_members, members },
        { 0, NULL },
    };
    static PyType_Spec spec = {
        .name = "vlcs._core._native.Block",
        .basicsize = sizeof(struct vlci_block),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
        .slots = slots,
    };
    return PyType_FromModuleAndSpec(module, &spec, NULL);
}
