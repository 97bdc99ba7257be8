/* amx_256.h - products of blocks of 256 on AMX tiles.
 *
 * Blocks add up in the tiles as a whole, because their scales and multipliers go into the operands:
 * scale (q - bias), at most 4096 in size, and mul xq, at most 2032, are 64 high + low, high from -64 to 64, low
 * from 0 to 63, and
 *
 *     isum = 4096 high high' + 64 (high low' + low high') + low low'
 *
 * is three sums of four products of bytes.  They may wrap around, the total does not.  Q2_K and Q3_K need
 * one digit.  What follows is mul_tile.h's arithmetic.
 */
#ifndef LODE_KERN_AMX_256_H
#define LODE_KERN_AMX_256_H

#include "kern/amx_panel.h"

enum {
    GROUPS_256 = 2, /* groups that meet all tiles one after the other; more fill the nearest cache */
    NEAR_256 = GROUPS_256 * COLUMNS,
    PAGE = 4096, /* see struct work256 */
};

/* 16 columns, a block of each: digits, and what is beside them. */
struct columns256 {
    int8_t x[2][4][COLUMNS][64]; /* high, low digits; 64 numbers of a column */
};
struct beside256 {
    float d;
    int16_t sums[16], pairs[8]; /* pairs: sums of 32 numbers, if they `fit` */
    uint32_t fit;
    uint8_t pad[8];
};
struct group256 {
    struct columns256 c[GROUPS_256];
    struct beside256 of[PAGE / COLUMNS / sizeof(struct beside256)][COLUMNS];
};
_Static_assert(sizeof(struct group256) % PAGE == 0 && PAGE / COLUMNS / sizeof(struct beside256) >= GROUPS_256, "");

struct head256 {
    V mn[8], pairs[4];
    F d, dmin;
};

/* A load that comes soon after a store to the same place of another page waits for it.  So what is loaded to tiles
 * lies at whole pages, of which quarter g is loaded as the g-th, and results are stored to the last three quarters:
 * where they lay by chance, products of 512 columns took up to a quarter longer. */
struct work256 {
    V w[TILES][2][64]; /* high, low digits; or all in one */
    results out[2];
    struct head256 head[TILES];
};

INLINE int digits(struct shape s) { return s.top && s.top <= 7 ? 1 : 2; }
/* Codes below their bias would be 128 at a negative scale, and no byte: they are turned. */
INLINE int turned(struct shape s) { return digits(s) == 1 && s.bias; }

/* The low bytes of two vectors of int16. */
INLINE V join(V even, V odd) { return (even & v_set32(0x00ff00ff)) | v_sll16(odd, 8); }

/* digit[0] = high, digit[1] = low digits of even and odd numbers (int16). */
INLINE void split(V digit[2], V even, V odd) {
    const V byte = v_set32(0x00ff00ff);
    digit[0] = (v_srl16(even, 6) & byte) | (v_sll16(odd, 2) & ~byte);
    digit[1] = join(even, odd) & v_set8(63);
}

/* Signed bytes times m, as even and odd int16. */
INLINE void times(V *even, V *odd, V bytes, V m) {
    *even = v_mul16(v_sra16(v_sll16(bytes, 8), 8), m);
    *odd = v_mul16(v_sra16(bytes, 8), m);
}

/* Numbers 64 g .. 64 g + 63 of column j. */
INLINE void pack256(const struct packing *p, size_t j, size_t g) {
    const struct lode_block_a256 *a = (const struct lode_block_a256 *)(p->x + j * p->x_stride);
    struct group256 *to = p->next;
    int8_t(*high)[COLUMNS][64] = to->c[j / COLUMNS].x[0], (*low)[COLUMNS][64] = to->c[j / COLUMNS].x[1];
    const size_t i = j % COLUMNS;
    if (g == 0) {
        struct beside256 *b = &to->of[j / COLUMNS][i];
        prefetch(p->x + (j + AHEAD) * p->x_stride, sizeof *a);
        b->d = a->d;
        memcpy(b->sums, a->sums, sizeof a->sums);
        b->fit = sums_of_32(b->pairs, a);
    }
    const __m512i m =
        _mm512_inserti64x4(_mm512_set1_epi16(a->m[2 * g]), _mm256_set1_epi16(a->m[2 * g + 1]), 1);
    V even, odd, digit[2];
    memcpy(&digit, a->q + 64 * g, 64);
    times(&even, &odd, digit[0], (V)m);
    split(digit, even, odd);
    memcpy(high[g][i], &digit[0], 64);
    memcpy(low[g][i], &digit[1], 64);
}

/* Where a group's numbers meet one minimum. */
INLINE int by_pairs(struct shape s) { return s.groups == 8; }

INLINE void unpack256(V to[2][64], struct head256 *h, TYPE_256, const struct rows *r, size_t i) {
    const size_t off = i * size;
    const V8 bias = (V8){0} + (uint8_t)s.bias;
    struct head head;
    read_head(&head, r, off);
    h->d = head.d;
    if (s.minima) {
        h->dmin = head.dmin;
        memcpy(h->mn, head.mn, sizeof h->mn);
        for (int g = 0; by_pairs(s) && g < 4; g++)
            h->pairs[g] = v_pair(head.mn[2 * g], head.mn[2 * g + 1]);
    }
#pragma GCC unroll 8
    for (int c = 0; c < 16 / s.runs; c++) {
        V w[4][4];
        unpack(w, &head, r, off, c);
        for (int n = 0; n < s.runs; n++)
            for (int v = 0; v < 4; v++) {
                const int g = group_of(s, c, n), at = 4 * g + v;
                const V sc = head.sc[g * s.groups / 16], scale = v_pair(sc, sc);
                const V codes = turned(s) ? (V)(bias - (V8)w[n][v]) : (V)((V8)w[n][v] - bias);
                V even, odd, digit[2];
                times(&even, &odd, codes, scale);
                split(digit, even, odd);
                to[0][at] = digits(s) == 1 ? join(even, odd) : digit[0];
                if (digits(s) == 2)
                    to[1][at] = digit[1];
            }
    }
}

/* What ends read of a block, in registers: tiles' instructions let nothing that is in memory stay there. */
struct held {
    V mn[8];
    F d, dmin;
};
INLINE struct held hold(struct shape s, const struct ending *e) {
    const struct head256 *h = e->weights;
    struct held held = {.d = h->d};
    if (s.minima) {
        held.dmin = h->dmin;
        for (int g = 0; g < (by_pairs(s) ? 4 : 8); g++)
            held.mn[g] = by_pairs(s) ? h->pairs[g] : h->mn[g];
    }
    return held;
}

INLINE V minima256(struct shape s, const struct held *h, const struct ending *e, const struct beside256 *x) {
    V sum = v_zero();
    if (by_pairs(s) && __builtin_expect(x->fit, 1))
        for (int g = 0; g < 4; g++)
            sum = v_dot2(sum, h->mn[g], v_bcast4(&x->pairs[2 * g]));
    else if (by_pairs(s))
#pragma GCC unroll 1
        for (int g = 0; g < 8; g++)
            sum = v_dot2(sum, ((const struct head256 *)e->weights)->mn[g], v_bcast4(&x->sums[2 * g]));
    else
        for (int g = 0; g < 8; g++)
            sum = v_dot2(sum, h->mn[g], v_bcast4(&x->sums[2 * g]));
    return sum;
}

/* Column i of a meeting; in[1] to in[3]: its sums of high, both and low digits, or without the last. */
INLINE void end256(struct shape s, const struct held *h, const struct ending *e, results in, size_t i) {
    if (i >= e->n)
        return;
    const struct beside256 *x = (const struct beside256 *)e->columns + i;
    const F dx = f_set(x->d);
    V isum = (in[1][i] << 6) + in[2][i];
    if (digits(s) == 2)
        isum = (isum << 6) + in[3][i];
    F sum = f_fma(h->d * dx, f_int(turned(s) ? v_zero() - isum : isum), sum_before(e, i));
    if (s.minima)
        sum = f_fnma(h->dmin * dx, f_int(minima256(s, h, e, x)), sum);
    put_sum(e, i, sum);
}

/* A tile and 16 columns. */
struct pair256 {
    V (*w)[64];
    const struct columns256 *c;
};

/* Before the first meeting of some: what each meeting does for the one after it. */
INLINE void begin256(struct pair256 first) {
    TILE_LOAD(4, first.c->x[0][0], 64);
    TILE_LOAD(6, first.w[0], 64);
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
}

/* e, whose sums are in out[!odd], comes to its end and columns are packed meanwhile. */
INLINE void meet256(struct shape s, struct pair256 now, struct pair256 next, const struct ending *e, results out[2],
                    bool odd, const struct packing *x) {
    const struct held held = hold(s, e);
    V(*from)[COLUMNS] = out[!odd], (*to)[COLUMNS] = out[odd];
#pragma GCC unroll 4
    for (size_t g = 0; g < 4; g++) {
        const struct pair256 *then = g < 3 ? &now : &next;
        const size_t h = (g + 1) % 4;
        TILE_DOT(0, 4, 6);
        if (digits(s) == 2)
            TILE_LOAD(7, now.w[1] + 16 * g, 64);
        else
            TILE_LOAD(5, now.c->x[1][g], 64);
        end256(s, &held, e, from, 4 * g);
        if (digits(s) == 2) {
            TILE_DOT(1, 4, 7);
            TILE_LOAD(5, now.c->x[1][g], 64);
        }
        end256(s, &held, e, from, 4 * g + 1);
        if (digits(s) == 2)
            TILE_DOT(2, 5, 7);
        TILE_LOAD(4, then->c->x[0][h], 64);
        end256(s, &held, e, from, 4 * g + 2);
        TILE_DOT(1, 5, 6);
        TILE_LOAD(6, then->w[0] + 16 * h, 64);
        end256(s, &held, e, from, 4 * g + 3);
        pack_some(x, pack256, (g + 2) % 4);
    }
    TILE_STORE(0, to[1], 64);
    TILE_ZERO(0);
    TILE_STORE(1, to[2], 64);
    TILE_ZERO(1);
    if (digits(s) == 2) {
        TILE_STORE(2, to[3], 64);
        TILE_ZERO(2);
    }
}

INLINE void end_all256(struct shape s, struct ending *e, results in) {
    const struct held held = hold(s, e);
#pragma GCC unroll 1
    for (size_t i = 0; i < e->n; i++)
        end256(s, &held, e, in, i);
    e->n = 0;
}

INLINE void panel256(TYPE_256, const struct panel *p) {
    struct work256 work __attribute__((aligned(PAGE)));
    struct packing *x = p->packing;
    struct ending e = {.weights = work.head};
    bool odd = false;
    for (size_t t = 0; t < tiles_of(p); t++) {
        const struct rows r = rows_of(p, t);
        prefetch_tile(p, t + TILES_AHEAD, p->block * size, size);
        unpack256(work.w[t], &work.head[t], s, read_head, unpack, size, &r, p->block);
    }
    for (size_t j = 0; j < p->n_x; j += NEAR_256) {
        const size_t groups = (least(p->n_x - j, NEAR_256) + COLUMNS - 1) / COLUMNS, n = tiles_of(p) * groups;
        if (x->done < x->n) {
            end_all256(s, &e, work.out[!odd]);
            pack_rest(x, pack256);
        }
        begin(p, j, NEAR_256, sizeof(struct lode_block_a256));
        const struct group256 *columns = x->ready;
        struct pair256 now = {work.w[0], &columns->c[0]};
        begin256(now);
        for (size_t i = 0; i < n; i++, odd = !odd) {
            const size_t t = i / groups, g = i % groups, then = i + 1 < n ? i + 1 : i;
            const struct pair256 next = {work.w[then / groups], &columns->c[then % groups]};
            meet256(s, now, next, &e, work.out, odd, x);
            now = next;
            go_on(x, i, n);
            e = ending(p, t, j + g * COLUMNS, p->block == 0);
            e.weights = &work.head[t];
            e.columns = columns->of[g];
        }
    }
    end_all256(s, &e, work.out[!odd]);
}

#endif
