/* Far more contexts than dlmopen has namespaces (15), with C++, threads and thread-local storage in each. */
#include "contexts.h"

enum { MANY = 60 };

int main(void) {
    static vlc_context *contexts[MANY];
    char name[24];
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "many-%d", i);
        contexts[i] = context_new(name);
        load(contexts[i], FIXTURE("cxx_probe"), RTLD_NOW);
        load(contexts[i], FIXTURE("counter"), RTLD_NOW | RTLD_GLOBAL);
        load(contexts[i], FIXTURE("tls_general"), RTLD_NOW | RTLD_GLOBAL);
    }
    for (int round = 1; round <= 2; round++)
        for (int i = 0; i < MANY; i++) {
            CHECK_EQUAL(call_named(contexts[i], NULL, "counter_next", i), (long)i * round);
            CHECK_EQUAL(call_named(contexts[i], NULL, "tls_probe", round), 0);
            CHECK_EQUAL(call_named(contexts[i], NULL, "cxx_threads", 2), 2 * 59);
        }
    vlc_limits limits = { .size = sizeof limits };
    CHECK_EQUAL(vlc_get_limits(&limits, NULL), VLC_OK);
    CHECK_EQUAL(limits.contexts, MANY);
    for (int i = 0; i < MANY; i += 2) /* ends in another order than it was made */
        context_close(contexts[i]);
    for (int i = 1; i < MANY; i += 2) {
        CHECK_EQUAL(call_named(contexts[i], NULL, "counter_next", i), 3L * i);
        context_close(contexts[i]);
    }
    CHECK(!is_mapped("libcxx_probe.so"), "libcxx_probe.so stays mapped");
    return check_result();
}
