/* R7: a library that flushes denormals to zero when it loads or runs leaves those of others alone. */
#include <fenv.h>

#include "contexts.h"

static void *on_pool(void *function) { return (void *)(uintptr_t)((probe)(uintptr_t)function)(0); }

static long submitted(vlc_context *context, probe function) {
    vlc_task *task = NULL;
    vlc_error error = VLC_ERROR_INIT;
    void *result = NULL;
    REQUIRE(vlc_submit(context, on_pool, (void *)(uintptr_t)function, &task, &error) == VLC_OK, "%s",
            error.message);
    REQUIRE(vlc_wait(task, &result, &error) == VLC_OK, "%s", error.message);
    return (long)(uintptr_t)result;
}

int main(void) {
    vlc_context *a = context_new("a"), *b = context_new("b");
    probe looks[2] = { find(b, load(b, FIXTURE("fast_math"), RTLD_NOW), "fast_denormals"), NULL };
    CHECK_EQUAL(looks[0](0), 1); /* on this thread, outside */
    vlc_library *library = load(a, FIXTURE("fast_math"), RTLD_NOW);
    looks[1] = find(a, library, "fast_denormals");
    CHECK_EQUAL(looks[0](0), 1);

    /* What it set while loading ended with its constructor: nothing in the context has it. */
    CHECK_EQUAL(call(a, looks[1], 0), 1);
    CHECK_EQUAL(call_named(a, library, "fast_on_thread", 0), 1);
    CHECK_EQUAL(submitted(a, looks[1]), 1);

    /* What it sets while it runs ends with the visit. */
    REQUIRE(vlc_enter(a, NULL) == VLC_OK, "cannot enter");
    find(a, library, "fast_flush")(0);
    CHECK_EQUAL(looks[1](0), 2);
    CHECK_EQUAL(find(a, library, "fast_on_thread")(0), 2); /* POSIX: a thread inherits its creator's */
    fesetround(FE_UPWARD);
    REQUIRE(vlc_leave(a, NULL) == VLC_OK, "cannot leave");
    CHECK_EQUAL(looks[0](0), 1);
    CHECK_EQUAL(fegetround(), FE_TONEAREST);

    /* The host's own choice is the host's: threads of a pool begin as those of a new process. */
    vlc_context *c = context_new("c");
    library = load(c, FIXTURE("fast_math"), RTLD_NOW);
    find(c, library, "fast_flush")(0);
    fesetround(FE_UPWARD);
    CHECK_EQUAL(submitted(c, find(c, library, "fast_denormals")), 1);
    CHECK_EQUAL(looks[0](0), 2);
    CHECK_EQUAL(fegetround(), FE_UPWARD);
    context_close(a);
    context_close(b);
    context_close(c);
    return check_result();
}
