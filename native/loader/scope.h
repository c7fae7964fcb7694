/* Names: which definition a reference of a library binds to. */
#ifndef VLCI_SCOPE_H
#define VLCI_SCOPE_H

#include "loader/image.h"

struct vlci_override;

struct vlci_binding {
    enum {
        VLCI_BIND_NONE,
        VLCI_BIND_ADDRESS,  /* image's bias + value */
        VLCI_BIND_INDIRECT, /* what the function at bias + value returns */
        VLCI_BIND_ABSOLUTE, /* value */
        VLCI_BIND_TLS,      /* value: offset in the image's TLS block */
        VLCI_BIND_WEAK,     /* undefined and weak: 0 */
        VLCI_BIND_OVERRIDE, /* value: row of the table of overrides */
        VLCI_BIND_MISSING   /* value: number of a function that was not found (RTLD_LAZY) */
    } kind;
    bool unique; /* STB_GNU_UNIQUE: depends on what was loaded before, never cached */
    uint64_t value;
    struct vlci_image *image;
};

/* The definition of each STB_GNU_UNIQUE name, one for the whole context. */
struct vlci_unique {
    const char *name;
    const Elf64_Sym *symbol;
    struct vlci_image *image;
};
struct vlci_uniques {
    struct vlci_unique *table;
    size_t capacity, count;
};

/* Looks `wanted` up for `image`: symbolic, deep bind, global list, its opener's closure, the host's libc. */
bool vlci_scope_resolve(struct vlci_image *image, const struct vlci_wanted *wanted,
                        struct vlci_binding *binding);

/* What symbol `index` of the image binds to. On failure the message names symbol, version and library. */
int vlci_scope_bind(struct vlci_image *image, uint32_t index, struct vlci_binding *binding, vlc_error *error);

/* As dlsym/dlvsym: `handle` is an image, RTLD_DEFAULT, RTLD_NEXT or NULL for the context's global scope;
 * `caller` may be NULL. */
bool vlci_scope_find(vlc_context *context, struct vlci_image *caller, void *handle, const char *name,
                     const char *version, void **address);

/* The address a binding means (TLS: this thread's). */
void *vlci_binding_address(vlc_context *context, const struct vlci_binding *binding);

/* Forgets unique definitions of an image whose load failed. */
void vlci_uniques_forget(struct vlci_uniques *uniques, const struct vlci_image *image);

/* image->closure; false: out of memory. */
bool vlci_scope_closure(struct vlci_image *image);

#endif
