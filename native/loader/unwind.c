#include "loader/unwind.h"

#include "context/context.h"
#include "loader/host.h"
#include "loader/tls.h"

#include <dlfcn.h>

/* Layout of struct dl_find_object, <dlfcn.h> since glibc 2.35. */
struct vlci_unwind_object {
    unsigned long long flags;
    void *map_start, *map_end;
    struct link_map *link_map;
    void *eh_frame;
    unsigned long long reserved[7];
};

/* Pointer encodings of .eh_frame_hdr (LSB core specification, "Exception Frames"). */
#define PCREL_SDATA4 0x1b

/* .eh_frame of an image, from its header, or NULL. */
static void *frames_of(const struct vlci_image *image) {
    const uint8_t *header = image->eh_frame_header;
    if (!header || header[0] != 1 || header[1] != PCREL_SDATA4) return NULL;
    const char *frames = (const char *)(header + 4) + *(const int32_t *)(header + 4);
    return vlci_image_covers(image, (uintptr_t)frames, 4, PF_R) ? (void *)(uintptr_t)frames : NULL;
}

/* Frames end with a zero word, which crtend.o brings; without it, a reader would run on into other data. */
static bool frames_end(const struct vlci_image *image, const void *frames) {
    uintptr_t at = (uintptr_t)frames, end = 0;
    if (at % 4) return false;
    for (unsigned i = 0; i < image->header_count; i++) {
        const Elf64_Phdr *p = &image->headers[i];
        uintptr_t start = image->map.l_addr + p->p_vaddr;
        if (p->p_type == PT_LOAD && p->p_flags & PF_R && at >= start && at < start + p->p_filesz)
            end = start + p->p_filesz;
    }
    while (at + 4 <= end) {
        uint32_t length = *(const uint32_t *)at;
        if (length == 0) return true;
        if (length == UINT32_MAX || length % 4 || length > end - at - 4) return false;
        at += 4 + length;
    }
    return false;
}

static struct {
    void (*enter)(void *), (*leave)(void *);
} registry;
static pthread_once_t registry_once = PTHREAD_ONCE_INIT;

/* Both from one unwinder: the one that the host's exceptions meet, else the one that glibc loads for pthread_exit. */
static void registry_find(void) {
    void *from = RTLD_DEFAULT;
    if (!dlsym(from, "__register_frame") && !(from = dlopen("libgcc_s.so.1", RTLD_NOW | RTLD_LOCAL))) return;
    registry.enter = (void (*)(void *))dlsym(from, "__register_frame");
    registry.leave = (void (*)(void *))dlsym(from, "__deregister_frame");
}

void vlci_unwind_add(struct vlci_image *image) {
    if (image->eh_frame) return;
    pthread_once(&registry_once, registry_find);
    void *frames = frames_of(image);
    if (!registry.enter || !registry.leave || !frames || !*(const uint32_t *)frames ||
        !frames_end(image, frames))
        return;
    registry.enter(frames);
    image->eh_frame = frames;
}

static int stop_at_once(void *context, void *argument) {
    (void)context;
    (void)argument;
    return 5; /* _URC_END_OF_STACK */
}

void vlci_unwind_prepare(struct vlci_image *image) {
    const struct vlci_wanted wanted = { "_Unwind_Backtrace", vlci_gnu_hash("_Unwind_Backtrace"), NULL, true };
    const Elf64_Sym *symbol = vlci_dynamic_find(&image->dynamic, &wanted);
    if (!symbol || image->host) return;
    ((int (*)(int (*)(void *, void *), void *))(image->map.l_addr + symbol->st_value))(stop_at_once, NULL);
}

/* Any word of the stack that points into an image may be a return address: registering too many does no harm. */
__attribute__((no_sanitize("address"))) void vlci_unwind_add_stack(vlc_context *context) {
    pthread_attr_t attributes;
    void *low;
    size_t size;
    if (pthread_getattr_np(pthread_self(), &attributes)) return;
    pthread_attr_getstack(&attributes, &low, &size);
    pthread_attr_destroy(&attributes);
    pthread_mutex_lock(&context->images_lock);
    for (void **word = __builtin_frame_address(0); (char *)(word + 1) <= (char *)low + size; word++) {
        struct vlci_image *image = vlci_image_at(*word);
        if (image && image->region.context == context) vlci_unwind_add(image);
    }
    pthread_mutex_unlock(&context->images_lock);
}

void vlci_unwind_remove(struct vlci_image *image) {
    if (image->eh_frame) registry.leave(image->eh_frame);
    image->eh_frame = NULL;
}

int vlci_find_object(void *address, struct vlci_unwind_object *object) {
    struct vlci_image *image = vlci_image_at(address);
    if (!image) {
        static int (*host)(void *, struct vlci_unwind_object *);
        if (!host) host = (int (*)(void *, struct vlci_unwind_object *))vlci_host_symbol("_dl_find_object");
        return host ? host(address, object) : -1;
    }
    if (!image->eh_frame_header) return -1;
    object->flags = 0;
    object->map_start = image->region.base;
    object->map_end = image->region.base + image->region.length;
    object->link_map = &image->map;
    object->eh_frame = image->eh_frame_header;
    return 0;
}

static int first_counts(struct dl_phdr_info *info, size_t size, void *counts) {
    (void)size;
    ((unsigned long long *)counts)[0] = info->dlpi_adds;
    ((unsigned long long *)counts)[1] = info->dlpi_subs;
    return 1;
}

struct walk {
    int (*callback)(struct dl_phdr_info *, size_t, void *);
    void *data;
    unsigned long long loads, unloads;
};

/* All objects of one walk tell the same counts: the host's and the context's. */
static int host_object(struct dl_phdr_info *info, size_t size, void *argument) {
    struct walk *walk = argument;
    struct dl_phdr_info mine = *info;
    mine.dlpi_adds += walk->loads;
    mine.dlpi_subs += walk->unloads;
    return walk->callback(&mine, size, walk->data);
}

int vlci_iterate_headers(int (*callback)(struct dl_phdr_info *, size_t, void *), void *data,
                         vlc_context *context) {
    unsigned long long counts[2] = { 0, 0 };
    dl_iterate_phdr(first_counts, counts); /* unwinders keep a cache while both numbers stand still */
    int result = 0;
    /* for the whole walk: the callback of libgcc before 13 keeps a cache without a lock of its own, and relies
     * on ld.so's, which its callers share only in the part of the walk that is the host's. Not the load lock:
     * a throw must not wait for another thread's constructor. */
    pthread_mutex_lock(&context->images_lock);
    for (size_t i = 0; i < context->image_count && !result; i++) {
        struct vlci_image *image = context->images[i];
        struct dl_phdr_info info = { .dlpi_addr = image->map.l_addr,
                                     .dlpi_name = image->path,
                                     .dlpi_phdr = image->headers,
                                     .dlpi_phnum = image->header_count,
                                     .dlpi_adds = counts[0] + context->loads,
                                     .dlpi_subs = counts[1] + context->unloads,
                                     .dlpi_tls_modid = image->tls.module,
                                     .dlpi_tls_data = vlci_tls_block(image) };
        result = callback(&info, sizeof info, data);
    }
    struct walk walk = { callback, data, context->loads, context->unloads };
    if (!result) result = dl_iterate_phdr(host_object, &walk);
    pthread_mutex_unlock(&context->images_lock);
    return result;
}
