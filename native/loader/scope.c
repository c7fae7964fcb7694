#include "loader/scope.h"

#include "context/context.h"
#include "loader/error.h"
#include "loader/host.h"
#include "loader/thunks.h"
#include "loader/tls.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* One definition for the whole context, even between RTLD_LOCAL libraries: the first that was met. */
static bool unique_bind(struct vlci_uniques *uniques, const char *name, uint32_t hash,
                        const Elf64_Sym **symbol, struct vlci_image **image) {
    if (uniques->count * 2 >= uniques->capacity) {
        size_t capacity = uniques->capacity ? uniques->capacity * 2 : 256;
        struct vlci_unique *grown = calloc(capacity, sizeof *grown);
        if (!grown) return false;
        for (size_t i = 0; i < uniques->capacity; i++) {
            if (!uniques->table[i].name) continue;
            size_t at = vlci_gnu_hash(uniques->table[i].name) & (capacity - 1);
            while (grown[at].name) at = (at + 1) & (capacity - 1);
            grown[at] = uniques->table[i];
        }
        free(uniques->table);
        uniques->table = grown;
        uniques->capacity = capacity;
    }
    size_t at = hash & (uniques->capacity - 1);
    while (uniques->table[at].name && strcmp(uniques->table[at].name, name))
        at = (at + 1) & (uniques->capacity - 1);
    if (!uniques->table[at].name) {
        /* the name as the definition has it: the one asked with may be a caller's, or of an image that goes */
        uniques->table[at] =
            (struct vlci_unique){ (*image)->dynamic.strings + (*symbol)->st_name, *symbol, *image };
        uniques->count++;
    }
    *symbol = uniques->table[at].symbol;
    *image = uniques->table[at].image;
    return true;
}

void vlci_uniques_forget(struct vlci_uniques *uniques, const struct vlci_image *image) {
    struct vlci_uniques kept = { 0 };
    for (size_t i = 0; i < uniques->capacity; i++) {
        struct vlci_unique *unique = &uniques->table[i];
        if (!unique->name || unique->image == image) continue;
        if (!unique_bind(&kept, unique->name, vlci_gnu_hash(unique->name), &unique->symbol, &unique->image)) {
            free(
                kept.table); /* out of memory: the old table still serves, as none of its names is freed yet */
            return;
        }
    }
    free(uniques->table);
    *uniques = kept;
}

static bool resolve_in(struct vlci_image *image, const struct vlci_wanted *wanted,
                       struct vlci_binding *binding) {
    const Elf64_Sym *symbol = vlci_dynamic_find(&image->dynamic, wanted);
    if (!symbol) return false;
    if (image->host) return vlci_host_bind(image, symbol, wanted, binding);
    bool unique = ELF64_ST_BIND(symbol->st_info) == STB_GNU_UNIQUE;
    if (unique && !unique_bind(&image->region.context->uniques, wanted->name, wanted->hash, &symbol, &image))
        return false;
    unsigned type = ELF64_ST_TYPE(symbol->st_info);
    *binding = (struct vlci_binding){ .kind = type == STT_TLS               ? VLCI_BIND_TLS
                                              : type == STT_GNU_IFUNC       ? VLCI_BIND_INDIRECT
                                              : symbol->st_shndx == SHN_ABS ? VLCI_BIND_ABSOLUTE
                                                                            : VLCI_BIND_ADDRESS,
                                      .unique = unique,
                                      .value = symbol->st_value,
                                      .image = image };
    return true;
}

static bool resolve_list(struct vlci_image *const *list, size_t count, const struct vlci_wanted *wanted,
                         struct vlci_binding *binding) {
    for (size_t i = 0; i < count; i++)
        if (resolve_in(list[i], wanted, binding)) return true;
    return false;
}

static bool resolve_host(const struct vlci_wanted *wanted, struct vlci_binding *binding) {
    size_t count;
    struct vlci_image *const *list = vlci_host_scope(&count);
    return resolve_list(list, count, wanted, binding);
}

bool vlci_scope_resolve(struct vlci_image *image, const struct vlci_wanted *wanted,
                        struct vlci_binding *binding) {
    vlc_context *context = image->region.context;
    struct vlci_image *opener = image->opener;
    context->lookups++;
    if (image->dynamic.symbolic && resolve_in(image, wanted, binding)) return true;
    if (image->deep_bind && resolve_list(opener->closure, opener->closure_count, wanted, binding))
        return true;
    return resolve_list(context->global, context->global_count, wanted, binding) ||
           resolve_list(opener->closure, opener->closure_count, wanted, binding) ||
           resolve_host(wanted, binding);
}

int vlci_scope_bind(struct vlci_image *image, uint32_t index, struct vlci_binding *binding,
                    vlc_error *error) {
    const struct vlci_dynamic *dynamic = &image->dynamic;
    const Elf64_Sym *symbol = &dynamic->symbols[index];
    const char *name = dynamic->strings + symbol->st_name;
    unsigned visibility = ELF64_ST_VISIBILITY(symbol->st_other);
    if (ELF64_ST_BIND(symbol->st_info) == STB_LOCAL ||
        (symbol->st_shndx != SHN_UNDEF &&
         (visibility == STV_INTERNAL || visibility == STV_HIDDEN || visibility == STV_PROTECTED))) {
        unsigned type = ELF64_ST_TYPE(symbol->st_info);
        *binding = (struct vlci_binding){ .kind = type == STT_TLS               ? VLCI_BIND_TLS
                                                  : type == STT_GNU_IFUNC       ? VLCI_BIND_INDIRECT
                                                  : symbol->st_shndx == SHN_ABS ? VLCI_BIND_ABSOLUTE
                                                                                : VLCI_BIND_ADDRESS,
                                          .value = symbol->st_value,
                                          .image = image };
        return VLC_OK;
    }
    const struct vlci_version *version = NULL;
    if (dynamic->symbol_versions) {
        unsigned number = dynamic->symbol_versions[index] & 0x7fff;
        if (number > 1 && number < dynamic->version_count && dynamic->versions[number].name)
            version = &dynamic->versions[number];
    }
    struct vlci_wanted wanted = { name, vlci_gnu_hash(name), version, false };
    if (vlci_scope_resolve(image, &wanted, binding)) return VLC_OK;
    if (ELF64_ST_BIND(symbol->st_info) == STB_WEAK) {
        *binding = (struct vlci_binding){ .kind = VLCI_BIND_WEAK };
        return VLC_OK;
    }
    if (version && version->file)
        return vlci_fail(
            error, VLC_LOAD_FAILED, 0, name,
            "cannot load '%s': symbol '%s' of version '%s' is not defined by '%s' as it is here; install the "
            "version of that library which it was built for",
            image->path, name, version->name, version->file);
    return vlci_fail(error, VLC_LOAD_FAILED, 0, name,
                     "cannot load '%s': undefined symbol '%s': none of the libraries it needs defines it; "
                     "load the one that "
                     "does first, with RTLD_GLOBAL",
                     image->path, name);
}

void *vlci_binding_address(vlc_context *context, const struct vlci_binding *binding) {
    uintptr_t bias = binding->image ? binding->image->map.l_addr : 0;
    switch (binding->kind) {
    case VLCI_BIND_ADDRESS: return (void *)(bias + binding->value);
    case VLCI_BIND_INDIRECT: return ((void *(*)(void))(bias + binding->value))();
    case VLCI_BIND_ABSOLUTE: return (void *)binding->value;
    case VLCI_BIND_OVERRIDE: return vlci_thunk_override(context, binding->value);
    case VLCI_BIND_MISSING: return vlci_thunk_missing_function(context, binding->value);
    case VLCI_BIND_TLS: {
        struct vlci_tls_index index = { binding->image->tls.module, binding->value };
        return vlci_tls_address(&index);
    }
    default: return NULL;
    }
}

static bool find_next(vlc_context *context, struct vlci_image *caller, const struct vlci_wanted *wanted,
                      struct vlci_binding *binding) {
    struct vlci_image *const *list = context->global;
    size_t count = context->global_count, at = 0;
    while (at < count && list[at] != caller) at++;
    if (at == count && caller) {
        list = caller->opener->closure;
        count = caller->opener->closure_count;
        for (at = 0; at < count && list[at] != caller;) at++;
    }
    return (at < count && resolve_list(list + at + 1, count - at - 1, wanted, binding)) ||
           resolve_host(wanted, binding);
}

bool vlci_scope_find(vlc_context *context, struct vlci_image *caller, void *handle, const char *name,
                     const char *version, void **address) {
    struct vlci_version asked = { version, NULL, version ? vlci_sysv_hash(version) : 0, true };
    struct vlci_wanted wanted = { name, vlci_gnu_hash(name), version ? &asked : NULL, true };
    struct vlci_binding binding;
    bool found;
    if (handle == RTLD_NEXT) {
        found = find_next(context, caller, &wanted, &binding);
    } else if (!handle) { /* RTLD_DEFAULT */
        found = resolve_list(context->global, context->global_count, &wanted, &binding) ||
                (caller && caller->opener &&
                 resolve_list(caller->opener->closure, caller->opener->closure_count, &wanted, &binding)) ||
                resolve_host(&wanted, &binding);
    } else {
        struct vlci_image *image = handle;
        found = (image->closure || vlci_scope_closure(image)) &&
                resolve_list(image->closure, image->closure_count, &wanted, &binding);
    }
    if (found) *address = vlci_binding_address(context, &binding);
    return found;
}

bool vlci_scope_closure(struct vlci_image *root) {
    if (root->closure) return true;
    size_t capacity = 16, count = 0;
    struct vlci_image **list = malloc(capacity * sizeof *list);
    if (!list) return false;
    list[count++] = root;
    for (size_t at = 0; at < count; at++)
        for (size_t i = 0; i < list[at]->needed_count; i++) {
            struct vlci_image *needed = list[at]->needed[i];
            size_t k = 0;
            while (k < count && list[k] != needed) k++;
            if (k < count) continue;
            if (count == capacity) {
                struct vlci_image **grown = realloc(list, (capacity *= 2) * sizeof *list);
                if (!grown) {
                    free(list);
                    return false;
                }
                list = grown;
            }
            list[count++] = needed;
        }
    root->closure_count = count;
    root->closure = list;
    return true;
}
