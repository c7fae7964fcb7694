/* L9: contexts use what is preloaded into the host as the host does, and end as ever. ctest preloads it. */
#include <pthread.h>
#include <sys/time.h>
#include <time.h>

#include "contexts.h"

/* None of these is answered by libvlcs itself. */
static const char *const names[] = { "clock_gettime",      "time",   "gettimeofday",
                                     "nanosleep",          "memcpy", "strlen",
                                     "pthread_mutex_lock", "strtol", "pthread_cond_timedwait" };
static const char *const memory[] = { "malloc",         "calloc",        "realloc",           "free",
                                      "posix_memalign", "aligned_alloc", "malloc_usable_size" };

static const char *base(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The base name of the preloaded file in which the host finds that function; NULL: it is libc's own. */
static const char *preload_of(const char *name, void **address) {
    Dl_info its;
    *address = dlsym(RTLD_DEFAULT, name);
    REQUIRE(*address && dladdr(*address, &its), "the host has no %s", name);
    return strstr(getenv("LD_PRELOAD"), base(its.dli_fname)) ? base(its.dli_fname) : NULL;
}

static void *symbol(vlc_context *context, const char *name) { return (void *)find(context, NULL, name); }

static void check_bindings(vlc_context *context) {
    void *hosts;
    unsigned preloaded = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (preload_of(names[i], &hosts)) {
            preloaded++;
            CHECK(symbol(context, names[i]) == hosts, "%s is not the host's", names[i]);
        }
    const char *file = preload_of("malloc", &hosts);
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) {
        preload_of(memory[i], &hosts);
        CHECK((symbol(context, memory[i]) == hosts) == (file != NULL), "%s is%s the host's", memory[i],
              file ? " not" : "");
    }
    CHECK(preloaded || file, "nothing of %s was found", getenv("LD_PRELOAD"));

    vlc_limits limits = { .size = sizeof limits };
    vlc_error error = VLC_ERROR_INIT;
    REQUIRE(vlc_get_limits(&limits, &error) == VLC_OK, "%s", error.message);
    if (file)
        CHECK(limits.host_malloc && !strcmp(base(limits.host_malloc), file), "malloc is said to be of %s",
              limits.host_malloc ? limits.host_malloc : "libc");
    else
        CHECK(!limits.host_malloc, "malloc is said to be of %s", limits.host_malloc);
}

/* libfaketime's clock, which FAKETIME stops in 2001. */
static void check_time(vlc_context *context) {
    time_t now = ((time_t (*)(time_t *))symbol(context, "time"))(NULL);
    CHECK(now > 978307200 && now < 1009843200, "the context's time is %lld", (long long)now);
    CHECK_EQUAL(now, time(NULL));
    struct timeval day;
    CHECK_EQUAL(((int (*)(struct timeval *, void *))symbol(context, "gettimeofday"))(&day, NULL), 0);
    CHECK_EQUAL(day.tv_sec, now);
    struct tm *local = ((struct tm * (*)(const time_t *)) symbol(context, "gmtime"))(&now);
    CHECK(local && local->tm_year == 101, "its year is %d", local ? local->tm_year : -1);
}

static void *add_one(void *argument) { return (char *)argument + 1; }

static void *linger(void *unused) {
    usleep(300000);
    return unused;
}

int main(void) {
    const char *preload = getenv("LD_PRELOAD");
    REQUIRE(preload && *preload, "run by ctest, with LD_PRELOAD set");
    for (int round = 0; round < 3; round++) {
        vlc_context *contexts[2] = { context_new("a"), context_new("b") };
        for (int i = 0; i < 2; i++) {
            vlc_context *context = contexts[i];
            vlc_error error = VLC_ERROR_INIT;
            vlc_task *task = NULL;
            void *result = NULL;
            check_bindings(context);
            if (strstr(preload, "faketime")) check_time(context);
            CHECK_EQUAL(call_named(context, load(context, FIXTURE("cxx_probe"), RTLD_NOW), "cxx_catch", 10),
                        19);
            CHECK_EQUAL(
                call_named(context, load(context, FIXTURE("tls_descriptor"), RTLD_NOW), "tls_probe", 1), 0);
            CHECK_EQUAL(call_named(context, load(context, FIXTURE("worker"), RTLD_NOW), "worker_run", 100),
                        0);
            CHECK_EQUAL(vlc_submit(context, add_one, (void *)2, &task, &error), VLC_OK);
            CHECK_EQUAL(vlc_wait(task, &result, &error), VLC_OK);
            CHECK_EQUAL((long)result, 3);
            if (!round) CHECK_EQUAL(vlc_submit(context, linger, NULL, NULL, &error), VLC_OK);
        }
        for (int i = 0; i < 2; i++)
            context_close(contexts[i]); /* waits for what lingers, by whatever clock */
    }
    CHECK(!is_mapped("libcxx_probe.so"), "libcxx_probe.so stays mapped");
    return check_result();
}
