/* malloc and kin for a context: its own heap. `free` takes pointers of any heap, the host's too. */
#include "context/context.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>

void *vlci_malloc(size_t size, vlc_context *context) { return vlci_heap_allocate(context, size, 16, false); }

static bool product(size_t count, size_t size, size_t *total) {
    if (!__builtin_mul_overflow(count, size, total)) return true;
    errno = ENOMEM;
    return false;
}

void *vlci_calloc(size_t count, size_t size, vlc_context *context) {
    size_t total;
    return product(count, size, &total) ? vlci_heap_allocate(context, total, 16, true) : NULL;
}

void *vlci_realloc(void *block, size_t size, vlc_context *context) {
    return vlci_heap_resize(context, block, size);
}

void *vlci_reallocarray(void *block, size_t count, size_t size, vlc_context *context) {
    size_t total;
    return product(count, size, &total) ? vlci_heap_resize(context, block, total) : NULL;
}

void *vlci_memalign(size_t align, size_t size, vlc_context *context) {
    size_t power = 16;
    while (power < align && power < 1ul << 40) power *= 2; /* as glibc: rounded up to a power of two */
    if (power < align) {
        errno = ENOMEM;
        return NULL;
    }
    return vlci_heap_allocate(context, size, power, false);
}

int vlci_posix_memalign(void **block, size_t align, size_t size, vlc_context *context) {
    if (align % sizeof(void *) || !align || align & (align - 1)) return EINVAL;
    int saved = errno;
    void *made = vlci_memalign(align, size, context);
    errno = saved;
    if (!made) return ENOMEM;
    *block = made;
    return 0;
}

void *vlci_valloc(size_t size, vlc_context *context) {
    if (size > SIZE_MAX - VLCI_PAGE) {
        errno = ENOMEM;
        return NULL;
    }
    return vlci_heap_allocate(context, VLCI_PAGE_UP(size), VLCI_PAGE, false);
}

char *vlci_strdup(const char *text, vlc_context *context) {
    size_t size = strlen(text) + 1;
    char *copy = vlci_heap_allocate(context, size, 16, false);
    return copy ? memcpy(copy, text, size) : NULL;
}

char *vlci_strndup(const char *text, size_t most, vlc_context *context) {
    size_t length = strnlen(text, most);
    char *copy = vlci_heap_allocate(context, length + 1, 16, false);
    if (!copy) return NULL;
    copy[length] = 0;
    return memcpy(copy, text, length);
}

/* The system call's arguments, with the context as the seventh (vlci_mmap_entry). */
void *vlci_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset,
                vlc_context *context) {
    return vlci_heap_map(context, address, length, protection, flags, fd, offset);
}

/* NumPy asks for huge pages for each large array. */
int vlci_madvise(void *address, size_t length, int advice, vlc_context *context) {
    if (advice != MADV_HUGEPAGE || context->huge_pages != VLC_HUGE_PAGES_NEVER)
        return madvise(address, length, advice);
    errno = EINVAL; /* as where the kernel has none */
    return -1;
}

/* libc's own would realloc the caller's block, which is not libc's. */
ssize_t vlci_getdelim(char **line, size_t *capacity, int delimiter, FILE *file, vlc_context *context) {
    if (!line || !capacity) {
        errno = EINVAL;
        return -1;
    }
    if (!*line) *capacity = 0;
    size_t length = 0;
    flockfile(file);
    for (int byte = 0; byte != delimiter || !length;) {
        byte = getc_unlocked(file);
        if (byte == EOF) break;
        if (length + 2 > *capacity) {
            size_t larger = *capacity < 60 ? 120 : *capacity * 2;
            char *grown = vlci_heap_resize(context, *line, larger);
            if (!grown) {
                length = 0;
                break;
            }
            *line = grown;
            *capacity = larger;
        }
        (*line)[length++] = (char)byte;
    }
    funlockfile(file);
    if (!length) return -1;
    (*line)[length] = 0;
    return (ssize_t)length;
}

ssize_t vlci_getline(char **line, size_t *capacity, FILE *file, vlc_context *context) {
    return vlci_getdelim(line, capacity, '\n', file, context);
}
