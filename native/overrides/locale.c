/* setlocale for a context: a locale of its own that its threads and visitors use (uselocale), since libc has
 * one per process. It begins as a fresh process does, with "C". */
#include "context/context.h"
#include "loader/thread.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A locale that was replaced: other threads may be using it until they next enter, so it stays. */
struct vlci_locale_old {
    struct vlci_locale_old *next;
    locale_t locale;
};

#define CATEGORIES 13
static const char *const category_names[CATEGORIES] = {
    [LC_CTYPE] = "LC_CTYPE",
    [LC_NUMERIC] = "LC_NUMERIC",
    [LC_TIME] = "LC_TIME",
    [LC_COLLATE] = "LC_COLLATE",
    [LC_MONETARY] = "LC_MONETARY",
    [LC_MESSAGES] = "LC_MESSAGES",
    [LC_PAPER] = "LC_PAPER",
    [LC_NAME] = "LC_NAME",
    [LC_ADDRESS] = "LC_ADDRESS",
    [LC_TELEPHONE] = "LC_TELEPHONE",
    [LC_MEASUREMENT] = "LC_MEASUREMENT",
    [LC_IDENTIFICATION] = "LC_IDENTIFICATION",
};

bool vlci_locale_make(vlc_context *context) {
    context->locale = newlocale(LC_ALL_MASK, "C", NULL);
    return context->locale != NULL;
}

locale_t vlci_context_locale(vlc_context *context) { return context->locale; }

void vlci_locale_free(vlc_context *context) {
    for (struct vlci_locale_old *old; (old = context->old_locales);) {
        context->old_locales = old->next;
        freelocale(old->locale);
        free(old);
    }
    if (context->locale) freelocale(context->locale);
    for (int i = 0; i < CATEGORIES; i++) free(context->locale_names[i]);
    free(context->locale_all);
}

static const char *name_of(const vlc_context *context, int category) {
    return context->locale_names[category] ? context->locale_names[category] : "C";
}

/* setlocale(LC_ALL, NULL): one name, or "LC_CTYPE=...;LC_NUMERIC=...;..." in glibc's order. */
static char *compose(vlc_context *context) {
    char words[2048] = "";
    size_t at = 0;
    bool same = true;
    for (int i = 0; i < CATEGORIES; i++) {
        if (!category_names[i]) continue;
        same &= !strcmp(name_of(context, i), name_of(context, LC_CTYPE));
        at += (size_t)snprintf(words + at, sizeof words - at, "%s%s=%s", at ? ";" : "", category_names[i],
                               name_of(context, i));
        if (at >= sizeof words) return NULL;
    }
    free(context->locale_all);
    return context->locale_all = strdup(same ? name_of(context, LC_CTYPE) : words);
}

/* "" means the environment's choice (locale(7)): LC_ALL, then the category's own, then LANG. */
static const char *from_environment(vlc_context *context, int category, char *buffer, size_t size) {
    if (vlci_context_env(context, "LC_ALL", buffer, size) && *buffer) return buffer;
    if (vlci_context_env(context, category_names[category], buffer, size) && *buffer) return buffer;
    if (vlci_context_env(context, "LANG", buffer, size) && *buffer) return buffer;
    return "C";
}

/* The name that `wanted` gives a category: itself, the environment's, or its part of a composed name. */
static const char *wanted_for(vlc_context *context, int category, const char *wanted, char *buffer,
                              size_t size) {
    if (!*wanted) return from_environment(context, category, buffer, size);
    if (!strchr(wanted, ';')) return wanted;
    size_t length = strlen(category_names[category]);
    for (const char *at = wanted; at; at = strchr(at, ';') ? strchr(at, ';') + 1 : NULL) {
        if (strncmp(at, category_names[category], length) || at[length] != '=') continue;
        snprintf(buffer, size, "%.*s", (int)strcspn(at + length + 1, ";"), at + length + 1);
        return buffer;
    }
    return name_of(context, category);
}

static char *set(vlc_context *context, int category, const char *wanted) {
    locale_t made = duplocale(context->locale);
    char *names[CATEGORIES] = { 0 };
    bool good = made != NULL;
    for (int i = 0; i < CATEGORIES && good; i++) {
        if (!category_names[i] || (category != LC_ALL && category != i)) continue;
        char buffer[256];
        const char *name = wanted_for(context, i, wanted, buffer, sizeof buffer);
        locale_t changed = newlocale(1 << i, name, made);
        good = changed && (names[i] = strdup(name));
        if (changed) made = changed;
    }
    struct vlci_locale_old *old = good ? malloc(sizeof *old) : NULL;
    if (!old) {
        for (int i = 0; i < CATEGORIES; i++) free(names[i]);
        if (made) freelocale(made);
        return NULL;
    }
    *old = (struct vlci_locale_old){ context->old_locales, context->locale };
    context->old_locales = old;
    context->locale = made;
    for (int i = 0; i < CATEGORIES; i++) {
        if (!names[i]) continue;
        free(context->locale_names[i]);
        context->locale_names[i] = names[i];
    }
    uselocale(made);
    return category == LC_ALL ? compose(context) : context->locale_names[category];
}

char *vlci_setlocale(int category, const char *wanted, vlc_context *context) {
    if (category < 0 || category >= CATEGORIES || (category != LC_ALL && !category_names[category]))
        return NULL;
    VLCI_HOLD(&context->locale_lock);
    if (wanted) return set(context, category, wanted);
    return category == LC_ALL ? compose(context) : (char *)name_of(context, category);
}

/* For the context, "the global locale" is its own. */
locale_t vlci_uselocale(locale_t locale, vlc_context *context) {
    locale_t old = uselocale(locale == LC_GLOBAL_LOCALE ? context->locale : locale);
    return old == context->locale ? LC_GLOBAL_LOCALE : old;
}

locale_t vlci_duplocale(locale_t locale, vlc_context *context) {
    return duplocale(locale == LC_GLOBAL_LOCALE ? context->locale : locale);
}
