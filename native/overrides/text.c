/* Functions of libc that keep a place or a result between calls, and have no other question in common. They are
 * as little safe between threads of one context as they are in a process. */
#include "context/context.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

char *vlci_strtok(char *text, const char *delimiters, vlc_context *context) {
    return strtok_r(text, delimiters, &context->libc.text.token_rest);
}

/* Digits of base 64, the least first; only 32 bits count (a64l(3)). */
char *vlci_l64a(long number, vlc_context *context) {
    static const char digits[] = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    char *at = context->libc.text.base64;
    for (uint32_t rest = (uint32_t)number; rest; rest >>= 6) *at++ = digits[rest & 63];
    *at = 0;
    return context->libc.text.base64;
}

char *vlci_ecvt(double value, int digits, int *point, int *sign, vlc_context *context) {
    struct vlci_text *text = &context->libc.text;
    ecvt_r(value, digits, point, sign, text->number, sizeof text->number);
    return text->number;
}
char *vlci_fcvt(double value, int digits, int *point, int *sign, vlc_context *context) {
    struct vlci_text *text = &context->libc.text;
    return fcvt_r(value, digits, point, sign, text->number, sizeof text->number) ? NULL : text->number;
}
char *vlci_qecvt(long double value, int digits, int *point, int *sign, vlc_context *context) {
    struct vlci_text *text = &context->libc.text;
    qecvt_r(value, digits, point, sign, text->number, sizeof text->number);
    return text->number;
}
char *vlci_qfcvt(long double value, int digits, int *point, int *sign, vlc_context *context) {
    struct vlci_text *text = &context->libc.text;
    return qfcvt_r(value, digits, point, sign, text->number, sizeof text->number) ? NULL : text->number;
}

int vlci_hcreate(size_t count, vlc_context *context) {
    struct vlci_text *text = &context->libc.text;
    if (!text->table && !(text->table = calloc(1, sizeof *text->table))) return 0;
    return hcreate_r(count, text->table);
}
ENTRY *vlci_hsearch(ENTRY item, ACTION action, vlc_context *context) {
    ENTRY *found = NULL;
    if (context->libc.text.table) hsearch_r(item, action, &found, context->libc.text.table);
    return found;
}
void vlci_hdestroy(vlc_context *context) {
    if (context->libc.text.table) hdestroy_r(context->libc.text.table);
}

void vlci_text_free(struct vlci_text *text) {
    if (text->table) hdestroy_r(text->table);
    free(text->table);
}
