#include "context/os.h"

#include "context/cpu_list.h"
#include "loader/arch.h"
#include "loader/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

/* linux/magic.h */
#define PROC_MAGIC 0x9fa0
#define SYSFS_MAGIC 0x62656572
#define CGROUP_MAGIC 0x27e0eb
#define CGROUP2_MAGIC 0x63677270

void vlci_lock_wait(vlci_lock *lock) {
    for (int spin = 0; spin < 100; spin++) { /* most sections are shorter than a system call */
        int free = 0;
        if (atomic_compare_exchange_weak_explicit(&lock->state, &free, 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return;
        vlci_arch_pause();
    }
    while (atomic_exchange_explicit(&lock->state, 2, memory_order_acquire) != 0)
        syscall(SYS_futex, &lock->state, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
}

void vlci_lock_wake(vlci_lock *lock) {
    syscall(SYS_futex, &lock->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

pid_t vlci_os_thread_id(void) { return (pid_t)syscall(SYS_gettid); }

bool vlci_os_thread_exists(pid_t tid) { return syscall(SYS_tgkill, getpid(), tid, 0) == 0 || errno != ESRCH; }

void vlci_os_thread_signal(pid_t tid, int signal) { syscall(SYS_tgkill, getpid(), tid, signal); }

int vlci_os_affinity_get(pid_t tid, cpu_set_t *cpus) {
    CPU_ZERO(cpus);
    return syscall(SYS_sched_getaffinity, tid, sizeof *cpus, cpus) < 0 ? -errno : 0;
}

int vlci_os_affinity_set(pid_t tid, const cpu_set_t *cpus) {
    return syscall(SYS_sched_setaffinity, tid, sizeof *cpus, cpus) < 0 ? -errno : 0;
}

int vlci_os_nice_get(pid_t tid, int *nice) {
    long found = syscall(SYS_getpriority, PRIO_PROCESS, tid);
    if (found < 0) return -errno;
    *nice = 20 - (int)found; /* as the system call has it, so that none is an error: 40 to 1 */
    return 0;
}

int vlci_os_nice_set(pid_t tid, int nice) {
    return syscall(SYS_setpriority, PRIO_PROCESS, tid, nice) < 0 ? -errno : 0;
}

int vlci_os_scheduling_set(pid_t tid, int policy) {
    const struct sched_param none = { 0 };
    return syscall(SYS_sched_setscheduler, tid, policy, &none) < 0 ? -errno : 0;
}

/* By system calls: libc's would let the thread be cancelled here. At the end, which is all the same to the kernel's
 * files, so that in any other one ids do not replace each other. */
int vlci_os_group_join(const char *file) {
    char id[16];
    int length = snprintf(id, sizeof id, "%d\n", (int)vlci_os_thread_id());
    int fd = (int)syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0) return -errno;
    int failed = syscall(SYS_write, fd, id, length) < 0 ? -errno : 0;
    syscall(SYS_close, fd);
    return failed;
}

/* Of the nodes in a mask; the kernel counts one more than it reads. */
#define MASK_BITS ((unsigned long)VLCI_NODES + 1)

int vlci_os_policy_get(struct vlci_os_policy *policy) {
    CPU_ZERO(&policy->nodes);
    return syscall(SYS_get_mempolicy, &policy->mode, &policy->nodes, MASK_BITS, NULL, 0) ? -errno : 0;
}

/* Modes that take no nodes are refused with some. */
static const vlci_nodes *mask_of(const struct vlci_os_policy *policy) {
    return CPU_COUNT(&policy->nodes) ? &policy->nodes : NULL;
}

int vlci_os_policy_set(const struct vlci_os_policy *policy) {
    const vlci_nodes *mask = mask_of(policy);
    return syscall(SYS_set_mempolicy, policy->mode, mask, mask ? MASK_BITS : 0) ? -errno : 0;
}

int vlci_os_policy_bind_as(void *base, size_t length, const struct vlci_os_policy *policy, unsigned flags) {
    const vlci_nodes *mask = mask_of(policy);
    return syscall(SYS_mbind, base, length, policy->mode, mask, mask ? MASK_BITS : 0, flags) ? -errno : 0;
}

int vlci_os_policy_bind(void *base, size_t length, const struct vlci_os_policy *policy) {
    return vlci_os_policy_bind_as(base, length, policy, 0);
}

int vlci_os_policy_ask(int *mode, void *mask, unsigned long bits, void *address, unsigned long flags) {
    return syscall(SYS_get_mempolicy, mode, mask, bits, address, flags) ? -errno : 0;
}

int vlci_os_pages_nodes(void *const *pages, size_t count, int *status) {
    return syscall(SYS_move_pages, 0, count, pages, NULL, status, 0) < 0 ? -errno : 0;
}

int vlci_os_pages_move(void *const *pages, size_t count, const int *nodes, int *status) {
    enum { MOVE = 2 }; /* MPOL_MF_MOVE: those that no other process has */
    return syscall(SYS_move_pages, 0, count, pages, nodes, status, MOVE) < 0 ? -errno : 0;
}

int vlci_os_nodes_allowed(vlci_nodes *nodes) {
    enum { MEMS_ALLOWED = 4 }; /* MPOL_F_MEMS_ALLOWED */
    CPU_ZERO(nodes);
    return syscall(SYS_get_mempolicy, NULL, nodes, MASK_BITS, NULL, MEMS_ALLOWED) ? -errno : 0;
}

static ssize_t read_file(const char *path, char *buffer, size_t capacity) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    size_t length = 0;
    ssize_t got = 0;
    while (length + 1 < capacity && (got = read(fd, buffer + length, capacity - 1 - length)) > 0)
        length += (size_t)got;
    close(fd);
    buffer[length] = 0;
    return got < 0 ? -1 : (ssize_t)length;
}

ssize_t vlci_os_read_file(const char *path, char *buffer, size_t capacity) {
    return read_file(path, buffer, capacity);
}

long vlci_os_thread_call(pid_t tid) {
    char path[64], text[256], *rest;
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", (int)tid);
    if (read_file(path, text, sizeof text) <= 0) return -1;
    long call = strtol(text, &rest, 10); /* "running", or the number and its arguments */
    return rest == text ? -1 : call;
}

ssize_t vlci_os_online_cpus(char *list, size_t capacity) {
    int fd = (int)syscall(SYS_openat, AT_FDCWD, "/sys/devices/system/cpu/online", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, list, capacity - 1);
    if (fd >= 0) close(fd);
    list[length > 0 ? length : 0] = 0;
    return length;
}

void vlci_os_nodes_of(const cpu_set_t *cpus, vlci_nodes *nodes) {
    char path[64], list[VLCI_CPU_LIST_SIZE];
    vlci_nodes online;
    CPU_ZERO(nodes);
    if (read_file("/sys/devices/system/node/has_cpu", list, sizeof list) < 0 ||
        !vlci_cpu_list_parse(list, &online)) {
        CPU_ZERO(&online);
        CPU_SET(0, &online); /* a kernel without NUMA */
    }
    for (int node = 0; node < VLCI_NODES; node++) {
        if (!CPU_ISSET(node, &online)) continue;
        cpu_set_t there, both;
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
        if (read_file(path, list, sizeof list) < 0 || !vlci_cpu_list_parse(list, &there)) continue;
        CPU_AND(&both, &there, cpus);
        if (CPU_COUNT(&both)) CPU_SET(node, nodes);
    }
    if (!CPU_COUNT(nodes)) *nodes = online;
}

unsigned vlci_os_core(unsigned cpu) {
    static _Atomic(unsigned) known[VLCI_CPUS]; /* plus 1, as it takes some microseconds */
    if (!known[cpu]) {
        char path[80], text[64], *end;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", cpu);
        unsigned long first = read_file(path, text, sizeof text) > 0 ? strtoul(text, &end, 10) : cpu;
        known[cpu] = (unsigned)(first < VLCI_CPUS ? first : cpu) + 1;
    }
    return known[cpu] - 1;
}

int vlci_os_execveat(int folder, const char *path, char *const arguments[], char *const environment[],
                     int flags) {
    return (int)syscall(SYS_execveat, folder, path, arguments, environment, flags);
}

static uint64_t number_after(const char *text, const char *label) {
    const char *at = strstr(text, label);
    return at ? strtoull(at + strlen(label), NULL, 10) : 0;
}

bool vlci_os_thread_usage(pid_t tid, uint64_t *cpu_time, uint64_t *voluntary, uint64_t *involuntary) {
    struct timespec time;
    clockid_t clock =
        (clockid_t)((~(unsigned)tid << 3) | 6); /* CPUCLOCK_SCHED of one thread: linux/posix-timers.h */
    char path[64], text[4096];
    if (clock_gettime(clock, &time)) return false;
    snprintf(path, sizeof path, "/proc/self/task/%d/status", (int)tid);
    if (read_file(path, text, sizeof text) < 0) return false;
    *cpu_time = (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
    *voluntary = number_after(text, "\nvoluntary_ctxt_switches:");
    *involuntary = number_after(text, "\nnonvoluntary_ctxt_switches:");
    return true;
}

uint64_t vlci_os_thread_blocked(pid_t tid) {
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/self/task/%d/status", (int)tid);
    const char *found = read_file(path, text, sizeof text) > 0 ? strstr(text, "\nSigBlk:\t") : NULL;
    return found ? strtoull(found + strlen("\nSigBlk:\t"), NULL, 16) : 0;
}

size_t vlci_os_mappings(void) {
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    char buffer[16384];
    size_t lines = 0;
    for (ssize_t got; (got = read(fd, buffer, sizeof buffer)) > 0;)
        for (ssize_t i = 0; i < got; i++) lines += buffer[i] == '\n';
    close(fd);
    return lines;
}

size_t vlci_os_mappings_max(void) {
    char text[32];
    return read_file("/proc/sys/vm/max_map_count", text, sizeof text) > 0 ? strtoul(text, NULL, 10) : 0;
}

ssize_t vlci_os_descriptor_path(int fd, char *path, size_t capacity) {
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, capacity - 1);
    path[length > 0 ? length : 0] = 0;
    return length;
}

bool vlci_os_is_kernel_file(int fd) {
    struct statfs fs;
    if (fstatfs(fd, &fs)) return false;
    return fs.f_type == PROC_MAGIC || fs.f_type == SYSFS_MAGIC || fs.f_type == CGROUP_MAGIC ||
           fs.f_type == CGROUP2_MAGIC;
}

bool vlci_os_substitute(int fd, const char *content, size_t length) {
    int made = memfd_create("vlcs", MFD_CLOEXEC), flags = fcntl(fd, F_GETFD);
    bool done = made >= 0 && flags >= 0 && write(made, content, length) == (ssize_t)length &&
                lseek(made, 0, SEEK_SET) == 0 && dup3(made, fd, flags & FD_CLOEXEC ? O_CLOEXEC : 0) >= 0;
    if (made >= 0) close(made);
    return done;
}

/* The kernel reads the new mask before it looks at what to do with it, and there is no such thing to do. */
bool vlci_os_is_readable(const void *address) {
    int saved = errno;
    bool is_readable = syscall(SYS_rt_sigprocmask, -1, address, NULL, 8) == -1 && errno != EFAULT;
    errno = saved;
    return is_readable;
}

void vlci_os_signals_block(sigset_t *saved) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, saved);
}

void vlci_os_signals_restore(const sigset_t *saved) { pthread_sigmask(SIG_SETMASK, saved, NULL); }

void vlci_os_signal_unblock(int signal) {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, signal);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
}

int64_t vlci_os_milliseconds(void) {
    struct timespec time;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000ll + time.tv_nsec / 1000000;
}

void vlci_os_until(int64_t milliseconds, struct timespec *until) {
    int64_t left = milliseconds - vlci_os_milliseconds();
    if (left < 0) left = 0;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, until);
    until->tv_sec += left / 1000;
    until->tv_nsec += left % 1000 * 1000000;
    if (until->tv_nsec < 1000000000) return;
    until->tv_sec++;
    until->tv_nsec -= 1000000000;
}

void vlci_os_wait_word(_Atomic(int) *word, int value, int timeout_ms) {
    struct timespec time = { timeout_ms / 1000, timeout_ms % 1000 * 1000000l };
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, timeout_ms < 0 ? NULL : &time, NULL, 0);
}

void vlci_os_wake_word(_Atomic(int) *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void vlci_os_complain(const char *words) {
    size_t length = strlen(words);
    while (length) {
        ssize_t wrote = write(STDERR_FILENO, words, length);
        if (wrote <= 0) return;
        words += wrote;
        length -= (size_t)wrote;
    }
}
