/* Create, use, destroy, over and over: no memory, mapping, thread or descriptor stays. */
#include <fcntl.h>

#include "contexts.h"

enum { WARM = 10, ROUNDS = 60 };

static long descriptor_count(void) {
    long count = 0;
    for (int i = 0; i < 256; i++) count += fcntl(i, F_GETFD) >= 0;
    return count;
}

int main(void) {
    long kilobytes = 0, mappings = 0, descriptors = 0;
    for (int round = 0; round < ROUNDS; round++) {
        vlc_context *context = context_new("a");
        load(context, FIXTURE("worker"), RTLD_NOW);
        CHECK_EQUAL(call_named(context, NULL, "worker_run", 100000), 0);
        load(context, FIXTURE("tls_initial"), RTLD_NOW);
        load(context, FIXTURE("tls_general"), RTLD_NOW);
        context_close(context);
        if (round == WARM) {
            kilobytes = resident_kilobytes();
            mappings = mapping_count();
            descriptors = descriptor_count();
        }
    }
    CHECK(UNDER_SANITIZER || resident_kilobytes() < kilobytes + 1024, "%d rounds left %ld kB", ROUNDS - WARM,
          resident_kilobytes() - kilobytes);
    /* glibc keeps a few stacks and arenas of ended threads, and fewer or more of them by chance. */
    CHECK(UNDER_SANITIZER || mapping_count() <= mappings + 8, "%ld mappings became %ld", mappings,
          mapping_count());
    CHECK_EQUAL(descriptor_count(), descriptors);
    if (!UNDER_SANITIZER) CHECK_EQUAL(thread_count(1), 1);
    CHECK(!is_mapped("libworker.so"), "libworker.so stays mapped");
    return check_result();
}
