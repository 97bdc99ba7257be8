/* hf_cut.c - tensors that directories keep in another cut than GGUF: experts one by one or joined
 * with their twins, queries, keys and values woven into one another, latent attention's matrices.
 */
#include "format/hf_parts.h"

#include "base/error.h"

#include <stdio.h>

static int wrong_shape(const struct lode_st_tensor *s, const char *expected,
                       struct lode_error *err) {
    return lode_fail(err, LODE_ERR_FORMAT, s->name, "its shape is not %s", expected);
}

/* ---- experts ---- */

int lode_hf_place_expert(struct lode_hf *h, const struct lode_st_tensor *s,
                         const struct lode_hf_spot *spot, struct lode_error *err) {
    char name[LODE_HF_NAME];
    if (spot->expert >= (int64_t)h->n_experts)
        return lode_fail(err, LODE_ERR_FORMAT, s->name,
                         "config.json says that there are %u experts", h->n_experts);
    if (s->n_dims == 0 || s->n_dims > 2)
        return wrong_shape(s, "that of a matrix or vector", err);
    lode_hf_spot_name(spot, NULL, name);
    const uint32_t i = lode_map_get(&h->names, lode_str(name));
    if (i == LODE_MAP_NONE) {
        struct lode_hf_run *runs = LODE_ARENA_ARRAY(&h->arena, struct lode_hf_run, h->n_experts);
        uint64_t dims[3];
        if (!runs)
            return lode_fail_nomem(err, name);
        for (uint32_t d = 0; d < s->n_dims; d++)
            dims[d] = s->dims[s->n_dims - 1 - d];
        dims[s->n_dims] = h->n_experts;
        runs[spot->expert] = lode_hf_run_all(s);
        LODE_TRY(lode_hf_add(h, name, NULL, s->n_dims + 1, dims, runs, h->n_experts, err));
        h->homes[h->base.n_tensors - 1].stack = true;
        return 0;
    }
    struct lode_hf_home *home = &h->homes[i];
    if (!home->stack) /* there are fused ones too */
        return lode_fail(err, LODE_ERR_FORMAT, s->name, "its experts are there a second time");
    struct lode_hf_run *r = &home->runs[spot->expert];
    if (r->from)
        return lode_fail(err, LODE_ERR_FORMAT, s->name, "it is the same as %s", r->from->name);
    const uint64_t at = r->at;
    *r = lode_hf_run_all(s);
    r->at = at;
    return 0;
}

int lode_hf_check_stack(const struct lode_hf *h, uint32_t i, struct lode_error *err) {
    const struct lode_gguf_tensor *t = &h->tensors[i];
    const struct lode_hf_home *home = &h->homes[i];
    const bool vectors = t->n_dims == 2;
    for (uint32_t e = 0; e < home->n_runs && home->stack; e++) {
        const struct lode_st_tensor *s = home->runs[e].from;
        enum lode_dtype type;
        if (!s)
            return lode_fail(err, LODE_ERR_MISSING, h->base.path, "%s of expert %u is missing",
                             t->name, e);
        if (!lode_hf_dtype(s, &type) || type != t->type || s->n_dims != t->n_dims - 1 ||
            s->dims[s->n_dims - 1] != t->dims[0] || (!vectors && s->dims[0] != t->dims[1]))
            return lode_fail(err, LODE_ERR_FORMAT, s->name,
                             "its dtype or shape is not that of the other experts");
    }
    return 0;
}

/* A stack of the layer's, gate, up or down, from one run. */
static int add_stack(struct lode_hf *h, const struct lode_st_tensor *s,
                     const struct lode_hf_spot *spot, const char *which, uint64_t cols,
                     uint64_t rows, struct lode_hf_run run, struct lode_error *err) {
    char name[LODE_HF_NAME];
    const bool bias = s->n_dims == 2;
    const uint64_t matrices[3] = {cols, rows, s->dims[0]}, vectors[2] = {rows, s->dims[0]};
    snprintf(name, sizeof name, "blk.%u.ffn_%s_exps.%s", (uint32_t)spot->layer, which,
             bias ? "bias" : "weight");
    run.from = s;
    return lode_hf_add(h, name, NULL, bias ? 2 : 3, bias ? vectors : matrices, &run, 1, err);
}

int lode_hf_place_gate_up(struct lode_hf *h, const struct lode_st_tensor *s,
                          const struct lode_hf_spot *spot, struct lode_error *err) {
    if (s->n_dims != 3 || s->dims[1] % 2)
        return wrong_shape(s, "(experts, twice their width, model's width)", err);
    const uint64_t n = s->dims[0], ff = s->dims[1] / 2, d = s->dims[2];
    struct lode_hf_run run = {.n = {1, 1, n, ff * d}, .step = {0, 0, 2 * ff * d, 1}};
    LODE_TRY(add_stack(h, s, spot, "gate", d, ff, run, err));
    run.base = ff * d;
    return add_stack(h, s, spot, "up", d, ff, run, err);
}

int lode_hf_place_gate_up_turned(struct lode_hf *h, const struct lode_st_tensor *s,
                                 const struct lode_hf_spot *spot, struct lode_error *err) {
    if (s->n_dims != 3 || s->dims[2] % 2)
        return wrong_shape(s, "(experts, model's width, twice their width)", err);
    const uint64_t n = s->dims[0], d = s->dims[1], ff = s->dims[2] / 2;
    struct lode_hf_run run = {.n = {1, n, ff, d}, .step = {0, d * 2 * ff, 1, 2 * ff}};
    LODE_TRY(add_stack(h, s, spot, "gate", d, ff, run, err));
    run.base = ff;
    return add_stack(h, s, spot, "up", d, ff, run, err);
}

int lode_hf_place_gate_up_woven(struct lode_hf *h, const struct lode_st_tensor *s,
                                const struct lode_hf_spot *spot, struct lode_error *err) {
    if (lode_hf_linear(s) && s->n_dims == 3 && s->dims[1] % 2 == 0) { /* not turned: its rows are */
        const uint64_t n = s->dims[0], rows = s->dims[1], d = s->dims[2];
        struct lode_hf_run run = {.n = {1, n, rows / 2, d}, .step = {0, rows * d, 2 * d, 1}};
        LODE_TRY(add_stack(h, s, spot, "gate", d, rows / 2, run, err));
        run.base = d;
        return add_stack(h, s, spot, "up", d, rows / 2, run, err);
    }
    if (s->n_dims < 2 || s->n_dims > 3 || s->dims[s->n_dims - 1] % 2)
        return wrong_shape(s, "(experts, model's width, twice their width)", err);
    const uint64_t n = s->dims[0], d = s->n_dims == 3 ? s->dims[1] : 1;
    const uint64_t ff = s->dims[s->n_dims - 1] / 2;
    struct lode_hf_run run = {.n = {1, n, ff, d}, .step = {0, d * 2 * ff, 2, 2 * ff}};
    LODE_TRY(add_stack(h, s, spot, "gate", d, ff, run, err));
    run.base = 1;
    return add_stack(h, s, spot, "up", d, ff, run, err);
}

int lode_hf_place_turned(struct lode_hf *h, const struct lode_st_tensor *s,
                         const struct lode_hf_spot *spot, struct lode_error *err) {
    char name[LODE_HF_NAME];
    lode_hf_spot_name(spot, NULL, name);
    if (spot->tail[0] && s->n_dims > 0 && s->n_dims <= 3) {
        /* NAME.weight, as MLX has it, or MXFP4's: (experts, out, in); NAME.bias */
        const struct lode_hf_run all = lode_hf_run_all(s);
        uint64_t lying[3];
        for (uint32_t d = 0; d < s->n_dims; d++)
            lying[d] = s->dims[s->n_dims - 1 - d];
        return lode_hf_add(h, name, NULL, s->n_dims, lying, &all, 1, err);
    }
    if (s->n_dims != 3)
        return wrong_shape(s, "(experts, in, out)", err);
    const uint64_t n = s->dims[0], in = s->dims[1], out = s->dims[2];
    const uint64_t dims[3] = {in, out, n};
    const struct lode_hf_run run = {.from = s, .n = {1, n, out, in}, .step = {0, in * out, 1, out}};
    return lode_hf_add(h, name, NULL, 3, dims, &run, 1, err);
}

/* One FFN's gate and up, the gate's rows first. */
int lode_hf_place_gate_up_rows(struct lode_hf *h, const struct lode_st_tensor *s,
                               const struct lode_hf_spot *spot, struct lode_error *err) {
    char name[LODE_HF_NAME];
    if (s->n_dims != 2 || s->dims[0] % 2)
        return wrong_shape(s, "(twice the FFN's width, model's width)", err);
    const uint64_t ff = s->dims[0] / 2, d = s->dims[1], dims[2] = {d, ff};
    struct lode_hf_run run = {.from = s, .n = {1, 1, 1, ff * d}, .step = {0, 0, 0, 1}};
    lode_hf_spot_name(spot, "blk.#.ffn_gate", name);
    LODE_TRY(lode_hf_add(h, name, NULL, 2, dims, &run, 1, err));
    run.base = ff * d;
    lode_hf_spot_name(spot, "blk.#.ffn_up", name);
    return lode_hf_add(h, name, NULL, 2, dims, &run, 1, err);
}

/* ---- queries, keys and values ---- */

int lode_hf_place_qkv(struct lode_hf *h, const struct lode_st_tensor *s,
                      const struct lode_hf_spot *spot, struct lode_error *err) {
    char name[LODE_HF_NAME];
    uint32_t n_heads = 0, n_kv = 0;
    lode_source_arch_u32(&h->base, "attention.head_count", &n_heads);
    lode_source_arch_u32(&h->base, "attention.head_count_kv", &n_kv);
    const uint64_t rows = s->n_dims ? s->dims[0] : 0, cols = s->n_dims == 2 ? s->dims[1] : 1;
    const uint64_t group = n_kv ? n_heads / n_kv : 0, parts = n_kv * (group + 2);
    if (s->n_dims == 0 || s->n_dims > 2 || !parts || rows % parts)
        return wrong_shape(s, "one row or more for each head's query, key and value", err);
    const uint64_t unit = rows / parts * cols, dims[2] = {s->n_dims == 2 ? cols : rows, rows};
    struct lode_hf_run runs[3];
    for (uint64_t k = 0; k < 3; k++)
        runs[k] = (struct lode_hf_run){.from = s,
                                       .base = k ? (group + k - 1) * unit : 0,
                                       .n = {1, 1, n_kv, k ? unit : group * unit},
                                       .step = {0, 0, (group + 2) * unit, 1}};
    lode_hf_spot_name(spot, NULL, name);
    return lode_hf_add(h, name, NULL, s->n_dims, dims, runs, 3, err);
}

/* K of each head is turned, for queries go through it the other way (model/mla.c). */
int lode_hf_place_kv_b(struct lode_hf *h, const struct lode_st_tensor *s,
                       const struct lode_hf_spot *spot, struct lode_error *err) {
    char name[LODE_HF_NAME];
    uint32_t n_heads = 0, key = 0, rope = 0, v = 0;
    lode_source_arch_u32(&h->base, "attention.head_count", &n_heads);
    lode_source_arch_u32(&h->base, "attention.key_length_mla", &key);
    lode_source_arch_u32(&h->base, "attention.value_length_mla", &v);
    lode_source_arch_u32(&h->base, "rope.dimension_count", &rope);
    const uint64_t plain = key > rope ? key - rope : 0, both = plain + v;
    if (s->n_dims != 2 || !plain || !v || s->dims[0] != n_heads * both)
        return wrong_shape(s, "(heads times (qk_nope_head_dim + v_head_dim), kv_lora_rank)", err);
    const uint64_t rank = s->dims[1];
    const uint64_t dims_k[3] = {plain, rank, n_heads}, dims_v[3] = {rank, v, n_heads};
    const struct lode_hf_run k = {
        .from = s, .n = {1, n_heads, rank, plain}, .step = {0, both * rank, 1, rank}};
    const struct lode_hf_run values = {.from = s,
                                       .base = plain * rank,
                                       .n = {1, 1, n_heads, v * rank},
                                       .step = {0, 0, both * rank, 1}};
    lode_hf_spot_name(spot, "blk.#.attn_k_b", name);
    LODE_TRY(lode_hf_add(h, name, NULL, 3, dims_k, &k, 1, err));
    lode_hf_spot_name(spot, "blk.#.attn_v_b", name);
    return lode_hf_add(h, name, NULL, 3, dims_v, &values, 1, err);
}
