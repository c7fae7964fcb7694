/* numa.h: what the kernel says of nodes and policies, by system call, so never answered by a context. */
#ifndef NUMA_H
#define NUMA_H

#include <errno.h>
#include <sys/syscall.h>

#include "contexts.h"

enum { MODE_DEFAULT, MODE_PREFERRED, MODE_BIND, MODE_INTERLEAVE, MODE_LOCAL, MODE_PREFERRED_MANY };

/* The nodes whose memory may be used, in ascending order; a machine where no policy can be set skips the test. */
static inline size_t usable_nodes(uint32_t *nodes, size_t capacity) {
    size_t count = 0;
    vlc_error error = VLC_ERROR_INIT;
    int status = vlc_allowed_nodes(nodes, capacity, &count, &error);
    if (status == VLC_SYSTEM) SKIP("no-mempolicy", error.message);
    REQUIRE(status == VLC_OK && count > 0, "%s", error.message);
    return count;
}

static inline vlc_context *with_policy(const char *name, uint32_t memory, const uint32_t *on, size_t count) {
    vlc_spec spec = VLC_SPEC_INIT;
    spec.name = name;
    spec.memory = memory;
    spec.nodes = on;
    spec.node_count = count;
    vlc_context *context = context_from(&spec);
    load(context, FIXTURE("memory"), RTLD_NOW);
    return context;
}

static inline uint64_t bits(const uint32_t *on, size_t count) {
    uint64_t mask = 0;
    for (size_t i = 0; i < count; i++) mask |= 1ull << on[i];
    return mask;
}

/* Of this thread. */
static inline int thread_mode(void) {
    int mode = -1;
    REQUIRE(syscall(SYS_get_mempolicy, &mode, NULL, 0, NULL, 0) == 0, "get_mempolicy: %d", errno);
    return mode;
}

/* Of the mapping at an address; its nodes (of the first 64) to *nodes. */
static inline int mode_at(const void *address, uint64_t *nodes) {
    enum { BITS = 1025, ADDRESS = 2 }; /* MPOL_F_ADDR */
    int mode = -1;
    uint64_t mask[16] = { 0 };
    REQUIRE(syscall(SYS_get_mempolicy, &mode, mask, (unsigned long)BITS, address, ADDRESS) == 0,
            "get_mempolicy: %d", errno);
    if (nodes) *nodes = mask[0];
    return mode;
}

/* The node of a page that was touched; negative: an error. */
static inline int node_at(const void *address) {
    void *page = (void *)((uintptr_t)address & ~4095ul);
    int node = -1;
    REQUIRE(syscall(SYS_move_pages, 0, 1ul, &page, NULL, &node, 0) == 0, "move_pages: %d", errno);
    return node;
}

#endif
