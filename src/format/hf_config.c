/* hf_config.c - config.json in GGUF's words: fields, and what most families share. */
#include "format/hf_parts.h"

#include "base/error.h"

#include <math.h>
#include <stdio.h>

/* ---- putting keys ---- */

int lode_hf_put_raw(struct lode_hf *h, const char *key, struct lode_gguf_value v,
                    struct lode_error *err) {
    if (h->base.n_keys == LODE_HF_MAX_KEYS)
        return lode_fail(err, LODE_ERR_INTERNAL, key, "too many keys");
    const int rc = lode_map_put(&h->keys, lode_str(key), (uint32_t)h->base.n_keys, NULL);
    if (rc > 0)
        h->kv[h->base.n_keys++] = (struct lode_gguf_kv){key, v};
    return rc < 0 ? lode_fail_nomem(err, key) : 0;
}

int lode_hf_put(struct lode_hf *h, const char *key, struct lode_gguf_value v,
                struct lode_error *err) {
    const char *full = lode_arena_printf(&h->arena, "%s.%s", h->base.arch, key);
    return full ? lode_hf_put_raw(h, full, v, err) : lode_fail_nomem(err, key);
}

int lode_hf_put_u32(struct lode_hf *h, const char *key, uint64_t v, struct lode_error *err) {
    return lode_hf_put(h, key, (struct lode_gguf_value){.type = LODE_GGUF_U32, .u = v}, err);
}

int lode_hf_put_f64(struct lode_hf *h, const char *key, double v, struct lode_error *err) {
    /* GGUF keeps 32 bits of it, and so do we: the same model gives the same numbers */
    return lode_hf_put(h, key,
                       (struct lode_gguf_value){.type = LODE_GGUF_F32, .f = (double)(float)v}, err);
}

int lode_hf_put_flag(struct lode_hf *h, const char *key, bool v, struct lode_error *err) {
    return lode_hf_put(h, key, (struct lode_gguf_value){.type = LODE_GGUF_BOOL, .u = v}, err);
}

int lode_hf_put_word(struct lode_hf *h, const char *key, const char *s, struct lode_error *err) {
    return lode_hf_put(h, key, (struct lode_gguf_value){.type = LODE_GGUF_STR, .s = lode_str(s)},
                       err);
}

int lode_hf_put_counts(struct lode_hf *h, const char *key, const uint32_t *counts, uint32_t n,
                       struct lode_error *err) {
    const struct lode_gguf_array a = {.type = LODE_GGUF_U32, .n = n, .raw = counts};
    return lode_hf_put(h, key, (struct lode_gguf_value){.type = LODE_GGUF_ARRAY, .a = a}, err);
}

int lode_hf_put_flags(struct lode_hf *h, const char *key, const unsigned char *flags, uint32_t n,
                      struct lode_error *err) {
    const struct lode_gguf_array a = {.type = LODE_GGUF_BOOL, .n = n, .raw = flags};
    return lode_hf_put(h, key, (struct lode_gguf_value){.type = LODE_GGUF_ARRAY, .a = a}, err);
}

/* ---- reading fields ---- */

const struct lode_json *lode_hf_field(const struct lode_hf *h, const char *name) {
    const struct lode_json *v = lode_json_get(h->text, name);
    if (!v)
        v = lode_json_get(h->config, name);
    return lode_json_is(v, LODE_JSON_NULL) ? NULL : v;
}

int lode_hf_fail_field(const struct lode_hf *h, const char *name, const char *expected,
                       struct lode_error *err) {
    return lode_fail(err, LODE_ERR_FORMAT, h->config_path, "%s: %s expected", name, expected);
}

int lode_hf_refuse(const struct lode_hf *h, const char *field, const char *why,
                   struct lode_error *err) {
    return lode_fail(err, LODE_ERR_UNSUPPORTED, h->config_path, "%s: %s", field, why);
}

const char *lode_hf_word(const struct lode_json *v, char out[LODE_HF_WORD]) {
    if (!lode_json_is(v, LODE_JSON_STRING))
        return NULL;
    snprintf(out, LODE_HF_WORD, "%.*s", v->n < LODE_HF_WORD ? (int)v->n : LODE_HF_WORD, v->text);
    return out;
}

static bool default_of(const struct lode_hf *h, const char *name, double *out) {
    for (const struct lode_hf_default *d = h->family->defaults; d && d->field; d++)
        if (strcmp(d->field, name) == 0) {
            *out = d->value;
            return true;
        }
    return false;
}

int lode_hf_count(const struct lode_hf *h, const char *name, uint32_t otherwise, uint32_t *out,
                  struct lode_error *err) {
    const struct lode_json *v = lode_hf_field(h, name);
    double count = otherwise; /* a real, for 64.0 is a count too */
    default_of(h, name, &count);
    *out = (uint32_t)count;
    if (!v)
        return 0;
    if (!lode_json_real(v, &count) || !(count >= 0 && count <= UINT32_MAX) || count != floor(count))
        return lode_hf_fail_field(h, name, "a count", err);
    *out = (uint32_t)count;
    return 0;
}

int lode_hf_number(const struct lode_hf *h, const struct lode_json *o, const char *name,
                   double otherwise, double *out, struct lode_error *err) {
    const struct lode_json *v = o ? lode_json_get(o, name) : lode_hf_field(h, name);
    *out = otherwise;
    if (!o)
        default_of(h, name, out);
    if (!v || lode_json_is(v, LODE_JSON_NULL))
        return 0;
    return lode_json_real(v, out) ? 0 : lode_hf_fail_field(h, name, "a number", err);
}

bool lode_hf_flag(const struct lode_hf *h, const char *name, bool otherwise) {
    const struct lode_json *v = lode_hf_field(h, name);
    double value = otherwise;
    default_of(h, name, &value);
    return lode_json_is(v, LODE_JSON_TRUE)    ? true
           : lode_json_is(v, LODE_JSON_FALSE) ? false
                                              : value != 0;
}

/* ---- fields that become a key as they are ---- */

static const struct lode_hf_plain plain[] = {
    {"hidden_size", "embedding_length", LODE_HF_COUNT},
    {"num_hidden_layers", "block_count", LODE_HF_COUNT},
    {"intermediate_size", "feed_forward_length", LODE_HF_COUNT},
    {"num_attention_heads", "attention.head_count", LODE_HF_COUNT},
    {"num_key_value_heads", "attention.head_count_kv", LODE_HF_COUNT},
    {"max_position_embeddings", "context_length", LODE_HF_COUNT},
    {"vocab_size", "vocab_size", LODE_HF_COUNT},
    {"num_experts", "expert_count", LODE_HF_COUNT},
    {"num_local_experts", "expert_count", LODE_HF_COUNT}, /* transformers 5 */
    {"n_routed_experts", "expert_count", LODE_HF_COUNT},
    {"num_experts_per_tok", "expert_used_count", LODE_HF_COUNT},
    {"moe_intermediate_size", "expert_feed_forward_length", LODE_HF_COUNT},
    {"shared_expert_intermediate_size", "expert_shared_feed_forward_length", LODE_HF_COUNT},
    {"n_shared_experts", "expert_shared_count", LODE_HF_COUNT},
    {"first_k_dense_replace", "leading_dense_block_count", LODE_HF_COUNT},
    {"n_group", "expert_group_count", LODE_HF_COUNT},
    {"topk_group", "expert_group_used_count", LODE_HF_COUNT},
    {"routed_scaling_factor", "expert_weights_scale", LODE_HF_NUMBER},
    {"norm_topk_prob", "expert_weights_norm", LODE_HF_FLAG},
    {"embedding_multiplier", "embedding_scale", LODE_HF_NUMBER},
    {"residual_multiplier", "residual_scale", LODE_HF_NUMBER},
    {"attention_multiplier", "attention.scale", LODE_HF_NUMBER},
    {"logits_scaling", "logit_scale", LODE_HF_NUMBER},
    {"logit_scale", "logit_scale", LODE_HF_NUMBER},
};

int lode_hf_put_plain(struct lode_hf *h, const struct lode_hf_plain *list, size_t n,
                      struct lode_error *err) {
    for (size_t i = 0; i < n; i++) {
        const char *field = list[i].field;
        const struct lode_json *v = lode_hf_field(h, field);
        uint32_t count;
        double number;
        if (!v && !default_of(h, field, &number))
            continue;
        switch (list[i].kind) {
        case LODE_HF_FLAG:
            if (v && !lode_json_is(v, LODE_JSON_TRUE) && !lode_json_is(v, LODE_JSON_FALSE))
                return lode_hf_fail_field(h, field, "true or false", err);
            LODE_TRY(lode_hf_put_flag(h, list[i].key, lode_hf_flag(h, field, false), err));
            break;
        case LODE_HF_NUMBER:
            LODE_TRY(lode_hf_number(h, NULL, field, 0, &number, err));
            LODE_TRY(lode_hf_put_f64(h, list[i].key, number, err));
            break;
        case LODE_HF_COUNT:
            LODE_TRY(lode_hf_count(h, field, 0, &count, err));
            LODE_TRY(lode_hf_put_u32(h, list[i].key, count, err));
            break;
        }
    }
    return 0;
}

/* ---- what needs a thought ---- */

/* Whether a list " one two " has the word. */
static bool lists(const char *list, const char *word) {
    const size_t n = strlen(word);
    for (const char *at = list; n && (at = strstr(at, word)); at++)
        if (at > list && at[-1] == ' ' && at[n] == ' ')
            return true;
    return false;
}

static int check_activation(const struct lode_hf *h, struct lode_error *err) {
    static const char *const fields[] = {"hidden_activation", "hidden_act", "activation",
                                         "activation_function"};
    const char *acts = h->family->acts ? h->family->acts : " silu swish ";
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        char word[LODE_HF_WORD];
        const char *act = lode_hf_word(lode_hf_field(h, fields[i]), word);
        if (act && !lists(acts, act))
            return lode_fail(err, LODE_ERR_UNSUPPORTED, h->config_path,
                             "%s: %s is not what %s computes (%.*s)", fields[i], act,
                             h->family->model_type, (int)strlen(acts) - 2, acts + 1);
        if (act) /* Gemma's files say hidden_act too, and mean hidden_activation */
            return 0;
    }
    return 0;
}

static int check_supported(const struct lode_hf *h, struct lode_error *err) {
    char word[LODE_HF_WORD];
    uint32_t step;
    LODE_TRY(check_activation(h, err));
    for (const char *f = h->family->refuse; f && *f;) {
        f += strspn(f, " ");
        const size_t n = strcspn(f, " "), kept = n < sizeof word ? n : sizeof word - 1;
        memcpy(word, f, kept);
        word[kept] = 0;
        if (n && lode_json_is(lode_hf_field(h, word), LODE_JSON_TRUE))
            return lode_hf_refuse(h, word, "true is not supported for this model", err);
        f += n;
    }
    if (lode_hf_field(h, "clip_qkv"))
        return lode_hf_refuse(h, "clip_qkv", "not supported", err);
    if (lode_json_count(lode_hf_field(h, "mlp_only_layers")) > 0)
        return lode_hf_refuse(h, "mlp_only_layers",
                              "dense layers among the others are not supported", err);
    LODE_TRY(lode_hf_count(h, "decoder_sparse_step", 1, &step, err));
    return step == 1 ? 0 : lode_hf_refuse(h, "decoder_sparse_step", "only 1 is supported", err);
}

/* Whether layer l sees all positions, by the period. */
static bool sees_all(uint32_t l, uint32_t period) { return period && (l + 1) % period == 0; }

/* The period of a list of layer types; an error where they follow none. */
static int find_period(const struct lode_hf *h, const struct lode_json *list, uint32_t *period,
                       struct lode_error *err) {
    const uint32_t n_layers = h->n_layers;
    if (lode_json_count(list) < n_layers)
        return lode_hf_fail_field(h, "layer_types", "one entry a layer", err);
    *period = 0;
    uint32_t l = 0;
    const struct lode_json *c = lode_json_first(list);
    for (; l < n_layers && !*period; l++, c = lode_json_next(list, c))
        if (lode_str_eqz(lode_json_str(c), "full_attention"))
            *period = l + 1;
    for (l = 0, c = lode_json_first(list); l < n_layers; l++, c = lode_json_next(list, c))
        if (!lode_str_eqz(lode_json_str(c),
                          sees_all(l, *period) ? "full_attention" : "sliding_attention"))
            return lode_hf_refuse(h, "layer_types", "the layers follow no regular pattern", err);
    return 0;
}

static int read_window(struct lode_hf *h, struct lode_error *err) {
    const struct lode_hf_family *f = h->family;
    const struct lode_json *list = lode_hf_field(h, "layer_types");
    uint32_t window, period = f->period;
    if (!f->window)
        return 0;
    LODE_TRY(lode_hf_count(h, "sliding_window", 0, &window, err));
    if (lode_json_is(lode_hf_field(h, "use_sliding_window"), LODE_JSON_FALSE))
        window = 0;
    if (lode_json_is(list, LODE_JSON_ARRAY))
        LODE_TRY(find_period(h, list, &period, err));
    else if (lode_json_is(lode_hf_field(h, "sliding_window_pattern"), LODE_JSON_NUMBER))
        LODE_TRY(lode_hf_count(h, "sliding_window_pattern", 0, &period, err));
    else
        LODE_TRY(lode_hf_count(h, "_sliding_window_pattern", period, &period, err));
    if (period == 1) /* all layers see all */
        window = 0;
    if (window && f->any_period)
        LODE_TRY(lode_hf_put_u32(h, "attention.sliding_window_pattern", period, err));
    for (uint32_t l = 0; window && !f->any_period && l < h->n_layers; l++)
        if (sees_all(l, period) != sees_all(l, f->period))
            return lode_hf_refuse(h, "layer_types",
                                  "another pattern than this model's is not supported", err);
    return lode_hf_put_u32(h, "attention.sliding_window", window, err);
}

static int read_eps(struct lode_hf *h, struct lode_error *err) {
    static const char *const names[] = {"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon",
                                        "norm_epsilon", "norm_eps"};
    const bool mean = h->family->layer_norm;
    double eps = mean ? 1e-5 : 1e-6;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (lode_hf_field(h, names[i]) || default_of(h, names[i], &eps)) {
            LODE_TRY(lode_hf_number(h, NULL, names[i], eps, &eps, err));
            break;
        }
    return lode_hf_put_f64(
        h, mean ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", eps, err);
}

int lode_hf_put_dense_layers(struct lode_hf *h, struct lode_error *err) {
    const struct lode_json *list = lode_hf_field(h, "mlp_layer_types");
    uint32_t n = 0, l = 0;
    if (lode_hf_field(h, "first_k_dense_replace") || !list)
        return 0;
    for (const struct lode_json *c = lode_json_first(list); c; c = lode_json_next(list, c), l++) {
        const bool dense = lode_str_eqz(lode_json_str(c), "dense");
        if (dense && l > n)
            return lode_hf_refuse(h, "mlp_layer_types", "dense layers after sparse ones", err);
        n += dense;
    }
    return lode_hf_put_u32(h, "leading_dense_block_count", n, err);
}

int lode_hf_read_config(struct lode_hf *h, struct lode_error *err) {
    LODE_TRY(check_supported(h, err));
    LODE_TRY(lode_hf_count(h, "num_hidden_layers", 0, &h->n_layers, err));
    if (h->n_layers > 65536) /* as hparams.c says; here it bounds memory */
        return lode_fail(err, LODE_ERR_FORMAT, h->config_path, "%u layers are too many",
                         h->n_layers);
    h->base.half_order = !h->family->pairs;
    if (h->family->config) /* first, for a key that is there stays as it is */
        LODE_TRY(h->family->config(h, err));
    LODE_TRY(lode_hf_put_plain(h, plain, sizeof plain / sizeof *plain, err));
    LODE_TRY(read_eps(h, err));
    LODE_TRY(read_window(h, err));
    lode_source_arch_u32(&h->base, "expert_count", &h->n_experts);
    if (h->n_experts > 4096) /* the same */
        return lode_fail(err, LODE_ERR_FORMAT, h->config_path, "%u experts are too many",
                         h->n_experts);
    h->tied = lode_hf_flag(h, "tie_word_embeddings", false);
    return 0;
}
