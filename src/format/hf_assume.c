/* hf_assume.c - directories of models that are not known, but may be standard decoders: names and
 * settings decide (model/arch_standard.c has the other half). */
#include "format/hf_parts.h"

#include "base/error.h"

#include <stdio.h>

static const struct lode_hf_name post_norm[] = {
    LODE_HF_IS("layers.#.post_attention_layernorm", "blk.#.post_attention_norm"),
    {0},
};

/* Fields that are used, or say nothing of what is computed. */
static const char *const known[] = {"architectures",
                                    "attention_bias",
                                    "attention_dropout",
                                    "auto_map",
                                    "bos_token_id",
                                    "dtype",
                                    "embd_pdrop",
                                    "eos_token_id",
                                    "generation_config",
                                    "head_dim",
                                    "hidden_act",
                                    "hidden_activation",
                                    "hidden_dropout",
                                    "hidden_size",
                                    "initializer_range",
                                    "intermediate_size",
                                    "is_decoder",
                                    "layer_norm_eps",
                                    "layer_norm_epsilon",
                                    "layer_types",
                                    "max_position_embeddings",
                                    "max_window_layers",
                                    "mlp_bias",
                                    "model_type",
                                    "norm_eps",
                                    "norm_epsilon",
                                    "num_attention_heads",
                                    "num_hidden_layers",
                                    "num_key_value_heads",
                                    "original_max_position_embeddings",
                                    "pad_token_id",
                                    "partial_rotary_factor",
                                    "pretraining_tp",
                                    "quantization",
                                    "quantization_config",
                                    "resid_pdrop",
                                    "rms_norm_eps",
                                    "rope_parameters",
                                    "rope_scaling",
                                    "rope_theta",
                                    "rotary_pct",
                                    "sliding_window",
                                    "tie_word_embeddings",
                                    "torch_dtype",
                                    "transformers_version",
                                    "unk_token_id",
                                    "use_cache",
                                    "use_sliding_window",
                                    "vocab_size"};
/* Parts of the names of fields that change what is computed. */
static const char *const harmful[] = {
    "scale",      "scaling", "multiplier", "softcap", "alibi", "expert", "parallel",
    "rope",       "clip",    "lora",       "conv",    "ssm",   "state",  "pre_attn_scalar",
    "interleave", "mixer",   "memory"};

static bool is_one_of(const char *const *list, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], name) == 0)
            return true;
    return false;
}

/* Absent, false, nothing: what a model without the thing says. */
static bool says_nothing(const struct lode_json *v) {
    double number;
    return lode_json_is(v, LODE_JSON_NULL) || lode_json_is(v, LODE_JSON_FALSE) ||
           (lode_json_real(v, &number) && (number == 0 || number == 1)) ||
           (v->type >= LODE_JSON_ARRAY && lode_json_count(v) == 0);
}

/* false: a field asks for something that is not known.  list: those that were not looked at. */
static bool look_at_fields(const struct lode_hf *h, struct lode_buf *list) {
    for (const struct lode_json *c = lode_json_first(h->text); c; c = lode_json_next(h->text, c)) {
        char name[LODE_HF_WORD];
        snprintf(name, sizeof name, "%.*s", (int)(c->key_len < 60 ? c->key_len : 60), c->key);
        if (name[0] == '_' || says_nothing(c) ||
            is_one_of(known, sizeof known / sizeof *known, name))
            continue;
        for (size_t i = 0; i < sizeof harmful / sizeof *harmful; i++)
            if (strstr(name, harmful[i]))
                return false;
        if (list->len < 200)
            lode_buf_addf(list, "%s%s", list->len ? ", " : "", name);
    }
    return true;
}

/* The names of a standard decoder's first layer, as GGUF has them. */
enum { NORM, Q, QKV, OUT, FFN_NORM, GATE, UP, DOWN, EMBED, LAST, SANDWICH, N_NAMES };
static const char *const names[N_NAMES] = {[NORM] = "blk.#.attn_norm",
                                           [Q] = "blk.#.attn_q",
                                           [QKV] = "blk.#.attn_qkv",
                                           [OUT] = "blk.#.attn_output",
                                           [FFN_NORM] = "blk.#.ffn_norm",
                                           [GATE] = "blk.#.ffn_gate",
                                           [UP] = "blk.#.ffn_up",
                                           [DOWN] = "blk.#.ffn_down",
                                           [EMBED] = "token_embd",
                                           [LAST] = "output_norm",
                                           [SANDWICH] = "blk.#.post_ffw_norm"};

static bool find_names(const struct lode_hf *h, bool found[N_NAMES], bool *norm_bias) {
    *norm_bias = false;
    for (size_t i = 0; i < lode_st_n_tensors(h->st); i++) {
        struct lode_hf_spot spot;
        if (!lode_hf_find_spot(h, lode_st_tensor(h->st, i)->name, &spot) || spot.layer > 0)
            continue;
        for (int k = 0; k < N_NAMES; k++)
            found[k] = found[k] || strcmp(spot.name->gguf, names[k]) == 0;
        if (strcmp(spot.name->gguf, names[NORM]) == 0 && strcmp(spot.tail, ".bias") == 0)
            *norm_bias = true;
    }
    for (int k = 0; k < N_NAMES; k++)
        if (!found[k] && k != Q && k != QKV && k != GATE && k != SANDWICH)
            return false;
    return found[Q] || found[QKV];
}

/* Windows layer by layer, where config.json has the list. */
static int put_windows(struct lode_hf *h, struct lode_error *err) {
    const struct lode_json *types = lode_hf_field(h, "layer_types"), *c;
    uint32_t window, l = 0;
    LODE_TRY(lode_hf_count(h, "sliding_window", 0, &window, err));
    if (!window || lode_json_is(lode_hf_field(h, "use_sliding_window"), LODE_JSON_FALSE))
        return 0;
    LODE_TRY(lode_hf_put_u32(h, "attention.sliding_window", window, err));
    if (!types)
        return lode_hf_note(h, err, "sliding_window is taken for all layers");
    unsigned char *windowed = LODE_ARENA_ARRAY(&h->arena, unsigned char, h->n_layers);
    if (!windowed)
        return lode_fail_nomem(err, "layers");
    for (c = lode_json_first(types); c && l < h->n_layers; c = lode_json_next(types, c), l++) {
        const struct lode_str type = lode_json_str(c);
        windowed[l] = lode_str_eqz(type, "sliding_attention");
        if (!windowed[l] && !lode_str_eqz(type, "full_attention"))
            return lode_hf_refuse(h, "layer_types", "a type of layer that is not known", err);
    }
    if (l < h->n_layers)
        return lode_hf_fail_field(h, "layer_types", "one entry a layer", err);
    return lode_hf_put_flags(h, "attention.sliding_window_pattern", windowed, l, err);
}

static int config(struct lode_hf *h, struct lode_error *err) {
    char word[LODE_HF_WORD];
    const struct lode_json *act = lode_hf_field(h, "hidden_activation");
    const char *name = lode_hf_word(act ? act : lode_hf_field(h, "hidden_act"), word);
    if (name && strncmp(name, "gelu", 4) == 0)
        LODE_TRY(lode_hf_put_word(h, "gated_act", "gelu", err));
    return put_windows(h, err);
}

int lode_hf_assume(struct lode_hf *h, struct lode_error *err) {
    bool found[N_NAMES] = {false}, norm_bias;
    struct lode_buf list = {0};
    h->own = (struct lode_hf_family){.model_type = "a standard decoder",
                                     .arch = h->base.arch,
                                     .config = config,
                                     .acts = " silu swish gelu_pytorch_tanh gelu_new gelu_fast ",
                                     .any_period = true};
    h->family = &h->own;
    int rc = 0;
    if (!find_names(h, found, &norm_bias) || !look_at_fields(h, &list)) {
        h->family = NULL;
    } else {
        h->own.layer_norm =
            norm_bias ||
            (!lode_hf_field(h, "rms_norm_eps") &&
             (lode_hf_field(h, "layer_norm_eps") || lode_hf_field(h, "layer_norm_epsilon")));
        if (found[SANDWICH]) /* then post_attention_layernorm is what it says */
            h->own.names = post_norm;
        if (list.failed)
            rc = lode_fail_nomem(err, "fields");
        else if (list.len)
            rc = lode_hf_note(h, err, "config.json: not looked at: %s", list.data);
    }
    lode_buf_free(&list);
    return rc;
}
