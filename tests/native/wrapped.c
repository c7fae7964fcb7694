/* Pointers that leave a context and are called later, by threads that never entered it (case R10). */
#include <complex.h>
#include <errno.h>
#include <execinfo.h>
#include <immintrin.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>

#include "contexts.h"
#include "fixtures/wrapped.h"

/* What code of a context finds while it runs, as seen by the host: set by the observer. */
static struct {
    vlc_context *context;
    int cpus, has_own_locale, times;
} seen;

static void observer(void) {
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set); /* the host's own link: the kernel's answer */
    seen.context = vlc_context_of(NULL);
    seen.cpus = CPU_COUNT(&set);
    seen.has_own_locale = uselocale((locale_t)0) != LC_GLOBAL_LOCALE;
    seen.times++;
}

static int cpus_here(void) {
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    return CPU_COUNT(&set);
}

static void *wrap(vlc_context *context, void *function) {
    void *wrapped = NULL;
    vlc_error error = VLC_ERROR_INIT;
    REQUIRE(vlc_wrap(context, function, &wrapped, &error) == VLC_OK, "%s", error.message);
    return wrapped;
}

static void *wrap_named(vlc_context *context, vlc_library *library, const char *name) {
    return wrap(context, (void *)find(context, library, name));
}

static long limit(size_t member) {
    vlc_limits limits = { .size = sizeof limits };
    REQUIRE(vlc_get_limits(&limits, NULL) == VLC_OK, "no limits");
    return (long)*(uint64_t *)((char *)&limits + member);
}
#define WRAPPERS limit(offsetof(vlc_limits, wrappers))
#define LATE_CALLS limit(offsetof(vlc_limits, late_calls))

static vlc_context *context_with_name(const char *name, const uint32_t *cpus, size_t count, char letter) {
    char variable[] = { 'W', 'H', 'O', '=', letter, 0 };
    const char *env[] = { variable, NULL };
    vlc_spec spec = VLC_SPEC_INIT;
    spec.name = name;
    spec.cpus = cpus;
    spec.cpu_count = count;
    spec.env = env;
    return context_from(&spec);
}

static void *on_thread(void *(*function)(void *), void *argument) {
    pthread_t thread;
    void *result = NULL;
    REQUIRE(pthread_create(&thread, NULL, function, argument) == 0, "no thread");
    pthread_join(thread, &result);
    return result;
}

#define CHECK_SEEN(a, times_)                                                                                \
    do {                                                                                                     \
        CHECK(seen.context == (a), "the function ran in %s",                                                 \
              seen.context ? vlc_name(seen.context) : "the host");                                           \
        CHECK_EQUAL(seen.cpus, 1);                                                                           \
        CHECK_EQUAL(seen.has_own_locale, 1);                                                                 \
        CHECK_EQUAL(seen.times, times_);                                                                     \
        seen.times = 0;                                                                                      \
        CHECK(vlc_context_of(NULL) == NULL, "the thread is still inside");                                   \
        CHECK(uselocale((locale_t)0) == LC_GLOBAL_LOCALE, "the thread has the context's locale");            \
        CHECK_EQUAL(cpus_here(), cpus_outside);                                                              \
    } while (0)

static int cpus_outside;

/* ---- callbacks in structs ------------------------------------------------------------------------------- */

struct handed {
    vlc_context *context;
    struct tensor *tensor;
    struct array *array;
};

static void *consume(void *argument) {
    struct handed *handed = argument;
    handed->tensor->deleter(handed->tensor);
    CHECK_SEEN(handed->context, 1);
    handed->array->release(handed->array);
    CHECK_SEEN(handed->context, 1);
    CHECK(handed->array->release == NULL, "the array does not say that it is released");
    return NULL;
}

static void check_structs(vlc_context *a, vlc_library *library) {
    struct array array;
    struct handed handed = { a, (struct tensor *)call_named(a, library, "tensor_make", 1000), &array };
    call_named(a, library, "array_export", (long)&array);
    handed.tensor->deleter = (void (*)(struct tensor *))wrap(a, (void *)handed.tensor->deleter);
    array.release = (void (*)(struct array *))wrap(a, (void *)array.release);
    CHECK_EQUAL(call_named(a, library, "release_count", 0), 0);
    on_thread(consume, &handed);
    CHECK_EQUAL(call_named(a, library, "release_count", 0), 2);
}

static void check_comparator(vlc_context *a, vlc_library *library) {
    int numbers[] = { 5, 3, 9, 1 };
    int (*compare)(const void *, const void *) =
        (int (*)(const void *, const void *))wrap_named(a, library, "compare");
    qsort(numbers, 4, sizeof numbers[0], compare);
    CHECK(numbers[0] == 1 && numbers[1] == 3 && numbers[2] == 5 && numbers[3] == 9, "not sorted");
    CHECK_SEEN(a, seen.times);
}

/* Thread-local variables and environment are the context's; two contexts do not mix. */
struct two {
    probe who, other_who, calls, other_calls;
};

static void *mix(void *argument) {
    struct two *two = argument;
    for (int round = 0; round < 3; round++) {
        CHECK_EQUAL(two->who(0), 'a');
        CHECK_EQUAL(two->other_who(0), 'b');
    }
    two->other_who(0);
    CHECK_EQUAL(two->calls(0), 3);
    CHECK_EQUAL(two->other_calls(0), 4);
    return NULL;
}

static void check_two(vlc_context *a, vlc_library *library, const uint32_t *cpu) {
    vlc_context *b = context_with_name("b", cpu, 1, 'b');
    vlc_library *other = load(b, FIXTURE("wrapped"), RTLD_NOW);
    struct two two = { (probe)wrap_named(a, library, "who"), (probe)wrap_named(b, other, "who"),
                       (probe)wrap_named(a, library, "calls_of_thread"),
                       (probe)wrap_named(b, other, "calls_of_thread") };
    seen.times = 0;
    on_thread(mix, &two);
    CHECK_SEEN(a, 3);
    REQUIRE(vlc_enter(b, NULL) == VLC_OK, "b cannot be entered"); /* from inside of another */
    CHECK_EQUAL(two.who(0), 'a');
    CHECK(seen.context == a, "not a's");
    CHECK(vlc_context_of(NULL) == b, "b was left");
    REQUIRE(vlc_leave(b, NULL) == VLC_OK, "b cannot be left");
    context_close(b);
}

/* ---- signatures ----------------------------------------------------------------------------------------- */

typedef __m256d (*vector_function)(__m256d);
__attribute__((target("avx"))) static void check_vector(vector_function twice) {
    double numbers[4] = { 1, 2, 3, 4 };
    _mm256_storeu_pd(numbers, twice(_mm256_loadu_pd(numbers)));
    CHECK(numbers[0] == 2 && numbers[3] == 8, "a vector came back as %g ... %g", numbers[0], numbers[3]);
}

/* All of them, through pointers that `get` made. */
static void *check_signatures(void *argument) {
    void *(*get)(const char *) = (void *(*)(const char *))argument;
    long (*many)(MANY(long)) = (long (*)(MANY(long)))get("many");
    long total = 0;
    for (long i = 1; i <= 38; i++) total += i * (i + 100);
    CHECK_EQUAL(many(101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, 118,
                     119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 136,
                     137, 138),
                total);
    double (*floats)(double, double, double, double, double, double, double, double, double, float, int) =
        (double (*)(double, double, double, double, double, double, double, double, double, float, int))get(
            "floats");
    CHECK_EQUAL(floats(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11), 506);
    struct pair pair = ((struct pair (*)(struct pair))get("pair_swap"))((struct pair){ 1, 2 });
    CHECK(pair.a == 2 && pair.b == 1, "a pair came back as %ld, %ld", pair.a, pair.b);
    struct reals reals = ((struct reals (*)(struct reals))get("reals_swap"))((struct reals){ 1, 2 });
    CHECK(reals.a == 2 && reals.b == 1, "reals came back as %g, %g", reals.a, reals.b);
    struct mixed mixed = ((struct mixed (*)(struct mixed))get("mixed_twice"))((struct mixed){ 1.5, 2 });
    CHECK(mixed.a == 3 && mixed.b == 4, "mixed came back as %g, %ld", mixed.a, mixed.b);
    struct large large = { { 1, 2, 3, 4, 5, 6 } };
    large = ((struct large (*)(struct large, long))get("large_reverse"))(large, 10);
    CHECK(large.words[0] == 16 && large.words[5] == 11, "large came back as %ld ... %ld", large.words[0],
          large.words[5]);
    CHECK_EQUAL(((long double (*)(long double, long double))get("extended"))(7.0L, 3.0L), 4);
    long double _Complex number = ((long double _Complex (*)(long double))get("extended_complex"))(3.0L);
    CHECK(creall(number) == 3 && cimagl(number) == 2, "a complex came back wrong");
    for (int round = 0; round < 20; round++) /* what is left on the x87 stack would overflow it */
        CHECK_EQUAL(((long double (*)(long double, long double))get("extended"))(7.0L, 3.0L), 4);
    CHECK_EQUAL(((double (*)(int, ...))get("sum"))(10, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0),
                55);
    if (__builtin_cpu_supports("avx")) check_vector((vector_function)get("vector_twice"));
    return NULL;
}

static vlc_context *source;
static vlc_library *source_library;
static void *get_wrapped(const char *name) { return wrap_named(source, source_library, name); }

static void *check_signatures_inside(void *unused) {
    (void)unused;
    REQUIRE(vlc_enter(source, NULL) == VLC_OK, "it cannot be entered");
    check_signatures((void *)get_wrapped);
    REQUIRE(vlc_leave(source, NULL) == VLC_OK, "it cannot be left");
    return NULL;
}

static void check_all_signatures(vlc_context *a, vlc_library *library) {
    source = a;
    source_library = library;
    check_signatures((void *)get_wrapped);
    on_thread(check_signatures, (void *)get_wrapped);
    on_thread(check_signatures_inside, NULL);
    seen.times = 0;
}

/* ---- the thread's own ----------------------------------------------------------------------------------- */

static void *wanted_frame;
static int is_found;

static void frames_observer(void) {
    void *frames[64];
    is_found = 0;
    for (int count = backtrace(frames, 64), i = 0; i < count; i++) is_found |= frames[i] == wanted_frame;
}

__attribute__((noinline)) static void check_thread_state(vlc_context *a, vlc_library *library) {
    probe set_errno = (probe)wrap_named(a, library, "set_errno");
    errno = 7;
    CHECK_EQUAL(set_errno(9), 7); /* in and out */
    CHECK_EQUAL(errno, 9);
    unsigned before = _mm_getcsr();
    ((probe)wrap_named(a, library, "set_flush_to_zero"))(0);
    CHECK_EQUAL(_mm_getcsr(), before);

    wanted_frame = __builtin_return_address(0);
    call_named(a, library, "set_observer", (long)frames_observer);
    CHECK_EQUAL(((probe)wrap_named(a, library, "identity"))(3), 3);
    CHECK(is_found, "an unwinder in the function does not find the caller of its caller");
    call_named(a, library, "set_observer", (long)observer);
}

/* A wrapped function as the first of a stack: there is little above it, and then nothing. */
static ucontext_t main_stack, small_stack;

static void check_small_stack(vlc_context *a, vlc_library *library) {
    size_t size = 64 << 10;
    char *stack = mmap(NULL, size + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(stack != MAP_FAILED && munmap(stack + size, 4096) == 0, "no stack");
    getcontext(&small_stack);
    small_stack.uc_stack.ss_sp = stack;
    small_stack.uc_stack.ss_size = size;
    small_stack.uc_link = &main_stack;
    makecontext(&small_stack, (void (*)(void))wrap_named(a, library, "identity"), 1, 5);
    seen.times = 0;
    swapcontext(&main_stack, &small_stack);
    CHECK_SEEN(a, 1);
    munmap(stack, size);
}

/* From a context to the host and back again, by a pointer: the thread is inside all along. */
static probe identity;
static long host_function(long value) {
    CHECK(vlc_context_of(NULL) == source, "the host's function was not called inside");
    return identity(value) + 1;
}

static void check_nesting(vlc_context *a, vlc_library *library) {
    source = a;
    identity = (probe)wrap_named(a, library, "identity");
    CHECK_EQUAL(((probe)wrap_named(a, library, "call_back"))((long)host_function), 6);
    CHECK_SEEN(a, 2);
}

/* ---- many, and late ------------------------------------------------------------------------------------- */

static void check_identity(vlc_context *a, vlc_library *library) {
    void *function = (void *)find(a, library, "identity"), *wrapped = wrap(a, function);
    long before = WRAPPERS;
    for (int i = 0; i < 10000; i++) REQUIRE(wrap(a, function) == wrapped, "another pointer");
    CHECK(wrap(a, wrapped) == wrapped, "a wrapped pointer was wrapped again");
    CHECK_EQUAL(WRAPPERS, before);

    enum { COUNT = 5000 }; /* several blocks of them; there is nothing to call */
    char *nothing = (char *)function + (1 << 20);
    void **wrappers = calloc(COUNT, sizeof *wrappers);
    for (int i = 0; i < COUNT; i++) wrappers[i] = wrap(a, nothing + i);
    for (int i = 0; i < COUNT; i++) {
        REQUIRE(wrap(a, nothing + i) == wrappers[i], "number %d is another now", i);
        REQUIRE(i == 0 || wrappers[i] != wrappers[i - 1], "two functions have one pointer");
    }
    CHECK_EQUAL(WRAPPERS, before + COUNT);
    CHECK_EQUAL(((probe)wrap(a, function))(3), 3);
    free(wrappers);
}

static void check_refused(vlc_context *a) {
    void *wrapped = NULL;
    vlc_error error;
    CHECK_REFUSED(vlc_wrap(a, NULL, &wrapped, &error), error, VLC_BAD_ARGUMENT, "NULL");
    CHECK(wrapped == NULL, "a refused call has written");
}

/* What is called once its context is closed does nothing, also where another context lies there now. */
static void check_late(void) {
    for (int round = 0; round < 3; round++) {
        vlc_context *context = context_new("short");
        vlc_library *library = load(context, FIXTURE("wrapped"), RTLD_NOW);
        struct tensor *tensor = (struct tensor *)call_named(context, library, "tensor_make", 10);
        void (*deleter)(struct tensor *) = (void (*)(struct tensor *))wrap(context, (void *)tensor->deleter);
        probe same = (probe)wrap_named(context, library, "identity");
        double (*real)(int, ...) = (double (*)(int, ...))wrap_named(context, library, "sum");
        long double (*extended)(long double, long double) =
            (long double (*)(long double, long double))wrap_named(context, library, "extended");
        CHECK_EQUAL(same(5), 5);
        context_close(context);
        vlc_context *next = context_new("next");
        load(next, FIXTURE("wrapped"), RTLD_NOW);
        long before = LATE_CALLS;
        deleter(tensor);
        CHECK_EQUAL(same(5), 0);
        CHECK(real(2, 1.0, 2.0) == 0, "a late call returned a number");
        long double none = extended(2, 1); /* not a number: x87 has nothing to return */
        CHECK(none == 0 || none != none, "a late call returned a number");
        CHECK_EQUAL(LATE_CALLS, before + 4);
        CHECK(vlc_context_of(NULL) == NULL, "inside after a late call");
        context_close(next);
    }
}

/* Threads that call all along while the context is closed: each call is made, or not. */
#define CALLERS 4
struct caller {
    probe same;
    long made;
};

static _Atomic(int) callers_started;

static void *call_until_closed(void *argument) {
    struct caller *caller = argument;
    while (caller->same(5) == 5)
        if (caller->made++ == 0) callers_started++;
    CHECK_EQUAL(caller->same(5), 0);
    return NULL;
}

static void check_closed_under_callers(void) {
    vlc_context *context = context_new("busy");
    probe same = (probe)wrap_named(context, load(context, FIXTURE("wrapped"), RTLD_NOW), "identity");
    struct caller callers[CALLERS];
    pthread_t threads[CALLERS];
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (struct caller){ same, 0 };
        REQUIRE(pthread_create(&threads[i], NULL, call_until_closed, &callers[i]) == 0, "no thread");
    }
    while (callers_started < CALLERS) sched_yield();
    context_close(context);
    for (int i = 0; i < CALLERS; i++) pthread_join(threads[i], NULL);
}

/* Retired: calls that are inside are waited for, the rest does nothing, and the context itself lives on. */
static _Atomic(int) is_inside, may_return;
static long stay(long value) {
    is_inside = 1;
    while (!may_return) sched_yield();
    return value;
}

static void *call_and_stay(void *call_back) {
    CHECK_EQUAL(((probe)call_back)((long)stay), 5);
    return NULL;
}

static long forks_inside(long value) {
    int status = -1;
    pid_t child = fork();
    if (child == 0) { /* of the two calls that were inside, the other thread's is gone */
        vlc_error error = VLC_ERROR_INIT;
        _exit(vlc_retire(source, 0, &error) == VLC_MISUSE ? 0 : 1);
    }
    waitpid(child, &status, 0);
    CHECK_EQUAL(status, 0);
    return value;
}

static void check_retired(void) {
    vlc_context *context = context_new("retired");
    vlc_library *library = load(context, FIXTURE("wrapped"), RTLD_NOW);
    probe call_back = (probe)wrap_named(context, library, "call_back"),
          same = find(context, library, "identity");
    pthread_t thread;
    vlc_error error;
    source = context;
    REQUIRE(pthread_create(&thread, NULL, call_and_stay, (void *)call_back) == 0, "no thread");
    while (!is_inside) sched_yield();
    CHECK_EQUAL(call_back((long)forks_inside), 5);
    CHECK_REFUSED(vlc_retire(context, 10, &error), error, VLC_BUSY, "1 calls");
    CHECK_EQUAL(call_back((long)stay), 0);
    may_return = 1;
    CHECK_EQUAL(vlc_retire(context, -1, &error), VLC_OK);
    pthread_join(thread, NULL);
    void *wrapped = NULL;
    CHECK_REFUSED(vlc_wrap(context, (void *)same, &wrapped, &error), error, VLC_MISUSE, "retired");
    CHECK_EQUAL(call(context, same, 7), 7);
    REQUIRE(vlc_enter(context, NULL) == VLC_OK, "it cannot be entered");
    CHECK_EQUAL(call_back((long)stay), 5); /* inside it is a jump */
    CHECK_REFUSED(vlc_retire(context, 0, &error), error, VLC_MISUSE, "retired");
    REQUIRE(vlc_leave(context, NULL) == VLC_OK, "it cannot be left");
    context_close(context);

    context = context_new("retired");
    CHECK_EQUAL(vlc_retire(context, 0, NULL), VLC_OK); /* there are none yet, and there will be none */
    CHECK_REFUSED(vlc_wrap(context, (void *)stay, &wrapped, &error), error, VLC_MISUSE, "retired");
    context_close(context);
}

/* A thread ends inside where no unwinder can tell: the call is over all the same, and nobody waits for it. */
static void *call_once(void *function) { return (void *)((probe)function)(0); }

static void check_ended_inside(void) {
    vlc_context *context = context_new("ended");
    probe leave = (probe)wrap_named(context, load(context, FIXTURE("bare"), RTLD_NOW), "bare_leave_by_exit");
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, call_once, (void *)leave) == 0, "no thread");
    pthread_join(thread, NULL);
    vlc_stats stats = VLC_STATS_INIT;
    CHECK_EQUAL(vlc_get_stats(context, &stats, NULL), VLC_OK);
    CHECK_EQUAL(stats.visitors, 0);
    CHECK_EQUAL(vlc_retire(context, 1000, NULL), VLC_OK);
    context_close(context);
}

/* In a child the context that forked goes on; a pointer of another does nothing. */
static void check_fork(vlc_context *a, vlc_library *library) {
    probe same = (probe)wrap_named(a, library, "identity");
    int status = -1;
    pid_t child = fork();
    if (child == 0) _exit(same(5) == 0 ? 0 : 1);
    waitpid(child, &status, 0);
    CHECK_EQUAL(status, 0);
    REQUIRE(vlc_enter(a, NULL) == VLC_OK, "it cannot be entered");
    child = fork();
    if (child == 0) _exit(same(5) == 5 && wrap_named(a, library, "who") ? 0 : 1);
    REQUIRE(vlc_leave(a, NULL) == VLC_OK, "it cannot be left");
    waitpid(child, &status, 0);
    CHECK_EQUAL(status, 0);
    seen.times = 0;
}

int main(void) {
    uint32_t cpus[2];
    two_cpus(cpus);
    cpus_outside = cpus_here();
    vlc_context *a = context_with_name("a", cpus, 1, 'a');
    vlc_library *library = load(a, FIXTURE("wrapped"), RTLD_NOW);
    call_named(a, library, "set_observer", (long)observer);

    check_structs(a, library);
    check_comparator(a, library);
    check_two(a, library, cpus + 1);
    check_all_signatures(a, library);
    check_thread_state(a, library);
    check_small_stack(a, library);
    check_nesting(a, library);
    check_identity(a, library);
    check_refused(a);
    check_fork(a, library);
    check_late();
    check_closed_under_callers();
    check_retired();
    check_ended_inside();
    context_close(a);
    return check_result();
}
