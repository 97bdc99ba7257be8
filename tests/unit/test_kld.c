/* test_kld.c - saved log-probabilities: the records keep what their 16 bits can, and the statistics
 * are those of the formulas, computed here the plain way. */
#include "tools/kld.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { V = 37, N = 200 }; /* an odd vocabulary: records are padded */

static uint64_t seed = 1;

static float number(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (float)(seed >> 40) / (float)(1 << 24);
}

static void log_softmax(double *out, const float *x) {
    double most = (double)x[0], sum = 0;
    for (int i = 1; i < V; i++)
        most = fmax(most, (double)x[i]);
    for (int i = 0; i < V; i++)
        sum += exp((double)x[i] - most);
    for (int i = 0; i < V; i++)
        out[i] = (double)x[i] - most - log(sum);
}

static void decode(double *out, const uint16_t *record) {
    float head[2];
    memcpy(head, record, sizeof head);
    for (int i = 0; i < V; i++)
        out[i] = (double)head[0] * record[4 + i] + (double)head[1];
}

/* A step is range / 65535, rounding errs by half of it; the float head adds a few ulps of values
 * up to 20: 65535 * 2^-24 * step, below 0.01 step, and 20 * 2^-23. */
static void test_records(void **state) {
    (void)state;
    assert_int_equal(kld_record(V), 42);
    assert_int_equal(kld_record(4), 8);
    for (int k = 0; k < 100; k++) {
        float x[V];
        uint16_t record[42];
        double want[V], got[V];
        for (int i = 0; i < V; i++)
            x[i] = 12 * number();
        kld_encode(record, x, V);
        assert_int_equal(record[41], 0);
        log_softmax(want, x);
        decode(got, record);
        for (int i = 0; i < V; i++)
            assert_true(fabs(want[i] - got[i]) < 12.0 / 65535 * 0.51 + 20 * 0x1p-23);
    }
    /* what is e^16 times rarer than the likeliest is cut off there */
    float x[V] = {0};
    uint16_t record[42];
    double got[V];
    x[3] = 40;
    kld_encode(record, x, V);
    decode(got, record);
    assert_true(fabs(got[3]) < 1e-5);
    assert_true(fabs(got[0] + 16) < 1e-3);
    memset(x, 0, sizeof x); /* all the same: a scale of 0 */
    kld_encode(record, x, V);
    decode(got, record);
    assert_true(fabs(got[5] + log(V)) < 1e-6);
}

static double value_of(const char *text, const char *label) {
    const char *at = strstr(text, label);
    if (!at)
        fail_msg("no '%s' in the report", label);
    return strtod(strchr(at + strlen(label) - 1, ':') + 1, NULL);
}

static void test_statistics(void **state) {
    (void)state;
    struct kld_sums s;
    assert_int_equal(kld_sums_init(&s, N, NULL), 0);
    double nll = 0, nll_base = 0, kld = 0, most = 0, dp = 0, dp2 = 0;
    int same = 0;
    for (int k = 0; k < N; k++) {
        float base[V], now[V];
        uint16_t record[42];
        double p[V], q[V];
        int top_p = 0, top_q = 0;
        for (int i = 0; i < V; i++) {
            base[i] = 8 * number();
            now[i] = base[i] + number() - 0.5f;
        }
        const int next = k % V;
        kld_encode(record, base, V);
        kld_add(&s, now, record, V, next);
        decode(p, record); /* what the record says is what is compared */
        log_softmax(q, now);
        double one = 0;
        for (int i = 0; i < V; i++) {
            one += exp(p[i]) * (p[i] - q[i]);
            top_p = p[i] > p[top_p] ? i : top_p;
            top_q = q[i] > q[top_q] ? i : top_q;
        }
        nll -= q[next];
        nll_base -= p[next];
        kld += one;
        most = fmax(most, one);
        same += top_p == top_q;
        const double d = exp(q[next]) - exp(p[next]);
        dp += d;
        dp2 += d * d;
    }
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    kld_print(f, &s);
    fclose(f);
    /* 6 printed digits, and float records within double sums */
    assert_true(fabs(value_of(text, "Mean PPL(Q)   ") - exp(nll / N)) < 2e-5);
    assert_true(fabs(value_of(text, "Mean PPL(base)   ") - exp(nll_base / N)) < 2e-5);
    assert_true(fabs(value_of(text, "Mean    KLD:") - kld / N) < 2e-6);
    assert_true(fabs(value_of(text, "Maximum KLD:") - most) < 2e-6);
    assert_true(fabs(value_of(text, "Mean    Δp:") - 100 * dp / N) < 1e-3);
    assert_true(fabs(value_of(text, "RMS Δp    :") - 100 * sqrt(dp2 / N)) < 1e-3);
    assert_true(fabs(value_of(text, "Same top p:") - 100.0 * same / N) < 1e-3);
    assert_true(value_of(text, "99.9%   KLD:") <= value_of(text, "Maximum KLD:"));
    assert_true(value_of(text, "Median  KLD:") <= value_of(text, "90.0%   KLD:"));
    free(text);
    kld_sums_free(&s);
}

static void test_file(void **state) {
    (void)state;
    int32_t tokens[16];
    struct kld_file k = {8, V, 2, tokens}, back;
    struct lode_error err;
    for (int i = 0; i < 16; i++)
        tokens[i] = i;
    const size_t window = kld_scored(8) * kld_record(V) * 2, size = 8 + 12 + 64 + 2 * window;
    FILE *f = tmpfile();
    assert_non_null(f);
    assert_int_equal(kld_write_header(&k, f), 0);
    assert_int_equal(ftell(f), 84);
    for (size_t i = 0; i < 2 * window; i++)
        fputc(0, f);
    rewind(f);
    assert_int_equal(kld_read_header(&back, f, "x", &err), 0);
    assert_int_equal(back.n_vocab, V);
    assert_memory_equal(back.tokens, tokens, sizeof tokens);
    kld_free(&back);
    /* every shorter file is refused */
    for (size_t n = size; n-- > 0;) {
        assert_int_equal(ftruncate(fileno(f), (off_t)n), 0);
        rewind(f);
        assert_true(kld_read_header(&back, f, "x", &err) < 0);
    }
    fclose(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records),
        cmocka_unit_test(test_statistics),
        cmocka_unit_test(test_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
