/* R5: getopt of a context has a place of its own in a command line, and does what libc's does. */
#include <getopt.h>
#include <sys/mman.h>

#include "contexts.h"
#include "fixtures/options.h"

static const char *const words[] = {
    "-a",     "-b",       "-bx",     "-av",        "-vab",        "-c",        "-cx",         "-z",
    "-",      "--",       "operand", "--alpha",    "--alph",      "--alphab",  "--beta",      "--beta=",
    "x",      "--beta=y", "--gamma", "--ga=1",     "--verb",      "--alpha=1", "--none",      "-beta",
    "-alpha", "-gam",     "-W",      "-Wbeta=1",   "beta",        "--delta",   "-delta",      "-al",
    "-:",     "-;",       "-v:",     "-verbosely", "--alphabet=", "",          "--gamma=a=b", "-Walpha"
};
static const char *const options[] = { "ab:c::v", "+ab:c::v", "-ab:c::v", ":ab:c::v",
                                       "W;ab:v",  "-:b:",     "+:a",      "" };

static char said[8192];

/* The words that the call wrote to the standard error, in `said`. */
static int capture_begin(void) {
    int kept = dup(STDERR_FILENO), file = memfd_create("said", MFD_CLOEXEC);
    REQUIRE(kept >= 0 && file >= 0 && dup2(file, STDERR_FILENO) >= 0, "no descriptor");
    close(file);
    return kept;
}
static void capture_end(int kept) {
    ssize_t length = pread(STDERR_FILENO, said, sizeof said - 1, 0);
    said[length > 0 ? length : 0] = 0;
    dup2(kept, STDERR_FILENO);
    close(kept);
}

int main(void) {
    void *library = dlopen(FIXTURE("options"), RTLD_NOW);
    REQUIRE(library != NULL, "%s", dlerror());
    probe host = (probe)dlsym(library, "options_parse");
    vlc_context *a = context_new("a"), *b = context_new("b");
    probe in_a = find(a, load(a, FIXTURE("options"), RTLD_NOW), "options_parse");
    probe in_b = find(b, load(b, FIXTURE("options"), RTLD_NOW), "options_parse");

    srand(3);
    for (int turn = 0; turn < 6000 && check_failures < 5; turn++) {
        char *theirs[9] = { "program" }, *ours[9] = { "program" }, expected[4096], expected_words[8192];
        int count = 1 + rand() % 8;
        for (int i = 1; i < count; i++)
            theirs[i] = ours[i] = (char *)words[(size_t)rand() % (sizeof words / sizeof *words)];
        struct command command = { .count = count,
                                   .words = theirs,
                                   .options = options[(size_t)rand() % (sizeof options / sizeof *options)],
                                   .kind = rand() % 3,
                                   .restart = 1,
                                   .complain = rand() % 4 > 0 };
        int kept = capture_begin();
        snprintf(expected, sizeof expected, "%s", (char *)host((long)(uintptr_t)&command));
        capture_end(kept);
        memcpy(expected_words, said, sizeof said);
        command.words = ours;
        kept = capture_begin();
        const char *actual = (const char *)call(a, in_a, (long)(uintptr_t)&command);
        capture_end(kept);
        CHECK(strcmp(actual, expected) == 0, "options \"%s\", kind %d:\n%s\nnot\n%s", command.options,
              command.kind, actual, expected);
        CHECK(strcmp(said, expected_words) == 0, "complained:\n%snot:\n%s", said, expected_words);
    }

    /* Each in the middle of a cluster of its own. */
    char *host_words[] = { "h", "-abx" }, *a_words[] = { "a", "-va", "-b", "1" }, *b_words[] = { "b", "-z" };
    struct command steps[] = { { 2, host_words, "ab:", 0, 1, 0, 1 },
                               { 4, a_words, "vab:", 0, 1, 0, 1 },
                               { 2, b_words, "a", 0, 1, 0, 1 } };
    CHECK_TEXT((char *)host((long)(uintptr_t)&steps[0]), "97 - at 1 index -7\n");
    CHECK_TEXT((char *)call(a, in_a, (long)(uintptr_t)&steps[1]), "118 - at 1 index -7\n");
    CHECK_TEXT((char *)call(b, in_b, (long)(uintptr_t)&steps[2]), "63 - at 2 index -7 option 122\n");
    for (int i = 0; i < 3; i++) steps[i].restart = 0;
    CHECK_TEXT((char *)host((long)(uintptr_t)&steps[0]), "98 x at 2 index -7\n");
    CHECK_TEXT((char *)call(a, in_a, (long)(uintptr_t)&steps[1]), "97 - at 2 index -7\n");
    CHECK_TEXT((char *)call(a, in_a, (long)(uintptr_t)&steps[1]), "98 1 at 4 index -7\n");
    CHECK_EQUAL(optind, 2);
    CHECK_TEXT(optarg, "x");
    context_close(a);
    context_close(b);
    return check_result();
}
