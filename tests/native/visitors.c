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
    return check_result();
}
