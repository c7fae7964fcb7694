/* Most libraries size their pools once, when they load or first compute. A controller is how one of them is told
 * another number later: the functions by which its users do. Those that ask at each use (joblib, os.cpu_count) need none. */
#include "context/controller.h"

#include "loader/error.h"
#include "loader/image.h"
#include "loader/open.h"
#include "loader/thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum reach {
    AT_ONCE,     /* one number; any thread may change it while others compute */
    EACH_THREAD, /* a number for each thread, and in new ones that of the time when it was loaded */
    SPREADS,     /* the same, but new ones have what was set last */
};

struct controller {
    const char *library;
    enum reach reach;
    const char *get, *set;
    const char *variables; /* how the names begin of those that give it a number */
    const char *is_openmp; /* a function that gives 2 where it asks OpenMP for the number at each call */
    const char *drop; /* `set` makes an object of a number, which counts until `drop` is called with it */
    const char *most; /* gives the number that it cannot exceed any more */
};

/* A call reads the number once, and more threads are made under a lock: right in 8,000 resizes under four threads that
 * compute, with 0.3.21, 0.3.30 and 0.3.31. Where OpenMP makes its threads, the buffers of others would be freed. */
#define OPENBLAS(prefix, suffix)                                                                             \
    { "OpenBLAS",                                                                                            \
      AT_ONCE,                                                                                               \
      prefix "openblas_get_num_threads" suffix,                                                              \
      prefix "openblas_set_num_threads" suffix,                                                              \
      "OPENBLAS_ GOTO_ OMP_",                                                                                \
      prefix "openblas_get_parallel" suffix,                                                                 \
      NULL,                                                                                                  \
      NULL }

static const struct controller controllers[] = {
    { "OpenMP", EACH_THREAD, "omp_get_max_threads", "omp_set_num_threads", "OMP_ KMP_", NULL, NULL, NULL },
    OPENBLAS("", ""),
    OPENBLAS("", "64_"),
    OPENBLAS("", "_64"),
    OPENBLAS("scipy_", ""),
    OPENBLAS("scipy_", "64_"),
    OPENBLAS("scipy_", "_64"),
    { "MKL", AT_ONCE, "MKL_Get_Max_Threads", "MKL_Set_Num_Threads", "MKL_ OMP_", NULL, NULL, NULL },
    { "BLIS", SPREADS, "bli_thread_get_num_threads", "bli_thread_set_num_threads", "BLIS_ OMP_", NULL, NULL,
      NULL },
    /* at::get_num_threads() and so on: the number is OpenMP's, MKL's and that of its own pool */
    { "PyTorch", SPREADS, "_ZN2at15get_num_threadsEv", "_ZN2at15set_num_threadsEi", "OMP_ MKL_", NULL, NULL,
      NULL },
    /* tbb::global_control; an arena never gets more slots than it began with */
    { "oneTBB", AT_ONCE, "_ZN3tbb6detail2r127global_control_active_valueEi",
      "_ZN3tbb6detail2r16createERNS0_2d114global_controlE", "", NULL,
      "_ZN3tbb6detail2r17destroyERNS0_2d114global_controlE",
      "_ZN3tbb6detail2r115max_concurrencyEPKNS0_2d115task_arena_baseE" },
};

/* How large a slice is, for libraries that count CPUs and for those that count cores. */
struct size {
    unsigned cpus, cores;
};

/* As oneTBB's headers lay it out (d1::global_control, 2021 to 2022). */
struct tbb_control {
    size_t value;
    intptr_t reserved;
    int parameter; /* 0: max_allowed_parallelism */
};

struct vlci_controlled {
    struct vlci_controlled *_Atomic next;
    const struct controller *controller;
    struct controller given_one; /* by vlc_control, with a name of its own */
    const struct vlci_image *image;
    long (*get)(long unused); /* an int, or a long */
    void (*set)(long number);
    void (*change)(struct tbb_control *), (*drop)(struct tbb_control *);
    long (*most)(void *);
    int limit;                                /* more is never set; 0: none */
    struct tbb_control controls[2], *control; /* the one that counts, of these */
    _Atomic(struct size) born, given;
    _Atomic(bool) is_unsure; /* which slice it has seen: that has changed since it began */
    _Atomic(bool) is_own;    /* its number is somebody's: of a variable, or own_number */
    int own_number;          /* what a library with one number for all had, that was none of the slice's */
    cpu_set_t numbers[2];    /* all that the slice has had since, of CPUs and of cores */
    int number;
    uint32_t state; /* a vlc_pool_state */
};

/* ---- sizes --------------------------------------------------------------------------------------------- */

static struct size size_of(vlc_context *context) {
    cpu_set_t cpus, cores;
    vlci_context_cpus(context, &cpus);
    CPU_ZERO(&cores);
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &cpus)) CPU_SET(vlci_os_core(cpu), &cores);
    return (struct size){ (unsigned)CPU_COUNT(&cpus), (unsigned)CPU_COUNT(&cores) };
}

/* What a thread was told last, in a pointer: how often libraries had been told (24 bits), the size (11 and 11), and
 * of the libraries with a number for each thread, which have one of their own there (18). */
_Static_assert(VLCI_TOLD == ~((UINT64_C(1) << VLCI_CONTROLLED) - 1), "both name the same bits");

static uint64_t pack(unsigned tellings, struct size size) {
    return (uint64_t)(tellings & 0xffffff) << 40 | (uint64_t)size.cpus << 29 |
           (uint64_t)size.cores << VLCI_CONTROLLED;
}

static struct size unpack(uint64_t told) {
    return (struct size){ told >> 29 & 0x7ff, told >> VLCI_CONTROLLED & 0x7ff };
}

/* ---- finding ------------------------------------------------------------------------------------------- */

static void *function_of(const struct vlci_image *image, const char *name) {
    if (!name) return NULL;
    const struct vlci_wanted wanted = { name, vlci_gnu_hash(name), NULL, true };
    const Elf64_Sym *symbol = vlci_dynamic_find(&image->dynamic, &wanted);
    return symbol ? (void *)(image->map.l_addr + symbol->st_value) : NULL;
}

static bool is_listed(const struct vlci_controlled *at, const struct vlci_image *image) {
    while (at && at->image != image) at = at->next;
    return at;
}

static struct vlci_controlled *controlled_by(const struct controller *controller,
                                             const struct vlci_image *image) {
    void *get = function_of(image, controller->get), *set = get ? function_of(image, controller->set) : NULL;
    struct vlci_controlled *made = set ? calloc(1, sizeof *made) : NULL;
    if (!made) return NULL;
    made->controller = controller;
    made->image = image;
    made->get = (long (*)(long))get;
    made->set = (void (*)(long))set;
    made->drop = (void (*)(struct tbb_control *))function_of(image, controller->drop);
    if (made->drop) made->change = (void (*)(struct tbb_control *))set;
    made->most = (long (*)(void *))function_of(image, controller->most);
    return made;
}

/* Whether the library has a number of its own that is not to be changed, whatever it is. */
static void judge_at_first(vlc_context *context, struct vlci_controlled *library) {
    long (*is_openmp)(void) = (long (*)(void))function_of(library->image, library->controller->is_openmp);
    if (is_openmp && (int)is_openmp() == 2)
        library->state = VLC_POOL_ASKS;
    else if (library->controller->variables &&
             (library->is_own = vlci_env_has_thread_count(context, library->controller->variables)))
        library->state = VLC_POOL_HAS_OWN;
}

static void remember(struct vlci_controlled *library, struct size size) {
    CPU_SET(size.cpus, &library->numbers[0]);
    CPU_SET(size.cores, &library->numbers[1]);
}

static void begin(struct vlci_controlled *library, struct size size, bool is_unsure) {
    library->born = size;
    library->given = size;
    library->is_unsure = is_unsure;
    remember(library, size);
}

static struct vlci_controlled *_Atomic *end_of_list(vlc_context *context, size_t *count) {
    struct vlci_controlled *_Atomic *end = &context->controlled;
    for (*count = 0; *end; end = &(*end)->next) ++*count;
    return end;
}

bool vlci_controllers_find(vlc_context *context) {
    size_t count;
    struct vlci_controlled *_Atomic *end = end_of_list(context, &count);
    struct vlci_controlled *found = NULL;
    for (size_t i = 0; count < VLCI_CONTROLLED; i++) {
        const struct vlci_image *image = vlci_open_image(context, i);
        if (!image) break;
        if (!atomic_load(&image->is_ready) || is_listed(context->controlled, image)) continue;
        for (size_t row = 0; row < sizeof controllers / sizeof *controllers; row++) {
            if (count == VLCI_CONTROLLED || !(found = controlled_by(&controllers[row], image))) continue;
            begin(found, size_of(context), image->begun_at != atomic_load(&context->moves));
            atomic_store(end, found);
            end = &found->next;
            count++;
        }
    }
    if (count && !context->told_key && vlci_key_create(&context->told_key, NULL, context)) return false;
    return count > 0;
}

void vlci_controllers_free(vlc_context *context) {
    for (struct vlci_controlled *at = context->controlled, *next; at; at = next) {
        next = at->next;
        free((char *)at->given_one.library);
        free(at);
    }
}

int vlc_control(vlc_context *context, const char *library, int (*get)(void), void (*set)(int), uint32_t most,
                vlc_error *error) {
    const struct vlci_image *image = vlci_image_at((void *)get);
    if (!library || !*library || !image || vlc_context_of((void *)set) != context ||
        vlc_context_of((void *)get) != context || most > INT32_MAX)
        return vlci_fail(
            error, VLC_BAD_ARGUMENT, 0, library,
            "cannot take '%s' as a library of context '%s' that is told a number of threads: give a "
            "name, and two functions of one that it has loaded",
            library ? library : "", context->name);
    VLCI_HOLD(&context->resize_lock);
    vlci_controllers_find(context);
    size_t count;
    struct vlci_controlled *_Atomic *end = end_of_list(context, &count);
    for (struct vlci_controlled *at = context->controlled; at; at = at->next)
        if ((void *)at->set == (void *)set) return VLC_OK;
    struct vlci_controlled *made = calloc(1, sizeof *made);
    char *name = made ? strdup(library) : NULL;
    if (!name || count == VLCI_CONTROLLED) {
        free(name);
        free(made);
        return vlci_fail(
            error, VLC_LIMIT, 0, library,
            "cannot take '%s' as a library of context '%s' that is told a number of threads: there is "
            "no memory, or there are %d already",
            library, context->name, VLCI_CONTROLLED);
    }
    made->given_one = (struct controller){ .library = name, .reach = EACH_THREAD };
    made->controller = &made->given_one;
    made->image = image;
    made->get = (long (*)(long))(void *)get;
    made->set = (void (*)(long))(void *)set;
    made->limit = (int)most;
    begin(made, size_of(context), most); /* if it has that many, these are what its slice was */
    atomic_store(end, made);
    return VLC_OK;
}

/* ---- telling ------------------------------------------------------------------------------------------- */

static bool is_told(const struct vlci_controlled *library) { return library->state != VLC_POOL_ASKS; }

static int number_of(const struct vlci_controlled *library) { return (int)library->get(0); }

static void set(struct vlci_controlled *library, int number) {
    if (!library->change) {
        library->set(number);
        return;
    }
    struct tbb_control *old = library->control, *new = library->controls + (old == library->controls);
    *new = (struct tbb_control){ .value = (size_t)number };
    library->change(library->control = new); /* first, so that there is no moment without a limit */
    if (old) library->drop(old);
}

/* What takes the place of `number`, where that was a slice's: sizes[0] of cpus, and so on. 0: it was not. */
static int successor(int number, const struct size *sizes, size_t count, struct size now) {
    for (size_t i = 0; i < count; i++)
        if ((unsigned)number == sizes[i].cpus) return (int)now.cpus;
    for (size_t i = 0; i < count; i++)
        if ((unsigned)number == sizes[i].cores) return (int)now.cores;
    return 0;
}

/* Of a library with one number. True: that is the slice's, or is now. So is one that the slice had before: it comes back
 * where a limit ends that began then, as threadpoolctl's in KMeans.fit. */
static bool tell_at_once(struct vlci_controlled *library, int number, struct size now) {
    int wanted = 0;
    if (number != library->own_number && number > 0) {
        if (CPU_ISSET(number, &library->numbers[0]))
            wanted = (int)now.cpus;
        else if (CPU_ISSET(number, &library->numbers[1]))
            wanted = (int)now.cores;
    }
    library->own_number = wanted ? 0 : number;
    remember(library, now);
    if (wanted && wanted != number) set(library, wanted);
    return wanted;
}

/* True: it has, or has now, the slice's number for the calling thread; or the most that it can have. */
static bool tell(struct vlci_controlled *library, int number, struct size seen, struct size now) {
    struct size sizes[3] = { seen, library->born };
    size_t count = 2;
    if (library->controller->reach == SPREADS) sizes[count++] = library->given;
    int wanted = successor(number, sizes, count, now);
    if (library->limit && wanted > library->limit) wanted = library->limit;
    if (wanted && wanted != number) set(library, wanted);
    return wanted;
}

void vlci_controllers_look(vlc_context *context, struct vlci_numbers *numbers) {
    size_t i = 0;
    for (struct vlci_controlled *at = context->controlled; at; at = at->next, i++) {
        if (at->state == VLC_POOL_UNKNOWN) judge_at_first(context, at);
        numbers->of[i] = is_told(at) ? number_of(at) : 0;
        if (!at->is_unsure || !is_told(at)) continue;
        unsigned number = (unsigned)numbers->of[i];
        if (!at->limit || numbers->of[i] == at->limit) begin(at, (struct size){ number, number }, true);
        at->is_unsure = false;
    }
}

static void *own_bits(uint64_t told, uint64_t own) { return (void *)(uintptr_t)(told | own); }

/* For the calling thread. */
static void tell_thread(vlc_context *context, const struct vlci_numbers *before, uint64_t told) {
    uint64_t last = (uintptr_t)vlci_key_get(context->told_key), own = last & ~VLCI_TOLD;
    struct size now = unpack(told);
    size_t i = 0;
    for (struct vlci_controlled *at = context->controlled; at; at = at->next, i++) {
        uint64_t bit = UINT64_C(1) << i;
        if (at->controller->reach == AT_ONCE || at->is_own || own & bit) continue;
        if (before->of[i] <= 0 || at->is_unsure)
            continue; /* has none; was listed since: the next resize tells */
        if (!tell(at, before->of[i], last ? unpack(last) : at->born, now)) own |= bit;
    }
    vlci_key_set(context->told_key, own_bits(told, own));
}

/* What has come of it for the calling thread, which it was told for or not. */
static void note(struct vlci_controlled *library, struct size now, bool was_told, bool is_own) {
    int number = number_of(library), most = library->most ? (int)library->most(NULL) : number;
    bool took = (unsigned)number == now.cpus || (unsigned)number == now.cores;
    if (took) library->given = now;
    library->number = number < 0 ? 0 : number < most ? number : most;
    if (is_own || number <= 0) /* BLIS has none by itself, and computes on one thread then */
        library->state = VLC_POOL_HAS_OWN;
    else if (was_told && (!took || most < number))
        library->state = VLC_POOL_CANNOT;
    else
        library->state = library->controller->reach == AT_ONCE ? VLC_POOL_FOLLOWS : VLC_POOL_FOLLOWS_ENTRY;
}

void vlci_controllers_tell(vlc_context *context, const struct vlci_numbers *before, bool may_set) {
    struct size now = size_of(context);
    uint64_t told = pack(++context->tellings, now);
    size_t i = 0;
    for (struct vlci_controlled *at = context->controlled; at; at = at->next, i++)
        if (at->controller->reach == AT_ONCE && is_told(at) && (!at->is_own || at->own_number))
            at->is_own = !tell_at_once(at, before->of[i], now);
    if (may_set) tell_thread(context, before, told);
    uint64_t own = (uintptr_t)vlci_key_get(context->told_key) & ~VLCI_TOLD;
    i = 0;
    for (struct vlci_controlled *at = context->controlled; at; at = at->next, i++) {
        if (!is_told(at)) continue;
        bool is_at_once = at->controller->reach == AT_ONCE;
        note(at, now, is_at_once || may_set, at->is_own || (!is_at_once && own >> i & 1));
    }
    atomic_store(&context->told, told);
}

void vlci_controllers_follow(vlc_context *context) {
    int saved = errno;
    uint64_t told = atomic_load(&context->told);
    struct vlci_numbers numbers = { { 0 } };
    size_t i = 0;
    for (struct vlci_controlled *at = context->controlled; at; at = at->next, i++)
        if (at->controller->reach != AT_ONCE) numbers.of[i] = number_of(at);
    tell_thread(context, &numbers, told);
    errno = saved;
}

int vlc_follow(vlc_context *context, vlc_error *error) {
    if (vlci_context_current() != context)
        return vlci_fail(error, VLC_MISUSE, 0, context->name,
                         "cannot follow context '%s' on a thread that is not inside of it; enter it first",
                         context->name);
    if (vlci_controllers_are_new(context)) vlci_controllers_follow(context);
    return VLC_OK;
}

/* Not those that a library made for its pool: these ask nobody, and libgomp would take one for a master. */
void vlci_controllers_begin(vlc_context *context, const void *start) {
    if (!vlci_controllers_are_new(context)) return;
    if (!is_listed(context->controlled, vlci_image_at(start))) vlci_controllers_follow(context);
}

/* ---- what came of it ----------------------------------------------------------------------------------- */

/* Libraries with threads of their own that are not told: how many of them there are, with an interpreter's left out,
 * whose threads are the user's, and those of std::thread, which do not say who made them. */
struct strangers {
    const struct vlci_controlled *controlled;
    size_t count;
    struct {
        const struct vlci_image *image;
        unsigned threads;
    } of[16];
};

static void meet(struct vlci_thread *thread, void *argument) {
    struct strangers *strangers = argument;
    const struct vlci_image *image = vlci_image_at(thread->start);
    if (!image || is_listed(strangers->controlled, image)) return;
    size_t i = 0;
    while (i < strangers->count && strangers->of[i].image != image) i++;
    if (i == strangers->count) {
        bool is_left_out = function_of(image, "Py_Initialize") || function_of(image, "_ZNSt6thread4joinEv");
        if (is_left_out || i == sizeof strangers->of / sizeof *strangers->of) return;
        strangers->of[strangers->count++].image = image;
    }
    strangers->of[i].threads++;
}

int vlc_get_pool(vlc_context *context, size_t index, vlc_pool *pool) {
    VLCI_HOLD(&context->resize_lock);
    if (index == 0) vlci_controllers_find(context);
    const struct vlci_controlled *at = context->controlled;
    while (at && index) at = at->next, index--;
    vlc_pool found = { .size = pool->size };
    if (at) {
        found.state = at->state;
        found.threads = (uint32_t)at->number;
        found.library = at->controller->library;
        found.path = at->image->path;
    } else {
        struct strangers strangers = { .controlled = context->controlled };
        vlci_thread_each(context, meet, &strangers);
        if (index >= strangers.count) return 0;
        found.state = VLC_POOL_FIXED;
        found.threads = strangers.of[index].threads;
        found.library = strangers.of[index].image->soname;
        found.path = strangers.of[index].image->path;
    }
    memcpy(pool, &found, pool->size < sizeof found ? pool->size : sizeof found);
    return 1;
}
