#include "value.h"

#include "array.h"
#include "buffer.h"
#include "handle.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* One byte before each value. */
enum tag {
    NONE,
    NO,
    YES,
    INT,       /* of 64 bits */
    LARGE_INT, /* as hexadecimal text: PyLong_AsByteArray has another signature in each version */
    FLOAT,
    COMPLEX,
    SAME,   /* as one that was kept: its number */
    FLOATS, /* several items of a sequence: how many, the numbers */
    INTS,   /* the same, of 64 bits */
    SCALAR, /* of NumPy: its number, its bytes */
    /* From here on with a size. */
    BYTES,
    STR,
    STR_SURROGATES, /* with lone surrogates, which are no UTF-8 */
    TUPLE,
    LIST,
    DICT,
    SET,
    FROZENSET,
    BUFFER,     /* with the number of its span */
    HANDLE,     /* of a kept object: likewise */
    KEPT = 0x80 /* a flag: it has the next number, since SAME may follow */
};

enum {
    DEEPEST = 200, /* levels of nesting; pickle meets the recursion limit a little later */
    INLINE_KEPT = 32,
    SHORTEST_RUN = 4 /* of numbers that share a tag */
};

/* ---- writing ------------------------------------------------------------------------------------------- */

/* An object that may come again. The reference keeps another from getting its address. */
struct kept {
    vlci_object *object;
    uint32_t number;
    bool open; /* it is being written, and cannot be named before it is whole */
};

struct writer {
    struct vlci_message *message;
    struct vlci_realm *realm;
    const struct vlci_realm *receiver;
    const struct vlci_api *api;
    struct kept *kept; /* by address, in a table that is never full; NULL while it is empty */
    size_t kept_mask;
    uint32_t kept_count;
    int depth;
    struct kept inside[INLINE_KEPT];
};

static bool write_object(struct writer *writer, vlci_object *object);

static bool put(struct writer *writer, enum tag tag, const void *data, size_t size) {
    char *room = vlci_message_grow(writer->message, 1 + size);
    if (!room) return false;
    *room = (char)tag;
    if (size) memcpy(room + 1, data, size);
    return true;
}

/* A tag with a size, and as many bytes where there is data. */
static bool put_sized(struct vlci_message *message, int tag, Py_ssize_t size, const char *data) {
    uint64_t number = (uint64_t)size;
    char *room = vlci_message_grow(message, 1 + sizeof number + (data ? (size_t)size : 0));
    if (!room) return false;
    *room = (char)tag;
    memcpy(room + 1, &number, sizeof number);
    if (data) memcpy(room + 1 + sizeof number, data, (size_t)size);
    return true;
}

static struct kept *find(const struct writer *writer, const vlci_object *object) {
    size_t place = ((uintptr_t)object >> 4) * 0x9E3779B97F4A7C15u >> 20 & writer->kept_mask;
    while (writer->kept[place].object && writer->kept[place].object != object)
        place = (place + 1) & writer->kept_mask;
    return &writer->kept[place];
}

/* Makes the table at least twice as large as what is in it. */
static bool make_room(struct writer *writer) {
    if (!writer->kept) {
        memset(writer->inside, 0, sizeof writer->inside);
        writer->kept = writer->inside;
        writer->kept_mask = INLINE_KEPT - 1;
    }
    if (writer->kept_count * 2 <= writer->kept_mask) return true;
    struct kept *before = writer->kept;
    size_t size = writer->kept_mask + 1;
    struct kept *larger = calloc(size * 4, sizeof *larger);
    if (!larger) return false;
    writer->kept = larger;
    writer->kept_mask = size * 4 - 1;
    for (size_t i = 0; i < size; i++) {
        if (before[i].object) *find(writer, before[i].object) = before[i];
    }
    if (before != writer->inside) free(before);
    return true;
}

static void forget_kept(struct writer *writer) {
    for (size_t i = 0; writer->kept && i <= writer->kept_mask; i++)
        writer->api->Py_DecRef(writer->kept[i].object); /* NULL is fine */
    if (writer->kept != writer->inside) free(writer->kept);
}

static bool write_int(struct writer *writer, vlci_object *object) {
    const struct vlci_api *api = writer->api;
    int overflow;
    long long number = api->PyLong_AsLongLongAndOverflow(object, &overflow);
    if (!overflow) return put(writer, INT, &number, sizeof number);
    vlci_object *text = api->PyNumber_ToBase(object, 16);
    Py_ssize_t size;
    const char *digits = text ? api->PyUnicode_AsUTF8AndSize(text, &size) : NULL;
    bool done = digits && put_sized(writer->message, LARGE_INT, size + 1, digits); /* with its NUL */
    api->Py_DecRef(text);
    return done;
}

static bool write_str(struct writer *writer, vlci_object *object, int flag) {
    const struct vlci_api *api = writer->api;
    Py_ssize_t size;
    const char *text = api->PyUnicode_AsUTF8AndSize(object, &size);
    if (text) return put_sized(writer->message, STR | flag, size, text);
    api->PyErr_Clear();
    vlci_object *bytes = api->PyUnicode_AsEncodedString(object, "utf-8", "surrogatepass");
    char *data;
    bool done = bytes && api->PyBytes_AsStringAndSize(bytes, &data, &size) == 0 &&
                put_sized(writer->message, STR_SURROGATES | flag, size, data);
    api->Py_DecRef(bytes);
    return done;
}

static bool write_bytes(struct writer *writer, vlci_object *object, int flag) {
    Py_ssize_t size;
    char *data;
    return writer->api->PyBytes_AsStringAndSize(object, &data, &size) == 0 &&
           put_sized(writer->message, BYTES | flag, size, data);
}

/* Writing runs no code of the user, but for finalizers where an allocation starts a collection (of the iterator
 * of a set; up to 3.11). These may change the containers, so items are held, and counted. */
static bool write_item(struct writer *writer, vlci_object *item) {
    if (!item) return false;
    writer->api->Py_IncRef(item);
    bool done = write_object(writer, item);
    writer->api->Py_DecRef(item);
    return done;
}

/* Numbers in a row, with one tag for all: how many, 0 where the next item has to be written by itself. Nothing runs
 * meanwhile that could change the sequence, but a finalizer may have made it shorter before. */
static Py_ssize_t write_numbers(struct writer *writer, vlci_object *sequence,
                                vlci_object *(*get)(vlci_object *, Py_ssize_t), Py_ssize_t start,
                                Py_ssize_t end) {
    const struct vlci_api *api = writer->api;
    struct vlci_message *message = writer->message;
    vlci_object *item = get(sequence, start);
    const vlci_object *type = item ? item->type : NULL;
    bool floats = type == api->float_type;
    if (!floats && type != api->int_type) return 0;
    size_t before = message->size;
    uint64_t count = 0;
    char *room = put_sized(writer->message, floats ? FLOATS : INTS, 0, NULL)
                     ? vlci_message_grow(message, (size_t)(end - start) * sizeof(double))
                     : NULL; /* for all that may come, given back below */
    for (Py_ssize_t i = start; room && i < end && (item = get(sequence, i)) && item->type == type;
         i++, count++) {
        if (floats) {
            double number = api->PyFloat_AsDouble(item);
            memcpy(room + count * sizeof number, &number, sizeof number);
        } else {
            int overflow;
            long long number = api->PyLong_AsLongLongAndOverflow(item, &overflow);
            if (overflow) break;
            memcpy(room + count * sizeof number, &number, sizeof number);
        }
    }
    if (count < SHORTEST_RUN) {
        message->size = before;
        return 0;
    }
    message->size -= ((size_t)(end - start) - count) * sizeof(double);
    memcpy(message->bytes + before + 1, &count, sizeof count);
    return (Py_ssize_t)count;
}

static bool write_sequence(struct writer *writer, vlci_object *object, int tag,
                           vlci_object *(*get)(vlci_object *, Py_ssize_t), Py_ssize_t size) {
    if (!put_sized(writer->message, tag, size, NULL)) return false;
    for (Py_ssize_t i = 0; i < size;) {
        Py_ssize_t count = write_numbers(writer, object, get, i, size);
        if (!count && !write_item(writer, get(object, i))) return false;
        i += count ? count : 1;
    }
    return true;
}

static bool write_dict(struct writer *writer, vlci_object *object, int flag) {
    Py_ssize_t left = writer->api->PyDict_Size(object), place = 0;
    vlci_object *key, *value;
    if (!put_sized(writer->message, DICT | flag, left, NULL)) return false;
    while (writer->api->PyDict_Next(object, &place, &key, &value)) {
        writer->api->Py_IncRef(value); /* writing the key may free it */
        bool done = left-- > 0 && write_item(writer, key) && write_item(writer, value);
        writer->api->Py_DecRef(value);
        if (!done) return false;
    }
    return left == 0;
}

static bool write_set(struct writer *writer, vlci_object *object, int tag) {
    const struct vlci_api *api = writer->api;
    Py_ssize_t left = api->PySet_Size(object);
    vlci_object *iterator =
        put_sized(writer->message, tag, left, NULL) ? api->PyObject_GetIter(object) : NULL;
    vlci_object *item;
    bool done = iterator;
    while (done && (item = api->PyIter_Next(iterator))) {
        done = left-- > 0 && write_object(writer, item);
        api->Py_DecRef(item);
    }
    api->Py_DecRef(iterator);
    return done && left == 0 && !api->PyErr_Occurred(); /* it refuses to go on where the set was changed */
}

static bool write_container(struct writer *writer, vlci_object *object, int flag) {
    const struct vlci_api *api = writer->api;
    const vlci_object *type = object->type;
    if (type == api->list_type)
        return write_sequence(writer, object, LIST | flag, api->PyList_GetItem, api->PyList_Size(object));
    if (type == api->tuple_type)
        return write_sequence(writer, object, TUPLE | flag, api->PyTuple_GetItem, api->PyTuple_Size(object));
    if (type == api->dict_type) return write_dict(writer, object, flag);
    if (type == api->set_type) return write_set(writer, object, SET | flag);
    if (type == api->frozenset_type) return write_set(writer, object, FROZENSET | flag);
    return false;
}

static bool write_buffer(struct writer *writer, vlci_object *object, int flag) {
    if (vlci_array_is(writer->realm, object) && !vlci_array_is_known(writer->receiver)) return false;
    Py_ssize_t number = writer->message->span_count;
    return vlci_buffer_add(writer->message, writer->realm, object) == 0 &&
           put_sized(writer->message, BUFFER | flag, number, NULL);
}

static bool write_scalar(struct writer *writer, vlci_object *object) {
    uint8_t data[1 + VLCI_SCALAR_SIZE];
    return vlci_array_is_known(writer->receiver) &&
           vlci_scalar_read(writer->realm, object, data, (char *)data + 1) &&
           put(writer, SCALAR, data, sizeof data);
}

static bool write_kept(struct vlci_message *message, struct vlci_kept *kept, int flag) {
    Py_ssize_t span = message->span_count;
    return put_sized(message, HANDLE | flag, span, NULL) && vlci_message_add_kept(message, kept);
}

static bool has_identity(const struct writer *writer, const vlci_object *object) {
    const struct vlci_api *api = writer->api;
    const vlci_object *type = object->type;
    return type == api->str_type || type == api->list_type || type == api->tuple_type ||
           type == api->dict_type || type == api->bytes_type || type == api->set_type ||
           type == api->frozenset_type || vlci_buffer_is(writer->realm, object) ||
           vlci_handle_kept(writer->realm, object);
}

/* What has an identity. An object that only one place refers to cannot come again. */
static bool write_whole(struct writer *writer, vlci_object *object) {
    const struct vlci_api *api = writer->api;
    const vlci_object *type = object->type;
    int flag = 0;
    if (object->references > 1) {
        if (!make_room(writer)) return false;
        struct kept *kept = find(writer, object);
        if (kept->object) return !kept->open && put(writer, SAME, &kept->number, sizeof kept->number);
        api->Py_IncRef(object);
        bool open = type == api->tuple_type || type == api->frozenset_type;
        *kept = (struct kept){ object, writer->kept_count++, open };
        flag = KEPT;
    }
    if (type == api->str_type) return write_str(writer, object, flag);
    if (type == api->bytes_type) return write_bytes(writer, object, flag);
    if (vlci_buffer_is(writer->realm, object)) return write_buffer(writer, object, flag);
    struct vlci_kept *kept_object = vlci_handle_kept(writer->realm, object);
    if (kept_object) return write_kept(writer->message, kept_object, flag);
    bool done = writer->depth++ < DEEPEST && write_container(writer, object, flag);
    writer->depth--;
    if (flag) find(writer, object)->open = false;
    return done;
}

static bool write_object(struct writer *writer, vlci_object *object) {
    const struct vlci_api *api = writer->api;
    const vlci_object *type = object->type;
    if (type == api->int_type) return write_int(writer, object);
    if (type == api->float_type) {
        double number = api->PyFloat_AsDouble(object);
        return put(writer, FLOAT, &number, sizeof number);
    }
    if (object == api->none) return put(writer, NONE, NULL, 0);
    if (object == api->yes || object == api->no) return put(writer, object == api->yes ? YES : NO, NULL, 0);
    if (type == api->complex_type) {
        double parts[2] = { api->PyComplex_RealAsDouble(object), api->PyComplex_ImagAsDouble(object) };
        return put(writer, COMPLEX, parts, sizeof parts);
    }
    return has_identity(writer, object) ? write_whole(writer, object) : write_scalar(writer, object);
}

/* Without clearing the table, which most values do not need. */
static void begin(struct writer *writer, struct vlci_message *message, struct vlci_realm *realm,
                  const struct vlci_realm *receiver) {
    writer->message = message;
    writer->realm = realm;
    writer->receiver = receiver;
    writer->api = &realm->api;
    writer->kept = NULL;
    writer->kept_count = 0;
    writer->depth = 0;
}

static bool end(struct writer *writer, bool done) {
    writer->message->kept = writer->kept_count;
    if (writer->kept) forget_kept(writer);
    if (!done) {
        vlci_message_end(writer->message);
        writer->api->PyErr_Clear();
    }
    return done;
}

bool vlci_value_write(struct vlci_message *message, struct vlci_realm *realm,
                      const struct vlci_realm *receiver, vlci_object *value) {
    struct writer writer;
    begin(&writer, message, realm, receiver);
    return end(&writer, write_object(&writer, value));
}

bool vlci_value_write_call(struct vlci_message *message, struct vlci_realm *realm,
                           const struct vlci_realm *receiver, vlci_object *const *args, Py_ssize_t count,
                           vlci_object *names) {
    struct writer writer;
    begin(&writer, message, realm, receiver);
    Py_ssize_t named = names ? realm->api.PyTuple_Size(names) : 0;
    bool done = put_sized(message, TUPLE, count - named, NULL);
    for (Py_ssize_t i = 0; done && i < count - named; i++) done = write_object(&writer, args[i]);
    if (named) done = done && put_sized(message, DICT, named, NULL);
    for (Py_ssize_t i = 0; done && i < named; i++)
        done = write_object(&writer, realm->api.PyTuple_GetItem(names, i)) &&
               write_object(&writer, args[count - named + i]);
    return end(&writer, done);
}

bool vlci_value_write_kept(struct vlci_message *message, struct vlci_kept *kept) {
    message->kept = 0;
    return write_kept(message, kept, 0);
}

/* ---- reading ------------------------------------------------------------------------------------------- */

struct reader {
    const struct vlci_message *message;
    struct vlci_realm *realm;
    const struct vlci_api *api;
    const char *at;
    vlci_object **kept; /* by number; references, since a set or dict may drop an item that it has already */
    uint32_t kept_count;
};

static vlci_object *read_object(struct reader *reader);

static void take(struct reader *reader, void *data, size_t size) {
    memcpy(data, reader->at, size);
    reader->at += size;
}

static void keep(struct reader *reader, vlci_object **place, vlci_object *object) {
    if (!place || !object) return;
    reader->api->Py_IncRef(object);
    *place = object;
}

/* How many items have this tag in common. */
static Py_ssize_t read_run(struct reader *reader, int *tag) {
    uint64_t count;
    *tag = (unsigned char)*reader->at;
    if (*tag != FLOATS && *tag != INTS) return 1;
    reader->at++;
    take(reader, &count, sizeof count);
    return (Py_ssize_t)count;
}

static vlci_object *read_item(struct reader *reader, int tag) {
    const struct vlci_api *api = reader->api;
    double number;
    long long integer;
    switch (tag) {
    case FLOATS: take(reader, &number, sizeof number); return api->PyFloat_FromDouble(number);
    case INTS: take(reader, &integer, sizeof integer); return api->PyLong_FromLongLong(integer);
    default: return read_object(reader);
    }
}

static vlci_object *read_sequence(struct reader *reader, vlci_object *sequence, Py_ssize_t size,
                                  int (*set)(vlci_object *, Py_ssize_t, vlci_object *)) {
    Py_ssize_t left = 0;
    int tag = NONE;
    for (Py_ssize_t i = 0; sequence && i < size; i++, left--) {
        if (!left) left = read_run(reader, &tag);
        vlci_object *item = read_item(reader, tag);
        if (item && set(sequence, i, item) == 0) continue; /* which takes the item */
        reader->api->Py_DecRef(sequence);
        sequence = NULL;
    }
    return sequence;
}

static vlci_object *read_dict(struct reader *reader, vlci_object *dict, Py_ssize_t size) {
    for (Py_ssize_t i = 0; dict && i < size; i++) {
        vlci_object *key = read_object(reader);
        vlci_object *value = key ? read_object(reader) : NULL;
        if (!value || reader->api->PyDict_SetItem(dict, key, value) < 0) {
            reader->api->Py_DecRef(dict);
            dict = NULL;
        }
        reader->api->Py_DecRef(value);
        reader->api->Py_DecRef(key);
    }
    return dict;
}

static vlci_object *read_set(struct reader *reader, vlci_object *set, Py_ssize_t size) {
    for (Py_ssize_t i = 0; set && i < size; i++) {
        vlci_object *item = read_object(reader);
        if (!item || reader->api->PySet_Add(set, item) < 0) {
            reader->api->Py_DecRef(set);
            set = NULL;
        }
        reader->api->Py_DecRef(item);
    }
    return set;
}

/* What has a size. A number is given out before the items get theirs, as it was in writing. A tuple and a
 * frozenset are filled while nobody else refers to them, or their interpreter refuses. */
static vlci_object *read_sized(struct reader *reader, int tag) {
    const struct vlci_api *api = reader->api;
    vlci_object **place = tag & KEPT ? &reader->kept[reader->kept_count++] : NULL;
    uint64_t number;
    take(reader, &number, sizeof number);
    Py_ssize_t size = (Py_ssize_t)number;
    vlci_object *object;
    switch (tag & ~KEPT) {
    case LIST:
        object = api->PyList_New(size);
        keep(reader, place, object);
        return read_sequence(reader, object, size, api->PyList_SetItem);
    case DICT:
        object = api->PyDict_New();
        keep(reader, place, object);
        return read_dict(reader, object, size);
    case TUPLE: object = read_sequence(reader, api->PyTuple_New(size), size, api->PyTuple_SetItem); break;
    case SET: object = read_set(reader, api->PySet_New(NULL), size); break;
    case FROZENSET: object = read_set(reader, api->PyFrozenSet_New(NULL), size); break;
    case HANDLE: object = vlci_handle_arrive(reader->realm, reader->message->spans[size].kept); break;
    case BUFFER: object = vlci_buffer_make(&reader->message->spans[size], reader->realm); break;
    default: {
        const char *data = reader->at;
        reader->at += size;
        switch (tag & ~KEPT) {
        case LARGE_INT: object = api->PyLong_FromString(data, NULL, 16); break;
        case BYTES: object = api->PyBytes_FromStringAndSize(data, size); break;
        case STR: object = api->PyUnicode_DecodeUTF8(data, size, NULL); break;
        default: object = api->PyUnicode_DecodeUTF8(data, size, "surrogatepass");
        }
    }
    }
    keep(reader, place, object);
    return object;
}

static vlci_object *again(const struct vlci_api *api, vlci_object *object) {
    api->Py_IncRef(object);
    return object;
}

static vlci_object *read_object(struct reader *reader) {
    const struct vlci_api *api = reader->api;
    int tag = (unsigned char)*reader->at++;
    long long integer;
    double parts[2];
    uint32_t number;
    uint8_t scalar[1 + VLCI_SCALAR_SIZE];
    switch (tag) {
    case NONE: return again(api, api->none);
    case NO: return again(api, api->no);
    case YES: return again(api, api->yes);
    case INT: take(reader, &integer, sizeof integer); return api->PyLong_FromLongLong(integer);
    case FLOAT: take(reader, parts, sizeof parts[0]); return api->PyFloat_FromDouble(parts[0]);
    case COMPLEX: take(reader, parts, sizeof parts); return api->PyComplex_FromDoubles(parts[0], parts[1]);
    case SAME: take(reader, &number, sizeof number); return again(api, reader->kept[number]);
    case SCALAR:
        take(reader, scalar, sizeof scalar);
        return vlci_scalar_make(reader->realm, scalar[0], (char *)scalar + 1);
    default: return read_sized(reader, tag);
    }
}

int vlci_value_read(const struct vlci_message *message, struct vlci_realm *realm, vlci_object **values,
                    size_t count) {
    const struct vlci_api *api = &realm->api;
    vlci_object *inside[INLINE_KEPT];
    bool few = message->kept <= INLINE_KEPT;
    struct reader reader = {
        message, realm, api, message->bytes, few ? inside : malloc(message->kept * sizeof *inside), 0
    };
    if (!reader.kept) {
        api->PyErr_NoMemory();
        return -1;
    }
    memset(reader.kept, 0, message->kept * sizeof *reader.kept);
    size_t built = 0;
    while (built < count && (values[built] = read_object(&reader))) built++;
    for (uint32_t i = 0; i < reader.kept_count; i++) api->Py_DecRef(reader.kept[i]); /* NULL is fine */
    if (!few) free(reader.kept);
    if (built == count) return 0;
    while (built > 0) api->Py_DecRef(values[--built]);
    return -1;
}
