/* When static TLS runs out: an error that says so, earlier contexts work on, and what was given back serves again. */
#include "contexts.h"

enum { MOST = 2000 };

int main(void) {
    static vlc_context *contexts[MOST];
    vlc_error error = VLC_ERROR_INIT;
    vlc_library *library = NULL;
    int count = 0, status = VLC_OK;
    for (; count < MOST; count++) {
        contexts[count] = context_new(NULL);
        status = vlc_load(contexts[count], FIXTURE("tls_initial"), RTLD_NOW, &library, &error);
        if (status != VLC_OK) break;
        CHECK_EQUAL(call_named(contexts[count], NULL, "tls_probe", 1), 0);
    }
    REQUIRE(status == VLC_LIMIT, "after %d contexts: %s", count, error.message);
    CHECK(count >= 2, "the pool served %d contexts", count);
    CHECK_WORDS(error.message, "libtls_initial.so");
    CHECK_WORDS(error.message, "vlcs run"); /* the cure */
    CHECK_EQUAL(
        call_named(contexts[count], load(contexts[count], FIXTURE("counter"), RTLD_NOW), "counter_next", 5),
        5);

    for (int i = 0; i < count; i++) CHECK_EQUAL(call_named(contexts[i], NULL, "tls_probe", 2), 0);
    context_close(contexts[0]);
    CHECK_EQUAL(
        call_named(contexts[count], load(contexts[count], FIXTURE("tls_initial"), RTLD_NOW), "tls_probe", 1),
        0);
    for (int i = 1; i <= count; i++) context_close(contexts[i]);
    return check_result();
}
