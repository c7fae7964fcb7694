/* libvlcs_child.so: preloaded into programs that a context starts, so that they see its slice of the CPUs, as
 * its libraries do. The slice is in VLCS_CHILD_CPUS; without it, or where it is no list of CPUs, every function
 * here is libc's. Affinity needs no answer: a child inherits it.
 *
 * Interposes by name, in the child only. It may find itself in any program, so: libc alone, no thread, no
 * output, no system call more in a program that opens no file of the kernel's about CPUs (a sandbox may end
 * one that calls what it did not expect). */
#include "context/cpu_list.h"
#include "overrides/kernel_file.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#define VISIBLE __attribute__((visibility("default")))

static struct {
    int (*open)(const char *, int, ...);
    int (*openat)(int, const char *, int, ...);
    FILE *(*fopen)(const char *, const char *);
    long (*sysconf)(int);
    int (*get_nprocs)(void);
} next; /* the definitions behind ours: libc's, or another preload's */
static cpu_set_t slice;
static bool sliced;
static atomic_bool ready;

/* Every run writes the same, so that it does no harm when two threads come here before the constructor. */
static void prepare(void) {
    *(void **)&next.open = dlsym(RTLD_NEXT, "open");
    *(void **)&next.openat = dlsym(RTLD_NEXT, "openat");
    *(void **)&next.fopen = dlsym(RTLD_NEXT, "fopen");
    *(void **)&next.sysconf = dlsym(RTLD_NEXT, "sysconf");
    *(void **)&next.get_nprocs = dlsym(RTLD_NEXT, "get_nprocs");
    const char *list = getenv("VLCS_CHILD_CPUS");
    cpu_set_t cpus;
    if (list && vlci_cpu_list_parse(list, &cpus)) {
        slice = cpus;
        sliced = true;
    }
    atomic_store_explicit(&ready, true, memory_order_release);
}

/* Before main(), since open() may first be called where dlsym must not: in a signal handler, or after vfork. */
__attribute__((constructor)) static void find_next(void) { prepare(); }

/* Constructors of other libraries may come earlier. */
static inline void be_ready(void) {
    if (!atomic_load_explicit(&ready, memory_order_acquire)) prepare();
}

/* ---- how many CPUs ------------------------------------------------------------------------------------- */

VISIBLE long sysconf(int name) {
    be_ready();
    return sliced && name == _SC_NPROCESSORS_ONLN ? CPU_COUNT(&slice) : next.sysconf(name);
}

VISIBLE int get_nprocs(void) {
    be_ready();
    return sliced ? CPU_COUNT(&slice) : next.get_nprocs();
}

/* ---- the kernel's files -------------------------------------------------------------------------------- */

static void answer_for(int fd) {
    const struct vlci_kernel_file *file = vlci_kernel_file_of(fd);
    if (file) vlci_kernel_file_answer(file, fd, &slice);
}

static int opened(int fd, const char *path, int flags) {
    if (sliced && fd >= 0 && vlci_kernel_file_reads(flags) && vlci_kernel_file_named(path)) answer_for(fd);
    return fd;
}

/* The mode is there only when a file may be made. */
static bool makes(int flags) { return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE; }

static mode_t mode_after(int flags, va_list arguments) {
    return makes(flags) ? va_arg(arguments, mode_t) : 0;
}

VISIBLE int open(const char *path, int flags, ...) {
    be_ready();
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = mode_after(flags, arguments);
    va_end(arguments);
    return opened(next.open(path, flags, mode), path, flags);
}

VISIBLE int openat(int folder, const char *path, int flags, ...) {
    be_ready();
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = mode_after(flags, arguments);
    va_end(arguments);
    return opened(next.openat(folder, path, flags, mode), path, flags);
}

VISIBLE FILE *fopen(const char *path, const char *mode) {
    be_ready();
    FILE *file = next.fopen(path, mode);
    if (sliced && file && vlci_kernel_file_reads_mode(mode) && vlci_kernel_file_named(path))
        answer_for(fileno(file));
    return file;
}

/* What programs compiled with _FORTIFY_SOURCE call where they pass no mode. */
int __open_2(const char *path, int flags);
int __openat_2(int folder, const char *path, int flags);
VISIBLE int __open_2(const char *path, int flags) {
    be_ready();
    return opened(next.open(path, flags, 0), path, flags);
}
VISIBLE int __openat_2(int folder, const char *path, int flags) {
    be_ready();
    return opened(next.openat(folder, path, flags, 0), path, flags);
}

/* The same functions where off_t has 64 bits. */
_Static_assert(sizeof(off_t) == 8, "the names that end in 64 need functions of their own here");
#define SAME_AS(function) __attribute__((visibility("default"), alias(#function)))
#undef open64
#undef openat64
#undef fopen64
extern __typeof__(open) open64 SAME_AS(open);
extern __typeof__(openat) openat64 SAME_AS(openat);
extern __typeof__(fopen) fopen64 SAME_AS(fopen);
extern __typeof__(__open_2) __open64_2 SAME_AS(__open_2);
extern __typeof__(__openat_2) __openat64_2 SAME_AS(__openat_2);
