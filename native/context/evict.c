#include "context/evict.h"

#include "context/context.h"
#include "loader/arch.h"

#include <sys/syscall.h>

int vlci_evict_signal(void) { return SIGRTMAX - 5; }

/* Waits that can be left at any time: the thread holds nothing of the kernel's or libc's there. */
static bool is_wait(long call) {
    switch (call) {
    case SYS_futex:
    case SYS_nanosleep:
    case SYS_clock_nanosleep:
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
    case SYS_poll:
    case SYS_ppoll:
    case SYS_select:
    case SYS_pselect6:
    case SYS_read:
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_accept:
    case SYS_accept4:
    case SYS_pause:
    case SYS_rt_sigsuspend:
    case SYS_rt_sigtimedwait: return true;
    default: return false;
    }
}

/* A futex word of libc's own (its allocator's lock, ld.so's) is none of the context's affairs. */
static bool is_own_word(const struct vlci_thread *thread, uintptr_t word, uintptr_t stack) {
    const struct vlci_region *region = vlci_region_at((const void *)word);
    if (region) return region->context == thread->owner;
    if (word >= stack && word < (uintptr_t)thread->pointer) return true;
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
    if (!thread || !thread->evicted || !thread->way_out || thread->visit != &thread->base) return;
    if (!vlci_arch_interrupted_call(machine, &argument, &stack)) return; /* it has gone on meanwhile */
    if (thread->evicted == SYS_futex + 1 && !is_own_word(thread, argument, stack)) return;
    __builtin_longjmp(thread->way_out, 1);
}

static void evict(struct vlci_thread *thread, void *unused) {
    (void)unused;
    long call = vlci_os_thread_call(thread->tid);
    if (!is_wait(call) || !thread->way_out) return;
    thread->evicted = (int)call + 1;
    vlci_os_thread_signal(thread->tid, vlci_evict_signal());
}

void vlci_evict(vlc_context *context) {
    struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK };
    sigfillset(&action.sa_mask);
    sigaction(vlci_evict_signal(), &action, NULL);
    vlci_thread_each(context, evict, NULL);
}
