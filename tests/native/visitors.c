/* Threads of the host outlive contexts that they were in: their thread-local objects and keys go with the context,
 * and nothing of it is called when the threads end. */
#include <pthread.h>

#include "contexts.h"
#include "trace.h"

enum { THREADS = 4, ROUNDS = 6 };

static pthread_barrier_t step;
static vlc_context *context;
static probe touch, tls, keys;

static void *live_long(void *unused) {
    (void)unused;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&step); /* a context is there */
        CHECK_EQUAL(call(context, touch, 0), 9);
        CHECK_EQUAL(call(context, touch, 0), 10);
        CHECK_EQUAL(call(context, tls, 1), 0); /* a new context, so a new variable */
        CHECK_EQUAL(call(context, keys, 0), 0);
        pthread_barrier_wait(&step); /* and can go */
        pthread_barrier_wait(&step); /* it is gone */
    }
    return NULL;
}

static void *leave_a_value(void *unused) {
    (void)unused;
    CHECK_EQUAL(call(context, keys, 0), 0);
    pthread_barrier_wait(&step);
    return NULL;
}

/* The context ends while the thread does: its destructor has run whole, or not at all. */
static void check_pending_destructor(int reader) {
    REQUIRE(pthread_barrier_init(&step, NULL, 2) == 0, "no barrier");
    for (useconds_t round = 0; round < 8; round++) {
        pthread_t thread;
        context = context_new("pending");
        keys = find(context, load(context, FIXTURE("keys"), RTLD_NOW), "keys_linger");
        REQUIRE(pthread_create(&thread, NULL, leave_a_value, NULL) == 0, "no thread");
        pthread_barrier_wait(&step);
        usleep(round % 4 * 5000);
        context_close(context);
        const char *words = trace_take(reader);
        CHECK(!strcmp(words, "") || !strcmp(words, "begin end"), "the context ended within: %s", words);
        pthread_join(thread, NULL);
        CHECK_TEXT(trace_take(reader), "");
    }
    pthread_barrier_destroy(&step);
}

static pthread_key_t last_words;
static int destructor_rounds;

/* A destructor of the host: the thread meets the context for the first time while it ends. */
static void enter_late(void *rounds_left) {
    uintptr_t left = (uintptr_t)rounds_left - 1;
    destructor_rounds++;
    if (left)
        pthread_setspecific(last_words, (void *)left);
    else
        CHECK_EQUAL(call(context, keys, 1), 101);
}

static void *end_with_a_visit(void *rounds) {
    REQUIRE(pthread_setspecific(last_words, rounds) == 0, "no value");
    return NULL;
}

/* What such threads leave is not written to when the context loads initial-exec libraries: their stacks are gone. */
static void check_late_visitors(void) {
#ifdef __SANITIZE_THREAD__ /* instrumented code cannot run when ThreadSanitizer has ended its record of a thread */
    enum { DESTRUCTOR_ROUNDS = 2 };
#else
    enum { DESTRUCTOR_ROUNDS = 4 }; /* PTHREAD_DESTRUCTOR_ITERATIONS */
#endif
    pthread_attr_t large; /* beyond what glibc keeps of ended threads' stacks */
    REQUIRE(pthread_key_create(&last_words, enter_late) == 0, "no key");
    REQUIRE(pthread_attr_init(&large) == 0 && pthread_attr_setstacksize(&large, 100 << 20) == 0,
            "no stack size");
    for (uintptr_t round = 1; round <= DESTRUCTOR_ROUNDS; round++) {
        pthread_t thread;
        context = context_new("late");
        keys = find(context, load(context, FIXTURE("counter"), RTLD_NOW), "counter_next_of_thread");
        destructor_rounds = 0;
        REQUIRE(pthread_create(&thread, &large, end_with_a_visit, (void *)round) == 0, "no thread");
        pthread_join(thread, NULL);
        CHECK_EQUAL(destructor_rounds, (int)round);
        CHECK_EQUAL(call_named(context, load(context, FIXTURE("tls_initial"), RTLD_NOW), "tls_probe", 1), 0);
        CHECK_EQUAL(
            call_named(context, load(context, FIXTURE("tls_pointer_initial"), RTLD_NOW), "tls_pointer", 1),
            0);
        context_close(context);
    }
    pthread_attr_destroy(&large);
    pthread_key_delete(last_words);
}

int main(void) {
    pthread_t threads[THREADS];
    int reader = trace_open();
    REQUIRE(pthread_barrier_init(&step, NULL, THREADS + 1) == 0, "no barrier");
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, live_long, NULL) == 0, "no thread");
    for (int round = 0; round < ROUNDS; round++) {
        context = context_new("visited");
        touch = find(context, load(context, FIXTURE("cxx_probe"), RTLD_NOW), "cxx_touch");
        tls = find(context,
                   load(context, round % 2 ? FIXTURE("tls_general") : FIXTURE("tls_initial"), RTLD_NOW),
                   "tls_probe");
        keys = find(context, load(context, FIXTURE("keys"), RTLD_NOW | RTLD_GLOBAL), "keys_here");
        CHECK_EQUAL(call_named(context, NULL, "keys_make", 100), 0);
        pthread_barrier_wait(&step);
        pthread_barrier_wait(&step);
        context_close(context);
        CHECK(!is_mapped("libcxx_probe.so"), "libcxx_probe.so stays mapped");
        trace_take(reader);
        pthread_barrier_wait(&step);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    CHECK_TEXT(trace_take(reader), "");
    check_pending_destructor(reader);
    check_late_visitors();
    return check_result();
}
