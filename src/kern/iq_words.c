#include "kern/iq_words.h"

#include <stdalign.h>

#define LODE_IQ1_BYTES(word) BYTE_OF(word)
#define LODE_IQ2_BYTES(word) BYTE_OF(word)
#define LODE_IQ3_XXS_BYTES(word) BYTE_OF(word)
#define LODE_IQ3_S_BYTES(word) BYTE_OF(word)

#define LODE_GRID(name, n, type) alignas(64) const uint8_t lode_words_low_##name[n]
#define BYTE_OF(word) (word) & 255
#include "kern/iq_grids_data.h"

#undef LODE_GRID
#undef BYTE_OF
#define LODE_GRID(name, n, type) alignas(64) const uint8_t lode_words_high_##name[n]
#define BYTE_OF(word) (word) >> 8
#include "kern/iq_grids_data.h"
