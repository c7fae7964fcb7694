/* Loading more: the dl* family as a library of a context sees it. Return addresses serve only for what is
 * relative to the caller: $ORIGIN of its RUNPATH, RTLD_NEXT, its local scope. */
#include "context/context.h"
#include "loader/error.h"
#include "loader/open.h"
#include "loader/scope.h"
#include "loader/thread.h"
#include "loader/tls.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

/* dlopen(NULL): the context's own root. A link map, as every handle is. */
static struct link_map root_handle = { .l_name = "" };
#define ROOT ((void *)&root_handle)

static void remember(const char *words) {
    struct vlci_thread *thread = vlci_thread_self();
    if (!thread) return;
    snprintf(thread->dl_error, sizeof thread->dl_error, "%s", words);
    thread->has_dl_error = true;
}

char *vlci_dlerror(void) {
    struct vlci_thread *thread = vlci_thread_self();
    if (!thread || !thread->has_dl_error) return NULL;
    thread->has_dl_error = false;
    return thread->dl_error;
}

/* Every call forgets what an earlier one left, as glibc's do. */
static void forget(void) {
    if (vlci_thread_current) vlci_thread_current->has_dl_error = false;
}

static struct vlci_image *caller(vlc_context *context, const void *return_address) {
    struct vlci_image *image = vlci_image_at(return_address);
    return image && image->region.context == context ? image : NULL;
}
#define CALLER(context) caller(context, __builtin_return_address(0))

static void *open_for(vlc_context *context, struct vlci_image *from, const char *name, int flags) {
    struct vlci_image *image;
    vlc_error error = VLC_ERROR_INIT;
    forget();
    if (!name || !*name) return ROOT;
    if (!vlci_open(context, from, name, flags, &image, &error)) return image;
    remember(error.message);
    return NULL;
}

void *vlci_dlopen(const char *name, int flags, vlc_context *context) {
    return open_for(context, CALLER(context), name, flags);
}

/* A namespace of its own inside a context is not given: the context is the namespace. */
void *vlci_dlmopen(Lmid_t namespace, const char *name, int flags, vlc_context *context) {
    (void)namespace;
    return open_for(context, CALLER(context), name, flags);
}

/* Libraries stay until their context ends, as with musl: what they left running or registered keeps working. */
int vlci_dlclose(void *handle, vlc_context *context) {
    (void)context;
    forget();
    if (handle) return 0;
    remember("dlclose: the handle is NULL");
    return -1;
}

static void *symbol_for(vlc_context *context, struct vlci_image *from, void *handle, const char *name,
                        const char *version) {
    void *address = NULL;
    struct vlci_image *image = handle;
    forget();
    pthread_mutex_lock(&context->load_lock); /* scopes change under it; ld.so's dlsym holds its own too */
    bool found = vlci_scope_find(context, handle == ROOT ? NULL : from, handle == ROOT ? NULL : handle, name,
                                 version, &address);
    pthread_mutex_unlock(&context->load_lock);
    if (found) return address;
    char words[512];
    const char *path =
        handle == ROOT || handle == RTLD_DEFAULT || handle == RTLD_NEXT ? context->name : image->path;
    snprintf(words, sizeof words, "%s: undefined symbol: %s%s%s", path, name, version ? ", version " : "",
             version ? version : "");
    remember(words);
    return NULL;
}

void *vlci_dlsym(void *handle, const char *name, vlc_context *context) {
    return symbol_for(context, CALLER(context), handle, name, NULL);
}
void *vlci_dlvsym(void *handle, const char *name, const char *version, vlc_context *context) {
    return symbol_for(context, CALLER(context), handle, name, version);
}

static const Elf64_Sym *nearest(const struct vlci_image *image, uintptr_t offset) {
    const Elf64_Sym *best = NULL;
    for (uint32_t i = 1, count = vlci_dynamic_symbol_count(&image->dynamic); i < count; i++) {
        const Elf64_Sym *symbol = &image->dynamic.symbols[i];
        if (symbol->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol->st_info) == STT_TLS || !symbol->st_value)
            continue;
        if (symbol->st_value > offset || (best && symbol->st_value <= best->st_value)) continue;
        if (symbol->st_size ? offset < symbol->st_value + symbol->st_size : offset == symbol->st_value)
            best = symbol;
    }
    return best;
}

static struct vlci_image *describe(const void *address, Dl_info *info, const Elf64_Sym **symbol) {
    struct vlci_image *image = vlci_image_at(address);
    if (!image) return NULL;
    *symbol = nearest(image, (uintptr_t)address - image->map.l_addr);
    *info = (Dl_info){ .dli_fname = image->path, .dli_fbase = image->region.base };
    if (*symbol) {
        info->dli_sname = image->dynamic.strings + (*symbol)->st_name;
        info->dli_saddr = (void *)(image->map.l_addr + (*symbol)->st_value);
    }
    return image;
}

int vlci_dladdr(const void *address, Dl_info *info) {
    const Elf64_Sym *symbol;
    return describe(address, info, &symbol) ? 1 : dladdr(address, info);
}

int vlci_dladdr1(const void *address, Dl_info *info, void **extra, int flags) {
    forget();
    const Elf64_Sym *symbol;
    struct vlci_image *image = describe(address, info, &symbol);
    if (!image) return dladdr1(address, info, extra, flags);
    if (flags == RTLD_DL_LINKMAP) *extra = &image->map;
    if (flags == RTLD_DL_SYMENT) *extra = (void *)symbol;
    return 1;
}

int vlci_dlinfo(void *handle, int request, void *result, vlc_context *context) {
    forget();
    struct vlci_image *image = handle == ROOT ? (context->image_count ? context->images[0] : NULL) : handle;
    const char *slash = image ? strrchr(image->path, '/') : NULL;
    switch (request) {
    case RTLD_DI_LMID: *(Lmid_t *)result = LM_ID_BASE; return 0;
    case RTLD_DI_LINKMAP: *(struct link_map **)result = image ? &image->map : NULL; return 0;
    case RTLD_DI_ORIGIN: /* the caller's buffer has room for a path, as dlinfo(3) asks */
        if (!slash) break;
        memcpy(result, image->path, (size_t)(slash - image->path));
        ((char *)result)[slash - image->path] = 0;
        return 0;
    case RTLD_DI_TLS_MODID: *(size_t *)result = image ? image->tls.module : 0; return 0;
    case RTLD_DI_TLS_DATA: *(void **)result = image ? vlci_tls_block(image) : NULL; return 0;
    }
    char words[80];
    snprintf(words, sizeof words, "dlinfo: request %d is not supported in a context", request);
    remember(words);
    return -1;
}
