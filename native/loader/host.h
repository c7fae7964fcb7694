/* The host's libraries: those that ship with the running libc, and those a context shares. Never copied. */
#ifndef VLCI_HOST_H
#define VLCI_HOST_H

#include "loader/image.h"
#include "loader/scope.h"

/* Once, before the first context: finds libc, ld.so and what is preloaded into the host. */
int vlci_host_start(vlc_error *error);

/* The host library of that soname (or path, by its last part) if it belongs to libc, or NULL. */
int vlci_host_libc(const char *name, struct vlci_image **image, vlc_error *error);

/* The host's copy of a shared library; loads it in the host when it is not there yet. */
int vlci_host_share(const char *name, struct vlci_image **image, vlc_error *error);

/* Libraries that are in every scope, last. */
struct vlci_image *const *vlci_host_scope(size_t *count);

/* How a symbol of a host library binds: the first definition among preloaded objects, then its own. */
bool vlci_host_bind(struct vlci_image *image, const Elf64_Sym *symbol, const struct vlci_wanted *wanted,
                    struct vlci_binding *binding);

/* Address of libc's own function, for our use; NULL when this libc has none. */
void *vlci_host_symbol(const char *name);

/* The file that replaced malloc in the host, so that contexts use it too and have no heap of their own; or NULL. */
const char *vlci_host_malloc(void);

void vlci_host_fork(enum vlci_fork when);

#endif
