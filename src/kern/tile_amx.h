/* tile_amx.h - the instructions of AMX tiles, as macros because their register is part of the text.
 *
 * A tile is up to 16 rows of 64 bytes, one of eight registers.  TILE_DOT adds to the 16 x 16 int32
 * of `c`, row i, column n, the sum over t of the four products of bytes 4t .. 4t+3 of row i of `a`
 * with those of column n of row t of `b`, all signed; its time follows the rows of a.  TILE_DOT_BF16
 * adds two products of BF16 numbers there to float32.
 *
 * Not the compilers' intrinsics: gcc's tell it nothing of the memory that they read and write, so
 * that it drops or moves the stores before them (gcc 12 drops most of TILE_CONFIG's operand).
 */
#ifndef LODE_KERN_TILE_AMX_H
#define LODE_KERN_TILE_AMX_H

#include <stdint.h>
#include <string.h>

struct tile_config { /* as the instruction reads it */
    uint8_t palette, start_row, zero[14];
    uint16_t bytes[16]; /* of a row */
    uint8_t rows[16];
};
_Static_assert(sizeof(struct tile_config) == 64, "");

/* To check products where there are no tiles: the name of a file that defines these. */
#ifdef LODE_TILES_EMULATED
#include LODE_TILES_EMULATED
#else
#define TILE_CONFIG(config) __asm__ volatile("ldtilecfg %0" ::"m"(*(config)))
#define TILE_RELEASE() __asm__ volatile("tilerelease")
#define TILE_ZERO(c) __asm__ volatile("tilezero %%tmm" #c ::)
#define TILE_LOAD(a, p, stride)                                                                    \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #a ::"r"(p), "r"((size_t)(stride)) : "memory")
#define TILE_STORE(c, p, stride)                                                                   \
    __asm__ volatile("tilestored %%tmm" #c ", (%0,%1,1)" ::"r"(p), "r"((size_t)(stride)) : "memory")
/* what is read and written around it stays there */
#define TILE_DOT(c, a, b)                                                                          \
    __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c :: : "memory")
#define TILE_DOT_BF16(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)
#endif

#endif
