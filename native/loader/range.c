#include "loader/range.h"

#include "context/os.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* The owner table has two levels: 1 GB sectors, made when a chunk first touches them, of 16,384
 * granules. A flat table over 47 bits would be 16 GB of address space, too much under `ulimit -v`. */
#define SECTOR_SHIFT 30
#define GRANULE_SHIFT 16
#define SECTORS (1ul << (47 - SECTOR_SHIFT))
#define GRANULES_PER_SECTOR (1ul << (SECTOR_SHIFT - GRANULE_SHIFT))

typedef _Atomic(struct vlci_region *) owner;
static _Atomic(owner *) sectors[SECTORS];

/* A chunk is address space reserved at once and handed out in units of VLCI_ZONE. */
#define CHUNK_FIRST (16ul << 30)
#define CHUNK_SMALLEST VLCI_ZONE
struct chunk {
    struct chunk *next;
    char *base;
    size_t units;
    unsigned char used[]; /* per unit */
};

struct vlci_zone {
    struct vlci_zone *next;
    struct chunk *chunk;
    char *base;
    size_t granules, free, hint;
    uint64_t used[]; /* bitmap of granules */
};

static vlci_lock chunks_lock;
static struct chunk *chunks;

struct vlci_region *vlci_region_at(const void *address) {
    uintptr_t at = (uintptr_t)address;
    if (at >> 47) return NULL;
    owner *sector = atomic_load_explicit(&sectors[at >> SECTOR_SHIFT], memory_order_acquire);
    if (!sector) return NULL;
    return atomic_load_explicit(&sector[(at >> GRANULE_SHIFT) & (GRANULES_PER_SECTOR - 1)],
                                memory_order_acquire);
}

bool vlci_range_is_ours(const void *address) {
    uintptr_t at = (uintptr_t)address;
    if (at >> 47 || !atomic_load(&sectors[at >> SECTOR_SHIFT])) return false;
    VLCI_HOLD(&chunks_lock);
    for (const struct chunk *chunk = chunks; chunk; chunk = chunk->next)
        if (at - (uintptr_t)chunk->base < chunk->units * VLCI_ZONE) return true;
    return false;
}

static void owners_set(char *base, size_t length, struct vlci_region *region) {
    for (uintptr_t at = (uintptr_t)base, end = at + length; at < end; at += VLCI_GRANULE) {
        owner *sector = atomic_load_explicit(&sectors[at >> SECTOR_SHIFT], memory_order_acquire);
        atomic_store_explicit(&sector[(at >> GRANULE_SHIFT) & (GRANULES_PER_SECTOR - 1)], region,
                              memory_order_release);
    }
}

static bool sectors_make(char *base, size_t length) {
    for (uintptr_t at = (uintptr_t)base >> SECTOR_SHIFT; at <= ((uintptr_t)base + length - 1) >> SECTOR_SHIFT;
         at++) {
        if (atomic_load(&sectors[at])) continue;
        void *table = mmap(NULL, GRANULES_PER_SECTOR * sizeof(owner), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (table == MAP_FAILED) return false;
        atomic_store_explicit(&sectors[at], table, memory_order_release);
    }
    return true;
}

static void *reserve_fixed(void *base, size_t length) {
    return mmap(base, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

/* Reserves at least `least` bytes, aligned to VLCI_ZONE: as much as fits an eighth of RLIMIT_AS, less when refused. */
static struct chunk *chunk_make(size_t least) {
    struct rlimit limit;
    size_t size = CHUNK_FIRST;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        while (size > limit.rlim_cur / 8 && size > CHUNK_SMALLEST) size /= 2;
    if (size < least) size = least;
    for (;; size = size / 2 > least ? size / 2 : least) {
        char *got = mmap(NULL, size + VLCI_ZONE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (got == MAP_FAILED) {
            if (size == least) return NULL;
            continue;
        }
        char *base = (char *)(((uintptr_t)got + VLCI_ZONE - 1) & ~(VLCI_ZONE - 1));
        if (base > got) munmap(got, base - got);
        if (base + size < got + size + VLCI_ZONE) munmap(base + size, got + VLCI_ZONE - base);
        struct chunk *chunk = calloc(1, sizeof *chunk + size / VLCI_ZONE);
        if (!chunk || !sectors_make(base, size)) {
            free(chunk);
            munmap(base, size);
            return NULL;
        }
        chunk->base = base;
        chunk->units = size / VLCI_ZONE;
        chunk->next = chunks;
        chunks = chunk;
        return chunk;
    }
}

static char *units_take(size_t units, struct chunk **from) {
    VLCI_HOLD(&chunks_lock);
    for (int attempt = 0; attempt < 2; attempt++) {
        for (struct chunk *chunk = chunks; chunk; chunk = chunk->next)
            for (size_t i = 0, run = 0; i < chunk->units; i++) {
                run = chunk->used[i] ? 0 : run + 1;
                if (run < units) continue;
                size_t first = i + 1 - units;
                memset(chunk->used + first, 1, units);
                *from = chunk;
                return chunk->base + first * VLCI_ZONE;
            }
        if (attempt == 0 && !chunk_make(units * VLCI_ZONE)) break;
    }
    return NULL;
}

static void units_give(struct chunk *chunk, char *base, size_t units) {
    VLCI_HOLD(&chunks_lock);
    memset(chunk->used + (base - chunk->base) / VLCI_ZONE, 0, units);
}

static bool zone_find(struct vlci_zone *zone, size_t need, size_t align, size_t *at) {
    if (zone->free < need) return false;
    size_t step = align / VLCI_GRANULE ? align / VLCI_GRANULE : 1;
    uintptr_t base = (uintptr_t)zone->base / VLCI_GRANULE;
    for (int pass = 0; pass < 2; pass++) {
        size_t i = pass ? 0 : zone->hint, end = pass ? zone->hint + need : zone->granules;
        if (end > zone->granules) end = zone->granules;
        while (i + need <= end) {
            size_t skew = (base + i) % step;
            if (skew) {
                i += step - skew;
                continue;
            }
            size_t k = 0;
            while (k < need && !(zone->used[(i + k) / 64] >> ((i + k) % 64) & 1)) k++;
            if (k == need) {
                *at = i;
                return true;
            }
            i += k + 1;
        }
    }
    return false;
}

static void zone_mark(struct vlci_zone *zone, size_t first, size_t count, bool used) {
    for (size_t i = first; i < first + count; i++) {
        if (used)
            zone->used[i / 64] |= 1ull << (i % 64);
        else
            zone->used[i / 64] &= ~(1ull << (i % 64));
    }
    zone->free += used ? -count : count;
}

static struct vlci_zone *zone_make(struct vlci_zones *zones, size_t need) {
    size_t units = (need * VLCI_GRANULE + VLCI_ZONE - 1) / VLCI_ZONE;
    size_t granules = units * (VLCI_ZONE / VLCI_GRANULE);
    struct vlci_zone *zone = calloc(1, sizeof *zone + (granules + 63) / 64 * 8);
    if (!zone) return NULL;
    if (!(zone->base = units_take(units, &zone->chunk))) {
        free(zone);
        return NULL;
    }
    zone->granules = zone->free = granules;
    zone->next = zones->first;
    zones->first = zone;
    return zone;
}

static void zone_give(struct vlci_zone *zone) {
    units_give(zone->chunk, zone->base, zone->granules * VLCI_GRANULE / VLCI_ZONE);
    free(zone);
}

bool vlci_range_take(struct vlci_zones *zones, struct vlci_region *region, size_t align) {
    if (region->length > 1ul << 46) return false;
    size_t need = VLCI_GRANULE_UP(region->length) / VLCI_GRANULE, at = 0;
    VLCI_HOLD(&zones->lock);
    struct vlci_zone *zone = zones->first;
    while (zone && !zone_find(zone, need, align, &at)) zone = zone->next;
    if (!zone) {
        size_t slack = align > VLCI_ZONE ? align / VLCI_GRANULE : 0; /* zones are aligned to VLCI_ZONE */
        zone = zone_make(zones, need + slack);
        if (!zone || !zone_find(zone, need, align, &at)) return false;
    }
    zone_mark(zone, at, need, true);
    zone->hint = at + need;
    region->base = zone->base + at * VLCI_GRANULE;
    owners_set(region->base, need * VLCI_GRANULE, region);
    return true;
}

void vlci_range_give(struct vlci_zones *zones, struct vlci_region *region) {
    size_t length = VLCI_GRANULE_UP(region->length);
    VLCI_HOLD(&zones->lock);
    reserve_fixed(region->base, length);
    owners_set(region->base, length, NULL);
    for (struct vlci_zone **link = &zones->first, *zone; (zone = *link); link = &zone->next) {
        if (region->base < zone->base || region->base >= zone->base + zone->granules * VLCI_GRANULE) continue;
        size_t at = (region->base - zone->base) / VLCI_GRANULE;
        zone_mark(zone, at, length / VLCI_GRANULE, false);
        if (at < zone->hint) zone->hint = at;
        if (zone->free == zone->granules && zones->first->next) { /* keep the last one */
            *link = zone->next;
            zone_give(zone);
        }
        return;
    }
}

void vlci_range_abandon(struct vlci_zones *zones, struct vlci_region *region) {
    VLCI_HOLD(&zones->lock);
    owners_set(region->base, VLCI_GRANULE_UP(region->length), NULL);
}

void vlci_zones_each(struct vlci_zones *zones, void (*visit)(struct vlci_region *)) {
    for (const struct vlci_zone *zone = zones->first; zone; zone = zone->next)
        for (char *at = zone->base, *end = at + zone->granules * VLCI_GRANULE; at < end;) {
            struct vlci_region *region = vlci_region_at(at);
            at += region ? VLCI_GRANULE_UP(region->length) : VLCI_GRANULE;
            if (region) visit(region);
        }
}

/* The zone that holds the address, or else the next one above. */
static struct vlci_zone *zone_from(const struct vlci_zones *zones, const char *at) {
    struct vlci_zone *found = NULL;
    for (struct vlci_zone *zone = zones->first; zone; zone = zone->next)
        if (at < zone->base + zone->granules * VLCI_GRANULE && (!found || zone->base < found->base))
            found = zone;
    return found;
}

bool vlci_zones_step(struct vlci_zones *zones, char **at, size_t most, vlci_visit_part *visit,
                     void *argument) {
    VLCI_HOLD(&zones->lock);
    const struct vlci_zone *zone = zone_from(zones, *at);
    if (!zone) return false;
    if (*at < zone->base) *at = zone->base;
    char *end = zone->base + zone->granules * VLCI_GRANULE;
    for (size_t left = most; *at < end && left;) {
        struct vlci_region *region = vlci_region_at(*at);
        if (!region) {
            *at += VLCI_GRANULE;
            continue;
        }
        char *from = *at;
        size_t length = (size_t)(region->base + VLCI_PAGE_UP(region->length) - from);
        if (length > left) length = left;
        *at += VLCI_GRANULE_UP(length);
        left -= VLCI_GRANULE_UP(length);
        visit(region, from, length, argument);
    }
    return true;
}

void vlci_zones_give(struct vlci_zones *zones) {
    VLCI_HOLD(&zones->lock);
    for (struct vlci_zone *zone; (zone = zones->first);) {
        zones->first = zone->next;
        reserve_fixed(zone->base, zone->granules * VLCI_GRANULE);
        owners_set(zone->base, zone->granules * VLCI_GRANULE, NULL);
        zone_give(zone);
    }
}

void vlci_range_fork(enum vlci_fork when) { vlci_lock_fork(&chunks_lock, when); }
