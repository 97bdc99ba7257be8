/* hf_fam_encoder.c - encoders: BERT, RoBERTa and its like, Nomic BERT; with a classifier, rerankers. */
#include "format/hf_parts.h"

#include "base/error.h"

/* ---- BERT and RoBERTa ---- */

#define EMBEDDINGS                                                                                 \
    LODE_HF_IS("embeddings.word_embeddings", "token_embd"),                                        \
        LODE_HF_IS("embeddings.token_type_embeddings", "token_types"),                             \
        LODE_HF_IS("embeddings.position_ids", "")

/* A norm's numbers, by the older names too. */
#define NORM(from, to)                                                                             \
    LODE_HF_IS(from, to), LODE_HF_IS(from ".gamma", to), LODE_HF_IS(from ".beta", to ".bias")

#define BERT_NAMES                                                                                 \
    EMBEDDINGS, NORM("embeddings.LayerNorm", "token_embd_norm"),                                   \
        LODE_HF_IS("encoder.layer.#.attention.self.query", "blk.#.attn_q"),                        \
        LODE_HF_IS("encoder.layer.#.attention.self.key", "blk.#.attn_k"),                          \
        LODE_HF_IS("encoder.layer.#.attention.self.value", "blk.#.attn_v"),                        \
        LODE_HF_IS("encoder.layer.#.attention.output.dense", "blk.#.attn_output"),                 \
        NORM("encoder.layer.#.attention.output.LayerNorm", "blk.#.attn_output_norm"),              \
        LODE_HF_IS("encoder.layer.#.intermediate.dense", "blk.#.ffn_up"),                          \
        LODE_HF_IS("encoder.layer.#.output.dense", "blk.#.ffn_down"),                              \
        NORM("encoder.layer.#.output.LayerNorm", "blk.#.layer_output_norm")

/* RoBERTa counts positions from the padding's id on, so that its table begins with rows that none has;
 * GGUF files leave them out. */
static uint32_t rows_before_positions(const struct lode_hf *h) {
    uint32_t padding;
    return lode_hf_count(h, "pad_token_id", 1, &padding, NULL) < 0 || padding > 1 << 20 ? 0
                                                                                        : padding + 1;
}

static int place_positions(struct lode_hf *h, const struct lode_st_tensor *s,
                           const struct lode_hf_spot *spot, struct lode_error *err) {
    char name[LODE_HF_NAME];
    const uint32_t skip = rows_before_positions(h);
    if (s->n_dims != 2 || s->dims[0] <= skip)
        return lode_fail(err, LODE_ERR_FORMAT, s->name, "its shape is not (positions, width)");
    const uint64_t rows = s->dims[0] - skip, cols = s->dims[1];
    const struct lode_hf_run run = {
        .from = s, .base = skip * cols, .n = {1, 1, rows, cols}, .step = {0, 0, cols, 1}};
    lode_hf_spot_name(spot, NULL, name);
    return lode_hf_add(h, name, NULL, 2, (uint64_t[]){cols, rows}, &run, 1, err);
}

/* What was there to train it: heads that predict masked tokens. */
#define MASK_HEAD(head)                                                                            \
    LODE_HF_IS(head ".dense", ""), LODE_HF_IS(head ".layer_norm", ""),                             \
        LODE_HF_IS(head ".LayerNorm", ""), LODE_HF_IS(head ".LayerNorm.gamma", ""),                \
        LODE_HF_IS(head ".LayerNorm.beta", "")

static const struct lode_hf_name bert_names[] = {
    BERT_NAMES,
    LODE_HF_IS("embeddings.position_embeddings", "position_embd"),
    LODE_HF_IS("pooler.dense", "cls"), /* of no use but to a classifier */
    LODE_HF_IS("classifier", "cls.output"),
    MASK_HEAD("cls.predictions.transform"),
    LODE_HF_IS("cls.predictions.bias", ""),
    LODE_HF_IS("cls.predictions.decoder", ""),
    LODE_HF_IS("cls.seq_relationship", ""),
    {0},
};

static const struct lode_hf_name roberta_names[] = {
    BERT_NAMES,
    LODE_HF_CUT("embeddings.position_embeddings", "position_embd", place_positions),
    LODE_HF_IS("classifier.dense", "cls"),
    LODE_HF_IS("classifier.out_proj", "cls.output"),
    LODE_HF_IS("pooler.dense", ""), /* the classifier has its own */
    MASK_HEAD("lm_head"),
    LODE_HF_IS("lm_head.bias", ""),
    LODE_HF_IS("lm_head.decoder", ""),
    {0},
};

static int encoder(struct lode_hf *h, struct lode_error *err) {
    static const char classifier[] = "ForSequenceClassification";
    const struct lode_str made = lode_json_str(lode_json_at(lode_hf_field(h, "architectures"), 0));
    const size_t n = sizeof classifier - 1;
    uint32_t parts;
    if (made.len > n && memcmp(made.data + made.len - n, classifier, n) == 0)
        LODE_TRY(lode_hf_put_u32(h, "pooling_type", 4, err)); /* rank */
    LODE_TRY(lode_hf_count(h, "type_vocab_size", 1, &parts, err));
    LODE_TRY(lode_hf_put_raw(h, "tokenizer.ggml.token_type_count",
                             (struct lode_gguf_value){.type = LODE_GGUF_U32, .u = parts}, err));
    return lode_hf_put_flag(h, "attention.causal", false, err);
}

static int bert(struct lode_hf *h, struct lode_error *err) {
    char word[LODE_HF_WORD];
    const char *kind = lode_hf_word(lode_hf_field(h, "position_embedding_type"), word);
    if (kind && strcmp(kind, "absolute") != 0)
        return lode_hf_refuse(h, "position_embedding_type", kind, err);
    return encoder(h, err);
}

static int roberta(struct lode_hf *h, struct lode_error *err) {
    uint32_t rows;
    const uint32_t skip = rows_before_positions(h);
    LODE_TRY(lode_hf_count(h, "max_position_embeddings", 512, &rows, err));
    if (rows <= skip)
        return lode_hf_refuse(h, "pad_token_id", "it leaves no positions", err);
    LODE_TRY(lode_hf_put_u32(h, "context_length", rows - skip, err));
    return bert(h, err);
}

/* ---- Nomic BERT ---- */

static const struct lode_hf_name nomic_names[] = {
    EMBEDDINGS,
    LODE_HF_IS("emb_ln", "token_embd_norm"),
    LODE_HF_IS("encoder.layers.#.attn.Wqkv", "blk.#.attn_qkv"),
    LODE_HF_IS("encoder.layers.#.attn.out_proj", "blk.#.attn_output"),
    LODE_HF_IS("encoder.layers.#.norm1", "blk.#.attn_output_norm"),
    LODE_HF_IS("encoder.layers.#.mlp.fc11", "blk.#.ffn_up"),
    LODE_HF_IS("encoder.layers.#.mlp.fc12", "blk.#.ffn_gate"),
    LODE_HF_IS("encoder.layers.#.mlp.fc2", "blk.#.ffn_down"),
    LODE_HF_IS("encoder.layers.#.norm2", "blk.#.layer_output_norm"),
    {0},
};

/* config.json by the published names, or by those of transformers 5. */
static int nomic(struct lode_hf *h, struct lode_error *err) {
    static const struct lode_hf_plain plain[] = {
        {"n_embd", "embedding_length", LODE_HF_COUNT},
        {"n_layer", "block_count", LODE_HF_COUNT},
        {"n_head", "attention.head_count", LODE_HF_COUNT},
        {"num_attention_heads", "attention.head_count", LODE_HF_COUNT},
        {"n_inner", "feed_forward_length", LODE_HF_COUNT},
        {"max_trained_positions", "context_length", LODE_HF_COUNT},
        {"n_positions", "context_length", LODE_HF_COUNT},
    };
    uint32_t sparse;
    double share;
    LODE_TRY(lode_hf_count(h, "n_layer", h->n_layers, &h->n_layers, err));
    LODE_TRY(lode_hf_count(h, "moe_every_n_layers", 0, &sparse, err));
    LODE_TRY(lode_hf_number(h, NULL, "rotary_emb_fraction", 1, &share, err));
    if (sparse)
        return lode_hf_refuse(h, "moe_every_n_layers", "experts are not supported here", err);
    if (share != 1)
        return lode_hf_refuse(h, "rotary_emb_fraction", "only 1 is supported", err);
    LODE_TRY(lode_hf_put_plain(h, plain, sizeof plain / sizeof *plain, err));
    return encoder(h, err);
}

static const struct lode_hf_default bert_defaults[] = {{"layer_norm_eps", 1e-12}, {0}};
static const struct lode_hf_default nomic_defaults[] = {{"rope_theta", 1000}, {0}};

#define BERT                                                                                       \
    .arch = "bert", .defaults = bert_defaults, .acts = " gelu ", .refuse = "is_decoder",           \
    .layer_norm = true
#define ROBERTA BERT, .names = roberta_names, .config = roberta

const struct lode_hf_family lode_hf_encoder_families[] = {
    {.model_type = "bert", BERT, .names = bert_names, .config = bert},
    {.model_type = "roberta", ROBERTA},
    {.model_type = "xlm-roberta", ROBERTA},
    {.model_type = "camembert", ROBERTA},
    {.model_type = "nomic_bert",
     .arch = "nomic-bert",
     .names = nomic_names,
     .defaults = nomic_defaults,
     .config = nomic,
     .acts = " silu swish swiglu ",
     .refuse = "prenorm parallel_block rotary_emb_interleaved use_rms_norm",
     .layer_norm = true},
    {0},
};
