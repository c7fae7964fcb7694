/* contexts.h: the few steps that every test of libvlcs repeats, each ending the test when it fails. */
#ifndef CONTEXTS_H
#define CONTEXTS_H

#include <dlfcn.h>
#include <sched.h>
#include <stdint.h>
#include <unistd.h>

#include "check.h"
#include "vlcs.h"

#define FIXTURE(name) FIXTURE_DIR "/lib" name ".so"

/* The signature of nearly all functions of the fixtures; a pointer passes as a long too. */
typedef long (*probe)(long);

static inline vlc_context *context_from(const vlc_spec *spec) {
    vlc_context *context = NULL;
    vlc_error error = VLC_ERROR_INIT;
    REQUIRE(vlc_create(spec, &context, &error) == VLC_OK, "%s", error.message);
    return context;
}

static inline vlc_context *context_on(const char *name, const uint32_t *cpus, size_t cpu_count) {
    vlc_spec spec = VLC_SPEC_INIT;
    spec.name = name;
    spec.cpus = cpus;
    spec.cpu_count = cpu_count;
    return context_from(&spec);
}

static inline vlc_context *context_new(const char *name) { return context_on(name, NULL, 0); }

static inline void context_close(vlc_context *context) {
    vlc_error error = VLC_ERROR_INIT;
    REQUIRE(vlc_destroy(context, -1, &error) == VLC_OK, "%s", error.message);
}

static inline vlc_library *load(vlc_context *context, const char *file, int flags) {
    vlc_library *library = NULL;
    vlc_error error = VLC_ERROR_INIT;
    REQUIRE(vlc_load(context, file, flags, &library, &error) == VLC_OK, "%s", error.message);
    return library;
}

static inline probe find(vlc_context *context, vlc_library *library, const char *name) {
    void *address = NULL;
    vlc_error error = VLC_ERROR_INIT;
    REQUIRE(vlc_symbol(context, library, name, &address, &error) == VLC_OK, "%s", error.message);
    return (probe)address;
}

/* Calls the function inside the context, on this thread. */
static inline long call(vlc_context *context, probe function, long argument) {
    vlc_error error = VLC_ERROR_INIT;
    REQUIRE(vlc_enter(context, &error) == VLC_OK, "%s", error.message);
    long result = function(argument);
    REQUIRE(vlc_leave(context, &error) == VLC_OK, "%s", error.message);
    return result;
}

static inline long call_named(vlc_context *context, vlc_library *library, const char *name, long argument) {
    return call(context, find(context, library, name), argument);
}

/* The CPUs that this process may use, in ascending order; how many there are. */
static inline size_t process_cpus(uint32_t *cpus, size_t capacity) {
    cpu_set_t set;
    size_t count = 0;
    REQUIRE(sched_getaffinity(0, sizeof set, &set) == 0, "sched_getaffinity failed");
    for (uint32_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set)) {
            if (count < capacity) cpus[count] = cpu;
            count++;
        }
    return count;
}

/* Two CPUs for a test of slices; a machine with one skips it. */
static inline void two_cpus(uint32_t cpus[2]) {
    if (process_cpus(cpus, 2) < 2) SKIP("one-cpu", "this process may use one CPU only");
}

/* valgrind maps memory for itself at any time, in this process. */
static inline int under_valgrind(void) {
    const char *preloaded = getenv("LD_PRELOAD");
    return preloaded && strstr(preloaded, "valgrind");
}

/* The kernel's mappings of this process. */
static inline long mapping_count(void) {
    long lines = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    REQUIRE(maps != NULL, "/proc/self/maps cannot be read");
    for (int c; (c = getc(maps)) != EOF;) lines += c == '\n';
    fclose(maps);
    return lines;
}

/* Whether a mapping of this process names the file. */
static inline int is_mapped(const char *file) {
    char line[4600];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    REQUIRE(maps != NULL, "/proc/self/maps cannot be read");
    while (!found && fgets(line, sizeof line, maps)) found = strstr(line, file) != NULL;
    fclose(maps);
    return found;
}

static inline long resident_kilobytes(void) {
    long total = 0, resident = 0;
    FILE *statm = fopen("/proc/self/statm", "re");
    REQUIRE(statm && fscanf(statm, "%ld %ld", &total, &resident) == 2, "/proc/self/statm cannot be read");
    fclose(statm);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Threads of this process. The kernel forgets one a little after its join: waits up to a second for `expected`. */
static inline long thread_count(long expected) {
    long count = 0;
    for (int attempt = 0; attempt < 100; attempt++) {
        char line[256];
        FILE *status = fopen("/proc/self/status", "re");
        while (status && fgets(line, sizeof line, status))
            if (sscanf(line, "Threads: %ld", &count) == 1) break;
        if (status) fclose(status);
        if (count == expected) break;
        usleep(10000);
    }
    return count;
}

/* The call must have failed with that status and a message that is a sentence about `subject`. */
#define CHECK_REFUSED(call_, error, expected, subject)                                                       \
    do {                                                                                                     \
        (error) = (vlc_error)VLC_ERROR_INIT;                                                                 \
        int status_ = (call_);                                                                               \
        CHECK(status_ == (expected), "%s instead of %s: %s", vlc_status_name(status_),                       \
              vlc_status_name(expected), (error).message);                                                   \
        CHECK((error).status == status_, "the record says %s", vlc_status_name((error).status));             \
        CHECK_WORDS((error).message, (subject));                                                             \
    } while (0)

#endif
