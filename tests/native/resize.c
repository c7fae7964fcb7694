/* vlc_resize: threads move at once, visitors too, and answers change. */
#include "contexts.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

static void check_mask(pid_t id, const uint32_t *cpus, size_t count) {
    cpu_set_t set;
    REQUIRE(sched_getaffinity(id, sizeof set, &set) == 0, "there is no thread %d", (int)id);
    int inside = (size_t)CPU_COUNT(&set) == count;
    for (size_t i = 0; i < count; i++) inside = inside && CPU_ISSET(cpus[i], &set);
    CHECK(inside, "thread %d has %d CPUs, not the slice's %zu", (int)id, CPU_COUNT(&set), count);
}

static void *nothing(void *unused) { return unused; }

/* Moves a context there and back until told to stop. */
static struct {
    vlc_context *context;
    uint32_t cpus[2];
    pthread_rwlock_t lock; /* read-held by who moves it, write-held by who looks */
    atomic_bool stop;
} mover = { .lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP };

static void *move_on(void *unused) {
    vlc_error error = VLC_ERROR_INIT;
    for (unsigned round = 0; !mover.stop; round++) {
        pthread_rwlock_rdlock(&mover.lock);
        CHECK_EQUAL(vlc_resize(mover.context, &mover.cpus[round % 2], 1, &error), VLC_OK);
        pthread_rwlock_unlock(&mover.lock);
    }
    return unused;
}

/* A thread that begins, or moves itself, while the context is being resized, does not stay behind. */
static void resize_while_threads_begin_and_move(const uint32_t *cpus) {
    vlc_error error = VLC_ERROR_INIT;
    vlc_context *a = mover.context = context_on("moved", cpus, 1);
    memcpy(mover.cpus, cpus, sizeof mover.cpus);
    load(a, FIXTURE("threads"), RTLD_NOW | RTLD_GLOBAL);
    load(a, FIXTURE("cpus"), RTLD_NOW | RTLD_GLOBAL);
    probe park = find(a, NULL, "threads_park"), leave = find(a, NULL, "threads_leave");
    probe wander = find(a, NULL, "cpus_wander");
    pthread_t movers[2];
    for (int i = 0; i < 2; i++) REQUIRE(!pthread_create(&movers[i], NULL, move_on, NULL), "no thread");
    for (int round = 0; round < 40; round++) {
        vlc_task *task = NULL;
        REQUIRE(vlc_submit(a, (void *(*)(void *))(void *)wander, (void *)50, &task, &error) == VLC_OK, "%s",
                error.message);
        CHECK_EQUAL(call(a, park, 8), 0);
        CHECK_EQUAL(vlc_wait(task, NULL, &error), VLC_OK);
        pthread_rwlock_wrlock(&mover.lock);
        uint32_t slice;
        int32_t ids[16];
        CHECK_EQUAL(vlc_cpus(a, &slice, 1), 1);
        size_t threads = vlc_threads(a, ids, 16);
        for (size_t i = 0; i < threads; i++) check_mask(ids[i], &slice, 1);
        pthread_rwlock_unlock(&mover.lock);
        CHECK_EQUAL(call(a, leave, 0), 0);
    }
    mover.stop = true;
    for (int i = 0; i < 2; i++) pthread_join(movers[i], NULL);
    context_close(a);
}

static void *enter_other(void *other) {
    vlc_error error = VLC_ERROR_INIT;
    CHECK_EQUAL(vlc_enter(other, &error), VLC_OK);
    CHECK_EQUAL(vlc_resize(mover.context, mover.cpus, 2, &error), VLC_OK);
    check_mask(0, mover.cpus, 1); /* of the other's slice */
    CHECK_EQUAL(vlc_leave(other, &error), VLC_OK);
    check_mask(0, mover.cpus, 2);
    return NULL;
}

/* Visitors of two contexts, one inside of the other, that come and go while both are moved. */
static struct {
    vlc_context *inner;
    pthread_rwlock_t lock; /* of `inner`, as mover.lock */
    pthread_barrier_t begin;
    cpu_set_t outside; /* the visitors' own mask */
} coming = { .lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP };

static void *move_inner(void *unused) {
    vlc_error error = VLC_ERROR_INIT;
    for (unsigned round = 0; !mover.stop; round++) {
        pthread_rwlock_rdlock(&coming.lock);
        CHECK_EQUAL(vlc_resize(coming.inner, mover.cpus, 1 + round % 2, &error), VLC_OK);
        pthread_rwlock_unlock(&coming.lock);
    }
    return unused;
}

static void check_inside(pthread_rwlock_t *lock, vlc_context *context) {
    uint32_t slice[2];
    pthread_rwlock_wrlock(lock);
    check_mask(0, slice, vlc_cpus(context, slice, 2));
    pthread_rwlock_unlock(lock);
}

static void *come_and_go(void *unused) {
    vlc_error error = VLC_ERROR_INIT;
    pthread_barrier_wait(&coming.begin);
    for (int round = 0; round < 1500; round++) {
        CHECK_EQUAL(vlc_enter(mover.context, &error), VLC_OK);
        if (round % 4 == 0) check_inside(&mover.lock, mover.context);
        CHECK_EQUAL(vlc_enter(coming.inner, &error), VLC_OK);
        if (round % 4 == 1) check_inside(&coming.lock, coming.inner);
        CHECK_EQUAL(vlc_leave(coming.inner, &error), VLC_OK);
        if (round % 4 == 2) check_inside(&mover.lock, mover.context);
        CHECK_EQUAL(vlc_leave(mover.context, &error), VLC_OK);
        cpu_set_t now;
        CHECK_EQUAL(sched_getaffinity(0, sizeof now, &now), 0);
        CHECK(CPU_EQUAL(&now, &coming.outside), "a visitor that has left has %d CPUs, not its %d",
              CPU_COUNT(&now), CPU_COUNT(&coming.outside));
    }
    return unused;
}

static void resize_while_visitors_come_and_go(const uint32_t *cpus) {
    pthread_t visitors[4], movers[2];
    memcpy(mover.cpus, cpus, sizeof mover.cpus);
    mover.context = context_on("outer", cpus, 1);
    coming.inner = context_on("inner", cpus, 1);
    mover.stop = false;
    CHECK_EQUAL(sched_getaffinity(0, sizeof coming.outside, &coming.outside), 0);
    pthread_barrier_init(&coming.begin, NULL, 4);
    for (int i = 0; i < 4; i++) REQUIRE(!pthread_create(&visitors[i], NULL, come_and_go, NULL), "no thread");
    for (int i = 0; i < 2; i++)
        REQUIRE(!pthread_create(&movers[i], NULL, i ? move_on : move_inner, NULL), "no thread");
    for (int i = 0; i < 4; i++) pthread_join(visitors[i], NULL);
    mover.stop = true;
    for (int i = 0; i < 2; i++) pthread_join(movers[i], NULL);
    context_close(coming.inner);
    context_close(mover.context);
}

static void *resize_outer(void *cpus) {
    vlc_error error = VLC_ERROR_INIT;
    CHECK_EQUAL(vlc_resize(mover.context, cpus, 2, &error), VLC_OK);
    return NULL;
}

/* A host's thread that is inside moves at once, by whoever; one that comes from a narrower mask keeps to it. */
static void visitors_move(const uint32_t *cpus) {
    vlc_error error = VLC_ERROR_INIT;
    cpu_set_t outside, narrow;
    pthread_t other;
    CHECK_EQUAL(sched_getaffinity(0, sizeof outside, &outside), 0);
    for (int is_narrow = 0; is_narrow < 2; is_narrow++) {
        CPU_ZERO(&narrow);
        CPU_SET(cpus[0], &narrow);
        if (is_narrow) CHECK_EQUAL(sched_setaffinity(0, sizeof narrow, &narrow), 0);
        vlc_context *a = mover.context = context_on("visited", cpus + 1, 1);
        CHECK_EQUAL(vlc_enter(a, &error), VLC_OK);
        check_mask(0, cpus + 1, 1);
        REQUIRE(!pthread_create(&other, NULL, resize_outer, (void *)cpus), "no thread");
        pthread_join(other, NULL);
        check_mask(0, cpus, is_narrow ? 1 : 2);
        CHECK_EQUAL(vlc_resize(a, cpus + 1, 1, &error), VLC_OK); /* from inside, too */
        check_mask(0, cpus + 1, 1);
        CHECK_EQUAL(vlc_leave(a, &error), VLC_OK);
        if (is_narrow) check_mask(0, cpus, 1);
        CHECK_EQUAL(sched_setaffinity(0, sizeof outside, &outside), 0);
        context_close(a);
    }
}

/* Nor does one that is inside of another context then, and comes back. */
static void resize_while_a_thread_is_elsewhere(const uint32_t *cpus) {
    vlc_error error = VLC_ERROR_INIT;
    vlc_task *task = NULL;
    mover.context = context_on("left", cpus, 1);
    memcpy(mover.cpus, cpus, sizeof mover.cpus);
    vlc_context *other = context_on("visited", cpus, 1);
    CHECK_EQUAL(vlc_submit(mover.context, enter_other, other, &task, &error), VLC_OK);
    CHECK_EQUAL(vlc_wait(task, NULL, &error), VLC_OK);
    context_close(other);
    context_close(mover.context);
}

/* A thread that is made on a visit to another context has the slice, and not what both have. */
static void check_threads_made_elsewhere(const uint32_t *cpus) {
    vlc_error error = VLC_ERROR_INIT;
    vlc_task *task = NULL;
    int32_t id;
    vlc_context *both = context_on("both", cpus, 2), *one = context_on("one", cpus, 1);
    CHECK_EQUAL(vlc_enter(one, &error), VLC_OK);
    CHECK_EQUAL(vlc_submit(both, nothing, NULL, &task, &error), VLC_OK);
    CHECK_EQUAL(vlc_leave(one, &error), VLC_OK);
    CHECK_EQUAL(vlc_wait(task, NULL, &error), VLC_OK);
    REQUIRE(vlc_threads(both, &id, 1) == 1, "not one thread");
    check_mask(id, cpus, 2);
    context_close(one);
    context_close(both);
}

int main(void) {
    uint32_t cpus[2], seen[4] = { 0 };
    two_cpus(cpus);
    size_t outside = process_cpus(NULL, 0);
    vlc_error error = VLC_ERROR_INIT;
    vlc_task *task = NULL;
    check_threads_made_elsewhere(cpus);
    vlc_context *a = context_on("a", cpus, 1);
    load(a, FIXTURE("cpus"), RTLD_NOW);
    load(a, FIXTURE("threads"), RTLD_NOW | RTLD_GLOBAL);
    probe count = find(a, NULL, "cpus_affinity"), has = find(a, NULL, "cpus_has");
    CHECK_EQUAL(call_named(a, NULL, "threads_park", 2), 0);
    CHECK_EQUAL(vlc_submit(a, nothing, NULL, &task, &error), VLC_OK);
    CHECK_EQUAL(vlc_wait(task, NULL, &error), VLC_OK);

    int32_t ids[8];
    size_t threads = vlc_threads(a, ids, 8);
    CHECK_EQUAL(threads, 3);
    for (int round = 0; round < 3; round++) {
        const uint32_t *slice = round == 0 ? cpus + 1 : cpus;
        size_t size = round == 1 ? 2 : 1;
        CHECK_EQUAL(vlc_resize(a, slice, size, &error), VLC_OK);
        CHECK_EQUAL(vlc_cpus(a, seen, 4), size);
        CHECK_EQUAL(seen[0], slice[0]);
        for (size_t i = 0; i < threads; i++) check_mask(ids[i], slice, size);
        CHECK_EQUAL(call(a, count, 0), (long)size);
        CHECK_EQUAL(call(a, has, (long)slice[0]), 1);
    }

    CHECK_EQUAL(vlc_resize(a, cpus + 1, 1, &error), VLC_OK);
    CHECK_EQUAL(process_cpus(NULL, 0), outside);

    uint32_t absent = 4095;
    CHECK_REFUSED(vlc_resize(a, &absent, 1, &error), error, VLC_BAD_ARGUMENT, "4095");
    CHECK_REFUSED(vlc_resize(a, cpus, 0, &error), error, VLC_BAD_ARGUMENT, "a");
    CHECK_EQUAL(vlc_cpus(a, seen, 4), 1); /* a refused call has changed nothing */
    CHECK_EQUAL(seen[0], cpus[1]);
    CHECK_EQUAL(call_named(a, NULL, "threads_leave", 0), 0);
    context_close(a);
    resize_while_threads_begin_and_move(cpus);
    resize_while_a_thread_is_elsewhere(cpus);
    visitors_move(cpus);
    resize_while_visitors_come_and_go(cpus);
    return check_result();
}
