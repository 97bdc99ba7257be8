/* request.h - what a client asks for, whatever the API that it asks in.
 *
 * Each API reads its body into this: what to continue (a chat in OpenAI's shapes, or prompts), how to
 * sample, where to stop, which form the answer must have.  Reading is done by helpers that know the
 * names which several APIs share; a field of a wrong type fails with its name (fields.h).
 */
#ifndef LODE_SERVE_REQUEST_H
#define LODE_SERVE_REQUEST_H

#include "serve/prompt.h"

enum { MAX_STOPS = 64, MAX_CHOICES = 128 };

struct request {
    struct server *s;
    struct served *m; /* pinned */
    json_t *body;     /* owned; strings below may be borrowed from it */
    bool chat;        /* an assistant's turn: thinking and calls are told apart */
    bool stream;

    struct talk talk;       /* of a chat */
    struct lode_toolcall_style style; /* what a chat's answers speak */
    struct form *form;      /* of the answer, held; NULL: any */
    struct calls *calls;    /* held; NULL: there are no tools */
    struct prompt *prompts; /* (n_prompts), owned */
    size_t n_prompts;
    int n, best_of; /* answers to give, and to generate, for each prompt */

    struct lode_generation_opts g; /* but for the prompt */
    struct lode_logit_bias *bias;  /* owned */
    int32_t *breaker_ids;          /* owned, as breakers: of DRY */
    const int32_t **breakers;
    char samplers[256];
    const char *stops[MAX_STOPS];  /* borrowed */
    size_t n_stops;

    /* What only some APIs know; each names what it reads. */
    bool include_usage, timings_per_token, echo;
    bool logprobs; /* wanted in the reply; g.logprobs: needed */
};

int request_init(struct request *r, struct server *s, const json_t *body, struct lode_error *err);
void request_deinit(struct request *r);

/* model: finds and pins it. */
int request_model(struct request *r, struct lode_error *err);
/* priority (as vLLM's: lower goes first), timeout (seconds, waiting included; 0: none) */
int request_place(struct request *r, struct lode_error *err);
/* stream, stream_options, max_tokens and its other names, ignore_eos, timings_per_token */
int request_common(struct request *r, struct lode_error *err);
/* temperature, top_p, ..., seed, logit_bias: of `from`, the body or an object within it. */
int request_sampling(struct request *r, const json_t *from, struct lode_error *err);
/* A text or a list of texts. */
int request_stops(struct request *r, const json_t *from, const char *name, struct lode_error *err);
/* n_prompts of them, zeroed. */
int request_prompts(struct request *r, size_t n, struct lode_error *err);
/* The form that response_format, json_schema, grammar or regex give. */
int request_form(struct request *r, struct lode_error *err);
/* A form by itself; field: who asked for it. */
int request_form_of(struct request *r, enum lode_grammar_kind kind, const char *text,
                    const char *field, struct lode_error *err);
int request_schema(struct request *r, const json_t *schema, const char *field,
                   struct lode_error *err);
/* Gives the talk's tools their style and their calls. */
int request_tools(struct request *r, struct lode_error *err);
/* r->talk becomes the one prompt; request_tools with it. */
int request_talk(struct request *r, struct lode_error *err);

int request_no_memory(struct lode_error *err);

#endif
