/* server.h - what the server's files share. */
#ifndef LODE_SERVE_SERVER_H
#define LODE_SERVE_SERVER_H

#include "serve/serve.h"

#include "lode/chat.h"
#include "lode/tokenizer.h"
#include "lode/toolcall.h"

#include <jansson.h>
#include <stdatomic.h>

enum { MAX_BODY = 32 << 20, HOLD = 50 /* ms between looks at the client's socket */ };

struct guard;
struct log;
struct metrics;
struct models;
struct transport;

struct served { /* a model that requests can name; what it points to lives while it is pinned */
    const char *name;
    struct lode_model *model;
    struct lode_scheduler *scheduler;
    const struct lode_tokenizer *tokenizer;
    const char *template;             /* Jinja source; NULL: there is none */
    struct lode_template *tmpl;       /* owned; NULL: there is none */
    struct lode_toolcall_style style; /* what it speaks */
    struct lode_sampler_opts sampling; /* where a request says nothing */
    struct lode_embed_opts embed;      /* how its texts become vectors */
    struct forms *forms;               /* owned: compiled constraints */
    struct vectors *vectors;           /* owned: its embedder */
    struct metrics *metrics;           /* of the model, whether it is loaded or not */
};

struct server {
    struct serve_opts o;
    struct models *models;       /* owned */
    struct log *log;             /* owned */
    struct chats *chats;         /* owned (page_init); NULL: the page's browser keeps its chats */
    char no_chats[512];          /* why, if not by --no-chats */
    struct responses_store *responses; /* owned */
    struct guard *guard;         /* owned */
    bool loopback;               /* it listens there and nowhere else */
    struct transport *transport; /* owned */
    int64_t started;      /* seconds since 1970 */
    atomic_int stopping;  /* 1: takes no new requests; 2: ends the running ones */
    atomic_uint active;   /* requests that run or wait */
    uint32_t most_active; /* more are refused at once */
    atomic_uint answer_ms; /* what answers took of late, on average */
    atomic_ullong requests, n_errors, ids;
};

/* What is made of a model, its template and its scheduler, once they are set. */
int served_init(struct served *m, struct lode_error *err);
void served_deinit(struct served *m); /* after its scheduler was freed: that lets go of forms */
uint32_t served_ctx(const struct served *m); /* the longest conversation, or text */

/* The model that a request names (NULL: it names none), pinned until server_release. */
int server_model(struct server *s, const char *name, struct served **out, struct lode_error *err);
void server_release(struct server *s, struct served *m);
/* The pinned model takes so many bytes more until it is unloaded: within the budget, for which models that
 * nobody uses make room.  LODE_ERR_LIMIT with the numbers. */
int server_grow(struct server *s, struct served *m, uint64_t bytes, struct lode_error *err);

/* An HTTP status for an error of the library, whose `where` is then the field. */
int status_of(const struct lode_error *err);

/* Who waits for a reply; any thread may ask whether they still do. */
struct asker {
    bool (*gone)(void *user);
    void *user;
};

/* A route that answers with one JSON object: a new reference, or NULL and *err (LODE_ERR_CANCELLED: nobody
 * waits any more). */
typedef json_t *route_fn(struct server *s, const struct asker *who, const json_t *body,
                         struct lode_error *err);
route_fn route_tokenize, route_detokenize, route_template, route_count_tokens, route_input_tokens,
    route_embeddings, route_rerank, route_classify, route_score, route_beams, route_show, route_ollama_embed, route_ollama_embedding;
/* The same for GET and DELETE of PATH/id. */
typedef json_t *item_fn(struct server *s, const char *method, const char *id,
                        struct lode_error *err);
item_fn item_models, item_responses;

json_t *route_models(struct server *s);
json_t *route_props(struct server *s);
json_t *route_slots(struct server *s);
json_t *route_tags(struct server *s);
json_t *route_ps(struct server *s);
json_t *route_version(struct server *s);
char *route_metrics(struct server *s); /* free */

#endif
