/* STB_GNU_UNIQUE: one per context, also between local libraries, and gone with a load that failed. */
#include "contexts.h"

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
    return check_result();
}
