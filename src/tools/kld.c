/* kld.c - see kld.h. */
#include "kld.h"

#include "out.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char magic[8] = {'_', 'l', 'o', 'g', 'i', 't', 's', '_'};

size_t kld_scored(int32_t n_ctx) {
    return (size_t)n_ctx - 1 - (size_t)n_ctx / 2;
}

size_t kld_record(int32_t n_vocab) {
    return 2 * (((size_t)n_vocab + 1) / 2) + 4;
}

/* ---------------------------------------------------------------------------------------- file */

int kld_read_header(struct kld_file *k, FILE *f, const char *path, struct lode_error *err) {
    char lead[8];
    int32_t n[3];
    *k = (struct kld_file){0};
    if (fread(lead, 1, 8, f) != 8 || memcmp(lead, magic, 8) || fread(n, 4, 3, f) != 3)
        return tool_fail(err, LODE_ERR_FORMAT, path,
                         "is not a file of saved log-probabilities (--kl-divergence-base writes "
                         "one)");
    k->n_ctx = n[0];
    k->n_vocab = n[1];
    k->n_chunk = n[2];
    if (n[0] < 4 || n[0] > 1 << 24 || n[1] < 2 || n[1] > 1 << 24 || n[2] < 1)
        return tool_fail(
            err, LODE_ERR_FORMAT, path,
            "has a header that makes no sense: windows of %d, vocabulary %d, %d windows", n[0],
            n[1], n[2]);
    struct stat st;
    const uint64_t window = 4 * (uint64_t)n[0] + 2 * kld_scored(n[0]) * (uint64_t)kld_record(n[1]);
    if (!fstat(fileno(f), &st) && S_ISREG(st.st_mode) &&
        (uint64_t)st.st_size < 20 + window * (uint64_t)n[2])
        return tool_fail(err, LODE_ERR_FORMAT, path, "is cut short: %llu bytes of %llu",
                         (unsigned long long)st.st_size,
                         (unsigned long long)(20 + window * (uint64_t)n[2]));
    const size_t n_tokens = (size_t)n[0] * (size_t)n[2];
    k->tokens = malloc(n_tokens * sizeof *k->tokens);
    if (!k->tokens)
        return tool_fail(err, LODE_ERR_NOMEM, path, "no memory for %zu tokens", n_tokens);
    if (fread(k->tokens, sizeof *k->tokens, n_tokens, f) != n_tokens) {
        kld_free(k);
        return tool_fail(err, LODE_ERR_FORMAT, path, "is cut short within its tokens");
    }
    return 0;
}

int kld_write_header(const struct kld_file *k, FILE *f) {
    const int32_t n[3] = {k->n_ctx, k->n_vocab, k->n_chunk};
    const size_t n_tokens = (size_t)k->n_ctx * (size_t)k->n_chunk;
    return fwrite(magic, 1, 8, f) == 8 && fwrite(n, 4, 3, f) == 3 &&
                   fwrite(k->tokens, 4, n_tokens, f) == n_tokens
               ? 0
               : -1;
}

void kld_free(struct kld_file *k) {
    free(k->tokens);
    k->tokens = NULL;
}

/* log(sum(exp(x))), and the largest x. */
static double log_sum_exp(const float *x, int32_t n, float *largest) {
    float most = x[0];
    double sum = 0;
    for (int32_t i = 1; i < n; i++)
        most = x[i] > most ? x[i] : most;
    for (int32_t i = 0; i < n; i++)
        sum += (double)expf(x[i] - most);
    *largest = most;
    return (double)most + log(sum);
}

void kld_encode(uint16_t *record, const float *logits, int32_t n_vocab) {
    float most, least = logits[0];
    const double norm = log_sum_exp(logits, n_vocab, &most);
    for (int32_t i = 1; i < n_vocab; i++)
        least = logits[i] < least ? logits[i] : least;
    /* e^-16 of the likeliest is as good as never */
    least = least > most - 16 ? least : most - 16;
    const float head[2] = {(most - least) / 65535.0f, (float)((double)least - norm)};
    memcpy(record, head, sizeof head);
    record += 4;
    for (int32_t i = 0; i < n_vocab; i++)
        record[i] = logits[i] > least ? (uint16_t)lrintf((logits[i] - least) / head[0]) : 0;
    if (n_vocab & 1)
        record[n_vocab] = 0;
}

/* ---------------------------------------------------------------------------------- statistics */

int kld_sums_init(struct kld_sums *s, size_t cap, struct lode_error *err) {
    *s = (struct kld_sums){.cap = cap};
    s->klds = malloc(cap * sizeof *s->klds + 1);
    s->dps = malloc(cap * sizeof *s->dps + 1);
    if (s->klds && s->dps)
        return 0;
    kld_sums_free(s);
    return tool_fail(err, LODE_ERR_NOMEM, "--kl-divergence", "no memory for %zu values", cap);
}

void kld_sums_free(struct kld_sums *s) {
    free(s->klds);
    free(s->dps);
    s->klds = s->dps = NULL;
}

void kld_add(struct kld_sums *s, const float *logits, const uint16_t *record, int32_t n_vocab,
             int32_t next) {
    float head[2];
    memcpy(head, record, sizeof head);
    kld_add_known(s, logits, record, n_vocab, next,
                  -(double)(head[0] * (float)record[4 + next] + head[1]));
}

void kld_add_known(struct kld_sums *s, const float *logits, const uint16_t *record, int32_t n_vocab,
                   int32_t next, double nll_base) {
    float head[2], most;
    memcpy(head, record, sizeof head);
    record += 4;
    const double norm = log_sum_exp(logits, n_vocab, &most);
    double kld = 0;
    int32_t top = 0, top_base = 0;
    for (int32_t i = 0; i < n_vocab; i++) {
        const float base = head[0] * (float)record[i] + head[1];
        if (base > -16.0f)
            kld += exp((double)base) * ((double)base - ((double)logits[i] - norm));
        top = logits[i] > logits[top] ? i : top;
        top_base = record[i] > record[top_base] ? i : top_base;
    }
    const double nll = norm - (double)logits[next];
    const double dp = exp(-nll) - exp(-nll_base);
    s->nll += nll;
    s->nll2 += nll * nll;
    s->nll_base += nll_base;
    s->nll_base2 += nll_base * nll_base;
    s->nll_nll_base += nll * nll_base;
    s->kld += kld;
    s->kld2 += kld * kld;
    s->dp += dp;
    s->dp2 += dp * dp;
    s->dp4 += dp * dp * dp * dp;
    s->n_same_top += top == top_base;
    if (s->n < s->cap) {
        s->klds[s->n] = (float)kld;
        s->dps[s->n] = (float)dp;
    }
    s->n++;
}

struct estimate {
    double mean, error;
};

static struct estimate estimate(double sum, double sum2, size_t n) {
    const double mean = sum / (double)n;
    const double variance = sum2 / (double)n - mean * mean;
    return (struct estimate){mean, variance > 0 && n > 1 ? sqrt(variance / (double)(n - 1)) : 0};
}

/* What follows from the sums, each with its standard error. */
struct summary {
    struct estimate log_ppl, log_base, ppl, base, log_ratio, ratio, difference, kld, dp, rms_dp,
        top;
    double correlation;
};

static struct summary summarise(const struct kld_sums *s) {
    const double n = (double)s->n;
    struct summary m = {
        .log_ppl = estimate(s->nll, s->nll2, s->n),
        .log_base = estimate(s->nll_base, s->nll_base2, s->n),
        .kld = estimate(s->kld, s->kld2, s->n),
        .dp = estimate(s->dp, s->dp2, s->n),
    };
    const double covariance =
        s->n > 1 ? (s->nll_nll_base / n - m.log_ppl.mean * m.log_base.mean) / (n - 1) : 0;
    m.ppl.mean = exp(m.log_ppl.mean);
    m.ppl.error = m.ppl.mean * m.log_ppl.error;
    m.base.mean = exp(m.log_base.mean);
    m.base.error = m.base.mean * m.log_base.error;
    m.correlation = covariance / (m.log_ppl.error * m.log_base.error);
    m.log_ratio.mean = m.log_ppl.mean - m.log_base.mean;
    m.log_ratio.error = sqrt(fmax(0, m.log_ppl.error * m.log_ppl.error +
                                         m.log_base.error * m.log_base.error - 2 * covariance));
    m.ratio.mean = exp(m.log_ratio.mean);
    m.ratio.error = m.ratio.mean * m.log_ratio.error;
    m.difference.mean = m.ppl.mean - m.base.mean;
    m.difference.error = sqrt(fmax(0, m.ppl.error * m.ppl.error + m.base.error * m.base.error -
                                          2 * m.ppl.mean * m.base.mean * covariance));
    const struct estimate square = estimate(s->dp2, s->dp4, s->n);
    m.rms_dp.mean = sqrt(square.mean);
    m.rms_dp.error = square.mean > 0 ? square.error / (2 * m.rms_dp.mean) : 0;
    m.top.mean = (double)s->n_same_top / n;
    m.top.error = s->n > 1 ? sqrt(m.top.mean * (1 - m.top.mean) / (n - 1)) : 0;
    return m;
}

void kld_print_row(FILE *f, const struct kld_sums *s, size_t i_chunk) {
    const struct summary m = summarise(s);
    if (i_chunk == 0)
        fprintf(f, "chunk             PPL               ln(PPL(Q)/PPL(base))          KL Divergence"
                   "              Δp RMS            Same top p\n");
    fprintf(f,
            "%4zu    %9.4f ± %9.4f    %10.5f ± %10.5f    %10.5f ± %10.5f    %6.3f ± %6.3f %%"
            "    %6.3f ± %6.3f %%\n",
            i_chunk + 1, m.ppl.mean, m.ppl.error, m.log_ratio.mean, m.log_ratio.error, m.kld.mean,
            m.kld.error, 100 * m.rms_dp.mean, 100 * m.rms_dp.error, 100 * m.top.mean,
            100 * m.top.error);
}

static int by_value(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Of sorted values, between neighbours in proportion. */
static double percentile(const float *v, size_t n, double fraction) {
    const double at = fraction * (double)(n - 1);
    const size_t i = (size_t)at;
    const double part = at - (double)i;
    return (1 - part) * (double)v[i] + part * (double)v[i + 1 < n ? i + 1 : i];
}

void kld_print(FILE *f, struct kld_sums *s) {
    static const double kld_at[] = {0.999, 0.99, 0.95, 0.9, 0.5, 0.1, 0.05, 0.01, 0.001};
    static const double dp_at[] = {0.999, 0.99, 0.95, 0.9, 0.75, 0.5, 0.25, 0.1, 0.05, 0.01, 0.001};
    const struct summary m = summarise(s);
    const size_t n = s->n < s->cap ? s->n : s->cap;
    qsort(s->klds, n, sizeof *s->klds, by_value);
    qsort(s->dps, n, sizeof *s->dps, by_value);

    fprintf(f, "\n====== Perplexity statistics ======\n");
    fprintf(f, "Mean PPL(Q)                   : %10.6f ± %10.6f\n", m.ppl.mean, m.ppl.error);
    fprintf(f, "Mean PPL(base)                : %10.6f ± %10.6f\n", m.base.mean, m.base.error);
    fprintf(f, "Cor(ln(PPL(Q)), ln(PPL(base))): %6.2f%%\n", 100 * m.correlation);
    fprintf(f, "Mean ln(PPL(Q)/PPL(base))     : %10.6f ± %10.6f\n", m.log_ratio.mean,
            m.log_ratio.error);
    fprintf(f, "Mean PPL(Q)/PPL(base)         : %10.6f ± %10.6f\n", m.ratio.mean, m.ratio.error);
    fprintf(f, "Mean PPL(Q)-PPL(base)         : %10.6f ± %10.6f\n", m.difference.mean,
            m.difference.error);

    fprintf(f, "\n====== KL divergence statistics ======\n");
    fprintf(f, "Mean    KLD: %10.6f ± %10.6f\n", m.kld.mean, m.kld.error);
    fprintf(f, "Maximum KLD: %10.6f\n", (double)s->klds[n - 1]);
    for (size_t i = 0; i < sizeof kld_at / sizeof *kld_at; i++) {
        if (kld_at[i] == 0.5)
            fprintf(f, "Median  KLD: %10.6f\n", percentile(s->klds, n, 0.5));
        else
            fprintf(f, "%4.1f%%   KLD: %10.6f\n", 100 * kld_at[i],
                    percentile(s->klds, n, kld_at[i]));
    }
    fprintf(f, "Minimum KLD: %10.6f\n", (double)s->klds[0]);

    fprintf(f, "\n====== Token probability statistics ======\n");
    fprintf(f, "Mean    Δp: %6.3f ± %5.3f %%\n", 100 * m.dp.mean, 100 * m.dp.error);
    fprintf(f, "Maximum Δp: %6.3f%%\n", 100 * (double)s->dps[n - 1]);
    for (size_t i = 0; i < sizeof dp_at / sizeof *dp_at; i++) {
        if (dp_at[i] == 0.5)
            fprintf(f, "Median  Δp: %6.3f%%\n", 100 * percentile(s->dps, n, 0.5));
        else
            fprintf(f, "%4.1f%%   Δp: %6.3f%%\n", 100 * dp_at[i],
                    100 * percentile(s->dps, n, dp_at[i]));
    }
    fprintf(f, "Minimum Δp: %6.3f%%\n", 100 * (double)s->dps[0]);
    fprintf(f, "RMS Δp    : %6.3f ± %5.3f %%\n", 100 * m.rms_dp.mean, 100 * m.rms_dp.error);
    fprintf(f, "Same top p: %6.3f ± %5.3f %%\n", 100 * m.top.mean, 100 * m.top.error);
}

void kld_print_brief(FILE *f, struct kld_sums *s) {
    const struct summary m = summarise(s);
    const size_t n = s->n < s->cap ? s->n : s->cap;
    qsort(s->klds, n, sizeof *s->klds, by_value);
    fprintf(f, "KL divergence   mean %.6f ± %.6f, 99.9 %% %.6f, max %.6f\n", m.kld.mean,
            m.kld.error, percentile(s->klds, n, 0.999), (double)s->klds[n - 1]);
    fprintf(f, "Same top token  %.2f ± %.2f %%\n", 100 * m.top.mean, 100 * m.top.error);
    fprintf(f, "Perplexity      %.4f ± %.4f, the source's %.4f (ratio %.5f ± %.5f)\n", m.ppl.mean,
            m.ppl.error, m.base.mean, m.ratio.mean, m.ratio.error);
}
