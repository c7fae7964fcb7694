/* Quality of service: how a context's own threads stand against others, by nice value, policy of scheduling and
 * control groups. All of it is a thread's, and goes over to those that it makes. */
#include "context/context.h"
#include "loader/error.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int policies[] = { SCHED_OTHER, SCHED_BATCH, SCHED_IDLE }; /* by vlc_scheduling */

int vlci_quality_check(const vlc_spec *spec, vlc_error *error) {
    if (spec->scheduling > VLC_SCHEDULING_IDLE)
        return vlci_fail(error, VLC_BAD_ARGUMENT, 0, spec->name,
                         "cannot create a context with scheduling %u; give a vlc_scheduling",
                         spec->scheduling);
    if (spec->sets_nice && (spec->nice < -20 || spec->nice > 19))
        return vlci_fail(error, VLC_BAD_ARGUMENT, 0, spec->name,
                         "cannot create a context with the nice value %d; the kernel has -20 to 19",
                         spec->nice);
    return VLC_OK;
}

bool vlci_quality_make(struct vlci_quality *quality, const vlc_spec *spec) {
    quality->scheduling = spec->scheduling;
    quality->sets_nice = spec->sets_nice;
    quality->nice = spec->nice;
    vlci_os_nice_get(getpid(), &quality->nice_outside);
    return (quality->groups = vlci_list_copy(spec->groups)) != NULL;
}

void vlci_quality_free(struct vlci_quality *quality) { vlci_list_free(quality->groups); }

/* Joins the group above that whose file of ids this is. */
static void leave(const char *file) {
    char above[4096];
    const char *name = strrchr(file, '/'), *group = name;
    while (group && group > file && *--group != '/') {
    }
    if (!group || *group != '/') return;
    int length = snprintf(above, sizeof above, "%.*s%s", (int)(group - file), file, name);
    if (length > 0 && length < (int)sizeof above) vlci_os_group_join(above);
}

void vlci_quality_begin(const vlc_context *context, const vlc_context *maker) {
    if (maker == context) return;
    const struct vlci_quality *ours = &context->quality, *theirs = maker ? &maker->quality : NULL;
    if (ours->scheduling || (theirs && theirs->scheduling))
        vlci_os_scheduling_set(0, policies[ours->scheduling]);
    if (ours->sets_nice)
        vlci_os_nice_set(0, ours->nice);
    else if (theirs && theirs->sets_nice)
        vlci_os_nice_set(0, theirs->nice_outside);
    for (char **file = theirs ? theirs->groups : NULL; file && *file; file++) leave(*file);
    for (char **file = ours->groups; *file; file++) vlci_os_group_join(*file);
}
