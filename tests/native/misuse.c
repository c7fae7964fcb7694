/* Right values at the wrong moment: an end from inside, a context that is closed, a thread that never ends. */
#include <pthread.h>
#include <stdatomic.h>

#include "contexts.h"

static vlc_context *context;
static atomic_int stage;

static void *destroy_from_inside(void *error) { return (void *)(uintptr_t)vlc_destroy(context, 100, error); }

static void *stay_inside(void *unused) {
    vlc_error error = VLC_ERROR_INIT;
    (void)unused;
    REQUIRE(vlc_enter(context, &error) == VLC_OK, "%s", error.message);
    stage = 1;
    while (stage != 2) usleep(1000);
    REQUIRE(vlc_leave(context, &error) == VLC_OK, "%s", error.message);
    return NULL;
}

static void check_closed(void) {
    vlc_error error = VLC_ERROR_INIT;
    vlc_library *library = NULL;
    vlc_task *task = NULL;
    void *address = NULL;
    CHECK_REFUSED(vlc_enter(context, &error), error, VLC_MISUSE, "closed");
    CHECK_REFUSED(vlc_load(context, FIXTURE("counter"), RTLD_NOW, &library, &error), error, VLC_MISUSE,
                  "closed");
    CHECK_REFUSED(vlc_symbol(context, NULL, "counter_next", &address, &error), error, VLC_MISUSE, "closed");
    CHECK_REFUSED(vlc_run(context, stay_inside, NULL, NULL, &error), error, VLC_MISUSE, "closed");
    CHECK_REFUSED(vlc_submit(context, stay_inside, NULL, &task, &error), error, VLC_MISUSE, "closed");
    CHECK_REFUSED(vlc_resize(context, (uint32_t[]){ 0 }, 1, &error), error, VLC_MISUSE, "closed");
    CHECK(!library && !address && !task, "a refused call wrote its output");
    vlc_stats stats = VLC_STATS_INIT; /* what it still has can be asked */
    CHECK_EQUAL(vlc_get_stats(context, &stats, &error), VLC_OK);
}

int main(void) {
    vlc_error error = VLC_ERROR_INIT, inner = VLC_ERROR_INIT;
    vlc_task *task = NULL;
    void *result = NULL;
    context = context_new("a");
    load(context, FIXTURE("counter"), RTLD_NOW);

    CHECK_EQUAL(vlc_run(context, destroy_from_inside, &inner, &result, &error), VLC_OK);
    CHECK_EQUAL((uintptr_t)result, VLC_MISUSE);
    CHECK_WORDS(inner.message, "inside");
    CHECK_EQUAL(vlc_submit(context, destroy_from_inside, &inner, &task, &error), VLC_OK);
    CHECK_EQUAL(vlc_wait(task, &result, &error), VLC_OK);
    CHECK_EQUAL((uintptr_t)result, VLC_MISUSE);
    CHECK_EQUAL(call_named(context, NULL, "counter_next", 5), 5); /* nothing has changed */

    /* Somebody is inside: the context closes, keeps its memory, and can be ended later. */
    pthread_t visitor;
    REQUIRE(pthread_create(&visitor, NULL, stay_inside, NULL) == 0, "no thread");
    while (stage != 1) usleep(1000);
    CHECK_REFUSED(vlc_destroy(context, 50, &error), error, VLC_BUSY, "a");
    check_closed();
    stage = 2;
    pthread_join(visitor, NULL);
    context_close(context);

    /* A library's thread computes: named, and waited for. */
    context = context_new("b");
    load(context, FIXTURE("threads"), RTLD_NOW);
    atomic_int *spinning = (atomic_int *)call_named(context, NULL, "threads_spin", 0);
    CHECK_REFUSED(vlc_destroy(context, 50, &error), error, VLC_BUSY, "b");
    CHECK_WORDS(error.message, "thread");
    check_closed();
    *spinning = 0;
    context_close(context);
    CHECK(!is_mapped("libthreads.so"), "libthreads.so stays mapped");
    return check_result();
}
