/* R5: each context draws the random numbers that a process of its own would, and so does the host. */
#include "contexts.h"

enum { FUNCTIONS = 8, DRAWS = 40 };

int main(void) {
    vlc_context *contexts[2];
    probe draw[3], seed[3], tables[3];
    void *host = dlopen(FIXTURE("random"), RTLD_NOW);
    REQUIRE(host != NULL, "%s", dlerror());
    draw[0] = (probe)dlsym(host, "random_draw");
    seed[0] = (probe)dlsym(host, "random_seed");
    tables[0] = (probe)dlsym(host, "random_tables");
    for (int i = 0; i < 2; i++) {
        contexts[i] = context_new(i ? "b" : "a");
        vlc_library *library = load(contexts[i], FIXTURE("random"), RTLD_NOW);
        draw[i + 1] = find(contexts[i], library, "random_draw");
        seed[i + 1] = find(contexts[i], library, "random_seed");
        tables[i + 1] = find(contexts[i], library, "random_tables");
    }

    /* This process is fresh: what the host draws first, each context draws first. Interleaved, in steps. */
    for (int round = 0; round < DRAWS; round++)
        for (int which = 0; which < FUNCTIONS; which++) {
            long drawn = draw[0](which);
            for (int i = 0; i < 2; i++)
                CHECK(call(contexts[i], draw[i + 1], which) == drawn, "draw %d of function %d differs in %d",
                      round, which, i);
        }

    /* Seeds apart, sequences apart. */
    long first[FUNCTIONS];
    seed[0](42);
    for (int which = 0; which < 5; which++) first[which] = draw[0](which);
    seed[0](1);
    call(contexts[0], seed[1], 42);
    call(contexts[1], seed[2], 1);
    for (int which = 0; which < 5; which++) {
        CHECK_EQUAL(call(contexts[0], draw[1], which), first[which]);
        long host_drew = draw[0](which);
        CHECK(host_drew != first[which], "seeds of the host and of a context mix in function %d", which);
        CHECK_EQUAL(call(contexts[1], draw[2], which), host_drew);
    }

    CHECK_EQUAL(tables[0](0), 0);
    for (int i = 0; i < 2; i++) CHECK_EQUAL(call(contexts[i], tables[i + 1], 0), 0);
    context_close(contexts[0]);
    CHECK_EQUAL(call(contexts[1], draw[2], 0), draw[0](0));
    context_close(contexts[1]);
    return check_result();
}
