#include "overrides/table.h"

#include "loader/dynamic.h"
#include "loader/thunks.h"

#include <string.h>

/* Only addresses are taken here; the prototypes are in the headers of the files that define them. */
#define OVERRIDE(name, function, how, group) void function(void);
#include "overrides/overrides.def"
#undef OVERRIDE

#define OVERRIDE(name, function, how, group) { #name, 0, (void *)function, VLCI_##how, VLCI_##group },
static struct vlci_override table[] = {
#include "overrides/overrides.def"
};
#undef OVERRIDE

#define COUNT (sizeof table / sizeof *table)
#define BUCKETS 1024 /* power of two, at least twice COUNT */
_Static_assert(COUNT * 2 <= BUCKETS, "raise BUCKETS");
static uint16_t buckets[BUCKETS]; /* row + 1; 0: empty */

void vlci_override_start(void) {
    for (unsigned row = 0; row < COUNT; row++) {
        table[row].hash = vlci_gnu_hash(table[row].name);
        unsigned at = table[row].hash % BUCKETS;
        while (buckets[at]) at = (at + 1) % BUCKETS;
        buckets[at] = row + 1;
    }
}

int vlci_override_find(const char *name, uint32_t hash) {
    for (unsigned at = hash % BUCKETS; buckets[at]; at = (at + 1) % BUCKETS) {
        const struct vlci_override *row = &table[buckets[at] - 1];
        if (row->hash == hash && !strcmp(row->name, name)) return buckets[at] - 1;
    }
    return -1;
}

unsigned vlci_override_count(void) { return COUNT; }
const struct vlci_override *vlci_override_row(unsigned row) { return &table[row]; }
