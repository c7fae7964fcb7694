/* R3: works under `ulimit -v`, whose bytes are reserved addresses, not memory. */
#include <sys/resource.h>

#include "contexts.h"

int main(int argc, char **argv) {
    struct rlimit limit;
    (void)argc;
    REQUIRE(getrlimit(RLIMIT_AS, &limit) == 0, "no limit");
    if (limit.rlim_cur == RLIM_INFINITY) { /* again, with the limit from the start as a shell would set it */
        limit.rlim_cur = 64000000ul * 1024;
        REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0, "the limit cannot be set");
        execv("/proc/self/exe", argv);
        REQUIRE(0, "exec failed");
    }
    vlc_context *contexts[20];
    char name[16];
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "limited-%d", i);
        contexts[i] = context_new(name);
        CHECK_EQUAL(call_named(contexts[i], load(contexts[i], FIXTURE("heap"), RTLD_NOW), "heap_sizes", 0),
                    0);
        CHECK_EQUAL(call_named(contexts[i], NULL, "heap_mappings", 0), 0);
    }
    void *rest = malloc(1u << 30); /* the host has room left */
    CHECK(rest != NULL, "the contexts took all addresses");
    free(rest);
    for (int i = 0; i < 20; i++) context_close(contexts[i]);
    return check_result();
}
