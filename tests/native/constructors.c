/* Constructors run from the bottom up, destructors from the top down, each once. */
#include "contexts.h"
#include "trace.h"

#define BEGIN "+lower1 +lower2 +upper1 +upper2"
#define END "-upper2 -upper1 -lower2 -lower1"

int main(void) {
    int reader = trace_open();
    vlc_context *a = context_new("a");
    vlc_library *upper = load(a, FIXTURE("order_upper"), RTLD_NOW);
    CHECK_TEXT(trace_take(reader), BEGIN);
    load(a, FIXTURE("order_lower"), RTLD_NOW);
    load(a, FIXTURE("order_upper"), RTLD_NOW);
    CHECK_TEXT(trace_take(reader), "");
    CHECK_EQUAL(call_named(a, upper, "order_above", 1), 2);

    vlc_context *b = context_new("b");
    load(b, FIXTURE("order_upper"), RTLD_NOW);
    CHECK_TEXT(trace_take(reader), BEGIN);
    context_close(a);
    CHECK_TEXT(trace_take(reader), END);
    context_close(b);
    CHECK_TEXT(trace_take(reader), END);

    /* Several roots: the last loaded ends first. */
    a = context_new("a");
    load(a, FIXTURE("order_lower"), RTLD_NOW);
    CHECK_TEXT(trace_take(reader), "+lower1 +lower2");
    load(a, FIXTURE("order_upper"), RTLD_NOW);
    CHECK_TEXT(trace_take(reader), "+upper1 +upper2");
    context_close(a);
    CHECK_TEXT(trace_take(reader), END);
    return check_result();
}
