/* What a program inherits that is started inside a context: the context's environment, and its view of the
 * CPUs, by a small library that ld.so preloads into it (native/child) and a variable that tells the slice. */
#ifndef VLCI_CHILD_H
#define VLCI_CHILD_H

#include "context/context.h"

#include <spawn.h>

#define VLCI_CHILD_CPUS "VLCS_CHILD_CPUS"

/* Once, before the first context: finds the library to be preloaded. Without it children see the machine. */
void vlci_child_start(void);

/* The view of a slice. Those of earlier slices stay: a child of vfork may be reading them. */
struct vlci_child_view {
    struct vlci_child_view *older;
    cpu_set_t cpus;
    bool whole;      /* the slice is all that is online: a program sees that by itself */
    char variable[]; /* "VLCS_CHILD_CPUS=0-3" */
};
struct vlci_child_view *vlci_child_view_make(const cpu_set_t *cpus);          /* NULL: out of memory */
void vlci_child_view_set(vlc_context *context, struct vlci_child_view *view); /* taken; under slice_lock */
void vlci_child_view_free(vlc_context *context);

/* The environment for a child: `given`, with what tells the view. In two steps, so that the caller takes the
 * memory from its stack: async-signal-safe, and fit for a child of vfork. Other threads may change `given`
 * meanwhile, as with libc. */
struct vlci_child_environment {
    char *const *given;
    size_t count;          /* its entries */
    const char *preload;   /* its LD_PRELOAD=..., or NULL */
    const char *variable;  /* the view's; NULL: `given` is passed on as it is */
    size_t preload_length; /* bytes of the joined LD_PRELOAD=... with its NUL; 0: nothing to join */
};
size_t vlci_child_environment_plan(vlc_context *context, char *const *given,
                                   struct vlci_child_environment *plan); /* bytes for the next */
char *const *vlci_child_environment_write(const struct vlci_child_environment *plan, void *memory);

/* `VLCI_CHILD_ENVIRONMENT(name, context, given);` declares `name`, valid until the function returns. */
#define VLCI_CHILD_ENVIRONMENT(name, context, given)                                                         \
    struct vlci_child_environment name##_plan;                                                               \
    size_t name##_size = vlci_child_environment_plan((context), (given), &name##_plan);                      \
    char *const *name = vlci_child_environment_write(&name##_plan, __builtin_alloca(name##_size))

/* exec.c: starts `sh -c command` with the context's environment; 0 or an errno. */
int vlci_spawn_shell(pid_t *pid, const char *command, const posix_spawn_file_actions_t *actions,
                     const posix_spawnattr_t *attributes, vlc_context *context);

/* shell.c */
void vlci_shell_fork(enum vlci_fork when);

#endif
