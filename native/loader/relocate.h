#ifndef VLCI_RELOCATE_H
#define VLCI_RELOCATE_H

#include "loader/image.h"

/* Applies all relocations of a mapped image, then makes its relro segment read-only. */
int vlci_relocate(struct vlci_image *image, vlc_error *error);

#endif
