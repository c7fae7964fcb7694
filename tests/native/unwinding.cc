// What unwinds through a context's frames: a host's exception, and pthread_exit on a host's thread.
#include <cstring>
#include <pthread.h>
#include <stdexcept>
#include <string>

#include "contexts.h"
#include "trace.h"

namespace {

using frames_call = void (*)(void (*)(void *), void *);
using frames_sort = void (*)(int *, std::size_t, int (*)(const void *, const void *));

frames_call through_context;

struct HostFrame {
    ~HostFrame() { trace("host-frame"); }
};

void throw_here(void *) {
    HostFrame frame;
    throw std::runtime_error("from the host");
}

int throw_seven(const void *, const void *) { throw 7; }

void exit_thread(void *) {
    HostFrame frame;
    pthread_exit(reinterpret_cast<void *>(3));
}

void *run_until_exit(void *) {
    HostFrame frame;
    through_context(exit_thread, nullptr);
    return nullptr;
}

// The same through a wrapped pointer, which is called outside of the context: it leaves on the way.
bool is_outside() {
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    return vlc_context_of(nullptr) == nullptr && CPU_COUNT(&set) > 1;
}

vlc_context *entered_further;

void throw_inside(void *) {
    HostFrame frame;
    CHECK(!is_outside(), "the wrapped pointer did not enter");
    if (entered_further) CHECK_EQUAL(vlc_enter(entered_further, nullptr), VLC_OK);
    throw std::runtime_error("through a wrapped pointer");
}

void wrapped_twice(void *argument) { reinterpret_cast<frames_call>(argument)(throw_inside, nullptr); }

std::string thrown_by(frames_call call, void (*function)(void *), void *argument) {
    try {
        call(function, argument);
    } catch (const std::exception &exception) {
        CHECK(is_outside(), "the handler of the host is inside of a context");
        return exception.what();
    }
    return "nothing";
}

void check_wrapped(int reader) {
    std::uint32_t cpus[2];
    two_cpus(cpus);
    vlc_context *a = context_on("a", cpus, 1), *b = context_on("b", cpus + 1, 1);
    vlc_library *library = load(a, FIXTURE("frames"), RTLD_NOW);
    vlc_library *other = load(b, FIXTURE("frames"), RTLD_NOW);
    const auto wrap = [](vlc_context *context, vlc_library *from) {
        void *wrapped = nullptr;
        vlc_wrap(context, reinterpret_cast<void *>(find(context, from, "frames_call")), &wrapped, nullptr);
        return reinterpret_cast<frames_call>(wrapped);
    };
    frames_call call_a = wrap(a, library), call_b = wrap(b, other);

    const std::string expected = "through a wrapped pointer";
    CHECK(thrown_by(call_a, throw_inside, nullptr) == expected, "another exception");
    CHECK_TEXT(trace_take(reader), "host-frame context-frame");
    if (dlsym(RTLD_DEFAULT,
              "_dl_find_object")) { // before glibc 2.35 an unwinder finds its own context's frames only
        CHECK(thrown_by(call_a, wrapped_twice, reinterpret_cast<void *>(call_b)) == expected,
              "another exception through two contexts");
        CHECK_TEXT(trace_take(reader), "host-frame context-frame context-frame");
    }
    entered_further = b; // and not left: whoever threw is past that
    CHECK(thrown_by(call_a, throw_inside, nullptr) == expected, "another exception");
    entered_further = nullptr;
    trace_take(reader);

    // Caught inside of the context's caller: the thread stays where it is.
    CHECK_EQUAL(vlc_enter(a, nullptr), VLC_OK);
    try {
        call_a(throw_inside, nullptr);
    } catch (const std::exception &) {
        CHECK(vlc_context_of(nullptr) == a, "an exception between calls of one context left it");
    }
    CHECK_EQUAL(vlc_leave(a, nullptr), VLC_OK);
    trace_take(reader);

    through_context = call_a;
    pthread_t thread;
    void *result = nullptr;
    REQUIRE(pthread_create(&thread, nullptr, run_until_exit, nullptr) == 0, "no thread");
    pthread_join(thread, &result);
    CHECK_EQUAL(reinterpret_cast<uintptr_t>(result), 3);
    CHECK_TEXT(trace_take(reader), "host-frame context-frame host-frame");
    context_close(a); // nobody is inside
    context_close(b);
}

// What the context's own libstdc++ throws, through its wrapped pointer to a handler of the host.
void check_thrown_by_context() {
    vlc_context *a = context_new("a");
    void *wrapped = nullptr;
    probe raise = find(a, load(a, FIXTURE("cxx_probe"), RTLD_NOW), "cxx_throw");
    CHECK_EQUAL(vlc_wrap(a, reinterpret_cast<void *>(raise), &wrapped, nullptr), VLC_OK);
    bool is_caught = false;
    try {
        reinterpret_cast<probe>(wrapped)(0);
    } catch (...) {
        is_caught = true;
        CHECK(is_outside(), "the handler of the host is inside of a context");
    }
    CHECK(is_caught, "nothing was thrown");
    context_close(a);
}

// While the library is loaded and in use, the host's own exceptions find their way.
void check_beside(const char *file, int reader) {
    vlc_context *context = context_new("beside");
    vlc_library *library = load(context, file, RTLD_NOW);
    through_context =
        reinterpret_cast<frames_call>(reinterpret_cast<void *>(find(context, library, "frames_call")));
    for (int round = 0; round < 2; round++) {
        through_context([](void *) { trace("called"); }, nullptr);
        CHECK_TEXT(trace_take(reader), "called context-frame");
        try {
            throw_here(nullptr);
        } catch (const std::exception &) {
            trace("caught");
        }
        CHECK_TEXT(trace_take(reader), "host-frame caught");
    }
    context_close(context);
}

} // namespace

int main() {
    int reader = trace_open();
    check_beside(FIXTURE("frames_bare"), reader);
    for (int round = 0; round < 3; round++) { // later rounds load in the place of what was unloaded
        vlc_context *context = context_new("a");
        vlc_library *library = load(context, FIXTURE("frames"), RTLD_NOW);
        through_context =
            reinterpret_cast<frames_call>(reinterpret_cast<void *>(find(context, library, "frames_call")));
        auto sort =
            reinterpret_cast<frames_sort>(reinterpret_cast<void *>(find(context, library, "frames_sort")));

        try {
            through_context(throw_here, nullptr);
            CHECK(false, "nothing was thrown");
        } catch (const std::exception &exception) {
            CHECK_TEXT(exception.what(), "from the host");
        }
        CHECK_TEXT(trace_take(reader), "host-frame context-frame");

        int numbers[3] = { 3, 2, 1 }, caught = 0;
        try {
            sort(numbers, 3, throw_seven);
        } catch (int value) {
            caught = value;
        }
        CHECK_EQUAL(caught, 7);
        CHECK_TEXT(trace_take(reader), "context-frame");

        pthread_t thread;
        void *result = nullptr;
        REQUIRE(pthread_create(&thread, nullptr, run_until_exit, nullptr) == 0, "no thread");
        pthread_join(thread, &result);
        CHECK_EQUAL(reinterpret_cast<uintptr_t>(result), 3);
        CHECK_TEXT(trace_take(reader), "host-frame context-frame host-frame");
        context_close(context);

        try { // the host's unwinder has forgotten what is no longer mapped
            throw_here(nullptr);
        } catch (const std::exception &) {
            trace("caught");
        }
        CHECK_TEXT(trace_take(reader), "host-frame caught");
    }
    check_wrapped(reader);
    check_thrown_by_context();
    return check_result();
}
