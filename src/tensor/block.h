/* block.h - what the bytes of a block mean.
 *
 * Weight layouts are GGML's (ggml-common.h, quoted here as facts of the GGUF format): the first
 * member is at byte 0 and nothing is padded, so every struct has alignment 2 or less and may lie
 * at any address of that alignment.  Halves are IEEE binary16 bits.
 *
 * Activation layouts are lode's own and live only in memory:
 *
 *   A32   32 numbers   { float d; int32_t sum; int8_t q[32] }                  x ~ d q
 *   A256  256 numbers  { float d; uint8_t pad[12]; int16_t sums[16]; int8_t q[256] }
 *
 * with sum = the sum of the 32 q, sums[i] = the sum of q[16 i .. 16 i + 15]; |q| <= 127.
 */
#ifndef LODE_TENSOR_BLOCK_H
#define LODE_TENSOR_BLOCK_H

#include <stdint.h>

struct lode_block_a32 {
    float d;
    int32_t sum;
    int8_t q[32];
};

struct lode_block_a256 {
    float d;
    uint8_t pad[12];
    int16_t sums[16];
    int8_t q[256];
};

_Static_assert(sizeof(struct lode_block_a32) == 40, "A32");
_Static_assert(sizeof(struct lode_block_a256) == 304, "A256");

#endif
