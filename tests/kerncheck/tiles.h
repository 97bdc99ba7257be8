/* tiles.h - AMX tiles in plain C, in the place of tile_amx.h's instructions: kerncheck_tiles is kerncheck
 * with the products of mul_quant_amx.c compiled so, for machines without tiles.  What the processor
 * refuses (shapes that do not fit one another) ends the program. */
#ifndef KC_TILES_H
#define KC_TILES_H

#include <stdio.h>
#include <stdlib.h>

static struct tile_config tile_shape; /* all zero: released */
static int8_t tiles[8][16][64];

static inline void tile_need(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "FAIL tiles: %s\n", what);
        abort();
    }
}
static inline void tile_config(const struct tile_config *c) {
    tile_shape = *c;
    memset(tiles, 0, sizeof tiles);
}
static inline void tile_zero(int c) {
    tile_need(tile_shape.rows[c] > 0, "not configured");
    memset(tiles[c], 0, sizeof tiles[c]);
}
static inline void tile_load(int a, const void *p, size_t stride) {
    tile_zero(a);
    for (size_t i = 0; i < tile_shape.rows[a]; i++)
        memcpy(tiles[a][i], (const char *)p + i * stride, tile_shape.bytes[a]);
}
static inline void tile_store(int c, void *p, size_t stride) {
    tile_need(tile_shape.rows[c] > 0, "not configured");
    for (size_t i = 0; i < tile_shape.rows[c]; i++)
        memcpy((char *)p + i * stride, tiles[c][i], tile_shape.bytes[c]);
}
static inline void tile_dot(int c, int a, int b) {
    const size_t rows = tile_shape.rows[c], columns = tile_shape.bytes[c] / 4;
    tile_need(c != a && a != b && b != c, "one register twice");
    tile_need(rows > 0 && tile_shape.rows[a] == rows, "rows of a and c");
    tile_need(tile_shape.bytes[b] == tile_shape.bytes[c], "columns of b and c");
    tile_need(tile_shape.bytes[a] == 4 * tile_shape.rows[b], "columns of a, rows of b");
    for (size_t i = 0; i < rows; i++) {
        uint32_t sum[16];
        memcpy(sum, tiles[c][i], sizeof sum);
        for (size_t t = 0; t < tile_shape.rows[b]; t++)
            for (size_t n = 0; n < columns; n++)
                for (size_t k = 0; k < 4; k++)
                    sum[n] += (uint32_t)(tiles[a][i][4 * t + k] * tiles[b][t][4 * n + k]);
        memcpy(tiles[c][i], sum, sizeof sum);
    }
}

#define TILE_CONFIG(config) tile_config(config)
#define TILE_RELEASE() memset(&tile_shape, 0, sizeof tile_shape)
#define TILE_ZERO(c) tile_zero(c)
#define TILE_LOAD(a, p, stride) tile_load(a, p, stride)
#define TILE_STORE(c, p, stride) tile_store(c, p, stride)
#define TILE_DOT(c, a, b) tile_dot(c, a, b)

#endif
