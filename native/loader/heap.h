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
    uint32_t size_class, used, capacity;
    void *freed; /* list through the blocks */
    char *fresh; /* blocks from here on were never used */
};

struct vlci_block_region { /* a large block, or a mapping */
    struct vlci_region region;
    bool zeroed; /* not written since it was mapped */
    /* Of a mapping that was unmapped in part: a bit for each page that is gone. */
    uint64_t *gone;
    size_t gone_count;
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
};

/* As malloc and kin, for the context. Errors set errno. `take` is for what libc keeps, which goes with the context;
 * `allocate` and `resize` are what its libraries call, which are the host's if the context was made so. `zero` only
 * with an alignment of 16. */
void *vlci_heap_take(vlc_context *context, size_t size, size_t align, bool zero);
void *vlci_heap_allocate(vlc_context *context, size_t size, size_t align, bool zero);
void *vlci_heap_resize(vlc_context *context, void *block, size_t size);
void vlci_heap_give(void *block);     /* any pointer: a context's or the host's */
size_t vlci_heap_usable(void *block); /* as malloc_usable_size, likewise */

/* Ranges of the context for anonymous and file mappings; as the system calls. */
void *vlci_heap_map(vlc_context *context, void *address, size_t length, int protection, int flags, int fd,
                    off_t offset);
int vlci_heap_unmap(void *address, size_t length);
void *vlci_heap_remap(void *address, size_t old_length, size_t new_length, int flags, void *new_address);

/* Gives back the records of all that is still allocated; the memory itself goes with the ranges. */
void vlci_heap_free(vlc_context *context);

void vlci_heap_fork(vlc_context *context, enum vlci_fork when);

#endif
