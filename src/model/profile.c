/* profile.c - lode/profile.h, and the list of experts that a cache begins with. */
#include "model/profile.h"

#include "base/alloc.h"
#include "base/json.h"
#include "base/out_file.h"

#include <inttypes.h>
#include <stdlib.h>

void lode_model_profile(const struct lode_model *m, struct lode_profile *out) {
    memset(out, 0, sizeof *out);
    out->reader = "";
    if (!m->store)
        return;
    struct lode_times *t = &m->store->times;
    out->n_layers = m->hp.n_layers < LODE_PROFILE_LAYERS ? m->hp.n_layers : LODE_PROFILE_LAYERS;
    out->steps = atomic_load_explicit(&t->steps, memory_order_relaxed);
    out->rows = atomic_load_explicit(&t->rows, memory_order_relaxed);
    out->seconds = (double)atomic_load_explicit(&t->all, memory_order_relaxed) * 1e-9;
    out->head = (double)atomic_load_explicit(&t->head, memory_order_relaxed) * 1e-9;
    for (uint32_t l = 0; l < out->n_layers; l++)
        out->layers[l].seconds =
            (double)atomic_load_explicit(&t->layers[l], memory_order_relaxed) * 1e-9;
    if (m->store->ops->count)
        m->store->ops->count(m->store, out);
    for (uint32_t p = 1; p < m->n_places; p++)
        if (m->devices[p].cuda)
            lode_cuda_count_experts(m->devices[p].cuda, out);
    for (uint32_t p = 1; p < m->n_places; p++)
        out->gpu_layers += m->devices[p].cuda ? lode_cuda_brought(m->devices[p].cuda) : 0;
}

struct use {
    uint32_t group, uses;
};

static int by_use(const void *a, const void *b) {
    const struct use *x = a, *y = b;
    return x->uses != y->uses ? (x->uses < y->uses) - (x->uses > y->uses)
                              : (x->group > y->group) - (x->group < y->group);
}

static bool print_uses(const struct lode_model *m, const uint32_t *uses, struct lode_buf *b) {
    struct use *all = LODE_NEW_ARRAY(struct use, m->n_groups);
    uint32_t n = 0;
    for (uint32_t g = 0; all && g < m->n_expert_groups; g++)
        if (uses[g])
            all[n++] = (struct use){g, uses[g]};
    if (!all)
        return false;
    qsort(all, n, sizeof *all, by_use);
    lode_buf_addf(b, "{\"of\": [%" PRIu32 ", %" PRIu32 "],\n \"experts\": [", m->hp.n_layers, m->hp.n_experts);
    for (uint32_t i = 0; i < n; i++) {
        const struct lode_group *g = &m->groups[all[i].group];
        lode_buf_addf(b, "%s\n  [%" PRIu32 ", %" PRIu32 ", %" PRIu32 "]", i ? "," : "", g->layer,
                      g->expert, all[i].uses);
    }
    lode_free(all);
    return lode_buf_addz(b, "\n]}\n");
}

int lode_model_save_hot(const struct lode_model *m, const char *path, struct lode_error *err) {
    struct lode_buf b = {0};
    const uint32_t *uses = m->store && m->store->ops->uses ? m->store->ops->uses(m->store) : NULL;
    if (!uses)
        return lode_fail(err, LODE_ERR_ARG, path,
                         "no experts are streamed, so none were counted");
    if (!print_uses(m, uses, &b)) {
        lode_buf_free(&b);
        return lode_fail_nomem(err, path);
    }
    const int rc = lode_out_whole(path, b.data, b.len, err);
    lode_buf_free(&b);
    return rc;
}

/* The group of an expert, which lie by layer and expert; n_groups: there is no such expert. */
static uint32_t find_group(const struct lode_model *m, int64_t layer, int64_t expert) {
    uint32_t low = 0, high = m->n_expert_groups;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const struct lode_group *g = &m->groups[middle];
        if (g->layer < layer || (g->layer == layer && g->expert < expert))
            low = middle + 1;
        else
            high = middle;
    }
    return low < m->n_expert_groups && m->groups[low].layer == layer && m->groups[low].expert == expert
               ? low
               : m->n_groups;
}

/* A list that says nothing of its model is of an older version of lode. */
static int check_shape(const struct lode_model *m, const struct lode_json *of, const char *where,
                       struct lode_error *err) {
    int64_t layers, experts;
    if (!of)
        return 0;
    if (!lode_json_int(lode_json_at(of, 0), 0, UINT32_MAX, &layers) ||
        !lode_json_int(lode_json_at(of, 1), 0, UINT32_MAX, &experts))
        return lode_fail(err, LODE_ERR_FORMAT, where, "\"of\": [layers, experts of each] is expected");
    if (layers == m->hp.n_layers && experts == m->hp.n_experts)
        return 0;
    return lode_fail(err, LODE_ERR_ARG, where,
                     "this list is another's, of a model with %" PRId64 " layers of %" PRId64
                     " experts, and this one has %" PRIu32 " of %" PRIu32 ": name another file",
                     layers, experts, m->hp.n_layers, m->hp.n_experts);
}

int lode_hot_parse(const struct lode_model *m, struct lode_str text, const char *where,
                   uint32_t **out, uint32_t *n, struct lode_error *err) {
    struct lode_json_doc doc;
    *out = NULL;
    *n = 0;
    LODE_TRY(lode_json_parse(&doc, text, where, err));
    const struct lode_json *list = lode_json_get(doc.nodes, "experts");
    int rc = lode_json_is(list, LODE_JSON_ARRAY)
                 ? 0
                 : lode_fail(err, LODE_ERR_FORMAT, where, "a list of \"experts\" is expected");
    if (rc == 0)
        rc = check_shape(m, lode_json_get(doc.nodes, "of"), where, err);
    if (rc == 0 && !(*out = LODE_NEW_ARRAY(uint32_t, (size_t)lode_json_count(list) + 1)))
        rc = lode_fail_nomem(err, where);
    uint32_t n_listed = 0;
    for (const struct lode_json *v = rc == 0 ? lode_json_first(list) : NULL; v;
         v = lode_json_next(list, v)) {
        int64_t layer, expert;
        if (!lode_json_int(lode_json_at(v, 0), 0, UINT32_MAX, &layer) ||
            !lode_json_int(lode_json_at(v, 1), 0, UINT32_MAX, &expert)) {
            rc = lode_fail(err, LODE_ERR_FORMAT, where, "[layer, expert, uses] is expected");
            break;
        }
        n_listed++;
        const uint32_t group = find_group(m, layer, expert);
        if (group < m->n_groups) /* another model's are passed over */
            (*out)[(*n)++] = group;
    }
    if (rc == 0 && n_listed && *n == 0) /* it would be written over */
        rc = lode_fail(err, LODE_ERR_ARG, where, "none of its %u experts is one of this model's: it is another's",
                       n_listed);
    lode_json_free(&doc);
    if (rc < 0) {
        lode_free(*out);
        *out = NULL;
        *n = 0;
    }
    return rc;
}

int lode_hot_read(const struct lode_model *m, const char *path, uint32_t **out, uint32_t *n,
                  struct lode_error *err) {
    enum { MOST = 64 << 20 };
    struct lode_in_file f;
    *out = NULL;
    *n = 0;
    int rc = lode_in_open(&f, path, err);
    if (rc == LODE_ERR_MISSING) /* the first start, which will write it */
        return 0;
    char *text = rc == 0 && f.size <= MOST ? lode_alloc((size_t)f.size + 1, 1) : NULL;
    if (rc == 0 && !text)
        rc = f.size > MOST ? lode_fail(err, LODE_ERR_LIMIT, path, "more than %d bytes", MOST)
                           : lode_fail_nomem(err, path);
    if (rc == 0)
        rc = lode_in_read(&f, 0, text, (size_t)f.size, err);
    if (rc == 0) {
        text[f.size] = '\0';
        rc = lode_hot_parse(m, (struct lode_str){text, (size_t)f.size}, path, out, n, err);
    }
    lode_in_close(&f);
    lode_free(text);
    return rc;
}
