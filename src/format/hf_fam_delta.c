/* hf_fam_delta.c - models with recurrent layers: Qwen3-Next, Qwen 3.5 (GatedDeltaNet), LFM2 (short
 * convolutions).
 *
 * GGUF has queries, keys and values of all heads one after another, the gate apart; and in
 * Qwen 3.5's files the heads of values, which directories have grouped by their key head, one of
 * each group at a time (tiled).  The output matrix's columns follow them, so that its sums run in
 * the same order.
 */
#include "format/hf_parts.h"

#include "base/dmath.h"
#include "base/error.h"

#include <stdio.h>

/* ---- shapes ---- */

struct heads {
    uint64_t n_k, n_v, each; /* each: heads of values a key head */
    uint64_t dim_k, dim_v;
};

static int read_heads(const struct lode_hf *h, struct heads *out, struct lode_error *err) {
    uint32_t n_k = 0, n_v = 0, k = 0, inner = 0;
    lode_source_arch_u32(&h->base, "ssm.group_count", &n_k);
    lode_source_arch_u32(&h->base, "ssm.time_step_rank", &n_v);
    lode_source_arch_u32(&h->base, "ssm.state_size", &k);
    lode_source_arch_u32(&h->base, "ssm.inner_size", &inner);
    if (!n_k || !n_v || n_v % n_k || !k || !inner || inner % n_v)
        return lode_hf_fail_field(h, "linear_num_value_heads",
                                  "a multiple of linear_num_key_heads, with sizes of heads", err);
    *out = (struct heads){n_k, n_v, n_v / n_k, k, inner / n_v};
    return 0;
}

static int wrong_shape(const struct lode_st_tensor *s, const char *expected,
                       struct lode_error *err) {
    return lode_fail(err, LODE_ERR_FORMAT, s->name, "its shape is not %s", expected);
}

static float itself(float x) { return x; }
static float minus_exp(float x) { return (float)-lode_exp((double)x); }

/* ---- Qwen3-Next: rows of each key head: its query, key, values, gates ---- */

static int place_qkvz(struct lode_hf *h, const struct lode_st_tensor *s,
                      const struct lode_hf_spot *spot, struct lode_error *err) {
    char name[LODE_HF_NAME];
    struct heads n;
    LODE_TRY(read_heads(h, &n, err));
    const uint64_t values = n.each * n.dim_v, group = 2 * (n.dim_k + values);
    if (s->n_dims != 2 || s->dims[0] != n.n_k * group)
        return wrong_shape(s, "(all queries, keys, values and gates, model's width)", err);
    const uint64_t cols = s->dims[1];
    const uint64_t sizes[4] = {n.dim_k, n.dim_k, values, values};
    const uint64_t qkv[2] = {cols, n.n_k * (2 * n.dim_k + values)};
    const uint64_t gate[2] = {cols, n.n_k * values};
    struct lode_hf_run runs[4];
    for (uint64_t i = 0, row = 0; i < 4; row += sizes[i++])
        runs[i] = (struct lode_hf_run){.from = s,
                                       .base = row * cols,
                                       .n = {1, 1, n.n_k, sizes[i] * cols},
                                       .step = {0, 0, group * cols, 1}};
    lode_hf_spot_name(spot, "blk.#.attn_qkv", name);
    LODE_TRY(lode_hf_add(h, name, NULL, 2, qkv, runs, 3, err));
    lode_hf_spot_name(spot, "blk.#.attn_gate", name);
    return lode_hf_add(h, name, NULL, 2, gate, runs + 3, 1, err);
}

/* ---- Qwen 3.5: heads of values, tiled ---- */

/* Rows before those of the heads of values stay where they are.  The tensor is seen as rows of
 * `cols` numbers each. */
static int add_tiled(struct lode_hf *h, const struct lode_st_tensor *s,
                     const struct lode_hf_spot *spot, uint64_t before, uint64_t rows, uint64_t cols,
                     uint32_t n_dims, struct lode_error *err) {
    char name[LODE_HF_NAME];
    struct heads n;
    LODE_TRY(read_heads(h, &n, err));
    if (rows <= before || (rows - before) % n.n_v)
        return wrong_shape(s, "one row or more for each head", err);
    const uint64_t unit = (rows - before) / n.n_v * cols;
    const uint64_t dims[2] = {n_dims == 1 ? rows : cols, rows};
    const struct lode_hf_run runs[2] = {
        {.from = s, .n = {1, 1, 1, before * cols}, .step = {0, 0, 0, 1}},
        {.from = s,
         .base = before * cols,
         .n = {1, n.each, n.n_k, unit},
         .step = {0, unit, n.each * unit, 1}}};
    lode_hf_spot_name(spot, NULL, name);
    return lode_hf_add(h, name, spot->name->map, n_dims, dims, runs + (before == 0), before ? 2 : 1,
                       err);
}

static uint64_t key_rows(const struct lode_hf *h) {
    uint32_t n = 0, k = 0;
    lode_source_arch_u32(&h->base, "ssm.group_count", &n);
    lode_source_arch_u32(&h->base, "ssm.state_size", &k);
    return 2 * (uint64_t)n * k;
}

/* A row or a number a head, or as many as a head has values. */
static int place_heads(struct lode_hf *h, const struct lode_st_tensor *s,
                       const struct lode_hf_spot *spot, struct lode_error *err) {
    if (s->n_dims == 0 || s->n_dims > 2)
        return wrong_shape(s, "that of a matrix or vector", err);
    return add_tiled(h, s, spot, 0, s->dims[0], s->n_dims == 2 ? s->dims[1] : 1, s->n_dims, err);
}

static int place_qkv(struct lode_hf *h, const struct lode_st_tensor *s,
                     const struct lode_hf_spot *spot, struct lode_error *err) {
    if (s->n_dims != 2)
        return wrong_shape(s, "(all queries, keys and values, model's width)", err);
    return add_tiled(h, s, spot, key_rows(h), s->dims[0], s->dims[1], 2, err);
}

/* (channels, 1, taps), or MLX's (channels, taps, 1) */
static uint64_t taps_of(const struct lode_st_tensor *s) {
    return s->n_dims == 3 && (s->dims[1] == 1 || s->dims[2] == 1) ? s->dims[1] * s->dims[2] : 0;
}

static int place_conv_tiled(struct lode_hf *h, const struct lode_st_tensor *s,
                            const struct lode_hf_spot *spot, struct lode_error *err) {
    const uint64_t taps = taps_of(s);
    return taps ? add_tiled(h, s, spot, key_rows(h), s->dims[0], taps, 2, err)
                : wrong_shape(s, "(channels, 1, taps)", err);
}

static int place_conv(struct lode_hf *h, const struct lode_st_tensor *s,
                      const struct lode_hf_spot *spot, struct lode_error *err) {
    char name[LODE_HF_NAME];
    const uint64_t dims[2] = {taps_of(s), s->dims[0]};
    const struct lode_hf_run all = lode_hf_run_all(s);
    lode_hf_spot_name(spot, NULL, name);
    return dims[0] ? lode_hf_add(h, name, itself, 2, dims, &all, 1, err)
                   : wrong_shape(s, "(channels, 1, taps)", err);
}

static int place_out(struct lode_hf *h, const struct lode_st_tensor *s,
                     const struct lode_hf_spot *spot, struct lode_error *err) {
    char name[LODE_HF_NAME];
    struct heads n;
    LODE_TRY(read_heads(h, &n, err));
    if (s->n_dims != 2 || s->dims[1] != n.n_v * n.dim_v)
        return wrong_shape(s, "(model's width, all values)", err);
    const uint64_t dims[2] = {s->dims[1], s->dims[0]};
    const struct lode_hf_run run = {.from = s,
                                    .n = {s->dims[0], n.each, n.n_k, n.dim_v},
                                    .step = {s->dims[1], n.dim_v, n.each * n.dim_v, 1}};
    lode_hf_spot_name(spot, NULL, name);
    return lode_hf_add(h, name, NULL, 2, dims, &run, 1, err);
}

/* ---- Qwen's ---- */

/* Norms multiply by weight + 1, but in files that MLX wrote, where that is done: its convolutions
 * have their taps in the middle. */
static int place_norm(struct lode_hf *h, const struct lode_st_tensor *s,
                      const struct lode_hf_spot *spot, struct lode_error *err) {
    char name[LODE_HF_NAME];
    const uint64_t dims[1] = {s->dims[0]};
    const struct lode_hf_run all = lode_hf_run_all(s);
    if (s->n_dims != 1)
        return wrong_shape(s, "that of a vector", err);
    for (size_t i = 0; i < h->linears.n_inputs && !h->norms; i++) {
        const struct lode_st_tensor *c = h->linears.inputs[i];
        if (strstr(c->name, "linear_attn.conv1d.weight"))
            h->norms = c->n_dims == 3 && c->dims[1] > 1 ? itself : lode_hf_plus_one;
    }
    lode_hf_spot_name(spot, NULL, name);
    return lode_hf_add(h, name, h->norms ? h->norms : lode_hf_plus_one, 1, dims, &all, 1, err);
}

#define NORMS                                                                                      \
    LODE_HF_CUT("norm", "output_norm", place_norm),                                                \
        LODE_HF_CUT("layers.#.input_layernorm", "blk.#.attn_norm", place_norm),                    \
        LODE_HF_CUT("layers.#.post_attention_layernorm", "blk.#.post_attention_norm", place_norm), \
        LODE_HF_CUT("layers.#.self_attn.q_norm", "blk.#.attn_q_norm", place_norm),                 \
        LODE_HF_CUT("layers.#.self_attn.k_norm", "blk.#.attn_k_norm", place_norm),                 \
        LODE_HF_MAPPED("layers.#.linear_attn.norm", "blk.#.ssm_norm", itself)

static const struct lode_hf_name next_names[] = {
    NORMS,
    LODE_HF_CUT("layers.#.linear_attn.in_proj_qkvz", "blk.#.attn_qkv", place_qkvz),
    LODE_HF_IS("layers.#.linear_attn.in_proj_ba", "blk.#.ssm_ba"),
    LODE_HF_CUT("layers.#.linear_attn.conv1d", "blk.#.ssm_conv1d", place_conv),
    LODE_HF_MAPPED("layers.#.linear_attn.A_log", "blk.#.ssm_a", minus_exp),
    LODE_HF_MAPPED("layers.#.linear_attn.dt_bias", "blk.#.ssm_dt.bias", itself),
    LODE_HF_IS("layers.#.linear_attn.out_proj", "blk.#.ssm_out"),
    {0},
};

#define TILED(from, to, placer, function)                                                          \
    {                                                                                              \
        .hf = "layers.#.linear_attn." from, .gguf = "blk.#." to, .place = (placer),                \
        .map = (function)                                                                          \
    }

static const struct lode_hf_name qwen35_names[] = {
    NORMS,
    TILED("in_proj_qkv", "attn_qkv", place_qkv, NULL),
    TILED("in_proj_z", "attn_gate", place_heads, NULL),
    TILED("in_proj_a", "ssm_alpha", place_heads, NULL),
    TILED("in_proj_b", "ssm_beta", place_heads, NULL),
    TILED("conv1d", "ssm_conv1d", place_conv_tiled, itself),
    TILED("A_log", "ssm_a", place_heads, minus_exp),
    TILED("dt_bias", "ssm_dt.bias", place_heads, itself),
    TILED("out_proj", "ssm_out", place_out, NULL),
    {0},
};

static int put_recurrent_layers(struct lode_hf *h, struct lode_error *err) {
    const struct lode_json *list = lode_hf_field(h, "layer_types");
    if (!list)
        return 0;
    unsigned char *flags = LODE_ARENA_ARRAY(&h->arena, unsigned char, h->n_layers);
    uint32_t l = 0;
    if (!flags)
        return lode_fail_nomem(err, "layer_types");
    if (lode_json_count(list) < h->n_layers)
        return lode_hf_fail_field(h, "layer_types", "one entry a layer", err);
    for (const struct lode_json *c = lode_json_first(list); l < h->n_layers;
         c = lode_json_next(list, c), l++) {
        flags[l] = lode_str_eqz(lode_json_str(c), "linear_attention");
        if (!flags[l] && !lode_str_eqz(lode_json_str(c), "full_attention"))
            return lode_hf_fail_field(h, "layer_types", "linear_attention and full_attention", err);
    }
    return lode_hf_put_flags(h, "attention.recurrent_layers", flags, h->n_layers, err);
}

static int delta(struct lode_hf *h, struct lode_error *err) {
    static const struct lode_hf_plain plain[] = {
        {"linear_conv_kernel_dim", "ssm.conv_kernel", LODE_HF_COUNT},
        {"linear_key_head_dim", "ssm.state_size", LODE_HF_COUNT},
        {"linear_num_key_heads", "ssm.group_count", LODE_HF_COUNT},
        {"linear_num_value_heads", "ssm.time_step_rank", LODE_HF_COUNT},
        {"full_attention_interval", "full_attention_interval", LODE_HF_COUNT},
    };
    uint32_t n, dim;
    LODE_TRY(lode_hf_put_plain(h, plain, sizeof plain / sizeof *plain, err));
    LODE_TRY(lode_hf_count(h, "linear_num_value_heads", 0, &n, err));
    LODE_TRY(lode_hf_count(h, "linear_value_head_dim", 0, &dim, err));
    LODE_TRY(lode_hf_put_u32(h, "ssm.inner_size", n < 4096 && dim < 4096 ? n * dim : 0, err));
    return put_recurrent_layers(h, err);
}

/* How the rotary pairs are shared out to time, height and width: all the same for text, but
 * llama.cpp asks for it. */
static int qwen35(struct lode_hf *h, struct lode_error *err) {
    const struct lode_json *list =
        lode_json_get(lode_hf_field(h, "rope_parameters"), "mrope_section");
    uint32_t *sections = LODE_ARENA_ARRAY(&h->arena, uint32_t, 4), i = 0;
    int64_t n;
    if (!sections)
        return lode_fail_nomem(err, "mrope_section");
    memcpy(sections, (const uint32_t[]){11, 11, 10, 0}, 4 * sizeof *sections);
    for (const struct lode_json *c = lode_json_first(list); c && i < 4;
         c = lode_json_next(list, c)) {
        if (!lode_json_int(c, 0, 4096, &n))
            return lode_hf_fail_field(h, "mrope_section", "three counts", err);
        sections[i++] = (uint32_t)n;
    }
    LODE_TRY(lode_hf_put_counts(h, "rope.dimension_sections", sections, 4, err));
    return delta(h, err);
}

/* ---- LFM2 ---- */

static const struct lode_hf_name lfm2_names[] = {
    LODE_HF_IS("embedding_norm", "token_embd_norm"),
    LODE_HF_IS("layers.#.operator_norm", "blk.#.attn_norm"),
    LODE_HF_IS("layers.#.ffn_norm", "blk.#.ffn_norm"),
    LODE_HF_IS("layers.#.feed_forward.w1", "blk.#.ffn_gate"),
    LODE_HF_IS("layers.#.feed_forward.w2", "blk.#.ffn_down"),
    LODE_HF_IS("layers.#.feed_forward.w3", "blk.#.ffn_up"),
    LODE_HF_CUT("layers.#.conv.conv", "blk.#.shortconv.conv", place_conv),
    LODE_HF_IS("layers.#.conv.in_proj", "blk.#.shortconv.in_proj"),
    LODE_HF_IS("layers.#.conv.out_proj", "blk.#.shortconv.out_proj"),
    LODE_HF_IS("layers.#.self_attn.out_proj", "blk.#.attn_output"),
    LODE_HF_IS("layers.#.self_attn.q_layernorm", "blk.#.attn_q_norm"),
    LODE_HF_IS("layers.#.self_attn.k_layernorm", "blk.#.attn_k_norm"),
    {0},
};

/* The FFN's width is two thirds of what the configuration says, rounded up. */
static int put_width(struct lode_hf *h, struct lode_error *err) {
    uint32_t width, multiple;
    double factor;
    LODE_TRY(lode_hf_count(h, "intermediate_size", 0, &width, err));
    LODE_TRY(lode_hf_count(h, "block_ff_dim", width, &width, err));
    LODE_TRY(lode_hf_count(h, "block_multiple_of", 256, &multiple, err));
    LODE_TRY(lode_hf_number(h, NULL, "block_ffn_dim_multiplier", 1, &factor, err));
    if (width <= 1 << 24 && lode_hf_flag(h, "block_auto_adjust_ff_dim", true)) {
        const double scaled = (2 * (uint64_t)width / 3) * factor;
        if (!multiple || multiple > 1 << 24 || !(scaled >= 1 && scaled <= 1 << 24))
            return lode_hf_fail_field(h, "block_multiple_of", "a count that fits the width", err);
        width = ((uint32_t)scaled + multiple - 1) / multiple * multiple;
    }
    return lode_hf_put_u32(h, "feed_forward_length", width, err);
}

/* Heads of keys in each layer: none in convolutions. */
static int put_kv_heads(struct lode_hf *h, struct lode_error *err) {
    const struct lode_json *types = lode_hf_field(h, "layer_types");
    const struct lode_json *which = lode_hf_field(h, "full_attn_idxs");
    uint32_t *counts = LODE_ARENA_ARRAY(&h->arena, uint32_t, h->n_layers), n_kv, l = 0;
    int64_t layer;
    LODE_TRY(lode_hf_count(h, "num_key_value_heads", 0, &n_kv, err));
    if (!counts)
        return lode_fail_nomem(err, "layer_types");
    for (const struct lode_json *c = lode_json_first(types); c && l < h->n_layers;
         c = lode_json_next(types, c), l++)
        counts[l] = lode_str_eqz(lode_json_str(c), "full_attention") ? n_kv : 0;
    for (const struct lode_json *c = types ? NULL : lode_json_first(which); c;
         c = lode_json_next(which, c)) {
        if (!lode_json_int(c, 0, (int64_t)h->n_layers - 1, &layer))
            return lode_hf_fail_field(h, "full_attn_idxs", "numbers of layers", err);
        counts[layer] = n_kv;
    }
    for (l = 0; l < h->n_layers && !types && !which; l++)
        counts[l] = n_kv;
    return lode_hf_put_counts(h, "attention.head_count_kv", counts, h->n_layers, err);
}

static int lfm2(struct lode_hf *h, struct lode_error *err) {
    uint32_t taps;
    LODE_TRY(lode_hf_count(h, "conv_L_cache", 3, &taps, err));
    LODE_TRY(lode_hf_put_u32(h, "shortconv.l_cache", taps, err));
    LODE_TRY(put_width(h, err));
    return put_kv_heads(h, err);
}

static const struct lode_hf_default next_defaults[] = {{"head_dim", 256},
                                                       {"linear_conv_kernel_dim", 4},
                                                       {"linear_key_head_dim", 128},
                                                       {"linear_num_key_heads", 16},
                                                       {"linear_num_value_heads", 32},
                                                       {"linear_value_head_dim", 128},
                                                       {"full_attention_interval", 4},
                                                       {"partial_rotary_factor", 0.25},
                                                       {0}};
static const struct lode_hf_default lfm2_defaults[] = {
    {"rope_theta", 1e6}, {"norm_eps", 1e-5}, {"tie_word_embeddings", 1}, {0}};

const struct lode_hf_family lode_hf_delta_families[] = {
    {.model_type = "qwen3_next",
     .arch = "qwen3next",
     .names = next_names,
     .defaults = next_defaults,
     .config = delta},
    {.model_type = "qwen3_5_text",
     .arch = "qwen35",
     .names = qwen35_names,
     .defaults = next_defaults,
     .config = qwen35},
    {.model_type = "qwen3_5_moe_text",
     .arch = "qwen35moe",
     .names = qwen35_names,
     .defaults = next_defaults,
     .config = qwen35},
    {.model_type = "lfm2",
     .arch = "lfm2",
     .names = lfm2_names,
     .defaults = lfm2_defaults,
     .config = lfm2,
     .refuse = "conv_bias"},
    {0},
};
