/* What a library hears when it asks for CPUs, in a slice of one and in a slice of two. */
#include "contexts.h"

struct question {
    const char *function, *argument;
};

static const struct question questions[] = {
    { "cpus_affinity", NULL },
    { "cpus_affinity_of_process", NULL },
    { "cpus_affinity_of_thread", NULL },
    { "cpus_raw", NULL },
    { "cpus_online", NULL },
    { "cpus_nprocs", NULL },
    { "cpus_sys_open", "/sys/devices/system/cpu/online" },
    { "cpus_sys_stdio", "/sys/devices/system/cpu/online" },
    { "cpus_sys_open", "/sys/devices/../devices/system//cpu/online" },
    { "cpus_sys_openat", NULL },
    { "cpus_cpuinfo", NULL },
    { "cpus_status", "/proc/self/status" },
    { "cpus_status", "/proc/thread-self/status" },
};

static const struct question cgroup_files[] = {
    { "cpus_sys_open", "/sys/fs/cgroup/cpuset/cpuset.cpus" },
    { "cpus_sys_open", "/sys/fs/cgroup/cpuset/cpuset.effective_cpus" },
    { "cpus_sys_open", "/sys/fs/cgroup/cpuset.cpus.effective" },
    { "cpus_quota", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us" },
    { "cpus_quota", "/sys/fs/cgroup/cpu.max" },
};

static long ask(vlc_context *context, const char *function, const char *argument) {
    return call_named(context, NULL, function, (long)(uintptr_t)argument);
}

static void check_answers(vlc_context *context, long count) {
    for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++) {
        long answer = ask(context, questions[i].function, questions[i].argument);
        CHECK(answer == count, "%s: %s(%s) says %ld, not %ld", vlc_name(context), questions[i].function,
              questions[i].argument ? questions[i].argument : "", answer, count);
    }
    for (size_t i = 0; i < sizeof cgroup_files / sizeof cgroup_files[0]; i++) {
        if (access(cgroup_files[i].argument, R_OK) != 0) continue; /* version 1 or 2, or neither here */
        long answer = ask(context, cgroup_files[i].function, cgroup_files[i].argument);
        CHECK(answer == count, "%s: %s says %ld, not %ld", vlc_name(context), cgroup_files[i].argument,
              answer, count);
    }
    /* Libraries size arrays by these and index them by sched_getcpu: they stay the machine's. */
    CHECK_EQUAL(ask(context, "cpus_configured", NULL), sysconf(_SC_NPROCESSORS_CONF));
    CHECK_EQUAL(ask(context, "cpus_index", NULL), 1);
    long possible = ask(context, "cpus_sys_open", "/sys/devices/system/cpu/possible");
    CHECK(possible >= count && possible >= sysconf(_SC_NPROCESSORS_CONF), "possible shrank to %ld", possible);
    CHECK_EQUAL(ask(context, "cpus_small_buffer", NULL), 22 /* EINVAL */);
    long wrong = ask(context, "cpus_null", NULL);
    CHECK(wrong == 0, "%s: cpus.c:%ld is not so", vlc_name(context), wrong);
}

/* The mask that the kernel has for this thread. */
static long real_count(void) {
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    return CPU_COUNT(&set);
}

int main(void) {
    uint32_t cpus[2];
    two_cpus(cpus);
    long outside = real_count();
    vlc_context *one = context_on("one", cpus + 1, 1), *two = context_on("two", cpus, 2);
    load(one, FIXTURE("cpus"), RTLD_NOW);
    load(two, FIXTURE("cpus"), RTLD_NOW);
    check_answers(one, 1);
    check_answers(two, 2);
    CHECK_EQUAL(call_named(one, NULL, "cpus_has", (long)cpus[1]), 1);
    CHECK_EQUAL(call_named(one, NULL, "cpus_has", (long)cpus[0]), 0); /* never renumbered */

    /* The answers are the context's, whichever thread asks and from wherever it was called. */
    CHECK_EQUAL(find(one, NULL, "cpus_affinity_of_process")(0), 1);
    CHECK_EQUAL(find(one, NULL, "cpus_online")(0), 1);

    /* Moving: inside the slice as asked, outside of it not at all. */
    static const char *const movers[] = { "cpus_move", "cpus_move_thread", "cpus_move_raw" };
    for (size_t i = 0; i < sizeof movers / sizeof movers[0]; i++) {
        CHECK_EQUAL(call_named(one, NULL, movers[i], (long)cpus[0]), 22);
        CHECK_EQUAL(call_named(one, NULL, movers[i], (long)cpus[1]), 0);
        CHECK_EQUAL(call_named(two, NULL, movers[i], (long)cpus[0]), 0);
    }
    CHECK_EQUAL(call_named(one, NULL, "cpus_move_everywhere", 0), 0);
    CHECK_EQUAL(call_named(two, NULL, "cpus_of_thread_with_wish", (long)cpus[0]), 1);
    CHECK_EQUAL(call_named(one, NULL, "cpus_of_thread_with_wish", (long)cpus[0]), -22);
    CHECK_EQUAL(real_count(), outside); /* nothing of that stays with the host's thread */

    vlc_error error = VLC_ERROR_INIT;
    CHECK_EQUAL(vlc_enter(one, &error), VLC_OK);
    CHECK_EQUAL(find(one, NULL, "cpus_move_everywhere")(0), 0);
    CHECK_EQUAL(real_count(), 1); /* the wish was cut to the slice */
    CHECK_EQUAL(vlc_leave(one, &error), VLC_OK);
    CHECK_EQUAL(real_count(), outside);
    context_close(one);
    context_close(two);
    return check_result();
}
