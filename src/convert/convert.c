/* convert.c - deciding and running a conversion; lode/convert.h. */
#include "convert/parts.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/machine.h"
#include "model/build.h"
#include "quant/imatrix.h"
#include "quant/quant.h"
#include "text/regex.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

void lode_convert_say(struct lode_convert *c, const char *note) {
    if (note && c->n_notes < LODE_CONVERT_MAX_NOTES)
        c->notes[c->n_notes++] = note;
}

/* ---- the order of the file ---- */

/* "blk.12.attn_q.weight": 12; UINT32_MAX for the tensors outside of layers. */
static uint32_t layer_of(const char *name) {
    unsigned layer;
    return sscanf(name, "blk.%u.", &layer) == 1 ? layer : UINT32_MAX;
}

/* What has no layer comes first, then the layers; else in the order of the source, whose tensors
 * lie in one array. */
static int by_layer(const void *a, const void *b) {
    const struct lode_convert_step *x = a, *y = b;
    const uint32_t i = layer_of(x->t->name) + 1, j = layer_of(y->t->name) + 1;
    return i != j ? (i > j) - (i < j) : (x->t > y->t) - (x->t < y->t);
}

/* ---- types ---- */

static enum lode_dtype named_type(const char *name) {
    const struct lode_mix *m = lode_mix_find(name);
    return m && lode_mix_is_one(m) ? lode_mix_base(m) : lode_dtype_from_name(lode_str(name));
}

/* Without --type.  What only lode's memory has (tensor/dtype.h) becomes a type of GGUF with the
 * same codes, or of about the same size. */
static enum lode_dtype kept_type(const struct lode_convert *c, const struct lode_gguf_tensor *t) {
    const struct lode_dtype_info *d = &lode_dtypes[t->type];
    if (lode_mix_is_wide(t->name, t->n_dims) && !c->source->gguf &&
        (t->type == LODE_F16 || t->type == LODE_BF16 || d->id >= 256)) /* as llama.cpp wants them */
        return LODE_F32;
    if (d->id < 256)
        return t->type;
    const enum lode_dtype same_codes =
        lode_source_order(c->source, t)     ? LODE_Q8_0 /* groups would not lie together */
        : lode_repacker(t->type, LODE_Q4_1) ? LODE_Q4_1
        : lode_repacker(t->type, LODE_Q5_1) ? LODE_Q5_1
                                            : LODE_Q8_0;
    return lode_mix_fit(same_codes, t->dims[0]);
}

struct rules {
    struct lode_regex_run *runs[64]; /* owned */
    struct lode_regex *patterns[64]; /* owned */
    enum lode_dtype types[64];
    size_t n;
};

static void rules_deinit(struct rules *r) {
    for (size_t i = 0; i < r->n; i++) {
        lode_regex_run_free(r->runs[i]);
        lode_regex_free(r->patterns[i]);
    }
}

static int rules_init(struct rules *r, const struct lode_convert_opts *o, struct lode_error *err) {
    const size_t most = sizeof r->types / sizeof *r->types;
    if (o->n_rules > most)
        return lode_fail(err, LODE_ERR_LIMIT, "--tensor-type", "more than %zu rules", most);
    for (size_t i = 0; i < o->n_rules; i++) {
        r->types[i] = named_type(o->rules[i].type);
        if (r->types[i] == LODE_NONE)
            return lode_fail(err, LODE_ERR_ARG, "--tensor-type", "'%s' is no type of numbers",
                             o->rules[i].type);
        LODE_TRY(lode_regex_create(&r->patterns[i], lode_str(o->rules[i].pattern), err));
        r->n++;
        LODE_TRY(lode_regex_run_create(&r->runs[i], r->patterns[i], err));
    }
    return 0;
}

/* The type that the first matching rule gives, or LODE_NONE. */
static int ask_rules(struct rules *r, const char *name, enum lode_dtype *out,
                     struct lode_error *err) {
    *out = LODE_NONE;
    for (size_t i = 0; i < r->n; i++) {
        size_t start, end;
        const int rc = lode_regex_find(r->runs[i], name, strlen(name), 0, &start, &end, err);
        LODE_TRY(rc);
        if (rc > 0) {
            *out = r->types[i];
            return 0;
        }
    }
    return 0;
}

static void describe_model(const struct lode_convert *c, const struct lode_convert_opts *o,
                           struct lode_mix_model *m) {
    uint32_t heads = 0, kv_heads = 0;
    *m = (struct lode_mix_model){.tied = !lode_source_tensor(c->source, "output.weight"),
                                 .falcon = strcmp(c->source->arch, "falcon") == 0,
                                 .imatrix = o->imatrix != NULL};
    lode_source_arch_u32(c->source, "block_count", &m->n_layers);
    lode_source_arch_u32(c->source, "expert_count", &m->n_experts);
    lode_source_arch_u32(c->source, "attention.head_count", &heads);
    lode_source_arch_u32(c->source, "attention.head_count_kv", &kv_heads);
    m->n_gqa = kv_heads ? heads / kv_heads : 1;
    for (size_t i = 0; i < c->source->n_tensors; i++)
        m->n_v += lode_mix_is_value(c->source->tensors[i].name);
}

static int choose_types(struct lode_convert *c, const struct lode_convert_opts *o,
                        struct rules *rules, struct lode_error *err) {
    struct lode_mix_model m;
    uint32_t i_v = 0;
    describe_model(c, o, &m);
    for (size_t i = 0; i < c->source->n_tensors; i++) {
        struct lode_convert_step *s = &c->steps[i];
        const uint32_t layer = layer_of(s->t->name);
        s->to = kept_type(c, s->t);
        if (!lode_mix_is_matrix(s->t->name, s->t->n_dims))
            continue;
        enum lode_dtype want;
        LODE_TRY(ask_rules(rules, s->t->name, &want, err));
        if (want == LODE_NONE && c->mix)
            want = o->pure ? lode_mix_base(c->mix)
                           : lode_mix_type(c->mix, &m, s->t->name,
                                           strstr(s->t->name, "_exps.") != NULL, layer, i_v);
        i_v += lode_mix_is_value(s->t->name);
        if (want == LODE_NONE)
            continue;
        const enum lode_dtype fit = lode_mix_fit(want, s->t->dims[0]);
        s->fallback = fit != want;
        if (fit != LODE_F16 || want == LODE_F16 || lode_dtypes[s->to].block > 1)
            s->to = fit; /* else no blocks fit, and the floats that it has are better than halves */
        if (s->to != s->t->type && !lode_quantiser(s->to))
            return lode_fail(err, LODE_ERR_UNSUPPORTED, "--tensor-type",
                             "nothing is quantised to %s", lode_dtypes[s->to].name);
    }
    return 0;
}

/* Widening keeps every number, and products are formed in float32 either way. */
static bool is_exact(enum lode_dtype from, enum lode_dtype to) {
    return from == to || (to == LODE_F32 && (from == LODE_F16 || from == LODE_BF16));
}

/* ---- rotary order ---- */

/* GGUF files of some architectures have the rotary pairs of queries and keys as neighbours, where
 * directories have them half a head apart. */
static int choose_order(struct lode_convert *c, struct lode_error *err) {
    const struct lode_arch *arch = lode_arch_find(c->source->arch);
    uint32_t head_dim = 0, n_rot, heads = 0, width = 0;
    if (!arch || !arch->rope_pairs || !c->source->half_order)
        return 0;
    lode_source_arch_u32(c->source, "attention.head_count", &heads);
    lode_source_arch_u32(c->source, "embedding_length", &width);
    if (!lode_source_arch_u32(c->source, "attention.key_length", &head_dim) && heads)
        head_dim = width / heads;
    n_rot = head_dim;
    lode_source_arch_u32(c->source, "rope.dimension_count", &n_rot);
    if (!head_dim || n_rot > head_dim || n_rot % 2)
        return lode_fail(err, LODE_ERR_FORMAT, c->source->path,
                         "%u of the %u numbers of a head are rotated, which cannot be", n_rot,
                         head_dim);
    for (size_t i = 0; i < c->source->n_tensors; i++) {
        struct lode_convert_step *s = &c->steps[i];
        const char *name = strchr(s->t->name + 4 * !strncmp(s->t->name, "blk.", 4), '.');
        if (layer_of(s->t->name) == UINT32_MAX || !name)
            continue;
        const bool turned = !strncmp(name, ".attn_q.", 8) || !strncmp(name, ".attn_k.", 8);
        if (!strncmp(name, ".attn_qkv.", 10) || !strncmp(name, ".attn_q_norm.", 13) ||
            !strncmp(name, ".attn_q_b.", 10))
            return lode_fail(err, LODE_ERR_UNSUPPORTED, s->t->name,
                             "turning its rotary pairs to GGUF's order is not supported");
        const uint64_t rows = s->t->n_dims == 1 ? s->t->dims[0] : s->t->dims[1];
        if (!turned)
            continue;
        if (rows % head_dim)
            return lode_fail(err, LODE_ERR_FORMAT, s->t->name, "no whole heads of %u rows",
                             head_dim);
        s->head_dim = head_dim;
        s->n_pairs = n_rot / 2;
    }
    return 0;
}

/* ---- what columns are worth ---- */

static int choose_weights(struct lode_convert *c, const struct lode_convert_opts *o,
                          struct lode_error *err) {
    size_t n_without = 0, n_changed = 0;
    if (!o->imatrix)
        return 0;
    LODE_TRY(lode_imatrix_open(&c->imatrix, o->imatrix, err));
    for (size_t i = 0; i < c->source->n_tensors; i++) {
        struct lode_convert_step *s = &c->steps[i];
        if (s->to == s->t->type || lode_dtypes[s->to].block == 1)
            continue;
        LODE_TRY(lode_imatrix_get(c->imatrix, s->t->name, s->t->dims[0],
                                  s->t->dims[2] * s->t->dims[3], &s->weights, err));
        n_changed++;
        /* llama-imatrix does not see what tokens are looked up in */
        n_without += !s->weights && strcmp(s->t->name, "token_embd.weight") != 0;
    }
    if (n_changed == 0)
        lode_convert_say(c, "the importance matrix was not used: nothing is quantised");
    else if (n_without > 0) {
        const char *note = lode_arena_printf(&c->arena,
                                             "%zu of %zu quantised tensors have no entry in the "
                                             "importance matrix: all their columns count the same",
                                             n_without, n_changed);
        if (!note)
            return lode_fail_nomem(err, "a note");
        lode_convert_say(c, note);
    }
    return 0;
}

/* ---- opening ---- */

static int describe_tensors(struct lode_convert *c, struct lode_error *err) {
    c->info.exact = true;
    for (size_t i = 0; i < c->source->n_tensors; i++) {
        const struct lode_convert_step *s = &c->steps[i];
        c->info.work += s->t->size;
        c->info.exact = c->info.exact && is_exact(s->t->type, s->to);
        LODE_TRY(
            lode_gguf_writer_tensor(c->writer, s->t->name, s->to, s->t->n_dims, s->t->dims, err));
    }
    c->info.arch = c->source->arch;
    c->info.format = c->source->format;
    c->info.size = lode_gguf_writer_size(c->writer);
    return 0;
}

static int plan(struct lode_convert *c, const struct lode_convert_opts *o, struct lode_error *err) {
    struct rules rules = {.n = 0};
    if (o->type && !(c->mix = lode_mix_find(o->type)))
        return lode_fail(err, LODE_ERR_ARG, "--type",
                         "'%s' is no type: lode convert --help lists them", o->type);
    c->steps = LODE_ARENA_ARRAY(&c->arena, struct lode_convert_step, c->source->n_tensors);
    if (!c->steps)
        return lode_fail_nomem(err, "list of tensors");
    for (size_t i = 0; i < c->source->n_tensors; i++)
        c->steps[i].t = &c->source->tensors[i];
    if (!c->source->gguf && c->source->n_tensors)
        qsort(c->steps, c->source->n_tensors, sizeof *c->steps, by_layer);
    int rc = rules_init(&rules, o, err);
    if (rc == 0)
        rc = choose_types(c, o, &rules, err);
    rules_deinit(&rules);
    LODE_TRY(rc);
    LODE_TRY(choose_order(c, err));
    LODE_TRY(choose_weights(c, o, err));
    LODE_TRY(lode_convert_keys(c, o, err));
    return describe_tensors(c, err);
}

/* A directory that no architecture was found for has no tensors by GGUF's names. */
static int check_source(const struct lode_convert *c, struct lode_error *err) {
    if (c->source->n_tensors == 0 || !*c->source->arch)
        return lode_fail(err, LODE_ERR_UNSUPPORTED, c->source->path,
                         "architecture '%.60s' is not supported, so its tensors have no names in "
                         "a GGUF file",
                         c->source->arch);
    return 0;
}

static int load_tokenizer(struct lode_convert *c, struct lode_error *err) {
    if (c->source->gguf)
        return 0;
    const int rc = lode_tokenizer_load(&c->tokenizer, c->source->path, err);
    if (rc != LODE_ERR_MISSING)
        return rc;
    lode_convert_say(c, "the directory has no tokenizer: the file speaks in token ids only");
    return 0;
}

int lode_convert_open(struct lode_convert **out, const char *source,
                      const struct lode_convert_opts *opts, struct lode_error *err) {
    static const struct lode_convert_opts none;
    const struct lode_convert_opts *o = opts ? opts : &none;
    *out = NULL;
    struct lode_convert *c = LODE_NEW(struct lode_convert);
    int rc = c ? lode_source_open(&c->source, source, true, err) : lode_fail_nomem(err, source);
    if (rc == 0)
        rc = check_source(c, err);
    if (rc == 0)
        rc = load_tokenizer(c, err);
    if (rc == 0)
        rc = lode_gguf_writer_create(&c->writer, err);
    if (rc == 0)
        rc = plan(c, o, err);
    if (rc == 0)
        rc = lode_pool_create(&c->pool, o->threads ? o->threads : lode_machine_default_threads(),
                              false, err);
    if (rc < 0)
        lode_convert_close(c);
    else
        *out = c;
    return rc;
}

void lode_convert_close(struct lode_convert *c) {
    if (!c)
        return;
    lode_pool_free(c->pool);
    lode_gguf_writer_free(c->writer);
    lode_imatrix_close(c->imatrix);
    lode_tokenizer_free(c->tokenizer);
    lode_source_close(c->source);
    lode_arena_free(&c->arena);
    lode_free(c);
}

/* Whether path leads to one of the source's own files. */
static bool is_source(const struct lode_convert *c, const char *path) {
    struct stat out, in;
    if (!c->source->gguf || stat(path, &out) < 0)
        return false;
    for (size_t i = 0; i < lode_gguf_n_shards(c->source->gguf); i++)
        if (stat(lode_gguf_file(c->source->gguf, i)->path, &in) == 0 && in.st_ino == out.st_ino &&
            in.st_dev == out.st_dev)
            return true;
    return false;
}

int lode_convert_write(struct lode_convert *c, const char *path, lode_progress_fn *progress,
                       void *user, struct lode_error *err) {
    if (c->written)
        return lode_fail(err, LODE_ERR_ARG, path, "this conversion has been written already");
    if (is_source(c, path))
        return lode_fail(err, LODE_ERR_ARG, path,
                         "it is the source itself: name another file, nothing was written");
    c->written = true;
    struct lode_convert_stream s = {c, progress, user, 0};
    LODE_TRY(lode_gguf_writer_begin(c->writer, path, err));
    for (size_t i = 0; i < c->source->n_tensors; i++)
        LODE_TRY(lode_convert_rows(&s, &c->steps[i], err));
    return lode_gguf_writer_commit(c->writer, err);
}

/* ---- looking at it ---- */

const struct lode_convert_info *lode_convert_info(const struct lode_convert *c) { return &c->info; }

size_t lode_convert_n_tensors(const struct lode_convert *c) { return c->source->n_tensors; }

struct lode_convert_tensor lode_convert_tensor(const struct lode_convert *c, size_t i) {
    if (i >= c->source->n_tensors)
        return (struct lode_convert_tensor){.name = "", .from = "", .to = ""};
    const struct lode_convert_step *s = &c->steps[i];
    struct lode_convert_tensor t = {.name = s->t->name,
                                    .from = lode_dtypes[s->t->type].name,
                                    .to = lode_dtypes[s->to].name,
                                    .n_dims = s->t->n_dims,
                                    .from_size = s->t->size,
                                    .fallback = s->fallback};
    size_t row = 0;
    memcpy(t.dims, s->t->dims, sizeof t.dims);
    lode_dtype_row_size(s->to, t.dims[0], &row); /* checked when it was described */
    t.to_size = row * t.dims[1] * t.dims[2] * t.dims[3];
    return t;
}

size_t lode_convert_n_notes(const struct lode_convert *c) { return c->n_notes; }

const char *lode_convert_note(const struct lode_convert *c, size_t i) {
    return i < c->n_notes ? c->notes[i] : "";
}
