/* vectors.h - a served model's embedder: texts as vectors, one request after the other.
 *
 * It is made when the first request asks for it (it has buffers of its own), and kept.
 */
#ifndef LODE_SERVE_VECTORS_H
#define LODE_SERVE_VECTORS_H

#include "serve/request.h"

#include "lode/embed.h"

struct vectors;

/* ctx: the longest text, 0: what the model was trained for. */
int vectors_create(struct vectors **out, struct lode_model *m, uint32_t ctx, struct lode_error *err);
void vectors_free(struct vectors *v);

/* A list of inputs that becomes a list of vectors. */
struct vector_job {
    struct lode_embed_text *texts; /* (n), their tokens owned */
    size_t n, n_tokens;
    float *out; /* (n, width), owned */
    uint32_t width;
    bool scores; /* of pairs, by a cross-encoder: width is 1 */
};
/* Whether the model scores pairs itself. */
int vectors_ranks(struct served *m, bool *ranks, struct lode_error *err);
int vector_job_init(struct vector_job *j, size_t n, struct lode_error *err);
/* cut: a text that is too long loses its end. */
int vector_job_text(struct vector_job *j, struct served *m, const char *text, size_t len, bool cut,
                    struct lode_error *err);
int vector_job_ids(struct vector_job *j, const json_t *ids, const char *field, struct lode_error *err);
int vector_job_pair(struct vector_job *j, struct served *m, const char *query, const char *document,
                    struct lode_error *err);
int vector_job_run(struct vector_job *j, struct served *m, struct lode_error *err);
void vector_job_deinit(struct vector_job *j);
/* A string, a list of strings, token ids, or a list of lists of them. */
int vector_job_input(struct vector_job *j, struct served *m, const json_t *input, const char *field,
                     bool cut, struct lode_error *err);
/* The first `dimensions` numbers (0: all) of a vector, of length 1 again; as an array or base64. */
json_t *vector_json(const struct vector_job *j, size_t i, uint32_t dimensions, bool base64);
/* dimensions: 0 to the width. */
int vector_dimensions(const struct vector_job *j, const json_t *body, uint32_t *out,
                      struct lode_error *err);

#endif
