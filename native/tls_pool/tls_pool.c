/* A piece of static TLS that libvlcs.so deals out as initial-exec slots.
 *
 * Static TLS can only be had by loading a library that asks for it, and a library that
 * asks for too much fails to load. So the pool is not part of libvlcs.so, whose load must
 * never fail: this file is built once per size. The large one is for LD_PRELOAD
 * (`vlcs run`), where the room is made at start; the small ones are tried in turn, from
 * large to small, in a process that runs already and has only glibc's surplus left
 * (1,664 bytes by default, glibc.rtld.optional_static_tls).
 */
#include <stddef.h>

#ifndef VLC_TLS_POOL_SIZE
#error "VLC_TLS_POOL_SIZE: bytes of the pool, set by CMakeLists.txt"
#endif

/* Not written by us, so it stays in .tbss and costs no file space. */
static __thread char pool[VLC_TLS_POOL_SIZE] __attribute__((aligned(64), tls_model("initial-exec")));

/* The calling thread's pool; its distance to the thread pointer is the same on every thread. */
__attribute__((visibility("default"))) void *vlc_tls_pool(size_t *size) {
    *size = sizeof pool;
    return pool;
}
