/* codebook_vec.h - codebook.h's 32 numbers as a vector of bytes, by the compilers' vector extension. */
#ifndef LODE_KERN_CODEBOOK_VEC_H
#define LODE_KERN_CODEBOOK_VEC_H

#include "kern/codebook.h"
#include "kern/vec.h"

typedef uint8_t B32 __attribute__((vector_size(32)));

INLINE B32 codes_bytes(const struct codes32 *c) {
    typedef uint64_t four __attribute__((vector_size(32)));
    return (B32)(four){c->byte[0], c->byte[1], c->byte[2], c->byte[3]};
}
/* Bytes: all ones where a bit is set. */
INLINE B32 codes_negative(uint32_t signs) {
    typedef uint32_t eight __attribute__((vector_size(32)));
    const B32 each = (B32)((eight){0} + signs);
    const B32 bit = (B32)((eight){0x08040201, 0x80402010, 0x08040201, 0x80402010, 0x08040201, 0x80402010, 0x08040201,
                                  0x80402010});
    const B32 of = __builtin_shufflevector(each, each, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 18, 18, 18, 18,
                                           18, 18, 18, 18, 19, 19, 19, 19, 19, 19, 19, 19);
    return (B32)((of & bit) == bit);
}
/* Bytes with their signs. */
INLINE B32 codes_signed(const struct codes32 *c) {
    const B32 negative = codes_negative(c->signs);
    return (codes_bytes(c) ^ negative) - negative;
}

#endif
