/* A mutex of one word, usable before libc is, in signal-blocked sections, and to be reset after fork.
 * After U. Drepper, "Futexes Are Tricky" (2011), mutex 2: 0 free, 1 held, 2 held and waited for. */
#ifndef VLCI_LOCK_H
#define VLCI_LOCK_H

#include <stdatomic.h>

typedef struct vlci_lock {
    _Atomic(int) state;
} vlci_lock;

void vlci_lock_wait(vlci_lock *lock); /* os_linux.c: the contended half */
void vlci_lock_wake(vlci_lock *lock);

static inline void vlci_lock_take(vlci_lock *lock) {
    int free = 0;
    if (!atomic_compare_exchange_strong_explicit(&lock->state, &free, 1, memory_order_acquire,
                                                 memory_order_relaxed))
        vlci_lock_wait(lock);
}

static inline void vlci_lock_drop(vlci_lock *lock) {
    if (atomic_exchange_explicit(&lock->state, 0, memory_order_release) == 2) vlci_lock_wake(lock);
}

/* What the handlers around fork() do to a lock: held across it, and free again on both sides. */
enum vlci_fork { VLCI_FORK_PREPARE, VLCI_FORK_PARENT, VLCI_FORK_CHILD };
static inline void vlci_lock_fork(vlci_lock *lock, enum vlci_fork when) {
    if (when == VLCI_FORK_PREPARE)
        vlci_lock_take(lock);
    else if (when == VLCI_FORK_PARENT)
        vlci_lock_drop(lock);
    else
        atomic_store(&lock->state, 0);
}

/* `VLCI_HOLD(lock);` holds it until the end of the block. */
static inline void vlci_lock_drop_at_end(vlci_lock **lock) {
    if (*lock) vlci_lock_drop(*lock);
}
static inline vlci_lock *vlci_lock_taken(vlci_lock *lock) {
    vlci_lock_take(lock);
    return lock;
}
#define VLCI_HOLD_NAME2(a, b) a##b
#define VLCI_HOLD_NAME(a, b) VLCI_HOLD_NAME2(a, b)
#define VLCI_HOLD(lock)                                                                                      \
    __attribute__((cleanup(vlci_lock_drop_at_end), unused)) vlci_lock *VLCI_HOLD_NAME(                       \
        vlci_held_, __LINE__) = vlci_lock_taken(lock)

#endif
