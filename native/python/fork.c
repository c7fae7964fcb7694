#include "fork.h"

#include "closing.h"
#include "interrupt.h"
#include "native.h"

/* Of the thread that forks: the guest whose os.fork() it is in, until that returns. */
static _Thread_local struct vlci_realm *forking;

/* ---- locks ---------------------------------------------------------------------------------------------- */

/* None of these is held while another is taken, or a GIL. */
static void locks(enum vlci_fork when) {
    vlci_interrupt_fork(when);
    vlci_closing_fork(when);
    vlci_door_fork(when);
    vlci_realms_fork(when, forking);
}

static void prepare(void) { locks(VLCI_FORK_PREPARE); }
static void parent(void) { locks(VLCI_FORK_PARENT); }
static void child(void) { locks(VLCI_FORK_CHILD); }

static void start(void) { pthread_atfork(prepare, parent, child); }

void vlci_fork_start(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);
}

/* ---- two interpreters ----------------------------------------------------------------------------------- */

const struct vlci_realm *vlci_fork_guest(void) { return forking; }

/* The one place where a thread has two GILs, as both interpreters must stand still: the host's is taken first,
 * without the guest's, and nobody waits for the host's with a guest's in hand. */
static void prepare_guest(struct vlci_realm *guest) {
    struct vlci_realm *host = vlci_host();
    vlc_error ended = VLC_ERROR_INIT;
    if (vlci_realm_begin(host, &ended) != VLC_OK) return;
    vlci_thread_state *state = guest->api.PyEval_SaveThread();
    vlci_attach(host);
    PyOS_BeforeFork();
    guest->api.PyEval_RestoreThread(state);
    forking = guest;
}

/* The host's own handlers run without the guest's GIL: they are any code. */
static void finish_guest(struct vlci_realm *guest, void (*after)(void)) {
    struct vlci_realm *host = vlci_host();
    vlci_thread_state *state = guest->api.PyEval_SaveThread();
    after();
    forking = NULL;
    vlci_detach(host);
    vlci_realm_end(host);
    guest->api.PyEval_RestoreThread(state);
}

void vlci_fork_of_guest(struct vlci_realm *guest, enum vlci_fork when) {
    if (when == VLCI_FORK_PREPARE)
        prepare_guest(guest);
    else if (forking == guest) /* not where the host has ended */
        finish_guest(guest, when == VLCI_FORK_CHILD ? PyOS_AfterFork_Child : PyOS_AfterFork_Parent);
}
