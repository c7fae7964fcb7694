/* The operating system, in one place (os_linux.c): raw system calls, /proc, /sys.
 * Functions return -1 (or a negative errno where said) on failure; none allocates unless said. */
#ifndef VLCI_OS_H
#define VLCI_OS_H

#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

/* Most CPU numbers that a slice can name: a cpu_set_t. */
#define VLCI_CPUS CPU_SETSIZE

pid_t vlci_os_thread_id(void);
bool vlci_os_thread_exists(pid_t tid);
void vlci_os_thread_signal(pid_t tid, int signal);

/* The system call that a thread of this process waits in, or -1: it runs, or the kernel does not tell. */
long vlci_os_thread_call(pid_t tid);

/* The signals that a thread of this process blocks, as a set of bits (signal 1 is bit 0); 0 when it is gone. */
uint64_t vlci_os_thread_blocked(pid_t tid);

/* Affinity of a thread (0: this one), by system call, so never answered by a preload or by us. 0 or -errno. */
int vlci_os_affinity_get(pid_t tid, cpu_set_t *cpus);
int vlci_os_affinity_set(pid_t tid, const cpu_set_t *cpus);

/* The nice value of a thread (0: this one), and its policy of scheduling (SCHED_BATCH ...). 0 or -errno. */
int vlci_os_nice_get(pid_t tid, int *nice);
int vlci_os_nice_set(pid_t tid, int nice);
int vlci_os_scheduling_set(pid_t tid, int policy);

/* This thread joins the control group whose file of thread ids that is. 0 or -errno. */
int vlci_os_group_join(const char *file);

/* Sets of NUMA nodes: the kernel has at most as many of them (CONFIG_NODES_SHIFT) as a cpu_set_t holds. */
#define VLCI_NODES CPU_SETSIZE /* VLC_NODES */
typedef cpu_set_t vlci_nodes;

/* A policy as the kernel has it (set_mempolicy(2)); zeroed: none. */
struct vlci_os_policy {
    int mode;
    vlci_nodes nodes;
};
enum vlci_os_mode {
    VLCI_OS_DEFAULT = 0,
    VLCI_OS_PREFERRED = 1, /* the first of the nodes */
    VLCI_OS_BIND = 2,
    VLCI_OS_INTERLEAVE = 3,
    VLCI_OS_LOCAL = 4,
    VLCI_OS_PREFERRED_MANY = 5 /* Linux 5.15 */
};

/* Of this thread; of a range, for pages that are touched from now on. 0 or -errno. */
int vlci_os_policy_get(struct vlci_os_policy *policy);
int vlci_os_policy_set(const struct vlci_os_policy *policy);
int vlci_os_policy_bind(void *base, size_t length, const struct vlci_os_policy *policy);

/* The same with mbind's flags; get_mempolicy as it is called. */
int vlci_os_policy_bind_as(void *base, size_t length, const struct vlci_os_policy *policy, unsigned flags);
int vlci_os_policy_ask(int *mode, void *mask, unsigned long bits, void *address, unsigned long flags);

/* Of each page: its node, or -errno where it was not touched yet. And moving each to a node, as far as it can be
 * moved. 0 or -errno. */
int vlci_os_pages_nodes(void *const *pages, size_t count, int *status);
int vlci_os_pages_move(void *const *pages, size_t count, const int *nodes, int *status);

/* The nodes whose memory this thread may use. 0 or -errno. */
int vlci_os_nodes_allowed(vlci_nodes *nodes);

/* The nodes of these CPUs; all that have CPUs where the kernel does not tell. */
void vlci_os_nodes_of(const cpu_set_t *cpus, vlci_nodes *nodes);

/* The first of the CPUs that share a core with this one; itself, where the kernel does not tell. */
unsigned vlci_os_core(unsigned cpu);

/* Nanoseconds of CPU time and context switches of a thread of this process; false when it is gone. */
bool vlci_os_thread_usage(pid_t tid, uint64_t *cpu_time, uint64_t *voluntary, uint64_t *involuntary);

/* Kernel mappings of the process now, and how many it may have. 0 when unknown. */
size_t vlci_os_mappings(void);
size_t vlci_os_mappings_max(void);

/* Reads a whole small file into buffer (ends with NUL); its length, or -1. */
ssize_t vlci_os_read_file(const char *path, char *buffer, size_t capacity);

/* The list of CPUs that are online, by system call, so never answered by a preload or by us; its length. */
ssize_t vlci_os_online_cpus(char *list, size_t capacity);

/* As execveat(2), which libc has since 2.34. */
int vlci_os_execveat(int folder, const char *path, char *const arguments[], char *const environment[],
                     int flags);

/* The path of an open descriptor as the kernel names it. */
ssize_t vlci_os_descriptor_path(int fd, char *path, size_t capacity);

/* True when the descriptor is a file of procfs, sysfs or a cgroup hierarchy. */
bool vlci_os_is_kernel_file(int fd);

/* Makes `fd` read `content` instead of what it was opened on, from its start; FD_CLOEXEC is kept. False:
 * unchanged. */
bool vlci_os_substitute(int fd, const char *content, size_t length);

/* Whether the kernel can read a word there for us. */
bool vlci_os_is_readable(const void *address);

/* Blocks all signals on this thread / restores. */
void vlci_os_signals_block(sigset_t *saved);
void vlci_os_signals_restore(const sigset_t *saved);
void vlci_os_signal_unblock(int signal);

/* Milliseconds of a clock that only moves forward, by system call: libfaketime may stop libc's. */
int64_t vlci_os_milliseconds(void);

/* The moment of that clock as one of the kernel's CLOCK_REALTIME; now, where it is over. */
void vlci_os_until(int64_t milliseconds, struct timespec *until);

/* Sleeps until *word is no longer `value` or the time is over. */
void vlci_os_wait_word(_Atomic(int) *word, int value, int timeout_ms);
void vlci_os_wake_word(_Atomic(int) *word);

/* Writes words to the standard error, unbuffered: only for what ld.so would print too. */
void vlci_os_complain(const char *words);

#endif
