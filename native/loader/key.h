/* Virtual pthread keys: the process has 1,024, a context with PyTorch takes 14, so contexts get keys of ours. */
#ifndef VLCI_KEY_H
#define VLCI_KEY_H

#include "loader/lock.h"
#include "vlcs.h"

#include <pthread.h>

struct vlci_thread;

/* As the pthread_ functions of the same names; keys below VLCI_KEY_BASE are the host's. */
int vlci_key_create(pthread_key_t *key, void (*destructor)(void *), vlc_context *context);
int vlci_key_delete(pthread_key_t key);
void *vlci_key_get(pthread_key_t key);
int vlci_key_set(pthread_key_t key, const void *value);

void vlci_key_run_destructors(struct vlci_thread *thread);
void vlci_key_thread_free(struct vlci_thread *thread);
void vlci_key_drop_context(vlc_context *context);
unsigned vlci_key_count(vlc_context *context);

#endif
