#include "python_api.h"

#include <stddef.h>
#include <string.h>

#include "status.h"

typedef void (*any_function)(void);

struct entry {
    const char *name;
    size_t offset;
    any_function host; /* or datum */
    int needed;
};

#define SHARED_ENTRY(result, name, arguments)                                                                \
    { #name, offsetof(struct vlci_api, name), (any_function)name, 1 },
#define GUEST_ENTRY(result, name, arguments) { #name, offsetof(struct vlci_api, name), NULL, 1 },
#define OPTIONAL_ENTRY(result, name, arguments) { #name, offsetof(struct vlci_api, name), NULL, 0 },

#define OBJECT_ENTRY(name, datum) { #datum, offsetof(struct vlci_api, name), (any_function) & datum, 1 },

static const struct entry entries[] = { VLCI_API_SHARED(SHARED_ENTRY) VLCI_API_GUEST(
    GUEST_ENTRY) VLCI_API_OPTIONAL(OPTIONAL_ENTRY) VLCI_API_OBJECTS(OBJECT_ENTRY) };

static const size_t entry_count = sizeof entries / sizeof entries[0];

static void set(struct vlci_api *api, const struct entry *entry, const void *function) {
    memcpy((char *)api + entry->offset, function, sizeof(any_function));
}

void vlci_api_of_host(struct vlci_api *api) {
    memset(api, 0, sizeof *api);
    for (size_t i = 0; i < entry_count; i++) {
        if (entries[i].host) set(api, &entries[i], &entries[i].host);
    }
}

int vlci_api_of_guest(struct vlci_api *api, vlc_context *context, vlc_library *libpython, vlc_error *error) {
    memset(api, 0, sizeof *api);
    for (size_t i = 0; i < entry_count; i++) {
        vlc_error missing = VLC_ERROR_INIT;
        void *address;
        if (vlc_symbol(context, libpython, entries[i].name, &address, &missing) == VLC_OK)
            set(api, &entries[i], &address);
        else if (entries[i].needed)
            return vlci_refuse(
                error, VLC_LOAD_FAILED, entries[i].name,
                "cannot start a Python in the context '%s': its libpython has no symbol %s (%s). "
                "Give `python=` a CPython 3.9 or later that was built for Linux with glibc.",
                vlc_name(context), entries[i].name, missing.message);
    }
    return VLC_OK;
}

void *vlci_api_datum(vlc_context *context, vlc_library *libpython, const char *name) {
    vlc_error missing = VLC_ERROR_INIT;
    void *address;
    return vlc_symbol(context, libpython, name, &address, &missing) == VLC_OK ? address : NULL;
}
