#include "overrides/kernel_file.h"

#include "context/cpu_list.h"
#include "context/os.h"

#include <errno.h>
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

static void print_list(struct text *out, const cpu_set_t *cpus) {
    char list[VLCI_CPU_LIST_SIZE];
    text_add(out, list, vlci_cpu_list_print(cpus, list, sizeof list));
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

/* A file that is one list of CPUs: what of it lies in the slice. */
static void answer_list(const struct text *in, const cpu_set_t *slice, struct text *out) {
    cpu_set_t listed, both;
    vlci_cpu_list_parse(in->bytes, &listed);
    CPU_AND(&both, &listed, slice);
    print_list(out, CPU_COUNT(&both) ? &both : slice);
    text_add(out, "\n", 1);
}

/* The number at *at, past blanks; false: there is none. By hand, since the names that sscanf and strtoul are
 * linked to change from one libc to the next, and the children's library must load in most. */
static bool get_number(const char **at, unsigned long *number) {
    *at += strspn(*at, " \t");
    const char *first = *at;
    for (*number = 0; **at >= '0' && **at <= '9'; (*at)++)
        *number = *number * 10 + (unsigned long)(**at - '0');
    return *at > first;
}

/* Paragraphs that begin with "processor : n": those of the slice. */
static void answer_cpuinfo(const struct text *in, const cpu_set_t *slice, struct text *out) {
    static const char label[] = "processor";
    for (const char *at = in->bytes; *at;) {
        const char *blank = strstr(at, "\n\n"), *end = blank ? blank + 2 : at + strlen(at);
        bool other = false;
        if (!strncmp(at, label, sizeof label - 1)) {
            const char *value = at + sizeof label - 1;
            unsigned long cpu;
            value += strspn(value, " \t:");
            other = get_number(&value, &cpu) && !(cpu < CPU_SETSIZE && CPU_ISSET(cpu, slice));
        }
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
    const char *at = in->bytes;
    unsigned long quota, period, most;
    bool limited = get_number(&at, &quota);
    if (!limited) at += strcspn(at, " \n");
    if (!get_number(&at, &period)) period = 100000;
    most = (unsigned long)CPU_COUNT(slice) * period;
    text_print(out, "%lu %lu\n", limited && quota < most ? quota : most, period);
}

/* cgroup v1 cpu.cfs_quota_us: microseconds of each cpu.cfs_period_us (100 ms unless changed), or -1. */
static void answer_cfs_quota(const struct text *in, const cpu_set_t *slice, struct text *out) {
    const char *at = in->bytes;
    unsigned long quota, most = (unsigned long)CPU_COUNT(slice) * 100000;
    bool limited = get_number(&at, &quota) && quota > 0;
    text_print(out, "%lu\n", limited && quota < most ? quota : most);
}

static const char own_process[] = "/proc/<pid>/";

struct vlci_kernel_file {
    const char *folder; /* NULL: of any cgroup, wherever its hierarchy is mounted */
    const char *name;
    void (*answer)(const struct text *in, const cpu_set_t *slice, struct text *out);
};
static const struct vlci_kernel_file files[] = {
    { "/sys/devices/system/cpu/", "online", answer_list },
    { "/proc/", "cpuinfo", answer_cpuinfo },
    { own_process, "status", answer_status },
    { NULL, "cpuset.cpus", answer_list },
    { NULL, "cpuset.cpus.effective", answer_list },
    { NULL, "cpuset.effective_cpus", answer_list },
    { NULL, "cpu.max", answer_cpu_max },
    { NULL, "cpu.cfs_quota_us", answer_cfs_quota },
};

/* Of the process itself, and of its threads: /proc/<pid>/task/<tid>/status. */
static bool is_own(const char *path) {
    char own[64];
    int length = snprintf(own, sizeof own, "/proc/%d/", (int)getpid());
    return !strncmp(path, own, (size_t)length);
}

static bool lies_in(const struct vlci_kernel_file *file, const char *path, const char *name) {
    if (!file->folder) return true;
    if (file->folder == own_process) return is_own(path);
    return strlen(file->folder) == (size_t)(name - path) &&
           !strncmp(file->folder, path, (size_t)(name - path));
}

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool vlci_kernel_file_named(const char *path) {
    const char *name = last_part(path);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (!strcmp(files[i].name, name)) return true;
    return false;
}

const struct vlci_kernel_file *vlci_kernel_file_of(int fd) {
    int saved = errno;
    char path[PATH_MAX];
    const struct vlci_kernel_file *found = NULL;
    if (vlci_os_is_kernel_file(fd) && vlci_os_descriptor_path(fd, path, sizeof path) > 0) {
        const char *name = last_part(path);
        for (size_t i = 0; i < sizeof files / sizeof *files && !found; i++)
            if (!strcmp(files[i].name, name) && lies_in(&files[i], path, name)) found = &files[i];
    }
    errno = saved;
    return found;
}

void vlci_kernel_file_answer(const struct vlci_kernel_file *file, int fd, const cpu_set_t *slice) {
    int saved = errno;
    __attribute__((cleanup(text_free))) struct text in = { 0 }, out = { 0 };
    if (read_all(fd, &in)) {
        file->answer(&in, slice, &out);
        if (out.bytes && !out.failed) vlci_os_substitute(fd, out.bytes, out.length);
    }
    errno = saved;
}
