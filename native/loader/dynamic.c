#include "loader/dynamic.h"

#include "loader/image.h"

#include <stdlib.h>
#include <string.h>

uint32_t vlci_gnu_hash(const char *name) {
    uint32_t hash = 5381;
    for (; *name; name++) hash = hash * 33 + (uint8_t)*name;
    return hash;
}

uint32_t vlci_sysv_hash(const char *name) {
    uint32_t hash = 0;
    for (; *name; name++) {
        hash = (hash << 4) + (uint8_t)*name;
        uint32_t top = hash & 0xf0000000;
        hash ^= top >> 24;
        hash &= ~top;
    }
    return hash;
}

static void *step(const void *base, size_t offset) { return (char *)(uintptr_t)base + offset; }

static void version_put(struct vlci_dynamic *dynamic, unsigned index, struct vlci_version version) {
    if (dynamic->versions && index < dynamic->version_count) dynamic->versions[index] = version;
    if (!dynamic->versions && index >= dynamic->version_count) dynamic->version_count = index + 1;
}

static bool strings_end(const struct vlci_dynamic *dynamic, const struct vlci_image *image) {
    return dynamic->strings_length &&
           vlci_image_covers(image, (uintptr_t)dynamic->strings, dynamic->strings_length, PF_R) &&
           !dynamic->strings[dynamic->strings_length - 1];
}

static bool in_strings(const struct vlci_dynamic *dynamic, size_t offset) {
    return offset == SIZE_MAX || offset < dynamic->strings_length;
}

static bool covers(const struct vlci_image *image, const void *table, size_t count, size_t size) {
    return !count || (count < UINT32_MAX && vlci_image_covers(image, (uintptr_t)table, count * size, PF_R));
}

/* Run twice: first to learn the largest index, then to fill the table. False: it leaves the image. */
static bool versions_walk(struct vlci_dynamic *dynamic, const Elf64_Verdef *defined,
                          const Elf64_Verneed *needed, const struct vlci_image *image) {
    for (const Elf64_Verdef *d = defined; d; d = d->vd_next ? step(d, d->vd_next) : NULL) {
        if (image && !covers(image, d, 1, sizeof *d)) return false;
        const Elf64_Verdaux *name = step(d, d->vd_aux);
        if (image && (!covers(image, name, 1, sizeof *name) || !in_strings(dynamic, name->vda_name)))
            return false;
        struct vlci_version version = { dynamic->strings + name->vda_name, NULL, d->vd_hash, false };
        if (d->vd_flags & VER_FLG_BASE) version.name = NULL;
        version_put(dynamic, d->vd_ndx & 0x7fff, version);
    }
    for (const Elf64_Verneed *n = needed; n; n = n->vn_next ? step(n, n->vn_next) : NULL) {
        if (image && (!covers(image, n, 1, sizeof *n) || !in_strings(dynamic, n->vn_file))) return false;
        const Elf64_Vernaux *name = step(n, n->vn_aux);
        for (unsigned i = 0; i < n->vn_cnt; i++, name = step(name, name->vna_next)) {
            if (image && (!covers(image, name, 1, sizeof *name) || !in_strings(dynamic, name->vna_name)))
                return false;
            struct vlci_version version = { dynamic->strings + name->vna_name, dynamic->strings + n->vn_file,
                                            name->vna_hash, (name->vna_flags & VER_FLG_WEAK) != 0 };
            version_put(dynamic, name->vna_other & 0x7fff, version);
        }
    }
    return true;
}

const char vlci_dynamic_no_memory[] = "out of memory";

static const char *versions_read(struct vlci_dynamic *dynamic, const Elf64_Verdef *defined,
                                 const Elf64_Verneed *needed, const struct vlci_image *image) {
    if (!dynamic->symbol_versions) return NULL;
    dynamic->version_count = 2;
    if (!versions_walk(dynamic, defined, needed, image)) return "its versions lie outside of its segments";
    dynamic->versions = calloc(dynamic->version_count, sizeof *dynamic->versions);
    if (!dynamic->versions) return vlci_dynamic_no_memory;
    versions_walk(dynamic, defined, needed, image);
    return NULL;
}

static bool hash_is_sound(const struct vlci_dynamic *dynamic, const struct vlci_image *image) {
    if (dynamic->sysv_hash) {
        if (!covers(image, dynamic->sysv_hash, 2, 4)) return false;
        uint64_t words = 2ull + dynamic->sysv_hash[0] + dynamic->sysv_hash[1];
        if (!covers(image, dynamic->sysv_hash, words, 4)) return false;
        for (uint64_t i = 2; i < words; i++)
            if (dynamic->sysv_hash[i] >= dynamic->sysv_hash[1] && dynamic->sysv_hash[i]) return false;
    }
    if (!dynamic->bucket_count) return true;
    if (!dynamic->bloom_words || dynamic->bloom_words & (dynamic->bloom_words - 1)) return false;
    if (!covers(image, dynamic->bloom, dynamic->bloom_words, 8) ||
        !covers(image, dynamic->buckets, dynamic->bucket_count, 4))
        return false;
    uint32_t last = 0;
    for (uint32_t i = 0; i < dynamic->bucket_count; i++) {
        if (dynamic->buckets[i] && dynamic->buckets[i] < dynamic->first_symbol) return false;
        if (dynamic->buckets[i] > last) last = dynamic->buckets[i];
    }
    for (; last; last++) { /* the chain of the last bucket must end inside */
        if (!covers(image, dynamic->chain + (last - dynamic->first_symbol), 1, 4)) return false;
        if (dynamic->chain[last - dynamic->first_symbol] & 1) break;
    }
    return true;
}

bool vlci_dynamic_has_symbols(const struct vlci_dynamic *dynamic, size_t count,
                              const struct vlci_image *image) {
    if (!covers(image, dynamic->symbols, count, sizeof(Elf64_Sym))) return false;
    if (dynamic->symbol_versions && !covers(image, dynamic->symbol_versions, count, 2)) return false;
    for (size_t i = 0; i < count; i++)
        if (dynamic->symbols[i].st_name >= dynamic->strings_length) return false;
    return true;
}

static bool tables_are_sound(const struct vlci_dynamic *dynamic, const struct vlci_image *image) {
    return hash_is_sound(dynamic, image) &&
           vlci_dynamic_has_symbols(dynamic, vlci_dynamic_symbol_count(dynamic), image) &&
           covers(image, dynamic->relocations, dynamic->relocation_count, sizeof(Elf64_Rela)) &&
           covers(image, dynamic->jump_relocations, dynamic->jump_relocation_count, sizeof(Elf64_Rela)) &&
           covers(image, dynamic->relative, dynamic->relative_count, 8) &&
           covers(image, dynamic->init_array, dynamic->init_count, 8) &&
           covers(image, dynamic->fini_array, dynamic->fini_count, 8);
}

const char *vlci_dynamic_read(struct vlci_dynamic *dynamic, const Elf64_Dyn *entries, uintptr_t bias,
                              const struct vlci_image *image) {
    const Elf64_Verdef *defined = NULL;
    const Elf64_Verneed *needed = NULL;
    size_t soname = SIZE_MAX, rpath = SIZE_MAX, runpath = SIZE_MAX;
    bool outside = false;
    dynamic->entries = entries;
    for (const Elf64_Dyn *entry = entries; image && entry->d_tag != DT_NULL; entry++)
        if ((size_t)(entry - entries) + 1 >= dynamic->entry_count) return "its dynamic section has no end";
    for (const Elf64_Dyn *entry = entries; entry->d_tag != DT_NULL; entry++) {
        size_t value = entry->d_un.d_val;
        /* glibc relocates most pointers of its dynamic sections in place, but not all, and only where writable */
        uintptr_t at = !image && value >= bias ? value : bias + value;
        bool pointer = true;
        switch (entry->d_tag) {
        case DT_STRTAB: dynamic->strings = (char *)at; break;
        case DT_SYMTAB: dynamic->symbols = (Elf64_Sym *)at; break;
        case DT_VERSYM: dynamic->symbol_versions = (uint16_t *)at; break;
        case DT_VERDEF: defined = (Elf64_Verdef *)at; break;
        case DT_VERNEED: needed = (Elf64_Verneed *)at; break;
        case DT_HASH: dynamic->sysv_hash = (uint32_t *)at; break;
        case DT_RELA: dynamic->relocations = (Elf64_Rela *)at; break;
        case DT_JMPREL: dynamic->jump_relocations = (Elf64_Rela *)at; break;
        case DT_RELR: dynamic->relative = (uint64_t *)at; break;
        case DT_INIT: dynamic->init = at; break;
        case DT_FINI: dynamic->fini = at; break;
        case DT_INIT_ARRAY: dynamic->init_array = (uintptr_t *)at; break;
        case DT_FINI_ARRAY: dynamic->fini_array = (uintptr_t *)at; break;
        case DT_GNU_HASH:
            if (!image || vlci_image_covers(image, at, 16, PF_R)) {
                const uint32_t *table = (uint32_t *)at;
                dynamic->bucket_count = table[0];
                dynamic->first_symbol = table[1];
                dynamic->bloom_words = table[2];
                dynamic->bloom_shift = table[3];
                dynamic->bloom = (uint64_t *)(table + 4);
                dynamic->buckets = (uint32_t *)(dynamic->bloom + dynamic->bloom_words);
                dynamic->chain = dynamic->buckets + dynamic->bucket_count;
            }
            break;
        default: pointer = false;
        }
        if (pointer && image && !vlci_image_covers(image, at, 1, PF_R)) outside = true;
        switch (entry->d_tag) {
        case DT_STRSZ: dynamic->strings_length = value; break;
        case DT_RELASZ: dynamic->relocation_count = value / sizeof(Elf64_Rela); break;
        case DT_PLTRELSZ: dynamic->jump_relocation_count = value / sizeof(Elf64_Rela); break;
        case DT_RELRSZ: dynamic->relative_count = value / sizeof(uint64_t); break;
        case DT_INIT_ARRAYSZ: dynamic->init_count = value / sizeof(uintptr_t); break;
        case DT_FINI_ARRAYSZ: dynamic->fini_count = value / sizeof(uintptr_t); break;
        case DT_SONAME: soname = value; break;
        case DT_RPATH: rpath = value; break;
        case DT_RUNPATH: runpath = value; break;
        case DT_SYMBOLIC: dynamic->symbolic = true; break;
        case DT_TEXTREL: dynamic->text_relocations = true; break;
        case DT_FLAGS:
            dynamic->flags = value;
            dynamic->symbolic |= (value & DF_SYMBOLIC) != 0;
            dynamic->text_relocations |= (value & DF_TEXTREL) != 0;
            break;
        case DT_FLAGS_1: dynamic->flags_1 = value; break;
        }
    }
    if (outside) return "its dynamic section points outside of its segments";
    if (!dynamic->strings || !dynamic->symbols) return "it has no dynamic symbol table";
    if (image && !strings_end(dynamic, image)) return "its strings have no end";
    if (image &&
        (!in_strings(dynamic, soname) || !in_strings(dynamic, rpath) || !in_strings(dynamic, runpath)))
        return "a string lies outside of its strings";
    if (soname != SIZE_MAX) dynamic->soname = dynamic->strings + soname;
    if (runpath != SIZE_MAX)
        dynamic->runpath = dynamic->strings + runpath;
    else if (rpath != SIZE_MAX)
        dynamic->rpath = dynamic->strings + rpath;
    /* DT_RELA may cover DT_JMPREL: then the second table is a part of the first */
    if (dynamic->relocations && dynamic->jump_relocations >= dynamic->relocations &&
        dynamic->jump_relocations < dynamic->relocations + dynamic->relocation_count)
        dynamic->jump_relocation_count = 0;
    if (image && !tables_are_sound(dynamic, image)) return "a table of its dynamic section is malformed";
    return versions_read(dynamic, defined, needed, image);
}

void vlci_dynamic_free(struct vlci_dynamic *dynamic) {
    free(dynamic->versions);
    dynamic->versions = NULL;
}

static bool defines(const struct vlci_dynamic *dynamic, uint32_t index, const struct vlci_wanted *wanted) {
    const Elf64_Sym *symbol = &dynamic->symbols[index];
    unsigned type = ELF64_ST_TYPE(symbol->st_info), visibility = ELF64_ST_VISIBILITY(symbol->st_other);
    if (symbol->st_shndx == SHN_UNDEF) return false;
    if (symbol->st_value == 0 && symbol->st_shndx != SHN_ABS && type != STT_TLS) return false;
    if (ELF64_ST_BIND(symbol->st_info) == STB_LOCAL || type == STT_SECTION || type == STT_FILE) return false;
    if (visibility == STV_HIDDEN || visibility == STV_INTERNAL) return false;
    if (strcmp(dynamic->strings + symbol->st_name, wanted->name)) return false;
    if (!dynamic->symbol_versions) return true;
    unsigned version = dynamic->symbol_versions[index] & 0x7fff;
    bool hidden = dynamic->symbol_versions[index] & 0x8000;
    if (!wanted->version) return version < (wanted->newest ? 2 : 3) || !hidden; /* as glibc's do_lookup_x */
    const struct vlci_version *has = version < dynamic->version_count ? &dynamic->versions[version] : NULL;
    if (has && has->name)
        return has->hash == wanted->version->hash && !strcmp(has->name, wanted->version->name);
    return !wanted->version->hidden && !hidden; /* an unversioned definition satisfies a version */
}

const Elf64_Sym *vlci_dynamic_find(const struct vlci_dynamic *dynamic, const struct vlci_wanted *wanted) {
    uint32_t hash = wanted->hash;
    if (dynamic->bucket_count) {
        uint64_t word = dynamic->bloom[(hash >> 6) & (dynamic->bloom_words - 1)];
        if (!((word >> (hash & 63)) & (word >> ((hash >> dynamic->bloom_shift) & 63)) & 1)) return NULL;
        uint32_t index = dynamic->buckets[hash % dynamic->bucket_count];
        if (!index) return NULL;
        for (;; index++) {
            uint32_t entry = dynamic->chain[index - dynamic->first_symbol];
            if (((entry ^ hash) >> 1) == 0 && defines(dynamic, index, wanted))
                return &dynamic->symbols[index];
            if (entry & 1) return NULL;
        }
    }
    if (!dynamic->sysv_hash || !dynamic->sysv_hash[0]) return NULL;
    const uint32_t *buckets = dynamic->sysv_hash + 2, *chain = buckets + dynamic->sysv_hash[0];
    uint32_t index = buckets[vlci_sysv_hash(wanted->name) % dynamic->sysv_hash[0]];
    for (uint32_t left = dynamic->sysv_hash[1]; index && left;
         index = chain[index], left--) /* damage makes circles */
        if (defines(dynamic, index, wanted)) return &dynamic->symbols[index];
    return NULL;
}

uint32_t vlci_dynamic_symbol_count(const struct vlci_dynamic *dynamic) {
    if (dynamic->sysv_hash) return dynamic->sysv_hash[1];
    uint32_t last = 0;
    for (uint32_t i = 0; i < dynamic->bucket_count; i++)
        if (dynamic->buckets[i] > last) last = dynamic->buckets[i];
    if (!last) return dynamic->first_symbol;
    while (!(dynamic->chain[last - dynamic->first_symbol] & 1)) last++;
    return last + 1;
}
