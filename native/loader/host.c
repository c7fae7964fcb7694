#include "loader/host.h"

#include "context/os.h"
#include "loader/arch.h"
#include "loader/error.h"
#include "overrides/table.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

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
static const char *malloc_file; /* that replaced malloc, a preload or the program: contexts use it too */

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool listed(const char *const *list, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++)
        if (!strcmp(list[i], name)) return true;
    return false;
}

static void image_drop(struct vlci_image *image) {
    vlci_dynamic_free(&image->dynamic);
    free(image->path);
    free(image->closure);
    free(image);
}

/* NULL: out of memory, or a dynamic section that ld.so would not have taken either. */
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
        image_drop(image);
        return NULL;
    }
    size_t module = 0;
    if (handle && !dlinfo(handle, RTLD_DI_TLS_MODID, &module)) image->tls.module = module;
    image->soname = image->dynamic.soname ? image->dynamic.soname : base_name(image->path);
    if (!vlci_scope_closure(image)) {
        image_drop(image);
        return NULL;
    }
    return image;
}

static int open_host(const char *name, enum vlci_host kind, const char *cure, struct vlci_image **image,
                     vlc_error *error) {
    struct link_map *map = NULL;
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!handle || dlinfo(handle, RTLD_DI_LINKMAP, &map) || !map) {
        const char *why = dlerror();
        return vlci_fail(error, VLC_LOAD_FAILED, 0, name, "the host cannot load '%s' (%s); %s", name,
                         why ? why : "no link map", cure);
    }
    if ((*image = image_of(map, handle, kind))) return VLC_OK;
    return vlci_fail(error, VLC_SYSTEM, ENOMEM, name, "cannot read '%s' of the host: out of memory", name);
}

static struct vlci_image *find(struct vlci_image **list, const _Atomic(size_t) *count, const char *base) {
    VLCI_HOLD(&lock);
    for (size_t i = 0; i < *count; i++)
        if (!strcmp(list[i]->soname, base) || !strcmp(base_name(list[i]->path), base)) return list[i];
    return NULL;
}

/* Adds an image that was opened without the lock (constructors of a library may come here again); what another
 * thread added meanwhile is taken instead. */
static int keep(struct vlci_image **list, _Atomic(size_t) *count, struct vlci_image **image,
                vlc_error *error) {
    struct vlci_image *opened = *image;
    VLCI_HOLD(&lock);
    *image = NULL;
    for (size_t i = 0; i < *count; i++)
        if (list[i]->map.l_addr == opened->map.l_addr) *image = list[i];
    if (!*image && *count < MOST) {
        *image = list[*count] = opened;
        *count += 1;
        return VLC_OK;
    }
    int status = VLC_OK;
    if (!*image)
        status = vlci_fail(error, VLC_LIMIT, 0, opened->path,
                           "cannot share '%s': %d libraries are shared already", opened->path, MOST);
    image_drop(opened);
    return status;
}

int vlci_host_libc(const char *name, struct vlci_image **image, vlc_error *error) {
    const char *base = base_name(name), *path = base;
    bool is_ours = listed(ours, sizeof ours / sizeof *ours, base);
    *image = NULL;
    if (!is_ours && !listed(family, sizeof family / sizeof *family, base)) return VLC_OK;
    struct vlci_image **list = is_ours ? shared : in_scope;
    _Atomic(size_t) *count = is_ours ? &shared_count : &in_scope_count;
    if ((*image = find(list, count, base))) return VLC_OK;
    Dl_info self;
    if (is_ours && dladdr((void *)vlci_host_libc, &self)) path = self.dli_fname;
    int status =
        open_host(path, is_ours ? VLCI_HOST_SHARED : VLCI_HOST_LIBC,
                  "it belongs to the C library, of which a process has one: install it whole", image, error);
    return status ? status : keep(list, count, image, error);
}

int vlci_host_share(const char *name, struct vlci_image **image, vlc_error *error) {
    if ((*image = find(shared, &shared_count, base_name(name)))) return VLC_OK;
    int status = open_host(name, VLCI_HOST_SHARED, "check the name in share=", image, error);
    return status ? status : keep(shared, &shared_count, image, error);
}

struct vlci_image *const *vlci_host_scope(size_t *count) {
    *count = atomic_load_explicit(&in_scope_count, memory_order_acquire);
    return in_scope;
}

/* ld.so lists the program, the kernel's own object, what is preloaded, then what the program needs, in order. So
 * whichever way something was preloaded (LD_PRELOAD may be overwritten in place by now, as setproctitle does). */
static int preloads_find(vlc_error *error) {
    struct link_map *map = NULL;
    void *handle = dlopen(NULL, RTLD_NOW);
    struct vlci_image *program = NULL;
    if (!handle || dlinfo(handle, RTLD_DI_LINKMAP, &map) ||
        !(program = image_of(map, handle, VLCI_HOST_SHARED)))
        return vlci_fail(error, VLC_SYSTEM, ENOMEM, "the program", "cannot read the program: out of memory");
    const Elf64_Dyn *needed = program->dynamic.entries;
    while (needed->d_tag != DT_NULL && needed->d_tag != DT_NEEDED) needed++;
    const char *last = needed->d_tag == DT_NEEDED ? program->dynamic.strings + needed->d_un.d_val : "";
    int status = VLC_OK;
    while (preload_count) image_drop(preloads[--preload_count]); /* of an attempt that failed */
    while (!status && (map = map->l_next) && strcmp(base_name(map->l_name), base_name(last))) {
        if (map->l_addr == getauxval(AT_SYSINFO_EHDR) || preload_count == MOST) continue;
        if (!strncmp(base_name(map->l_name), "libvlcs", 7)) continue;
        struct vlci_image *image =
            image_of(map, dlopen(map->l_name, RTLD_NOW | RTLD_NOLOAD), VLCI_HOST_SHARED);
        if (image)
            preloads[preload_count++] = image;
        else
            status = vlci_fail(error, VLC_SYSTEM, ENOMEM, map->l_name,
                               "cannot read '%s' of the host: out of memory", map->l_name);
    }
    image_drop(program);
    return status;
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
    /* below 2.34 the last two are not part of libc */
    static const char *const first[] = { "libc.so.6", VLCI_ARCH_LINKER, "libm.so.6", "libpthread.so.0",
                                         "libdl.so.2" };
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        struct vlci_image *image;
        int status = vlci_host_libc(first[i], &image, error);
        if (status) return status;
    }
    int status = preloads_find(error);
    if (status) return status;
    const void *used = dlsym(RTLD_DEFAULT, "malloc");
    Dl_info its;
    if (used != vlci_host_symbol("malloc"))
        malloc_file = dladdr(used, &its) && its.dli_fname && *its.dli_fname ? its.dli_fname : "the program";
    return VLC_OK;
}

const char *vlci_host_malloc(void) { return malloc_file; }

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
        if (row >= 0 && malloc_file && vlci_override_row(row)->group == VLCI_HEAP) {
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
