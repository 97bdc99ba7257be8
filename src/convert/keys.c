/* keys.c - the metadata of a converted file.
 *
 * A GGUF's keys go over as they are.  A directory has them by GGUF's names already
 * (format/source.h); what is missing is the vocabulary, and a few keys want the types that
 * llama.cpp asks for. */
#include "convert/parts.h"

#include "base/error.h"
#include "lode/lode.h"
#include "quant/imatrix.h"
#include "text/tokenizer.h"

#include <math.h>
#include <stdio.h>

static bool starts(const char *s, const char *prefix) {
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

/* YaRN as DeepSeek has it: a multiplier of scores implies that the rotation itself is scaled by 1.
 * Directories say that too, as the factor that makes it so; llama.cpp would apply it again. */
static bool implied_factor(const struct lode_convert *c, const char *key) {
    double multiplier, factor, attn;
    const size_t arch = strlen(c->source->arch);
    return !c->source->gguf && strncmp(key, c->source->arch, arch) == 0 &&
           strcmp(key + arch, ".rope.scaling.attn_factor") == 0 &&
           lode_source_f64(c->source, key, &attn) &&
           lode_source_arch_f64(c->source, "rope.scaling.yarn_log_multiplier", &multiplier) &&
           lode_source_arch_f64(c->source, "rope.scaling.factor", &factor) && multiplier > 0 &&
           fabs(attn * (1 + 0.1 * log(factor)) - 1) < 1e-6;
}

/* Keys of the source that the new file says for itself. */
static bool replaced(const struct lode_convert *c, const struct lode_convert_opts *o,
                     const char *key) {
    static const char *const own[] = {"general.alignment", "general.quantization_version",
                                      "split.no", "split.count", "split.tensors.count"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(key, own[i]) == 0)
            return true;
    if (strcmp(key, "general.file_type") == 0)
        return c->mix || !c->source->gguf;
    if (starts(key, "lode.convert."))
        return true;
    if (starts(key, "quantize.imatrix."))
        return c->mix != NULL;
    return o->name && strcmp(key, "general.name") == 0;
}

/* Directories have numbers as config.json writes them; readers of GGUF ask for exact types. */
static struct lode_gguf_value retyped(const char *key, struct lode_gguf_value v) {
    static const char *const counts[] = {"top_k", "penalty_last_n", "mirostat"};
    if (v.type == LODE_GGUF_F64 && starts(key, "general.sampling.")) {
        const char *name = key + strlen("general.sampling.");
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            if (strcmp(name, counts[i]) == 0 && v.f == floor(v.f) && fabs(v.f) < 1 << 30)
                return (struct lode_gguf_value){.type = LODE_GGUF_I32, .i = (int64_t)v.f};
    }
    if (v.type == LODE_GGUF_F64)
        v.type = LODE_GGUF_F32;
    if (v.type == LODE_GGUF_ARRAY && v.a.type == LODE_GGUF_U32) { /* the same bytes */
        bool small = true;
        for (size_t i = 0; i < v.a.n; i++)
            small = small && lode_gguf_array_i64(&v.a, i) <= INT32_MAX;
        v.a.type = small ? LODE_GGUF_I32 : LODE_GGUF_U32;
    }
    return v;
}

/* "28M", "16x7B": what size_label says in other files; experts as they are counted. */
static const char *size_label(struct lode_convert *c) {
    static const struct {
        double unit;
        char name;
    } units[] = {{1e12, 'T'}, {1e9, 'B'}, {1e6, 'M'}, {1e3, 'K'}};
    uint32_t n_experts = 0;
    double all = 0, expert = 0;
    lode_source_arch_u32(c->source, "expert_count", &n_experts);
    for (size_t i = 0; i < c->source->n_tensors; i++) {
        const struct lode_gguf_tensor *t = &c->source->tensors[i];
        const double n =
            (double)t->dims[0] * (double)t->dims[1] * (double)t->dims[2] * (double)t->dims[3];
        const bool routed = n_experts > 1 && strstr(t->name, "_exps.");
        all += routed ? n / n_experts : n;
        expert += routed;
    }
    size_t u = 0;
    while (u < 3 && all < units[u].unit)
        u++;
    const double n = all / units[u].unit;
    return expert > 0
               ? lode_arena_printf(&c->arena, n < 9.95 ? "%ux%.1f%c" : "%ux%.0f%c", n_experts, n,
                                   units[u].name)
               : lode_arena_printf(&c->arena, n < 9.95 ? "%.1f%c" : "%.0f%c", n, units[u].name);
}

/* The type that most bytes have, by the numbers of general.file_type. */
static uint32_t main_type(const struct lode_convert *c) {
    uint64_t bytes[LODE_DTYPE_COUNT] = {0};
    int most = LODE_F32;
    for (size_t i = 0; i < c->source->n_tensors; i++) {
        const struct lode_convert_step *s = &c->steps[i];
        bytes[s->to] += s->t->size;
        if (lode_mix_is_matrix(s->t->name, s->t->n_dims))
            most = bytes[s->to] > bytes[most] ? (int)s->to : most;
    }
    const struct lode_mix *m = lode_mix_find(lode_dtypes[most].name);
    return m ? lode_mix_file_type(m) : 1024; /* "guessed", as readers call what has no number */
}

/* Where it came from: the repository where the path is one of the hub's cache
 * (models--ORG--NAME/snapshots/...), else the last name of the path. */
static int say_source(struct lode_convert *c, struct lode_error *err) {
    const char *hub = strstr(c->source->path, "models--"), *slash = strrchr(c->source->path, '/');
    const char *name = hub                 ? hub + strlen("models--")
                       : slash && slash[1] ? slash + 1
                                           : c->source->path;
    const char *from =
        lode_arena_printf(&c->arena, "%.*s (%s)", (int)strcspn(name, "/"), name, c->source->format);
    if (!from)
        return lode_fail_nomem(err, "metadata");
    LODE_TRY(lode_gguf_writer_str(c->writer, "lode.convert.source", from, err));
    return lode_gguf_writer_str(c->writer, "lode.convert.version", lode_version(), err);
}

static int say_imatrix(struct lode_convert *c, const struct lode_convert_opts *o,
                       struct lode_error *err) {
    if (!c->imatrix)
        return 0;
    const char *slash = strrchr(o->imatrix, '/');
    LODE_TRY(lode_gguf_writer_str(c->writer, "quantize.imatrix.file",
                                  slash ? slash + 1 : o->imatrix, err));
    return lode_gguf_writer_u32(c->writer, "quantize.imatrix.entries_count",
                                (uint32_t)lode_imatrix_n(c->imatrix), err);
}

static int put_vocabulary(struct lode_convert *c, struct lode_error *err) {
    const char *note;
    if (!c->tokenizer) /* a GGUF has its keys; a directory without says so */
        return c->source->gguf
                   ? 0
                   : lode_gguf_writer_str(c->writer, "tokenizer.ggml.model", "no_vocab", err);
    LODE_TRY(
        lode_tokenizer_save(c->tokenizer, lode_source_n_vocab(c->source), c->writer, &note, err));
    lode_convert_say(c, note);
    return 0;
}

int lode_convert_keys(struct lode_convert *c, const struct lode_convert_opts *o,
                      struct lode_error *err) {
    struct lode_gguf_writer *w = c->writer;
    LODE_TRY(lode_gguf_writer_str(w, "general.architecture", c->source->arch, err));
    LODE_TRY(lode_gguf_writer_str(w, "general.type", "model", err));
    if (o->name)
        LODE_TRY(lode_gguf_writer_str(w, "general.name", o->name, err));
    for (size_t i = 0; i < c->source->n_keys; i++) {
        const struct lode_gguf_kv *kv = &c->source->keys[i];
        if (replaced(c, o, kv->key) || implied_factor(c, kv->key))
            continue;
        const struct lode_gguf_value v = c->source->gguf ? kv->value : retyped(kv->key, kv->value);
        LODE_TRY(lode_gguf_writer_key(w, kv->key, &v, err));
    }
    if (!c->source->gguf) {
        const char *label = size_label(c);
        if (!label)
            return lode_fail_nomem(err, "metadata");
        LODE_TRY(lode_gguf_writer_str(w, "general.size_label", label, err));
    }
    LODE_TRY(lode_gguf_writer_u32(w, "general.file_type",
                                  c->mix ? lode_mix_file_type(c->mix) : main_type(c), err));
    LODE_TRY(lode_gguf_writer_u32(w, "general.quantization_version", 2, err));
    LODE_TRY(say_imatrix(c, o, err));
    LODE_TRY(put_vocabulary(c, err));
    return say_source(c, err);
}
