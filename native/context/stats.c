/* Figures of a context and of the process. */
#include "context/context.h"
#include "context/wrap.h"
#include "loader/error.h"
#include "loader/host.h"
#include "loader/key.h"
#include "loader/slots.h"
#include "loader/thread.h"

#include <string.h>

struct thread_list {
    int32_t *ids;
    size_t count, capacity;
};

static void list_thread(struct vlci_thread *thread, void *argument) {
    struct thread_list *list = argument;
    if (list->count < list->capacity) list->ids[list->count] = thread->tid;
    list->count++;
}

size_t vlc_threads(vlc_context *context, int32_t *ids, size_t capacity) {
    struct thread_list list = { ids, 0, capacity };
    vlci_thread_each(context, list_thread, &list);
    return list.count;
}

const char *vlc_library_path(vlc_context *context, size_t index) {
    pthread_mutex_lock(&context->images_lock);
    const char *path = index < context->image_count ? context->images[index]->path : NULL;
    pthread_mutex_unlock(&context->images_lock);
    return path;
}

static void add_usage(struct vlci_thread *thread, void *argument) {
    vlc_stats *stats = argument;
    uint64_t time, voluntary, involuntary;
    stats->threads++;
    if (!vlci_os_thread_usage(thread->tid, &time, &voluntary, &involuntary)) return;
    stats->cpu_time += time;
    stats->voluntary_switches += voluntary;
    stats->involuntary_switches += involuntary;
}

static bool size_is_known(uint32_t size, size_t least) { return size >= least && size <= 4096; }

int vlc_get_stats(vlc_context *context, vlc_stats *stats, vlc_error *error) {
    if (!size_is_known(stats->size, sizeof stats->size))
        return vlci_fail(error, VLC_BAD_ARGUMENT, 0, "vlc_stats",
                         "the record's size is %u; set it with VLC_STATS_INIT", stats->size);
    vlc_stats now = VLC_STATS_INIT;
    vlci_thread_each(context, add_usage, &now);
    now.visitors = (uint32_t)atomic_load(&context->visits);
    now.heap_bytes = atomic_load(&context->heap.heap_bytes);
    now.mapped_bytes = atomic_load(&context->heap.mapped_bytes);
    now.heap_used = vlci_heap_used(context);
    now.memory_bytes = atomic_load(&context->heap.budget.used);
    now.memory_peak = atomic_load(&context->heap.budget.peak);
    now.memory_limit = atomic_load(&context->heap.budget.limit);
    now.lookups = context->lookups;
    now.cached = context->cached;
    now.keys = vlci_key_count(context);
    now.resident = context->slots != NULL;
    now.static_tls_bytes = atomic_load(&context->slot_bytes);
    now.static_tls_left = vlci_slots_size(context) - vlci_slots_used(context);
    pthread_mutex_lock(&context->images_lock);
    now.libraries = (uint32_t)context->image_count;
    for (size_t i = 0; i < context->image_count; i++) {
        const struct vlci_image *image = context->images[i];
        now.library_bytes += image->region.length;
    }
    pthread_mutex_unlock(&context->images_lock);
    uint32_t size = stats->size;
    memcpy(stats, &now, size < sizeof now ? size : sizeof now);
    stats->size = size;
    return VLC_OK;
}

int vlci_memory_limit_check(const char *name, uint64_t bytes, vlc_error *error) {
    if (!bytes || bytes >= VLC_MEMORY_LIMIT_LEAST) return VLC_OK;
    return vlci_fail(
        error, VLC_BAD_ARGUMENT, 0, name,
        "cannot limit the memory of context '%s' to %llu bytes: without any library it takes up to "
        "%lu; a Python needs 16 MB to start",
        name ? name : "", (unsigned long long)bytes, VLC_MEMORY_LIMIT_LEAST);
}

int vlc_set_memory_limit(vlc_context *context, uint64_t bytes, vlc_error *error) {
    int status = vlci_context_check_open(context, error);
    if (!status) status = vlci_memory_limit_check(context->name, bytes, error);
    if (!status) atomic_store(&context->heap.budget.limit, bytes);
    return status;
}

int vlc_get_limits(vlc_limits *limits, vlc_error *error) {
    if (!size_is_known(limits->size, sizeof limits->size))
        return vlci_fail(error, VLC_BAD_ARGUMENT, 0, "vlc_limits",
                         "the record's size is %u; set it to sizeof(vlc_limits)", limits->size);
    int status = vlci_context_start(error);
    if (status) return status;
    vlc_limits now = { .size = sizeof now,
                       .contexts = vlci_context_count(),
                       .static_tls_total = vlci_slots_size(NULL),
                       .static_tls_used = vlci_slots_used(NULL),
                       .mappings = vlci_os_mappings(),
                       .mappings_max = vlci_context_mappings_max(),
                       .wrappers = vlci_wrap_count(),
                       .late_calls = vlci_wrap_late_calls(),
                       .resident_tls_total = VLCI_SLOTS_SIZE,
                       .host_malloc = vlci_host_malloc() };
    vlci_lock_take(&vlci_contexts_lock);
    for (const vlc_context *at = vlci_contexts; at; at = at->next)
        now.resident += at->slots && atomic_load(&at->state) == VLCI_OPEN;
    now.next_is_resident = vlci_slots_are_low();
    vlci_lock_drop(&vlci_contexts_lock);
    uint32_t size = limits->size;
    memcpy(limits, &now, size < sizeof now ? size : sizeof now);
    limits->size = size;
    return VLC_OK;
}
