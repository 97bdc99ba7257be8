/* embed.h - texts as vectors, and pairs of texts as scores.
 *
 * An embedder runs whole texts through a model and pools the final hidden states of their tokens: an
 * encoder's (bert, nomic-bert), or any decoder's.  A vector depends on its text and the model alone:
 * not on the texts beside it, the number of threads or the instruction set.  It borrows the model,
 * belongs to one thread at a time, which needs as much stack as a session's (LODE_SESSION_STACK), and
 * allocates nothing after create.
 *
 *     struct lode_embedder *e;
 *     lode_embed_create(&e, model, NULL, &err);
 *     float *v = malloc(n * lode_embed_width(e) * sizeof *v);
 *     lode_embed_run(e, texts, n, v, &err);               (n, width)
 *     lode_embed_free(e);
 *
 * A cross-encoder's score for a query and a document (pooling "rank") is a vector of one number; its
 * tokens come from lode_embed_pair.
 */
#ifndef LODE_EMBED_H
#define LODE_EMBED_H

#include "lode/model.h"

#ifdef __cplusplus
extern "C" {
#endif

struct lode_embedder;

struct lode_embed_opts { /* zero means the default */
    const char *pooling; /* "mean" of all tokens, "cls" (the first), "last", "rank" (a classifier on
                            the first); NULL: what the file says, else an encoder's mean, a decoder's
                            last */
    bool plain;          /* leave vectors as pooled; else they get length 1 (scores never do) */
    uint32_t ctx;        /* longest text, in tokens; 0: what the model was trained for */
    uint32_t batch;      /* tokens evaluated at once; 0: 512, and an encoder's longest text */
    uint32_t threads;    /* 0: physical cores of the cgroup's share */
    const char *ctk, *ctv; /* KV formats; NULL: f16, and f32 where every token sees all */
    bool (*cancel)(void *user); /* asked between parts of a step; true: LODE_ERR_CANCELLED */
    void *cancel_user;
};

LODE_API int lode_embed_create(struct lode_embedder **out, struct lode_model *m,
                               const struct lode_embed_opts *opts, struct lode_error *err);
LODE_API void lode_embed_free(struct lode_embedder *e);
/* Bytes that create would take beside the model: the pages of a longest text or of a step's texts, buffers.
 * LODE_ERR_LIMIT with the numbers where that is not there. */
LODE_API int lode_embed_plan(const struct lode_model *m, const struct lode_embed_opts *opts, uint64_t *bytes,
                             struct lode_error *err);

LODE_API uint32_t lode_embed_width(const struct lode_embedder *e); /* numbers of a vector */
LODE_API uint32_t lode_embed_ctx(const struct lode_embedder *e);   /* longest text, in tokens */
LODE_API uint32_t lode_embed_batch(const struct lode_embedder *e); /* most tokens of a step */
LODE_API const char *lode_embed_pooling(const struct lode_embedder *e); /* the one in use */
/* Another one from now on, which may change the width; NULL: what create chose. */
LODE_API int lode_embed_pool(struct lode_embedder *e, const char *pooling, struct lode_error *err);

struct lode_embed_text {
    const int32_t *tokens; /* (n), with BOS and so on as the model wants them */
    size_t n;              /* at least 1 */
    size_t second;         /* where a pair's second text begins; 0: it is no pair */
};

/* out: (n, width), owned by the caller.  Texts that lie beside each other share steps, as many as fit
 * one.  What lode_embed_check refuses fails before anything is computed. */
LODE_API int lode_embed_run(struct lode_embedder *e, const struct lode_embed_text *texts, size_t n,
                            float *out, struct lode_error *err);

/* LODE_ERR_LIMIT with the numbers for a text that is too long; LODE_ERR_ARG for an empty one, and for ids
 * outside the vocabulary. */
LODE_API int lode_embed_check(const struct lode_embedder *e, const struct lode_embed_text *texts, size_t n,
                              struct lode_error *err);

/* The tokens of a query and a document as cross-encoders read them, sizes as lode_tokenize does;
 * *second: where the document begins. */
LODE_API int64_t lode_embed_pair(const struct lode_model *m, const char *query, size_t query_len,
                                 const char *document, size_t document_len, int32_t *ids, size_t cap,
                                 size_t *second, struct lode_error *err);

/* Makes x (n) of length 1 by a norm: 0 scales its largest magnitude to 32760, 1 taxicab, 2 Euclid, p
 * the p-norm; negative: leaves it.  Zeros stay zeros. */
LODE_API void lode_embed_normalize(float *x, size_t n, int p);

#ifdef __cplusplus
}
#endif
#endif
