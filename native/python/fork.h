/* fork() in a process with guests: the host lives on in the child, and the guest whose code forked. */
#ifndef VLCI_PYTHON_FORK_H
#define VLCI_PYTHON_FORK_H

#include "loader/lock.h"
#include "realm.h"

/* Has fork() leave all locks of the bridge free and the dead guests marked, in every child. Once; after
 * libvlcs has registered its own handlers, so that these come before them. */
void vlci_fork_start(void);

/* Around os.fork() of a guest, called by it under its GIL: the host's interpreter goes along. */
void vlci_fork_of_guest(struct vlci_realm *guest, enum vlci_fork when);

/* The guest whose code forks, or has in this child; NULL: the host's own fork. */
const struct vlci_realm *vlci_fork_guest(void);

/* What the handlers do to a mutex: held across the fork, and made anew in the child. */
static inline void vlci_mutex_fork(pthread_mutex_t *mutex, enum vlci_fork when) {
    if (when == VLCI_FORK_PREPARE)
        pthread_mutex_lock(mutex);
    else if (when == VLCI_FORK_PARENT)
        pthread_mutex_unlock(mutex);
    else
        pthread_mutex_init(mutex, NULL);
}

#endif
