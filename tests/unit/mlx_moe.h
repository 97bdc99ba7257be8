/* mlx_moe.h - writes a small mixture with random weights in the form of mlx-lm, affine with 4 bits in groups
 * of 64: parts of a weight lie apart (codes, scales, biases), so its experts and layers are converted on
 * their way when they are streamed. */
#ifndef MLX_MOE_H
#define MLX_MOE_H

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { MLX_LAYERS = 3, MLX_EXPERTS = 8, MLX_HIDDEN = 128, MLX_HEAD = 64, MLX_FF = 64, MLX_VOCAB = 640, MLX_GROUP = 64 };

struct mlx_moe {
    char dir[32], file[64]; /* of the weights */
};

struct mlx_writer {
    char head[1 << 16], data[1 << 20];
    size_t n_head, n_data;
    uint64_t n_random;
};

static uint16_t mlx_random(struct mlx_writer *w) { return (uint16_t)(lode_rng_uniform(11, w->n_random++, 0) * 65536); }

/* Names it, and gives its bytes as 16-bit words. */
static uint16_t *mlx_add(struct mlx_writer *w, const char *name, const char *part, const char *type,
                         const char *shape, size_t n_words) {
    uint16_t *at = (uint16_t *)(w->data + w->n_data);
    const int n = snprintf(w->head + w->n_head, sizeof w->head - w->n_head,
                           "%c\"%s%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                           w->n_head ? ',' : '{', name, part, type, shape, w->n_data, w->n_data + 2 * n_words);
    w->n_head += (size_t)n;
    w->n_data += 2 * n_words;
    assert_true(w->n_head + 1 < sizeof w->head && w->n_data <= sizeof w->data);
    return at;
}

/* BF16 of 1/16 to 1/4, of both signs; cols 0: a norm's ones. */
static void mlx_plain(struct mlx_writer *w, const char *name, unsigned rows, unsigned cols) {
    char shape[32];
    snprintf(shape, sizeof shape, cols ? "[%u,%u]" : "[%u]", rows, cols);
    const size_t n = (size_t)rows * (cols ? cols : 1);
    uint16_t *to = mlx_add(w, name, ".weight", "BF16", shape, n);
    for (size_t i = 0; i < n; i++) {
        const uint16_t r = mlx_random(w);
        to[i] = cols ? (uint16_t)((r & 0x8000) | (0x3d80 + (r & 0xff))) : 0x3f80;
    }
}

static void mlx_packed(struct mlx_writer *w, const char *name, unsigned rows, unsigned cols) {
    const size_t n_groups = (size_t)rows * (cols / MLX_GROUP);
    char shape[32];
    snprintf(shape, sizeof shape, "[%u,%u]", rows, cols / 8);
    uint16_t *codes = mlx_add(w, name, ".weight", "U32", shape, (size_t)rows * cols / 4);
    for (size_t i = 0; i < (size_t)rows * cols / 4; i++)
        codes[i] = mlx_random(w);
    snprintf(shape, sizeof shape, "[%u,%u]", rows, cols / MLX_GROUP);
    uint16_t *scales = mlx_add(w, name, ".scales", "F16", shape, n_groups);
    uint16_t *biases = mlx_add(w, name, ".biases", "F16", shape, n_groups);
    for (size_t i = 0; i < n_groups; i++) {
        scales[i] = (uint16_t)(0x2400 + mlx_random(w) % 0x400); /* 1/64 to 1/32 */
        biases[i] = (uint16_t)(0x8000 | (scales[i] + (3 << 10))); /* times -8 */
    }
}

static void mlx_layer(struct mlx_writer *w, unsigned layer) {
    static const struct {
        const char *name;
        unsigned rows, cols; /* cols 0: a norm */
        bool packed;
    } parts[] = {{"input_layernorm", MLX_HIDDEN, 0, false},
                 {"post_attention_layernorm", MLX_HIDDEN, 0, false},
                 {"self_attn.q_norm", MLX_HEAD, 0, false},
                 {"self_attn.k_norm", MLX_HEAD, 0, false},
                 {"self_attn.q_proj", 2 * MLX_HEAD, MLX_HIDDEN, true},
                 {"self_attn.k_proj", MLX_HEAD, MLX_HIDDEN, true},
                 {"self_attn.v_proj", MLX_HEAD, MLX_HIDDEN, true},
                 {"self_attn.o_proj", MLX_HIDDEN, 2 * MLX_HEAD, true},
                 {"mlp.gate", MLX_EXPERTS, MLX_HIDDEN, false}};
    static const char *const matrices[] = {"gate", "up", "down"};
    char name[64];
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        snprintf(name, sizeof name, "model.layers.%u.%s", layer, parts[i].name);
        (parts[i].packed ? mlx_packed : mlx_plain)(w, name, parts[i].rows, parts[i].cols);
    }
    for (unsigned e = 0; e < MLX_EXPERTS; e++)
        for (size_t k = 0; k < 3; k++) {
            snprintf(name, sizeof name, "model.layers.%u.mlp.experts.%u.%s_proj", layer, e, matrices[k]);
            mlx_packed(w, name, k < 2 ? MLX_FF : MLX_HIDDEN, k < 2 ? MLX_HIDDEN : MLX_FF);
        }
}

static const char mlx_config[] =
    "{\"model_type\":\"qwen3_moe\",\"hidden_size\":128,\"intermediate_size\":64,\"num_hidden_layers\":3,"
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":64,\"vocab_size\":640,"
    "\"max_position_embeddings\":128,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":false,\"hidden_act\":\"silu\","
    "\"num_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":64,\"norm_topk_prob\":true,"
    "\"decoder_sparse_step\":1,\"mlp_only_layers\":[],"
    "\"quantization\":{\"group_size\":64,\"bits\":4,\"mode\":\"affine\"}}";

static void mlx_write(struct mlx_moe *m) {
    struct mlx_writer *w = calloc(1, sizeof *w);
    char config[64];
    assert_non_null(w);
    snprintf(m->dir, sizeof m->dir, "/tmp/lode-test-XXXXXX");
    assert_non_null(mkdtemp(m->dir));
    snprintf(m->file, sizeof m->file, "%s/model.safetensors", m->dir);
    snprintf(config, sizeof config, "%s/config.json", m->dir);
    mlx_plain(w, "model.embed_tokens", MLX_VOCAB, MLX_HIDDEN);
    mlx_plain(w, "lm_head", MLX_VOCAB, MLX_HIDDEN);
    mlx_plain(w, "model.norm", MLX_HIDDEN, 0);
    for (unsigned l = 0; l < MLX_LAYERS; l++)
        mlx_layer(w, l);
    w->head[w->n_head++] = '}';
    const uint64_t n_head = w->n_head;
    FILE *f = fopen(m->file, "w");
    assert_true(f && fwrite(&n_head, sizeof n_head, 1, f) == 1 && fwrite(w->head, 1, w->n_head, f) == w->n_head &&
                fwrite(w->data, 1, w->n_data, f) == w->n_data && fclose(f) == 0);
    f = fopen(config, "w");
    assert_true(f && fputs(mlx_config, f) >= 0 && fclose(f) == 0);
    free(w);
}

static void mlx_remove(const struct mlx_moe *m) {
    char config[64];
    snprintf(config, sizeof config, "%s/config.json", m->dir);
    unlink(m->file);
    unlink(config);
    assert_int_equal(rmdir(m->dir), 0);
}

#endif
