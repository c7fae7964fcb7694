/* Whatever call into libc fails while a context is made, filled and used: an error that says so, nothing left
 * behind, and the next context works. Memory, addresses, descriptors and threads run out one call at a time, or
 * from one call on for good; in a process where VLCs start, and in one where they work already. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "contexts.h"

/* Where in libvlcs.so a call came from, and whether it is the one to fail. */
static long calls, fails_at, blocks;
static bool fails_on; /* and all after it */
static const char *failed_name;
static const char *failed_from;
static const char *libvlcs_base;

static bool fails(const char *name, void *from) {
    if (!fails_at || ++calls < fails_at || (calls > fails_at && !fails_on)) return false;
    if (calls == fails_at) {
        failed_name = name;
        failed_from = from;
    }
    return true;
}
#define FAILS fails(__func__ + sizeof "our", __builtin_return_address(0))
#define FAIL(value, code) return errno = (code), (value)

static void *our_malloc(size_t size) {
    if (FAILS) FAIL(NULL, ENOMEM);
    __atomic_add_fetch(&blocks, 1, __ATOMIC_RELAXED);
    return malloc(size);
}
static void *our_calloc(size_t count, size_t size) {
    if (FAILS) FAIL(NULL, ENOMEM);
    __atomic_add_fetch(&blocks, 1, __ATOMIC_RELAXED);
    return calloc(count, size);
}
static void *our_realloc(void *block, size_t size) {
    if (FAILS) FAIL(NULL, ENOMEM);
    if (!block) __atomic_add_fetch(&blocks, 1, __ATOMIC_RELAXED);
    return realloc(block, size);
}
static char *our_strdup(const char *text) {
    if (FAILS) FAIL(NULL, ENOMEM);
    __atomic_add_fetch(&blocks, 1, __ATOMIC_RELAXED);
    return strdup(text);
}
static void our_free(void *block) {
    if (block) __atomic_sub_fetch(&blocks, 1, __ATOMIC_RELAXED);
    free(block);
}
static void *our_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset) {
    if (FAILS) FAIL(MAP_FAILED, ENOMEM);
    return mmap(address, length, protection, flags, fd, offset);
}
static int our_mprotect(void *address, size_t length, int protection) {
    if (FAILS) FAIL(-1, ENOMEM);
    return mprotect(address, length, protection);
}
static int our_open(const char *path, int flags, ...) {
    if (FAILS) FAIL(-1, EMFILE);
    return open(path, flags);
}
#if __GLIBC_PREREQ(2, 33)
static int our_fstat(int fd, struct stat *file) {
    if (FAILS) FAIL(-1, EIO);
    return fstat(fd, file);
}
#else
#define fstat __fxstat /* as the header has it */
static int our___fxstat(int version, int fd, struct stat *file) {
    if (FAILS) FAIL(-1, EIO);
    return __fxstat(version, fd, file);
}
#endif
static ssize_t our_pread(int fd, void *buffer, size_t length, off_t offset) {
    if (FAILS) FAIL(-1, EIO);
    return pread(fd, buffer, length, offset);
}
static ssize_t our_read(int fd, void *buffer, size_t length) {
    if (FAILS) FAIL(-1, EIO);
    return read(fd, buffer, length);
}
static void *our_dlopen(const char *file, int mode) {
    if (FAILS) return NULL;
    return dlopen(file, mode);
}
static char *our_realpath(const char *path, char *resolved) {
    if (FAILS) FAIL(NULL, ENOMEM);
    return realpath(path, resolved);
}
static locale_t our_newlocale(int categories, const char *name, locale_t base) {
    if (FAILS) FAIL((locale_t)0, ENOMEM);
    return newlocale(categories, name, base);
}
static int our_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*function)(void *),
                              void *a) {
    return FAILS ? EAGAIN : pthread_create(thread, how, function, a);
}
static int our_pthread_key_create(pthread_key_t *key, void (*destructor)(void *)) {
    return FAILS ? EAGAIN : pthread_key_create(key, destructor);
}

static const struct {
    const char *name;
    void *function;
} ours[] = {
#define OURS(name) OURS_NAMED(name)
#define OURS_NAMED(name) { #name, (void *)our_##name }
    OURS(malloc),   OURS(calloc),    OURS(realloc),        OURS(strdup),
    OURS(free),     OURS(mmap),      OURS(mprotect),       OURS(open),
    OURS(fstat),    OURS(pread),     OURS(read),           OURS(dlopen),
    OURS(realpath), OURS(newlocale), OURS(pthread_create), OURS(pthread_key_create),
};

/* Puts our functions into libvlcs.so's table of addresses. Not by a preload: with another malloc in the process,
 * contexts would use that instead of their own heaps. */
static void interpose(void) {
    const struct link_map *map = NULL;
    const Elf64_Rela *tables[2] = { NULL, NULL };
    const Elf64_Sym *symbols = NULL;
    const char *strings = NULL;
    size_t sizes[2] = { 0, 0 };
    unsigned found = 0;
    REQUIRE(dlinfo(dlopen(LIBVLCS_FILE, RTLD_NOW | RTLD_NOLOAD), RTLD_DI_LINKMAP, &map) == 0,
            "no libvlcs.so");
    libvlcs_base = (const char *)map->l_addr;
    for (const Elf64_Dyn *at = map->l_ld; at->d_tag != DT_NULL; at++) {
        if (at->d_tag == DT_RELA) tables[0] = (const void *)at->d_un.d_ptr;
        if (at->d_tag == DT_RELASZ) sizes[0] = at->d_un.d_val;
        if (at->d_tag == DT_JMPREL) tables[1] = (const void *)at->d_un.d_ptr;
        if (at->d_tag == DT_PLTRELSZ) sizes[1] = at->d_un.d_val;
        if (at->d_tag == DT_SYMTAB) symbols = (const void *)at->d_un.d_ptr;
        if (at->d_tag == DT_STRTAB) strings = (const void *)at->d_un.d_ptr;
    }
    for (int t = 0; t < 2; t++)
        for (const Elf64_Rela *r = tables[t]; r < tables[t] + sizes[t] / sizeof *r; r++)
            for (size_t i = 0; ELF64_R_SYM(r->r_info) && i < sizeof ours / sizeof *ours; i++) {
                if (strcmp(strings + symbols[ELF64_R_SYM(r->r_info)].st_name, ours[i].name)) continue;
                void **slot = (void **)(map->l_addr + r->r_offset);
                REQUIRE(mprotect((void *)((uintptr_t)slot & ~4095ul), 4096, PROT_READ | PROT_WRITE) == 0,
                        "relro");
                *slot = ours[i].function;
                found++;
            }
    REQUIRE(found >= sizeof ours / sizeof *ours, "%u of %zu functions were found", found,
            sizeof ours / sizeof *ours);
}

static void *add_one(void *argument) { return (char *)argument + 1; }

/* Makes a context, fills and uses it; the first failure ends it. Whatever was made is gone afterwards, for
 * which calls fail too when `to_the_end`. */
static int scenario(bool to_the_end, vlc_error *error) {
    static const char *const env[] = { "FAULTS=yes", NULL }, *const share[] = { "libbottom.so", NULL };
    static const char *const libraries[] = { FIXTURE("order_upper"), FIXTURE("tls_initial"),
                                             FIXTURE("cxx_probe"), FIXTURE("relocations_gnu"),
                                             FIXTURE("lazy") };
    static uint32_t cpu;
    process_cpus(&cpu, 1);
    vlc_spec spec = VLC_SPEC_INIT;
    spec.name = "faulty";
    spec.env = env;
    spec.share = share;
    spec.cpus = &cpu;
    spec.cpu_count = 1;
    vlc_context *context = NULL;
    vlc_library *library[5] = { NULL };
    vlc_task *task = NULL;
    void *result = NULL, *address;
    *error = (vlc_error)VLC_ERROR_INIT;
    int status = vlc_create(&spec, &context, error), first = status;
    for (size_t i = 0; !status && i < sizeof libraries / sizeof *libraries; i++)
        status = vlc_load(context, libraries[i], i == 4 ? RTLD_LAZY : RTLD_NOW, &library[i], error);
    if (!status) status = vlc_symbol(context, library[2], "cxx_catch", &address, error);
    if (!status) status = vlc_run(context, add_one, (void *)1, &result, error);
    if (!status) status = vlc_submit(context, add_one, (void *)2, &task, error);
    if (!status) status = vlc_wait(task, &result, error);
    if (!status) CHECK_EQUAL((long)result, 3);
    long at = fails_at;
    if (!to_the_end) fails_at = 0;
    if (!first) {
        vlc_error again = VLC_ERROR_INIT;
        int closed = vlc_destroy(context, -1, &again);
        fails_at = 0;
        if (closed) {
            CHECK(*again.message && again.status == closed, "destroy: %s \"%s\"", vlc_status_name(closed),
                  again.message);
            CHECK_EQUAL(vlc_destroy(context, -1, &again), VLC_OK);
            if (!status) *error = again, status = closed;
        }
    }
    fails_at = at;
    return status;
}

static const char *where(void) {
    static char words[100];
    snprintf(words, sizeof words, "call %ld (%s at libvlcs.so+%#lx)", fails_at,
             failed_name ? failed_name : "none",
             failed_from ? (unsigned long)(failed_from - libvlcs_base - 1) : 0);
    return words;
}

static void on_crash(int number) {
    char words[160];
    int length = snprintf(words, sizeof words, "signal %d after %s failed\n", number, where());
    if (write(STDERR_FILENO, words, (size_t)length) < 0) _exit(2);
    _exit(1);
}

/* What a failed attempt says: a status, and a sentence with the cause in it. */
static void check_words(int status, const vlc_error *error) {
    if (!status) return; /* it could do without */
    CHECK(error->status == status &&
              (status == VLC_SYSTEM || status == VLC_LIMIT || status == VLC_LOAD_FAILED),
          "%s: %s, and the record says %s: %s", where(), vlc_status_name(status),
          vlc_status_name((int)error->status), error->message);
    const char *const causes[] = { "memory",       "address space",      "Too many open files",
                                   "No file",      "Input/output error", "temporarily unavailable",
                                   "pthread keys", "cannot load",        "locale" };
    bool named = false;
    for (size_t i = 0; i < sizeof causes / sizeof *causes; i++)
        named |= strstr(error->message, causes[i]) != NULL;
    CHECK(named, "%s: no cause is named: %s", where(), error->message);
}

static long descriptor_count(void) {
    long count = 0;
    for (int fd = 0; fd < 256; fd++) count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* One attempt in this process. False: no call was left to fail. */
static bool attempt(long n, bool on, bool to_the_end) {
    vlc_error error;
    calls = 0;
    failed_name = NULL;
    fails_on = on;
    fails_at = n;
    int status = scenario(to_the_end, &error);
    bool reached = failed_name != NULL;
    if (reached)
        check_words(status, &error);
    else
        CHECK_EQUAL(status, VLC_OK);
    fails_at = 0;
    return reached;
}

enum { NONE_LEFT = 3 };

/* Attempts of a process in which VLCs start. */
static void fresh(bool on) {
    for (long n = 1; check_failures < 20; n++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            check_failures = 0;
            bool reached = attempt(n, on, false);
            vlc_error error;
            int status = scenario(false, &error);
            fails_at = n;
            CHECK(!status, "after %s, the next context failed: %s", where(), error.message);
            _exit(check_failures ? 1 : !reached ? NONE_LEFT : 0);
        }
        int how = 0;
        REQUIRE(waitpid(child, &how, 0) == child, "waitpid");
        CHECK(WIFEXITED(how) && (WEXITSTATUS(how) == 0 || WEXITSTATUS(how) == NONE_LEFT),
              "attempt %ld of a fresh process: %#x", n, how);
        if (WIFEXITED(how) && WEXITSTATUS(how) == NONE_LEFT) {
            fprintf(stderr, "%ld calls in a fresh process, %s\n", n - 1,
                    on ? "all from one on" : "one at a time");
            return;
        }
    }
}

/* Attempts in a process where contexts work: they leave nothing. */
static void later(bool to_the_end) {
    vlc_error error;
    cpu_set_t before, after;
    vlc_context *earlier = context_new("earlier");
    load(earlier, FIXTURE("counter"), RTLD_NOW);
    for (int i = 0; i < 3; i++) REQUIRE(scenario(false, &error) == VLC_OK, "%s", error.message);
    REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0, "sched_getaffinity");
    long mappings = mapping_count(), descriptors = descriptor_count(), threads = thread_count(1),
         held = blocks, n = 1;
    for (; check_failures < 20 && attempt(n, false, to_the_end); n++) {
        fails_at = n;
        CHECK(blocks == held, "%s: %ld blocks more", where(), blocks - held);
        CHECK(descriptor_count() == descriptors, "%s: a descriptor stays open", where());
        long now = mapping_count();
        /* when destroy cannot unmap something, that is done when its addresses are used again */
        CHECK(UNDER_SANITIZER || now <= mappings + (to_the_end ? 8 : 2), "%s: %ld mappings became %ld",
              where(), mappings, now);
        CHECK(sched_getaffinity(0, sizeof after, &after) == 0 && CPU_EQUAL(&before, &after), "%s: affinity",
              where());
        held = blocks;
        mappings = now > mappings ? now : mappings;
        fails_at = 0;
    }
    fails_at = 0;
    CHECK_EQUAL(thread_count(threads), threads);
    CHECK_EQUAL(call_named(earlier, NULL, "counter_next", 5), 5);
    REQUIRE(scenario(false, &error) == VLC_OK, "%s", error.message);
    context_close(earlier);
    fprintf(stderr, "%ld calls in a process with contexts%s\n", n - 1,
            to_the_end ? ", destroy included" : "");
}

int main(void) {
    REQUIRE(dlopen(FIXTURE("bottom"), RTLD_NOW) != NULL, "%s", dlerror()); /* to be shared */
    interpose();
    for (int number = SIGILL; number <= SIGSEGV; number++) signal(number, on_crash);
    if (!UNDER_SANITIZER) { /* its shadow makes each fork slow */
        fresh(false);
        fresh(true);
    }
    later(false);
    later(true);
    return check_result();
}
