/* Symbol bindings remembered across contexts: a library that was bound once in a scope of the same files
 * binds again without look-ups. (PyTorch: 85,000 look-ups the first time, none after.) */
#ifndef VLCI_CACHE_H
#define VLCI_CACHE_H

#include "loader/scope.h"

/* Fills bindings[0..count) of the symbols that are known for `image` in its present scope. False: nothing known. */
bool vlci_cache_get(const struct vlci_image *image, struct vlci_binding *bindings, size_t count);

/* Remembers them. Failing for want of memory is no error. */
void vlci_cache_put(const struct vlci_image *image, const struct vlci_binding *bindings, size_t count);

void vlci_cache_fork(enum vlci_fork when);

#endif
