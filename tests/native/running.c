/* vlc_run, vlc_enter and vlc_leave: what the thread has while inside, and that it comes back. */
#include "contexts.h"

static void *add_one(void *number) { return (char *)number + 1; }

static void *mask_size(void *unused) {
    cpu_set_t set;
    (void)unused;
    sched_getaffinity(0, sizeof set, &set); /* the host's own link: the kernel's answer */
    return (void *)(uintptr_t)CPU_COUNT(&set);
}

static void *context_inside(void *unused) {
    (void)unused;
    return vlc_context_of(NULL);
}

static long here(void) { return (long)(uintptr_t)mask_size(NULL); }

int main(void) {
    uint32_t cpus[2];
    two_cpus(cpus);
    long outside = here();
    vlc_error error = VLC_ERROR_INIT;
    void *result = NULL;
    vlc_context *a = context_on("a", cpus, 1), *b = context_on("b", cpus + 1, 1);

    CHECK_EQUAL(vlc_run(a, add_one, (void *)41, &result, &error), VLC_OK);
    CHECK_EQUAL((uintptr_t)result, 42);
    CHECK_EQUAL(vlc_run(a, add_one, (void *)41, NULL, NULL), VLC_OK); /* result and error are optional */
    CHECK_EQUAL(vlc_run(a, mask_size, NULL, &result, &error), VLC_OK);
    CHECK_EQUAL((uintptr_t)result, 1);
    CHECK_EQUAL(here(), outside);
    CHECK_EQUAL(vlc_run(b, context_inside, NULL, &result, &error), VLC_OK);
    CHECK(result == b, "inside b, the thread's context is another");

    /* Enters nest, also across contexts. */
    CHECK_EQUAL(vlc_enter(a, &error), VLC_OK);
    CHECK_EQUAL(sched_getcpu(), cpus[0]);
    CHECK_EQUAL(vlc_enter(b, &error), VLC_OK);
    CHECK_EQUAL(sched_getcpu(), cpus[1]);
    CHECK_REFUSED(vlc_leave(a, &error), error, VLC_MISUSE, "a"); /* strictly last in, first out */
    CHECK(vlc_context_of(NULL) == b, "a refused leave left");
    CHECK_EQUAL(vlc_leave(b, &error), VLC_OK);
    CHECK(vlc_context_of(NULL) == a, "leaving b did not go back to a");
    CHECK_EQUAL(sched_getcpu(), cpus[0]);
    CHECK_EQUAL(vlc_enter(a, &error), VLC_OK);
    CHECK_EQUAL(vlc_leave(a, &error), VLC_OK);
    CHECK_EQUAL(here(), 1);
    CHECK_EQUAL(vlc_leave(a, &error), VLC_OK);
    CHECK_EQUAL(here(), outside);
    CHECK_REFUSED(vlc_leave(a, &error), error, VLC_MISUSE, "a"); /* not inside */

    context_close(a);
    context_close(b);
    CHECK_EQUAL(here(), outside);
    return check_result();
}
