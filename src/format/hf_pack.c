/* hf_pack.c - codes, scales and zeros of any scheme as blocks that kernels know. */
#include "format/hf_quant.h"

#include "base/half.h"
#include "tensor/block.h"

#include <math.h>

/* ---- numbers ---- */

bool lode_hf_is_scale(enum lode_st_type t) {
    return t == LODE_ST_F32 || t == LODE_ST_F16 || t == LODE_ST_BF16 || t == LODE_ST_F8_E8M0;
}

float lode_hf_scale(const struct lode_st_tensor *t, const uint8_t *data, uint64_t i) {
    uint32_t bits = 0;
    uint16_t half;
    switch (t->type) {
    case LODE_ST_F32:
        memcpy(&bits, data + 4 * i, 4);
        return lode_bits_f32(bits);
    case LODE_ST_F8_E8M0: /* 2^(e - 127); 255 is NaN */
        bits = data[i] == 255 ? 0x7fc00000 : data[i] ? (uint32_t)data[i] << 23 : 0x00400000;
        return lode_bits_f32(bits);
    default:
        memcpy(&half, data + 2 * i, 2);
        return t->type == LODE_ST_F16 ? lode_f16_f32(half) : lode_bf16_f32(half);
    }
}

float lode_hf_e4m3(uint8_t b) {
    const uint32_t size = b & 0x7fu, sign = (uint32_t)(b & 0x80u) << 24;
    if (size == 0x7f)
        return NAN;
    return lode_bits_f32(lode_f32_bits(lode_bits_f32(size << 20) * 0x1p120f) | sign);
}

/* ---- codes ---- */

static inline void unpack_nibbles(uint8_t q[restrict 32], const uint8_t p[restrict 16]) {
    for (int i = 0; i < 16; i++) {
        q[2 * i] = p[i] & 15;
        q[2 * i + 1] = p[i] >> 4;
    }
}

void lode_hf_unpack_bits(uint8_t *q, const uint8_t *p, uint64_t n, uint32_t bits) {
    if (bits == 8) {
        memcpy(q, p, (size_t)n);
        return;
    }
    if (bits == 4) {
        uint64_t i = 0;
        for (; i + 16 <= n / 2; i += 16) /* by vectors */
            unpack_nibbles(q + 2 * i, p + i);
        for (; i < n / 2; i++) {
            q[2 * i] = p[i] & 15;
            q[2 * i + 1] = p[i] >> 4;
        }
        return;
    }
    uint32_t have = 0, word = 0;
    for (uint64_t i = 0; i < n; i++, word >>= bits, have -= bits) {
        if (have < bits) {
            word |= (uint32_t)*p++ << have;
            have += 8;
        }
        q[i] = (uint8_t)(word & ((1u << bits) - 1));
    }
}

void lode_hf_pack_nibbles(uint8_t *out, const uint8_t *in, int half) {
    for (int i = 0; i < half; i += 2) { /* numbers i, i + 1 and those `half` behind them */
        const uint8_t a = in[i / 2], b = in[(i + half) / 2];
        out[i] = (uint8_t)((a & 15) | (b & 15) << 4);
        out[i + 1] = (uint8_t)(a >> 4 | (b & 0xf0));
    }
}

/* 32 codes as planes (tensor/block.h). */
static void pack_planes(uint8_t *restrict p, const uint8_t *restrict q, uint32_t bits) {
    uint32_t at = 0;
    if (bits == 8) {
        memcpy(p, q, 32);
        return;
    }
    if (bits & 4) {
        for (int i = 0; i < 16; i++)
            p[i] = (uint8_t)((q[i] & 15) | (q[i + 16] & 15) << 4);
        p += 16;
        at = 4;
    }
    if (bits & 2) {
        for (int i = 0; i < 8; i++, p++) { /* byte j = i % 4 of half h = i / 4 */
            *p = 0;
            for (int t = 0; t < 4; t++)
                *p = (uint8_t)(*p | (q[i / 4 * 16 + 4 * t + i % 4] >> at & 3) << (2 * t));
        }
        at += 2;
    }
    if (bits & 1)
        for (int j = 0; j < 4; j++, p++) {
            *p = 0;
            for (int t = 0; t < 8; t++)
                *p = (uint8_t)(*p | (q[4 * t + j] >> at & 1) << t);
        }
}

static const struct {
    uint32_t bits;
    enum lode_dtype type;
} wide_types[] = {{2, LODE_U2}, {3, LODE_U3}, {4, LODE_U4}, {5, LODE_U5}, {6, LODE_U6}, {8, LODE_U8}};

enum lode_dtype lode_hf_type_of_codes(const struct lode_hf_linear *l) {
    const bool one = l->group >= l->cols; /* one scale for all columns */
    if ((l->index && !l->order) || l->cols % 32 || (!one && l->group % 32))
        return LODE_F32;
    /* zero points become minima, -(scale zero): exact in a float where scales have 16 bits */
    if (!l->scheme->has_minima && l->part[LODE_HF_SCALES]->type == LODE_ST_F32)
        return LODE_F32;
    if (l->cols % 64 || (!one && l->group % 64))
        return l->bits <= 4 ? LODE_U4G32 : LODE_U8G32;
    for (size_t i = 0; i < sizeof wide_types / sizeof *wide_types; i++)
        if (l->bits == wide_types[i].bits)
            return wide_types[i].type;
    return LODE_F32;
}

/* For each column its own group, or every group in order. */
static void to_floats(const struct lode_hf_linear *l, const struct lode_hf_rows *in, float *out) {
    for (uint64_t i = 0; i < l->cols; i++) {
        const uint64_t g = l->index ? l->index[i] : i / l->group;
        out[i] = l->scheme->has_minima ? in->d[g] * in->q[i] + in->m[g]
                                       : in->d[g] * ((float)in->q[i] - in->z[g]);
    }
}

void lode_hf_pack_row(const struct lode_hf_linear *l, const struct lode_hf_rows *in, void *out) {
    if (l->type == LODE_F32) {
        to_floats(l, in, out);
        return;
    }
    const uint32_t block = lode_dtypes[l->type].block;
    const size_t size = lode_dtypes[l->type].bytes;
    const uint32_t bits = l->type == LODE_U4G32 ? 4 : l->type == LODE_U8G32 ? 8 : l->bits;
    char *to = out;
    for (uint64_t i = 0; i < l->cols; i += block, to += size) {
        const uint64_t g = i / l->group;
        const float d = in->d[g], m = l->scheme->has_minima ? in->m[g] : -(d * in->z[g]);
        /* d, then m: behind the first codes, or (32 numbers) at once; then the other codes */
        const size_t m_at = block == 64 ? size / 2 : 4;
        const uint8_t *q = in->q + i;
        uint8_t sorted[64];
        for (uint32_t k = 0; k < block && l->order; k++)
            sorted[k] = in->q[l->order[i + k]];
        if (l->order)
            q = sorted;
        memcpy(to, &d, 4);
        memcpy(to + m_at, &m, 4);
        if (block == 64)
            pack_planes((uint8_t *)to + 4, q, bits);
        pack_planes((uint8_t *)to + m_at + 4, q + (block - 32), bits);
    }
}
