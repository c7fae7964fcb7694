/* The heap of a context: what its libraries allocate, and leak, goes when it goes.
 *
 * Small blocks: slabs of one granule, one size class each, a lock per class. Large blocks: ranges of their
 * own, of which some are kept for reuse. Every pointer tells its heap by its address, so that `free` takes
 * pointers of any context and of the host. */
#ifndef VLCI_HEAP_H
#define VLCI_HEAP_H

#include "loader/range.h"

#include <sys/types.h>

#define VLCI_HEAP_CLASSES 36
#define VLCI_HEAP_SPARES 64

struct vlci_slab {
    struct vlci_region region;
    struct vlci_slab *next, **link; /* among those of the class with room */
    uint32_t size_class, capacity;
    _Atomic(uint32_t) used; /* written under the class's lock */
    void *freed;            /* list through the blocks */
    char *fresh;            /* blocks from here on were never used */
};

struct vlci_block_region { /* a large block, or a mapping */
    struct vlci_region region;
    bool zeroed;    /* not written since it was mapped */
    bool is_file;   /* a mapping of one */
    size_t charged; /* bytes of it that count for the limit */
    /* Of a mapping that was unmapped, or made accessible, in part: a bit for each page that is gone, that counts. */
    uint64_t *gone, *counted;
    size_t gone_count;
};

/* What the heap and the anonymous mappings take together: see vlc_set_memory_limit. */
struct vlci_budget {
    _Atomic(size_t) limit; /* 0: none */
    _Atomic(size_t) used, peak;
};

struct vlci_heap {
    struct {
        vlci_lock lock;
        struct vlci_slab *partial;
    } classes[VLCI_HEAP_CLASSES];
    vlci_lock spares_lock, parts_lock;
    struct vlci_block_region *spares[VLCI_HEAP_SPARES]; /* freed large blocks, still mapped */
    size_t spare_bytes;
    bool is_hosts; /* libraries' blocks come from the host's malloc, and are then the host's like any other */
    _Atomic(size_t) heap_bytes, mapped_bytes;
    struct vlci_budget budget; /* asked only where ranges are taken and given back, and not for each block */
};

/* As malloc and kin, for the context. Errors set errno. `take` is for what libc keeps, which goes with the context;
 * `allocate` and `resize` are what its libraries call, which are the host's if the context was made so. `zero` only
 * with an alignment of 16. */
void *vlci_heap_take(vlc_context *context, size_t size, size_t align, bool zero);
void *vlci_heap_allocate(vlc_context *context, size_t size, size_t align, bool zero);
void *vlci_heap_resize(vlc_context *context, void *block, size_t size);
void vlci_heap_give(void *block);     /* any pointer: a context's or the host's */
size_t vlci_heap_usable(void *block); /* as malloc_usable_size, likewise */

size_t vlci_heap_used(vlc_context *context); /* bytes of blocks that nobody has freed */

/* Ranges of the context for anonymous and file mappings; as the system calls. */
void *vlci_heap_map(vlc_context *context, void *address, size_t length, int protection, int flags, int fd,
                    off_t offset);
int vlci_heap_unmap(void *address, size_t length);
void *vlci_heap_remap(void *address, size_t old_length, size_t new_length, int flags, void *new_address);

int vlci_heap_protect(void *address, size_t length, int protection);

/* The heap's, or an anonymous mapping. */
bool vlci_heap_is_anonymous(const struct vlci_region *region);

/* Gives back the records of all that is still allocated; the memory itself goes with the ranges. */
void vlci_heap_free(vlc_context *context);

void vlci_heap_fork(vlc_context *context, enum vlci_fork when);

#endif
