/* system() and popen(): a shell with the context's environment. libc's own would give it the host's. */
#include "overrides/child.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int wait_for(pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return -1;
    return status;
}

/* ---- system -------------------------------------------------------------------------------------------- */

/* While commands run, the process ignores SIGINT and SIGQUIT: the first saves what was, the last restores it. */
static vlci_lock running_lock;
static unsigned running;
static struct sigaction old_interrupt, old_quit;

static void ignore_begins(void) {
    const struct sigaction ignore = { .sa_handler = SIG_IGN };
    VLCI_HOLD(&running_lock);
    if (running++) return;
    sigaction(SIGINT, &ignore, &old_interrupt);
    sigaction(SIGQUIT, &ignore, &old_quit);
}

static void ignore_ends(void) {
    VLCI_HOLD(&running_lock);
    if (--running) return;
    sigaction(SIGINT, &old_interrupt, NULL);
    sigaction(SIGQUIT, &old_quit, NULL);
}

static int run(const char *command, const sigset_t *mask, vlc_context *context) {
    posix_spawnattr_t attributes;
    sigset_t usual;
    sigemptyset(&usual);
    if (old_interrupt.sa_handler != SIG_IGN) sigaddset(&usual, SIGINT);
    if (old_quit.sa_handler != SIG_IGN) sigaddset(&usual, SIGQUIT);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, mask);
    posix_spawnattr_setsigdefault(&attributes, &usual);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    pid_t pid;
    int failed = vlci_spawn_shell(&pid, command, NULL, &attributes, context);
    posix_spawnattr_destroy(&attributes);
    return failed ? 127 << 8 : wait_for(pid); /* as if the shell had said that it found no such command */
}

int vlci_system(const char *command, vlc_context *context) {
    if (!command) return vlci_system("exit 0", context) == 0;
    sigset_t child, mask;
    int cancellation;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation); /* or the signals would stay ignored */
    ignore_begins();
    pthread_sigmask(SIG_BLOCK, &child, &mask);
    int status = run(command, &mask, context);
    int saved = errno;
    ignore_ends();
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    pthread_setcancelstate(cancellation, NULL);
    errno = saved;
    return status;
}

/* ---- popen --------------------------------------------------------------------------------------------- */

struct stream {
    struct stream *next;
    FILE *file;
    pid_t pid;
};
static vlci_lock streams_lock;
static struct stream *streams;

/* The child's end becomes its standard input or output; with the shell's start both ends are closed there. */
static int start(const char *command, int child_end, int target, pid_t *pid, vlc_context *context) {
    posix_spawn_file_actions_t actions;
    int failed = posix_spawn_file_actions_init(&actions);
    if (failed) return failed;
    failed = posix_spawn_file_actions_adddup2(&actions, child_end, target);
    if (!failed) failed = vlci_spawn_shell(pid, command, &actions, NULL, context);
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

/* "r" or "w", with or without "e". Our end closes on exec always, not only with "e": POSIX wants it closed in
 * the children of later popen calls, and nobody has use for it in others. */
FILE *vlci_popen(const char *command, const char *mode, vlc_context *context) {
    bool reads = strchr(mode, 'r'), writes = strchr(mode, 'w');
    if (reads == writes || mode[strspn(mode, "rwe")]) {
        errno = EINVAL;
        return NULL;
    }
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) return NULL;
    int ours = ends[writes], theirs = ends[!writes];
    struct stream *stream = malloc(sizeof *stream);
    FILE *file = stream ? fdopen(ours, reads ? "r" : "w") : NULL;
    int failed =
        file ? start(command, theirs, reads ? STDOUT_FILENO : STDIN_FILENO, &stream->pid, context) : errno;
    close(theirs);
    if (failed) {
        if (file)
            fclose(file);
        else
            close(ours);
        free(stream);
        errno = failed;
        return NULL;
    }
    stream->file = file;
    VLCI_HOLD(&streams_lock);
    stream->next = streams;
    streams = stream;
    return file;
}

static struct stream *take_out(FILE *file) {
    VLCI_HOLD(&streams_lock);
    for (struct stream **link = &streams, *stream; (stream = *link); link = &stream->next)
        if (stream->file == file) {
            *link = stream->next;
            return stream;
        }
    return NULL;
}

int vlci_pclose(FILE *file) {
    struct stream *stream = take_out(file);
    if (!stream) return pclose(file); /* one that the host opened */
    pid_t pid = stream->pid;
    free(stream);
    fclose(file);
    return wait_for(pid);
}

void vlci_shell_fork(enum vlci_fork when) {
    vlci_lock_fork(&running_lock, when);
    vlci_lock_fork(&streams_lock, when);
}
