#ifndef VLCI_ERROR_H
#define VLCI_ERROR_H

#include "vlcs.h"

/* Fills *error (may be NULL) and returns `status`. `subject` is the thing at fault; the
 * message says what could not be done, why, and the cure. */
int vlci_fail(vlc_error *error, vlc_status status, int os_error, const char *subject, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

#endif
