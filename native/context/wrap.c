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

/* A weak reference to a context, never freed. Who wants the context counts itself first and looks then; who ends
 * the context clears it first and looks at the count then, so that one of the two sees the other. */
struct vlci_weak {
    _Atomic(vlc_context *) context;
    _Atomic(int) lookers;
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
    larger.wrappers = calloc(larger.capacity, sizeof(struct vlci_wrapper *));
    if (!larger.wrappers) return false;
    for (size_t i = 0; i < weak->capacity; i++)
        if (weak->wrappers[i]) *place_of(&larger, weak->wrappers[i]->function) = weak->wrappers[i];
    free(weak->wrappers);
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

int vlc_wrap(vlc_context *context, void *function, void **wrapped, vlc_error *error) {
    if (!function)
        return vlci_fail(error, VLC_BAD_ARGUMENT, 0, context->name,
                         "cannot wrap NULL in context '%s'; give a function", context->name);
    int status = vlci_context_check_open(context, error);
    if (status) return status;
    VLCI_HOLD(&lock);
    struct vlci_weak *weak = context->weak;
    if (!weak) {
        if (!(weak = vlci_memory_take(sizeof *weak))) return out_of_memory(context, error);
        atomic_store(&weak->context, context);
        context->weak = weak;
    }
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

void vlci_wrap_forget(vlc_context *context) {
    struct vlci_weak *weak = context->weak;
    if (!weak) return;
    atomic_store(&weak->context, NULL);
    while (atomic_load(&weak->lookers)) sched_yield(); /* they take a few instructions */
    VLCI_HOLD(&lock);
    free(weak->wrappers);
    weak->wrappers = NULL;
    weak->capacity = weak->count = 0;
}

uint64_t vlci_wrap_count(void) {
    VLCI_HOLD(&lock);
    return wrapper_count;
}

uint64_t vlci_wrap_late_calls(void) { return atomic_load(&late_calls); }

/* In the child there is nobody else who looks. */
void vlci_wrap_fork(vlc_context *current, enum vlci_fork when) {
    vlci_lock_fork(&lock, when);
    if (when == VLCI_FORK_CHILD && current && current->weak) atomic_store(&current->weak->lookers, 0);
}

/* ---- being called -------------------------------------------------------------------------------------- */

/* Counts a visit of the context, which then stays until it ends. NULL: it is closed, or gone. */
static vlc_context *visit_begins(struct vlci_weak *weak) {
    atomic_fetch_add(&weak->lookers, 1);
    vlc_context *context = atomic_load(&weak->context);
    if (context && vlci_visit_is_inside(context))
        atomic_fetch_add(&context->visits,
                         1); /* also while it closes: that waits for the visit further out */
    else if (context && !vlci_context_visit_begins(context))
        context = NULL;
    atomic_fetch_sub(&weak->lookers, 1);
    return context;
}

static void leave(vlc_context *context) {
    vlci_visit_leave(context);
    vlci_context_visit_ended(context);
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

/* On this thread, or on the one that stands for it in a resident context. */
static bool make_call(vlc_context *context, struct vlci_arch_call *call) {
    if (vlci_is_foreign(context)) {
        bool made = !vlci_hand_over(context, run_call, call, NULL, NULL);
        vlci_context_visit_ended(context);
        return made;
    }
    if (vlci_visit_enter(context, NULL)) {
        vlci_context_visit_ended(context);
        return false;
    }
    vlci_thread_current->visit->is_wrapped = true;
    vlci_arch_call(call);
    leave(context);
    return true;
}

/* Called by vlci_wrapped_entry on a thread that is not inside of the context, or inside of another since. */
void vlci_wrapped_call(const struct vlci_wrapper *wrapper, struct vlci_arch_call *call) {
    int saved = errno;
    vlc_context *context = visit_begins(wrapper->weak);
    call->function = wrapper->function;
    call->stack_size = stack_size(call->stack);
    errno = saved;
    if (context && make_call(context, call)) return;
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
    for (bool is_last = !(actions & CLEANUP_PHASE); !is_last && thread->visit != &thread->base;) {
        is_last = thread->visit->is_wrapped;
        leave(thread->visit->context);
    }
    return CONTINUE_UNWIND;
}
