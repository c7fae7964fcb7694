/* A guest's life: how a private CPython begins and ends, on its home thread. */
#ifndef VLCI_GUEST_H
#define VLCI_GUEST_H

#include "realm.h"

struct vlci_text {
    const char *bytes;
    Py_ssize_t size;
};

/* What a guest is made from; the caller's memory, until vlci_guest_start has returned. */
struct vlci_birth {
    struct vlci_realm *realm;
    const char *libpython;
    const wchar_t *program;       /* decides sys.prefix and site-packages, as the command's path does */
    bool utf8_mode;               /* as the host's sys.flags.utf8_mode */
    const struct vlci_text *path; /* UTF-8, lone surrogates as such; NULL: what the guest finds itself */
    Py_ssize_t path_count;
    const struct vlci_text *argv;
    Py_ssize_t argv_count;
    const char *bootstrap; /* source of the module _vlcs_guest */
    struct vlci_text settings;
    vlc_error *error;
    int status; /* how it went */
};

/* vlc_functions for thread 0 of the context's pool; without a GIL. `start` fills birth->status and, on
 * failure, *birth->error, and has finalised what it had begun; the realm runs or has stopped. `stop`
 * (argument: the realm) finalises the interpreter. */
void *vlci_guest_start(void *birth);
void *vlci_guest_stop(void *realm);

/* Writes the guest's pending exception as "ValueError: why", and clears it. Under its GIL. */
void vlci_guest_explain(struct vlci_realm *realm, char *words, size_t size);

#endif
