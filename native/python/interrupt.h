/* Ctrl-C while the host's main thread is inside a guest.
 *
 * The host's signal handler only sets a flag, which the host's interpreter would see once the guest
 * is left. So the signal is also forwarded: a handler of ours, chained before, wakes a thread that
 * raises KeyboardInterrupt in the guest code that the main thread runs. The host's own exception is
 * then raised as the call returns: once, and instead of the guest's.
 * A call that blocks in C code, time.sleep() too, ends first: only bytecode can be interrupted.
 */
#ifndef VLCI_INTERRUPT_H
#define VLCI_INTERRUPT_H

#include "realm.h"

/* A call into a guest that can be interrupted; on the stack of the thread that makes it. */
struct vlci_interruptible {
    struct vlci_realm *realm;
    pthread_t thread;                 /* that runs the guest's code for it */
    struct vlci_interruptible *outer; /* the call around it, of the same thread */
    bool watched;                     /* it is the host's main thread's, and Ctrl-C is forwarded */
    bool raised;                      /* KeyboardInterrupt was set in the guest for this call */
};

/* Before leaving the host, under its GIL: installs the handler where it is needed. -1: the host has a
 * pending KeyboardInterrupt already (or another exception of a handler), and it is raised. */
int vlci_interrupt_prepare(struct vlci_interruptible *call, struct vlci_realm *realm);

/* The same where another guest calls, without a GIL: Ctrl-C is forwarded to it where it was to its caller. */
void vlci_interrupt_inherit(struct vlci_interruptible *call, struct vlci_realm *realm);

/* Around the guest's code, under the guest's GIL. After `end` no interrupt of this call can arrive. `unwound`: a
 * KeyboardInterrupt ended it; otherwise one that it was sent goes to the call around it. */
void vlci_interrupt_begin(struct vlci_interruptible *call);
void vlci_interrupt_end(struct vlci_interruptible *call, bool unwound);

/* Around host code that a guest calls, without a GIL: there the host's own handling serves. `handled`:
 * that code ended with KeyboardInterrupt, so the guest needs no other. */
struct vlci_interruptible *vlci_interrupt_suspend(void);
void vlci_interrupt_resume(struct vlci_interruptible *call, bool handled);

void vlci_interrupt_fork(enum vlci_fork when);

/* Raises KeyboardInterrupt in the call that the guest's home thread is in, if any. Under its GIL. */
void vlci_interrupt_home(struct vlci_realm *realm);

#endif
