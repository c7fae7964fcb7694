/* Threads of the host that enter parallel regions in a context, and live on when it is closed: the workers that
 * each of them got there end with it, and their next context's are new. */
#include <pthread.h>

#include "contexts.h"

enum { MASTERS = 3, WARM = 10, ROUNDS = 50, NUMBERS = 1000, WORKERS = 3 };

static pthread_barrier_t begin, end;
static vlc_context *context; /* the round's; NULL: there are no more */
static probe sum;

static void *enter(void *total) {
    vlc_error error = VLC_ERROR_INIT;
    void *found = NULL;
    long number = NUMBERS;
    int status = vlc_run(context, (vlc_function)(void (*)(void))sum, (void *)number, &found, &error);
    CHECK(status == VLC_OK, "%s", error.message);
    *(long *)total = (long)found;
    return NULL;
}

static void *master(void *total) {
    for (;;) {
        pthread_barrier_wait(&begin);
        if (!context) return NULL;
        enter(total);
        pthread_barrier_wait(&end);
    }
}

static void check_round(int round, long totals[MASTERS + 1]) {
    vlc_spec spec = VLC_SPEC_INIT; /* what idle workers wait on lies in either heap */
    spec.name = "parallel";
    spec.heap = round % 2 ? VLC_HEAP_HOST : VLC_HEAP_OWN;
    context = context_from(&spec);
    sum = find(context, load(context, FIXTURE("openmp"), RTLD_NOW), "openmp_sum");
    pthread_barrier_wait(&begin);
    enter(&totals[MASTERS]);
    pthread_barrier_wait(&end);
    for (int i = 0; i <= MASTERS; i++) CHECK_EQUAL(totals[i], (long)NUMBERS * (NUMBERS + 1) / 2);
    CHECK_EQUAL(vlc_threads(context, NULL, 0), (MASTERS + 1) * (WORKERS - 1));
    context_close(context); /* rounds of some seconds would be a timeout of ctest's */
    CHECK_EQUAL(thread_count(1 + MASTERS), 1 + MASTERS);
    CHECK(!is_mapped("libgomp"), "libgomp stays mapped");
}

int main(void) {
    pthread_t masters[MASTERS];
    long totals[MASTERS + 1], kilobytes = 0, mappings = 0;
    pthread_barrier_init(&begin, NULL, MASTERS + 1);
    pthread_barrier_init(&end, NULL, MASTERS + 1);
    for (int i = 0; i < MASTERS; i++)
        REQUIRE(pthread_create(&masters[i], NULL, master, &totals[i]) == 0, "no thread");
    for (int round = 0; round < ROUNDS; round++) {
        check_round(round, totals);
        if (round != WARM) continue;
        kilobytes = resident_kilobytes();
        mappings = mapping_count();
    }
    CHECK(UNDER_SANITIZER || resident_kilobytes() < kilobytes + 1024, "%d rounds left %ld kB", ROUNDS - WARM,
          resident_kilobytes() - kilobytes);
    CHECK(UNDER_SANITIZER || mapping_count() <= mappings + 8, "%ld mappings became %ld", mappings,
          mapping_count());
    context = NULL;
    pthread_barrier_wait(&begin);
    for (int i = 0; i < MASTERS; i++)
        pthread_join(masters[i], NULL); /* their ends call nothing that is gone */
    return check_result();
}
