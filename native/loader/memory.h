/* Memory for our own records that signal handlers may come to need: thread records, TLS
 * blocks, owners of heap pages. Not malloc's, so a handler that interrupts malloc is safe. */
#ifndef VLCI_MEMORY_H
#define VLCI_MEMORY_H

#include "loader/lock.h"

#include <stddef.h>

/* Zeroed memory, aligned to the next power of two of `size` (at most a page); NULL: none left. */
void *vlci_memory_take(size_t size);

/* `size` as it was asked for. NULL is fine. */
void vlci_memory_give(void *block, size_t size);

void vlci_memory_fork(enum vlci_fork when);

#endif
