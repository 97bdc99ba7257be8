/* identity.c - what pages of keys and values depend on, as one number. */
#define XXH_STATIC_LINKING_ONLY /* states of sums without an allocation */
#include "engine/disk.h"

#include <string.h>

/* Raised by whoever changes what a kernel computes, of all numerics or of all but exact: pages made before are then not used any more. */
enum { KERNELS = 3, OTHER_KERNELS = 3, LAYOUT = 2, SAMPLE = 4096, EXPERTS_APART = 64 };

static void add(XXH3_state_t *h, const void *bytes, size_t n) { XXH3_128bits_update(h, bytes, n); }

static void add_number(XXH3_state_t *h, uint64_t n) { add(h, &n, sizeof n); }

static void add_text(XXH3_state_t *h, const char *text) { add(h, text, strlen(text) + 1); }

/* Beginning, middle and end; whole rows, because some sources make rows of parts. */
static int add_weight(XXH3_state_t *h, const struct lode_source *s, const struct lode_weight *w,
                      struct lode_error *err) {
    unsigned char bytes[SAMPLE];
    size_t row;
    add_text(h, w->home->name);
    add_number(h, w->op.type);
    add_number(h, w->op.rows);
    add_number(h, w->op.cols);
    if (!lode_dtype_row_size(w->home->type, (uint32_t)w->home->dims[0], &row) || row == 0 ||
        row > sizeof bytes || w->size < row)
        row = w->size < sizeof bytes ? w->size : sizeof bytes;
    const size_t n_rows = row ? w->size / row : 0;
    for (size_t i = 0; n_rows && i < 3; i++) {
        LODE_TRY(lode_source_read(s, w->home, w->offset + (n_rows - 1) * i / 2 * row, bytes, row, err));
        add(h, bytes, row);
    }
    return 0;
}

static int add_weights(XXH3_state_t *h, const struct lode_model *m, struct lode_error *err) {
    for (uint32_t i = 0; i < m->n_weights; i++)
        if (m->weights[i].group == LODE_NO_GROUP || i % EXPERTS_APART == 0)
            LODE_TRY(add_weight(h, m->source, &m->weights[i], err));
    return 0;
}

int lode_disk_identity(const struct lode_model *m, const struct lode_kv_pool *pool,
                       const struct lode_rope *ropes, XXH128_hash_t *out, struct lode_error *err) {
    XXH3_state_t h;
    XXH3_128bits_reset(&h);
    add_number(&h, LAYOUT);
    add_number(&h, KERNELS);
    add_number(&h, LODE_KV_PAGE);
    add_number(&h, m->opts.float_act);
    add_number(&h, m->opts.experts);
    add_text(&h, m->info.on_gpu ? "cuda" : "cpu");
    add_text(&h, m->info.numerics);
    if (strcmp(m->info.numerics, "exact") != 0)
        add_number(&h, OTHER_KERNELS);
    /* no bit of a page depends on where layers run, but which of them share pages does */
    add_text(&h, m->info.arch);
    add_number(&h, m->info.size);
    for (uint32_t l = 0; l < m->n_kept; l++) {
        const struct lode_kv_layer *k = lode_kv_pool_layer(pool, l);
        const struct lode_state_layer *s = &m->state[l];
        const uint32_t numbers[] = {k->n_heads, k->head_dim, k->head_dim_v, k->window,
                                    (uint32_t)k->type_k, (uint32_t)k->type_v, k->v_in_k,
                                    s->inputs, s->width, s->n_heads, s->dim_k, s->dim_v, k->place,
                                    s->place};
        add(&h, numbers, sizeof numbers);
    }
    for (uint32_t i = 0; i < m->hp.n_ropes; i++) {
        add(&h, ropes[i].freq, ropes[i].n_pairs * sizeof *ropes[i].freq);
        add(&h, &ropes[i].scale, sizeof ropes[i].scale);
    }
    LODE_TRY(add_weights(&h, m, err));
    *out = XXH3_128bits_digest(&h);
    return 0;
}
