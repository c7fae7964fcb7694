#include "loader/thunks.h"

#include "context/context.h"
#include "loader/arch.h"
#include "loader/error.h"
#include "overrides/table.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern const char vlci_thunk_missing[]; /* arch_*.S: in vlci_thunk_code, behind the rows */

struct file_place {
    const char *code, *path;
    off_t offset;
};

/* Where in which file a piece of our own text lies. */
static int find_place(struct dl_phdr_info *info, size_t size, void *argument) {
    (void)size;
    struct file_place *place = argument;
    uintptr_t code = (uintptr_t)place->code;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const Elf64_Phdr *p = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + p->p_vaddr;
        if (p->p_type != PT_LOAD || code < start || code >= start + p->p_filesz) continue;
        place->path = info->dlpi_name;
        place->offset = p->p_offset + (code - start);
        return 1;
    }
    return 0;
}

int vlci_thunks_map(char *at, const char *code, size_t size, vlc_error *error) {
    struct file_place place = { code, NULL, 0 };
    dl_iterate_phdr(find_place, &place);
    if (!place.path || !*place.path)
        return vlci_fail(error, VLC_SYSTEM, 0, "libvlcs.so",
                         "cannot find the file of libvlcs.so; link to it as a shared library");
    int fd = open(place.path, O_RDONLY | O_CLOEXEC);
    void *got = fd < 0 ? MAP_FAILED
                       : mmap(at, size, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, fd, place.offset);
    int failure = errno;
    if (fd >= 0) close(fd);
    if (got == MAP_FAILED)
        return vlci_fail(error, VLC_SYSTEM, failure, place.path, "cannot map '%s' again: %s", place.path,
                         strerror(failure));
    if (memcmp(at, code, size))
        return vlci_fail(error, VLC_MISUSE, 0, place.path,
                         "'%s' was replaced by another version while this program runs; restart the program",
                         place.path);
    return VLC_OK;
}

/* The name of a missing function, kept until the context ends. */
struct vlci_missing {
    char *library, *function;
};

__attribute__((noreturn)) static void missing_called(vlc_context *context, unsigned number) {
    char words[1024];
    const struct vlci_missing *missing = &context->missing[number];
    snprintf(words, sizeof words,
             "vlcs: context '%s': '%s' called the function '%s', which no library of the context defines%s\n",
             context->name, missing->library, missing->function,
             number + 1 == VLCI_THUNK_MISSING ? " (or another missing one)" : "");
    vlci_os_complain(words);
    __builtin_trap();
}

int vlci_thunks_make(vlc_context *context, vlc_error *error) {
    size_t data_size = VLCI_PAGE_UP(sizeof(struct vlci_thunk_data) + vlci_override_count() * sizeof(void *));
    context->thunks = (struct vlci_region){ VLCI_REGION_THUNKS, context, NULL, VLCI_THUNK_CODE + data_size };
    if (!vlci_range_take(&context->zones, &context->thunks, VLCI_PAGE))
        return vlci_fail(
            error, VLC_LIMIT, ENOMEM, context->name,
            "cannot create context '%s': no address space is left; raise `ulimit -v` or close contexts",
            context->name);
    int status = vlci_thunks_map(context->thunks.base, vlci_thunk_code, VLCI_THUNK_CODE, error);
    if (status) return status;
    struct vlci_thunk_data *data = (void *)(context->thunks.base + VLCI_THUNK_CODE);
    if (mmap(data, data_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
        return vlci_fail(error, VLC_SYSTEM, errno, context->name, "cannot create context '%s': %s",
                         context->name, strerror(errno));
    if (!(context->missing = calloc(VLCI_THUNK_MISSING, sizeof *context->missing)))
        return vlci_fail(error, VLC_SYSTEM, ENOMEM, context->name,
                         "cannot create context '%s': out of memory", context->name);
    data->context = context;
    data->missing = (void *)missing_called;
    for (unsigned row = 0; row < vlci_override_count(); row++)
        data->targets[row] = vlci_override_row(row)->function;
    return mprotect(data, data_size, PROT_READ)
               ? vlci_fail(error, VLC_SYSTEM, errno, context->name, "cannot create context '%s': %s",
                           context->name, strerror(errno))
               : VLC_OK;
}

void vlci_thunks_free(vlc_context *context) {
    for (unsigned i = 0; context->missing && i < context->missing_count; i++) {
        free(context->missing[i].library);
        free(context->missing[i].function);
    }
    free(context->missing);
    if (context->thunks.base) vlci_range_give(&context->zones, &context->thunks);
}

void *vlci_thunk_override(vlc_context *context, unsigned row) {
    const struct vlci_override *override = vlci_override_row(row);
    if (override->how == VLCI_NO_CONTEXT) return override->function;
    if (override->how == VLCI_DATUM) return ((void *(*)(vlc_context *)) override->function)(context);
    return context->thunks.base + row * VLCI_THUNK_SIZE;
}

int vlci_thunk_missing_add(vlc_context *context, const struct vlci_image *image, const char *name) {
    if (context->missing_count == VLCI_THUNK_MISSING) return VLCI_THUNK_MISSING - 1;
    struct vlci_missing *missing = &context->missing[context->missing_count];
    missing->library = strdup(image->path);
    missing->function = strdup(name);
    return context->missing_count++;
}

void *vlci_thunk_missing_function(vlc_context *context, unsigned number) {
    return context->thunks.base + (vlci_thunk_missing - vlci_thunk_code) + number * VLCI_THUNK_SIZE;
}
