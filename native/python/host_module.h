/* The module _vlcs_host: what a guest sees of its host.
 *
 *   settings                        bytes, as given to the Interpreter
 *   ask(request, fd, text) -> str   what vlcs._core._streams.answer of the host says, or raises
 *   fork(when)                      around os.fork(): 0 before, 1 after in the parent, 2 in the child
 *   keep(object)                    a handle to an object of this interpreter
 *   Handle                          the type of handles
 *   printed()                       says that a stream of the guest holds text that no line end has shown
 */
#ifndef VLCI_HOST_MODULE_H
#define VLCI_HOST_MODULE_H

#include "realm.h"

/* Makes the module in a guest, under its GIL. -1: an exception is set there. */
int vlci_host_module_add(struct vlci_realm *guest, const char *settings, Py_ssize_t size);

#endif
