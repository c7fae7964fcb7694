/* R5: each context has the time zone of its own TZ, with the answers that libc gives to a process which has that TZ. */
#include <gnu/libc-version.h>
#include <pthread.h>
#include <time.h>

#include "contexts.h"

static const char *const rules[] = {
    "UTC0",
    "",
    "CET-1CEST,M3.5.0,M10.5.0/3",
    "EST5EDT,M3.2.0,M11.1.0",
    "NZST-12NZDT,M9.5.0,M4.1.0/3",
    "<+0545>-5:45",
    "<-03>3<-02>,M3.5.0/-2,M10.5.0/-1",
    "IST-1GMT0,M10.5.0,M3.5.0/1",
    "XYZ3:20:30ABC,J60/0,J300",
    "XYZ-3ABC-5,59,299/24",
    "PST8PDT",
    "Nowhere/At_All",
    "AB",
    "ABC",
    "ABC+99",
};
static const char *const files[] = { "Europe/Berlin",     "America/New_York",
                                     "Asia/Kathmandu",    "Australia/Lord_Howe",
                                     "Africa/Casablanca", "America/Sao_Paulo",
                                     ":Pacific/Apia",     "Asia/Tokyo",
                                     "Europe/Dublin",     "Antarctica/Troll",
                                     "America/Nuuk",      "Etc/GMT+5",
                                     "EST5EDT",           "/usr/share/zoneinfo/Africa/Monrovia" };

struct side {
    probe set_zone, names, describe, make;
};

static vlc_context *context;
static struct side host, inside;

static uint64_t random_state = 88172645463325252u;
static int64_t random_between(int64_t low, int64_t high) { /* xorshift64 */
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return low + (int64_t)(random_state % (uint64_t)(high - low + 1));
}

static const char *described(long moment) { return (const char *)call(context, inside.describe, moment); }

static void compare_moment(const char *zone, long moment) {
    char expected[512];
    snprintf(expected, sizeof expected, "%s", (const char *)host.describe(moment));
    const char *actual = described(moment);
    CHECK(strcmp(actual, expected) == 0, "TZ=%s at %ld:\n%s not\n%s", zone, moment, actual, expected);
}

/* To ask for summer time in winter, or the reverse: glibc 2.31 looks farther for a day that had it than 2.36, and
 * refuses where there is none. */
static int is_answered_alike(const struct tm *tm) {
    struct tm theirs = *tm, ours = *tm;
    if (tm->tm_isdst < 0 || strverscmp(gnu_get_libc_version(), "2.36") >= 0) return 1;
    theirs.tm_isdst = ours.tm_isdst = -1;
    host.make((long)(uintptr_t)&theirs); /* both are asked: the next answer depends on it */
    call(context, inside.make, (long)(uintptr_t)&ours);
    return theirs.tm_isdst == tm->tm_isdst;
}

static void compare_clock(const char *zone, struct tm tm) {
    if (!is_answered_alike(&tm)) return;
    struct tm theirs = tm, ours = tm;
    long expected = host.make((long)(uintptr_t)&theirs);
    if (expected == -1 && tm.tm_isdst >= 0)
        return; /* no such time was near: glibc 2.31 refuses, 2.36 answers */
    long actual = call(context, inside.make, (long)(uintptr_t)&ours);
    CHECK(actual == expected && !memcmp(&ours, &theirs, 9 * sizeof(int)),
          "TZ=%s: mktime(%d-%d-%d %d:%d:%d, %d) is %ld, not %ld", zone, 1900 + tm.tm_year, 1 + tm.tm_mon,
          tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, tm.tm_isdst, actual, expected);
}

static void compare_zone(const char *zone) {
    int before = check_failures;
    host.set_zone((long)(uintptr_t)zone);
    call(context, inside.set_zone, (long)(uintptr_t)zone);
    CHECK_TEXT((const char *)call(context, inside.names, 0), (const char *)host.names(0));
    static const long moments[] = { 0, -1, 1, 951782400, 1711846800, 1729990800, 4102444800, -2208988800 };
    for (size_t i = 0; i < sizeof moments / sizeof *moments; i++) compare_moment(zone, moments[i]);
    for (int i = 0; i < 300 && check_failures < before + 5; i++) {
        compare_moment(zone, random_between(-3000000000, 9000000000));
        compare_moment(zone, random_between(0, 2100000000));
    }
    for (int i = 0; i < 1000 && check_failures < before + 5; i++) {
        struct tm tm = { .tm_year = (int)random_between(1, 200),
                         .tm_mon = (int)random_between(-3, 14),
                         .tm_mday = (int)random_between(-3, 40),
                         .tm_hour = (int)random_between(-3, 30),
                         .tm_min = (int)random_between(-70, 70),
                         .tm_sec = (int)random_between(-70, 70),
                         .tm_isdst = (int)random_between(-1, 1) };
        compare_clock(zone, tm);
    }
    /* around the changes of clocks: months in which they are, by steps of 90 minutes */
    static const int months[] = { 2, 3, 8, 9, 10 };
    for (int month = 0; month < 5 && check_failures < before + 5; month++)
        for (int step = 0; step < 31 * 16; step++)
            for (int summer = -1; summer < 2; summer++)
                compare_clock(zone, (struct tm){ .tm_year = 124,
                                                 .tm_mon = months[month],
                                                 .tm_mday = 1,
                                                 .tm_min = 90 * step,
                                                 .tm_isdst = summer });
}

static struct side side_of(vlc_library *library) {
    return (struct side){ find(context, library, "time_set_zone"), find(context, library, "time_names"),
                          find(context, library, "time_describe"), find(context, library, "time_make") };
}

/* While the host's zone changes, and never the context's. */
static void *ask(void *unused) {
    long wrong = 0;
    probe clock = find(context, NULL, "time_clock");
    for (int i = 0; i < 2000; i++) wrong += call(context, clock, 1720000000) != 18;
    (void)unused;
    return (void *)(uintptr_t)wrong;
}

/* Further zones to compare may be named as arguments. */
int main(int argument_count, char **arguments) {
    void *library = dlopen(FIXTURE("time"), RTLD_NOW);
    REQUIRE(library != NULL, "%s", dlerror());
    host = (struct side){ (probe)dlsym(library, "time_set_zone"), (probe)dlsym(library, "time_names"),
                          (probe)dlsym(library, "time_describe"), (probe)dlsym(library, "time_make") };
    unsetenv("TZ");
    context = context_new("a");
    inside = side_of(load(context, FIXTURE("time"), RTLD_NOW | RTLD_GLOBAL));

    CHECK_TEXT((const char *)call(context, inside.names, 0),
               (const char *)host.names(0)); /* nobody asked yet */
    compare_zone(NULL);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) compare_zone(rules[i]);
    for (int i = 1; i < argument_count; i++) compare_zone(arguments[i]);

    /* Two contexts and the host, each in its own zone. */
    vlc_context *other = context_new("b");
    load(other, FIXTURE("time"), RTLD_NOW | RTLD_GLOBAL);
    host.set_zone((long)(uintptr_t)"UTC0");
    call(context, inside.set_zone, (long)(uintptr_t)"ABC-9");
    call_named(other, NULL, "time_set_zone", (long)(uintptr_t)"XYZ7");
    for (int turn = 0; turn < 3; turn++) {
        time_t noon = 1720008000; /* 2024-07-03, 12:00 UTC */
        CHECK_EQUAL(call_named(context, NULL, "time_clock", noon), 21);
        CHECK_EQUAL(localtime(&noon)->tm_hour, 12);
        CHECK_EQUAL(call_named(other, NULL, "time_clock", noon), 5);
    }
    CHECK_TEXT(getenv("TZ"), "UTC0");
    CHECK_TEXT(tzname[0], "UTC");
    CHECK_EQUAL(timezone, 0);
    CHECK_EQUAL(call_named(context, NULL, "time_place", 0), 0);
    time_t now = 0;
    long places[] = { (long)localtime(&now), call_named(context, NULL, "time_result", 0),
                      call_named(other, NULL, "time_result", 0) };
    CHECK(places[0] != places[1] && places[1] != places[2] && places[0] != places[2],
          "localtime gives the same buffer to two");

    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, ask, NULL) == 0, "no thread");
    for (int i = 0; i < 2000; i++) {
        host.set_zone((long)(uintptr_t)(i & 1 ? "UTC0" : "EST5"));
        time_t noon = 1720008000;
        CHECK_EQUAL(localtime(&noon)->tm_hour, i & 1 ? 12 : 7);
    }
    void *wrong;
    pthread_join(thread, &wrong);
    CHECK(wrong == NULL, "%ld wrong hours in the context while the host's zone changed",
          (long)(uintptr_t)wrong);

    if (access("/usr/share/zoneinfo/Europe/Berlin", R_OK)) {
        if (check_failures) return check_result();
        SKIP("no-zoneinfo", "this system has no time zone database");
    }
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) compare_zone(files[i]);
    context_close(other);
    context_close(context);
    return check_result();
}
