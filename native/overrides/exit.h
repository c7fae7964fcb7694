/* Exit and fork handlers of a context: lists of its own, since libc's would keep pointers to unmapped code. */
#ifndef VLCI_EXIT_H
#define VLCI_EXIT_H

#include "loader/lock.h"
#include "vlcs.h"

/* Runs and forgets all exit handlers of the context, newest first; those added meanwhile too. */
void vlci_exit_run(vlc_context *context);
void vlci_exit_free(vlc_context *context);

/* Runs the context's fork handlers on the thread that forks. */
void vlci_atfork_run(vlc_context *context, enum vlci_fork when);

#endif
