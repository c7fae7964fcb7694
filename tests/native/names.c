/* L8: names of shared memory and semaphores that stand for the process are private; others are the machine's. */
#include "contexts.h"

static vlc_context *contexts[3]; /* the first is the host */
static probe functions[3][4];

static long ask(int who, int what, const char *name) {
    probe function = functions[who][what];
    return who ? call(contexts[who], function, (long)(uintptr_t)name) : function((long)(uintptr_t)name);
}

/* Whether each of the host and two contexts makes an object of its own by that name. */
static void check_name(int make, const char *name, int is_private) {
    for (int who = 0; who < 3; who++)
        CHECK(ask(who, make, name) == (is_private || !who), "\"%s\" of %d is %sprivate", name, who,
              is_private ? "not " : "");
    for (int who = 0; who < 3; who++) CHECK_EQUAL(ask(who, make, name), 0); /* now all have it */
    if (is_private)
        for (int who = 2; who >= 0; who--) CHECK_EQUAL(ask(who, make + 1, name), 0);
    else
        CHECK_EQUAL(ask(2, make + 1, name), 0);
    CHECK_EQUAL(ask(0, make + 1, name), -1);
}

int main(void) {
    static const char *const names[] = { "names_memory", "names_memory_drop", "names_semaphore",
                                         "names_semaphore_drop" };
    void *host = dlopen(FIXTURE("names"), RTLD_NOW);
    REQUIRE(host != NULL, "%s", dlerror());
    for (int who = 0; who < 3; who++) {
        vlc_library *library = NULL;
        if (who)
            library = load(contexts[who] = context_new(who == 1 ? "a" : "b"), FIXTURE("names"), RTLD_NOW);
        for (int i = 0; i < 4; i++)
            functions[who][i] = who ? find(contexts[who], library, names[i]) : (probe)dlsym(host, names[i]);
    }
    for (int kind = 0; kind < 4; kind += 2) {
        char name[100];
        int pid = (int)getpid();
        snprintf(name, sizeof name, "/__vlcs_test_%d", pid);
        check_name(kind, name, 1);
        snprintf(name, sizeof name, "/__vlcs_test_%d_%d", pid, (int)getuid());
        check_name(kind, name, 1);
        snprintf(name, sizeof name, "/vlcs2_test_%d", pid);
        check_name(kind, name, 1);
        snprintf(name, sizeof name, "/vlcs_test_%d_%d_0", pid,
                 pid + 10000); /* one of many, for other processes */
        check_name(kind, name, 0);
        snprintf(name, sizeof name, "/vlcs_test_1%d", pid);
        check_name(kind, name, 0);
    }
    context_close(contexts[1]);
    context_close(contexts[2]);
    return check_result();
}
