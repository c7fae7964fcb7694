/* The nodes that the touched pages of a context's heap and mappings lie on, and moving them. */
#include "context/context.h"
#include "context/policy.h"
#include "loader/error.h"
#include "loader/memory.h"

#include <errno.h>
#include <string.h>

/* At a time, while nobody takes or gives a range of the context: a few milliseconds where they move. */
#define PAGES 1024

struct survey {
    vlci_nodes wanted; /* where pages should be */
    int targets[VLCI_NODES], target_count;
    bool moves;
    size_t round; /* pages that were moved, to go from one target to the next */
    int failed;
    uint64_t *bytes; /* by node, or NULL */
    size_t nodes;
    uint64_t moved, left;
    void *pages[PAGES];
    int status[PAGES], to[PAGES];
};

static void list_pages(struct survey *survey, char *from, size_t count) {
    for (size_t i = 0; i < count; i++) survey->pages[i] = from + i * VLCI_PAGE;
}

/* Pages that are on other nodes than they should be, of which the first `count` are listed; they come first then. */
static size_t keep_strays(struct survey *survey, size_t count) {
    size_t strays = 0;
    for (size_t i = 0; i < count; i++) {
        int node = survey->status[i]; /* negative: not touched, or the kernel's own */
        if (node >= 0 && node < VLCI_NODES && !CPU_ISSET(node, &survey->wanted))
            survey->pages[strays++] = survey->pages[i];
    }
    return strays;
}

static void survey_part(struct vlci_region *region, char *from, size_t length, void *argument) {
    struct survey *survey = argument;
    size_t count = length / VLCI_PAGE;
    if (survey->failed || !vlci_heap_is_anonymous(region)) return;
    list_pages(survey, from, count);
    survey->failed = vlci_os_pages_nodes(survey->pages, count, survey->status);
    for (size_t i = 0; survey->bytes && i < count; i++)
        if (survey->status[i] >= 0 && (size_t)survey->status[i] < survey->nodes)
            survey->bytes[survey->status[i]] += VLCI_PAGE;
    if (survey->failed || !survey->moves) return;
    size_t strays = keep_strays(survey, count), rest = 0;
    if (!strays) return;
    for (size_t i = 0; i < strays; i++)
        survey->to[i] = survey->targets[survey->round++ % (size_t)survey->target_count];
    survey->failed = vlci_os_pages_move(survey->pages, strays, survey->to, survey->status);
    /* Asked again: of a huge page that has moved, the kernel says that all but the first part are busy. */
    if (!survey->failed) survey->failed = vlci_os_pages_nodes(survey->pages, strays, survey->status);
    if (!survey->failed) rest = keep_strays(survey, strays);
    survey->moved += (strays - rest) * VLCI_PAGE;
    survey->left += rest * VLCI_PAGE;
}

static int walk(vlc_context *context, struct survey *survey) {
    for (char *at = NULL;
         !survey->failed && vlci_zones_step(&context->zones, &at, PAGES * VLCI_PAGE, survey_part, survey);) {
    }
    return survey->failed;
}

/* Gives the record back. */
static int done(vlc_context *context, struct survey *survey, const char *what, vlc_error *error) {
    int failed = survey->failed;
    vlci_memory_give(survey, sizeof *survey);
    if (!failed) return VLC_OK;
    return vlci_fail(error, VLC_SYSTEM, -failed, context->name, "cannot %s the memory of context '%s': %s",
                     what, context->name, vlci_policy_why(-failed));
}

static int no_memory(vlc_context *context, vlc_error *error) {
    return vlci_fail(error, VLC_SYSTEM, ENOMEM, context->name,
                     "cannot look at the memory of context '%s': out of memory", context->name);
}

int vlc_memory_nodes(vlc_context *context, uint64_t *bytes, size_t nodes, vlc_error *error) {
    struct survey *survey = vlci_memory_take(sizeof *survey);
    if (!survey) return no_memory(context, error);
    memset(bytes, 0, nodes * sizeof *bytes);
    survey->bytes = bytes;
    survey->nodes = nodes;
    walk(context, survey);
    return done(context, survey, "look at", error);
}

int vlc_migrate_memory(vlc_context *context, uint64_t *moved, uint64_t *left, vlc_error *error) {
    int status = vlci_context_check_open(context, error);
    if (status) return status;
    struct survey *survey = vlci_memory_take(sizeof *survey);
    if (!survey) return no_memory(context, error);
    survey->failed = vlci_policy_nodes(context, &survey->wanted);
    for (int node = 0; node < VLCI_NODES; node++)
        if (CPU_ISSET(node, &survey->wanted)) survey->targets[survey->target_count++] = node;
    survey->moves = true;
    if (!survey->failed && !walk(context, survey)) {
        if (moved) *moved = survey->moved;
        if (left) *left = survey->left;
    }
    return done(context, survey, "move", error);
}
