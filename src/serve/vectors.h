/* vectors.h - a served model's embedder: texts as vectors.
 *
 * It is made when the first request asks for it (at once, where the model gives nothing else), counted
 * against the budget of models, and kept.  Requests that come together share its steps: whoever waits for
 * longest leads one, with texts of all that wait beside its own, and goes to the end.  A text's vector
 * depends on the text alone.  Who goes away is left out of the next step; a step that nobody wants any more
 * is cut short.
 */
#ifndef LODE_SERVE_VECTORS_H
#define LODE_SERVE_VECTORS_H

#include "serve/request.h"

struct vectors;

/* As m->embed says.  m is borrowed. */
int vectors_create(struct vectors **out, struct served *m, struct lode_error *err);
void vectors_free(struct vectors *v);
/* The longest text; 0: the embedder is not there yet, because the model gives other things too. */
uint32_t vectors_ctx(const struct vectors *v);
bool vectors_scores(const struct vectors *v); /* the same: whether it scores pairs */

/* A list of inputs that becomes a list of vectors. */
struct vector_job {
    struct lode_embed_text *texts; /* (n), their tokens owned */
    size_t n, n_tokens;
    float *out; /* (n, width), owned */
    uint32_t width;
    bool scores; /* of a classifier: of pairs, width is mostly 1 */
    const char *pooling; /* another than the model's; NULL: that.  Borrowed */

    /* ---- vectors.c's ---- */
    const struct asker *who;
    struct vector_job *next; /* that wait */
    float *step;             /* owned: what a step gives that this request leads */
    size_t n_taken, n_done;  /* texts that have been in a step; whose vectors are there */
    bool alone;              /* shares no step: another pooling, or a step of many failed */
    int rc;                  /* why it ended; why says it */
    struct lode_error why;
};
/* Whether the model scores pairs itself. */
int vectors_ranks(struct request *r, bool *ranks, struct lode_error *err);
int vector_job_init(struct vector_job *j, size_t n, struct lode_error *err);
/* cut: a text that is too long loses its end. */
int vector_job_text(struct vector_job *j, struct request *r, const char *text, size_t len, bool cut,
                    struct lode_error *err);
int vector_job_ids(struct vector_job *j, const json_t *ids, const char *field, struct lode_error *err);
int vector_job_pair(struct vector_job *j, struct served *m, const char *query, const char *document,
                    struct lode_error *err);
/* Fills out, width and scores.  LODE_ERR_CANCELLED: nobody waits for it any more. */
int vector_job_run(struct vector_job *j, struct request *r, const struct asker *who,
                   struct lode_error *err);
void vector_job_deinit(struct vector_job *j);
/* A string, a list of strings, token ids, or a list of lists of them. */
int vector_job_input(struct vector_job *j, struct request *r, const json_t *input, const char *field,
                     bool cut, struct lode_error *err);
/* The first `dimensions` numbers (0: all) of a vector, of length 1 again; as an array or base64. */
json_t *vector_json(const struct vector_job *j, size_t i, uint32_t dimensions, bool base64);
/* dimensions: 0 to the width. */
int vector_dimensions(const struct vector_job *j, const json_t *body, uint32_t *out,
                      struct lode_error *err);

#endif
