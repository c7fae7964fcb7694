/* The layout of the public records is frozen: members are only ever appended. Compiling is the test. */
#include <stddef.h>

#include "vlcs.h"

#define AT(record, member, offset)                                                                           \
    _Static_assert(offsetof(record, member) == (offset),                                                     \
                   #record "." #member " has moved: append members, never insert")
#define SIZE(record, size)                                                                                   \
    _Static_assert(sizeof(record) == (size),                                                                 \
                   #record " has another size: write the new one here when a member was appended")

_Static_assert(VLC_ABI_VERSION == 1, "a new ABI number: the layouts below may change with it");

AT(vlc_error, size, 0);
AT(vlc_error, status, 4);
AT(vlc_error, os_error, 8);
AT(vlc_error, subject, 12);
AT(vlc_error, message, 256);
SIZE(vlc_error, 1024);

AT(vlc_spec, size, 0);
AT(vlc_spec, threads, 4);
AT(vlc_spec, name, 8);
AT(vlc_spec, cpus, 16);
AT(vlc_spec, cpu_count, 24);
AT(vlc_spec, env, 32);
AT(vlc_spec, share, 40);
AT(vlc_spec, residence, 48);
AT(vlc_spec, heap, 52);
AT(vlc_spec, scheduling, 56);
AT(vlc_spec, sets_nice, 60);
AT(vlc_spec, nice, 64);
AT(vlc_spec, groups, 72);
AT(vlc_spec, memory, 80);
AT(vlc_spec, huge_pages, 84);
AT(vlc_spec, nodes, 88);
AT(vlc_spec, node_count, 96);
AT(vlc_spec, memory_limit, 104);
SIZE(vlc_spec, 112);

AT(vlc_stats, size, 0);
AT(vlc_stats, threads, 4);
AT(vlc_stats, visitors, 8);
AT(vlc_stats, libraries, 12);
AT(vlc_stats, cpu_time, 16);
AT(vlc_stats, voluntary_switches, 24);
AT(vlc_stats, involuntary_switches, 32);
AT(vlc_stats, heap_bytes, 40);
AT(vlc_stats, mapped_bytes, 48);
AT(vlc_stats, library_bytes, 56);
AT(vlc_stats, static_tls_bytes, 64);
AT(vlc_stats, lookups, 72);
AT(vlc_stats, cached, 80);
AT(vlc_stats, keys, 88);
AT(vlc_stats, resident, 92);
AT(vlc_stats, static_tls_left, 96);
AT(vlc_stats, heap_used, 104);
AT(vlc_stats, memory_bytes, 112);
AT(vlc_stats, memory_peak, 120);
AT(vlc_stats, memory_limit, 128);
SIZE(vlc_stats, 136);

AT(vlc_pool, size, 0);
AT(vlc_pool, state, 4);
AT(vlc_pool, threads, 8);
AT(vlc_pool, library, 16);
AT(vlc_pool, path, 24);
SIZE(vlc_pool, 32);

AT(vlc_limits, size, 0);
AT(vlc_limits, contexts, 4);
AT(vlc_limits, static_tls_total, 8);
AT(vlc_limits, static_tls_used, 16);
AT(vlc_limits, mappings, 24);
AT(vlc_limits, mappings_max, 32);
AT(vlc_limits, wrappers, 40);
AT(vlc_limits, late_calls, 48);
AT(vlc_limits, resident, 56);
AT(vlc_limits, next_is_resident, 60);
AT(vlc_limits, resident_tls_total, 64);
AT(vlc_limits, host_malloc, 72);
SIZE(vlc_limits, 80);

_Static_assert(VLC_RESIDENT_NEVER == 0 && VLC_RESIDENT_WHEN_NEEDED == 1 && VLC_RESIDENT_ALWAYS == 2,
               "the numbers of vlc_residence are part of the ABI");
_Static_assert(VLC_MEMORY_DEFAULT == 0 && VLC_MEMORY_BIND == 1 && VLC_MEMORY_PREFERRED == 2 &&
                   VLC_MEMORY_INTERLEAVE == 3 && VLC_MEMORY_LOCAL == 4,
               "the numbers of vlc_memory are part of the ABI");
_Static_assert(VLC_HUGE_PAGES_DEFAULT == 0 && VLC_HUGE_PAGES_ALWAYS == 1 && VLC_HUGE_PAGES_NEVER == 2,
               "the numbers of vlc_huge_pages are part of the ABI");
_Static_assert(VLC_OK == 0 && VLC_BAD_ARGUMENT == 1 && VLC_MISUSE == 2 && VLC_LOAD_FAILED == 3 &&
                   VLC_LIMIT == 4 && VLC_SYSTEM == 5 && VLC_BUSY == 6 && VLC_BUG == 7,
               "the numbers of vlc_status are part of the ABI");

int main(void) { return 0; }
