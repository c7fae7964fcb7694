#include "loader/host.h"

#include "context/os.h"
#include "loader/arch.h"
#include "loader/error.h"
#include "overrides/table.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Libraries that ship with the running libc and must match it to the byte (glibc's own list, shlib-versions). */
static const char *const family[] = {
    "libc.so.6",
    "libm.so.6",
    "libmvec.so.1",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
    "libutil.so.1",
    "libresolv.so.2",
    "libanl.so.1",
    "libnsl.so.1",
    "libthread_db.so.1",
    "libBrokenLocale.so.1",
    "libnss_files.so.2",
    "libnss_dns.so.2",
    "libnss_compat.so.2",
    "libnss_hesiod.so.2",
    "libc_malloc_debug.so.0",
    VLCI_ARCH_LINKER,
};
/* And we: a library of a context that uses vlcs.h talks to the one runtime. */
static const char *const ours[] = { "libvlcs.so" };

#define MOST 64
static vlci_lock lock;
static struct vlci_image *in_scope[MOST], *shared[MOST], *preloads[MOST];
static _Atomic(size_t) in_scope_count, shared_count;
static size_t preload_count;
static bool malloc_replaced; /* by a preload or the program itself: contexts use it too */

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool listed(const char *const *list, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++)
        if (!strcmp(list[i], name)) return true;
    return false;
}

static struct vlci_image *image_of(struct link_map *map, void *handle, enum vlci_host kind) {
    struct vlci_image *image = calloc(1, sizeof *image);
    if (!image) return NULL;
    image->map = *map;
    image->map.l_next = image->map.l_prev = NULL;
    image->host = kind;
    image->host_handle = handle;
    image->path = strdup(map->l_name);
    image->relocated = image->initialised = true;
    if (!image->path || vlci_dynamic_read(&image->dynamic, map->l_ld, map->l_addr, NULL)) {
        free(image->path);
        free(image);
        return NULL;
    }
    size_t module = 0;
    if (handle && !dlinfo(handle, RTLD_DI_TLS_MODID, &module)) image->tls.module = module;
    image->soname = image->dynamic.soname ? image->dynamic.soname : base_name(image->path);
    if (!vlci_scope_closure(image)) {
        free(image->path);
        free(image);
        return NULL;
    }
    return image;
}

static struct vlci_image *open_host(const char *name, enum vlci_host kind) {
    struct link_map *map = NULL;
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!handle || dlinfo(handle, RTLD_DI_LINKMAP, &map) || !map) return NULL;
    return image_of(map, handle, kind);
}

static struct vlci_image *find(struct vlci_image **list, const _Atomic(size_t) *count, const char *base) {
    VLCI_HOLD(&lock);
    for (size_t i = 0; i < *count; i++)
        if (!strcmp(list[i]->soname, base) || !strcmp(base_name(list[i]->path), base)) return list[i];
    return NULL;
}

/* Adds an image that was opened without the lock (constructors of a library may come here again); what another
 * thread added meanwhile is taken instead. NULL: the list is full. */
static struct vlci_image *keep(struct vlci_image **list, _Atomic(size_t) *count, struct vlci_image *image) {
    VLCI_HOLD(&lock);
    struct vlci_image *kept = *count < MOST ? image : NULL;
    for (size_t i = 0; i < *count; i++)
        if (list[i]->map.l_addr == image->map.l_addr) kept = list[i];
    if (kept == image) {
        list[*count] = image;
        *count += 1;
        return image;
    }
    vlci_dynamic_free(&image->dynamic);
    free(image->path);
    free(image->closure);
    free(image);
    return kept;
}

struct vlci_image *vlci_host_libc(const char *name) {
    const char *base = base_name(name);
    bool is_ours = listed(ours, sizeof ours / sizeof *ours, base);
    if (!is_ours && !listed(family, sizeof family / sizeof *family, base)) return NULL;
    struct vlci_image *known =
        is_ours ? find(shared, &shared_count, base) : find(in_scope, &in_scope_count, base);
    if (known) return known;
    Dl_info self;
    if (is_ours && !dladdr((void *)vlci_host_libc, &self)) return NULL;
    struct vlci_image *image =
        is_ours ? open_host(self.dli_fname, VLCI_HOST_SHARED) : open_host(base, VLCI_HOST_LIBC);
    if (!image) return NULL;
    return is_ours ? keep(shared, &shared_count, image) : keep(in_scope, &in_scope_count, image);
}

int vlci_host_share(const char *name, struct vlci_image **image, vlc_error *error) {
    if ((*image = find(shared, &shared_count, base_name(name)))) return VLC_OK;
    struct vlci_image *opened = open_host(name, VLCI_HOST_SHARED);
    if (!opened) {
        const char *why = dlerror();
        return vlci_fail(error, VLC_LOAD_FAILED, 0, name,
                         "cannot share '%s': the host cannot load it (%s); check the name in share=", name,
                         why ? why : "no link map");
    }
    if ((*image = keep(shared, &shared_count, opened))) return VLC_OK;
    return vlci_fail(error, VLC_LIMIT, 0, name, "cannot share '%s': %d libraries are shared already", name,
                     MOST);
}

struct vlci_image *const *vlci_host_scope(size_t *count) {
    *count = atomic_load_explicit(&in_scope_count, memory_order_acquire);
    return in_scope;
}

static void preloads_find(void) {
    static char names[16384];
    if (!vlci_os_initial_env("LD_PRELOAD", names, sizeof names)) names[0] = 0;
    vlci_os_system_preloads(names, sizeof names);
    void *program = dlopen(NULL, RTLD_NOW);
    struct link_map *map = NULL;
    if (!program || dlinfo(program, RTLD_DI_LINKMAP, &map)) return;
    char *rest = names;
    for (char *name; (name = strtok_r(rest, " :\n\t", &rest));)
        for (struct link_map *at = map; at; at = at->l_next) {
            if (!at->l_name || !*at->l_name || strcmp(base_name(at->l_name), base_name(name))) continue;
            if (!strncmp(base_name(name), "libvlcs", 7) || preload_count == MOST) continue;
            void *handle = dlopen(at->l_name, RTLD_NOW | RTLD_NOLOAD);
            struct vlci_image *image = image_of(at, handle, VLCI_HOST_SHARED);
            if (image) preloads[preload_count++] = image;
            break;
        }
}

void *vlci_host_symbol(const char *name) {
    struct vlci_wanted wanted = { name, vlci_gnu_hash(name), NULL, true };
    for (size_t i = 0; i < in_scope_count; i++) {
        const Elf64_Sym *symbol = vlci_dynamic_find(&in_scope[i]->dynamic, &wanted);
        if (!symbol) continue;
        if (ELF64_ST_TYPE(symbol->st_info) == STT_GNU_IFUNC) return dlsym(in_scope[i]->host_handle, name);
        return (void *)(in_scope[i]->map.l_addr + symbol->st_value);
    }
    return NULL;
}

int vlci_host_start(vlc_error *error) {
    if (in_scope_count) return VLC_OK;
    static const char *const first[] = { "libc.so.6", VLCI_ARCH_LINKER, "libm.so.6", "libpthread.so.0",
                                         "libdl.so.2" };
    for (size_t i = 0; i < sizeof first / sizeof *first;
         i++) /* below 2.34 the last two are not part of libc */
        if (!vlci_host_libc(first[i]) && i < 2)
            return vlci_fail(
                error, VLC_SYSTEM, 0, first[i],
                "cannot find '%s' in this process; VLCs need a dynamically linked program on glibc",
                first[i]);
    preloads_find();
    malloc_replaced = dlsym(RTLD_DEFAULT, "malloc") != vlci_host_symbol("malloc");
    return VLC_OK;
}

static void *versioned(void *handle, const char *name, const char *version) {
    return version ? dlvsym(handle, name, version) : dlsym(handle, name);
}

static bool bind_symbol(struct vlci_image *image, const Elf64_Sym *symbol, const char *name,
                        struct vlci_binding *binding) {
    const struct vlci_dynamic *dynamic = &image->dynamic;
    unsigned type = ELF64_ST_TYPE(symbol->st_info);
    const char *version = NULL;
    if (dynamic->symbol_versions) {
        unsigned index = dynamic->symbol_versions[symbol - dynamic->symbols] & 0x7fff;
        if (index < dynamic->version_count) version = dynamic->versions[index].name;
    }
    uint64_t address = (symbol->st_shndx == SHN_ABS ? 0 : image->map.l_addr) + symbol->st_value;
    *binding = (struct vlci_binding){ .kind = VLCI_BIND_ABSOLUTE, .value = address, .image = image };
    if (type == STT_TLS) {
        if (!image->tls.module) return false;
        binding->kind = VLCI_BIND_TLS;
        binding->value = symbol->st_value;
    } else if (type == STT_GNU_IFUNC) {
        binding->value = (uint64_t)versioned(image->host_handle, name, version);
    } else if (type == STT_OBJECT && symbol->st_shndx != SHN_ABS) {
        /* the executable may hold a copy relocation of it (stdout, environ) */
        void *copy = versioned(RTLD_DEFAULT, name, version);
        if (copy) binding->value = (uint64_t)copy;
    }
    return binding->kind == VLCI_BIND_TLS || binding->value;
}

bool vlci_host_bind(struct vlci_image *image, const Elf64_Sym *symbol, const struct vlci_wanted *wanted,
                    struct vlci_binding *binding) {
    if (image->host == VLCI_HOST_LIBC) {
        int row = vlci_override_find(wanted->name, wanted->hash);
        if (row >= 0 && malloc_replaced && vlci_override_row(row)->group == VLCI_HEAP) {
            /* all of the family from where the host has it, or blocks would meet the wrong free() */
            void *theirs = dlsym(RTLD_DEFAULT, wanted->name);
            *binding = (struct vlci_binding){ .kind = VLCI_BIND_ABSOLUTE,
                                              .value = (uint64_t)theirs,
                                              .image = image };
            return theirs != NULL;
        }
        if (row >= 0) {
            *binding = (struct vlci_binding){ .kind = VLCI_BIND_OVERRIDE, .value = row, .image = image };
            return true;
        }
        for (size_t i = 0; i < preload_count; i++) {
            const Elf64_Sym *earlier = vlci_dynamic_find(&preloads[i]->dynamic, wanted);
            if (earlier && bind_symbol(preloads[i], earlier, wanted->name, binding)) return true;
        }
    }
    return bind_symbol(image, symbol, wanted->name, binding);
}

void vlci_host_fork(enum vlci_fork when) { vlci_lock_fork(&lock, when); }
