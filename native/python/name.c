#include "name.h"

#include <stdlib.h>
#include <string.h>

static struct vlci_name *allocate(const char *module, const char *const *attributes, Py_ssize_t count) {
    size_t size = sizeof(struct vlci_name) + (size_t)(count + 1) * sizeof(char *) + strlen(module) + 1;
    for (Py_ssize_t i = 0; i < count; i++) size += strlen(attributes[i]) + 1;
    struct vlci_name *name = calloc(1, size);
    if (!name) return NULL;
    name->count = count + 1;
    name->frameless = strcmp(module, "builtins") && strcmp(module, "sys");
    char *place = (char *)(name->texts + count + 1);
    for (Py_ssize_t i = 0; i <= count; i++) {
        name->texts[i] = place;
        place = stpcpy(place, i ? attributes[i - 1] : module) + 1;
    }
    return name;
}

struct vlci_name *vlci_name_new(struct vlci_realm *guest, PyObject *module, PyObject *attributes) {
    Py_ssize_t count = PyTuple_Size(attributes);
    const char *module_text = count < 0 ? NULL : PyUnicode_AsUTF8AndSize(module, NULL);
    const char **texts = module_text ? malloc((size_t)(count + 1) * sizeof *texts) : NULL;
    struct vlci_name *name = NULL;
    Py_ssize_t read = 0;
    while (texts && read < count &&
           (texts[read] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(attributes, read), NULL)))
        read++;
    if (texts && read == count) name = allocate(module_text, texts, count);
    free(texts);
    if (!name) {
        if (!PyErr_Occurred()) PyErr_NoMemory();
        return NULL;
    }
    pthread_mutex_lock(&guest->lock);
    name->next = guest->names;
    guest->names = name;
    pthread_mutex_unlock(&guest->lock);
    return name;
}

static int intern(const struct vlci_api *api, struct vlci_name *name) {
    vlci_object *module = api->PyUnicode_InternFromString(name->texts[0]);
    vlci_object *attributes = module ? api->PyTuple_New(name->count - 1) : NULL;
    for (Py_ssize_t i = 1; attributes && i < name->count; i++) {
        vlci_object *text = api->PyUnicode_InternFromString(name->texts[i]);
        if (text && api->PyTuple_SetItem(attributes, i - 1, text) == 0) continue; /* it takes the text */
        api->Py_DecRef(attributes);
        attributes = NULL;
    }
    if (!attributes) {
        api->Py_DecRef(module);
        return -1;
    }
    name->attributes = attributes;
    name->module = module;
    return 0;
}

/* Whether no thread is in the middle of importing the module: an import would wait for that one. */
static bool is_ready(const struct vlci_api *api, struct vlci_name *name, vlci_object *module) {
    if (module == name->ready) return true;
    vlci_object *spec = api->PyObject_GetAttrString(module, "__spec__");
    vlci_object *initializing = spec ? api->PyObject_GetAttrString(spec, "_initializing") : NULL;
    bool ready = initializing != api->yes;
    if (!initializing) api->PyErr_Clear(); /* whatever it is, no import has put it there */
    api->Py_DecRef(initializing);
    api->Py_DecRef(spec);
    if (ready) {
        vlci_object *former = name->ready;
        api->Py_IncRef(module);
        name->ready = module;
        api->Py_DecRef(former); /* which runs code, where it is the last */
    }
    return ready;
}

vlci_object *vlci_name_resolve(struct vlci_realm *guest, struct vlci_name *name) {
    const struct vlci_api *api = &guest->api;
    if (!name->module && intern(api, name) < 0) return NULL;
    vlci_object *found = api->PyDict_GetItemWithError(api->PyImport_GetModuleDict(), name->module);
    api->Py_IncRef(found);                                             /* NULL is fine, as below */
    if (!found || found == api->none || !is_ready(api, name, found)) { /* to be imported */
        api->Py_DecRef(found);
        return api->PyObject_CallFunctionObjArgs(guest->resolve, name->module, name->attributes, NULL);
    }
    for (Py_ssize_t i = 1; found && i < name->count; i++) {
        vlci_object *outer = found;
        found = api->PyObject_GetAttr(outer, api->PyTuple_GetItem(name->attributes, i - 1));
        api->Py_DecRef(outer);
    }
    return found;
}

void vlci_names_forget(struct vlci_realm *guest) {
    for (struct vlci_name *name = guest->names; name; name = name->next) {
        guest->api.Py_DecRef(name->module); /* NULL is fine */
        guest->api.Py_DecRef(name->attributes);
        guest->api.Py_DecRef(name->ready);
        name->module = name->attributes = name->ready = NULL;
    }
}

void vlci_names_free(struct vlci_realm *guest) {
    for (struct vlci_name *name = guest->names, *next; name; name = next) {
        next = name->next;
        free(name);
    }
}
