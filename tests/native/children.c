/* Programs that a context starts have its environment and its view of the CPUs, whatever way they start by. */
#include <errno.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "contexts.h"

struct request { /* as fixtures/children.c has it */
    const char *way, *command;
    char *const *environment;
    char output[8192];
    int status;
};

#define LOOK                                                                                                 \
    "echo \"$VLC_TEST_X $(nproc) $(getconf _NPROCESSORS_ONLN) $(cat /sys/devices/system/cpu/online)"         \
    " $(grep -c ^processor /proc/cpuinfo)\""

static const char *const standard_ways[] = { "execv", "execvp", "execl", "execlp" };
static const char *const explicit_ways[] = { "execve", "execvpe", "execle", "fexecve",
#if __GLIBC_PREREQ(2, 34)
                                             "execveat"
#endif
};
#define COUNT(list) (sizeof(list) / sizeof *(list))

static struct request request;

static const char *look(vlc_context *context, const char *how, const char *way, char *const *environment,
                        const char *command) {
    memset(&request, 0, sizeof request);
    request.way = way;
    request.command = command;
    request.environment = environment;
    long line = call_named(context, NULL, how, (long)(uintptr_t)&request);
    CHECK(line == 0, "fixtures/children.c:%ld (%s by %s, errno %d)", line, way, how, errno);
    size_t length = strlen(request.output);
    if (length && request.output[length - 1] == '\n') request.output[length - 1] = 0;
    return request.output;
}

static void check(vlc_context *context, const char *how, const char *way, char *const *environment,
                  const char *expected) {
    const char *output = look(context, how, way, environment, LOOK);
    CHECK(strcmp(output, expected) == 0, "%s by %s: \"%s\", not \"%s\" (status %d)", way, how, output,
          expected, request.status);
}

/* `view` is what the CPUs part of LOOK says. */
static void check_ways(vlc_context *context, const char *x, const char *view) {
    char expected[300], path[4200];
    snprintf(expected, sizeof expected, "%s %s", x, view);
    for (size_t i = 0; i < COUNT(standard_ways); i++) {
        check(context, "children_fork", standard_ways[i], NULL, expected);
        check(context, "children_vfork", standard_ways[i], NULL, expected);
    }
    check(context, "children_spawn", "posix_spawn", NULL, expected);
    check(context, "children_spawn", "posix_spawnp", NULL, expected);
    check(context, "children_popen", "r", NULL, expected);
    check(context, "children_popen", "re", NULL, expected);

    snprintf(expected, sizeof expected, "explicit %s", view);
    snprintf(path, sizeof path, "PATH=%s", getenv("PATH"));
    char *const environment[] = { "VLC_TEST_X=explicit", path, "VLCS_CHILD_CPUS=stale", NULL };
    for (size_t i = 0; i < COUNT(explicit_ways); i++) {
        check(context, "children_fork", explicit_ways[i], environment, expected);
        check(context, "children_vfork", explicit_ways[i], environment, expected);
    }
    check(context, "children_spawn", "posix_spawn, environment", environment, expected);
}

static void check_arguments(vlc_context *context) {
    const char *words = "echo \"$0 $@ $VLC_TEST_X\"";
    char *const environment[] = { "VLC_TEST_X=explicit", NULL };
    CHECK_TEXT(look(context, "children_vfork", "execl many", NULL, words),
               "zero one two three four five six one");
    CHECK_TEXT(look(context, "children_vfork", "execle many", environment, words),
               "zero one two three four five six explicit");
}

/* What else is preloaded stays, in front; a list that has ours already is not made longer. */
static void check_preloads(vlc_context *context) {
    char *const environment[] = { "LD_PRELOAD=" FIXTURE("bottom"), NULL };
    const char *nested = "exec sh -c 'echo $LD_PRELOAD'";
    const char *output = look(context, "children_vfork", "execve", environment, nested);
    const char *start = FIXTURE("bottom") ":";
    CHECK(!strncmp(output, start, strlen(start)) && strstr(output, "/libvlcs_child.so"), "LD_PRELOAD=%s",
          output);
    char again[9000];
    snprintf(again, sizeof again, "LD_PRELOAD=%s", output);
    char *const same[] = { again, NULL };
    CHECK_TEXT(look(context, "children_vfork", "execve", same, nested), again + strlen("LD_PRELOAD="));
    CHECK_EQUAL(request.status, 0);
}

static void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    REQUIRE(file && fputs(text, file) >= 0 && fclose(file) == 0 && chmod(path, 0755) == 0, "cannot write %s",
            path);
}

/* The context's own PATH is searched, and a script without "#!" is the shell's. */
static void check_search(vlc_context *context, const char *folder) {
    char plain[300], script[300];
    snprintf(plain, sizeof plain, "%s/vlc-test-plain", folder);
    snprintf(script, sizeof script, "%s/vlc-test-script", folder);
    write_file(plain, "echo plain $VLC_TEST_X\n");
    write_file(script, "#!/bin/sh\necho script $VLC_TEST_X\n");
    CHECK_TEXT(look(context, "children_vfork", "execvp command", NULL, "vlc-test-plain"), "plain one");
    CHECK_TEXT(look(context, "children_vfork", "execvp command", NULL, "vlc-test-script"), "script one");
    CHECK_TEXT(look(context, "children_spawn", "posix_spawnp command", NULL, "vlc-test-script"),
               "script one");
    static const struct {
        const char *how, *way;
    } ways[] = { { "children_vfork", "execvp command" }, { "children_spawn", "posix_spawnp command" } };
    for (size_t i = 0; i < COUNT(ways); i++) {
        look(context, ways[i].how, ways[i].way, NULL, "vlc-test-absent");
        CHECK_EQUAL(request.status, -ENOENT);
        look(context, ways[i].how, ways[i].way, NULL, "");
        CHECK_EQUAL(request.status, -ENOENT);
    }
    chmod(script, 0644);
    for (size_t i = 0; i < COUNT(ways); i++) {
        look(context, ways[i].how, ways[i].way, NULL, "vlc-test-script");
        CHECK_EQUAL(request.status, -EACCES);
    }
    unlink(plain);
    unlink(script);
}

static void check_shells(vlc_context *context, const char *view, const char *folder) {
    char command[900], expected[300], path[300], text[300] = "";
    snprintf(path, sizeof path, "%s/output", folder);
    snprintf(expected, sizeof expected, "one %s\n", view);
    CHECK_EQUAL(call_named(context, NULL, "children_system", 0), 1);
    CHECK_EQUAL(WEXITSTATUS(call_named(context, NULL, "children_system", (long)(uintptr_t)"exit 3")), 3);
    long killed = call_named(context, NULL, "children_system", (long)(uintptr_t)"kill -TERM $$");
    CHECK(WIFSIGNALED(killed) && WTERMSIG(killed) == SIGTERM, "system gave %ld", killed);
    snprintf(command, sizeof command, "%s >%s", LOOK, path);
    CHECK_EQUAL(call_named(context, NULL, "children_system", (long)(uintptr_t)command), 0);
    FILE *file = fopen(path, "r");
    REQUIRE(file && fgets(text, sizeof text, file), "system wrote nothing");
    fclose(file);
    CHECK_TEXT(text, expected);
    struct sigaction interrupt;
    sigaction(SIGINT, NULL, &interrupt);
    CHECK(interrupt.sa_handler == SIG_DFL, "system left SIGINT ignored");

    snprintf(command, sizeof command, "cat >%s; exit 7", path);
    CHECK_EQUAL(call_named(context, NULL, "children_popen_write", (long)(uintptr_t)command), 0);
    file = fopen(path, "r");
    REQUIRE(file && fgets(text, sizeof text, file), "popen wrote nothing");
    fclose(file);
    CHECK_TEXT(text, "written");
    unlink(path);
}

static const char *view_of(const char *count, const char *list, char *out, size_t size) {
    snprintf(out, size, "%s %s %s %s", count, count, list, count);
    return out;
}

static void check_host(const char *expected) {
    char text[300] = "";
    FILE *stream = popen(LOOK, "r");
    REQUIRE(stream && fgets(text, sizeof text, stream), "the host's popen gave nothing");
    pclose(stream);
    CHECK_TEXT(text, expected);
}

int main(void) {
    uint32_t cpus[2];
    two_cpus(cpus);
    char folder[] = "/tmp/vlcs-children-XXXXXX", path[4500], list[40], view[200], before[300];
    REQUIRE(mkdtemp(folder), "no temporary folder could be made");
    snprintf(path, sizeof path, "PATH=%s:%s", folder, getenv("PATH"));
    setenv("OMP_NUM_THREADS", "2", 1); /* which nproc obeys */
    FILE *stream = popen(LOOK, "r");
    REQUIRE(stream && fgets(before, sizeof before, stream), "popen gave nothing");
    pclose(stream);

    const char *const env[] = { "VLC_TEST_X=one", path, NULL };
    vlc_spec spec = VLC_SPEC_INIT;
    spec.name = "a";
    spec.env = env;
    spec.cpus = &cpus[1];
    spec.cpu_count = 1;
    vlc_context *a = context_from(&spec);
    load(a, FIXTURE("children"), RTLD_NOW);
    snprintf(list, sizeof list, "%u", cpus[1]);
    view_of("1", list, view, sizeof view);
    check_ways(a, "one", view);
    check_arguments(a);
    check_preloads(a);
    check_search(a, folder);
    check_shells(a, view, folder);
    CHECK_TEXT(look(a, "children_spawn", "posix_spawn", NULL, "echo \"<$OMP_NUM_THREADS>\""), "<>");
    CHECK_TEXT(look(a, "children_spawn", "posix_spawn", NULL, "sh -c \"lscpu -p=cpu\" | grep -v '^#'"), list);
    look(a, "children_spawn", "posix_spawn", NULL, "getconf _NPROCESSORS_CONF");
    CHECK_EQUAL(atol(request.output), sysconf(_SC_NPROCESSORS_CONF)); /* stays the machine's */

    CHECK_EQUAL(call_named(a, NULL, "children_setenv", 0), 0);
    vlc_error error = VLC_ERROR_INIT;
    REQUIRE(vlc_resize(a, cpus, 2, &error) == VLC_OK, "%s", error.message);
    snprintf(list, sizeof list, cpus[1] == cpus[0] + 1 ? "%u-%u" : "%u,%u", cpus[0], cpus[1]);
    snprintf(path, sizeof path, "changed %s", view_of("2", list, view, sizeof view));
    check(a, "children_vfork", "execl", NULL, path);
    REQUIRE(vlc_resize(a, cpus, 1, &error) == VLC_OK, "%s", error.message);
    snprintf(list, sizeof list, "%u", cpus[0]);
    snprintf(path, sizeof path, "changed %s", view_of("1", list, view, sizeof view));
    check(a, "children_spawn", "posix_spawn", NULL, path);

    check_host(before);
    context_close(a);
    check_host(before);
    rmdir(folder);
    return check_result();
}
