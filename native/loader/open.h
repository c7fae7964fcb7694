/* Opening a library in a context, and closing all that a context opened. */
#ifndef VLCI_OPEN_H
#define VLCI_OPEN_H

#include "loader/image.h"

/* As dlopen for `from` (NULL: for the user). Runs constructors on this thread. On failure all that the
 * call loaded is gone again. */
int vlci_open(vlc_context *context, struct vlci_image *from, const char *name, int flags,
              struct vlci_image **image, vlc_error *error);

/* The i-th image in order of loading, or NULL past the end; it stays until the context is destroyed. */
struct vlci_image *vlci_open_image(vlc_context *context, size_t index);

/* Exit handlers, DT_FINI_ARRAY and DT_FINI of all images, in reverse order of initialisation; once. */
void vlci_open_finalise(vlc_context *context);

/* Unmaps and frees all images. */
void vlci_open_unload(vlc_context *context);

#endif
