#include "loader/cache.h"

#include "context/context.h"

#include <stdlib.h>

/* A binding names its image by position: in the global list, then in the opener's closure, or itself. */
#define ITSELF (-1)
#define NOT_KNOWN (-2)
struct entry {
    uint64_t value;
    int32_t position, kind;
};

struct known {
    struct known *next;
    uint64_t scope;
    struct vlci_identity file;
    size_t count;
    struct entry entries[];
};

#define BUCKETS 1024
static vlci_lock lock;
static struct known *table[BUCKETS]; /* entries are never changed or removed once in */

static void mix(uint64_t *hash, uint64_t value) { /* FNV-1a over words, with a shift to spread */
    *hash = (*hash ^ value) * 1099511628211ull;
    *hash ^= *hash >> 29;
}

static void mix_list(uint64_t *hash, struct vlci_image *const *list, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const struct vlci_image *image = list[i];
        if (image->host) {
            mix(hash, (uintptr_t)image);
            continue;
        }
        mix(hash, image->identity.device);
        mix(hash, image->identity.inode);
        mix(hash, image->identity.modified);
    }
    mix(hash, count);
}

static uint64_t scope_of(const struct vlci_image *image) {
    const vlc_context *context = image->region.context;
    uint64_t hash = 14695981039346656037ull;
    mix_list(&hash, context->global, context->global_count);
    mix_list(&hash, image->opener->closure, image->opener->closure_count);
    mix(&hash, image->deep_bind);
    mix(&hash, image->lazy);
    return hash;
}

static bool same_file(const struct vlci_identity *a, const struct vlci_identity *b) {
    return a->device == b->device && a->inode == b->inode && a->modified == b->modified;
}

static const struct known *find(uint64_t scope, const struct vlci_image *image, size_t count) {
    VLCI_HOLD(&lock);
    for (const struct known *known = table[scope % BUCKETS]; known; known = known->next)
        if (known->scope == scope && known->count == count && same_file(&known->file, &image->identity))
            return known;
    return NULL;
}

static struct vlci_image *image_at_position(const struct vlci_image *image, int32_t position) {
    const vlc_context *context = image->region.context;
    size_t at = position;
    if (position == ITSELF) return (struct vlci_image *)image;
    if (at < context->global_count) return context->global[at];
    at -= context->global_count;
    return at < image->opener->closure_count ? image->opener->closure[at] : NULL;
}

static int32_t position_of(const struct vlci_image *image, const struct vlci_image *defines) {
    const vlc_context *context = image->region.context;
    if (defines == image) return ITSELF;
    for (size_t i = 0; i < context->global_count; i++)
        if (context->global[i] == defines) return i;
    for (size_t i = 0; i < image->opener->closure_count; i++)
        if (image->opener->closure[i] == defines) return context->global_count + i;
    return NOT_KNOWN;
}

bool vlci_cache_get(const struct vlci_image *image, struct vlci_binding *bindings, size_t count) {
    const struct known *known = find(scope_of(image), image, count);
    if (!known) return false;
    uint64_t cached = 0;
    for (size_t i = 0; i < count; i++) {
        const struct entry *entry = &known->entries[i];
        if (entry->kind == VLCI_BIND_NONE) continue;
        struct vlci_image *defines =
            entry->position == NOT_KNOWN ? NULL : image_at_position(image, entry->position);
        bindings[i] = (struct vlci_binding){ .kind = entry->kind, .value = entry->value, .image = defines };
        cached++;
    }
    image->region.context->cached += cached;
    return true;
}

void vlci_cache_put(const struct vlci_image *image, const struct vlci_binding *bindings, size_t count) {
    uint64_t scope = scope_of(image);
    struct known *known = calloc(1, sizeof *known + count * sizeof *known->entries);
    if (!known) return;
    known->scope = scope;
    known->file = image->identity;
    known->count = count;
    for (size_t i = 0; i < count; i++) {
        const struct vlci_binding *binding = &bindings[i];
        if (binding->kind == VLCI_BIND_NONE || binding->kind == VLCI_BIND_MISSING || binding->unique)
            continue;
        int32_t position = binding->image ? position_of(image, binding->image) : NOT_KNOWN;
        bool by_image = binding->kind == VLCI_BIND_ADDRESS || binding->kind == VLCI_BIND_INDIRECT ||
                        binding->kind == VLCI_BIND_TLS;
        if (by_image && position == NOT_KNOWN) continue;
        known->entries[i] = (struct entry){ binding->value, by_image ? position : NOT_KNOWN, binding->kind };
    }
    VLCI_HOLD(&lock);
    known->next = table[scope % BUCKETS];
    table[scope % BUCKETS] = known;
}

void vlci_cache_fork(enum vlci_fork when) { vlci_lock_fork(&lock, when); }
