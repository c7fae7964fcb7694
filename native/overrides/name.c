/* Shared-memory names that carry the process id are how a library finds another copy of itself in its
 * process (Intel's and LLVM's OpenMP abort on one): each context has such names to itself. */
#include "context/context.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

static bool carries_pid(const char *name) {
    char pid[16];
    size_t length = (size_t)snprintf(pid, sizeof pid, "%d", (int)getpid());
    for (const char *at = name; (at = strstr(at, pid)); at++)
        if ((at == name || !is_digit(at[-1])) && !is_digit(at[length])) return true;
    return false;
}

static const char *own_name(const vlc_context *context, const char *name, char buffer[NAME_MAX]) {
    if (!carries_pid(name)) return name;
    int length = snprintf(buffer, NAME_MAX, "%s.vlc%u", name, context->number);
    return length < NAME_MAX ? buffer : name;
}

int vlci_shm_open(const char *name, int flags, mode_t mode, vlc_context *context) {
    char buffer[NAME_MAX];
    return shm_open(own_name(context, name, buffer), flags, mode);
}

int vlci_shm_unlink(const char *name, vlc_context *context) {
    char buffer[NAME_MAX];
    return shm_unlink(own_name(context, name, buffer));
}
