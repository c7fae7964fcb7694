// What unwinds through a context's frames: a host's exception, and pthread_exit on a host's thread.
#include <cstring>
#include <pthread.h>
#include <stdexcept>

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
    return check_result();
}
