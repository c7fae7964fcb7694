/* A missing function is tolerated until it is called, when loaded with RTLD_LAZY; a missing datum never is. */
#include <sys/wait.h>

#include "contexts.h"

int main(void) {
    vlc_error error = VLC_ERROR_INIT;
    vlc_library *library = NULL;
    vlc_context *a = context_new("a");
    CHECK_REFUSED(vlc_load(a, FIXTURE("lazy"), RTLD_NOW, &library, &error), error, VLC_LOAD_FAILED,
                  "missing_function");
    CHECK_WORDS(error.message, "liblazy.so");
    CHECK_REFUSED(vlc_load(a, FIXTURE("missing_datum"), RTLD_LAZY, &library, &error), error, VLC_LOAD_FAILED,
                  "missing_datum");
    CHECK_EQUAL(call_named(a, load(a, FIXTURE("lazy"), RTLD_LAZY), "lazy_fine", 1), 8);
    context_close(a);

    /* The call itself ends the process, as ld.so ends it, and says which function it was. */
    int ends[2], status = 0;
    char text[4096] = "";
    REQUIRE(pipe(ends) == 0, "no pipe");
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], 2);
        a = context_new("a");
        call_named(a, load(a, FIXTURE("lazy"), RTLD_LAZY), "lazy_call_missing", 1);
        _exit(0);
    }
    close(ends[1]);
    REQUIRE(waitpid(pid, &status, 0) == pid, "no child");
    CHECK(status != 0, "a call of a missing function went well");
    if (read(ends[0], text, sizeof text - 1) < 0) text[0] = '\0';
    CHECK_WORDS(text, "missing_function");
    return check_result();
}
