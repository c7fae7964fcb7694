/* Names of contexts: given ones against made ones, and when a name is free again. */
#include "contexts.h"

#include <stdatomic.h>

static atomic_int go_on;

static void *run_until_told(void *unused) {
    while (!go_on) usleep(1000);
    return unused;
}

/* The context that has closed but cannot go yet has given its name up. */
static void check_free_after_busy(void) {
    vlc_error error = VLC_ERROR_INIT;
    vlc_task *task = NULL;
    vlc_context *first = context_new("again"), *second = NULL;
    CHECK_REFUSED(vlc_create(&(vlc_spec){ .size = sizeof(vlc_spec), .name = "again" }, &second, &error),
                  error, VLC_BAD_ARGUMENT, "again");
    CHECK(second == NULL, "a refused call wrote its output");
    CHECK_EQUAL(vlc_submit(first, run_until_told, &task, &task, &error), VLC_OK);
    CHECK_REFUSED(vlc_destroy(first, 0, &error), error, VLC_BUSY, "again");
    second = context_new("again");
    CHECK_TEXT(vlc_name(second), "again");
    CHECK_TEXT(vlc_name(first), "again");
    CHECK_REFUSED(vlc_destroy(first, 0, &error), error, VLC_BUSY, "again");
    context_close(second);
    go_on = 1;
    CHECK_EQUAL(vlc_wait(task, NULL, &error), VLC_OK);
    context_close(first);
    context_close(context_new("again"));
}

int main(void) {
    enum { GIVEN = 4, MADE = 8 };
    vlc_context *contexts[1 + GIVEN + MADE] = { context_new(NULL) };
    char name[32];
    int number = 0, count = 1;
    REQUIRE(sscanf(vlc_name(contexts[0]), "vlc-%d", &number) == 1, "a made name is \"%s\"",
            vlc_name(contexts[0]));

    /* Names that would have been made next, and in between. */
    for (int i = 1; i <= GIVEN; i++) {
        snprintf(name, sizeof name, "vlc-%d", number + i * 2 + i / 3);
        contexts[count++] = context_new(name);
        CHECK_TEXT(vlc_name(contexts[count - 1]), name);
    }
    for (int i = 0; i < MADE; i++) contexts[count++] = context_new(NULL);
    for (int i = 0; i < count; i++)
        for (int k = 0; k < i; k++)
            CHECK(strcmp(vlc_name(contexts[i]), vlc_name(contexts[k])) != 0, "two contexts are \"%s\"",
                  vlc_name(contexts[i]));
    for (int i = 0; i < count; i++) context_close(contexts[i]);
    check_free_after_busy();
    return check_result();
}
