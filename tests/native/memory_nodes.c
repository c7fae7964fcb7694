/* On a machine with two nodes: every page lies on the context's, whoever touches it; and moves there.
 * `tests/vm/run --shell BUILD/tests/native/memory_nodes` runs it where there is no such machine. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "fixtures/memory.h"
#include "numa.h"

enum { PAGE = 4096, MEGABYTE = 1 << 20 };

static uint32_t nodes[2], cpus[2]; /* a CPU of each */

static void find_two_nodes(void) {
    uint32_t all[256], found = 0;
    size_t count = usable_nodes(all, 2);
    if (count < 2) SKIP("one-node", "all memory that this process may use is on one NUMA node");
    memcpy(nodes, all, sizeof nodes);
    size_t cpu_count = process_cpus(all, 256);
    for (uint32_t i = 0; i < 2; i++)
        for (size_t cpu = 0; cpu < cpu_count && found == i; cpu++) {
            char path[80];
            snprintf(path, sizeof path, "/sys/devices/system/node/node%u/cpu%u", nodes[i], all[cpu]);
            if (access(path, F_OK) == 0) cpus[found++] = all[cpu];
        }
    if (found < 2) SKIP("one-node", "this process may use CPUs of one NUMA node only");
}

static void host_on(uint32_t cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    REQUIRE(sched_setaffinity(0, sizeof set, &set) == 0, "no affinity");
}

static size_t size_of(int kind) { return kind == MEMORY_SMALL ? 10000 : 3 * MEGABYTE; }

/* Pages wholly inside of a block; how many are not on `node`, and how many there are to *count. */
static size_t pages_elsewhere(const char *block, size_t size, uint32_t node, size_t *count) {
    size_t elsewhere = 0;
    *count = 0;
    for (const char *at = (const char *)(((uintptr_t)block + PAGE - 1) & ~(PAGE - 1ul));
         at + PAGE <= block + size; at += PAGE, (*count)++)
        elsewhere += node_at(at) != (int)node;
    return elsewhere;
}

static void check_on(char *const *kinds, uint32_t node, const char *who) {
    for (int kind = 0; kind < MEMORY_KINDS; kind++) {
        size_t count, elsewhere = pages_elsewhere(kinds[kind], size_of(kind), node, &count);
        CHECK(!elsewhere, "%s, kind %d: %zu of %zu pages are not on node %u", who, kind, elsewhere, count,
              node);
    }
}

/* Each toucher would put pages on the other node by itself. */
static void touch_by_host(char *block, size_t size) { memset(block, 3, size); }
static void touch_by_kernel(char *block, size_t size) {
    int zeros = open("/dev/zero", O_RDONLY);
    REQUIRE(read(zeros, block, size) == (ssize_t)size, "read() from /dev/zero");
    close(zeros);
}

static void check_bound(void) {
    static void (*const touchers[])(char *, size_t) = { touch_by_host, touch_by_kernel };
    static const char *const names[] = { "touched by the host", "touched by read()" };
    vlc_context *contexts[2];
    for (int i = 0; i < 2; i++) contexts[i] = with_policy(i ? "b" : "a", VLC_MEMORY_BIND, &nodes[i], 1);
    for (int toucher = 0; toucher < 2; toucher++)
        for (int i = 0; i < 2; i++) {
            char *kinds[MEMORY_KINDS];
            CHECK_EQUAL(call_named(contexts[i], NULL, "memory_kinds", (long)(uintptr_t)kinds), 0);
            host_on(cpus[!i]);
            for (int kind = 0; kind < MEMORY_KINDS; kind++) touchers[toucher](kinds[kind], size_of(kind));
            check_on(kinds, nodes[i], names[toucher]);
        }
    for (int i = 0; i < 2; i++) context_close(contexts[i]);
}

/* A stack, as all that only threads' policies decide about. Deep down, as its top may be one huge page that was
 * touched when the thread was made. */
static void *own_stack_node(void *unused) {
    (void)unused;
    volatile char here[5 * MEGABYTE];
    here[0] = 1;
    return (void *)(intptr_t)node_at((const char *)here);
}

static long run_on_pool(vlc_context *context, void *(*function)(void *)) {
    vlc_task *task;
    void *result;
    vlc_error error = VLC_ERROR_INIT;
    REQUIRE(vlc_submit(context, function, NULL, &task, &error) == VLC_OK, "%s", error.message);
    REQUIRE(vlc_wait(task, &result, &error) == VLC_OK, "%s", error.message);
    return (long)(intptr_t)result;
}

static void check_other_policies(void) {
    char *kinds[MEMORY_KINDS];
    size_t count, elsewhere;
    vlc_error error = VLC_ERROR_INIT;
    vlc_spec spec = VLC_SPEC_INIT;
    spec.memory = VLC_MEMORY_INTERLEAVE;
    spec.nodes = nodes;
    spec.node_count = 2;
    spec.huge_pages = VLC_HUGE_PAGES_NEVER; /* which would be interleaved by 2 MB */
    vlc_context *a = context_from(&spec);
    load(a, FIXTURE("memory"), RTLD_NOW);
    CHECK_EQUAL(call_named(a, NULL, "memory_kinds", (long)(uintptr_t)kinds), 0);
    memset(kinds[MEMORY_LARGE], 1, 3 * MEGABYTE);
    elsewhere = pages_elsewhere(kinds[MEMORY_LARGE], 3 * MEGABYTE, nodes[0], &count);
    CHECK(elsewhere * 2 + 4 > count && elsewhere * 2 < count + 4, "%zu of %zu pages are on the second node",
          elsewhere, count);
    CHECK_EQUAL(vlc_set_memory(a, VLC_MEMORY_PREFERRED, &nodes[1], 1, &error), VLC_OK);
    host_on(cpus[0]);
    memset(kinds[MEMORY_MAPPED], 1, 3 * MEGABYTE);
    elsewhere = pages_elsewhere(kinds[MEMORY_MAPPED], 3 * MEGABYTE, nodes[1], &count);
    CHECK(!elsewhere, "%zu of %zu pages are not on the preferred node", elsewhere, count);
    CHECK_EQUAL(run_on_pool(a, own_stack_node), nodes[1]);
    CHECK_EQUAL(vlc_set_memory(a, VLC_MEMORY_LOCAL, NULL, 0, &error), VLC_OK);
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t bound[] = { nodes[!i] }; /* what the thread has outside does not count */
        uint64_t mask = bits(bound, 1);
        host_on(cpus[i]);
        REQUIRE(syscall(SYS_set_mempolicy, MODE_BIND, &mask, 65ul) == 0, "set_mempolicy: %d", errno);
        char *block = kinds[i ? MEMORY_GROWN : MEMORY_REMAPPED] + (i ? 4 : 1) * MEGABYTE;
        memset(block, 1, MEGABYTE);
        elsewhere = pages_elsewhere(block, MEGABYTE, nodes[i], &count);
        CHECK(!elsewhere, "%zu of %zu pages are not local", elsewhere, count);
    }
    REQUIRE(syscall(SYS_set_mempolicy, MODE_DEFAULT, NULL, 0ul) == 0, "set_mempolicy: %d", errno);
    context_close(a);
}

struct writer {
    vlc_context *context;
    probe write;
    char *block;
    long wrong;
};
static void *write_on(void *argument) {
    struct writer *writer = argument;
    writer->wrong = call(writer->context, writer->write, (long)(uintptr_t)writer->block);
    return NULL;
}

static void check_migration(void) {
    char *kinds[MEMORY_KINDS];
    uint64_t bytes[64], moved, left;
    vlc_error error = VLC_ERROR_INIT;
    pthread_t thread;
    vlc_context *a = with_policy("a", VLC_MEMORY_BIND, &nodes[0], 1);
    CHECK_EQUAL(call_named(a, NULL, "memory_kinds", (long)(uintptr_t)kinds), 0);
    for (int kind = 0; kind < MEMORY_KINDS; kind++) memset(kinds[kind], kind + 1, size_of(kind));
    struct writer writer = { a, find(a, NULL, "memory_write_on"),
                             (char *)call_named(a, NULL, "memory_malloc", 5 * MEGABYTE), 0 };
    REQUIRE(!pthread_create(&thread, NULL, write_on, &writer), "no thread");
    usleep(20000);
    CHECK_EQUAL(vlc_set_memory(a, VLC_MEMORY_BIND, &nodes[1], 1, &error), VLC_OK);
    check_on(kinds, nodes[0], "before they are moved");
    CHECK_EQUAL(vlc_migrate_memory(a, &moved, &left, &error), VLC_OK);
    CHECK(moved >= 17 * MEGABYTE, "%llu bytes were moved", (unsigned long long)moved);
    CHECK(left <= MEGABYTE, "%llu bytes are left", (unsigned long long)left); /* while another writes */
    call_named(a, NULL, "memory_stop", 1);
    pthread_join(thread, NULL);
    CHECK_EQUAL(writer.wrong, 0);
    CHECK_EQUAL(vlc_migrate_memory(a, &moved, &left, &error), VLC_OK);
    CHECK_EQUAL(left, 0);
    check_on(kinds, nodes[1], "moved");
    for (int kind = 0; kind < MEMORY_KINDS; kind++)
        for (size_t at = 0; at < size_of(kind); at += 512)
            if (kinds[kind][at] != kind + 1) {
                CHECK(false, "kind %d: byte %zu has changed", kind, at);
                break;
            }
    CHECK_EQUAL(vlc_memory_nodes(a, bytes, 64, &error), VLC_OK);
    CHECK_EQUAL(bytes[nodes[0]], 0);
    CHECK(bytes[nodes[1]] >= 20 * MEGABYTE, "%llu bytes are on the second node",
          (unsigned long long)bytes[nodes[1]]);
    context_close(a);
}

/* Nodes that nobody named are those of the CPUs. */
static void check_resize(void) {
    vlc_error error = VLC_ERROR_INIT;
    uint64_t moved, left;
    size_t count;
    vlc_spec spec = VLC_SPEC_INIT;
    spec.cpus = &cpus[0];
    spec.cpu_count = 1;
    spec.memory = VLC_MEMORY_BIND;
    vlc_context *a = context_from(&spec);
    load(a, FIXTURE("memory"), RTLD_NOW);
    char *block = (char *)call_named(a, NULL, "memory_malloc", 2 * MEGABYTE);
    memset(block, 1, MEGABYTE);
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t seen[2], node = nodes[i % 2];
        CHECK_EQUAL(vlc_resize(a, &cpus[i % 2], 1, &error), VLC_OK);
        CHECK_EQUAL(vlc_memory_policy(a, seen, 2, &count), VLC_MEMORY_BIND);
        CHECK(count == 1 && seen[0] == node, "%zu nodes, the first is %u and not %u", count, seen[0], node);
        CHECK_EQUAL(vlc_migrate_memory(a, &moved, &left, &error), VLC_OK);
        CHECK_EQUAL(left, 0);
        CHECK(!pages_elsewhere(block, MEGABYTE, node, &count), "pages did not follow to node %u", node);
        host_on(cpus[!(i % 2)]);
        char *fresh = (char *)call_named(a, NULL, "memory_malloc", 2 * MEGABYTE);
        memset(fresh, 1, MEGABYTE);
        CHECK(!pages_elsewhere(fresh, MEGABYTE, node, &count), "new pages are not on node %u", node);
        CHECK_EQUAL(run_on_pool(a, own_stack_node) >= 0, 1);
    }
    context_close(a);
}

/* A policy that is given while the context is resized is for the CPUs that it has then. */
static struct {
    vlc_context *context;
    pthread_barrier_t start;
    atomic_bool stop;
} giver;
static void *give_policies(void *unused) {
    vlc_error error = VLC_ERROR_INIT;
    pthread_barrier_wait(&giver.start);
    do {
        CHECK_EQUAL(vlc_set_memory(giver.context, VLC_MEMORY_DEFAULT, NULL, 0, &error), VLC_OK);
        CHECK_EQUAL(vlc_set_memory(giver.context, VLC_MEMORY_BIND, NULL, 0, &error), VLC_OK);
    } while (!giver.stop);
    return unused;
}
static void check_resize_meanwhile(void) {
    enum { ROUNDS = 2000 };
    vlc_error error = VLC_ERROR_INIT;
    giver.context = context_new("a");
    pthread_barrier_init(&giver.start, NULL, 2);
    int wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t thread;
        uint32_t seen = 0;
        size_t count;
        giver.stop = false;
        REQUIRE(!pthread_create(&thread, NULL, give_policies, NULL), "no thread");
        pthread_barrier_wait(&giver.start);
        for (int i = 0; i < 2 + round % 2; i++)
            CHECK_EQUAL(vlc_resize(giver.context, &cpus[i % 2], 1, &error), VLC_OK);
        giver.stop = true;
        pthread_join(thread, NULL);
        CHECK_EQUAL(vlc_memory_policy(giver.context, &seen, 1, &count), VLC_MEMORY_BIND);
        wrong += count != 1 || seen != nodes[!(round % 2)];
    }
    CHECK(!wrong, "%d of %d times the nodes are those of other CPUs", wrong, ROUNDS);
    pthread_barrier_destroy(&giver.start);
    context_close(giver.context);
}

/* To be bound is a boundary. */
static void check_boundary(void) {
    uint64_t mask[16] = { 0 };
    vlc_error error = VLC_ERROR_INIT;
    vlc_context *a = with_policy("a", VLC_MEMORY_BIND, &nodes[0], 1);
    char *kinds[MEMORY_KINDS];
    probe asks = find(a, NULL, "memory_ask");
    CHECK_EQUAL(call_named(a, NULL, "memory_kinds", (long)(uintptr_t)kinds), 0);
    struct memory_ask ask = { MEMORY_ASK_THREAD, MODE_BIND, kinds[MEMORY_MAPPED], mask, 65 };
    CHECK_EQUAL(vlc_enter(a, &error), VLC_OK);
    for (; ask.what <= MEMORY_ASK_RANGE; ask.what++) {
        mask[0] = bits(&nodes[1], 1);
        CHECK_EQUAL(asks((long)(uintptr_t)&ask), EINVAL);
        mask[0] = bits(nodes, 2);
        CHECK_EQUAL(asks((long)(uintptr_t)&ask), 0);
    }
    uint64_t has;
    CHECK_EQUAL(mode_at(kinds[MEMORY_MAPPED], &has), MODE_BIND);
    CHECK(has == bits(nodes, 1), "the range is for nodes %#llx", (unsigned long long)has);
    ask.what = MEMORY_ASK_ALLOWED;
    ask.bits = 1025;
    CHECK_EQUAL(asks((long)(uintptr_t)&ask), 0);
    CHECK(mask[0] == bits(nodes, 1), "nodes %#llx are allowed", (unsigned long long)mask[0]);
    CHECK_EQUAL(vlc_leave(a, &error), VLC_OK);
    context_close(a);
}

int main(void) {
    find_two_nodes();
    check_bound();
    check_other_policies();
    check_migration();
    check_resize();
    check_resize_meanwhile();
    check_boundary();
    return check_result();
}
