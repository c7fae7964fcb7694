#include "realm.h"

#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "fork.h"
#include "handle.h"
#include "lease.h"
#include "name.h"
#include "status.h"

static pthread_mutex_t realms_lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static struct vlci_realm *realms;
static _Thread_local unsigned inside_host; /* this thread's share of the host's `inside` */

/* A thread's state in a realm that it is a visitor of: whose threads belong to someone else. */
struct vlci_visit {
    struct vlci_realm *realm;
    vlci_thread_state *state;
    struct vlci_visit *next; /* of the same thread; once that has ended, in realm->departed */
};

static pthread_key_t visits_key; /* the thread's list, for its destructor */
static pthread_once_t visits_once = PTHREAD_ONCE_INIT;
static int visits_error;

static void free_visits(struct vlci_visit *visit) {
    while (visit) {
        struct vlci_visit *next = visit->next;
        vlci_realm_release(visit->realm);
        free(visit);
        visit = next;
    }
}

/* Runs as a visiting thread ends. No GIL may be taken here (its holder may wait for this thread), so
 * the states are left for the next visitor of their realm. */
static void depart(void *list) {
    for (struct vlci_visit *visit = list, *next; visit; visit = next) {
        struct vlci_realm *realm = visit->realm;
        next = visit->next;
        visit->next = NULL;
        pthread_mutex_lock(&realm->lock);
        bool stopped = realm->life == VLCI_STOPPED;
        if (!stopped) {
            visit->next = atomic_load(&realm->departed);
            atomic_store(&realm->departed, visit);
        }
        pthread_mutex_unlock(&realm->lock);
        if (stopped) free_visits(visit);
    }
}

static struct vlci_visit *take_departed(struct vlci_realm *realm) {
    pthread_mutex_lock(&realm->lock);
    struct vlci_visit *visits = atomic_exchange(&realm->departed, NULL);
    pthread_mutex_unlock(&realm->lock);
    return visits;
}

/* Drops a thread's records of interpreters that have been finalised, and their states with them. */
static struct vlci_visit *prune(struct vlci_visit *visits) {
    struct vlci_visit *kept = NULL;
    for (struct vlci_visit *visit = visits, *next; visit; visit = next) {
        next = visit->next;
        bool stopped = vlci_realm_life(visit->realm) == VLCI_STOPPED;
        visit->next = stopped ? NULL : kept;
        if (stopped)
            free_visits(visit);
        else
            kept = visit;
    }
    return kept;
}

static void make_key(void) { visits_error = pthread_key_create(&visits_key, depart); }

/* Remembers a visit for the thread's end. */
static void remember(struct vlci_realm *realm, vlci_thread_state *state) {
    struct vlci_visit *visit = visits_error ? NULL : malloc(sizeof *visit);
    if (!visit) return;
    *visit = (struct vlci_visit){ realm, state, prune(pthread_getspecific(visits_key)) };
    if (pthread_setspecific(visits_key, visit)) {
        /* Only where the thread had no list yet, so there is none to lose. */
        free(visit);
        return;
    }
    vlci_realm_retain(realm);
}

/* This thread's first visit: PyGILState makes its thread state. One count of it is ours, so that the pairs of
 * Ensure and Release of code there find it and leave it. Where memory runs out, it stays until the
 * interpreter ends. */
static vlci_thread_state *arrive(struct vlci_realm *realm) {
    realm->api.PyGILState_Ensure();
    vlci_thread_state *state = realm->api.PyGILState_GetThisThreadState();
    realm->api.PyEval_SaveThread();
    remember(realm, state);
    return state;
}

/* This thread's state in the realm: of its earlier visit; its own, where it is one of the realm's threads; or
 * that of a first visit. */
static vlci_thread_state *own_state(struct vlci_realm *realm) {
    pthread_once(&visits_once, make_key);
    struct vlci_visit *first = visits_error ? NULL : pthread_getspecific(visits_key);
    for (struct vlci_visit *visit = first, *before = NULL; visit; before = visit, visit = visit->next) {
        if (visit->realm != realm) continue;
        if (before) { /* to the front: a thread mostly calls where it called last */
            before->next = visit->next;
            visit->next = first;
            pthread_setspecific(visits_key, visit);
        }
        return visit->state;
    }
    vlci_thread_state *state = realm->api.PyGILState_GetThisThreadState();
    return state ? state : arrive(realm);
}

/* Deletes the thread states of threads that have ended; `own` is this thread's. */
static void bury(struct vlci_realm *realm, vlci_thread_state *own) {
    if (!atomic_load_explicit(&realm->departed, memory_order_relaxed)) return;
    vlci_thread_state *undertaker = realm->api.PyThreadState_New(realm->interpreter);
    if (!undertaker) return;
    struct vlci_visit *departed = take_departed(realm);
    /* Destructors of what the thread kept run here, so PyGILState has to find the state that is current. */
    realm->api.PyEval_RestoreThread(own);
    for (struct vlci_visit *visit = departed; visit; visit = visit->next)
        realm->api.PyThreadState_Clear(visit->state);
    realm->api.PyEval_SaveThread();
    /* Under a state of its own: from 3.12, deleting any state makes PyGILState forget the calling
     * thread's, and it is remembered again when it next becomes the current one. */
    realm->api.PyEval_RestoreThread(undertaker);
    for (struct vlci_visit *visit = departed; visit; visit = visit->next)
        realm->api.PyThreadState_Delete(visit->state);
    realm->api.PyThreadState_Clear(undertaker);
    realm->api.PyEval_SaveThread();
    realm->api.PyThreadState_Delete(undertaker);
    realm->api.PyEval_RestoreThread(own);
    realm->api.PyEval_SaveThread();
    free_visits(departed);
}

/* PyGILState_Ensure does the same in two more steps: the state is this thread's, and never the current one,
 * since a thread has no GIL when it comes here. */
void vlci_attach(struct vlci_realm *realm) {
    vlci_thread_state *state = own_state(realm);
    bury(realm, state);
    realm->api.PyEval_RestoreThread(state);
    vlci_sources_settle(realm);
}

void vlci_detach(struct vlci_realm *realm) {
    vlci_sources_settle(realm);
    realm->api.PyEval_SaveThread();
}

int vlci_realm_begin(struct vlci_realm *realm, vlc_error *error) {
    pthread_mutex_lock(&realm->lock);
    bool running = realm->life == VLCI_RUNNING;
    realm->inside += running;
    pthread_mutex_unlock(&realm->lock);
    if (running) {
        inside_host += !realm->context;
        return VLC_OK;
    }
    return vlci_refuse(
        error, VLC_MISUSE, realm->name,
        "cannot call into the Python of the context '%s': it %s. Make another context.", realm->name,
        realm->stayed_behind ? "stayed behind in the process that this one was forked from" : "was stopped");
}

void vlci_realm_end(struct vlci_realm *realm) {
    pthread_mutex_lock(&realm->lock);
    inside_host -= !realm->context;
    if (--realm->inside == 0 && realm->life != VLCI_RUNNING) pthread_cond_broadcast(&realm->changed);
    pthread_mutex_unlock(&realm->lock);
}

enum vlci_life vlci_realm_life(struct vlci_realm *realm) {
    pthread_mutex_lock(&realm->lock);
    enum vlci_life life = realm->life;
    pthread_mutex_unlock(&realm->lock);
    return life;
}

bool vlci_realm_dump(struct vlci_realm *realm, int fd) {
    pthread_mutex_lock(&realm->lock); /* held, so that it does not come to be finalised meanwhile */
    bool there = realm->life >= VLCI_RUNNING && realm->life < VLCI_FINALISING;
    bool able = there && realm->api._Py_DumpTracebackThreads;
    const char *failure = able ? realm->api._Py_DumpTracebackThreads(fd, realm->interpreter, NULL) : NULL;
    pthread_mutex_unlock(&realm->lock);
    return able && !failure;
}

void vlci_realm_set_life(struct vlci_realm *realm, enum vlci_life life) {
    pthread_mutex_lock(&realm->lock);
    realm->life = life;
    pthread_cond_broadcast(&realm->changed);
    pthread_mutex_unlock(&realm->lock);
    if (life == VLCI_STOPPED) free_visits(take_departed(realm)); /* their states went with the interpreter */
}

void vlci_realm_abandon(struct vlci_realm *realm) {
    pthread_mutex_lock(&realm->lock);
    realm->abandoned = true;
    pthread_cond_broadcast(&realm->changed);
    pthread_mutex_unlock(&realm->lock);
}

void vlci_realm_detach(struct vlci_realm *realm, void (*finish)(struct vlci_realm *realm)) {
    pthread_mutex_lock(&realm->lock);
    realm->finish = finish;
    pthread_cond_broadcast(&realm->changed);
    pthread_mutex_unlock(&realm->lock);
}

void vlci_realm_linger(struct vlci_realm *realm) {
    pthread_mutex_lock(&realm->lock);
    atomic_store(&realm->awaited, true);
    if (atomic_load(&realm->lent) && !realm->abandoned) {
        realm->life = VLCI_LINGERING;
        pthread_cond_broadcast(&realm->changed);
        while (!realm->abandoned && (atomic_load(&realm->lent) || !realm->finish)) {
            if (!atomic_load(&realm->released)) {
                pthread_cond_wait(&realm->changed, &realm->lock);
                continue;
            }
            /* What is given back may hold what keeps others from giving back more. */
            pthread_mutex_unlock(&realm->lock);
            vlci_attach(realm); /* which frees it */
            vlci_detach(realm);
            pthread_mutex_lock(&realm->lock);
        }
    }
    realm->life = VLCI_FINALISING;
    pthread_mutex_unlock(&realm->lock);
}

void vlci_realm_returned(struct vlci_realm *realm) {
    atomic_fetch_sub(&realm->lent, 1);
    if (!atomic_load(&realm->awaited)) return;
    pthread_mutex_lock(&realm->lock);
    pthread_cond_broadcast(&realm->changed);
    pthread_mutex_unlock(&realm->lock);
}

unsigned vlci_realm_inside(struct vlci_realm *realm) {
    pthread_mutex_lock(&realm->lock);
    unsigned inside = realm->inside;
    pthread_mutex_unlock(&realm->lock);
    return inside;
}

int vlci_realm_make_types(struct vlci_realm *realm) {
    const struct vlci_api *api = &realm->api;
    vlci_object *builtins = api->PyEval_GetBuiltins(); /* borrowed */
    realm->keyboard_interrupt = api->PyDict_GetItemString(builtins, "KeyboardInterrupt");
    api->Py_IncRef(realm->keyboard_interrupt);
    realm->lease_type = vlci_lease_type_new(api);
    realm->handle_type = realm->lease_type ? vlci_handle_type_new(realm) : NULL;
    realm->passage_type = realm->handle_type ? vlci_passage_type_new(api) : NULL;
    return realm->passage_type && realm->keyboard_interrupt ? 0 : -1;
}

int vlci_realm_furnish(struct vlci_realm *realm, vlci_object *functions) {
    const struct vlci_api *api = &realm->api;
    const struct {
        vlci_object **place;
        const char *name;
    } entries[] = {
#define ENTRY(name) { &realm->name, #name },
        VLCI_FUNCTIONS(ENTRY)
#undef ENTRY
    };
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        vlci_object *found = api->PyDict_GetItemString(functions, entries[i].name); /* borrowed */
        if (!found) {
            api->PyErr_SetString(api->PyDict_GetItemString(api->PyEval_GetBuiltins(), "KeyError"),
                                 entries[i].name);
            return -1;
        }
        api->Py_IncRef(found);
        *entries[i].place = found;
    }
    realm->api.function_type = realm->serve->type;
    realm->api.builtin_type = api->PyTuple_GetItem(realm->operations, VLCI_FETCH)->type; /* getattr's */
    realm->hooks[0] = api->PyUnicode_InternFromString("_trace_hook");
    realm->hooks[1] = api->PyUnicode_InternFromString("_profile_hook");
    return realm->hooks[0] && realm->hooks[1] ? 0 : -1;
}

void vlci_realm_unfurnish(struct vlci_realm *realm) {
    vlci_object **objects[] = {
#define PLACE(name) &realm->name,
        VLCI_FUNCTIONS(PLACE)
#undef PLACE
            & realm->hooks[0],
        &realm->hooks[1],
        &realm->keyboard_interrupt,
        &realm->arrow_types[0],
        &realm->arrow_types[1],
        &realm->passage_type,
        &realm->handle_type,
        &realm->lease_type,
    };
    for (size_t i = 0; i < sizeof objects / sizeof objects[0]; i++) {
        realm->api.Py_DecRef(*objects[i]); /* NULL is fine */
        *objects[i] = NULL;
    }
}

void vlci_condition_init(pthread_cond_t *condition) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

struct vlci_realm *vlci_realm_new(vlc_context *context) {
    struct vlci_realm *realm = calloc(1, sizeof *realm);
    if (!realm) return NULL;
    realm->name = strdup(context ? vlc_name(context) : "host");
    if (!realm->name) {
        free(realm);
        return NULL;
    }
    realm->context = context;
    atomic_init(&realm->references, 1);
    pthread_mutex_init(&realm->lock, NULL);
    vlci_condition_init(&realm->changed);
    pthread_mutex_lock(&realms_lock);
    if ((realm->next = realms)) realms->link = &realm->next;
    realm->link = &realms;
    realms = realm;
    pthread_mutex_unlock(&realms_lock);
    return realm;
}

void vlci_realm_retain(struct vlci_realm *realm) { atomic_fetch_add(&realm->references, 1); }

void vlci_realm_release(struct vlci_realm *realm) {
    if (atomic_fetch_sub(&realm->references, 1) != 1) return;
    pthread_mutex_lock(&realms_lock);
    if ((*realm->link = realm->next)) realm->next->link = realm->link;
    pthread_mutex_unlock(&realms_lock);
    pthread_cond_destroy(&realm->changed);
    pthread_mutex_destroy(&realm->lock);
    vlci_names_free(realm);
    free(realm->name);
    free(realm);
}

static struct vlci_realm *host; /* for as long as the process lives; written under the host's GIL */

/* In a forked child: the parent's other threads are not here, nor what they had begun. Not destroyed before
 * it is made anew: that would wait for them. */
static void forget_parent(struct vlci_realm *realm, const struct vlci_realm *forking) {
    vlci_condition_init(&realm->changed);
    if (realm->context && realm != forking) {
        realm->stayed_behind |= realm->life != VLCI_STOPPED;
        realm->life = VLCI_STOPPED;
        realm->inside = 0;
        return;
    }
    realm->inside = realm->context ? vlci_calls_inside(realm) : inside_host;
    atomic_store(&realm->settling, false);
    atomic_store(&realm->settling_later, false);
    atomic_store(&realm->departed, NULL); /* Python's own handler deletes their states */
    if (!realm->context || pthread_equal(realm->home, pthread_self())) return;
    realm->home = pthread_self(); /* the guest's main thread now */
    realm->home_call = NULL;
}

void vlci_realms_fork(enum vlci_fork when, const struct vlci_realm *forking) {
    if (when == VLCI_FORK_PREPARE) vlci_mutex_fork(&realms_lock, when);
    for (struct vlci_realm *realm = realms; realm; realm = realm->next) {
        vlci_mutex_fork(&realm->lock, when);
        if (when == VLCI_FORK_CHILD) forget_parent(realm, forking);
    }
    if (when != VLCI_FORK_PREPARE) vlci_mutex_fork(&realms_lock, when);
}

struct vlci_realm *vlci_host(void) {
    if (!host) {
        struct vlci_realm *realm = vlci_realm_new(NULL);
        if (!realm) return NULL;
        vlci_api_of_host(&realm->api);
        realm->interpreter = PyInterpreterState_Get();
        realm->life = VLCI_RUNNING;
        host = realm;
    }
    return host;
}
