/* check.h: how a test says what it saw. A test is a program that ends with `return check_result();`. */
#ifndef CHECK_H
#define CHECK_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK_SKIPPED 77 /* ctest's SKIP_RETURN_CODE */

static int check_failures;

__attribute__((format(printf, 3, 4))) static inline void check_failed(const char *file, int line,
                                                                      const char *format, ...) {
    va_list arguments;
    check_failures++;
    fprintf(stderr, "%s:%d: ", file, line);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

/* Goes on after a failure: one run shows all that is wrong. The words give the values. */
#define CHECK(condition, ...)                                                                                \
    do {                                                                                                     \
        if (!(condition)) check_failed(__FILE__, __LINE__, __VA_ARGS__);                                     \
    } while (0)

/* Ends the program: without this, nothing after it means anything. */
#define REQUIRE(condition, ...)                                                                              \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            check_failed(__FILE__, __LINE__, __VA_ARGS__);                                                   \
            exit(EXIT_FAILURE);                                                                              \
        }                                                                                                    \
    } while (0)

#define CHECK_EQUAL(actual, expected)                                                                        \
    do {                                                                                                     \
        long long actual_ = (long long)(actual), expected_ = (long long)(expected);                          \
        CHECK(actual_ == expected_, "%s is %lld, not %lld", #actual, actual_, expected_);                    \
    } while (0)

/* A sanitizer stands between a program and its libc: it calls dlopen in its own name, keeps freed memory and maps
 * as it likes. What it changes about the host is not checked under it. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UNDER_SANITIZER 1
#else
#define UNDER_SANITIZER 0
#endif

#define CHECK_TEXT(actual, expected)                                                                         \
    do {                                                                                                     \
        const char *text_ = (actual);                                                                        \
        CHECK(text_ && strcmp(text_, (expected)) == 0, "%s is \"%s\", not \"%s\"", #actual,                  \
              text_ ? text_ : "(null)", (expected));                                                         \
    } while (0)

#define CHECK_WORDS(text, words)                                                                             \
    CHECK(strstr((text), (words)) != NULL, "\"%s\" is missing in: %s", (words), (text))

/* The name must stand in tests/allowed_skips.txt, or CI fails. */
#define SKIP(name, reason)                                                                                   \
    do {                                                                                                     \
        printf("SKIP %s: %s\n", name, reason);                                                               \
        exit(CHECK_SKIPPED);                                                                                 \
    } while (0)

static inline int check_result(void) { return check_failures ? EXIT_FAILURE : EXIT_SUCCESS; }

#endif
