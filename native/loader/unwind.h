/* Frames of contexts for the host's unwinder: exceptions and pthread_exit of the host pass through them. */
#ifndef VLCI_UNWIND_H
#define VLCI_UNWIND_H

#include "loader/image.h"

struct vlci_unwind_object; /* struct dl_find_object of glibc 2.35 and later */

void vlci_unwind_add(struct vlci_image *image);
void vlci_unwind_remove(struct vlci_image *image);

/* _dl_find_object and dl_iterate_phdr as a context's own unwinder sees them. */
int vlci_find_object(void *address, struct vlci_unwind_object *object);
int vlci_iterate_headers(int (*callback)(struct dl_phdr_info *, size_t, void *), void *data, vlc_context *context);

#endif
