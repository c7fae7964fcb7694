#include "overrides/exit.h"

#include "context/context.h"

#include <stdlib.h>

struct vlci_exit {
    struct vlci_exit *next; /* newest first */
    union {
        void (*with_argument)(void *);
        void (*with_status)(int, void *); /* on_exit */
        void (*plain)(void);              /* atexit */
    } function;
    enum { EXIT_CXA, EXIT_ON_EXIT, EXIT_PLAIN } kind;
    void *argument;
    void *object_handle; /* of the library that registered it; NULL: the program */
};

struct vlci_atfork {
    struct vlci_atfork *next, *previous; /* in order of registration */
    void (*prepare)(void), (*parent)(void), (*child)(void);
};

static int add(vlc_context *context, struct vlci_exit handler) {
    struct vlci_exit *made = malloc(sizeof *made);
    if (!made) return -1;
    *made = handler;
    VLCI_HOLD(&context->exit_lock);
    made->next = context->exits;
    context->exits = made;
    return 0;
}

int vlci_cxa_atexit(void (*function)(void *), void *argument, void *object_handle, vlc_context *context) {
    return add(context, (struct vlci_exit){ .function.with_argument = function,
                                            .kind = EXIT_CXA,
                                            .argument = argument,
                                            .object_handle = object_handle });
}
int vlci_on_exit(void (*function)(int, void *), void *argument, vlc_context *context) {
    return add(context, (struct vlci_exit){
                            .function.with_status = function, .kind = EXIT_ON_EXIT, .argument = argument });
}
int vlci_atexit(void (*function)(void), vlc_context *context) {
    return add(context, (struct vlci_exit){ .function.plain = function, .kind = EXIT_PLAIN });
}

/* quick_exit runs nothing of a context: it ends the process at once, and its handlers would run on whatever
 * thread that is. They are accepted and never called. */
int vlci_cxa_at_quick_exit(void (*function)(void *), void *object_handle, vlc_context *context) {
    (void)function;
    (void)object_handle;
    (void)context;
    return 0;
}
int vlci_at_quick_exit(void (*function)(void), vlc_context *context) {
    (void)function;
    (void)context;
    return 0;
}

/* The newest handler of the library (of any where `all`), taken off the list. */
static struct vlci_exit *take(vlc_context *context, const void *object_handle, bool all) {
    VLCI_HOLD(&context->exit_lock);
    for (struct vlci_exit **link = &context->exits, *exit; (exit = *link); link = &exit->next) {
        if (!all && exit->object_handle != object_handle) continue;
        *link = exit->next;
        return exit;
    }
    return NULL;
}

static void run(vlc_context *context, const void *object_handle, bool all) {
    for (struct vlci_exit *exit; (exit = take(context, object_handle, all));) {
        struct vlci_exit handler = *exit;
        free(exit);
        if (handler.kind == EXIT_CXA) handler.function.with_argument(handler.argument);
        if (handler.kind == EXIT_ON_EXIT) handler.function.with_status(0, handler.argument);
        if (handler.kind == EXIT_PLAIN) handler.function.plain();
    }
}

/* Called by every library's own fini code with its handle. */
void vlci_cxa_finalize(void *object_handle, vlc_context *context) {
    run(context, object_handle, !object_handle);
}

void vlci_exit_run(vlc_context *context) { run(context, NULL, true); }

int vlci_register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                         void *object_handle, vlc_context *context) {
    (void)object_handle;
    struct vlci_atfork *made = malloc(sizeof *made);
    if (!made) return 12; /* ENOMEM, as an error number */
    VLCI_HOLD(&context->exit_lock);
    *made = (struct vlci_atfork){ NULL, context->forks_last, prepare, parent, child };
    if (context->forks_last)
        context->forks_last->next = made;
    else
        context->forks = made;
    context->forks_last = made;
    return 0;
}

int vlci_pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                        vlc_context *context) {
    return vlci_register_atfork(prepare, parent, child, NULL, context);
}

/* POSIX: `prepare` in reverse order of registration, the others in order. */
void vlci_atfork_run(vlc_context *context, enum vlci_fork when) {
    if (when == VLCI_FORK_PREPARE) {
        for (struct vlci_atfork *at = context->forks_last; at; at = at->previous)
            if (at->prepare) at->prepare();
        return;
    }
    for (struct vlci_atfork *at = context->forks; at; at = at->next) {
        void (*function)(void) = when == VLCI_FORK_PARENT ? at->parent : at->child;
        if (function) function();
    }
}

void vlci_exit_free(vlc_context *context) {
    for (struct vlci_exit *exit; (exit = context->exits);) {
        context->exits = exit->next;
        free(exit);
    }
    for (struct vlci_atfork *at; (at = context->forks);) {
        context->forks = at->next;
        free(at);
    }
    context->forks_last = NULL;
}
