/* answers.h - a request's answers while they are generated, as events; and what has come, collected.
 *
 * An answer has one choice for each answer that was asked for; a choice has parts: thinking, text,
 * calls of tools, in the order in which the model writes them.  A token's text goes through the
 * parser of calls and thinking (lode/toolcall.h), the text through the search for stop texts, and
 * what is settled becomes events: all of the first choice, then all of the next.
 *
 *     answers_create(&a, request, put, user, &err);
 *     while ((rc = answers_step(a, 50, &err)) == ANSWER_WAITS || rc == ANSWER_MOVED) ...
 *     answers_choice(a, 0)->parts ...
 *     answers_free(a);                                       cancels what still runs
 */
#ifndef LODE_SERVE_ANSWERS_H
#define LODE_SERVE_ANSWERS_H

#include "serve/request.h"

#include "base/buf.h"

struct answers;

enum part_kind { PART_THINKING, PART_TEXT, PART_CALL };

struct part {
    enum part_kind kind;
    struct lode_buf text; /* of a call: its arguments, a JSON object */
    char *id, *name;      /* of a call; owned */
    size_t call;          /* which call of the choice it is */
    bool broken;          /* a call that was streamed and turned out to be none, or was cut */
};

enum finish { FINISH_NONE, FINISH_ENDED, FINISH_STOP_TEXT, FINISH_LENGTH, FINISH_CALLS };

struct choice {
    size_t index;
    struct part *parts; /* (n_parts) */
    size_t n_parts, n_calls;
    enum finish finish;
    const char *stop; /* FINISH_STOP_TEXT: which */
    size_t n_tokens, n_thinking;
    struct lode_generation_token *tokens; /* (n_kept): with log-probabilities, if they are wanted */
    size_t n_kept;
    size_t n_sent, sent_bytes; /* the writer's: how many it has written, and their text */
    bool echoed;               /* the writer's too: the prompt has been written */
};

enum answer_event_kind {
    ANSWER_BEGIN,    /* a choice: its first token may still be far away */
    ANSWER_PART,     /* a part begins */
    ANSWER_DELTA,    /* text: more of it */
    ANSWER_PART_END, /* it is complete */
    ANSWER_END,      /* the choice is: finish, tokens */
    ANSWER_ALL,      /* all choices are */
};

struct answer_event {
    enum answer_event_kind kind;
    struct choice *choice;   /* not for ALL */
    const struct part *part; /* PART, DELTA, PART_END */
    size_t i_part;
    const char *text; /* (len), borrowed until put returns */
    size_t len;
};
typedef void answer_put_fn(void *user, const struct answer_event *e);

enum answer_result { ANSWER_WAITS, ANSWER_MOVED, ANSWER_DONE };

/* Starts; the request outlives it.  put may be NULL: nobody reads along. */
int answers_create(struct answers **out, struct request *r, answer_put_fn *put, void *user,
                  struct lode_error *err);
void answers_free(struct answers *a);
/* Takes at most one token, waiting for it up to wait_ms. */
int answers_step(struct answers *a, int wait_ms, struct lode_error *err);

size_t answers_choices(const struct answers *a);
struct choice *answers_choice(struct answers *a, size_t i);
/* The text of all parts of a kind, as a JSON string. */
json_t *choice_text(const struct choice *c, enum part_kind kind);

/* What the tokens of its prompt weigh from the second on (r->g.prompt_logprobs): (*n), free; NULL: without
 * memory. */
struct lode_generation_token *answers_given(struct answers *a, const struct choice *c, size_t *n);

struct answer_usage {
    size_t n_prompt, n_cached, n_answer, n_thinking; /* tokens; a prompt counts once */
    struct lode_generation_stats stats;              /* of the choice that is read, or the last */
};
void answers_usage(struct answers *a, struct answer_usage *out);

/* {prompt_tokens, completion_tokens, ...}, as OpenAI has it */
json_t *answers_usage_json(struct answers *a);
/* As llama.cpp has it. */
json_t *answers_timings_json(struct answers *a);
/* Log-probabilities of tokens from..to: a list of {token, id, logprob, bytes, top_logprobs}. */
json_t *answers_logprobs_json(struct answers *a, const struct choice *c, size_t from, size_t to);
/* A token's own text, as a JSON string. */
json_t *answers_token_json(struct answers *a, int32_t id);

#endif
