/* A context: everything that belongs to it, and its life. */
#ifndef VLCI_CONTEXT_H
#define VLCI_CONTEXT_H

#include "context/os.h"
#include "loader/debugger.h"
#include "loader/heap.h"
#include "loader/image.h"
#include "loader/scope.h"
#include "overrides/signal.h"
#include "overrides/state.h"
#include "vlcs.h"

#include <locale.h>
#include <pthread.h>
#include <stdbool.h>

struct vlci_companion;
struct vlci_controlled;
struct vlci_joinable;
struct vlci_leaving;
struct vlci_missing;
struct vlci_policy;
struct vlci_pool;
struct vlci_slots;
struct vlci_stack;
struct vlci_thread;
struct vlci_visit;
struct vlci_exit;
struct vlci_atfork;
struct vlci_child_view;
struct vlci_weak;

/* What its own threads take on as they begin (quality.c). */
struct vlci_quality {
    unsigned scheduling; /* a vlc_scheduling */
    bool sets_nice;
    int nice, nice_outside; /* the second: the process's */
    char **groups;          /* files that take their ids; ends with NULL */
};

enum vlci_state {
    VLCI_OPEN,
    VLCI_CLOSING, /* nothing enters any more */
    VLCI_ZOMBIE,  /* finalised, but threads of it live on */
    VLCI_DEAD     /* of another thread than the one that forked: only its name is left in the child */
};

#define VLCI_TOLD (~UINT64_C(0x3ffff)) /* the bits of vlc_context.told */

struct vlc_context {
    struct vlci_weak *weak; /* by which wrapped pointers know it; NULL: there are none. VLCI_CONTEXT_WEAK */
    char *name;
    unsigned number;                     /* never used again */
    struct vlc_context *next, *previous; /* all contexts, newest first */
    bool listed;
    _Atomic(int) state, destroying;

    /* loader */
    pthread_mutex_t load_lock;   /* recursive: constructors load more */
    pthread_mutex_t images_lock; /* over `images` alone, so that unwinders need not wait for constructors */
    unsigned load_depth;         /* opens under way, one within the other; under load_lock */
    struct vlci_image **images;
    size_t image_count;
    struct vlci_image **global; /* the root's closure, and what RTLD_GLOBAL promoted */
    size_t global_count;
    struct vlci_image **init_order;
    size_t init_count;
    struct vlci_uniques uniques;
    unsigned long long loads, unloads; /* dlpi_adds, dlpi_subs */
    uint64_t lookups, cached;
    char **share;
    struct vlci_debugger_node debugger;
    struct vlci_region thunks;
    struct vlci_missing *missing;
    unsigned missing_count;

    /* memory */
    struct vlci_zones zones;
    struct vlci_heap heap;

    /* threads and visits */
    _Atomic(int) threads;         /* made by its libraries and its pool, and not yet ended */
    _Atomic(int) visits;          /* calls of other threads that are inside */
    struct vlci_leaving *leaving; /* threads that ended for us, but maybe not yet for the kernel */
    vlci_lock leaving_lock;
    struct vlci_joinable *joinable; /* handles that its libraries have not joined or detached */
    struct vlci_stack *stacks;      /* of a resident context's threads, until they are joined */
    vlci_lock joinable_lock;        /* over both */
    struct vlci_slots *slots;       /* its own, for static TLS: it is resident; else NULL */
    _Atomic(size_t) slot_bytes;     /* taken, of those or of the process's pool */
    struct vlci_companion *companions;
    struct vlci_pool *pool;
    unsigned pool_threads;
    vlci_lock pool_lock;

    /* slice */
    vlci_lock slice_lock;
    cpu_set_t cpus;
    _Atomic(unsigned) moves, moved;             /* to other CPUs: begun, and ended */
    vlci_lock resize_lock;                      /* one at a time */
    struct vlci_controlled *_Atomic controlled; /* libraries that are told how many threads to use */
    unsigned tellings;                          /* of these; under resize_lock */
    _Atomic(uint64_t) told;                     /* what they were told last; 0: nothing yet */
    pthread_key_t told_key;                     /* what the thread was: the same, and more in other bits */
    struct vlci_child_view *_Atomic child_view, *child_views; /* what children are told; all that ever were */
    struct vlci_quality quality;
    struct vlci_policy *_Atomic policy, *policies; /* of its memory: in force, or NULL; all that ever were */
    uint32_t huge_pages;                           /* a vlc_huge_pages */

    /* what libc keeps per process */
    vlci_lock env_lock;
    char **environment;                 /* `environ` of its libraries; may be replaced by them */
    char **env_made, **env_made_before; /* the arrays that we made last */
    vlci_lock exit_lock;
    struct vlci_exit *exits;
    struct vlci_atfork *forks, *forks_last;
    vlci_lock locale_lock;
    _Atomic(locale_t) locale;
    struct vlci_locale_old *old_locales;
    char *locale_names[13]; /* by category (LC_ALL is 6) */
    char *locale_all;
    struct vlci_libc_state libc;
    struct vlci_signals signals;
    bool takes_signals; /* its handlers of asynchronous signals are the process's */
};

/* fork.c */
extern unsigned vlci_fork_count; /* of forks between the first process and this one */

/* context.c */
extern vlci_lock vlci_contexts_lock, vlci_start_lock;
extern vlc_context *vlci_contexts;
int vlci_context_start(vlc_error *error); /* finds what the process gives: libc, static TLS; once */
void vlci_context_locks_init(vlc_context *context);
bool vlci_context_visit_begins(vlc_context *context); /* false: it is closing */
void vlci_context_visit_ended(vlc_context *context);
bool vlci_context_thread_begins(vlc_context *context); /* counts; false: it is a zombie */
void vlci_context_thread_ended(vlc_context *context, pid_t tid);
unsigned vlci_context_count(void);
size_t vlci_context_mappings_max(void); /* vm.max_map_count, or less: VLCS_MAX_MAPPINGS (docs/tools.md) */
int vlci_context_check_mappings(vlc_context *context, bool is_new, vlc_error *error); /* refuses near that */
int vlci_context_check_open(vlc_context *context, vlc_error *error);
vlc_context *vlci_context_current(void);
int64_t vlci_deadline(int timeout_ms); /* of vlc_destroy and kin; negative: 5 s */
void vlci_wait_zero(_Atomic(int) *count, int64_t deadline);
static inline bool vlci_context_is_dead(const vlc_context *context) {
    return atomic_load_explicit(&context->state, memory_order_relaxed) == VLCI_DEAD;
}

/* visit.c */
int vlci_visit_enter(vlc_context *context, vlc_error *error);
void vlci_visit_leave(vlc_context *context);
/* As vlc_run, but the thread keeps its CPUs: those of the slice may be busy. */
int vlci_visit_run_unmoved(vlc_context *context, vlc_function function, void *argument, vlc_error *error);
bool vlci_visit_is_inside(
    vlc_context *context); /* this thread is in it, at any depth, belongs to it, or stands for one that is */

/* slice.c */
void vlci_slice_fork(enum vlci_fork when);
int vlci_slice_check(const char *name, const uint32_t *cpus, size_t count, cpu_set_t *set, vlc_error *error);
void vlci_context_cpus(vlc_context *context, cpu_set_t *cpus);
/* To be called after a thread's affinity was set from the slice as it was `seen`: a resize between the two has
 * moved the thread already, and would be undone. */
void vlci_slice_settle(vlc_context *context, pid_t tid, const cpu_set_t *seen);
/* Tells the libraries again; on a thread that is inside. */
void vlci_slice_tell(vlc_context *context);
/* This thread's innermost visit has just begun, or `ended`, and its affinity is what it was inside of that. */
void vlci_slice_enter(struct vlci_thread *thread, const struct vlci_visit *visit);
void vlci_slice_leave(struct vlci_thread *thread, const struct vlci_visit *ended);

/* quality.c */
int vlci_quality_check(const vlc_spec *spec, vlc_error *error);
bool vlci_quality_make(struct vlci_quality *quality, const vlc_spec *spec);
void vlci_quality_free(struct vlci_quality *quality);
/* For a thread of the context as it begins, which inherits all from the one that made it: that of another context,
 * or of the host (NULL). */
void vlci_quality_begin(const vlc_context *context, const vlc_context *maker);
/* Lists that end with NULL, and their strings. NULL: out of memory. */
char **vlci_list_copy(const char *const *list);
void vlci_list_free(char **list);

/* stats.c */
int vlci_memory_limit_check(const char *name, uint64_t bytes, vlc_error *error);

/* pool.c */
int vlci_pool_stop(vlc_context *context, int64_t deadline, vlc_error *error); /* queued tasks run first */
bool vlci_pool_is_busy(vlc_context *context); /* with other tasks than the calling thread's */
void vlci_pool_free(vlc_context *context);

/* overrides/thread.c, env.c, locale.c */
void vlci_thread_join_rest(vlc_context *context); /* once all its threads have ended */
int vlci_pthread_detach(pthread_t thread, vlc_context *context);
int vlci_env_make(vlc_context *context, const char *const *changes, vlc_error *error);
char *vlci_getenv(const char *name, vlc_context *context); /* the string stays as long as the context */
bool vlci_context_env(vlc_context *context, const char *name, char *value, size_t capacity);
char **vlci_context_environ(vlc_context *context);
bool vlci_env_has_thread_count(vlc_context *context, const char *beginnings); /* "OMP_ MKL_" */
const char *vlci_env_value(char *const *list, const char *name); /* async-signal-safe, without the lock */
locale_t vlci_context_locale(vlc_context *context);
bool vlci_locale_make(vlc_context *context);
void vlci_locale_free(vlc_context *context);

#endif
