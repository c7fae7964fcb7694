/* A library: one of a context, mapped by us, or one of the host, as ld.so mapped it. */
#ifndef VLCI_IMAGE_H
#define VLCI_IMAGE_H

#include "loader/dynamic.h"
#include "loader/range.h"
#include "vlcs.h"

#include <link.h>
#include <stdbool.h>
#include <sys/types.h>

enum vlci_host {
    VLCI_PRIVATE = 0, /* a context's */
    VLCI_HOST_LIBC,   /* ships with the running libc: in every scope, last; overrides apply */
    VLCI_HOST_SHARED  /* named in share=[...]: seen by those that need it */
};

struct vlci_identity { /* of a file, for finding it again */
    dev_t device;
    ino_t inode;
    int64_t modified;
};

struct vlci_tls_segment {
    uint64_t module;   /* ours: bit 63 set; the host's: ld.so's number; 0: the image has none */
    const char *image; /* initial contents: file_size bytes, then zeros */
    size_t size, file_size, align, skew;
    bool is_static;   /* lies in an initial-exec slot */
    bool is_used;     /* some thread has a block: too late to become static */
    ptrdiff_t offset; /* static: from the thread pointer */
};

struct vlci_image {
    struct link_map map; /* first: a handle is a `struct link_map *` */
    struct vlci_region region;
    enum vlci_host host;
    void *host_handle;  /* of dlopen, for host libraries */
    char *path, *asked; /* asked: the name it was first wanted by, when not a path */
    const char *soname;
    struct vlci_identity identity;
    Elf64_Phdr *headers;
    unsigned header_count;
    struct vlci_dynamic dynamic;
    struct vlci_tls_segment tls;
    uintptr_t relro_start, relro_end;
    void *eh_frame_header, *eh_frame; /* eh_frame: what was registered with the host's unwinder */

    struct vlci_image **needed; /* its DT_NEEDED, in order */
    unsigned needed_count;
    struct vlci_image **closure; /* itself and all it needs, breadth first: its scope when it is opened */
    unsigned closure_count;
    struct vlci_image *opener;               /* the image whose closure it looks names up in */
    struct vlci_image *loader;               /* who needed it first: DT_RPATH is inherited along this chain */
    struct vlci_tls_argument *tls_arguments; /* of its TLSDESC relocations */
    bool deep_bind, lazy, relocated, initialised;
    unsigned begun_at;      /* how often the context had been moved when its constructors began to run */
    _Atomic(bool) is_ready; /* they have run */
    bool executable_stack;  /* it asked for one; it did not get it */
};

static inline struct vlci_image *vlci_image_of_region(struct vlci_region *region) {
    return (struct vlci_image *)((char *)region - offsetof(struct vlci_image, region));
}

/* The context's image that holds the address, or NULL. Lock-free. */
struct vlci_image *vlci_image_at(const void *address);

/* True when [address, address + size) lies in one segment that has all the `flags` (PF_R ...). */
bool vlci_image_covers(const struct vlci_image *image, uintptr_t address, size_t size, unsigned flags);

/* Maps the open file `fd` (at `path`) into the context. Not yet relocated. */
int vlci_image_map(vlc_context *context, const char *path, int fd, struct vlci_image **image,
                   vlc_error *error);

/* Undoes everything about an image: TLS module, unwinder, mapping, memory. */
void vlci_image_free(struct vlci_image *image);

/* Makes what the linker wanted read-only after relocation so. */
bool vlci_image_protect(struct vlci_image *image);

#endif
