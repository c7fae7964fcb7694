/* What a context hears from libc: one table, name -> function of ours (overrides.def). A row applies when a
 * look-up lands in libc, never by name alone: a library of the context may define `malloc` itself. */
#ifndef VLCI_TABLE_H
#define VLCI_TABLE_H

#include <stdint.h>

/* How a function learns which context asks. */
enum vlci_how {
    VLCI_CONTEXT_AFTER_0, /* as an argument behind its n own */
    VLCI_CONTEXT_AFTER_1,
    VLCI_CONTEXT_AFTER_2,
    VLCI_CONTEXT_AFTER_3,
    VLCI_CONTEXT_AFTER_4,
    VLCI_CONTEXT_AFTER_5,
    VLCI_CONTEXT_IN_SCRATCH, /* in a scratch register: entry points of arch_* */
    VLCI_NO_CONTEXT,         /* needs none */
    VLCI_DATUM               /* not a function: `function(context)` gives the datum's address */
};

/* The question a row answers; the group HEAP is the host's when it replaced malloc. */
enum vlci_group {
    VLCI_CPU,
    VLCI_FILE,
    VLCI_ENV,
    VLCI_CHILD,
    VLCI_THREAD,
    VLCI_DL,
    VLCI_HEAP,
    VLCI_MAP,
    VLCI_KEY,
    VLCI_EXIT,
    VLCI_LOCALE,
    VLCI_SIGNAL,
    VLCI_STATE,
    VLCI_NAME
};

struct vlci_override {
    const char *name;
    uint32_t hash; /* vlci_gnu_hash */
    void *function;
    enum vlci_how how;
    enum vlci_group group;
};

/* Once, before the first context. */
void vlci_override_start(void);

/* The row that answers for libc's `name`, or -1. */
int vlci_override_find(const char *name, uint32_t hash);

unsigned vlci_override_count(void);
const struct vlci_override *vlci_override_row(unsigned row);

#endif
