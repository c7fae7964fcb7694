/* trace.h: words that code of any context can leave for the test, even while the process exits.
 *
 * Contexts share file descriptors and nothing else that fits: constructors run before a test could
 * hand them a pointer, and destructors may run after main has returned. */
#ifndef TRACE_H
#define TRACE_H

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define TRACE_DESCRIPTOR 200

/* Leaves a word, with a space after it. Quiet when no test listens. */
static inline void trace(const char *word) {
    char text[128];
    size_t length = strlen(word);
    if (length > sizeof text - 1) length = sizeof text - 1;
    memcpy(text, word, length);
    text[length] = ' ';
    if (write(TRACE_DESCRIPTOR, text, length + 1) < 0) return;
}

/* For the test: begins to listen; gives the reading end. */
static inline int trace_open(void) {
    int ends[2];
    if (pipe(ends) != 0 || dup2(ends[1], TRACE_DESCRIPTOR) < 0) return -1;
    close(ends[1]);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    return ends[0];
}

/* For the test: what was left since the last time, "" when nothing was. */
static inline const char *trace_take(int reader) {
    static char words[8192];
    ssize_t length = read(reader, words, sizeof words - 1);
    if (length < 0) length = 0;
    if (length > 0 && words[length - 1] == ' ') length--;
    words[length] = '\0';
    return words;
}

#endif
