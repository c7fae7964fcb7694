#include "loader/search.h"

#include "context/context.h"
#include "loader/arch.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* /etc/ld.so.cache: "glibc-ld.so.cache1.1", either at the start or behind the tables of the old format
 * "ld.so-1.7.0" (glibc, sysdeps/generic/dl-cache.h). */
#define NEW_MAGIC "glibc-ld.so.cache1.1"
#define OLD_MAGIC "ld.so-1.7.0"
struct old_header {
    char magic[12];
    uint32_t count;
};
struct old_entry {
    int32_t flags;
    uint32_t key, value;
};
struct cache_entry {
    int32_t flags;
    uint32_t key, value, os_version;
    uint64_t hwcap;
};
struct cache_header {
    char magic[20];
    uint32_t count, strings_length, reserved[5];
    struct cache_entry entries[];
};

static vlci_lock lock;
static const char *cache; /* the new-format part; kept mapped */
static size_t cache_size;
static struct stat cache_file;

static void cache_open(void) {
    struct stat file;
    int fd = open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    if (fstat(fd, &file) == 0 && file.st_size >= (off_t)sizeof(struct cache_header)) {
        const char *map = mmap(NULL, file.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        size_t at = 0;
        if (map != MAP_FAILED && !memcmp(map, OLD_MAGIC, sizeof OLD_MAGIC - 1)) {
            at = sizeof(struct old_header) +
                 (size_t)((const struct old_header *)map)->count * sizeof(struct old_entry);
            at = (at + 7) & ~7ul;
        }
        if (map != MAP_FAILED && at + sizeof(struct cache_header) < (size_t)file.st_size &&
            !memcmp(map + at, NEW_MAGIC, sizeof NEW_MAGIC - 1)) {
            cache = map + at;
            cache_size = file.st_size - at;
            cache_file = file;
        }
    }
    close(fd);
}

static bool cache_find(const char *name, char path[PATH_MAX]) {
    VLCI_HOLD(&lock);
    struct stat file;
    if (!cache || stat("/etc/ld.so.cache", &file) || file.st_mtim.tv_sec != cache_file.st_mtim.tv_sec ||
        file.st_ino != cache_file.st_ino)
        cache_open();
    if (!cache) return false;
    const struct cache_header *header = (const void *)cache;
    for (uint32_t i = 0; i < header->count; i++) {
        const struct cache_entry *entry = &header->entries[i];
        if (entry->flags != VLCI_ARCH_CACHE_FLAGS || entry->hwcap || entry->key >= cache_size ||
            entry->value >= cache_size)
            continue;
        if (strcmp(cache + entry->key, name)) continue;
        snprintf(path, PATH_MAX, "%s", cache + entry->value);
        return !access(path, R_OK);
    }
    return false;
}

/* A candidate of a directory search counts only if it is for this machine, as for ld.so. */
static bool usable(const char *path) {
    Elf64_Ehdr header;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t got = read(fd, &header, sizeof header);
    close(fd);
    bool elf = got == sizeof header && !memcmp(header.e_ident, ELFMAG, SELFMAG);
    return !elf || (header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_machine == VLCI_ARCH_MACHINE);
}

static size_t origin_of(const struct vlci_image *image, char *out, size_t room) {
    const char *slash = image ? strrchr(image->path, '/') : NULL;
    size_t length = slash ? (size_t)(slash - image->path) : 0;
    if (length >= room) length = 0;
    memcpy(out, image ? image->path : "", length);
    return length;
}

/* Expands $ORIGIN and $LIB of one directory. */
static void expand(const char *from, size_t length, const struct vlci_image *image, char out[PATH_MAX]) {
    size_t at = 0;
    for (size_t i = 0; i < length && at < PATH_MAX - 300;) {
        static const char *const origin[] = { "$ORIGIN", "${ORIGIN}" }, *const lib[] = { "$LIB", "${LIB}" };
        bool done = false;
        for (int k = 0; k < 2 && !done; k++) {
            if (!strncmp(from + i, origin[k], strlen(origin[k]))) {
                at += origin_of(image, out + at, PATH_MAX - 300 - at);
                i += strlen(origin[k]);
                done = true;
            } else if (!strncmp(from + i, lib[k], strlen(lib[k]))) {
                at += snprintf(out + at, PATH_MAX - at, VLCI_ARCH_LIB);
                i += strlen(lib[k]);
                done = true;
            }
        }
        if (!done) out[at++] = from[i++];
    }
    out[at] = 0;
}

static bool join(char path[PATH_MAX], const char *directory, const char *between, const char *name) {
    size_t lengths[] = { strlen(directory), strlen(between), strlen(name) };
    if (lengths[0] + lengths[1] + lengths[2] + 2 > PATH_MAX) return false;
    memcpy(path, directory, lengths[0]);
    memcpy(path + lengths[0], between, lengths[1]);
    memcpy(path + lengths[0] + lengths[1], name, lengths[2] + 1);
    return true;
}

static bool try_directory(const char *directory, const char *name, char path[PATH_MAX]) {
    if (!*directory) directory = ".";
    for (int level = vlci_arch_level(); level > 1; level--) { /* glibc-hwcaps, since glibc 2.33 */
        char between[] = VLCI_ARCH_HWCAPS;
        between[sizeof between - 3] = (char)('0' + level);
        if (join(path, directory, between, name) && !access(path, R_OK) && usable(path)) return true;
    }
    return join(path, directory, "/", name) && !access(path, R_OK) && usable(path);
}

static bool try_list(const char *list, const struct vlci_image *origin, const char *name,
                     char path[PATH_MAX]) {
    while (list && *list) {
        size_t length = strcspn(list, ":;");
        char directory[PATH_MAX];
        expand(list, length, origin, directory);
        if (try_directory(directory, name, path)) return true;
        list += length;
        if (*list) list++;
    }
    return false;
}

bool vlci_search(vlc_context *context, const struct vlci_image *from, const char *name, char path[PATH_MAX]) {
    if (strchr(name, '/')) {
        expand(name, strlen(name), from, path);
        return !access(path, F_OK);
    }
    if (from && !from->dynamic.runpath) /* DT_RPATH is inherited from whoever loaded, DT_RUNPATH is not */
        for (const struct vlci_image *image = from; image; image = image->loader)
            if (image->dynamic.rpath && try_list(image->dynamic.rpath, image, name, path)) return true;
    const char *library_path = vlci_getenv("LD_LIBRARY_PATH", context);
    if (library_path && try_list(library_path, NULL, name, path)) return true;
    if (from && from->dynamic.runpath && try_list(from->dynamic.runpath, from, name, path)) return true;
    if (from && from->dynamic.flags_1 & DF_1_NODEFLIB) return false;
    return cache_find(name, path) || try_list(VLCI_ARCH_LIBRARY_PATH, NULL, name, path);
}

void vlci_search_fork(enum vlci_fork when) { vlci_lock_fork(&lock, when); }
