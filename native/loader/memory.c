#include "loader/memory.h"

#include "context/os.h"
#include "loader/range.h"

#include <string.h>
#include <sys/mman.h>

#define SMALLEST_SHIFT 5 /* 32 bytes */
#define LARGEST_SHIFT 15 /* 32 kB; more is mapped for itself */
#define REFILL (256ul << 10)

struct spare {
    struct spare *next;
};

static vlci_lock lock;
static struct spare *spares[LARGEST_SHIFT + 1];

static unsigned class_of(size_t size) {
    unsigned shift = SMALLEST_SHIFT;
    while ((1ul << shift) < size) shift++;
    return shift;
}

static void *map(size_t size) {
    void *block = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return block == MAP_FAILED ? NULL : block;
}

static void *take_small(unsigned shift) {
    VLCI_HOLD(&lock);
    if (!spares[shift]) {
        char *fresh = map(REFILL);
        if (!fresh) return NULL;
        for (size_t at = 0; at < REFILL; at += 1ul << shift) {
            struct spare *spare = (struct spare *)(fresh + at);
            spare->next = spares[shift];
            spares[shift] = spare;
        }
    }
    struct spare *spare = spares[shift];
    spares[shift] = spare->next;
    return spare;
}

void *vlci_memory_take(size_t size) {
    unsigned shift = class_of(size);
    if (shift > LARGEST_SHIFT) return map(VLCI_PAGE_UP(size));
    sigset_t signals;
    vlci_os_signals_block(&signals);
    void *block = take_small(shift);
    vlci_os_signals_restore(&signals);
    return block ? memset(block, 0, size) : NULL;
}

void vlci_memory_give(void *block, size_t size) {
    if (!block) return;
    unsigned shift = class_of(size);
    if (shift > LARGEST_SHIFT) {
        munmap(block, VLCI_PAGE_UP(size));
        return;
    }
    sigset_t signals;
    vlci_os_signals_block(&signals);
    vlci_lock_take(&lock);
    ((struct spare *)block)->next = spares[shift];
    spares[shift] = block;
    vlci_lock_drop(&lock);
    vlci_os_signals_restore(&signals);
}

void vlci_memory_fork(enum vlci_fork when) { vlci_lock_fork(&lock, when); }
