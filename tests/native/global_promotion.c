/* L2: a library opens another with RTLD_GLOBAL; a third finds its symbol there, in that context only. */
#include "contexts.h"

int main(void) {
    vlc_error error = VLC_ERROR_INIT;
    vlc_library *library = NULL;
    vlc_context *a = context_new("a"), *b = context_new("b");

    vlc_library *promoter = load(a, FIXTURE("promoter"), RTLD_NOW);
    CHECK_EQUAL(call_named(a, promoter, "promoter_found", 0), 1);
    vlc_library *consumer = load(a, FIXTURE("consumer"), RTLD_NOW);
    CHECK_EQUAL(call_named(a, consumer, "consume", 20), 42);

    CHECK_REFUSED(vlc_load(b, FIXTURE("consumer"), RTLD_NOW, &library, &error), error, VLC_LOAD_FAILED,
                  "provided");
    CHECK_WORDS(error.message, "libconsumer.so");
    CHECK(dlsym(RTLD_DEFAULT, "provided") == NULL, "the promotion reached the host");

    /* The same by the flags of vlc_load. */
    load(b, FIXTURE("counter"), RTLD_NOW);
    load(b, FIXTURE("provider"), RTLD_NOW | RTLD_LOCAL);
    CHECK_REFUSED(vlc_load(b, FIXTURE("consumer"), RTLD_NOW, &library, &error), error, VLC_LOAD_FAILED,
                  "provided");
    load(b, FIXTURE("provider"), RTLD_NOW | RTLD_GLOBAL);
    CHECK_EQUAL(call_named(b, load(b, FIXTURE("consumer"), RTLD_NOW), "consume", 20), 42);
    context_close(a);
    context_close(b);
    return check_result();
}
