/* Memory policies that libraries set themselves (libnuma, and whoever makes the system calls through libc).
 *
 * To be bound to nodes is a boundary, as a cpuset.mems is: what a library asks for is cut to it, and EINVAL when
 * nothing is left. All other policies of a context are what its libraries begin with. MPOL_DEFAULT is the context's
 * own, in either case. */
#include "context/policy.h"

#include "context/context.h"
#include "context/os.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>

/* linux/mempolicy.h */
#define MODE_FLAGS 0xe000
#define RELATIVE_NODES 0x4000
#define MEMS_ALLOWED 4

/* As the kernel reads one: of `bits - 1` bits, in whole words. False: it cannot be read. */
static bool read_mask(const void *mask, unsigned long bits, vlci_nodes *nodes) {
    CPU_ZERO(nodes);
    size_t bytes = bits > 1 ? (bits - 1 + 63) / 64 * 8 : 0;
    if (!mask || !bytes) return true;
    if (bytes > sizeof *nodes) bytes = sizeof *nodes;
    if (!vlci_os_is_readable(mask) || !vlci_os_is_readable((const char *)mask + bytes - 8)) return false;
    memcpy(nodes, mask, bytes);
    return true;
}

/* What the kernel is asked for instead. 0, or an error number. */
static int answer(const struct vlci_policy *own, int mode, const void *mask, unsigned long bits,
                  struct vlci_os_policy *asked) {
    if (!read_mask(mask, bits, &asked->nodes)) return EFAULT;
    asked->mode = mode;
    if (!own) return 0;
    bool is_bound = own->memory == VLC_MEMORY_BIND;
    int kind = mode & ~MODE_FLAGS;
    if (kind == VLCI_OS_DEFAULT) {
        *asked = own->kernel;
    } else if (is_bound && (kind == VLCI_OS_BIND || kind == VLCI_OS_INTERLEAVE) && !(mode & RELATIVE_NODES)) {
        CPU_AND(&asked->nodes, &asked->nodes, &own->kernel.nodes);
        if (!CPU_COUNT(&asked->nodes)) return EINVAL;
    } else if (is_bound) { /* a preference has all nodes behind it, and cannot be cut */
        vlci_nodes both;
        CPU_AND(&both, &asked->nodes, &own->kernel.nodes);
        if (CPU_COUNT(&asked->nodes) && !CPU_COUNT(&both)) return EINVAL;
        *asked = own->kernel;
    }
    return 0;
}

static long get(const struct vlci_policy *own, int *mode, void *mask, unsigned long bits, void *address,
                unsigned long flags) {
    long result = vlci_os_policy_ask(mode, mask, bits, address, flags);
    if (result || flags != MEMS_ALLOWED || !own || own->memory != VLC_MEMORY_BIND || !mask) return result;
    size_t bytes = (bits - 1 + 63) / 64 * 8; /* all of them, or the kernel had refused */
    for (size_t i = 0; i < bytes / 8; i++)
        ((uint64_t *)mask)[i] &= i < sizeof(vlci_nodes) / 8 ? ((const uint64_t *)&own->kernel.nodes)[i] : 0;
    return result;
}

/* Called as syscall(number, ...) is; `back` is the caller's return address. */
long vlci_syscall_memory(long number, long a, long b, long c, long d, long e, vlc_context *context, long back,
                         long f) {
    (void)back;
    const struct vlci_policy *own = atomic_load(&context->policy);
    struct vlci_os_policy asked;
    long result;
    if (number == SYS_get_mempolicy) {
        result = get(own, (int *)a, (void *)b, (unsigned long)c, (void *)d, (unsigned long)e);
    } else if (number == SYS_set_mempolicy) {
        result = -answer(own, (int)a, (const void *)b, (unsigned long)c, &asked);
        if (!result) vlci_policy_keep();
        if (!result) result = vlci_os_policy_set(&asked);
    } else {
        result = -answer(own, (int)c, (const void *)d, (unsigned long)e, &asked);
        if (!result) result = vlci_os_policy_bind_as((void *)a, (size_t)b, &asked, (unsigned)f);
    }
    if (result >= 0) return result;
    errno = (int)-result;
    return -1;
}
