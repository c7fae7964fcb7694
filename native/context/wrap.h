/* Wrapped pointers: functions of a context for whoever calls them later, from any thread. Each is a thunk, which
 * stays for the life of the process, so that a call of it is never a jump into memory that is gone. */
#ifndef VLCI_WRAP_H
#define VLCI_WRAP_H

#include "loader/lock.h"
#include "vlcs.h"

#include <stdbool.h>

/* What a thunk has: the record lies in the data behind it. A weak reference of 0: not used. */
struct vlci_wrapper {
    void *function;
    struct vlci_weak *weak;
};

/* A visit is over, and the call of a wrapped pointer that it was. The context may be gone after this. */
void vlci_wrap_visit_ended(vlc_context *context, bool is_wrapped);

void vlci_wrap_forget(vlc_context *context); /* it goes: calls of its wrappers do nothing from now on */
void vlci_wrap_fork(vlc_context *current, enum vlci_fork when);
uint64_t vlci_wrap_count(void);
uint64_t vlci_wrap_late_calls(void);

#endif
