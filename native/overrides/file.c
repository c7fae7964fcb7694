/* The kernel's files that tell CPUs: opened by a library of a context, they read as its slice.
 *
 * The file is opened first, so whatever way its name was written (relative to a directory, through links) the
 * kernel's own name for it decides. Only files of procfs, sysfs and cgroup hierarchies cost more than one
 * extra system call. */
#include "context/context.h"
#include "context/os.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct text {
    char *bytes;
    size_t length, capacity;
    bool failed;
};

static void text_add(struct text *text, const char *bytes, size_t length) {
    if (text->length + length + 1 > text->capacity) {
        size_t capacity = (text->length + length + 1) * 2;
        char *grown = realloc(text->bytes, capacity);
        if (!grown) {
            text->failed = true;
            return;
        }
        text->bytes = grown;
        text->capacity = capacity;
    }
    memcpy(text->bytes + text->length, bytes, length);
    text->bytes[text->length += length] = 0;
}

__attribute__((format(printf, 2, 3))) static void text_print(struct text *text, const char *format, ...) {
    char words[256];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    text_add(text, words, length < (int)sizeof words ? (size_t)length : sizeof words - 1);
}

static void text_free(struct text *text) { free(text->bytes); }

static bool read_all(int fd, struct text *text) {
    char buffer[16384];
    for (off_t at = 0;;) {
        ssize_t got = pread(fd, buffer, sizeof buffer, at);
        if (got < 0) return false;
        if (got == 0) return text->bytes && !text->failed;
        text_add(text, buffer, (size_t)got);
        at += got;
    }
}

/* "0-3,8": the kernel's list format (Documentation/admin-guide/cputopology.rst). */
static void print_list(struct text *out, const cpu_set_t *cpus) {
    const char *comma = "";
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, cpus)) continue;
        int end = cpu;
        while (end + 1 < CPU_SETSIZE && CPU_ISSET(end + 1, cpus)) end++;
        text_print(out, end > cpu ? "%s%d-%d" : "%s%d", comma, cpu, end);
        comma = ",";
        cpu = end;
    }
}

/* "ff,ffffffff": words of 32 bits, as many as the kernel wrote. */
static void print_mask(struct text *out, const cpu_set_t *cpus, const char *kernels) {
    size_t words = 1;
    for (const char *at = kernels; *at && *at != '\n'; at++) words += *at == ',';
    size_t first_digits = strcspn(kernels, ",\n");
    for (size_t word = words; word-- > 0;) {
        unsigned bits = 0;
        for (int i = 0; i < 32; i++)
            if (word * 32 + i < CPU_SETSIZE && CPU_ISSET(word * 32 + i, cpus)) bits |= 1u << i;
        text_print(out, "%0*x%s", word == words - 1 ? (int)first_digits : 8, bits, word ? "," : "");
    }
}

static void parse_list(const char *list, cpu_set_t *cpus) {
    CPU_ZERO(cpus);
    while (*list >= '0' && *list <= '9') {
        char *rest;
        unsigned long first = strtoul(list, &rest, 10), last = first;
        if (*rest == '-') last = strtoul(rest + 1, &rest, 10);
        for (; first <= last && first < CPU_SETSIZE; first++) CPU_SET(first, cpus);
        list = *rest == ',' ? rest + 1 : "";
    }
}

/* A file that is one list of CPUs: what of it lies in the slice. */
static void answer_list(const struct text *in, const cpu_set_t *slice, struct text *out) {
    cpu_set_t listed, both;
    parse_list(in->bytes, &listed);
    CPU_AND(&both, &listed, slice);
    print_list(out, CPU_COUNT(&both) ? &both : slice);
    text_add(out, "\n", 1);
}

/* Paragraphs that begin with "processor : n": those of the slice. */
static void answer_cpuinfo(const struct text *in, const cpu_set_t *slice, struct text *out) {
    for (const char *at = in->bytes; *at;) {
        const char *blank = strstr(at, "\n\n"), *end = blank ? blank + 2 : at + strlen(at);
        unsigned cpu;
        bool other = sscanf(at, "processor : %u", &cpu) == 1 && !(cpu < CPU_SETSIZE && CPU_ISSET(cpu, slice));
        if (!other) text_add(out, at, (size_t)(end - at));
        at = end;
    }
}

static void answer_status(const struct text *in, const cpu_set_t *slice, struct text *out) {
    for (const char *at = in->bytes; *at;) {
        size_t length = strcspn(at, "\n");
        const char *end = at + length + (at[length] == '\n');
        static const char mask[] = "Cpus_allowed:\t", list[] = "Cpus_allowed_list:\t";
        if (!strncmp(at, mask, sizeof mask - 1)) {
            text_add(out, mask, sizeof mask - 1);
            print_mask(out, slice, at + sizeof mask - 1);
            text_add(out, "\n", 1);
        } else if (!strncmp(at, list, sizeof list - 1)) {
            text_add(out, list, sizeof list - 1);
            print_list(out, slice);
            text_add(out, "\n", 1);
        } else {
            text_add(out, at, (size_t)(end - at));
        }
        at = end;
    }
}

/* cgroup v2 cpu.max: "quota period" or "max period". */
static void answer_cpu_max(const struct text *in, const cpu_set_t *slice, struct text *out) {
    unsigned long quota = ULONG_MAX, period = 100000, most;
    if (sscanf(in->bytes, "max %lu", &period) != 1) sscanf(in->bytes, "%lu %lu", &quota, &period);
    most = (unsigned long)CPU_COUNT(slice) * period;
    text_print(out, "%lu %lu\n", quota < most ? quota : most, period);
}

/* cgroup v1 cpu.cfs_quota_us: microseconds of each cpu.cfs_period_us (100 ms unless changed), or -1. */
static void answer_cfs_quota(const struct text *in, const cpu_set_t *slice, struct text *out) {
    long quota = strtol(in->bytes, NULL, 10), most = CPU_COUNT(slice) * 100000l;
    text_print(out, "%ld\n", quota > 0 && quota < most ? quota : most);
}

typedef void answerer(const struct text *in, const cpu_set_t *slice, struct text *out);

static bool ends_with(const char *path, const char *tail) {
    size_t length = strlen(path), tail_length = strlen(tail);
    return length >= tail_length && !strcmp(path + length - tail_length, tail);
}

static bool is_own_status(const char *path) {
    char own[64];
    int length = snprintf(own, sizeof own, "/proc/%d/", (int)getpid());
    return !strncmp(path, own, (size_t)length) && ends_with(path, "/status");
}

static answerer *answerer_of(const char *path) {
    if (!strcmp(path, "/sys/devices/system/cpu/online")) return answer_list;
    if (!strcmp(path, "/proc/cpuinfo")) return answer_cpuinfo;
    if (is_own_status(path)) return answer_status;
    if (ends_with(path, "/cpuset.cpus") || ends_with(path, "/cpuset.cpus.effective") ||
        ends_with(path, "/cpuset.effective_cpus"))
        return answer_list;
    if (ends_with(path, "/cpu.max")) return answer_cpu_max;
    if (ends_with(path, "/cpu.cfs_quota_us")) return answer_cfs_quota;
    return NULL;
}

/* Makes a file just opened for reading answer for the context, if it is one of these. errno stays. */
static void answer_for(vlc_context *context, int fd) {
    int saved = errno;
    char path[PATH_MAX];
    if (vlci_os_is_kernel_file(fd) && vlci_os_descriptor_path(fd, path, sizeof path) > 0) {
        answerer *answer = answerer_of(path);
        __attribute__((cleanup(text_free))) struct text in = { 0 }, out = { 0 };
        if (answer && read_all(fd, &in)) {
            cpu_set_t slice;
            vlci_context_cpus(context, &slice);
            answer(&in, &slice, &out);
            if (out.bytes && !out.failed) vlci_os_substitute(fd, out.bytes, out.length);
        }
    }
    errno = saved;
}

static int opened(vlc_context *context, int fd, int flags) {
    if (fd >= 0 && (flags & O_ACCMODE) == O_RDONLY && !(flags & (O_PATH | O_DIRECTORY)))
        answer_for(context, fd);
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
    if (file && mode[0] == 'r' && !strchr(mode, '+')) answer_for(context, fileno(file));
    return file;
}
