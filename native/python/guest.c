#include "guest.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "buffer.h"
#include "host_module.h"
#include "kept.h"
#include "lease.h"
#include "name.h"
#include "status.h"

enum { OLDEST_MINOR = 9 }; /* 3.8's PyType_FromSpec writes elsewhere when given a buffer slot */

void vlci_guest_explain(struct vlci_realm *realm, char *words, size_t size) {
    const struct vlci_api *api = &realm->api;
    vlci_object *type, *value, *traceback;
    api->PyErr_Fetch(&type, &value, &traceback);
    api->PyErr_NormalizeException(&type, &value, &traceback);
    vlci_object *texts[2] = { NULL, NULL };
    const char *parts[2] = { NULL, NULL };
    if (type) texts[0] = api->PyObject_GetAttrString(type, "__name__");
    if (value) texts[1] = api->PyObject_Str(value);
    for (int i = 0; i < 2; i++) {
        Py_ssize_t length;
        parts[i] = texts[i] ? api->PyUnicode_AsUTF8AndSize(texts[i], &length) : NULL;
    }
    snprintf(words, size, "%s: %s", parts[0] ? parts[0] : "unknown exception",
             parts[1] ? parts[1] : "(no text)");
    api->PyErr_Clear();
    vlci_object *done[] = { texts[0], texts[1], type, value, traceback };
    for (size_t i = 0; i < sizeof done / sizeof done[0]; i++) api->Py_DecRef(done[i]); /* NULL is fine */
}

static int check_version(struct vlci_birth *birth) {
    struct vlci_realm *realm = birth->realm;
    const char *version = realm->version = realm->api.Py_GetVersion();
    char *rest;
    long major = strtol(version, &rest, 10);
    long minor = *rest == '.' ? strtol(rest + 1, &rest, 10) : 0;
    if (strstr(version, "free-threading"))
        return vlci_refuse(
            birth->error, VLC_LOAD_FAILED, birth->libpython,
            "cannot start a Python in the context '%s': %s is a free-threaded build (%.40s), whose "
            "objects are laid out in another way. Give `python=` a build with the GIL.",
            realm->name, birth->libpython, version);
    if (major != 3 || minor < OLDEST_MINOR)
        return vlci_refuse(
            birth->error, VLC_LOAD_FAILED, birth->libpython,
            "cannot start a Python in the context '%s': %s is of version %.40s, and 3.%d is the "
            "oldest that works. Give `python=` a newer one.",
            realm->name, birth->libpython, version, OLDEST_MINOR);
    return VLC_OK;
}

static vlci_object *list_of(const struct vlci_api *api, const struct vlci_text *texts, Py_ssize_t count) {
    vlci_object *list = api->PyList_New(0);
    for (Py_ssize_t i = 0; list && i < count; i++) {
        vlci_object *text = api->PyUnicode_DecodeUTF8(texts[i].bytes, texts[i].size, "surrogatepass");
        if (!text || api->PyList_Append(list, text) < 0) {
            api->Py_DecRef(list);
            list = NULL;
        }
        api->Py_DecRef(text);
    }
    return list;
}

static int set_sys(const struct vlci_api *api, const char *name, const struct vlci_text *texts,
                   Py_ssize_t count) {
    vlci_object *list = list_of(api, texts, count);
    int result = list ? api->PySys_SetObject(name, list) : -1;
    api->Py_DecRef(list);
    return result;
}

/* Runs the bootstrap as the module _vlcs_guest and keeps its functions. */
static int run_bootstrap(struct vlci_realm *realm, const char *source) {
    const struct vlci_api *api = &realm->api;
    vlci_object *module = api->PyImport_AddModule("_vlcs_guest"); /* borrowed, as is its dict */
    vlci_object *names = module ? api->PyModule_GetDict(module) : NULL;
    if (!names || api->PyDict_SetItemString(names, "__builtins__", api->PyEval_GetBuiltins()) < 0) return -1;
    vlci_object *code = api->Py_CompileString(source, "<vlcs guest>", Py_file_input);
    vlci_object *result = code ? api->PyEval_EvalCode(code, names, names) : NULL;
    vlci_object *functions = result ? api->PyObject_GetAttrString(module, "functions") : NULL;
    int furnished = functions ? vlci_realm_furnish(realm, functions) : -1;
    api->Py_DecRef(functions); /* NULL is fine, as below */
    api->Py_DecRef(result);
    api->Py_DecRef(code);
    return furnished;
}

/* Puts into a fresh interpreter what the bridge needs there. -1: an exception is set. */
static int furnish(const struct vlci_birth *birth) {
    struct vlci_realm *realm = birth->realm;
    const struct vlci_api *api = &realm->api;
    if (vlci_realm_make_types(realm) < 0) return -1;
    if (birth->path && set_sys(api, "path", birth->path, birth->path_count) < 0) return -1;
    if (set_sys(api, "argv", birth->argv, birth->argv_count) < 0) return -1;
    if (vlci_host_module_add(realm, birth->settings.bytes, birth->settings.size) < 0) return -1;
    return run_bootstrap(realm, birth->bootstrap);
}

static void forget_objects(struct vlci_realm *realm) {
    vlci_names_forget(realm);
    vlci_buffers_forget(realm);
    vlci_kept_end(realm);
    vlci_realm_unfurnish(realm);
}

#define FLAG_NAME(attribute, datum) #datum,
static const char *const flag_names[] = { VLCI_FLAGS(FLAG_NAME) };

/* CPython ends the process where its start meets a lack of these. It nests opens (a file of site-packages whose line
 * imports a module, and that one another): 2 free descriptors were enough for 3.11, so 8 leave room for other
 * threads. Of memory outside of the context it takes 140 kB; of its own, 7 MB. */
enum { DESCRIPTORS_TO_START = 8, HOST_BYTES_TO_START = 1 << 20, BYTES_TO_START = 16 << 20 };

static int check_descriptors(const struct vlci_birth *birth) {
    int made[DESCRIPTORS_TO_START], count = 0, failed = 0;
    for (; count < DESCRIPTORS_TO_START && !failed; count += !failed)
        failed = (made[count] = eventfd(0, EFD_CLOEXEC)) < 0 ? errno : 0;
    for (int i = 0; i < count; i++) close(made[i]);
    if (!failed) return VLC_OK;
    int status = vlci_refuse(birth->error, VLC_LIMIT, birth->realm->name,
                             "cannot start a Python in the context '%s': its start needs %d free file "
                             "descriptors, and after %d: %s. "
                             "Close files, or raise `ulimit -n`.",
                             birth->realm->name, DESCRIPTORS_TO_START, count, strerror(failed));
    birth->error->os_error = failed;
    return status;
}

/* By mappings, and not by malloc: freeing a large block of the host's would raise its M_MMAP_THRESHOLD for good. */
static int check_memory(const struct vlci_birth *birth, vlc_library *libpython) {
    typedef void *map(void *, size_t, int, int, int, off_t);
    typedef int unmap(void *, size_t);
    vlc_context *context = birth->realm->context;
    const struct {
        map *map;
        unmap *unmap;
        size_t size;
    } places[] = {
        { mmap, munmap, HOST_BYTES_TO_START },
        { (map *)vlci_api_datum(context, libpython, "mmap"),
          (unmap *)vlci_api_datum(context, libpython, "munmap"), BYTES_TO_START },
    };
    size_t i = 0;
    for (; i < sizeof places / sizeof places[0]; i++) {
        if (!places[i].map || !places[i].unmap) continue;
        void *block =
            places[i].map(NULL, places[i].size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (block == MAP_FAILED) break;
        places[i].unmap(block, places[i].size);
    }
    if (i == sizeof places / sizeof places[0]) return VLC_OK;
    vlc_stats stats = VLC_STATS_INIT;
    bool is_limited = i == 1 && vlc_get_stats(context, &stats, NULL) == VLC_OK && stats.memory_limit &&
                      stats.memory_limit < stats.memory_bytes + BYTES_TO_START;
    int status =
        vlci_refuse(birth->error, VLC_LIMIT, birth->realm->name,
                    "cannot start a Python in the context '%s': its start needs %zu MB of memory, and they "
                    "are not to be had. %s",
                    birth->realm->name, places[i].size >> 20,
                    is_limited ? "Raise its memory_limit."
                               : "Close contexts, or raise `ulimit -v` or the machine's memory.");
    birth->error->os_error = ENOMEM;
    return status;
}

static int start(struct vlci_birth *birth) {
    struct vlci_realm *realm = birth->realm;
    struct vlci_api *api = &realm->api;
    vlc_library *libpython;
    int status = vlc_load(realm->context, birth->libpython, RTLD_NOW | RTLD_GLOBAL, &libpython, birth->error);
    if (status == VLC_OK) status = vlci_api_of_guest(api, realm->context, libpython, birth->error);
    if (status == VLC_OK) status = check_version(birth);
    if (status == VLC_OK) status = check_descriptors(birth);
    if (status == VLC_OK) status = check_memory(birth, libpython);
    if (status != VLC_OK) return status;

    for (int i = 0; i < VLCI_FLAG_COUNT; i++) {
        int *flag = birth->flags[i] ? vlci_api_datum(realm->context, libpython, flag_names[i]) : NULL;
        if (flag) *flag = birth->flags[i];
    }
    for (wchar_t **text = birth->warnings; *text && api->PySys_AddWarnOption; text++)
        api->PySys_AddWarnOption(*text);
    for (wchar_t **text = birth->implementation; *text && api->PySys_AddXOption; text++)
        api->PySys_AddXOption(*text);
    if (api->Py_SetProgramName) api->Py_SetProgramName(birth->program); /* copied there */
    api->Py_InitializeEx(0);
    realm->interpreter = api->PyInterpreterState_Get();
    realm->home = pthread_self();
    if (furnish(birth) == 0) {
        api->PyEval_SaveThread(); /* PyGILState finds it again on this thread */
        return VLC_OK;
    }
    char why[512];
    vlci_guest_explain(realm, why, sizeof why);
    forget_objects(realm);
    api->Py_FinalizeEx();
    return vlci_refuse(
        birth->error, VLC_LOAD_FAILED, birth->libpython,
        "cannot start a Python in the context '%s': %s is loaded, but its first code failed with %s. "
        "Check that its standard library is whole and that `python=` is the one it belongs to.",
        realm->name, birth->libpython, why);
}

void *vlci_guest_start(void *argument) {
    struct vlci_birth *birth = argument;
    birth->status = start(birth);
    vlci_realm_set_life(birth->realm, birth->status == VLC_OK ? VLCI_RUNNING : VLCI_STOPPED);
    return NULL;
}

void *vlci_guest_stop(void *argument) {
    struct vlci_realm *realm = argument;
    vlci_attach(realm);
    vlci_object *nothing = realm->api.PyObject_CallObject(realm->end, NULL);
    if (!nothing) realm->api.PyErr_Clear(); /* it shows what it meets; this was a KeyboardInterrupt */
    realm->api.Py_DecRef(nothing);
    vlci_detach(realm);
    vlci_realm_linger(realm);
    vlci_attach(realm);
    forget_objects(realm);
    realm->api.Py_FinalizeEx(); /* its result tells only of unflushed streams */
    vlci_realm_set_life(realm, VLCI_STOPPED);
    if (realm->finish) realm->finish(realm);
    vlci_realm_release(realm);
    return NULL;
}
