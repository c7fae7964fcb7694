/* The environment of a context: a copy of the process's without the thread counts, plus what env= says. */
#include "context/context.h"
#include "loader/error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Sized for the whole machine by whoever set them; a slice has other numbers. An explicit env= wins. */
static const char *const thread_counts[] = {
    "OMP_NUM_THREADS",
    "OMP_THREAD_LIMIT",
    "GOTO_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "OPENBLAS_DEFAULT_NUM_THREADS",
    "MKL_NUM_THREADS",
    "MKL_DOMAIN_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "KMP_ALL_THREADS",
    "KMP_HW_SUBSET",
    "NUMEXPR_NUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "NUMBA_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "RAYON_NUM_THREADS",
    "TOKIO_WORKER_THREADS",
    "LOKY_MAX_CPU_COUNT",
    "ARROW_IO_THREADS",
    "GOMAXPROCS",
    "JULIA_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "PYTHON_CPU_COUNT",
};

static size_t name_length(const char *entry) { return strcspn(entry, "="); }

static bool named(const char *entry, const char *name, size_t length) {
    return !strncmp(entry, name, length) && (entry[length] == '=' || !entry[length]);
}

static bool begins_with_one_of(const char *name, const char *beginnings) {
    for (size_t length; *beginnings; beginnings += length + strspn(beginnings + length, " ")) {
        length = strcspn(beginnings, " ");
        if (!strncmp(name, beginnings, length)) return true;
    }
    return false;
}

static bool is_thread_count(const char *entry) {
    for (size_t i = 0; i < sizeof thread_counts / sizeof *thread_counts; i++)
        if (named(entry, thread_counts[i], strlen(thread_counts[i]))) return true;
    return false;
}

/* Strings are the context's own and live as long as it: callers keep what getenv gave them. */
static char *own(vlc_context *context, const char *text) {
    char *copy = vlci_heap_take(context, strlen(text) + 1, 16, false);
    return copy ? strcpy(copy, text) : NULL;
}

static size_t count_of(char *const *list) {
    size_t count = 0;
    while (list && list[count]) count++;
    return count;
}

static char **find(char **list, const char *name, size_t length) {
    for (; list && *list; list++)
        if (named(*list, name, length) && (*list)[length] == '=') return list;
    return NULL;
}

/* Puts `entry` ("NAME=value", kept) in; the lock is held. */
static int put(vlc_context *context, char *entry, bool overwrite) {
    char **old = find(context->environment, entry, name_length(entry));
    if (old) {
        if (overwrite) *old = entry;
        return 0;
    }
    size_t count = count_of(context->environment);
    char **grown = vlci_heap_take(context, (count + 2) * sizeof *grown, 16, false);
    if (!grown) return -1;
    if (count) memcpy(grown, context->environment, count * sizeof *grown);
    grown[count] = entry;
    grown[count + 1] = NULL;
    /* readers without the lock (environ) may still walk the array before this one: it stays until the next.
     * Only our own go; a library may have set `environ` to an array of its own. */
    if (context->environment == context->env_made) {
        vlci_heap_give(context->env_made_before);
        context->env_made_before = context->env_made;
    }
    context->env_made = grown;
    __atomic_store_n(&context->environment, grown, __ATOMIC_RELEASE);
    return 0;
}

static void take_out(vlc_context *context, const char *name, size_t length) {
    for (char **at; (at = find(context->environment, name, length));)
        for (; *at; at++) at[0] = at[1];
}

int vlci_env_make(vlc_context *context, const char *const *changes, vlc_error *error) {
    extern char **environ;
    size_t count = count_of(environ), kept = 0;
    char **list = vlci_heap_take(context, (count + 1) * sizeof *list, 16, true);
    for (size_t i = 0; list && i < count; i++) {
        if (is_thread_count(environ[i])) continue;
        if (!(list[kept] = own(context, environ[i]))) list = NULL;
        kept++;
    }
    context->environment = context->env_made = list;
    for (size_t i = 0; list && changes && changes[i]; i++) {
        const char *change = changes[i];
        if (!name_length(change))
            return vlci_fail(error, VLC_BAD_ARGUMENT, 0, change,
                             "cannot set the environment variable '%s': its name is empty", change);
        if (!strchr(change, '=')) {
            take_out(context, change, strlen(change));
            continue;
        }
        char *copy = own(context, change);
        if (!copy || put(context, copy, true)) list = NULL;
    }
    return list ? VLC_OK
                : vlci_fail(error, VLC_SYSTEM, ENOMEM, context->name,
                            "cannot create context '%s': out of memory", context->name);
}

/* Without the lock, as libc's exec* read `environ`: for signal handlers and children of vfork. */
char **vlci_context_environ(vlc_context *context) {
    return __atomic_load_n(&context->environment, __ATOMIC_ACQUIRE);
}

const char *vlci_env_value(char *const *list, const char *name) {
    size_t length = strlen(name);
    for (; list && *list; list++)
        if (named(*list, name, length) && (*list)[length] == '=') return *list + length + 1;
    return NULL;
}

char ***vlci_environ_datum(vlc_context *context) { return &context->environment; }

char *vlci_getenv(const char *name, vlc_context *context) {
    size_t length = strlen(name);
    VLCI_HOLD(&context->env_lock);
    char **found = length ? find(context->environment, name, length) : NULL;
    return found ? *found + length + 1 : NULL;
}

bool vlci_env_has_thread_count(vlc_context *context, const char *beginnings) {
    for (size_t i = 0; i < sizeof thread_counts / sizeof *thread_counts; i++)
        if (begins_with_one_of(thread_counts[i], beginnings) && vlci_getenv(thread_counts[i], context))
            return true;
    return false;
}

bool vlci_context_env(vlc_context *context, const char *name, char *value, size_t capacity) {
    const char *found = vlci_getenv(name, context);
    if (!found || strlen(found) >= capacity) return false;
    strcpy(value, found);
    return true;
}

int vlci_setenv(const char *name, const char *value, int overwrite, vlc_context *context) {
    if (!name || !*name || strchr(name, '=')) {
        errno = EINVAL;
        return -1;
    }
    size_t length = strlen(name);
    VLCI_HOLD(&context->env_lock);
    char **old = find(context->environment, name, length);
    if (old && (!overwrite || !strcmp(*old + length + 1, value))) return 0;
    char *entry = vlci_heap_take(context, length + strlen(value) + 2, 16, false);
    if (!entry) return -1;
    memcpy(entry, name, length);
    entry[length] = '=';
    strcpy(entry + length + 1, value);
    return put(context, entry, true);
}

int vlci_unsetenv(const char *name, vlc_context *context) {
    if (!name || !*name || strchr(name, '=')) {
        errno = EINVAL;
        return -1;
    }
    VLCI_HOLD(&context->env_lock);
    take_out(context, name, strlen(name));
    return 0;
}

int vlci_putenv(char *entry, vlc_context *context) {
    if (!strchr(entry, '=')) return vlci_unsetenv(entry, context);
    VLCI_HOLD(&context->env_lock);
    return put(context, entry, true);
}

int vlci_clearenv(vlc_context *context) {
    VLCI_HOLD(&context->env_lock);
    context->environment = NULL;
    return 0;
}
