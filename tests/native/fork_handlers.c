/* fork: the handlers of the context that forks, and no other's. Its child has memory, threads and data. */
#include <signal.h>
#include <sys/wait.h>

#include "contexts.h"
#include "trace.h"

static vlc_context *named(const char *name, const char *entry) {
    const char *const env[] = { entry, NULL };
    vlc_spec spec = VLC_SPEC_INIT;
    spec.name = name;
    spec.env = env;
    vlc_context *context = context_from(&spec);
    CHECK_EQUAL(call_named(context, load(context, FIXTURE("forks"), RTLD_NOW), "forks_register", 0), 0);
    return context;
}

/* Locks of the environment, the locale and the heap are held by another thread at many of these forks. */
static void check_under_work(void) {
    static const char *const kinds[] = { "setenv", "setlocale", "malloc" };
    const char *const env[] = { "FORKS_NAME=w", NULL };
    vlc_spec spec = VLC_SPEC_INIT;
    spec.name = "working";
    spec.env = env;
    vlc_context *context = context_from(&spec);
    probe under = find(context, load(context, FIXTURE("forks"), RTLD_NOW), "forks_under");
    for (long kind = 0; kind < 3; kind++) {
        const long order[] = { kind, UNDER_ASAN ? 20 : 100 }; /* its shadow makes each fork slow */
        long ended = call(context, under, (long)(uintptr_t)order);
        CHECK(ended == 0, "a child beside a thread in %s ended with %ld%s", kinds[kind], ended,
              ended == 1000 + SIGALRM ? " (it hangs)" : "");
    }
    context_close(context);
}

int main(void) {
    int reader = trace_open(), status = -1;
    vlc_error error = VLC_ERROR_INIT;
    vlc_context *a = named("a", "FORKS_NAME=a"), *b = named("b", "FORKS_NAME=b");

    CHECK_EQUAL(call_named(a, NULL, "forks_fork", 0), 0);
    const char *words = trace_take(reader); /* parent and child race for the second place */
    CHECK(!strcmp(words, "prepare-a parent-a child-a") || !strcmp(words, "prepare-a child-a parent-a"),
          "it says: %s", words);
    CHECK_EQUAL(call_named(b, NULL, "forks_fork", 0), 0);
    words = trace_take(reader);
    CHECK(!strcmp(words, "prepare-b parent-b child-b") || !strcmp(words, "prepare-b child-b parent-b"),
          "it says: %s", words);

    /* The host's fork is none of theirs; in the child they are gone, and say so. */
    pid_t pid = fork();
    if (pid == 0) {
        void *free_again = malloc(100);
        free(free_again);
        int refused = vlc_enter(a, &error) == VLC_MISUSE && strstr(error.message, "fork") != NULL;
        exit(refused ? 0 : 1);
    }
    REQUIRE(waitpid(pid, &status, 0) == pid, "no child");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with status %x", (unsigned)status);
    CHECK_TEXT(trace_take(reader), "");
    CHECK_EQUAL(call_named(a, NULL, "forks_fork", 0), 0);
    trace_take(reader);
    context_close(a);
    context_close(b);
    pid = fork(); /* and nothing is called that was unmapped */
    if (pid == 0) _exit(0);
    REQUIRE(waitpid(pid, &status, 0) == pid && status == 0, "a fork after the contexts' end failed");
    CHECK_TEXT(trace_take(reader), "");
    check_under_work();
    return check_result();
}
