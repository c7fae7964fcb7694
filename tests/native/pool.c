/* vlc_submit and vlc_wait: order, threads, results, and what is refused. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>

#include "contexts.h"

static int order[100];
static atomic_int begun, done; /* `done` once what was noted can be read */
static vlc_task *own_task;

static void start_over(void) {
    atomic_store(&begun, 0);
    atomic_store(&done, 0);
}

static void *note(void *number) {
    order[atomic_fetch_add(&begun, 1)] = (int)(uintptr_t)number;
    atomic_fetch_add(&done, 1);
    return (void *)((uintptr_t)number * 2);
}

static void *thread_id(void *unused) {
    (void)unused;
    return (void *)(uintptr_t)syscall(SYS_gettid);
}

static void *where(void *context) {
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    return (void *)(uintptr_t)(vlc_context_of(NULL) == context ? CPU_COUNT(&set) : -1);
}

static void *wait_for_own(void *error) { return (void *)(uintptr_t)vlc_wait(own_task, NULL, error); }

static uintptr_t result_of(vlc_task *task) {
    void *result = NULL;
    vlc_error error = VLC_ERROR_INIT;
    REQUIRE(vlc_wait(task, &result, &error) == VLC_OK, "%s", error.message);
    return (uintptr_t)result;
}

static vlc_task *submit(vlc_context *context, vlc_function function, void *argument) {
    vlc_task *task = NULL;
    vlc_error error = VLC_ERROR_INIT;
    REQUIRE(vlc_submit(context, function, argument, &task, &error) == VLC_OK, "%s", error.message);
    return task;
}

static vlc_task *submit_on(vlc_context *context, uint32_t thread, vlc_function function) {
    vlc_task *task = NULL;
    vlc_error error = VLC_ERROR_INIT;
    REQUIRE(vlc_submit_on(context, thread, function, NULL, &task, &error) == VLC_OK, "%s", error.message);
    return task;
}

static void *submit_many(void *context) {
    uintptr_t sum = 0;
    for (uintptr_t i = 0; i < 10; i++) sum += result_of(submit(context, note, (void *)i));
    return (void *)sum;
}

static void *wait_for_task(void *task) { return (void *)result_of(task); }

static void *note_late(void *number) {
    usleep(30000);
    return note(number);
}

/* A task outlives its context until somebody has waited for it, be that before, during or after the end. */
static void check_waiting_beyond_the_end(void) {
    for (int round = 0; round < 20; round++) {
        vlc_context *context = context_new("ends");
        vlc_task *tasks[3];
        pthread_t waiter;
        void *result = NULL;
        start_over();
        for (uintptr_t i = 0; i < 3; i++)
            tasks[i] = submit(context, i == 0 && round % 5 == 0 ? note_late : note, (void *)(i + 1));
        REQUIRE(pthread_create(&waiter, NULL, wait_for_task, tasks[2]) == 0, "no thread");
        if (round % 2) usleep(2000); /* it waits already */
        context_close(context);
        CHECK_EQUAL(result_of(tasks[1]), 4);
        CHECK_EQUAL(result_of(tasks[0]), 2);
        pthread_join(waiter, &result);
        CHECK_EQUAL((uintptr_t)result, 6);
    }
}

static void submit_after(vlc_context *context, uint32_t milliseconds, uintptr_t number) {
    vlc_error error = VLC_ERROR_INIT;
    REQUIRE(vlc_submit_after(context, 0, milliseconds, note, (void *)number, &error) == VLC_OK, "%s",
            error.message);
}

/* What is to run later lets all else go first, and does not keep a context from closing. */
static void check_later(void) {
    vlc_context *context = context_new("later");
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    start_over();
    submit_after(context, 120, 3);
    submit_after(context, 60, 2);
    CHECK_EQUAL(result_of(submit(context, note, (void *)1)), 2);
    while (atomic_load(&done) < 3) usleep(1000);
    clock_gettime(CLOCK_MONOTONIC, &end);
    for (int i = 0; i < 3; i++) CHECK_EQUAL(order[i], i + 1);
    CHECK(end.tv_sec - begin.tv_sec + (end.tv_nsec - begin.tv_nsec) * 1e-9 >= 0.119, "it ran too soon");
    submit_after(context, 600000, 4);
    context_close(context);
    CHECK_EQUAL(atomic_load(&done), 4);
}

int main(void) {
    uint32_t cpus[2];
    size_t count = process_cpus(cpus, 2);
    vlc_error error = VLC_ERROR_INIT;
    vlc_task *tasks[50];
    vlc_context *single = context_on("single", cpus, 1);

    CHECK_EQUAL(vlc_threads(single, NULL, 0), 0); /* the pool is made on first use */
    for (uintptr_t i = 0; i < 50; i++) tasks[i] = submit(single, note, (void *)i);
    for (uintptr_t i = 0; i < 50; i++) CHECK_EQUAL(result_of(tasks[i]), 2 * i);
    for (int i = 0; i < 50; i++) CHECK_EQUAL(order[i], i);
    CHECK_EQUAL(vlc_threads(single, NULL, 0), 1);
    CHECK_EQUAL(result_of(submit(single, where, single)), 1);
    uintptr_t id = result_of(submit(single, thread_id, NULL));
    for (int i = 0; i < 20; i++) CHECK_EQUAL(result_of(submit(single, thread_id, NULL)), id);
    CHECK_EQUAL(result_of(submit_on(single, 0, thread_id)), id);
    CHECK(id != (uintptr_t)syscall(SYS_gettid), "work ran on the caller's thread");

    start_over(); /* several callers, and nobody who waits */
    pthread_t callers[4];
    for (int i = 0; i < 4; i++)
        REQUIRE(pthread_create(&callers[i], NULL, submit_many, single) == 0, "no thread");
    for (int i = 0; i < 4; i++) {
        void *sum;
        pthread_join(callers[i], &sum);
        CHECK_EQUAL((uintptr_t)sum, 90);
    }
    for (uintptr_t i = 0; i < 20; i++) CHECK_EQUAL(vlc_submit(single, note, (void *)i, NULL, &error), VLC_OK);
    result_of(submit(single, note, NULL));
    CHECK_EQUAL(atomic_load(&done), 61);

    /* A pool thread cannot wait for its own pool; the task stays valid. */
    vlc_error inner = VLC_ERROR_INIT;
    vlc_task *outer = NULL;
    own_task = submit(single, thread_id, NULL);
    outer = submit(single, wait_for_own, &inner);
    CHECK_EQUAL(result_of(outer), VLC_MISUSE);
    CHECK_WORDS(inner.message, "single");
    CHECK_EQUAL(result_of(own_task), id);

    vlc_task *none = NULL;
    CHECK_REFUSED(vlc_submit_on(single, 1, note, NULL, &none, &error), error, VLC_BAD_ARGUMENT, "1");
    CHECK(none == NULL, "a refused call wrote its output");

    vlc_spec spec = VLC_SPEC_INIT;
    spec.name = "three";
    spec.threads = 3;
    spec.cpus = cpus;
    spec.cpu_count = count < 2 ? count : 2;
    vlc_context *three = context_from(&spec);
    uintptr_t ids[3];
    for (uint32_t i = 0; i < 3; i++) ids[i] = result_of(submit_on(three, i, thread_id));
    CHECK(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2], "two threads of the pool are one");
    for (uint32_t i = 0; i < 30; i++) CHECK_EQUAL(result_of(submit_on(three, i % 3, thread_id)), ids[i % 3]);
    CHECK_EQUAL(vlc_threads(three, NULL, 0), 3);
    CHECK_REFUSED(vlc_submit_on(three, 3, note, NULL, &none, &error), error, VLC_BAD_ARGUMENT, "3");

    /* Queued work runs before the end. */
    start_over();
    for (uintptr_t i = 0; i < 40; i++) CHECK_EQUAL(vlc_submit(single, note, (void *)i, NULL, &error), VLC_OK);
    context_close(single);
    CHECK_EQUAL(atomic_load(&done), 40);
    context_close(three);
    check_waiting_beyond_the_end();
    check_later();
    return check_result();
}
