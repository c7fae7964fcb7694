/* Libraries that sized themselves when they were loaded follow vlc_resize: at once, or each thread as it enters; a number
 * that somebody has set stays; what does not follow is said. */
#include "contexts.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

static uint32_t cpus[2];

static int core_of(uint32_t cpu) {
    char path[80];
    int first = (int)cpu;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", cpu);
    FILE *file = fopen(path, "re");
    if (!file) return first;
    if (fscanf(file, "%d", &first) != 1) first = (int)cpu;
    fclose(file);
    return first;
}

/* Of two cores: of one, the number 1 is that of the slice's cores, and no choice. */
static void two_cores(void) {
    static uint32_t all[1024];
    size_t count = process_cpus(all, 1024);
    cpus[0] = all[0];
    for (size_t i = 1; i < count && !cpus[1]; i++)
        if (core_of(all[i]) != core_of(all[0])) cpus[1] = all[i];
    if (!cpus[1]) SKIP("one-cpu", "this process may use one core only");
}

struct library {
    const char *file, *name;
    uint32_t state;  /* after a resize */
    long most, sets; /* the number then, in a slice of two; how often it was told */
};

static vlc_pool pool_of(vlc_context *context, const char *file) {
    vlc_pool pool = VLC_POOL_INIT;
    for (size_t i = 0; vlc_get_pool(context, i, &pool); i++)
        if (strstr(pool.path, file)) return pool;
    REQUIRE(0, "there is no pool of %s", file);
    return pool;
}

static void resize(vlc_context *context, size_t count) {
    vlc_error error = VLC_ERROR_INIT;
    REQUIRE(vlc_resize(context, cpus, count, &error) == VLC_OK, "%s", error.message);
}

static long run(vlc_context *context, probe function, long argument) {
    vlc_error error = VLC_ERROR_INIT;
    void *result = NULL;
    REQUIRE(vlc_run(context, (vlc_function)(void (*)(void))function, (void *)argument, &result, &error) ==
                VLC_OK,
            "%s", error.message);
    return (long)result;
}

static long ask(vlc_context *context, vlc_library *library, const char *name) {
    return run(context, find(context, library, name), 0);
}

struct asking {
    vlc_context *context;
    vlc_library *library;
    long number;
};

static void *ask_number(void *argument) {
    struct asking *asking = argument;
    asking->number = ask(asking->context, asking->library, "sized_number");
    return NULL;
}

static long number_on_a_new_thread(vlc_context *context, vlc_library *library) {
    struct asking asking = { context, library, 0 };
    pthread_t thread;
    REQUIRE(!pthread_create(&thread, NULL, ask_number, &asking), "no thread");
    pthread_join(thread, NULL);
    return asking.number;
}

static long number_on_the_pool(vlc_context *context, vlc_library *library) {
    struct asking asking = { context, library, 0 };
    vlc_task *task;
    vlc_error error = VLC_ERROR_INIT;
    probe number = find(context, library, "sized_number");
    void *result;
    (void)asking;
    REQUIRE(vlc_submit(context, (vlc_function)(void (*)(void))number, NULL, &task, &error) == VLC_OK, "%s",
            error.message);
    REQUIRE(vlc_wait(task, &result, &error) == VLC_OK, "%s", error.message);
    return (long)result;
}

static vlc_context *context_in(uint32_t residence, const char *const *env, size_t count) {
    vlc_spec spec = VLC_SPEC_INIT;
    spec.name = "sized";
    spec.cpus = cpus;
    spec.cpu_count = count;
    spec.env = env;
    spec.residence = residence;
    return context_from(&spec);
}

static const struct library libraries[] = {
    { "sized_openblas", "OpenBLAS", VLC_POOL_FOLLOWS, 2, 1 },
    { "sized_scipy_openblas", "OpenBLAS", VLC_POOL_FOLLOWS, 2, 1 },
    { "sized_mkl", "MKL", VLC_POOL_FOLLOWS, 2, 1 },
    { "sized_openmp", "OpenMP", VLC_POOL_FOLLOWS_ENTRY, 2, 1 },
    { "sized_blis", "BLIS", VLC_POOL_FOLLOWS_ENTRY, 2, 1 },
    { "sized_torch", "PyTorch", VLC_POOL_FOLLOWS_ENTRY, 2, 1 },
    { "sized_openmp_blas", "OpenBLAS", VLC_POOL_ASKS, 1, 0 },
    { "sized_stubborn", "OpenBLAS", VLC_POOL_CANNOT, 1, 1 },
};
enum { LIBRARIES = sizeof libraries / sizeof *libraries };

static void follow_in(uint32_t residence) {
    vlc_context *context = context_in(residence, NULL, 1);
    vlc_library *loaded[LIBRARIES];
    for (int i = 0; i < LIBRARIES; i++) {
        char path[256];
        snprintf(path, sizeof path, FIXTURE_DIR "/lib%s.so", libraries[i].file);
        loaded[i] = load(context, path, RTLD_NOW);
        vlc_pool pool = pool_of(context, libraries[i].file);
        CHECK(!strcmp(pool.library, libraries[i].name), "%s is taken for %s", libraries[i].file,
              pool.library);
        CHECK_EQUAL(pool.state, VLC_POOL_UNKNOWN);
        CHECK_EQUAL(number_on_the_pool(context, loaded[i]), 1);
    }
    for (int round = 0; round < 4; round++) {
        size_t count = round % 2 ? 1 : 2;
        resize(context, count);
        for (int i = 0; i < LIBRARIES; i++) {
            const struct library *expected = &libraries[i];
            long number = count == 1 ? 1 : expected->most;
            CHECK_EQUAL(ask(context, loaded[i], "sized_number"), number);
            CHECK_EQUAL(number_on_a_new_thread(context, loaded[i]), number);
            CHECK_EQUAL(number_on_the_pool(context, loaded[i]), number);
            vlc_pool pool = pool_of(context, expected->file);
            CHECK_EQUAL(pool.state, expected->state == VLC_POOL_CANNOT && count == 1 ? VLC_POOL_FOLLOWS
                                                                                     : expected->state);
            CHECK_EQUAL(pool.threads, expected->state == VLC_POOL_ASKS ? 0 : number);
            if (round == 0 && expected->state == VLC_POOL_FOLLOWS)
                CHECK_EQUAL(ask(context, loaded[i], "sized_sets"), expected->sets);
            if (expected->state == VLC_POOL_ASKS) CHECK_EQUAL(ask(context, loaded[i], "sized_sets"), 0);
        }
    }
    context_close(context);
}

/* What a call or a variable has set stays, in any order with a resize. */
static void own_numbers_stay(void) {
    static const char *const blas[] = { "OPENBLAS_NUM_THREADS=1", NULL };
    static const char *const names[] = { "sized_openblas", "sized_openmp", "sized_torch" };
    for (size_t i = 0; i < 3; i++) {
        vlc_context *context = context_in(VLC_RESIDENT_NEVER, NULL, 2);
        char path[256];
        snprintf(path, sizeof path, FIXTURE_DIR "/lib%s.so", names[i]);
        vlc_library *library = load(context, path, RTLD_NOW);
        run(context, find(context, library, "sized_choose"), 1);
        for (int round = 0; round < 4; round++) {
            resize(context, round % 2 ? 2 : 1);
            CHECK_EQUAL(ask(context, library, "sized_number"), 1);
            CHECK_EQUAL(pool_of(context, names[i]).state, VLC_POOL_HAS_OWN);
        }
        CHECK_EQUAL(ask(context, library, "sized_sets"), 0);
        context_close(context);
    }
    vlc_context *context = context_in(VLC_RESIDENT_NEVER, blas, 1);
    vlc_library *library = load(context, FIXTURE("sized_openblas"), RTLD_NOW);
    vlc_library *openmp = load(context, FIXTURE("sized_openmp"), RTLD_NOW);
    resize(context, 2);
    CHECK_EQUAL(ask(context, library, "sized_number"), 1);
    CHECK_EQUAL(ask(context, openmp, "sized_number"), 2); /* it does not read that one */
    CHECK_EQUAL(pool_of(context, "sized_openblas").state, VLC_POOL_HAS_OWN);
    context_close(context);
}

/* A limit that was set before a resize and ends after it (threadpoolctl's `with`) brings an old number back. */
static void limits_end_after_a_resize(void) {
    vlc_context *context = context_in(VLC_RESIDENT_NEVER, NULL, 2);
    vlc_library *library = load(context, FIXTURE("sized_openblas"), RTLD_NOW);
    probe choose = find(context, library, "sized_choose");
    static const struct {
        long chosen;  /* before the resize */
        size_t count; /* of CPUs */
        long number;  /* after it */
        uint32_t state;
    } steps[] = {
        { 1, 1, 1, VLC_POOL_HAS_OWN }, /* limited in a slice of two */
        { 2, 1, 1, VLC_POOL_FOLLOWS }, /* the limit has ended */
        { 1, 2, 2, VLC_POOL_FOLLOWS },
        { 1, 2, 2, VLC_POOL_FOLLOWS }, /* one that had begun in the slice of one has ended */
        { 7, 1, 7, VLC_POOL_HAS_OWN },
        { 7, 2, 7, VLC_POOL_HAS_OWN },
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        run(context, choose, steps[i].chosen);
        resize(context, steps[i].count);
        CHECK_EQUAL(ask(context, library, "sized_number"), steps[i].number);
        CHECK_EQUAL(pool_of(context, "sized_openblas").state, steps[i].state);
    }
    context_close(context);
}

/* BLIS has no number by itself. */
static void without_a_number(void) {
    vlc_context *context = context_in(VLC_RESIDENT_NEVER, NULL, 1);
    vlc_library *library = load(context, FIXTURE("sized_unset_blis"), RTLD_NOW);
    resize(context, 2);
    CHECK_EQUAL(ask(context, library, "sized_number"), -1);
    CHECK_EQUAL(pool_of(context, "sized_unset_blis").state, VLC_POOL_HAS_OWN);
    CHECK_EQUAL(pool_of(context, "sized_unset_blis").threads, 0);
    run(context, find(context, library, "sized_choose"), 2);
    resize(context, 1);
    CHECK_EQUAL(ask(context, library, "sized_number"), 1);
    CHECK_EQUAL(number_on_a_new_thread(context, library), 1);
    CHECK_EQUAL(pool_of(context, "sized_unset_blis").state, VLC_POOL_FOLLOWS_ENTRY);
    context_close(context);
}

/* A library relies on the number that it has read until its call returns: nothing is set on that thread. */
static vlc_context *inner;
static vlc_library *inner_library;

static long resize_from_a_call(void) {
    resize(inner, 2);
    CHECK_EQUAL(ask(inner, inner_library, "sized_number"), 1);
    vlc_error error = VLC_ERROR_INIT;
    CHECK_EQUAL(number_on_a_new_thread(inner, inner_library), 2);
    CHECK_EQUAL(vlc_context_of(NULL) == inner ? VLC_OK : vlc_follow(inner, &error), VLC_OK);
    return 7;
}

static void nothing_changes_within_a_call(void) {
    inner = context_in(VLC_RESIDENT_NEVER, NULL, 1);
    inner_library = load(inner, FIXTURE("sized_openmp"), RTLD_NOW);
    CHECK_EQUAL(run(inner, find(inner, inner_library, "sized_call"), (long)resize_from_a_call), 7);
    CHECK_EQUAL(pool_of(inner, "sized_openmp").state, VLC_POOL_FOLLOWS_ENTRY);
    CHECK_EQUAL(ask(inner, inner_library, "sized_number"), 2);
    /* who stays inside says when */
    vlc_error error = VLC_ERROR_INIT;
    CHECK_REFUSED(vlc_follow(inner, &error), error, VLC_MISUSE, "sized");
    CHECK_EQUAL(vlc_enter(inner, &error), VLC_OK);
    resize(inner, 1);
    probe number = find(inner, inner_library, "sized_number");
    CHECK_EQUAL(number(0), 2);
    CHECK_EQUAL(vlc_follow(inner, &error), VLC_OK);
    CHECK_EQUAL(number(0), 1);
    CHECK_EQUAL(vlc_leave(inner, &error), VLC_OK);
    context_close(inner);
}

/* What comes later sizes itself from the slice of its time, and follows from there. */
static void loaded_later(void) {
    vlc_context *context = context_in(VLC_RESIDENT_NEVER, NULL, 1);
    vlc_library *first = load(context, FIXTURE("sized_openblas"), RTLD_NOW);
    resize(context, 2);
    vlc_library *openmp = load(context, FIXTURE("sized_openmp"), RTLD_NOW);
    vlc_library *mkl = load(context, FIXTURE("sized_mkl"), RTLD_NOW);
    for (int round = 0; round < 3; round++) {
        size_t count = round % 2 ? 2 : 1;
        resize(context, count);
        CHECK_EQUAL(ask(context, first, "sized_number"), (long)count);
        CHECK_EQUAL(ask(context, openmp, "sized_number"), (long)count);
        CHECK_EQUAL(ask(context, mkl, "sized_number"), (long)count);
        CHECK_EQUAL(number_on_a_new_thread(context, openmp), (long)count);
    }
    context_close(context);
}

/* One whose functions somebody else knows takes part from then on, also where a thread is just following. */
static vlc_library *given;

static void give(void) {
    vlc_error error = VLC_ERROR_INIT;
    int (*get)(void) = (int (*)(void))(void *)find(inner, given, "sized_given_get");
    void (*set)(int) = (void (*)(int))(void *)find(inner, given, "sized_given_set");
    for (int again = 0; again < 2; again++)
        CHECK_EQUAL(vlc_control(inner, "given", get, set, 0, &error), VLC_OK);
    CHECK_REFUSED(vlc_control(inner, "", get, set, 0, &error), error, VLC_BAD_ARGUMENT, "give a name");
    CHECK_REFUSED(vlc_control(inner, "host", getpid, set, 0, &error), error, VLC_BAD_ARGUMENT, "'host'");
}

static void *resize_to_one(void *unused) {
    resize(inner, 1);
    return unused;
}

static void given_later(void) {
    pthread_t thread;
    inner = context_in(VLC_RESIDENT_NEVER, NULL, 2);
    vlc_library *openmp = load(inner, FIXTURE("sized_openmp"), RTLD_NOW);
    given = load(inner, FIXTURE("sized_given"), RTLD_NOW);
    resize(inner, 2);
    call(inner, find(inner, openmp, "sized_when_told"), (long)give); /* this thread, as it enters next */
    REQUIRE(!pthread_create(&thread, NULL, resize_to_one, NULL), "no thread");
    pthread_join(thread, NULL);
    CHECK_EQUAL(ask(inner, openmp, "sized_number"), 1);
    CHECK_EQUAL(ask(inner, given, "sized_sets"), 0);
    resize(inner, 2);
    CHECK_EQUAL(pool_of(inner, "sized_given").state, VLC_POOL_FOLLOWS_ENTRY);
    CHECK_EQUAL(ask(inner, given, "sized_told"), 2);
    context_close(inner);
}

/* A library that nobody can tell: its threads are counted. */
static void strangers_are_named(void) {
    vlc_context *context = context_in(VLC_RESIDENT_NEVER, NULL, 1);
    load(context, FIXTURE("threads"), RTLD_NOW | RTLD_GLOBAL);
    vlc_pool pool = VLC_POOL_INIT;
    CHECK_EQUAL(vlc_get_pool(context, 0, &pool), 0);
    CHECK_EQUAL(call_named(context, NULL, "threads_park", 3), 0);
    CHECK_EQUAL(vlc_get_pool(context, 0, &pool), 1);
    CHECK_EQUAL(pool.state, VLC_POOL_FIXED);
    CHECK_EQUAL(pool.threads, 3);
    CHECK(strstr(pool.library, "threads"), "%s", pool.library);
    CHECK_EQUAL(vlc_get_pool(context, 1, &pool), 0);
    CHECK_EQUAL(call_named(context, NULL, "threads_leave", 0), 0);
    context_close(context);
}

int main(void) {
    two_cores();
    follow_in(VLC_RESIDENT_NEVER);
    follow_in(VLC_RESIDENT_ALWAYS);
    own_numbers_stay();
    limits_end_after_a_resize();
    without_a_number();
    nothing_changes_within_a_call();
    loaded_later();
    given_later();
    strangers_are_named();
    return check_result();
}
