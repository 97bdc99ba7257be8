/* iq_words.h - the grids of iq_grids.h by their words' bytes: of eight numbers four codes of two bits in each byte, of four
 * numbers two of four bits.  For look-ups of 64 entries at once (codes_vbmi.h). */
#ifndef LODE_KERN_IQ_WORDS_H
#define LODE_KERN_IQ_WORDS_H

#include <stdint.h>

#define LODE_IQ_WORDS(X)                                                                           \
    X(iq1, 2048) X(iq2_xxs, 256) X(iq2_xs, 512) X(iq2_s, 1024) X(iq3_xxs, 256) X(iq3_s, 512)

#define LODE_WORDS(name, n) extern const uint8_t lode_words_low_##name[n], lode_words_high_##name[n];
LODE_IQ_WORDS(LODE_WORDS)
#undef LODE_WORDS

#endif
