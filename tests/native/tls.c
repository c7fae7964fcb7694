/* Thread-local storage in every model: from the first touch of a thread to its end, on all kinds of threads. */
#include <pthread.h>

#include "contexts.h"

enum { THREADS = 6 };

struct visit {
    vlc_context *context;
    probe function, registers;
    long wrong;
};

static void *touch(void *argument) {
    struct visit *visit = argument;
    for (long turn = 1; turn <= 3 && !visit->wrong; turn++) {
        visit->wrong = call(visit->context, visit->registers, turn);
        if (!visit->wrong) visit->wrong = call(visit->context, visit->function, turn);
    }
    return NULL;
}

static void check_model(const char *file) {
    for (int round = 0; round < 3; round++) {
        vlc_context *contexts[2] = { context_new("a"), context_new("b") };
        struct visit visits[THREADS];
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++) {
            vlc_context *context = contexts[i & 1];
            vlc_library *library = load(context, file, RTLD_NOW);
            visits[i] = (struct visit){ context, find(context, library, "tls_probe"),
                                        find(context, library, "tls_registers"), 0 };
            REQUIRE(pthread_create(&threads[i], NULL, touch, &visits[i]) == 0, "no thread");
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            CHECK(visits[i].wrong == 0, "%s: tls.c:%ld is not so", file, visits[i].wrong);
        }
        visits[0].wrong = 0; /* this thread, and a context that was made in the place of another */
        touch(&visits[0]);
        CHECK(visits[0].wrong == 0, "%s, main thread: tls.c:%ld is not so", file, visits[0].wrong);
        CHECK_EQUAL(*(long *)find(contexts[0], NULL, "tls_value"),
                    43); /* vlc_symbol: this thread's variable */
        context_close(contexts[0]);
        context_close(contexts[1]);
    }
}

static pthread_barrier_t loaded;

static void *touch_once_loaded(void *argument) {
    struct visit *visit = argument;
    vlc_error error = VLC_ERROR_INIT;
    REQUIRE(vlc_enter(visit->context, &error) == VLC_OK, "%s", error.message); /* known from now on */
    REQUIRE(vlc_leave(visit->context, &error) == VLC_OK, "%s", error.message);
    pthread_barrier_wait(&loaded);
    pthread_barrier_wait(&loaded);
    for (long turn = 1; turn <= 2 && !visit->wrong; turn++)
        visit->wrong = call(visit->context, visit->function, turn);
    return NULL;
}

static void *touch_twice(void *argument) {
    struct visit *visit = argument;
    for (long turn = 1; turn <= 2 && !visit->wrong; turn++)
        visit->wrong = call(visit->context, visit->function, turn);
    return NULL;
}

/* An image that needs relocation, on threads that are older than the library, on its own and on younger ones. */
static void check_pointers(const char *file) {
    vlc_context *context = context_new("pointers");
    pthread_t threads[THREADS];
    struct visit visits[THREADS];
    REQUIRE(pthread_barrier_init(&loaded, NULL, THREADS / 2 + 1) == 0, "no barrier");
    for (int i = 0; i < THREADS; i++) visits[i] = (struct visit){ .context = context };
    for (int i = 0; i < THREADS / 2; i++)
        REQUIRE(pthread_create(&threads[i], NULL, touch_once_loaded, &visits[i]) == 0, "no thread");
    pthread_barrier_wait(&loaded);
    probe function = find(context, load(context, file, RTLD_NOW), "tls_pointer");
    for (int i = 0; i < THREADS; i++) visits[i].function = function;
    pthread_barrier_wait(&loaded);
    struct visit own = { .context = context, .function = function };
    touch_twice(&own);
    CHECK(own.wrong == 0, "%s, on the thread that loads: tls_pointer.c:%ld is not so", file, own.wrong);
    for (int i = THREADS / 2; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, touch_twice, &visits[i]) == 0, "no thread");
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        CHECK(visits[i].wrong == 0, "%s, on %s thread: tls_pointer.c:%ld is not so", file,
              i < THREADS / 2 ? "an older" : "a younger", visits[i].wrong);
    }
    pthread_barrier_destroy(&loaded);
    context_close(context);
}

int main(void) {
    vlc_limits limits = { .size = sizeof limits };
    check_model(FIXTURE("tls_general"));
    check_model(FIXTURE("tls_descriptor"));
    check_model(FIXTURE("tls_large"));
    check_model(FIXTURE("tls_initial"));
    for (int round = 0; round < 3; round++) { /* also in the place of what is gone */
        check_pointers(FIXTURE("tls_pointer_initial"));
        check_pointers(FIXTURE("tls_pointer_skewed"));
        check_pointers(FIXTURE("tls_pointer_skewed_initial"));
        check_pointers(FIXTURE("tls_pointer_general"));
    }

    /* A user of another library's variable, in each pairing of models. */
    vlc_context *a = context_new("a");
    CHECK_EQUAL(call_named(a, load(a, FIXTURE("tls_user_general"), RTLD_NOW), "tls_value_of_other", 0), 40);
    CHECK_EQUAL(call_named(a, load(a, FIXTURE("tls_general"), RTLD_NOW), "tls_probe", 1), 0);
    CHECK_EQUAL(call_named(a, load(a, FIXTURE("tls_user_general"), RTLD_NOW), "tls_value_of_other", 0), 41);
    vlc_context *b = context_new("b");
    CHECK_EQUAL(call_named(b, load(b, FIXTURE("tls_user_initial"), RTLD_NOW), "tls_value_of_other", 0), 40);
    CHECK_EQUAL(call_named(b, load(b, FIXTURE("tls_general"), RTLD_NOW), "tls_probe", 1), 0);
    CHECK_EQUAL(call_named(b, load(b, FIXTURE("tls_user_initial"), RTLD_NOW), "tls_value_of_other", 0), 41);
    CHECK_EQUAL(vlc_get_limits(&limits, NULL), VLC_OK);
    CHECK(limits.static_tls_used > 0, "initial-exec slots in use are not counted");
    context_close(a);
    context_close(b);
    CHECK_EQUAL(vlc_get_limits(&limits, NULL), VLC_OK);
    CHECK_EQUAL(limits.static_tls_used, 0);
    return check_result();
}
