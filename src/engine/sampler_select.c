/* sampler_select.c - selection by radix: histograms of eleven bits of the key, from the top. */
#include "engine/sampler_impl.h"

#include <string.h>

enum { DIGIT_BITS = 11, N_BUCKETS = 1 << DIGIT_BITS, FEW = 48 };

/* The answer among few keys, the ones with the given prefix, by insertion sort. */
static uint64_t select_few(const uint64_t *key, const double *weight, size_t n, int shift,
                           uint64_t prefix, size_t least, double mass, size_t have, double sum) {
    uint64_t keys[FEW];
    double weights[FEW];
    size_t few = 0;
    for (size_t i = 0; i < n; i++) {
        if (shift < 64 && key[i] >> shift != prefix)
            continue;
        size_t j = few++;
        for (; j > 0 && keys[j - 1] > key[i]; j--) {
            keys[j] = keys[j - 1];
            weights[j] = weights[j - 1];
        }
        keys[j] = key[i];
        weights[j] = weight ? weight[i] : 0;
    }
    for (size_t j = 0; j < few; j++) {
        have++;
        sum += weights[j];
        if (have >= least && (!weight || sum >= mass))
            return keys[j];
    }
    return UINT64_MAX; /* rounding kept the sum below mass: all stay */
}

uint64_t lode_select_key(const uint64_t *key, const double *weight, size_t n, size_t least,
                         double mass) {
    if (n == 0 || (!weight && least >= n))
        return UINT64_MAX;
    uint64_t prefix = 0;
    size_t have = 0, in_bucket = n; /* members before the bucket under study, and in it */
    double sum = 0;
    int shift = 64;
    while (in_bucket > FEW) {
        uint32_t count[N_BUCKETS] = {0};
        double mass_of[N_BUCKETS];
        if (weight)
            memset(mass_of, 0, sizeof mass_of);
        /* 64 = 5 * 11 + 9: the last digit is narrower */
        const int above = shift, bits = shift < DIGIT_BITS ? shift : DIGIT_BITS;
        shift -= bits;
        const uint64_t mask = ((uint64_t)1 << bits) - 1;
        for (size_t i = 0; i < n; i++) {
            if (above < 64 && key[i] >> above != prefix)
                continue;
            const size_t b = key[i] >> shift & mask;
            count[b]++;
            if (weight)
                mass_of[b] += weight[i];
        }
        size_t b = 0;
        for (;; b++) {
            if (b > mask)
                return UINT64_MAX;
            if (have + count[b] >= least && (!weight || sum + mass_of[b] >= mass) && count[b])
                break;
            have += count[b];
            if (weight)
                sum += mass_of[b];
        }
        prefix = (above < 64 ? prefix << bits : 0) | b;
        in_bucket = count[b];
    }
    return select_few(key, weight, n, shift, prefix, least, mass, have, sum);
}
