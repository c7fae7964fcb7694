#include "loader/key.h"

#include "context/context.h"
#include "loader/memory.h"
#include "loader/thread.h"
#include "loader/tls.h"

#include <errno.h>
#include <string.h>

#define KEYS 65536
#define KEY_BASE 0x10000u /* glibc's own keys are below 1,024 */

static struct key {
    _Atomic(uint32_t)
        sequence; /* changes when the key is deleted, so old values are not taken for new ones */
    bool used;
    void (*destructor)(void *);
    vlc_context *context;
} keys[KEYS];
static uint32_t key_end; /* keys at and above have never been used */

int vlci_key_create(pthread_key_t *key, void (*destructor)(void *), vlc_context *context) {
    sigset_t signals;
    vlci_os_signals_block(&signals);
    vlci_lock_take(&vlci_tls_lock);
    uint32_t i = 0;
    while (i < key_end && keys[i].used) i++;
    bool room = i < KEYS;
    if (room) {
        if (i == key_end) key_end++;
        keys[i].used = true;
        keys[i].destructor = destructor;
        keys[i].context = context;
        atomic_fetch_add(&keys[i].sequence, 1);
        *key = KEY_BASE + i;
    }
    vlci_lock_drop(&vlci_tls_lock);
    vlci_os_signals_restore(&signals);
    return room ? 0 : EAGAIN;
}

static void key_drop(struct key *key) {
    key->used = false;
    atomic_fetch_add(&key->sequence, 1);
}

int vlci_key_delete(pthread_key_t key) {
    if (key < KEY_BASE) return pthread_key_delete(key);
    uint32_t i = key - KEY_BASE;
    sigset_t signals;
    vlci_os_signals_block(&signals);
    vlci_lock_take(&vlci_tls_lock);
    bool known = i < key_end && keys[i].used;
    if (known) key_drop(&keys[i]);
    vlci_lock_drop(&vlci_tls_lock);
    vlci_os_signals_restore(&signals);
    return known ? 0 : EINVAL;
}

void *vlci_key_get(pthread_key_t key) {
    if (key < KEY_BASE) return pthread_getspecific(key);
    uint32_t i = key - KEY_BASE;
    struct vlci_thread *thread = vlci_thread_current;
    if (!thread || i >= thread->key_count) return NULL;
    const struct vlci_key_value *value = &thread->keys[i];
    return value->sequence == atomic_load_explicit(&keys[i].sequence, memory_order_relaxed) ? value->value
                                                                                            : NULL;
}

static bool values_grow(struct vlci_thread *thread, size_t count) {
    struct vlci_key_value *grown = vlci_memory_take(count * sizeof *grown), *old = thread->keys;
    if (!grown) return false;
    sigset_t signals;
    vlci_os_signals_block(&signals); /* a handler may read the table */
    if (old) memcpy(grown, old, thread->key_count * sizeof *old);
    size_t old_size = thread->key_count * sizeof *old;
    thread->keys = grown;
    thread->key_count = count;
    vlci_os_signals_restore(&signals);
    vlci_memory_give(old, old_size);
    return true;
}

int vlci_key_set(pthread_key_t key, const void *value) {
    if (key < KEY_BASE) return pthread_setspecific(key, value);
    uint32_t i = key - KEY_BASE;
    if (i >= KEYS || !keys[i].used) return EINVAL;
    struct vlci_thread *thread = vlci_thread_self();
    if (!thread) return ENOMEM;
    if (i >= thread->key_count) {
        if (!value) return 0;
        if (!values_grow(thread, (i + 64) & ~63ul)) return ENOMEM;
    }
    thread->keys[i] = (struct vlci_key_value){ atomic_load(&keys[i].sequence), (void *)value };
    return 0;
}

/* A host's thread ends: a destructor is code of the context, so it runs as a visit, or not at all. */
static void run_destructor(struct vlci_thread *thread, struct key *key, struct vlci_key_value value) {
    sigset_t signals;
    vlci_os_signals_block(&signals);
    vlci_lock_take(&vlci_tls_lock);
    vlc_context *context = key->context;
    void (*destructor)(void *) = key->destructor;
    bool run = key->used && value.sequence == atomic_load(&key->sequence) && destructor;
    bool visits = run && context != thread->owner;
    if (visits) run = vlci_context_visit_begins(context);
    vlci_lock_drop(&vlci_tls_lock);
    vlci_os_signals_restore(&signals);
    if (run) destructor(value.value);
    if (run && visits) vlci_context_visit_ended(context);
}

void vlci_key_run_destructors(struct vlci_thread *thread) {
    for (size_t i = 0; i < thread->key_count; i++) {
        struct vlci_key_value value = thread->keys[i];
        if (!value.value) continue;
        thread->keys[i].value = NULL;
        run_destructor(thread, &keys[i], value);
    }
}

void vlci_key_thread_free(struct vlci_thread *thread) {
    vlci_memory_give(thread->keys, thread->key_count * sizeof *thread->keys);
    thread->keys = NULL;
    thread->key_count = 0;
}

void vlci_key_drop_context(vlc_context *context) {
    sigset_t signals;
    vlci_os_signals_block(&signals);
    vlci_lock_take(&vlci_tls_lock);
    for (uint32_t i = 0; i < key_end; i++)
        if (keys[i].used && keys[i].context == context) key_drop(&keys[i]);
    vlci_lock_drop(&vlci_tls_lock);
    vlci_os_signals_restore(&signals);
}

unsigned vlci_key_count(vlc_context *context) {
    unsigned count = 0;
    for (uint32_t i = 0; i < key_end; i++) count += keys[i].used && keys[i].context == context;
    return count;
}
