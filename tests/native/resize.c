/* vlc_resize: threads move at once, answers change, visitors move when they next enter. */
#include "contexts.h"

static void check_mask(pid_t id, const uint32_t *cpus, size_t count) {
    cpu_set_t set;
    REQUIRE(sched_getaffinity(id, sizeof set, &set) == 0, "there is no thread %d", (int)id);
    int inside = (size_t)CPU_COUNT(&set) == count;
    for (size_t i = 0; i < count; i++) inside = inside && CPU_ISSET(cpus[i], &set);
    CHECK(inside, "thread %d has %d CPUs, not the slice's %zu", (int)id, CPU_COUNT(&set), count);
}

static void *nothing(void *unused) { return unused; }

int main(void) {
    uint32_t cpus[2], seen[4] = { 0 };
    two_cpus(cpus);
    size_t outside = process_cpus(NULL, 0);
    vlc_error error = VLC_ERROR_INIT;
    vlc_task *task = NULL;
    vlc_context *a = context_on("a", cpus, 1);
    load(a, FIXTURE("cpus"), RTLD_NOW);
    load(a, FIXTURE("threads"), RTLD_NOW | RTLD_GLOBAL);
    probe count = find(a, NULL, "cpus_affinity"), has = find(a, NULL, "cpus_has");
    CHECK_EQUAL(call_named(a, NULL, "threads_park", 2), 0);
    CHECK_EQUAL(vlc_submit(a, nothing, NULL, &task, &error), VLC_OK);
    CHECK_EQUAL(vlc_wait(task, NULL, &error), VLC_OK);

    int32_t ids[8];
    size_t threads = vlc_threads(a, ids, 8);
    CHECK_EQUAL(threads, 3);
    for (int round = 0; round < 3; round++) {
        const uint32_t *slice = round == 0 ? cpus + 1 : cpus;
        size_t size = round == 1 ? 2 : 1;
        CHECK_EQUAL(vlc_resize(a, slice, size, &error), VLC_OK);
        CHECK_EQUAL(vlc_cpus(a, seen, 4), size);
        CHECK_EQUAL(seen[0], slice[0]);
        for (size_t i = 0; i < threads; i++) check_mask(ids[i], slice, size);
        CHECK_EQUAL(call(a, count, 0), (long)size);
        CHECK_EQUAL(call(a, has, (long)slice[0]), 1);
    }

    /* A visitor keeps its CPUs until it enters again. */
    CHECK_EQUAL(vlc_enter(a, &error), VLC_OK);
    CHECK_EQUAL(vlc_resize(a, cpus + 1, 1, &error), VLC_OK);
    CHECK_EQUAL(count(0), 1);
    CHECK_EQUAL(vlc_leave(a, &error), VLC_OK);
    CHECK_EQUAL(vlc_enter(a, &error), VLC_OK);
    check_mask(0, cpus + 1, 1);
    CHECK_EQUAL(vlc_leave(a, &error), VLC_OK);
    CHECK_EQUAL(process_cpus(NULL, 0), outside);

    uint32_t absent = 4095;
    CHECK_REFUSED(vlc_resize(a, &absent, 1, &error), error, VLC_BAD_ARGUMENT, "4095");
    CHECK_REFUSED(vlc_resize(a, cpus, 0, &error), error, VLC_BAD_ARGUMENT, "a");
    CHECK_EQUAL(vlc_cpus(a, seen, 4), 1); /* a refused call has changed nothing */
    CHECK_EQUAL(seen[0], cpus[1]);
    CHECK_EQUAL(call_named(a, NULL, "threads_leave", 0), 0);
    context_close(a);
    return check_result();
}
