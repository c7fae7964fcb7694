/* What vlc_create refuses, and that a refusal leaves nothing behind. */
#include <fcntl.h>

#include "contexts.h"

static long descriptor_count(void) {
    long count = 0;
    for (int i = 0; i < 256; i++) count += fcntl(i, F_GETFD) >= 0;
    return count;
}

int main(void) {
    uint32_t cpus[3], absent = 4095;
    vlc_error error = VLC_ERROR_INIT;
    vlc_limits limits = { .size = sizeof limits };
    vlc_context *none = NULL;
    process_cpus(cpus, 1);
    vlc_context *warm = context_new("warm"); /* what the first context makes once for all stays */
    long mappings = mapping_count(), descriptors = descriptor_count();

    vlc_spec spec = VLC_SPEC_INIT;
    spec.name = "warm";
    CHECK_REFUSED(vlc_create(&spec, &none, &error), error, VLC_BAD_ARGUMENT, "warm");
    spec.name = "refused";
    spec.cpus = &absent;
    spec.cpu_count = 1;
    CHECK_REFUSED(vlc_create(&spec, &none, &error), error, VLC_BAD_ARGUMENT, "4095");
    CHECK_WORDS(error.message, "refused");
    cpus[1] = absent;
    spec.cpus = cpus; /* one good, one bad */
    spec.cpu_count = 2;
    CHECK_REFUSED(vlc_create(&spec, &none, &error), error, VLC_BAD_ARGUMENT, "4095");
    spec.cpu_count = 0;
    CHECK_REFUSED(vlc_create(&spec, &none, &error), error, VLC_BAD_ARGUMENT, "refused");
    spec = (vlc_spec)VLC_SPEC_INIT;
    spec.size = 3;
    CHECK_REFUSED(vlc_create(&spec, &none, &error), error, VLC_BAD_ARGUMENT, "size");
    const char *const env[] = { "=nothing", NULL };
    spec = (vlc_spec)VLC_SPEC_INIT;
    spec.env = env;
    CHECK_REFUSED(vlc_create(&spec, &none, &error), error, VLC_BAD_ARGUMENT, "=nothing");

    CHECK(none == NULL, "a refused call wrote its output");
    CHECK_EQUAL(mapping_count(), mappings);
    CHECK_EQUAL(descriptor_count(), descriptors);
    CHECK_EQUAL(vlc_get_limits(&limits, NULL), VLC_OK);
    CHECK_EQUAL(limits.contexts, 1);

    /* A name is free again when its context has ended; a CPU named twice counts once. */
    cpus[1] = cpus[0];
    vlc_context *twice = context_on("twice", cpus, 2);
    CHECK_EQUAL(vlc_cpus(twice, NULL, 0), 1);
    context_close(twice);
    context_close(context_new("twice"));
    context_close(warm);
    return check_result();
}
