/* The size limit of a context: who is refused what, and that all goes on. Two contexts share no page. */
#include <pthread.h>

#include "contexts.h"
#include "fixtures/memory.h"

enum { MEGABYTE = 1 << 20, LIMIT = 24 * MEGABYTE };

static vlc_stats figures(vlc_context *context) {
    vlc_stats stats = VLC_STATS_INIT;
    REQUIRE(vlc_get_stats(context, &stats, NULL) == VLC_OK, "no figures");
    return stats;
}

static vlc_context *limited(const char *name, uint64_t bytes, uint32_t heap) {
    vlc_spec spec = VLC_SPEC_INIT;
    spec.name = name;
    spec.memory_limit = bytes;
    spec.heap = heap;
    vlc_context *context = context_from(&spec);
    load(context, FIXTURE("memory"), RTLD_NOW);
    return context;
}

static void check_limit_holds(void) {
    static const char *const questions[] = { "memory_refusals", "memory_grow", "memory_reserve" };
    vlc_context *a = limited("a", LIMIT, VLC_HEAP_OWN), *free_one = context_new("free");
    load(free_one, FIXTURE("memory"), RTLD_NOW);
    probe fill = find(a, NULL, "memory_fill"), fill_mapped = find(a, NULL, "memory_fill_mapped");
    CHECK_EQUAL(figures(a).memory_limit, LIMIT);
    for (int round = 0; round < 3; round++) {
        uint64_t before = figures(a).memory_bytes;
        long blocks = call(a, fill, MEGABYTE), mapped = call(a, fill_mapped, MEGABYTE),
             small = call(a, fill, 1000);
        CHECK(blocks >= 20 && blocks <= 24, "%ld blocks of 1 MB", blocks);
        CHECK(mapped >= 20 && mapped <= 24, "%ld mappings of 1 MB", mapped);
        CHECK(small >= 20000 && small <= 26000, "%ld blocks of 1000 bytes", small);
        for (size_t q = 0; q < sizeof questions / sizeof questions[0]; q++) {
            long wrong = call_named(a, NULL, questions[q], LIMIT);
            CHECK(wrong == 0, "%s: memory.c:%ld is not so", questions[q], wrong);
        }
        vlc_stats now = figures(a);
        CHECK(now.memory_peak <= LIMIT && now.memory_peak > LIMIT - 2 * MEGABYTE, "the peak is %llu",
              (unsigned long long)now.memory_peak);
        if (round) CHECK_EQUAL(now.memory_bytes, before); /* the first leaves some blocks for later ones */
        CHECK(now.heap_used < MEGABYTE, "%llu bytes are in use", (unsigned long long)now.heap_used);
    }
    long block = call_named(free_one, NULL, "memory_malloc", 4 * LIMIT); /* another does not notice */
    CHECK(block != 0, "another context is limited");
    CHECK_EQUAL(figures(free_one).memory_limit, 0);
    CHECK(figures(free_one).heap_used >= 4 * LIMIT, "%llu bytes are in use",
          (unsigned long long)figures(free_one).heap_used);
    context_close(a);
    context_close(free_one);
}

/* Live: lowered below what is taken, and raised. */
static void check_limit_moves(void) {
    vlc_error error = VLC_ERROR_INIT;
    vlc_context *a = limited("a", LIMIT, VLC_HEAP_OWN);
    probe take = find(a, NULL, "memory_malloc"), give = find(a, NULL, "memory_free");
    long block = call(a, take, 16 * MEGABYTE);
    CHECK(block != 0, "16 MB of 24 are refused");
    CHECK_EQUAL(call(a, take, 16 * MEGABYTE), 0);
    CHECK_EQUAL(vlc_set_memory_limit(a, 64 * MEGABYTE, &error), VLC_OK);
    long second = call(a, take, 16 * MEGABYTE);
    CHECK(second != 0, "a raised limit is not seen");
    CHECK_EQUAL(vlc_set_memory_limit(a, 8 * MEGABYTE, &error), VLC_OK);
    CHECK_EQUAL(call(a, take, MEGABYTE), 0);
    call(a, give, second);
    CHECK_EQUAL(call(a, take, MEGABYTE), 0);
    call(a, give, block); /* below the limit, and what waits to be used again does not stand in the way */
    CHECK(call(a, take, MEGABYTE) != 0, "the limit stays reached");
    CHECK_EQUAL(vlc_set_memory_limit(a, 0, &error), VLC_OK);
    CHECK(call(a, take, 64 * MEGABYTE) != 0, "no limit is one");
    context_close(a);
}

/* Blocks of the host's heap are the host's. */
static void check_host_heap(void) {
    vlc_context *a = limited("a", LIMIT, VLC_HEAP_HOST);
    long block = call_named(a, NULL, "memory_malloc", 2 * LIMIT);
    CHECK(block != 0, "the host's heap is limited");
    call_named(a, NULL, "memory_free", block);
    long mapped = call_named(a, NULL, "memory_fill_mapped", MEGABYTE);
    CHECK(mapped >= 20 && mapped <= 24, "%ld mappings of 1 MB", mapped);
    context_close(a);
}

/* Nothing that a context needs to begin stands in the way of a clear end. */
static void check_absurd_limits(void) {
    vlc_context *a;
    vlc_error error = VLC_ERROR_INIT;
    vlc_spec spec = VLC_SPEC_INIT;
    spec.name = "small";
    spec.memory_limit = VLC_MEMORY_LIMIT_LEAST - 1;
    CHECK_REFUSED(vlc_create(&spec, &a, &error), error, VLC_BAD_ARGUMENT, "'small' to 1048575 bytes");
    a = limited("small", VLC_MEMORY_LIMIT_LEAST, VLC_HEAP_OWN);
    CHECK_EQUAL(call_named(a, NULL, "memory_malloc", 2 * MEGABYTE), 0);
    CHECK_REFUSED(vlc_set_memory_limit(a, 1, &error), error, VLC_BAD_ARGUMENT, "'small' to 1 bytes");
    CHECK_EQUAL(figures(a).memory_limit, VLC_MEMORY_LIMIT_LEAST);
    context_close(a);
}

static void *meet(void *context) {
    CHECK_EQUAL(call_named(context, NULL, "memory_meet", LIMIT), 0);
    return NULL;
}
static void check_fork_at_the_limit(void) {
    pthread_t threads[2];
    vlc_context *a = limited("a", LIMIT, VLC_HEAP_OWN);
    for (int i = 0; i < 2; i++) REQUIRE(!pthread_create(&threads[i], NULL, meet, a), "no thread");
    CHECK_EQUAL(call_named(a, NULL, "memory_fork", 200), 0);
    call_named(a, NULL, "memory_stop", 1);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    context_close(a);
}

struct taker {
    vlc_context *context;
    struct memory_block *blocks;
    pthread_barrier_t *start;
    probe take;
};
static void *take_blocks(void *argument) {
    struct taker *taker = argument;
    pthread_barrier_wait(taker->start);
    CHECK_EQUAL(call(taker->context, taker->take, (long)(uintptr_t)taker->blocks), 0);
    return NULL;
}

static int by_page(const void *one, const void *other) {
    uintptr_t a = *(const uintptr_t *)one, b = *(const uintptr_t *)other;
    return (a > b) - (a < b);
}

/* Four threads in three contexts at once, one of them twice. */
static void check_no_page_is_shared(void) {
    enum { TAKERS = 4, MOST = TAKERS * MEMORY_BLOCKS * 76 };
    static struct memory_block blocks[TAKERS][MEMORY_BLOCKS];
    static uintptr_t pages[MOST]; /* the number of the page above, the context's below */
    struct taker takers[TAKERS];
    pthread_t threads[TAKERS];
    pthread_barrier_t start;
    vlc_context *contexts[3] = { limited("a", 0, VLC_HEAP_OWN), limited("b", 0, VLC_HEAP_OWN),
                                 limited("c", 0, VLC_HEAP_OWN) };
    pthread_barrier_init(&start, NULL, TAKERS);
    for (int i = 0; i < TAKERS; i++) {
        vlc_context *context = contexts[i % 3];
        takers[i] = (struct taker){ context, blocks[i], &start, find(context, NULL, "memory_blocks") };
        REQUIRE(!pthread_create(&threads[i], NULL, take_blocks, &takers[i]), "no thread");
    }
    for (int i = 0; i < TAKERS; i++) pthread_join(threads[i], NULL);
    size_t count = 0;
    for (int i = 0; i < TAKERS; i++)
        for (int j = 0; j < MEMORY_BLOCKS; j++)
            for (uintptr_t page = (uintptr_t)blocks[i][j].start >> 12,
                           last = ((uintptr_t)blocks[i][j].start + blocks[i][j].size - 1) >> 12;
                 page <= last; page++) {
                REQUIRE(count < MOST, "more pages than there can be");
                pages[count++] = page << 2 | (uintptr_t)(i % 3);
            }
    qsort(pages, count, sizeof *pages, by_page);
    size_t shared = 0;
    for (size_t i = 1; i < count; i++)
        shared += pages[i] >> 2 == pages[i - 1] >> 2 && pages[i] != pages[i - 1];
    CHECK(shared == 0, "%zu of %zu pages have blocks of two contexts", shared, count);
    for (int i = 0; i < 3; i++) context_close(contexts[i]);
    pthread_barrier_destroy(&start);
}

int main(void) {
    check_limit_holds();
    check_limit_moves();
    check_host_heap();
    check_absurd_limits();
    check_fork_at_the_limit();
    check_no_page_is_shared();
    return check_result();
}
