/* vlcs.hpp: a C++17 face of vlcs.h. Header only; it adds no symbol to libvlcs.so.
 *
 *     vlcs::context blas(vlcs::options{}.name("blas").cpus({0, 1}));
 *     auto solve = blas.load("libfoo.so").function<double(int)>("solve");
 *     double answer = blas.run([&] { return solve(42); });
 *
 * Objects own what vlc_create gave and give it back; failures are exceptions (vlcs::error).
 * What is shared, what may fail and when is said in vlcs.h, function by function.
 */
#ifndef VLCS_HPP
#define VLCS_HPP

#include <vlcs.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <dlfcn.h>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace vlcs {

/* What a function of vlcs.h reported: what() is its message. */
class error : public std::runtime_error {
  public:
    explicit error(const vlc_error &record)
        : std::runtime_error(record.message), status_(static_cast<vlc_status>(record.status)),
          os_error_(record.os_error), subject_(record.subject) {}

    vlc_status status() const noexcept { return status_; }
    /* errno of the system's refusal, else 0. */
    int os_error() const noexcept { return os_error_; }
    /* The thing at fault: a path, a symbol, a CPU list. */
    const std::string &subject() const noexcept { return subject_; }

  private:
    vlc_status status_;
    int os_error_;
    std::string subject_;
};

namespace detail {

/* Calls function(arguments..., &record) and throws what it reports. */
template <typename Function, typename... Arguments> void check(Function function, Arguments... arguments) {
    vlc_error record = VLC_ERROR_INIT;
    if (function(arguments..., &record) != VLC_OK) throw error(record);
}

/* A callable with a place for its result or its exception, which must not cross the C frames. */
template <typename Callable> struct call {
    using result_type = std::invoke_result_t<Callable &>;
    static constexpr bool is_void = std::is_void_v<result_type>;
    static_assert(!std::is_reference_v<result_type>, "return a value or a pointer from a context");

    Callable callable;
    std::exception_ptr exception;
    std::optional<std::conditional_t<is_void, char, result_type>> result;

    explicit call(Callable c) : callable(std::move(c)) {}

    static void *invoke(void *argument) noexcept {
        auto *self = static_cast<call *>(argument);
        try {
            if constexpr (is_void)
                self->callable();
            else
                self->result.emplace(self->callable());
        } catch (...) {
            self->exception = std::current_exception();
        }
        return nullptr;
    }

    result_type take() {
        if (exception) std::rethrow_exception(exception);
        if constexpr (!is_void) return std::move(*result);
    }
};

} // namespace detail

/* A library of a context. Copies name the same one; valid as long as its context. */
class library {
  public:
    library(vlc_context *context, vlc_library *handle) noexcept : context_(context), handle_(handle) {}

    /* Address of a function or datum of the library or its dependencies. */
    void *symbol(const std::string &name) const {
        void *address = nullptr;
        detail::check(vlc_symbol, context_, handle_, name.c_str(), &address);
        return address;
    }

    /* The same as a pointer to a function: function<int(int)>("twice"). Call it inside the context. */
    template <typename Signature> Signature *function(const std::string &name) const {
        static_assert(std::is_function_v<Signature>, "a signature, as in function<double(int)>");
        return reinterpret_cast<Signature *>(symbol(name));
    }

    vlc_library *handle() const noexcept { return handle_; }

  private:
    vlc_context *context_;
    vlc_library *handle_;
};

/* Work handed to a context's own threads; get() waits for it, and so does the destructor. */
template <typename Callable> class task {
  public:
    task(std::unique_ptr<detail::call<Callable>> call, vlc_task *handle) noexcept
        : call_(std::move(call)), handle_(handle) {}
    task(task &&other) noexcept
        : call_(std::move(other.call_)), handle_(std::exchange(other.handle_, nullptr)) {}
    task(const task &) = delete;
    task &operator=(const task &) = delete;
    task &operator=(task &&) = delete;

    /* On a thread of that pool itself there is no waiting for it: the work keeps what it needs. */
    ~task() {
        if (handle_ && vlc_wait(handle_, nullptr, nullptr) != VLC_OK) call_.release();
    }

    /* What the callable returned or threw. Once. */
    auto get() {
        if (!handle_)
            throw std::logic_error(
                "vlcs::task::get: the result was taken already; keep it where you took it");
        detail::check(vlc_wait, handle_, static_cast<void **>(nullptr));
        handle_ = nullptr;
        return std::exchange(call_, nullptr)->take();
    }

  private:
    std::unique_ptr<detail::call<Callable>> call_;
    vlc_task *handle_;
};

/* What a context is asked for; as vlc_spec. */
class options {
  public:
    options &name(std::string value) {
        name_ = std::move(value);
        return *this;
    }
    options &cpus(std::vector<std::uint32_t> value) {
        cpus_ = std::move(value);
        return *this;
    }
    /* "NAME=value" sets, "NAME" removes. */
    options &env(std::vector<std::string> value) {
        env_ = std::move(value);
        return *this;
    }
    /* Sonames that bind to the host's copy. */
    options &share(std::vector<std::string> value) {
        share_ = std::move(value);
        return *this;
    }
    /* VLC_HEAP_HOST: the host's free() takes blocks of the context. */
    options &heap(vlc_heap value) {
        heap_ = value;
        return *this;
    }
    /* Whether its code runs on threads of its own only; see vlc_residence. */
    options &residence(vlc_residence value) {
        residence_ = value;
        return *this;
    }
    options &scheduling(vlc_scheduling value) {
        scheduling_ = value;
        return *this;
    }
    /* The nice value of the context's own threads, -20 to 19. */
    options &nice(int value) {
        nice_ = value;
        return *this;
    }
    /* Control groups of its own threads, by their files of thread ids; see vlc_spec. */
    options &groups(std::vector<std::string> value) {
        groups_ = std::move(value);
        return *this;
    }
    /* On which NUMA nodes its memory lies; without nodes on those of its CPUs. See vlc_memory. */
    options &memory(vlc_memory policy, std::optional<std::vector<std::uint32_t>> nodes = std::nullopt) {
        memory_ = policy;
        nodes_ = std::move(nodes);
        return *this;
    }
    /* Bytes that its heap and mappings may take; see vlc_set_memory_limit. */
    options &memory_limit(std::uint64_t bytes) {
        memory_limit_ = bytes;
        return *this;
    }
    options &huge_pages(vlc_huge_pages value) {
        huge_pages_ = value;
        return *this;
    }
    /* Threads of the pool behind submit(). */
    options &threads(std::uint32_t value) {
        threads_ = value;
        return *this;
    }

    vlc_context *create() const {
        const auto env = pointers(env_);
        const auto share = pointers(share_);
        const auto groups = pointers(groups_);
        vlc_spec spec = VLC_SPEC_INIT;
        spec.threads = threads_;
        spec.residence = residence_;
        spec.name = name_ ? name_->c_str() : nullptr;
        /* An empty list is an error and not the default, so it must not look like one. */
        static const std::uint32_t none = 0;
        spec.cpus = cpus_ ? (cpus_->empty() ? &none : cpus_->data()) : nullptr;
        spec.cpu_count = cpus_ ? cpus_->size() : 0;
        spec.env = env.data();
        spec.share = share.data();
        spec.heap = heap_;
        spec.scheduling = scheduling_;
        spec.sets_nice = nice_.has_value();
        spec.nice = nice_.value_or(0);
        spec.groups = groups.data();
        spec.memory = memory_;
        spec.nodes = nodes_ ? (nodes_->empty() ? &none : nodes_->data()) : nullptr;
        spec.node_count = nodes_ ? nodes_->size() : 0;
        spec.memory_limit = memory_limit_;
        spec.huge_pages = huge_pages_;
        vlc_context *context = nullptr;
        detail::check(vlc_create, &spec, &context);
        return context;
    }

  private:
    static std::vector<const char *> pointers(const std::vector<std::string> &strings) {
        std::vector<const char *> list;
        for (const auto &string : strings) list.push_back(string.c_str());
        list.push_back(nullptr);
        return list;
    }

    std::optional<std::string> name_;
    std::optional<std::vector<std::uint32_t>> cpus_;
    std::vector<std::string> env_;
    std::vector<std::string> share_;
    std::uint32_t threads_ = 0;
    vlc_residence residence_ = VLC_RESIDENT_NEVER;
    vlc_heap heap_ = VLC_HEAP_OWN;
    vlc_scheduling scheduling_ = VLC_SCHEDULING_INHERITED;
    std::optional<int> nice_;
    std::vector<std::string> groups_;
    vlc_memory memory_ = VLC_MEMORY_DEFAULT;
    std::optional<std::vector<std::uint32_t>> nodes_;
    std::uint64_t memory_limit_ = 0;
    vlc_huge_pages huge_pages_ = VLC_HUGE_PAGES_DEFAULT;
};

/* Owns a context. Moves, does not copy. */
class context {
  public:
    explicit context(const options &asked = {}) : handle_(asked.create()) {}
    context(context &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    context &operator=(context &&other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    context(const context &) = delete;
    context &operator=(const context &) = delete;

    /* As close(), but a context that stays busy is left as it is, closed to new calls. */
    ~context() {
        if (handle_) vlc_destroy(handle_, -1, nullptr);
    }

    /* Ends the context and waits up to `timeout` for its threads; throws what vlc_destroy reports. */
    void close(std::chrono::milliseconds timeout = std::chrono::seconds(5)) {
        if (!handle_) return;
        detail::check(vlc_destroy, handle_, static_cast<int>(timeout.count()));
        handle_ = nullptr;
    }

    library load(const std::string &file, int flags = RTLD_NOW) {
        vlc_library *found = nullptr;
        detail::check(vlc_load, handle_, file.c_str(), flags, &found);
        return library(handle_, found);
    }

    /* Runs the callable on this thread inside the context; gives what it returns, throws what it throws. */
    template <typename Callable> auto run(Callable callable) {
        detail::call<Callable> call(std::move(callable));
        detail::check(vlc_run, handle_, &detail::call<Callable>::invoke, static_cast<void *>(&call),
                      static_cast<void **>(nullptr));
        return call.take();
    }

    /* The function as a pointer that enters the context when it is called, from any thread; as vlc_wrap. */
    template <typename Result, typename... Arguments> auto wrap(Result (*function)(Arguments...)) {
        void *wrapped = nullptr;
        detail::check(vlc_wrap, handle_, reinterpret_cast<void *>(function), &wrapped);
        return reinterpret_cast<Result (*)(Arguments...)>(wrapped);
    }

    /* Runs the callable on a thread of the context's own. */
    template <typename Callable> task<Callable> submit(Callable callable) {
        auto call = std::make_unique<detail::call<Callable>>(std::move(callable));
        vlc_task *handle = nullptr;
        detail::check(vlc_submit, handle_, &detail::call<Callable>::invoke, static_cast<void *>(call.get()),
                      &handle);
        return task<Callable>(std::move(call), handle);
    }

    void resize(const std::vector<std::uint32_t> &cpus) {
        detail::check(vlc_resize, handle_, cpus.data(), cpus.size());
    }

    std::vector<std::uint32_t> cpus() const {
        std::vector<std::uint32_t> list(vlc_cpus(handle_, nullptr, 0));
        list.resize(std::min(list.size(), vlc_cpus(handle_, list.data(), list.size())));
        return list;
    }

    std::string name() const { return vlc_name(handle_); }

    vlc_stats stats() const {
        vlc_stats figures = VLC_STATS_INIT;
        detail::check(vlc_get_stats, handle_, &figures);
        return figures;
    }

    /* The C handle; still owned here. */
    vlc_context *handle() const noexcept { return handle_; }

  private:
    vlc_context *handle_;
};

/* Inside the context from construction to destruction, to make many calls at the price of one entry. */
class entered {
  public:
    explicit entered(context &inside) : handle_(inside.handle()) { detail::check(vlc_enter, handle_); }
    ~entered() { vlc_leave(handle_, nullptr); }
    entered(const entered &) = delete;
    entered &operator=(const entered &) = delete;

  private:
    vlc_context *handle_;
};

} // namespace vlcs

#endif
