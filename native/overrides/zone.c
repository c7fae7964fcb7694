#include "overrides/zone.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER "/usr/share/zoneinfo"
#define SYSTEM_ZONE "/etc/localtime"
#define LARGEST (1 << 20) /* a zone's file has some kilobytes */
#define DAY 86400l

/* ---- POSIX rules: "CET-1CEST,M3.5.0,M10.5.0/3" --------------------------------------------------------- */

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static bool is_number(char c) { return c >= '0' && c <= '9'; }

static bool rule_name(const char **at, char name[64]) {
    bool quoted = **at == '<';
    const char *start = *at + quoted, *end = start;
    while (is_letter(*end) || (quoted && (is_number(*end) || *end == '+' || *end == '-'))) end++;
    size_t length = (size_t)(end - start);
    if (length < 3 || length > 63 || (quoted && *end != '>')) return false;
    memcpy(name, start, length);
    name[length] = 0;
    *at = end + quoted;
    return true;
}

static bool number(const char **at, long most, long *value) {
    if (!is_number(**at)) return false;
    for (*value = 0; is_number(**at); ++*at) *value = *value > most ? *value : *value * 10 + (**at - '0');
    if (*value > most) *value = most;
    return true;
}

/* [+-]hh[:mm[:ss]] in seconds. */
static bool clock_time(const char **at, long most_hours, long *seconds) {
    long part = 0, sign = **at == '-' ? -1 : 1;
    if (**at == '-' || **at == '+') ++*at;
    if (!number(at, most_hours, &part)) return false;
    *seconds = part * 3600;
    for (long unit = 60; unit && **at == ':'; unit = unit == 60 ? 1 : 0) {
        ++*at;
        if (!number(at, 59, &part)) return false;
        *seconds += part * unit;
    }
    *seconds *= sign;
    return true;
}

static bool rule_change(const char **at, struct vlci_zone_change *change) {
    long month = 0, week = 0, day = 0;
    if (*(*at)++ != ',') return false;
    if (**at == 'M') {
        ++*at;
        if (!number(at, 13, &month) || *(*at)++ != '.' || !number(at, 6, &week) || *(*at)++ != '.' ||
            !number(at, 7, &day) || month < 1 || month > 12 || week < 1 || week > 5 || day > 6)
            return false;
        change->kind = DAY_OF_WEEK;
    } else {
        change->kind = **at == 'J' ? DAY_WITHOUT_LEAP : DAY_FROM_ZERO;
        if (**at == 'J') ++*at;
        if (!number(at, 366, &day) || day > 365 || (change->kind == DAY_WITHOUT_LEAP && !day)) return false;
    }
    change->month = (int)month;
    change->week = (int)week;
    change->day = (int)day;
    change->second = 2 * 3600;
    if (**at != '/') return true;
    ++*at;
    return clock_time(at, 167, &change->second);
}

/* False: these are no rule at all. What comes before an error counts, as with libc. */
static bool rule_read(struct vlci_zone *zone, const char *at) {
    long west;
    if (!rule_name(&at, zone->rule_names[0])) return false;
    zone->has_rule = true;
    if (!(is_number(*at) || *at == '+' || *at == '-') || !clock_time(&at, 24, &west)) return true;
    zone->rule_east[0] = zone->rule_east[1] = -west;
    if (!rule_name(&at, zone->rule_names[1])) {
        strcpy(zone->rule_names[1], zone->rule_names[0]);
        return true;
    }
    zone->has_summer = true;
    zone->rule_east[1] = zone->rule_east[0] + 3600;
    if (*at && *at != ',' && clock_time(&at, 24, &west)) zone->rule_east[1] = -west;
    /* without changes, those of the United States since 2007 */
    zone->changes[0] = (struct vlci_zone_change){ DAY_OF_WEEK, 3, 2, 0, 7200 };
    zone->changes[1] = (struct vlci_zone_change){ DAY_OF_WEEK, 11, 1, 0, 7200 };
    struct vlci_zone_change read[2];
    if (*at == ',' && rule_change(&at, &read[0]) && rule_change(&at, &read[1]))
        memcpy(zone->changes, read, sizeof read);
    return true;
}

static bool is_leap(int64_t year) { return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0; }

/* Days from 1970-01-01 to the first of January of the year. */
static int64_t days_to(int64_t year) {
    int64_t before = year - 1;
    int64_t quads = before / 4 - (before % 4 < 0), centuries = before / 100 - (before % 100 < 0);
    int64_t cycles = before / 400 - (before % 400 < 0);
    return (year - 1970) * 365 + (quads - centuries + cycles) - (1969 / 4 - 1969 / 100 + 1969 / 400);
}

static int64_t year_of(int64_t moment) {
    int64_t days = moment / DAY - (moment % DAY < 0);
    int64_t year = 1970 + (int64_t)((double)days / 365.2425); /* or one beside it */
    while (days_to(year) > days) year--;
    while (days_to(year + 1) <= days) year++;
    return year;
}

/* The moment of the change in that year, by the clock that is `east` ahead of UTC. */
static int64_t change_in(const struct vlci_zone_change *change, int64_t year, long east) {
    static const short month_days[] = { 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365 };
    int64_t day = days_to(year);
    if (change->kind == DAY_FROM_ZERO) {
        day += change->day;
    } else if (change->kind == DAY_WITHOUT_LEAP) {
        day += change->day - 1 + (change->day >= 60 && is_leap(year));
    } else {
        int64_t first = day + month_days[change->month - 1] + (change->month > 2 && is_leap(year));
        int64_t last = day + month_days[change->month] + (change->month > 1 && is_leap(year)) - 1;
        int64_t weekday = ((first + 4) % 7 + 7) % 7; /* 1970-01-01 was a Thursday */
        day = first + (change->day - weekday + 7) % 7 + (change->week - 1) * 7;
        if (day > last) day -= 7;
    }
    return day * DAY + change->second - east;
}

static struct vlci_local rule_at(const struct vlci_zone *zone, int64_t moment) {
    bool summer = false;
    if (zone->has_summer) {
        int64_t year = year_of(moment);
        if (year < 1970) year = 1970; /* as libc: rules say nothing about earlier years */
        int64_t start = change_in(&zone->changes[0], year, zone->rule_east[0]);
        int64_t end = change_in(&zone->changes[1], year, zone->rule_east[1]);
        summer = start > end ? moment < end || moment >= start : moment >= start && moment < end;
    }
    return (struct vlci_local){ zone->rule_east[summer], summer, zone->rule_names[summer] };
}

/* ---- files --------------------------------------------------------------------------------------------- */

static uint32_t word(const unsigned char *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}
static int64_t moment_of(const struct vlci_zone *zone, unsigned i) {
    return (int64_t)((uint64_t)word(zone->moments + i * 8) << 32 | word(zone->moments + i * 8 + 4));
}
static struct vlci_local local_of(const struct vlci_zone *zone, unsigned i) {
    const unsigned char *at = zone->locals + i * 6;
    return (struct vlci_local){ (int32_t)word(at), at[4] != 0, zone->names + at[5] };
}

static unsigned char *contents(const char *path, size_t *size) {
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return NULL;
    unsigned char *text = NULL;
    if (!fstat(fd, &status) && S_ISREG(status.st_mode) && status.st_size < LARGEST &&
        (text = malloc((size_t)status.st_size + 1)) != NULL) {
        ssize_t got = read(fd, text, (size_t)status.st_size);
        *size = got > 0 ? (size_t)got : 0;
        text[*size] = 0;
    }
    close(fd);
    return text;
}

/* Six counts in the header, in this order. */
enum { UT_FLAGS, STANDARD_FLAGS, LEAPS, MOMENTS, LOCALS, NAMES };
#define HEADER 44

static bool header_read(const unsigned char *at, const unsigned char *end, size_t counts[6]) {
    if (end - at < HEADER || memcmp(at, "TZif", 4)) return false;
    for (int i = 0; i < 6; i++)
        if ((counts[i] = word(at + 20 + i * 4)) > LARGEST) return false;
    return true;
}
static size_t body_size(const size_t counts[6], size_t moment_size) {
    return counts[MOMENTS] * (moment_size + 1) + counts[LOCALS] * 6 + counts[NAMES] +
           counts[LEAPS] * (moment_size + 4) + counts[STANDARD_FLAGS] + counts[UT_FLAGS];
}

/* Leap seconds ("right/" zones) are not counted. Files without 64-bit moments were last made in 2007. */
static bool file_parse(struct vlci_zone *zone, size_t size) {
    const unsigned char *at = zone->file, *end = at + size;
    size_t counts[6];
    if (!header_read(at, end, counts) || at[4] < '2') return false;
    if ((size_t)(end - at) < HEADER + body_size(counts, 4)) return false;
    at += HEADER + body_size(counts, 4);
    if (!header_read(at, end, counts) || (size_t)(end - at) < HEADER + body_size(counts, 8)) return false;
    at += HEADER;
    zone->moments = at;
    zone->kinds = zone->moments + counts[MOMENTS] * 8;
    zone->locals = zone->kinds + counts[MOMENTS];
    zone->names = (const char *)zone->locals + counts[LOCALS] * 6;
    if (!counts[LOCALS] || !counts[NAMES] || zone->names[counts[NAMES] - 1]) return false;
    for (size_t i = 0; i < counts[MOMENTS]; i++)
        if (zone->kinds[i] >= counts[LOCALS]) return false;
    for (size_t i = 0; i < counts[LOCALS]; i++)
        if (zone->locals[i * 6 + 5] >= counts[NAMES]) return false;
    zone->moment_count = (unsigned)counts[MOMENTS];
    zone->local_count = (unsigned)counts[LOCALS];
    zone->name_count = (unsigned)counts[NAMES];
    char rule[256];
    if (sscanf((const char *)at + body_size(counts, 8), "\n%255[^\n]", rule) == 1) rule_read(zone, rule);
    return true;
}

static bool file_read(struct vlci_zone *zone, const char *name, const char *folder) {
    char path[4096];
    bool absolute = *name == '/';
    if (!absolute && (!folder || !*folder)) folder = FOLDER;
    if (snprintf(path, sizeof path, "%s%s%s", absolute ? "" : folder, absolute ? "" : "/", name) >=
        (int)sizeof path)
        return false;
    size_t size = 0;
    if (!(zone->file = contents(path, &size))) return false;
    if (file_parse(zone, size)) return true;
    free(zone->file);
    zone->file = NULL;
    zone->local_count = 0;
    return false;
}

struct vlci_zone *vlci_zone_read(const char *words, const char *folder) {
    struct vlci_zone *zone = calloc(1, sizeof *zone);
    if (!zone || (words && !(zone->words = strdup(words)))) {
        free(zone);
        return NULL;
    }
    const char *name = words && *words == ':' ? words + 1 : words;
    if (name && !*name) name = "Universal";
    if (file_read(zone, name ? name : SYSTEM_ZONE, folder)) return zone;
    if (!name || !strcmp(name, SYSTEM_ZONE) || !strcmp(name, "Universal")) {
        zone->has_rule = true;
        strcpy(zone->rule_names[0], "UTC");
        strcpy(zone->rule_names[1], "UTC");
        return zone;
    }
    if (!rule_read(zone, name)) zone->has_rule = true; /* a zone without a name, at UTC */
    return zone;
}

void vlci_zone_free(struct vlci_zone *zone) {
    free(zone->file);
    free(zone->words);
    free(zone);
}

/* ---- what a zone says ---------------------------------------------------------------------------------- */

struct vlci_local vlci_zone_at(const struct vlci_zone *zone, int64_t moment) {
    unsigned count = zone->moment_count;
    if (zone->has_rule && (!count || moment >= moment_of(zone, count - 1))) return rule_at(zone, moment);
    if (!count || moment < moment_of(zone, 0)) { /* the first that is no summer time, as libc */
        unsigned first = 0;
        while (first < zone->local_count && local_of(zone, first).summer) first++;
        return local_of(zone, first < zone->local_count ? first : 0);
    }
    unsigned low = 0, high = count; /* moment_of(low) <= moment < moment_of(high) */
    while (high - low > 1) {
        unsigned middle = low + (high - low) / 2;
        if (moment_of(zone, middle) <= moment)
            low = middle;
        else
            high = middle;
    }
    return local_of(zone, zone->kinds[low]);
}

void vlci_zone_now(const struct vlci_zone *zone, struct vlci_local now[2]) {
    now[0] = now[1] = (struct vlci_local){ 0, false, NULL };
    if (zone->has_rule && !zone->local_count) {
        now[0] = (struct vlci_local){ zone->rule_east[0], false, zone->rule_names[0] };
        now[1] = (struct vlci_local){ zone->rule_east[zone->has_summer], true, zone->rule_names[1] };
        return;
    }
    for (unsigned i = zone->moment_count; i-- > 0;) {
        struct vlci_local local = local_of(zone, zone->kinds[i]);
        if (!now[local.summer].name) now[local.summer] = local;
    }
    for (unsigned i = 0; i < zone->local_count; i++) {
        struct vlci_local local = local_of(zone, i);
        if (!now[local.summer].name) now[local.summer] = local;
    }
}
