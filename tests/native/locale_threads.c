/* L5: ctype, locale and number parsing inside contexts, from threads that the host made; and a locale of one's own. */
#include <locale.h>
#include <pthread.h>
#include <stdlib.h>

#include "contexts.h"

static vlc_context *contexts[2];
static probe probes[2];

static void *ask(void *number) {
    long wrong = 0;
    for (long turn = 0; turn < 500 && !wrong; turn++) {
        int which = (int)((turn + (long)(uintptr_t)number) & 1);
        wrong = call(contexts[which], probes[which], turn);
    }
    return (void *)(uintptr_t)wrong;
}

int main(void) {
    pthread_t threads[8];
    contexts[0] = context_new("a");
    contexts[1] = context_new("b");
    for (int i = 0; i < 2; i++)
        probes[i] = find(contexts[i], load(contexts[i], FIXTURE("locale_probe"), RTLD_NOW), "locale_probe");
    for (uintptr_t i = 0; i < 8; i++)
        REQUIRE(pthread_create(&threads[i], NULL, ask, (void *)i) == 0, "no thread %d", (int)i);
    for (int i = 0; i < 8; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        CHECK(wrong == NULL, "locale_probe.c:%ld is not so", (long)(uintptr_t)wrong);
    }

    CHECK_EQUAL(MB_CUR_MAX, 1);
    long width = call_named(contexts[0], NULL, "locale_set", (long)(uintptr_t)"C.UTF-8");
    if (width == 0) SKIP("no-c-utf8", "this system has no locale C.UTF-8");
    CHECK(width >= 4, "C.UTF-8 has characters of %ld bytes", width);
    CHECK_EQUAL(MB_CUR_MAX, 1);
    CHECK_TEXT(setlocale(LC_CTYPE, NULL), "C");
    CHECK_EQUAL(call_named(contexts[1], NULL, "locale_width", 0), 1);
    CHECK_EQUAL(call_named(contexts[0], NULL, "locale_width", 0), width);
    context_close(contexts[0]);
    context_close(contexts[1]);
    CHECK_EQUAL(MB_CUR_MAX, 1);
    return check_result();
}
