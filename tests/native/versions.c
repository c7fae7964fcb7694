/* Versions of symbols: each library gets the one that it was linked with, or an error that names what is missing. */
#include "contexts.h"

int main(void) {
    vlc_error error = VLC_ERROR_INIT;
    vlc_library *library = NULL;
    vlc_context *a = context_new("a");
    CHECK_EQUAL(call_named(a, load(a, FIXTURE("version_user_1"), RTLD_NOW), "version_ask", 10), 11);
    CHECK_EQUAL(call_named(a, load(a, FIXTURE("version_user_2"), RTLD_NOW), "version_ask", 10), 12);
    CHECK_EQUAL(call_named(a, load(a, FIXTURE("versioned"), RTLD_NOW), "answer", 10),
                12); /* unversioned: the default */

    CHECK_REFUSED(vlc_load(a, FIXTURE("version_user_3"), RTLD_NOW, &library, &error), error, VLC_LOAD_FAILED,
                  "V3");
    CHECK_WORDS(error.message, "libversioned.so");
    CHECK_WORDS(error.message, "libversion_user_3.so");
    CHECK(!is_mapped("libversion_user_3.so"), "the refused library stays mapped");
    context_close(a);
    return check_result();
}
