/* Per-context entry points of the overrides. A page of code from our own file is mapped again for each
 * context beside a data page that names it; no code is written at run time. */
#ifndef VLCI_THUNKS_H
#define VLCI_THUNKS_H

#include "loader/image.h"

/* Maps `size` bytes of our own text at `code` once more at `at`, where a mapping is replaced. */
int vlci_thunks_map(char *at, const char *code, size_t size, vlc_error *error);

int vlci_thunks_make(vlc_context *context, vlc_error *error);
void vlci_thunks_free(vlc_context *context);

/* What a library of the context gets for row `row` of the table of overrides. */
void *vlci_thunk_override(vlc_context *context, unsigned row);

/* Functions that were not found while loading with RTLD_LAZY: the number of `name`, and the entry that
 * tells which it was and ends the program when it is called, as ld.so's lazy binding does. */
int vlci_thunk_missing_add(vlc_context *context, const struct vlci_image *image, const char *name);
void *vlci_thunk_missing_function(vlc_context *context, unsigned number);

#endif
