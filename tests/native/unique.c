/* STB_GNU_UNIQUE: one per context, also between local libraries, and gone with a load that failed. */
#include "contexts.h"

enum { DATA = 200 }; /* more than the first table of names holds */

/* As callers do who put names together: the memory of the name is another's afterwards. */
static void *find_by_passing_name(vlc_context *context, vlc_library *library, int number) {
    char *name = malloc(40);
    snprintf(name, 40, "unique_datum_%d", number);
    void *address = (void *)find(context, library, name);
    memset(name, 'x', 39);
    free(name);
    return address;
}

static void check_passing_names(int by_host) {
    void *met[DATA];
    vlc_context *context = context_new("named");
    vlc_library *first = load(context, FIXTURE("unique_data_1"), RTLD_NOW);
    vlc_library *second = load(context, FIXTURE("unique_data_2"), RTLD_NOW);
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < DATA; i++) {
            void *address = by_host
                                ? find_by_passing_name(context, round ? second : first, i)
                                : (void *)call_named(context, round ? second : first, "unique_address", i);
            CHECK(address && (!round || address == met[i]), "unique_datum_%d is at %p, and was at %p", i,
                  address, met[i]);
            met[i] = address;
        }
    context_close(context);
}

int main(void) {
    vlc_error error = VLC_ERROR_INIT;
    vlc_library *library = NULL;
    vlc_context *a = context_new("a"), *b = context_new("b");

    /* The library that fails enters its symbol first. */
    CHECK_REFUSED(vlc_load(a, FIXTURE("unique_broken"), RTLD_NOW, &library, &error), error, VLC_LOAD_FAILED,
                  "unique_absent");
    CHECK(!is_mapped("libunique_broken.so"), "the refused library stays mapped");

    probe a1 = find(a, load(a, FIXTURE("unique_1"), RTLD_NOW | RTLD_LOCAL), "unique_next");
    probe a2 = find(a, load(a, FIXTURE("unique_2"), RTLD_NOW | RTLD_LOCAL), "unique_next");
    probe b2 = find(b, load(b, FIXTURE("unique_2"), RTLD_NOW | RTLD_LOCAL), "unique_next");
    CHECK_EQUAL(call(a, a1, 1), 2);
    CHECK_EQUAL(call(a, a2, 1), 3);
    CHECK_EQUAL(call(b, b2, 1), 2);
    context_close(a);
    CHECK_EQUAL(call(b, b2, 1), 3);

    a = context_new("a");
    CHECK_EQUAL(call_named(a, load(a, FIXTURE("unique_1"), RTLD_NOW), "unique_next", 1), 2);
    context_close(a);
    context_close(b);

    check_passing_names(1);
    check_passing_names(0);
    return check_result();
}
