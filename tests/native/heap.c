/* The context's heap: correct, given back whole at the end, and what happens to blocks that cross to the host. */
#include "contexts.h"

int main(void) {
    static const char *const questions[] = { "heap_sizes",    "heap_grow",           "heap_zeroed",
                                             "heap_aligned",  "heap_edges",          "heap_of_libc",
                                             "heap_mappings", "heap_between_threads" };
    vlc_context *contexts[2] = { context_new("a"), context_new("b") };
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 2; i++) {
            load(contexts[i], FIXTURE("heap"), RTLD_NOW);
            for (size_t q = 0; q < sizeof questions / sizeof questions[0]; q++) {
                long wrong = call_named(contexts[i], NULL, questions[q], 0);
                CHECK(wrong == 0, "%s: heap.c:%ld is not so", questions[q], wrong);
            }
        }

    /* A host's block inside a context. (The other way: freed.c.) */
    unsigned char *block = malloc(5000);
    memset(block, 9, 5000);
    CHECK_EQUAL(call_named(contexts[0], NULL, "heap_take", (long)(uintptr_t)block), 0);
    CHECK_EQUAL(call_named(contexts[0], NULL, "heap_take", call_named(contexts[0], NULL, "heap_give", 300)),
                0);

    vlc_stats stats = VLC_STATS_INIT;
    call_named(contexts[0], NULL, "heap_leak", 16);
    CHECK_EQUAL(vlc_get_stats(contexts[0], &stats, NULL), VLC_OK);
    CHECK(stats.heap_bytes >= 8u << 20, "heap_bytes is %llu", (unsigned long long)stats.heap_bytes);
    CHECK(stats.mapped_bytes >= 8u << 20, "mapped_bytes is %llu", (unsigned long long)stats.mapped_bytes);
    context_close(contexts[0]);
    context_close(contexts[1]);

    long before = 0, mappings = 0;
    for (int round = 0; round < 12; round++) {
        vlc_context *context = context_new("leaky");
        load(context, FIXTURE("heap"), RTLD_NOW);
        CHECK_EQUAL(call_named(context, NULL, "heap_leak", 64), 0);
        context_close(context);
        if (round == 2) {
            before = resident_kilobytes();
            mappings = mapping_count();
        }
    }
    CHECK(resident_kilobytes() < before + 1024, "9 rounds of 64 MB left %ld kB",
          resident_kilobytes() - before);
    CHECK(mapping_count() <= mappings + 1, "%ld mappings became %ld", mappings, mapping_count());
    return check_result();
}
