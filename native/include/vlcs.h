/* vlcs.h: Virtual Library Contexts, the C ABI.
 *
 * A context is a part of this process with private copies of unmodified shared
 * libraries and a slice of the machine's CPUs. This header is the contract; the
 * Python package stands on the same functions.
 *
 * Three numbers, not to be confused:
 *   - VLC_ABI_VERSION: may this header call that libvlcs.so? Both must be equal
 *     (vlc_abi_version()). It moves when a function or a record changes meaning.
 *   - the `size` member of each record: which members the caller knows. A newer
 *     library reads only those; members are only ever appended.
 *   - the package's version: what a person installs. It says nothing here.
 *
 * Common rules.
 *   - Every function that can fail returns a vlc_status and, where `error` is not
 *     NULL, fills *error. Output arguments are written only on VLC_OK.
 *   - A call that fails has changed nothing, unless its comment says otherwise.
 *   - Nothing here prints, exits, aborts or keeps a "last error".
 *   - All functions may be called from any thread, those of one context at once too.
 *   - Strings are UTF-8, end with NUL, and are copied; the caller keeps its own.
 */
#ifndef VLCS_H
#define VLCS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VLC_ABI_VERSION 1u

#if defined(VLC_BUILDING)
#define VLC_API __attribute__((visibility("default")))
#else
#define VLC_API
#endif

typedef struct vlc_context vlc_context; /* a context: from vlc_create to vlc_destroy */
typedef struct vlc_library vlc_library; /* a library loaded in a context; lives as long as it */
typedef struct vlc_task vlc_task;       /* work handed to a context: from vlc_submit to vlc_wait */

/* What went wrong, divided by whose fault it is. */
typedef enum vlc_status {
    VLC_OK = 0,
    VLC_BAD_ARGUMENT = 1, /* the caller's value is wrong: unknown CPU, name used twice ... */
    VLC_MISUSE = 2,       /* the value is right, the moment is not: a closed context ... */
    VLC_LOAD_FAILED = 3,  /* a library, symbol or version is missing, damaged or foreign */
    VLC_LIMIT = 4,        /* something countable ran out: static TLS, mappings, addresses */
    VLC_SYSTEM = 5,       /* the operating system refused; os_error says why */
    VLC_BUSY = 6,         /* threads or calls of the context did not end in time */
    VLC_BUG = 7           /* ours: please report it with the message */
} vlc_status;

/* Filled on failure. `message` says what could not be done, to what, why, and the cure. */
typedef struct vlc_error {
    uint32_t size;     /* sizeof(vlc_error), set by the caller: VLC_ERROR_INIT */
    int32_t status;    /* a vlc_status */
    int32_t os_error;  /* errno of the system's refusal, else 0 */
    char subject[244]; /* the thing at fault: a path, a symbol, a CPU list; may be cut */
    char message[768];
} vlc_error;

#define VLC_ERROR_INIT { sizeof(vlc_error), VLC_OK, 0, "", "" }

/* Libraries with initial-exec thread-local storage (libgomp: 136 bytes) need slots at a fixed distance from the
 * thread pointer. A context takes them from a pool of the process, which is small unless the program was started by
 * `vlcs run` (vlc_limits), or it is resident: it has 64 kB of slots of its own, on threads of its own, which alone run
 * its code. What is called from another thread hands over to one of these, the same for each caller, and waits:
 * vlc_run, vlc_load, vlc_destroy, and functions from vlc_symbol, which come wrapped (vlc_wrap) there. vlc_enter is
 * refused; no other address in the context may be called there. */
typedef enum vlc_residence {
    VLC_RESIDENT_NEVER = 0,
    VLC_RESIDENT_WHEN_NEEDED = 1, /* decided at creation: when the pool is too low for one more context */
    VLC_RESIDENT_ALWAYS = 2
} vlc_residence;

/* Where malloc of a context's libraries takes from. */
typedef enum vlc_heap {
    VLC_HEAP_OWN = 0, /* of its own: what they leak goes with the context, and the host frees by vlc_free */
    VLC_HEAP_HOST = 1 /* the host's: its free() takes their blocks, and what they leak stays */
} vlc_heap;

/* How the kernel schedules a context's own threads (sched(7)). */
typedef enum vlc_scheduling {
    VLC_SCHEDULING_INHERITED = 0, /* as whoever makes the thread */
    VLC_SCHEDULING_BATCH = 1,     /* SCHED_BATCH: takes no CPU from others by waking up */
    VLC_SCHEDULING_IDLE = 2       /* SCHED_IDLE: what others leave */
} vlc_scheduling;

/* Most NUMA nodes that Linux can number (CONFIG_NODES_SHIFT). */
#define VLC_NODES 1024

/* On which NUMA nodes a context's memory lies: its heap and the anonymous mappings of its libraries, whoever touches
 * them first, and what its threads and visitors have the kernel allocate besides (their stacks, data of libraries).
 * As in set_mempolicy(2). Pages that are shared with the host (text of libraries) are where they are. */
typedef enum vlc_memory {
    VLC_MEMORY_DEFAULT = 0,   /* none of its own: that of each thread, so usually where it runs */
    VLC_MEMORY_BIND = 1,      /* on these nodes and no others */
    VLC_MEMORY_PREFERRED = 2, /* on these while they have free memory (before Linux 5.15 the first of them) */
    VLC_MEMORY_INTERLEAVE = 3, /* page by page on each of them in turn */
    VLC_MEMORY_LOCAL = 4 /* where the thread runs that touches it, whatever policy that thread has outside */
} vlc_memory;

/* Transparent huge pages for the context's heap and anonymous mappings: madvise(2). */
typedef enum vlc_huge_pages {
    VLC_HUGE_PAGES_DEFAULT = 0, /* as the system does */
    VLC_HUGE_PAGES_ALWAYS = 1,  /* MADV_HUGEPAGE; blocks of 2 MB and more are aligned to that */
    VLC_HUGE_PAGES_NEVER = 2    /* MADV_NOHUGEPAGE, and its libraries' MADV_HUGEPAGE is answered by EINVAL */
} vlc_huge_pages;

/* What vlc_create is asked for. Zero means the default for every member. */
typedef struct vlc_spec {
    uint32_t size;        /* sizeof(vlc_spec): VLC_SPEC_INIT */
    uint32_t threads;     /* threads of the pool behind vlc_submit; 0 means 1. Made on first use */
    const char *name;     /* unique among open contexts; NULL: a name is made ("vlc-1") */
    const uint32_t *cpus; /* CPU numbers of the slice; NULL: all that the process may use */
    size_t cpu_count;
    const char *const *env;   /* "NAME=value" sets, "NAME" removes; ends with NULL; may be NULL */
    const char *const *share; /* sonames that bind to the host's copy ("libcuda.so.1"); ends with NULL */
    uint32_t residence;       /* a vlc_residence */
    uint32_t heap;            /* a vlc_heap */
    uint32_t scheduling;      /* a vlc_scheduling */
    uint32_t sets_nice;       /* 1: `nice` is that of the context's own threads; 0: they inherit it */
    int32_t nice;             /* from -20, which comes first, to 19 (setpriority(2)) */
    /* Control groups of its own threads: files that each writes its id to before it runs any code of the context
     * ("/sys/fs/cgroup/cpu/mine/tasks", ".../cgroup.threads", "/sys/fs/resctrl/mine/tasks"); ends with NULL; may be
     * NULL. The groups are the caller's. A thread that one of these makes for another context joins the group
     * above instead. What the kernel refuses leaves the thread where it was. */
    const char *const *groups;
    uint32_t memory;       /* a vlc_memory */
    uint32_t huge_pages;   /* a vlc_huge_pages */
    const uint32_t *nodes; /* of `memory`; NULL: those of the slice's CPUs, also after vlc_resize */
    size_t node_count;
    uint64_t memory_limit; /* bytes, as vlc_set_memory_limit; 0: none */
} vlc_spec;

#define VLC_SPEC_INIT                                                                                        \
    { sizeof(vlc_spec),                                                                                      \
      0,                                                                                                     \
      NULL,                                                                                                  \
      NULL,                                                                                                  \
      0,                                                                                                     \
      NULL,                                                                                                  \
      NULL,                                                                                                  \
      VLC_RESIDENT_NEVER,                                                                                    \
      VLC_HEAP_OWN,                                                                                          \
      VLC_SCHEDULING_INHERITED,                                                                              \
      0,                                                                                                     \
      0,                                                                                                     \
      NULL,                                                                                                  \
      VLC_MEMORY_DEFAULT,                                                                                    \
      VLC_HUGE_PAGES_DEFAULT,                                                                                \
      NULL,                                                                                                  \
      0,                                                                                                     \
      0 }

/* Figures of a context at one moment. Times in nanoseconds, memory in bytes. */
typedef struct vlc_stats {
    uint32_t size;               /* sizeof(vlc_stats): VLC_STATS_INIT */
    uint32_t threads;            /* threads that belong to the context and live now */
    uint32_t visitors;           /* calls of other threads that are inside now */
    uint32_t libraries;          /* private libraries loaded */
    uint64_t cpu_time;           /* used by the context's living threads */
    uint64_t voluntary_switches; /* context switches of those threads */
    uint64_t involuntary_switches;
    uint64_t heap_bytes;       /* mapped for the context's malloc */
    uint64_t mapped_bytes;     /* anonymous and file mappings made by its libraries */
    uint64_t library_bytes;    /* address space of its libraries (text is shared with the host) */
    uint64_t static_tls_bytes; /* initial-exec slots taken, of the pool or of its own */
    uint64_t lookups;          /* symbols looked up; `cached` more came from the cache */
    uint64_t cached;
    uint32_t keys;            /* pthread keys in use */
    uint32_t resident;        /* 1: the context is (vlc_residence) */
    uint64_t static_tls_left; /* initial-exec slots that it can still take */
    uint64_t heap_used;       /* in blocks that malloc gave and nobody has freed */
    uint64_t memory_bytes;    /* what counts for the limit (vlc_set_memory_limit) */
    uint64_t memory_peak;     /* the most that it ever was */
    uint64_t memory_limit;    /* 0: none */
} vlc_stats;

#define VLC_STATS_INIT { sizeof(vlc_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Figures of the whole process. */
typedef struct vlc_limits {
    uint32_t size;             /* sizeof(vlc_limits) */
    uint32_t contexts;         /* open now */
    uint64_t static_tls_total; /* bytes of the initial-exec pool (large under `vlcs run`) */
    uint64_t static_tls_used;
    uint64_t mappings;           /* kernel mappings of the process now */
    uint64_t mappings_max;       /* vm.max_map_count, or what VLCS_MAX_MAPPINGS lowers it to */
    uint64_t wrappers;           /* pointers that vlc_wrap has made, ever */
    uint64_t late_calls;         /* calls of wrapped pointers that did nothing: their context was closed */
    uint32_t resident;           /* of the open contexts, how many are resident */
    uint32_t next_is_resident;   /* 1: one more with VLC_RESIDENT_WHEN_NEEDED would be */
    uint64_t resident_tls_total; /* bytes of slots that each resident context has */
    const char
        *host_malloc; /* file of a malloc that replaced libc's: contexts use it, leaks stay; NULL: none */
} vlc_limits;

/* How a library takes part when its context gets other CPUs. It follows where its number of threads was that of the
 * slice's CPUs, or of its cores; a number that somebody has set stays. */
typedef enum vlc_pool_state {
    VLC_POOL_UNKNOWN = 0,       /* it has not been told anything yet */
    VLC_POOL_FOLLOWS = 1,       /* it uses so many threads from its next call on */
    VLC_POOL_FOLLOWS_ENTRY = 2, /* each thread has a number there, and a new one when it next enters */
    VLC_POOL_ASKS = 3,          /* it asks another library for the number at each call (OpenMP) */
    VLC_POOL_HAS_OWN = 4,       /* by a call, or by a variable of the context's env */
    VLC_POOL_CANNOT = 5, /* it did not take the number, or cannot have more threads than it began with */
    VLC_POOL_FIXED = 6   /* nobody can tell it: these are the threads that it has made */
} vlc_pool_state;

typedef struct vlc_pool {
    uint32_t size;       /* sizeof(vlc_pool): VLC_POOL_INIT */
    uint32_t state;      /* a vlc_pool_state */
    uint32_t threads;    /* how many it uses, for the thread that called vlc_resize; 0: not known */
    uint32_t reserved;   /* 0 */
    const char *library; /* "OpenMP", "OpenBLAS", "MKL", "BLIS", "PyTorch", "oneTBB", or the soname */
    const char *path;    /* its file; both are valid until vlc_destroy */
} vlc_pool;

#define VLC_POOL_INIT { sizeof(vlc_pool), 0, 0, 0, NULL, NULL }

typedef void *(*vlc_function)(void *argument);

/* VLC_ABI_VERSION of the library that runs. */
VLC_API uint32_t vlc_abi_version(void);

/* The name of a status, "VLC_LOAD_FAILED"; static storage; "unknown" for other numbers. */
VLC_API const char *vlc_status_name(int status);

/* Makes a context. It has no library and no thread yet. *context is the caller's, to be
 * given to vlc_destroy; those still open at exit() are closed then, in reverse order. Those whose tasks or
 * calls have not ended then are left as they are: their exit handlers and destructors do not run.
 * Fails: VLC_BAD_ARGUMENT (name used by an open context; a CPU that the process may not
 * use; an empty list), VLC_LIMIT, VLC_SYSTEM. Nothing is left behind. */
VLC_API int vlc_create(const vlc_spec *spec, vlc_context **context, vlc_error *error);

/* Loads `file` (a path, or a soname that is searched as dlopen does) and what it needs,
 * private to the context; constructors run on this thread, inside the context. `flags`
 * are dlopen's. The first library loaded is the root: its symbols and its dependencies'
 * are the context's global scope. Loading what is loaded gives the same library.
 * Fails: VLC_LOAD_FAILED, VLC_LIMIT, VLC_SYSTEM, VLC_MISUSE (closed). What was loaded by
 * a failed call is gone again. */
VLC_API int vlc_load(vlc_context *context, const char *file, int flags, vlc_library **library,
                     vlc_error *error);

/* Address of a function or datum: of `library` and its dependencies, or, where it is
 * NULL, of the context's global scope. Valid until vlc_destroy.
 * Calling a function by its address from outside vlc_run or vlc_enter works on this thread, and on
 * others once they have been inside (static thread-local storage is set up then), but on the CPUs and
 * in the locale of the caller. A function of a resident context comes wrapped (vlc_wrap), unless this
 * thread is the context's own. Fails: VLC_LOAD_FAILED, VLC_MISUSE; in a resident context also VLC_SYSTEM. */
VLC_API int vlc_symbol(vlc_context *context, vlc_library *library, const char *name, void **address,
                       vlc_error *error);

/* Runs function(argument) on this thread (a resident context: on one of its own that stands for it) inside the
 * context and stores what it returns.
 * While inside, the thread has the slice's CPUs, and the context's locale; both come
 * back afterwards. A function from vlc_symbol uses the context's libraries. A function
 * of the host gets only the slice: its own calls go through the host's links.
 * An exception or longjmp out of `function` is the caller's error. Fails: VLC_MISUSE. */
VLC_API int vlc_run(vlc_context *context, vlc_function function, void *argument, void **result,
                    vlc_error *error);

/* For host code that a resident context calls back: runs function(argument) on the thread that waits for this one, so
 * that it finds its locks, its thread-local state and its signals; on this thread where none waits. Gives what the
 * function returns. */
VLC_API void *vlc_run_outside(vlc_function function, void *argument);

/* A number for the calling thread, or for the one that it stands for in a resident context; never used again. 0: out
 * of memory. */
VLC_API uint64_t vlc_thread_number(void);

/* Enters the context on this thread until vlc_leave, to make many calls at the price of
 * one change of CPUs. Nests, also across contexts, strictly first in, last out. A resident
 * context can be entered on its own threads only: VLC_MISUSE. */
VLC_API int vlc_enter(vlc_context *context, vlc_error *error);
VLC_API int vlc_leave(vlc_context *context, vlc_error *error);

/* Bytes of arguments that a wrapped pointer passes on from its caller's stack: those that find no place in
 * registers, as the 7th integer and all after it. */
#define VLC_WRAP_STACK 256

/* Wraps a function of the context, for whoever calls it later: a destructor or release callback in a struct, a
 * comparator, a callback. *wrapped is called with the function's own signature, from any thread, and runs it
 * inside the context, as vlc_run does; on a thread that is inside already it is a jump. Any signature will
 * do, also with structs, floats, a result in memory or "...", up to VLC_WRAP_STACK bytes on the stack. An exception
 * and pthread_exit may pass through and leave the context on their way; longjmp may not.
 * The same function gives the same pointer; a wrapped one gives itself. It stays callable for the life of the
 * process (at a price of 16 bytes): once the context is closed, a call does nothing and returns 0, NULL or 0.0. For a
 * destructor this is right, since what it would free went with the context. `vlc_limits.late_calls` counts them.
 * Fails: VLC_BAD_ARGUMENT, VLC_MISUSE (closed, or retired), VLC_SYSTEM. */
VLC_API int vlc_wrap(vlc_context *context, void *function, void **wrapped, vlc_error *error);

/* Retires the context's wrapped pointers: calls of them from outside do nothing from now on, as once it is closed.
 * vlc_destroy does so too; this is for who has something in the context to end before (an interpreter). Waits
 * up to `timeout_ms` (negative: 5 s) for calls that are inside. Fails: VLC_BUSY (they are retired; it may be
 * called again), VLC_MISUSE (from inside the context). */
VLC_API int vlc_retire(vlc_context *context, int timeout_ms, vlc_error *error);

/* As free(), for a block of any context or of the host: what a library of a context gives to its caller to free.
 * The host's own free() knows only its own blocks (see vlc_heap). NULL, and a block of a context that is closed: nothing,
 * for it went with the context. */
VLC_API void vlc_free(void *block);

/* Queues function(argument) for the context's own threads, in order of arrival. *task is
 * the caller's, to be given to vlc_wait once; `task` may be NULL: nobody will wait.
 * Fails: VLC_MISUSE, VLC_SYSTEM (no thread could be made). */
VLC_API int vlc_submit(vlc_context *context, vlc_function function, void *argument, vlc_task **task,
                       vlc_error *error);

/* As vlc_submit, on thread `thread` of the pool (from 0): for libraries whose handles belong
 * to the thread that made them. Fails also: VLC_BAD_ARGUMENT (there is no such thread). */
VLC_API int vlc_submit_on(vlc_context *context, uint32_t thread, vlc_function function, void *argument,
                          vlc_task **task, vlc_error *error);

/* As vlc_submit_on, after some time, or at once when the context closes before; nobody can wait for it. For work
 * that is cheaper done for many at once. */
VLC_API int vlc_submit_after(vlc_context *context, uint32_t thread, uint32_t milliseconds,
                             vlc_function function, void *argument, vlc_error *error);

/* Waits until the task has run, stores its result and frees it. On a thread of that
 * pool itself: VLC_MISUSE (it would wait for itself), and the task stays valid. */
VLC_API int vlc_wait(vlc_task *task, void **result, vlc_error *error);

/* Gives the context other CPUs: all its threads move, and what it tells its libraries
 * changes. Threads that are visiting move too, and those that are in another context when
 * they come back. Libraries that sized their pools before are told (vlc_get_pool); where there are
 * such, this thread enters the context for it, as with vlc_run. Fails as vlc_create and vlc_run do. */
VLC_API int vlc_resize(vlc_context *context, const uint32_t *cpus, size_t cpu_count, vlc_error *error);

/* Gives the context another policy of memory, or none (VLC_MEMORY_DEFAULT): for what is touched from now on, pages
 * that were touched stay (vlc_migrate_memory). Ranges change at once, visitors when they next enter, its own threads
 * when they next take memory from the system or begin a task. `nodes` NULL: those of the slice's CPUs, also after
 * vlc_resize. Fails: VLC_BAD_ARGUMENT (a node without memory, or that the process may not use; VLC_MEMORY_LOCAL
 * with nodes), VLC_SYSTEM (the kernel has no NUMA, or a seccomp filter forbids the calls, as Docker's does). */
VLC_API int vlc_set_memory(vlc_context *context, uint32_t memory, const uint32_t *nodes, size_t node_count,
                           vlc_error *error);

/* The policy in force; writes up to `capacity` of its nodes in ascending order, and how many there are to *count,
 * which may be NULL. */
VLC_API uint32_t vlc_memory_policy(vlc_context *context, uint32_t *nodes, size_t capacity, size_t *count);

/* The NUMA nodes whose memory this process may use: writes up to `capacity` in ascending order, and how many there
 * are to *count. Fails: VLC_SYSTEM, as vlc_set_memory. */
VLC_API int vlc_allowed_nodes(uint32_t *nodes, size_t capacity, size_t *count, vlc_error *error);

/* Bytes of its heap and anonymous mappings that were touched and lie on each node: bytes[n] is of node n, for all
 * below `nodes`. Takes about 40 ms per GB. Fails: VLC_SYSTEM, as vlc_set_memory. */
VLC_API int vlc_memory_nodes(vlc_context *context, uint64_t *bytes, size_t nodes, vlc_error *error);

/* Moves touched pages of its heap and anonymous mappings that lie on other nodes to those of its policy, or of its
 * CPUs where that names none, in turn. Gives the bytes that were moved, and those that are left elsewhere: nodes
 * may be full, and pages pinned by a driver or shared with a child stay. Other threads may use the memory meanwhile.
 * *moved and *left may be NULL. Fails: VLC_SYSTEM, as vlc_set_memory (some may have been moved), VLC_MISUSE. */
VLC_API int vlc_migrate_memory(vlc_context *context, uint64_t *moved, uint64_t *left, vlc_error *error);

/* Limits what the context's heap and the anonymous memory that its libraries map take together, in bytes of address
 * space that was ever made accessible and not given back; 0: no limit. Beyond it malloc and mmap fail with
 * ENOMEM, there alone, and it goes on when some is freed or the limit is raised. Less than what is taken now: no
 * more until it has fallen below. Files, stacks, and images of libraries do not count. With VLC_HEAP_HOST
 * only mappings count. Raw system calls escape. vlc_destroy lifts it. Fails: VLC_BAD_ARGUMENT (below VLC_MEMORY_LIMIT_LEAST, which a
 * context takes before it has loaded anything), VLC_MISUSE (closed). */
#define VLC_MEMORY_LIMIT_LEAST (1ul << 20)
VLC_API int vlc_set_memory_limit(vlc_context *context, uint64_t bytes, vlc_error *error);

/* How the i-th library with a pool of threads has followed the last vlc_resize, in order of loading; 0 past the
 * end, and *pool is not written. Its size is the caller's (VLC_POOL_INIT). */
VLC_API int vlc_get_pool(vlc_context *context, size_t index, vlc_pool *pool);

/* Has one more library take part: by two functions of it that no symbol names, as an interpreter's package may have. They
 * get and set the number of threads for the calling thread, and are called on any thread that is inside; `get` gives
 * the slice's number now, unless somebody has set another. More than `most` is never set (0: no limit). Again: nothing.
 * Fails: VLC_BAD_ARGUMENT (no functions of a library of the context), VLC_LIMIT. */
VLC_API int vlc_control(vlc_context *context, const char *library, int (*get)(void), void (*set)(int),
                        uint32_t most, vlc_error *error);

/* For code that stays inside of a context for long: the libraries that have a number of threads for each thread follow,
 * for this one, what vlc_resize has told others meanwhile. Where nothing has, it costs nanoseconds. Not to be called by
 * what a library calls back: it may rely on the number that it has read. Fails: VLC_MISUSE (not inside). */
VLC_API int vlc_follow(vlc_context *context, vlc_error *error);

/* The slice: writes up to `capacity` CPU numbers in ascending order; returns how many there are. */
VLC_API size_t vlc_cpus(vlc_context *context, uint32_t *cpus, size_t capacity);

/* Thread ids (gettid) of the context's living threads; as vlc_cpus. */
VLC_API size_t vlc_threads(vlc_context *context, int32_t *ids, size_t capacity);

/* Path of the context's i-th library in order of loading, valid until vlc_destroy; NULL past the end. */
VLC_API const char *vlc_library_path(vlc_context *context, size_t index);

VLC_API int vlc_get_stats(vlc_context *context, vlc_stats *stats, vlc_error *error);
VLC_API int vlc_get_limits(vlc_limits *limits, vlc_error *error);

/* The name given to vlc_create; valid until vlc_destroy. */
VLC_API const char *vlc_name(vlc_context *context);

/* The context whose library holds the address, or that the calling thread is inside of
 * where `address` is NULL; NULL: the host. */
VLC_API vlc_context *vlc_context_of(const void *address);

/* Ends a context: no new calls enter, queued tasks run, its threads end, exit handlers
 * and destructors of its libraries run on this thread, and everything it had is unmapped.
 * Waits up to `timeout_ms` (negative: 5 s) for its calls and threads. On VLC_BUSY the
 * message names what still runs; the context is closed for good and keeps its memory;
 * vlc_destroy may be called again. Fails also: VLC_MISUSE (from inside the context). */
VLC_API int vlc_destroy(vlc_context *context, int timeout_ms, vlc_error *error);

#ifdef __cplusplus
}
#endif
#endif
