/* From a vlc_error to a Python exception: the one place. */
#ifndef VLCI_STATUS_H
#define VLCI_STATUS_H

#include "realm.h"

/* Fills the record (its size kept) and returns `status`. No GIL is needed. */
int vlci_refuse(vlc_error *error, int status, const char *subject, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Raises the class of vlcs._core._errors that fits error->status. Returns NULL. Needs the host's GIL. */
PyObject *vlci_raise(const vlc_error *error);

/* The same in any realm, under its GIL. */
void vlci_raise_in(const struct vlci_realm *realm, const vlc_error *error);

#endif
