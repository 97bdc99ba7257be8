/* classify.c - POST /v1/classify and /v1/score: texts weighed, nothing generated.
 *
 * /v1/classify is vLLM's, for models with a classifier.  Any other model is given the labels: each
 * weighs what the model gives it after the input, as one text with it.  /v1/score is vLLM's for
 * pairs of texts
 * ("text_1", "text_2": a cross-encoder's score, or the cosine of their vectors), and SGLang's for
 * tokens that may follow a query and an item ("query", "items", "label_token_ids").
 */
#include "serve/exchange.h"
#include "serve/fields.h"
#include "serve/vectors.h"

#include "lode/jobs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_INPUTS = 2048, MOST_LABELS = 1024, MOST_PAIRS = 1 << 16 };

/* In place, of log-probabilities: shares that sum to one. */
static void soften(double *x, size_t n) {
    double most = n ? x[0] : 0, sum = 0;
    for (size_t i = 1; i < n; i++)
        most = x[i] > most ? x[i] : most;
    for (size_t i = 0; i < n; i++)
        sum += x[i] = exp(x[i] - most);
    for (size_t i = 0; i < n; i++)
        x[i] /= sum;
}

static json_t *numbers_json(const double *x, size_t n) {
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_real(x[i] > -9999 ? x[i] : -9999));
    return list;
}

/* {id, object, created, model, key: list, usage}; takes the list. */
static json_t *envelope(struct server *s, const struct request *r, const char *prefix,
                        const char *object, const char *key, json_t *list, size_t n_tokens) {
    char id[64];
    make_id(s, prefix, id);
    return json_pack("{s:s, s:s, s:I, s:s, s:o, s:{s:I, s:I, s:i}}", "id", id, "object", object,
                     "created", (json_int_t)time(NULL), "model", r->m->name, key, list, "usage",
                     "prompt_tokens", (json_int_t)n_tokens, "total_tokens", (json_int_t)n_tokens,
                     "completion_tokens", 0);
}

/* A text or a list of them, as a list (borrowed elements, a new reference). */
static json_t *as_list(const json_t *v) {
    return json_is_array(v) ? json_incref((json_t *)v) : json_pack("[O]", v);
}

/* ---- what a language model says ---- */

/* Pairs of an input and a label, n_labels of each input in a row. */
struct weighed {
    struct lode_scored *pairs; /* (n), owned */
    struct prompt *owned;      /* (n_owned), owned: what they point into */
    size_t n, n_owned, n_tokens;
};

static int weighed_init(struct weighed *w, size_t n_inputs, size_t n_labels, size_t n_owned,
                        struct lode_error *err) {
    if (n_inputs * n_labels > MOST_PAIRS)
        return field_fail(err, "labels", "%zu inputs and %zu labels are %zu pairs; at most %d",
                          n_inputs, n_labels, n_inputs * n_labels, MOST_PAIRS);
    w->n = n_inputs * n_labels;
    w->n_owned = n_owned;
    w->pairs = calloc(w->n + 1, sizeof *w->pairs);
    w->owned = calloc(n_owned + 1, sizeof *w->owned);
    return w->pairs && w->owned ? 0 : request_no_memory(err);
}

static void weighed_deinit(struct weighed *w) {
    for (size_t i = 0; w->owned && i < w->n_owned; i++)
        prompt_free(&w->owned[i]);
    free(w->owned);
    free(w->pairs);
}

static int weigh(struct weighed *w, const struct request *r, const struct asker *who,
                 struct lode_error *err) {
    return lode_score(r->m->scheduler, w->pairs, w->n,
                      &(struct lode_job_opts){.cancel = who->gone, .cancel_user = who->user}, err);
}

/* Input and label are one text, cut where the texts of all labels part, in tokens: so a label that
 * begins with a space, or goes on within a word, is weighed as the model would have written it. */
static int cut_labels(struct prompt *all, struct lode_scored *pairs, size_t n,
                      struct lode_error *err) {
    size_t same = all[0].n - 1;
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < same && k + 1 < all[i].n && all[i].ids[k] == all[0].ids[k])
            k++;
        same = k;
    }
    if (same == 0)
        return field_fail(err, "input", "there is no token before the labels part");
    for (size_t i = 0; i < n; i++)
        pairs[i] = (struct lode_scored){.prompt = {all[0].ids, same},
                                        .text = {all[i].ids + same, all[i].n - same}};
    return 0;
}

static int add_input(struct weighed *w, size_t at, const struct request *r, const json_t *input,
                     const json_t *labels, struct lode_error *err) {
    const size_t n = json_array_size(labels);
    int rc = json_is_string(input) ? 0 : field_fail(err, "input", "element %zu is no text", at / n);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const char *label = json_string_value(json_array_get(labels, i));
        if (!label || !*label)
            return field_fail(err, "labels", "element %zu is no text, or empty", i);
        json_t *both = json_sprintf("%s%s", json_string_value(input), label);
        rc = both
                 ? prompt_tokenize(&w->owned[at + i], r->m, json_string_value(both),
                                   json_string_length(both), LODE_TOK_SPECIAL | LODE_TOK_PARSE, err)
                 : request_no_memory(err);
        json_decref(both);
        if (rc == 0 && !w->owned[at + i].n)
            rc = field_fail(err, "input", "element %zu is empty", at / n);
    }
    if (rc == 0)
        rc = cut_labels(w->owned + at, w->pairs + at, n, err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        w->n_tokens += w->pairs[at + i].text.n + (i ? 0 : w->pairs[at].prompt.n);
    return rc;
}

static json_t *class_json(const double *x, size_t n, const json_t *labels, size_t index) {
    size_t best = 0;
    char name[32];
    for (size_t i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    snprintf(name, sizeof name, "LABEL_%zu", best); /* as transformers calls what has no name */
    return json_pack("{s:I, s:s, s:o, s:I}", "index", (json_int_t)index, "label",
                     labels ? json_string_value(json_array_get(labels, best)) : name, "probs",
                     numbers_json(x, n), "num_classes", (json_int_t)n);
}

static json_t *classify_by_labels(struct server *s, struct request *r, const struct asker *who,
                                  const json_t *inputs, struct lode_error *err) {
    json_t *labels = NULL, *data = NULL;
    struct weighed w = {0};
    const size_t n = json_array_size(inputs);
    double x[MOST_LABELS];
    int rc = field_array(r->body, "labels", &labels, err);
    const size_t n_labels = json_array_size(labels);
    if (rc == 0 && (n_labels < 2 || n_labels > MOST_LABELS))
        rc = field_fail(err, "labels",
                        "this model has no classifier of its own: 2 to %d texts expected that may "
                        "follow the input",
                        MOST_LABELS);
    if (rc == 0)
        rc = weighed_init(&w, n, n_labels, n * n_labels, err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = add_input(&w, i * n_labels, r, json_array_get(inputs, i), labels, err);
    if (rc == 0)
        rc = weigh(&w, r, who, err);
    data = rc == 0 ? json_array() : NULL;
    for (size_t i = 0; data && i < n; i++) {
        for (size_t k = 0; k < n_labels; k++)
            x[k] = w.pairs[i * n_labels + k].logprob;
        json_t *sums = numbers_json(x, n_labels);
        soften(x, n_labels);
        json_t *one = class_json(x, n_labels, labels, i);
        json_object_set_new(one, "logprobs", sums);
        json_array_append_new(data, one);
    }
    json_t *reply = data ? envelope(s, r, "classify-", "list", "data", data, w.n_tokens) : NULL;
    weighed_deinit(&w);
    return reply;
}

/* ---- what a classifier says ---- */

static json_t *classify_by_head(struct server *s, struct request *r, const struct asker *who,
                                const json_t *inputs, struct lode_error *err) {
    struct vector_job job = {0};
    double x[MOST_LABELS];
    json_t *data = NULL;
    int rc = vector_job_input(&job, r, inputs, "input", false, err);
    job.pooling = "rank";
    if (rc == 0)
        rc = vector_job_run(&job, r, who, err);
    if (rc == 0 && job.width > MOST_LABELS)
        rc = field_fail(err, "model", "it has %u classes; at most %d", job.width, MOST_LABELS);
    data = rc == 0 ? json_array() : NULL;
    for (size_t i = 0; data && i < job.n; i++) {
        for (uint32_t k = 0; k < job.width; k++)
            x[k] = (double)job.out[i * job.width + k];
        if (job.width == 1) /* one number says how much it is so */
            x[0] = 1 / (1 + exp(-x[0]));
        else
            soften(x, job.width);
        json_array_append_new(data, class_json(x, job.width, NULL, i));
    }
    json_t *reply = data ? envelope(s, r, "classify-", "list", "data", data, job.n_tokens) : NULL;
    vector_job_deinit(&job);
    return reply;
}

json_t *route_classify(struct server *s, const struct asker *who, const json_t *body,
                       struct lode_error *err) {
    struct request r;
    json_t *reply = NULL, *inputs = NULL;
    const json_t *input = json_object_get(body, "input");
    bool ranks = false;
    int rc = request_init(&r, s, body, err);
    if (rc == 0 && !json_is_string(input) && !json_array_size(input))
        rc = field_fail(err, "input", "a text, or a list of texts, expected");
    if (rc == 0 && json_array_size(input) > MOST_INPUTS)
        rc = field_fail(err, "input", "at most %d texts at once", MOST_INPUTS);
    if (rc == 0 && !(inputs = as_list(input)))
        rc = request_no_memory(err);
    if (rc == 0 && !r.m->scheduler)
        rc = vectors_ranks(&r, &ranks, err);
    if (rc == 0 && !r.m->scheduler && !ranks)
        rc = field_fail(err, "model", "%s has no classifier, and is no language model", r.m->name);
    if (rc == 0)
        reply = r.m->scheduler ? classify_by_labels(s, &r, who, inputs, err)
                               : classify_by_head(s, &r, who, inputs, err);
    json_decref(inputs);
    request_deinit(&r);
    return reply;
}

/* ---- pairs of texts ---- */

static const json_t *either(const json_t *body, const char *a, const char *b) {
    const json_t *v = json_object_get(body, a);
    return v ? v : json_object_get(body, b);
}

static const char *text_of(const json_t *list, size_t i) {
    return json_string_value(json_array_get(list, json_array_size(list) == 1 ? 0 : i));
}

/* Of a model that reads both together, pairs; of any other, all first texts and then all second
 * ones. */
static int read_texts(struct vector_job *job, struct request *r, const json_t *first,
                      const json_t *second, size_t n, bool ranks, struct lode_error *err) {
    int rc = vector_job_init(job, 2 * n, err);
    for (size_t i = 0; rc == 0 && i < (ranks ? n : 2 * n); i++) {
        const char *a = text_of(first, i % n), *b = text_of(second, i % n), *one = i < n ? a : b;
        if (!a || !*a || !b || !*b)
            return field_fail(err, !a || !*a ? "text_1" : "text_2",
                              "element %zu is no text, or empty", i % n);
        rc = ranks ? vector_job_pair(job, r->m, a, b, err)
                   : vector_job_text(job, r, one, strlen(one), false, err);
    }
    return rc;
}

static double score_of(const struct vector_job *job, size_t i, size_t n) {
    double sum = 0;
    if (job->scores)
        return (double)job->out[i * job->width];
    for (uint32_t k = 0; k < job->width; k++) /* vectors have length 1 */
        sum += (double)job->out[i * job->width + k] * (double)job->out[(i + n) * job->width + k];
    return sum;
}

static json_t *score_pairs(struct server *s, struct request *r, const struct asker *who,
                           struct lode_error *err) {
    const json_t *a = either(r->body, "text_1", "queries"),
                 *b = either(r->body, "text_2", "documents");
    json_t *first = as_list(a), *second = as_list(b), *data = NULL, *reply = NULL;
    const size_t n_first = json_array_size(first), n_second = json_array_size(second);
    const size_t n = n_first > n_second ? n_first : n_second;
    struct vector_job job = {0};
    bool ranks = false;
    int rc = 0;
    if (!a || !b || !n_first || !n_second)
        rc = field_fail(err, a ? "text_2" : "text_1", "a text, or a list of texts, expected");
    else if (n > MOST_INPUTS || (n_first != n_second && n_first != 1))
        rc = field_fail(err, "text_2",
                        "%zu and %zu texts; as many as of text_1, or one of those, and at most %d",
                        n_first, n_second, MOST_INPUTS);
    if (rc == 0)
        rc = vectors_ranks(r, &ranks, err);
    if (rc == 0)
        rc = read_texts(&job, r, first, second, n, ranks, err);
    if (rc == 0)
        rc = vector_job_run(&job, r, who, err);
    data = rc == 0 ? json_array() : NULL;
    for (size_t i = 0; data && i < n; i++)
        json_array_append_new(data, json_pack("{s:I, s:s, s:f}", "index", (json_int_t)i, "object",
                                              "score", "score", score_of(&job, i, n)));
    if (data)
        reply = envelope(s, r, "score-", "list", "data", data, job.n_tokens);
    vector_job_deinit(&job);
    json_decref(first);
    json_decref(second);
    return reply;
}

/* ---- tokens after a query and an item ---- */

static int read_item(struct prompt *p, const struct request *r, const json_t *query,
                     const json_t *item, bool item_first, struct lode_error *err) {
    const json_t *a = item_first ? item : query, *b = item_first ? query : item;
    struct prompt rest = {0};
    if (json_is_string(a) && json_is_string(b)) {
        json_t *both = json_sprintf("%s%s", json_string_value(a), json_string_value(b));
        const int rc =
            both ? prompt_tokenize(p, r->m, json_string_value(both), json_string_length(both),
                                   LODE_TOK_SPECIAL | LODE_TOK_PARSE, err)
                 : request_no_memory(err);
        json_decref(both);
        return rc;
    }
    if (!json_is_array(a) || !json_is_array(b))
        return field_fail(err, "items",
                          "texts for a query that is text, lists of token ids for one of ids");
    int rc = prompt_ids(p, a, item_first ? "items" : "query", err);
    if (rc == 0)
        rc = prompt_ids(&rest, b, item_first ? "query" : "items", err);
    int32_t *ids = rc == 0 ? realloc(p->ids, (p->n + rest.n + 1) * sizeof *ids) : NULL;
    if (ids) {
        memcpy(ids + p->n, rest.ids, rest.n * sizeof *ids);
        p->ids = ids;
        p->n += rest.n;
    } else if (rc == 0) {
        rc = request_no_memory(err);
    }
    prompt_free(&rest);
    return rc;
}

static json_t *items_json(const struct weighed *w, size_t n_labels, bool softmax) {
    json_t *list = json_array();
    double x[MOST_LABELS];
    for (size_t at = 0; at < w->n; at += n_labels) {
        for (size_t k = 0; k < n_labels; k++)
            x[k] = softmax ? w->pairs[at + k].logprob : exp(w->pairs[at + k].logprob);
        if (softmax)
            soften(x, n_labels);
        json_array_append_new(list, numbers_json(x, n_labels));
    }
    return list;
}

static json_t *score_items(struct server *s, struct request *r, const struct asker *who,
                           struct lode_error *err) {
    const json_t *query = json_object_get(r->body, "query"), *v = json_object_get(r->body, "items");
    json_t *items = v ? as_list(v) : NULL, *labels = NULL, *reply = NULL;
    bool softmax = false, item_first = false;
    struct weighed w = {0};
    struct prompt ids = {0};
    const size_t n = json_array_size(items);
    int rc = field_array(r->body, "label_token_ids", &labels, err);
    const size_t n_labels = json_array_size(labels);
    if (rc == 0)
        rc = field_bool(r->body, "apply_softmax", &softmax, err);
    if (rc == 0)
        rc = field_bool(r->body, "item_first", &item_first, err);
    if (rc == 0 && (!n_labels || n_labels > MOST_LABELS))
        rc = field_fail(err, "label_token_ids", "1 to %d token ids expected", MOST_LABELS);
    if (rc == 0 && (!n || n > MOST_INPUTS))
        rc =
            field_fail(err, "items", "1 to %d texts, or lists of token ids, expected", MOST_INPUTS);
    if (rc == 0 && !r->m->scheduler)
        rc = field_fail(err, "model",
                        "%s is no language model: it scores \"text_1\" and \"text_2\"", r->m->name);
    if (rc == 0)
        rc = prompt_ids(&ids, labels, "label_token_ids", err);
    if (rc == 0)
        rc = weighed_init(&w, n, n_labels, n, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct prompt *p = &w.owned[i];
        rc = read_item(p, r, query, json_array_get(items, i), item_first, err);
        w.n_tokens += p->n;
        for (size_t k = 0; k < n_labels; k++)
            w.pairs[i * n_labels + k] =
                (struct lode_scored){.prompt = {p->ids, p->n}, .text = {&ids.ids[k], 1}};
    }
    if (rc == 0)
        rc = weigh(&w, r, who, err);
    if (rc == 0)
        reply = envelope(s, r, "score-", "scoring", "scores", items_json(&w, n_labels, softmax),
                         w.n_tokens);
    weighed_deinit(&w);
    prompt_free(&ids);
    json_decref(items);
    return reply;
}

json_t *route_score(struct server *s, const struct asker *who, const json_t *body,
                    struct lode_error *err) {
    struct request r;
    json_t *reply = NULL;
    if (request_init(&r, s, body, err) == 0)
        reply = json_object_get(body, "items") || json_object_get(body, "label_token_ids")
                    ? score_items(s, &r, who, err)
                    : score_pairs(s, &r, who, err);
    request_deinit(&r);
    return reply;
}
