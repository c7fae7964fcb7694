/* OpenBLAS, with the thread pool that it makes when it loads: right in two contexts at once, and gone with them. */
#include "contexts.h"

#ifndef OPENBLAS_FILE
#define OPENBLAS_FILE "libopenblas.so.0"
#endif

typedef void (*dgemm)(int, int, int, int, int, int, double, const double *, int, const double *, int, double,
                      double *, int);

enum { SIZE = 150 };

static double a[SIZE * SIZE], b[SIZE * SIZE], c[SIZE * SIZE];

static void multiply(vlc_context *context) {
    vlc_error error = VLC_ERROR_INIT;
    dgemm function = (dgemm)(void *)find(context, NULL, "cblas_dgemm");
    memset(c, 0, sizeof c);
    REQUIRE(vlc_enter(context, &error) == VLC_OK, "%s", error.message);
    function(101, 111, 111, SIZE, SIZE, SIZE, 1.0, a, SIZE, b, SIZE, 0.0, c, SIZE);
    REQUIRE(vlc_leave(context, &error) == VLC_OK, "%s", error.message);
    for (int i = 0; i < SIZE; i += 7)
        for (int j = 0; j < SIZE; j += 11) {
            double sum = 0;
            for (int k = 0; k < SIZE; k++) sum += a[i * SIZE + k] * b[k * SIZE + j];
            REQUIRE(c[i * SIZE + j] - sum < 1e-9 && sum - c[i * SIZE + j] < 1e-9, "an element is wrong");
        }
}

int main(void) {
    uint32_t cpus[2];
    vlc_error error = VLC_ERROR_INIT;
    vlc_library *library = NULL;
    vlc_context *first = context_new("probe");
    int status = vlc_load(first, OPENBLAS_FILE, RTLD_NOW, &library, &error);
    context_close(first);
    if (status != VLC_OK && strstr(error.message, "libopenblas.so.0"))
        SKIP("no-openblas", "Debian's libopenblas0-pthread is not installed");
    REQUIRE(status == VLC_OK, "%s", error.message);
    for (int i = 0; i < SIZE * SIZE; i++) {
        a[i] = i % 13 - 6;
        b[i] = i % 17 - 8;
    }

    two_cpus(cpus);
    for (size_t count = 1; count <= 2; count++) { /* it asks for the slice */
        vlc_context *context = context_on("slice", cpus, count);
        load(context, OPENBLAS_FILE, RTLD_NOW);
        int (*threads)(void) = (int (*)(void))(void *)find(context, NULL, "openblas_get_num_threads");
        CHECK_EQUAL(threads(), count);
        multiply(context);
        context_close(context);
    }

    long kilobytes = 0, mappings = 0;
    for (int round = 0; round < 15; round++) {
        vlc_context *one = context_on("one", cpus, 2), *two = context_on("two", cpus, 2);
        load(one, OPENBLAS_FILE, RTLD_NOW);
        load(two, OPENBLAS_FILE, RTLD_NOW);
        multiply(one);
        multiply(two);
        context_close(one);
        multiply(two);
        context_close(two);
        if (round == 4) {
            kilobytes = resident_kilobytes();
            mappings = mapping_count();
        }
    }
    CHECK(UNDER_SANITIZER || resident_kilobytes() < kilobytes + 2048, "20 contexts left %ld kB",
          resident_kilobytes() - kilobytes);
    CHECK(UNDER_SANITIZER || mapping_count() <= mappings + 2, "%ld mappings became %ld", mappings,
          mapping_count());
    CHECK(!is_mapped("libopenblas"), "libopenblas stays mapped");
    return check_result();
}
