/* F3: the host's signal handlers stay the host's; a fault goes to the handler of the context that made it. */
#include <setjmp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "contexts.h"

static volatile sig_atomic_t host_seen;
static sigjmp_buf back;

static void host_count(int number) { host_seen = host_seen * 100 + number; }
static void host_escape(int number) {
    host_seen = number;
    siglongjmp(back, 1);
}
static void host_later(int number) {
    host_seen = -number;
    siglongjmp(back, 1);
}

static sighandler_t handler_of(int number) {
    struct sigaction now;
    sigaction(number, NULL, &now);
    return now.sa_handler;
}

/* Faults inside the context; which handler of the host met it: 0, the context's own did. */
static int fault_inside(vlc_context *context) {
    host_seen = 0;
    REQUIRE(vlc_enter(context, NULL) == VLC_OK, "cannot enter");
    if (!sigsetjmp(back, 1)) find(context, NULL, "signals_fault")(0x10);
    REQUIRE(vlc_leave(context, NULL) == VLC_OK, "cannot leave");
    return host_seen;
}

/* The signal that ends a child which runs this, or 0 where it returns 0. */
static int child_ends(vlc_context *context, const char *function, long argument) {
    REQUIRE(vlc_enter(context, NULL) == VLC_OK,
            "cannot enter"); /* the context that forks lives in the child */
    pid_t child = fork();
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
        _exit((int)find(context, NULL, function)(argument));
    }
    REQUIRE(vlc_leave(context, NULL) == VLC_OK, "cannot leave");
    int status = 0;
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child, "no child");
    return WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status);
}

static void asynchronous(vlc_context *a, vlc_context *b) {
    signal(SIGUSR1, host_count);
    signal(SIGPIPE, SIG_IGN);
    CHECK_EQUAL(call_named(a, NULL, "signals_ask", SIGUSR1), 0); /* as in a new process */
    CHECK_EQUAL(call_named(a, NULL, "signals_ask", SIGPIPE), 1); /* which inherits what is ignored */
    CHECK_EQUAL(call_named(a, NULL, "signals_register", SIGUSR1), 0);
    CHECK_EQUAL(call_named(a, NULL, "signals_register", SIGALRM), 0);
    CHECK_EQUAL(call_named(a, NULL, "signals_ask", SIGUSR1), 2);
    CHECK_EQUAL(call_named(b, NULL, "signals_ask", SIGUSR1), 0);
    CHECK(handler_of(SIGUSR1) == host_count, "a context took the host's SIGUSR1");
    CHECK(handler_of(SIGALRM) == SIG_DFL, "a context took the process's SIGALRM");
    host_seen = 0;
    raise(SIGUSR1);
    REQUIRE(vlc_enter(a, NULL) == VLC_OK, "cannot enter");
    raise(SIGUSR1);
    REQUIRE(vlc_leave(a, NULL) == VLC_OK, "cannot leave");
    CHECK_EQUAL(host_seen, SIGUSR1 * 101);
    CHECK_EQUAL(call_named(a, NULL, "signals_seen", 0), 0);
    CHECK_EQUAL(call_named(a, NULL, "signals_forget", SIGPIPE), 0);
    CHECK_EQUAL(call_named(a, NULL, "signals_ask", SIGPIPE), 0);
    CHECK_EQUAL(call_named(b, NULL, "signals_ask", SIGPIPE), 1);
    CHECK(handler_of(SIGPIPE) == SIG_IGN, "a context changed the host's SIGPIPE");
    CHECK_EQUAL(call_named(b, NULL, "signals_older", 0), 0);
    CHECK(handler_of(SIGUSR2) == SIG_DFL, "a context changed the host's SIGUSR2");
}

static void faults(vlc_context *a, vlc_context *b) {
    struct sigaction mine = { .sa_handler = host_escape };
    sigaction(SIGSEGV, &mine, NULL);
    sigaction(SIGBUS, &mine, NULL);
    CHECK_EQUAL(fault_inside(b), SIGSEGV); /* nobody registered yet */
    CHECK(handler_of(SIGSEGV) == host_escape, "the process has another handler for nothing");
    for (int i = 0; i < 2; i++) CHECK_EQUAL(call_named(a, NULL, "signals_survive", 0), 0);
    CHECK_EQUAL(call_named(a, NULL, "signals_survive", SA_NODEFER), 0);
    CHECK_EQUAL(fault_inside(b), SIGSEGV); /* another context's handler is not asked */
    CHECK_EQUAL(call_named(b, NULL, "signals_survive", SA_ONSTACK), 0);
    CHECK_EQUAL(call_named(a, NULL, "signals_survive", 0), 0);
    host_seen = 0;
    if (!sigsetjmp(back, 1)) raise(SIGSEGV);
    CHECK_EQUAL(host_seen, SIGSEGV); /* the host's own */
    CHECK_EQUAL(call_named(b, NULL, "signals_forget", SIGSEGV), 0);
    CHECK_EQUAL(fault_inside(b), SIGSEGV);
    CHECK_EQUAL(call_named(a, NULL, "signals_once", 0), 0);
    CHECK(handler_of(SIGBUS) == host_escape, "SIGBUS is not given back");

    /* Without a handler of the host, a fault ends the process as it would have. */
    CHECK_EQUAL(child_ends(a, "signals_once", 0), 0);
    if (!UNDER_SANITIZER) {
        static const int others[] = { SIGILL, SIGTRAP, SIGFPE };
        for (int i = 0; i < 3; i++) {
            CHECK_EQUAL(call_named(a, NULL, "signals_take", others[i]), 0);
            CHECK(handler_of(others[i]) != SIG_DFL, "no handler for signal %d is in the process", others[i]);
            CHECK_EQUAL(child_ends(b, "signals_trap", others[i]), others[i]);
            CHECK_EQUAL(call_named(a, NULL, "signals_forget", others[i]), 0);
            CHECK(handler_of(others[i]) == SIG_DFL, "signal %d is not given back", others[i]);
        }
        CHECK_EQUAL(call_named(a, NULL, "signals_forget", SIGSEGV), 0);
        CHECK(handler_of(SIGSEGV) == host_escape, "SIGSEGV is not given back");
        signal(SIGSEGV, SIG_DFL);
        CHECK_EQUAL(call_named(a, NULL, "signals_survive", 0), 0);
        CHECK_EQUAL(child_ends(b, "signals_fault", 0x10), SIGSEGV);
        CHECK_EQUAL(child_ends(a, "signals_survive", 0), 0);
        CHECK_EQUAL(call_named(a, NULL, "signals_forget", SIGSEGV), 0);
        sigaction(SIGSEGV, &mine, NULL);
        CHECK_EQUAL(call_named(a, NULL, "signals_survive", 0), 0);
    }
}

int main(void) {
    vlc_context *a = context_new("a"), *b = context_new("b");
    load(a, FIXTURE("signals"), RTLD_NOW | RTLD_GLOBAL);
    load(b, FIXTURE("signals"), RTLD_NOW | RTLD_GLOBAL);
    asynchronous(a, b);
    faults(a, b);

    /* A stack for handlers lies in the context: the thread has its own again outside. */
    stack_t outside, now;
    sigaltstack(NULL, &outside);
    CHECK_EQUAL(call_named(a, NULL, "signals_stack", 0), 0);
    sigaltstack(NULL, &now);
    CHECK(now.ss_sp == outside.ss_sp && now.ss_flags == outside.ss_flags,
          "the thread keeps a context's stack");

    context_close(a);
    CHECK(handler_of(SIGSEGV) == host_escape, "a closed context has not given SIGSEGV back");
    CHECK_EQUAL(fault_inside(b), SIGSEGV);

    /* What the host registers afterwards wins, and stays. */
    CHECK_EQUAL(call_named(b, NULL, "signals_survive", 0), 0);
    struct sigaction later = { .sa_handler = host_later };
    sigaction(SIGSEGV, &later, NULL);
    CHECK_EQUAL(fault_inside(b), -SIGSEGV);
    context_close(b);
    CHECK(handler_of(SIGSEGV) == host_later, "a closed context took the host's later handler out");
    return check_result();
}
