/* standard - a decoder whose architecture is not known, but whose tensors are those of one that has
 * nothing of its own (ARC-19): norm, attention with grouped queries and rotation, norm, gated FFN;
 * norms on heads or after the blocks, biases, fused tensors, windows and sinks where the file has
 * them.  What is assumed is said, and a tensor that such a model has no use for is an error: better
 * no answer than one of another model. */
#include "model/build.h"

#include <stdio.h>

static bool has(const struct lode_source *s, const char *name) {
    return lode_source_tensor(s, name) != NULL;
}

bool lode_arch_fits(const struct lode_source *s) {
    static const char *const names[] = {"token_embd.weight",      "output_norm.weight",
                                        "blk.0.attn_norm.weight", "blk.0.attn_output.weight",
                                        "blk.0.ffn_norm.weight",  "blk.0.ffn_up.weight",
                                        "blk.0.ffn_down.weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!has(s, names[i]))
            return false;
    const struct lode_gguf_tensor *up = lode_source_tensor(s, "blk.0.ffn_up.weight");
    const struct lode_gguf_tensor *down = lode_source_tensor(s, "blk.0.ffn_down.weight");
    return (has(s, "blk.0.attn_q.weight") || has(s, "blk.0.attn_qkv.weight")) &&
           (has(s, "blk.0.ffn_gate.weight") || up->dims[1] / 2 == down->dims[0]);
}

/* What is read of ARCH.*; and parts of names that would change what is computed. */
static const char *const known[] = {"block_count",
                                    "context_length",
                                    "embedding_length",
                                    "feed_forward_length",
                                    "vocab_size",
                                    "attention.head_count",
                                    "attention.head_count_kv",
                                    "attention.key_length",
                                    "attention.value_length",
                                    "attention.layer_norm_epsilon",
                                    "attention.layer_norm_rms_epsilon",
                                    "attention.sliding_window",
                                    "attention.sliding_window_pattern",
                                    "rope.dimension_count",
                                    "rope.freq_base",
                                    "rope.scaling.type",
                                    "rope.scaling.factor",
                                    "rope.scaling.attn_factor",
                                    "rope.scaling.original_context_length",
                                    "rope.scaling.yarn_beta_fast",
                                    "rope.scaling.yarn_beta_slow",
                                    "rope.scaling.yarn_truncate",
                                    "rope.scale_linear",
                                    "gated_act"};
static const char *const harmful[] = {"scale", "cap",   "expert",   "lora",  "ssm",
                                      "alibi", "clamp", "parallel", "causal"};

static enum lode_glu gate_of(const struct lode_build *b) {
    struct lode_str act = {0};
    lode_source_arch_str(b->source, "gated_act", &act);
    return lode_str_eqz(act, "gelu") ? LODE_GLU_GELU : LODE_GLU_SILU;
}

static void look_at_keys(struct lode_build *b) {
    const char *arch = b->source->arch;
    const size_t n = strlen(arch);
    char list[256] = "";
    for (size_t i = 0; i < b->source->n_keys; i++) {
        const char *key = b->source->keys[i].key;
        bool fine = strncmp(key, arch, n) != 0 || key[n] != '.';
        for (size_t k = 0; k < sizeof known / sizeof *known && !fine; k++)
            fine = strcmp(key + n + 1, known[k]) == 0;
        if (fine)
            continue;
        for (size_t k = 0; k < sizeof harmful / sizeof *harmful; k++)
            if (strstr(key + n, harmful[k])) {
                lode_graph_fail(b->g, LODE_ERR_UNSUPPORTED, b->source->path,
                                "architecture '%.60s' is not known, and no standard decoder: it "
                                "has %.100s",
                                arch, key);
                return;
            }
        const size_t at = strlen(list);
        snprintf(list + at, sizeof list - at, "%s%.60s", at ? ", " : "", key + n + 1);
    }
    snprintf(b->note, sizeof b->note,
             "architecture '%.60s' is not known: it is run as a standard decoder (norm, attention "
             "with rotary pairs (i, i + n/2), norm, FFN with %s gate)%s%s",
             arch, gate_of(b) == LODE_GLU_GELU ? "a GELU" : "a SiLU",
             list[0] ? "; not looked at: " : "", list);
}

static bool layer_has(const struct lode_build *b, const char *name, uint32_t l) {
    char full[96];
    snprintf(full, sizeof full, "blk.%u.%s.weight", l, name);
    return lode_b_has(b, full);
}

/* Norms of query heads: of each head, or of the whole row. */
static enum lode_qk_norm qk_norm_of(const struct lode_build *b, uint32_t l) {
    char name[64];
    snprintf(name, sizeof name, "blk.%u.attn_q_norm.weight", l);
    const struct lode_gguf_tensor *t = lode_source_tensor(b->source, name);
    return !t ? LODE_QK_NONE : t->dims[0] == b->hp.head_dim ? LODE_QK_HEAD : LODE_QK_FULL;
}

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    const bool windowed = lode_b_count(b, "attention.sliding_window_pattern", l, 1) != 0;
    const struct lode_b_attn attn = {.qk_norm = qk_norm_of(b, l),
                                     .fused_qkv = layer_has(b, "attn_qkv", l),
                                     .window = windowed ? b->hp.window : 0};
    struct lode_node *h = lode_b_attention(b, lode_b_norm(b, x, "attn_norm", l), &x, l, &attn);
    if (layer_has(b, "post_attention_norm", l))
        h = lode_b_norm(b, h, "post_attention_norm", l);
    x = lode_g_add(b->g, x, h, 1.0f);
    h = lode_b_ffn(b, lode_b_norm(b, x, "ffn_norm", l), l, gate_of(b),
                   !layer_has(b, "ffn_gate", l));
    if (layer_has(b, "post_ffw_norm", l))
        h = lode_b_norm(b, h, "post_ffw_norm", l);
    return lode_g_add(b->g, x, h, 1.0f);
}

const struct lode_arch lode_arch_standard = {"standard", .all_used = true, .setup = look_at_keys,
                                             .layer = layer};
