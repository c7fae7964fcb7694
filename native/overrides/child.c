#include "overrides/child.h"

#include "context/cpu_list.h"
#include "context/os.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char library_name[] = "libvlcs_child.so";
static const char preload_name[] = "LD_PRELOAD=", cpus_name[] = VLCI_CHILD_CPUS "=";
static char preload[PATH_MAX]; /* "LD_PRELOAD=<path>" */

#define PRELOAD_PATH (preload + sizeof preload_name - 1)

/* Beside libvlcs.so; by an absolute path, since children may run in other folders. */
void vlci_child_start(void) {
    Dl_info self;
    char folder[PATH_MAX];
    if (!dladdr((void *)vlci_child_start, &self) || !self.dli_fname) return;
    const char *slash = strrchr(self.dli_fname, '/');
    int length = slash ? (int)(slash - self.dli_fname) : 0;
    if (snprintf(folder, sizeof folder, "%.*s", length ? length : 1, length ? self.dli_fname : ".") >=
        (int)sizeof folder)
        return;
    char *absolute = *folder == '/' ? strdup(folder) : realpath(folder, NULL);
    int written = absolute
                      ? snprintf(preload, sizeof preload, "%s%s/%s", preload_name, absolute, library_name)
                      : (int)sizeof preload;
    free(absolute);
    /* ld.so splits the list at colons and blanks, and complains in each child about what it cannot open */
    if (written >= (int)sizeof preload || strpbrk(PRELOAD_PATH, ": \t\n") || access(PRELOAD_PATH, R_OK))
        *preload = 0;
}

/* ---- the view ------------------------------------------------------------------------------------------ */

struct vlci_child_view *vlci_child_view_make(const cpu_set_t *cpus) {
    char list[VLCI_CPU_LIST_SIZE], online[VLCI_CPU_LIST_SIZE];
    size_t length = vlci_cpu_list_print(cpus, list, sizeof list);
    struct vlci_child_view *view = calloc(1, sizeof *view + sizeof cpus_name + length);
    if (!view) return NULL;
    view->cpus = *cpus;
    memcpy(view->variable, cpus_name, sizeof cpus_name - 1);
    memcpy(view->variable + sizeof cpus_name - 1, list, length + 1);
    cpu_set_t machine;
    view->whole = vlci_os_online_cpus(online, sizeof online) > 0 && vlci_cpu_list_parse(online, &machine) &&
                  CPU_EQUAL(&machine, cpus);
    return view;
}

void vlci_child_view_set(vlc_context *context, struct vlci_child_view *view) {
    for (struct vlci_child_view *at = context->child_views; at; at = at->older)
        if (CPU_EQUAL(&at->cpus, &view->cpus) && at->whole == view->whole) {
            free(view);
            atomic_store_explicit(&context->child_view, at, memory_order_release);
            return;
        }
    view->older = context->child_views;
    context->child_views = view;
    atomic_store_explicit(&context->child_view, view, memory_order_release);
}

void vlci_child_view_free(vlc_context *context) {
    for (struct vlci_child_view *view; (view = context->child_views);) {
        context->child_views = view->older;
        free(view);
    }
}

/* ---- the environment ----------------------------------------------------------------------------------- */

static bool begins_with(const char *text, const char *start) { return !strncmp(text, start, strlen(start)); }

static bool names_library(const char *list) {
    for (size_t length; *list; list += length + (list[length] != 0)) {
        length = strcspn(list, ": \t\n");
        if (length == strlen(PRELOAD_PATH) && !strncmp(list, PRELOAD_PATH, length)) return true;
    }
    return false;
}

size_t vlci_child_environment_plan(vlc_context *context, char *const *given,
                                   struct vlci_child_environment *plan) {
    const struct vlci_child_view *view = atomic_load_explicit(&context->child_view, memory_order_acquire);
    bool told = false; /* of another slice: this process is itself a child of a context */
    *plan = (struct vlci_child_environment){ .given = given };
    for (; given && given[plan->count]; plan->count++) {
        told |= begins_with(given[plan->count], cpus_name);
        if (!plan->preload && begins_with(given[plan->count], preload_name))
            plan->preload = given[plan->count];
    }
    if (!*preload || (view->whole && !told)) return 0;
    plan->variable = view->variable;
    const char *others = plan->preload ? plan->preload + sizeof preload_name - 1 : "";
    if (*others && !names_library(others)) /* behind them: sanitizers insist on being first */
        plan->preload_length = strlen(plan->preload) + 1 + strlen(PRELOAD_PATH) + 1;
    return (plan->count + 3) * sizeof(char *) + plan->preload_length;
}

char *const *vlci_child_environment_write(const struct vlci_child_environment *plan, void *memory) {
    if (!plan->variable) return plan->given;
    const char **list = memory;
    size_t kept = 0;
    for (size_t i = 0; i < plan->count && plan->given[i]; i++)
        if (!begins_with(plan->given[i], cpus_name) && plan->given[i] != plan->preload)
            list[kept++] = plan->given[i];
    const char *joined = plan->preload;
    if (plan->preload_length) {
        size_t length = strlen(plan->preload);
        char *words = (char *)(list + plan->count + 3);
        memcpy(words, plan->preload, length);
        words[length] = ':';
        memcpy(words + length + 1, PRELOAD_PATH, plan->preload_length - length - 1);
        joined = words;
    } else if (!joined || !joined[sizeof preload_name - 1]) {
        joined = preload;
    }
    list[kept++] = joined;
    list[kept++] = plan->variable;
    list[kept] = NULL;
    return (char *const *)list;
}
