/* The memory policy of a context: of its ranges, its threads and visitors; that it changes, and is given back. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "fixtures/memory.h"
#include "numa.h"

static uint32_t nodes[64];
static size_t node_count;

static int is_expected(int mode, int expected) {
    return mode == expected ||
           (expected == MODE_PREFERRED_MANY && mode == MODE_PREFERRED); /* before Linux 5.15 */
}

static void check_ranges(char *const *kinds, int expected, uint64_t on) {
    for (int kind = 0; kind < MEMORY_KINDS; kind++) {
        uint64_t has;
        int mode = mode_at(kinds[kind], &has);
        CHECK(is_expected(mode, expected), "memory of kind %d has policy %d, not %d", kind, mode, expected);
        CHECK(has == on, "memory of kind %d is for nodes %#llx, not %#llx", kind, (unsigned long long)has,
              (unsigned long long)on);
    }
}

static void *ask(void *unused) {
    (void)unused;
    return (void *)(intptr_t)thread_mode();
}

static int mode_of_pool(vlc_context *context) {
    vlc_task *task;
    void *mode;
    vlc_error error = VLC_ERROR_INIT;
    REQUIRE(vlc_submit(context, ask, NULL, &task, &error) == VLC_OK, "%s", error.message);
    REQUIRE(vlc_wait(task, &mode, &error) == VLC_OK, "%s", error.message);
    return (int)(intptr_t)mode;
}

static const struct {
    uint32_t memory;
    int mode;
} policies[] = { { VLC_MEMORY_BIND, MODE_BIND },
                 { VLC_MEMORY_PREFERRED, MODE_PREFERRED_MANY },
                 { VLC_MEMORY_INTERLEAVE, MODE_INTERLEAVE },
                 { VLC_MEMORY_LOCAL, MODE_LOCAL } };

static void check_each_policy(void) {
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        bool local = policies[i].memory == VLC_MEMORY_LOCAL;
        uint64_t on = local ? 0 : bits(nodes, node_count);
        vlc_context *a = with_policy("a", policies[i].memory, local ? NULL : nodes, local ? 0 : node_count);
        char *kinds[MEMORY_KINDS];
        CHECK_EQUAL(call_named(a, NULL, "memory_kinds", (long)(uintptr_t)kinds), 0);
        check_ranges(kinds, policies[i].mode, on);
        int visiting = (int)call_named(a, NULL, "memory_mode", 0),
            made = (int)call_named(a, NULL, "memory_mode", 1);
        CHECK(is_expected(visiting, policies[i].mode), "a visitor has policy %d", visiting);
        CHECK(is_expected(made, policies[i].mode), "a thread of the library has policy %d", made);
        CHECK(is_expected(mode_of_pool(a), policies[i].mode), "a thread of the pool has policy %d",
              mode_of_pool(a));
        CHECK_EQUAL(thread_mode(), MODE_DEFAULT);
        uint32_t seen[64];
        size_t count;
        CHECK_EQUAL(vlc_memory_policy(a, seen, 64, &count), policies[i].memory);
        CHECK_EQUAL(count, local ? 0 : node_count);
        context_close(a);
    }
}

/* Each context's while inside of it, and the thread's own where a context has none, in any order. */
static void check_nested_visits(void) {
    vlc_error error = VLC_ERROR_INIT;
    vlc_context *bound = with_policy("bound", VLC_MEMORY_BIND, NULL, 0),
                *local = with_policy("local", VLC_MEMORY_LOCAL, NULL, 0), *plain = context_new("plain");
    int own = MODE_INTERLEAVE; /* as under `numactl --interleave` */
    uint64_t mask = bits(nodes, node_count);
    REQUIRE(syscall(SYS_set_mempolicy, own, &mask, 65ul) == 0, "set_mempolicy: %d", errno);
    vlc_context *const path[] = { bound, local, plain, bound, plain, local, bound, bound };
    const int expected[] = { MODE_BIND, MODE_LOCAL, own, MODE_BIND, own, MODE_LOCAL, MODE_BIND, MODE_BIND };
    int last = sizeof expected / sizeof expected[0];
    for (int i = 0; i < last; i++) {
        REQUIRE(vlc_enter(path[i], &error) == VLC_OK, "%s", error.message);
        CHECK_EQUAL(thread_mode(), expected[i]);
    }
    for (int i = last - 1; i >= 0; i--) {
        CHECK_EQUAL(thread_mode(), expected[i]);
        REQUIRE(vlc_leave(path[i], &error) == VLC_OK, "%s", error.message);
    }
    CHECK_EQUAL(thread_mode(), own);
    REQUIRE(syscall(SYS_set_mempolicy, MODE_DEFAULT, NULL, 0ul) == 0, "set_mempolicy: %d", errno);
    context_close(bound);
    context_close(local);
    context_close(plain);
}

static void check_change(void) {
    vlc_error error = VLC_ERROR_INIT;
    vlc_context *a = with_policy("a", VLC_MEMORY_DEFAULT, NULL, 0);
    char *kinds[MEMORY_KINDS], *later[MEMORY_KINDS];
    CHECK_EQUAL(call_named(a, NULL, "memory_kinds", (long)(uintptr_t)kinds), 0);
    check_ranges(kinds, MODE_DEFAULT, 0);
    CHECK_EQUAL(mode_of_pool(a), MODE_DEFAULT);
    REQUIRE(vlc_enter(a, &error) == VLC_OK, "%s", error.message);
    CHECK_EQUAL(vlc_set_memory(a, VLC_MEMORY_BIND, nodes, 1, &error), VLC_OK);
    CHECK_EQUAL(thread_mode(), MODE_BIND);
    REQUIRE(vlc_leave(a, &error) == VLC_OK, "%s", error.message);
    CHECK_EQUAL(thread_mode(), MODE_DEFAULT);
    check_ranges(kinds, MODE_BIND, bits(nodes, 1));
    CHECK_EQUAL(call_named(a, NULL, "memory_kinds", (long)(uintptr_t)later), 0);
    check_ranges(later, MODE_BIND, bits(nodes, 1));
    CHECK_EQUAL(mode_of_pool(a), MODE_BIND);
    CHECK_EQUAL(vlc_set_memory(a, VLC_MEMORY_DEFAULT, NULL, 0, &error), VLC_OK);
    check_ranges(kinds, MODE_DEFAULT, 0);
    check_ranges(later, MODE_DEFAULT, 0);
    CHECK_EQUAL(mode_of_pool(a), MODE_DEFAULT);
    CHECK_EQUAL(call_named(a, NULL, "memory_mode", 0), MODE_DEFAULT);
    context_close(a);
}

/* A thread begins with the policy of whoever makes it; a context's has the context's, or what the host's have. */
static void check_threads_of_visitors_elsewhere(void) {
    vlc_error error = VLC_ERROR_INIT;
    uint64_t mask = bits(nodes, node_count);
    vlc_context *bound = with_policy("bound", VLC_MEMORY_BIND, NULL, 0), *plain = context_new("plain"),
                *local = with_policy("local", VLC_MEMORY_LOCAL, NULL, 0);
    REQUIRE(syscall(SYS_set_mempolicy, MODE_INTERLEAVE, &mask, 65ul) == 0, "set_mempolicy: %d", errno);
    REQUIRE(vlc_enter(bound, &error) == VLC_OK, "%s", error.message);
    CHECK_EQUAL(mode_of_pool(plain), MODE_INTERLEAVE);
    CHECK_EQUAL(mode_of_pool(local), MODE_LOCAL);
    REQUIRE(vlc_leave(bound, &error) == VLC_OK, "%s", error.message);
    CHECK_EQUAL(vlc_set_memory(plain, VLC_MEMORY_BIND, NULL, 0, &error), VLC_OK);
    CHECK_EQUAL(mode_of_pool(plain), MODE_BIND);
    vlc_context *const both[] = { plain, local };
    for (int i = 0; i < 2; i++) {
        CHECK_EQUAL(vlc_set_memory(both[i], VLC_MEMORY_DEFAULT, NULL, 0, &error), VLC_OK);
        CHECK_EQUAL(mode_of_pool(both[i]), MODE_INTERLEAVE);
    }
    REQUIRE(syscall(SYS_set_mempolicy, MODE_DEFAULT, NULL, 0ul) == 0, "set_mempolicy: %d", errno);
    context_close(bound);
    context_close(plain);
    context_close(local);
}

/* Ranges that are taken while the policy changes have the last one. */
static atomic_bool stop;
static void *change_on(void *context) {
    vlc_error error = VLC_ERROR_INIT;
    for (unsigned round = 0; !stop; round++)
        CHECK_EQUAL(vlc_set_memory(context, round % 2 ? VLC_MEMORY_LOCAL : VLC_MEMORY_BIND, NULL, 0, &error),
                    VLC_OK);
    CHECK_EQUAL(vlc_set_memory(context, VLC_MEMORY_BIND, NULL, 0, &error), VLC_OK);
    return NULL;
}
static void check_change_while_ranges_are_taken(void) {
    enum { ROUNDS = 60 };
    static char *kinds[ROUNDS][MEMORY_KINDS];
    pthread_t changer;
    vlc_context *a = with_policy("a", VLC_MEMORY_BIND, NULL, 0);
    uint64_t on = bits(nodes, node_count);
    REQUIRE(!pthread_create(&changer, NULL, change_on, a), "no thread");
    for (int round = 0; round < ROUNDS; round++)
        CHECK_EQUAL(call_named(a, NULL, "memory_kinds", (long)(uintptr_t)kinds[round]), 0);
    stop = true;
    pthread_join(changer, NULL);
    for (int round = 0; round < ROUNDS && !check_failures; round++) check_ranges(kinds[round], MODE_BIND, on);
    CHECK_EQUAL(thread_mode(), MODE_DEFAULT);
    context_close(a);
}

/* What libraries ask the kernel for is cut to the nodes that they are bound to, and given back at the end. */
static void check_libraries(void) {
    uint64_t mask[16] = { bits(nodes, node_count) }, far[16] = { [15] = 1ull << 63 };
    struct memory_ask ask = { MEMORY_ASK_THREAD, MODE_DEFAULT, NULL, NULL, 0 };
    vlc_error error = VLC_ERROR_INIT;
    vlc_context *bound = with_policy("bound", VLC_MEMORY_BIND, NULL, 0),
                *plain = with_policy("plain", VLC_MEMORY_DEFAULT, NULL, 0),
                *spread = with_policy("spread", VLC_MEMORY_INTERLEAVE, NULL, 0);
    vlc_context *const contexts[] = { bound, plain, spread };
    const struct {
        int asked;
        bool nodes;
        int then[3]; /* in each context */
    } rows[] = { { MODE_INTERLEAVE, true, { MODE_INTERLEAVE, MODE_INTERLEAVE, MODE_INTERLEAVE } },
                 { MODE_BIND, true, { MODE_BIND, MODE_BIND, MODE_BIND } },
                 { MODE_PREFERRED, true, { MODE_BIND, MODE_PREFERRED, MODE_PREFERRED } },
                 { MODE_LOCAL, false, { MODE_BIND, MODE_LOCAL, MODE_LOCAL } },
                 { MODE_DEFAULT, false, { MODE_BIND, MODE_DEFAULT, MODE_INTERLEAVE } } };
    for (int i = 0; i < 3; i++) {
        vlc_context *a = contexts[i];
        char *kinds[MEMORY_KINDS];
        probe asks = find(a, NULL, "memory_ask");
        CHECK_EQUAL(call_named(a, NULL, "memory_kinds", (long)(uintptr_t)kinds), 0);
        CHECK_EQUAL(vlc_enter(a, &error), VLC_OK);
        for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++) {
            ask.mode = rows[row].asked;
            ask.mask = rows[row].nodes ? mask : NULL;
            ask.bits = rows[row].nodes ? 65 : 0;
            ask.start = (char *)((uintptr_t)kinds[MEMORY_MAPPED] & ~4095ul);
            for (ask.what = MEMORY_ASK_THREAD; ask.what <= MEMORY_ASK_RANGE; ask.what++) {
                CHECK_EQUAL(asks((long)(uintptr_t)&ask), 0);
                int mode = ask.what == MEMORY_ASK_THREAD ? thread_mode() : mode_at(ask.start, NULL);
                CHECK(mode == rows[row].then[i], "in %s, %d of %d became %d and not %d", vlc_name(a),
                      ask.what, ask.mode, mode, rows[row].then[i]);
            }
        }
        ask.what = MEMORY_ASK_THREAD;
        ask.mode = MODE_BIND;
        ask.mask = far; /* no machine has node 1023 */
        ask.bits = 1025;
        CHECK_EQUAL(asks((long)(uintptr_t)&ask), EINVAL);
        ask.mask = (void *)8;
        CHECK_EQUAL(asks((long)(uintptr_t)&ask), EFAULT);
        uint64_t allowed[16] = { 0 };
        ask.what = MEMORY_ASK_ALLOWED;
        ask.mask = allowed;
        CHECK_EQUAL(asks((long)(uintptr_t)&ask), 0);
        CHECK(allowed[0] == mask[0], "%#llx are allowed", (unsigned long long)allowed[0]);
        ask.what = MEMORY_ASK_THREAD;
        ask.mode = MODE_INTERLEAVE;
        ask.mask = mask;
        CHECK_EQUAL(asks((long)(uintptr_t)&ask), 0);
        CHECK_EQUAL(vlc_leave(a, &error), VLC_OK);
        CHECK_EQUAL(thread_mode(), MODE_DEFAULT);
        context_close(a);
    }
}

/* All on one node is the least that a machine can do: nothing is to be moved. */
static void check_pages_are_counted(void) {
    vlc_error error = VLC_ERROR_INIT;
    uint64_t bytes[64], before[64], moved = 1, left = 1, total = 0;
    vlc_context *a = with_policy("a", VLC_MEMORY_BIND, NULL, 0);
    CHECK_EQUAL(vlc_memory_nodes(a, before, 64, &error), VLC_OK);
    char *block = (char *)call_named(a, NULL, "memory_malloc", 100 << 20);
    CHECK_EQUAL(vlc_memory_nodes(a, bytes, 64, &error), VLC_OK);
    memset(block, 1, 50 << 20);
    CHECK_EQUAL(vlc_memory_nodes(a, bytes, 64, &error), VLC_OK);
    for (int node = 0; node < 64; node++) total += bytes[node] - before[node];
    CHECK(total >= 50 << 20 && total <= 52 << 20, "%llu bytes were touched", (unsigned long long)total);
    CHECK_EQUAL(vlc_migrate_memory(a, &moved, &left, &error), VLC_OK);
    CHECK_EQUAL(moved, 0);
    CHECK_EQUAL(left, 0);
    context_close(a);
}

static void check_refusals(void) {
    vlc_error error = VLC_ERROR_INIT;
    vlc_context *a = NULL;
    uint32_t absent[] = { nodes[0], 900 };
    vlc_spec spec = VLC_SPEC_INIT;
    spec.name = "far";
    spec.memory = VLC_MEMORY_BIND;
    spec.nodes = absent;
    spec.node_count = 2;
    CHECK_REFUSED(vlc_create(&spec, &a, &error), error, VLC_BAD_ARGUMENT, "NUMA node 900");
    spec.node_count = 0;
    CHECK_REFUSED(vlc_create(&spec, &a, &error), error, VLC_BAD_ARGUMENT, "no node at all");
    spec.node_count = 1;
    spec.memory = VLC_MEMORY_LOCAL;
    CHECK_REFUSED(vlc_create(&spec, &a, &error), error, VLC_BAD_ARGUMENT, "'far' nodes");
    spec.memory = 9;
    CHECK_REFUSED(vlc_create(&spec, &a, &error), error, VLC_BAD_ARGUMENT, "policy 9");
    spec.memory = VLC_MEMORY_BIND;
    spec.huge_pages = 7;
    CHECK_REFUSED(vlc_create(&spec, &a, &error), error, VLC_BAD_ARGUMENT, "huge pages 7");
    a = with_policy("a", VLC_MEMORY_BIND, nodes, 1);
    CHECK_REFUSED(vlc_set_memory(a, VLC_MEMORY_BIND, absent, 2, &error), error, VLC_BAD_ARGUMENT, "node 900");
    CHECK_EQUAL(vlc_memory_policy(a, NULL, 0, NULL), VLC_MEMORY_BIND);
    CHECK_EQUAL(call_named(a, NULL, "memory_mode", 0), MODE_BIND);
    context_close(a);
}

int main(void) {
    node_count = usable_nodes(nodes, 64);
    check_each_policy();
    check_nested_visits();
    check_change();
    check_threads_of_visitors_elsewhere();
    check_change_while_ranges_are_taken();
    check_libraries();
    check_pages_are_counted();
    check_refusals();
    return check_result();
}
