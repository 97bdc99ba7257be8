/* hf_quant.c - finds the linears of a directory; hf_quant_read.c reads them. */
#include "format/hf_quant.h"

#include "base/error.h"
#include "base/map.h"

#include <stdarg.h>
#include <stdio.h>

/* How the names of parts end; a linear's own name is what comes before, and ".weight". */
static const struct {
    const char *end;
    enum lode_hf_part part;
} ends[] = {
    {".qweight", LODE_HF_CODES},
    {".weight_packed", LODE_HF_CODES},
    {"_blocks", LODE_HF_CODES},
    {".scales", LODE_HF_SCALES},
    {".weight_scale", LODE_HF_SCALES},
    {".weight_scale_inv", LODE_HF_SCALES},
    {"_scales", LODE_HF_SCALES},
    {".biases", LODE_HF_MINIMA},
    {".qzeros", LODE_HF_ZEROS},
    {".weight_zero_point", LODE_HF_ZEROS},
    {".g_idx", LODE_HF_INDEX},
    {".weight_g_idx", LODE_HF_INDEX},
    {".weight_shape", LODE_HF_SHAPE},
    {".weight_global_scale", LODE_HF_DIVISOR},
    {".weight", LODE_HF_CODES}, /* only beside one of the others, or in FP8 */
};
enum { N_ENDS = sizeof ends / sizeof *ends };

/* Scales of activations, for products in 8 bits: ours have scales of their own. */
static const char *const unused[] = {".input_scale", ".input_global_scale", ".activation_scale",
                                     ".input_zero_point"};

static bool ends_in(struct lode_str name, const char *end) {
    const size_t n = strlen(end);
    return name.len > n && memcmp(name.data + name.len - n, end, n) == 0;
}

static bool is_fp8(enum lode_st_type t) { return t == LODE_ST_F8_E4M3 || t == LODE_ST_F8_E5M2; }

/* The end that a name has; N_ENDS: none. */
static size_t end_of(const char *name) {
    const struct lode_str s = lode_str(name);
    size_t i = 0;
    while (i < N_ENDS && !ends_in(s, ends[i].end))
        i++;
    return i;
}

static struct lode_str stem_of(const char *name, size_t end) {
    return (struct lode_str){name, strlen(name) - strlen(ends[end].end)};
}

/* First pass: which stems are linears. */
static int find_stems(struct lode_hf_linears *f, struct lode_map *stems, struct lode_error *err) {
    const size_t n = lode_st_n_tensors(f->st);
    for (size_t i = 0; i < n; i++) {
        const struct lode_st_tensor *t = lode_st_tensor(f->st, i);
        const size_t end = end_of(t->name);
        if (end == N_ENDS || (end == N_ENDS - 1 && !is_fp8(t->type)))
            continue;
        const int rc = lode_map_put(stems, stem_of(t->name, end), f->n, NULL);
        if (rc < 0)
            return lode_fail_nomem(err, "names of tensors");
        f->n += (uint32_t)rc;
    }
    return 0;
}

static bool is_unused(const char *name) {
    for (size_t i = 0; i < sizeof unused / sizeof *unused; i++)
        if (ends_in(lode_str(name), unused[i]))
            return true;
    return false;
}

/* Second pass: each part to its linear. */
static int take_parts(struct lode_hf_linears *f, const struct lode_map *stems,
                      struct lode_error *err) {
    const size_t n = lode_st_n_tensors(f->st);
    for (size_t i = 0; i < n; i++) {
        const struct lode_st_tensor *t = lode_st_tensor(f->st, i);
        const size_t end = end_of(t->name);
        const uint32_t at =
            end < N_ENDS ? lode_map_get(stems, stem_of(t->name, end)) : LODE_MAP_NONE;
        if (at == LODE_MAP_NONE) {
            if (!is_unused(t->name))
                f->inputs[f->n_inputs++] = t;
            continue;
        }
        struct lode_hf_linear *l = &f->list[at];
        const enum lode_hf_part part = ends[end].part;
        if (l->part[part])
            return lode_fail(err, LODE_ERR_FORMAT, t->name, "it is the same as %s",
                             l->part[part]->name);
        l->part[part] = t;
        if (l->as.name)
            continue;
        f->inputs[f->n_inputs++] = &l->as;
        l->as.shard = LODE_HF_LINEAR;
        l->as.name =
            lode_arena_printf(f->arena, "%.*s.weight", (int)stem_of(t->name, end).len, t->name);
        if (!l->as.name)
            return lode_fail_nomem(err, t->name);
    }
    return 0;
}

/* ---- which scheme ---- */

static const struct lode_hf_scheme *scheme_of_mlx(const struct lode_json *settings) {
    const struct lode_str mode = lode_json_str(lode_json_get(settings, "mode"));
    return !mode.len || lode_str_eqz(mode, "affine") ? &lode_hf_mlx_affine
           : lode_str_eqz(mode, "mxfp4")             ? &lode_hf_mlx_mxfp4
           : lode_str_eqz(mode, "mxfp8")             ? &lode_hf_mlx_mxfp8
           : lode_str_eqz(mode, "nvfp4")             ? &lode_hf_mlx_nvfp4
                                                     : NULL;
}

static const struct lode_hf_scheme *scheme_of_ct(const struct lode_hf_linear *l) {
    const struct lode_st_tensor *codes = l->part[LODE_HF_CODES];
    if (codes->type == LODE_ST_I32)
        return &lode_hf_ct_packed;
    if (codes->type == LODE_ST_I8)
        return &lode_hf_ct_int8;
    return codes->type != LODE_ST_U8 ? NULL
           : l->part[LODE_HF_DIVISOR] ? &lode_hf_ct_nvfp4
                                      : &lode_hf_ct_mxfp4;
}

/* What config.json says of this one: MLX names modules that differ from the others. */
static const struct lode_json *settings_of(const struct lode_hf_linears *f,
                                           const struct lode_hf_linear *l) {
    const struct lode_json *own = lode_json_getn(
        f->settings, (struct lode_str){l->as.name, strlen(l->as.name) - strlen(".weight")});
    return lode_json_is(own, LODE_JSON_OBJECT) ? own : f->settings;
}

static const struct lode_hf_scheme *scheme_of(const struct lode_hf_linears *f,
                                              const struct lode_hf_linear *l) {
    const struct lode_st_tensor *codes = l->part[LODE_HF_CODES];
    if (is_fp8(codes->type))
        return &lode_hf_fp8;
    if (ends_in(lode_str(codes->name), "_blocks"))
        return &lode_hf_mxfp4;
    if (strcmp(f->method, "mlx") == 0)
        return scheme_of_mlx(settings_of(f, l));
    if (strcmp(f->method, "compressed-tensors") == 0)
        return scheme_of_ct(l);
    return strcmp(f->method, "gptq") == 0  ? &lode_hf_gptq
           : strcmp(f->method, "awq") == 0 ? &lode_hf_awq
                                           : NULL;
}

#define KNOWN_METHODS                                                                              \
    "lode reads gptq, awq, compressed-tensors, fp8, mxfp4 and MLX's quantization"
/* What read_settings and scheme_of know. */
static bool is_method(const char *method) {
    static const char *const methods[] = {"",      "mlx",        "gptq", "awq", "compressed-tensors",
                                          "mxfp4", "fbgemm_fp8", "fp8"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (strcmp(method, methods[i]) == 0)
            return true;
    return false;
}

static int fail_method(const struct lode_hf_linears *f, const struct lode_hf_linear *l,
                       struct lode_error *err) {
    const char *method = f->method;
    return lode_fail(err, LODE_ERR_UNSUPPORTED, f->config_path,
                     "tensor %.100s is quantised%s%.40s%s; " KNOWN_METHODS,
                     l->as.name, *method ? " by '" : ", but config.json does not say how", method,
                     *method ? "' in a way that lode does not know" : "");
}

/* The columns group by group, where every group is full (but the last, perhaps). */
static int sort_columns(const struct lode_hf_linears *f, struct lode_hf_linear *l,
                        uint64_t n_groups, struct lode_error *err) {
    uint32_t *order = LODE_ARENA_ARRAY(f->arena, uint32_t, l->cols);
    uint32_t *filled = LODE_ARENA_ARRAY(f->arena, uint32_t, n_groups);
    if (!order || !filled)
        return lode_fail_nomem(err, l->as.name);
    for (uint64_t i = 0; i < l->cols; i++) {
        const uint64_t g = l->index[i], at = g * l->group + filled[g]++;
        if (filled[g] > l->group || at >= l->cols)
            return 0;
        order[at] = (uint32_t)i;
    }
    l->order = order;
    return 0;
}

/* The group of each column.  -1 throughout, or column / group: as without. */
static int read_index(const struct lode_hf_linears *f, struct lode_hf_linear *l,
                      struct lode_error *err) {
    const struct lode_st_tensor *t = l->part[LODE_HF_INDEX];
    const uint64_t n_groups = (l->cols + l->group - 1) / l->group;
    bool plain = true, none = true;
    if (t->type != LODE_ST_I32 || t->size != 4 * l->cols)
        return lode_hf_part_shape(l, LODE_HF_INDEX, err,
                                  "I32, one for each of %llu columns, expected",
                                  (unsigned long long)l->cols);
    uint32_t *index = LODE_ARENA_ARRAY(f->arena, uint32_t, l->cols);
    if (!index)
        return lode_fail_nomem(err, t->name);
    LODE_TRY(lode_st_read(f->st, t, 0, index, t->size, err));
    for (uint64_t i = 0; i < l->cols; i++) {
        plain = plain && index[i] == i / l->group;
        none = none && index[i] == UINT32_MAX;
    }
    for (uint64_t i = 0; i < l->cols && !none; i++)
        if (index[i] >= n_groups)
            return lode_fail(err, LODE_ERR_FORMAT, t->name,
                             "column %llu is in group %d, of %llu groups", (unsigned long long)i,
                             (int32_t)index[i], (unsigned long long)n_groups);
    if (plain || none)
        return 0;
    l->index = index;
    LODE_TRY(sort_columns(f, l, n_groups, err));
    l->type = lode_hf_type_of_codes(l);
    if (l->type == LODE_F32)
        l->order = NULL;
    return 0;
}

/* The shape that it stands for, and its size. */
static int set_shape(struct lode_hf_linear *l, struct lode_error *err) {
    const bool stacked = l->n_matrices > 1 || l->part[LODE_HF_CODES]->n_dims > 2;
    struct lode_st_tensor *as = &l->as;
    size_t n;
    as->type = LODE_ST_U8; /* of no meaning */
    as->n_dims = stacked ? 3 : 2;
    for (uint32_t d = 0; d < LODE_ST_MAX_DIMS; d++)
        as->dims[d] = 1;
    as->dims[0] = l->n_matrices;
    as->dims[as->n_dims - 2] = l->rows;
    as->dims[as->n_dims - 1] = l->cols;
    if (!l->n_matrices || !l->rows || !l->cols ||
        !lode_dtype_row_size(l->type, l->cols, &l->row_size) ||
        __builtin_mul_overflow(l->n_matrices, l->rows, &n) ||
        __builtin_mul_overflow(n, l->row_size, &as->size))
        return lode_hf_part_shape(l, LODE_HF_CODES, err, "it is empty or too large");
    return 0;
}

int lode_hf_describe_linear(const struct lode_hf_linears *f, const struct lode_st_tensor *s,
                            struct lode_error *err) {
    if (!lode_hf_linear(s) || lode_hf_linear(s)->row_size)
        return 0;
    struct lode_hf_linear *l = &f->list[lode_hf_linear(s) - f->list];
    if (!l->part[LODE_HF_CODES])
        return lode_fail(err, LODE_ERR_MISSING, l->as.name,
                         "the directory has its scales, but not its weights");
    l->scheme = scheme_of(f, l);
    if (!l->scheme)
        return fail_method(f, l, err);
    if (!l->part[LODE_HF_SCALES] && l->scheme != &lode_hf_fp8)
        return lode_fail(err, LODE_ERR_MISSING, l->as.name,
                         "the directory has its weights (%s), but not their scales",
                         l->part[LODE_HF_CODES]->name);
    l->group_rows = 1;
    LODE_TRY(l->scheme->describe(l, settings_of(f, l), err));
    if (l->part[LODE_HF_INDEX])
        LODE_TRY(read_index(f, l, err));
    return set_shape(l, err);
}

bool lode_hf_widen_linear(const struct lode_hf_linears *f, const struct lode_st_tensor *s) {
    struct lode_hf_linear *l = &f->list[lode_hf_linear(s) - f->list];
    size_t row, size;
    if (!l->scheme->codes && l->scheme != &lode_hf_fp8)
        return false;
    if (__builtin_mul_overflow(l->cols, sizeof(float), &row) ||
        __builtin_mul_overflow(row, l->n_matrices * l->rows, &size))
        return false;
    l->type = LODE_F32;
    l->order = NULL;
    l->row_size = row;
    l->as.size = size;
    return true;
}

void lode_hf_label_linears(const struct lode_hf_linears *f, char out[LODE_HF_LABEL]) {
    enum { MOST = 16 };
    struct {
        char text[LODE_HF_LABEL];
        double numbers;
    } found[MOST];
    size_t n = 0, best = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        const struct lode_hf_linear *l = &f->list[i];
        char text[LODE_HF_LABEL], own[LODE_HF_LABEL / 2];
        if (!l->row_size)
            continue;
        l->scheme->label(l, own, sizeof own);
        snprintf(text, sizeof text, "%s%s%s", l->scheme->name, *own ? " " : "", own);
        size_t k = 0;
        while (k < n && strcmp(found[k].text, text) != 0)
            k++;
        if (k == MOST)
            continue;
        if (k == n) {
            memcpy(found[k].text, text, sizeof text);
            found[n++].numbers = 0;
        }
        found[k].numbers += (double)l->n_matrices * (double)l->rows * (double)l->cols;
        best = found[k].numbers > found[best].numbers ? k : best;
    }
    if (n)
        memcpy(out, found[best].text, LODE_HF_LABEL);
}

void lode_hf_widened(const struct lode_hf_linears *f, uint64_t *wide, uint64_t *all) {
    *wide = *all = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        const uint64_t size = f->list[i].row_size ? f->list[i].as.size : 0;
        *all += size;
        *wide += f->list[i].type == LODE_F32 ? size : 0;
    }
}

/* Where config.json speaks of it: transformers' quantization_config names its method; MLX writes
 * `quantization`, and the same as quantization_config without a method. */
static void read_settings(struct lode_hf_linears *f, const struct lode_json *config) {
    const struct lode_json *const places[] = {
        lode_json_get(config, "quantization_config"),
        lode_json_get(lode_json_get(config, "text_config"), "quantization_config"),
        lode_json_get(config, "quantization"),
        lode_json_get(config, "compression_config"), /* older compressed-tensors */
    };
    for (size_t i = 0; i < sizeof places / sizeof *places && !f->settings; i++)
        f->settings = lode_json_is(places[i], LODE_JSON_OBJECT) ? places[i] : NULL;
    const struct lode_str method = lode_json_str(lode_json_get(f->settings, "quant_method"));
    const struct lode_str guess =
        method.len                                        ? method
        : lode_json_get(f->settings, "config_groups")     ? LODE_STR("compressed-tensors")
        : lode_json_get(f->settings, "group_size")        ? LODE_STR("mlx")
                                                          : (struct lode_str){"", 0};
    const size_t most = sizeof f->method - 1;
    memcpy(f->method, guess.data, guess.len < most ? guess.len : most);
}

int lode_hf_find_linears(struct lode_hf_linears *out, struct lode_arena *arena,
                         const struct lode_st *st, const struct lode_json *config,
                         const char *config_path, struct lode_error *err) {
    struct lode_map stems = {0};
    *out = (struct lode_hf_linears){.st = st, .arena = arena, .config_path = config_path};
    read_settings(out, config);
    if (!is_method(out->method))
        return lode_fail(err, LODE_ERR_UNSUPPORTED, config_path,
                         "quantization_config.quant_method is '%s'; " KNOWN_METHODS, out->method);
    int rc = find_stems(out, &stems, err);
    if (rc == 0) {
        out->list = LODE_ARENA_ARRAY(arena, struct lode_hf_linear, out->n);
        out->inputs = LODE_ARENA_ARRAY(arena, const struct lode_st_tensor *, lode_st_n_tensors(st));
        rc = out->list && out->inputs ? take_parts(out, &stems, err)
                                      : lode_fail_nomem(err, "list of tensors");
    }
    lode_map_free(&stems);
    return rc;
}

/* ---- what schemes share ---- */

int lode_hf_part_type(const struct lode_hf_linear *l, enum lode_hf_part p, const char *expected,
                      struct lode_error *err) {
    return lode_fail(err, LODE_ERR_FORMAT, l->part[p]->name, "its dtype is %s; %s expected for %s",
                     lode_st_type_name(l->part[p]->type), expected, l->scheme->name);
}

int lode_hf_part_shape(const struct lode_hf_linear *l, enum lode_hf_part p, struct lode_error *err,
                       const char *fmt, ...) {
    const struct lode_st_tensor *t = l->part[p];
    char shape[160] = "", why[160];
    size_t at = 0;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    for (uint32_t i = 0; i < t->n_dims && at < sizeof shape; i++)
        at += (size_t)snprintf(shape + at, sizeof shape - at, "%s%llu", i ? " x " : "",
                               (unsigned long long)t->dims[i]);
    return lode_fail(err, LODE_ERR_FORMAT, t->name, "its shape is %s (%s): %s", shape,
                     l->scheme->name, why);
}

uint64_t lode_hf_part_cols(const struct lode_st_tensor *t) {
    return t->n_dims ? t->dims[t->n_dims - 1] : 1;
}
uint64_t lode_hf_part_rows(const struct lode_st_tensor *t) {
    return t->n_dims > 1 ? t->dims[t->n_dims - 2] : 1;
}
uint64_t lode_hf_part_matrices(const struct lode_st_tensor *t) {
    uint64_t n = 1;
    for (uint32_t i = 0; i + 2 < t->n_dims; i++)
        n *= t->dims[i]; /* the file's size bounds it, but where a dimension is 0 */
    return n;
}

bool lode_hf_part_is(const struct lode_hf_linear *l, enum lode_hf_part p, uint64_t a, uint64_t b) {
    const struct lode_st_tensor *t = l->part[p];
    return t && lode_hf_part_rows(t) == a && lode_hf_part_cols(t) == b &&
           lode_hf_part_matrices(t) == l->n_matrices;
}
