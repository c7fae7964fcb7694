/* How a context ends, its guest first. */
#ifndef VLCI_CLOSING_H
#define VLCI_CLOSING_H

#include "native.h"

/* Ends the guest, then destroys the context; `timeout_ms` as vlc_destroy's. While the guest's arrays are
 * held outside, the rest goes by itself with the last of them, and the context counts as destroyed.
 * `abandon`: the guest ends although they are held, and its memory stays. -1: an exception is set. */
int vlci_close(struct vlci_context_object *self, int timeout_ms, bool abandon);

void vlci_closing_fork(enum vlci_fork when);

/* At exit: finalises guests whose arrays are still held, within `timeout_ms`. Without a GIL. */
void vlci_close_lingering(int timeout_ms);

#endif
