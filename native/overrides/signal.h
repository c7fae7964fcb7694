/* Signal handlers of a context. Asynchronous signals belong to the process: what a context registers for them
 * is recorded, told when it asks, and never called. Faults belong to the code that made them. */
#ifndef VLCI_SIGNAL_H
#define VLCI_SIGNAL_H

#include "loader/lock.h"
#include "vlcs.h"

#include <signal.h>
#include <stdint.h>

struct vlci_signals {
    uint64_t known;        /* bit n: actions[n + 1] is the context's own */
    uint64_t interrupting; /* bit n: siginterrupt(n + 1, true) */
    struct sigaction actions[_NSIG];
};

/* No handler of the context is called any more; the host's are in their place again. */
void vlci_signals_drop(vlc_context *context);

void vlci_signals_fork(enum vlci_fork when);

#endif
