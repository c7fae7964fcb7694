/* L4: where a bare name is searched depends on who asks. DT_RPATH is inherited by what a library loads,
 * DT_RUNPATH serves only that library's own needs. The host's dlopen is asked too: as outside. */
#include "contexts.h"

int main(void) {
    vlc_error error = VLC_ERROR_INIT;
    vlc_library *library = NULL;
    char words[256];
    vlc_context *a = context_new("a"), *b = context_new("b");

    CHECK(dlopen("libneighbour.so", RTLD_NOW) == NULL, "the host finds the neighbour by its bare name");
    CHECK_REFUSED(vlc_load(a, "libneighbour.so", RTLD_NOW, &library, &error), error, VLC_LOAD_FAILED,
                  "libneighbour.so");

    vlc_library *caller_a = load(a, FIXTURE("caller"), RTLD_NOW),
                *caller_b = load(b, FIXTURE("caller"), RTLD_NOW);
    CHECK_EQUAL(call_named(a, caller_a, "caller_open", 10), 11);
    CHECK_EQUAL(call_named(a, caller_a, "caller_open", 10), 12); /* opened again: the same copy */
    CHECK_EQUAL(call_named(b, caller_b, "caller_open", 10), 11);
    CHECK_EQUAL(call_named(a, caller_a, "caller_open_absent", (long)(uintptr_t)words), 0);
    CHECK_WORDS(words, "libabsent-of-caller.so");
    if (!UNDER_ASAN) CHECK_EQUAL(((probe)dlsym(dlopen(FIXTURE("caller"), RTLD_NOW), "caller_open"))(10), 11);

    CHECK_EQUAL(((probe)dlsym(dlopen(FIXTURE("top_rpath"), RTLD_NOW), "top"))(1), 21);
    CHECK_EQUAL(call_named(a, load(a, FIXTURE("top_rpath"), RTLD_NOW), "top", 1), 21);
    /* A process of its own would tell more: here libbottom.so is loaded in `a`, and names find what is loaded. */
    CHECK_REFUSED(vlc_load(b, FIXTURE("top_runpath"), RTLD_NOW, &library, &error), error, VLC_LOAD_FAILED,
                  "libinherited.so");
    context_close(a);
    context_close(b);
    return check_result();
}
