/* Resident contexts: their static TLS lies behind stacks of ours, so no other thread may ever run their code. Every
 * way in is tried on a thread that has canaries where the slots would be. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "contexts.h"

enum {
    SLOTS = 64 << 10,
    STACK = 1 << 20,
    ROUNDS = UNDER_SANITIZER ? 8 : 24,
    WARM = ROUNDS / 3,
    CALLS = 5000
};

static vlc_context *resident_new(const char *name) {
    vlc_spec spec = VLC_SPEC_INIT;
    spec.name = name;
    spec.residence = VLC_RESIDENT_ALWAYS;
    return context_from(&spec);
}

/* What `call` of contexts.h is for others. */
struct run {
    probe function;
    long argument, result;
};
static void *run_probe(void *argument) {
    struct run *run = argument;
    run->result = run->function(run->argument);
    return NULL;
}
static long run(vlc_context *context, probe function, long argument) {
    vlc_error error = VLC_ERROR_INIT;
    struct run run = { function, argument, 0 };
    REQUIRE(vlc_run(context, run_probe, &run, NULL, &error) == VLC_OK, "%s", error.message);
    return run.result;
}
static long run_named(vlc_context *context, const char *name, long argument) {
    return run(context, find(context, NULL, name), argument);
}

/* ---- a host thread with canaries ----------------------------------------------------------------------- */

static void *on_canaries(void *(*body)(void *), void *argument) {
    pthread_attr_t attributes;
    pthread_t thread;
    void *result;
    size_t length = STACK + 2 * SLOTS;
    char *map = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(map != MAP_FAILED, "no memory");
    char *end = (char *)(((uintptr_t)map + STACK + SLOTS - 1) & -(uintptr_t)SLOTS);
    memset(end, 0xa5, SLOTS);
    pthread_attr_init(&attributes);
    REQUIRE(pthread_attr_setstack(&attributes, map, (size_t)(end - map)) == 0, "no stack");
    REQUIRE(pthread_create(&thread, &attributes, body, argument) == 0, "no thread");
    pthread_join(thread, &result);
    pthread_attr_destroy(&attributes);
    size_t changed = 0;
    for (size_t i = 0; i < SLOTS; i++) changed += (unsigned char)end[i] != 0xa5;
    CHECK(!changed, "%zu bytes were written through a host thread's pointer", changed);
    munmap(map, length);
    return result;
}

static long at_end, key_ended;

/* `rounds`: of threads that the library makes, 16 in each. */
static void *every_way(void *rounds) {
    vlc_error error = VLC_ERROR_INIT;
    vlc_context *context = resident_new("ways");
    vlc_library *library = load(context, FIXTURE("resident"), RTLD_NOW); /* constructors */
    CHECK_REFUSED(vlc_enter(context, &error), error, VLC_MISUSE, "vlc_run");
    CHECK_REFUSED(vlc_leave(context, &error), error, VLC_MISUSE, "ways");
    CHECK_EQUAL(run_named(context, "resident_start", 0), 41); /* the thread that the constructor ran on */
    CHECK_EQUAL(run_named(context, "resident_count", 5), 5);
    CHECK_EQUAL(run_named(context, "resident_count", 5), 10);
    CHECK_EQUAL(find(context, library, "resident_count")(2), 12); /* by its address */
    void *wrapped = NULL;
    REQUIRE(vlc_wrap(context, (void *)find(context, library, "resident_count"), &wrapped, &error) == VLC_OK,
            "%s", error.message);
    CHECK_EQUAL(((probe)wrapped)(2), 14);
    CHECK_EQUAL(run_named(context, "resident_threads", *(long *)rounds), 0);
    CHECK_EQUAL(run_named(context, "resident_ways_to_join", 0), 0);
    CHECK_EQUAL(run_named(context, "resident_attributes", 0), 0);
    vlc_task *task;
    struct run submitted = { find(context, NULL, "resident_count"), 3, 0 };
    REQUIRE(vlc_submit(context, run_probe, &submitted, &task, &error) == VLC_OK, "%s", error.message);
    REQUIRE(vlc_wait(task, NULL, &error) == VLC_OK, "%s", error.message);
    CHECK_EQUAL(submitted.result, 3);
    *(long **)find(context, NULL, "resident_at_end") = &at_end;
    at_end = 0;
    context_close(context); /* destructors */
    CHECK_EQUAL(at_end, 1);
    return NULL;
}

/* ---- companions ---------------------------------------------------------------------------------------- */

struct caller {
    vlc_context *context;
    long thread, count;
};

static void *call_twice(void *argument) {
    struct caller *caller = argument;
    caller->thread = run_named(caller->context, "resident_thread", 0);
    run_named(caller->context, "resident_count", 1);
    caller->count = run_named(caller->context, "resident_count", 1);
    CHECK_EQUAL(run_named(caller->context, "resident_thread", 0), caller->thread);
    run_named(caller->context, "resident_tell_end", (long)(uintptr_t)&key_ended);
    return NULL;
}

static void check_companions(vlc_context *context) {
    struct caller callers[8];
    pthread_t threads[8];
    CHECK_EQUAL(run_named(context, "resident_count", 0), 0);
    long before = (long)vlc_threads(context, NULL, 0);
    for (int i = 0; i < 8; i++) {
        callers[i] = (struct caller){ context, 0, 0 };
        REQUIRE(pthread_create(&threads[i], NULL, call_twice, &callers[i]) == 0, "no thread");
    }
    key_ended = 0;
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    CHECK_EQUAL(key_ended, 7); /* by then: the companion has ended with its thread */
    for (int i = 0; i < 8; i++) CHECK_EQUAL(callers[i].count, 2);
    CHECK_EQUAL(vlc_threads(context, NULL, 0), before);
    CHECK_EQUAL(run_named(context, "resident_count", 0), 0);
}

/* By their addresses: a function comes wrapped, and a datum as it is, wherever the linker put it. */
static void check_constant(vlc_context *context) {
    vlc_library *library = load(context, FIXTURE("constant"), RTLD_NOW);
    CHECK_EQUAL(find(context, library, "constant_function")(1), 1235);
    CHECK_EQUAL(*(const long *)find(context, library, "constant_datum"), 1234);
}

/* Out by a callback, and back in: on the thread that waits there, through other resident contexts too. */
struct way {
    vlc_context *context;
    probe function;
    long argument;
    struct {
        probe function;
        long argument;
    } call;
};
static vlc_context *outer;
static long out_and_in(long argument) {
    const struct way *way = (const struct way *)argument;
    return run(way->context, way->function, way->argument);
}
static long destroy_outer(long unused) {
    (void)unused;
    vlc_error error = VLC_ERROR_INIT;
    CHECK_REFUSED(vlc_destroy(outer, 100, &error), error, VLC_MISUSE, "from inside");
    return 5;
}

/* Host code that is called back runs where its locks and thread-local state are, if it asks for it. */
static pthread_t host_thread;
static uint64_t host_number;
static void *at_home(void *argument) {
    CHECK(pthread_equal(pthread_self(), host_thread), "vlc_run_outside ran on another thread");
    CHECK_EQUAL(vlc_thread_number(), host_number);
    const struct way *way = argument;
    return (void *)run(way->context, way->function, way->argument);
}
static long ask_home(long argument) {
    CHECK(!pthread_equal(pthread_self(), host_thread), "the callback is on the host's thread already");
    CHECK_EQUAL(vlc_thread_number(), host_number);
    return (long)vlc_run_outside(at_home, (void *)argument);
}

static void check_nesting(vlc_context *a, vlc_context *b) {
    long mine = run_named(a, "resident_thread", 0), other = run_named(b, "resident_thread", 0);
    CHECK(mine != other, "two contexts share a thread");
    struct way again = { a, find(a, NULL, "resident_thread"), 0, { 0 } };
    again.call.function = out_and_in;
    again.call.argument = (long)(uintptr_t)&again;
    CHECK_EQUAL(run_named(a, "resident_call", (long)(uintptr_t)&again.call), mine);
    struct way through = { b, find(b, NULL, "resident_call"), (long)(uintptr_t)&again.call, { 0 } };
    through.call.function = out_and_in;
    through.call.argument = (long)(uintptr_t)&through;
    CHECK_EQUAL(run_named(a, "resident_call", (long)(uintptr_t)&through.call), mine);
    CHECK_EQUAL(run_named(b, "resident_call", (long)(uintptr_t)&through.call), mine);
    CHECK_EQUAL(run_named(b, "resident_thread", 0), other);
    host_thread = pthread_self();
    host_number = vlc_thread_number();
    again.call.function = ask_home;
    CHECK_EQUAL(run_named(a, "resident_call", (long)(uintptr_t)&again.call), mine);
    CHECK_EQUAL(run_named(a, "resident_call", (long)(uintptr_t)&through.call), mine);
    CHECK_EQUAL(run_named(b, "resident_call", (long)(uintptr_t)&through.call), mine);
    outer = a;
    again.call.function = destroy_outer;
    CHECK_EQUAL(run_named(a, "resident_call", (long)(uintptr_t)&again.call), 5);
    CHECK_EQUAL(run_named(a, "resident_call", (long)(uintptr_t)&through.call), 5);
}

static void check_what_comes_along(vlc_context *context) {
    probe function = find(context, NULL, "resident_state");
    sigset_t signals, after;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    pthread_sigmask(SIG_SETMASK, &signals, NULL);
    errno = 33;
    CHECK_EQUAL(run(context, function, 33), 0);
    CHECK_EQUAL(errno, 34);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    CHECK(!sigismember(&after, SIGUSR1) && sigismember(&after, SIGUSR2), "the mask did not come back");
    sigemptyset(&signals);
    pthread_sigmask(SIG_SETMASK, &signals, NULL);
}

static void check_exit_inside(vlc_context *context) {
    vlc_error error = VLC_ERROR_INIT;
    struct run run_it = { find(context, NULL, "resident_leave_by_exit"), 0, 0 };
    CHECK_REFUSED(vlc_run(context, run_probe, &run_it, NULL, &error), error, VLC_MISUSE, "pthread_exit");
    CHECK_EQUAL(run_named(context, "resident_count", 1), 1); /* a new one stands for this thread now */
}

static void *fork_at_home(void *unused) {
    (void)unused;
    return (void *)(intptr_t)fork();
}
static long ask_home_to_fork(long unused) {
    (void)unused;
    return (long)(intptr_t)vlc_run_outside(fork_at_home, NULL);
}

/* The host's thread forks while the context waits for it: in the child it goes on, and the context is not there. */
static void check_fork_outside(vlc_context *context) {
    vlc_error error = VLC_ERROR_INIT;
    struct way way = { context, NULL, 0, { ask_home_to_fork, 0 } };
    struct run asking = { find(context, NULL, "resident_call"), (long)(uintptr_t)&way.call, 0 };
    fflush(NULL);
    pid_t parent = getpid();
    int status = vlc_run(context, run_probe, &asking, NULL, &error);
    if (getpid() != parent) {
        CHECK(status == VLC_MISUSE && strstr(error.message, "fork()"), "%d: %s", status, error.message);
        vlc_context *fresh = resident_new("fresh");
        load(fresh, FIXTURE("resident"), RTLD_NOW);
        CHECK_EQUAL(run_named(fresh, "resident_count", 4), 4);
        context_close(fresh);
        _exit(check_result());
    }
    REQUIRE(status == VLC_OK, "%s", error.message);
    CHECK(waitpid((pid_t)asking.result, &status, 0) == asking.result && status == 0,
          "the child of fork() outside ended with %d", status);
}

static void *leave_at_home(void *unused) {
    (void)unused;
    pthread_exit(NULL);
}
static long ask_home_to_leave(long unused) {
    (void)unused;
    CHECK(vlc_run_outside(leave_at_home, NULL) == NULL, "a thread that ended gave a result");
    return 0;
}
static void *leave_within(void *context) {
    struct way way = { context, NULL, 0, { ask_home_to_leave, 0 } };
    run_named(context, "resident_call", (long)(uintptr_t)&way.call);
    return context;
}

/* The caller ends in a callback: the context's part goes on, and ends with it. */
static void check_exit_outside(vlc_context *context) {
    pthread_t thread;
    void *result = context;
    REQUIRE(pthread_create(&thread, NULL, leave_within, context) == 0, "no thread");
    pthread_join(thread, &result);
    CHECK(result == NULL, "pthread_exit did not end the thread");
}

/* A signal handler calls into one context while its thread waits for another: by the time it returns, what that
 * waits for has come. Into the same one it may not. */
static vlc_context *waited_for, *called_by_handler;
static _Atomic(int) handled, is_over;

static void *see_it_over(void *unused) {
    handled++;
    while (!is_over) sched_yield();
    usleep(50000); /* its thread is told meanwhile, or this tests nothing */
    return unused;
}
static void *nothing(void *unused) { return unused; }
static void on_signal(int number) {
    (void)number;
    vlc_error error = VLC_ERROR_INIT;
    CHECK_REFUSED(vlc_run(waited_for, nothing, NULL, NULL, &error), error, VLC_MISUSE, "signal handler");
    CHECK_EQUAL(vlc_run(called_by_handler, see_it_over, NULL, NULL, NULL), VLC_OK);
}
static void *signal_caller(void *caller) {
    handled = is_over = 0;
    pthread_kill(*(pthread_t *)caller, SIGUSR1);
    while (!handled) sched_yield();
    is_over = 1;
    return caller;
}

static void check_signal_handler(vlc_context *a, vlc_context *b) {
    pthread_t self = pthread_self();
    waited_for = a;
    called_by_handler = b;
    alarm(20);
    struct sigaction action = { .sa_handler = on_signal }, before;
    for (int i = 0; i < 4; i++) {
        action.sa_flags = i % 2 ? SA_RESTART : 0;
        REQUIRE(sigaction(SIGUSR1, &action, i ? NULL : &before) == 0, "sigaction failed");
        CHECK_EQUAL(vlc_run(a, signal_caller, &self, NULL, NULL), VLC_OK);
    }
    sigaction(SIGUSR1, &before, NULL);
    alarm(0);
}

/* The thread that forked on its caller's behalf ends within what another asks of it in the child. */
static void *leave_there(void *context) {
    vlc_error error = VLC_ERROR_INIT;
    struct run leave = { find(context, NULL, "resident_leave_by_exit"), 0, 0 };
    CHECK_REFUSED(vlc_run(context, run_probe, &leave, NULL, &error), error, VLC_MISUSE, "pthread_exit");
    if (check_result() != EXIT_SUCCESS) _exit(check_result());
    return NULL;
}
static void *fork_and_leave(void *context) {
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        vlc_run(resident_new("fresh"), leave_there, context, NULL, NULL);
        _exit(2); /* its stack was left */
    }
    return (void *)(intptr_t)child;
}

static void check_exit_after_fork(vlc_context *context) {
    void *child;
    int status = -1;
    fflush(NULL);
    REQUIRE(vlc_run(context, fork_and_leave, context, &child, NULL) == VLC_OK, "it cannot be entered");
    CHECK(waitpid((pid_t)(intptr_t)child, &status, 0) == (intptr_t)child && status == 0,
          "the child of fork() on a companion, which ended there, gave %x", (unsigned)status);
}

static void check_fork(vlc_context *context) {
    fflush(NULL);
    pid_t child = (pid_t)run_named(context, "resident_fork", 0);
    int status = -1; /* in the child no thread waits for the call, so its return ends the process */
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0,
          "the child of fork() on a companion ended with status %d", status);
    child = fork();
    if (child == 0) {
        vlc_error error = VLC_ERROR_INIT;
        struct run again = { NULL, 0, 0 };
        CHECK_REFUSED(vlc_run(context, run_probe, &again, NULL, &error), error, VLC_MISUSE, "fork()");
        vlc_context *fresh = resident_new("fresh");
        load(fresh, FIXTURE("resident"), RTLD_NOW);
        CHECK_EQUAL(run_named(fresh, "resident_threads", 2), 0);
        context_close(fresh);
        _exit(check_result());
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "the child of a host thread ended with %d",
          status);
    CHECK_EQUAL(run_named(context, "resident_threads", 2), 0);
}

/* Never closed: destructors run at exit, on a thread of the context. */
static void check_process_exit(void) {
    int status = -1;
    long *told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(told != MAP_FAILED, "no memory");
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        vlc_context *context = resident_new("left");
        load(context, FIXTURE("resident"), RTLD_NOW);
        *(long **)find(context, NULL, "resident_at_end") = told;
        alarm(10);
        exit(check_failures != 0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "exit() with an open context gave %d", status);
    CHECK_EQUAL(*told, 1);
    munmap(told, sizeof *told);
}

/* ---- limits and figures -------------------------------------------------------------------------------- */

static void check_when_needed(void) {
    vlc_context *contexts[8];
    vlc_limits limits = { .size = sizeof limits };
    vlc_spec spec = VLC_SPEC_INIT;
    spec.residence = VLC_RESIDENT_WHEN_NEEDED;
    int resident = 0;
    for (int i = 0; i < 8; i++) {
        vlc_stats stats = VLC_STATS_INIT;
        CHECK_EQUAL(vlc_get_limits(&limits, NULL), VLC_OK);
        contexts[i] = context_from(&spec);
        CHECK_EQUAL(vlc_get_stats(contexts[i], &stats, NULL), VLC_OK);
        CHECK_EQUAL(stats.resident, limits.next_is_resident);
        CHECK_EQUAL(stats.static_tls_left,
                    stats.resident ? limits.resident_tls_total : limits.static_tls_total);
        resident += (int)stats.resident;
    }
    /* 384 bytes are kept for each that is not */
    long room = (long)limits.static_tls_total / 384;
    CHECK_EQUAL(resident, room >= 8 ? 0 : 8 - room);
    CHECK_EQUAL(vlc_get_limits(&limits, NULL), VLC_OK);
    CHECK_EQUAL(limits.resident, resident);
    for (int i = 0; i < 8; i++) { /* all serve, in whatever order they load */
        load(contexts[i], FIXTURE("tls_initial"), RTLD_NOW);
        CHECK_EQUAL(run_named(contexts[i], "tls_probe", 1), 0);
        CHECK_EQUAL(run_named(contexts[i], "tls_probe", 2), 0);
    }
    for (int i = 0; i < 8; i++) context_close(contexts[i]);
    spec.residence = 3;
    vlc_error error = VLC_ERROR_INIT;
    CHECK_REFUSED(vlc_create(&spec, &contexts[0], &error), error, VLC_BAD_ARGUMENT, "residence");
}

/* A context's own slots run out too: the error names what and how much, and what is there works on. */
static void check_exhausted(void) {
    vlc_error error = VLC_ERROR_INIT;
    vlc_library *library;
    vlc_stats stats = VLC_STATS_INIT;
    vlc_context *first = resident_new("first"), *second = resident_new("second");
    load(first, FIXTURE("tls_initial_large"), RTLD_NOW);
    CHECK_EQUAL(run_named(first, "tls_probe", 1), 0);
    probe count = find(first, load(first, FIXTURE("resident"), RTLD_NOW), "resident_count");
    for (int i = 0; i < 2; i++) {
        CHECK_REFUSED(vlc_load(first, FIXTURE("tls_initial_larger"), RTLD_NOW, &library, &error), error,
                      VLC_LIMIT, "libtls_initial_larger.so");
        CHECK_WORDS(error.message, "65536");
        CHECK_WORDS(error.message, "another context");
        CHECK_EQUAL(run_named(first, "tls_probe", 2 + i), 0);
        CHECK_EQUAL(run(first, count, 1), 1 + i);
    }
    CHECK_EQUAL(vlc_get_stats(first, &stats, NULL), VLC_OK);
    CHECK(stats.static_tls_bytes > 40000 && stats.static_tls_bytes + stats.static_tls_left == SLOTS,
          "%llu bytes used, %llu left", (unsigned long long)stats.static_tls_bytes,
          (unsigned long long)stats.static_tls_left);
    load(second, FIXTURE("tls_initial_large"), RTLD_NOW);
    CHECK_EQUAL(run_named(second, "tls_probe", 1), 0);
    context_close(first);
    CHECK_EQUAL(run_named(second, "tls_probe", 2), 0);
    context_close(second);
}

static void check_many(void) {
    static vlc_context *contexts[100];
    for (int i = 0; i < 100; i++) {
        contexts[i] = resident_new(NULL);
        load(contexts[i], FIXTURE("tls_initial"), RTLD_NOW);
    }
    for (long turn = 1; turn <= 3; turn++)
        for (int i = 0; i < 100; i++) CHECK_EQUAL(run_named(contexts[i], "tls_probe", turn), 0);
    for (int i = 0; i < 100; i++) context_close(contexts[i]);
}

static void check_rounds(void) {
    long kilobytes = 0, mappings = 0;
    for (int round = 0; round < ROUNDS; round++) {
        long threads = round ? 3 : 60; /* 960 threads once */
        on_canaries(every_way, &threads);
        CHECK_EQUAL(thread_count(1), 1);
        if (round == WARM) {
            kilobytes = resident_kilobytes();
            mappings = mapping_count();
        }
    }
    CHECK(UNDER_SANITIZER || resident_kilobytes() < kilobytes + 512, "%d rounds left %ld kB", ROUNDS - WARM,
          resident_kilobytes() - kilobytes);
    CHECK(UNDER_SANITIZER || mapping_count() <= mappings + 8, "%ld mappings became %ld", mappings,
          mapping_count());
}

static void report_cost(vlc_context *context) {
    probe function = find(context, NULL, "resident_count");
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < CALLS; i++) run(context, function, 0);
    clock_gettime(CLOCK_MONOTONIC, &to);
    double nanoseconds = (double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec);
    printf("%.1f us a call\n", nanoseconds / 1e3 / CALLS);
}

int main(void) {
    check_process_exit();
    check_when_needed();
    check_exhausted();
    vlc_context *a = resident_new("a"), *b = resident_new("b");
    load(a, FIXTURE("resident"), RTLD_NOW);
    load(b, FIXTURE("resident"), RTLD_NOW);
    check_companions(a);
    check_constant(a);
    check_nesting(a, b);
    check_what_comes_along(a);
    check_exit_inside(a);
    check_exit_outside(a);
    check_fork(b);
    check_fork_outside(b);
    check_exit_after_fork(b);
    check_signal_handler(a, b);
    report_cost(a);
    context_close(a);
    context_close(b);
    check_many();
    CHECK_EQUAL(thread_count(1), 1);
    check_rounds();
    return check_result();
}
