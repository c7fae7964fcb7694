/* A thread as we know it: registered when it first enters a context or is made in one. */
#ifndef VLCI_THREAD_H
#define VLCI_THREAD_H

#include "context/os.h"
#include "loader/arch.h"
#include "loader/lock.h"
#include "vlcs.h"

#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

struct vlci_policy;

struct vlci_block {
    uint64_t module; /* 0: none */
    char *memory;    /* start of the segment */
    void *raw;       /* what to give back; NULL for a slot */
    size_t raw_size;
};

struct vlci_key_value {
    uint32_t sequence;
    void *value;
};

/* A destructor of a C++ thread_local object (see __cxa_thread_atexit_impl). */
struct vlci_thread_exit {
    void (*function)(void *);
    void *object;
    vlc_context *context;
    struct vlci_thread_exit *next;
};

/* One stay of a thread inside a context, with what it had before. */
struct vlci_visit {
    struct vlci_visit *outer;
    vlc_context *context; /* VLCI_VISIT_CONTEXT */
    unsigned depth;       /* further entries into the same context */
    bool has_cpus;
    cpu_set_t cpus; /* affinity before */
    bool unmoved;   /* its thread stays on the CPUs that it had */
    unsigned moved; /* how often the context further out had been moved then (slice.c) */
    bool has_policy;
    const struct vlci_policy *policy; /* in force before, and what the kernel had */
    struct vlci_os_policy kernel_policy;
    locale_t locale;
    struct vlci_float_state float_state;
    bool has_stack;  /* a library gave the thread another stack for signal handlers */
    stack_t stack;   /* the one before */
    bool is_wrapped; /* made by a call of a wrapped pointer (wrap.c) */
};

struct vlci_companion;
struct vlci_errand;

/* How threads that stand for one another find each other (context/companion.h). */
struct vlci_seat {
    struct vlci_companion *companions; /* that stand for this one in resident contexts */
    struct vlci_companion *companion;  /* as which it stands for another */
    struct vlci_errand *errand;        /* that it is asked to do */
    struct vlci_errand *spare;         /* for what it asks of others */
    struct vlci_errand *doing;         /* the innermost that it is in the middle of */
    struct vlci_errand *awaited;       /* the innermost that it waits for */
    _Atomic(int) bell;                 /* rung when there is one, or its own is done */
    unsigned depth;                    /* how many it is in the middle of */
    unsigned orphaned; /* of these, how many were asked for by threads that a fork left behind */
};

struct vlci_thread {
    struct vlci_visit *_Atomic visit; /* the innermost; VLCI_THREAD_VISIT */
    _Atomic(int) held;                /* another thread moves this one to other CPUs right now (slice.c) */
    struct vlci_thread *next, **link; /* all registered threads */
    vlc_context *owner;               /* made by this context; NULL: the host's */
    void *start;                      /* the function it began with, to name its library */
    char *pointer;                    /* thread pointer */
    pid_t tid;
    const struct vlci_policy *policy; /* of memory, that it was given; NULL: its own */
    struct vlci_os_policy own_policy;
    uint64_t number; /* never used again, unlike those two */
    pthread_t handle;
    unsigned destructor_rounds;
    struct vlci_visit base, *spare;
    struct vlci_block *blocks; /* by index of TLS module */
    size_t block_count;
    struct vlci_key_value *keys;
    size_t key_count;
    struct vlci_thread_exit *exits;
    struct vlci_seat seat;  /* companion.c's */
    void **_Atomic way_out; /* of a context's thread: a buffer of __builtin_setjmp, back to where it began */
    _Atomic(int) evicted;   /* number of the system call to be taken out of, plus 1 */
    bool has_dl_error;
    char dl_error[sizeof(((vlc_error *)0)->message)];
};

extern __thread struct vlci_thread *vlci_thread_current __attribute__((tls_model("initial-exec")));

/* This thread's record, made if need be; NULL only when memory has run out. */
struct vlci_thread *vlci_thread_self(void);

/* Makes a thread of the context: pinned to its slice, counted, listed. As pthread_create. */
int vlci_thread_create(vlc_context *context, pthread_t *thread, const pthread_attr_t *attributes,
                       void *(*function)(void *), void *argument);

/* As pthread_join and so on, which say `failed` about it: what else there is to do about the context's thread. */
int vlci_thread_joined(vlc_context *context, pthread_t thread, int failed);

/* Pins this thread into the slice (keeping what part of its mask lies in it). */
void vlci_thread_pin(vlc_context *context);

/* Calls visit(thread, argument) for each registered thread of the context, or of all where it is NULL. */
void vlci_thread_each(vlc_context *context, void (*visit)(struct vlci_thread *, void *), void *argument);

/* Runs this thread's thread_local destructors of the context; drops other threads' of it. */
void vlci_thread_exits_run(vlc_context *context);
void vlci_thread_exits_drop(vlc_context *context);
int vlci_thread_exit_add(vlc_context *context, void (*function)(void *), void *object);

int vlci_thread_start(vlc_error *error); /* once, before the first context */
void vlci_thread_fork(enum vlci_fork when);

#endif
