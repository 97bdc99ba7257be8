/* Quantised layouts of directories: every scheme's numbers bit for bit, read in any piece; what is
 * refused; no memory.
 *
 * The layouts are made here, number by number, from the formulas that their tools publish, and the
 * expected weights beside them; where $LODE_SHARED/ref is present, its files are read as well, whose
 * weights were computed by MLX, torch and NumPy. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "failmalloc.h"
#include "tmpdir.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/half.h"
#include "format/hf_quant.h"
#include "kern/kern.h"

#include <stdlib.h>
#include <string.h>

static struct lode_error err;

/* ---- a safetensors file of a few tensors ---- */

enum { MAX_PARTS = 6 };
struct part {
    char name[64];
    enum lode_st_type type;
    uint64_t dims[4];
    uint32_t n_dims;
    size_t size;
    uint8_t *data; /* owned */
};
struct layout {
    struct part parts[MAX_PARTS];
    size_t n;
    char config[512];
    float *want; /* owned; (matrices, rows, cols) */
    size_t n_want;
    enum lode_dtype type; /* that it must become */
};

static size_t bits_of(enum lode_st_type t) {
    static const uint8_t bits[] = {
#define BITS(name, bits) bits,
        LODE_ST_TYPE_LIST(BITS)
#undef BITS
    };
    return bits[t];
}

/* A part of up to 3 dimensions (0: none), zeroed. */
static uint8_t *add(struct layout *l, const char *name, enum lode_st_type type, uint64_t a,
                    uint64_t b, uint64_t c) {
    struct part *p = &l->parts[l->n++];
    const uint64_t dims[3] = {a, b, c};
    *p = (struct part){.type = type};
    snprintf(p->name, sizeof p->name, "%s", name);
    p->size = bits_of(type) / 8;
    for (int i = 0; i < 3 && dims[i]; i++) {
        p->dims[p->n_dims++] = dims[i];
        p->size *= dims[i];
    }
    p->data = calloc(p->size, 1);
    assert_non_null(p->data);
    return p->data;
}

static void want(struct layout *l, size_t n) {
    l->n_want = n;
    l->want = calloc(n, sizeof *l->want);
    assert_non_null(l->want);
}

static void drop(struct layout *l) {
    for (size_t i = 0; i < l->n; i++)
        free(l->parts[i].data);
    free(l->want);
    *l = (struct layout){0};
}

static void write_file(const struct layout *l) {
    struct lode_buf b = {0};
    size_t at = 0;
    lode_buf_add(&b, "\0\0\0\0\0\0\0\0", 8);
    for (size_t i = 0; i < l->n; i++) {
        const struct part *p = &l->parts[i];
        lode_buf_addf(&b, "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[", i ? ',' : '{', p->name,
                      lode_st_type_name(p->type));
        for (uint32_t d = 0; d < p->n_dims; d++)
            lode_buf_addf(&b, "%s%llu", d ? "," : "", (unsigned long long)p->dims[d]);
        lode_buf_addf(&b, "],\"data_offsets\":[%zu,%zu]}", at, at + p->size);
        at += p->size;
    }
    lode_buf_addc(&b, '}');
    const uint64_t size = b.len - 8;
    memcpy(b.data, &size, 8);
    for (size_t i = 0; i < l->n; i++)
        lode_buf_add(&b, l->parts[i].data, l->parts[i].size);
    assert_false(b.failed);
    char *path = tmp_path("model.safetensors");
    FILE *f = fopen(path, "wb");
    assert_true(f && fwrite(b.data, 1, b.len, f) == b.len && fclose(f) == 0);
    free(path);
    lode_buf_free(&b);
}

/* ---- reading it ---- */

struct opened {
    struct lode_st *st;
    struct lode_json_doc config;
    struct lode_arena arena;
    struct lode_hf_linears linears;
    const struct lode_hf_linear *l;
};

static int open_layout(struct opened *o, const struct layout *l) {
    *o = (struct opened){0};
    int rc = lode_st_open(&o->st, tmp_dir(), false, &err);
    if (rc == 0)
        rc = lode_json_parse(&o->config, lode_str(l->config), "config.json", &err);
    if (rc == 0)
        rc = lode_hf_find_linears(&o->linears, &o->arena, o->st, o->config.nodes, "config.json",
                                  &err);
    for (size_t i = 0; rc == 0 && i < o->linears.n_inputs; i++) {
        rc = lode_hf_describe_linear(&o->linears, o->linears.inputs[i], &err);
        if (!o->l)
            o->l = lode_hf_linear(o->linears.inputs[i]);
    }
    return rc;
}

static void close_layout(struct opened *o) {
    lode_st_close(o->st);
    lode_json_free(&o->config);
    lode_arena_free(&o->arena);
}

static const char *what; /* is being checked */

static void compare(const struct layout *l, const struct lode_hf_linear *linear, const void *rows) {
    const enum lode_dtype type = linear->type;
    float *got = malloc(l->n_want * sizeof *got);
    assert_non_null(got);
    for (int isa = 0; isa < LODE_ISA_COUNT; isa++) {
        struct lode_kern k;
        if (!lode_isa_usable((enum lode_isa)isa))
            continue;
        lode_kern_table(&k, (enum lode_isa)isa);
        k.dequant[type](got, rows, l->n_want);
        for (size_t i = 0; i < l->n_want; i++) {
            const size_t col = i % linear->cols, place = linear->order ? linear->order[col] : col;
            const float right = l->want[i - col + place];
            if (!(isnan(got[i]) && isnan(right)) && got[i] != right)
                fail_msg("%s, %s: number %zu is %a, not %a", what, k.isa, i, (double)got[i],
                         (double)right);
        }
    }
    free(got);
}

static void check(struct layout *l) {
    struct opened o;
    write_file(l);
    if (open_layout(&o, l) < 0)
        fail_msg("%s: %s: %s", what, err.where, err.text);
    assert_non_null(o.l);
    assert_int_equal(o.linears.n_inputs, 1);
    if (o.l->type != l->type)
        fail_msg("%s: it becomes %s, not %s", what, lode_dtypes[o.l->type].name,
                 lode_dtypes[l->type].name);
    assert_int_equal(o.l->n_matrices * o.l->rows * o.l->cols, l->n_want);
    const size_t size = o.l->as.size, row = o.l->row_size;
    const uint64_t n_rows = o.l->n_matrices * o.l->rows;
    char *all = malloc(size), *some = malloc(size);
    assert_true(all && some);
    assert_int_equal(lode_hf_linear_read(&(struct lode_st_from){o.st, NULL}, o.l, 0, all, size, &err), 0);
    compare(l, o.l, all);
    /* pieces that begin and end anywhere */
    for (size_t n = 1; n < size; n = 2 * n + 5)
        for (size_t at = 0; at + n <= size; at += 3 * n + row / 2) {
            assert_int_equal(lode_hf_linear_read(&(struct lode_st_from){o.st, NULL}, o.l, at, some, n, &err), 0);
            assert_memory_equal(some, all + at, n);
        }
    for (uint64_t step = 1; step < 4; step++) { /* every step-th row, past matrices' ends */
        const uint64_t n = (n_rows - 1 + step - 1) / step;
        assert_int_equal(lode_hf_linear_rows(&(struct lode_st_from){o.st, NULL}, o.l, 1, step, n, some, &err), 0);
        for (uint64_t i = 0; i < n; i++)
            assert_memory_equal(some + i * row, all + (1 + i * step) * row, row);
    }
    free(all);
    free(some);
    close_layout(&o);
}

/* ---- random numbers, and how layouts write them ---- */

static uint64_t seed;
static uint32_t below(uint32_t n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

/* A scale of a type; what it is. */
static float put_scale(struct layout *l, size_t part, size_t i, float sign) {
    const float f = sign * (float)(1 + below(1000)) / 8192.0f;
    uint8_t *p = l->parts[part].data;
    uint16_t half;
    switch (l->parts[part].type) {
    case LODE_ST_F32: {
        const float odd = f * 1.1f;
        memcpy(p + 4 * i, &odd, 4);
        return odd;
    }
    case LODE_ST_F16:
        half = lode_f32_f16(f);
        memcpy(p + 2 * i, &half, 2);
        return lode_f16_f32(half);
    default:
        half = lode_f32_bf16(f);
        memcpy(p + 2 * i, &half, 2);
        return lode_bf16_f32(half);
    }
}

static void put_bits(uint8_t *p, size_t at, uint32_t code, uint32_t bits) {
    for (uint32_t b = 0; b < bits; b++)
        p[(at + b) / 8] = (uint8_t)(p[(at + b) / 8] | (code >> b & 1) << (at + b) % 8);
}

/* sign, exponent, mantissa by their definition */
static float small_float(uint32_t code, int exp_bits, int man_bits) {
    const int bias = (1 << (exp_bits - 1)) - 1, e = (int)(code >> man_bits) & ((1 << exp_bits) - 1);
    const int m = (int)code & ((1 << man_bits) - 1);
    const double v = e ? ldexp(1 + ldexp(m, -man_bits), e - bias) : ldexp(m, 1 - bias - man_bits);
    return (float)(code >> (exp_bits + man_bits) & 1 ? -v : v);
}

/* ---- MLX ---- */

static void mlx_affine(struct layout *l, uint32_t bits, uint32_t group, enum lode_st_type type,
                       size_t matrices, size_t rows, size_t cols) {
    const size_t n = matrices > 1 ? matrices : 0, groups = cols / group;
    const size_t words = cols * bits / 32;
    uint8_t *q = n ? add(l, "a.b.weight", LODE_ST_U32, n, rows, words)
                   : add(l, "a.b.weight", LODE_ST_U32, rows, words, 0);
    add(l, "a.b.scales", type, n ? n : rows, n ? rows : groups, n ? groups : 0);
    add(l, "a.b.biases", type, n ? n : rows, n ? rows : groups, n ? groups : 0);
    want(l, matrices * rows * cols);
    /* the module has settings of its own, which come before the others */
    snprintf(l->config, sizeof l->config,
             "{\"quantization\":{\"group_size\":%u,\"bits\":%u,\"mode\":\"affine\"%s%u}}", group,
             bits == 2 ? 3 : bits, bits == 2 ? ",\"a.b\":{\"group_size\":64,\"bits\":2},\"x\":" : ",\"x\":",
             group);
    if (bits == 2)
        assert_int_equal(group, 64);
    float d = 0, m = 0;
    for (size_t i = 0; i < l->n_want; i++) {
        if (i % group == 0) {
            d = put_scale(l, 1, i / group, 1);
            m = put_scale(l, 2, i / group, -1);
        }
        const uint32_t code = below(1u << bits);
        put_bits(q, i * bits, code, bits);
        const float product = d * (float)code;
        l->want[i] = product + m;
    }
}

static void reads_mlx_affine(void **state) {
    (void)state;
    static const struct {
        uint32_t bits, group;
        size_t matrices, rows, cols;
        enum lode_st_type scales;
        enum lode_dtype type;
    } cases[] = {
        {2, 64, 1, 5, 128, LODE_ST_BF16, LODE_U2},    {3, 64, 1, 5, 192, LODE_ST_BF16, LODE_U3},
        {4, 64, 1, 5, 128, LODE_ST_BF16, LODE_U4},    {5, 128, 1, 5, 256, LODE_ST_F16, LODE_U5},
        {6, 64, 1, 5, 128, LODE_ST_F32, LODE_U6},     {8, 64, 3, 5, 128, LODE_ST_BF16, LODE_U8},
        {3, 32, 1, 5, 128, LODE_ST_BF16, LODE_U4G32}, {4, 32, 2, 4, 96, LODE_ST_F16, LODE_U4G32},
        {6, 32, 1, 5, 64, LODE_ST_BF16, LODE_U8G32},  {4, 128, 1, 300, 512, LODE_ST_BF16, LODE_U4},
        {4, 16, 1, 5, 128, LODE_ST_BF16, LODE_F32},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct layout l = {.type = cases[i].type};
        char name[64];
        snprintf(name, sizeof name, "MLX %u bits, groups of %u", cases[i].bits, cases[i].group);
        what = name;
        seed = i;
        mlx_affine(&l, cases[i].bits, cases[i].group, cases[i].scales, cases[i].matrices,
                   cases[i].rows, cases[i].cols);
        check(&l);
        drop(&l);
    }
}

/* 4- and 8-bit floats: codes in natural order, scales of 8 bits. */
static void fp_blocks(struct layout *l, uint32_t bits, size_t group, bool e8m0, float divisor) {
    uint8_t *q = l->parts[0].data, *scales = l->parts[1].data;
    for (size_t i = 0; i < l->n_want; i++) {
        if (i % group == 0)
            scales[i / group] = (uint8_t)(e8m0 ? i == 0 ? 0 : 100 + below(50) : 1 + below(0x7e));
        const uint8_t s = scales[i / group];
        const float scale = e8m0 ? (float)ldexp(1, s - 127) : small_float(s, 4, 3) / divisor;
        uint32_t code = below(1u << bits);
        if (bits == 8 && (code & 0x7f) == 0x7f)
            code ^= 1;
        put_bits(q, i * bits, code, bits);
        l->want[i] = scale * (bits == 4 ? small_float(code, 2, 1) : small_float(code, 4, 3));
    }
}

static void reads_small_floats(void **state) {
    (void)state;
    static const char *const modes[] = {"mxfp4", "mxfp8", "nvfp4"};
    for (int i = 0; i < 3; i++) {
        struct layout l = {.type = i == 0 ? LODE_MXFP4 : i == 1 ? LODE_E4M3 : LODE_NVFP4};
        what = modes[i];
        add(&l, "a.weight", LODE_ST_U32, 6, i == 1 ? 32 : 16, 0);
        add(&l, "a.scales", LODE_ST_U8, 6, i == 2 ? 8 : 4, 0);
        want(&l, 6 * 128);
        snprintf(l.config, sizeof l.config,
                 "{\"quantization\":{\"group_size\":%d,\"bits\":%d,\"mode\":\"%s\"}}",
                 i == 2 ? 16 : 32, i == 1 ? 8 : 4, modes[i]);
        fp_blocks(&l, i == 1 ? 8 : 4, i == 2 ? 16 : 32, i < 2, 1);
        check(&l);
        drop(&l);
    }
    struct layout oss = {.type = LODE_MXFP4,
                         .config = "{\"quantization_config\":{\"quant_method\":\"mxfp4\"}}"};
    what = "gpt-oss";
    add(&oss, "experts.gate_up_proj_blocks", LODE_ST_U8, 3 * 4, 2, 16);
    add(&oss, "experts.gate_up_proj_scales", LODE_ST_U8, 3, 4, 2);
    oss.parts[0].n_dims = 4;
    memcpy(oss.parts[0].dims, (uint64_t[]){3, 4, 2, 16}, 4 * sizeof(uint64_t));
    want(&oss, 3 * 4 * 64);
    fp_blocks(&oss, 4, 32, true, 1);
    check(&oss);
    drop(&oss);
    for (int i = 0; i < 2; i++) {
        struct layout ct = {
            .type = i ? LODE_NVFP4G : LODE_MXFP4,
            .config = "{\"quantization_config\":{\"quant_method\":\"compressed-tensors\"}}"};
        const float divisor = 37.3f;
        what = i ? "compressed-tensors nvfp4" : "compressed-tensors mxfp4";
        add(&ct, "a.weight_packed", LODE_ST_U8, 6, 64, 0);
        add(&ct, "a.weight_scale", i ? LODE_ST_F8_E4M3 : LODE_ST_U8, 6, i ? 8 : 4, 0);
        if (i)
            memcpy(add(&ct, "a.weight_global_scale", LODE_ST_F32, 1, 0, 0), &divisor, 4);
        want(&ct, 6 * 128);
        fp_blocks(&ct, 4, i ? 16 : 32, !i, divisor);
        check(&ct);
        drop(&ct);
    }
}

/* ---- GPTQ and AWQ ---- */

/* desc_act: groups of all sizes; full groups whose columns lie apart (37 and cols are coprime) */
enum { RANDOM = 1, SHUFFLED };

static void gptq(struct layout *l, uint32_t bits, size_t rows, size_t cols, size_t group,
                 int version, int act_order) {
    const size_t groups = (cols + group - 1) / group;
    uint8_t *q = add(l, "a.qweight", LODE_ST_I32, cols * bits / 32, rows, 0);
    uint8_t *z = add(l, "a.qzeros", LODE_ST_I32, groups, rows * bits / 32, 0);
    add(l, "a.scales", LODE_ST_F16, groups, rows, 0);
    uint8_t *g_idx = add(l, "a.g_idx", LODE_ST_I32, cols, 0, 0);
    want(l, rows * cols);
    snprintf(l->config, sizeof l->config,
             "{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":%u,\"group_size\":%zu,"
             "\"checkpoint_format\":\"gptq%s\"}}",
             bits, group, version == 2 ? "_v2" : "");
    float *d = calloc(groups * rows, sizeof *d);
    uint32_t *zero = calloc(groups * rows, sizeof *zero);
    for (size_t g = 0; g < groups; g++)
        for (size_t r = 0; r < rows; r++) {
            const size_t i = g * rows + r;
            d[i] = put_scale(l, 2, i, 1);
            zero[i] = below(1u << bits); /* as stored */
            put_bits(z, i * bits, zero[i], bits);
            zero[i] += version == 1;
        }
    for (size_t c = 0; c < cols; c++) {
        const uint32_t g = act_order == RANDOM     ? below((uint32_t)groups)
                           : act_order == SHUFFLED ? (uint32_t)(c * 37 % cols / group)
                                                   : (uint32_t)(c / group);
        memcpy(g_idx + 4 * c, &g, 4);
        for (size_t r = 0; r < rows; r++) {
            const uint32_t code = below(1u << bits), per_word = 32 / bits;
            put_bits(q, (c / per_word * rows + r) * 32 + c % per_word * bits, code, bits);
            l->want[r * cols + c] = d[g * rows + r] * ((float)code - (float)zero[g * rows + r]);
        }
    }
    free(d);
    free(zero);
}

static void reads_gptq(void **state) {
    (void)state;
    static const struct {
        uint32_t bits;
        size_t rows, cols, group;
        int version, act_order;
        enum lode_dtype type;
    } cases[] = {
        {2, 16, 128, 64, 1, 0, LODE_U2},          {4, 24, 256, 128, 1, 0, LODE_U4},
        {8, 12, 128, 64, 1, 0, LODE_U8},          {4, 16, 128, 32, 2, 0, LODE_U4G32},
        {4, 16, 192, 128, 1, 0, LODE_U4},         {4, 16, 128, 128, 1, 0, LODE_U4},
        {4, 16, 96, 96, 1, 0, LODE_U4G32},        {4, 16, 128, 32, 1, RANDOM, LODE_F32},
        {2, 32, 128, 16, 1, 0, LODE_F32},         {4, 16, 128, 32, 1, SHUFFLED, LODE_U4G32},
        {4, 16, 192, 128, 1, SHUFFLED, LODE_U4},  {8, 16, 128, 64, 2, SHUFFLED, LODE_U8},
        {2, 32, 128, 16, 1, SHUFFLED, LODE_F32},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct layout l = {.type = cases[i].type};
        char name[64];
        snprintf(name, sizeof name, "GPTQ %u bits, case %zu", cases[i].bits, i);
        what = name;
        seed = i;
        gptq(&l, cases[i].bits, cases[i].rows, cases[i].cols, cases[i].group, cases[i].version,
             cases[i].act_order);
        check(&l);
        drop(&l);
    }
}

static void awq(struct layout *l, size_t rows, size_t cols, size_t group) {
    static const size_t order[8] = {0, 2, 4, 6, 1, 3, 5, 7}; /* nibble j is row 8 c + order[j] */
    const size_t groups = cols / group;
    uint8_t *q = add(l, "a.qweight", LODE_ST_I32, cols, rows / 8, 0);
    uint8_t *z = add(l, "a.qzeros", LODE_ST_I32, groups, rows / 8, 0);
    add(l, "a.scales", LODE_ST_F16, groups, rows, 0);
    want(l, rows * cols);
    snprintf(l->config, sizeof l->config,
             "{\"quantization_config\":{\"quant_method\":\"awq\",\"bits\":4,\"version\":\"gemm\"}}");
    float *d = calloc(groups * rows, sizeof *d), *zero = calloc(groups * rows, sizeof *zero);
    for (size_t g = 0; g < groups; g++)
        for (size_t w = 0; w < rows / 8; w++)
            for (size_t j = 0; j < 8; j++) {
                const uint32_t code = below(16);
                put_bits(z, (g * (rows / 8) + w) * 32 + 4 * j, code, 4);
                zero[g * rows + 8 * w + order[j]] = (float)code;
            }
    for (size_t i = 0; i < groups * rows; i++)
        d[i] = put_scale(l, 2, i, 1);
    for (size_t c = 0; c < cols; c++)
        for (size_t w = 0; w < rows / 8; w++)
            for (size_t j = 0; j < 8; j++) {
                const size_t r = 8 * w + order[j], at = c / group * rows + r;
                const uint32_t code = below(16);
                put_bits(q, (c * (rows / 8) + w) * 32 + 4 * j, code, 4);
                l->want[r * cols + c] = d[at] * ((float)code - zero[at]);
            }
    free(d);
    free(zero);
}

static void reads_awq(void **state) {
    (void)state;
    for (size_t group = 32; group <= 128; group *= 2) {
        struct layout l = {.type = group == 32 ? LODE_U4G32 : LODE_U4};
        what = "AWQ";
        awq(&l, 24, 256, group);
        check(&l);
        drop(&l);
    }
}

/* ---- compressed-tensors, FP8 ---- */

static void ct_int(struct layout *l, uint32_t bits, bool packed, bool zeros, size_t rows,
                   size_t cols, size_t groups, enum lode_st_type scales) {
    const size_t per_word = 32 / bits;
    const uint32_t middle = 1u << (bits - 1);
    uint8_t *q = packed ? add(l, "a.weight_packed", LODE_ST_I32, rows, cols / per_word, 0)
                        : add(l, "a.weight", LODE_ST_I8, rows, cols, 0);
    add(l, "a.weight_scale", scales, rows, groups, 0);
    uint8_t *z = !zeros   ? NULL
                 : packed ? add(l, "a.weight_zero_point", LODE_ST_I32,
                                (rows + per_word - 1) / per_word, groups, 0)
                          : add(l, "a.weight_zero_point", LODE_ST_I8, rows, groups, 0);
    if (packed) {
        const int64_t shape[2] = {(int64_t)rows, (int64_t)cols};
        memcpy(add(l, "a.weight_shape", LODE_ST_I64, 2, 0, 0), shape, sizeof shape);
    }
    want(l, rows * cols);
    snprintf(l->config, sizeof l->config,
             "{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"config_groups\":"
             "{\"group_0\":{\"weights\":{\"num_bits\":%u}}}}}",
             bits);
    for (size_t r = 0; r < rows; r++)
        for (size_t g = 0; g < groups; g++) {
            const float d = put_scale(l, 1, r * groups + g, 1);
            const uint32_t zero = zeros ? below(1u << bits) : middle;
            if (zeros && packed)
                put_bits(z, (r / per_word * groups + g) * 32 + r % per_word * bits, zero, bits);
            else if (zeros)
                z[r * groups + g] = (uint8_t)(zero - middle);
            for (size_t c = g * (cols / groups); c < (g + 1) * (cols / groups); c++) {
                const uint32_t code = below(1u << bits);
                if (packed)
                    put_bits(q, (r * cols + c) * bits, code, bits);
                else
                    q[r * cols + c] = (uint8_t)(code - middle);
                l->want[r * cols + c] = d * ((float)code - (float)zero);
            }
        }
}

static void reads_compressed_tensors(void **state) {
    (void)state;
    static const struct {
        uint32_t bits;
        bool packed, zeros;
        size_t rows, cols, groups;
        enum lode_st_type scales;
        enum lode_dtype type;
    } cases[] = {
        {4, true, false, 7, 128, 2, LODE_ST_BF16, LODE_U4},
        {4, true, true, 13, 128, 4, LODE_ST_BF16, LODE_U4G32},
        {8, true, true, 9, 128, 1, LODE_ST_F16, LODE_U8},
        {8, false, false, 9, 128, 1, LODE_ST_BF16, LODE_U8},
        {8, false, true, 9, 96, 1, LODE_ST_BF16, LODE_U8G32},
        {8, false, false, 9, 128, 1, LODE_ST_F32, LODE_F32},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct layout l = {.type = cases[i].type};
        char name[64];
        snprintf(name, sizeof name, "compressed-tensors int%u, case %zu", cases[i].bits, i);
        what = name;
        seed = i;
        ct_int(&l, cases[i].bits, cases[i].packed, cases[i].zeros, cases[i].rows, cases[i].cols,
               cases[i].groups, cases[i].scales);
        check(&l);
        drop(&l);
    }
}

static void reads_fp8(void **state) {
    (void)state;
    static const struct {
        const char *scale;
        size_t rows, cols, scale_dims[2], block[2];
        bool e5m2;
        enum lode_dtype type;
    } cases[] = {
        {NULL, 4, 64, {0, 0}, {9, 99}, false, LODE_E4M3},
        {"a.weight_scale", 4, 64, {1, 0}, {9, 99}, false, LODE_E4M3},
        {"a.weight_scale", 4, 64, {4, 1}, {1, 99}, true, LODE_E5M2},
        {"a.weight_scale", 4, 64, {4, 0}, {1, 99}, false, LODE_E4M3},
        {"a.weight_scale_inv", 37, 80, {3, 3}, {16, 32}, false, LODE_F32},
        {"a.weight_scale_inv", 37, 160, {3, 5}, {16, 32}, false, LODE_E4M3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t rows = cases[i].rows, cols = cases[i].cols;
        const size_t br = cases[i].block[0] == 9 ? rows : cases[i].block[0];
        const size_t bc = cases[i].block[1] == 99 ? cols : cases[i].block[1];
        struct layout l = {.type = cases[i].type};
        char name[64];
        float d[64];
        snprintf(name, sizeof name, "FP8, case %zu", i);
        what = name;
        seed = i;
        snprintf(l.config, sizeof l.config,
                 "{\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[16,32]}}");
        uint8_t *q = add(&l, "a.weight", cases[i].e5m2 ? LODE_ST_F8_E5M2 : LODE_ST_F8_E4M3, rows,
                         cols, 0);
        if (cases[i].scale)
            add(&l, cases[i].scale, i % 2 ? LODE_ST_F32 : LODE_ST_BF16, cases[i].scale_dims[0],
                cases[i].scale_dims[1], 0);
        want(&l, rows * cols);
        const size_t n_groups = (cols + bc - 1) / bc;
        for (size_t k = 0; k < (rows + br - 1) / br * n_groups; k++)
            d[k] = cases[i].scale ? put_scale(&l, 1, k, 1) : 1;
        for (size_t r = 0; r < rows; r++)
            for (size_t c = 0; c < cols; c++) { /* every code, NaN and infinities too */
                const uint32_t code = r * cols + c < 256 ? (uint32_t)(r * cols + c) : below(256);
                const uint32_t size = code & 0x7f;
                q[r * cols + c] = (uint8_t)code;
                float w = cases[i].e5m2 ? small_float(code, 5, 2) : small_float(code, 4, 3);
                if (cases[i].e5m2 && size >= 0x7c)
                    w = size > 0x7c ? NAN : code & 0x80 ? -INFINITY : INFINITY;
                if (!cases[i].e5m2 && size == 0x7f)
                    w = NAN;
                l.want[r * cols + c] = d[r / br * n_groups + c / bc] * w;
            }
        check(&l);
        drop(&l);
    }
}

/* ---- the reference's files ---- */

static void *read_npy(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    uint8_t head[10];
    if (!f)
        return NULL;
    assert_int_equal(fread(head, 1, 10, f), 10);
    fseek(f, 0, SEEK_END);
    const long at = 10 + (head[8] | head[9] << 8);
    *n = (size_t)(ftell(f) - at);
    fseek(f, at, SEEK_SET);
    void *data = malloc(*n ? *n : 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *n, f), *n);
    fclose(f);
    return data;
}

#define QC(method, more) "{\"quantization_config\":{\"quant_method\":\"" method "\"" more "}}"

static void reads_hf_reference(void **state) {
    (void)state;
    static const struct {
        const char *name, *config;
        enum lode_dtype type;
    } files[] = {
        {"gptq_b2", QC("gptq", ",\"bits\":2"), LODE_U2},
        {"gptq_b4", QC("gptq", ",\"bits\":4"), LODE_U4},
        {"gptq_b8", QC("gptq", ",\"bits\":8"), LODE_U8},
        {"gptq_b2_desc_act", QC("gptq", ",\"bits\":2,\"desc_act\":true"), LODE_U2},
        {"gptq_b4_desc_act", QC("gptq", ",\"bits\":4,\"desc_act\":true"), LODE_U4},
        {"gptq_b8_desc_act", QC("gptq", ",\"bits\":8,\"desc_act\":true"), LODE_U8},
        {"awq_b4_gemm", QC("awq", ",\"bits\":4"), LODE_U4},
        {"ct_pack_quantized_b4_sym", QC("compressed-tensors", ""), LODE_U4G32},
        {"ct_pack_quantized_b4_asym", QC("compressed-tensors", ""), LODE_U4G32},
        {"ct_float_quantized_fp8_channel", QC("compressed-tensors", ""), LODE_E4M3},
        {"ct_nvfp4_pack_quantized", QC("compressed-tensors", ""), LODE_NVFP4G},
        {"fp8_block_weight_scale_inv", QC("fp8", ",\"weight_block_size\":[32,32]"), LODE_E4M3},
        {"gpt_oss_mxfp4", QC("mxfp4", ""), LODE_MXFP4},
    };
    const char *shared = getenv("LODE_SHARED");
    int n_read = 0;
    for (size_t i = 0; shared && i < sizeof files / sizeof *files; i++) {
        struct layout l = {.type = files[i].type};
        char path[4096];
        snprintf(path, sizeof path, "%s/ref/quant/hf/%s.deq.npy", shared, files[i].name);
        what = files[i].name;
        l.want = read_npy(path, &l.n_want);
        if (!l.want)
            continue;
        l.n_want /= sizeof(float);
        snprintf(path, sizeof path, "%s/ref/quant/hf/%s.safetensors", shared, what);
        FILE *f = fopen(path, "rb");
        assert_non_null(f);
        fseek(f, 0, SEEK_END);
        const size_t size = (size_t)ftell(f);
        rewind(f);
        uint8_t *data = malloc(size);
        assert_true(data && fread(data, 1, size, f) == size);
        fclose(f);
        struct lode_st *st;
        assert_int_equal(lode_st_parse(&st, data, size, size, &err), 0);
        const struct lode_st_tensor *t;
        for (size_t k = 0; (t = lode_st_tensor(st, k)); k++) { /* under a name */
            struct part *p = &l.parts[l.n++];
            *p = (struct part){.type = t->type, .n_dims = t->n_dims, .size = t->size};
            snprintf(p->name, sizeof p->name, "a.%s", t->name);
            memcpy(p->dims, t->dims, sizeof p->dims);
            p->data = malloc(t->size);
            memcpy(p->data, data + t->offset, t->size);
        }
        lode_st_close(st);
        free(data);
        snprintf(l.config, sizeof l.config, "%s", files[i].config);
        check(&l);
        drop(&l);
        n_read++;
    }
    if (!n_read)
        skip();
}

static void reads_mlx_reference(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int bits, group;
        enum lode_st_type scales;
    } files[] = {
#define BITS(b)                                                                                    \
    {"affine_b" #b "_g32_bf16", b, 32, LODE_ST_BF16}, {"affine_b" #b "_g64_bf16", b, 64, LODE_ST_BF16},  \
        {"affine_b" #b "_g128_bf16", b, 128, LODE_ST_BF16}
        BITS(2),
        BITS(3),
        BITS(4),
        BITS(5),
        BITS(6),
        BITS(8),
        {"affine_b4_g64_f16", 4, 64, LODE_ST_F16},
        {"affine_b8_g64_f16", 8, 64, LODE_ST_F16},
        {"affine_b4_g64_f32", 4, 64, LODE_ST_F32},
        {"affine_b8_g64_f32", 8, 64, LODE_ST_F32},
        {"mxfp4_bf16", 4, 32, LODE_ST_U8},
        {"mxfp8_bf16", 8, 32, LODE_ST_U8},
        {"nvfp4_bf16", 4, 16, LODE_ST_U8},
    };
    const char *shared = getenv("LODE_SHARED");
    int n_read = 0;
    for (size_t i = 0; shared && i < sizeof files / sizeof *files; i++) {
        static const enum lode_dtype wide[] = {[2] = LODE_U2, [3] = LODE_U3, [4] = LODE_U4,
                                               [5] = LODE_U5, [6] = LODE_U6, [8] = LODE_U8};
        static const char *const ends[] = {"wq", "scales", "biases"};
        const char *name = files[i].name;
        const int bits = files[i].bits, group = files[i].group;
        const bool affine = files[i].scales != LODE_ST_U8;
        struct layout l = {0};
        char path[4096];
        size_t size;
        snprintf(path, sizeof path, "%s/ref/quant/mlx/%s.deq32.npy", shared, name);
        what = name;
        if (!(l.want = read_npy(path, &l.n_want)))
            continue;
        l.n_want /= sizeof(float);
        l.type = affine        ? group == 32 ? bits <= 4 ? LODE_U4G32 : LODE_U8G32 : wide[bits]
                 : group == 16 ? LODE_NVFP4
                 : bits == 8   ? LODE_E4M3
                               : LODE_MXFP4;
        for (int k = 0; k < 2 + affine; k++) {
            const size_t cols = k ? 256 / (size_t)group : 256 * (size_t)bits / 32;
            uint8_t *p = add(&l, k == 0 ? "a.weight" : k == 1 ? "a.scales" : "a.biases",
                             k ? files[i].scales : LODE_ST_U32, 16, cols, 0);
            snprintf(path, sizeof path, "%s/ref/quant/mlx/%s.%s.npy", shared, name, ends[k]);
            uint8_t *data = read_npy(path, &size);
            assert_true(data && size == l.parts[k].size);
            memcpy(p, data, size);
            free(data);
        }
        snprintf(l.config, sizeof l.config,
                 "{\"quantization\":{\"group_size\":%d,\"bits\":%d,\"mode\":\"%.*s\"}}", group, bits,
                 affine ? 6 : 5, name);
        check(&l);
        drop(&l);
        n_read++;
    }
    if (!n_read)
        skip();
}

/* ---- what is refused ---- */

#define GPTQ QC("gptq", ",\"bits\":4,\"group_size\":64")
#define MLX "{\"quantization\":{\"group_size\":64,\"bits\":4}}"
#define CT QC("compressed-tensors", "")

static void refuses(void **state) {
    (void)state;
    static const struct {
        const char *config, *why;
        struct {
            const char *name;
            enum lode_st_type type;
            uint64_t a, b;
        } parts[4];
    } cases[] = {
        {QC("bitsandbytes", ""), "'bitsandbytes'", {{"a.weight", LODE_ST_U8, 8, 8}}},
        {"{}", "config.json does not say how",
         {{"a.qweight", LODE_ST_I32, 8, 8}, {"a.scales", LODE_ST_F16, 1, 8}}},
        {GPTQ, "but not their scales", {{"a.qweight", LODE_ST_I32, 8, 8}}},
        {GPTQ, "but not its weights", {{"a.scales", LODE_ST_F16, 1, 8}}},
        {GPTQ, "qzeros are missing",
         {{"a.qweight", LODE_ST_I32, 8, 8}, {"a.scales", LODE_ST_F16, 1, 8}}},
        {GPTQ, "its shape is 2 x 1",
         {{"a.qweight", LODE_ST_I32, 8, 8}, {"a.scales", LODE_ST_F16, 1, 8},
          {"a.qzeros", LODE_ST_I32, 2, 1}}},
        {GPTQ, "F16, BF16 or F32 expected",
         {{"a.qweight", LODE_ST_I32, 8, 8}, {"a.scales", LODE_ST_I32, 1, 8},
          {"a.qzeros", LODE_ST_I32, 1, 1}}},
        {GPTQ, "a multiple of 8 rows",
         {{"a.qweight", LODE_ST_I32, 8, 12}, {"a.scales", LODE_ST_F16, 1, 12},
          {"a.qzeros", LODE_ST_I32, 1, 1}}},
        {QC("gptq", ",\"bits\":3"), "2, 4 or 8",
         {{"a.qweight", LODE_ST_I32, 8, 8}, {"a.scales", LODE_ST_F16, 1, 8}}},
        {QC("gptq", ",\"bits\":4,\"checkpoint_format\":\"marlin\""), "marlin",
         {{"a.qweight", LODE_ST_I32, 8, 8}, {"a.scales", LODE_ST_F16, 1, 8}}},
        {QC("awq", ",\"bits\":4,\"version\":\"gemv\""), "gemv",
         {{"a.qweight", LODE_ST_I32, 8, 8}, {"a.scales", LODE_ST_F16, 1, 64}}},
        {MLX, "biases are missing", {{"a.weight", LODE_ST_U32, 4, 8}, {"a.scales", LODE_ST_F16, 4, 1}}},
        {MLX, "4 x 2 expected",
         {{"a.weight", LODE_ST_U32, 4, 16}, {"a.scales", LODE_ST_F16, 4, 1},
          {"a.biases", LODE_ST_F16, 4, 1}}},
        {MLX, "no whole number of groups",
         {{"a.weight", LODE_ST_U32, 4, 9}, {"a.scales", LODE_ST_F16, 4, 1},
          {"a.biases", LODE_ST_F16, 4, 1}}},
        {MLX, "that of the scales expected",
         {{"a.weight", LODE_ST_U32, 4, 8}, {"a.scales", LODE_ST_F16, 4, 1},
          {"a.biases", LODE_ST_BF16, 4, 1}}},
        {"{\"quantization\":{\"group_size\":64,\"bits\":7}}", "7 bits",
         {{"a.weight", LODE_ST_U32, 4, 8}, {"a.scales", LODE_ST_F16, 4, 1}}},
        {"{\"quantization\":{\"group_size\":64,\"bits\":4,\"mode\":\"odd\"}}", "does not know",
         {{"a.weight", LODE_ST_U32, 4, 8}, {"a.scales", LODE_ST_F16, 4, 1}}},
        {CT, "groups that divide",
         {{"a.weight_packed", LODE_ST_I32, 4, 8}, {"a.weight_scale", LODE_ST_F16, 4, 3}}},
        {CT, "rows of 1 groups",
         {{"a.weight_packed", LODE_ST_I32, 4, 8}, {"a.weight_scale", LODE_ST_F16, 4, 1},
          {"a.weight_zero_point", LODE_ST_I32, 2, 1}}},
        {CT, "rows of a multiple of 64",
         {{"a.weight_packed", LODE_ST_U8, 4, 8}, {"a.weight_scale", LODE_ST_F8_E4M3, 4, 1},
          {"a.weight_global_scale", LODE_ST_F32, 1, 0}}},
        {QC("fp8", ""), "each block of 128 x 128",
         {{"a.weight", LODE_ST_F8_E4M3, 4, 8}, {"a.weight_scale_inv", LODE_ST_F32, 2, 2}}},
        {QC("fp8", ""), "the same as a.weight_scale",
         {{"a.weight", LODE_ST_F8_E4M3, 4, 8}, {"a.weight_scale", LODE_ST_F32, 1, 0},
          {"a.weight_scale_inv", LODE_ST_F32, 1, 0}}},
        {QC("mxfp4", ""), "does not fit that of",
         {{"a_blocks", LODE_ST_U8, 4, 8}, {"a_scales", LODE_ST_U8, 4, 8}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct layout l = {0};
        struct opened o;
        for (size_t k = 0; k < 4 && cases[i].parts[k].name; k++)
            add(&l, cases[i].parts[k].name, cases[i].parts[k].type, cases[i].parts[k].a,
                cases[i].parts[k].b, 0);
        snprintf(l.config, sizeof l.config, "%s", cases[i].config);
        write_file(&l);
        const int rc = open_layout(&o, &l);
        if (rc >= 0 || !strstr(err.text, cases[i].why))
            fail_msg("case %zu: %d, %s: %s", i, rc, err.where, err.text);
        close_layout(&o);
        drop(&l);
    }
}

/* A column in a group that is not there; a scale of NVFP4 that its blocks cannot hold. */
static void refuses_values(void **state) {
    (void)state;
    struct layout l = {.type = LODE_F32};
    struct opened o;
    gptq(&l, 4, 16, 128, 32, 1, RANDOM);
    l.parts[3].data[4 * 77] = 4;
    write_file(&l);
    assert_int_equal(open_layout(&o, &l), LODE_ERR_FORMAT);
    assert_non_null(strstr(err.text, "column 77 is in group 4"));
    close_layout(&o);
    drop(&l);

    add(&l, "a.weight", LODE_ST_U32, 2, 8, 0);
    memset(add(&l, "a.scales", LODE_ST_U8, 2, 4, 0), 0x80, 8);
    snprintf(l.config, sizeof l.config,
             "{\"quantization\":{\"group_size\":16,\"bits\":4,\"mode\":\"nvfp4\"}}");
    write_file(&l);
    assert_int_equal(open_layout(&o, &l), 0);
    char row[256];
    assert_int_equal(lode_hf_linear_read(&(struct lode_st_from){o.st, NULL}, o.l, 0, row, o.l->row_size, &err), LODE_ERR_FORMAT);
    assert_non_null(strstr(err.text, "0x80"));
    close_layout(&o);
    drop(&l);
}

static void survives_lack_of_memory(void **state) {
    (void)state;
    struct layout l = {.type = LODE_U4};
    gptq(&l, 4, 16, 128, 64, 1, SHUFFLED);
    write_file(&l);
    char all[1000];
    for (uint64_t n = 1;; n++) {
        struct opened o;
        failmalloc_start(n, false);
        int rc = open_layout(&o, &l);
        if (rc == 0)
            rc = lode_hf_linear_read(&(struct lode_st_from){o.st, NULL}, o.l, 3, all, sizeof all, &err);
        close_layout(&o);
        const struct failmalloc_stats stats = failmalloc_stop();
        assert_int_equal(stats.live, 0);
        if (!stats.failed) {
            assert_int_equal(rc, 0);
            break;
        }
        if (rc != LODE_ERR_NOMEM && rc != 0) /* qsort does without */
            fail_msg("allocation %d: %d %s", (int)n, rc, err.text);
        assert_true(n < 1000);
    }
    drop(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_mlx_affine),
        cmocka_unit_test(reads_small_floats),
        cmocka_unit_test(reads_gptq),
        cmocka_unit_test(reads_awq),
        cmocka_unit_test(reads_compressed_tensors),
        cmocka_unit_test(reads_fp8),
        cmocka_unit_test(reads_hf_reference),
        cmocka_unit_test(reads_mlx_reference),
        cmocka_unit_test(refuses),
        cmocka_unit_test(refuses_values),
        cmocka_unit_test(survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, tmp_clean);
}
