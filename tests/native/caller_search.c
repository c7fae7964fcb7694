/* L4: where a bare name is searched depends on who asks. DT_RPATH is inherited by what a library loads,
 * DT_RUNPATH serves only that library's own needs. The host's dlopen is asked too: as outside. */
#include "contexts.h"

/* A cluster's modules make LD_LIBRARY_PATH longer than any buffer that one would think of. */
static void check_long_path(void) {
    static char path[20000] = "LD_LIBRARY_PATH=";
    while (strlen(path) < 18000) strcat(path, "/nonexistent/a-folder-of-some-module/lib64:");
    strcat(path, FIXTURE_DIR "/deps");
    const char *const env[] = { path, NULL };
    vlc_spec spec = VLC_SPEC_INIT;
    spec.name = "long";
    spec.env = env;
    vlc_context *context = context_from(&spec);
    CHECK_EQUAL(call_named(context, load(context, "libneighbour.so", RTLD_NOW), "neighbour", 1), 2);
    context_close(context);
}

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
    if (!UNDER_SANITIZER)
        CHECK_EQUAL(((probe)dlsym(dlopen(FIXTURE("caller"), RTLD_NOW), "caller_open"))(10), 11);

    CHECK_EQUAL(((probe)dlsym(dlopen(FIXTURE("top_rpath"), RTLD_NOW), "top"))(1), 21);
    CHECK_EQUAL(call_named(a, load(a, FIXTURE("top_rpath"), RTLD_NOW), "top", 1), 21);
    /* A process of its own would tell more: here libbottom.so is loaded in `a`, and names find what is loaded. */
    CHECK_REFUSED(vlc_load(b, FIXTURE("top_runpath"), RTLD_NOW, &library, &error), error, VLC_LOAD_FAILED,
                  "libinherited.so");
    context_close(a);
    context_close(b);
    check_long_path();
    return check_result();
}
