/* vectors.c - see vectors.h. */
#include "serve/vectors.h"

#include "serve/fields.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_INPUTS = 2048 };

struct vectors {
    pthread_mutex_t lock; /* an embedder belongs to one thread at a time */
    struct lode_model *model;
    uint32_t ctx;
    struct lode_embedder *embedder; /* NULL: nobody has asked yet */
};

int vectors_create(struct vectors **out, struct lode_model *m, uint32_t ctx, struct lode_error *err) {
    struct vectors *v = *out = calloc(1, sizeof *v);
    if (!v || pthread_mutex_init(&v->lock, NULL)) {
        free(v);
        *out = NULL;
        return request_no_memory(err);
    }
    v->model = m;
    v->ctx = ctx;
    return 0;
}

void vectors_free(struct vectors *v) {
    if (!v)
        return;
    lode_embed_free(v->embedder);
    pthread_mutex_destroy(&v->lock);
    free(v);
}

/* With the lock. */
static int open_embedder(struct vectors *v, struct lode_error *err) {
    const struct lode_embed_opts o = {.ctx = v->ctx};
    return v->embedder ? 0 : lode_embed_create(&v->embedder, v->model, &o, err);
}

int vectors_ranks(struct served *m, bool *ranks, struct lode_error *err) {
    struct vectors *v = m->vectors;
    pthread_mutex_lock(&v->lock);
    const int rc = open_embedder(v, err);
    *ranks = rc == 0 && !strcmp(lode_embed_pooling(v->embedder), "rank");
    pthread_mutex_unlock(&v->lock);
    return rc;
}

static uint32_t longest(struct served *m, struct lode_error *err) {
    struct vectors *v = m->vectors;
    pthread_mutex_lock(&v->lock);
    const uint32_t ctx = open_embedder(v, err) == 0 ? lode_embed_ctx(v->embedder) : 0;
    pthread_mutex_unlock(&v->lock);
    return ctx;
}

int vector_job_init(struct vector_job *j, size_t n, struct lode_error *err) {
    *j = (struct vector_job){0};
    j->texts = calloc(n + 1, sizeof *j->texts);
    return j->texts ? 0 : request_no_memory(err);
}

void vector_job_deinit(struct vector_job *j) {
    for (size_t i = 0; j->texts && i < j->n; i++)
        free((int32_t *)j->texts[i].tokens);
    free(j->texts);
    free(j->out);
    *j = (struct vector_job){0};
}

static void add(struct vector_job *j, int32_t *ids, size_t n, size_t second) {
    j->texts[j->n++] = (struct lode_embed_text){.tokens = ids, .n = n, .second = second};
    j->n_tokens += n;
}

int vector_job_text(struct vector_job *j, struct served *m, const char *text, size_t len, bool cut,
                    struct lode_error *err) {
    struct prompt p = {0};
    const int rc = prompt_tokenize(&p, m, text, len, LODE_TOK_SPECIAL, err);
    if (rc < 0) {
        prompt_free(&p);
        return rc;
    }
    if (cut && p.n > 0) {
        const uint32_t most = longest(m, err);
        p.n = most && p.n > most ? most : p.n;
    }
    add(j, p.ids, p.n, 0);
    return 0;
}

int vector_job_ids(struct vector_job *j, const json_t *ids, const char *field, struct lode_error *err) {
    struct prompt p = {0};
    const int rc = prompt_ids(&p, ids, field, err);
    if (rc < 0)
        prompt_free(&p);
    else
        add(j, p.ids, p.n, 0);
    return rc;
}

int vector_job_pair(struct vector_job *j, struct served *m, const char *query, const char *document,
                    struct lode_error *err) {
    const size_t n_query = strlen(query), n_document = strlen(document);
    size_t cap = n_query + n_document + 16, second = 0;
    int32_t *ids = malloc(cap * sizeof *ids);
    const int64_t n = ids ? lode_embed_pair(m->model, query, n_query, document, n_document, ids, cap,
                                            &second, err)
                          : request_no_memory(err);
    if (n < 0 || (size_t)n > cap) {
        free(ids);
        return n < 0 ? (int)n : field_fail(err, "documents", "a text of more tokens than bytes");
    }
    add(j, ids, (size_t)n, second);
    return 0;
}

int vector_job_input(struct vector_job *j, struct served *m, const json_t *input, const char *field,
                     bool cut, struct lode_error *err) {
    const json_t *first = json_array_get(input, 0);
    const bool many = json_is_string(first) || json_is_array(first);
    const size_t n = many ? json_array_size(input) : 1;
    if (!json_is_string(input) && !first)
        return field_fail(err, field, "a string, a list of strings, or token ids expected");
    if (n > MOST_INPUTS)
        return field_fail(err, field, "%zu texts; at most %d at once", n, MOST_INPUTS);
    int rc = vector_job_init(j, n, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const json_t *one = many ? json_array_get(input, i) : input;
        if (json_is_string(one))
            rc = vector_job_text(j, m, json_string_value(one), json_string_length(one), cut, err);
        else if (json_is_array(one))
            rc = vector_job_ids(j, one, field, err);
        else
            rc = field_fail(err, field, "element %zu is neither text nor token ids", i);
        if (rc == 0 && j->texts[j->n - 1].n == 0)
            rc = field_fail(err, field, "element %zu is empty", i);
    }
    return rc;
}

int vector_job_run(struct vector_job *j, struct served *m, struct lode_error *err) {
    struct vectors *v = m->vectors;
    pthread_mutex_lock(&v->lock);
    int rc = open_embedder(v, err);
    if (rc == 0) {
        j->width = lode_embed_width(v->embedder);
        j->scores = !strcmp(lode_embed_pooling(v->embedder), "rank");
        j->out = malloc((j->n + 1) * j->width * sizeof *j->out);
        rc = j->out ? lode_embed_run(v->embedder, j->texts, j->n, j->out, err) : request_no_memory(err);
    }
    pthread_mutex_unlock(&v->lock);
    return rc;
}

int vector_dimensions(const struct vector_job *j, const json_t *body, uint32_t *out,
                      struct lode_error *err) {
    int64_t n = 0;
    const int rc = field_int(body, "dimensions", 1, j->width, &n, err);
    *out = (uint32_t)n;
    return rc;
}

static json_t *base64_json(const void *data, size_t len) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *in = data;
    char *text = malloc(4 * (len / 3 + 1) + 1), *out = text;
    if (!text)
        return NULL;
    for (size_t i = 0; i < len; i += 3) {
        const size_t have = len - i < 3 ? len - i : 3;
        const uint32_t v = (uint32_t)in[i] << 16 | (have > 1 ? (uint32_t)in[i + 1] << 8 : 0) |
                           (have > 2 ? in[i + 2] : 0);
        *out++ = digits[v >> 18];
        *out++ = digits[v >> 12 & 63];
        *out++ = have > 1 ? digits[v >> 6 & 63] : '=';
        *out++ = have > 2 ? digits[v & 63] : '=';
    }
    json_t *json = json_stringn(text, (size_t)(out - text));
    free(text);
    return json;
}

json_t *vector_json(const struct vector_job *j, size_t i, uint32_t dimensions, bool base64) {
    float *x = j->out + i * j->width;
    const size_t n = dimensions ? dimensions : j->width;
    if (n < j->width) /* a part of a vector is shorter than 1 */
        lode_embed_normalize(x, n, 2);
    if (base64) /* of floats as they lie on little-endian machines, which are all that lode runs on */
        return base64_json(x, n * sizeof *x);
    json_t *list = json_array();
    for (size_t k = 0; k < n; k++)
        if (json_array_append_new(list, json_real((double)x[k]))) {
            json_decref(list);
            return NULL;
        }
    return list;
}
