/* Case R1: the host frees what a library of a context gives it to free. */
#include "contexts.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static vlc_context *context_with_heap(const char *name, vlc_heap heap) {
    vlc_spec spec = VLC_SPEC_INIT;
    spec.name = name;
    spec.heap = heap;
    return context_from(&spec);
}

static void check_own(void) {
    static const long sizes[] = { 0, 1, 16, 100, 5000, 20000, 1 << 20 };
    enum { SIZES = sizeof sizes / sizeof sizes[0] };
    vlc_context *context = context_with_heap("own", VLC_HEAP_OWN);
    load(context, FIXTURE("heap"), RTLD_NOW);
    probe give = find(context, NULL, "heap_give");
    vlc_stats stats = VLC_STATS_INIT;
    uint64_t before = 0;
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < SIZES; i++) {
            char *block = (char *)call(context, give, sizes[i]);
            CHECK(vlc_context_of(block) == context, "the block of %ld bytes is not the context's", sizes[i]);
            vlc_free(block);
        }
        CHECK_EQUAL(vlc_get_stats(context, &stats, NULL), VLC_OK);
        if (round == 10) before = stats.heap_bytes;
    }
    CHECK_EQUAL(stats.heap_bytes, before);

    vlc_free(NULL);
    vlc_free(malloc(100));                      /* the host's */
    probe theirs = find(context, NULL, "free"); /* the context's own takes all, too */
    theirs(call(context, give, 100));
    theirs((long)malloc(100));

    void *small = (void *)call(context, give, 100), *large = (void *)call(context, give, 1 << 20);
    context_close(context);
    vlc_free(small); /* it went with the context */
    vlc_free(large);
}

/* Free, or resize, by the host's libc; the block before is filled with words that could be the sizes of a chunk. */
static void give_to_host(vlc_context *context, long size, bool resize) {
    probe give = find(context, NULL, "heap_give");
    enum { BLOCKS = 40 };
    char *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = (char *)call(context, give, size);
        for (long at = 0; at + 8 <= size; at += 8) *(uint64_t *)(blocks[i] + at) = 0x21 + 0x10 * (uint64_t)i;
    }
    for (int i = 0; i < BLOCKS; i++) {
        pid_t child = fork();
        if (child == 0) {
            freopen("/dev/null", "w", stderr); /* "munmap_chunk(): invalid pointer" */
            signal(SIGABRT, SIG_DFL);
            void *block = blocks[i];
            __asm__("" : "+r"(block)); /* or the compiler warns */
            if (resize)
                block = realloc(block, (size_t)size * 2);
            else
                free(block);
            _exit(block != NULL);
        }
        int status = 0;
        waitpid(child, &status, 0);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "%s of block %d of %ld bytes: status %x",
              resize ? "realloc" : "free", i, size, (unsigned)status);
    }
}

static void check_mistaken(void) {
    static const long sizes[] = { 8, 24, 40, 100, 1000, 4000, 10000, 16000, 20000, 1 << 20 };
    vlc_context *context = context_with_heap("mistaken", VLC_HEAP_OWN);
    load(context, FIXTURE("heap"), RTLD_NOW);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        give_to_host(context, sizes[i], false);
        give_to_host(context, sizes[i], true);
    }
    context_close(context);
}

static void check_absurd(void) {
    size_t size = 1ul << 45;
    void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped != MAP_FAILED) { /* vm.overcommit_memory is 1 */
        munmap(mapped, size);
        return;
    }
    vlc_context *context = context_with_heap("absurd", VLC_HEAP_OWN);
    load(context, FIXTURE("heap"), RTLD_NOW);
    long wrong = call_named(context, NULL, "heap_absurd", (long)size);
    CHECK(wrong == 0, "heap_absurd: heap.c:%ld is not so", wrong);
    context_close(context);
}

static void check_hosts(void) {
    vlc_context *context = context_with_heap("hosts", VLC_HEAP_HOST);
    load(context, FIXTURE("heap"), RTLD_NOW);
    static const char *const questions[] = { "heap_sizes",   "heap_grow",  "heap_zeroed",
                                             "heap_aligned", "heap_edges", "heap_of_libc" };
    for (size_t q = 0; q < sizeof questions / sizeof questions[0]; q++) {
        long wrong = call_named(context, NULL, questions[q], 0);
        CHECK(wrong == 0, "%s: heap.c:%ld is not so", questions[q], wrong);
    }
    char *block = (char *)call_named(context, NULL, "heap_give", 300);
    CHECK(vlc_context_of(block) == NULL, "the block is not the host's");
    block = realloc(block, 5000);
    free(block);
    vlc_free((void *)call_named(context, NULL, "heap_give", 300));
    block = (char *)call_named(context, NULL, "heap_give", 300);
    context_close(context);
    memset(block, 1, 300); /* it lives on */
    free(block);
}

int main(void) {
    check_own();
    check_mistaken();
    check_absurd();
    check_hosts();
    vlc_spec spec = VLC_SPEC_INIT;
    vlc_context *context = NULL;
    vlc_error error;
    spec.heap = 7;
    CHECK_REFUSED(vlc_create(&spec, &context, &error), error, VLC_BAD_ARGUMENT, "heap 7");
    return check_result();
}
