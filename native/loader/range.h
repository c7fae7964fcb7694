/* Address ranges: every mapping of a context lies in ranges that we reserved, so that
 * address -> owner is a lock-free table read. */
#ifndef VLCI_RANGE_H
#define VLCI_RANGE_H

#include "loader/lock.h"
#include "vlcs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VLCI_PAGE 4096ul         /* x86-64; arch_* checks that it is the kernel's */
#define VLCI_GRANULE (1ul << 16) /* unit of the owner table */
#define VLCI_ZONE (64ul << 20)   /* address space that a context takes at a time */

#define VLCI_PAGE_DOWN(x) ((uintptr_t)(x) & ~(VLCI_PAGE - 1))
#define VLCI_PAGE_UP(x) (((uintptr_t)(x) + VLCI_PAGE - 1) & ~(VLCI_PAGE - 1))
#define VLCI_GRANULE_UP(x) (((uintptr_t)(x) + VLCI_GRANULE - 1) & ~(VLCI_GRANULE - 1))

/* What lies at an address. First member of what describes it in full. */
struct vlci_region {
    enum {
        VLCI_REGION_IMAGE = 1, /* a library: struct vlci_image */
        VLCI_REGION_SLAB,      /* small blocks of the context's heap: struct vlci_slab */
        VLCI_REGION_BLOCK,     /* one large block of the heap: struct vlci_block */
        VLCI_REGION_MAPPING,   /* an mmap made by a library of the context: struct vlci_block */
        VLCI_REGION_THUNKS     /* the context's thunks: plain */
    } kind;
    vlc_context *context;
    char *base;
    size_t length; /* bytes in use; the range is rounded up to granules */
};

/* The ranges of one context. */
struct vlci_zones {
    vlci_lock lock;
    struct vlci_zone *first;
};

/* The region that holds the address, or NULL. Lock-free, async-signal-safe. */
struct vlci_region *vlci_region_at(const void *address);

/* Whether the address lies in what we reserved, used or not. */
bool vlci_range_is_ours(const void *address);

/* Reserves region->length bytes (PROT_NONE) for `region` and enters it in the owner table;
 * sets region->base. `align`: power of two. Returns false when no address space is left. */
bool vlci_range_take(struct vlci_zones *zones, struct vlci_region *region, size_t align);

/* Unmaps (back to PROT_NONE) and gives the range back. */
void vlci_range_give(struct vlci_zones *zones, struct vlci_region *region);

/* Gives a region up without touching what lies there now, which is somebody else's: its addresses are never
 * handed out again, and no longer the region's. */
void vlci_range_abandon(struct vlci_zones *zones, struct vlci_region *region);

/* Calls visit(region) once for each region in the ranges, which it may free. */
void vlci_zones_each(struct vlci_zones *zones, void (*visit)(struct vlci_region *));

/* Calls visit(region, from, length, argument) for parts of regions at *at and above (NULL: the first), up to `most` bytes
 * (whole granules) of one zone, and sets *at behind them; nobody takes or gives a range meanwhile. False: it was
 * at the end. For a walk between whose steps others do. */
typedef void vlci_visit_part(struct vlci_region *region, char *from, size_t length, void *argument);
bool vlci_zones_step(struct vlci_zones *zones, char **at, size_t most, vlci_visit_part *visit,
                     void *argument);

/* Unmaps and gives back all ranges of a context at once; the regions themselves stay the caller's. */
void vlci_zones_give(struct vlci_zones *zones);

void vlci_range_fork(enum vlci_fork when);

#endif
