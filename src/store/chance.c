#include "store/chance.h"

#include "base/alloc.h"

#include <math.h>
#include <string.h>

enum { AVERAGES = 6, FEATURES = AVERAGES + 1 /* the mean */ };

static const float keep[AVERAGES] = {0.25f, 0.707106781f, 0.917004043f, 0.978572062f, 0.994599423f, 0.998647140f};

#define MEMORY 200.0 /* rounds */
#define PRIOR 1.0    /* uses that equal weights count for, at first */

struct lode_chances {
    uint32_t n_layers, n_experts;
    float (*average)[AVERAGES];         /* owned; (n_layers, n_experts) */
    uint32_t *visits;                   /* owned; (n_layers) */
    double products[FEATURES][FEATURES]; /* of features; below the diagonal */
    double uses[FEATURES];               /* of features and uses */
    float weight[FEATURES];
};

struct lode_chances *lode_chances_create(uint32_t n_layers, uint32_t n_experts) {
    struct lode_chances *c = LODE_NEW(struct lode_chances);
    if (!c)
        return NULL;
    *c = (struct lode_chances){.n_layers = n_layers, .n_experts = n_experts};
    c->average = lode_alloc_zero((size_t)n_layers * n_experts, sizeof *c->average);
    c->visits = LODE_NEW_ARRAY(uint32_t, n_layers);
    for (int a = 0; a < AVERAGES; a++)
        c->weight[a] = 1.0f / AVERAGES;
    if (c->average && c->visits)
        return c;
    lode_chances_free(c);
    return NULL;
}

void lode_chances_free(struct lode_chances *c) {
    if (!c)
        return;
    lode_free(c->average);
    lode_free(c->visits);
    lode_free(c);
}

static void add_visit(struct lode_chances *c, const float (*average)[AVERAGES], const bool *used, float mean) {
    const double fades = 1 - 1 / (MEMORY * c->n_layers);
    for (int i = 0; i < FEATURES; i++) {
        c->uses[i] *= fades;
        for (int j = 0; j <= i; j++)
            c->products[i][j] *= fades;
    }
    for (uint32_t e = 0; e < c->n_experts; e++) {
        double x[FEATURES];
        for (int a = 0; a < AVERAGES; a++)
            x[a] = (double)average[e][a];
        x[AVERAGES] = (double)mean;
        for (int i = 0; i < FEATURES; i++) {
            c->uses[i] += used[e] ? x[i] : 0;
            for (int j = 0; j <= i; j++)
                c->products[i][j] += x[i] * x[j];
        }
    }
}

/* The normal equations, drawn towards equal weights, by Cholesky's factors.  Where rounding leaves no positive pivot
 * the weights stay what they are. */
static void solve(struct lode_chances *c) {
    double low[FEATURES][FEATURES], y[FEATURES], sum = 0;
    for (int i = 0; i < FEATURES; i++)
        sum += c->products[i][i];
    const double prior = PRIOR + 1e-9 * sum;
    for (int i = 0; i < FEATURES; i++) {
        for (int j = 0; j <= i; j++) {
            double q = c->products[i][j] + (i == j ? prior : 0);
            for (int k = 0; k < j; k++)
                q -= low[i][k] * low[j][k];
            if (i == j && q <= 0)
                return;
            low[i][j] = i == j ? sqrt(q) : q / low[j][j];
        }
        y[i] = c->uses[i] + (i < AVERAGES ? prior / AVERAGES : 0);
        for (int k = 0; k < i; k++)
            y[i] -= low[i][k] * y[k];
        y[i] /= low[i][i];
    }
    for (int i = FEATURES - 1; i >= 0; i--) {
        for (int k = i + 1; k < FEATURES; k++)
            y[i] -= low[k][i] * y[k];
        y[i] /= low[i][i];
        c->weight[i] = (float)y[i];
    }
}

void lode_chances_visit(struct lode_chances *c, uint32_t layer, const bool *used,
                        float (*ahead)[LODE_CHANCES_AHEAD]) {
    float(*average)[AVERAGES] = c->average + (size_t)layer * c->n_experts;
    uint32_t n_used = 0;
    for (uint32_t e = 0; e < c->n_experts; e++)
        n_used += used[e];
    const float mean = (float)n_used / (float)c->n_experts;
    add_visit(c, (const float(*)[AVERAGES])average, used, mean);
    solve(c);
    /* What is not used until then has faded averages: that is for the weights to do, once a visit. */
    float later[AVERAGES][LODE_CHANCES_AHEAD];
    for (int a = 0; a < AVERAGES; a++)
        for (int h = 0; h < LODE_CHANCES_AHEAD; h++)
            later[a][h] = h ? later[a][h - 1] * keep[a] : c->weight[a];
    const float young = 1 - 1.0f / (float)++c->visits[layer]; /* at first, plain averages */
    float kept[AVERAGES], added[AVERAGES];
    for (int a = 0; a < AVERAGES; a++) {
        kept[a] = fminf(keep[a], young);
        added[a] = 1 - kept[a];
    }
    const float base = c->weight[AVERAGES] * mean;
    for (uint32_t e = 0; e < c->n_experts; e++) {
        float p[LODE_CHANCES_AHEAD];
        for (int h = 0; h < LODE_CHANCES_AHEAD; h++)
            p[h] = base;
        for (int a = 0; a < AVERAGES; a++) {
            average[e][a] = kept[a] * average[e][a] + (used[e] ? added[a] : 0);
            for (int h = 0; h < LODE_CHANCES_AHEAD; h++)
                p[h] += later[a][h] * average[e][a];
        }
        for (int h = 0; h < LODE_CHANCES_AHEAD; h++)
            ahead[e][h] = p[h] > 1e-5f ? p[h] < 1 ? p[h] : 1 : 1e-5f; /* what is no number is the least */
    }
}
