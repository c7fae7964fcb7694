/* R5: strtok, l64a, ecvt and hsearch keep a place or a result between calls: two contexts and the host, interleaved. */
#include <search.h>

#include "contexts.h"

static const char *const tokens[3][4] = { { "h1", "h2", "h3", NULL },
                                          { "a1", "a2", "a3", NULL },
                                          { "b1", "b2", "b3", NULL } };

int main(void) {
    vlc_context *contexts[] = { NULL, context_new("a"), context_new("b") };
    char text[3][16] = { "h1, h2 h3", " a1 a2,,a3", "b1 b2 b3 " };
    for (int i = 1; i < 3; i++) load(contexts[i], FIXTURE("hidden"), RTLD_NOW | RTLD_GLOBAL);
    for (int turn = 0; turn < 4; turn++)
        for (int i = 0; i < 3; i++) {
            char *from = turn ? NULL : text[i];
            char *token = i ? (char *)call_named(contexts[i], NULL, "hidden_token", (long)(uintptr_t)from)
                            : strtok(from, " ,");
            if (tokens[i][turn])
                CHECK_TEXT(token, tokens[i][turn]);
            else
                CHECK(token == NULL, "strtok goes on with \"%s\"", token);
        }

    const char *numbers[] = { l64a(12345), (char *)call_named(contexts[1], NULL, "hidden_number", 678),
                              (char *)call_named(contexts[2], NULL, "hidden_number", 0xffffffffl) };
    CHECK_TEXT(numbers[1], "a8");
    CHECK_TEXT(numbers[2], "zzzzz1");
    CHECK_TEXT(numbers[0], "t.1");
    for (int i = 1; i < 3; i++) CHECK_EQUAL(call_named(contexts[i], NULL, "hidden_digits", 5), 0);

    ENTRY mine = { "name", (void *)7 };
    REQUIRE(hcreate(10) && hsearch(mine, ENTER), "no table");
    for (int i = 1; i < 3; i++) CHECK_EQUAL(call_named(contexts[i], NULL, "hidden_table", 10 * i), 0);
    CHECK_EQUAL(call_named(contexts[1], NULL, "hidden_table", 0), 10);
    ENTRY *found = hsearch(mine, FIND);
    CHECK(found && found->data == (void *)7, "the host's table is not its own");
    CHECK_EQUAL(call_named(contexts[2], NULL, "hidden_table", 0), 20);
    hdestroy();
    CHECK_EQUAL(call_named(contexts[2], NULL, "hidden_table", 5), 0); /* goes with its context */
    context_close(contexts[1]);
    context_close(contexts[2]);
    return check_result();
}
