/* hf_names.c - from the names of a directory's tensors to GGUF's. */
#include "format/hf_parts.h"

#include <stdio.h>

/* What most families call them.  The norm before the FFN is post_attention_layernorm after Llama;
 * families where that one is what it says have a line of their own. */
static const struct lode_hf_name common[] = {
    LODE_HF_IS("embed_tokens", "token_embd"),
    LODE_HF_IS("norm", "output_norm"),
    LODE_HF_IS("lm_head", "output"),
    LODE_HF_IS("layers.#.input_layernorm", "blk.#.attn_norm"),
    LODE_HF_IS("layers.#.self_attn.q_proj", "blk.#.attn_q"),
    LODE_HF_IS("layers.#.self_attn.k_proj", "blk.#.attn_k"),
    LODE_HF_IS("layers.#.self_attn.v_proj", "blk.#.attn_v"),
    LODE_HF_IS("layers.#.self_attn.qkv_proj", "blk.#.attn_qkv"),
    LODE_HF_IS("layers.#.self_attn.o_proj", "blk.#.attn_output"),
    LODE_HF_IS("layers.#.self_attn.q_norm", "blk.#.attn_q_norm"),
    LODE_HF_IS("layers.#.self_attn.k_norm", "blk.#.attn_k_norm"),
    LODE_HF_IS("layers.#.post_attention_layernorm", "blk.#.ffn_norm"),
    LODE_HF_IS("layers.#.pre_feedforward_layernorm", "blk.#.ffn_norm"),
    LODE_HF_IS("layers.#.post_feedforward_layernorm", "blk.#.post_ffw_norm"),
    LODE_HF_IS("layers.#.mlp.gate_proj", "blk.#.ffn_gate"),
    LODE_HF_IS("layers.#.mlp.up_proj", "blk.#.ffn_up"),
    LODE_HF_IS("layers.#.mlp.gate_up_proj", "blk.#.ffn_up"),
    LODE_HF_IS("layers.#.mlp.down_proj", "blk.#.ffn_down"),
    LODE_HF_IS("layers.#.mlp.gate", "blk.#.ffn_gate_inp"),
    LODE_HF_IS("layers.#.block_sparse_moe.gate", "blk.#.ffn_gate_inp"),
    LODE_HF_IS("layers.#.mlp.gate.e_score_correction_bias", "blk.#.exp_probs_b.bias"),
    LODE_HF_IS("layers.#.mlp.shared_experts.gate_proj", "blk.#.ffn_gate_shexp"),
    LODE_HF_IS("layers.#.mlp.shared_experts.up_proj", "blk.#.ffn_up_shexp"),
    LODE_HF_IS("layers.#.mlp.shared_experts.down_proj", "blk.#.ffn_down_shexp"),
    LODE_HF_IS("layers.#.mlp.shared_expert.gate_proj", "blk.#.ffn_gate_shexp"),
    LODE_HF_IS("layers.#.mlp.shared_expert.up_proj", "blk.#.ffn_up_shexp"),
    LODE_HF_IS("layers.#.mlp.shared_expert.down_proj", "blk.#.ffn_down_shexp"),
    LODE_HF_IS("layers.#.mlp.shared_expert_gate", "blk.#.ffn_gate_inp_shexp"),
    LODE_HF_CUT("layers.#.mlp.experts.#.gate_proj", "blk.#.ffn_gate_exps", lode_hf_place_expert),
    LODE_HF_CUT("layers.#.mlp.experts.#.up_proj", "blk.#.ffn_up_exps", lode_hf_place_expert),
    LODE_HF_CUT("layers.#.mlp.experts.#.down_proj", "blk.#.ffn_down_exps", lode_hf_place_expert),
    LODE_HF_CUT("layers.#.block_sparse_moe.experts.#.w1", "blk.#.ffn_gate_exps",
                lode_hf_place_expert),
    LODE_HF_CUT("layers.#.block_sparse_moe.experts.#.w3", "blk.#.ffn_up_exps",
                lode_hf_place_expert),
    LODE_HF_CUT("layers.#.block_sparse_moe.experts.#.w2", "blk.#.ffn_down_exps",
                lode_hf_place_expert),
    LODE_HF_CUT("layers.#.mlp.experts.gate_up_proj", "blk.#.ffn_gate_exps", lode_hf_place_gate_up),
    LODE_HF_IS("layers.#.mlp.experts.down_proj", "blk.#.ffn_down_exps"),
    LODE_HF_IS("layers.#.mlp.switch_mlp.gate_proj", "blk.#.ffn_gate_exps"), /* MLX */
    LODE_HF_IS("layers.#.mlp.switch_mlp.up_proj", "blk.#.ffn_up_exps"),
    LODE_HF_IS("layers.#.mlp.switch_mlp.down_proj", "blk.#.ffn_down_exps"),
    LODE_HF_IS("layers.#.block_sparse_moe.switch_mlp.gate_proj", "blk.#.ffn_gate_exps"),
    LODE_HF_IS("layers.#.block_sparse_moe.switch_mlp.up_proj", "blk.#.ffn_up_exps"),
    LODE_HF_IS("layers.#.block_sparse_moe.switch_mlp.down_proj", "blk.#.ffn_down_exps"),
    /* buffers that the configuration says again */
    LODE_HF_IS("rotary_emb.inv_freq", ""),
    LODE_HF_IS("layers.#.self_attn.rotary_emb.inv_freq", ""),
    {0},
};

static bool skip_prefix(const char **s, const char *prefix) {
    const size_t n = strlen(prefix);
    if (strncmp(*s, prefix, n) != 0)
        return false;
    *s += n;
    return true;
}

/* The length of a number between dots (or at the end), without leading zeros; 0: it is none. */
static size_t number_at(const char *s, int64_t *out) {
    size_t n = 0;
    *out = 0;
    for (; s[n] >= '0' && s[n] <= '9' && n < 7; n++)
        *out = *out * 10 + (s[n] - '0');
    return n == 0 || n > 6 || (s[n] != '.' && s[n]) || (n > 1 && s[0] == '0') ? 0 : n;
}

/* name with # for its numbers; false: too long, or more than two of them. */
static bool make_pattern(const char *name, char *out, size_t cap, struct lode_hf_spot *spot) {
    size_t n = 0;
    bool start = true; /* of a component */
    spot->layer = spot->expert = LODE_HF_NONE;
    while (*name) {
        int64_t number;
        const size_t digits = start ? number_at(name, &number) : 0;
        if (n + 2 > cap || (digits && spot->expert != LODE_HF_NONE))
            return false;
        start = *name == '.';
        if (digits)
            *(spot->layer == LODE_HF_NONE ? &spot->layer : &spot->expert) = number;
        out[n++] = digits ? '#' : *name;
        name += digits ? digits : 1;
    }
    out[n] = '\0';
    return true;
}

static const struct lode_hf_name *look_up(const struct lode_hf_name *list, const char *pattern,
                                          size_t n) {
    for (; list && list->hf; list++)
        if (strncmp(list->hf, pattern, n) == 0 && !list->hf[n])
            return list;
    return NULL;
}

bool lode_hf_find_spot(const struct lode_hf *h, const char *name, struct lode_hf_spot *out) {
    static const char *const prefixes[] = {"model.language_model.", "language_model.model.",
                                           "language_model.",       "model.",
                                           "transformer.",          "gpt_neox.",
                                           "bert.",                 "roberta."};
    char pattern[LODE_ST_MAX_NAME + 1];
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (skip_prefix(&name, prefixes[i]))
            break;
    if (!make_pattern(name, pattern, sizeof pattern, out))
        return false;
    const char *dot = strrchr(pattern, '.');
    const size_t lengths[2] = {strlen(pattern), dot ? (size_t)(dot - pattern) : 0};
    const struct lode_hf_name *const lists[2] = {h->family->names, common};
    for (int with_tail = 0; with_tail < 2; with_tail++)
        for (int l = 0; l < 2 && lengths[with_tail]; l++) {
            out->name = look_up(lists[l], pattern, lengths[with_tail]);
            out->tail = with_tail ? strrchr(name, '.') : "";
            if (out->name)
                return true;
        }
    return false;
}

static bool ends_in(const char *s, const char *end) {
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

void lode_hf_spot_name(const struct lode_hf_spot *spot, const char *stem, char out[LODE_HF_NAME]) {
    if (!stem)
        stem = spot->name->gguf;
    const char *number = strchr(stem, '#');
    const bool full = ends_in(stem, ".bias") || ends_in(stem, ".ssm_a"); /* GGUF's name is that */
    const char *tail = spot->tail[0] || full ? spot->tail : ".weight";
    if (number)
        snprintf(out, LODE_HF_NAME, "%.*s%u%s%s", (int)(number - stem), stem, (uint32_t)spot->layer,
                 number + 1, tail);
    else
        snprintf(out, LODE_HF_NAME, "%s%s", stem, tail);
}
