/* Telling debuggers: each context is a namespace in ld.so's r_debug chain (glibc 2.35 and later). */
#ifndef VLCI_DEBUGGER_H
#define VLCI_DEBUGGER_H

#include "loader/lock.h"
#include "vlcs.h"

#include <link.h>

struct vlci_debugger_node { /* struct r_debug_extended of glibc 2.35 */
    int version;
    struct link_map *map;
    ElfW(Addr) breakpoint;
    int state;
    ElfW(Addr) linker_base;
    void *next;
};

void vlci_debugger_add(vlc_context *context);
void vlci_debugger_changed(vlc_context *context);
void vlci_debugger_remove(vlc_context *context);
void vlci_debugger_fork(enum vlci_fork when);

#endif
