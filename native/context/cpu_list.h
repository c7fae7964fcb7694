/* "0-3,8": a set of CPUs in the kernel's words (Documentation/admin-guide/cputopology.rst). Usable anywhere:
 * after vfork, in signal handlers, before libc is. */
#ifndef VLCI_CPU_LIST_H
#define VLCI_CPU_LIST_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

#define VLCI_CPU_LIST_SIZE 4096 /* holds the longest list of a cpu_set_t, every other CPU, and the NUL */

/* Writes the list, or as many of its ranges as there is room for; its length. */
size_t vlci_cpu_list_print(const cpu_set_t *cpus, char *out, size_t size);

/* False: not a list of at least one CPU up to the end of the text or of its line; *cpus is what was read. Numbers
 * that a cpu_set_t cannot hold are passed over. */
bool vlci_cpu_list_parse(const char *list, cpu_set_t *cpus);

#endif
