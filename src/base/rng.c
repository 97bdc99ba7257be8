#include "base/rng.h"

void lode_rng_philox(uint64_t seed, uint64_t position, uint32_t out[4]) {
    uint32_t c[4] = {(uint32_t)position, (uint32_t)(position >> 32), 0, 0};
    uint32_t k[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        const uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b,
                                  (uint32_t)(a >> 32) ^ c[3] ^ k[1], (uint32_t)a};
        for (int i = 0; i < 4; i++)
            c[i] = next[i];
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; i++)
        out[i] = c[i];
}

double lode_rng_uniform(uint64_t seed, uint64_t position, int which) {
    uint32_t w[4];
    lode_rng_philox(seed, position, w);
    const uint64_t bits = (uint64_t)w[which * 2] << 32 | w[which * 2 + 1];
    return (double)(bits >> 11) * 0x1p-53;
}
