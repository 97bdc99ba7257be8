/* mul_sides.h - what columns of blocks of 256 have ready beside them for many rows (mul_many_vnni.h,
 * mul_many_short.h), and minima, which both take so.
 *
 * The including file defines
 *
 *   struct side       of a block of a column; of groups of 32 with minima it has sums[8], the sums of groups
 *                     times m, and fit: whether all fit 16 bits
 *   sides_each(s)     how many of a block
 *   struct block256   of a tile: head, and mn[4], its minima of groups of 32 in pairs of int16 */

/* They lie ready for 8 blocks of CHUNK columns, or more of fewer: n_x of each block.  A few columns have them of whole
 * rows then, so that the tiles are read from end to end, as mul_ahead.h asks for them. */
#define SIDES (8 * CHUNK)
struct sides {
    struct side at[SIDES];
};
INLINE size_t most_run(struct shape s, size_t n_blocks, size_t n_x) {
    const size_t most = SIDES / sides_each(s) / n_x;
    return s.groups && n_blocks > most ? most : n_blocks;
}

/* sums[t][.. n_x] after the minima of one more block of each tile.  In a loop of their own they stay in registers. */
INLINE void minima256(struct shape s, size_t n_x, F sums[V_TILES][CHUNK], const struct block256 block[V_TILES],
                      const uint8_t *x, size_t x_stride, const struct side *side) {
    for (size_t j = 0; j < n_x; j++, x += x_stride, side++) {
        const struct lode_block_a256 *a = (const struct lode_block_a256 *)x;
        const F dx = f_set(a->d);
        const bool fit = s.groups == 8 && side->fit;
        UNROLL
        for (int t = 0; t < V_TILES; t++) {
            V msum = v_zero();
            if (fit)
                UNROLL
                for (int i = 0; i < 4; i++)
                    msum = v_dot2(msum, block[t].mn[i], v_bcast4(&side->sums[2 * i]));
            else
                for (int g = 0; g < 8; g++)
                    msum = v_dot2(msum, block[t].head.mn[g], v_bcast4(&a->sums[2 * g]));
            sums[t][j] = f_fnma(block[t].head.dmin * dx, f_int(msum), sums[t][j]);
        }
    }
}
