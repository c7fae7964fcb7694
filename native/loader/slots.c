#include "loader/slots.h"

#include "context/context.h"
#include "loader/arch.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct vlci_slots pool; /* of the process; the contexts' are their own */

typedef void *pool_function(size_t *size);

static pool_function *pool_find(void) {
    pool_function *found = (pool_function *)dlsym(RTLD_DEFAULT, "vlc_tls_pool"); /* preloaded by `vlcs run` */
    if (found) return found;
    Dl_info self;
    if (!dladdr((void *)vlci_slots_start, &self) || !self.dli_fname) return NULL;
    const char *slash = strrchr(self.dli_fname, '/');
    int length = slash ? (int)(slash - self.dli_fname) : 0;
    static const int sizes[] = { 768, 512, 256, 128, 64 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes;
         i++) { /* leaves half of ld.so's surplus (1,664 bytes) to the host's own imports */
        char path[4096];
        snprintf(path, sizeof path, "%.*s/libvlcs_tls_%d.so", length, self.dli_fname, sizes[i]);
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library) return (pool_function *)dlsym(library, "vlc_tls_pool");
    }
    return NULL;
}

void vlci_slots_start(void) {
    pool_function *function = pool.size ? NULL : pool_find();
    if (!function) return; /* no slots: libraries that need one are refused with the cure */
    size_t size;
    char *mine = function(&size);
    pool.offset = mine - vlci_arch_thread_pointer();
    pool.size = size > VLCI_SLOTS_SIZE ? VLCI_SLOTS_SIZE : size;
}

bool vlci_slots_make(vlc_context *context) {
    context->slots = calloc(1, sizeof *context->slots);
    if (context->slots) context->slots->size = VLCI_SLOTS_SIZE;
    return context->slots != NULL;
}

void vlci_slots_free(vlc_context *context) { free(context->slots); }

static struct vlci_slots *slots_of(const vlc_context *context) {
    return context && context->slots ? context->slots : &pool;
}

size_t vlci_slots_need(const struct vlci_tls_segment *tls) {
    return (tls->size + tls->skew + VLCI_SLOT - 1) / VLCI_SLOT * VLCI_SLOT;
}

bool vlci_slots_take(vlc_context *context, struct vlci_tls_segment *tls) {
    struct vlci_slots *slots = slots_of(context);
    size_t need = vlci_slots_need(tls) / VLCI_SLOT, run = 0;
    for (size_t i = 0; i < slots->size / VLCI_SLOT; i++) {
        run = slots->used[i] ? 0 : run + 1;
        if (run < need) continue;
        size_t first = i + 1 - need;
        memset(slots->used + first, 1, need);
        tls->offset = slots->offset + (ptrdiff_t)(first * VLCI_SLOT + tls->skew);
        atomic_fetch_add(&context->slot_bytes, need * VLCI_SLOT);
        return true;
    }
    return false;
}

void vlci_slots_give(vlc_context *context, const struct vlci_tls_segment *tls) {
    struct vlci_slots *slots = slots_of(context);
    size_t need = vlci_slots_need(tls);
    ptrdiff_t first = (tls->offset - (ptrdiff_t)tls->skew - slots->offset) / (ptrdiff_t)VLCI_SLOT;
    memset(slots->used + first, 0, need / VLCI_SLOT);
    atomic_fetch_sub(&context->slot_bytes, need);
}

size_t vlci_slots_size(const vlc_context *context) { return slots_of(context)->size; }

size_t vlci_slots_used(const vlc_context *context) {
    const struct vlci_slots *slots = slots_of(context);
    size_t used = 0;
    for (size_t i = 0; i < slots->size / VLCI_SLOT; i++) used += slots->used[i];
    return used * VLCI_SLOT;
}

bool vlci_slots_hold(const vlc_context *context, uintptr_t pointer, uintptr_t word) {
    return context->slots && word - (pointer + (uintptr_t)context->slots->offset) < VLCI_SLOTS_SIZE;
}

bool vlci_slots_are_low(void) {
    size_t expected = VLCI_SLOTS_EXPECTED;
    for (const vlc_context *at = vlci_contexts; at; at = at->next) {
        size_t used = atomic_load(&at->slot_bytes);
        if (!at->slots) expected += used > VLCI_SLOTS_EXPECTED ? used : VLCI_SLOTS_EXPECTED;
    }
    return expected > pool.size;
}
