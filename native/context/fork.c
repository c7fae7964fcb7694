/* fork(): the context whose thread forks lives on in the child; the others are dead there. */
#include "context/companion.h"
#include "context/context.h"
#include "context/wrap.h"
#include "loader/cache.h"
#include "loader/host.h"
#include "loader/key.h"
#include "loader/memory.h"
#include "loader/search.h"
#include "loader/stack.h"
#include "loader/thread.h"
#include "loader/tls.h"
#include "overrides/child.h"
#include "overrides/exit.h"

#include <pthread.h>

unsigned vlci_fork_count;

static sigset_t signals; /* of the thread that forks, which has the locks */

/* All locks of the loader, outer ones first, and those of the context that forks. */
static void locks(vlc_context *current, enum vlci_fork when) {
    vlci_lock_fork(&vlci_start_lock, when);
    vlci_lock_fork(&vlci_contexts_lock, when);
    if (current) { /* those under which memory is taken come before those of the heap */
        vlci_lock_fork(&current->pool_lock, when);
        vlci_lock_fork(&current->libc.time.lock, when); /* before the environment's: it asks for TZ */
        vlci_lock_fork(&current->libc.random.lock, when);
        vlci_lock_fork(&current->locale_lock, when);
        vlci_lock_fork(&current->env_lock, when);
        vlci_lock_fork(&current->exit_lock, when);
        vlci_lock_fork(&current->slice_lock, when);
        vlci_lock_fork(&current->leaving_lock, when);
        vlci_lock_fork(&current->joinable_lock, when);
        vlci_heap_fork(current, when);
    }
    vlci_wrap_fork(current, when);
    vlci_slice_fork(when);
    vlci_debugger_fork(when);
    vlci_shell_fork(when);
    vlci_signals_fork(when);
    vlci_host_fork(when);
    vlci_search_fork(when);
    vlci_cache_fork(when);
    vlci_companion_fork(current, when);
    vlci_stack_fork(when);
    vlci_range_fork(when);
    vlci_thread_fork(when);
    vlci_memory_fork(when);
}

static void prepare(void) {
    vlc_context *current = vlci_context_current();
    if (current) {
        /* before its handlers: OpenBLAS ends its threads there, and a resize would have it make them again */
        vlci_lock_fork(&current->resize_lock, VLCI_FORK_PREPARE);
        vlci_atfork_run(current, VLCI_FORK_PREPARE);
        pthread_mutex_lock(&current->load_lock);
        pthread_mutex_lock(&current->images_lock);
    }
    sigset_t before; /* a handler may come here for a lock, and fork() itself lets those run that wait */
    vlci_os_signals_block(&before);
    locks(current, VLCI_FORK_PREPARE);
    signals = before;
}

static void parent(void) {
    vlc_context *current = vlci_context_current();
    sigset_t before = signals;
    locks(current, VLCI_FORK_PARENT);
    vlci_os_signals_restore(&before);
    if (!current) return;
    pthread_mutex_unlock(&current->images_lock);
    pthread_mutex_unlock(&current->load_lock);
    vlci_atfork_run(current, VLCI_FORK_PARENT);
    vlci_lock_fork(&current->resize_lock, VLCI_FORK_PARENT);
}

static int visits_of_this_thread(const vlc_context *context) {
    int count = 0;
    const struct vlci_thread *thread = vlci_thread_current;
    for (const struct vlci_visit *visit = thread->visit; visit != &thread->base; visit = visit->outer)
        count += visit->context == context;
    return count;
}

static void child(void) {
    vlc_context *current = vlci_context_current();
    locks(current, VLCI_FORK_CHILD);
    vlci_fork_count++;
    for (vlc_context *at = vlci_contexts, *next; at; at = next) {
        next = at->next;
        at->next = at->previous = NULL;
        if (at == current) continue;
        atomic_store(&at->state, VLCI_DEAD);
        vlci_signals_drop(at);
        if (vlci_visit_is_inside(at)) continue; /* code of it goes on when this thread returns there */
        vlci_key_drop_context(at);
        vlci_tls_drop_context(at);
    }
    vlci_contexts = current;
    if (!current) {
        vlci_os_signals_restore(&signals);
        return;
    }
    vlci_lock_fork(&current->resize_lock, VLCI_FORK_CHILD);
    vlci_context_locks_init(current); /* their owner is a thread id, and this thread has another now */
    atomic_store(&current->threads, vlci_thread_current->owner == current);
    atomic_store(&current->visits, visits_of_this_thread(current));
    current->pool = NULL; /* its threads stayed behind; the next submit makes new ones */
    current->leaving = NULL;
    current->joinable = NULL;
    vlci_stacks_forget(current);
    vlci_os_signals_restore(&signals);
    vlci_atfork_run(current, VLCI_FORK_CHILD);
}

void vlci_fork_start(void) { pthread_atfork(prepare, parent, child); }
