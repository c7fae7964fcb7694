/* Contexts are made, used and ended on several threads at once, while others work in one that stays. */
#include <pthread.h>
#include <stdatomic.h>

#include "contexts.h"

enum { MAKERS = 4, WORKERS = 3, TURNS = 25 };

static vlc_context *stays;
static probe catch_many, fill_blocks;
static atomic_int makers_left = MAKERS;
static atomic_long worked;

static void *make_and_end(void *number) {
    char name[32];
    for (int turn = 0; turn < TURNS; turn++) {
        snprintf(name, sizeof name, "maker-%d", (int)(uintptr_t)number);
        vlc_context *context = context_new(name);
        load(context, FIXTURE("cxx_probe"), RTLD_NOW);
        load(context, turn % 2 ? FIXTURE("tls_general") : FIXTURE("tls_descriptor"), RTLD_NOW | RTLD_GLOBAL);
        CHECK_EQUAL(call_named(context, NULL, "cxx_threads", 2), 2 * 59);
        CHECK_EQUAL(call_named(context, NULL, "tls_probe", 1), 0);
        CHECK_EQUAL(call_named(context, load(context, FIXTURE("promoter"), RTLD_NOW), "promoter_found", 0),
                    1);
        context_close(context);
    }
    makers_left--;
    return NULL;
}

static void *work(void *unused) {
    (void)unused;
    while (makers_left > 0) {
        CHECK_EQUAL(call(stays, catch_many, 20), 29);
        CHECK_EQUAL(call(stays, fill_blocks, 0), 0);
        worked++;
    }
    return NULL;
}

int main(void) {
    pthread_t threads[MAKERS + WORKERS];
    stays = context_new("stays");
    catch_many = find(stays, load(stays, FIXTURE("cxx_probe"), RTLD_NOW), "cxx_catch");
    fill_blocks = find(stays, load(stays, FIXTURE("heap"), RTLD_NOW), "heap_sizes");
    for (uintptr_t i = 0; i < MAKERS + WORKERS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, i < MAKERS ? make_and_end : work, (void *)i) == 0,
                "no thread");
    for (int i = 0; i < MAKERS + WORKERS; i++) pthread_join(threads[i], NULL);
    CHECK(worked >= 3, "the others worked %ld times", (long)worked);
    context_close(stays);
    CHECK(!is_mapped("libcxx_probe.so"), "libcxx_probe.so stays mapped");
    return check_result();
}
