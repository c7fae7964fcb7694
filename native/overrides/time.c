/* localtime, mktime and kin by the context's own TZ, and the results that libc keeps in static variables.
 * As glibc: localtime, mktime and strftime look at TZ again, localtime_r only when nothing did before. */
#include "context/context.h"
#include "overrides/zone.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <wchar.h>

#define FARTHEST (INT64_C(1) << 56) /* seconds from 1970: beyond it no `int` holds the year */

static struct vlci_zone utc = { .has_rule = true, .rule_names = { "UTC", "UTC" } };

void vlci_time_make(struct vlci_time *time) {
    static char before_tzset[] = "GMT";
    time->names[0] = time->names[1] = before_tzset;
}

void vlci_time_free(struct vlci_time *time) {
    for (struct vlci_zone *zone; (zone = time->zones);) {
        time->zones = zone->next;
        vlci_zone_free(zone);
    }
}

static bool is_for(const struct vlci_zone *zone, const char *words) {
    return words && zone->words ? !strcmp(words, zone->words) : words == zone->words;
}

/* Zones stay until the context ends, since callers keep the names of them (tm_zone, tzname). */
static struct vlci_zone *zone_for(vlc_context *context, const char *words) {
    struct vlci_time *time = &context->libc.time;
    for (struct vlci_zone *zone = time->zones; zone; zone = zone->next)
        if (is_for(zone, words)) return zone;
    char folder[1024];
    bool elsewhere = vlci_context_env(context, "TZDIR", folder, sizeof folder);
    struct vlci_zone *zone = vlci_zone_read(words, elsewhere ? folder : NULL);
    if (!zone) return &utc;
    zone->next = time->zones;
    return time->zones = zone;
}

static void names_set(struct vlci_time *time) {
    struct vlci_local now[2];
    vlci_zone_now(time->zone, now);
    if (!now[0].name) now[0] = now[1];
    if (!now[1].name) now[1] = now[0];
    time->names[0] = (char *)now[0].name;
    time->names[1] = (char *)now[1].name;
    time->west = -now[0].east;
    time->daylight = now[0].east != now[1].east;
}

/* The zone in force; the lock is held. */
static void zone_update(vlc_context *context, bool again) {
    struct vlci_time *time = &context->libc.time;
    if (time->zone && !again) return;
    char buffer[1024];
    const char *words = vlci_context_env(context, "TZ", buffer, sizeof buffer) ? buffer : NULL;
    if (time->zone && is_for(time->zone, words)) return;
    time->zone = zone_for(context, words);
    names_set(time);
}

/* As glibc, it leaves the names that were in use at that moment in tzname. */
static struct tm *convert(struct vlci_time *time, time_t moment, struct tm *result) {
    if (moment > FARTHEST || moment < -FARTHEST) {
        errno = EOVERFLOW;
        return NULL;
    }
    struct vlci_local local = vlci_zone_at(time->zone, moment);
    time_t clock = moment + local.east;
    if (!gmtime_r(&clock, result)) return NULL;
    result->tm_isdst = local.summer;
    result->tm_gmtoff = local.east;
    result->tm_zone = local.name;
    if (time->names[local.summer] != local.name) {
        names_set(time);
        time->names[local.summer] = (char *)local.name;
    }
    return result;
}

static struct tm *local_time(vlc_context *context, const time_t *moment, struct tm *result, bool again) {
    struct vlci_time *time = &context->libc.time;
    if (!moment) {
        errno = EINVAL;
        return NULL;
    }
    VLCI_HOLD(&time->lock);
    zone_update(context, again);
    return convert(time, *moment, result);
}

struct tm *vlci_localtime_r(const time_t *moment, struct tm *result, vlc_context *context) {
    return local_time(context, moment, result, false);
}
struct tm *vlci_localtime(const time_t *moment, vlc_context *context) {
    return local_time(context, moment, &context->libc.time.broken_down, true);
}
struct tm *vlci_gmtime(const time_t *moment, vlc_context *context) {
    return gmtime_r(moment, &context->libc.time.broken_down);
}

void vlci_tzset(vlc_context *context) {
    VLCI_HOLD(&context->libc.time.lock);
    zone_update(context, true);
}
char **vlci_tzname_datum(vlc_context *context) { return context->libc.time.names; }
long *vlci_timezone_datum(vlc_context *context) { return &context->libc.time.west; }
int *vlci_daylight_datum(vlc_context *context) { return &context->libc.time.daylight; }

/* ---- text ---------------------------------------------------------------------------------------------- */

/* asctime_r has room for years of four digits; asctime has for all. */
char *vlci_asctime(const struct tm *tm, vlc_context *context) {
    static const char days[] = "SunMonTueWedThuFriSat", months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    if (!tm || tm->tm_year > INT_MAX - 1900) {
        errno = tm ? EOVERFLOW : EINVAL;
        return NULL;
    }
    bool has_day = tm->tm_wday >= 0 && tm->tm_wday < 7, has_month = tm->tm_mon >= 0 && tm->tm_mon < 12;
    struct vlci_time *time = &context->libc.time;
    snprintf(time->text, sizeof time->text, "%.3s %.3s%3d %.2d:%.2d:%.2d %d\n",
             has_day ? days + tm->tm_wday * 3 : "???", has_month ? months + tm->tm_mon * 3 : "???",
             tm->tm_mday, tm->tm_hour, tm->tm_min, tm->tm_sec, 1900 + tm->tm_year);
    return time->text;
}
char *vlci_ctime(const time_t *moment, vlc_context *context) {
    struct tm *tm = vlci_localtime(moment, context);
    return tm ? vlci_asctime(tm, context) : NULL;
}
char *vlci_ctime_r(const time_t *moment, char *text, vlc_context *context) {
    struct tm tm;
    return local_time(context, moment, &tm, false) ? asctime_r(&tm, text) : NULL;
}

/* ---- mktime -------------------------------------------------------------------------------------------- */

static bool fits(int wanted, bool summer) { return wanted < 0 || (wanted > 0) == summer; }

/* The clock as wanted: that of the nearest moment with such a time within seven years, by steps of a week less
 * an hour, and one hour apart from what is in force where there is none (glibc 2.36, mktime). */
static long other_clock(const struct vlci_zone *zone, int64_t moment, int wanted, long east) {
    const int64_t step = 601200, most = 457243209 / 2 + step;
    for (int64_t away = step; away < most; away += step)
        for (int side = -1; side <= 1; side += 2) {
            struct vlci_local there = vlci_zone_at(zone, moment + side * away);
            if (fits(wanted, there.summer)) return there.east;
        }
    return east + (wanted > 0 ? 3600 : -3600);
}

/* The moment at which the zone's clock shows `clock` (as if it were UTC). Two moments fit when a clock is put
 * back, none when it is put forward; then the result depends on where the search begins, as with libc. */
static int64_t moment_at(struct vlci_time *time, int64_t clock, int wanted) {
    int64_t moment = clock - time->guess, before = INT64_MIN, last = INT64_MIN;
    bool was_summer = false;
    for (int turns = 0; turns < 8; turns++) {
        struct vlci_local there = vlci_zone_at(time->zone, moment);
        int64_t next = clock - there.east;
        if (next == moment)
            return fits(wanted, there.summer) ? moment
                                              : clock - other_clock(time->zone, moment, wanted, there.east);
        /* it goes to and fro: no moment fits, and the one is preferred whose summer time is not as wanted */
        if (moment == before && moment != last &&
            (wanted < 0 ? was_summer <= there.summer : (wanted > 0) != there.summer))
            return moment;
        before = last;
        last = moment;
        was_summer = there.summer;
        moment = next;
    }
    return moment;
}

static time_t make_time(vlc_context *context, struct tm *tm) {
    struct vlci_time *time = &context->libc.time;
    struct tm normal = *tm;
    int saved = errno;
    normal.tm_wday = -1;
    int64_t clock = timegm(&normal);
    if (normal.tm_wday < 0) return -1; /* EOVERFLOW */
    errno = saved;
    VLCI_HOLD(&time->lock);
    zone_update(context, true);
    int64_t moment = moment_at(time, clock, tm->tm_isdst);
    struct tm result;
    if (!convert(time, moment, &result)) return -1;
    time->guess = (long)(clock - moment);
    *tm = result;
    return moment;
}

time_t vlci_mktime(struct tm *tm, vlc_context *context) { return make_time(context, tm); }

/* ---- strftime ------------------------------------------------------------------------------------------ */

/* The format with the seconds since 1970 in place of each %s, which libc would count by the host's zone; NULL:
 * there is none, or no memory. For `char` and `wchar_t`. */
#define DEFINE_WITHOUT_SECONDS(name, type)                                                                   \
    static bool name##_at(const type *at, size_t *length) {                                                  \
        for (*length = 1;                                                                                    \
             at[*length] && (unsigned)at[*length] < 128 && strchr("_-0^#+123456789EO", (int)at[*length]);)   \
            ++*length;                                                                                       \
        return at[(*length)++] == 's';                                                                       \
    }                                                                                                        \
    static type *name(const type *format, vlc_context *context, struct tm tm) {                              \
        size_t size = 1, specifier;                                                                          \
        bool found = false;                                                                                  \
        for (const type *at = format; *at; at++, size++) {                                                   \
            if (*at != '%') continue;                                                                        \
            if (name##_at(at, &specifier)) found = true, size += 24;                                         \
            if (at[1]) at++, size++;                                                                         \
        }                                                                                                    \
        type *made = found ? malloc(size * sizeof *made) : NULL, *to = made;                                 \
        if (!made) return NULL;                                                                              \
        char digits[24];                                                                                     \
        snprintf(digits, sizeof digits, "%lld", (long long)make_time(context, &tm));                         \
        for (const type *at = format; *at;) {                                                                \
            if (*at == '%' && name##_at(at, &specifier)) {                                                   \
                for (const char *digit = digits; *digit; digit++) *to++ = (type) * digit;                    \
                at += specifier;                                                                             \
                continue;                                                                                    \
            }                                                                                                \
            if (*at == '%' && at[1]) *to++ = *at++;                                                          \
            *to++ = *at++;                                                                                   \
        }                                                                                                    \
        *to = 0;                                                                                             \
        return made;                                                                                         \
    }
DEFINE_WITHOUT_SECONDS(without_seconds, char)
DEFINE_WITHOUT_SECONDS(without_seconds_wide, wchar_t)

/* libc takes the zone's name from tm_zone, and from its own tzname where that is missing. */
static struct tm with_zone(const struct tm *tm, vlc_context *context) {
    struct tm named = *tm;
    vlci_tzset(context);
    if ((!named.tm_zone || !*named.tm_zone) && named.tm_isdst >= 0)
        named.tm_zone = context->libc.time.names[named.tm_isdst != 0];
    return named;
}

size_t vlci_strftime_l(char *text, size_t size, const char *format, const struct tm *tm, locale_t locale,
                       vlc_context *context) {
    struct tm named = with_zone(tm, context);
    char *own = without_seconds(format, context, named);
    size_t length = strftime_l(text, size, own ? own : format, &named, locale);
    free(own);
    return length;
}
size_t vlci_strftime(char *text, size_t size, const char *format, const struct tm *tm, vlc_context *context) {
    struct tm named = with_zone(tm, context);
    char *own = without_seconds(format, context, named);
    size_t length = strftime(text, size, own ? own : format, &named);
    free(own);
    return length;
}
size_t vlci_wcsftime_l(wchar_t *text, size_t size, const wchar_t *format, const struct tm *tm,
                       locale_t locale, vlc_context *context) {
    struct tm named = with_zone(tm, context);
    wchar_t *own = without_seconds_wide(format, context, named);
    size_t length = wcsftime_l(text, size, own ? own : format, &named, locale);
    free(own);
    return length;
}
size_t vlci_wcsftime(wchar_t *text, size_t size, const wchar_t *format, const struct tm *tm,
                     vlc_context *context) {
    struct tm named = with_zone(tm, context);
    wchar_t *own = without_seconds_wide(format, context, named);
    size_t length = wcsftime(text, size, own ? own : format, &named);
    free(own);
    return length;
}
