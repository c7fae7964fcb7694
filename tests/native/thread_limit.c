/* L6: when no thread may be made (`ulimit -u`), an error that says so; earlier contexts work on, and later ones once
 * there is room again. */
#include <errno.h>
#include <sys/resource.h>

#include "contexts.h"

enum { NOBODY = 65534 };

static void *answer(void *number) { return number; }

static void *submitted(vlc_context *context, void *number) {
    void *result = NULL;
    vlc_task *task = NULL;
    vlc_error error = VLC_ERROR_INIT;
    REQUIRE(vlc_submit(context, answer, number, &task, &error) == VLC_OK, "%s", error.message);
    REQUIRE(vlc_wait(task, &result, &error) == VLC_OK, "%s", error.message);
    return result;
}

int main(void) {
    vlc_context *first = context_new("first");
    probe next = find(first, load(first, FIXTURE("counter"), RTLD_NOW), "counter_next");
    CHECK(submitted(first, first) == first, "no answer");
    CHECK_EQUAL(call(first, next, 1), 1);

    vlc_context *late = context_new("late"); /* its threads begin with its first task */
    struct rlimit all, none;
    if (getuid() == 0 && setresuid(NOBODY, NOBODY, NOBODY))
        SKIP("no-setuid", "root's threads are not counted, and its id cannot be given up");
    REQUIRE(getrlimit(RLIMIT_NPROC, &all) == 0, "no limit");
    none = (struct rlimit){ .rlim_cur = 0, .rlim_max = all.rlim_max };
    REQUIRE(setrlimit(RLIMIT_NPROC, &none) == 0, "the limit cannot be set");

    long threads = thread_count(2); /* this one and the first context's */
    for (int i = 0; i < 3; i++) {
        vlc_task *task = NULL;
        vlc_error error = VLC_ERROR_INIT;
        int status = vlc_submit(late, answer, NULL, &task, &error);
        REQUIRE(status == VLC_SYSTEM, "status %d: %s", status, error.message);
        CHECK_EQUAL(error.os_error, EAGAIN);
        CHECK_WORDS(error.message, "cannot make thread 1 of 1 for context 'late'");
        CHECK_WORDS(error.message, "`ulimit -u`");
        CHECK_EQUAL(thread_count(threads), threads);
        CHECK(submitted(first, first) == first, "no answer");
        CHECK_EQUAL(call(first, next, 1), i + 2);
    }

    REQUIRE(setrlimit(RLIMIT_NPROC, &all) == 0, "the limit cannot be set");
    CHECK(submitted(late, late) == late, "no answer");
    context_close(late);
    context_close(first);
    return check_result();
}
