#include "loader/open.h"

#include "context/context.h"
#include "loader/arch.h"
#include "loader/debugger.h"
#include "loader/error.h"
#include "loader/host.h"
#include "loader/relocate.h"
#include "loader/search.h"
#include "loader/tls.h"
#include "loader/unwind.h"
#include "overrides/exit.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int argument_count;
static char **arguments;

/* ld.so hands every constructor the program's arguments; there is no other way to learn them. */
__attribute__((constructor)) static void remember_arguments(int count, char **values, char **environment) {
    (void)environment;
    argument_count = count;
    arguments = values;
}

static bool append(struct vlci_image ***list, size_t *count, struct vlci_image *image) {
    if (*count % 16 == 0) {
        struct vlci_image **grown = realloc(*list, (*count + 16) * sizeof **list);
        if (!grown) return false;
        *list = grown;
    }
    (*list)[(*count)++] = image;
    return true;
}

static int no_memory(const char *name, vlc_error *error) {
    return vlci_fail(error, VLC_SYSTEM, ENOMEM, name, "cannot load '%s': out of memory", name);
}

static struct vlci_image *loaded_by_name(const vlc_context *context, const char *name) {
    for (size_t i = 0; i < context->image_count; i++) {
        struct vlci_image *image = context->images[i];
        if (!strcmp(image->soname, name) || (image->asked && !strcmp(image->asked, name))) return image;
    }
    return NULL;
}

static struct vlci_image *loaded_by_file(const vlc_context *context, const struct stat *file) {
    for (size_t i = 0; i < context->image_count; i++) {
        const struct vlci_identity *identity = &context->images[i]->identity;
        if (identity->inode == file->st_ino && identity->device == file->st_dev) return context->images[i];
    }
    return NULL;
}

static bool is_shared(const vlc_context *context, const char *name) {
    const char *slash = strrchr(name, '/');
    for (size_t i = 0; context->share && context->share[i]; i++)
        if (!strcmp(context->share[i], name) || !strcmp(context->share[i], slash ? slash + 1 : name))
            return true;
    return false;
}

static int not_found(const struct vlci_image *from, const char *name, vlc_error *error) {
    if (strchr(name, '/'))
        return vlci_fail(
            error, VLC_LOAD_FAILED, ENOENT, name,
            "cannot load '%s': cannot open shared object file: No such file or directory; check the path",
            name);
    if (from)
        return vlci_fail(error, VLC_LOAD_FAILED, ENOENT, name,
                         "cannot load '%s', needed by '%s': cannot open shared object file: No such file or "
                         "directory; install "
                         "the package that has it, or put its directory into LD_LIBRARY_PATH of the context",
                         name, from->path);
    return vlci_fail(error, VLC_LOAD_FAILED, ENOENT, name,
                     "cannot load '%s': cannot open shared object file: No such file or directory; give its "
                     "path, or put its "
                     "directory into LD_LIBRARY_PATH of the context",
                     name);
}

/* Finds or maps one library, without what it needs. */
static int load_one(vlc_context *context, struct vlci_image *from, const char *name, bool only_loaded,
                    struct vlci_image **image, vlc_error *error) {
    if (is_shared(context, name)) return vlci_host_share(name, image, error);
    int status = vlci_host_libc(name, image, error);
    if (status || *image) return status;
    bool by_path = strchr(name, '/') != NULL;
    if (!by_path && (*image = loaded_by_name(context, name))) return VLC_OK;
    char path[PATH_MAX];
    if (!vlci_search(context, from, name, path)) return not_found(from, name, error);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat file;
    if (fd < 0 || fstat(fd, &file)) {
        int failure = errno;
        if (fd >= 0) close(fd);
        return vlci_fail(error, VLC_LOAD_FAILED, failure, path, "cannot load '%s': %s", path,
                         strerror(failure));
    }
    if ((*image = loaded_by_file(context, &file))) {
        close(fd);
        return VLC_OK;
    }
    if (only_loaded) {
        close(fd);
        return vlci_fail(error, VLC_LOAD_FAILED, 0, name, "'%s' is not loaded (RTLD_NOLOAD)", name);
    }
    status = vlci_image_map(context, path, fd, image, error);
    close(fd);
    if (status) return status;
    (*image)->loader = from;
    if (!by_path) (*image)->asked = strdup(name);
    pthread_mutex_lock(&context->images_lock);
    bool added = (by_path || (*image)->asked) && append(&context->images, &context->image_count, *image);
    pthread_mutex_unlock(&context->images_lock);
    if (!added) {
        vlci_image_free(*image);
        return no_memory(name, error);
    }
    return VLC_OK;
}

/* Breadth first: the list of images grows while it is walked. */
static int load_needed(vlc_context *context, size_t first, vlc_error *error) {
    for (size_t i = first; i < context->image_count; i++) {
        struct vlci_image *image = context->images[i];
        for (const Elf64_Dyn *entry = image->dynamic.entries; entry->d_tag != DT_NULL; entry++) {
            if (entry->d_tag != DT_NEEDED) continue;
            if (entry->d_un.d_val >= image->dynamic.strings_length)
                return vlci_fail(
                    error, VLC_LOAD_FAILED, 0, image->path,
                    "cannot load '%s': the name of a library that it needs lies outside of its strings (the "
                    "file is damaged); install it again",
                    image->path);
            struct vlci_image *needed, **grown;
            int status =
                load_one(context, image, image->dynamic.strings + entry->d_un.d_val, false, &needed, error);
            if (status) return status;
            if (!(grown = realloc(image->needed, (image->needed_count + 1) * sizeof *grown)))
                return no_memory(image->path, error);
            image->needed = grown;
            image->needed[image->needed_count++] = needed;
        }
    }
    return VLC_OK;
}

static bool make_global(vlc_context *context, struct vlci_image *root) {
    for (size_t i = 0; i < root->closure_count; i++) {
        size_t k = 0;
        while (k < context->global_count && context->global[k] != root->closure[i]) k++;
        if (k == context->global_count && !append(&context->global, &context->global_count, root->closure[i]))
            return false;
    }
    return true;
}

static int relocate_all(vlc_context *context, size_t first, struct vlci_image *root, int flags,
                        vlc_error *error) {
    for (size_t i = first; i < context->image_count; i++) {
        struct vlci_image *image = context->images[i];
        image->opener = root;
        image->deep_bind = flags & RTLD_DEEPBIND;
        image->lazy = !(flags & RTLD_NOW) && !(image->dynamic.flags & DF_BIND_NOW) &&
                      !(image->dynamic.flags_1 & DF_1_NOW);
    }
    for (size_t i = context->image_count; i-- > first;) {
        int status = vlci_relocate(context->images[i], error);
        if (status) return status;
    }
    return VLC_OK;
}

static void initialise(vlc_context *context, struct vlci_image *image) {
    if (image->initialised) return;
    image->initialised = true;
    for (unsigned i = 0; i < image->needed_count; i++) initialise(context, image->needed[i]);
    context->init_order[context->init_count++] = image; /* room was made before */
    typedef void constructor(int, char **, char **);
    char **environment = vlci_context_environ(context);
    image->begun_at = atomic_load(&context->moved);
    /* gcc's crtfastmath.o makes a constructor that flushes denormals to zero for all that comes after it */
    struct vlci_float_state before;
    vlci_arch_float_save(&before);
    if (image->dynamic.init) ((constructor *)image->dynamic.init)(argument_count, arguments, environment);
    for (size_t i = 0; i < image->dynamic.init_count; i++) {
        uintptr_t function = image->dynamic.init_array[i];
        if (function && function != UINTPTR_MAX)
            ((constructor *)function)(argument_count, arguments, environment);
    }
    vlci_arch_float_restore(&before);
    atomic_store(&image->is_ready, true);
}

static void link_chain(vlc_context *context, size_t first) {
    for (size_t i = first; i < context->image_count; i++) {
        context->images[i]->map.l_prev = i ? &context->images[i - 1]->map : NULL;
        context->images[i]->map.l_next = NULL;
        if (i) context->images[i - 1]->map.l_next = &context->images[i]->map;
    }
}

/* Takes back the images from `first` on. None of them has run yet. */
static void roll_back(vlc_context *context, size_t first, size_t global_count) {
    context->global_count = global_count;
    pthread_mutex_lock(&context->images_lock);
    for (size_t i = context->image_count; i-- > first;) {
        vlci_uniques_forget(&context->uniques, context->images[i]);
        vlci_image_free(context->images[i]);
    }
    context->image_count = first;
    if (first) context->images[first - 1]->map.l_next = NULL;
    pthread_mutex_unlock(&context->images_lock);
}

static int open_locked(vlc_context *context, struct vlci_image *from, const char *name, int flags,
                       struct vlci_image **image, vlc_error *error) {
    size_t first = context->image_count, global_count = context->global_count;
    int status = vlci_context_check_mappings(context, false, error);
    if (!status) status = load_one(context, from, name, flags & RTLD_NOLOAD, image, error);
    if (!status) status = load_needed(context, first, error);
    if (!status && !vlci_scope_closure(*image)) status = no_memory(name, error);
    struct vlci_image **room = realloc(context->init_order, (context->image_count + 1) * sizeof *room);
    if (room) context->init_order = room;
    if (!status && !room) status = no_memory(name, error);
    bool is_root = global_count == 0 && !status && !(*image)->host;
    if (!status && is_root && !make_global(context, *image)) status = no_memory(name, error);
    if (!status) link_chain(context, first);
    if (!status) status = relocate_all(context, first, *image, flags, error);
    if (!status && flags & RTLD_GLOBAL && !make_global(context, *image)) status = no_memory(name, error);
    if (status) {
        roll_back(context, first, global_count);
        return status;
    }
    for (size_t i = first; i < context->image_count; i++) vlci_tls_start_slot(context->images[i]);
    for (size_t i = first; i < context->image_count && !from; i++) vlci_unwind_add(context->images[i]);
    context->loads += context->image_count - first;
    if (context->image_count != first) vlci_debugger_changed(context);
    size_t count = context->image_count; /* constructors may open more, which see to themselves */
    initialise(context, *image);
    for (size_t i = first; i < count; i++) vlci_unwind_prepare(context->images[i]);
    return VLC_OK;
}

int vlci_open(vlc_context *context, struct vlci_image *from, const char *name, int flags,
              struct vlci_image **image, vlc_error *error) {
    pthread_mutex_lock(&context->load_lock); /* recursive: constructors open more */
    unsigned moved = atomic_load(&context->moved);
    context->load_depth++;
    int status = open_locked(context, from, name, flags, image, error);
    bool is_whole = --context->load_depth == 0;
    pthread_mutex_unlock(&context->load_lock);
    /* what was not ready then has not been told */
    if (is_whole && moved != atomic_load(&context->moves)) vlci_slice_tell(context);
    return status;
}

struct vlci_image *vlci_open_image(vlc_context *context, size_t index) {
    pthread_mutex_lock(&context->images_lock);
    struct vlci_image *image = index < context->image_count ? context->images[index] : NULL;
    pthread_mutex_unlock(&context->images_lock);
    return image;
}

static struct vlci_image *last_initialised(vlc_context *context) {
    pthread_mutex_lock(&context->load_lock);
    struct vlci_image *image = context->init_count ? context->init_order[--context->init_count] : NULL;
    pthread_mutex_unlock(&context->load_lock);
    return image;
}

void vlci_open_finalise(vlc_context *context) {
    vlci_exit_run(context);
    typedef void destructor(void);
    for (struct vlci_image *image; (image = last_initialised(context));) {
        for (size_t i = image->dynamic.fini_count; i-- > 0;) {
            uintptr_t function = image->dynamic.fini_array[i];
            if (function && function != UINTPTR_MAX) ((destructor *)function)();
        }
        if (image->dynamic.fini) ((destructor *)image->dynamic.fini)();
    }
}

void vlci_open_unload(vlc_context *context) {
    context->unloads += context->image_count;
    for (size_t i = context->image_count; i-- > 0;) vlci_image_free(context->images[i]);
    context->image_count = context->global_count = 0;
    free(context->images);
    free(context->global);
    free(context->init_order);
    free(context->uniques.table);
    context->images = context->global = context->init_order = NULL;
    context->uniques = (struct vlci_uniques){ 0 };
}
