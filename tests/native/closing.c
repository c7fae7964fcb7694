/* A context is closed while others are busy with it: by whom, with what answer, and what it costs until then. */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "contexts.h"

static vlc_context *first, *second;
static long
    alone; /* threads before any context: ThreadSanitizer has one of its own, from the first that is made */
static atomic_int stage;
static sem_t leave;

/* On a thread that a library of the first context made, inside of the second. */
static void visit_second(void) {
    vlc_error error = VLC_ERROR_INIT;
    CHECK(vlc_enter(second, &error) == VLC_OK, "%s", error.message);
    stage = 1;
    sem_wait(&leave);
    CHECK(vlc_leave(second, &error) == VLC_OK, "%s", error.message);
}

static double cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* Neither can go while a thread of the one is inside of the other, and both say so; that costs nothing. */
static void check_thread_in_another(void) {
    vlc_error error = VLC_ERROR_INIT;
    first = context_new("first");
    second = context_new("second");
    load(first, FIXTURE("waiters"), RTLD_NOW);
    stage = 0;
    call_named(first, NULL, "waiters_run", (long)(uintptr_t)visit_second);
    while (stage != 1) usleep(1000);
    CHECK_REFUSED(vlc_destroy(second, 50, &error), error, VLC_BUSY, "calls are still inside");
    CHECK_REFUSED(vlc_destroy(first, 50, &error), error, VLC_BUSY, "libwaiters.so (thread ");
    double before = cpu_seconds();
    usleep(400000);
    CHECK(cpu_seconds() - before < 0.02, "two closed contexts took %.3f s of CPU", cpu_seconds() - before);
    sem_post(&leave);
    context_close(first);
    context_close(second);
    CHECK_EQUAL(thread_count(alone), alone);
}

static void *stay(void *unused) {
    (void)unused;
    stage = 1;
    sem_wait(&leave);
    return NULL;
}

static void *enter_and_stay(void *unused) {
    vlc_error error = VLC_ERROR_INIT;
    CHECK(vlc_run(first, stay, NULL, NULL, &error) == VLC_OK, "%s", error.message);
    return unused;
}

static void *destroy_first(void *unused) {
    stage = 2;
    context_close(first);
    return unused;
}

/* The second of two that close is told; the first waits for the call that is inside. */
static void check_two_closers(void) {
    vlc_error error = VLC_ERROR_INIT;
    pthread_t caller, closer;
    first = context_new("first");
    stage = 0;
    REQUIRE(pthread_create(&caller, NULL, enter_and_stay, NULL) == 0, "no thread");
    while (stage != 1) usleep(1000);
    REQUIRE(pthread_create(&closer, NULL, destroy_first, NULL) == 0, "no thread");
    while (vlc_enter(first, &error) == VLC_OK) {
        vlc_leave(first, &error);
        usleep(1000);
    }
    usleep(20000); /* it refuses calls a moment before it refuses closers */
    CHECK_REFUSED(vlc_destroy(first, 0, &error), error, VLC_MISUSE, "by another thread");
    sem_post(&leave);
    pthread_join(closer, NULL);
    pthread_join(caller, NULL);
}

static void *destroy_second(void *error) { return (void *)(uintptr_t)vlc_destroy(second, 5000, error); }

/* From a pool's thread of another context, and from inside of one. */
static void check_from_other_contexts(void) {
    vlc_error error = VLC_ERROR_INIT, inner = VLC_ERROR_INIT;
    vlc_task *task = NULL;
    void *result = NULL;
    first = context_new("first");
    for (int submitted = 0; submitted < 2; submitted++) {
        second = context_new("second");
        load(second, FIXTURE("counter"), RTLD_NOW);
        if (submitted) {
            CHECK_EQUAL(vlc_submit(first, destroy_second, &inner, &task, &error), VLC_OK);
            CHECK_EQUAL(vlc_wait(task, &result, &error), VLC_OK);
        } else {
            CHECK_EQUAL(vlc_run(first, destroy_second, &inner, &result, &error), VLC_OK);
        }
        CHECK((uintptr_t)result == VLC_OK, "%s", inner.message);
    }
    context_close(first);
    CHECK(!is_mapped("libcounter.so"), "libcounter.so stays mapped");
}

static void *end_at_once(void *unused) { return unused; }

int main(void) {
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, end_at_once, NULL) == 0, "no thread");
    pthread_join(thread, NULL);
    alone = thread_count(1);
    REQUIRE(sem_init(&leave, 0, 0) == 0, "no semaphore");
    check_thread_in_another();
    check_two_closers();
    check_from_other_contexts();
    return check_result();
}
