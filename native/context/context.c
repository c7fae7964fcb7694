#include "context/context.h"

#include "context/companion.h"
#include "context/controller.h"
#include "context/evict.h"
#include "context/policy.h"
#include "context/wrap.h"
#include "loader/cache.h"
#include "loader/error.h"
#include "loader/host.h"
#include "loader/key.h"
#include "loader/memory.h"
#include "loader/open.h"
#include "loader/slots.h"
#include "loader/stack.h"
#include "loader/thread.h"
#include "loader/thunks.h"
#include "loader/tls.h"
#include "overrides/child.h"
#include "overrides/exit.h"
#include "overrides/table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

vlci_lock vlci_contexts_lock;
vlc_context *vlci_contexts; /* not yet destroyed, newest first */
static unsigned last_number;

/* A thread that has ended for us; the kernel may still run its last instructions, on its stack. */
struct vlci_leaving {
    struct vlci_leaving *next;
    pid_t tid;
};

uint32_t vlc_abi_version(void) { return VLC_ABI_VERSION; }
const char *vlc_name(vlc_context *context) { return context->name; }

unsigned vlci_context_count(void) {
    VLCI_HOLD(&vlci_contexts_lock);
    unsigned count = 0;
    for (const vlc_context *at = vlci_contexts; at; at = at->next)
        count += atomic_load(&at->state) == VLCI_OPEN;
    return count;
}

/* ---- counting ------------------------------------------------------------------------------------------ */

bool vlci_context_visit_begins(vlc_context *context) {
    atomic_fetch_add(&context->visits, 1);
    if (atomic_load(&context->state) == VLCI_OPEN) return true;
    vlci_context_visit_ended(context);
    return false;
}

void vlci_context_visit_ended(vlc_context *context) {
    bool open = atomic_load(&context->state) == VLCI_OPEN;
    if (atomic_fetch_sub(&context->visits, 1) == 1 && !open)
        vlci_os_wake_word(&context->visits); /* by address only: the context may be gone by now */
}

bool vlci_context_thread_begins(vlc_context *context) {
    atomic_fetch_add(&context->threads, 1);
    int state = atomic_load(&context->state);
    if (state == VLCI_OPEN || state == VLCI_CLOSING) return true;
    vlci_context_thread_ended(context, 0);
    return false;
}

static void leaving_prune(vlc_context *context) {
    for (struct vlci_leaving **link = &context->leaving, *leaving; (leaving = *link);) {
        if (vlci_os_thread_exists(leaving->tid)) {
            link = &leaving->next;
            continue;
        }
        *link = leaving->next;
        vlci_memory_give(leaving, sizeof *leaving);
    }
}

void vlci_context_thread_ended(vlc_context *context, pid_t tid) {
    struct vlci_leaving *leaving = tid ? vlci_memory_take(sizeof *leaving) : NULL;
    if (leaving) {
        VLCI_HOLD(&context->leaving_lock);
        leaving_prune(context);
        leaving->tid = tid;
        leaving->next = context->leaving;
        context->leaving = leaving;
    }
    atomic_fetch_sub(&context->threads, 1);
    vlci_os_wake_word(&context->threads); /* by address only: the context may be gone after the line above */
}

static size_t mappings_lowered; /* by VLCS_MAX_MAPPINGS; 0: not */

size_t vlci_context_mappings_max(void) {
    size_t most = vlci_os_mappings_max();
    return mappings_lowered && (!most || mappings_lowered < most) ? mappings_lowered : most;
}

/* Mappings are counted by reading a file of a line each, so only now and then. */
int vlci_context_check_mappings(vlc_context *context, bool is_new, vlc_error *error) {
    static _Atomic(size_t) counted, loads_since, most;
    size_t since = atomic_fetch_add(&loads_since, 1);
    if (!counted || since >= 64 || counted + since * 8 > most / 10 * 8) {
        most = vlci_context_mappings_max();
        counted = vlci_os_mappings();
        loads_since = 0;
    }
    /* What is between the two, 3,276 by default, is for what contexts load that have begun: PyTorch makes 470. */
    if (!most || counted <= most / 20 * (is_new ? 18 : 19)) return VLC_OK;
    return vlci_fail(error, VLC_LIMIT, 0, context->name,
                     "cannot %s context '%s': the process has %zu kernel mappings, near its limit of %zu, "
                     "with %u contexts open; close contexts, or raise vm.max_map_count (sysctl)",
                     is_new ? "create" : "load more into", context->name, (size_t)counted, (size_t)most,
                     vlci_context_count());
}

int vlci_context_check_open(vlc_context *context, vlc_error *error) {
    switch (atomic_load(&context->state)) {
    case VLCI_OPEN: return VLC_OK;
    case VLCI_DEAD:
        return vlci_fail(error, VLC_MISUSE, 0, context->name,
                         "context '%s' does not exist in this child of fork(): only the context that forked "
                         "lives here; make a new "
                         "one in the child",
                         context->name);
    default:
        return vlci_fail(error, VLC_MISUSE, 0, context->name, "context '%s' is closed; make a new one",
                         context->name);
    }
}

/* ---- creation ------------------------------------------------------------------------------------------ */

void vlci_fork_start(void); /* fork.c */

/* The lock is held. */
static void unlink_context(vlc_context *context) {
    if (!context->listed) return;
    if (context->next) context->next->previous = context->previous;
    if (context->previous)
        context->previous->next = context->next;
    else
        vlci_contexts = context->next;
    context->next = context->previous = NULL;
    context->listed = false;
}

/* The newest open context, taken off the list and closed to others; NULL: there is none left. */
static vlc_context *take_open(void) {
    VLCI_HOLD(&vlci_contexts_lock);
    for (vlc_context *context = vlci_contexts; context; context = context->next) {
        int expected = VLCI_OPEN;
        if (!atomic_compare_exchange_strong(&context->state, &expected, VLCI_CLOSING)) continue;
        unlink_context(context);
        return context;
    }
    return NULL;
}

/* At exit(), contexts that are still open end as programs do: handlers and destructors run, memory stays. Not
 * those at work: destructors under running code (PyTorch's, while its interpreter was finalised) were a crash. */
static void *exit_inside(void *context) {
    vlci_thread_exits_run(context);
    vlci_open_finalise(context);
    return NULL;
}

/* Tasks and calls that have not ended: a library that computes, an interpreter whose end takes too long. */
static bool is_at_work(vlc_context *context) {
    return vlci_pool_is_busy(context) || atomic_load(&context->visits) > vlci_visit_is_inside(context);
}

static void exit_all(void) {
    for (vlc_context *context; (context = take_open());)
        if (!is_at_work(context)) vlci_run_inside(context, exit_inside, context, NULL);
}

vlci_lock vlci_start_lock;

int vlci_context_start(vlc_error *error) {
    static bool started;
    VLCI_HOLD(&vlci_start_lock);
    if (started) {
        vlci_slots_start(); /* again, where memory or descriptors had run out */
        return VLC_OK;
    }
    int status = vlci_host_start(error);
    if (status) return status;
    if ((status = vlci_thread_start(error))) return status;
    const char *lowered = getenv("VLCS_MAX_MAPPINGS");
    mappings_lowered = lowered ? strtoul(lowered, NULL, 10) : 0;
    vlci_override_start();
    vlci_tls_start();
    vlci_fork_start();
    vlci_child_start();
    atexit(exit_all);
    started = true;
    return VLC_OK;
}

void vlci_list_free(char **list) {
    for (char **at = list; at && *at; at++) free(*at);
    free(list);
}

char **vlci_list_copy(const char *const *list) {
    size_t count = 0;
    while (list && list[count]) count++;
    char **copy = calloc(count + 1, sizeof *copy);
    for (size_t i = 0; copy && i < count; i++)
        if (!(copy[i] = strdup(list[i]))) {
            vlci_list_free(copy);
            return NULL;
        }
    return copy;
}

static void context_free(vlc_context *context) {
    vlci_wrap_forget(context);
    vlci_open_unload(context);
    vlci_controllers_free(context);
    vlci_companions_free(context);
    vlci_slots_free(context);
    vlci_thunks_free(context);
    vlci_locale_free(context);
    vlci_exit_free(context);
    vlci_time_free(&context->libc.time);
    vlci_text_free(&context->libc.text);
    vlci_pool_free(context);
    vlci_child_view_free(context);
    vlci_heap_free(context);
    vlci_zones_give(&context->zones);
    vlci_policy_free(context);
    for (struct vlci_leaving *leaving; (leaving = context->leaving);) {
        context->leaving = leaving->next;
        vlci_memory_give(leaving, sizeof *leaving);
    }
    pthread_mutex_destroy(&context->load_lock);
    pthread_mutex_destroy(&context->images_lock);
    vlci_list_free(context->share);
    vlci_quality_free(&context->quality);
    free(context->name);
    free(context);
}

/* A closed context that cannot go yet has given its name up. */
static bool is_taken(const char *name) {
    for (vlc_context *at = vlci_contexts; at; at = at->next)
        if (atomic_load(&at->state) == VLCI_OPEN && !strcmp(at->name, name)) return true;
    return false;
}

static bool is_to_be_resident(uint32_t residence) {
    return residence == VLC_RESIDENT_ALWAYS ||
           (residence == VLC_RESIDENT_WHEN_NEEDED && vlci_slots_are_low());
}

static int enlist(vlc_context *context, const vlc_spec *spec, vlc_error *error) {
    bool given = spec->name != NULL;
    VLCI_HOLD(&vlci_contexts_lock);
    while (!given && is_taken(context->name)) /* made names have room for any number */
        sprintf(context->name, "vlc-%u", context->number = ++last_number);
    if (is_taken(context->name))
        return vlci_fail(
            error, VLC_BAD_ARGUMENT, 0, context->name,
            "cannot create context '%s': an open context has that name; choose another, or close it first",
            context->name);
    if (is_to_be_resident(spec->residence) && !vlci_slots_make(context))
        return vlci_fail(error, VLC_SYSTEM, ENOMEM, context->name,
                         "cannot create context '%s': out of memory", context->name);
    if ((context->next = vlci_contexts)) context->next->previous = context;
    vlci_contexts = context;
    context->listed = true;
    return VLC_OK;
}

static void delist(vlc_context *context) {
    VLCI_HOLD(&vlci_contexts_lock);
    unlink_context(context);
}

void vlci_context_locks_init(vlc_context *context) {
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&context->load_lock, &recursive);
    pthread_mutex_init(&context->images_lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
}

static int context_make(vlc_context *context, const vlc_spec *spec, vlc_error *error) {
    vlci_context_locks_init(context);
    vlci_lock_take(&vlci_contexts_lock);
    context->number = ++last_number;
    vlci_lock_drop(&vlci_contexts_lock);
    char made[sizeof "vlc-4294967295"] = { 0 };
    snprintf(made, sizeof made, "vlc-%u", context->number);
    context->name = spec->name ? strdup(spec->name) : calloc(1, sizeof made);
    if (context->name && !spec->name) strcpy(context->name, made);
    context->share = vlci_list_copy(spec->share);
    context->pool_threads = spec->threads ? spec->threads : 1;
    context->heap.is_hosts = spec->heap == VLC_HEAP_HOST;
    atomic_store(&context->heap.budget.limit, spec->memory_limit);
    context->huge_pages = spec->huge_pages;
    vlci_random_make(&context->libc.random);
    vlci_time_make(&context->libc.time);
    vlci_getopt_make(&context->libc.getopt);
    if (!vlci_quality_make(&context->quality, spec) || !context->name || !context->share)
        return vlci_fail(error, VLC_SYSTEM, ENOMEM, spec->name, "cannot create context '%s': out of memory",
                         spec->name ? spec->name : made);
    struct vlci_policy *policy = NULL;
    int status = vlci_memory_limit_check(context->name, spec->memory_limit, error);
    if (!status) status = vlci_slice_check(context->name, spec->cpus, spec->cpu_count, &context->cpus, error);
    if (!status)
        status = vlci_policy_make(context->name, spec->memory, spec->nodes, spec->node_count, &context->cpus,
                                  &policy, error);
    vlci_policy_publish(context, policy);
    struct vlci_child_view *view = status ? NULL : vlci_child_view_make(&context->cpus);
    if (view)
        vlci_child_view_set(context, view);
    else if (!status)
        return vlci_fail(error, VLC_SYSTEM, ENOMEM, context->name,
                         "cannot create context '%s': out of memory", context->name);
    if (!status) status = vlci_context_check_mappings(context, true, error);
    if (!status) status = vlci_thunks_make(context, error);
    if (!status) status = vlci_env_make(context, spec->env, error);
    if (!status && !vlci_locale_make(context))
        status = vlci_fail(error, VLC_SYSTEM, errno, context->name,
                           "cannot create context '%s': no locale could be made", context->name);
    if (!status) status = enlist(context, spec, error);
    if (status || !context->slots) return status;
    if ((status = vlci_stack_start(&context->slots->offset, error))) delist(context);
    return status;
}

int vlc_create(const vlc_spec *spec, vlc_context **context, vlc_error *error) {
    static const vlc_spec standard = VLC_SPEC_INIT;
    vlc_spec mine = standard; /* a caller of an older header knows fewer members */
    if (spec) {
        if (spec->size < offsetof(vlc_spec, env) || spec->size > 4096)
            return vlci_fail(error, VLC_BAD_ARGUMENT, 0, "vlc_spec",
                             "the spec's size is %u; set it with VLC_SPEC_INIT", spec->size);
        memcpy(&mine, spec, spec->size < sizeof mine ? spec->size : sizeof mine);
    }
    if (mine.name && (!*mine.name || strlen(mine.name) > 200))
        return vlci_fail(error, VLC_BAD_ARGUMENT, 0, mine.name,
                         "cannot create a context: its name must have 1 to 200 bytes");
    if (mine.threads > 4096)
        return vlci_fail(error, VLC_BAD_ARGUMENT, 0, mine.name,
                         "cannot create a context with %u threads; 4,096 are the most", mine.threads);
    if (mine.residence > VLC_RESIDENT_ALWAYS)
        return vlci_fail(error, VLC_BAD_ARGUMENT, 0, mine.name,
                         "cannot create a context with residence %u; give a vlc_residence", mine.residence);
    if (mine.heap > VLC_HEAP_HOST)
        return vlci_fail(error, VLC_BAD_ARGUMENT, 0, mine.name,
                         "cannot create a context with heap %u; give VLC_HEAP_OWN or VLC_HEAP_HOST",
                         mine.heap);
    if (mine.huge_pages > VLC_HUGE_PAGES_NEVER)
        return vlci_fail(error, VLC_BAD_ARGUMENT, 0, mine.name,
                         "cannot create a context with huge pages %u; give a vlc_huge_pages",
                         mine.huge_pages);
    int status = vlci_quality_check(&mine, error);
    if (!status) status = vlci_context_start(error);
    if (status) return status;
    vlc_context *made = calloc(1, sizeof *made);
    if (!made)
        return vlci_fail(error, VLC_SYSTEM, ENOMEM, mine.name, "cannot create a context: out of memory");
    if ((status = context_make(made, &mine, error))) {
        context_free(made);
        return status;
    }
    vlci_debugger_add(made);
    *context = made;
    return VLC_OK;
}

/* ---- use ----------------------------------------------------------------------------------------------- */

struct loading {
    vlc_context *context;
    const char *file;
    int flags;
    struct vlci_image *image;
    vlc_error *error;
    int status;
};

static void *load_inside(void *argument) {
    struct loading *loading = argument;
    loading->status =
        vlci_open(loading->context, NULL, loading->file, loading->flags, &loading->image, loading->error);
    return NULL;
}

int vlc_load(vlc_context *context, const char *file, int flags, vlc_library **library, vlc_error *error) {
    if (!file || !*file)
        return vlci_fail(error, VLC_BAD_ARGUMENT, 0, context->name,
                         "cannot load a library without a name into context '%s'", context->name);
    struct loading loading = { context, file, flags, NULL, error, VLC_OK };
    int status = vlc_run(context, load_inside, &loading, NULL, error);
    if (!status) status = loading.status;
    if (!status && library) *library = (vlc_library *)loading.image;
    return status;
}

struct finding {
    vlc_context *context;
    struct vlci_image *image;
    const char *name;
    void *address;
    bool found, is_code;
};

/* Constants lie beside the code where a linker knows no other segment for them (binutils before 2.31, gold). */
static bool is_datum(const struct vlci_image *image, const char *name) {
    const struct vlci_wanted wanted = { name, vlci_gnu_hash(name), NULL, true };
    const Elf64_Sym *symbol = vlci_dynamic_find(&image->dynamic, &wanted);
    return symbol && ELF64_ST_TYPE(symbol->st_info) == STT_OBJECT;
}

static void *find_inside(void *argument) {
    struct finding *finding = argument;
    vlci_thread_self(); /* so that static thread-local storage is set up for calls by address */
    pthread_mutex_lock(&finding->context->load_lock);
    finding->found =
        vlci_scope_find(finding->context, NULL, finding->image, finding->name, NULL, &finding->address);
    pthread_mutex_unlock(&finding->context->load_lock);
    const struct vlci_image *image = finding->found ? vlci_image_at(finding->address) : NULL;
    finding->is_code = image && vlci_image_covers(image, (uintptr_t)finding->address, 1, PF_X) &&
                       !is_datum(image, finding->name);
    return NULL;
}

int vlc_symbol(vlc_context *context, vlc_library *library, const char *name, void **address,
               vlc_error *error) {
    int status = vlci_context_check_open(context, error);
    if (status) return status;
    struct vlci_image *image = (struct vlci_image *)library;
    struct finding finding = { context, image, name, NULL, false, false };
    bool foreign = vlci_is_foreign(context);
    if (foreign) /* IFUNC resolvers are its code, and variables may be thread-local */
        status = vlci_hand_over(context, find_inside, &finding, NULL, error);
    else
        find_inside(&finding);
    if (status) return status;
    if (foreign && finding.is_code) return vlc_wrap(context, finding.address, address, error);
    if (finding.found) {
        *address = finding.address;
        return VLC_OK;
    }
    return vlci_fail(error, VLC_LOAD_FAILED, 0, name,
                     "cannot find the symbol '%s' in %s '%s'; see `nm -D` for what it defines", name,
                     image ? "library" : "context", image ? image->path : context->name);
}

vlc_context *vlc_context_of(const void *address) {
    if (!address) return vlci_context_current();
    struct vlci_region *region = vlci_region_at(address);
    return region ? region->context : NULL;
}

/* ---- end ----------------------------------------------------------------------------------------------- */

int64_t vlci_deadline(int timeout_ms) {
    return vlci_os_milliseconds() + (timeout_ms < 0 ? 5000 : timeout_ms);
}

void vlci_wait_zero(_Atomic(int) *count, int64_t deadline) {
    for (int now; (now = atomic_load(count)) > 0;) {
        int64_t left = deadline - vlci_os_milliseconds();
        if (left <= 0) return;
        vlci_os_wait_word(count, now, left > 50 ? 50 : (int)left);
    }
}

/* Calls the function of that name in every image that defines it; they may load more meanwhile. */
static void call_each(vlc_context *context, const char *name, int argument) {
    const struct vlci_wanted wanted = { name, vlci_gnu_hash(name), NULL, true };
    for (size_t i = 0;; i++) {
        struct vlci_image *image = vlci_open_image(context, i);
        if (!image) return;
        const Elf64_Sym *symbol = vlci_dynamic_find(&image->dynamic, &wanted);
        if (symbol) ((int (*)(int))(image->map.l_addr + symbol->st_value))(argument);
    }
}

/* Ends what a thread's own OpenMP pool holds: idle workers would run the library's code for ever. */
static void openmp_pause(vlc_context *context) {
    call_each(context, "omp_pause_resource_all", 2 /* omp_pause_hard */);
}

/* libstdc++ keeps a pool for throwing without memory until it is told (as valgrind does). */
static void freeres(vlc_context *context) { call_each(context, "_ZN9__gnu_cxx9__freeresEv", 0); }

struct blame {
    char words[400];
    size_t length;
    int count;
};

static void blame(struct vlci_thread *thread, void *argument) {
    struct blame *blame = argument;
    const struct vlci_image *image = vlci_image_at(thread->start);
    const char *path = image ? image->soname : "the pool";
    blame->count++;
    if (blame->length + strlen(path) + 20 < sizeof blame->words)
        blame->length +=
            (size_t)snprintf(blame->words + blame->length, sizeof blame->words - blame->length,
                             "%s%s (thread %d)", blame->length ? ", " : "", path, (int)thread->tid);
}

#define END_BY_THEMSELVES 20 /* ms for threads that were told to end, before they are evicted */
#define EVICT_AGAIN 10       /* ms; one that was about to wait, waits now */
#define EVICT_LEAST                                                                                          \
    200 /* ms; exit handlers may have taken all the time, or others the CPU: from the last end on */

static int wait_threads(vlc_context *context, int64_t deadline, vlc_error *error) {
    int64_t now = vlci_os_milliseconds();
    if (deadline < now + EVICT_LEAST) deadline = now + EVICT_LEAST;
    vlci_wait_zero(&context->threads,
                   now + END_BY_THEMSELVES < deadline ? now + END_BY_THEMSELVES : deadline);
    for (int left; (left = atomic_load(&context->threads)) && (now = vlci_os_milliseconds()) < deadline;) {
        vlci_evict(context);
        vlci_wait_zero(&context->threads, now + EVICT_AGAIN < deadline ? now + EVICT_AGAIN : deadline);
        now = vlci_os_milliseconds();
        if (atomic_load(&context->threads) < left && deadline < now + EVICT_LEAST)
            deadline = now + EVICT_LEAST;
    }
    if (atomic_load(&context->threads)) {
        struct blame who = { "", 0, 0 };
        vlci_thread_each(context, blame, &who);
        return vlci_fail(error, VLC_BUSY, 0, context->name,
                         "context '%s' is closed, but %d of its threads did not end in time, so its memory "
                         "stays: made by %s",
                         context->name, atomic_load(&context->threads), who.words);
    }
    for (;;) {
        vlci_lock_take(&context->leaving_lock);
        leaving_prune(context);
        bool left = context->leaving != NULL;
        vlci_lock_drop(&context->leaving_lock);
        if (!left || vlci_os_milliseconds() > deadline + 1000)
            return VLC_OK; /* a number that was given anew */
        sched_yield();
    }
}

static void *finalise_inside(void *argument) {
    vlc_context *context = argument;
    openmp_pause(context);
    vlci_thread_exits_run(context);
    vlci_open_finalise(context);
    freeres(context);
    return NULL;
}

static int finalise(vlc_context *context, int64_t deadline, vlc_error *error) {
    int status = vlci_pool_stop(context, deadline, error);
    if (status) return status;
    vlci_wait_zero(&context->visits, deadline);
    if (atomic_load(&context->visits))
        return vlci_fail(error, VLC_BUSY, 0, context->name,
                         "cannot close context '%s' yet: %d calls are still inside it; let them return, or "
                         "close with a longer timeout",
                         context->name, atomic_load(&context->visits));
    atomic_store(&context->told, 0); /* who enters from now on has nothing to follow */
    if ((status = vlci_run_inside(context, finalise_inside, context, error))) return status;
    vlci_thread_exits_drop(context);
    vlci_key_drop_context(context);
    vlci_companions_end(context);
    vlci_signals_drop(context);
    atomic_store(&context->state, VLCI_ZOMBIE);
    return VLC_OK;
}

int vlc_destroy(vlc_context *context, int timeout_ms, vlc_error *error) {
    if (vlci_visit_is_inside(context))
        return vlci_fail(
            error, VLC_MISUSE, 0, context->name,
            "cannot close context '%s' from inside: this thread runs in it; close it from outside",
            context->name);
    if (vlci_context_is_dead(context)) return vlci_context_check_open(context, error);
    int64_t deadline = vlci_deadline(timeout_ms);
    int expected = VLCI_OPEN;
    atomic_compare_exchange_strong(&context->state, &expected, VLCI_CLOSING);
    atomic_store(&context->heap.budget.limit, 0); /* its end must not fail for want of what it gives back */
    if (atomic_exchange(&context->destroying, 1))
        return vlci_fail(error, VLC_MISUSE, 0, context->name,
                         "context '%s' is being closed by another thread", context->name);
    int status = atomic_load(&context->state) == VLCI_ZOMBIE ? VLC_OK : finalise(context, deadline, error);
    if (!status) status = wait_threads(context, deadline, error);
    if (status) {
        atomic_store(&context->destroying, 0);
        return status;
    }
    vlci_thread_join_rest(context);
    delist(context);
    vlci_debugger_remove(context);
    context_free(context);
    return VLC_OK;
}
