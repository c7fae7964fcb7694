/* Ending threads of a closed context that never end by themselves: idle workers of rayon, tokio, OpenMP, Go. */
#ifndef VLCI_EVICT_H
#define VLCI_EVICT_H

#include "loader/thread.h"

#include <signal.h>

/* Takes each thread of the context that waits in the kernel out of its wait and to its end. Threads that
 * compute are left alone. To be called again until none is left; the context's exit handlers, keys and
 * thread_local destructors are gone by then, so nothing of its code runs on the way. */
void vlci_evict(vlc_context *context);

/* The signal that does it: no library of a context may block it. */
int vlci_evict_signal(void);

#endif
