/* R5: what contexts share with their process (docs/private_and_shared.md): two contexts and the host. */
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "contexts.h"

static vlc_context *a, *b;
static void *host;

static long in(vlc_context *context, const char *name, long argument) {
    if (context) return call_named(context, NULL, name, argument);
    return ((probe)dlsym(host, name))(argument);
}

/* Set in one, seen by the others. */
static void check_number(const char *name, long ask, long first, long second) {
    in(a, name, first);
    CHECK(in(b, name, ask) == first && in(NULL, name, ask) == first, "%s: %ld of a is not shared", name,
          first);
    in(NULL, name, second);
    CHECK(in(a, name, ask) == second && in(b, name, ask) == second, "%s: %ld of the host is not shared", name,
          second);
}

int main(void) {
    host = dlopen(FIXTURE("process"), RTLD_NOW);
    REQUIRE(host != NULL, "%s", dlerror());
    load(a = context_new("a"), FIXTURE("process"), RTLD_NOW | RTLD_GLOBAL);
    load(b = context_new("b"), FIXTURE("process"), RTLD_NOW | RTLD_GLOBAL);

    CHECK_TEXT((char *)in(a, "process_folder", (long)(uintptr_t)"/usr"), "/usr");
    CHECK_TEXT((char *)in(b, "process_folder", 0), "/usr");
    CHECK_TEXT((char *)in(NULL, "process_folder", (long)(uintptr_t)"/"), "/");
    CHECK_TEXT((char *)in(a, "process_folder", 0), "/");

    mode_t mask = umask(0);
    in(a, "process_mask", 027);
    CHECK_EQUAL(in(b, "process_mask", 007), 027);
    CHECK_EQUAL(umask(mask), 007);

    long files = in(NULL, "process_files", 0);
    check_number("process_files", 0, 200, files);
    check_number("process_timer", -1, 900, 0);
    for (int i = 0; i < 2; i++)
        CHECK(in(a, "process_id", i) == in(NULL, "process_id", i) &&
                  in(b, "process_id", i) == in(a, "process_id", i),
              "ids differ");
    CHECK_EQUAL(in(a, "process_user", 0), (long)(uintptr_t)getpwuid(0));
    CHECK_EQUAL(in(b, "process_user", 0), (long)(uintptr_t)getpwuid(0));

    FILE *streams[] = { stdin, stdout, stderr };
    for (int i = 0; i < 3; i++) {
        CHECK_EQUAL(in(a, "process_stream", i), (long)(uintptr_t)streams[i]);
        CHECK_EQUAL(in(b, "process_stream", i), (long)(uintptr_t)streams[i]);
    }
    char said[16] = "";
    int kept = dup(STDOUT_FILENO), file = memfd_create("said", MFD_CLOEXEC);
    fflush(stdout);
    dup2(file, STDOUT_FILENO);
    in(a, "process_say", (long)(uintptr_t)"a");
    printf("host");
    in(b, "process_say", (long)(uintptr_t)"b");
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    CHECK_EQUAL(pread(file, said, sizeof said - 1, 0), 6);
    CHECK_TEXT(said, "ahostb");

    CHECK_EQUAL(in(a, "process_write", file), 1);
    CHECK_EQUAL(in(b, "process_close", file), 0);
    CHECK_EQUAL(fcntl(file, F_GETFD), -1);

    /* errno is the thread's, inside and outside. */
    errno = 0;
    in(a, "process_error", EDOM);
    CHECK_EQUAL(in(b, "process_error", 0), EDOM);
    CHECK_EQUAL(errno, EDOM);
    context_close(a);
    context_close(b);
    return check_result();
}
