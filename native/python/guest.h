/* A guest's life: how a private CPython begins and ends, on its home thread. */
#ifndef VLCI_GUEST_H
#define VLCI_GUEST_H

#include "realm.h"

struct vlci_text {
    const char *bytes;
    Py_ssize_t size;
};

/* X(member of sys.flags, what sets it before Py_InitializeEx). The UTF-8 mode too: Py_InitializeEx does not
 * turn it on in the C locale, as the command `python` does. */
#define VLCI_FLAGS(X)                                                                                        \
    X(bytes_warning, Py_BytesWarningFlag)                                                                    \
    X(debug, Py_DebugFlag)                                                                                   \
    X(dont_write_bytecode, Py_DontWriteBytecodeFlag)                                                         \
    X(ignore_environment, Py_IgnoreEnvironmentFlag)                                                          \
    X(isolated, Py_IsolatedFlag)                                                                             \
    X(no_site, Py_NoSiteFlag)                                                                                \
    X(no_user_site, Py_NoUserSiteDirectory)                                                                  \
    X(optimize, Py_OptimizeFlag)                                                                             \
    X(utf8_mode, Py_UTF8Mode)                                                                                \
    X(verbose, Py_VerboseFlag)

enum {
#define VLCI_FLAG_NUMBER(member, datum) VLCI_FLAG_##member,
    VLCI_FLAGS(VLCI_FLAG_NUMBER)
#undef VLCI_FLAG_NUMBER
        VLCI_FLAG_COUNT
};

/* What a guest is made from; the caller's memory, until vlci_guest_start has returned. */
struct vlci_birth {
    struct vlci_realm *realm;
    const char *libpython;
    const wchar_t *program;       /* decides sys.prefix and site-packages, as the command's path does */
    int flags[VLCI_FLAG_COUNT];   /* of the host's sys.flags */
    wchar_t **warnings;           /* as after -W; ends with NULL, as does the next */
    wchar_t **implementation;     /* as after -X */
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
 * (argument: the realm, one reference of it) ends its threads, waits for the arrays that are held outside,
 * and finalises the interpreter. */
void *vlci_guest_start(void *birth);
void *vlci_guest_stop(void *realm);

/* Writes the guest's pending exception as "ValueError: why", and clears it. Under its GIL. */
void vlci_guest_explain(struct vlci_realm *realm, char *words, size_t size);

#endif
