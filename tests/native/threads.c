/* Threads of a context: really pinned, counted and listed, of every kind. */
#include "contexts.h"

static int is_listed(vlc_context *context, long id) {
    int32_t ids[64];
    size_t count = vlc_threads(context, ids, 64);
    for (size_t i = 0; i < count && i < 64; i++)
        if (ids[i] == id) return 1;
    return 0;
}

/* The kernel's own answer, asked through the host's link. */
static void check_mask(long id, uint32_t cpu) {
    cpu_set_t set;
    REQUIRE(sched_getaffinity((pid_t)id, sizeof set, &set) == 0, "there is no thread %ld", id);
    CHECK(CPU_COUNT(&set) == 1 && CPU_ISSET(cpu, &set), "thread %ld may use %d CPUs", id, CPU_COUNT(&set));
}

int main(void) {
    uint32_t cpus[2];
    two_cpus(cpus);
    vlc_context *contexts[2] = { context_on("a", cpus, 1), context_on("b", cpus + 1, 1) };
    vlc_stats stats = VLC_STATS_INIT;
    for (int i = 0; i < 2; i++) {
        load(contexts[i], FIXTURE("threads"), RTLD_NOW);
        CHECK_EQUAL(vlc_threads(contexts[i], NULL, 0), 0);
        CHECK_EQUAL(call_named(contexts[i], NULL, "threads_park", 5), 0);
    }
    for (int i = 0; i < 2; i++) {
        CHECK_EQUAL(vlc_threads(contexts[i], NULL, 0), 5);
        for (long index = 0; index < 5; index++) {
            long id = call_named(contexts[i], NULL, "threads_id", index);
            check_mask(id, cpus[i]);
            CHECK(is_listed(contexts[i], id), "thread %ld is not listed", id);
            CHECK(!is_listed(contexts[1 - i], id), "thread %ld is listed in another context", id);
        }
        CHECK_EQUAL(vlc_get_stats(contexts[i], &stats, NULL), VLC_OK);
        CHECK_EQUAL(stats.threads, 5);
    }
    for (int i = 0; i < 2; i++) {
        CHECK_EQUAL(call_named(contexts[i], NULL, "threads_leave", 0), 0);
        CHECK_EQUAL(vlc_threads(contexts[i], NULL, 0), 0);
        long wrong = call_named(contexts[i], NULL, "threads_kinds", 0);
        CHECK(wrong == 0, "threads.c:%ld is not so", wrong);
    }

    /* A thread made by direct call, from outside vlc_enter, is the context's all the same. */
    CHECK_EQUAL(find(contexts[1], NULL, "threads_park")(1), 0);
    check_mask(call_named(contexts[1], NULL, "threads_id", 0), cpus[1]);
    CHECK_EQUAL(find(contexts[1], NULL, "threads_leave")(0), 0);
    context_close(contexts[0]);
    context_close(contexts[1]);
    return check_result();
}
