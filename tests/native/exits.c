/* Exit handlers and destructors run once: at the context's end, or at the process's when it had none. */
#include <sys/wait.h>

#include "contexts.h"
#include "trace.h"

#define ALL "on_exit atexit static-object destructor "

static void by_host(void) { trace("host-atexit"); }

/* Runs in a child, so that the process's own end can be seen. */
static void check_child(int destroy, int contexts, const char *expected) {
    int reader = trace_open(), status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        atexit(by_host);
        vlc_context *made[2] = { NULL, NULL };
        for (int i = 0; i < contexts; i++) {
            made[i] = context_new(NULL);
            call_named(made[i], load(made[i], FIXTURE("exits"), RTLD_NOW), "exits_register", 0);
        }
        if (destroy) context_close(made[0]);
        trace("main-ends");
        exit(3);
    }
    REQUIRE(waitpid(pid, &status, 0) == pid, "no child");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3, "the child ended with status %x", (unsigned)status);
    char seen[8194];
    snprintf(seen, sizeof seen, "%s ", trace_take(reader));
    char *host = strstr(seen, "host-atexit "); /* before or after the contexts': either is right */
    CHECK(host != NULL, "the host's handler did not run: %s", seen);
    if (host) memmove(host, host + strlen("host-atexit "), strlen(host + strlen("host-atexit ")) + 1);
    CHECK_TEXT(seen, expected);
    close(reader);
}

int main(void) {
    check_child(1, 1, ALL "main-ends ");
    check_child(0, 1, "main-ends " ALL);
    check_child(0, 2, "main-ends " ALL ALL);
    check_child(1, 2, ALL "main-ends " ALL);
    return check_result();
}
