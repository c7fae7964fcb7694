/* Exit handlers and destructors run once: at the context's end, or at the process's when it had none. */
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contexts.h"
#include "trace.h"

#define ALL "on_exit atexit static-object destructor "

static void by_host(void) { trace("host-atexit"); }

static vlc_context *made[2];

enum end { NOT_DESTROYED, FIRST_DESTROYED, DESTROYED_AT_EXIT, FIRST_WORKS, FIRST_VISITED };

/* As a program that cleans up: at exit(), where the contexts have ended by themselves. */
static void destroy_all(void) {
    vlc_error error = VLC_ERROR_INIT;
    for (int i = 0; i < 2; i++) {
        if (!made[i]) continue;
        CHECK(vlc_destroy(made[i], -1, &error) == VLC_OK, "at exit: %s", error.message);
    }
    trace(check_failures || is_mapped("libexits.so") ? "left-over" : "destroyed");
}

/* Never ends, and says that it has begun. */
static void *stay(void *begun) {
    sem_post(begun);
    while (pause()) continue; /* it always returns -1 */
    return NULL;
}

static void *enter_and_stay(void *begun) {
    vlc_error error = VLC_ERROR_INIT;
    CHECK_EQUAL(vlc_enter(made[0], &error), VLC_OK);
    return stay(begun);
}

static void put_to_work(enum end end) {
    vlc_error error = VLC_ERROR_INIT;
    pthread_t visitor;
    sem_t begun;
    sem_init(&begun, 0, 0);
    if (end == FIRST_VISITED)
        REQUIRE(!pthread_create(&visitor, NULL, enter_and_stay, &begun), "no thread");
    else
        CHECK_EQUAL(vlc_submit(made[0], stay, &begun, NULL, &error), VLC_OK);
    while (sem_wait(&begun) != 0) {
    }
}

/* Runs in a child, so that the process's own end can be seen. */
static void check_child(enum end end, int contexts, const char *expected) {
    int reader = trace_open(), status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        atexit(by_host);
        if (end == DESTROYED_AT_EXIT) atexit(destroy_all); /* before the first vlc_create, so it runs last */
        for (int i = 0; i < contexts; i++) {
            made[i] = context_new(NULL);
            call_named(made[i], load(made[i], FIXTURE("exits"), RTLD_NOW), "exits_register", 0);
        }
        if (end == FIRST_DESTROYED) context_close(made[0]);
        if (end >= FIRST_WORKS) put_to_work(end);
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
    check_child(FIRST_DESTROYED, 1, ALL "main-ends ");
    check_child(NOT_DESTROYED, 1, "main-ends " ALL);
    check_child(NOT_DESTROYED, 2, "main-ends " ALL ALL);
    check_child(FIRST_DESTROYED, 2, ALL "main-ends " ALL);
    check_child(DESTROYED_AT_EXIT, 1, "main-ends " ALL "destroyed ");
    check_child(DESTROYED_AT_EXIT, 2, "main-ends " ALL ALL "destroyed ");
    check_child(FIRST_WORKS, 2, "main-ends " ALL); /* the second's: none run under code that is at work */
    check_child(FIRST_VISITED, 2, "main-ends " ALL);
    return check_result();
}
