#include "loader/relocate.h"

#include "context/context.h"
#include "loader/arch.h"
#include "loader/cache.h"
#include "loader/error.h"
#include "loader/memory.h"
#include "loader/scope.h"
#include "loader/thunks.h"
#include "loader/tls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct table {
    const Elf64_Rela *first;
    size_t count;
};

struct work {
    struct vlci_image *image;
    struct vlci_binding *bindings; /* by symbol index; owned */
    size_t count;
    bool fresh;          /* something was looked up that the cache did not know */
    uintptr_t low, high; /* the writable segment that was relocated last */
};

static void work_free(struct work *work) { free(work->bindings); }

/* A place to relocate; packed records may put it anywhere. */
struct place {
    uintptr_t value;
} __attribute__((packed));

/* Relocations come in runs, so mostly one comparison tells. */
static bool is_writable(struct work *work, uintptr_t at) {
    if (at >= work->low && at + 8 <= work->high) return true;
    for (unsigned i = 0; i < work->image->header_count; i++) {
        const Elf64_Phdr *p = &work->image->headers[i];
        uintptr_t start = work->image->map.l_addr + p->p_vaddr;
        if (p->p_type != PT_LOAD || !(p->p_flags & PF_W) || at < start || at + 8 > start + p->p_memsz)
            continue;
        work->low = start;
        work->high = start + p->p_memsz;
        return true;
    }
    return false;
}

/* DT_RELR: an even word is the address of a word to relocate; an odd one is a bitmap of the 63 that follow. */
static bool relocate_relative(struct work *work) {
    const struct vlci_image *image = work->image;
    uintptr_t bias = image->map.l_addr;
    struct place *at = NULL;
    for (size_t i = 0; i < image->dynamic.relative_count; i++) {
        uint64_t word = image->dynamic.relative[i];
        if (!(word & 1)) {
            at = (struct place *)(bias + word);
            if (!is_writable(work, (uintptr_t)at)) return false;
            at++->value += bias;
            continue;
        }
        if (!at) return false;
        for (unsigned bit = 0; (word >>= 1); bit++) {
            if (!(word & 1)) continue;
            if (!is_writable(work, (uintptr_t)(at + bit))) return false;
            at[bit].value += bias;
        }
        at += 63;
    }
    return true;
}

static int bind(struct work *work, uint32_t symbol, bool function, struct vlci_binding **binding,
                vlc_error *error) {
    *binding = &work->bindings[symbol];
    if ((*binding)->kind != VLCI_BIND_NONE) return VLC_OK;
    bool tolerant = function && work->image->lazy; /* an error only if it is called */
    int status = vlci_scope_bind(work->image, symbol, *binding, tolerant ? NULL : error);
    if (status && tolerant) {
        const struct vlci_dynamic *dynamic = &work->image->dynamic;
        int number = vlci_thunk_missing_add(work->image->region.context, work->image,
                                            dynamic->strings + dynamic->symbols[symbol].st_name);
        **binding = (struct vlci_binding){ .kind = VLCI_BIND_MISSING, .value = number };
        status = VLC_OK;
    }
    work->fresh |= !status;
    return status;
}

/* A host library's TLS is static when ld.so loaded it at start-up, as it did libc: errno@GLIBC_PRIVATE. */
static int static_tls(const struct vlci_binding *binding, ptrdiff_t *offset, vlc_error *error) {
    struct vlci_image *image = binding->image;
    if (image->host == VLCI_HOST_LIBC) {
        struct vlci_tls_index index = { image->tls.module, 0 };
        *offset = (char *)vlci_tls_address(&index) - vlci_arch_thread_pointer();
        return VLC_OK;
    }
    int status = vlci_tls_make_static(image, error);
    *offset = image->tls.offset;
    return status;
}

static int tls_descriptor(struct work *work, const struct vlci_binding *binding, int64_t addend,
                          struct place *words, vlc_error *error) {
    uintptr_t made[2];
    if (binding->kind == VLCI_BIND_WEAK) {
        vlci_arch_tlsdesc_undefined(made, addend);
    } else if (binding->image->tls.is_static) {
        vlci_arch_tlsdesc_static(made, binding->image->tls.offset + binding->value + addend);
    } else {
        struct vlci_tls_argument *argument = vlci_memory_take(sizeof *argument);
        if (!argument) return vlci_fail(error, VLC_SYSTEM, ENOMEM, work->image->path, "out of memory");
        argument->index = (struct vlci_tls_index){ binding->image->tls.module, binding->value + addend };
        argument->next = work->image->tls_arguments;
        work->image->tls_arguments = argument;
        vlci_arch_tlsdesc_dynamic(made, &argument->index);
    }
    words[0].value = made[0];
    words[1].value = made[1];
    return VLC_OK;
}

static int apply(struct work *work, const Elf64_Rela *relocation, enum vlci_relocation how,
                 vlc_error *error) {
    struct vlci_image *image = work->image;
    vlc_context *context = image->region.context;
    struct place *word = (struct place *)(image->map.l_addr + relocation->r_offset);
    uint32_t symbol = ELF64_R_SYM(relocation->r_info);
    struct vlci_binding own = { .kind = VLCI_BIND_TLS, .image = image },
                        *binding = &own; /* no symbol: its own TLS */
    if (symbol) {
        int status = bind(work, symbol, how == VLCI_RELOCATE_FUNCTION, &binding, error);
        if (status) return status;
    }
    ptrdiff_t offset = 0;
    int status = VLC_OK;
    switch (how) {
    case VLCI_RELOCATE_ADDRESS:
        word->value = (symbol ? (uintptr_t)vlci_binding_address(context, binding) : 0) + relocation->r_addend;
        break;
    case VLCI_RELOCATE_FUNCTION:
    case VLCI_RELOCATE_DATA: word->value = (uintptr_t)vlci_binding_address(context, binding); break;
    case VLCI_RELOCATE_TLS_MODULE: word->value = binding->image ? binding->image->tls.module : 0; break;
    case VLCI_RELOCATE_TLS_OFFSET: word->value = binding->value + relocation->r_addend; break;
    case VLCI_RELOCATE_TLS_STATIC:
        if (binding->kind == VLCI_BIND_TLS) status = static_tls(binding, &offset, error);
        word->value = binding->kind == VLCI_BIND_TLS ? offset + binding->value + relocation->r_addend : 0;
        break;
    case VLCI_RELOCATE_TLS_DESCRIPTOR:
        status = tls_descriptor(work, binding, relocation->r_addend, word, error);
        break;
    default: break;
    }
    return status;
}

static int out_of_place(const struct vlci_image *image, vlc_error *error) {
    return vlci_fail(
        error, VLC_LOAD_FAILED, 0, image->path,
        "cannot load '%s': a relocation lies outside of its writable data (the file is damaged); install it "
        "again",
        image->path);
}

static int relocate_table(struct work *work, struct table table, bool *indirect, vlc_error *error) {
    uintptr_t bias = work->image->map.l_addr;
    for (const Elf64_Rela *r = table.first, *end = r + table.count; r < end; r++) {
        enum vlci_relocation how = vlci_arch_relocation(ELF64_R_TYPE(r->r_info));
        if (how == VLCI_RELOCATE_NOTHING) continue;
        if (!is_writable(work, bias + r->r_offset) ||
            (how == VLCI_RELOCATE_TLS_DESCRIPTOR && !is_writable(work, bias + r->r_offset + 8)))
            return out_of_place(work->image, error);
        if (how == VLCI_RELOCATE_RELATIVE) {
            ((struct place *)(bias + r->r_offset))->value = bias + r->r_addend;
            continue;
        }
        if (how == VLCI_RELOCATE_INDIRECT) {
            *indirect = true;
            continue;
        }
        if (how == VLCI_RELOCATE_UNKNOWN)
            return vlci_fail(error, VLC_LOAD_FAILED, 0, work->image->path,
                             "cannot load '%s': it has a relocation of type %u, which shared libraries may "
                             "not have; build it "
                             "with -fPIC",
                             work->image->path, (unsigned)ELF64_R_TYPE(r->r_info));
        int status = apply(work, r, how, error);
        if (status) return status;
    }
    return VLC_OK;
}

/* Resolvers run code of the image, so they come when all else is in place. */
static void relocate_indirect(const struct vlci_image *image, struct table table) {
    uintptr_t bias = image->map.l_addr;
    for (const Elf64_Rela *r = table.first, *end = r + table.count; r < end; r++)
        if (vlci_arch_relocation(ELF64_R_TYPE(r->r_info)) == VLCI_RELOCATE_INDIRECT)
            *(uintptr_t *)(bias + r->r_offset) = ((uintptr_t (*)(void))(bias + r->r_addend))();
}

int vlci_relocate(struct vlci_image *image, vlc_error *error) {
    const struct vlci_dynamic *dynamic = &image->dynamic;
    const struct table tables[] = { { dynamic->relocations, dynamic->relocation_count },
                                    { dynamic->jump_relocations, dynamic->jump_relocation_count } };
    __attribute__((cleanup(work_free))) struct work work = { .image = image };
    for (size_t t = 0; t < 2; t++)
        for (size_t i = 0; i < tables[t].count; i++)
            if (ELF64_R_SYM(tables[t].first[i].r_info) >= work.count)
                work.count = ELF64_R_SYM(tables[t].first[i].r_info) + 1;
    if (work.count && !vlci_dynamic_has_symbols(dynamic, work.count, image))
        return out_of_place(image, error);
    if (work.count && !(work.bindings = calloc(work.count, sizeof *work.bindings)))
        return vlci_fail(error, VLC_SYSTEM, ENOMEM, image->path, "cannot load '%s': out of memory",
                         image->path);
    bool known = work.count && vlci_cache_get(image, work.bindings, work.count), indirect = false;
    if (!relocate_relative(&work)) return out_of_place(image, error);
    for (size_t t = 0; t < 2; t++) {
        int status = relocate_table(&work, tables[t], &indirect, error);
        if (status) return status;
    }
    for (size_t t = 0; t < 2 && indirect; t++) relocate_indirect(image, tables[t]);
    if (!vlci_image_protect(image))
        return vlci_fail(error, VLC_SYSTEM, errno, image->path,
                         "cannot load '%s': its data cannot be made read-only (%s)", image->path,
                         strerror(errno));
    image->relocated = true;
    if (work.fresh && !known) vlci_cache_put(image, work.bindings, work.count);
    return VLC_OK;
}
