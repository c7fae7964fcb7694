/* L1: one library in two contexts and in the host: three counters, each counts alone. */
#include "contexts.h"

int main(void) {
    vlc_context *a = context_new("a"), *b = context_new("b");
    vlc_library *in_a = load(a, FIXTURE("counter"), RTLD_NOW), *in_b = load(b, FIXTURE("counter"), RTLD_NOW);
    void *in_host = dlopen(FIXTURE("counter"), RTLD_NOW);
    REQUIRE(in_host != NULL, "%s", dlerror());
    probe next_a = find(a, in_a, "counter_next"), next_b = find(b, in_b, "counter_next");
    probe next_host = (probe)dlsym(in_host, "counter_next");

    CHECK(next_a != next_b && next_a != next_host && next_b != next_host, "two of three have one address");
    CHECK_EQUAL(call(a, next_a, 1), 1);
    CHECK_EQUAL(call(b, next_b, 10), 10);
    CHECK_EQUAL(next_host(100), 100);
    CHECK_EQUAL(call(a, next_a, 1), 2);
    CHECK_EQUAL(call(b, next_b, 10), 20);
    CHECK_EQUAL(next_host(100), 200);

    CHECK_EQUAL(call_named(a, in_a, "counter_next_of_thread", 1), 101);
    CHECK_EQUAL(call_named(b, in_b, "counter_next_of_thread", 2), 102);
    CHECK_EQUAL(((probe)dlsym(in_host, "counter_next_of_thread"))(3), 103);

    CHECK(vlc_context_of((void *)next_a) == a, "the address of a's function belongs to another context");
    CHECK(vlc_context_of((void *)next_b) == b, "the address of b's function belongs to another context");
    CHECK(vlc_context_of((void *)next_host) == NULL, "the host's function belongs to a context");
    CHECK(vlc_context_of(NULL) == NULL, "this thread is inside of a context");

    CHECK(load(a, FIXTURE("counter"), RTLD_NOW) == in_a, "a second load gave another library");
    CHECK_EQUAL(call(a, find(a, NULL, "counter_next"), 1), 3); /* NULL: the context's global scope */
    CHECK_TEXT(vlc_library_path(a, 0), FIXTURE("counter"));
    CHECK_TEXT(vlc_name(a), "a");

    context_close(a);
    CHECK_EQUAL(call(b, next_b, 10), 30);
    CHECK_EQUAL(next_host(100), 300);
    context_close(b);
    CHECK_EQUAL(next_host(100), 400);
    dlclose(in_host);
    CHECK(!is_mapped("libcounter.so"), "libcounter.so stays mapped");
    return check_result();
}
