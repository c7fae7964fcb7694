#include "context/evict.h"

#include "context/context.h"
#include "loader/arch.h"
#include "loader/slots.h"

#include <sys/syscall.h>

#ifndef SYS_epoll_pwait2 /* Linux 5.11 */
#define SYS_epoll_pwait2 441
#endif

static bool host_handles(int number) {
    struct sigaction now;
    return sigaction(number, NULL, &now) != 0 || now.sa_flags & SA_SIGINFO || now.sa_handler != SIG_DFL;
}

/* Chosen once: the first from SIGRTMAX - 5 down that the host does not handle. */
int vlci_evict_signal(void) {
    static _Atomic(int) chosen;
    if (!chosen) {
        int number = SIGRTMAX - 5;
        while (number > SIGRTMIN && host_handles(number)) number--;
        chosen = number;
    }
    return chosen;
}

/* Waits that can be left at any time: the thread holds nothing of the kernel's or libc's there. */
static bool is_wait(long call) {
    switch (call) {
    case SYS_futex:
    case SYS_nanosleep:
    case SYS_clock_nanosleep:
    case SYS_restart_syscall: /* one of these, after a stop */
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
    case SYS_epoll_pwait2:
    case SYS_io_getevents:
    case SYS_io_uring_enter:
    case SYS_poll:
    case SYS_ppoll:
    case SYS_select:
    case SYS_pselect6:
    case SYS_read:
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_recvmmsg:
    case SYS_accept:
    case SYS_accept4:
    case SYS_wait4:
    case SYS_waitid:
    case SYS_msgrcv:
    case SYS_semop:
    case SYS_semtimedop:
    case SYS_pause:
    case SYS_rt_sigsuspend:
    case SYS_rt_sigtimedwait: return true;
    default: return false;
    }
}

/* Whether code of the thread's context lies there. What that waits for without libc's locks is its own affair,
 * wherever the word is: it may be on the host's heap. */
static bool is_own(const struct vlci_thread *thread, const void *code) {
    const struct vlci_region *region = vlci_region_at(code);
    return region && region->context == thread->owner;
}

/* A futex word of libc's own (its allocator's lock, ld.so's) is none of the context's affairs. */
static bool is_own_word(const struct vlci_thread *thread, uintptr_t word, uintptr_t stack) {
    const struct vlci_region *region = vlci_region_at((const void *)word);
    if (region) return region->context == thread->owner;
    if (word >= stack && word < (uintptr_t)thread->pointer) return true;
    if (vlci_slots_hold(thread->owner, (uintptr_t)thread->pointer, word)) return true;
    for (size_t i = 0; i < thread->block_count; i++) { /* thread-local */
        uintptr_t block = (uintptr_t)thread->blocks[i].memory;
        if (block && word >= block && word < block + thread->blocks[i].raw_size) return true;
    }
    return false;
}

static void on_signal(int number, siginfo_t *info, void *machine) {
    (void)number;
    (void)info;
    struct vlci_thread *thread = vlci_thread_current;
    uintptr_t argument, stack;
    void *caller;
    if (!thread || !thread->evicted || !thread->way_out || thread->visit != &thread->base) return;
    if (!vlci_arch_interrupted_call(machine, &argument, &stack, &caller))
        return; /* it has gone on meanwhile */
    if (thread->evicted == SYS_futex + 1 && !is_own(thread, caller) && !is_own_word(thread, argument, stack))
        return;
    __builtin_longjmp(thread->way_out, 1);
}

/* Puts the handler in place unless somebody else has his own there. */
static bool is_ours(int number) {
    struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK }, now;
    if (sigaction(number, NULL, &now)) return false;
    if (now.sa_flags & SA_SIGINFO) return now.sa_sigaction == on_signal;
    sigfillset(&action.sa_mask);
    return now.sa_handler == SIG_DFL && sigaction(number, &action, NULL) == 0;
}

/* A signal that reaches the thread. Go's runtime makes its system calls itself, and blocks all but the lowest
 * real-time signals on one of its threads (since 1.12); 0: there is none. */
static int signal_for(pid_t tid) {
    uint64_t blocked = vlci_os_thread_blocked(tid);
    for (int number = vlci_evict_signal(); number >= SIGRTMIN; number--)
        if (!(blocked >> (number - 1) & 1) && is_ours(number)) return number;
    return 0;
}

static void evict(struct vlci_thread *thread, void *unused) {
    (void)unused;
    long call = vlci_os_thread_call(thread->tid);
    if (!is_wait(call) || !thread->way_out || thread->visit != &thread->base) return; /* in another context */
    int number = signal_for(thread->tid);
    if (!number) return;
    thread->evicted = (int)call + 1;
    vlci_os_thread_signal(thread->tid, number);
}

void vlci_evict(vlc_context *context) { vlci_thread_each(context, evict, NULL); }
