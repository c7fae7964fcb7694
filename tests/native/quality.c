/* What a context's own threads take on as they begin: nice value, policy of scheduling, control groups. A plain file
 * stands for the one of a group's thread ids: what is written there is what the kernel would be told. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "contexts.h"

static int outside; /* the nice value of the tests: somebody may run them under nice(1) */
static char group[128], file[160], above[160];

static void make_files(void) {
    char folder[] = "/tmp/vlcs-quality-XXXXXX";
    REQUIRE(mkdtemp(folder) != NULL, "no folder could be made");
    snprintf(group, sizeof group, "%s/mine", folder);
    snprintf(file, sizeof file, "%s/tasks", group);
    snprintf(above, sizeof above, "%s/tasks", folder);
    REQUIRE(mkdir(group, 0700) == 0, "%s cannot be made", group);
    for (int i = 0; i < 2; i++) close(open(i ? file : above, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
}

static void remove_files(void) {
    unlink(file);
    rmdir(group);
    unlink(above);
    *strrchr(above, '/') = 0;
    CHECK(rmdir(above) == 0, "%s is not empty", above);
}

/* How often the id stands in the file; the number of all lines where it is 0. */
static int lines(const char *path, long id) {
    int count = 0;
    long line;
    FILE *stream = fopen(path, "re");
    REQUIRE(stream != NULL, "%s cannot be read", path);
    while (fscanf(stream, "%ld", &line) == 1) count += !id || line == id;
    fclose(stream);
    return count;
}

static int nice_of(long id) {
    errno = 0;
    int nice = getpriority(PRIO_PROCESS, (id_t)id);
    REQUIRE(errno == 0, "there is no thread %ld", id);
    return nice;
}

static void *thread_id(void *unused) {
    (void)unused;
    return (void *)(uintptr_t)syscall(SYS_gettid);
}

static void *on_pool(vlc_context *context, vlc_function function, void *argument) {
    vlc_task *task = NULL;
    void *result = NULL;
    vlc_error error = VLC_ERROR_INIT;
    REQUIRE(vlc_submit(context, function, argument, &task, &error) == VLC_OK, "%s", error.message);
    REQUIRE(vlc_wait(task, &result, &error) == VLC_OK, "%s", error.message);
    return result;
}

static void *park(void *context) { return (void *)call_named(context, NULL, "threads_park", 3); }

enum { INHERITED = 100 };

static vlc_context *context_with(const char *name, int nice, const char *const *groups, uint32_t residence) {
    vlc_spec spec = VLC_SPEC_INIT;
    spec.name = name;
    spec.scheduling = nice != INHERITED ? VLC_SCHEDULING_BATCH : VLC_SCHEDULING_INHERITED;
    spec.sets_nice = nice != INHERITED;
    spec.nice = spec.sets_nice ? nice : 0;
    spec.groups = groups;
    spec.residence = residence;
    vlc_context *context = context_from(&spec);
    load(context, FIXTURE("threads"), RTLD_NOW);
    return context;
}

static long parked(vlc_context *context, long index) {
    return call_named(context, NULL, "threads_id", index);
}

static void end(vlc_context *context) { CHECK_EQUAL(call_named(context, NULL, "threads_leave", 0), 0); }

/* Made by a visitor, by the pool, and by a thread of the pool; the visitor itself is left alone. */
static void own_threads(const char *const *groups) {
    vlc_context *context = context_with("own", outside + 7, groups, VLC_RESIDENT_NEVER);
    park(context);
    for (long i = 0; i < 3; i++) {
        CHECK_EQUAL(nice_of(parked(context, i)), outside + 7);
        CHECK_EQUAL(sched_getscheduler((pid_t)parked(context, i)), SCHED_BATCH);
        CHECK_EQUAL(lines(file, parked(context, i)), 1);
    }
    end(context);
    long worker = (long)(uintptr_t)on_pool(context, thread_id, NULL);
    CHECK_EQUAL(nice_of(worker), outside + 7);
    CHECK_EQUAL(lines(file, worker), 1);
    int before = lines(file, 0);
    on_pool(context, park, context);
    for (long i = 0; i < 3; i++) CHECK_EQUAL(nice_of(parked(context, i)), outside + 7);
    CHECK_EQUAL(lines(file, 0), before); /* they were born into the group */
    end(context);
    CHECK_EQUAL(nice_of((long)syscall(SYS_gettid)), outside);
    CHECK_EQUAL(sched_getscheduler(0), SCHED_OTHER);
    CHECK_EQUAL(lines(above, 0), 0);
    context_close(context);
}

/* A thread of one context makes threads of another: they are as the other's are, and not as their maker. */
static void made_for_others(const char *const *groups) {
    vlc_context *maker = context_with("maker", outside + 7, groups, VLC_RESIDENT_NEVER);
    vlc_context *other = context_with("other", INHERITED, NULL, VLC_RESIDENT_NEVER);
    bool may_go_back = geteuid() == 0;
    on_pool(maker, park, other);
    for (long i = 0; i < 3; i++) {
        long id = parked(other, i);
        CHECK_EQUAL(sched_getscheduler((pid_t)id), SCHED_OTHER);
        if (may_go_back) CHECK_EQUAL(nice_of(id), outside);
        CHECK_EQUAL(lines(file, id), 0);
        CHECK_EQUAL(lines(above, id), 1);
    }
    end(other);
    context_close(maker);
    context_close(other);
}

static void *own_nice(void *unused) {
    (void)unused;
    return (void *)(uintptr_t)nice_of((long)syscall(SYS_gettid));
}

/* All code of a resident context runs on threads of its own, so that of visitors too. */
static void resident(const char *const *groups) {
    vlc_context *context = context_with("resident", outside + 7, groups, VLC_RESIDENT_ALWAYS);
    void *result = NULL;
    vlc_error error = VLC_ERROR_INIT;
    int before = lines(file, 0);
    REQUIRE(vlc_run(context, own_nice, NULL, &result, &error) == VLC_OK, "%s", error.message);
    CHECK_EQUAL((long)(uintptr_t)result, outside + 7);
    CHECK(before > 0, "the companion that loaded the library is in no group");
    context_close(context);
}

static void refused(void) {
    vlc_spec spec = VLC_SPEC_INIT;
    vlc_context *none = NULL;
    vlc_error error;
    spec.name = "refused";
    spec.scheduling = 3;
    CHECK_REFUSED(vlc_create(&spec, &none, &error), error, VLC_BAD_ARGUMENT, "scheduling 3");
    spec.scheduling = 0;
    spec.sets_nice = 1;
    spec.nice = 20;
    CHECK_REFUSED(vlc_create(&spec, &none, &error), error, VLC_BAD_ARGUMENT, "nice value 20");
    CHECK(none == NULL, "a refused call wrote its output");
}

int main(void) {
    outside = nice_of(0);
    REQUIRE(outside <= 12, "the tests run at nice %d, which leaves no room", outside);
    make_files();
    const char *const groups[] = { file, "/nowhere/tasks", NULL }; /* a group that is gone changes nothing */
    refused();
    own_threads(groups);
    made_for_others(groups);
    resident(groups);
    remove_files();
    return check_result();
}
