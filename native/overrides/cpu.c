/* Which CPUs there are, and moving to others: a context's libraries see their slice and stay in it.
 *
 * Only what counts usable CPUs shrinks. _SC_NPROCESSORS_CONF, /sys/.../possible and sched_getcpu stay true:
 * libraries size arrays by the first and index them by the last. */
#include "context/context.h"
#include "context/os.h"
#include "loader/host.h"
#include "loader/thread.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

long (*vlci_host_syscall)(long, ...) __attribute__((visibility("hidden"))) = syscall; /* for arch_*.S */

/* The part of `mask` that lies in the slice; false: none. */
static bool within_slice(vlc_context *context, const cpu_set_t *mask, size_t size, cpu_set_t *slice,
                         cpu_set_t *part) {
    cpu_set_t asked;
    CPU_ZERO(&asked);
    memcpy(&asked, mask, size < sizeof asked ? size : sizeof asked);
    vlci_context_cpus(context, slice);
    CPU_AND(part, &asked, slice);
    return CPU_COUNT(part) > 0;
}

/* As the system call: what a thread may use, as far as it lies in the slice; a thread outside of it (the
 * host's main thread, say) answers with the slice, which is where it would run for this context. Returns
 * the bytes that the kernel would have written, or -errno. */
static long get(vlc_context *context, pid_t tid, size_t size, cpu_set_t *out) {
    if (!out) return -EFAULT; /* older OpenMP runtimes probe with NULL */
    cpu_set_t now, slice, both;
    int failed = vlci_os_affinity_get(tid, &now);
    if (failed) return failed;
    vlci_context_cpus(context, &slice);
    CPU_AND(&both, &now, &slice);
    if (!CPU_COUNT(&both)) both = slice;
    size_t last = 0;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &both)) last = cpu;
    if (size % sizeof(long) || size * 8 <= last) return -EINVAL;
    size_t bytes = size < sizeof both ? size : sizeof both;
    memcpy(out, &both, bytes);
    return (long)bytes;
}

static long set(vlc_context *context, pid_t tid, size_t size, const cpu_set_t *mask) {
    cpu_set_t slice, part;
    if (!mask) return -EFAULT;
    if (!within_slice(context, mask, size, &slice, &part)) return -EINVAL;
    int failed = vlci_os_affinity_set(tid, &part);
    if (!failed) vlci_slice_settle(context, tid, &slice);
    return failed;
}

static int answer(long result) {
    if (result >= 0) return 0;
    errno = (int)-result;
    return -1;
}

int vlci_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *out, vlc_context *context) {
    long bytes = get(context, pid, size, out);
    if (bytes > 0 && (size_t)bytes < size) memset((char *)out + bytes, 0, size - bytes); /* as glibc does */
    return answer(bytes);
}

int vlci_sched_setaffinity(pid_t pid, size_t size, const cpu_set_t *mask, vlc_context *context) {
    return answer(set(context, pid, size, mask));
}

/* The thread id behind a pthread_t, if it is one that we know; else 0. */
struct search {
    pthread_t handle;
    pid_t tid;
};
static void compare(struct vlci_thread *thread, void *argument) {
    struct search *search = argument;
    if (pthread_equal(thread->handle, search->handle)) search->tid = thread->tid;
}
static pid_t tid_of(pthread_t handle) {
    if (pthread_equal(handle, pthread_self())) return vlci_os_thread_id();
    struct search search = { handle, 0 };
    vlci_thread_each(NULL, compare, &search);
    return search.tid;
}

int vlci_pthread_getaffinity(pthread_t handle, size_t size, cpu_set_t *out, vlc_context *context) {
    if (!out) return EFAULT;
    pid_t tid = tid_of(handle);
    if (!tid) { /* just made, or not yet listed: it will be in the slice */
        cpu_set_t slice;
        vlci_context_cpus(context, &slice);
        memset(out, 0, size);
        memcpy(out, &slice, size < sizeof slice ? size : sizeof slice);
        return 0;
    }
    long bytes = get(context, tid, size, out);
    if (bytes > 0 && (size_t)bytes < size) memset((char *)out + bytes, 0, size - bytes);
    return bytes < 0 ? (int)-bytes : 0;
}

int vlci_pthread_setaffinity(pthread_t handle, size_t size, const cpu_set_t *mask, vlc_context *context) {
    cpu_set_t slice, part;
    if (!mask) return EFAULT;
    if (!within_slice(context, mask, size, &slice, &part)) return EINVAL;
    int failed = pthread_setaffinity_np(handle, sizeof part, &part);
    pid_t tid = failed ? 0 : tid_of(handle); /* one that is not listed yet pins itself when it begins */
    if (tid) vlci_slice_settle(context, tid, &slice);
    return failed;
}

int vlci_pthread_attr_setaffinity(pthread_attr_t *attributes, size_t size, const cpu_set_t *mask,
                                  vlc_context *context) {
    if (!mask || !size) return pthread_attr_setaffinity_np(attributes, size, mask);
    cpu_set_t slice, part;
    if (!within_slice(context, mask, size, &slice, &part)) return EINVAL;
    return pthread_attr_setaffinity_np(attributes, sizeof part, &part);
}

int vlci_get_nprocs(vlc_context *context) {
    cpu_set_t slice;
    vlci_context_cpus(context, &slice);
    return CPU_COUNT(&slice);
}

long vlci_sysconf(int name, vlc_context *context) {
    return name == _SC_NPROCESSORS_ONLN ? vlci_get_nprocs(context) : sysconf(name);
}

/* libomp and libiomp5 ask the kernel directly. The result is the kernel's: bytes written, or -1 and errno. */
long vlci_syscall_affinity(long number, long pid, long size, void *mask, vlc_context *context) {
    long result = number == SYS_sched_getaffinity ? get(context, (pid_t)pid, (size_t)size, mask)
                                                  : set(context, (pid_t)pid, (size_t)size, mask);
    if (result >= 0) return result;
    errno = (int)-result;
    return -1;
}
