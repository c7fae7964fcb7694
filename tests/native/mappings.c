/* mmap inside a context, given back in other pieces than it was taken in: all of it is counted, and goes. */
#include "contexts.h"

enum { ROUNDS = 200 };

static uint64_t mapped_bytes(vlc_context *context) {
    vlc_stats stats = VLC_STATS_INIT;
    REQUIRE(vlc_get_stats(context, &stats, NULL) == VLC_OK, "no figures");
    return stats.mapped_bytes;
}

int main(void) {
    static const char *const questions[] = { "mappings_trim", "mappings_by_page", "mappings_of_two",
                                             "mappings_resize" };
    vlc_context *context = context_new("a");
    load(context, FIXTURE("mappings"), RTLD_NOW);
    for (size_t q = 0; q < sizeof questions / sizeof questions[0]; q++) {
        uint64_t before = mapped_bytes(context);
        long wrong = call_named(context, NULL, questions[q], 3);
        CHECK(wrong == 0, "%s: mappings.c:%ld is not so", questions[q], wrong);
        long mappings = mapping_count(), kilobytes = resident_kilobytes();
        wrong = call_named(context, NULL, questions[q], ROUNDS);
        CHECK(wrong == 0, "%s: mappings.c:%ld is not so", questions[q], wrong);
        CHECK(mapped_bytes(context) == before, "%s: %llu bytes are counted, before there were %llu",
              questions[q], (unsigned long long)mapped_bytes(context), (unsigned long long)before);
        CHECK(mapping_count() <= mappings + 4, "%s: %ld kernel mappings became %ld", questions[q], mappings,
              mapping_count());
        CHECK(UNDER_SANITIZER || resident_kilobytes() < kilobytes + 512, "%s: %d rounds left %ld kB",
              questions[q], ROUNDS, resident_kilobytes() - kilobytes);
    }
    context_close(context);
    return check_result();
}
