/* tile_codes.h - tile_unpack.h's heads and chunks of codebook types.  Entries of a grid come from wherever an index says,
 * so each row's block becomes bytes first, all of it with the head (struct head's codes), and chunks are these turned. */
#ifndef LODE_KERN_TILE_CODES_H
#define LODE_KERN_TILE_CODES_H

#ifdef __AVX2__
#include "kern/codebook_rows.h"
#else
#include "kern/codebook_vec.h"
#endif

/* 32 codes, which are unsigned: numbers and the largest. */
INLINE void put_codes(uint8_t to[32], B32 bytes, uint32_t signs, int bias, int most) {
    if (!bias) {
        const B32 negative = codes_negative(signs);
        bytes = (bytes ^ negative) - (negative - (uint8_t)most);
    }
    memcpy(to, &bytes, sizeof bytes);
}

/* Functions of their own: a row's are called for each row of a tile, in many places. */
#define CODES_ROW_OF(name)                                                                         \
    static __attribute__((noinline, unused)) void row_##name(uint8_t codes[256], uint8_t scales[16], \
                                                             const struct lode_block_##name *b)
#ifdef __AVX2__
#define CODES_ROW(name, type, groups, most, per, bias)                                             \
    CODES_ROW_OF(name) {                                                                           \
        struct row_codes o;                                                                        \
        put_scales(scales, begin_##name(&o, b), groups);                                           \
        for (int g = 0; g < 8; g++)                                                                \
            put_codes(codes + 32 * g, (B32)bytes_##name(&o, b, g), signs_##name(&o, b, g), bias, most); \
    }
#else
#define CODES_ROW(name, type, groups, most, per, bias)                                             \
    CODES_ROW_OF(name) {                                                                           \
        for (int g = 0; g < 8; g++) {                                                              \
            struct codes32 c;                                                                      \
            read_##name(&c, b, g);                                                                 \
            put_codes(codes + 32 * g, codes_bytes(&c), c.signs, bias, most);                       \
            memcpy(scales + g * (groups) / 8, c.scale, (groups) / 8);                              \
        }                                                                                          \
    }
#endif
LODE_CODEBOOK_LIST(CODES_ROW)
#undef CODES_ROW
#undef CODES_ROW_OF

/* scales: of each row 16 bytes, of which `groups` are set. */
INLINE void codes_scales(struct head *h, uint8_t scales[LANES][16], int groups, int bias) {
    struct rows at;
    V s[4];
    for (int i = 0; i < LANES; i++)
        at.p[i] = scales[i];
    v_load16(s, &at, 0);
    for (int g = 0; g < groups / 4; g++)
        bytes_to_int(h->sc + 4 * g, s[g]);
    for (int g = 0; g < 8; g++) {
        const V pair = v_pair(h->sc[g * groups / 8], h->sc[g * groups / 8 + groups / 8 - 1]);
        h->mn[g] = v_mul16(pair, v_set32((uint32_t)bias * 0x10001u));
    }
}

#define CODES_HEAD(name, type, groups, most, per, bias)                                            \
    INLINE void head_##name(struct head *h, const struct rows *r, size_t off) {                    \
        uint8_t scales[LANES][16] = {{0}};                                                         \
        uint32_t half[LANES];                                                                      \
        V d;                                                                                       \
        for (int i = 0; i < LANES; i++) {                                                          \
            const struct lode_block_##name *b = (const struct lode_block_##name *)(r->p[i] + off); \
            row_##name(h->codes[i], scales[i], b);                                                 \
            half[i] = half_##name(b);                                                              \
        }                                                                                          \
        memcpy(&d, half, sizeof d);                                                                \
        h->d = f_half(d) * (1.0f / (per));                                                         \
        codes_scales(h, scales, groups, most);                                                     \
    }                                                                                              \
    INLINE void chunk_##name(V w[4][4], const struct head *h, const struct rows *r, size_t off, int c) { \
        (void)r, (void)off;                                                                        \
        codes_chunk(w, h, c);                                                                      \
    }
INLINE void codes_chunk(V w[4][4], const struct head *h, int c) {
    struct rows at;
    for (int i = 0; i < LANES; i++)
        at.p[i] = h->codes[i];
    v_load16(w[0], &at, 32 * (size_t)c);
    v_load16(w[1], &at, 32 * (size_t)c + 16);
}
LODE_CODEBOOK_LIST(CODES_HEAD)
#undef CODES_HEAD

#endif
