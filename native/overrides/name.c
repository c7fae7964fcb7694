/* Names of shared memory and semaphores that are made of the process id are how a library finds another copy of
 * itself in its process (Intel's and LLVM's OpenMP abort on one): each context has such names to itself.
 *
 * A name with a further number is one of many that are handed to other processes, as PyTorch's
 * "/torch_<pid>_<random>_<count>", and stays as it is. Files in /tmp and /dev/shm stay too: their names are made
 * to be found by others (sockets, pid files, caches). */
#include "context/context.h"

#include <errno.h>
#include <limits.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define UNIQUE_DIGITS 4 /* shorter numbers are versions and counts of copies */

static bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

/* Its numbers are the process's id and perhaps the user's (as in "/__KMP_REGISTERED_LIB_<pid>_<uid>"). */
static bool stands_for_process(const char *name) {
    bool carries_pid = false;
    for (const char *at = name; *at;) {
        if (!is_digit(*at)) {
            at++;
            continue;
        }
        char *end;
        unsigned long number = strtoul(at, &end, 10);
        if (number == (unsigned long)getpid())
            carries_pid = true;
        else if (number != getuid() && end - at >= UNIQUE_DIGITS)
            return false;
        at = end;
    }
    return carries_pid;
}

static const char *own_name(const vlc_context *context, const char *name, char buffer[NAME_MAX]) {
    int saved = errno;
    bool own = stands_for_process(name);
    errno = saved;
    if (!own) return name;
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

sem_t *vlci_sem_open(const char *name, int flags, mode_t mode, unsigned value, vlc_context *context) {
    char buffer[NAME_MAX];
    return sem_open(own_name(context, name, buffer), flags, mode, value);
}
int vlci_sem_unlink(const char *name, vlc_context *context) {
    char buffer[NAME_MAX];
    return sem_unlink(own_name(context, name, buffer));
}
