/* Opening files: the kernel's files that tell CPUs (kernel_file.h) read as the context's slice. */
#include "context/context.h"
#include "overrides/kernel_file.h"

#include <fcntl.h>
#include <stdio.h>

static void answer_for(vlc_context *context, int fd) {
    const struct vlci_kernel_file *file = vlci_kernel_file_of(fd);
    if (!file) return;
    cpu_set_t slice;
    vlci_context_cpus(context, &slice);
    vlci_kernel_file_answer(file, fd, &slice);
}

static int opened(vlc_context *context, int fd, int flags) {
    if (fd >= 0 && vlci_kernel_file_reads(flags)) answer_for(context, fd);
    return fd;
}

/* In C these are variadic; the fourth argument register holds `mode` when the caller gave one. */
int vlci_file_open(const char *path, int flags, mode_t mode, vlc_context *context) {
    return opened(context, open(path, flags, mode), flags);
}
int vlci_file_open_2(const char *path, int flags, vlc_context *context) {
    return opened(context, open(path, flags, 0), flags);
}
int vlci_file_openat(int directory, const char *path, int flags, mode_t mode, vlc_context *context) {
    return opened(context, openat(directory, path, flags, mode), flags);
}
int vlci_file_openat_2(int directory, const char *path, int flags, vlc_context *context) {
    return opened(context, openat(directory, path, flags, 0), flags);
}

FILE *vlci_file_fopen(const char *path, const char *mode, vlc_context *context) {
    FILE *file = fopen(path, mode);
    if (file && vlci_kernel_file_reads_mode(mode)) answer_for(context, fileno(file));
    return file;
}
