#include "arrow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lease.h"

/* ---- the interface's records ------------------------------------------------------------------------- */

struct schema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct schema **children, *dictionary;
    void (*release)(struct schema *); /* NULL: it was released, or moved elsewhere */
    void *private_data;
};

struct array {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct array **children, *dictionary;
    void (*release)(struct array *);
    void *private_data;
};

struct stream {
    int (*get_schema)(struct stream *, struct schema *out); /* an errno, as the next */
    int (*get_next)(struct stream *, struct array *out);    /* `out` is released: the end */
    const char *(*get_last_error)(struct stream *);
    void (*release)(struct stream *);
    void *private_data;
};

static const char stream_name[] = "arrow_array_stream";

/* What is lent: its bytes are the buffer. */
struct table {
    size_t count, capacity;
    int64_t items; /* of all arrays, at every level */
    struct schema schema;
    struct array arrays[];
};

/* From this number of items on, it is large enough to be given back at once. */
enum { MANY_ITEMS = 1 << 17 };

/* ---- lending ------------------------------------------------------------------------------------------- */

struct loan_object {
    Py_ssize_t references;
    void *type;
    struct vlci_realm *realm;
    struct table *table;
};

static void table_free(struct table *table) {
    if (!table) return;
    for (size_t i = 0; i < table->count; i++)
        if (table->arrays[i].release) table->arrays[i].release(&table->arrays[i]);
    if (table->schema.release) table->schema.release(&table->schema);
    free(table);
}

static int64_t count_items(const struct array *array) {
    int64_t items = array->length;
    for (int64_t i = 0; i < array->n_children; i++) items += count_items(array->children[i]);
    return items + (array->dictionary ? count_items(array->dictionary) : 0);
}

/* Reads a stream to its end; false: it failed, or memory ran out. The table may be whole or not. */
static bool read_stream(struct stream *stream, struct table **place) {
    enum { FIRST = 4 };
    *place = calloc(1, sizeof **place + FIRST * sizeof(struct array));
    if (!*place) return false;
    (*place)->capacity = FIRST;
    if (stream->get_schema(stream, &(*place)->schema)) return false;
    for (;;) {
        struct table *table = *place;
        struct array *next = &table->arrays[table->count];
        *next = (struct array){ 0 };
        if (stream->get_next(stream, next)) return false;
        if (!next->release) return true;
        table->items += count_items(next);
        if (++table->count < table->capacity) continue;
        table = realloc(table, sizeof *table + 2 * table->capacity * sizeof(struct array));
        if (!table) return false;
        table->capacity *= 2;
        *place = table;
    }
}

static void loan_dealloc(PyObject *self) {
    struct loan_object *loan = (struct loan_object *)self;
    struct vlci_realm *realm = loan->realm;
    const struct vlci_api *api = &realm->api;
    vlci_object *type = api->PyObject_Type((vlci_object *)self);
    table_free(loan->table);
    api->PyObject_Free(self);
    api->Py_DecRef(type); /* PyObject_Type's */
    api->Py_DecRef(type); /* the object's */
    vlci_realm_release(realm);
}

static int loan_get_buffer(PyObject *self, Py_buffer *view, int flags) {
    const struct loan_object *loan = (struct loan_object *)self;
    size_t size = sizeof *loan->table + loan->table->count * sizeof(struct array);
    return loan->realm->api.PyBuffer_FillInfo(view, (vlci_object *)self, loan->table, (Py_ssize_t)size, 1,
                                              flags);
}

static vlci_object *loan_type(struct vlci_realm *realm) {
    static PyType_Slot slots[] = {
        { Py_tp_doc, "Arrow arrays that are lent to another interpreter." },
        { Py_tp_dealloc, loan_dealloc },
        { Py_bf_getbuffer, loan_get_buffer },
        { 0, NULL },
    };
    static PyType_Spec spec = {
        .name = "vlcs._core._native.ArrowLoan",
        .basicsize = sizeof(struct loan_object),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    if (!realm->arrow_types[0]) realm->arrow_types[0] = realm->api.PyType_FromSpec(&spec);
    return realm->arrow_types[0];
}

static vlci_object *none(const struct vlci_api *api) {
    api->Py_IncRef(api->none);
    return api->none;
}

vlci_object *vlci_arrow_lend(struct vlci_realm *realm, vlci_object *capsule) {
    const struct vlci_api *api = &realm->api;
    struct stream *stream = api->PyCapsule_GetPointer(capsule, stream_name);
    vlci_object *type = stream ? loan_type(realm) : NULL;
    if (!type) return NULL;
    struct table *table = NULL;
    bool read = stream->release && read_stream(stream, &table);
    if (stream->release) stream->release(stream); /* which the capsule then sees */
    vlci_object *object = read ? api->PyType_GenericAlloc(type, 0) : none(api);
    if (!object || !read) {
        table_free(table);
        return object;
    }
    vlci_realm_retain(realm);
    ((struct loan_object *)object)->realm = realm;
    ((struct loan_object *)object)->table = table;
    return object;
}

/* ---- borrowing ----------------------------------------------------------------------------------------- */

/* Has a table's memory stay, for everything that was made of it in one realm. */
struct vlci_hold {
    struct vlci_realm *realm;
    struct vlci_span span; /* without a source: it was forgotten */
    atomic_size_t references;
    struct vlci_hold *next, *previous; /* in realm->holds */
};

static const struct table *table_of(const struct vlci_hold *hold) { return (const void *)hold->span.data; }

/* Takes the span. NULL without memory. */
static struct vlci_hold *hold_new(struct vlci_realm *realm, const struct vlci_span *span) {
    struct vlci_hold *hold = calloc(1, sizeof *hold);
    if (!hold) return NULL;
    hold->realm = realm;
    hold->span = *span;
    atomic_init(&hold->references, 1);
    vlci_realm_retain(realm);
    if (table_of(hold)->items >= MANY_ITEMS) vlci_span_is_large(span);
    pthread_mutex_lock(&realm->lock);
    hold->next = realm->holds;
    if (hold->next) hold->next->previous = hold;
    realm->holds = hold;
    pthread_mutex_unlock(&realm->lock);
    return hold;
}

static void *hold_retain(struct vlci_hold *hold) {
    atomic_fetch_add(&hold->references, 1);
    return hold;
}

static void unlink_hold(struct vlci_hold *hold) {
    if (hold->previous)
        hold->previous->next = hold->next;
    else
        hold->realm->holds = hold->next;
    if (hold->next) hold->next->previous = hold->previous;
}

static void hold_release(struct vlci_hold *hold) {
    if (atomic_fetch_sub(&hold->references, 1) != 1) return;
    struct vlci_realm *realm = hold->realm;
    pthread_mutex_lock(&realm->lock);
    if (hold->span.source) unlink_hold(hold);
    pthread_mutex_unlock(&realm->lock);
    vlci_span_drop(&hold->span);
    free(hold);
    vlci_realm_release(realm);
}

void vlci_arrow_forget(struct vlci_realm *realm) {
    for (;;) {
        struct vlci_span span = { 0 };
        pthread_mutex_lock(&realm->lock);
        struct vlci_hold *hold = realm->holds;
        if (hold) {
            unlink_hold(hold);
            span = hold->span;
            hold->span = (struct vlci_span){ 0 };
        }
        pthread_mutex_unlock(&realm->lock);
        if (!hold) return;
        vlci_span_drop(&span);
    }
}

/* Copies of records: what they point to is the owner's, but for the children, each of which may be moved out and
 * released by itself. */

#define COPIES_OF(record)                                                                                    \
    static void release_##record(struct record *copy) {                                                      \
        for (int64_t i = 0; i < copy->n_children; i++) {                                                     \
            if (copy->children[i]->release) copy->children[i]->release(copy->children[i]);                   \
            free(copy->children[i]);                                                                         \
        }                                                                                                    \
        free(copy->children);                                                                                \
        if (copy->dictionary && copy->dictionary->release) copy->dictionary->release(copy->dictionary);      \
        free(copy->dictionary);                                                                              \
        hold_release(copy->private_data);                                                                    \
        copy->release = NULL;                                                                                \
    }                                                                                                        \
    static bool copy_##record(struct record *copy, const struct record *original, struct vlci_hold *hold);   \
    static struct record *new_##record(const struct record *original, struct vlci_hold *hold) {              \
        struct record *copy = malloc(sizeof *copy);                                                          \
        if (copy && copy_##record(copy, original, hold)) return copy;                                        \
        free(copy);                                                                                          \
        return NULL;                                                                                         \
    }                                                                                                        \
    /* False, and nothing to be released, without memory. */                                                 \
    static bool copy_##record(struct record *copy, const struct record *original, struct vlci_hold *hold) {  \
        *copy = *original;                                                                                   \
        copy->release = release_##record;                                                                    \
        copy->private_data = hold_retain(hold);                                                              \
        copy->children = calloc((size_t)original->n_children + 1, sizeof *copy->children);                   \
        copy->n_children = 0; /* that are there */                                                           \
        copy->dictionary = original->dictionary ? new_##record(original->dictionary, hold) : NULL;           \
        bool done = copy->children && (copy->dictionary || !original->dictionary);                           \
        while (done && copy->n_children < original->n_children) {                                            \
            struct record *child = new_##record(original->children[copy->n_children], hold);                 \
            done = child;                                                                                    \
            if (done) copy->children[copy->n_children++] = child;                                            \
        }                                                                                                    \
        if (!done) release_##record(copy);                                                                   \
        return done;                                                                                         \
    }

COPIES_OF(schema)
COPIES_OF(array)

struct position {
    struct vlci_hold *hold;
    size_t next;
};

static int get_schema(struct stream *stream, struct schema *out) {
    const struct position *position = stream->private_data;
    return copy_schema(out, &table_of(position->hold)->schema, position->hold) ? 0 : ENOMEM;
}

static int get_next(struct stream *stream, struct array *out) {
    struct position *position = stream->private_data;
    const struct table *table = table_of(position->hold);
    out->release = NULL;
    if (position->next == table->count) return 0;
    return copy_array(out, &table->arrays[position->next++], position->hold) ? 0 : ENOMEM;
}

static const char *get_last_error(struct stream *stream) {
    (void)stream;
    return "out of memory";
}

static void release_stream(struct stream *stream) {
    struct position *position = stream->private_data;
    hold_release(position->hold);
    free(position);
    stream->release = NULL;
}

struct borrowing_object {
    Py_ssize_t references;
    void *type;
    struct vlci_hold *hold;
    struct stream stream; /* that a capsule points to; who takes it moves it elsewhere */
};

static void borrowing_dealloc(PyObject *self) {
    struct borrowing_object *borrowing = (struct borrowing_object *)self;
    struct vlci_realm *realm = borrowing->hold->realm;
    const struct vlci_api *api = &realm->api;
    vlci_realm_retain(realm);
    vlci_object *type = api->PyObject_Type((vlci_object *)self);
    if (borrowing->stream.release) borrowing->stream.release(&borrowing->stream);
    hold_release(borrowing->hold);
    api->PyObject_Free(self);
    api->Py_DecRef(type); /* PyObject_Type's */
    api->Py_DecRef(type); /* the object's */
    vlci_realm_release(realm);
}

/* A capsule finds no way to the API of its interpreter when it is freed, so it owns nothing: it is good as long
 * as this object is, which whoever calls the method holds meanwhile. */
static PyObject *borrowing_stream(PyObject *self, PyObject *arguments) {
    (void)arguments; /* a schema that is wished for: the interface lets it be ignored */
    struct borrowing_object *borrowing = (struct borrowing_object *)self;
    const struct vlci_api *api = &borrowing->hold->realm->api;
    struct stream *stream = &borrowing->stream;
    if (!stream->release) {
        struct position *position = malloc(sizeof *position);
        if (!position) return (PyObject *)api->PyErr_NoMemory();
        *position = (struct position){ hold_retain(borrowing->hold), 0 };
        *stream = (struct stream){ get_schema, get_next, get_last_error, release_stream, position };
    }
    return (PyObject *)api->PyCapsule_New(stream, stream_name, NULL);
}

static vlci_object *borrowing_type(struct vlci_realm *realm) {
    static PyMethodDef methods[] = {
        { "__arrow_c_stream__", borrowing_stream, METH_VARARGS,
          "__arrow_c_stream__(requested_schema=None)\n--\n\nThe arrays, as a capsule to be used while this "
          "object lives." },
        { NULL, NULL, 0, NULL },
    };
    static PyType_Slot slots[] = {
        { Py_tp_doc, "Arrow arrays of another interpreter." },
        { Py_tp_dealloc, borrowing_dealloc },
        { Py_tp_methods, methods },
        { 0, NULL },
    };
    static PyType_Spec spec = {
        .name = "vlcs._core._native.ArrowBorrowing",
        .basicsize = sizeof(struct borrowing_object),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    if (!realm->arrow_types[1]) realm->arrow_types[1] = realm->api.PyType_FromSpec(&spec);
    return realm->arrow_types[1];
}

vlci_object *vlci_arrow_borrow(struct vlci_realm *realm, vlci_object *lease) {
    const struct vlci_api *api = &realm->api;
    struct vlci_span span;
    vlci_object *type = borrowing_type(realm);
    if (!type) return NULL;
    if (!vlci_lease_span(realm, lease, &span)) return none(api);
    struct vlci_hold *hold = hold_new(realm, &span);
    if (!hold) {
        vlci_span_drop(&span);
        return api->PyErr_NoMemory();
    }
    vlci_object *object = api->PyType_GenericAlloc(type, 0);
    if (object)
        ((struct borrowing_object *)object)->hold = hold;
    else
        hold_release(hold);
    return object;
}
