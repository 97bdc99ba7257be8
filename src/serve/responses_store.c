/* responses_store.c - see responses.h.
 *
 * Responses are kept as text: jansson's reference counts belong to one thread, and bytes can be
 * counted.
 */
#include "serve/responses.h"

#include "serve/fields.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1024, MOST_BYTES = 64 << 20 };

struct kept {
    struct kept *next; /* the one stored before */
    char *id, *response, *messages;
    size_t size;
};

struct responses_store {
    pthread_mutex_t lock;
    struct kept *first;
};

int responses_store_create(struct responses_store **out, struct lode_error *err) {
    *out = calloc(1, sizeof **out);
    if (*out && pthread_mutex_init(&(*out)->lock, NULL)) {
        free(*out);
        *out = NULL;
    }
    return *out ? 0 : request_no_memory(err);
}

static void free_kept(struct kept *k) {
    free(k->id);
    free(k->response);
    free(k->messages);
    free(k);
}

void responses_store_free(struct responses_store *s) {
    if (!s)
        return;
    for (struct kept *k = s->first, *next; k; k = next) {
        next = k->next;
        free_kept(k);
    }
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* With the lock. */
static void make_room(struct responses_store *s) {
    size_t n = 0, size = 0;
    for (struct kept **at = &s->first; *at;) {
        struct kept *k = *at;
        size += k->size;
        if (++n <= MOST && size <= MOST_BYTES) {
            at = &k->next;
            continue;
        }
        *at = k->next;
        free_kept(k);
    }
}

int responses_put(struct responses_store *s, const char *id, json_t *response, json_t *messages) {
    struct kept *k = calloc(1, sizeof *k);
    if (!k)
        return LODE_ERR_NOMEM;
    k->id = strdup(id);
    k->response = json_text(response);
    k->messages = json_text(messages);
    if (!k->id || !k->response || !k->messages) {
        free_kept(k);
        return LODE_ERR_NOMEM;
    }
    k->size = strlen(k->id) + strlen(k->response) + strlen(k->messages) + 3 + sizeof *k;
    pthread_mutex_lock(&s->lock);
    k->next = s->first;
    s->first = k;
    make_room(s);
    pthread_mutex_unlock(&s->lock);
    return 0;
}

static struct kept **find(struct responses_store *s, const char *id) {
    struct kept **at = &s->first;
    while (*at && strcmp((*at)->id, id))
        at = &(*at)->next;
    return at;
}

json_t *responses_get(struct responses_store *s, const char *id, json_t **messages) {
    json_t *response = NULL;
    pthread_mutex_lock(&s->lock);
    const struct kept *k = *find(s, id);
    if (k)
        response = json_loads(k->response, 0, NULL);
    if (messages)
        *messages = k ? json_loads(k->messages, 0, NULL) : NULL;
    pthread_mutex_unlock(&s->lock);
    return response;
}

size_t responses_bytes(struct responses_store *s) {
    size_t bytes = 0;
    pthread_mutex_lock(&s->lock);
    for (const struct kept *k = s->first; k; k = k->next)
        bytes += k->size;
    pthread_mutex_unlock(&s->lock);
    return bytes;
}

bool responses_drop(struct responses_store *s, const char *id) {
    pthread_mutex_lock(&s->lock);
    struct kept **at = find(s, id), *k = *at;
    if (k)
        *at = k->next;
    pthread_mutex_unlock(&s->lock);
    if (k)
        free_kept(k);
    return k != NULL;
}
