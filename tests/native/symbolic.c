/* Who defines a symbol that several libraries have: the root, but for a -Bsymbolic library itself. */
#include "contexts.h"

int main(void) {
    vlc_context *a = context_new("a");
    vlc_library *root = load(a, FIXTURE("which_root"), RTLD_NOW);
    CHECK_EQUAL(call_named(a, root, "ask_both", 0), 21);
    context_close(a);

    /* A local library is searched after the global scope, and its own definition is found last. */
    a = context_new("a");
    load(a, FIXTURE("which_plain"), RTLD_NOW);
    CHECK_EQUAL(call_named(a, NULL, "ask_plain", 0), 3);
    context_close(a);
    return check_result();
}
