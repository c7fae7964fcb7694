/* Finding the file of a library, in the order of ld.so(8). */
#ifndef VLCI_SEARCH_H
#define VLCI_SEARCH_H

#include "loader/image.h"

#include <limits.h>

/* Writes the path of `name`, as wanted by `from` (NULL: by the user), to path. False: there is none. */
bool vlci_search(vlc_context *context, const struct vlci_image *from, const char *name, char path[PATH_MAX]);

void vlci_search_fork(enum vlci_fork when);

#endif
