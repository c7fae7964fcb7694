#include "kept.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lease.h"

struct vlci_kept {
    struct vlci_realm *owner;
    vlci_object *object;      /* or the attribute's name; NULL: given up with its interpreter */
    struct vlci_kept *parent; /* whose attribute it is; or NULL */
    atomic_uint references;
    bool listed;
    struct vlci_kept *next, *previous; /* in owner->kept, under its lock */
    struct vlci_kept *next_dropped;    /* in owner->dropped, likewise */
    char label[];
};

enum {
    LONGEST_LABEL = 200,
    MOST_WAITING = 64 /* to be given up by their owner, before it is woken at once */
};

/* The owner's GIL is needed, unless the object has been given up. */
static void free_kept(struct vlci_kept *kept) {
    struct vlci_realm *owner = kept->owner;
    if (kept->object) owner->api.Py_DecRef(kept->object);
    free(kept);
    vlci_realm_release(owner);
}

static void enlist(struct vlci_kept *kept) {
    struct vlci_realm *owner = kept->owner;
    pthread_mutex_lock(&owner->lock);
    kept->next = owner->kept;
    if (kept->next) kept->next->previous = kept;
    owner->kept = kept;
    kept->listed = true;
    owner->kept_count += !kept->parent;
    pthread_mutex_unlock(&owner->lock);
}

/* Under the owner's lock. */
static void unlist(struct vlci_kept *kept) {
    struct vlci_realm *owner = kept->owner;
    if (!kept->listed) return;
    if (kept->previous)
        kept->previous->next = kept->next;
    else
        owner->kept = kept->next;
    if (kept->next) kept->next->previous = kept->previous;
    kept->listed = false;
    owner->kept_count -= !kept->parent;
}

/* UTF-8 that was cut anywhere is cut where a character begins: the last one goes. */
static void end_with_a_character(char *text) {
    char *end = text + strlen(text);
    while (end > text && (*--end & 0xC0) == 0x80);
    *end = '\0';
}

static struct vlci_kept *make(struct vlci_realm *owner, vlci_object *object, struct vlci_kept *parent,
                              const char *first, const char *separator, const char *second) {
    const struct vlci_api *api = &owner->api;
    char label[LONGEST_LABEL];
    size_t size = (size_t)snprintf(label, sizeof label, "%s%s%s", first, separator, second);
    if (size >= sizeof label) end_with_a_character(label);
    struct vlci_kept *kept = calloc(1, sizeof *kept + strlen(label) + 1);
    if (!kept) {
        api->PyErr_NoMemory();
        return NULL;
    }
    memcpy(kept->label, label, strlen(label) + 1);
    api->Py_IncRef(object);
    kept->object = object;
    kept->owner = owner;
    vlci_realm_retain(owner);
    if (parent) vlci_kept_retain(parent);
    kept->parent = parent;
    atomic_init(&kept->references, 1);
    enlist(kept);
    return kept;
}

/* UTF-8 of an attribute that is a str; "" where it is none. `held` keeps it. */
static const char *text_of(const struct vlci_api *api, vlci_object *object, const char *name,
                           vlci_object **held) {
    Py_ssize_t size;
    *held = api->PyObject_GetAttrString(object, name);
    bool is_text = *held && (*held)->type == api->str_type;
    const char *text = is_text ? api->PyUnicode_AsUTF8AndSize(*held, &size) : NULL;
    if (!text) api->PyErr_Clear();
    return text ? text : "";
}

struct vlci_kept *vlci_kept_new(struct vlci_realm *owner, vlci_object *object) {
    const struct vlci_api *api = &owner->api;
    vlci_object *held[4] = { NULL, NULL, NULL, NULL };
    const char *module = text_of(api, object->type, "__module__", &held[0]);
    const char *name = text_of(api, object->type, "__qualname__", &held[1]);
    if (strcmp(module, "builtins") == 0) {
        module = "";
        if (strcmp(name, "module") == 0) {
            name = text_of(api, object, "__name__", &held[2]);
        } else if (strcmp(name, "function") == 0 || strcmp(name, "type") == 0) {
            module = text_of(api, object, "__module__", &held[2]);
            name = text_of(api, object, "__qualname__", &held[3]);
        }
    }
    struct vlci_kept *kept = make(owner, object, NULL, module, *module ? "." : "", name);
    for (int i = 0; i < 4; i++) api->Py_DecRef(held[i]); /* NULL is fine */
    return kept;
}

struct vlci_kept *vlci_kept_attribute(struct vlci_kept *object, vlci_object *name) {
    Py_ssize_t size;
    const char *text = object->owner->api.PyUnicode_AsUTF8AndSize(name, &size);
    return text ? make(object->owner, name, object, object->label, ".", text) : NULL;
}

vlci_object *vlci_kept_resolve(struct vlci_kept *kept) {
    const struct vlci_api *api = &kept->owner->api;
    if (!kept->object) {
        api->PyErr_SetString(api->PyDict_GetItemString(api->PyEval_GetBuiltins(), "ReferenceError"),
                             "the object went with its interpreter");
        return NULL;
    }
    if (!kept->parent) {
        api->Py_IncRef(kept->object);
        return kept->object;
    }
    vlci_object *object = vlci_kept_resolve(kept->parent);
    vlci_object *found = object ? api->PyObject_GetAttr(object, kept->object) : NULL;
    api->Py_DecRef(object);
    return found;
}

struct vlci_realm *vlci_kept_owner(const struct vlci_kept *kept) { return kept->owner; }
const char *vlci_kept_label(const struct vlci_kept *kept) { return kept->label; }
bool vlci_kept_is_attribute(const struct vlci_kept *kept) { return kept->parent; }

void vlci_kept_retain(struct vlci_kept *kept) { atomic_fetch_add(&kept->references, 1); }

void vlci_kept_drop(struct vlci_kept *kept) {
    if (atomic_fetch_sub(&kept->references, 1) != 1) return;
    struct vlci_realm *owner = kept->owner;
    vlci_realm_retain(owner);
    struct vlci_kept *parent = kept->parent;
    pthread_mutex_lock(&owner->lock);
    bool ended = owner->kept_ended, many = !ended && ++owner->dropped_count >= MOST_WAITING;
    unlist(kept);
    kept->parent = NULL;
    if (!ended) {
        kept->next_dropped = atomic_load(&owner->dropped);
        atomic_store(&owner->dropped, kept);
    }
    pthread_mutex_unlock(&owner->lock);
    if (ended)
        free_kept(kept);
    else if (!parent || many)
        vlci_settle_soon(owner, many);
    /* Of an attribute only its name is to be freed, which can wait. Its object may have nothing else that refers to it. */
    if (parent) vlci_kept_drop(parent);
    vlci_realm_release(owner);
}

static struct vlci_kept *take_dropped(struct vlci_realm *realm) {
    pthread_mutex_lock(&realm->lock);
    struct vlci_kept *dropped = atomic_exchange(&realm->dropped, NULL);
    realm->dropped_count = 0;
    pthread_mutex_unlock(&realm->lock);
    return dropped;
}

void vlci_kept_settle(struct vlci_realm *realm) {
    if (!atomic_load_explicit(&realm->dropped, memory_order_relaxed)) return;
    vlci_object *type, *value, *traceback;
    realm->api.PyErr_Fetch(&type, &value, &traceback); /* destructors run below */
    for (struct vlci_kept *kept = take_dropped(realm), *next; kept; kept = next) {
        next = kept->next_dropped;
        free_kept(kept);
    }
    realm->api.PyErr_Restore(type, value, traceback);
}

void vlci_kept_end(struct vlci_realm *realm) {
    for (;;) {
        pthread_mutex_lock(&realm->lock);
        realm->kept_ended = true;
        struct vlci_kept *kept = realm->kept;
        vlci_object *object = kept ? kept->object : NULL;
        if (kept) {
            unlist(kept);
            kept->object = NULL;
        }
        pthread_mutex_unlock(&realm->lock);
        if (!kept) break;
        realm->api.Py_DecRef(object);
    }
    vlci_kept_settle(realm);
}
