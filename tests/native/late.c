/* Late loading, the normal case: libvlcs.so comes into a program that runs already, threads and all. */
#include <pthread.h>

#include "contexts.h"

/* This program is not linked with libvlcs: the functions that it uses, by their addresses. */
static struct {
    __typeof__(&vlc_create) create;
    __typeof__(&vlc_load) load;
    __typeof__(&vlc_symbol) symbol;
    __typeof__(&vlc_enter) enter;
    __typeof__(&vlc_leave) leave;
    __typeof__(&vlc_destroy) destroy;
} vlc;

static vlc_context *contexts[3];
static probe functions[3];
static pthread_barrier_t loaded;

/* Made before the library came, and it calls into contexts all the same. */
static void *early_thread(void *unused) {
    (void)unused;
    pthread_barrier_wait(&loaded);
    for (long turn = 1; turn <= 3; turn++)
        for (int i = 0; i < 3; i++) {
            CHECK_EQUAL(vlc.enter(contexts[i], NULL), VLC_OK);
            CHECK_EQUAL(functions[i](turn), 0);
            CHECK_EQUAL(vlc.leave(contexts[i], NULL), VLC_OK);
        }
    return NULL;
}

static probe load_late(vlc_context *context, const char *file, const char *name) {
    vlc_error error = VLC_ERROR_INIT;
    vlc_library *library = NULL;
    void *address = NULL;
    REQUIRE(vlc.load(context, file, RTLD_NOW, &library, &error) == VLC_OK, "%s", error.message);
    REQUIRE(vlc.symbol(context, library, name, &address, &error) == VLC_OK, "%s", error.message);
    return (probe)address;
}

int main(void) {
    pthread_t thread;
    vlc_error error = VLC_ERROR_INIT;
    REQUIRE(pthread_barrier_init(&loaded, NULL, 2) == 0, "no barrier");
    REQUIRE(pthread_create(&thread, NULL, early_thread, NULL) == 0, "no thread");
    void *handle = dlopen(LIBVLCS_FILE, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(handle != NULL, "%s", dlerror());
    *(void **)&vlc.create = dlsym(handle, "vlc_create");
    *(void **)&vlc.load = dlsym(handle, "vlc_load");
    *(void **)&vlc.symbol = dlsym(handle, "vlc_symbol");
    *(void **)&vlc.enter = dlsym(handle, "vlc_enter");
    *(void **)&vlc.leave = dlsym(handle, "vlc_leave");
    *(void **)&vlc.destroy = dlsym(handle, "vlc_destroy");
    REQUIRE(vlc.create && vlc.load && vlc.symbol && vlc.enter && vlc.leave && vlc.destroy, "%s", dlerror());

    for (int i = 0; i < 3; i++) {
        REQUIRE(vlc.create(NULL, &contexts[i], &error) == VLC_OK, "%s", error.message);
        functions[i] =
            load_late(contexts[i], i == 2 ? FIXTURE("tls_general") : FIXTURE("tls_initial"), "tls_probe");
        CHECK_EQUAL(load_late(contexts[i], FIXTURE("cxx_probe"), "cxx_threads")(2), 2 * 59);
        CHECK_EQUAL(load_late(contexts[i], FIXTURE("heap"), "heap_between_threads")(0), 0);
    }
    pthread_barrier_wait(&loaded);
    pthread_join(thread, NULL);
    for (int i = 0; i < 2; i++) REQUIRE(vlc.destroy(contexts[i], -1, &error) == VLC_OK, "%s", error.message);
    return check_result(); /* the third is ended at exit */
}
