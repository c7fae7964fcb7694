/* dladdr, dlinfo, dl_iterate_phdr, dlopen(NULL) and RTLD_NEXT, asked inside two contexts. */
#include "contexts.h"

#include <pthread.h>

__attribute__((visibility("default"))) long symbol_of_the_program(void);
long symbol_of_the_program(void) { return 1; }

static void check_context(vlc_context *context) {
    vlc_library *library = load(context, FIXTURE("introspect"), RTLD_NOW);
    static const char *const questions[] = { "introspect_address", "introspect_handles", "introspect_objects",
                                             "introspect_errors" };
    for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++) {
        long wrong = call_named(context, library, questions[i], 0);
        CHECK(wrong == 0, "%s: introspect.c:%ld is not so", questions[i], wrong);
    }
}

static void *walk(void *exclusion) { return (void *)((probe)exclusion)(300); }

static void check_exclusion(vlc_context *context) {
    probe exclusion = find(context, load(context, FIXTURE("introspect"), RTLD_NOW), "introspect_exclusion");
    pthread_t other;
    REQUIRE(pthread_create(&other, NULL, walk, (void *)exclusion) == 0, "no thread");
    long met = call(context, exclusion, 300);
    void *met_other;
    pthread_join(other, &met_other);
    CHECK(!met && !met_other, "two walks of one context's objects overlapped");
}

int main(void) {
    REQUIRE(dlsym(RTLD_DEFAULT, "symbol_of_the_program") != NULL, "the program does not export its symbols");
    vlc_context *a = context_new("a"), *b = context_new("b");
    check_context(a);
    check_context(b);
    check_exclusion(a);
    context_close(a);
    context_close(b);

    a = context_new("a");
    CHECK_EQUAL(call_named(a, load(a, FIXTURE("next_wrapper"), RTLD_NOW), "wrapped", 1), 200);
    context_close(a);
    return check_result();
}
