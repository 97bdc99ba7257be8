/* exchange.h - one request for an answer, from its body to the last byte of the reply; and what an
 * API is.
 *
 *     exchange_create(&x, server, &openai_chat, body, 0, &err);
 *     while ((rc = exchange_step(x, 50, &err)) == ANSWER_WAITS || rc == ANSWER_MOVED)
 *         streaming: what x->out holds is to be sent, and cleared
 *     reply = api->reply(x);                            not streaming
 *     exchange_free(x);                                 cancels what still runs
 *
 * To add an API: a file with a struct api, and its path in http.c.
 */
#ifndef LODE_SERVE_EXCHANGE_H
#define LODE_SERVE_EXCHANGE_H

#include "serve/answers.h"

struct exchange;

/* An error in the shape of an API: a new reference, or NULL without memory. */
typedef json_t *error_fn(int status, const struct lode_error *err);

struct api {
    const char *prefix;      /* of the answers' ids */
    const char *stream_type; /* NULL: text/event-stream */
    size_t state_size;       /* of x->state, zeroed; 0: none */
    /* The body as a request. */
    int (*read)(struct exchange *x, struct lode_error *err);
    /* What an event adds to a stream (x->out); not called for replies that are sent whole. */
    void (*put)(struct exchange *x, const struct answer_event *e);
    /* The whole reply, once done; NULL without memory. */
    json_t *(*reply)(struct exchange *x);
    /* An error behind the head of a stream; NULL: as sse_data of error. */
    void (*put_error)(struct exchange *x, int status, const struct lode_error *err);
    /* Nothing has been sent for a while; NULL: a comment that says how far the prompt is. */
    void (*alive)(struct exchange *x, const struct lode_generation_stats *st);
    void (*close)(struct exchange *x); /* what state holds; NULL: nothing */
    error_fn *error;
};

struct exchange {
    struct server *s;
    const struct api *api;
    struct request r;
    struct answers *a;
    void *state; /* the API's, owned */
    struct lode_buf out;
    char id[64];
    int64_t created;  /* seconds since 1970 */
    double last_sent; /* clock of the last bytes */
};

/* client: who asks, for fairness; 0: nobody in particular. */
int exchange_create(struct exchange **out, struct server *s, const struct api *api,
                    const json_t *body, uint64_t client, struct lode_error *err);
void exchange_free(struct exchange *x);
int exchange_step(struct exchange *x, int wait_ms, struct lode_error *err);

/* Adds "event: NAME\n" (NULL: not), "data: JSON\n\n"; takes the value. */
void sse_data(struct exchange *x, const char *event, json_t *value);
/* "PREFIX_" and letters that no other id of this process has. */
void make_id(struct server *s, const char *prefix, char out[64]);

extern const struct api openai_chat, openai_text, openai_responses, anthropic_messages, ollama_chat,
    ollama_generate;
error_fn openai_error, anthropic_error, ollama_error;

#endif
