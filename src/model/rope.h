/* rope.h - rotary position embeddings: from a file's settings to one frequency a pair.
 *
 * Sources: RoFormer (arXiv:2104.09864); linear interpolation (2306.15595); YaRN (2309.00071);
 * LongRoPE (2402.13753); Llama 3.1's divisors come as numbers in the file.
 */
#ifndef LODE_MODEL_ROPE_H
#define LODE_MODEL_ROPE_H

#include "backend/backend.h"

enum lode_rope_scaling { LODE_ROPE_PLAIN, LODE_ROPE_LINEAR, LODE_ROPE_YARN, LODE_ROPE_LONG };

struct lode_rope_spec {
    uint32_t n_pairs;
    double theta;
    enum lode_rope_scaling scaling;
    double factor;      /* of LINEAR and YARN */
    double attn_factor; /* multiplies cos and sin; 0: what the scaling's paper says */
    double beta_fast, beta_slow;
    bool exact_ramp;    /* YARN: its ends stay between pairs (truncate: false in transformers) */
    uint32_t ctx_train, ctx_orig;
    /* Divisors of the frequencies, (n_pairs) or NULL, owned by the model; LONG takes `longer` in
     * sessions whose context exceeds ctx_orig, `shorter` in the others. */
    const float *divisors, *shorter, *longer;
};

/* The table of a session with this context: freq is (n_pairs), the caller's.  All arithmetic is
 * IEEE and our own (base/dmath.h), so every machine gets the same bits. */
void lode_rope_fill(struct lode_rope *rope, const struct lode_rope_spec *spec, uint32_t ctx);

#endif
