/* Figures: of a context and of the process; and records of older and newer callers. */
#include "contexts.h"

static void *spin_a_little(void *unused) {
    for (volatile long i = 0; i < 30000000; i++) {
    }
    return unused;
}

int main(void) {
    vlc_error error = VLC_ERROR_INIT;
    vlc_stats stats = VLC_STATS_INIT;
    vlc_limits limits = { .size = sizeof limits };
    vlc_task *task = NULL;

    CHECK_EQUAL(vlc_get_limits(&limits, &error), VLC_OK);
    CHECK_EQUAL(limits.contexts, 0);
    CHECK(limits.mappings > 5 && limits.mappings < limits.mappings_max, "%llu of %llu mappings",
          (unsigned long long)limits.mappings, (unsigned long long)limits.mappings_max);
    CHECK(limits.static_tls_total >= 64, "the pool has %llu bytes",
          (unsigned long long)limits.static_tls_total);

    vlc_context *a = context_new("a"), *b = context_new(NULL);
    CHECK(vlc_name(b)[0] != '\0' && strcmp(vlc_name(b), "a") != 0, "a made name is \"%s\"", vlc_name(b));
    CHECK_EQUAL(vlc_get_stats(a, &stats, &error), VLC_OK);
    CHECK_EQUAL(stats.libraries, 0);
    CHECK_EQUAL(stats.threads, 0);
    load(a, FIXTURE("order_upper"), RTLD_NOW);
    CHECK_EQUAL(vlc_submit(a, spin_a_little, NULL, &task, &error), VLC_OK);
    CHECK_EQUAL(vlc_wait(task, NULL, &error), VLC_OK);
    CHECK_EQUAL(vlc_get_stats(a, &stats, &error), VLC_OK);
    CHECK_EQUAL(stats.libraries, 2);
    CHECK_EQUAL(stats.threads, 1);
    CHECK_EQUAL(stats.visitors, 0);
    CHECK(stats.cpu_time > 1000000 && stats.cpu_time < 60000000000u, "%llu ns of CPU time",
          (unsigned long long)stats.cpu_time);
    CHECK(stats.library_bytes >= 4096, "%llu bytes of libraries", (unsigned long long)stats.library_bytes);
    CHECK(stats.lookups + stats.cached > 0, "no symbol was looked up");
    CHECK_TEXT(vlc_library_path(a, 0), FIXTURE("order_upper"));
    CHECK_TEXT(vlc_library_path(a, 1), FIXTURE("order_lower"));
    CHECK(vlc_library_path(a, 2) == NULL, "there is a third library");

    CHECK_EQUAL(vlc_enter(a, &error), VLC_OK);
    CHECK_EQUAL(vlc_get_stats(a, &stats, &error), VLC_OK);
    CHECK_EQUAL(stats.visitors, 1);
    CHECK_EQUAL(vlc_leave(a, &error), VLC_OK);

    /* An older caller's record is shorter: nothing behind it is written. */
    struct {
        uint32_t size, threads;
        char after[sizeof stats];
    } old = { 8, 99, { 0 } };
    CHECK_EQUAL(vlc_get_stats(a, (vlc_stats *)&old, &error), VLC_OK);
    CHECK_EQUAL(old.threads, 1);
    for (size_t i = 0; i < sizeof old.after; i++) CHECK_EQUAL(old.after[i], 0);

    CHECK_EQUAL(vlc_get_limits(&limits, &error), VLC_OK);
    CHECK_EQUAL(limits.contexts, 2);
    context_close(a);
    context_close(b);
    CHECK_EQUAL(vlc_get_limits(&limits, &error), VLC_OK);
    CHECK_EQUAL(limits.contexts, 0);
    CHECK_EQUAL(vlc_abi_version(), VLC_ABI_VERSION);
    CHECK_TEXT(vlc_status_name(VLC_LOAD_FAILED), "VLC_LOAD_FAILED");
    CHECK_TEXT(vlc_status_name(VLC_BUG), "VLC_BUG");
    CHECK_TEXT(vlc_status_name(99), "unknown");
    return check_result();
}
