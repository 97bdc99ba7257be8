/* describe.c - what a model says of itself. */
#include "model/model.h"

#include "base/alloc.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <string.h>

/* general.file_type, by llama.cpp's numbers and names: what people call a mix. */
static const struct {
    uint32_t id;
    const char *name;
} file_types[] = {
    {0, "all F32"},         {1, "F16"},
    {2, "Q4_0"},            {3, "Q4_1"},
    {7, "Q8_0"},            {8, "Q5_0"},
    {9, "Q5_1"},            {10, "Q2_K - Medium"},
    {11, "Q3_K - Small"},   {12, "Q3_K - Medium"},
    {13, "Q3_K - Large"},   {14, "Q4_K - Small"},
    {15, "Q4_K - Medium"},  {16, "Q5_K - Small"},
    {17, "Q5_K - Medium"},  {18, "Q6_K"},
    {19, "IQ2_XXS - 2.0625 bpw"}, {20, "IQ2_XS - 2.3125 bpw"},
    {21, "Q2_K - Small"},   {22, "IQ3_XS - 3.3 bpw"},
    {23, "IQ3_XXS - 3.0625 bpw"}, {24, "IQ1_S - 1.5625 bpw"},
    {25, "IQ4_NL - 4.5 bpw"}, {26, "IQ3_S - 3.4375 bpw"},
    {27, "IQ3_S mix - 3.66 bpw"}, {28, "IQ2_S - 2.5 bpw"},
    {29, "IQ2_M - 2.7 bpw"}, {30, "IQ4_XS - 4.25 bpw"},
    {31, "IQ1_M - 1.75 bpw"}, {32, "BF16"},
    {36, "TQ1_0 - 1.69 bpw ternary"}, {37, "TQ2_0 - 2.06 bpw ternary"},
    {38, "MXFP4 MoE"},
};

/* The mix's name, how a directory's weights were quantised, or the type that most bytes have. */
static const char *type_name(const struct lode_model *m, char text[128]) {
    struct lode_str how;
    uint32_t id;
    if (lode_source_str(m->source, "lode.quantization", &how)) {
        snprintf(text, 128, "%.*s", (int)(how.len < 127 ? how.len : 127), how.data);
        return text;
    }
    if (lode_source_u32(m->source, "general.file_type", &id))
        for (size_t i = 0; i < sizeof file_types / sizeof *file_types; i++)
            if (file_types[i].id == id)
                return file_types[i].name;
    uint64_t bytes[LODE_DTYPE_COUNT] = {0};
    int most = LODE_F32;
    for (size_t i = 0; i < m->source->n_tensors; i++) {
        const struct lode_gguf_tensor *t = &m->source->tensors[i];
        bytes[t->type] += t->size;
        most = bytes[t->type] > bytes[most] ? (int)t->type : most;
    }
    return lode_dtypes[most].name;
}

static char *copy_key(const struct lode_model *m, const char *key) {
    struct lode_str s;
    return lode_source_str(m->source, key, &s) ? lode_strndup(s.data, s.len) : NULL;
}

int lode_model_describe(struct lode_model *m, struct lode_error *err) {
    const struct lode_hparams *hp = &m->hp;
    m->chat_template = copy_key(m, "tokenizer.chat_template");
    m->name = copy_key(m, "general.name");
    char text[128];
    const char *type = type_name(m, text);
    m->type = lode_strndup(type, strlen(type));
    if (!m->type)
        return lode_fail_nomem(err, "model description");
    m->info = (struct lode_model_info){.path = m->source->path,
                                       .arch = m->source->arch,
                                       .name = m->name ? m->name : "",
                                       .type = m->type,
                                       .chat_template = m->chat_template,
                                       .n_layers = hp->n_layers,
                                       .d_model = hp->d_model,
                                       .n_heads = hp->n_heads,
                                       .n_kv_heads = hp->n_kv_heads,
                                       .n_vocab = hp->n_vocab,
                                       .ctx_train = hp->ctx_train,
                                       .token_size = m->plans[LODE_BODY].weight_bytes +
                                                     m->plans[LODE_HEAD].weight_bytes,
                                       .prompt_int_macs = m->plans[LODE_BODY].int_macs,
                                       .prompt_float_macs = m->plans[LODE_BODY].float_macs,
                                       .notes = m->notes ? m->notes : m->source->notes,
                                       .isa = lode_isa_name(m->isa),
                                       .numerics = m->numerics,
                                       .device = "CPU",
                                       .n_gpus = m->n_gpus,
                                       .gpu = m->gpu,
                                       .device_note = m->device_note};
    for (size_t i = 0; i < m->source->n_tensors; i++) {
        const struct lode_gguf_tensor *t = &m->source->tensors[i];
        m->info.n_params += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
        m->info.size += t->size;
    }
    return 0;
}
