#include "loader/debugger.h"

#include "context/context.h"
#include "loader/lock.h"

#include <gnu/libc-version.h>
#include <stddef.h>
#include <stdlib.h>

extern struct r_debug _r_debug;
static vlci_lock lock;

/* r_next lies behind the five members of struct r_debug, only since 2.35; before, a debugger stops at the
 * first namespace and writing there would hit other data of ld.so. */
static void **chain(void) {
    static int known = -1;
    if (known < 0) {
        char *rest;
        unsigned long major = strtoul(gnu_get_libc_version(), &rest, 10),
                      minor = *rest == '.' ? strtoul(rest + 1, NULL, 10) : 0;
        known = major > 2 || (major == 2 && minor >= 35);
    }
    return known ? (void **)((char *)&_r_debug + offsetof(struct vlci_debugger_node, next)) : NULL;
}

static void notify(vlc_context *context, int state) {
    context->debugger.state = state;
    if (context->debugger.breakpoint) ((void (*)(void))context->debugger.breakpoint)();
}

void vlci_debugger_add(vlc_context *context) {
    VLCI_HOLD(&lock);
    void **first = chain();
    if (!first) return;
    context->debugger = (struct vlci_debugger_node){ .version = 2,
                                                     .breakpoint = _r_debug.r_brk,
                                                     .state = RT_CONSISTENT,
                                                     .linker_base = _r_debug.r_ldbase,
                                                     .next = *first };
    *first = &context->debugger;
    _r_debug.r_version = 2;
}

void vlci_debugger_changed(vlc_context *context) {
    VLCI_HOLD(&lock);
    notify(context, RT_ADD);
    context->debugger.map = context->image_count ? &context->images[0]->map : NULL;
    notify(context, RT_CONSISTENT);
}

void vlci_debugger_remove(vlc_context *context) {
    VLCI_HOLD(&lock);
    void **link = chain();
    while (link && *link) {
        struct vlci_debugger_node *node = *link;
        if (node == &context->debugger) {
            notify(context, RT_DELETE);
            node->map = NULL;
            notify(context, RT_CONSISTENT);
            *link = node->next;
            return;
        }
        link = &node->next;
    }
}

void vlci_debugger_fork(enum vlci_fork when) { vlci_lock_fork(&lock, when); }
