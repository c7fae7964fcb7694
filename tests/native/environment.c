/* Environment variables: a copy at the start, private from then on. */
#include "contexts.h"

static const char *inside(vlc_context *context, const char *name) {
    const char *value = (const char *)call_named(context, NULL, "environment_get", (long)(uintptr_t)name);
    const char *scanned = (const char *)call_named(context, NULL, "environment_scan", (long)(uintptr_t)name);
    CHECK(value == scanned, "getenv and environ differ on %s", name);
    return value;
}

int main(void) {
    const char *const env[] = { "VLC_TEST_COLOUR=red", "VLC_TEST_REMOVED",
                                "VLC_TEST_EMPTY=", "MKL_NUM_THREADS=3", NULL };
    vlc_spec spec = VLC_SPEC_INIT;
    spec.name = "a";
    spec.env = env;
    setenv("VLC_TEST_COLOUR", "blue", 1);
    setenv("VLC_TEST_REMOVED", "here", 1);
    setenv("VLC_TEST_KEPT", "kept", 1);
    setenv("VLC_TEST_UNSET", "set", 1);
    setenv("OMP_NUM_THREADS", "1", 1);
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    setenv("MKL_NUM_THREADS", "1", 1);
    vlc_context *a = context_from(&spec), *b = context_new("b");
    load(a, FIXTURE("environment"), RTLD_NOW);
    load(b, FIXTURE("environment"), RTLD_NOW);

    CHECK_TEXT(inside(a, "VLC_TEST_COLOUR"), "red");
    CHECK(inside(a, "VLC_TEST_REMOVED") == NULL, "a removed variable is there");
    CHECK_TEXT(inside(a, "VLC_TEST_EMPTY"), "");
    CHECK_TEXT(inside(a, "VLC_TEST_KEPT"), "kept");
    CHECK_TEXT(inside(b, "VLC_TEST_COLOUR"), "blue");
    CHECK_TEXT(inside(b, "VLC_TEST_REMOVED"), "here");
    CHECK_TEXT(
        (const char *)call_named(a, NULL, "environment_secure_get", (long)(uintptr_t)"VLC_TEST_COLOUR"),
        "red");

    /* Counts of threads are meant for a whole machine: dropped, unless the context was given one. */
    CHECK(inside(a, "OMP_NUM_THREADS") == NULL, "OMP_NUM_THREADS was inherited");
    CHECK(inside(b, "OPENBLAS_NUM_THREADS") == NULL, "OPENBLAS_NUM_THREADS was inherited");
    CHECK_TEXT(inside(a, "MKL_NUM_THREADS"), "3");
    CHECK(inside(b, "MKL_NUM_THREADS") == NULL, "MKL_NUM_THREADS was inherited");
    CHECK_TEXT(getenv("OMP_NUM_THREADS"), "1"); /* the host keeps its own */

    CHECK_EQUAL(call_named(a, NULL, "environment_change", 0), 0);
    CHECK(getenv("VLC_TEST_SET") == NULL && getenv("VLC_TEST_PUT") == NULL, "a change reached the host");
    CHECK(inside(b, "VLC_TEST_SET") == NULL, "a change reached the other context");
    CHECK_TEXT(getenv("VLC_TEST_UNSET"), "set");
    CHECK_TEXT(inside(b, "VLC_TEST_UNSET"), "set");
    setenv("VLC_TEST_COLOUR", "green", 1);
    setenv("VLC_TEST_LATE", "late", 1);
    CHECK_TEXT(inside(a, "VLC_TEST_COLOUR"), "red");
    CHECK_TEXT(inside(b, "VLC_TEST_COLOUR"), "blue");
    CHECK(inside(b, "VLC_TEST_LATE") == NULL, "the host's later change reached a context");

    long wrong = call_named(b, NULL, "environment_replace", 0);
    CHECK(wrong == 0, "environment.c:%ld is not so", wrong);
    CHECK_TEXT(inside(b, "VLC_TEST_COLOUR"), "blue");
    CHECK_EQUAL(call_named(a, NULL, "environment_grow", 2000), 0);
    CHECK_EQUAL(call_named(a, NULL, "environment_clear", 0), 0);
    CHECK_TEXT(getenv("VLC_TEST_KEPT"), "kept");
    context_close(a);
    context_close(b);
    CHECK_TEXT(getenv("VLC_TEST_COLOUR"), "green");
    return check_result();
}
