#include "message.h"

#include <stdlib.h>
#include <string.h>

#include "handle.h"

void vlci_message_begin(struct vlci_message *message) {
    message->bytes = message->inside;
    message->size = 0;
    message->capacity = sizeof message->inside;
    message->spans = NULL;
    message->span_count = message->span_capacity = 0;
    message->kept = 0;
}

void vlci_message_end(struct vlci_message *message) {
    for (Py_ssize_t i = 0; i < message->span_count; i++) vlci_span_drop(&message->spans[i]);
    free(message->spans);
    if (message->capacity && message->bytes != message->inside) free(message->bytes);
    vlci_message_begin(message);
}

char *vlci_message_grow(struct vlci_message *message, size_t size) {
    if (size > message->capacity - message->size) {
        size_t capacity = message->capacity * 2;
        if (capacity < message->size + size) capacity = message->size + size;
        bool inside = message->bytes == message->inside;
        char *bytes = realloc(inside ? NULL : message->bytes, capacity);
        if (!bytes) return NULL;
        if (inside) memcpy(bytes, message->inside, message->size);
        message->bytes = bytes;
        message->capacity = capacity;
    }
    char *room = message->bytes + message->size;
    message->size += size;
    return room;
}

struct vlci_span *vlci_message_add(struct vlci_message *message) {
    if (message->span_count == message->span_capacity) {
        Py_ssize_t capacity = message->span_capacity ? message->span_capacity * 2 : 4;
        struct vlci_span *spans = realloc(message->spans, (size_t)capacity * sizeof *spans);
        if (!spans) return NULL;
        message->spans = spans;
        message->span_capacity = capacity;
    }
    return &message->spans[message->span_count++];
}

bool vlci_message_add_kept(struct vlci_message *message, struct vlci_kept *kept) {
    struct vlci_span *span = vlci_message_add(message);
    if (!span) return false;
    vlci_kept_retain(kept);
    *span = (struct vlci_span){ .kept = kept };
    return true;
}

vlci_object *vlci_message_leases(const struct vlci_message *message, struct vlci_realm *holder) {
    const struct vlci_api *api = &holder->api;
    vlci_object *list = api->PyList_New(message->span_count);
    for (Py_ssize_t i = 0; list && i < message->span_count; i++) {
        const struct vlci_span *span = &message->spans[i];
        vlci_object *lease = span->kept ? vlci_passage_new(holder, span->kept) : vlci_lease_new(holder, span);
        if (!lease || api->PyList_SetItem(list, i, lease) < 0) { /* the list takes the lease */
            api->Py_DecRef(list);
            list = NULL;
        }
    }
    return list;
}
