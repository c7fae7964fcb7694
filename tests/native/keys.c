/* pthread keys: each context has as many as a process, and its destructors run when a thread ends. */
#include <pthread.h>

#include "contexts.h"

enum { CONTEXTS = 4, KEYS = 900 }; /* together far more than PTHREAD_KEYS_MAX, 1,024 */

static vlc_context *contexts[CONTEXTS];

static void *visit_all(void *unused) {
    (void)unused;
    for (int i = 0; i < CONTEXTS; i++) CHECK_EQUAL(call_named(contexts[i], NULL, "keys_here", 0), 0);
    return NULL;
}

int main(void) {
    char name[16];
    pthread_t thread;
    vlc_stats stats = VLC_STATS_INIT;
    for (int i = 0; i < CONTEXTS; i++) {
        snprintf(name, sizeof name, "keys-%d", i);
        contexts[i] = context_new(name);
        load(contexts[i], FIXTURE("keys"), RTLD_NOW);
        CHECK_EQUAL(call_named(contexts[i], NULL, "keys_make", KEYS), 0);
        CHECK_EQUAL(vlc_get_stats(contexts[i], &stats, NULL), VLC_OK);
        CHECK(stats.keys >= KEYS, "%u keys are counted", stats.keys);
    }
    for (int i = 0; i < CONTEXTS; i++) {
        CHECK_EQUAL(call_named(contexts[i], NULL, "keys_in_thread", 0), KEYS);
        CHECK_EQUAL(call_named(contexts[i], NULL, "keys_rounds", 0), 0);
    }
    REQUIRE(pthread_create(&thread, NULL, visit_all, NULL) == 0, "no thread");
    pthread_join(thread, NULL);
    for (int i = 0; i < CONTEXTS; i++) CHECK_EQUAL(call_named(contexts[i], NULL, "keys_destroyed", 0), KEYS);

    CHECK_EQUAL(call_named(contexts[0], NULL, "keys_drop", 0), 0);
    CHECK_EQUAL(call_named(contexts[0], NULL, "keys_make", KEYS), 0);
    CHECK_EQUAL(call_named(contexts[0], NULL, "keys_in_thread", 0), KEYS);
    for (int i = 0; i < CONTEXTS; i++) context_close(contexts[i]);
    return check_result();
}
