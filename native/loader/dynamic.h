/* What a dynamic section says: the same view of our images and of the host's libraries. */
#ifndef VLCI_DYNAMIC_H
#define VLCI_DYNAMIC_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Newer than the headers of glibc 2.31. */
#ifndef DT_RELR
#define DT_RELRSZ 35
#define DT_RELR 36
#define DT_RELRENT 37
#endif

struct vlci_version {
    const char *name; /* NULL: index not in use */
    const char *file; /* soname that must define it; NULL for the object's own */
    uint32_t hash;
    bool hidden; /* VER_FLG_WEAK or a hidden need */
};

struct vlci_dynamic {
    const Elf64_Dyn *entries;
    size_t entry_count; /* at most, with the last DT_NULL; 0: not known */
    const Elf64_Sym *symbols;
    const char *strings;
    size_t strings_length;
    const uint16_t *symbol_versions;
    struct vlci_version *versions; /* by version index; owned */
    unsigned version_count;

    /* DT_GNU_HASH */
    uint32_t bucket_count, first_symbol, bloom_words, bloom_shift;
    const uint64_t *bloom;
    const uint32_t *buckets, *chain;
    const uint32_t *sysv_hash; /* DT_HASH */

    const Elf64_Rela *relocations, *jump_relocations;
    size_t relocation_count, jump_relocation_count;
    const uint64_t *relative;
    size_t relative_count;

    uintptr_t init, fini;
    const uintptr_t *init_array, *fini_array;
    size_t init_count, fini_count;

    const char *soname, *rpath, *runpath; /* NULL when absent; rpath NULL when runpath is there */
    uint64_t flags, flags_1;
    bool symbolic, text_relocations;
};

/* A name that is looked for, with its hash, and the version wanted (NULL: any default). */
struct vlci_wanted {
    const char *name;
    uint32_t hash;
    const struct vlci_version *version;
    bool newest; /* without a version: the default one (dlsym), not the oldest (an unversioned object) */
};

uint32_t vlci_gnu_hash(const char *name);
uint32_t vlci_sysv_hash(const char *name);

struct vlci_image;

/* Reads `entries` of an object loaded at `bias`. `image`: where the tables must lie; NULL for a library that
 * ld.so has loaded, checked, and added the bias to most pointers of. Returns NULL, or what is wrong:
 * vlci_dynamic_no_memory where it is not the object. */
extern const char vlci_dynamic_no_memory[];
const char *vlci_dynamic_read(struct vlci_dynamic *dynamic, const Elf64_Dyn *entries, uintptr_t bias,
                              const struct vlci_image *image);
void vlci_dynamic_free(struct vlci_dynamic *dynamic);

/* True when symbols [0, count) lie in the image, with names and versions. */
bool vlci_dynamic_has_symbols(const struct vlci_dynamic *dynamic, size_t count,
                              const struct vlci_image *image);

/* The exported symbol that satisfies `wanted`, or NULL. */
const Elf64_Sym *vlci_dynamic_find(const struct vlci_dynamic *dynamic, const struct vlci_wanted *wanted);

/* Number of entries of the symbol table (found by walking the hash table). */
uint32_t vlci_dynamic_symbol_count(const struct vlci_dynamic *dynamic);

#endif
