/* Threads that wait for ever do not keep a context: they are ended with it, whatever they wait for and block.
 * One that computes does, and is named. */
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "contexts.h"

enum { WARM = 10, ROUNDS = 50 };

static int descriptors[2]; /* a pipe's end that stays empty, a socket that nobody calls */

static void open_descriptors(void) {
    int ends[2];
    REQUIRE(pipe(ends) == 0, "no pipe");
    descriptors[0] = ends[0];
    descriptors[1] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = { .sun_family = AF_UNIX }; /* bound to a name that the kernel makes */
    REQUIRE(descriptors[1] >= 0 &&
                bind(descriptors[1], (struct sockaddr *)&address, sizeof address.sun_family) == 0 &&
                listen(descriptors[1], 1) == 0,
            "no socket");
}

static void check_waiters(void) {
    long kilobytes = 0, mappings = 0;
    for (int round = 0; round < ROUNDS; round++) {
        vlc_error error = VLC_ERROR_INIT;
        vlc_spec spec = VLC_SPEC_INIT;
        spec.name = "idle";
        spec.heap = round % 2 ? VLC_HEAP_HOST : VLC_HEAP_OWN;
        vlc_context *context = context_from(&spec);
        load(context, FIXTURE("waiters"), RTLD_NOW);
        long wrong = call_named(context, NULL, "waiters_start", (long)(uintptr_t)descriptors);
        REQUIRE(wrong == 0, "waiters.c:%ld is not so", wrong);
        CHECK_EQUAL(vlc_threads(context, NULL, 0), call_named(context, NULL, "waiters_count", 0));
        int status = vlc_destroy(context, 20000, &error); /* rounds as long would be a timeout of ctest's */
        REQUIRE(status == VLC_OK, "round %d: %s", round, error.message);
        CHECK_EQUAL(thread_count(1), 1);
        if (round == WARM) {
            kilobytes = resident_kilobytes();
            mappings = mapping_count();
        }
    }
    CHECK(UNDER_SANITIZER || resident_kilobytes() < kilobytes + 1024, "%d rounds left %ld kB", ROUNDS - WARM,
          resident_kilobytes() - kilobytes);
    CHECK(UNDER_SANITIZER || mapping_count() <= mappings + 8, "%ld mappings became %ld", mappings,
          mapping_count());
    CHECK(!is_mapped("libwaiters.so"), "libwaiters.so stays mapped");
}

/* Exit handlers that take all the time leave enough to end threads that only wait. */
static void check_slow_end(void) {
    vlc_error error = VLC_ERROR_INIT;
    vlc_context *context = context_new("slow");
    load(context, FIXTURE("waiters"), RTLD_NOW);
    CHECK_EQUAL(call_named(context, NULL, "waiters_start", (long)(uintptr_t)descriptors), 0);
    call_named(context, NULL, "waiters_end_slowly", 100);
    CHECK(vlc_destroy(context, 50, &error) == VLC_OK, "%s", error.message);
}

static void check_computing(void) {
    vlc_error error = VLC_ERROR_INIT;
    vlc_context *context = context_new("busy");
    load(context, FIXTURE("waiters"), RTLD_NOW);
    CHECK_EQUAL(call_named(context, NULL, "waiters_start", (long)(uintptr_t)descriptors), 0);
    atomic_int *spinning = (atomic_int *)call_named(context, NULL, "waiters_spin", 0);
    CHECK_REFUSED(vlc_destroy(context, 300, &error), error, VLC_BUSY, "busy");
    CHECK_WORDS(error.message, "libwaiters.so");
    CHECK_EQUAL(vlc_threads(context, NULL, 0), 1); /* only the one that computes */
    CHECK_REFUSED(vlc_destroy(context, 0, &error), error, VLC_BUSY, "libwaiters.so");
    *spinning = 0;
    context_close(context);
    CHECK_EQUAL(thread_count(1), 1);
    CHECK(!is_mapped("libwaiters.so"), "libwaiters.so stays mapped");
}

/* A signal that the host handles stays its own. */
static void own_handler(int number) { (void)number; }

static void check_handlers(void (*handler)(int)) {
    struct sigaction now;
    CHECK(sigaction(SIGRTMAX - 5, NULL, &now) == 0 && now.sa_handler == handler,
          "the host's handler is gone");
}

int main(void) {
    signal(SIGRTMAX - 5, own_handler); /* the first that we would take */
    open_descriptors();
    check_waiters();
    check_slow_end();
    check_computing();
    check_handlers(own_handler);
    return check_result();
}
