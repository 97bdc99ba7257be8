/* vectors.c - see vectors.h. */
#include "serve/vectors.h"

#include "base/clock.h"
#include "base/error.h"
#include "serve/fields.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_INPUTS = 2048,
    STEP_TEXTS = 16, /* of one step */
    LOOK = 50,       /* ms between looks at who waits */
};

struct vectors {
    struct served *m;
    pthread_mutex_t lock;           /* for all below; while busy the embedder is the leader's */
    pthread_cond_t moved;           /* a step is over, or somebody has left */
    struct lode_embedder *embedder; /* NULL: nobody has asked yet; what follows is of it: */
    uint32_t width, ctx;
    bool scores;
    struct vector_job *first;                /* who waits, the longest first */
    bool busy;                               /* a step runs, */
    const struct vector_job *of[STEP_TEXTS]; /* (n): whose texts it has */
    size_t n;
};

/* Within a step: nobody wants any of it. */
static bool is_unwanted(void *user) {
    const struct vectors *v = user;
    for (size_t i = 0; i < v->n; i++)
        if (!v->of[i]->who->gone(v->of[i]->who->user))
            return false;
    return true;
}

/* ---- the embedder ---- */

/* s NULL: its memory has been counted. */
static int open_embedder(struct vectors *v, struct server *s, struct lode_error *err) {
    struct lode_embed_opts o = v->m->embed;
    uint64_t bytes;
    if (v->embedder)
        return 0;
    o.cancel = is_unwanted;
    o.cancel_user = v;
    int rc = s ? lode_embed_plan(v->m->model, &o, &bytes, err) : 0;
    if (rc == 0 && s)
        rc = server_grow(s, v->m, bytes, err);
    if (rc == 0)
        rc = lode_embed_create(&v->embedder, v->m->model, &o, err);
    if (rc == 0) {
        v->width = lode_embed_width(v->embedder);
        v->ctx = lode_embed_ctx(v->embedder);
        v->scores = !strcmp(lode_embed_pooling(v->embedder), "rank");
    }
    return rc;
}

int vectors_create(struct vectors **out, struct served *m, struct lode_error *err) {
    struct vectors *v = *out = calloc(1, sizeof *v);
    pthread_condattr_t a;
    if (!v)
        return request_no_memory(err);
    v->m = m;
    pthread_mutex_init(&v->lock, NULL);
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(&v->moved, &a);
    pthread_condattr_destroy(&a);
    return m->scheduler ? 0 : open_embedder(v, NULL, err);
}

void vectors_free(struct vectors *v) {
    if (!v)
        return;
    lode_embed_free(v->embedder);
    pthread_cond_destroy(&v->moved);
    pthread_mutex_destroy(&v->lock);
    free(v);
}

uint32_t vectors_ctx(const struct vectors *v) { return v->ctx; }
bool vectors_scores(const struct vectors *v) { return v->scores; }

int vectors_ranks(struct request *r, bool *ranks, struct lode_error *err) {
    struct vectors *v = r->m->vectors;
    pthread_mutex_lock(&v->lock);
    const int rc = open_embedder(v, r->s, err);
    *ranks = rc == 0 && v->scores;
    pthread_mutex_unlock(&v->lock);
    return rc;
}

static uint32_t longest(struct request *r, struct lode_error *err) {
    struct vectors *v = r->m->vectors;
    pthread_mutex_lock(&v->lock);
    const uint32_t ctx = open_embedder(v, r->s, err) == 0 ? v->ctx : 0;
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
    free(j->step);
    free(j->out);
    *j = (struct vector_job){0};
}

static void add(struct vector_job *j, int32_t *ids, size_t n, size_t second) {
    j->texts[j->n++] = (struct lode_embed_text){.tokens = ids, .n = n, .second = second};
    j->n_tokens += n;
}

int vector_job_text(struct vector_job *j, struct request *r, const char *text, size_t len, bool cut,
                    struct lode_error *err) {
    struct prompt p = {0};
    const int rc = prompt_tokenize(&p, r->m, text, len, LODE_TOK_SPECIAL, err);
    if (rc < 0) {
        prompt_free(&p);
        return rc;
    }
    if (cut && p.n > 0) {
        const uint32_t most = longest(r, err);
        p.n = most && p.n > most ? most : p.n;
    }
    add(j, p.ids, p.n, 0);
    return 0;
}

int vector_job_ids(struct vector_job *j, const json_t *ids, const char *field,
                   struct lode_error *err) {
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
    const int64_t n = ids ? lode_embed_pair(m->model, query, n_query, document, n_document, ids,
                                            cap, &second, err)
                          : request_no_memory(err);
    if (n < 0 || (size_t)n > cap) {
        free(ids);
        return n < 0 ? (int)n : field_fail(err, "documents", "a text of more tokens than bytes");
    }
    add(j, ids, (size_t)n, second);
    return 0;
}

int vector_job_input(struct vector_job *j, struct request *r, const json_t *input,
                     const char *field, bool cut, struct lode_error *err) {
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
            rc = vector_job_text(j, r, json_string_value(one), json_string_length(one), cut, err);
        else if (json_is_array(one))
            rc = vector_job_ids(j, one, field, err);
        else
            rc = field_fail(err, field, "element %zu is neither text nor token ids", i);
        if (rc == 0 && j->texts[j->n - 1].n == 0)
            rc = field_fail(err, field, "element %zu is empty", i);
    }
    return rc;
}

/* ---- steps; with the lock ---- */

static bool is_alone(const struct vector_job *j) { return j->alone || j->pooling; }

/* Texts for a step that `lead` leads, one of each request in turn, as many as a step has room for.
 */
static size_t gather(struct vectors *v, struct vector_job *lead, struct lode_embed_text *texts,
                     struct vector_job **of) {
    const size_t most = lode_embed_batch(v->embedder);
    size_t n = 0, tokens = 0, before;
    do {
        before = n;
        for (struct vector_job *j = lead; j && n < STEP_TEXTS;
             j = is_alone(lead) ? NULL : j->next) {
            if (j->n_taken == j->n || (j != lead && is_alone(j)) ||
                (n > 0 && tokens + j->texts[j->n_taken].n > most))
                continue;
            of[n] = j;
            texts[n] = j->texts[j->n_taken++];
            tokens += texts[n++].n;
        }
    } while (n > before);
    return n;
}

/* What fails is one request's fault, or nobody knows whose: then each goes on alone. */
static void take_failure(struct vector_job *const *of, size_t n, int rc,
                         const struct lode_error *why) {
    bool many = false;
    for (size_t i = 1; i < n; i++)
        many = many || of[i] != of[0];
    for (size_t i = 0; i < n; i++) {
        of[i]->n_taken = of[i]->n_done;
        of[i]->alone = true;
        if (!many || rc == LODE_ERR_CANCELLED) {
            of[i]->rc = rc;
            of[i]->why = *why;
        }
    }
}

static void leave(struct vectors *v, const struct vector_job *j) {
    struct vector_job **at = &v->first;
    while (*at != j)
        at = &(*at)->next;
    *at = j->next;
    pthread_cond_broadcast(&v->moved);
}

static void enter(struct vectors *v, struct vector_job *j) {
    struct vector_job **at = &v->first;
    while (*at)
        at = &(*at)->next;
    j->next = NULL;
    *at = j;
}

static int make_room(struct vector_job *j, uint32_t width, bool scores, struct lode_error *err) {
    j->width = width;
    j->scores = scores;
    j->out = malloc((j->n + 1) * j->width * sizeof *j->out);
    j->step = malloc(STEP_TEXTS * j->width * sizeof *j->step);
    return j->out && j->step ? 0 : request_no_memory(err);
}

/* One step, without the lock while it runs. */
static void lead(struct vectors *v, struct vector_job *j) {
    struct lode_embed_text texts[STEP_TEXTS];
    struct vector_job *of[STEP_TEXTS];
    struct lode_error why = {0};
    int rc = j->pooling ? lode_embed_pool(v->embedder, j->pooling, &why) : 0;
    if (rc == LODE_ERR_ARG || rc == LODE_ERR_UNSUPPORTED)
        rc = field_fail(&j->why, "pooling", "%.400s", why.text);
    else if (!j->out)
        rc = make_room(j, lode_embed_width(v->embedder),
                       !strcmp(lode_embed_pooling(v->embedder), "rank"), &j->why);
    if (rc < 0) {
        j->rc = rc;
    } else {
        v->busy = true;
        v->n = gather(v, j, texts, of);
        memcpy(v->of, of, v->n * sizeof *of);
        pthread_mutex_unlock(&v->lock);
        rc = lode_embed_run(v->embedder, texts, v->n, j->step, &why);
        pthread_mutex_lock(&v->lock);
        v->busy = false;
        if (rc < 0)
            take_failure(of, v->n, rc, &why);
        for (size_t i = 0; rc == 0 && i < v->n; i++)
            memcpy(of[i]->out + of[i]->n_done++ * j->width, j->step + i * j->width,
                   j->width * sizeof *j->step);
        leave(v, j);
        enter(v, j);
    }
    if (j->pooling)
        lode_embed_pool(v->embedder, NULL, &why);
}

static void wait_some(struct vectors *v) {
    const struct timespec t = lode_clock_after(LOOK);
    pthread_cond_timedwait(&v->moved, &v->lock, &t);
}

static int finish(struct vectors *v, struct vector_job *j) {
    enter(v, j);
    while (j->rc == 0 && j->n_done < j->n) {
        const bool in_step = j->n_taken > j->n_done;
        if (!in_step && j->who->gone(j->who->user))
            j->rc = lode_fail(&j->why, LODE_ERR_CANCELLED, "", "nobody waits any more");
        else if (!v->busy && v->first == j)
            lead(v, j);
        else
            wait_some(v);
    }
    leave(v, j);
    return j->rc;
}

int vector_job_run(struct vector_job *j, struct request *r, const struct asker *who,
                   struct lode_error *err) {
    struct vectors *v = r->m->vectors;
    j->who = who;
    pthread_mutex_lock(&v->lock);
    int rc = open_embedder(v, r->s, err);
    if (rc == 0)
        rc = lode_embed_check(v->embedder, j->texts, j->n, err);
    if (rc == 0 && !j->pooling)
        rc = make_room(j, v->width, v->scores, err);
    if (rc == 0 && (rc = finish(v, j)) < 0)
        *err = j->why;
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
    if (base64) /* of floats as they lie on little-endian machines, which are all that lode runs on
                 */
        return base64_json(x, n * sizeof *x);
    json_t *list = json_array();
    for (size_t k = 0; k < n; k++)
        if (json_array_append_new(list, json_real((double)x[k]))) {
            json_decref(list);
            return NULL;
        }
    return list;
}
