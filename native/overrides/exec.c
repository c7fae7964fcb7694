/* Starting programs: where libc would read its own `environ`, for the program or to search PATH, it is the
 * context's; and every program gets what tells the context's view of the CPUs (child.h).
 *
 * exec* may be called after vfork and in signal handlers: the stack is all the memory that they use. */
#include "loader/host.h"
#include "overrides/child.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char shell[] = "/bin/sh";

int vlci_execve(const char *path, char *const arguments[], char *const environment[], vlc_context *context) {
    VLCI_CHILD_ENVIRONMENT(inherited, context, environment);
    return execve(path, arguments, inherited);
}

int vlci_fexecve(int fd, char *const arguments[], char *const environment[], vlc_context *context) {
    VLCI_CHILD_ENVIRONMENT(inherited, context, environment);
    return fexecve(fd, arguments, inherited);
}

int vlci_execveat(int folder, const char *path, char *const arguments[], char *const environment[], int flags,
                  vlc_context *context) {
    VLCI_CHILD_ENVIRONMENT(inherited, context, environment);
    return vlci_os_execveat(folder, path, arguments, inherited, flags);
}

int vlci_execv(const char *path, char *const arguments[], vlc_context *context) {
    return vlci_execve(path, arguments, vlci_context_environ(context), context);
}

/* ---- search of PATH ------------------------------------------------------------------------------------ */

struct path_search {
    const char *rest; /* of PATH; NULL: at its end */
    const char *file;
    char candidate[PATH_MAX + NAME_MAX + 1];
};

static void search_begin(struct path_search *search, const char *file, vlc_context *context) {
    search->rest = vlci_env_value(vlci_context_environ(context), "PATH");
    if (!search->rest) search->rest = "/bin:/usr/bin"; /* confstr(_CS_PATH) */
    search->file = file;
}

/* Makes the next candidate; false: there is none. An empty part means the current folder. */
static bool search_next(struct path_search *search) {
    while (search->rest) {
        size_t length = strcspn(search->rest, ":");
        const char *folder = search->rest;
        search->rest = folder[length] ? folder + length + 1 : NULL;
        if (length >= PATH_MAX) continue;
        memcpy(search->candidate, folder, length);
        if (length) search->candidate[length++] = '/';
        strcpy(search->candidate + length, search->file);
        return true;
    }
    return false;
}

/* A file without a format that the kernel knows is a script for the shell, as in libc's execvp. */
static void exec_as_script(const char *path, char *const arguments[], char *const environment[]) {
    size_t count = 0; /* of arguments behind the program's name */
    while (arguments[0] && arguments[count + 1]) count++;
    const char *words[count + 3];
    words[0] = shell;
    words[1] = path;
    for (size_t i = 1; i <= count; i++) words[i + 1] = arguments[i];
    words[count + 2] = NULL;
    execve(shell, (char *const *)words, environment);
}

static void exec_candidate(const char *path, char *const arguments[], char *const environment[]) {
    execve(path, arguments, environment);
    if (errno == ENOEXEC) exec_as_script(path, arguments, environment);
}

/* Whether a search goes on after this failure; others say that the file is there and cannot be run. */
static bool is_absence(int number) {
    return number == ENOENT || number == ENOTDIR || number == EACCES || number == ESTALE ||
           number == ENODEV || number == ETIMEDOUT;
}

static bool searchable(const char *file) {
    errno = !*file ? ENOENT : ENAMETOOLONG;
    return *file && strnlen(file, NAME_MAX + 1) <= NAME_MAX;
}

int vlci_execvpe(const char *file, char *const arguments[], char *const environment[], vlc_context *context) {
    VLCI_CHILD_ENVIRONMENT(inherited, context, environment);
    if (strchr(file, '/')) {
        exec_candidate(file, arguments, inherited);
        return -1;
    }
    if (!searchable(file)) return -1;
    bool denied = false;
    struct path_search search;
    for (search_begin(&search, file, context); search_next(&search);) {
        exec_candidate(search.candidate, arguments, inherited);
        if (!is_absence(errno)) return -1;
        denied |= errno == EACCES;
    }
    errno = denied ? EACCES : ENOENT;
    return -1;
}

int vlci_execvp(const char *file, char *const arguments[], vlc_context *context) {
    return vlci_execvpe(file, arguments, vlci_context_environ(context), context);
}

/* ---- arguments one by one: arch_*.S makes them an array, with all that the caller passed behind the NULL */

int vlci_execl(const char *path, char *const arguments[], vlc_context *context) {
    return vlci_execv(path, arguments, context);
}

int vlci_execlp(const char *file, char *const arguments[], vlc_context *context) {
    return vlci_execvp(file, arguments, context);
}

int vlci_execle(const char *path, char *const arguments[], vlc_context *context) {
    char *const *end = arguments;
    while (*end) end++;
    return vlci_execve(path, arguments, (char *const *)end[1], context);
}

/* ---- spawn --------------------------------------------------------------------------------------------- */

/* posix_spawn and pidfd_spawn (glibc 2.39) */
typedef int spawner(int *child, const char *path, const posix_spawn_file_actions_t *actions,
                    const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[]);

static int spawn(spawner *host, int *child, const char *path, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[],
                 vlc_context *context) {
    VLCI_CHILD_ENVIRONMENT(inherited, context, environment);
    return host(child, path, actions, attributes, arguments, inherited);
}

static bool is_program(const char *path) {
    struct stat status;
    if (stat(path, &status)) return false;
    if (S_ISREG(status.st_mode) && !faccessat(AT_FDCWD, path, X_OK, AT_EACCESS)) return true;
    errno = EACCES;
    return false;
}

/* libc's own search would read the host's PATH. Folders are tried here, before the child's file actions. */
static int spawn_search(spawner *host, int *child, const char *file,
                        const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes,
                        char *const arguments[], char *const environment[], vlc_context *context) {
    if (strchr(file, '/'))
        return spawn(host, child, file, actions, attributes, arguments, environment, context);
    if (!searchable(file)) return errno;
    bool denied = false;
    struct path_search search;
    for (search_begin(&search, file, context); search_next(&search);) {
        if (is_program(search.candidate))
            return spawn(host, child, search.candidate, actions, attributes, arguments, environment, context);
        denied |= errno == EACCES;
    }
    return denied ? EACCES : ENOENT;
}

int vlci_posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                     const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[],
                     vlc_context *context) {
    return spawn(posix_spawn, pid, path, actions, attributes, arguments, environment, context);
}

int vlci_posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
                      const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[],
                      vlc_context *context) {
    return spawn_search(posix_spawn, pid, file, actions, attributes, arguments, environment, context);
}

int vlci_pidfd_spawn(int *fd, const char *path, const posix_spawn_file_actions_t *actions,
                     const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[],
                     vlc_context *context) {
    spawner *host = (spawner *)vlci_host_symbol("pidfd_spawn");
    return spawn(host, fd, path, actions, attributes, arguments, environment, context);
}

int vlci_pidfd_spawnp(int *fd, const char *file, const posix_spawn_file_actions_t *actions,
                      const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[],
                      vlc_context *context) {
    spawner *host = (spawner *)vlci_host_symbol("pidfd_spawn");
    return spawn_search(host, fd, file, actions, attributes, arguments, environment, context);
}

int vlci_spawn_shell(pid_t *pid, const char *command, const posix_spawn_file_actions_t *actions,
                     const posix_spawnattr_t *attributes, vlc_context *context) {
    const char *const words[] = { "sh", "-c", "--", command, NULL }; /* "--": it may begin with a dash */
    return vlci_posix_spawn(pid, shell, actions, attributes, (char *const *)words,
                            vlci_context_environ(context), context);
}
