#include "context/wrap.h"

#include "context/companion.h"
#include "context/context.h"
#include "loader/arch.h"
#include "loader/error.h"
#include "loader/memory.h"
#include "loader/thread.h"
#include "loader/thunks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A weak reference to a context, never freed. A call counts itself first and looks at the context then; who ends
 * the context clears it first and looks at the count then, so that one of the two sees the other. */
struct vlci_weak {
    _Atomic(vlc_context *) context; /* NULL: calls do nothing any more */
    _Atomic(int) calls;             /* that are inside, or find out that they do nothing */
    struct vlci_wrapper **wrappers; /* by function, open addressing */
    size_t capacity, count;         /* a power of two */
};

/* Thunks mapped from our file once more, and what each of them is for. */
#define BLOCK_CODE ((size_t)VLCI_WRAPPERS * VLCI_WRAPPER_SIZE)
struct block {
    struct block *next;
    char *code;
    struct vlci_wrapper *wrappers;
    size_t used;
};

static vlci_lock lock;
static struct block *blocks; /* newest first; only that one has room */
static uint64_t wrapper_count;
static _Atomic(uint64_t) late_calls;

/* ---- making -------------------------------------------------------------------------------------------- */

static int block_make(vlc_error *error) {
    struct block *block = calloc(1, sizeof *block);
    char *code = block
                     ? mmap(NULL, 2 * BLOCK_CODE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                     : MAP_FAILED;
    if (code == MAP_FAILED) {
        free(block);
        return vlci_fail(error, VLC_SYSTEM, errno, "vlc_wrap", "cannot wrap a pointer: %s", strerror(errno));
    }
    int status = vlci_thunks_map(code, vlci_wrapper_code, BLOCK_CODE, error);
    if (status) {
        munmap(code, 2 * BLOCK_CODE);
        free(block);
        return status;
    }
    block->code = code;
    block->wrappers = (struct vlci_wrapper *)(code + BLOCK_CODE);
    block->wrappers[0].function = (void *)vlci_wrapped_entry;
    block->used = 1;
    block->next = blocks;
    blocks = block;
    return VLC_OK;
}

static struct vlci_wrapper **place_of(const struct vlci_weak *weak, const void *function) {
    size_t at = ((uintptr_t)function >> 4) * 0x9e3779b97f4a7c15u >> 20;
    for (;; at++) {
        struct vlci_wrapper **place = &weak->wrappers[at & (weak->capacity - 1)];
        if (!*place || (*place)->function == function) return place;
    }
}

/* Room for one more; at most half of the places are taken. */
static bool has_room(struct vlci_weak *weak) {
    if (weak->count < weak->capacity / 2) return true;
    struct vlci_weak larger = { .capacity = weak->capacity ? weak->capacity * 2 : 16 };
    larger.wrappers = vlci_memory_take(larger.capacity * sizeof *larger.wrappers);
    if (!larger.wrappers) return false;
    for (size_t i = 0; i < weak->capacity; i++)
        if (weak->wrappers[i]) *place_of(&larger, weak->wrappers[i]->function) = weak->wrappers[i];
    vlci_memory_give(weak->wrappers, weak->capacity * sizeof *weak->wrappers);
    weak->wrappers = larger.wrappers;
    weak->capacity = larger.capacity;
    return true;
}

static void *address_of(const struct vlci_wrapper *wrapper) { return (char *)wrapper - BLOCK_CODE; }

static bool is_wrapper_of(const struct vlci_weak *weak, const char *function) {
    for (const struct block *block = blocks; block; block = block->next)
        if (function >= block->code && function < block->code + BLOCK_CODE)
            return ((const struct vlci_wrapper *)(function + BLOCK_CODE))->weak == weak;
    return false;
}

static int out_of_memory(vlc_context *context, vlc_error *error) {
    return vlci_fail(error, VLC_SYSTEM, ENOMEM, context->name,
                     "cannot wrap a pointer of context '%s': out of memory", context->name);
}

static struct vlci_weak *weak_of(vlc_context *context) {
    VLCI_HOLD(&lock);
    if (!context->weak && (context->weak = vlci_memory_take(sizeof *context->weak)))
        atomic_store(&context->weak->context, context);
    return context->weak;
}

int vlc_wrap(vlc_context *context, void *function, void **wrapped, vlc_error *error) {
    if (!function)
        return vlci_fail(error, VLC_BAD_ARGUMENT, 0, context->name,
                         "cannot wrap NULL in context '%s'; give a function", context->name);
    int status = vlci_context_check_open(context, error);
    if (status) return status;
    struct vlci_weak *weak = weak_of(context);
    if (!weak) return out_of_memory(context, error);
    if (!atomic_load(&weak->context))
        return vlci_fail(error, VLC_MISUSE, 0, context->name,
                         "cannot wrap a pointer of context '%s': it is about to be closed", context->name);
    VLCI_HOLD(&lock);
    if (is_wrapper_of(weak, function)) {
        *wrapped = function;
        return VLC_OK;
    }
    if (!has_room(weak)) return out_of_memory(context, error);
    struct vlci_wrapper **place = place_of(weak, function);
    if (!*place) {
        if ((!blocks || blocks->used == VLCI_WRAPPERS) && (status = block_make(error))) return status;
        *place = &blocks->wrappers[blocks->used++];
        **place = (struct vlci_wrapper){ function, weak };
        weak->count++;
        wrapper_count++;
    }
    *wrapped = address_of(*place);
    return VLC_OK;
}

int vlc_retire(vlc_context *context, int timeout_ms, vlc_error *error) {
    if (vlci_visit_is_inside(context))
        return vlci_fail(
            error, VLC_MISUSE, 0, context->name,
            "cannot retire the wrapped pointers of context '%s' from inside: this thread runs in it",
            context->name);
    struct vlci_weak *weak = weak_of(context);
    if (!weak) return out_of_memory(context, error);
    atomic_store(&weak->context, NULL);
    vlci_wait_zero(&weak->calls, vlci_deadline(timeout_ms));
    int calls = atomic_load(&weak->calls);
    if (!calls) return VLC_OK;
    return vlci_fail(
        error, VLC_BUSY, 0, context->name,
        "cannot retire the wrapped pointers of context '%s' yet: %d calls of them are still inside; let "
        "them return",
        context->name, calls);
}

/* Nobody is inside, so the calls that it waits for are those that find that out. */
void vlci_wrap_forget(vlc_context *context) {
    struct vlci_weak *weak = context->weak;
    if (!weak) return;
    atomic_store(&weak->context, NULL);
    while (atomic_load(&weak->calls)) sched_yield();
    VLCI_HOLD(&lock);
    vlci_memory_give(weak->wrappers, weak->capacity * sizeof *weak->wrappers);
    weak->wrappers = NULL;
    weak->capacity = weak->count = 0;
}

uint64_t vlci_wrap_count(void) {
    VLCI_HOLD(&lock);
    return wrapper_count;
}

uint64_t vlci_wrap_late_calls(void) { return atomic_load(&late_calls); }

/* In the child the calls of other threads are gone. */
void vlci_wrap_fork(vlc_context *current, enum vlci_fork when) {
    vlci_lock_fork(&lock, when);
    if (when != VLCI_FORK_CHILD || !current || !current->weak) return;
    int calls = 0;
    for (const struct vlci_visit *visit = vlci_thread_current->visit; visit; visit = visit->outer)
        calls += visit->is_wrapped && visit->context == current;
    atomic_store(&current->weak->calls, calls);
}

/* ---- being called -------------------------------------------------------------------------------------- */

static void call_ended(struct vlci_weak *weak) {
    bool is_awaited = !atomic_load(&weak->context);
    if (atomic_fetch_sub(&weak->calls, 1) == 1 && is_awaited) vlci_os_wake_word(&weak->calls);
}

/* Counts a call, and a visit of the context, which then stays until it ends. NULL: it is closed, or gone. */
static vlc_context *call_begins(struct vlci_weak *weak) {
    atomic_fetch_add(&weak->calls, 1);
    vlc_context *context = atomic_load(&weak->context);
    if (context && vlci_visit_is_inside(context))
        atomic_fetch_add(&context->visits,
                         1); /* also while it closes: that waits for the visit further out */
    else if (context && !vlci_context_visit_begins(context))
        context = NULL;
    if (!context) call_ended(weak);
    return context;
}

void vlci_wrap_visit_ended(vlc_context *context, bool is_wrapped) {
    struct vlci_weak *weak = is_wrapped ? context->weak : NULL;
    vlci_context_visit_ended(context); /* by now it may be gone */
    if (weak) call_ended(weak);
}

static void leave(void) {
    vlc_context *context = vlci_thread_current->visit->context;
    bool is_wrapped = vlci_thread_current->visit->is_wrapped;
    vlci_visit_leave(context);
    vlci_wrap_visit_ended(context, is_wrapped);
}

/* Nobody knows how many arguments there are, so the same number of bytes is always passed on; what is not an
 * argument does no harm. But the caller's frame may be the first of its stack. */
static size_t stack_size(const char *stack) {
    size_t to_page_end = VLCI_PAGE - (uintptr_t)stack % VLCI_PAGE;
    bool is_whole = to_page_end >= VLC_WRAP_STACK || vlci_os_is_readable(stack + to_page_end);
    return is_whole ? VLC_WRAP_STACK : to_page_end;
}

static void *run_call(void *call) {
    vlci_arch_call(call);
    return NULL;
}

static void is_over(vlc_context *context, struct vlci_weak *weak) {
    vlci_context_visit_ended(context); /* by now it may be gone */
    call_ended(weak);
}

/* On this thread, or on the one that stands for it in a resident context. */
static bool make_call(vlc_context *context, struct vlci_weak *weak, struct vlci_arch_call *call) {
    if (vlci_is_foreign(context)) {
        bool is_made = !vlci_hand_over(context, run_call, call, NULL, NULL);
        is_over(context, weak);
        return is_made;
    }
    if (vlci_visit_enter(context, NULL)) {
        is_over(context, weak);
        return false;
    }
    vlci_thread_current->visit->is_wrapped = true;
    vlci_arch_call(call);
    leave();
    return true;
}

/* Called by vlci_wrapped_entry on a thread that is not inside of the context, or inside of another since. */
void vlci_wrapped_call(const struct vlci_wrapper *wrapper, struct vlci_arch_call *call) {
    int saved = errno;
    vlc_context *context = call_begins(wrapper->weak);
    call->function = wrapper->function;
    call->stack_size = stack_size(call->stack);
    errno = saved;
    if (context && make_call(context, wrapper->weak, call)) return;
    atomic_fetch_add(&late_calls, 1);
    vlci_arch_call_nothing(call);
}

/* What unwinders call when they meet the frame of vlci_arch_call (Itanium C++ ABI, "Exception Handling", 2.5):
 * on the way out, its visit ends, and those further in that were entered and not left. */
int vlci_wrapped_personality(int version, int actions, uint64_t class, void *exception, void *frame) {
    enum { CLEANUP_PHASE = 2, CONTINUE_UNWIND = 8 };
    (void)version;
    (void)class;
    (void)exception;
    (void)frame;
    struct vlci_thread *thread = vlci_thread_current;
    const struct vlci_visit *wrapped = thread->visit;
    while (wrapped != &thread->base && !wrapped->is_wrapped) wrapped = wrapped->outer;
    if (!(actions & CLEANUP_PHASE) || wrapped == &thread->base) return CONTINUE_UNWIND;
    for (bool is_last = false; !is_last;) {
        is_last = thread->visit == wrapped;
        leave();
    }
    return CONTINUE_UNWIND;
}
