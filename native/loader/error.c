#include "loader/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int vlci_fail(vlc_error *error, vlc_status status, int os_error, const char *subject, const char *format,
              ...) {
    if (!error) return status;
    error->status = status;
    error->os_error = os_error;
    snprintf(error->subject, sizeof error->subject, "%s", subject ? subject : "");
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    return status;
}

const char *vlc_status_name(int status) {
    static const char *const names[] = { "VLC_OK",    "VLC_BAD_ARGUMENT", "VLC_MISUSE", "VLC_LOAD_FAILED",
                                         "VLC_LIMIT", "VLC_SYSTEM",       "VLC_BUSY",   "VLC_BUG" };
    return status >= 0 && status < (int)(sizeof names / sizeof *names) ? names[status] : "unknown";
}
