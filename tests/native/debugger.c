/* gdb, attached to a process, names the functions of a context's libraries. */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "contexts.h"

int main(void) {
    int ends[2];
    char byte, command[256], line[1024];
    int named = 0, listed = 0;
    if (system("gdb --version >/dev/null 2>&1") != 0) SKIP("no-gdb", "gdb is not installed");
    REQUIRE(pipe(ends) == 0, "no pipe");
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0L, 0L, 0L);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        vlc_context *context = context_new("debugged");
        load(context, FIXTURE("sleeper"), RTLD_NOW);
        REQUIRE(write(ends[1], "r", 1) == 1, "no pipe");
        call_named(context, NULL, "sleeper_outer", 60);
        _exit(0);
    }
    REQUIRE(read(ends[0], &byte, 1) == 1, "the child did not start");
    usleep(200000); /* until it sleeps */
    snprintf(
        command, sizeof command,
        "gdb -nx -batch -iex 'set debuginfod enabled off' -ex backtrace -ex 'info sharedlibrary' -p %d 2>&1",
        (int)child);
    FILE *gdb = popen(command, "re");
    REQUIRE(gdb != NULL, "gdb cannot be started");
    while (fgets(line, sizeof line, gdb)) {
        named |= strstr(line, "sleeper_inner") != NULL;
        listed |= strstr(line, "libsleeper.so") != NULL;
        fputs(line, stderr);
    }
    int status = pclose(gdb);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    CHECK_EQUAL(status, 0);
    CHECK(named, "the backtrace does not name sleeper_inner");
    CHECK(listed, "no line names libsleeper.so");
    return check_result();
}
