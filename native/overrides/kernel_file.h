/* The kernel's files that tell CPUs, and how each reads in a slice. Shared by libvlcs.so, for libraries of a
 * context, and by libvlcs_child.so, for programs that these start.
 *
 * A file is opened first, so whatever way its name was written (relative to a directory, through links) the
 * kernel's own name for it decides. Only files of procfs, sysfs and cgroup hierarchies cost more than one
 * extra system call. errno stays. */
#ifndef VLCI_KERNEL_FILE_H
#define VLCI_KERNEL_FILE_H

#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>

struct vlci_kernel_file;

/* Which of these files a descriptor just opened for reading is; NULL: none. */
const struct vlci_kernel_file *vlci_kernel_file_of(int fd);

/* Makes the descriptor read what the file says in the slice; it stays the kernel's where that fails. */
void vlci_kernel_file_answer(const struct vlci_kernel_file *file, int fd, const cpu_set_t *slice);

/* Whether a path may name one, by its last part alone: no system call. A link may have another name. */
bool vlci_kernel_file_named(const char *path);

/* Whether a file opened like this can be read, by the flags of open() and the mode of fopen(). */
static inline bool vlci_kernel_file_reads(int flags) {
    return (flags & O_ACCMODE) == O_RDONLY && !(flags & (O_PATH | O_DIRECTORY));
}
static inline bool vlci_kernel_file_reads_mode(const char *mode) {
    return mode[0] == 'r' && !strchr(mode, '+');
}

#endif
