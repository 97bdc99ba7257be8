/* step.c - the step as the device reads it: tokens, draws, segments, page tables, rotary frequencies, written into
 * pinned memory and fetched from there, by a kernel where it is small. */
#include "backend/cuda/kernels/fetch.h"
#include "backend/cuda/run.h"

#include <stddef.h>
#include <string.h>

_Static_assert(sizeof(struct lode_cuda_step) % 16 == 0, "rows follow at once");

size_t lode_cuda_step_size(const struct lode_cuda_opts *o) {
    return sizeof(struct lode_cuda_step) + sizeof(struct lode_cuda_draws) + LODE_CUDA_TABLES + 256 +
           (size_t)o->max_rows * (sizeof(struct lode_cuda_row) + sizeof(uint32_t));
}

static size_t up(size_t at) { return (at + 15) & ~(size_t)15; }

struct writer {
    char *host;
    lode_dev device;
    size_t at, size;
    bool full;
};

static void *put(struct writer *w, size_t n, size_t size, lode_dev *where) {
    w->at = up(w->at);
    const size_t bytes = n * size;
    if (w->full || bytes > w->size - w->at) {
        w->full = true;
        return NULL;
    }
    void *p = w->host + w->at;
    *where = w->device + w->at;
    w->at += bytes;
    return p;
}

static lode_dev page_at(const struct lode_kv_view *v, uint32_t i) {
    return v->table[i] == UINT32_MAX ? 0 : (lode_dev)(uintptr_t)v->pool + v->table[i] * (lode_dev)v->page_size;
}

/* One sequence's page tables, a view for each layer. */
static void put_views(struct writer *w, const struct lode_kv *kv, uint32_t n_layers, uint32_t place,
                      uint32_t n_pages, lode_dev *where) {
    struct lode_cuda_view *views = put(w, n_layers, sizeof *views, where);
    lode_dev table_of[64] = {0}; /* of a group; more groups than that have a table a layer */
    for (uint32_t l = 0; views && l < n_layers; l++) {
        const struct lode_kv_view v = lode_kv_view(kv, l);
        const struct lode_kv_layer *layer = lode_kv_layer(kv, l);
        const uint32_t n = n_pages < v.n_entries ? n_pages : v.n_entries;
        if (layer->place != place)
            continue;
        lode_dev table = v.group < 64 ? table_of[v.group] : 0;
        if (!table) {
            lode_dev *pages = put(w, n, sizeof *pages, &table);
            for (uint32_t i = 0; pages && i < n; i++)
                pages[i] = page_at(&v, i);
            if (v.group < 64)
                table_of[v.group] = table;
        }
        views[l] = (struct lode_cuda_view){.pages = table, .n_entries = v.n_entries,
                                           .k_stride = (uint32_t)v.k_stride,
                                           .v_stride = (uint32_t)v.v_stride,
                                           .type_k = layer->type_k, .type_v = layer->type_v,
                                           .v_in_k = layer->v_in_k, .k = v.k, .v = v.v};
        for (uint32_t i = 0; i < n && i < LODE_CUDA_NEAR_PAGES; i++)
            views[l].near[i] = page_at(&v, i);
    }
}

/* Where a sequence's recurrent layers begin. */
static void put_state(struct lode_cuda_segment *seg, const struct lode_state *state, uint32_t place) {
    if (!state)
        return;
    seg->state = (lode_dev)(uintptr_t)lode_state_begins(state, place, false);
    seg->mark = lode_state_mark(state);
    if (seg->mark != UINT32_MAX)
        seg->state_mark = (lode_dev)(uintptr_t)lode_state_begins(state, place, true);
}

static void put_ropes(struct writer *w, const struct lode_rope *ropes, uint32_t n, lode_dev *where) {
    struct lode_cuda_rope *out = put(w, n, sizeof *out, where);
    for (uint32_t i = 0; out && i < n; i++) {
        lode_dev at = 0;
        double *freq = put(w, ropes[i].n_pairs, sizeof *freq, &at);
        if (freq)
            memcpy(freq, ropes[i].freq, ropes[i].n_pairs * sizeof *freq);
        out[i] = (struct lode_cuda_rope){at, ropes[i].scale};
    }
}

lode_dev lode_cuda_step_draws(const struct run *r, const struct lode_step *step) { /* behind the rows */
    return r->step + up(sizeof(struct lode_cuda_step) + step->n_rows * sizeof(struct lode_cuda_row));
}

int lode_cuda_write_step(struct run *r, const struct lode_step *step, const struct lode_cuda_draws *draws,
                         struct lode_error *err) {
    const struct lode_cu *cu = &r->c->cu;
    const unsigned i = r->next_slot % LODE_CUDA_SLOTS;
    LODE_TRY(lode_cu_check(cu, cu->event_wait(r->slot[i].sent), "step", err));
    struct writer w = {r->slot[i].host, r->step, 0, r->step_size, false};
    lode_dev at = 0;
    struct lode_cuda_step *s = put(&w, 1, sizeof *s, &at);
    *s = (struct lode_cuda_step){.n_rows = step->n_rows, .n_segments = step->n_segments,
                                 .n_out = step->n_out};
    struct lode_cuda_row *rows = put(&w, step->n_rows, sizeof *rows, &at); /* where kernels look for them */
    if (draws) {
        const size_t size = offsetof(struct lode_cuda_draws, draws) + step->n_out * sizeof draws->draws[0];
        void *to = put(&w, 1, size, &at);
        if (to)
            memcpy(to, draws, size);
    }
    uint32_t *out = put(&w, step->n_out, sizeof *out, &s->out_rows);
    struct lode_cuda_segment *segs = put(&w, step->n_segments, sizeof *segs, &s->segments);
    if (out && step->n_out)
        memcpy(out, step->out_rows, step->n_out * sizeof *out);
    r->pages = 1;
    for (uint32_t k = 0; rows && segs && k < step->n_segments; k++) {
        const struct lode_segment *g = &step->segments[k];
        const uint32_t pages = (g->pos + g->n_rows - 1) / LODE_KV_PAGE + 1;
        r->pages = pages > r->pages ? pages : r->pages;
        segs[k] = (struct lode_cuda_segment){.first_row = g->first_row, .n_rows = g->n_rows,
                                             .pos = g->pos, .mark = UINT32_MAX};
        put_state(&segs[k], g->state, r->base.place);
        put_views(&w, g->kv, r->o.n_layers, r->base.place, pages, &segs[k].views);
        put_ropes(&w, g->ropes, r->o.n_ropes, &segs[k].ropes);
        for (uint32_t n = 0; n < g->n_rows; n++)
            rows[g->first_row + n] =
                (struct lode_cuda_row){.pos = g->pos + n, .segment = k, .token = step->tokens[g->first_row + n],
                                       .part = n >= g->second, .views = segs[k].views, .step_pos = g->pos};
    }
    r->views = segs && step->n_segments == 1 ? segs[0].views : 0; /* of a captured graph always the same */
    if (w.full)
        return lode_fail(err, LODE_ERR_LIMIT, "cuda",
                         "the sequences of one step have too many pages for a GPU's step (%u MiB of "
                         "tables): feed fewer of them at once",
                         LODE_CUDA_TABLES >> 20);
    uint32_t pages = 1; /* graphs are for powers of two */
    while (pages < r->pages)
        pages *= 2;
    r->pages = pages;
    r->written = w.at;
    return 0;
}

int lode_cuda_send_step(struct run *r, bool to_graph, struct lode_error *err) {
    const struct lode_cu *cu = &r->c->cu;
    const unsigned i = r->next_slot++ % LODE_CUDA_SLOTS;
    const uint32_t n = (uint32_t)(up(r->written) / 16);
    const struct lode_cuda_fetch_args a = {(lode_dev)(uintptr_t)r->slot[i].host, r->step, n};
    LODE_TRY(to_graph && r->written <= LODE_FETCH_MOST
                 ? lode_cuda_launch(r->c, r->stream, r->c->kernels.fetch, (n + LODE_FETCH_THREADS - 1) / LODE_FETCH_THREADS, 1, 1,
                                    LODE_FETCH_THREADS, 0, &a, err)
                 : lode_cu_check(cu, cu->to_device(r->step, r->slot[i].host, r->written, r->stream), "step", err));
    return lode_cu_check(cu, cu->event_record(r->slot[i].sent, r->stream), "step", err);
}
