/* kld.h - how far one model's predictions are from another's: llama-perplexity's file of saved
 * log-probabilities, and the statistics over it (docs/perplexity.md has the layout and formulas).
 */
#ifndef LODE_TOOLS_KLD_H
#define LODE_TOOLS_KLD_H

#include "lode/error.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct kld_file { /* the header */
    int32_t n_ctx, n_vocab, n_chunk;
    int32_t *tokens; /* (n_chunk * n_ctx), owned */
};

/* Scored positions of a window, and 16-bit numbers stored for each. */
size_t kld_scored(int32_t n_ctx);
size_t kld_record(int32_t n_vocab);

/* Checks sizes against the file's length. */
int kld_read_header(struct kld_file *k, FILE *f, const char *path, struct lode_error *err);
int kld_write_header(const struct kld_file *k, FILE *f);
void kld_free(struct kld_file *k);

/* Squeezes log-softmax(logits) into a record: scale, lowest log-probability (floats), then a
 * 16-bit step for each token. */
void kld_encode(uint16_t *record, const float *logits, int32_t n_vocab);

struct kld_sums {
    double nll, nll2, nll_base, nll_base2, nll_nll_base, kld, kld2, dp, dp2, dp4;
    size_t n, n_same_top;
    float *klds, *dps; /* (cap), owned: every value, for the percentiles */
    size_t cap;
};

int kld_sums_init(struct kld_sums *s, size_t cap, struct lode_error *err);
void kld_sums_free(struct kld_sums *s);
/* Compares the model's logits with a record at a position whose next token is `next`. */
void kld_add(struct kld_sums *s, const float *logits, const uint16_t *record, int32_t n_vocab,
             int32_t next);
/* The same with the base's own -ln p(next): a record holds nothing below e^-16 of the likeliest. */
void kld_add_known(struct kld_sums *s, const float *logits, const uint16_t *record, int32_t n_vocab,
                   int32_t next, double nll_base);

void kld_print_row(FILE *f, const struct kld_sums *s, size_t i_chunk);
/* Both sort the values.  brief: what tells whether a conversion was a good one, in five lines. */
void kld_print(FILE *f, struct kld_sums *s);
void kld_print_brief(FILE *f, struct kld_sums *s);

#endif
