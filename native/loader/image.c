#include "loader/image.h"

#include "context/context.h"
#include "loader/arch.h"
#include "loader/error.h"
#include "loader/tls.h"
#include "loader/unwind.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct vlci_image *vlci_image_at(const void *address) {
    struct vlci_region *region = vlci_region_at(address);
    return region && region->kind == VLCI_REGION_IMAGE ? vlci_image_of_region(region) : NULL;
}

static int refuse(const char *path, const char *why, vlc_error *error) {
    return vlci_fail(error, VLC_LOAD_FAILED, 0, path, "cannot load '%s': %s", path, why);
}

static int out_of_memory(const char *path, vlc_error *error) {
    return vlci_fail(error, VLC_SYSTEM, ENOMEM, path, "cannot load '%s': out of memory", path);
}

static int check_header(const Elf64_Ehdr *header, const char *path, vlc_error *error) {
    const unsigned char *ident = header->e_ident;
    if (memcmp(ident, ELFMAG, SELFMAG))
        return refuse(path, "it is not an ELF file; give the path of a shared library", error);
    if (ident[EI_CLASS] != ELFCLASS64 || ident[EI_DATA] != ELFDATA2LSB ||
        header->e_machine != VLCI_ARCH_MACHINE)
        return vlci_fail(
            error, VLC_LOAD_FAILED, 0, path,
            "cannot load '%s': it is built for another machine (ELF machine %u, class %u; this process is "
            "%s); install the build for %s",
            path, header->e_machine, ident[EI_CLASS], VLCI_ARCH_NAME, VLCI_ARCH_NAME);
    if (ident[EI_OSABI] != ELFOSABI_NONE && ident[EI_OSABI] != ELFOSABI_GNU)
        return refuse(path, "it is built for another operating system", error);
    if (header->e_type != ET_DYN)
        return refuse(path, "it is not a shared library (ELF type is not DYN)", error);
    if (header->e_phentsize != sizeof(Elf64_Phdr) || !header->e_phnum)
        return refuse(path, "its program headers are malformed (the file is damaged)", error);
    return VLC_OK;
}

static int damaged(const char *path, const char *what, vlc_error *error) {
    return vlci_fail(error, VLC_LOAD_FAILED, 0, path,
                     "cannot load '%s': %s (the file is damaged); install it again", path, what);
}

#define ADDRESS_LIMIT (1ul << 46) /* no library is larger, and sums of two stay far from overflow */

static bool is_sound(const Elf64_Phdr *p) {
    return p->p_filesz <= p->p_memsz && p->p_vaddr < ADDRESS_LIMIT && p->p_memsz < ADDRESS_LIMIT &&
           p->p_offset < ADDRESS_LIMIT && !(p->p_align & (p->p_align - 1)) && p->p_align < ADDRESS_LIMIT;
}

/* Sizes and checks everything first; nothing is mapped before the file has proved sound. */
static int plan(struct vlci_image *image, const struct stat *file, uintptr_t *low, uintptr_t *high,
                size_t *align, vlc_error *error) {
    *low = UINTPTR_MAX;
    *high = 0;
    *align = VLCI_PAGE;
    for (const Elf64_Phdr *p = image->headers; p < image->headers + image->header_count; p++) {
        if (p->p_type == PT_GNU_STACK && p->p_flags & PF_X) image->executable_stack = true;
        if (p->p_type != PT_LOAD || !p->p_memsz) continue;
        if (!is_sound(p) || (p->p_vaddr - p->p_offset) % VLCI_PAGE)
            return damaged(image->path, "a segment is malformed", error);
        if (VLCI_PAGE_DOWN(p->p_vaddr) < *high) return damaged(image->path, "its segments overlap", error);
        if (p->p_filesz && p->p_offset + p->p_filesz > (uint64_t)file->st_size)
            return vlci_fail(
                error, VLC_LOAD_FAILED, 0, image->path,
                "cannot load '%s': the file is truncated (%lld bytes, %llu needed); install it again",
                image->path, (long long)file->st_size, (unsigned long long)(p->p_offset + p->p_filesz));
        if (p->p_flags & PF_W && p->p_flags & PF_X)
            return refuse(
                image->path,
                "it has a segment that is both writable and executable; relink it with -z separate-code",
                error);
        if (*low == UINTPTR_MAX) *low = VLCI_PAGE_DOWN(p->p_vaddr);
        *high = VLCI_PAGE_UP(p->p_vaddr + p->p_memsz);
        if (p->p_align > *align) *align = p->p_align;
    }
    return *high ? VLC_OK : damaged(image->path, "it has no loadable segment", error);
}

static bool read_whole(int fd, char *to, size_t size, off_t offset) {
    while (size) {
        ssize_t got = pread(fd, to, size, offset);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        to += got;
        offset += got;
        size -= (size_t)got;
    }
    return true;
}

/* What may be written is a copy of the file's part from the start, not a private mapping: relocations touch nearly
 * all of it anyway, and then it is one kernel mapping with the zeros behind, the rest of the last granule, and what
 * the heap takes after that. 267 libraries of PyTorch and scikit-learn need 1,380 mappings so, which were 2,110; the
 * kernel allows 65,530. */
static bool copy_segment(const struct vlci_image *image, const Elf64_Phdr *p, int fd) {
    uintptr_t at = image->map.l_addr + p->p_vaddr, start = VLCI_PAGE_DOWN(at);
    uintptr_t end = VLCI_PAGE_UP(at + p->p_memsz);
    if (end == (uintptr_t)image->region.base + image->region.length) end = VLCI_GRANULE_UP(end);
    return mprotect((void *)start, end - start, PROT_READ | PROT_WRITE) == 0 &&
           read_whole(fd, (char *)start, p->p_filesz ? at + p->p_filesz - start : 0,
                      (off_t)VLCI_PAGE_DOWN(p->p_offset));
}

static bool map_segment(const struct vlci_image *image, const Elf64_Phdr *p, int fd) {
    if (p->p_flags & PF_W) return copy_segment(image, p, fd);
    uintptr_t at = image->map.l_addr + p->p_vaddr, start = VLCI_PAGE_DOWN(at);
    uintptr_t file_end = at + p->p_filesz, end = VLCI_PAGE_UP(at + p->p_memsz);
    uintptr_t zeros = p->p_filesz ? VLCI_PAGE_UP(file_end) : start; /* whole pages past the file */
    int protection = (p->p_flags & PF_R ? PROT_READ : 0) | (p->p_flags & PF_X ? PROT_EXEC : 0);
    if (p->p_filesz && mmap((void *)start, file_end - start, protection, MAP_PRIVATE | MAP_FIXED, fd,
                            VLCI_PAGE_DOWN(p->p_offset)) == MAP_FAILED)
        return false;
    return end <= zeros || mmap((void *)zeros, end - zeros, protection,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

bool vlci_image_covers(const struct vlci_image *image, uintptr_t address, size_t size, unsigned flags) {
    for (const Elf64_Phdr *p = image->headers; p < image->headers + image->header_count; p++) {
        uintptr_t start = image->map.l_addr + p->p_vaddr;
        if (p->p_type == PT_LOAD && (p->p_flags & flags) == flags && address >= start &&
            address - start <= p->p_memsz && size <= p->p_memsz - (address - start))
            return true;
    }
    return false;
}

static const char *read_header(struct vlci_image *image, const Elf64_Phdr *p, const Elf64_Dyn **entries) {
    uintptr_t at = image->map.l_addr + p->p_vaddr;
    size_t align = p->p_align ? p->p_align : 1;
    switch (p->p_type) {
    case PT_DYNAMIC:
        *entries = (const Elf64_Dyn *)at;
        image->dynamic.entry_count = p->p_filesz / sizeof(Elf64_Dyn);
        return vlci_image_covers(image, at, p->p_filesz, PF_R)
                   ? NULL
                   : "its dynamic section lies outside of its segments";
    case PT_TLS: /* only the file's part takes address space, .tbss none */
        if (!p->p_memsz) return NULL;
        if (!is_sound(p) || p->p_memsz > 1ul << 30 || align > VLCI_PAGE ||
            (p->p_filesz && !vlci_image_covers(image, at, p->p_filesz, PF_R)))
            return "its thread-local segment is malformed";
        image->tls = (struct vlci_tls_segment){ .image = (char *)at,
                                                .size = p->p_memsz,
                                                .file_size = p->p_filesz,
                                                .align = align,
                                                .skew = p->p_vaddr & (align - 1) };
        return NULL;
    case PT_GNU_RELRO:
        if (!vlci_image_covers(image, at, p->p_filesz, PF_W))
            return "its read-only data lie outside of its segments";
        image->relro_start = VLCI_PAGE_DOWN(at);
        image->relro_end = VLCI_PAGE_DOWN(at + p->p_memsz);
        if (image->relro_end > (uintptr_t)image->region.base + image->region.length)
            image->relro_end = (uintptr_t)image->region.base + image->region.length;
        return NULL;
    case PT_GNU_EH_FRAME: /* unwinders live without it */
        if (vlci_image_covers(image, at, 12, PF_R)) image->eh_frame_header = (void *)at;
        return NULL;
    default: return NULL;
    }
}

static const char *read_headers(struct vlci_image *image) {
    const Elf64_Dyn *entries = NULL;
    for (const Elf64_Phdr *p = image->headers; p < image->headers + image->header_count; p++) {
        const char *wrong = is_sound(p) || p->p_type == PT_GNU_STACK ? read_header(image, p, &entries) : NULL;
        if (wrong) return wrong;
    }
    if (!entries) return "it has no dynamic section, so it is not a shared library";
    image->map.l_ld = (Elf64_Dyn *)(uintptr_t)entries;
    return vlci_dynamic_read(&image->dynamic, entries, image->map.l_addr, image);
}

static int map_file(struct vlci_image *image, int fd, vlc_error *error) {
    Elf64_Ehdr header;
    struct stat file;
    if (fstat(fd, &file))
        return vlci_fail(error, VLC_SYSTEM, errno, image->path, "cannot load '%s': %s", image->path,
                         strerror(errno));
    image->identity = (struct vlci_identity){ file.st_dev, file.st_ino,
                                              file.st_mtim.tv_sec * 1000000000ll + file.st_mtim.tv_nsec };
    ssize_t got = pread(fd, &header, sizeof header, 0);
    if (got >= 0 && got < (ssize_t)sizeof header)
        return refuse(image->path,
                      got >= SELFMAG && !memcmp(&header, ELFMAG, SELFMAG)
                          ? "the file is truncated; install it again"
                          : "it is not an ELF file; give the path of a shared library",
                      error);
    if (got < 0)
        return vlci_fail(error, VLC_LOAD_FAILED, errno, image->path, "cannot load '%s': %s", image->path,
                         strerror(errno));
    int status = check_header(&header, image->path, error);
    if (status) return status;
    size_t size = header.e_phnum * sizeof(Elf64_Phdr);
    image->header_count = header.e_phnum;
    if (!(image->headers = malloc(size))) return out_of_memory(image->path, error);
    if (pread(fd, image->headers, size, header.e_phoff) != (ssize_t)size)
        return refuse(image->path, "the file is truncated within its program headers; install it again",
                      error);

    uintptr_t low, high;
    size_t align;
    if ((status = plan(image, &file, &low, &high, &align, error))) return status;
    image->region.length = high - low;
    if (!vlci_range_take(&image->region.context->zones, &image->region, align))
        return vlci_fail(error, VLC_LIMIT, ENOMEM, image->path,
                         "cannot load '%s': no address space is left for its %zu bytes; raise `ulimit -v` or "
                         "close contexts",
                         image->path, image->region.length);
    image->map.l_addr = (uintptr_t)image->region.base - low;
    for (const Elf64_Phdr *p = image->headers; p < image->headers + image->header_count; p++)
        if (p->p_type == PT_LOAD && p->p_memsz && !map_segment(image, p, fd))
            return vlci_fail(error, VLC_SYSTEM, errno, image->path, "cannot map '%s': %s", image->path,
                             strerror(errno));
    const char *wrong = read_headers(image);
    if (wrong == vlci_dynamic_no_memory) return out_of_memory(image->path, error);
    if (wrong) return damaged(image->path, wrong, error);
    if (image->dynamic.text_relocations)
        return refuse(image->path,
                      "its code needs to be modified at run time (text relocations); build it with -fPIC",
                      error);
    return VLC_OK;
}

int vlci_image_map(vlc_context *context, const char *path, int fd, struct vlci_image **image,
                   vlc_error *error) {
    char resolved[PATH_MAX];
    struct vlci_image *made = calloc(1, sizeof *made);
    if (!made || !(made->path = strdup(realpath(path, resolved) ? resolved : path))) {
        free(made);
        return out_of_memory(path, error);
    }
    made->region.kind = VLCI_REGION_IMAGE;
    made->region.context = context;
    made->map.l_name = made->path;
    int status = map_file(made, fd, error);
    if (!status && made->tls.size) status = vlci_tls_add(made, error);
    if (status) {
        vlci_image_free(made);
        return status;
    }
    const char *slash = strrchr(made->path, '/');
    made->soname = made->dynamic.soname ? made->dynamic.soname : slash ? slash + 1 : made->path;
    *image = made;
    return VLC_OK;
}

bool vlci_image_protect(struct vlci_image *image) {
    return image->relro_end <= image->relro_start ||
           mprotect((void *)image->relro_start, image->relro_end - image->relro_start, PROT_READ) == 0;
}

void vlci_image_free(struct vlci_image *image) {
    vlci_unwind_remove(image);
    vlci_tls_remove(image);
    if (image->region.base) vlci_range_give(&image->region.context->zones, &image->region);
    vlci_dynamic_free(&image->dynamic);
    free(image->path);
    free(image->asked);
    free(image->headers);
    free(image->needed);
    free(image->closure);
    free(image);
}
