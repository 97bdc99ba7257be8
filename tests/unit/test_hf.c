/* Hugging Face directories as sources: names, shapes and numbers, what is refused, no memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../own_files.h"
#include "failmalloc.h"
#include "tmpdir.h"

#include "base/buf.h"
#include "format/source.h"

#include <stdlib.h>
#include <string.h>

static struct lode_error err;

/* ---- a directory with tensors of BF16, whose numbers count up from 1 through all of them ---- */

struct tensor {
    const char *name;
    int rows, cols; /* rows 0: a vector */
};

static void write_text(const char *name, const char *text, size_t len) {
    char *path = tmp_path(name);
    FILE *f = fopen(path, "wb");
    assert_true(f && fwrite(text, 1, len, f) == len && fclose(f) == 0);
    free(path);
}

static void write_weights(const struct tensor *list, size_t n) {
    struct lode_buf b = {0};
    char head[8] = "";
    size_t at = 0;
    lode_buf_add(&b, head, 8);
    for (size_t i = 0; i < n; i++) {
        const size_t count = (size_t)(list[i].rows ? list[i].rows : 1) * (size_t)list[i].cols;
        lode_buf_addf(&b, "%c\"%s\":{\"dtype\":\"BF16\",\"shape\":[", i ? ',' : '{', list[i].name);
        if (list[i].rows)
            lode_buf_addf(&b, "%d,", list[i].rows);
        lode_buf_addf(&b, "%d],\"data_offsets\":[%zu,%zu]}", list[i].cols, at, at + 2 * count);
        at += 2 * count;
    }
    lode_buf_addc(&b, '}');
    while (b.len % 8)
        lode_buf_addc(&b, ' ');
    const uint64_t size = b.len - 8;
    memcpy(b.data, &size, 8);
    for (size_t i = 0; i < at / 2; i++) { /* 1, 2, ... 255 are exact in BF16 */
        const float number = (float)(i % 255 + 1);
        uint32_t bits;
        memcpy(&bits, &number, 4);
        lode_buf_add(&b, (const char *)&bits + 2, 2);
    }
    assert_false(b.failed);
    write_text("model.safetensors", b.data, b.len);
    lode_buf_free(&b);
}

static const struct tensor moe[] = {
    {"language_model.model.embed_tokens.weight", 5, 4},
    {"language_model.model.norm.weight", 0, 4},
    {"language_model.lm_head.weight", 5, 4},
    {"language_model.model.layers.0.input_layernorm.weight", 0, 4},
    {"language_model.model.layers.0.post_attention_layernorm.weight", 0, 4},
    {"language_model.model.layers.0.self_attn.q_proj.weight", 12, 4},
    {"language_model.model.layers.0.block_sparse_moe.gate.weight", 2, 4},
    {"language_model.model.layers.0.block_sparse_moe.experts.1.w1.weight", 3, 4},
    {"language_model.model.layers.0.block_sparse_moe.experts.0.w1.weight", 3, 4},
    {"language_model.model.layers.1.input_layernorm.weight", 0, 4}, /* beyond num_hidden_layers */
    {"vision_tower.patch.weight", 2, 2},
};
enum { N_MOE = sizeof moe / sizeof *moe };

static const char moe_config[] =
    "{\"model_type\":\"llava\",\"text_config\":{\"model_type\":\"mixtral\",\"hidden_size\":4,"
    "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_heads\":1,"
    "\"num_local_experts\":2,\"num_experts_per_tok\":1,\"max_position_embeddings\":64,"
    "\"sliding_window\":null,\"head_dim\":null,\"rms_norm_eps\":1e-5,\"rope_theta\":500000.0}}";

static int open_dir(struct lode_source **s, bool map) {
    char *dir = tmp_path("");
    const int rc = lode_source_open(s, dir, map, &err);
    free(dir);
    return rc;
}

static void translates(void **state) {
    (void)state;
    struct lode_source *s;
    struct lode_str text;
    uint32_t n;
    double f;
    write_weights(moe, N_MOE);
    write_text("config.json", moe_config, strlen(moe_config));
    write_text("chat_template.jinja", "{{ 1 }}", 7);
    static const char tokenizer[] = "{\"chat_template\":\"no\",\"model_max_length\":"
                                    "1000000000000000019884624838656}";
    write_text("tokenizer_config.json", tokenizer, strlen(tokenizer));
    static const char sampling[] = "{\"temperature\":0.5,\"top_k\":7,\"do_sample\":true}";
    write_text("generation_config.json", sampling, strlen(sampling));
    for (int map = 0; map <= 1; map++) {
        if (open_dir(&s, map) < 0)
            fail_msg("%s: %s", err.where, err.text);
        assert_string_equal(s->arch, "llama");
        assert_true(s->half_order);
        assert_true(lode_source_arch_u32(s, "expert_count", &n) && n == 2);
        assert_true(lode_source_arch_u32(s, "attention.key_length", &n) && n == 6); /* q's rows */
        assert_true(lode_source_arch_u32(s, "attention.sliding_window", &n) && n == 0);
        assert_true(lode_source_arch_f64(s, "rope.freq_base", &f) && f == 500000);
        assert_true(lode_source_f64(s, "general.sampling.top_k", &f) && f == 7);
        assert_true(lode_source_str(s, "tokenizer.chat_template", &text));
        assert_true(lode_str_eqz(text, "{{ 1 }}")); /* the file of its own comes first */
        assert_int_equal(s->n_tensors, 8);
        assert_null(lode_source_tensor(s, "blk.1.attn_norm.weight"));

        const struct lode_gguf_tensor *t = lode_source_tensor(s, "blk.0.ffn_gate_exps.weight");
        assert_non_null(t);
        assert_int_equal(t->dims[0], 4);
        assert_int_equal(t->dims[1], 3);
        assert_int_equal(t->dims[2], 2);
        assert_int_equal(t->size, 48);
        /* The experts lie the other way round in the file: 1 begins with 109, 0 with 121. */
        uint16_t first[2], row[24];
        assert_int_equal(lode_source_read(s, t, 0, row, sizeof row, &err), 0);
        memcpy(first, &row[0], 2);
        memcpy(first + 1, &row[12], 2);
        assert_int_equal(first[0], 0x42f2); /* 121 */
        assert_int_equal(first[1], 0x42da); /* 109 */
        const char *data = lode_source_data(s, t, 24, 24);
        assert_int_equal(data != NULL, map);
        if (map) {
            assert_memory_equal(data, &row[12], 24);
            assert_memory_equal(lode_source_data(s, t, 8, 16), &row[4], 16);
        }
        assert_int_equal(lode_source_read(s, t, 40, row, 9, &err), LODE_ERR_ARG);
        assert_int_equal(lode_source_check(s, &err), 0);
        lode_source_close(s);
    }
}

/* The first of processor_config.json (multimodal), .jinja, tokenizer_config.json and
 * chat_template.json that has one; of named ones all are kept. */
static void finds_templates(void **state) {
    (void)state;
    static const char list[] = "{\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"T\"},"
                               "{\"name\":\"default\",\"template\":\"D\"},{\"name\":3}]}";
    static const struct {
        const char *file, *text, *template, *tools;
    } steps[] = {{"chat_template.json", "{\"chat_template\":\"J\"}", "J", NULL},
                 {"tokenizer_config.json", list, "D", "T"},
                 {"chat_template.jinja", "F", "F", NULL},
                 {"processor_config.json", "{\"chat_template\":\"P\"}", "P", NULL}};
    struct lode_source *s;
    struct lode_str text;
    write_weights(moe, N_MOE);
    write_text("config.json", moe_config, strlen(moe_config));
    static const char *const others[] = {"chat_template.jinja", "tokenizer_config.json"};
    for (size_t i = 0; i < 2; i++) { /* of earlier tests */
        char *path = tmp_path(others[i]);
        remove(path);
        free(path);
    }
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        write_text(steps[i].file, steps[i].text, strlen(steps[i].text));
        if (open_dir(&s, true) < 0)
            fail_msg("%s: %s", err.where, err.text);
        assert_true(lode_source_str(s, "tokenizer.chat_template", &text));
        assert_true(lode_str_eqz(text, steps[i].template));
        assert_int_equal(lode_source_str(s, "tokenizer.chat_template.tool_use", &text),
                         steps[i].tools != NULL);
        lode_source_close(s);
    }
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        char *path = tmp_path(steps[i].file);
        assert_int_equal(remove(path), 0);
        free(path);
    }
}

static const struct tensor gemma[] = {
    {"model.embed_tokens.weight", 5, 4},
    {"lm_head.weight", 5, 4},
    {"model.layers.0.input_layernorm.weight", 0, 4},
    {"model.layers.0.post_attention_layernorm.weight", 0, 4},
    {"model.layers.0.pre_feedforward_layernorm.weight", 0, 4},
};

static void adds_one(void **state) {
    (void)state;
    static const char config[] =
        "{\"model_type\":\"gemma2\",\"hidden_size\":4,\"num_hidden_layers\":1,"
        "\"num_attention_heads\":2,\"head_dim\":2,\"sliding_window\":8,\"tie_word_embeddings\":"
        "true,"
        "\"layer_types\":[\"sliding_attention\"],\"max_position_embeddings\":64,"
        "\"query_pre_attn_scalar\":4,\"hidden_activation\":\"gelu_pytorch_tanh\"}";
    struct lode_source *s;
    float numbers[4];
    double f;
    write_weights(gemma, sizeof gemma / sizeof *gemma);
    write_text("config.json", config, strlen(config));
    if (open_dir(&s, true) < 0)
        fail_msg("%s: %s", err.where, err.text);
    const struct lode_gguf_tensor *t = lode_source_tensor(s, "blk.0.attn_norm.weight");
    assert_int_equal(t->type, LODE_F32);
    assert_null(lode_source_data(s, t, 0, 4));
    assert_int_equal(lode_source_read(s, t, 4, numbers, 12, &err), 0);
    assert_true(numbers[0] == 43 && numbers[1] == 44 && numbers[2] == 45);
    assert_non_null(lode_source_tensor(s, "blk.0.post_attention_norm.weight"));
    assert_non_null(lode_source_tensor(s, "blk.0.ffn_norm.weight"));
    assert_null(lode_source_tensor(s, "output.weight")); /* tied, whatever the file holds */
    assert_true(lode_source_arch_f64(s, "attention.scale", &f) && f == 0.5);
    lode_source_close(s);
}

#define CONFIG(more)                                                                               \
    "{\"model_type\":\"llama\",\"hidden_size\":4,\"num_hidden_layers\":1,"                         \
    "\"num_attention_heads\":2,\"max_position_embeddings\":64" more "}"

static void refuses(void **state) {
    (void)state;
    static const struct {
        const char *config, *why;
        int rc;
    } cases[] = {
        {"[]", "object", LODE_ERR_FORMAT},
        {"{", "line 1", LODE_ERR_FORMAT},
        {"{}", "model_type", LODE_ERR_FORMAT},
        {CONFIG(",\"quantization_config\":{\"quant_method\":\"hqq\"}"), "hqq",
         LODE_ERR_UNSUPPORTED},
        {CONFIG(",\"hidden_act\":\"relu\""), "relu", LODE_ERR_UNSUPPORTED},
        {CONFIG(",\"num_key_value_heads\":-1"), "num_key_value_heads", LODE_ERR_FORMAT},
        {CONFIG(",\"intermediate_size\":1.5"), "intermediate_size", LODE_ERR_FORMAT},
        {CONFIG(",\"rms_norm_eps\":\"x\""), "rms_norm_eps", LODE_ERR_FORMAT},
        {CONFIG(",\"head_dim\":5000"), "head_dim", LODE_ERR_FORMAT},
        {CONFIG(",\"rope_scaling\":{\"type\":\"odd\"}"), "odd", LODE_ERR_UNSUPPORTED},
        {CONFIG(",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":0}"), "factor", LODE_ERR_FORMAT},
        {CONFIG(",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":0}"), "low_freq_factor",
         LODE_ERR_UNSUPPORTED},
        {CONFIG(",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1]}"), "short_factor",
         LODE_ERR_FORMAT},
        {CONFIG(",\"num_experts\":5000"), "too many", LODE_ERR_FORMAT},
        {CONFIG(",\"mlp_only_layers\":[0]"), "mlp_only_layers", LODE_ERR_UNSUPPORTED},
        {"{\"model_type\":\"gemma2\",\"num_hidden_layers\":2,\"sliding_window\":8,\"layer_types\":"
         "[\"full_attention\",\"sliding_attention\"]}",
         "layer_types", LODE_ERR_UNSUPPORTED},
    };
    struct lode_source *s;
    write_weights(gemma, 4);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text("config.json", cases[i].config, strlen(cases[i].config));
        const int rc = open_dir(&s, true);
        if (rc != cases[i].rc || (!strstr(err.text, cases[i].why)))
            fail_msg("%s: %d %s", cases[i].config, rc, rc < 0 ? err.text : "accepted");
        assert_null(s);
    }
    /* An expert that is missing, one that is too many, a name that comes twice. */
    write_text("config.json", moe_config, strlen(moe_config));
    write_weights(moe, N_MOE - 3);
    assert_int_equal(open_dir(&s, true), LODE_ERR_MISSING);
    assert_non_null(strstr(err.text, "expert 0"));
    struct tensor other[N_MOE];
    memcpy(other, moe, sizeof moe);
    other[8].name = "language_model.model.layers.0.block_sparse_moe.experts.2.w1.weight";
    write_weights(other, N_MOE);
    assert_int_equal(open_dir(&s, true), LODE_ERR_FORMAT);
    other[8].name = "model.layers.0.block_sparse_moe.experts.1.w1.weight";
    write_weights(other, N_MOE);
    assert_int_equal(open_dir(&s, true), LODE_ERR_FORMAT);
    assert_non_null(strstr(err.text, "the same as"));
    char *config = tmp_path("config.json");
    assert_int_equal(remove(config), 0);
    free(config);
    assert_int_equal(open_dir(&s, true), LODE_ERR_MISSING);
}

/* Opens dir with every allocation failing in turn. */
static void fail_each(const char *dir) {
    for (int persistent = 0; persistent <= 1; persistent++) {
        uint64_t n = 1, unharmed = 0;
        for (;; n++) {
            struct lode_source *s;
            failmalloc_start(n, persistent);
            const int rc = lode_source_open(&s, dir, true, &err);
            lode_source_close(s);
            const struct failmalloc_stats stats = failmalloc_stop();
            assert_int_equal(stats.live, 0);
            if (stats.failed == 0) {
                assert_int_equal(rc, 0);
                break;
            }
            unharmed += rc == 0; /* qsort sorts in place where it gets no memory */
            if (rc != LODE_ERR_NOMEM && rc != 0)
                fail_msg("allocation %d: %d %s", (int)n, rc, rc < 0 ? err.text : "");
        }
        assert_in_range(n, 20, 2000);
        assert_true(unharmed <= (persistent ? 0 : 1));
    }
}

/* A standard decoder that nobody knows: q k v in one, a window in some layers. */
static const struct tensor foozle[] = {
    {"model.embed_tokens.weight", 5, 4},
    {"model.norm.weight", 0, 4},
    {"model.layers.0.input_layernorm.weight", 0, 4},
    {"model.layers.0.post_attention_layernorm.weight", 0, 4},
    {"model.layers.0.self_attn.qkv_proj.weight", 8, 4},
    {"model.layers.0.self_attn.o_proj.weight", 4, 4},
    {"model.layers.0.mlp.gate_up_proj.weight", 6, 4},
    {"model.layers.0.mlp.down_proj.weight", 4, 3},
    {"vision.patch", 2, 2},
};
static const char foozle_config[] =
    "{\"model_type\":\"foozle\",\"hidden_size\":4,\"num_hidden_layers\":1,\"rms_norm_eps\":1e-5,"
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"max_position_embeddings\":64,"
    "\"sliding_window\":8,\"layer_types\":[\"sliding_attention\"],\"odd_field\":\"x\"%s}";

static void assumes(void **state) {
    (void)state;
    static const struct {
        const char *more;
        bool fits;
    } cases[] = {{"", true},
                 {",\"hidden_act\":\"gelu_new\"", true},
                 {",\"logit_scale\":2", false},
                 {",\"num_experts\":4", false},
                 {",\"use_alibi\":true", false}};
    struct lode_source *s;
    uint32_t n;
    write_weights(foozle, sizeof foozle / sizeof *foozle);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        snprintf(text, sizeof text, foozle_config, cases[i].more);
        write_text("config.json", text, strlen(text));
        if (open_dir(&s, true) < 0)
            fail_msg("%s: %s", err.where, err.text);
        assert_string_equal(s->arch, "foozle (Hugging Face)");
        if (cases[i].fits) {
            assert_non_null(lode_source_tensor(s, "blk.0.attn_qkv.weight"));
            assert_true(lode_source_arch_u32(s, "attention.key_length", &n) && n == 2);
            assert_non_null(strstr(s->notes, "odd_field"));
            assert_non_null(strstr(s->notes, "vision"));
        } else { /* for people to see */
            assert_non_null(lode_source_tensor(s, "model.layers.0.mlp.down_proj.weight"));
            assert_null(lode_source_tensor(s, "blk.0.attn_qkv.weight"));
            assert_int_equal(s->n_tensors, 9);
        }
        lode_source_close(s);
    }
}

static void each_allocation_may_fail(void **state) {
    (void)state;
    char text[512], *dir = tmp_path("");
    write_weights(moe, N_MOE);
    write_text("config.json", moe_config, strlen(moe_config));
    fail_each(dir);
    snprintf(text, sizeof text, foozle_config, "");
    write_weights(foozle, sizeof foozle / sizeof *foozle);
    write_text("config.json", text, strlen(text));
    fail_each(dir);
    free(dir);
    fail_each(own_file("data/arch/lfm2/hf")); /* and of a family with settings by layer */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(translates), cmocka_unit_test(finds_templates),
        cmocka_unit_test(adds_one),   cmocka_unit_test(assumes),
        cmocka_unit_test(refuses),    cmocka_unit_test(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, tmp_clean);
}
