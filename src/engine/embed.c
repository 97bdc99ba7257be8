#include "lode/embed.h"

#include "base/alloc.h"
#include "base/dmath.h"
#include "engine/memory.h"
#include "engine/rows.h"
#include "engine/timeline.h"
#include "lode/tokenizer.h"
#include "model/model.h"

#include <math.h>

enum { MAX_TOGETHER = 16 }; /* texts of one step */

enum pooling { MEAN = 1, CLS, LAST, RANK }; /* GGUF's numbers of pooling_type */
static const char *const names[] = {[MEAN] = "mean", [CLS] = "cls", [LAST] = "last", [RANK] = "rank"};

struct lode_embedder {
    struct lode_model *model; /* borrowed */
    /* owned; (n_sessions), which share their pages: of the longest text, or of a step's texts */
    struct lode_session *sessions[MAX_TOGETHER];
    uint32_t n_sessions, ctx, batch, width;
    enum pooling pooling, usual; /* in use; where nobody asks for another */
    bool wants_plain, plain;
    double *sums; /* owned; (n_sessions, the widest pooling's width): of the texts under way */
};

static enum pooling usual_pooling(const struct lode_model *m) {
    uint32_t id;
    if (lode_source_arch_u32(m->source, "pooling_type", &id) && id >= MEAN && id <= RANK)
        return (enum pooling)id;
    return m->arch->encoder ? m->hp.n_scores ? RANK : MEAN : LAST;
}

int lode_embed_pool(struct lode_embedder *e, const char *wanted, struct lode_error *err) {
    const struct lode_model *m = e->model;
    enum pooling chosen = wanted ? 0 : e->usual;
    for (int i = MEAN; wanted && i <= RANK; i++)
        if (strcmp(names[i], wanted) == 0)
            chosen = (enum pooling)i;
    if (!chosen)
        return lode_fail(err, LODE_ERR_ARG, "pooling", "'%.40s' is not known (mean, cls, last, rank)",
                         wanted);
    if (chosen == RANK && !m->hp.n_scores)
        return lode_fail(err, LODE_ERR_UNSUPPORTED, m->info.path,
                         "the model has no classifier (cls.weight, cls.output.weight), so it can't "
                         "rank; mean, cls and last are left");
    e->pooling = chosen;
    e->plain = e->wants_plain || chosen == RANK;
    e->width = chosen == RANK ? m->hp.n_scores : m->hp.d_model;
    return 0;
}

/* ---- room ---- */

struct room {
    struct lode_session_opts so; /* of each session */
    struct lode_kv_room kv;      /* of the pages that all share */
    uint32_t n;                  /* sessions */
    uint64_t bytes;              /* of all of it */
    bool fits;                   /* it is there, at each place */
};

/* Texts of one step have a batch's tokens together, each in pages of its own: the pages of the longest
 * text and one more for each are enough for both. */
static int measure(const struct lode_model *m, const struct lode_memory_plan *p, uint32_t n, struct room *r,
                   struct lode_error *err) {
    struct lode_kv_layer *layers;
    r->n = n;
    r->kv = (struct lode_kv_room){.ctx = p->ctx,
                                  .batch = lode_session_batch(&r->so, p->ctx),
                                  .n_seqs = n,
                                  .tokens = p->ctx + (n > 1 ? (uint64_t)n * LODE_KV_PAGE : 0)};
    struct lode_needs needs;
    uint64_t left[LODE_PLACES];
    LODE_TRY(lode_session_layers(m, &r->so, &layers, err));
    const int rc = lode_session_needs(m, m->plans, layers, &r->so, &r->kv, &needs, err);
    lode_free(layers);
    lode_places_left(m, left);
    /* each session's tokens, and its logits where it has any */
    const uint64_t logits = m->arch->encoder ? 0 : m->hp.n_vocab * sizeof(float);
    needs.work[LODE_HOST] += (n - 1) * (p->ctx * sizeof(int32_t) + logits);
    r->bytes = 0;
    r->fits = true;
    for (uint32_t i = 0; rc == 0 && i < LODE_PLACES; i++) {
        const uint64_t bytes = needs.kv[i] + needs.work[i] + n * needs.state[i];
        r->bytes += bytes;
        r->fits &= bytes <= left[i];
    }
    return rc;
}

/* As many texts at once as there is memory for.  No vector depends on how many. */
static int choose_room(const struct lode_model *m, const struct lode_embed_opts *o, struct room *r,
                       struct lode_error *err) {
    const uint32_t trained = m->hp.ctx_train, ctx = o->ctx ? o->ctx : trained;
    struct lode_memory_plan p;
    if (!m->store)
        return lode_fail(err, LODE_ERR_ARG, m->info.path, "only the vocabulary was loaded");
    if (o->ctx > trained && m->arch->encoder)
        return lode_fail(err, LODE_ERR_LIMIT, "-c", "%u; the model has positions for %u tokens",
                         o->ctx, trained);
    if (o->batch > LODE_MAX_BATCH)
        return lode_fail(err, LODE_ERR_ARG, "-b", "%u; 1 to %d expected", o->batch, LODE_MAX_BATCH);
    r->so = (struct lode_session_opts){.ctx = o->ctx,
                                       .batch = o->batch,
                                       .threads = o->threads,
                                       .ctk = o->ctk,
                                       .ctv = o->ctv,
                                       .cancel = o->cancel,
                                       .cancel_user = o->cancel_user};
    if (m->hp.both_ways && r->so.batch < ctx) /* a text is one step */
        r->so.batch = ctx > LODE_DEFAULT_BATCH ? ctx : LODE_DEFAULT_BATCH;
    LODE_TRY(lode_session_admit(m, &r->so, &p, err));
    r->so.ctx = p.ctx;
    LODE_TRY(measure(m, &p, MAX_TOGETHER, r, err));
    while (r->n > 1 && !r->fits)
        LODE_TRY(measure(m, &p, r->n / 2, r, err));
    return 0;
}

int lode_embed_plan(const struct lode_model *m, const struct lode_embed_opts *opts, uint64_t *bytes,
                    struct lode_error *err) {
    struct room r;
    LODE_TRY(choose_room(m, opts ? opts : &(struct lode_embed_opts){0}, &r, err));
    *bytes = r.bytes;
    return 0;
}

static int open_sessions(struct lode_embedder *e, const struct room *r, struct lode_workers *w,
                         struct lode_error *err) {
    struct lode_kv_layer *layers;
    struct lode_kv_pool *pool = NULL;
    LODE_TRY(lode_session_layers(e->model, &r->so, &layers, err));
    int rc = lode_kv_pool_create(&pool, layers, e->model->n_kept, &r->kv, w->memory, err);
    while (rc == 0 && e->n_sessions < r->n) {
        rc = lode_session_open_in(&e->sessions[e->n_sessions], w, pool, &r->so, err);
        e->n_sessions += rc == 0;
    }
    lode_free(layers);
    if (pool)
        lode_kv_pool_release(pool); /* sessions share it, and the workers */
    return rc;
}

static int create(struct lode_embedder *e, const struct lode_embed_opts *o,
                  struct lode_error *err) {
    const struct lode_hparams *hp = &e->model->hp;
    struct room r = {0};
    struct lode_workers *w;
    e->usual = usual_pooling(e->model);
    e->wants_plain = o->plain;
    LODE_TRY(lode_embed_pool(e, o->pooling, err));
    e->usual = e->pooling;
    LODE_TRY(choose_room(e->model, o, &r, err));
    e->ctx = r.kv.ctx;
    e->batch = r.kv.batch;
    LODE_TRY(lode_workers_create(&w, e->model, e->batch, r.so.threads, err));
    const int rc = open_sessions(e, &r, w, err);
    lode_workers_release(w);
    if (rc < 0)
        return rc;
    e->sums = LODE_NEW_ARRAY(double, (size_t)e->n_sessions * (hp->d_model > hp->n_scores ? hp->d_model
                                                                                        : hp->n_scores));
    return e->sums ? 0 : lode_fail_nomem(err, "sums of an embedder");
}

int lode_embed_create(struct lode_embedder **out, struct lode_model *m,
                      const struct lode_embed_opts *opts, struct lode_error *err) {
    const struct lode_embed_opts none = {0};
    *out = NULL;
    struct lode_embedder *e = LODE_NEW(struct lode_embedder);
    if (!e)
        return lode_fail_nomem(err, "embedder");
    e->model = m;
    const int rc = create(e, opts ? opts : &none, err);
    if (rc < 0)
        lode_embed_free(e);
    else
        *out = e;
    return rc;
}

void lode_embed_free(struct lode_embedder *e) {
    if (!e)
        return;
    for (uint32_t i = 0; i < MAX_TOGETHER; i++)
        lode_session_free(e->sessions[i]);
    lode_free(e->sums);
    lode_free(e);
}

uint32_t lode_embed_width(const struct lode_embedder *e) { return e->width; }
uint32_t lode_embed_ctx(const struct lode_embedder *e) { return e->ctx; }
uint32_t lode_embed_batch(const struct lode_embedder *e) { return e->batch; }
const char *lode_embed_pooling(const struct lode_embedder *e) { return names[e->pooling]; }

void lode_embed_normalize(float *x, size_t n, int p) {
    double sum = 0;
    for (size_t i = 0; i < n && p >= 0; i++) {
        const double size = fabs((double)x[i]);
        if (p == 0)
            sum = size > sum ? size : sum;
        else
            sum += p == 1 ? size : p == 2 ? size * size : size > 0 ? lode_pow(size, p) : 0;
    }
    if (!(sum > 0))
        return;
    const double length = p == 0   ? sum / 32760
                          : p == 1 ? sum
                          : p == 2 ? sqrt(sum)
                                   : lode_pow(sum, 1.0 / p);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(x[i] / length);
}

static int add_row(void *user, size_t feed, const float *y) {
    struct lode_embedder *e = user;
    double *sum = e->sums + feed * e->width;
    for (uint32_t i = 0; i < e->width; i++)
        sum[i] += (double)y[i];
    return 0;
}

/* One step over feeds, whose rows are added to the sums. */
static int add_step(struct lode_embedder *e, const struct lode_feed *feeds, const uint32_t *second,
                    size_t n, bool last, struct lode_error *err) {
    const enum lode_want want = e->pooling == MEAN   ? LODE_WANT_ALL
                                : e->pooling == LAST ? last ? LODE_WANT_LAST : LODE_WANT_NONE
                                                     : LODE_WANT_FIRST;
    const enum lode_stage stage = e->pooling == RANK ? LODE_HEAD : LODE_TAIL;
    return lode_session_rows(feeds, second, n, stage, want, add_row, e, err);
}

static void finish(const struct lode_embedder *e, const struct lode_embed_text *texts, size_t n,
                   float *out) {
    for (size_t i = 0; i < n; i++, out += e->width) {
        const double *sum = e->sums + i * e->width;
        const double by = e->pooling == MEAN ? (double)texts[i].n : 1;
        for (uint32_t k = 0; k < e->width; k++)
            out[k] = (float)(sum[k] / by);
        if (!e->plain)
            lode_embed_normalize(out, e->width, 2);
    }
}

/* A text that no single step holds, piece by piece: of a decoder only. */
static int run_long(struct lode_embedder *e, const struct lode_embed_text *t, struct lode_error *err) {
    for (size_t i = 0; i < t->n;) {
        const size_t part = t->n - i < e->batch ? t->n - i : e->batch;
        const struct lode_feed f = {e->sessions[0], t->tokens + i, part};
        /* of the first token, only the first piece knows */
        if (e->pooling == CLS && i > 0)
            break;
        LODE_TRY(add_step(e, &f, NULL, 1, i + part == t->n, err));
        i += part;
    }
    return 0;
}

static int run_together(struct lode_embedder *e, const struct lode_embed_text *texts, size_t n,
                        struct lode_error *err) {
    struct lode_feed feeds[MAX_TOGETHER];
    uint32_t second[MAX_TOGETHER];
    for (size_t i = 0; i < n; i++) {
        feeds[i] = (struct lode_feed){e->sessions[i], texts[i].tokens, texts[i].n};
        const bool pair = texts[i].second && e->model->hp.n_parts > 1;
        second[i] = (uint32_t)(pair ? texts[i].second : texts[i].n);
    }
    return add_step(e, feeds, second, n, true, err);
}

int lode_embed_check(const struct lode_embedder *e, const struct lode_embed_text *texts, size_t n,
                     struct lode_error *err) {
    const uint32_t n_vocab = e->model->hp.n_vocab;
    for (size_t i = 0; i < n; i++) {
        const struct lode_embed_text *t = &texts[i];
        if (t->n == 0 || t->second > t->n)
            return lode_fail(err, LODE_ERR_ARG, "texts", "number %zu has no tokens", i + 1);
        if (t->n > e->ctx)
            return lode_fail(err, LODE_ERR_LIMIT, "context",
                             "text %zu has %zu tokens; at most %u fit the context (the model was "
                             "trained for %u)",
                             i + 1, t->n, e->ctx, e->model->hp.ctx_train);
        for (size_t k = 0; k < t->n; k++)
            if (t->tokens[k] < 0 || (uint32_t)t->tokens[k] >= n_vocab)
                return lode_fail(err, LODE_ERR_ARG, "tokens",
                                 "number %zu of text %zu is %d; the vocabulary has 0 to %u", k, i + 1,
                                 t->tokens[k], n_vocab - 1);
    }
    return 0;
}

/* Nobody holds pages but those who are about to read. */
static int clear(struct lode_embedder *e, struct lode_error *err) {
    memset(e->sums, 0, (size_t)e->n_sessions * e->width * sizeof *e->sums);
    for (uint32_t k = 0; k < e->n_sessions; k++)
        LODE_TRY(lode_session_truncate(e->sessions[k], 0, err));
    return 0;
}

int lode_embed_run(struct lode_embedder *e, const struct lode_embed_text *texts, size_t n,
                   float *out, struct lode_error *err) {
    LODE_TRY(lode_embed_check(e, texts, n, err));
    for (size_t i = 0; i < n;) {
        size_t together = 0, tokens = 0;
        while (i + together < n && together < e->n_sessions &&
               tokens + texts[i + together].n <= e->batch)
            tokens += texts[i + together++].n;
        LODE_TRY(clear(e, err));
        LODE_TRY(together ? run_together(e, texts + i, together, err) : run_long(e, texts + i, err));
        together = together ? together : 1;
        finish(e, texts + i, together, out + i * e->width);
        i += together;
    }
    return 0;
}

/* BERT: [CLS] query [SEP] document [SEP]; RoBERTa: <s> query </s></s> document </s>. */
int64_t lode_embed_pair(const struct lode_model *m, const char *query, size_t query_len,
                        const char *document, size_t document_len, int32_t *ids, size_t cap,
                        size_t *second, struct lode_error *err) {
    const struct lode_tokenizer *t = m->tokenizer;
    if (!t)
        return lode_fail(err, LODE_ERR_MISSING, m->info.path, "the model has no vocabulary");
    const bool bert = strcmp(lode_tokenizer_kind(t), "wordpiece") == 0;
    const int how = LODE_TOK_SPECIAL | LODE_TOK_PARSE;
    const int64_t n = lode_tokenize(t, query, query_len, how, ids, cap, err);
    if (n < 0)
        return n;
    const size_t at = (size_t)n < cap ? (size_t)n : cap;
    const int64_t more = lode_tokenize(t, document, document_len, how,
                                       at < cap ? ids + at : NULL, cap - at, err);
    if (more < 0)
        return more;
    *second = (size_t)n;
    if ((size_t)(n + more) > cap || n == 0 || more == 0 || !lode_tokenizer_adds_bos(t))
        return n + more;
    if (!bert) { /* what begins a text becomes a second separator */
        ids[n] = ids[n - 1];
        return n + more;
    }
    memmove(ids + n, ids + n + 1, (size_t)(more - 1) * sizeof *ids);
    return n + more - 1;
}
