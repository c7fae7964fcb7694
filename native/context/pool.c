/* A context's own threads, for vlc_submit: made on first use, pinned, each with a queue of its own beside the
 * common one. */
#include "context/context.h"
#include "context/controller.h"
#include "context/policy.h"
#include "loader/error.h"
#include "loader/thread.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct vlc_task {
    struct vlc_task *next;
    struct vlci_pool *pool;
    vlc_function function;
    void *argument, *result;
    int64_t due; /* of a task of a later list: when, by vlci_os_milliseconds() */
    bool awaited, done;
};

struct queue {
    struct vlc_task *first, **last;
};

struct vlci_pool {
    _Atomic(unsigned) references; /* the context's, and one for each task that will be waited for */
    vlc_context *context;         /* compared only: a task may be waited for after its context has ended */
    char *name;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    struct queue common;
    unsigned unfinished; /* tasks queued or running */
    unsigned fork_count; /* where it was made: its threads exist in that process only */
    bool stop;
    unsigned count;
    struct worker {
        struct vlci_pool *pool;
        pthread_t handle;
        struct queue own;
        struct vlc_task *later; /* in no order: they are few */
        bool made, joined;
    } workers[];
};

static void release(struct vlci_pool *pool) {
    if (atomic_fetch_sub(&pool->references, 1) != 1) return;
    pthread_mutex_destroy(&pool->lock);
    pthread_cond_destroy(&pool->work);
    pthread_cond_destroy(&pool->done);
    free(pool->name);
    free(pool);
}

static void queue_put(struct queue *queue, struct vlc_task *task) {
    task->next = NULL;
    *queue->last = task;
    queue->last = &task->next;
}

static struct vlc_task *queue_take(struct queue *queue) {
    struct vlc_task *task = queue->first;
    if (task && !(queue->first = task->next)) queue->last = &queue->first;
    return task;
}

/* The task of a later list that is due first. */
static struct vlc_task **first_due(struct worker *worker) {
    struct vlc_task **first = &worker->later;
    for (struct vlc_task **link = first; *link; link = &(*link)->next) {
        if ((*link)->due < (*first)->due) first = link;
    }
    return first;
}

/* It, where its time has come, as it has once the pool stops. */
static struct vlc_task *take_due(struct worker *worker) {
    struct vlc_task **first = first_due(worker), *task = *first;
    if (!task || (!worker->pool->stop && task->due > vlci_os_milliseconds())) return NULL;
    *first = task->next;
    return task;
}

static void wait_for_work(struct worker *worker) {
    struct vlci_pool *pool = worker->pool;
    struct timespec until;
    if (!worker->later) {
        pthread_cond_wait(&pool->work, &pool->lock);
        return;
    }
    vlci_os_until((*first_due(worker))->due, &until);
    pthread_cond_timedwait(&pool->work, &pool->lock, &until);
}

static void *work(void *argument) {
    struct worker *worker = argument;
    struct vlci_pool *pool = worker->pool;
    char name[16];
    snprintf(name, sizeof name, "vlc:%s", pool->context->name);
    pthread_setname_np(pthread_self(), name);
    vlci_arch_float_restore(&vlci_arch_float_initial); /* not that of whoever submitted first */
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        struct vlc_task *task = queue_take(&worker->own);
        if (!task) task = queue_take(&pool->common);
        if (!task) task = take_due(worker);
        if (!task) {
            if (pool->stop) break;
            wait_for_work(worker);
            continue;
        }
        pthread_mutex_unlock(&pool->lock);
        vlci_policy_follow(pool->context);
        if (vlci_controllers_are_new(pool->context)) vlci_controllers_follow(pool->context);
        task->result = task->function(task->argument);
        if (pool->fork_count != vlci_fork_count)
            return NULL; /* it forked: the process ends with this thread */
        pthread_mutex_lock(&pool->lock);
        pool->unfinished--;
        task->done = true;
        if (!task->awaited) free(task);
        pthread_cond_broadcast(&pool->done);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static struct vlci_pool *pool_make(vlc_context *context) {
    unsigned count = context->pool_threads;
    struct vlci_pool *pool = calloc(1, sizeof *pool + count * sizeof *pool->workers);
    if (!pool || !(pool->name = strdup(context->name))) {
        free(pool);
        return NULL;
    }
    atomic_store(&pool->references, 1);
    pool->context = context;
    pool->fork_count = vlci_fork_count;
    pool->count = count;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->done, NULL);
    pool->common.last = &pool->common.first;
    for (unsigned i = 0; i < count; i++) {
        pool->workers[i].pool = pool;
        pool->workers[i].own.last = &pool->workers[i].own.first;
    }
    return pool;
}

/* Makes the threads that are missing. */
static int pool_start(struct vlci_pool *pool, vlc_error *error) {
    for (unsigned i = 0; i < pool->count; i++) {
        struct worker *worker = &pool->workers[i];
        if (worker->made) continue;
        int failed = vlci_thread_create(pool->context, &worker->handle, NULL, work, worker);
        if (failed)
            return vlci_fail(error, VLC_SYSTEM, failed, pool->context->name,
                             "cannot make thread %u of %u for context '%s': %s; see `ulimit -u`, `ulimit -v` "
                             "and the cgroup's pids.max",
                             i + 1, pool->count, pool->context->name, strerror(failed));
        worker->made = true;
    }
    return VLC_OK;
}

static int submit(vlc_context *context, int thread, uint32_t delay, vlc_function function, void *argument,
                  vlc_task **task, vlc_error *error) {
    if (!function)
        return vlci_fail(error, VLC_BAD_ARGUMENT, 0, context->name,
                         "cannot submit NULL to context '%s'; give a function", context->name);
    if (thread >= (int)context->pool_threads)
        return vlci_fail(error, VLC_BAD_ARGUMENT, 0, context->name,
                         "cannot submit to thread %d of context '%s': it has %u, numbered from 0", thread,
                         context->name, context->pool_threads);
    struct vlc_task *made = calloc(1, sizeof *made);
    if (!made)
        return vlci_fail(error, VLC_SYSTEM, ENOMEM, context->name,
                         "cannot submit to context '%s': out of memory", context->name);
    *made = (struct vlc_task){ .function = function, .argument = argument, .awaited = task != NULL };
    VLCI_HOLD(&context->pool_lock);
    int status = vlci_context_check_open(context, error);
    if (!status && !context->pool && !(context->pool = pool_make(context)))
        status = vlci_fail(error, VLC_SYSTEM, ENOMEM, context->name,
                           "cannot submit to context '%s': out of memory", context->name);
    if (!status) status = pool_start(context->pool, error);
    if (status) {
        free(made);
        return status;
    }
    struct vlci_pool *pool = made->pool = context->pool;
    if (task) atomic_fetch_add(&pool->references, 1);
    pthread_mutex_lock(&pool->lock);
    if (delay) {
        made->due = vlci_os_milliseconds() + delay;
        made->next = pool->workers[thread].later;
        pool->workers[thread].later = made;
    } else {
        queue_put(thread < 0 ? &pool->common : &pool->workers[thread].own, made);
    }
    pool->unfinished++;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    if (task) *task = made;
    return VLC_OK;
}

int vlc_submit(vlc_context *context, vlc_function function, void *argument, vlc_task **task,
               vlc_error *error) {
    return submit(context, -1, 0, function, argument, task, error);
}

int vlc_submit_on(vlc_context *context, uint32_t thread, vlc_function function, void *argument,
                  vlc_task **task, vlc_error *error) {
    return submit(context, thread > INT32_MAX ? INT32_MAX : (int)thread, 0, function, argument, task, error);
}

int vlc_submit_after(vlc_context *context, uint32_t thread, uint32_t milliseconds, vlc_function function,
                     void *argument, vlc_error *error) {
    return submit(context, thread > INT32_MAX ? INT32_MAX : (int)thread, milliseconds, function, argument,
                  NULL, error);
}

int vlc_wait(vlc_task *task, void **result, vlc_error *error) {
    struct vlci_pool *pool = task->pool;
    if (pool->fork_count != vlci_fork_count)
        return vlci_fail(error, VLC_MISUSE, 0, pool->name,
                         "cannot wait for a task of context '%s': it was submitted before this process was "
                         "forked, and runs in the parent",
                         pool->name);
    const struct vlci_thread *self = vlci_thread_current;
    if (self && self->owner == pool->context && self->start == (void *)work)
        return vlci_fail(
            error, VLC_MISUSE, 0, pool->name,
            "cannot wait for a task of context '%s' on a thread of its own pool: it would wait for itself",
            pool->name);
    pthread_mutex_lock(&pool->lock);
    while (!task->done) pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    if (result) *result = task->result;
    free(task);
    release(pool);
    return VLC_OK;
}

static bool join_until(vlc_context *context, pthread_t handle, int64_t deadline) {
    struct timespec until;
    vlci_os_until(deadline, &until);
    return vlci_thread_joined(context, handle, pthread_timedjoin_np(handle, NULL, &until)) == 0;
}

int vlci_pool_stop(vlc_context *context, int64_t deadline, vlc_error *error) {
    vlci_lock_take(
        &context->pool_lock); /* whoever submits has seen the context open: then its pool is here */
    struct vlci_pool *pool = context->pool;
    vlci_lock_drop(&context->pool_lock);
    if (!pool) return VLC_OK;
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->work);
    unsigned unfinished = pool->unfinished;
    pthread_mutex_unlock(&pool->lock);
    for (unsigned i = 0; i < pool->count; i++) {
        struct worker *worker = &pool->workers[i];
        if (!worker->made || worker->joined) continue;
        if (!join_until(context, worker->handle, deadline))
            return vlci_fail(error, VLC_BUSY, 0, context->name,
                             "cannot close context '%s' yet: %u of its tasks did not end in time; wait for "
                             "them, or close with a "
                             "longer timeout",
                             context->name, unfinished);
        worker->joined = true;
    }
    return VLC_OK;
}

bool vlci_pool_is_busy(vlc_context *context) {
    VLCI_HOLD(&context->pool_lock);
    struct vlci_pool *pool = context->pool;
    if (!pool) return false;
    const struct vlci_thread *self = vlci_thread_current;
    unsigned own = self && self->owner == context && self->start == (void *)work;
    pthread_mutex_lock(&pool->lock);
    bool busy = pool->unfinished > own;
    pthread_mutex_unlock(&pool->lock);
    return busy;
}

void vlci_pool_free(vlc_context *context) {
    if (context->pool) release(context->pool);
    context->pool = NULL;
}
