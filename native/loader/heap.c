#include "loader/heap.h"

#include "context/context.h"
#include "context/policy.h"
#include "loader/host.h"
#include "loader/memory.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Multiples of 16, four to a doubling: at most a fifth is lost to rounding. */
static const uint32_t class_sizes[VLCI_HEAP_CLASSES] = {
    16,   32,   48,   64,   80,   96,   112,  128,  160,   192,   224,   256,
    320,  384,  448,  512,  640,  768,  896,  1024, 1280,  1536,  1792,  2048,
    2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192, 10240, 12288, 14336, 16384,
};
#define SMALL 16384

/* The word before each block, which ends its neighbour: what glibc has there in a block of mmap, at an address that
 * mmap cannot have given. So the host's free() and realloc() end the program with their message, always (glibc 2.31
 * to 2.41, munmap_chunk), instead of taking the block when the neighbour's data happens to look right. */
#define MARK 0x0aul /* 8 bytes, IS_MMAPPED */
#define MARK_SIZE sizeof(uint64_t)
#define LARGE_START 64ul /* where a large block begins in its range, at least */

#define SPARE_LARGEST (32ul << 20) /* larger blocks go back at once */
#define SPARE_TOTAL (64ul << 20)
#define HUGE (1ul << 46)

static void mark(void *block) { ((uint64_t *)block)[-1] = MARK; }

static unsigned class_of(size_t size) {
    if (size <= 128) return size ? (unsigned)((size + 15) / 16 - 1) : 0;
    unsigned shift = 63 - __builtin_clzl(size - 1); /* 2^shift < size <= 2^(shift+1) */
    unsigned quarter = (unsigned)((size - 1) >> (shift - 2)) & 3;
    return 8 + (shift - 7) * 4 + quarter;
}

static void partial_add(struct vlci_slab **list, struct vlci_slab *slab) {
    if ((slab->next = *list)) slab->next->link = &slab->next;
    slab->link = list;
    *list = slab;
}

static void partial_remove(struct vlci_slab *slab) {
    if ((*slab->link = slab->next)) slab->next->link = slab->link;
    slab->link = NULL;
}

/* ---- the limit ----------------------------------------------------------------------------------------- */

static void spares_drop(vlc_context *context);

/* By comparison and not by adding first: a large request that is refused fails no small one meanwhile. */
static bool budget_take(struct vlci_budget *budget, size_t bytes) {
    size_t used = atomic_load(&budget->used), limit;
    do {
        limit = atomic_load(&budget->limit);
        if (bytes && limit && (bytes > limit || used > limit - bytes)) return false;
    } while (!atomic_compare_exchange_weak(&budget->used, &used, used + bytes));
    size_t peak = atomic_load(&budget->peak);
    while (peak < used + bytes && !atomic_compare_exchange_weak(&budget->peak, &peak, used + bytes)) {
    }
    return true;
}

/* False, with ENOMEM: the limit is in the way, even without the blocks that wait to be used again. */
static bool charge(vlc_context *context, size_t bytes) {
    if (budget_take(&context->heap.budget, bytes)) return true;
    spares_drop(context);
    if (budget_take(&context->heap.budget, bytes)) return true;
    errno = ENOMEM;
    return false;
}

static void discharge(vlc_context *context, size_t bytes) {
    atomic_fetch_sub(&context->heap.budget.used, bytes);
}

/* ---- small blocks -------------------------------------------------------------------------------------- */

static bool slab_map(struct vlci_slab *slab) {
    vlc_context *context = slab->region.context;
    if (!charge(context, VLCI_GRANULE)) return false;
    if (vlci_range_take(&context->zones, &slab->region, VLCI_GRANULE)) {
        if (!mprotect(slab->region.base, VLCI_GRANULE, PROT_READ | PROT_WRITE)) {
            vlci_policy_apply(context, slab->region.base, VLCI_GRANULE);
            return true;
        }
        vlci_range_give(&context->zones, &slab->region);
    }
    discharge(context, VLCI_GRANULE);
    return false;
}

static struct vlci_slab *slab_make(vlc_context *context, unsigned size_class) {
    struct vlci_slab *slab = vlci_memory_take(sizeof *slab);
    if (!slab) return NULL;
    slab->region = (struct vlci_region){ VLCI_REGION_SLAB, context, NULL, VLCI_GRANULE };
    if (!slab_map(slab)) {
        vlci_memory_give(slab, sizeof *slab);
        return NULL;
    }
    slab->size_class = size_class;
    size_t size = class_sizes[size_class], start = size & -size; /* as all blocks are aligned */
    slab->capacity = (VLCI_GRANULE - start) / size;
    slab->fresh = slab->region.base + start;
    atomic_fetch_add(&context->heap.heap_bytes, VLCI_GRANULE);
    return slab;
}

static void slab_free(struct vlci_slab *slab) {
    vlc_context *context = slab->region.context;
    vlci_range_give(&context->zones, &slab->region);
    atomic_fetch_sub(&context->heap.heap_bytes, VLCI_GRANULE);
    discharge(context, VLCI_GRANULE);
    vlci_memory_give(slab, sizeof *slab);
}

/* One thread writes at a time, and vlci_heap_used reads. */
static uint32_t used_add(struct vlci_slab *slab, int change) {
    uint32_t used = atomic_load_explicit(&slab->used, memory_order_relaxed) + (uint32_t)change;
    atomic_store_explicit(&slab->used, used, memory_order_relaxed);
    return used;
}

static void *small_take(vlc_context *context, unsigned size_class) {
    struct vlci_heap *heap = &context->heap;
    VLCI_HOLD(&heap->classes[size_class].lock);
    struct vlci_slab *slab = heap->classes[size_class].partial;
    if (!slab) {
        if (!(slab = slab_make(context, size_class))) return NULL;
        partial_add(&heap->classes[size_class].partial, slab);
    }
    void *block = slab->freed;
    if (block) {
        slab->freed = *(void **)block;
    } else {
        block = slab->fresh;
        slab->fresh += class_sizes[size_class];
        mark(block);
    }
    if (used_add(slab, 1) == slab->capacity) partial_remove(slab);
    return block;
}

static void small_give(struct vlci_slab *slab, void *block) {
    struct vlci_heap *heap = &slab->region.context->heap;
    unsigned size_class = slab->size_class;
    struct vlci_slab *empty = NULL;
    vlci_lock_take(&heap->classes[size_class].lock);
    *(void **)block = slab->freed;
    slab->freed = block;
    uint32_t used = used_add(slab, -1);
    if (!slab->link) {
        partial_add(&heap->classes[size_class].partial, slab);
    } else if (used == 0 && heap->classes[size_class].partial->next) { /* keep one for the next */
        partial_remove(slab);
        empty = slab;
    }
    vlci_lock_drop(&heap->classes[size_class].lock);
    if (empty) slab_free(empty);
}

/* Asked before so large a range is taken, whose table takes 8 bytes per granule: more memory than the machine has is
 * refused as fast as outside. */
#define PROBE (1ul << 30)
static bool kernel_maps(size_t length, int protection, int flags, int fd, off_t offset) {
    void *probe = mmap(NULL, length, protection, flags & ~(MAP_POPULATE | MAP_LOCKED), fd, offset);
    if (probe == MAP_FAILED) return false;
    munmap(probe, length);
    return true;
}

/* How mmap is asked. */
struct how {
    int protection, flags, fd;
    off_t offset;
};
static const struct how plain = { PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0 };

#define HUGE_PAGE (2ul << 20) /* x86-64 */

static bool region_map(struct vlci_block_region *made, size_t align, const struct how *how) {
    vlc_context *context = made->region.context;
    char **base = &made->region.base;
    size_t length = made->region.length;
    if (length >= PROBE && !kernel_maps(length, how->protection, how->flags, how->fd, how->offset))
        return false;
    if (context->huge_pages == VLC_HUGE_PAGES_ALWAYS && length >= HUGE_PAGE && align < HUGE_PAGE)
        align = HUGE_PAGE;
    if (!vlci_range_take(&context->zones, &made->region, align)) {
        errno = ENOMEM;
        return false;
    }
    if (mmap(*base, length, how->protection, how->flags | MAP_FIXED, how->fd, how->offset) == MAP_FAILED) {
        int failure = errno;
        vlci_range_give(&context->zones, &made->region);
        errno = failure;
        return false;
    }
    if (!made->is_file) vlci_policy_apply(context, *base, length);
    return true;
}

/* A range with its own record. `charged` bytes of it count, of which `credit` are counted already. */
static struct vlci_block_region *region_make(vlc_context *context, int kind, size_t length, size_t align,
                                             const struct how *how, size_t charged, size_t credit) {
    struct vlci_block_region *made = vlci_memory_take(sizeof *made);
    if (!made) return NULL;
    made->region = (struct vlci_region){ kind, context, NULL, length };
    made->zeroed = true;
    made->is_file = !(how->flags & MAP_ANONYMOUS);
    made->charged = charged;
    bool paid = charge(context, charged - credit);
    if (paid && region_map(made, align, how)) {
        atomic_fetch_add(kind == VLCI_REGION_BLOCK ? &context->heap.heap_bytes : &context->heap.mapped_bytes,
                         length);
        return made;
    }
    if (paid) discharge(context, charged - credit);
    vlci_memory_give(made, sizeof *made);
    return NULL;
}

static size_t bits_size(const struct vlci_block_region *mapping) {
    return (mapping->region.length / VLCI_PAGE + 63) / 64 * sizeof *mapping->gone;
}

static void record_give(struct vlci_block_region *record) {
    if (record->gone) vlci_memory_give(record->gone, bits_size(record));
    if (record->counted) vlci_memory_give(record->counted, bits_size(record));
    vlci_memory_give(record, sizeof *record);
}

static void region_free(struct vlci_block_region *made) {
    vlc_context *context = made->region.context;
    atomic_fetch_sub(made->region.kind == VLCI_REGION_BLOCK ? &context->heap.heap_bytes
                                                            : &context->heap.mapped_bytes,
                     made->region.length);
    vlci_range_give(&context->zones, &made->region);
    discharge(context, made->charged);
    record_give(made);
}

static struct vlci_block_region *spare_take(struct vlci_heap *heap, size_t length) {
    VLCI_HOLD(&heap->spares_lock);
    for (int i = 0; i < VLCI_HEAP_SPARES; i++) {
        struct vlci_block_region *spare = heap->spares[i];
        if (!spare || spare->region.length < length || spare->region.length > length + length / 4) continue;
        heap->spares[i] = NULL;
        heap->spare_bytes -= spare->region.length;
        return spare;
    }
    return NULL;
}

static bool spare_put(struct vlci_heap *heap, struct vlci_block_region *block) {
    if (block->region.length > SPARE_LARGEST) return false;
    VLCI_HOLD(&heap->spares_lock);
    if (heap->spare_bytes + block->region.length > SPARE_TOTAL) return false;
    for (int i = 0; i < VLCI_HEAP_SPARES; i++) {
        if (heap->spares[i]) continue;
        block->zeroed = false;
        heap->spares[i] = block;
        heap->spare_bytes += block->region.length;
        return true;
    }
    return false;
}

static void spares_drop(vlc_context *context) {
    struct vlci_heap *heap = &context->heap;
    for (int i = 0; i < VLCI_HEAP_SPARES; i++) {
        vlci_lock_take(&heap->spares_lock);
        struct vlci_block_region *spare = heap->spares[i];
        heap->spares[i] = NULL;
        if (spare) heap->spare_bytes -= spare->region.length;
        vlci_lock_drop(&heap->spares_lock);
        if (spare) region_free(spare);
    }
}

static void *large_take(vlc_context *context, size_t size, size_t align, bool zero) {
    if (size > HUGE) {
        errno = ENOMEM;
        return NULL;
    }
    size_t start = align > LARGE_START ? align : LARGE_START;
    size_t length =
        VLCI_GRANULE_UP(start + size); /* whole granules: neighbours merge into one kernel mapping */
    struct vlci_block_region *block = align <= VLCI_GRANULE ? spare_take(&context->heap, length) : NULL;
    if (!block)
        block = region_make(context, VLCI_REGION_BLOCK, length, align > VLCI_PAGE ? align : VLCI_PAGE, &plain,
                            length, 0);
    if (!block) {
        errno = ENOMEM;
        return NULL;
    }
    char *taken = block->region.base + start;
    mark(taken);
    if (zero && !block->zeroed) memset(taken, 0, size);
    return taken;
}

void *vlci_heap_take(vlc_context *context, size_t size, size_t align, bool zero) {
    size_t with_mark = size + MARK_SIZE;
    if (align > 16 && align <= VLCI_PAGE &&
        size < SMALL) { /* classes of a power of two are aligned to their size */
        size_t power = with_mark < align ? align : with_mark;
        power = 1ul << (64 - __builtin_clzl(power - 1));
        if (power <= SMALL) {
            with_mark = power;
            align = 16;
        }
    }
    if (size >= SMALL || with_mark > SMALL || align > 16) return large_take(context, size, align, zero);
    void *block = small_take(context, class_of(with_mark));
    if (!block)
        errno = ENOMEM;
    else if (zero)
        memset(block, 0, size);
    return block;
}

void vlci_heap_give(void *block) {
    struct vlci_region *region = block ? vlci_region_at(block) : NULL;
    if (!region) {
        free(block);
    } else if (vlci_context_is_dead(region->context)) {
        return; /* of a context that did not fork: its locks may be held by nobody; the memory stays */
    } else if (region->kind == VLCI_REGION_SLAB) {
        small_give((struct vlci_slab *)region, block);
    } else if (region->kind == VLCI_REGION_BLOCK) {
        struct vlci_block_region *large = (struct vlci_block_region *)region;
        if (!spare_put(&region->context->heap, large)) region_free(large);
    } else {
        __builtin_trap(); /* free() of what malloc never gave: glibc aborts here too */
    }
}

void *vlci_heap_allocate(vlc_context *context, size_t size, size_t align, bool zero) {
    if (!context->heap.is_hosts) return vlci_heap_take(context, size, align, zero);
    if (align > 16) return memalign(align, size);
    return zero ? calloc(1, size) : malloc(size);
}

void vlc_free(void *block) {
    if (vlci_region_at(block) || !vlci_range_is_ours(block)) vlci_heap_give(block);
}

size_t vlci_heap_usable(void *block) {
    struct vlci_region *region = block ? vlci_region_at(block) : NULL;
    if (!region) return malloc_usable_size(block);
    return region->kind == VLCI_REGION_SLAB
               ? class_sizes[((struct vlci_slab *)region)->size_class] - MARK_SIZE
               : region->length - (size_t)((char *)block - region->base);
}

static void add_used(struct vlci_region *region, char *from, size_t length, void *total) {
    (void)from;
    if (region->kind == VLCI_REGION_BLOCK) *(size_t *)total += length;
    if (region->kind != VLCI_REGION_SLAB) return;
    const struct vlci_slab *slab = (const struct vlci_slab *)region;
    *(size_t *)total +=
        (size_t)atomic_load_explicit(&slab->used, memory_order_relaxed) * class_sizes[slab->size_class];
}

size_t vlci_heap_used(vlc_context *context) {
    size_t total = 0;
    for (char *at = NULL; vlci_zones_step(&context->zones, &at, SIZE_MAX, add_used, &total);) {
    }
    VLCI_HOLD(&context->heap.spares_lock);
    return total > context->heap.spare_bytes ? total - context->heap.spare_bytes : 0;
}

#ifndef MREMAP_DONTUNMAP /* glibc 2.32; the kernel decides */
#define MREMAP_DONTUNMAP 4
#endif

/* Moves the pages of a large block into a larger range, whose base it gives; the old one is left mapped, and counts no
 * more. NULL: not possible. */
static void *pages_move(vlc_context *context, struct vlci_block_region *old, size_t length) {
    struct vlci_block_region *grown =
        region_make(context, VLCI_REGION_BLOCK, length, VLCI_PAGE, &plain, length, old->charged);
    if (!grown) return NULL;
    /* without DONTUNMAP (Linux 5.7) the old range would be free for a moment, for anybody's mmap to take */
    if (mremap(old->region.base, old->region.length, old->region.length,
               MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, grown->region.base) != MAP_FAILED) {
        grown->zeroed = false;
        old->charged = 0;
        return grown->region.base;
    }
    grown->charged -= old->charged;
    region_free(grown);
    return NULL;
}

void *vlci_heap_resize(vlc_context *context, void *block, size_t size) {
    if (!block) return vlci_heap_allocate(context, size, 16, false);
    struct vlci_region *region = vlci_region_at(block);
    if (!region) return realloc(block, size); /* the host's stays the host's */
    if (vlci_context_is_dead(region->context)) {
        errno = ENOMEM;
        return NULL;
    }
    if (!size) {
        vlci_heap_give(block);
        return NULL;
    }
    if (size > HUGE) {
        errno = ENOMEM;
        return NULL;
    }
    size_t usable = vlci_heap_usable(block);
    if (size <= usable && (size > usable / 2 || usable <= 64)) return block;
    void *moved = NULL;
    if (region->kind == VLCI_REGION_BLOCK && size > usable && region->length >= 1ul << 20) {
        size_t start = (size_t)((char *)block - region->base);
        size_t room = start + size + size / 8; /* grown once, it will grow again */
        char *base = pages_move(region->context, (struct vlci_block_region *)region, VLCI_GRANULE_UP(room));
        if (!base) /* without what it may grow by, where that is beyond the limit */
            base = pages_move(region->context, (struct vlci_block_region *)region,
                              VLCI_GRANULE_UP(start + size));
        if (base) {
            moved = base + start;
            region_free((struct vlci_block_region *)region);
            return moved;
        }
    }
    if (!(moved = vlci_heap_take(region->context, size, 16, false))) return NULL;
    memcpy(moved, block, size < usable ? size : usable);
    vlci_heap_give(block);
    return moved;
}

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#define NOT_OURS (MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_32BIT | MAP_GROWSDOWN | MAP_HUGETLB)

#define BIT(page) (1ull << ((page) % 64))

struct part {
    size_t first, count; /* pages */
};
static struct part part_of(const struct vlci_block_region *mapping, const void *address, size_t length) {
    return (struct part){ (size_t)((const char *)address - mapping->region.base) / VLCI_PAGE,
                          VLCI_PAGE_UP(length) / VLCI_PAGE };
}

/* How many bytes of a part count, or do not. Its mapping's bits are there when some of it do and some do not. */
static size_t part_bytes(const struct vlci_block_region *mapping, struct part part, bool counted) {
    size_t pages = 0;
    if (!mapping->counted) return (mapping->charged > 0) == counted ? part.count * VLCI_PAGE : 0;
    for (size_t i = part.first; i < part.first + part.count; i++)
        pages += !(mapping->counted[i / 64] & BIT(i)) != counted;
    return pages * VLCI_PAGE;
}

/* False: no memory for the bits, and nothing has changed. */
static bool part_mark(struct vlci_block_region *mapping, struct part part, bool counts) {
    bool whole = part.count * VLCI_PAGE == mapping->region.length;
    if (!mapping->counted && !whole) {
        if (!(mapping->counted = vlci_memory_take(bits_size(mapping)))) return false;
        if (mapping->charged) memset(mapping->counted, 0xff, bits_size(mapping));
    }
    size_t bytes = part_bytes(mapping, part, !counts);
    mapping->charged = counts ? mapping->charged + bytes : mapping->charged - bytes;
    for (size_t i = part.first; mapping->counted && i < part.first + part.count; i++)
        mapping->counted[i / 64] =
            counts ? mapping->counted[i / 64] | BIT(i) : mapping->counted[i / 64] & ~BIT(i);
    return true;
}

/* Whether it counts from now on. False: the limit is in the way, or memory has run out. */
static bool part_counts(struct vlci_block_region *mapping, struct part part, bool counts) {
    vlc_context *context = mapping->region.context;
    VLCI_HOLD(&context->heap.parts_lock);
    size_t bytes = part_bytes(mapping, part, !counts);
    if (!bytes) return true;
    if (counts && !charge(context, bytes)) return false;
    bool done = part_mark(mapping, part, counts);
    if (done != counts) discharge(context, bytes);
    return done;
}

/* The region that [address, address + length) lies in whole, if it is a mapping of a context; else NULL. */
static struct vlci_block_region *mapping_of(const void *address, size_t length) {
    struct vlci_region *region = vlci_region_at(address);
    if (!region || region->kind != VLCI_REGION_MAPPING) return NULL;
    size_t offset = (size_t)((const char *)address - region->base), size = VLCI_PAGE_UP(region->length);
    return length <= size && offset <= size - length ? (struct vlci_block_region *)region : NULL;
}

/* It was unmapped, perhaps, and is mapped again. */
static void part_comes(struct vlci_block_region *mapping, struct part part) {
    VLCI_HOLD(&mapping->region.context->heap.parts_lock);
    for (size_t i = part.first; mapping->gone && i < part.first + part.count; i++) {
        mapping->gone_count -= (mapping->gone[i / 64] & BIT(i)) != 0;
        mapping->gone[i / 64] &= ~BIT(i);
    }
}

/* Over a mapping that is there, as those do that reserve addresses first. */
static void *map_fixed(void *address, size_t length, const struct how *how) {
    bool anonymous = how->flags & MAP_ANONYMOUS;
    struct vlci_block_region *mapping = mapping_of(address, length);
    if (mapping && anonymous && how->protection != PROT_NONE &&
        !part_counts(mapping, part_of(mapping, address, length), true)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    void *got = mmap(address, length, how->protection, how->flags, how->fd, how->offset);
    if (!mapping || got == MAP_FAILED) return got;
    part_comes(mapping, part_of(mapping, address, length));
    if (anonymous) vlci_policy_apply(mapping->region.context, address, VLCI_PAGE_UP(length));
    return got;
}

void *vlci_heap_map(vlc_context *context, void *address, size_t length, int protection, int flags, int fd,
                    off_t offset) {
    const struct how how = { protection, flags, fd, offset };
    if (length && length <= HUGE && flags & MAP_FIXED) return map_fixed(address, length, &how);
    if (!length || flags & NOT_OURS || length > HUGE)
        return mmap(address, length, protection, flags, fd, offset);
    length = VLCI_PAGE_UP(length);
    bool counts = flags & MAP_ANONYMOUS && protection != PROT_NONE;
    struct vlci_block_region *made =
        region_make(context, VLCI_REGION_MAPPING, length, VLCI_PAGE, &how, counts ? length : 0, 0);
    return made ? made->region.base : MAP_FAILED;
}

/* A reservation counts when it is made accessible. */
int vlci_heap_protect(void *address, size_t length, int protection) {
    struct vlci_block_region *mapping = protection == PROT_NONE ? NULL : mapping_of(address, length);
    if (mapping && !mapping->is_file && !part_counts(mapping, part_of(mapping, address, length), true)) {
        errno = ENOMEM;
        return -1;
    }
    return mprotect(address, length, protection);
}

bool vlci_heap_is_anonymous(const struct vlci_region *region) {
    switch (region->kind) {
    case VLCI_REGION_SLAB:
    case VLCI_REGION_BLOCK: return true;
    case VLCI_REGION_MAPPING: return !((const struct vlci_block_region *)region)->is_file;
    default: return false;
    }
}

/* Notes that pages of a mapping are unmapped; true: they were the last. Aligned allocators map more than they
 * want and trim both ends. */
static bool part_goes(struct vlci_block_region *mapping, struct part part) {
    size_t pages = mapping->region.length / VLCI_PAGE;
    if (part.count == pages) return true;
    part_counts(mapping, part, false);
    VLCI_HOLD(&mapping->region.context->heap.parts_lock);
    if (!mapping->gone && !(mapping->gone = vlci_memory_take(bits_size(mapping))))
        return false; /* goes with the context */
    for (size_t i = part.first; i < part.first + part.count; i++) {
        mapping->gone_count += !(mapping->gone[i / 64] & BIT(i));
        mapping->gone[i / 64] |= BIT(i);
    }
    return mapping->gone_count == pages;
}

static int unmap_part(struct vlci_region *region, char *address, size_t length) {
    struct vlci_block_region *mapping = (struct vlci_block_region *)region;
    if (region->kind == VLCI_REGION_MAPPING && part_goes(mapping, part_of(mapping, address, length))) {
        region_free(mapping);
        return 0;
    }
    /* its addresses stay reserved until the rest goes too */
    void *got = mmap(address, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return got == MAP_FAILED ? -1 : 0;
}

int vlci_heap_unmap(void *address, size_t length) {
    if (!vlci_region_at(address)) return munmap(address, length);
    if (!length || (uintptr_t)address % VLCI_PAGE) {
        errno = EINVAL;
        return -1;
    }
    char *at = address, *end = at + VLCI_PAGE_UP(length);
    while (at < end) { /* it may span several */
        struct vlci_region *region = vlci_region_at(at);
        char *stop = region ? region->base + VLCI_PAGE_UP(region->length) : at + VLCI_PAGE;
        if (stop > end) stop = end;
        if (region && stop > at && unmap_part(region, at, (size_t)(stop - at))) return -1;
        at = stop > at ? stop : at + VLCI_PAGE; /* a hole, or a granule's unused end */
    }
    return 0;
}

void *vlci_heap_remap(void *address, size_t old_length, size_t new_length, int flags, void *new_address) {
    struct vlci_region *region = vlci_region_at(address);
    if (!region || region->kind != VLCI_REGION_MAPPING)
        return mremap(address, old_length, new_length, flags, new_address);
    old_length = VLCI_PAGE_UP(old_length);
    new_length = VLCI_PAGE_UP(new_length);
    if (new_length && new_length <= old_length && !(flags & MREMAP_FIXED)) {
        if (new_length < old_length) vlci_heap_unmap((char *)address + new_length, old_length - new_length);
        return address;
    }
    if (!new_length || !mapping_of(address, old_length)) {
        errno = new_length ? EFAULT : EINVAL;
        return MAP_FAILED;
    }
    if (!(flags & MREMAP_MAYMOVE) || flags & MREMAP_FIXED) {
        errno = flags & MREMAP_FIXED ? EINVAL : ENOMEM;
        return MAP_FAILED;
    }
    static const struct how reserved = { PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0 };
    vlc_context *context = region->context;
    struct vlci_block_region *old = (struct vlci_block_region *)region;
    const struct part part = part_of(old, address, old_length);
    vlci_lock_take(&context->heap.parts_lock);
    size_t counted = part_bytes(old, part, true);
    vlci_lock_drop(&context->heap.parts_lock);
    struct vlci_block_region *moved = region_make(context, VLCI_REGION_MAPPING, new_length, VLCI_PAGE,
                                                  &reserved, counted ? new_length : 0, counted);
    if (!moved) return MAP_FAILED;
    if (mremap(address, old_length, new_length, MREMAP_MAYMOVE | MREMAP_FIXED, moved->region.base) ==
        MAP_FAILED) {
        int failure = errno;
        moved->charged -= counted;
        region_free(moved);
        errno = failure;
        return MAP_FAILED;
    }
    moved->is_file = old->is_file;
    if (!moved->is_file) vlci_policy_apply(context, moved->region.base, new_length);
    vlci_lock_take(&context->heap.parts_lock);
    part_mark(old, part, false); /* what counted of it is the new one's */
    vlci_lock_drop(&context->heap.parts_lock);
    /* the kernel has left a hole: reserve it again, unless somebody's mmap was quicker; then it is theirs */
    bool whole = address == region->base && old_length >= region->length;
    if (mmap(address, old_length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) ==
        MAP_FAILED)
        vlci_range_abandon(&context->zones, region);
    else if (whole || part_goes(old, part))
        region_free(old);
    return moved->region.base;
}

static void record_free(struct vlci_region *region) {
    switch (region->kind) { /* once given, a record is another thread's */
    case VLCI_REGION_SLAB: vlci_memory_give(region, sizeof(struct vlci_slab)); break;
    case VLCI_REGION_BLOCK:
    case VLCI_REGION_MAPPING: record_give((struct vlci_block_region *)region); break;
    default: break;
    }
}

void vlci_heap_free(vlc_context *context) { vlci_zones_each(&context->zones, record_free); }

void vlci_heap_fork(vlc_context *context, enum vlci_fork when) {
    for (int i = 0; i < VLCI_HEAP_CLASSES; i++) vlci_lock_fork(&context->heap.classes[i].lock, when);
    vlci_lock_fork(&context->heap.parts_lock, when);
    vlci_lock_fork(&context->heap.spares_lock,
                   when); /* under all before: a limit that is met empties the spares */
    vlci_lock_fork(&context->zones.lock, when);
}
