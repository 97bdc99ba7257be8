/* hf_tensors.c - the tensors of a directory under GGUF's names. */
#include "format/hf_parts.h"

#include "base/error.h"

#include <stdio.h>

static const struct {
    const char *hf, *gguf;
} tops[] = {
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm"},
    {"lm_head", "output"},
};

/* Within a layer.  The norm before the FFN is post_attention_layernorm in most families, after
 * Llama, but in some that one comes after the attention, as it says (post_norm). */
static const struct {
    const char *hf, *gguf;
} stems[] = {
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate", "ffn_gate_inp"},
    {"block_sparse_moe.gate", "ffn_gate_inp"},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
};

/* Of one expert, after "experts.N.". */
static const struct {
    const char *hf, *gguf;
} experts[] = {
    {"gate_proj", "ffn_gate_exps"}, {"up_proj", "ffn_up_exps"}, {"down_proj", "ffn_down_exps"},
    {"w1", "ffn_gate_exps"},        {"w3", "ffn_up_exps"},      {"w2", "ffn_down_exps"},
};

/* Where a name of the directory leads: name "" means that the model has no use for it. */
struct place {
    char name[LODE_GGUF_MAX_NAME + 1];
    bool is_expert;
    uint32_t expert;
};

static bool skip_prefix(const char **s, const char *prefix) {
    const size_t n = strlen(prefix);
    if (strncmp(*s, prefix, n) != 0)
        return false;
    *s += n;
    return true;
}

/* A number and a dot. */
static bool skip_index(const char **s, uint32_t *out) {
    const char *p = *s;
    uint32_t n = 0;
    for (; *p >= '0' && *p <= '9' && p - *s < 6; p++)
        n = n * 10 + (uint32_t)(*p - '0');
    if (p == *s || *p != '.' || (**s == '0' && p - *s > 1))
        return false;
    *out = n;
    *s = p + 1;
    return true;
}

/* "weight" or "bias" behind the stem `stem`; NULL: another name. */
static const char *tail_of(const char *name, const char *stem) {
    if (!skip_prefix(&name, stem) || *name++ != '.')
        return NULL;
    return strcmp(name, "weight") == 0 || strcmp(name, "bias") == 0 ? name : NULL;
}

static void place_in_layer(const struct lode_hf *h, const char *s, uint32_t l, struct place *out) {
    const char *tail, *name = s;
    if (strcmp(s, "mlp.gate.e_score_correction_bias") == 0) {
        snprintf(out->name, sizeof out->name, "blk.%u.exp_probs_b.bias", l);
        return;
    }
    if ((tail = tail_of(s, "post_attention_layernorm"))) {
        snprintf(out->name, sizeof out->name, "blk.%u.%s.%s", l,
                 h->family->post_norm ? "post_attention_norm" : "ffn_norm", tail);
        return;
    }
    for (size_t i = 0; i < sizeof stems / sizeof *stems; i++)
        if ((tail = tail_of(s, stems[i].hf))) {
            snprintf(out->name, sizeof out->name, "blk.%u.%s.%s", l, stems[i].gguf, tail);
            return;
        }
    if ((!skip_prefix(&name, "mlp.experts.") && !skip_prefix(&name, "block_sparse_moe.experts.")) ||
        !skip_index(&name, &out->expert))
        return;
    for (size_t i = 0; i < sizeof experts / sizeof *experts; i++)
        if ((tail = tail_of(name, experts[i].hf))) {
            out->is_expert = true;
            snprintf(out->name, sizeof out->name, "blk.%u.%s.%s", l, experts[i].gguf, tail);
            return;
        }
}

static void find_place(const struct lode_hf *h, const char *s, uint32_t n_layers,
                       struct place *out) {
    static const char *const prefixes[] = {"model.language_model.", "language_model.model.",
                                           "language_model.", "model."};
    const char *tail;
    uint32_t l;
    *out = (struct place){.name = ""};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (skip_prefix(&s, prefixes[i]))
            break;
    if (skip_prefix(&s, "layers.")) {
        if (skip_index(&s, &l) && l < n_layers)
            place_in_layer(h, s, l, out);
        return;
    }
    for (size_t i = 0; i < sizeof tops / sizeof *tops; i++)
        if ((tail = tail_of(s, tops[i].hf)) && !(h->tied && strcmp(tops[i].hf, "lm_head") == 0))
            snprintf(out->name, sizeof out->name, "%s.%s", tops[i].gguf, tail);
}

static bool dtype_of(const struct lode_st_tensor *t, enum lode_dtype *type) {
    if (lode_hf_linear(t)) {
        *type = lode_hf_linear(t)->type;
        return true;
    }
    *type = t->type == LODE_ST_F32 ? LODE_F32 : t->type == LODE_ST_F16 ? LODE_F16 : LODE_BF16;
    return t->type == LODE_ST_F32 || t->type == LODE_ST_F16 || t->type == LODE_ST_BF16;
}

/* The next free tensor, by a name that is new. */
static int add(struct lode_hf *h, const char *name, uint32_t n_pieces, struct lode_error *err) {
    const uint32_t i = (uint32_t)h->base.n_tensors;
    const char *copy = lode_arena_strndup(&h->arena, name, strlen(name));
    h->homes[i] = (struct lode_hf_home){
        .pieces = LODE_ARENA_ARRAY(&h->arena, const struct lode_st_tensor *, n_pieces),
        .n_pieces = n_pieces};
    h->tensors[i] = (struct lode_gguf_tensor){.name = copy, .dims = {1, 1, 1, 1}};
    if (!copy || !h->homes[i].pieces || lode_map_put(&h->names, lode_str(copy), i, NULL) < 0)
        return lode_fail_nomem(err, name);
    h->base.n_tensors++;
    return 0;
}

/* Type and shape from the first piece. */
static int describe(struct lode_hf *h, uint32_t i, const struct lode_st_tensor *s, bool stacked,
                    struct lode_error *err) {
    struct lode_gguf_tensor *t = &h->tensors[i];
    struct lode_hf_home *home = &h->homes[i];
    if (!dtype_of(s, &t->type))
        return lode_fail(err, LODE_ERR_UNSUPPORTED, s->name,
                         "its dtype is %s; F32, F16 and BF16 are supported in directories",
                         lode_st_type_name(s->type));
    if (s->n_dims == 0 || s->n_dims > 2)
        return lode_fail(err, LODE_ERR_FORMAT, s->name, "it has %u dimensions; 1 or 2 expected",
                         s->n_dims);
    for (uint32_t d = 0; d < s->n_dims; d++)
        t->dims[d] = s->dims[s->n_dims - 1 - d];
    t->n_dims = s->n_dims;
    t->size = s->size;
    if (stacked) {
        t->dims[2] = home->n_pieces;
        t->n_dims = 3;
        if (__builtin_mul_overflow(t->size, home->n_pieces, &t->size))
            return lode_fail(err, LODE_ERR_FORMAT, s->name, "all experts together are too large");
    }
    const char *stem_end = strstr(t->name, "norm.weight");
    home->plus_one = h->family->plus_one && stem_end && s->n_dims == 1;
    if (home->plus_one) {
        t->type = LODE_F32;
        t->size = (size_t)t->dims[0] * sizeof(float); /* at most twice its bytes in the file */
    }
    return 0;
}

static int take(struct lode_hf *h, const struct lode_st_tensor *s, const struct place *p,
                uint32_t n_experts, struct lode_error *err) {
    uint32_t i = lode_map_get(&h->names, lode_str(p->name));
    const uint32_t at = p->is_expert ? p->expert : 0;
    if (p->is_expert && p->expert >= n_experts)
        return lode_fail(err, LODE_ERR_FORMAT, s->name,
                         "config.json says that there are %u experts", n_experts);
    if (i == LODE_MAP_NONE) {
        i = (uint32_t)h->base.n_tensors;
        LODE_TRY(add(h, p->name, p->is_expert ? n_experts : 1, err));
        LODE_TRY(describe(h, i, s, p->is_expert, err));
    }
    const struct lode_st_tensor **slot = &h->homes[i].pieces[at];
    if (*slot)
        return lode_fail(err, LODE_ERR_FORMAT, s->name, "it is the same as %s", (*slot)->name);
    *slot = s;
    return 0;
}

/* Every expert is there and like the others. */
static int check_stack(const struct lode_hf *h, uint32_t i, struct lode_error *err) {
    const struct lode_gguf_tensor *t = &h->tensors[i];
    const struct lode_hf_home *home = &h->homes[i];
    for (uint32_t e = 0; e < home->n_pieces && home->n_pieces > 1; e++) {
        const struct lode_st_tensor *s = home->pieces[e];
        enum lode_dtype type;
        if (!s)
            return lode_fail(err, LODE_ERR_MISSING, h->base.path, "%s of expert %u is missing",
                             t->name, e);
        if (!dtype_of(s, &type) || type != t->type || s->n_dims != 2 || s->dims[1] != t->dims[0] ||
            s->dims[0] != t->dims[1])
            return lode_fail(err, LODE_ERR_FORMAT, s->name,
                             "its dtype or shape is not that of the other experts");
    }
    return 0;
}

int lode_hf_read_tensors(struct lode_hf *h, struct lode_error *err) {
    size_t n;
    uint32_t n_layers, n_experts = 0;
    LODE_TRY(lode_hf_count(h, "num_hidden_layers", 0, &n_layers, err));
    lode_source_arch_u32(&h->base, "expert_count", &n_experts);
    if (n_experts > 4096) /* as hparams.c says; here it bounds memory */
        return lode_fail(err, LODE_ERR_FORMAT, h->config_path, "%u experts are too many",
                         n_experts);
    LODE_TRY(lode_hf_find_linears(&h->linears, &h->arena, h->st, h->config, h->config_path, err));
    n = h->linears.n_inputs;
    h->tensors = LODE_ARENA_ARRAY(&h->arena, struct lode_gguf_tensor, n + LODE_HF_MAX_MADE);
    h->homes = LODE_ARENA_ARRAY(&h->arena, struct lode_hf_home, n + LODE_HF_MAX_MADE);
    if (!h->tensors || !h->homes)
        return lode_fail_nomem(err, "list of tensors");
    h->base.tensors = h->tensors;
    for (size_t i = 0; i < n; i++) {
        const struct lode_st_tensor *s = h->linears.inputs[i];
        struct place p;
        find_place(h, s->name, n_layers, &p);
        if (!p.name[0])
            continue;
        LODE_TRY(lode_hf_describe_linear(&h->linears, s, err));
        LODE_TRY(take(h, s, &p, n_experts, err));
    }
    for (uint32_t i = 0; i < h->base.n_tensors; i++)
        LODE_TRY(check_stack(h, i, err));
    return 0;
}

int lode_hf_add_made(struct lode_hf *h, const char *name, const float *numbers, uint32_t n,
                     struct lode_error *err) {
    const uint32_t i = (uint32_t)h->base.n_tensors;
    LODE_TRY(add(h, name, 1, err));
    h->homes[i].made = numbers;
    h->tensors[i].type = LODE_F32;
    h->tensors[i].n_dims = 1;
    h->tensors[i].dims[0] = n;
    h->tensors[i].size = n * sizeof *numbers;
    return 0;
}
