#include "loader/tls.h"

#include "context/context.h"
#include "loader/error.h"
#include "loader/host.h"
#include "loader/memory.h"
#include "loader/slots.h"
#include "loader/thread.h"

#include <errno.h>
#include <string.h>

/* A module number of ours: bit 63, a generation that catches stale numbers, an index. */
#define MODULES 65536
#define OURS (1ull << 63)
#define INDEX(module) ((size_t)((module) & 0xfffff))

vlci_lock vlci_tls_lock;
static struct vlci_image *modules[MODULES];
static uint32_t generations[MODULES];
static size_t module_end = 1;

static void *(*host_tls_address)(struct vlci_tls_index *);

void vlci_tls_start(void) {
    host_tls_address = (void *(*)(struct vlci_tls_index *))vlci_host_symbol("__tls_get_addr");
    vlci_slots_start();
}

static void slot_clear(struct vlci_thread *thread, void *segment) {
    const struct vlci_tls_segment *tls = segment;
    /* one that first came to us while its keys were destroyed may be gone without having told */
    if (vlci_os_thread_exists(thread->tid))
        memset(thread->pointer + tls->offset - tls->skew, 0, vlci_slots_need(tls));
}

static void slot_start(struct vlci_thread *thread, void *segment) {
    const struct vlci_tls_segment *tls = segment;
    slot_clear(thread, segment);
    if (vlci_os_thread_exists(thread->tid)) memcpy(thread->pointer + tls->offset, tls->image, tls->file_size);
}

static int slots_exhausted(const struct vlci_image *image, vlc_error *error) {
    const vlc_context *context = image->region.context;
    if (context->slots)
        return vlci_fail(error, VLC_LIMIT, 0, image->path,
                         "cannot load '%s': it needs %zu bytes of static thread-local storage, and %zu of "
                         "the %zu that a thread "
                         "of the resident context '%s' has are taken by the libraries before; load it into "
                         "another context",
                         image->path, image->tls.size, vlci_slots_used(context), vlci_slots_size(context),
                         context->name);
    return vlci_fail(
        error, VLC_LIMIT, 0, image->path,
        "cannot load '%s': it needs %zu bytes of static thread-local storage, and %zu of the pool's %zu are "
        "taken by the %u open contexts; make the context resident, start the program with `vlcs run` (a pool "
        "of 64 "
        "kB), or close contexts",
        image->path, image->tls.size, vlci_slots_used(NULL), vlci_slots_size(NULL), vlci_context_count());
}

/* The threads on which an image's slot exists. */
static void each_with_slot(const struct vlci_image *image, void (*visit)(struct vlci_thread *, void *),
                           struct vlci_tls_segment *tls) {
    vlc_context *context = image->region.context;
    vlci_thread_each(context->slots ? context : NULL, visit, tls);
}

int vlci_tls_make_static(struct vlci_image *image, vlc_error *error) {
    struct vlci_tls_segment *tls = &image->tls;
    if (tls->is_static) return VLC_OK;
    if (image->host)
        return vlci_fail(error, VLC_LOAD_FAILED, 0, image->path,
                         "cannot use the static thread-local storage of the host's '%s'", image->path);
    if (tls->is_used)
        return vlci_fail(
            error, VLC_LOAD_FAILED, 0, image->path,
            "cannot bind to the thread-local storage of '%s' statically: threads use it already; load the "
            "library that needs it first",
            image->path);
    if (tls->align > VLCI_SLOT)
        return vlci_fail(error, VLC_LIMIT, 0, image->path,
                         "cannot load '%s': its static thread-local storage wants an alignment of %zu, and "
                         "%lu is the most",
                         image->path, tls->align, VLCI_SLOT);
    if (!vlci_thread_self())
        return vlci_fail(error, VLC_SYSTEM, ENOMEM, image->path, "cannot load '%s': out of memory",
                         image->path);
    sigset_t signals;
    vlci_os_signals_block(&signals);
    vlci_lock_take(&vlci_tls_lock);
    bool taken = vlci_slots_take(image->region.context, tls);
    if (taken) tls->is_static = true;
    vlci_lock_drop(&vlci_tls_lock);
    vlci_os_signals_restore(&signals);
    if (!taken) return slots_exhausted(image, error);
    /* its initial contents are right only once it is relocated: vlci_tls_start_slot */
    each_with_slot(image, image->relocated ? slot_start : slot_clear, tls);
    return VLC_OK;
}

void vlci_tls_start_slot(struct vlci_image *image) {
    if (image->tls.is_static && image->tls.file_size) each_with_slot(image, slot_start, &image->tls);
}

int vlci_tls_add(struct vlci_image *image, vlc_error *error) {
    sigset_t signals;
    vlci_os_signals_block(&signals);
    vlci_lock_take(&vlci_tls_lock);
    size_t index = 1;
    while (index < module_end && modules[index]) index++;
    bool room = index < MODULES;
    if (room) {
        if (index == module_end) module_end++;
        modules[index] = image;
        image->tls.module = OURS | (uint64_t)++generations[index] << 20 | index;
    }
    vlci_lock_drop(&vlci_tls_lock);
    vlci_os_signals_restore(&signals);
    if (!room)
        return vlci_fail(error, VLC_LIMIT, 0, image->path,
                         "cannot load '%s': all %d thread-local storage modules are taken; close contexts",
                         image->path, MODULES);
    return image->dynamic.flags & DF_STATIC_TLS ? vlci_tls_make_static(image, error) : VLC_OK;
}

static void block_give(struct vlci_block *block) {
    vlci_memory_give(block->raw, block->raw_size);
    *block = (struct vlci_block){ 0 };
}

static void block_drop(struct vlci_thread *thread, void *argument) {
    const struct vlci_tls_segment *tls = argument;
    size_t index = INDEX(tls->module);
    if (index < thread->block_count && thread->blocks[index].module == tls->module)
        block_give(&thread->blocks[index]);
}

void vlci_tls_remove(struct vlci_image *image) {
    struct vlci_tls_segment *tls = &image->tls;
    if (tls->module & OURS) {
        vlci_thread_each(NULL, block_drop, tls);
        if (tls->is_static) each_with_slot(image, slot_clear, tls);
        sigset_t signals;
        vlci_os_signals_block(&signals);
        vlci_lock_take(&vlci_tls_lock);
        if (tls->is_static) vlci_slots_give(image->region.context, tls);
        modules[INDEX(tls->module)] = NULL;
        vlci_lock_drop(&vlci_tls_lock);
        vlci_os_signals_restore(&signals);
        tls->module = 0;
    }
    for (struct vlci_tls_argument *argument; (argument = image->tls_arguments);) {
        image->tls_arguments = argument->next;
        vlci_memory_give(argument, sizeof *argument);
    }
}

void vlci_tls_drop_context(vlc_context *context) {
    for (size_t i = 1; i < module_end; i++) {
        if (!modules[i] || modules[i]->region.context != context) continue;
        if (modules[i]->tls.is_static) vlci_slots_give(context, &modules[i]->tls);
        modules[i] = NULL;
    }
}

static bool block_make(struct vlci_thread *thread, struct vlci_image *image) {
    const struct vlci_tls_segment *tls = &image->tls;
    size_t index = INDEX(tls->module);
    if (index >= thread->block_count) {
        size_t count = (index + 64) & ~63ul;
        struct vlci_block *grown = vlci_memory_take(count * sizeof *grown);
        if (!grown) return false;
        if (thread->blocks) memcpy(grown, thread->blocks, thread->block_count * sizeof *grown);
        vlci_memory_give(thread->blocks, thread->block_count * sizeof *grown);
        thread->blocks = grown;
        thread->block_count = count;
    }
    struct vlci_block *block = &thread->blocks[index];
    if (tls->is_static) {
        *block = (struct vlci_block){ .memory = thread->pointer + tls->offset };
    } else {
        /* blocks of the pool are aligned to their power of two, up to a page */
        size_t size = tls->size + tls->skew;
        if (size < tls->align) size = tls->align;
        char *raw = vlci_memory_take(size);
        if (!raw) return false;
        memcpy(raw + tls->skew, tls->image, tls->file_size);
        *block = (struct vlci_block){ .memory = raw + tls->skew, .raw = raw, .raw_size = size };
    }
    image->tls.is_used = true;
    block->module = tls->module;
    return true;
}

static bool has_slot(const struct vlci_thread *thread, const struct vlci_image *image) {
    const vlc_context *context = image->region.context;
    return !image->tls.is_static || !context->slots || thread->owner == context;
}

static __attribute__((noinline)) void *address_slow(struct vlci_tls_index *at) {
    int saved = errno;
    struct vlci_thread *thread = vlci_thread_self();
    sigset_t signals;
    vlci_os_signals_block(&signals);
    vlci_lock_take(&vlci_tls_lock);
    size_t index = INDEX(at->module);
    struct vlci_image *image = modules[index];
    /* __tls_get_addr cannot fail: a module that is gone, no memory, or a thread without the slots of a resident
     * context ends the program as glibc would */
    if (!thread || !image || image->tls.module != at->module || !has_slot(thread, image) ||
        !block_make(thread, image))
        __builtin_trap();
    char *memory = thread->blocks[index].memory;
    vlci_lock_drop(&vlci_tls_lock);
    vlci_os_signals_restore(&signals);
    errno = saved;
    return memory + at->offset;
}

void *vlci_tls_address(struct vlci_tls_index *at) {
    if (!(at->module & OURS)) return host_tls_address(at);
    const struct vlci_thread *thread = vlci_thread_current;
    size_t index = INDEX(at->module);
    if (thread && index < thread->block_count && thread->blocks[index].module == at->module)
        return thread->blocks[index].memory + at->offset;
    return address_slow(at);
}

void *vlci_tls_block(struct vlci_image *image) {
    const struct vlci_thread *thread = vlci_thread_current;
    size_t index = INDEX(image->tls.module);
    if (!thread || !image->tls.module || index >= thread->block_count) return NULL;
    return thread->blocks[index].module == image->tls.module ? thread->blocks[index].memory : NULL;
}

void vlci_tls_thread_init(struct vlci_thread *thread) {
    for (size_t i = 1; i < module_end; i++) {
        if (!modules[i] || !modules[i]->tls.is_static || !modules[i]->tls.file_size) continue;
        const vlc_context *context = modules[i]->region.context;
        if (!context->slots || thread->owner == context) slot_start(thread, &modules[i]->tls);
    }
}

void vlci_tls_thread_free(struct vlci_thread *thread) {
    for (size_t i = 0; i < thread->block_count; i++) block_give(&thread->blocks[i]);
    vlci_memory_give(thread->blocks, thread->block_count * sizeof *thread->blocks);
    thread->blocks = NULL;
    thread->block_count = 0;
}
