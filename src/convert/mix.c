/* mix.c - the mixes, as llama-quantize's published rules have them: most matrices get the base
 * type, those that hurt most get more bits.
 *
 * A row of the table is read from the top: the first rule of the mix whose role and condition hold
 * decides.  Then come the rules of all mixes: what the output matrix gets, and models of eight
 * experts, whose attention is small beside their experts. */
#include "convert/mix.h"

#include <strings.h>

enum role { EMBED, OUTPUT, Q, K, V, QKV, KV_B, ATTN_OUT, UP, GATE, DOWN, OTHER };

enum when {
    ALWAYS,
    MORE,       /* the first and last eighth of the layers, and every third between */
    FIRST_2,    /* of the layers */
    FIRST_4,
    FIRST_8TH,
    FIRST_16TH,
    BLIND_8TH,  /* FIRST_8TH where no imatrix says what counts */
    GQA_4,      /* at least four query heads share a key head: keys and values are small */
};

struct rule {
    enum role role;
    enum when when;
    enum lode_dtype type;
};

struct lode_mix {
    const char *name, *about;
    uint32_t file_type;
    enum lode_dtype base;
    bool one, eight; /* the name is that of a type; ATTN_OUT is Q5_K with eight experts */
    struct rule rules[6];
};

#define END {OTHER, ALWAYS, LODE_NONE}
static const struct lode_mix mixes[] = {
    {"F32", "32-bit floats: exact, twice the size of BF16", 0, LODE_F32, true, false, {END}},
    {"F16", "16-bit floats with a small range", 1, LODE_F16, true, false, {END}},
    {"BF16", "16-bit floats with the range of 32-bit ones", 32, LODE_BF16, true, false, {END}},
    {"Q8_0", "8.5 bits a number: hardly told from 16", 7, LODE_Q8_0, true, false, {END}},
    {"Q6_K", "6.6 bits", 18, LODE_Q6_K, true, false, {END}},
    {"Q5_K_M", "5.7 bits: Q5_K, and Q6_K where it hurts", 17, LODE_Q5_K, false, false,
     {{V, MORE, LODE_Q6_K}, {QKV, MORE, LODE_Q6_K}, {KV_B, MORE, LODE_Q6_K},
      {DOWN, MORE, LODE_Q6_K}, END}},
    {"Q5_K_S", "5.5 bits: Q5_K", 16, LODE_Q5_K, false, false, {END}},
    {"Q4_K_M", "4.8 bits: Q4_K, and Q6_K where it hurts; a good default", 15, LODE_Q4_K, false,
     true,
     {{V, MORE, LODE_Q6_K}, {QKV, MORE, LODE_Q6_K}, {KV_B, MORE, LODE_Q6_K},
      {DOWN, MORE, LODE_Q6_K}, END}},
    {"Q4_K_S", "4.6 bits: Q4_K, and Q5_K in the first layers", 14, LODE_Q4_K, false, true,
     {{V, FIRST_4, LODE_Q5_K}, {QKV, FIRST_4, LODE_Q5_K}, {KV_B, FIRST_4, LODE_Q5_K},
      {DOWN, FIRST_8TH, LODE_Q5_K}, END}},
    {"Q3_K_L", "4.3 bits: Q3_K, and Q5_K where it hurts", 13, LODE_Q3_K, false, false,
     {{V, ALWAYS, LODE_Q5_K}, {QKV, ALWAYS, LODE_Q5_K}, {KV_B, ALWAYS, LODE_Q5_K},
      {DOWN, ALWAYS, LODE_Q5_K}, {ATTN_OUT, ALWAYS, LODE_Q5_K}, END}},
    {"Q3_K_M", "3.9 bits: Q3_K, and Q4_K or Q5_K where it hurts", 12, LODE_Q3_K, false, true,
     {{V, FIRST_2, LODE_Q5_K}, {V, ALWAYS, LODE_Q4_K}, {QKV, ALWAYS, LODE_Q4_K},
      {DOWN, FIRST_16TH, LODE_Q5_K}, {DOWN, ALWAYS, LODE_Q4_K}, {ATTN_OUT, ALWAYS, LODE_Q4_K}}},
    {"Q3_K_S", "3.5 bits: Q3_K", 11, LODE_Q3_K, false, true, {END}},
    {"Q2_K", "3.0 bits: Q2_K, and Q3_K where it hurts", 10, LODE_Q2_K, true, true,
     {{V, GQA_4, LODE_Q4_K}, {V, ALWAYS, LODE_Q3_K}, {QKV, ALWAYS, LODE_Q3_K},
      {DOWN, ALWAYS, LODE_Q3_K}, {ATTN_OUT, ALWAYS, LODE_Q3_K}, END}},
    {"IQ4_NL", "4.5 bits: 16 uneven levels, blocks of 32", 25, LODE_IQ4_NL, true, true,
     {{V, GQA_4, LODE_Q5_K}, {QKV, GQA_4, LODE_Q5_K}, {DOWN, BLIND_8TH, LODE_Q5_K}, END}},
    {"IQ4_XS", "4.3 bits: 16 uneven levels, blocks of 256", 30, LODE_IQ4_XS, true, true,
     {{V, GQA_4, LODE_Q5_K}, {QKV, GQA_4, LODE_Q5_K}, {DOWN, BLIND_8TH, LODE_Q5_K}, END}},
    {"Q5_1", "6 bits; older than Q5_K, for rows that are no multiple of 256", 9, LODE_Q5_1, true,
     false, {END}},
    {"Q5_0", "5.5 bits; as Q5_1", 8, LODE_Q5_0, true, false, {END}},
    {"Q4_1", "5 bits; older than Q4_K", 3, LODE_Q4_1, true, false, {END}},
    {"Q4_0", "4.5 bits; older than Q4_K", 2, LODE_Q4_0, true, false, {END}},
    {"MXFP4", "4.3 bits: 4-bit floats, a power of two for 32; the output Q8_0", 38, LODE_MXFP4,
     true, false, {END}},
    {"MXFP4_MOE", "MXFP4 for experts, Q8_0 for the rest", 38, LODE_MXFP4, false, false, {END}},
};

static const struct {
    const char *name, *mix;
} aliases[] = {{"Q5_K", "Q5_K_M"}, {"Q4_K", "Q4_K_M"}, {"Q3_K", "Q3_K_M"}};

const struct lode_mix *lode_mix_find(const char *name) {
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (strcasecmp(name, aliases[i].name) == 0)
            name = aliases[i].mix;
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++)
        if (strcasecmp(name, mixes[i].name) == 0)
            return &mixes[i];
    return NULL;
}

struct lode_convert_type lode_convert_type(size_t i) {
    if (i >= sizeof mixes / sizeof *mixes)
        return (struct lode_convert_type){0};
    return (struct lode_convert_type){mixes[i].name, mixes[i].about, !mixes[i].one};
}

uint32_t lode_mix_file_type(const struct lode_mix *m) { return m->file_type; }
enum lode_dtype lode_mix_base(const struct lode_mix *m) { return m->base; }
bool lode_mix_is_one(const struct lode_mix *m) { return m->one; }

static bool has(const char *name, const char *part) { return strstr(name, part) != NULL; }

static enum role role_of(const char *name) {
    static const struct {
        const char *part;
        enum role role;
    } parts[] = {
        {"attn_qkv.weight", QKV}, {"attn_kv_b.weight", KV_B}, {"attn_v.weight", V},
        {"attn_k.weight", K},     {"attn_q.weight", Q},       {"attn_output.weight", ATTN_OUT},
        {"ffn_up", UP},           {"ffn_gate", GATE},         {"ffn_down", DOWN},
    };
    if (strcmp(name, "output.weight") == 0)
        return OUTPUT;
    if (strcmp(name, "token_embd.weight") == 0 || strcmp(name, "per_layer_token_embd.weight") == 0)
        return EMBED;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (has(name, parts[i].part))
            return parts[i].role;
    return OTHER;
}

bool lode_mix_is_value(const char *name) {
    const enum role r = role_of(name);
    return r == V || r == QKV || r == KV_B;
}

static bool has_any(const char *name, const char *const *parts, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (has(name, parts[i]))
            return true;
    return false;
}
#define HAS_ANY(name, parts) has_any(name, parts, sizeof(parts) / sizeof *(parts))

static bool is_weight(const char *name) {
    const size_t n = strlen(name);
    return n > 7 && strcmp(name + n - 7, ".weight") == 0;
}

bool lode_mix_is_wide(const char *name, uint32_t n_dims) {
    static const char *const wide[] = {"_norm.weight",        "ffn_gate_inp",
                                       "ssm_conv1d",          "shortconv.conv.weight",
                                       "position_embd",       "token_types.weight",
                                       "altup_correct_coef",  "altup_predict_coef",
                                       "time_mix_first",      "time_mix_w",
                                       "time_mix_decay_w",    "time_mix_lerp_fused",
                                       "indexer.proj"};
    return n_dims < 2 || !is_weight(name) || HAS_ANY(name, wide);
}

bool lode_mix_is_matrix(const char *name, uint32_t n_dims) {
    static const char *const small[] = {"altup",         "laurel",   "per_layer_model_proj",
                                        "attn_rel_b.weight", "time_mix_", "indexer."};
    return !lode_mix_is_wide(name, n_dims) && !HAS_ANY(name, small);
}

static bool holds(enum when when, const struct lode_mix_model *m, uint32_t i, uint32_t n) {
    switch (when) {
    case ALWAYS:
        return true;
    case MORE:
        return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
    case FIRST_2:
        return i < 2;
    case FIRST_4:
        return i < 4;
    case FIRST_8TH:
        return i < n / 8;
    case FIRST_16TH:
        return i < n / 16;
    case BLIND_8TH:
        return !m->imatrix && i < n / 8;
    case GQA_4:
        return m->n_gqa >= 4;
    }
    return false;
}

/* The output matrix decides between all tokens at once: it gets six bits at least. */
static enum lode_dtype output_type(const struct lode_mix *mix, const struct lode_mix_model *m) {
    if (mix->base == LODE_F32 || mix->base == LODE_F16 || mix->base == LODE_BF16)
        return mix->base;
    return mix->base == LODE_Q8_0 || mix->base == LODE_MXFP4 || m->falcon ? LODE_Q8_0 : LODE_Q6_K;
}

enum lode_dtype lode_mix_type(const struct lode_mix *mix, const struct lode_mix_model *m,
                              const char *name, bool experts, uint32_t layer, uint32_t i_v) {
    const enum role role = role_of(name);
    const bool value = role == V || role == QKV || role == KV_B;
    if (role == OUTPUT || (role == EMBED && m->tied))
        return output_type(mix, m);
    if (strcmp(mix->name, "MXFP4_MOE") == 0)
        return experts ? LODE_MXFP4 : LODE_Q8_0;
    if (mix->base == LODE_MXFP4 && role == EMBED)
        return LODE_Q8_0;
    /* attention is small beside eight experts */
    if (m->n_experts == 8 && lode_dtypes[mix->base].block > 1) {
        if (value || role == K)
            return LODE_Q8_0;
        if (role == ATTN_OUT && mix->eight)
            return LODE_Q5_K;
    }
    for (size_t r = 0; r < sizeof mix->rules / sizeof *mix->rules; r++) {
        const struct rule *rule = &mix->rules[r];
        if (rule->type == LODE_NONE)
            break;
        const uint32_t i = value ? i_v : layer, n = value ? m->n_v : m->n_layers;
        if (rule->role == role && holds(rule->when, m, i, n))
            return rule->type;
    }
    return mix->base;
}

enum lode_dtype lode_mix_fit(enum lode_dtype want, uint64_t n) {
    static const struct {
        enum lode_dtype want, instead;
    } smaller[] = {{LODE_Q2_K, LODE_Q4_0}, {LODE_Q3_K, LODE_Q4_0}, {LODE_Q4_K, LODE_Q5_0},
                   {LODE_Q5_K, LODE_Q5_1}, {LODE_Q6_K, LODE_Q8_0}, {LODE_IQ4_XS, LODE_IQ4_NL}};
    if (n % lode_dtypes[want].block == 0)
        return want;
    for (size_t i = 0; i < sizeof smaller / sizeof *smaller; i++)
        if (smaller[i].want == want && n % lode_dtypes[smaller[i].instead].block == 0)
            return smaller[i].instead;
    return LODE_F16;
}
