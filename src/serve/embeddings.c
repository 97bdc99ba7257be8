/* embeddings.c - POST /v1/embeddings and /v1/rerank. */
#include "serve/fields.h"
#include "serve/vectors.h"

#include <stdlib.h>
#include <string.h>

json_t *route_embeddings(struct server *s, const struct asker *who, const json_t *body,
                         struct lode_error *err) {
    struct request r;
    struct vector_job job = {0};
    const char *format = "float";
    uint32_t dimensions = 0;
    json_t *data = NULL, *reply = NULL;
    const json_t *input = json_object_get(body, "input");
    int rc = request_init(&r, s, body, err);
    if (rc == 0)
        rc = field_string(body, "encoding_format", &format, err);
    if (rc == 0 && strcmp(format, "float") && strcmp(format, "base64"))
        rc = field_fail(err, "encoding_format", "\"float\" or \"base64\" expected");
    if (rc == 0)
        rc = vector_job_input(&job, &r, input ? input : json_object_get(body, "content"), "input",
                              false, err);
    if (rc == 0)
        rc = field_string(body, "pooling", &job.pooling, err);
    if (rc == 0)
        rc = vector_job_run(&job, &r, who, err);
    if (rc == 0)
        rc = vector_dimensions(&job, body, &dimensions, err);
    if (rc == 0 && job.scores)
        rc = field_fail(err, "model", "it scores pairs of texts: use /v1/rerank");
    data = rc == 0 ? json_array() : NULL;
    for (size_t i = 0; data && i < job.n; i++)
        if (json_array_append_new(
                data, json_pack("{s:s, s:I, s:o}", "object", "embedding", "index", (json_int_t)i,
                                "embedding",
                                vector_json(&job, i, dimensions, !strcmp(format, "base64"))))) {
            json_decref(data);
            data = NULL;
        }
    if (data)
        reply = json_pack("{s:s, s:o, s:s, s:{s:I, s:I}}", "object", "list", "data", data, "model",
                          r.m->name, "usage", "prompt_tokens", (json_int_t)job.n_tokens,
                          "total_tokens", (json_int_t)job.n_tokens);
    vector_job_deinit(&job);
    request_deinit(&r);
    return reply;
}

/* ---- rerank ---- */

struct hit {
    size_t index;
    double score;
};

static int by_score(const void *a, const void *b) {
    const struct hit *x = a, *y = b;
    return x->score < y->score ? 1 : x->score > y->score ? -1 : x->index < y->index ? -1 : 1;
}

static const char *document_text(const json_t *v) {
    return json_string_value(json_is_object(v) ? json_object_get(v, "text") : v);
}

/* A cross-encoder reads query and document together; any other model gives vectors of both, whose
 * cosine is the score. */
static int read_pairs(struct vector_job *job, struct request *r, const char *query,
                      const json_t *documents, bool ranks, struct lode_error *err) {
    const size_t n = json_array_size(documents);
    int rc = vector_job_init(job, n + 1, err);
    if (rc == 0 && !ranks)
        rc = vector_job_text(job, r, query, strlen(query), false, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const char *text = document_text(json_array_get(documents, i));
        if (!text)
            return field_fail(err, "documents", "element %zu is no text", i);
        rc = ranks ? vector_job_pair(job, r->m, query, text, err)
                   : vector_job_text(job, r, text, strlen(text), false, err);
        if (rc == 0 && job->texts[job->n - 1].n == 0)
            rc = field_fail(err, "documents", "element %zu is empty", i);
    }
    if (rc == 0 && !ranks && job->texts[0].n == 0)
        rc = field_fail(err, "query", "is empty");
    return rc;
}

static double score_of(const struct vector_job *job, size_t i) {
    double sum = 0;
    if (job->scores)
        return (double)job->out[i];
    for (uint32_t k = 0; k < job->width; k++) /* vectors have length 1 */
        sum += (double)job->out[k] * (double)job->out[(i + 1) * job->width + k];
    return sum;
}

static json_t *results(const struct vector_job *job, const json_t *documents, size_t top,
                       bool with_text) {
    const size_t n = json_array_size(documents);
    struct hit *hits = malloc((n + 1) * sizeof *hits);
    json_t *list = hits ? json_array() : NULL;
    for (size_t i = 0; hits && i < n; i++)
        hits[i] = (struct hit){i, score_of(job, i)};
    if (hits)
        qsort(hits, n, sizeof *hits, by_score);
    for (size_t i = 0; list && i < n && i < top; i++) {
        json_t *one = json_pack("{s:I, s:f}", "index", (json_int_t)hits[i].index, "relevance_score",
                                hits[i].score);
        if (with_text)
            json_object_set_new(one, "document",
                                json_pack("{s:s}", "text",
                                          document_text(json_array_get(documents, hits[i].index))));
        if (json_array_append_new(list, one)) {
            json_decref(list);
            list = NULL;
        }
    }
    free(hits);
    return list;
}

json_t *route_rerank(struct server *s, const struct asker *who, const json_t *body,
                     struct lode_error *err) {
    struct request r;
    struct vector_job job = {0};
    const char *query = NULL;
    json_t *documents = NULL, *list = NULL, *reply = NULL;
    int64_t top = INT32_MAX;
    bool with_text = false, ranks = false;
    int rc = request_init(&r, s, body, err);
    if (rc == 0)
        rc = field_string(body, "query", &query, err);
    if (rc == 0 && (!query || !*query))
        rc = field_fail(err, "query", "a text expected");
    if (rc == 0)
        rc = field_array(body, json_object_get(body, "documents") ? "documents" : "texts", &documents,
                         err);
    if (rc == 0 && (!json_array_size(documents) || json_array_size(documents) > 2048))
        rc = field_fail(err, "documents", "1 to 2048 texts expected");
    if (rc == 0)
        rc = field_int(body, "top_n", 1, INT32_MAX, &top, err);
    if (rc == 0)
        rc = field_bool(body, "return_documents", &with_text, err);
    if (rc == 0)
        rc = vectors_ranks(&r, &ranks, err);
    if (rc == 0)
        rc = read_pairs(&job, &r, query, documents, ranks, err);
    if (rc == 0)
        rc = vector_job_run(&job, &r, who, err);
    if (rc == 0)
        list = results(&job, documents, (size_t)top, with_text);
    if (list)
        reply = json_pack("{s:s, s:s, s:o, s:{s:I, s:I}}", "object", "list", "model", r.m->name,
                          "results", list, "usage", "prompt_tokens", (json_int_t)job.n_tokens,
                          "total_tokens", (json_int_t)job.n_tokens);
    vector_job_deinit(&job);
    request_deinit(&r);
    return reply;
}
