/* Damaged files: a library in three layouts, each time with a few bytes changed. Every mutant is loaded, or refused
 * in words; none takes the process with it. Mutants that make the library run other code (DT_INIT, IRELATIVE and
 * their like) are left out: there a crash would be the code's. */
#include <elf.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>

#include "contexts.h"

#ifndef DAMAGED_STEP /* every n-th byte; 1 for a thorough run by hand */
#define DAMAGED_STEP (UNDER_SANITIZER ? 67 : 11)
#endif

enum outcome { LOADED = 40, REFUSED, NO_WORDS, NOT_OPENED }; /* not 1: sanitizers exit with that */

static unsigned char sound[1 << 17], mutant[sizeof sound];
static size_t size;
static char folder[] = "/tmp/vlcs-damaged-XXXXXX", path[sizeof folder + 32];
static int file = -1;
static long loaded, refused;

static const Elf64_Ehdr *header_of(const unsigned char *bytes) { return (const Elf64_Ehdr *)bytes; }

/* Section headers are not what a loader reads, so they stay sound and tell where the tables lie. */
static const Elf64_Shdr *section(const char *name) {
    const Elf64_Shdr *all = (const Elf64_Shdr *)(sound + header_of(sound)->e_shoff);
    const char *names = (const char *)sound + all[header_of(sound)->e_shstrndx].sh_offset;
    for (int i = 0; i < header_of(sound)->e_shnum; i++)
        if (!strcmp(names + all[i].sh_name, name)) return &all[i];
    return NULL;
}

static int is_code_pointer(int64_t tag) {
    return tag == DT_INIT || tag == DT_FINI || tag == DT_INIT_ARRAY || tag == DT_FINI_ARRAY;
}

static int runs_other_code(void) {
    static const char *const relocations[] = { ".rela.dyn", ".rela.plt" };
    const Elf64_Shdr *dynamic = section(".dynamic");
    const Elf64_Dyn *entries = (const Elf64_Dyn *)(mutant + dynamic->sh_offset);
    for (size_t i = 0; i < dynamic->sh_size / sizeof *entries; i++)
        if (is_code_pointer(entries[i].d_tag)) return 1;
    for (int t = 0; t < 2; t++) {
        const Elf64_Shdr *table = section(relocations[t]);
        const Elf64_Rela *first = table ? (const Elf64_Rela *)(mutant + table->sh_offset) : NULL;
        for (size_t i = 0; table && i < table->sh_size / sizeof *first; i++)
            if (ELF64_R_TYPE(first[i].r_info) == R_X86_64_IRELATIVE) return 1;
    }
    return 0;
}

/* In a child: loads, looks symbols up, those that are there and one that is not, and unloads. */
__attribute__((noreturn)) static void load_mutant(void) {
    vlc_error error = VLC_ERROR_INIT;
    vlc_context *context = NULL;
    vlc_library *library = NULL;
    void *address;
    alarm(10);
    if (vlc_create(NULL, &context, &error)) _exit(NOT_OPENED);
    int status = vlc_load(context, path, RTLD_NOW, &library, &error);
    if (status) _exit(error.message[0] && error.status == status && status != VLC_BUG ? REFUSED : NO_WORDS);
    vlc_symbol(context, library, "answer", &address, &error);
    vlc_symbol(context, library, "absent_everywhere", &address, &error);
    vlc_symbol(context, NULL, "answer", &address, &error);
    if (vlc_destroy(context, -1, &error)) _exit(NOT_OPENED);
    _exit(LOADED);
}

static void try_mutant(const char *where, size_t from, size_t length) {
    int status = -1;
    if (runs_other_code()) {
        memcpy(mutant + from, sound + from, length);
        return;
    }
    REQUIRE(pwrite(file, mutant + from, length, (off_t)from) == (ssize_t)length, "%s cannot be written",
            path);
    pid_t pid = fork();
    if (pid == 0) load_mutant();
    REQUIRE(waitpid(pid, &status, 0) == pid, "no child");
    int ended = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    loaded += ended == LOADED;
    refused += ended == REFUSED;
    if (ended != LOADED && ended != REFUSED)
        check_failed(__FILE__, __LINE__, "%s + %#zx, %zu bytes from %#zx: %02x.. became %02x..: %s %d", where,
                     from, length, from, sound[from], mutant[from],
                     WIFSIGNALED(status) ? "the load was ended by signal"
                     : ended == NO_WORDS ? "it was refused without words, status"
                                         : "it ended with",
                     WIFSIGNALED(status) ? WTERMSIG(status) : ended);
    REQUIRE(check_failures < 4, "there may be more, but each can take 10 seconds");
    memcpy(mutant + from, sound + from, length);
    REQUIRE(pwrite(file, sound + from, length, (off_t)from) == (ssize_t)length, "%s cannot be written", path);
}

/* Single bytes: one bit, all bits, and the ends of the range; then blocks of zeros and of ones. */
static void damage(const char *where, size_t start, size_t length) {
    for (size_t at = start; at < start + length; at += DAMAGED_STEP) {
        const unsigned char changes[] = { (unsigned char)(sound[at] ^ 1u << at % 8), sound[at] ^ 0xff, 0,
                                          0x7f };
        for (size_t i = 0; i < sizeof changes; i++) {
            if (changes[i] == sound[at] || (DAMAGED_STEP > 1 && i != at / DAMAGED_STEP % 4 && i != 0))
                continue;
            mutant[at] = changes[i];
            try_mutant(where, at, 1);
        }
    }
    static const size_t blocks[] = { 4, 8, 16, 64, SIZE_MAX };
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        size_t block = blocks[i] < length ? blocks[i] : length;
        for (size_t at = start; at + block <= start + length; at += block * DAMAGED_STEP) {
            memset(mutant + at, 0, block);
            try_mutant(where, at, block);
            memset(mutant + at, 0xff, block);
            try_mutant(where, at, block);
        }
    }
}

/* Words that are right in other places: chains that go in circles, buckets that begin elsewhere. */
static void damage_words(const char *where) {
    const Elf64_Shdr *table = section(where);
    if (!table) return;
    for (size_t at = table->sh_offset; at < table->sh_offset + table->sh_size; at += 4)
        for (uint32_t value = 0; value < 8; value++) {
            if (UNDER_SANITIZER && value % 4 != at / 4 % 4) continue;
            memcpy(mutant + at, &value, sizeof value);
            try_mutant(where, at, sizeof value);
        }
}

static void damage_all(const char *name) {
    static const char *const tables[] = { ".gnu.hash",    ".hash",          ".dynsym",        ".dynstr",
                                          ".gnu.version", ".gnu.version_d", ".gnu.version_r", ".rela.dyn",
                                          ".rela.plt",    ".relr.dyn",      ".dynamic",       ".eh_frame_hdr",
                                          ".eh_frame",    ".tdata" };
    FILE *good = fopen(name, "re");
    REQUIRE(good != NULL, "%s cannot be read", name);
    size = fread(sound, 1, sizeof sound, good);
    fclose(good);
    REQUIRE(size > 0 && size < sizeof sound, "%s has %zu bytes", name, size);
    memcpy(mutant, sound, size);
    file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
    REQUIRE(file >= 0 && write(file, sound, size) == (ssize_t)size, "%s cannot be written", path);

    loaded = refused = 0;
    try_mutant("as it is", 0, 1);
    REQUIRE(loaded == 1, "%s cannot be loaded as it is", name);
    int failures = check_failures;
    damage("the ELF header", 0, sizeof(Elf64_Ehdr));
    damage("the program headers", header_of(sound)->e_phoff, header_of(sound)->e_phnum * sizeof(Elf64_Phdr));
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        const Elf64_Shdr *table = section(tables[i]);
        if (table) damage(tables[i], table->sh_offset, table->sh_size);
    }
    damage_words(".hash");
    damage_words(".gnu.hash");
    printf("%s: %ld mutants were loaded, %ld refused\n", name, loaded, refused);
    CHECK(check_failures == failures, "these were mutants of %s", name);
    CHECK(loaded > 30 && refused > 30, "%ld mutants were loaded, %ld refused", loaded, refused);
    close(file);
}

int main(void) {
    REQUIRE(mkdtemp(folder) != NULL, "no temporary folder");
    snprintf(path, sizeof path, "%s/libdamaged.so", folder);
    context_close(context_new(NULL)); /* what is done once is done, and not in every child */
    damage_all(FIXTURE("damaged_gnu"));
    damage_all(FIXTURE("damaged_both"));
    damage_all(FIXTURE("damaged_sysv"));
    unlink(path);
    rmdir(folder);
    return check_result();
}
