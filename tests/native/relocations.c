/* One library in the layouts that linkers make: GNU or SysV hash, RELR, immediate binding, wide pages. */
#include "contexts.h"

#include <dlfcn.h>

/* Some linkers break it: binutils 2.35 drops IRELATIVE with -s. Then ld.so finds the same fault. */
static long outside(const char *file) {
    typedef long probe(long);
    probe *relocations = (probe *)dlsym(dlopen(file, RTLD_NOW), "relocations");
    return relocations ? relocations(0) : -1;
}

static void check_layout(const char *file) {
    vlc_context *a = context_new("a"), *b = context_new("b");
    long as_outside = outside(file);
    for (int lazy = 0; lazy < 2; lazy++) {
        vlc_context *context = lazy ? b : a;
        vlc_library *library = load(context, file, lazy ? RTLD_LAZY : RTLD_NOW);
        long wrong = call_named(context, library, "relocations", 0);
        CHECK(wrong == as_outside, "%s: relocations.c:%ld is not so", file, wrong);
        CHECK_EQUAL(call_named(context, library, "global_ifunc", 0), 12);
    }
    context_close(a);
    context_close(b);
}

int main(void) {
    check_layout(FIXTURE("relocations_gnu"));
    check_layout(FIXTURE("relocations_sysv"));
    check_layout(FIXTURE("relocations_now"));
    check_layout(FIXTURE("relocations_wide"));
    check_layout(FIXTURE("relocations_stripped"));
#ifdef HAVE_RELR
    check_layout(FIXTURE("relocations_relr"));
    return check_result();
#else
    if (check_failures) return check_result();
    SKIP("no-relr", "this linker does not know -z pack-relative-relocs");
#endif
}
