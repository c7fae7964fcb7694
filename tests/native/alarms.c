/* Thread-local storage from a signal handler: a handler may come in the middle of a thread's first touch, of its first
 * entry, of its start and of its end, and has to find the variable there, or make it, without waiting for a lock. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/time.h>
#include <time.h>

#include "contexts.h"

enum { THREADS = 4, MICROSECONDS = 100, MILLISECONDS = UNDER_SANITIZER ? 1500 : 700 };

static _Atomic(probe) use;            /* of a context: reads a thread-local variable */
static _Atomic(vlc_context *) inside; /* the threads to do that on; NULL: on all */
static atomic_long handled, wrong;

static void on_alarm(int number) {
    (void)number;
    int saved = errno;
    probe function = atomic_load(&use);
    vlc_context *only = atomic_load(&inside);
    if (only && vlc_context_of(NULL) != only) return;
    if (function(1) != 0 || errno != saved) atomic_fetch_add(&wrong, 1);
    atomic_fetch_add(&handled, 1);
}

static void alarm_every(long microseconds) {
    struct itimerval timer = { { 0, microseconds }, { 0, microseconds } };
    REQUIRE(setitimer(ITIMER_REAL, &timer, NULL) == 0, "setitimer failed");
}

static long milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

struct visit {
    vlc_context *context;
    probe function;
    long wrong;
};

static void alarms(int how) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    pthread_sigmask(how, &set, NULL);
}

static void *visit(void *argument) {
    struct visit *visit = argument;
    alarms(SIG_UNBLOCK);
    for (long turn = 1; turn <= 2 && !visit->wrong; turn++)
        visit->wrong = call(visit->context, visit->function, turn);
    return NULL;
}

static void check_model(const char *file, bool everywhere) {
    vlc_context *context = context_new("alarms");
    vlc_library *library = load(context, file, RTLD_NOW);
    probe function = find(context, library, "tls_probe");
    atomic_store(&use, find(context, library, "tls_registers"));
    atomic_store(&inside, everywhere ? NULL : context);
    struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART }, before;
    REQUIRE(sigaction(SIGALRM, &action, &before) == 0, "sigaction failed");
    atomic_store(&handled, 0);
    alarm_every(MICROSECONDS);
    if (!everywhere) alarms(SIG_BLOCK); /* the kernel gives them to the first thread if that takes them */
    long end = milliseconds() + MILLISECONDS, visits = 0;
    while (milliseconds() < end) {
        struct visit each[THREADS];
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++) {
            each[i] = (struct visit){ context, function, 0 };
            REQUIRE(pthread_create(&threads[i], NULL, visit, &each[i]) == 0, "no thread");
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            CHECK(each[i].wrong == 0, "%s: tls.c:%ld is not so", file, each[i].wrong);
        }
        visits += THREADS;
    }
    alarm_every(0);
    if (!everywhere) {
        signal(SIGALRM, SIG_IGN); /* and with it one that waits */
        alarms(SIG_UNBLOCK);
    }
    REQUIRE(sigaction(SIGALRM, &before, NULL) == 0, "sigaction failed");
    CHECK(wrong == 0, "%s: wrong in %ld of %ld handlers", file, wrong, handled);
    CHECK(handled > (everywhere ? 20 : 0) && visits > 20, "%s: only %ld handlers and %ld threads", file,
          handled, visits);
    context_close(context);
}

static void *task(void *unused) {
    (void)unused;
    return (void *)use(1);
}

/* Threads of a context, on which alone the signal comes: it may be before they have begun for us. */
static void check_own_threads(const char *file) {
    sigset_t alarms, before;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART }, host;
    vlc_context *user = context_new("used");
    atomic_store(&use, find(user, load(user, file, RTLD_NOW), "tls_registers"));
    atomic_store(&inside, NULL);
    atomic_store(&handled, 0);
    REQUIRE(sigaction(SIGALRM, &action, &host) == 0, "sigaction failed");
    long end = milliseconds() + MILLISECONDS, made = 0;
    for (; milliseconds() < end; made++) {
        vlc_error error = VLC_ERROR_INIT;
        vlc_task *tasks[THREADS];
        vlc_spec spec = VLC_SPEC_INIT;
        spec.threads = THREADS;
        vlc_context *context = context_from(&spec);
        alarm_every(MICROSECONDS / 2);
        for (uint32_t i = 0; i < THREADS; i++)
            REQUIRE(vlc_submit_on(context, i, task, NULL, &tasks[i], &error) == VLC_OK, "%s", error.message);
        pthread_sigmask(SIG_BLOCK, &alarms, &before);
        for (int i = 0; i < THREADS; i++) {
            void *result;
            REQUIRE(vlc_wait(tasks[i], &result, &error) == VLC_OK, "%s", error.message);
            CHECK(!result, "%s: tls.c:%ld is not so", file, (long)(intptr_t)result);
        }
        alarm_every(0);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        context_close(context); /* which waits for all threads that it has counted */
    }
    REQUIRE(sigaction(SIGALRM, &host, NULL) == 0, "sigaction failed");
    CHECK(wrong == 0 && handled > 20, "%s: wrong in %ld of %ld handlers, %ld contexts", file, wrong, handled,
          made);
    context_close(user);
}

int main(void) {
    check_own_threads(FIXTURE("tls_general"));
    check_model(FIXTURE("tls_general"), true);
    check_model(FIXTURE("tls_descriptor"), true);
    check_model(FIXTURE("tls_initial"), false); /* a thread has its slot once it has entered */
    return check_result();
}
