/* Frames of contexts for the host's unwinder: exceptions and pthread_exit of the host pass through them.
 *
 * libgcc's registry sorts all that is registered at the next unwinding (0.2 s of CPU for one PyTorch, GCC 12,
 * with its lock held). So only libraries that the host itself loads are registered when they come, since they
 * may be given host functions that throw; those that a context loads for itself when pthread_exit meets them. */
#ifndef VLCI_UNWIND_H
#define VLCI_UNWIND_H

#include "loader/image.h"

struct vlci_unwind_object; /* struct dl_find_object of glibc 2.35 and later */

void vlci_unwind_add(struct vlci_image *image);

/* Adds the context's images that the calling thread may have frames of. */
void vlci_unwind_add_stack(vlc_context *context);
void vlci_unwind_remove(struct vlci_image *image);

/* To be called once an image is initialised: if it is an unwinder (libgcc_s), makes it ready. The host's unwinder
 * runs the context's personality routines, and these call the context's _Unwind_SetGR, which fails until its
 * own unwinder has run once and filled its table of register sizes. */
void vlci_unwind_prepare(struct vlci_image *image);

/* _dl_find_object and dl_iterate_phdr as a context's own unwinder sees them. */
int vlci_find_object(void *address, struct vlci_unwind_object *object);
int vlci_iterate_headers(int (*callback)(struct dl_phdr_info *, size_t, void *), void *data,
                         vlc_context *context);

#endif
