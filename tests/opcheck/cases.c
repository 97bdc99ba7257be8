/* cases.c - what is checked: every op in its kinds, products of every type, and the chains that devices fuse. */
#include "oc.h"

enum { EXPERTS = 8, USED = 3 };

/* ---- products ---- */

/* Two matrices that read one value, one of them with a bias. */
static struct lode_node *build_linear(struct oc *t) {
    struct lode_node *x = oc_input(t, 512);
    struct lode_node *a = lode_g_linear(t->g, x, oc_matrix(t, t->type, 200, 512, 1), oc_vector(t, 200));
    struct lode_node *b = lode_g_linear(t->g, x, oc_matrix(t, t->type, 72, 512, 1), NULL);
    return lode_g_join(t->g, a, b, 1);
}

static struct lode_node *build_long_linear(struct oc *t) {
    return lode_g_linear(t->g, oc_input(t, 8960), oc_matrix(t, t->type, 48, 8960, 1), NULL);
}

/* So many rows that a block of threads of a large GPU has several tiles of them, of few blocks of numbers and of many; a product by
 * itself, or gate and up. */
static struct lode_node *build_tall_linear(struct oc *t) {
    static const struct { enum lode_dtype type; uint32_t rows, cols; bool glu; } shapes[] = {
        {LODE_Q4_K, 6400, 2560, false}, {LODE_Q8_0, 6400, 1024, false}, {LODE_IQ4_XS, 14900, 512, false},
        {LODE_Q5_K, 7000, 768, true}, {LODE_Q4_0, 3500, 1280, true},
        {LODE_Q4_K, 4400, 4352, false}, {LODE_Q6_K, 4300, 5120, false}}; /* of these x has no room in shared memory */
    const enum lode_dtype type = shapes[t->variant].type;
    const uint32_t rows = shapes[t->variant].rows, cols = shapes[t->variant].cols;
    struct lode_node *x = oc_input(t, cols);
    struct lode_node *h = lode_g_rms_norm(t->g, x, oc_vector(t, cols), 1e-5f, 0);
    struct lode_node *y = lode_g_linear(t->g, h, oc_matrix(t, type, rows, cols, 1), NULL);
    return shapes[t->variant].glu ? lode_g_glu(t->g, y, lode_g_linear(t->g, h, oc_matrix(t, type, rows, cols, 1), NULL), LODE_GLU_SILU) : y;
}

/* Rows that end within what is read at once: of floats within the definition's lanes too, of blocks within a line of codes, or of
 * their scales; and not as many as are read together, but for K-quants. */
static struct lode_node *build_ragged_linear(struct oc *t) {
    static const struct { enum lode_dtype type; uint32_t rows, cols; } shapes[] = {
        {LODE_F32, 1030, 1132}, {LODE_F16, 1030, 1132}, {LODE_BF16, 1030, 1132}, {LODE_Q8_0, 1030, 1120}, {LODE_Q8_0, 30, 2080},
        {LODE_Q4_K, 1028, 1280}, {LODE_Q5_K, 1028, 2304}, {LODE_Q6_K, 1028, 2816}};
    const enum lode_dtype type = shapes[t->variant].type;
    const uint32_t rows = shapes[t->variant].rows, cols = shapes[t->variant].cols;
    struct lode_node *x = oc_input(t, cols);
    struct lode_node *a = lode_g_linear(t->g, x, oc_matrix(t, type, rows, cols, 1), oc_vector(t, rows));
    struct lode_node *b = lode_g_linear(t->g, x, oc_matrix(t, type, rows % 1000, cols, 1), NULL);
    return lode_g_join(t->g, a, b, 1);
}

static struct lode_node *build_embed(struct oc *t) {
    return lode_g_embed(t->g, oc_matrix(t, t->type, 200, 768, 1), 1.5f);
}

/* A layer's second half: norm, gate and up, activation, down, residual. */
static struct lode_node *build_feed_forward(struct oc *t) {
    struct lode_node *x = oc_input(t, 512);
    struct lode_node *n = lode_g_rms_norm(t->g, x, oc_vector(t, 512), 1e-5f, 0);
    struct lode_node *gate = lode_g_linear(t->g, n, oc_matrix(t, t->type, 768, 512, 1), NULL);
    struct lode_node *up = lode_g_linear(t->g, n, oc_matrix(t, t->type, 768, 512, 1), NULL);
    struct lode_node *h = lode_g_glu(t->g, gate, up, LODE_GLU_SILU);
    return lode_g_add(t->g, x, lode_g_linear(t->g, h, oc_matrix(t, t->type, 512, 768, 1), NULL), 1);
}

/* The same of so many rows of weights that a step of many rows comes in tiles of 128 to gate and up on the largest GPUs: what they give is
 * rounded where it is made, for the next product, whose tiles are of 64 rows or of 128 and end in whole stages or not. */
static struct lode_node *build_gated_down(struct oc *t) {
    static const struct {
        enum lode_dtype in, out;
        uint32_t d, ff, rows;
        enum lode_glu act;
        float scale; /* of the input: of the last, numbers below what there are codes for */
        bool add;
    } kinds[] = {
        {LODE_Q8_0, LODE_Q8_0, 256, 3072, 200, LODE_GLU_SILU, 1, true},  {LODE_Q4_0, LODE_Q5_1, 288, 3136, 6080, LODE_GLU_GELU, 1, true},
        {LODE_Q8_0, LODE_Q4_1, 320, 3008, 320, LODE_GLU_SILU, 1, false}, {LODE_Q4_0, LODE_MXFP4, 256, 3072, 128, LODE_GLU_SILU, 1, true},
        {LODE_Q8_0, LODE_Q6_K, 256, 3072, 136, LODE_GLU_SILU, 1, true},  {LODE_BF16, LODE_BF16, 256, 640, 136, LODE_GLU_SILU, 1, true},
        {LODE_Q8_0, LODE_IQ4_NL, 256, 3072, 96, LODE_GLU_SILU, 1e-20f, true}};
    const uint32_t d = kinds[t->variant].d, ff = kinds[t->variant].ff, rows = kinds[t->variant].rows;
    struct lode_node *res = kinds[t->variant].add ? oc_input(t, rows) : NULL;
    struct lode_node *h = lode_g_scale(t->g, oc_input(t, d), kinds[t->variant].scale);
    struct lode_node *gate = lode_g_linear(t->g, h, oc_matrix(t, kinds[t->variant].in, ff, d, 1), NULL);
    struct lode_node *up = lode_g_linear(t->g, h, oc_matrix(t, kinds[t->variant].in, ff, d, 1), NULL);
    struct lode_node *y = lode_g_linear(t->g, lode_g_glu(t->g, gate, up, kinds[t->variant].act),
                                        oc_matrix(t, kinds[t->variant].out, rows, ff, 1), NULL);
    return res ? lode_g_add(t->g, res, y, 0.22f) : y;
}

static struct lode_node *route(struct oc *t, enum lode_gating gating, bool biased) {
    const union lode_op_params p = {.route = {.n_used = USED, .gating = gating, .normalise = true, .scale = 1.25f}};
    return lode_g_route(t->g, oc_input(t, EXPERTS), biased ? oc_vector(t, EXPERTS) : NULL, &p);
}

static struct lode_node *build_experts(struct oc *t) {
    struct lode_node *x = oc_input(t, 256);
    const struct lode_operand *w[LODE_MAX_WEIGHTS] = {oc_matrix(t, t->type, 256, 256, EXPERTS),
                                                      oc_matrix(t, t->type, 256, 256, EXPERTS),
                                                      oc_matrix(t, t->type, 256, 256, EXPERTS)};
    return lode_g_experts(t->g, x, route(t, LODE_GATE_SOFTMAX, false), w, LODE_GLU_SILU, false);
}

/* The same in halves, as ranks that share out rows have it. */
static struct lode_node *build_expert_halves(struct oc *t) {
    struct lode_node *x = oc_input(t, 256), *r = route(t, LODE_GATE_SOFTMAX, false);
    const struct lode_operand *gate = oc_matrix(t, t->type, 256, 256, EXPERTS),
                              *up = oc_matrix(t, t->type, 256, 256, EXPERTS);
    struct lode_node *h = lode_g_experts_in(t->g, x, r, gate, up, LODE_GLU_SILU, false);
    return lode_g_experts_out(t->g, h, r, oc_matrix(t, t->type, 192, 256, EXPERTS), false);
}

/* A router with its norm, before experts that read what the norm gives, or for the choice alone. */
static struct lode_node *build_router(struct oc *t) {
    static const struct { enum lode_dtype type; uint32_t d, n, used; enum lode_gating gating; bool norm; } kinds[] = {
        {LODE_F32, 2048, 128, 8, LODE_GATE_SOFTMAX, true}, {LODE_F16, 1536, 256, 6, LODE_GATE_SIGMOID, true},
        {LODE_BF16, 768, 64, 4, LODE_GATE_SOFTMAX_TOP, false}, {LODE_F32, 512, 16, 3, LODE_GATE_SOFTMAX, true},
        {LODE_F32, 2880, 32, 4, LODE_GATE_SOFTMAX_TOP, true}, {LODE_F32, 256, 8, 2, LODE_GATE_SPARSEMIXER, false},
        {LODE_F32, 4096, 160, 10, LODE_GATE_SOFTMAX, true},
        {LODE_F32, 512, 512, 10, LODE_GATE_SOFTMAX, true}, {LODE_BF16, 1024, 300, 6, LODE_GATE_SOFTMAX_TOP, true},
        /* rows of no whole 256 numbers: one, two and four of a block of gemv_near.cu's threads */
        {LODE_BF16, 2880, 60, 4, LODE_GATE_SOFTMAX_TOP, true}, {LODE_F32, 1040, 200, 6, LODE_GATE_SOFTMAX, true},
        {LODE_F16, 336, 400, 8, LODE_GATE_SOFTMAX_TOP, false}};
    const uint32_t d = kinds[t->variant].d, n = kinds[t->variant].n;
    const enum lode_gating gating = kinds[t->variant].gating;
    const bool groups = gating == LODE_GATE_SIGMOID;
    const union lode_op_params p = {.route = {.n_used = kinds[t->variant].used, .gating = gating, .normalise = t->variant < 4,
                                              .scale = 1, .n_groups = groups ? 8 : 0, .n_groups_used = groups ? 4 : 0}};
    struct lode_node *x = oc_input(t, d);
    struct lode_node *h = kinds[t->variant].norm ? lode_g_rms_norm(t->g, x, oc_vector(t, d), 1e-6f, 0) : x;
    const struct lode_operand *w = oc_matrix(t, kinds[t->variant].type, n, d, 1);
    struct lode_node *logits = lode_g_linear(t->g, h, w, t->variant == 4 ? oc_vector(t, n) : NULL);
    struct lode_node *r = lode_g_route(t->g, logits, groups ? oc_vector(t, n) : NULL, &p);
    if (n != 16)
        return r;
    const struct lode_operand *experts[LODE_MAX_WEIGHTS] = {oc_matrix(t, LODE_Q4_K, 256, d, n), oc_matrix(t, LODE_Q4_K, 256, d, n),
                                                            oc_matrix(t, LODE_Q6_K, d, 256, n)};
    return lode_g_add(t->g, x, lode_g_experts(t->g, h, r, experts, LODE_GLU_SILU, false), 1);
}

/* A router with the gate of the expert that all rows go to beside it: of one type, which are one product, or of two; the norm before them; the
 * expert's row, gated, and both sums. */
static struct lode_node *build_shared_expert(struct oc *t) {
    static const struct { enum lode_dtype router, gate, type; uint32_t d, n; bool norm; } kinds[] = {
        {LODE_F32, LODE_F32, LODE_Q4_K, 2048, 16, true},   {LODE_BF16, LODE_BF16, LODE_BF16, 512, 16, true}, {LODE_F16, LODE_F16, LODE_Q8_0, 768, 40, true},
        {LODE_F32, LODE_BF16, LODE_Q8_0, 512, 16, true},   {LODE_F32, LODE_F32, LODE_Q8_0, 288, 16, true},   {LODE_F32, LODE_F32, LODE_Q8_0, 512, 16, false},
        {LODE_F32, LODE_F32, LODE_Q6_K, 256, 300, true},   {LODE_F32, LODE_F32, LODE_Q8_0, 256, 530, true}}; /* of the last, more rows than gemv_near.cu takes */
    const uint32_t d = kinds[t->variant].d, n = kinds[t->variant].n, ff = 256;
    const enum lode_dtype type = kinds[t->variant].type;
    const union lode_op_params p = {.route = {.n_used = 4, .gating = LODE_GATE_SOFTMAX, .normalise = true, .scale = 1}};
    struct lode_node *x = oc_input(t, d);
    struct lode_node *h = kinds[t->variant].norm ? lode_g_rms_norm(t->g, x, oc_vector(t, d), 1e-6f, 0) : x;
    struct lode_node *logits = lode_g_linear(t->g, h, oc_matrix(t, kinds[t->variant].router, n, d, 1), NULL);
    struct lode_node *gate = lode_g_linear(t->g, h, oc_matrix(t, kinds[t->variant].gate, 1, d, 1), NULL);
    struct lode_node *r = lode_g_route(t->g, logits, NULL, &p), *y = x;
    if (n <= 16) {
        const struct lode_operand *w[LODE_MAX_WEIGHTS] = {oc_matrix(t, type, ff, d, n), oc_matrix(t, type, ff, d, n),
                                                          oc_matrix(t, type == LODE_Q4_K ? LODE_Q6_K : type, d, ff, n)};
        y = lode_g_experts(t->g, h, r, w, LODE_GLU_SILU, false);
    }
    struct lode_node *own = lode_g_linear(t->g, h, oc_matrix(t, type, ff, d, 1), NULL),
                     *up = lode_g_linear(t->g, h, oc_matrix(t, type, ff, d, 1), NULL), *s = lode_g_glu(t->g, own, up, LODE_GLU_SILU);
    s = lode_g_row_gate(t->g, lode_g_linear(t->g, s, oc_matrix(t, type, d, ff, 1), NULL), gate);
    y = lode_g_add(t->g, x, lode_g_add(t->g, y, s, 1), 1);
    return n <= 16 ? y : lode_g_join(t->g, y, r, 1);
}

/* As models have them: more rows than multiprocessors, of any number of blocks, in types that differ, and a residual.  What
 * a step of one row takes has kernels of its own where all are Q4_K, Q5_K or Q6_K, or of blocks of 32. */
static struct lode_node *build_chosen_experts(struct oc *t) {
    static const enum lode_dtype kinds[][3] = {{LODE_Q4_K, LODE_Q4_K, LODE_Q4_K}, {LODE_Q4_K, LODE_Q4_K, LODE_Q6_K},
                                               {LODE_Q5_K, LODE_Q4_K, LODE_Q5_K}, {LODE_Q6_K, LODE_Q6_K, LODE_Q4_K},
                                               {LODE_Q4_K, LODE_Q4_K, LODE_Q8_0}, {LODE_Q8_0, LODE_Q8_0, LODE_Q6_K},
                                               {LODE_Q5_K, LODE_Q5_K, LODE_Q5_K}, {LODE_Q4_K, LODE_Q4_K, LODE_Q6_K},
                                               {LODE_Q4_K, LODE_Q4_K, LODE_Q5_K}, {LODE_IQ4_XS, LODE_IQ4_XS, LODE_Q5_0}};
    static const struct { uint32_t d, ff, experts, used; } shapes[] = {
        {2048, 768, 16, 8}, {512, 1536, 6, 2}, {1280, 256, 9, 3}, {256, 512, 16, 10}, {4096, 768, 5, 4},
        {768, 256, 12, 12}, {2816, 512, 4, 1}, {256, 256, 200, 8}, {512, 256, 61, 20}, {1280, 768, 30, 4}};
    const enum lode_dtype *kind = kinds[t->variant];
    const uint32_t d = shapes[t->variant].d, ff = shapes[t->variant].ff, n = shapes[t->variant].experts;
    const enum lode_gating gating = t->variant % 3 == 0   ? LODE_GATE_SOFTMAX
                                    : t->variant % 3 == 1 ? LODE_GATE_SIGMOID
                                                          : LODE_GATE_SOFTMAX_TOP;
    const union lode_op_params p = {.route = {.n_used = shapes[t->variant].used, .gating = gating,
                                              .normalise = t->variant % 2 == 0, .scale = t->variant == 1 ? 2.5f : 1}};
    struct lode_node *x = oc_input(t, d);
    struct lode_node *r = lode_g_route(t->g, oc_input(t, n), gating == LODE_GATE_SIGMOID ? oc_vector(t, n) : NULL, &p);
    const struct lode_operand *w[LODE_MAX_WEIGHTS] = {oc_matrix(t, kind[0], ff, d, n), oc_matrix(t, kind[1], ff, d, n),
                                                      oc_matrix(t, kind[2], d, ff, n)};
    if (t->variant == 9)
        w[3] = oc_matrix(t, LODE_F32, n, ff, 1), w[4] = oc_matrix(t, LODE_F32, n, ff, 1), w[5] = oc_matrix(t, LODE_F32, n, d, 1);
    return lode_g_add(t->g, x, lode_g_experts(t->g, x, r, w, LODE_GLU_SILU, t->variant == 3), 1);
}

/* The same in types of blocks of 32, by rows of any number of blocks, with and without biases; whole or in halves, of which rows need not be
 * whole blocks; of gpt-oss's kind behind a router that has a bias.  Where gate and up differ, or one has an odd number of rows, kernels for
 * all types. */
static struct lode_node *build_chosen_experts_32(struct oc *t) {
    static const struct {
        enum lode_dtype gate, up, down;
        uint32_t d, ff, out, experts, used; /* out: rows of down */
        enum lode_gating gating;
        enum lode_glu act;
        bool biased, weighs, halves, routed;
    } kinds[] = {
        {LODE_MXFP4, LODE_MXFP4, LODE_MXFP4, 2880, 416, 2880, 8, 4, LODE_GATE_SOFTMAX_TOP, LODE_GLU_CLAMPED, true, false, false, true},
        {LODE_MXFP4, LODE_MXFP4, LODE_MXFP4, 288, 2880, 288, 9, 4, LODE_GATE_SOFTMAX_TOP, LODE_GLU_CLAMPED, true, false, false, false},
        {LODE_MXFP4, LODE_MXFP4, LODE_MXFP4, 96, 1024, 96, 5, 1, LODE_GATE_SIGMOID, LODE_GLU_CLAMPED, true, false, false, false},
        {LODE_Q8_0, LODE_Q8_0, LODE_Q8_0, 1024, 352, 1024, 12, 8, LODE_GATE_SOFTMAX, LODE_GLU_SILU, false, false, false, true},
        {LODE_Q8_0, LODE_Q8_0, LODE_Q8_0, 96, 2880, 96, 5, 1, LODE_GATE_SOFTMAX_TOP, LODE_GLU_SILU, true, false, false, false},
        {LODE_Q4_0, LODE_Q4_0, LODE_Q5_0, 1280, 96, 1280, 16, 8, LODE_GATE_SOFTMAX, LODE_GLU_SILU, false, true, false, false},
        {LODE_Q5_1, LODE_Q5_1, LODE_Q4_1, 544, 320, 544, 7, 3, LODE_GATE_SIGMOID, LODE_GLU_GELU, true, false, false, false},
        {LODE_IQ4_NL, LODE_IQ4_NL, LODE_IQ4_NL, 2080, 160, 2080, 30, 20, LODE_GATE_SOFTMAX_TOP, LODE_GLU_SILU, false, false, false, false},
        {LODE_NVFP4, LODE_NVFP4, LODE_NVFP4, 704, 192, 704, 6, 4, LODE_GATE_SOFTMAX, LODE_GLU_SILU, false, true, false, false},
        {LODE_NVFP4G, LODE_NVFP4G, LODE_NVFP4G, 192, 704, 192, 6, 4, LODE_GATE_SIGMOID, LODE_GLU_SILU, true, false, false, false},
        {LODE_Q4_1, LODE_Q4_1, LODE_Q5_1, 352, 768, 352, 200, 8, LODE_GATE_SOFTMAX, LODE_GLU_SILU, false, false, false, false},
        {LODE_Q5_0, LODE_Q5_0, LODE_Q4_0, 768, 1056, 768, 4, 2, LODE_GATE_SOFTMAX_TOP, LODE_GLU_SILU, false, true, false, false},
        {LODE_MXFP4, LODE_Q8_0, LODE_MXFP4, 512, 224, 512, 8, 4, LODE_GATE_SOFTMAX, LODE_GLU_SILU, true, false, false, false},
        {LODE_Q4_K, LODE_Q4_K, LODE_MXFP4, 512, 480, 512, 8, 4, LODE_GATE_SOFTMAX_TOP, LODE_GLU_SILU, false, false, false, true},
        {LODE_MXFP4, LODE_MXFP4, LODE_Q6_K, 480, 512, 480, 8, 4, LODE_GATE_SOFTMAX_TOP, LODE_GLU_SILU, false, false, false, false},
        {LODE_MXFP4, LODE_MXFP4, LODE_MXFP4, 2880, 288, 199, 6, 4, LODE_GATE_SOFTMAX_TOP, LODE_GLU_CLAMPED, false, false, true, true},
        {LODE_Q8_0, LODE_Q8_0, LODE_Q8_0, 224, 1056, 77, 16, 8, LODE_GATE_SOFTMAX, LODE_GLU_SILU, false, true, true, false}};
    const uint32_t d = kinds[t->variant].d, ff = kinds[t->variant].ff, out = kinds[t->variant].out, n = kinds[t->variant].experts;
    const enum lode_gating gating = kinds[t->variant].gating;
    const enum lode_glu act = kinds[t->variant].act;
    const bool weighs = kinds[t->variant].weighs, routed = kinds[t->variant].routed;
    const union lode_op_params p = {.route = {.n_used = kinds[t->variant].used, .gating = gating, .normalise = t->variant % 2 == 0, .scale = 1}};
    struct lode_node *x = oc_input(t, d), *h = routed ? lode_g_rms_norm(t->g, x, oc_vector(t, d), 1e-5f, 0) : x;
    struct lode_node *logits = routed ? lode_g_linear(t->g, h, oc_matrix(t, LODE_F32, n, d, 1), oc_vector(t, n)) : oc_input(t, n);
    struct lode_node *r = lode_g_route(t->g, logits, gating == LODE_GATE_SIGMOID ? oc_vector(t, n) : NULL, &p);
    const struct lode_operand *w[LODE_MAX_WEIGHTS] = {oc_matrix(t, kinds[t->variant].gate, ff, d, n), oc_matrix(t, kinds[t->variant].up, ff, d, n),
                                                      oc_matrix(t, kinds[t->variant].down, out, ff, n)};
    if (kinds[t->variant].halves)
        return lode_g_experts_out(t->g, lode_g_experts_in(t->g, h, r, w[0], w[1], act, weighs), r, w[2], weighs);
    if (kinds[t->variant].biased)
        w[3] = oc_matrix(t, LODE_F32, n, ff, 1), w[4] = oc_matrix(t, LODE_F32, n, ff, 1), w[5] = oc_matrix(t, LODE_F32, n, out, 1);
    return lode_g_add(t->g, x, lode_g_experts(t->g, h, r, w, act, weighs), 1);
}

static struct lode_node *build_heads(struct oc *t) {
    return lode_g_heads(t->g, oc_input(t, 4 * 256), oc_matrix(t, t->type, 4 * 64, 256, 1), 4);
}

/* As latent attention has them, and of few heads, rows and columns: heads that end within a tile, columns of no whole 256 numbers, of floats of
 * no whole 64; of the last, rows that Hopper's scratch has no room for at once. */
static struct lode_node *build_heads_many(struct oc *t) {
    static const struct { enum lode_dtype type; uint32_t heads, rows, cols; } shapes[] = {
        {LODE_Q8_0, 20, 512, 192}, {LODE_Q4_K, 20, 256, 512}, {LODE_Q6_K, 4, 128, 256}, {LODE_Q5_0, 4, 512, 128},
        {LODE_MXFP4, 20, 24, 64},  {LODE_Q8_0, 1, 256, 32},   {LODE_Q4_K, 1, 24, 512},  {LODE_IQ4_NL, 4, 24, 192},
        {LODE_Q4_1, 4, 128, 192},  {LODE_Q5_K, 4, 200, 512},  {LODE_Q3_K, 20, 24, 256}, {LODE_IQ4_XS, 4, 256, 512},
        {LODE_NVFP4, 4, 128, 128}, {LODE_Q2_K, 4, 25, 256},   {LODE_IQ2_XS, 4, 40, 512}, {LODE_U4, 4, 128, 128},
        {LODE_BF16, 20, 128, 128}, {LODE_BF16, 4, 256, 512},  {LODE_F16, 4, 512, 192},  {LODE_F16, 1, 24, 64},
        {LODE_F32, 4, 128, 64},    {LODE_F32, 20, 24, 32},    {LODE_BF16, 4, 24, 96},
        {LODE_Q4_K, 32, 8, 4096}};
    const uint32_t heads = shapes[t->variant].heads, rows = shapes[t->variant].rows, cols = shapes[t->variant].cols;
    t->many_rows = true;
    return lode_g_heads(t->g, oc_input(t, heads * cols), oc_matrix(t, shapes[t->variant].type, heads * rows, cols, 1), heads);
}

static struct lode_node *build_gather(struct oc *t) {
    const enum lode_dtype type = t->variant ? LODE_Q8_0 : LODE_F16;
    return lode_g_linear(t->g, oc_input(t, 512), oc_mixed_matrix(t, type, 100, 512), NULL);
}

/* ---- rows ---- */

static struct lode_node *build_rms_norm(struct oc *t) {
    static const uint32_t widths[] = {64, 200, 1024, 4096, 2048, 512, 3840, 8192, 8196, 1030, 720},
                          groups[] = {0, 0, 0, 0, 128, 64, 0, 0, 0, 0, 180};
    const uint32_t n = widths[t->variant], group = groups[t->variant];
    return lode_g_rms_norm(t->g, oc_input(t, n), t->variant == 5 ? NULL : oc_vector(t, group ? group : n), 1e-6f, group);
}

/* What is added to a norm, or a norm to: by a number of fours or not, of one group or of several, at addresses of fours or not. */
static struct lode_node *build_added_norm(struct oc *t) {
    enum use {
        OF_MODELS,   /* the sum goes where its first operand was: what the norm is added to, */
        NORM_FIRST,  /* or the norm, which is where its input was */
        TO_ITSELF,   /* its input, which is read once more */
        BOTH_LATER,  /* input and residual are read later: the sum goes where neither is */
        INPUT_LATER,
        NORM_LATER,  /* so is the norm: nothing may be left out */
        CUT,         /* columns of a value, from its second number on */
        LAYER,       /* between two products, as models have it */
    };
    static const struct { uint32_t width, group; float scale; enum use use; bool plain; } kinds[] = {
        {64, 0, 1, OF_MODELS, false},     {512, 0, 1, OF_MODELS, false},     {3840, 0, 1, OF_MODELS, false},  {5120, 0, 1, OF_MODELS, false},
        {3844, 0, 0.7f, OF_MODELS, false}, {1030, 0, 0.7f, OF_MODELS, false}, {8196, 0, 0.7f, OF_MODELS, true}, {2048, 128, 0.7f, OF_MODELS, true},
        {64, 0, 1, NORM_FIRST, true},     {512, 0, 0.7f, NORM_FIRST, false}, {3840, 0, 0.7f, NORM_FIRST, true}, {5120, 0, 0.7f, NORM_FIRST, false},
        {1030, 0, 0.7f, NORM_FIRST, true}, {720, 180, 1, NORM_FIRST, false}, {512, 0, 0.7f, TO_ITSELF, false}, {1030, 0, 1, TO_ITSELF, false},
        {3840, 0, 1, BOTH_LATER, false},  {516, 0, 0.7f, BOTH_LATER, false}, {512, 0, 1, INPUT_LATER, false}, {1030, 0, 0.7f, INPUT_LATER, false},
        {3840, 0, 1, NORM_LATER, false},  {516, 0, 0.7f, NORM_LATER, false}, {512, 0, 1, CUT, false},         {3840, 0, 0.7f, CUT, false},
        {512, 0, 1, LAYER, false},        {1280, 0, 0.7f, LAYER, false}};
    const uint32_t width = kinds[t->variant].width, group = kinds[t->variant].group;
    const float scale = kinds[t->variant].scale;
    const enum use use = kinds[t->variant].use;
    const struct lode_operand *w = kinds[t->variant].plain ? NULL : oc_vector(t, group ? group : width);
    t->many_rows = true;
    struct lode_node *x = oc_input(t, width), *h = oc_input(t, use == CUT ? width + 1 : width);
    if (use == CUT)
        h = lode_g_slice(t->g, h, 1, width);
    if (use == LAYER)
        h = lode_g_linear(t->g, h, oc_matrix(t, LODE_Q8_0, width, width, 1), NULL);
    struct lode_node *norm = lode_g_rms_norm(t->g, h, w, 1e-6f, group);
    struct lode_node *y = use == NORM_FIRST  ? lode_g_add(t->g, norm, x, scale)
                          : use == TO_ITSELF ? lode_g_add(t->g, h, norm, scale)
                                             : lode_g_add(t->g, x, norm, scale);
    if (use == BOTH_LATER)
        return lode_g_add(t->g, lode_g_add(t->g, y, x, 1), h, 1);
    if (use == INPUT_LATER || use == NORM_LATER)
        return lode_g_add(t->g, y, use == INPUT_LATER ? h : norm, 1);
    if (use == LAYER) {
        struct lode_node *next = lode_g_rms_norm(t->g, y, oc_vector(t, width), 1e-6f, 0);
        return lode_g_add(t->g, y, lode_g_linear(t->g, next, oc_matrix(t, LODE_Q8_0, width, width, 1), NULL), 1);
    }
    return y;
}

/* A norm of heads that is multiplied with a gate's activation, as after the delta rule. */
static struct lode_node *build_gated_norm(struct oc *t) {
    enum use {
        OF_MODELS,
        NORM_IS_GATE, /* nothing may be left out */
        NORM_LATER,
        BOTH_LATER, /* gate and input are read later: the product goes where neither is */
        ITSELF,     /* the input is the gate, too */
        CUT,        /* columns of values, from their second number on */
    };
    static const struct { uint32_t width, group; enum lode_glu act; enum use use; bool plain; } kinds[] = {
        {4096, 128, LODE_GLU_SILU, OF_MODELS, false}, {2048, 64, LODE_GLU_SIGMOID, OF_MODELS, false}, {64, 16, LODE_GLU_SILU, OF_MODELS, false},
        {720, 180, LODE_GLU_GELU, OF_MODELS, true},   {1026, 54, LODE_GLU_SILU, OF_MODELS, false},     {8192, 0, LODE_GLU_CLAMPED, OF_MODELS, false},
        {8196, 0, LODE_GLU_SILU, OF_MODELS, false},   {512, 128, LODE_GLU_SILU, NORM_IS_GATE, false}, {512, 128, LODE_GLU_SILU, NORM_LATER, false},
        {512, 128, LODE_GLU_SILU, BOTH_LATER, false}, {1030, 0, LODE_GLU_SILU, BOTH_LATER, false},     {512, 128, LODE_GLU_SILU, ITSELF, false},
        {512, 128, LODE_GLU_SILU, CUT, false}};
    const uint32_t width = kinds[t->variant].width, group = kinds[t->variant].group;
    const enum use use = kinds[t->variant].use;
    t->many_rows = true;
    const struct lode_operand *w = kinds[t->variant].plain ? NULL : oc_vector(t, group ? group : width);
    struct lode_node *gate = oc_input(t, use == CUT ? width + 1 : width), *x = use == ITSELF ? gate : oc_input(t, width + (use == CUT));
    if (use == CUT)
        gate = lode_g_slice(t->g, gate, 1, width), x = lode_g_slice(t->g, x, 1, width);
    struct lode_node *norm = lode_g_rms_norm(t->g, x, w, 1e-6f, group);
    struct lode_node *y = use == NORM_IS_GATE ? lode_g_glu(t->g, norm, gate, kinds[t->variant].act)
                                              : lode_g_glu(t->g, gate, norm, kinds[t->variant].act);
    if (use == BOTH_LATER)
        return lode_g_add(t->g, lode_g_add(t->g, y, x, 1), gate, 1);
    return use == NORM_LATER ? lode_g_add(t->g, y, norm, 1) : y;
}

/* A gated row that is added to others, as an expert's that all rows go to. */
static struct lode_node *build_gated_sum(struct oc *t) {
    enum use {
        OF_MODELS,
        ONE,          /* only one sum follows, */
        GATED_FIRST,  /* or the gated row is the sums' first operand */
        GATED_LATER,  /* nothing may be left out, */
        SUM_LATER,    /* or but one sum */
        INPUTS_LATER, /* the sum goes where none of them is */
        TO_ITSELF,    /* what is gated is added, too */
        GATE_WITHIN,  /* the gate is a number of the row that the sum would be written over */
        CUT,          /* columns of a value, from its second number on */
    };
    static const struct { uint32_t width; float scale; enum use use; } kinds[] = {
        {2048, 1, OF_MODELS}, {640, 0.7f, OF_MODELS}, {1030, 1, OF_MODELS},    {70, 0.7f, GATED_FIRST}, {5000, 0.7f, ONE},   {512, 1, ONE},
        {2049, 1, GATED_FIRST}, {512, 0.7f, GATED_LATER}, {512, 1, SUM_LATER}, {1030, 0.7f, INPUTS_LATER}, {512, 1, TO_ITSELF}, {2048, 1, GATE_WITHIN},
        {512, 0.7f, CUT}};
    const uint32_t width = kinds[t->variant].width;
    const float scale = kinds[t->variant].scale;
    const enum use use = kinds[t->variant].use;
    t->many_rows = true;
    struct lode_node *a = oc_input(t, width), *b = oc_input(t, width), *x = oc_input(t, use == CUT ? width + 1 : width), *gate = oc_input(t, 1);
    if (use == CUT)
        x = lode_g_slice(t->g, x, 1, width);
    if (use == GATE_WITHIN)
        gate = lode_g_slice(t->g, a, 3, 1);
    struct lode_node *gated = lode_g_row_gate(t->g, x, gate);
    if (use == TO_ITSELF)
        return lode_g_add(t->g, b, lode_g_add(t->g, x, gated, scale), 1);
    struct lode_node *sum = use == GATED_FIRST ? lode_g_add(t->g, gated, a, scale) : lode_g_add(t->g, a, gated, scale);
    if (use == ONE || use == GATE_WITHIN)
        return sum;
    struct lode_node *y = use == GATED_FIRST ? lode_g_add(t->g, sum, b, scale) : lode_g_add(t->g, b, sum, 1);
    if (use == INPUTS_LATER)
        return lode_g_add(t->g, lode_g_add(t->g, lode_g_add(t->g, y, a, 1), b, 1), x, 1);
    return use == GATED_LATER ? lode_g_add(t->g, y, gated, 1) : use == SUM_LATER ? lode_g_add(t->g, y, sum, 1) : y;
}

static struct lode_node *build_layer_norm(struct oc *t) {
    const uint32_t n = t->variant ? 3072 : 320;
    return lode_g_layer_norm(t->g, oc_input(t, n), oc_vector(t, n), t->variant == 1 ? NULL : oc_vector(t, n), 1e-5f, 0);
}

static struct lode_node *build_l2_norm(struct oc *t) {
    const union lode_op_params p = {.l2_norm = {.eps = 1e-6f, .group = t->variant ? 128 : 64, .n = 512, .n_scaled = 256,
                                                .scale = 0.088f}};
    return lode_g_l2_norm(t->g, oc_input(t, 768), &p);
}

static struct lode_node *build_glu(struct oc *t) {
    struct lode_node *gate = oc_input(t, 1100);
    return lode_g_glu(t->g, gate, oc_input(t, 1100), (enum lode_glu)t->variant);
}

static struct lode_node *build_act(struct oc *t) {
    return lode_g_act(t->g, oc_input(t, 1500), (enum lode_act)t->variant);
}

static struct lode_node *build_add(struct oc *t) {
    struct lode_node *a = oc_input(t, 1030);
    return lode_g_add(t->g, a, oc_input(t, 1030), t->variant ? 0.22f : 1);
}

static struct lode_node *build_row_gate(struct oc *t) {
    struct lode_node *x = oc_input(t, 640);
    return lode_g_row_gate(t->g, x, oc_input(t, 1));
}

static struct lode_node *build_scale(struct oc *t) { return lode_g_scale(t->g, oc_input(t, 384), 0.7f); }
static struct lode_node *build_softcap(struct oc *t) { return lode_g_softcap(t->g, oc_input(t, 2000), 3); }
static struct lode_node *build_temperature(struct oc *t) {
    return lode_g_temperature(t->g, oc_input(t, 256), 0.1f, 16);
}
static struct lode_node *build_pick(struct oc *t) { return lode_g_pick(t->g, oc_input(t, 448)); }
static struct lode_node *build_slice(struct oc *t) {
    return lode_g_scale(t->g, lode_g_slice(t->g, oc_input(t, 1024), 192, 320), 2);
}
/* By fours or not, at addresses of fours or not; of one head, of many, of heads of a number; and of more numbers than kernels divide quickly. */
static struct lode_node *build_cut(struct oc *t) {
    static const struct { uint32_t heads, whole, first, width, behind; } kinds[] = {
        {8, 96, 32, 64, 0}, {20, 256, 192, 64, 0}, {20, 256, 0, 192, 0}, {6, 50, 2, 33, 0}, {5, 64, 30, 32, 0},
        {7, 3, 1, 1, 0},    {1, 640, 128, 512, 0}, {3, 64, 0, 64, 1},    {2, 48000, 4, 47990, 0}};
    const uint32_t heads = kinds[t->variant].heads, all = heads * kinds[t->variant].whole, behind = kinds[t->variant].behind;
    struct lode_node *x = oc_input(t, all + behind);
    t->many_rows = all < 8192;
    return lode_g_cut(t->g, behind ? lode_g_slice(t->g, x, behind, all) : x, heads, kinds[t->variant].first, kinds[t->variant].width);
}
static struct lode_node *build_join(struct oc *t) {
    static const struct { uint32_t heads, a, b, behind; } kinds[] = {
        {8, 64, 32, 0}, {20, 512, 64, 0}, {1, 512, 64, 0}, {6, 33, 17, 0}, {5, 32, 30, 0}, {7, 1, 1, 0}, {1, 3, 1, 0}, {3, 64, 32, 1},
        {2, 40002, 7001, 0}, {1, 70000, 1, 0}};
    const uint32_t heads = kinds[t->variant].heads, behind = kinds[t->variant].behind;
    struct lode_node *a = oc_input(t, heads * kinds[t->variant].a + behind);
    t->many_rows = a->width < 16384;
    return lode_g_join(t->g, behind ? lode_g_slice(t->g, a, behind, a->width - behind) : a, oc_input(t, heads * kinds[t->variant].b), heads);
}

static struct lode_node *build_route(struct oc *t) {
    if (t->variant < 8)
        return route(t, (enum lode_gating)(t->variant / 2), t->variant % 2);
    if (t->variant < 10) {
        const union lode_op_params p = {.route = {.n_used = 6, .gating = LODE_GATE_SIGMOID, .normalise = t->variant == 8,
                                                  .scale = 2.5f, .n_groups = 8, .n_groups_used = 3}};
        return lode_g_route(t->g, oc_input(t, 64), oc_vector(t, 64), &p);
    }
    /* equals, of which those of smaller ids are chosen: half of them the largest, all, zeros of both signs */
    static const struct { float scale; uint32_t n; enum lode_gating gating; } equals[] = {
        {1e6f, 100, LODE_GATE_SOFTMAX}, {1e6f, 254, LODE_GATE_SIGMOID}, {0, 61, LODE_GATE_SOFTMAX_TOP}, {1e6f, 300, LODE_GATE_SOFTMAX}};
    const uint32_t i = t->variant - 10;
    const union lode_op_params p = {.route = {.n_used = 9, .gating = equals[i].gating, .normalise = i % 2 == 0, .scale = 1}};
    return lode_g_route(t->g, lode_g_softcap(t->g, lode_g_scale(t->g, oc_input(t, equals[i].n), equals[i].scale), 1), NULL, &p);
}

/* As wide as logits, with equals among them: what the largest of are looked for. */
static struct lode_node *build_wide_row(struct oc *t) {
    static const uint32_t widths[] = {70000, 4097, 40001, 70000};
    struct lode_node *x = lode_g_embed(t->g, oc_matrix(t, LODE_F16, 200, widths[t->variant], 1), 1);
    /* of the last two half or all are the largest */
    return t->variant == 2 ? lode_g_softcap(t->g, lode_g_scale(t->g, x, 1e6f), 1) : lode_g_scale(t->g, x, t->variant < 2 ? 0.5f : 0);
}

/* ---- positions ---- */

static struct lode_node *build_rope(struct oc *t) {
    const uint32_t head_dim = t->variant & 2 ? 128 : 64;
    t->n_pairs = t->variant & 4 ? head_dim / 4 : head_dim / 2;
    struct lode_node *x = oc_input(t, 6 * head_dim);
    return lode_g_rope(t->g, x, lode_g_rope_table(t->g, 0, t->n_pairs), 6, t->variant & 1);
}

static struct lode_node *build_unpair(struct oc *t) { return lode_g_unpair(t->g, oc_input(t, 6 * 64), 6, 32); }

struct attention_kind {
    uint32_t heads, kv_heads, dim, dim_v, window;
    float cap;
    bool sinks;
    enum lode_dtype k, v;
};
/* latent: values are the beginning of the keys. */
static struct lode_node *attention_with(struct oc *t, const struct attention_kind *kind, bool latent) {
    t->kv = (struct lode_kv_layer){.n_heads = kind->kv_heads, .head_dim = kind->dim, .head_dim_v = kind->dim_v,
                                   .window = kind->window, .type_k = kind->k, .type_v = kind->v, .v_in_k = latent};
    t->attention = (struct oc_attention){.n_heads = kind->heads, .scale = 0.11f, .cap = kind->cap};
    struct lode_node *q = oc_input(t, kind->heads * kind->dim);
    struct lode_node *k = oc_input(t, kind->kv_heads * kind->dim);
    struct lode_node *v = latent ? k : oc_input(t, kind->kv_heads * kind->dim_v);
    const union lode_op_params p = {.attention = {.n_heads = kind->heads, .n_kv_heads = kind->kv_heads,
                                                  .head_dim = kind->dim, .head_dim_v = kind->dim_v,
                                                  .window = kind->window, .scale = 0.11f, .cap = kind->cap}};
    return lode_g_attention(t->g, q, lode_g_kv_put(t->g, k, v, 0), kind->sinks ? oc_vector(t, kind->heads) : NULL, &p);
}
static struct lode_node *attention_of(struct oc *t, const struct attention_kind *kind) { return attention_with(t, kind, false); }

static struct lode_node *build_attention(struct oc *t) {
    static const struct attention_kind kinds[] = {
        {4, 4, 64, 64, 0, 0, false, LODE_F16, LODE_F16},     {8, 2, 128, 128, 0, 0, false, LODE_F16, LODE_F16},
        {8, 1, 64, 64, 0, 0, false, LODE_BF16, LODE_BF16},   {6, 2, 128, 128, 40, 0, false, LODE_F16, LODE_F16},
        {8, 4, 256, 256, 0, 50, false, LODE_F16, LODE_F16},  {8, 8, 64, 64, 0, 0, true, LODE_F16, LODE_F16},
        {4, 2, 128, 128, 0, 0, false, LODE_F32, LODE_F32},   {4, 2, 128, 128, 0, 0, false, LODE_Q8_0, LODE_Q8_0},
        {4, 4, 192, 128, 0, 0, false, LODE_F16, LODE_F16},   {12, 1, 64, 64, 0, 0, false, LODE_F16, LODE_BF16},
        {4, 2, 128, 128, 40, 20, true, LODE_Q8_0, LODE_F16}, {4, 4, 80, 80, 0, 0, false, LODE_F16, LODE_F16},
        {12, 1, 64, 64, 0, 0, true, LODE_F16, LODE_F16},     {16, 1, 96, 128, 40, 0, false, LODE_BF16, LODE_BF16},
        {3, 1, 128, 64, 40, 20, false, LODE_Q8_0, LODE_Q8_0}, {12, 1, 64, 64, 0, 0, true, LODE_Q8_0, LODE_Q8_0},
        {4, 2, 192, 128, 0, 30, false, LODE_Q8_0, LODE_Q8_0},
    };
    return attention_of(t, &kinds[t->variant]);
}

/* Heads of more than 256 numbers: latent ones and others. */
enum { LATENT_KINDS = 4 }; /* the first */
static const struct attention_kind long_kinds[] = {
    {20, 1, 576, 512, 0, 0, false, LODE_F16, LODE_F16}, {4, 1, 576, 512, 0, 0, false, LODE_BF16, LODE_BF16},
    {72, 1, 576, 512, 0, 0, true, LODE_F16, LODE_F16},  {20, 1, 576, 512, 0, 0, false, LODE_Q8_0, LODE_Q8_0},
    {8, 2, 512, 512, 0, 0, false, LODE_F16, LODE_F16},  {6, 2, 272, 80, 40, 20, true, LODE_BF16, LODE_BF16},
    {3, 1, 128, 320, 0, 0, false, LODE_F16, LODE_F16},
};
static struct lode_node *build_attention_long(struct oc *t) { return attention_with(t, &long_kinds[t->variant], t->variant < LATENT_KINDS); }
/* By chains of a page, of several. */
static struct lode_node *build_attention_long_deep(struct oc *t) {
    static const struct attention_kind kinds[] = {
        {20, 1, 576, 512, 0, 0, false, LODE_F16, LODE_F16}, {2, 1, 576, 512, 0, 0, true, LODE_F16, LODE_F16},
        {3, 1, 576, 512, 0, 0, false, LODE_BF16, LODE_BF16}, {2, 1, 512, 512, 0, 0, false, LODE_F16, LODE_F16},
    };
    t->before = t->variant == 0 ? 780 : 8250;
    return attention_with(t, &kinds[t->variant], t->variant < 3);
}

/* So many heads that two pages of each are enough for decode_walk.cu on the largest GPUs. */
static struct lode_node *build_attention_walk(struct oc *t) {
    static const struct attention_kind kinds[] = {
        {272, 272, 64, 64, 0, 0, false, LODE_F16, LODE_F16}, {272, 272, 128, 128, 0, 0, true, LODE_F16, LODE_F16},
        {272, 136, 128, 128, 0, 0, false, LODE_F16, LODE_F16}, {270, 90, 128, 128, 0, 0, false, LODE_BF16, LODE_BF16},
        {340, 68, 64, 64, 0, 0, false, LODE_BF16, LODE_BF16}, {340, 68, 128, 128, 0, 20, false, LODE_F16, LODE_F16},
        {272, 272, 80, 80, 0, 0, true, LODE_F16, LODE_F16},  {272, 136, 96, 128, 40, 0, false, LODE_BF16, LODE_BF16},
        {272, 136, 128, 128, 40, 0, false, LODE_F16, LODE_F16}, {272, 136, 128, 128, 40, 0, false, LODE_Q8_0, LODE_Q8_0},
    };
    return attention_of(t, &kinds[t->variant]);
}

/* Where the first sequence has sixteen pages: few rows by pages, one by decode_ring.cu, whose blocks have more pages than slots where heads
 * leave one for each. */
static struct lode_node *build_attention_deep(struct oc *t) {
    static const struct attention_kind kinds[] = {
        {132, 132, 64, 64, 0, 0, false, LODE_F16, LODE_F16}, {8, 2, 64, 64, 0, 0, true, LODE_BF16, LODE_BF16},
        {12, 1, 64, 64, 0, 0, false, LODE_F16, LODE_F16},    {8, 2, 128, 128, 0, 0, true, LODE_F16, LODE_F16},
        {6, 2, 128, 128, 300, 0, false, LODE_BF16, LODE_BF16}, {6, 2, 64, 64, 300, 0, false, LODE_F16, LODE_F16},
        {4, 2, 256, 256, 0, 50, false, LODE_F16, LODE_F16},  {4, 2, 96, 128, 0, 0, false, LODE_F16, LODE_F16},
        {8, 2, 128, 128, 0, 0, false, LODE_Q8_0, LODE_Q8_0}, {12, 1, 64, 64, 300, 0, true, LODE_Q8_0, LODE_Q8_0},
        {4, 2, 80, 80, 0, 0, true, LODE_F16, LODE_F16}, /* joined by 32 numbers, the last ones 16 */
    };
    t->before = 780;
    return attention_of(t, &kinds[t->variant]);
}

/* Where the first sequence has more pages than there are chains of them in --numerics tensor (attention_fast.cuh); of the first, chains of
 * two or three. */
static struct lode_node *build_attention_chains(struct oc *t) {
    static const struct attention_kind kinds[] = {
        {8, 2, 128, 128, 0, 0, true, LODE_F16, LODE_F16},  {4, 1, 64, 64, 0, 0, false, LODE_F16, LODE_F16},
        {12, 1, 64, 64, 0, 0, true, LODE_BF16, LODE_BF16}, {9, 1, 128, 128, 0, 0, false, LODE_BF16, LODE_BF16},
        {8, 2, 128, 128, 0, 0, true, LODE_Q8_0, LODE_Q8_0}, {12, 1, 64, 64, 0, 0, false, LODE_Q8_0, LODE_Q8_0},
        {16, 8, 128, 128, 0, 0, false, LODE_F16, LODE_F16}, /* four chains of two pages a block of parts_ring.cu, in ten slots */
        {34, 34, 64, 64, 0, 0, false, LODE_F16, LODE_F16}, {4, 2, 256, 256, 0, 50, false, LODE_F16, LODE_F16},
        {4, 2, 96, 128, 0, 0, false, LODE_F16, LODE_F16},  {4, 1, 128, 128, 4160, 0, false, LODE_F16, LODE_F16},
        {16, 8, 64, 64, 0, 0, false, LODE_F16, LODE_F16}, /* chains of several rows for decode_join_rows.cu */
    };
    enum { CHAINS_OF_THREE = 7 };
    t->before = t->variant < CHAINS_OF_THREE ? 8250 : 4230;
    return attention_of(t, &kinds[t->variant]);
}

/* So many heads that steps of some rows are many for attention_ring.cu and attention_tile.cu; by twos, threes, fours, eights. */
static struct lode_node *build_attention_rows(struct oc *t) {
    static const struct attention_kind kinds[] = {
        {160, 40, 128, 128, 0, 0, false, LODE_F16, LODE_F16},   {160, 40, 128, 128, 0, 0, true, LODE_BF16, LODE_BF16},
        {160, 40, 128, 128, 0, 0, false, LODE_Q8_0, LODE_Q8_0}, {160, 40, 128, 128, 40, 0, false, LODE_F16, LODE_F16},
        {320, 40, 64, 64, 0, 0, false, LODE_F16, LODE_F16},     {160, 40, 64, 64, 0, 0, true, LODE_F16, LODE_F16},
        {120, 40, 128, 128, 0, 20, true, LODE_Q8_0, LODE_F16},  {160, 40, 64, 64, 40, 0, true, LODE_F16, LODE_BF16},
        {272, 34, 64, 64, 70, 0, false, LODE_Q8_0, LODE_Q8_0},  {96, 48, 256, 256, 0, 30, false, LODE_F16, LODE_F16},
        {96, 48, 192, 128, 0, 0, true, LODE_BF16, LODE_BF16},   {96, 48, 256, 256, 40, 0, true, LODE_Q8_0, LODE_Q8_0},
        {96, 48, 96, 96, 0, 0, false, LODE_Q8_0, LODE_F16},     {48, 48, 128, 256, 0, 0, false, LODE_F16, LODE_F16},
    };
    return attention_of(t, &kinds[t->variant]);
}

/* With the product of what it gives, which in --numerics fast is rounded where it is made: to tiles of 64 rows or of 128; heads that are whole
 * blocks and some that are not.  Rows of no whole 256 numbers, or packed weights would take floats. */
static struct lode_node *build_attended(struct oc *t) {
    static const struct {
        struct attention_kind of;
        enum lode_dtype type;
        uint32_t rows;
        bool add;
    } kinds[] = {
        {{5, 5, 64, 64, 0, 0, false, LODE_F16, LODE_F16}, LODE_Q8_0, 200, true},
        {{6, 2, 64, 64, 0, 0, true, LODE_BF16, LODE_BF16}, LODE_Q4_0, 6080, true},
        {{5, 1, 128, 128, 40, 0, true, LODE_BF16, LODE_BF16}, LODE_Q5_0, 320, false},
        {{9, 3, 128, 128, 0, 0, false, LODE_F16, LODE_F16}, LODE_Q4_1, 6144, true},
        {{7, 7, 96, 96, 0, 0, false, LODE_F16, LODE_F16}, LODE_MXFP4, 136, true},
        {{3, 3, 256, 224, 0, 30, false, LODE_F16, LODE_F16}, LODE_IQ4_NL, 6080, true},
        {{5, 5, 64, 64, 0, 20, false, LODE_BF16, LODE_BF16}, LODE_Q5_1, 64, true},
        {{4, 4, 80, 80, 0, 0, false, LODE_F16, LODE_F16}, LODE_Q8_0, 200, true},
        {{5, 5, 64, 64, 0, 0, false, LODE_F16, LODE_F16}, LODE_BF16, 200, true},
    };
    const uint32_t rows = kinds[t->variant].rows, cols = kinds[t->variant].of.heads * kinds[t->variant].of.dim_v;
    struct lode_node *res = kinds[t->variant].add ? oc_input(t, rows) : NULL, *x = attention_of(t, &kinds[t->variant].of);
    struct lode_node *y = lode_g_linear(t->g, x, oc_matrix(t, kinds[t->variant].type, rows, cols, 1), NULL);
    return res ? lode_g_add(t->g, res, y, 1) : y;
}

/* Norms and rotations of queries and keys before it, as most models have them: one launch on a device.  Some with heads enough for
 * decode_walk.cu, as above. */
static struct lode_node *build_attention_whole(struct oc *t) {
    static const struct {
        uint32_t heads, kv_heads, dim, pairs, window;
        bool normed, neighbours;
        enum lode_dtype type;
    } kinds[] = {
        {8, 2, 128, 64, 0, false, false, LODE_F16},   {8, 2, 128, 64, 0, true, false, LODE_F16},
        {8, 2, 128, 64, 0, true, false, LODE_Q8_0},   {8, 2, 128, 64, 0, false, true, LODE_F16},
        {8, 2, 128, 64, 0, true, true, LODE_BF16},    {8, 2, 128, 32, 0, true, false, LODE_F16},
        {8, 2, 64, 32, 0, true, false, LODE_BF16},    {8, 2, 64, 32, 0, false, true, LODE_F16},
        {8, 2, 64, 16, 0, false, true, LODE_F16},     {8, 2, 96, 48, 0, true, false, LODE_F16},
        {8, 2, 256, 128, 0, false, false, LODE_F16},  {8, 2, 80, 20, 0, true, true, LODE_BF16},
        {272, 136, 128, 64, 0, true, false, LODE_F16}, {272, 136, 128, 64, 0, true, true, LODE_Q8_0},
        {272, 136, 64, 16, 0, true, false, LODE_BF16}, {5, 5, 128, 64, 0, true, false, LODE_F16},
        {9, 9, 64, 32, 0, false, false, LODE_F16},    {6, 2, 128, 64, 0, false, true, LODE_F16},
        {14, 2, 64, 32, 0, true, false, LODE_F16},    {16, 2, 128, 64, 40, false, false, LODE_BF16},
        {4, 2, 128, 64, 70, true, false, LODE_F16},   {10, 2, 64, 32, 0, false, false, LODE_BF16}};
    const uint32_t heads = kinds[t->variant].heads, kv_heads = kinds[t->variant].kv_heads, dim = kinds[t->variant].dim,
                   window = kinds[t->variant].window;
    const enum lode_dtype type = kinds[t->variant].type;
    const bool normed = kinds[t->variant].normed, neighbours = kinds[t->variant].neighbours;
    t->kv = (struct lode_kv_layer){.n_heads = kv_heads, .head_dim = dim, .head_dim_v = dim, .window = window, .type_k = type,
                                   .type_v = type};
    t->n_pairs = kinds[t->variant].pairs;
    t->attention = (struct oc_attention){.n_heads = heads, .scale = 0.088f, .normed = normed};
    struct lode_node *q = oc_input(t, heads * dim), *k = oc_input(t, kv_heads * dim), *v = oc_input(t, kv_heads * dim);
    struct lode_node *table = lode_g_rope_table(t->g, 0, t->n_pairs);
    if (normed) {
        q = lode_g_rms_norm(t->g, q, oc_vector(t, dim), 1e-6f, dim);
        k = lode_g_rms_norm(t->g, k, oc_vector(t, dim), 1e-6f, dim);
    }
    q = lode_g_rope(t->g, q, table, heads, neighbours);
    k = lode_g_rope(t->g, k, table, kv_heads, neighbours);
    const union lode_op_params p = {.attention = {.n_heads = heads, .n_kv_heads = kv_heads, .head_dim = dim,
                                                  .head_dim_v = dim, .window = window, .scale = 0.088f}};
    return lode_g_attention(t->g, q, lode_g_kv_put(t->g, k, v, 0), NULL, &p);
}

/* The same with queries that lie head by head beside a gate of what attention gives, or behind it. */
static struct lode_node *build_attention_gated(struct oc *t) {
    static const struct {
        uint32_t heads, kv_heads, dim, pairs, first; /* first: of a head's queries */
        bool normed, product;
        enum lode_dtype type;
    } kinds[] = {
        {8, 2, 256, 32, 0, true, true, LODE_BF16},   {16, 2, 256, 32, 0, true, false, LODE_F16},   {8, 2, 128, 64, 0, true, false, LODE_F16},
        {8, 2, 128, 32, 128, true, false, LODE_Q8_0}, {4, 2, 64, 32, 0, false, false, LODE_BF16},  {6, 2, 96, 48, 96, true, false, LODE_F16},
        {4, 4, 80, 20, 0, true, false, LODE_F16},    {272, 136, 128, 64, 0, true, false, LODE_F16}, {272, 136, 64, 16, 64, true, false, LODE_BF16},
        {14, 2, 64, 32, 0, true, false, LODE_F16},   {4, 2, 128, 0, 0, false, false, LODE_F16},     {4, 2, 128, 0, 1, true, false, LODE_F16}}; /* the last at no multiple of four */
    const uint32_t heads = kinds[t->variant].heads, kv_heads = kinds[t->variant].kv_heads, dim = kinds[t->variant].dim,
                   first = kinds[t->variant].first, of_head = first == 1 ? 2 * dim + 1 : 2 * dim, d = 256;
    const enum lode_dtype type = kinds[t->variant].type;
    const bool normed = kinds[t->variant].normed, product = kinds[t->variant].product;
    t->kv = (struct lode_kv_layer){.n_heads = kv_heads, .head_dim = dim, .head_dim_v = dim, .type_k = type, .type_v = type};
    t->n_pairs = kinds[t->variant].pairs;
    struct lode_node *h = oc_input(t, d), *both, *k, *v;
    both = product ? lode_g_linear(t->g, h, oc_matrix(t, LODE_Q8_0, heads * of_head, d, 1), NULL) : oc_input(t, heads * of_head);
    k = product ? lode_g_linear(t->g, h, oc_matrix(t, LODE_Q8_0, kv_heads * dim, d, 1), NULL) : oc_input(t, kv_heads * dim);
    v = product ? lode_g_linear(t->g, h, oc_matrix(t, LODE_Q8_0, kv_heads * dim, d, 1), NULL) : oc_input(t, kv_heads * dim);
    struct lode_node *table = t->n_pairs ? lode_g_rope_table(t->g, 0, t->n_pairs) : NULL;
    struct lode_node *q = lode_g_cut(t->g, both, heads, first, dim);
    if (normed) {
        q = lode_g_rms_norm(t->g, q, oc_vector(t, dim), 1e-6f, dim);
        k = lode_g_rms_norm(t->g, k, oc_vector(t, dim), 1e-6f, dim);
    }
    if (table) {
        q = lode_g_rope(t->g, q, table, heads, false);
        k = lode_g_rope(t->g, k, table, kv_heads, false);
    }
    const union lode_op_params p = {.attention = {.n_heads = heads, .n_kv_heads = kv_heads, .head_dim = dim, .head_dim_v = dim, .scale = 0.088f}};
    struct lode_node *o = lode_g_attention(t->g, q, lode_g_kv_put(t->g, k, v, 0), NULL, &p);
    o = lode_g_glu(t->g, lode_g_cut(t->g, both, heads, first ? 0 : dim, dim), o, LODE_GLU_SIGMOID);
    return product ? lode_g_add(t->g, h, lode_g_linear(t->g, o, oc_matrix(t, LODE_Q8_0, d, heads * dim, 1), NULL), 1) : o;
}

/* Latent attention with all that is between its products (model/mla.c): one launch on a device, beside those products, where nobody else reads
 * what comes and goes in it. */
static struct lode_node *build_latent(struct oc *t) {
    enum use {
        ALONE,       /* queries and rows are inputs, */
        OF_PRODUCTS, /* or products of one value, as models have it */
        JOINED_LATER, /* the queries are read once more, */
        C_LATER,     /* or what else is made on the way: it may not be left out */
        ROW_LATER,
        TURNED_LATER,
        HEADS_LATER,
        TWO_TABLES,  /* rows are turned by another one than queries */
    };
    static const struct {
        uint32_t heads, rank, rope, plain, v;
        enum lode_dtype k_b, v_b, kept;
        enum use use;
        bool neighbours, many_rows, plain_norm;
    } kinds[] = {
        {20, 512, 64, 192, 256, LODE_Q8_0, LODE_Q4_K, LODE_F16, OF_PRODUCTS, true, false, false},
        {4, 512, 64, 128, 128, LODE_Q8_0, LODE_Q8_0, LODE_BF16, OF_PRODUCTS, false, true, false},
        {3, 512, 64, 192, 256, LODE_Q5_0, LODE_Q6_K, LODE_Q8_0, JOINED_LATER, true, true, false},
        {2, 512, 64, 192, 128, LODE_Q4_1, LODE_Q5_K, LODE_F32, JOINED_LATER, true, false, false},
        {4, 32, 16, 32, 32, LODE_Q8_0, LODE_Q8_0, LODE_F16, JOINED_LATER, true, true, true},
        {5, 48, 16, 64, 40, LODE_BF16, LODE_BF16, LODE_F16, JOINED_LATER, true, true, false},
        {4, 128, 64, 64, 64, LODE_BF16, LODE_F16, LODE_F16, JOINED_LATER, true, true, false},
        {3, 512, 64, 128, 128, LODE_F16, LODE_BF16, LODE_F16, OF_PRODUCTS, true, true, false},
        {4, 256, 32, 48, 24, LODE_F32, LODE_F32, LODE_BF16, JOINED_LATER, false, true, false},
        {3, 200, 24, 288, 64, LODE_IQ4_NL, LODE_BF16, LODE_F16, JOINED_LATER, true, true, true},
        {6, 96, 32, 320, 128, LODE_MXFP4, LODE_Q4_0, LODE_Q8_0, OF_PRODUCTS, true, false, false},
        {2, 128, 256, 128, 64, LODE_NVFP4, LODE_Q8_0, LODE_F16, JOINED_LATER, true, false, false},
        {3, 512, 64, 192, 128, LODE_Q8_0, LODE_Q3_K, LODE_F16, C_LATER, true, false, false},
        {3, 512, 64, 192, 128, LODE_Q8_0, LODE_Q2_K, LODE_F16, ROW_LATER, true, false, false},
        {3, 64, 64, 96, 128, LODE_Q8_0, LODE_Q8_0, LODE_BF16, TURNED_LATER, true, false, false},
        {3, 512, 64, 192, 128, LODE_Q8_0, LODE_IQ4_XS, LODE_F16, HEADS_LATER, true, false, false},
        {3, 64, 32, 64, 32, LODE_Q8_0, LODE_IQ4_NL, LODE_Q8_0, TWO_TABLES, false, false, false},
        {3, 256, 64, 256, 64, LODE_Q4_K, LODE_U4, LODE_F16, OF_PRODUCTS, true, true, false}, /* queries rounded by 256 */
        {2, 640, 64, 96, 32, LODE_Q8_0, LODE_Q8_0, LODE_F16, JOINED_LATER, true, false, false}, /* more than a warp has, or a block rounds */
    };
    const uint32_t heads = kinds[t->variant].heads, rank = kinds[t->variant].rank, rope = kinds[t->variant].rope,
                   plain = kinds[t->variant].plain, all = heads * (plain + rope);
    const enum use use = kinds[t->variant].use;
    const bool neighbours = kinds[t->variant].neighbours;
    t->many_rows = kinds[t->variant].many_rows;
    t->n_pairs = rope / 2;
    t->kv = (struct lode_kv_layer){.n_heads = 1, .head_dim = rank + rope, .head_dim_v = rank, .type_k = kinds[t->variant].kept,
                                   .type_v = kinds[t->variant].kept, .v_in_k = true};
    struct lode_node *table = lode_g_rope_table(t->g, 0, t->n_pairs);
    struct lode_node *other = use == TWO_TABLES ? lode_g_scale(t->g, lode_g_rope_table(t->g, 0, t->n_pairs), 0.5f) : table;
    struct lode_node *h = use == OF_PRODUCTS ? oc_input(t, 256) : NULL;
    struct lode_node *q = h ? lode_g_linear(t->g, h, oc_matrix(t, LODE_BF16, all, 256, 1), NULL) : oc_input(t, all);
    struct lode_node *row = h ? lode_g_linear(t->g, h, oc_matrix(t, LODE_BF16, rank + rope, 256, 1), NULL) : oc_input(t, rank + rope);
    struct lode_node *qc = lode_g_cut(t->g, q, heads, 0, plain);
    struct lode_node *qr = lode_g_rope(t->g, lode_g_cut(t->g, q, heads, plain, rope), table, heads, neighbours);
    struct lode_node *c = lode_g_rms_norm(t->g, lode_g_slice(t->g, row, 0, rank), kinds[t->variant].plain_norm ? NULL : oc_vector(t, rank),
                                          1e-6f, 0);
    struct lode_node *r = lode_g_rope(t->g, lode_g_slice(t->g, row, rank, rope), other, 1, neighbours);
    row = lode_g_join(t->g, c, r, 1);
    struct lode_node *put = lode_g_kv_put(t->g, row, row, 0);
    qc = lode_g_heads(t->g, qc, oc_matrix(t, kinds[t->variant].k_b, heads * rank, plain, 1), heads);
    q = lode_g_join(t->g, qc, qr, heads);
    const union lode_op_params p = {.attention = {.n_heads = heads, .n_kv_heads = 1, .head_dim = rank + rope, .head_dim_v = rank,
                                                  .scale = lode_dtypes[kinds[t->variant].k_b].block > 1 ? 2e-9f : 0.07f}}; /* blocks have any scales */
    struct lode_node *o = lode_g_attention(t->g, q, put, NULL, &p);
    o = lode_g_heads(t->g, o, oc_matrix(t, kinds[t->variant].v_b, heads * kinds[t->variant].v, rank, 1), heads);
    struct lode_node *later = use == JOINED_LATER   ? q
                              : use == C_LATER      ? c
                              : use == ROW_LATER    ? row
                              : use == TURNED_LATER ? qr
                              : use == HEADS_LATER  ? qc : NULL;
    return later ? lode_g_join(t->g, o, later, 1) : o;
}

/* ---- layers with a state ---- */

static struct lode_node *build_conv(struct oc *t) {
    t->state = (struct lode_state_layer){.inputs = t->variant ? 2 : 3, .width = 512};
    return lode_g_conv(t->g, oc_input(t, 512), oc_matrix(t, LODE_F32, 512, t->variant ? 3 : 4, 1), 0, !t->variant);
}

static struct lode_node *build_delta_gates(struct oc *t) {
    struct lode_node *x = oc_input(t, 64);
    const struct lode_operand *a = oc_vector(t, 32);
    return lode_g_delta_gates(t->g, x, a, oc_vector(t, 32));
}

/* By shapes of which CUDA has a kernel of their own, or none; with all columns of a block of its threads, or half of them; and by
 * where steps leave a checkpoint (store/state.h): behind the only row (63 rows before), behind the first of many (44: the
 * step of 33 begins at 63), behind the last (45: that of 16 ends at 64), in the middle (any: that of 130). */
static struct lode_node *build_delta(struct oc *t) {
    static const struct {
        uint32_t dim_k, dim_v, before;
    } shapes[] = {{64, 64, 0}, {128, 128, 0}, {128, 128, 63}, {128, 48, 44}, {64, 128, 45}, {64, 16, 44}, {100, 32, 44}, {36, 48, 45}};
    const uint32_t dim = shapes[t->variant / 2].dim_k, dim_v = shapes[t->variant / 2].dim_v, keys = 2, values = 4;
    t->before = shapes[t->variant / 2].before;
    t->state = (struct lode_state_layer){.n_heads = values, .dim_k = dim, .dim_v = dim_v};
    const union lode_op_params norm = {.l2_norm = {.eps = 1e-6f, .group = dim, .n = 2 * keys * dim, .scale = 1}};
    struct lode_node *x = lode_g_l2_norm(t->g, oc_input(t, 2 * keys * dim + values * dim_v), &norm);
    const struct lode_operand *a = oc_negatives(t, values); /* else a state grows until it is infinite */
    struct lode_node *gates = lode_g_delta_gates(t->g, oc_input(t, 2 * values), a, oc_vector(t, values));
    const union lode_op_params p = {.delta = {.n_k_heads = keys, .n_heads = values, .dim_k = dim, .dim_v = dim_v,
                                              .tiled = t->variant & 1}};
    return lode_g_delta(t->g, x, gates, &p);
}

/* All of such a layer between its products: gates that are made of numbers in one value or two, as they are or key head by key head; the
 * convolution and its norm; the delta rule; the gated norm.  Heads that are parts of a block of threads' columns, whole ones, some with a rest
 * of threads, or longer; taps of all numbers; checkpoints as above. */
static struct lode_node *build_delta_layer(struct oc *t) {
    enum from { BOTH, TWO, READY }; /* where gates come from */
    enum use {
        OF_MODELS,
        PRODUCTS,    /* what comes before and after is a product */
        CUT_LATER,   /* what gates are made of is read later once it is moved: nothing may be left out */
        JOINED_LATER,
        CONV_LATER,  /* the convolution is read later without its norm */
    };
    static const struct {
        uint32_t keys, values, dim_k, dim_v, taps, before;
        enum from from;
        enum use use;
    } kinds[] = {
        {2, 4, 128, 128, 4, 0, BOTH, OF_MODELS}, {2, 4, 128, 128, 4, 63, TWO, OF_MODELS},   {2, 4, 128, 128, 4, 45, READY, OF_MODELS},
        {2, 2, 128, 128, 4, 44, BOTH, PRODUCTS}, {2, 6, 64, 64, 2, 44, BOTH, PRODUCTS},     {2, 4, 64, 64, 3, 44, TWO, PRODUCTS},
        {2, 4, 16, 16, 4, 45, BOTH, OF_MODELS},  {2, 6, 100, 32, 8, 44, BOTH, OF_MODELS},   {4, 4, 36, 48, 4, 63, TWO, OF_MODELS},
        {3, 3, 144, 32, 4, 44, BOTH, OF_MODELS}, {2, 40, 32, 16, 5, 44, BOTH, OF_MODELS},   {4, 96, 16, 16, 4, 44, TWO, OF_MODELS},
        {2, 4, 64, 64, 4, 0, BOTH, CUT_LATER},   {2, 4, 64, 64, 4, 0, TWO, JOINED_LATER},   {2, 4, 64, 64, 4, 0, BOTH, CONV_LATER},
        {2, 4, 64, 64, 4, 0, READY, CONV_LATER}};
    const uint32_t keys = kinds[t->variant].keys, values = kinds[t->variant].values, dim_k = kinds[t->variant].dim_k,
                   dim_v = kinds[t->variant].dim_v, taps = kinds[t->variant].taps, each = values / keys, inner = values * dim_v,
                   width = 2 * keys * dim_k + inner;
    const enum from from = kinds[t->variant].from;
    const enum use use = kinds[t->variant].use;
    t->before = kinds[t->variant].before;
    t->state = (struct lode_state_layer){.inputs = taps - 1, .width = width, .n_heads = values, .dim_k = dim_k, .dim_v = dim_v};
    struct lode_node *h = use == PRODUCTS ? oc_input(t, 256) : NULL;
#define INPUT(n) (h ? lode_g_linear(t->g, h, oc_matrix(t, LODE_Q8_0, n, 256, 1), NULL) : oc_input(t, n))
    struct lode_node *qkv = INPUT(width), *gate = INPUT(inner), *alpha = NULL, *beta = NULL, *joined;
    if (from == BOTH) {
        struct lode_node *both = INPUT(2 * values);
        beta = lode_g_cut(t->g, both, keys, 0, each);
        alpha = lode_g_cut(t->g, both, keys, each, each);
    } else if (from == TWO) {
        beta = INPUT(values);
        alpha = INPUT(values);
    }
    joined = from == READY ? INPUT(2 * values) : lode_g_join(t->g, alpha, beta, values);
#undef INPUT
    const struct lode_operand *a = oc_negatives(t, values);
    struct lode_node *gates = lode_g_delta_gates(t->g, joined, a, oc_vector(t, values));
    struct lode_node *conv = lode_g_conv(t->g, qkv, oc_matrix(t, LODE_F32, width, taps, 1), 0, true);
    const union lode_op_params norm = {.l2_norm = {.eps = 1e-6f, .group = dim_k, .n = 2 * keys * dim_k, .n_scaled = keys * dim_k,
                                                   .scale = 0.088f}};
    const union lode_op_params p = {.delta = {.n_k_heads = keys, .n_heads = values, .dim_k = dim_k, .dim_v = dim_v,
                                              .tiled = from == TWO}};
    struct lode_node *o = lode_g_delta(t->g, lode_g_l2_norm(t->g, conv, &norm), gates, &p);
    o = lode_g_rms_norm(t->g, o, oc_vector(t, dim_v), 1e-6f, dim_v);
    o = lode_g_glu(t->g, gate, o, LODE_GLU_SILU);
    if (h)
        return lode_g_add(t->g, h, lode_g_linear(t->g, o, oc_matrix(t, LODE_Q8_0, 256, inner, 1), NULL), 1);
    struct lode_node *later = use == CUT_LATER ? beta : use == JOINED_LATER ? joined : use == CONV_LATER ? conv : NULL;
    return later ? lode_g_join(t->g, o, later, 1) : o;
}

const struct oc_case oc_cases[] = {
    {"linear", 0, false, build_linear, OC_SUM},
    {"long_linear", 0, true, build_long_linear, OC_SUM},
    {"tall_linear", 7, false, build_tall_linear, OC_SUM},
    {"ragged_linear", 8, false, build_ragged_linear, OC_SUM},
    {"embed", 0, false, build_embed, OC_NO_BOUND},
    {"feed_forward", 0, true, build_feed_forward, OC_NO_BOUND},
    {"gated_down", 7, false, build_gated_down, OC_SAME},
    {"experts", 0, false, build_experts, OC_NO_BOUND},
    {"router", 12, false, build_router, OC_NO_BOUND},
    {"shared_expert", 8, false, build_shared_expert, OC_SAME},
    {"chosen_experts", 10, false, build_chosen_experts, OC_NO_BOUND},
    {"chosen_experts_32", 17, false, build_chosen_experts_32, OC_NO_BOUND},
    {"expert_halves", 0, false, build_expert_halves, OC_NO_BOUND},
    {"heads", 0, false, build_heads, OC_NO_BOUND},
    {"heads_many", 24, false, build_heads_many, OC_SAME},
    {"gather", 2, false, build_gather, OC_NO_BOUND},
    {"rms_norm", 11, false, build_rms_norm, OC_NO_BOUND},
    {"added_norm", 26, false, build_added_norm, OC_SAME},
    {"gated_norm", 13, false, build_gated_norm, OC_SAME},
    {"gated_sum", 13, false, build_gated_sum, OC_SAME},
    {"layer_norm", 3, false, build_layer_norm, OC_NO_BOUND},
    {"l2_norm", 2, false, build_l2_norm, OC_NO_BOUND},
    {"glu", 5, false, build_glu, OC_NO_BOUND},
    {"act", 3, false, build_act, OC_NO_BOUND},
    {"add", 2, false, build_add, OC_NO_BOUND},
    {"row_gate", 1, false, build_row_gate, OC_NO_BOUND},
    {"scale", 1, false, build_scale, OC_NO_BOUND},
    {"softcap", 1, false, build_softcap, OC_NO_BOUND},
    {"temperature", 1, false, build_temperature, OC_NO_BOUND},
    {"pick", 1, false, build_pick, OC_NO_BOUND},
    {"slice", 1, false, build_slice, OC_NO_BOUND},
    {"cut", 9, false, build_cut, OC_NO_BOUND},
    {"join", 10, false, build_join, OC_NO_BOUND},
    {"wide_row", 4, false, build_wide_row, OC_NO_BOUND},
    {"route", 14, false, build_route, OC_NO_BOUND},
    {"rope", 8, false, build_rope, OC_NO_BOUND},
    {"unpair", 1, false, build_unpair, OC_NO_BOUND},
    {"attention", 17, false, build_attention, OC_ATTENTION},
    {"attention_long", 7, false, build_attention_long, OC_ATTENTION},
    {"attention_long_deep", 4, false, build_attention_long_deep, OC_ATTENTION_DEEP},
    {"attention_walk", 10, false, build_attention_walk, OC_ATTENTION},
    {"attention_rows", 14, false, build_attention_rows, OC_ATTENTION},
    {"attention_whole", 22, false, build_attention_whole, OC_ATTENTION},
    {"attention_gated", 12, false, build_attention_gated, OC_SAME},
    {"attention_deep", 11, false, build_attention_deep, OC_ATTENTION},
    {"attention_chains", 12, false, build_attention_chains, OC_ATTENTION_DEEP},
    {"latent", 19, false, build_latent, OC_SAME},
    {"attended", 9, false, build_attended, OC_SAME},
    {"conv", 2, false, build_conv, OC_NO_BOUND},
    {"delta_gates", 1, false, build_delta_gates, OC_NO_BOUND},
    {"delta", 16, false, build_delta, OC_NO_BOUND},
    {"delta_layer", 16, false, build_delta_layer, OC_NO_BOUND},
};
const size_t oc_n_cases = sizeof oc_cases / sizeof *oc_cases;
