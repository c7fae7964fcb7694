/* A realm: one CPython of this process, the host's or a guest's, as the bridge sees it.
 *
 * It counts who is inside, knows which threads have a thread state in it, and holds what is to be
 * released there. The rule everywhere: a thread holds at most one GIL; it drops the one that it has
 * before it takes another, so that two realms can never wait for each other.
 */
#ifndef VLCI_REALM_H
#define VLCI_REALM_H

#include "loader/lock.h"
#include "python_api.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct vlci_source;
struct vlci_lease;
struct vlci_hold;
struct vlci_visit;
struct vlci_interruptible;
struct vlci_name;
struct vlci_numpy;
struct vlci_kept;
struct vlci_handle;

/* X(function, or other object, of Python that the bridge uses in a realm): what vlci_realm_furnish is given. */
#define VLCI_FUNCTIONS(X)                                                                                    \
    X(serve)                                                                                                 \
    X(apply)                                                                                                 \
    X(resolve)                                                                                               \
    X(encode_value)                                                                                          \
    X(encode_result)                                                                                         \
    X(encode_error)                                                                                          \
    X(is_method)                                                                                             \
    X(follow_hooks)                                                                                          \
    X(threading)                                                                                             \
    X(operations)                                                                                            \
    X(decode)                                                                                                \
    X(from_status)                                                                                           \
    X(remote_object)                                                                                         \
    X(show)                                                                                                  \
    X(end)

enum vlci_life {
    VLCI_STARTING,
    VLCI_RUNNING,
    VLCI_STOPPING,   /* lets nobody in, and may go back to RUNNING */
    VLCI_ENDING,     /* its threads and atexit functions end: no return */
    VLCI_LINGERING,  /* they have, and its arrays are held outside */
    VLCI_FINALISING, /* Py_FinalizeEx is on its way */
    VLCI_STOPPED,
};

struct vlci_realm {
    struct vlci_api api;
    vlc_context *context; /* NULL: the host. Outlives the interpreter, not the realm's record */
    void *interpreter;    /* PyInterpreterState */
    char *name;           /* of the context */
    atomic_uint references;
    struct vlci_realm *next, **link; /* all realms */

    pthread_mutex_t lock; /* guards the members up to finish */
    pthread_cond_t changed;
    enum vlci_life life;
    unsigned inside;             /* threads that are, or are about to be, in this interpreter */
    struct vlci_lease *leases;   /* that objects of this realm hold on others' memory; the newest first */
    struct vlci_hold *holds;     /* the same, of Arrow arrays */
    struct vlci_name *names;     /* by which the host calls functions of this guest */
    struct vlci_handle *handles; /* by which objects of this realm refer to those of others */
    struct vlci_kept *kept;      /* its own objects that are referred to */
    size_t kept_count;           /* of these, those that are no attributes of others */
    unsigned dropped_count;      /* of those in `dropped` */
    bool kept_ended;             /* they were given up, and no more are kept */
    bool shut;                   /* other guests that are not inside already are not let in */
    bool abandoned;              /* it is to be finalised also while its arrays are held */
    /* Once set, the guest goes by itself with its last array; called on its home thread then. */
    void (*finish)(struct vlci_realm *realm);

    _Atomic(struct vlci_source *) released; /* nobody holds these any more: to be freed under this GIL */
    _Atomic(struct vlci_visit *) departed;  /* thread states whose threads have ended; written under lock */
    _Atomic(struct vlci_kept *) dropped;    /* nobody refers to these any more; written under lock */
    atomic_size_t lent;                     /* sources of this realm that someone still holds */
    atomic_size_t waiting, waiting_bytes;   /* how many, and how much they hold */
    atomic_bool settling, settling_later;   /* a job that frees them is on its way */
    atomic_bool awaited;                    /* the home thread waits for all that is lent */
    bool stayed_behind;                     /* of a child: it lives in the parent, where its threads are */

    vlci_object *lease_type, *handle_type, *passage_type;
#define VLCI_FUNCTION_MEMBER(name) vlci_object *name;
    VLCI_FUNCTIONS(VLCI_FUNCTION_MEMBER)
#undef VLCI_FUNCTION_MEMBER
    vlci_object *arrow_types[2];     /* arrow.c's, made when they are first needed */
    vlci_object *hooks[2];           /* names in `threading`, a dict, of what traces new threads */
    vlci_object *keyboard_interrupt; /* builtins.KeyboardInterrupt */
    /* array.c's, once it has been imported there; written under its GIL. */
    _Atomic(struct vlci_numpy *) numpy;
    vlci_object *buffer_types[2]; /* buffer.c's */
    /* Guests only. */
    const char *version;                  /* Py_GetVersion() */
    bool printed;                         /* something that was not shown; guarded by the guest's GIL */
    pthread_t home;                       /* the thread that initialised it */
    struct vlci_interruptible *home_call; /* the call that it is in; guarded by the guest's GIL */
    PyObject *answer;                     /* the host's function behind _vlcs_host.ask */
    PyObject *vlc; /* a weak reference on the host's object that stands for the context; or NULL */
    struct vlci_realm *next_lingering; /* closing.c's */
};

/* The host's realm, made on first use; NULL without memory. Needs the host's GIL the first time. */
struct vlci_realm *vlci_host(void);

/* What the bridge needs of Python in a realm, under its GIL: the types that C makes, then a dict of what is named in
 * VLCI_FUNCTIONS. -1: an exception is set there. */
int vlci_realm_make_types(struct vlci_realm *realm);
int vlci_realm_furnish(struct vlci_realm *realm, vlci_object *functions);
void vlci_realm_unfurnish(struct vlci_realm *realm);

/* On the monotonic clock. */
void vlci_condition_init(pthread_cond_t *condition);

/* A guest's record, with one reference and no interpreter yet; NULL without memory. */
struct vlci_realm *vlci_realm_new(vlc_context *context);
void vlci_realm_retain(struct vlci_realm *realm);
void vlci_realm_release(struct vlci_realm *realm);

/* Around fork(). In the child all guests but `forking` have stopped, and only this thread is inside of that. */
void vlci_realms_fork(enum vlci_fork when, const struct vlci_realm *forking);

/* Counts this thread in, so that the interpreter stays until vlci_realm_end. VLC_MISUSE unless it
 * runs. No GIL is needed. */
int vlci_realm_begin(struct vlci_realm *realm, vlc_error *error);
void vlci_realm_end(struct vlci_realm *realm);

/* How many threads are inside. */
unsigned vlci_realm_inside(struct vlci_realm *realm);

enum vlci_life vlci_realm_life(struct vlci_realm *realm);

/* Writes the frames of a guest's threads as faulthandler does, without its GIL. False: it has no function for
 * that, or no interpreter now. */
bool vlci_realm_dump(struct vlci_realm *realm, int fd);

/* Moves to another life and wakes who waits for it. */
void vlci_realm_set_life(struct vlci_realm *realm, enum vlci_life life);

/* Has a guest that lingers, or will, be finalised although its arrays are held. */
void vlci_realm_abandon(struct vlci_realm *realm);

/* Has a lingering guest go by itself with its last array, and `finish` be called after. */
void vlci_realm_detach(struct vlci_realm *realm, void (*finish)(struct vlci_realm *realm));

/* On the home thread, with no GIL: from ENDING to FINALISING, lingering while arrays are held. */
void vlci_realm_linger(struct vlci_realm *realm);

/* After something of the realm was given back, and put with what is released. */
void vlci_realm_returned(struct vlci_realm *realm);

/* Takes the realm's GIL with this thread's own thread state, made on the first visit and kept until
 * the thread ends, so that the guest's threading.local lasts between calls. Then frees what others
 * gave back. Between begin and end, without any GIL. */
void vlci_attach(struct vlci_realm *realm);
void vlci_detach(struct vlci_realm *realm);

#endif
