#include "loader/stack.h"

#include "context/context.h"
#include "loader/arch.h"
#include "loader/error.h"
#include "loader/host.h"
#include "loader/memory.h"
#include "loader/slots.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>

#define ALIGN                                                                                                \
    VLCI_SLOTS_SIZE /* of a stack's end: more than any static TLS asks for, or vlci_stack_begin tells */
#define UPPER_GUARD VLCI_GRANULE /* behind the slots */
#define SPARE_MOST (40ul << 20)  /* bytes of stacks that wait for the next thread: libc's own default */

static vlci_lock lock;
static struct vlci_stack *spares; /* newest first */
static size_t spare_bytes;
static ptrdiff_t distance; /* 0: not measured yet */
static size_t libc_needs;  /* bytes of a stack that are libc's: static TLS, the control block */

static size_t length_of(const struct vlci_stack *stack) {
    return (size_t)(stack->slots - stack->map) + VLCI_SLOTS_SIZE + UPPER_GUARD;
}

static void stack_unmap(struct vlci_stack *stack) {
    munmap(stack->map, length_of(stack));
    vlci_memory_give(stack, sizeof *stack);
}

static struct vlci_stack *stack_map(size_t size, size_t guard) {
    struct vlci_stack *made = vlci_memory_take(sizeof *made);
    size_t below = VLCI_PAGE_UP(guard ? guard : VLCI_PAGE), room = VLCI_PAGE_UP(size + libc_needs);
    if (!made || size > 1ul << 46 || guard > 1ul << 46) {
        vlci_memory_give(made, sizeof *made);
        return NULL;
    }
    size_t length = below + room + VLCI_SLOTS_SIZE + UPPER_GUARD;
    char *all = mmap(NULL, length + ALIGN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (all == MAP_FAILED) {
        vlci_memory_give(made, sizeof *made);
        return NULL;
    }
    made->slots = (char *)(((uintptr_t)all + below + room + ALIGN - 1) & ~(ALIGN - 1));
    made->low = made->slots - room;
    made->map = made->low - below;
    made->size = size;
    made->guard = guard;
    char *end = made->map + length;
    if (made->map > all) munmap(all, (size_t)(made->map - all));
    if (all + length + ALIGN > end) munmap(end, (size_t)(all + length + ALIGN - end));
    if (mprotect(made->low, room + VLCI_SLOTS_SIZE, PROT_READ | PROT_WRITE)) {
        stack_unmap(made);
        return NULL;
    }
    return made;
}

/* Unmaps what is too much, oldest first. */
static void spares_trim(void) {
    struct vlci_stack *rest = NULL;
    vlci_lock_take(&lock);
    size_t bytes = 0;
    for (struct vlci_stack **link = &spares; *link; link = &(*link)->next)
        if ((bytes += length_of(*link)) > SPARE_MOST) {
            rest = *link;
            *link = NULL;
            break;
        }
    for (const struct vlci_stack *at = rest; at; at = at->next) spare_bytes -= length_of(at);
    vlci_lock_drop(&lock);
    for (struct vlci_stack *next; rest; rest = next) {
        next = rest->next;
        stack_unmap(rest);
    }
}

/* Its memory goes back at once; the addresses wait for the next thread. */
static void stack_give(struct vlci_stack *stack) {
    size_t used = (size_t)(stack->slots - stack->low) + VLCI_SLOTS_SIZE;
    if (madvise(stack->low, used, MADV_DONTNEED)) { /* locked (mlockall): no zeros then */
        stack_unmap(stack);
        return;
    }
    stack->begun = stack->detached = false;
    vlci_lock_take(&lock);
    stack->next = spares;
    spares = stack;
    spare_bytes += length_of(stack);
    bool many = spare_bytes > SPARE_MOST;
    vlci_lock_drop(&lock);
    if (many) spares_trim();
}

static struct vlci_stack *spare_take(size_t size, size_t guard) {
    VLCI_HOLD(&lock);
    for (struct vlci_stack **link = &spares, *at; (at = *link); link = &at->next) {
        if (at->size != size || at->guard != guard) continue;
        *link = at->next;
        spare_bytes -= length_of(at);
        return at;
    }
    return NULL;
}

/* ---- the distance -------------------------------------------------------------------------------------- */

static void *probe(void *pointer) {
    *(char **)pointer = vlci_arch_thread_pointer();
    return NULL;
}

static int measure(void) {
    size_t (*least)(const pthread_attr_t *) =
        (size_t (*)(const pthread_attr_t *))vlci_host_symbol("__pthread_get_minstack");
    pthread_attr_t attributes, made;
    pthread_attr_init(&attributes);
    libc_needs = VLCI_PAGE_UP(least ? least(&attributes) : PTHREAD_STACK_MIN + VLCI_SLOTS_SIZE);
    struct vlci_stack *stack = stack_map(libc_needs, VLCI_PAGE);
    char *pointer = NULL;
    pthread_t thread;
    int failed = stack ? vlci_stack_attributes(stack, &attributes, &made) : ENOMEM;
    if (!failed) failed = pthread_create(&thread, &made, probe, &pointer);
    if (!failed) {
        pthread_join(thread, NULL);
        distance = stack->slots - pointer;
    }
    if (stack) stack_unmap(stack);
    pthread_attr_destroy(&attributes);
    return failed;
}

int vlci_stack_start(ptrdiff_t *found, vlc_error *error) {
    VLCI_HOLD(&vlci_start_lock);
    int failed = distance ? 0 : measure();
    if (failed)
        return vlci_fail(
            error, VLC_SYSTEM, failed, "pthread_create",
            "cannot make a resident context: no thread could be made to measure where its "
            "thread-local storage would lie: %s; see `ulimit -u`, `ulimit -v` and the cgroup's pids.max",
            strerror(failed));
    *found = distance;
    return VLC_OK;
}

/* ---- stacks of a context ------------------------------------------------------------------------------- */

static void unlist(vlc_context *context, struct vlci_stack *stack) {
    struct vlci_stack **link = &context->stacks;
    while (*link && *link != stack) link = &(*link)->next;
    if (*link) *link = stack->next;
}

/* Gives up stacks of detached threads that have ended. */
static void reap(vlc_context *context) {
    struct vlci_stack *ended = NULL;
    vlci_lock_take(&context->joinable_lock);
    for (struct vlci_stack **link = &context->stacks, *at; (at = *link);) {
        if (!at->begun || !at->detached || pthread_tryjoin_np(at->handle, NULL) == EBUSY) {
            link = &at->next;
            continue;
        }
        *link = at->next;
        at->next = ended;
        ended = at;
    }
    vlci_lock_drop(&context->joinable_lock);
    for (struct vlci_stack *next; ended; ended = next) {
        next = ended->next;
        stack_give(ended);
    }
}

struct vlci_stack *vlci_stack_take(vlc_context *context, const pthread_attr_t *attributes) {
    pthread_attr_t standard;
    size_t size = 0, guard = VLCI_PAGE;
    int state = PTHREAD_CREATE_JOINABLE;
    if (!attributes && pthread_getattr_default_np(&standard)) return NULL;
    pthread_attr_getstacksize(attributes ? attributes : &standard, &size);
    pthread_attr_getguardsize(attributes ? attributes : &standard, &guard);
    if (!attributes) pthread_attr_destroy(&standard);
    if (attributes) pthread_attr_getdetachstate(attributes, &state);
    reap(context);
    struct vlci_stack *stack = spare_take(size, guard);
    if (!stack && !(stack = stack_map(size, guard))) return NULL;
    stack->detached = state == PTHREAD_CREATE_DETACHED;
    VLCI_HOLD(&context->joinable_lock);
    stack->next = context->stacks;
    context->stacks = stack;
    return stack;
}

/* A copy shares what `attributes` points to (CPUs, a signal mask), and pthread_attr_setstack leaves it alone. */
int vlci_stack_attributes(const struct vlci_stack *stack, const pthread_attr_t *attributes,
                          pthread_attr_t *made) {
    if (attributes)
        *made = *attributes;
    else
        pthread_attr_init(made); /* which allocates nothing */
    pthread_attr_setdetachstate(made, PTHREAD_CREATE_JOINABLE);
    return pthread_attr_setstack(made, stack->low, (size_t)(stack->slots - stack->low));
}

bool vlci_stack_begin(vlc_context *context, struct vlci_stack *stack) {
    VLCI_HOLD(&context->joinable_lock);
    stack->handle = pthread_self();
    stack->begun = true;
    return vlci_arch_thread_pointer() + context->slots->offset == stack->slots;
}

void vlci_stack_drop(vlc_context *context, struct vlci_stack *stack) {
    vlci_lock_take(&context->joinable_lock);
    unlist(context, stack);
    vlci_lock_drop(&context->joinable_lock);
    stack_give(stack);
}

/* By address: libc's handle is that of the control block, which lies in the stack. So also one that has not begun
 * is found, and a handle of another thread is never followed. */
struct vlci_stack *vlci_stack_of(vlc_context *context, pthread_t handle) {
    if (!context->slots) return NULL;
    VLCI_HOLD(&context->joinable_lock);
    struct vlci_stack *at = context->stacks;
    while (at && ((char *)handle < at->low || (char *)handle >= at->slots)) at = at->next;
    return at;
}

int vlci_stack_detach(vlc_context *context, struct vlci_stack *stack) {
    VLCI_HOLD(&context->joinable_lock);
    if (stack->detached) return EINVAL;
    stack->detached = true;
    return 0;
}

void vlci_stacks_join(vlc_context *context) {
    for (struct vlci_stack *at; (at = context->stacks);) {
        context->stacks = at->next;
        pthread_join(at->handle, NULL);
        stack_give(at);
    }
}

void vlci_stacks_forget(vlc_context *context) {
    const char *mine = vlci_arch_thread_pointer();
    for (struct vlci_stack **link = &context->stacks, *at; (at = *link);) {
        if (mine >= at->low && mine < at->slots) {
            link = &at->next;
            continue;
        }
        *link = at->next;
        stack_give(at);
    }
}

void vlci_stack_fork(enum vlci_fork when) { vlci_lock_fork(&lock, when); }
