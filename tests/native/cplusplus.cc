// vlcs.hpp: the header-only C++ face; contexts as objects, failures as exceptions.
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <vector>

#include "contexts.h"
#include "vlcs.hpp"

int main() {
    uint32_t cpu = 0;
    process_cpus(&cpu, 1);
    {
        vlcs::context context(
            vlcs::options{}.name("plus").cpus({ cpu }).env({ "VLC_TEST_COLOUR=red" }).threads(2));
        std::string name = context.name();
        CHECK_TEXT(name.c_str(), "plus");
        CHECK_EQUAL(context.cpus().size(), 1);
        vlcs::library library = context.load(FIXTURE("counter"));
        auto next = library.function<long(long)>("counter_next");
        CHECK_EQUAL(context.run([&] { return next(5); }), 5);
        std::string text = context.run([&] { return std::to_string(next(1)); });
        CHECK_TEXT(text.c_str(), "6");
        auto task = context.submit([&] { return next(1); });
        CHECK_EQUAL(task.get(), 7);
        context.run([&] { next(1); }); // nothing to give back
        {
            vlcs::entered inside(context);
            CHECK(vlc_context_of(nullptr) == context.handle(), "not inside");
            CHECK_EQUAL(next(1), 9);
        }
        CHECK(vlc_context_of(nullptr) == nullptr, "still inside");
        try { // an exception of the callable's comes home
            context.run([]() -> int { throw std::out_of_range("from the callable"); });
            CHECK(false, "nothing was thrown");
        } catch (const std::out_of_range &exception) {
            CHECK_TEXT(exception.what(), "from the callable");
        }
        try {
            context.load("libabsent-anywhere.so.3");
            CHECK(false, "nothing was thrown");
        } catch (const vlcs::error &error) {
            CHECK_EQUAL(error.status(), VLC_LOAD_FAILED);
            CHECK_WORDS(error.what(), "libabsent-anywhere.so.3");
        }
        const auto wrapped = context.wrap(next);
        CHECK_EQUAL(wrapped(1), 10);
        vlcs::context moved = std::move(context);
        CHECK_EQUAL(moved.stats().libraries, 1);
        moved.close();
        moved.close(); // twice is once
        CHECK_EQUAL(wrapped(1), 0);
    }
    {
        vlcs::context context(vlcs::options{}.heap(VLC_HEAP_HOST));
        std::free(context.load(FIXTURE("heap")).function<void *(long)>("heap_give")(100));
    }
    {
        vlcs::options asked;
        asked.nice(19).scheduling(VLC_SCHEDULING_IDLE).groups({ "/nowhere/tasks" });
        vlcs::context context(asked);
        CHECK_EQUAL(context.submit([] { return getpriority(PRIO_PROCESS, 0); }).get(), 19);
    }
    try {
        vlcs::context refused(vlcs::options{}.cpus({}));
        CHECK(false, "nothing was thrown");
    } catch (const vlcs::error &error) {
        CHECK_EQUAL(error.status(), VLC_BAD_ARGUMENT);
    }
    vlc_limits limits = {};
    limits.size = sizeof limits;
    CHECK_EQUAL(vlc_get_limits(&limits, nullptr), VLC_OK);
    CHECK_EQUAL(limits.contexts, 0);
    return check_result();
}
