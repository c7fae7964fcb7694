/* fork: the handlers of the context that forks, and no other's. Its child has memory, threads and data. */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

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
        const long order[] = { kind, UNDER_SANITIZER ? 20 : 100 }; /* its shadow makes each fork slow */
        long ended = call(context, under, (long)(uintptr_t)order);
        CHECK(ended == 0, "a child beside a thread in %s ended with %ld%s", kinds[kind], ended,
              ended == 1000 + SIGALRM ? " (it hangs)" : "");
    }
    context_close(context);
}

/* What AddressSanitizer asks before it looks for leaks: what only the parent's threads knew is none of a child's. */
static bool is_left_behind;
__attribute__((visibility("default"))) int __lsan_is_turned_off(void) { return is_left_behind; }

static void *fork_on_pool(void *unused) {
    (void)unused;
    pid_t pid = fork();
    if (pid == 0) {
        is_left_behind = true;
        return NULL; /* the process ends with its only thread, as any that forks on a thread */
    }
    int status = -1;
    return (void *)(uintptr_t)(waitpid(pid, &status, 0) == pid ? status : -1);
}

static void *pause_shortly(void *unused) {
    usleep(300000);
    return unused;
}

/* The pool's threads stay in the parent: a child neither waits for their tasks nor for them. */
static void check_pool(vlc_context *context) {
    vlc_error error = VLC_ERROR_INIT;
    vlc_task *task;
    void *result;
    int status = -1;
    REQUIRE(vlc_submit(context, fork_on_pool, NULL, &task, &error) == VLC_OK, "%s", error.message);
    REQUIRE(vlc_wait(task, &result, &error) == VLC_OK, "%s", error.message);
    CHECK(!result, "the child of a pool's thread ended with status %p", result);
    REQUIRE(vlc_submit(context, pause_shortly, NULL, &task, &error) == VLC_OK, "%s", error.message);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(20);
        _exit(vlc_wait(task, NULL, &error) == VLC_MISUSE && strstr(error.message, "forked") ? 0 : 1);
    }
    REQUIRE(waitpid(pid, &status, 0) == pid && status == 0, "waiting in the child: status %x",
            (unsigned)status);
    REQUIRE(vlc_wait(task, NULL, &error) == VLC_OK, "%s", error.message);
}

/* A signal in the middle of a fork: its handler may come for a lock that the fork holds. It comes after. */
static probe use_tls;
static volatile bool raises;
static volatile sig_atomic_t handled, handled_within;

static void on_signal(int number) {
    (void)number;
    handled_within = raises;
    handled = use_tls(1) == 0;
}

static void raise_one(void) {
    if (raises) raise(SIGUSR1);
}
static void raise_no_more(void) { raises = false; }

static void check_signals(vlc_context *context) {
    use_tls = find(context, load(context, FIXTURE("tls_general"), RTLD_NOW), "tls_registers");
    signal(SIGUSR1, on_signal);
    raises = true;
    alarm(20);
    pid_t pid = fork();
    if (pid == 0) {
        sigset_t now;
        pthread_sigmask(SIG_BLOCK, NULL, &now);
        _exit(handled || sigismember(&now, SIGUSR1));
    }
    int status = -1;
    REQUIRE(waitpid(pid, &status, 0) == pid && status == 0, "a signal in the child: status %x",
            (unsigned)status);
    alarm(0);
    CHECK(handled && !handled_within, "a signal in the middle of a fork is not handled after it");
}

int main(void) {
    pthread_atfork(raise_one, raise_no_more, raise_no_more); /* between the handlers of libvlcs */
    int reader = trace_open(), status = -1;
    vlc_error error = VLC_ERROR_INIT;
    vlc_context *a = named("a", "FORKS_NAME=a"), *b = named("b", "FORKS_NAME=b");

    check_signals(b); /* before this thread has the variable */
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
    check_pool(a);
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
