/* share: a library named there is the host's own copy, inside the context too. */
#include "contexts.h"

int main(void) {
    const char *const share[] = { "libcounter.so", NULL };
    vlc_spec spec = VLC_SPEC_INIT;
    spec.name = "sharing";
    spec.share = share;
    void *in_host = dlopen(FIXTURE("counter"), RTLD_NOW);
    REQUIRE(in_host != NULL, "%s", dlerror());
    probe next_host = (probe)dlsym(in_host, "counter_next");
    vlc_context *sharing = context_from(&spec), *alone = context_new("alone");

    CHECK_EQUAL(next_host(1), 1);
    CHECK_EQUAL(call_named(sharing, load(sharing, FIXTURE("counter_user"), RTLD_NOW), "use_counter", 1), 2);
    CHECK_EQUAL(call_named(alone, load(alone, FIXTURE("counter_user"), RTLD_NOW), "use_counter", 1), 1);
    CHECK_EQUAL(next_host(1), 3);
    context_close(sharing);
    context_close(alone);
    CHECK_EQUAL(next_host(1), 4);
    return check_result();
}
