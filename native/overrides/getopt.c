/* getopt, getopt_long, getopt_long_only with the variables of the context. Written anew, since libc's keeps its
 * place within a cluster of options where nobody else can set it. Behaves as glibc's does (getopt(3)), to the
 * words of its complaints. */
#include "context/context.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void vlci_getopt_make(struct vlci_getopt *getopt) {
    getopt->index = getopt->print_errors = 1;
    getopt->option = '?';
}

char **vlci_optarg_datum(vlc_context *context) { return &context->libc.getopt.argument; }
int *vlci_optind_datum(vlc_context *context) { return &context->libc.getopt.index; }
int *vlci_opterr_datum(vlc_context *context) { return &context->libc.getopt.print_errors; }
int *vlci_optopt_datum(vlc_context *context) { return &context->libc.getopt.option; }

/* One call: what it was given. */
struct call {
    struct vlci_getopt *state;
    int count;
    char **arguments;
    const char *options; /* behind its '+' or '-' */
    const struct option *longs;
    int *long_index;
    bool only_long; /* a long option may begin with one dash */
    bool quiet;
};

__attribute__((format(printf, 2, 3))) static void complain(const struct call *call, const char *format, ...) {
    if (call->quiet || !call->state->print_errors) return;
    char words[1024];
    int length = snprintf(words, sizeof words, "%s: ", call->arguments[0]);
    if (length < 0 || length >= (int)sizeof words) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words + length, sizeof words - (size_t)length, format, arguments);
    va_end(arguments);
    vlci_os_complain(words);
}

static bool is_operand(const char *argument) { return argument[0] != '-' || !argument[1]; }

static void reverse(char **from, char **to) {
    for (; from < --to; from++) {
        char *first = *from;
        *from = *to;
        *to = first;
    }
}

/* Brings the options that were found behind the skipped operands before them. */
static void options_first(struct call *call) {
    struct vlci_getopt *state = call->state;
    char **operands = call->arguments + state->operands, **options = call->arguments + state->operands_end;
    char **end = call->arguments + state->index;
    reverse(operands, options);
    reverse(options, end);
    reverse(operands, end);
    state->operands += state->index - state->operands_end;
    state->operands_end = state->index;
}

/* Steps over operands. True: the call ends with *result; else an option is at state->index. */
static bool next_argument(struct call *call, int *result) {
    struct vlci_getopt *state = call->state;
    if (state->operands_end > state->index) state->operands_end = state->index;
    if (state->operands > state->index) state->operands = state->index;
    if (state->operand == PERMUTE) {
        if (state->operands != state->operands_end && state->operands_end != state->index)
            options_first(call);
        else if (state->operands_end != state->index)
            state->operands = state->index;
        while (state->index < call->count && is_operand(call->arguments[state->index])) state->index++;
        state->operands_end = state->index;
    }
    if (state->index != call->count && !strcmp(call->arguments[state->index], "--")) {
        state->index++;
        if (state->operands != state->operands_end && state->operands_end != state->index)
            options_first(call);
        else if (state->operands == state->operands_end)
            state->operands = state->index;
        state->operands_end = state->index = call->count;
    }
    *result = -1;
    if (state->index == call->count) {
        if (state->operands != state->operands_end) state->index = state->operands;
        return true;
    }
    if (!is_operand(call->arguments[state->index])) return false;
    if (state->operand == IN_ORDER) {
        state->argument = call->arguments[state->index++];
        *result = 1;
    }
    return true;
}

static bool same_effect(const struct option *a, const struct option *b) {
    return a->has_arg == b->has_arg && a->flag == b->flag && a->val == b->val;
}

/* The option of that name, or of which it is the only beginning. -1: none, -2: several. */
static int find_long(const struct call *call, const char *name, size_t length) {
    int found = -1;
    bool several = false;
    for (int i = 0; call->longs[i].name; i++) {
        if (strncmp(call->longs[i].name, name, length)) continue;
        if (strlen(call->longs[i].name) == length) return i;
        if (found < 0)
            found = i;
        else if (call->only_long || !same_effect(&call->longs[found], &call->longs[i]))
            several = true;
    }
    return several ? -2 : found;
}

static void complain_several(const struct call *call, const char *prefix, const char *name, size_t length) {
    char list[768] = "";
    size_t at = 0;
    for (int i = 0; call->longs[i].name && at < sizeof list; i++)
        if (!strncmp(call->longs[i].name, name, length))
            at += (size_t)snprintf(list + at, sizeof list - at, " '%s%s'", prefix, call->longs[i].name);
    complain(call, "option '%s%s' is ambiguous; possibilities:%s\n", prefix, name, list);
}

static int refuse_long(struct call *call, int option) {
    call->state->option = option;
    return '?';
}

/* The long option that state->rest names. -1: it names none, but a short option does. */
static int long_option(struct call *call, const char *prefix) {
    struct vlci_getopt *state = call->state;
    const char *name = state->rest;
    size_t length = strcspn(name, "=");
    int at = find_long(call, name, length);
    if (at == -1 && call->only_long && call->arguments[state->index][1] != '-' &&
        strchr(call->options, *name))
        return -1;
    state->index++;
    state->rest = NULL;
    if (at == -2) {
        complain_several(call, prefix, name, length);
        return refuse_long(call, 0);
    }
    if (at == -1) {
        complain(call, "unrecognized option '%s%s'\n", prefix, name);
        return refuse_long(call, 0);
    }
    const struct option *option = &call->longs[at];
    if (name[length] && !option->has_arg) {
        complain(call, "option '%s%s' doesn't allow an argument\n", prefix, option->name);
        return refuse_long(call, option->val);
    }
    if (name[length]) {
        state->argument = (char *)name + length + 1;
    } else if (option->has_arg == required_argument) {
        if (state->index >= call->count) {
            complain(call, "option '%s%s' requires an argument\n", prefix, option->name);
            refuse_long(call, option->val);
            return *call->options == ':' ? ':' : '?';
        }
        state->argument = call->arguments[state->index++];
    }
    if (call->long_index) *call->long_index = at;
    if (!option->flag) return option->val;
    *option->flag = option->val;
    return 0;
}

static int missing_argument(struct call *call, char option) {
    complain(call, "option requires an argument -- '%c'\n", option);
    call->state->option = (unsigned char)option;
    return *call->options == ':' ? ':' : '?';
}

static int short_option(struct call *call) {
    struct vlci_getopt *state = call->state;
    char option = *state->rest++;
    const char *found = strchr(call->options, option);
    if (!*state->rest) state->index++;
    if (!found || option == ':' || option == ';') {
        complain(call, "invalid option -- '%c'\n", option);
        state->option = (unsigned char)option;
        return '?';
    }
    if (found[0] == 'W' && found[1] == ';' && call->longs) { /* -W name is --name */
        if (!*state->rest && state->index == call->count) return missing_argument(call, option);
        if (!*state->rest) state->rest = call->arguments[state->index];
        bool only_long = call->only_long;
        call->only_long = false;
        int result = long_option(call, "-W ");
        call->only_long = only_long;
        return result;
    }
    if (found[1] != ':') return (unsigned char)option;
    bool optional = found[2] == ':';
    if (*state->rest) {
        state->argument = (char *)state->rest;
        state->index++;
    } else if (!optional) {
        if (state->index == call->count) {
            state->rest = NULL;
            return missing_argument(call, option);
        }
        state->argument = call->arguments[state->index++];
    }
    state->rest = NULL;
    return (unsigned char)option;
}

static int next(struct call *call, bool posix, vlc_context *context) {
    struct vlci_getopt *state = call->state;
    if (call->count < 1) return -1;
    state->argument = NULL;
    char flag = *call->options;
    if (!state->index || !state->started) {
        if (!state->index) state->index = 1;
        state->operands = state->operands_end = state->index;
        state->rest = NULL;
        char value[4096];
        bool stop = posix || vlci_context_env(context, "POSIXLY_CORRECT", value, sizeof value);
        state->operand = flag == '-' ? IN_ORDER : flag == '+' || stop ? STOP : PERMUTE;
        state->started = true;
    }
    if (flag == '-' || flag == '+') call->options++;
    call->quiet = *call->options == ':';
    if (!state->rest || !*state->rest) {
        int result;
        if (next_argument(call, &result)) return result;
        const char *argument = call->arguments[state->index];
        if (call->longs && argument[1] == '-') {
            state->rest = argument + 2;
            return long_option(call, "--");
        }
        state->rest = argument + 1;
        if (call->longs && call->only_long && (argument[2] || !strchr(call->options, argument[1]))) {
            result = long_option(call, "-");
            if (result != -1) return result;
        }
    }
    return short_option(call);
}

int vlci_getopt(int count, char *const *arguments, const char *options, vlc_context *context) {
    struct call call = {
        &context->libc.getopt, count, (char **)arguments, options, NULL, NULL, false, false
    };
    return next(&call, false, context);
}
int vlci_posix_getopt(int count, char *const *arguments, const char *options, vlc_context *context) {
    struct call call = {
        &context->libc.getopt, count, (char **)arguments, options, NULL, NULL, false, false
    };
    return next(&call, true, context);
}
int vlci_getopt_long(int count, char *const *arguments, const char *options, const struct option *longs,
                     int *long_index, vlc_context *context) {
    struct call call = {
        &context->libc.getopt, count, (char **)arguments, options, longs, long_index, false, false
    };
    return next(&call, false, context);
}
int vlci_getopt_long_only(int count, char *const *arguments, const char *options, const struct option *longs,
                          int *long_index, vlc_context *context) {
    struct call call = {
        &context->libc.getopt, count, (char **)arguments, options, longs, long_index, true, false
    };
    return next(&call, false, context);
}
