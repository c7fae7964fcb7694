/* Time zones by the words of TZ: files of the zone database (RFC 8536) and POSIX rules. We read them ourselves,
 * since libc has one zone for the process: to ask it for another would change the host's meanwhile. */
#ifndef VLCI_ZONE_H
#define VLCI_ZONE_H

#include <stdbool.h>
#include <stdint.h>

/* Clock time at some moment. `name` lives as long as its zone. */
struct vlci_local {
    long east; /* seconds ahead of UTC */
    bool summer;
    const char *name;
};

struct vlci_zone {
    struct vlci_zone *next;
    char *words; /* TZ; NULL: the system's zone */
    /* from a file: numbers in it are big-endian and unaligned */
    unsigned char *file;
    const unsigned char *moments, *kinds, *locals;
    const char *names;
    unsigned moment_count, local_count, name_count;
    /* from a rule, which a file has for later than its last moment */
    bool has_rule, has_summer;
    char rule_names[2][64];
    long rule_east[2]; /* standard, summer */
    struct vlci_zone_change {
        enum { DAY_WITHOUT_LEAP, DAY_FROM_ZERO, DAY_OF_WEEK } kind;
        int month, week, day;
        long second;
    } changes[2]; /* to summer, and back */
};

/* Reads the zone; what cannot be read is UTC, as libc has it. `folder`: TZDIR, or NULL. NULL: out of memory. */
struct vlci_zone *vlci_zone_read(const char *words, const char *folder);
void vlci_zone_free(struct vlci_zone *zone);

struct vlci_local vlci_zone_at(const struct vlci_zone *zone, int64_t moment);

/* The latest standard and summer time of the zone; without one, its `name` is NULL. */
void vlci_zone_now(const struct vlci_zone *zone, struct vlci_local now[2]);

#endif
