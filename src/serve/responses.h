/* responses.h - the parts of OpenAI's Responses API.
 *
 *   openai_responses.c   events and replies
 *   responses_in.c       the body: items of a conversation to messages, tools of all kinds
 *   responses_store.c    responses that were answered, for previous_response_id
 */
#ifndef LODE_SERVE_RESPONSES_H
#define LODE_SERVE_RESPONSES_H

#include "serve/exchange.h"

struct responses { /* the state of an exchange */
    int64_t sequence;  /* of the next event */
    json_t *history;   /* owned: the messages, without instructions */
    json_t *names;     /* owned: what a tool is called here -> {kind, name, namespace} */
    json_t *output;    /* owned: items that are done */
    const char *previous;
    bool store;
};

/* The body into x->r. */
int responses_read(struct exchange *x, struct lode_error *err);

/* Keeps a response (borrowed) and the messages that a next one begins with (borrowed).  The oldest
 * make room. */
struct responses_store;
int responses_store_create(struct responses_store **out, struct lode_error *err);
void responses_store_free(struct responses_store *s);
int responses_put(struct responses_store *s, const char *id, json_t *response, json_t *messages);
/* New references of their own; NULL: there is none. */
json_t *responses_get(struct responses_store *s, const char *id, json_t **messages);
size_t responses_bytes(struct responses_store *s); /* that they take: at most 64 MiB */
bool responses_drop(struct responses_store *s, const char *id);

#endif
