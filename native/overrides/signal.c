/* A fault (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP) goes to the handler of the context whose code faulted or that
 * the thread is inside of, then to what the host had. For this, a handler of ours is put in the process when a
 * context first registers one, and taken out with the last. Where the host registers one later, that wins: we
 * never take a place back, as a handler that chains to ours would be chained to by it.
 *
 * All here is async-signal-safe: a lock that is only held with signals blocked, and no memory. */
#include "overrides/signal.h"
#include "context/context.h"
#include "loader/arch.h"
#include "loader/thread.h"

#include <errno.h>
#include <string.h>

static vlci_lock lock; /* guards all records; held with signals blocked */
static struct {
    struct sigaction host; /* what ours replaced */
    bool installed;
    int contexts;       /* that have a handler for it */
    vlc_context *owner; /* asynchronous: the one that registered last */
} numbers[_NSIG];

static bool is_fault(int number) {
    return number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL || number == SIGTRAP;
}
static uint64_t bit(int number) { return UINT64_C(1) << (number - 1); }

static bool is_function(const struct sigaction *action) {
    return action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN && action->sa_handler != SIG_HOLD;
}

/* ---- a signal comes ------------------------------------------------------------------------------------ */

static vlc_context *receiver(int number, const siginfo_t *info, const void *machine) {
    if (!is_fault(number)) return numbers[number].owner;
    const struct vlci_region *code =
        info->si_code > 0 ? vlci_region_at(vlci_arch_program_counter(machine)) : NULL;
    return code ? code->context : vlci_context_current();
}

static void place_give_up(int number);

/* What is to be done about the signal; a handler for one time (SA_RESETHAND) is used up by this. */
static struct sigaction choose(int number, const siginfo_t *info, const void *machine) {
    sigset_t signals;
    vlci_os_signals_block(&signals);
    vlci_lock_take(&lock);
    vlc_context *context = receiver(number, info, machine);
    struct sigaction *mine = context ? &context->signals.actions[number] : NULL;
    bool inside = mine && is_function(mine);
    struct sigaction *from = inside ? mine : &numbers[number].host, action = *from;
    if (action.sa_flags & SA_RESETHAND && is_function(&action)) {
        from->sa_handler = SIG_DFL;
        if (inside) place_give_up(number);
    }
    vlci_lock_drop(&lock);
    vlci_os_signals_restore(&signals);
    return action;
}

/* A handler may leave by longjmp, which AddressSanitizer takes for a frame still in use. */
__attribute__((no_sanitize_address)) static void on_signal(int number, siginfo_t *info, void *machine) {
    int saved = errno;
    struct sigaction action = choose(number, info, machine);
    errno = saved;
    if (!is_function(&action)) {
        bool was_sent = info->si_code <= 0;
        if (was_sent && action.sa_handler == SIG_IGN) return;
        /* the kernel's own way to end: the instruction faults again, or the signal is sent again */
        struct sigaction standard = { .sa_handler = SIG_DFL };
        sigaction(number, &standard, NULL);
        if (was_sent || number == SIGTRAP) raise(number);
        return;
    }
    sigset_t blocked = action.sa_mask; /* until the return from here restores all */
    if (!(action.sa_flags & SA_NODEFER)) sigaddset(&blocked, number);
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    if (action.sa_flags & SA_SIGINFO)
        action.sa_sigaction(number, info, machine);
    else
        action.sa_handler(number);
}

/* ---- our place in the process; the lock is held -------------------------------------------------------- */

static bool place_is_ours(int number) {
    struct sigaction now;
    return !sigaction(number, NULL, &now) && now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_signal;
}

static void place_take(int number) {
    if (numbers[number].contexts++ || numbers[number].installed) return;
    struct sigaction ours = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER };
    if (!is_fault(number)) ours.sa_flags |= SA_RESTART;
    sigemptyset(&ours.sa_mask);
    numbers[number].installed = !sigaction(number, &ours, &numbers[number].host);
}

static void place_give_up(int number) {
    if (--numbers[number].contexts || !place_is_ours(number)) return;
    numbers[number].installed = sigaction(number, &numbers[number].host, NULL) != 0;
}

/* ---- registration -------------------------------------------------------------------------------------- */

/* A context begins with what a program started by the process would: ignored signals stay ignored. */
static struct sigaction inherited(int number) {
    struct sigaction now, begin = { .sa_handler = SIG_DFL };
    if (!sigaction(number, NULL, &now) && now.sa_handler == SIG_IGN) begin.sa_handler = SIG_IGN;
    return begin;
}

static void put(vlc_context *context, int number, const struct sigaction *wanted, struct sigaction *before) {
    struct vlci_signals *own = &context->signals;
    sigset_t signals;
    vlci_os_signals_block(&signals);
    vlci_lock_take(&lock);
    *before = own->known & bit(number) ? own->actions[number] : inherited(number);
    if (wanted) {
        own->known |= bit(number);
        own->actions[number] = *wanted;
        bool had = is_function(before), has = is_function(wanted);
        if (is_fault(number) || context->takes_signals) {
            if (has && !had) place_take(number);
            if (has) numbers[number].owner = context;
            if (had && !has) place_give_up(number);
        }
    }
    vlci_lock_drop(&lock);
    vlci_os_signals_restore(&signals);
}

int vlci_sigaction(int number, const struct sigaction *wanted, struct sigaction *old, vlc_context *context) {
    bool reserved = number >= __SIGRTMIN && number < SIGRTMIN; /* libc's own */
    if (number < 1 || number >= _NSIG || reserved || (wanted && (number == SIGKILL || number == SIGSTOP))) {
        errno = EINVAL;
        return -1;
    }
    struct sigaction copy, before; /* copied first: a bad pointer must fault before the lock is held */
    if (wanted) copy = *wanted;
    put(context, number, wanted ? &copy : NULL, &before);
    if (old) *old = before;
    return 0;
}

static sighandler_t set(int number, sighandler_t handler, int flags, bool masks_itself,
                        vlc_context *context) {
    struct sigaction wanted = { .sa_handler = handler, .sa_flags = flags }, before;
    sigemptyset(&wanted.sa_mask);
    if (handler == SIG_ERR || number < 1 || number >= _NSIG) {
        errno = EINVAL;
        return SIG_ERR;
    }
    if (masks_itself) sigaddset(&wanted.sa_mask, number);
    return vlci_sigaction(number, &wanted, &before, context) ? SIG_ERR : before.sa_handler;
}

sighandler_t vlci_signal(int number, sighandler_t handler, vlc_context *context) {
    bool interrupts = number > 0 && number < _NSIG && context->signals.interrupting & bit(number);
    return set(number, handler, interrupts ? 0 : SA_RESTART, true, context);
}
sighandler_t vlci_sysv_signal(int number, sighandler_t handler, vlc_context *context) {
    return set(number, handler, SA_RESETHAND | SA_NODEFER, false, context);
}
int vlci_sigignore(int number, vlc_context *context) {
    return set(number, SIG_IGN, 0, false, context) == SIG_ERR ? -1 : 0;
}

/* The mask is the thread's, so SIG_HOLD is as outside. */
sighandler_t vlci_sigset(int number, sighandler_t handler, vlc_context *context) {
    sigset_t one, masked;
    struct sigaction before;
    sigemptyset(&one);
    if (sigaddset(&one, number) || vlci_sigaction(number, NULL, &before, context)) return SIG_ERR;
    if (handler != SIG_HOLD && set(number, handler, 0, false, context) == SIG_ERR) return SIG_ERR;
    pthread_sigmask(handler == SIG_HOLD ? SIG_BLOCK : SIG_UNBLOCK, &one, &masked);
    return sigismember(&masked, number) ? SIG_HOLD : before.sa_handler;
}

int vlci_siginterrupt(int number, int interrupts, vlc_context *context) {
    struct sigaction action;
    if (vlci_sigaction(number, NULL, &action, context)) return -1;
    if (interrupts) {
        context->signals.interrupting |= bit(number);
        action.sa_flags &= ~SA_RESTART;
    } else {
        context->signals.interrupting &= ~bit(number);
        action.sa_flags |= SA_RESTART;
    }
    return vlci_sigaction(number, &action, NULL, context);
}

/* A visitor gets its own stack for handlers back when it leaves: the other goes with the context. */
int vlci_sigaltstack(const stack_t *wanted, stack_t *old, vlc_context *context) {
    struct vlci_thread *thread = vlci_thread_current;
    stack_t before;
    int failed = sigaltstack(wanted, &before);
    if (failed) return failed;
    if (wanted && thread && thread->visit != &thread->base && thread->visit->context == context &&
        !thread->visit->has_stack) {
        thread->visit->has_stack = true;
        thread->visit->stack = before;
    }
    if (old) *old = before;
    return 0;
}

void vlci_signals_drop(vlc_context *context) {
    struct sigaction standard = { .sa_handler = SIG_DFL }, before;
    for (int number = 1; number < _NSIG; number++) {
        if (!(context->signals.known & bit(number))) continue;
        put(context, number, &standard, &before);
        if (numbers[number].owner == context) numbers[number].owner = NULL;
    }
}

void vlci_signals_fork(enum vlci_fork when) { vlci_lock_fork(&lock, when); }
