/* L7: exceptions, thread_local objects and streams of C++ libraries, on threads of the host and of the context. */
#include <pthread.h>
#include <sys/wait.h>

#include "contexts.h"
#include "trace.h"

static vlc_context *context;
static probe touch, catch_many;

static void *visit(void *unused) {
    (void)unused;
    CHECK_EQUAL(call(context, catch_many, 100), 109);
    CHECK_EQUAL(call(context, touch, 0), 9);
    CHECK_EQUAL(call(context, touch, 0), 10);
    return NULL;
}

/* In a process of its own: text that only the process's end flushes, with or without the context's. */
static void check_output(int destroy) {
    int ends[2];
    char text[200] = "";
    REQUIRE(pipe(ends) == 0, "no pipe");
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], 1);
        vlc_context *child = context_new("child");
        call_named(child, load(child, FIXTURE("cxx_probe"), RTLD_NOW), "cxx_print", 0);
        if (destroy) context_close(child);
        exit(7);
    }
    int status = -1;
    close(ends[1]);
    REQUIRE(waitpid(pid, &status, 0) == pid, "no child");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7, "the child ended with status %x", (unsigned)status);
    if (read(ends[0], text, sizeof text - 1) < 0) text[0] = '\0';
    close(ends[0]);
    CHECK_TEXT(text, "from a context, 42, not flushed");
}

int main(void) {
    pthread_t thread;
    check_output(0);
    check_output(1);

    int reader = trace_open();
    context = context_new("a");
    vlc_library *library = load(context, FIXTURE("cxx_probe"), RTLD_NOW);
    catch_many = find(context, library, "cxx_catch");
    touch = find(context, library, "cxx_touch");
    CHECK_EQUAL(call(context, catch_many, 100), 109);
    CHECK_EQUAL(call_named(context, library, "cxx_threads", 4), 4 * 59);
    CHECK_TEXT(trace_take(reader), "");

    REQUIRE(pthread_create(&thread, NULL, visit, NULL) == 0, "no thread");
    pthread_join(thread, NULL);
    CHECK_TEXT(trace_take(reader), "~thread_local");
    call_named(context, library, "cxx_touch_in_thread", 0);
    CHECK_TEXT(trace_take(reader), "~thread_local");
    call(context, touch, 0); /* this thread's own object goes with the context */
    context_close(context);
    CHECK_TEXT(trace_take(reader), "~thread_local ~static");
    return check_result();
}
