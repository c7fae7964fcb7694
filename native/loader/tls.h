/* Thread-local storage of contexts: modules and blocks; slots.h has the initial-exec ones. */
#ifndef VLCI_TLS_H
#define VLCI_TLS_H

#include "loader/image.h"
#include "loader/lock.h"

/* What compilers pass to __tls_get_addr (psABI: tls_index). */
struct vlci_tls_index {
    uint64_t module, offset;
};

/* An argument of a dynamic TLS descriptor; freed with the image that holds the descriptor. */
struct vlci_tls_argument {
    struct vlci_tls_index index;
    struct vlci_tls_argument *next;
};

struct vlci_thread;

/* Called once, before the first context. */
void vlci_tls_start(void);

/* Gives the image's TLS segment a module number (and a slot, when the linker asked for one). */
int vlci_tls_add(struct vlci_image *image, vlc_error *error);
void vlci_tls_remove(struct vlci_image *image);

/* In a forked child: takes back what a context holds that stayed in the parent. */
void vlci_tls_drop_context(vlc_context *context);

/* Makes the image's block a slot at a fixed offset from the thread pointer, in every registered thread. */
int vlci_tls_make_static(struct vlci_image *image, vlc_error *error);

/* Gives a relocated image's slot its initial contents in all registered threads. */
void vlci_tls_start_slot(struct vlci_image *image);

/* __tls_get_addr for modules of ours and of the host. */
void *vlci_tls_address(struct vlci_tls_index *index);

/* This thread's block of the image if there is one already, else NULL. */
void *vlci_tls_block(struct vlci_image *image);

/* Registration and end of a thread. The tls lock is held and signals are blocked by the caller. */
void vlci_tls_thread_init(struct vlci_thread *thread);
void vlci_tls_thread_free(struct vlci_thread *thread);

/* The lock over modules, threads and keys. Always with signals blocked. */
extern vlci_lock vlci_tls_lock;

#endif
