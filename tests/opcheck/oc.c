/* oc.c - a case's weights, its two lives, and what they give. */
#include "oc.h"

#include "../kerncheck/blocks.h"
#include "beside.h"
#include "backend/cuda.h"
#include "engine/sampler_impl.h"
#include "runtime/exec.h"
#include "store/file_store.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WEIGHTS = 640, TABLE = 200, MAX_ROWS = 144, MANY_ROWS = 512, CTX = 256, MANY_CTX = 768, SEQS = 2 };

/* Rows of each sequence in the steps; shapes of few rows come three times, so that they are captured. */
static const uint32_t steps[][SEQS] = {{1, 0}, {2, 1}, {0, 3}, {16, 1}, {33, 17}, {1, 1}, {1, 1}, {1, 1}, {130, 0},
                                       {1, 0}, {1, 0}, {1, 0}, {8, 4}, {0, 5}, {7, 0}, {3, 13}, {0, 16},
                                       /* of many rows alone: around tiles of 32 and of 64, and several of 128 */
                                       {31, 0}, {0, 32}, {33, 0}, {64, 0}, {32, 33}, {200, 0}, {0, 512}};
enum { MANY_STEPS = 7, STEPS = sizeof steps / sizeof *steps - MANY_STEPS };
static size_t n_steps(const struct oc *t) { return t->many_rows ? STEPS + MANY_STEPS : STEPS; }
static uint32_t most_rows(const struct oc *t) { return t->many_rows ? MANY_ROWS : MAX_ROWS; }

struct oc_weights {
    struct lode_source source; /* these, and nothing else; first, so that it can be found from it */
    struct lode_weight w[MAX_WEIGHTS];
    struct lode_gguf_tensor home[MAX_WEIGHTS];
    char *data[MAX_WEIGHTS];
    void *own[MAX_WEIGHTS]; /* of several, the first has the memory, as in a file */
    void *wide[MAX_WEIGHTS]; /* what take_signs made of packed ones */
    uint32_t *order; /* NULL: none */
    uint32_t n;
};

static void *must_have(void *p) {
    if (!p) {
        fprintf(stderr, "opcheck: out of memory\n");
        exit(2);
    }
    return p;
}

static char case_name[64];

static void must(int rc, const struct lode_error *err) {
    if (rc < 0) {
        fprintf(stderr, "opcheck: %s: %s: %s\n", case_name, err->where, err->text);
        exit(2);
    }
}

/* ---- weights, which are their own source ---- */

static const void *source_data(const struct lode_source *s, const struct lode_gguf_tensor *t, size_t offset,
                               size_t n) {
    const struct oc_weights *w = (const struct oc_weights *)s;
    (void)n;
    return w->data[t - w->home] + offset;
}

static int source_read(const struct lode_source *s, const struct lode_gguf_tensor *t, size_t offset, void *out,
                       size_t n, struct lode_error *err) {
    (void)err;
    memcpy(out, source_data(s, t, offset, n), n);
    return 0;
}

static int source_check(const struct lode_source *s, struct lode_error *err) {
    (void)s;
    (void)err;
    return 0;
}

static const struct lode_source_ops source_ops = {.data = source_data, .read = source_read, .check = source_check};

/* Random bytes without the codes and scales that are infinite or NaN, or so large that sums soon are. */
static void tame(enum lode_dtype type, char *data, size_t size) {
    const size_t bytes = lode_dtypes[type].bytes;
    for (char *b = data; b < data + size; b += bytes) {
        if (type == LODE_IQ1_M) /* the top of its half: 2^-3 to 1 */
            b[55] = (char)((b[55] & 0x0f) | 0x30);
        for (size_t i = 4; i < (type == LODE_NVFP4G ? 8 : bytes); i++) /* behind a float */
            if (type == LODE_E4M3 || type == LODE_E5M2 || type == LODE_NVFP4G)
                b[i] &= (char)0xbf;
    }
}

static void fill(struct oc *t, enum lode_dtype type, char *data, size_t size) {
    if (type == LODE_F32) {
        kc_fill(t->kc, (float *)(void *)data, size / sizeof(float), KC_NORMAL);
    } else if (type == LODE_BF16) {
        for (size_t i = 0; i < size / 2; i++) {
            const uint32_t bits = lode_f32_bits(kc_normal(t->kc));
            const uint16_t half = (uint16_t)(bits >> 16);
            memcpy(data + 2 * i, &half, 2);
        }
    } else {
        blocks_fill(t->kc, type, data, size, BLOCKS_FINITE);
        tame(type, data, size);
    }
}

const struct lode_operand *oc_matrix(struct oc *t, enum lode_dtype type, uint32_t rows, uint32_t cols,
                                     uint32_t count) {
    struct oc_weights *all = t->weights;
    const uint32_t first = all->n;
    size_t row = 0;
    if (first + count > MAX_WEIGHTS || !lode_dtype_row_size(type, cols, &row)) {
        lode_graph_fail(t->g, LODE_ERR_INTERNAL, "opcheck", "a weight of %u x %u", rows, cols);
        return NULL;
    }
    char *memory = must_have(aligned_alloc(4096, (count * row * rows + 64 + 4095) & ~(size_t)4095));
    all->own[first] = memory;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t id = all->n++;
        const size_t size = row * rows;
        all->data[id] = memory + i * size;
        fill(t, type, all->data[id], size);
        all->home[id] = (struct lode_gguf_tensor){.name = "w", .type = type, .n_dims = 2, .dims = {cols, rows},
                                                  .size = size};
        all->w[id] = (struct lode_weight){.op = {.id = id, .type = type, .rows = rows, .cols = cols, .count = count}, .home = &all->home[id],
                                          .size = size, .group = count > 1 ? 0 : LODE_NO_GROUP};
    }
    return &all->w[first].op;
}

const struct lode_operand *oc_mixed_matrix(struct oc *t, enum lode_dtype type, uint32_t rows, uint32_t cols) {
    const struct lode_operand *w = oc_matrix(t, type, rows, cols, 1);
    uint32_t *order = t->weights->order = must_have(malloc(cols * sizeof *order));
    for (uint32_t i = 0; i < cols; i++) {
        const uint32_t j = (uint32_t)kc_below(t->kc, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    if (w)
        t->weights->w[w->id].op.order = order;
    return w;
}

const struct lode_operand *oc_vector(struct oc *t, uint32_t n) { return oc_matrix(t, LODE_F32, 1, n, 1); }

const struct lode_operand *oc_negatives(struct oc *t, uint32_t n) {
    const struct lode_operand *w = oc_vector(t, n);
    for (uint32_t i = 0; w && i < n; i++)
        t->weights->data[w->id][i * sizeof(float) + 3] |= (char)0x80;
    return w;
}

struct lode_node *oc_input(struct oc *t, uint32_t width) {
    return lode_g_embed(t->g, oc_matrix(t, LODE_F32, TABLE, width, 1), 1);
}

/* ---- one of two that compute the same ---- */

struct life {
    struct lode_plan plan;
    struct lode_backend *backends[LODE_PLACES];
    const struct lode_memory *memory[LODE_PLACES];
    struct lode_store *store;
    struct lode_aside *aside; /* NULL: none */
    struct lode_exec *exec;
    struct lode_kv *kv[SEQS];
    struct lode_state *state[SEQS];
};

static bool takes_floats(const void *user, uint8_t place, const struct lode_operand *w) {
    return place != LODE_HOST && lode_cuda_takes_floats(user, w);
}

/* How products are made: exactly, as --numerics fast has them, or with weights widened (--float-act). */
enum numbers { EXACT, FAST, WIDENED };

/* The device computes experts beside the host: from a cache of half of them, or the stand-in does. */
static void begin_beside(struct life *l, const struct oc *t, struct lode_cuda *c, const struct lode_cpu_opts *host,
                         uint32_t bring_rows) {
    static const struct lode_group group;
    struct lode_error err = {0};
    struct lode_cuda_experts_sizes sizes;
    struct lode_cuda_experts_opts o = {.graph = t->g, .source = &t->weights->source, .weights = t->weights->w,
                                       .groups = &group, .may_pin = bring_rows % 2};
    if (!c) {
        l->aside = beside_create(host, kc_below(t->kc, UINT32_MAX));
        return;
    }
    must(lode_cuda_experts_sizes(c, &o, &sizes, &err), &err);
    o.bytes = sizes.all / 2;
    must(lode_cuda_keep_experts(c, &o, &err), &err);
    const struct lode_cuda_aside_opts a = {.max_rows = most_rows(t), .experts = l->plan.experts, .raw = sizes.raw,
                                           .slot = sizes.slot, .bring_rows = bring_rows};
    must(lode_cuda_aside_create(&l->aside, c, &a, &err), &err);
}

/* bring_rows: not 0: on the host, with what is beside it. */
static void begin_life(struct life *l, const struct oc *t, struct lode_cuda *c, enum lode_isa isa, uint32_t threads,
                       enum numbers numbers, uint32_t bring_rows) {
    const bool fast = numbers == FAST;
    struct lode_error err = {0};
    struct lode_cuda *const beside = c;
    c = bring_rows ? NULL : c;
    const uint8_t place = c ? 1 : LODE_HOST;
    uint8_t *places = must_have(malloc(t->g->n_nodes + 1));
    memset(places, place, t->g->n_nodes + 1);
    const struct lode_plan_opts plan = {.places = places,
                                        .float_act = numbers == WIDENED,
                                        .takes_floats = fast && c ? takes_floats : NULL,
                                        .user = c};
    must(lode_plan_compile(&l->plan, t->g, &plan, &err), &err);
    free(places);
    must(lode_file_store_create(&l->store, &t->weights->source, t->weights->w, t->weights->n,
                                &(struct lode_file_store_opts){0}, &err), &err);
    struct lode_cpu_opts host = {.isa = isa, .threads = threads, .max_cols = l->plan.max_cols,
                                       .float_act = numbers == WIDENED,
                                       .fast = fast ? lode_fast_best(isa) : LODE_FAST_none,
                                       .max_rows = most_rows(t), .max_heads = l->plan.max_heads,
                                       .max_head_dim = l->plan.max_head_dim, .experts = l->plan.experts,
                                       .store = l->store};
    const struct lode_cuda_opts device = {
        .tensor = fast,
        .max_rows = most_rows(t), .n_layers = t->kv.n_heads ? 1 : 0, .max_read = most_rows(t),
        .out_row = lode_plan_row_size(&l->plan, l->plan.result), .n_cuts = l->plan.n_cuts,
        .n_ropes = t->n_pairs ? 1 : 0, .experts = l->plan.experts};
    if (bring_rows)
        begin_beside(l, t, beside, &host, bring_rows);
    host.aside = l->aside;
    must(c ? lode_cuda_create(&l->backends[place], c, &device, &err)
           : lode_cpu_create(&l->backends[place], &host, &err), &err);
    l->backends[place]->place = place;
    l->memory[LODE_HOST] = &lode_host_memory;
    l->memory[place] = l->backends[place]->memory;
    must(lode_exec_create(&l->exec, &l->plan, NULL, l->backends, l->store, most_rows(t), most_rows(t), &err), &err);
    for (int i = 0; i < SEQS; i++) {
        struct lode_kv_layer kv = t->kv;
        struct lode_state_layer state = t->state;
        kv.place = state.place = place;
        if (kv.n_heads)
            must(lode_kv_create(&l->kv[i], &kv, 1, CTX + t->before + (t->many_rows ? MANY_CTX : 0), most_rows(t), l->memory, &err), &err);
        if (state.width || state.n_heads)
            must(lode_state_create(&l->state[i], &state, 1, l->memory, &err), &err);
        if (l->state[i])
            lode_state_rewind(l->state[i], 0);
    }
}

static void end_life(struct life *l) {
    for (int i = 0; i < SEQS; i++) {
        lode_kv_free(l->kv[i]);
        lode_state_free(l->state[i]);
    }
    lode_exec_free(l->exec);
    for (int p = 0; p < LODE_PLACES; p++)
        if (l->backends[p])
            l->backends[p]->ops->free(l->backends[p]);
    if (l->aside)
        l->aside->ops->free(l->aside);
    if (l->store)
        l->store->ops->free(l->store);
    lode_plan_deinit(&l->plan);
}

/* One step; its rows as the host can read them. */
static const char *run_step(struct life *l, const uint32_t n[SEQS], const uint32_t pos[SEQS], const int32_t *tokens,
                            const struct lode_rope *rope, size_t *stride) {
    struct lode_error err = {0};
    struct lode_segment segments[SEQS];
    uint32_t out[MANY_ROWS];
    struct lode_step step = {.segments = segments, .tokens = tokens, .out_rows = out};
    for (int i = 0; i < SEQS; i++) {
        if (n[i] == 0)
            continue;
        segments[step.n_segments++] = (struct lode_segment){.kv = l->kv[i], .state = l->state[i], .ropes = rope,
                                                            .first_row = step.n_rows, .n_rows = n[i], .pos = pos[i],
                                                            .second = n[i]};
        if (l->kv[i])
            must(lode_kv_extend(l->kv[i], pos[i], n[i], &err), &err);
        if (l->state[i])
            lode_state_begin(l->state[i], pos[i], n[i]);
        step.n_rows += n[i];
    }
    for (uint32_t i = 0; i < step.n_rows; i++)
        out[i] = i;
    step.n_out = step.n_rows;
    must(lode_exec_run(l->exec, &step, NULL, NULL, &err), &err);
    for (int i = 0; i < SEQS; i++)
        if (l->state[i] && n[i])
            lode_state_commit(l->state[i]);
    const char *rows = lode_exec_read(l->exec, step.n_rows, stride, &err);
    must(rows ? 0 : -1, &err);
    return rows;
}

static bool same(float a, float b) {
    return lode_f32_bits(a) == lode_f32_bits(b) || (a != a && b != b);
}

static int by_key(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The largest numbers of each row, where a backend gives them, are those of a sorted row. */
static bool compare_best(const struct life *now, const char *rows, size_t stride, uint32_t n, uint32_t width,
                         uint32_t k, const char *name) {
    struct lode_error err = {0};
    if (!lode_exec_gives_best(now->exec))
        return true;
    const struct lode_best *best = lode_exec_best(now->exec, n, k, &err);
    must(best ? 0 : -1, &err);
    uint64_t *keys = must_have(malloc(width * sizeof *keys));
    bool held = true;
    for (uint32_t r = 0; r < n && held; r++) {
        const float *row = (const float *)(const void *)(rows + r * stride);
        uint32_t there = 0;
        for (uint32_t i = 0; i < width; i++)
            if (row[i] > -INFINITY)
                keys[there++] = lode_key_of(row[i] < FLT_MAX ? row[i] : FLT_MAX, (int32_t)i);
        qsort(keys, there, sizeof *keys, by_key);
        for (uint32_t i = 0; i < k && held; i++) {
            const struct lode_best *b = &best[(size_t)r * k + i];
            const int32_t id = i < there ? (int32_t)(uint32_t)keys[i] : -1;
            held = b->id == id && (id < 0 || b->logit == (row[id] < FLT_MAX ? row[id] : FLT_MAX));
            if (!held)
                fprintf(stderr, "FAIL %s: the %u largest of row %u: number %u is %.9g at %d, not %d\n", name, k, r, i,
                        (double)b->logit, b->id, id);
        }
    }
    free(keys);
    return held;
}

enum { ALL_ROWS = 272 + 937, MOST_PAIRS = 256 };
struct all_rows { /* of all steps; owned */
    float *v;     /* (n, width) */
    uint32_t n;
};

static void keep_row(struct all_rows *all, const char *row, uint32_t width) {
    if (all->n == ALL_ROWS)
        exit(2);
    memcpy(all->v + (size_t)all->n++ * width, row, width * sizeof *all->v);
}

static struct lode_rope rope_of(const struct oc *t, double freq[MOST_PAIRS]) {
    for (uint32_t i = 0; i < t->n_pairs; i++)
        freq[i] = 1 / (1.0 + 3.0 * i * i);
    return (struct lode_rope){freq, t->n_pairs, 1.1};
}

/* What the first sequence has before the steps; nobody looks at what comes. */
static void run_before(struct life *l, const struct oc *t, const struct lode_rope *rope, uint32_t pos[SEQS]) {
    enum { ROWS = 130 };
    int32_t tokens[ROWS];
    for (uint32_t left = t->before; left > 0;) {
        const uint32_t n[SEQS] = {left < ROWS ? left : ROWS};
        size_t stride;
        for (uint32_t i = 0; i < n[0]; i++)
            tokens[i] = (int32_t)((pos[0] + i) * 7 % TABLE);
        run_step(l, n, pos, tokens, rope, &stride);
        pos[0] += n[0], left -= n[0];
    }
}

/* All steps; `alone`: each row in a step of its own. */
static void run_all(struct life *l, const struct oc *t, const int32_t tokens[ALL_ROWS], bool alone,
                    struct all_rows *all) {
    const uint32_t width = l->plan.values[l->plan.result].width;
    double freq[MOST_PAIRS];
    const struct lode_rope rope = rope_of(t, freq);
    uint32_t pos[SEQS] = {0}, done = 0;
    *all = (struct all_rows){.v = must_have(malloc(sizeof(float) * ALL_ROWS * width))};
    run_before(l, t, &rope, pos);
    for (size_t k = 0; k < n_steps(t); k++)
        for (uint32_t left[SEQS] = {steps[k][0], steps[k][1]}; left[0] + left[1] > 0;) {
            const uint32_t n[SEQS] = {alone ? left[0] > 0 : left[0], alone ? left[0] == 0 : left[1]};
            size_t stride;
            const char *rows = run_step(l, n, pos, tokens + done, &rope, &stride);
            for (uint32_t r = 0; r < n[0] + n[1]; r++)
                keep_row(all, rows + r * stride, width);
            done += n[0] + n[1];
            for (int i = 0; i < SEQS; i++)
                pos[i] += n[i], left[i] -= n[i];
        }
}

/* All steps; false, and the first difference from what the scalar CPU has said. */
static bool compare(struct life *now, const struct oc *t, const int32_t tokens[ALL_ROWS], const struct all_rows *truth,
                    const char *name) {
    const uint32_t width = now->plan.values[now->plan.result].width;
    double freq[MOST_PAIRS];
    const struct lode_rope rope = rope_of(t, freq);
    uint32_t pos[SEQS] = {0};
    const float *want = truth->v;
    size_t odd = 0, all = 0;
    run_before(now, t, &rope, pos);
    for (size_t k = 0; k < n_steps(t); k++) {
        size_t stride;
        const uint32_t rows = steps[k][0] + steps[k][1];
        const char *got = run_step(now, steps[k], pos, tokens, &rope, &stride);
        for (uint32_t r = 0; r < rows; r++)
            for (uint32_t i = 0; i < width; i++) {
                const float x = want[(size_t)r * width + i];
                float y;
                memcpy(&y, got + r * stride + i * sizeof y, sizeof y);
                odd += x != x;
                all++;
                if (same(x, y))
                    continue;
                fprintf(stderr, "FAIL %s: step %zu (%u and %u rows), row %u, number %u of %u: %.9g, the scalar CPU has "
                                "%.9g\n", name, k, steps[k][0], steps[k][1], r, i, width, (double)y, (double)x);
                return false;
            }
        if (!compare_best(now, (const char *)want, width * sizeof *want, rows, width,
                          1 + (uint32_t)(k * 97 % LODE_BEST_MAX), name))
            return false;
        for (int i = 0; i < SEQS; i++)
            pos[i] += steps[k][i];
        tokens += rows;
        want += (size_t)rows * width;
    }
    if (2 * odd > all) { /* then nothing was compared to speak of */
        fprintf(stderr, "FAIL %s: %zu of %zu numbers are NaN\n", name, odd, all);
        return false;
    }
    return true;
}

/* What sequences carry from step to step when all have run, and the checkpoints that steps have left on the way. */
static bool compare_states(const struct life *now, const struct life *truth, const struct oc *t, const char *name) {
    const size_t n = lode_state_block(&t->state, 1) / sizeof(float);
    float *want = must_have(malloc(n * sizeof *want + 1)), *got = must_have(malloc(n * sizeof *got + 1));
    bool held = true;
    for (int i = 0; i < SEQS && truth->state[i]; i++) {
        const struct lode_state *a = truth->state[i], *b = now->state[i];
        uint32_t at = UINT32_MAX; /* the state itself; then where a checkpoint is, the newest first */
        do {
            held = held && (at == UINT32_MAX ? lode_state_save(a, want) && lode_state_save(b, got)
                                             : lode_state_checkpoint(a, at, want) && lode_state_checkpoint(b, at, got));
            for (size_t k = 0; held && k < n; k++) {
                held = same(got[k], want[k]);
                if (!held)
                    fprintf(stderr, "FAIL %s: number %zu of sequence %d's state %s (%u): %.9g, the scalar CPU has %.9g\n", name, k, i,
                            at == UINT32_MAX ? "at the end" : "where a checkpoint was left", at, (double)got[k], (double)want[k]);
            }
            at = lode_state_newest(a, at - 1);
        } while (at > 0);
    }
    free(want);
    free(got);
    return held;
}

/* ---- --numerics fast ---- */

/* ---- packed weights ---- */

/* Of types with groups: where a block's scale is, what it may be times for a group's, and where codes begin and end
 * where they meet minima; of others 1. */
struct groups {
    uint32_t d, most, codes, end;
};
static struct groups groups_of(enum lode_dtype type) {
    switch (type) {
    case LODE_Q2_K: return (struct groups){80, 16, 16, 80};
    case LODE_Q3_K: return (struct groups){108, 32, 0, 0};
    case LODE_Q4_K: return (struct groups){0, 64, 16, 144};
    case LODE_Q5_K: return (struct groups){0, 64, 16, 176};
    case LODE_Q6_K: return (struct groups){208, 128, 0, 0};
    case LODE_IQ4_XS: return (struct groups){0, 32, 0, 0};
    default: return (struct groups){0, 1, 0, 0};
    }
}
static float block_scale(enum lode_dtype type, const char *block) {
    const struct groups g = groups_of(type);
    uint16_t half;
    memcpy(&half, block + g.d, 2);
    return type == LODE_MXFP4 ? ldexpf(1, (int)(uint8_t)block[0] - 128) : fabsf(lode_f16_f32(half)) * (float)g.most;
}

/* n blocks as floats of which 2^-11 is what cuda/kernels/products/fast_items.cuh lets a weight err by, and as much of each for
 * that of x: 3 |w| + 2 |b| for what is rounded (|a q| <= |w| + |b|), 2^-2 of the largest that a may be in a slice
 * of 256 for what is subnormal. */
static void widen_errors(enum lode_dtype type, const char *data, size_t n, float *out) {
    const size_t numbers = lode_dtypes[type].block, bytes = lode_dtypes[type].bytes, slice = 256 / numbers;
    const struct groups g = groups_of(type);
    struct lode_kern kern;
    float w[256], b[256];
    char block[256];
    lode_kern_table(&kern, LODE_ISA_scalar);
    for (size_t i = 0; i < n; i++, out += numbers) {
        float most = 0;
        for (size_t k = i / slice * slice; k < n && k < (i / slice + 1) * slice; k++)
            most = fmaxf(most, block_scale(type, data + k * bytes));
        memcpy(block, data + i * bytes, bytes);
        kern.dequant[type](w, block, numbers);
        memset(block + g.codes, 0, g.end - g.codes);
        kern.dequant[type](b, block, numbers);
        for (size_t k = 0; k < numbers; k++)
            out[k] = 3 * fabsf(w[k]) + (g.end ? 2 * fabsf(b[k]) : 0) + 0x1p-2f * most;
    }
}

static bool is_packed(enum lode_dtype type) {
    return lode_dtype_is_rounded(lode_dtypes[type].act);
}

/* Weights and inputs without their signs: a product's result is then the sum of its magnitudes; packed weights as
 * the bounds of their errors. */
static void take_signs(struct oc_weights *w) {
    for (uint32_t i = 0; i < w->n; i++) {
        struct lode_operand *op = &w->w[i].op;
        const size_t n = (size_t)op->rows * op->cols;
        if (!is_packed(op->type))
            continue;
        char *wide = must_have(aligned_alloc(64, (n * sizeof(float) + 127) & ~(size_t)63));
        widen_errors(op->type, w->data[i], n / lode_dtypes[op->type].block, (float *)(void *)wide);
        w->data[i] = w->wide[i] = wide;
        op->type = w->home[i].type = LODE_F32;
        w->home[i].size = w->w[i].size = n * sizeof(float);
    }
    for (uint32_t i = 0; i < w->n; i++) {
        const size_t each = w->home[i].type == LODE_F32 ? 4 : 2;
        for (size_t b = each - 1; b < w->home[i].size; b += each)
            w->data[i][b] &= 0x7f;
    }
}

/* What S, the sum of magnitudes, is multiplied by for an error's bound.  Rounding to BF16 errs by 2^-9 of a number
 * (on the CPU, where F16 weights are rounded too, twice), to F16 by 2^-12.  The tensor cores cut off 17 numbers at no
 * less than 23 bits below the largest, and their sum at 23, sixteen times a slice, where no partial sum is larger than
 * the slice's S: 16 * 18 * 2^-23.  The scalar CPU's lanes of K / 16 float32 sums, slices' and the joins of both:
 * (K / 16 + K / 256 + 5) 2^-24.  For K up to 8960 these are less than 2^-14 each.  Of packed weights S has three
 * times the magnitudes and more: widen_errors. */
static double share_of_sum(enum lode_dtype type, bool on_device) {
    if (is_packed(type))
        return 0x1p-11 + 0x1p-14;
    return (type == LODE_BF16 ? 0x1p-9 : on_device ? 0x1p-12 : 0x1p-8) + 2 * 0x1p-14;
}

/* ---- attention ---- */

/* The largest norm of a head's vector among n rows of `heads` of them; with `most`: of their magnitudes one by one. */
static double largest_norm(const struct oc_weights *w, uint32_t id, uint32_t row, uint32_t n, uint32_t head, uint32_t dim,
                           double *most) {
    const uint32_t width = w->w[id].op.cols;
    const float *x = (const float *)(const void *)w->data[id] + (size_t)row * width + (size_t)head * dim;
    double largest = 0;
    for (uint32_t r = 0; r < n; r++, x += width) {
        double squares = 0;
        for (uint32_t i = 0; i < dim; i++) {
            squares += (double)x[i] * (double)x[i];
            if (most && fabs((double)x[i]) > *most)
                *most = fabs((double)x[i]);
        }
        largest = fmax(largest, sqrt(squares));
    }
    return largest;
}

/* How far a number of attention may be from the scalar CPU's (cuda/kernels/attention/attention_fast.cuh): share of the weighed
 * sum of the values' magnitudes, and rest.
 *
 * A score errs by D: by S = scale |q| |k|, which is no less than the sum of its products' magnitudes, times
 * - 2^-11 (halves) or 2^-8 (BF16) for the query's rounding (and 2^-39 of its largest number for what gets subnormal);
 * - 2^-14 for what the tensor cores cut off in each sixteen steps, 16 * 18 * 2^-23 as in share_of_sum, with the
 *   scalar CPU's lanes, (16 + 5) 2^-24;
 * - 2^-20 for roundings of a score and of its distance from the maximum, 2^-24 of 2 S each, six in both;
 * and by 2^-21 for both exponentials (the hardware's is within 2^-22), 2^-21 of the cap for both tanh.  A tanh makes no
 * error larger.  A weight then errs by a factor exp(D) and so does their sum (with the sink's), the quotient by exp(2 D).
 * Weights are rounded by 2^-11 or 2^-8; their sums, the tensor cores' (4 * 18 * 2^-23) and the merging of pages err by
 * less than 2^-15 together for each page of a chain, whose sums are what the next page's are added to.  Halves below 2^-14 are rounded by
 * 2^-25: of a page 64 of them times the largest value, 2^-19.
 *
 * Keys and values in Q8_0 are rounded to halves, each by 2^-11 of itself or 2^-25; as they are kept they are up to d / 2, 2^-7.98 of their
 * block's largest, from what is looked at here, so that a key's norm may be 1 + 32^(1/2) 2^-7.98 of it. */
struct distance {
    double share, rest;
};
static struct distance distance_of_attention(const struct oc *t, int32_t token, uint32_t head) {
    const struct oc_weights *w = t->weights;
    const struct oc_attention *a = &t->attention;
    const uint32_t dim = t->kv.head_dim, kv_head = head / (a->n_heads / t->kv.n_heads);
    const double half = t->kv.type_k == LODE_BF16 ? 0x1p-8 : 0x1p-11, turned = t->n_pairs ? 1.1 * 1.001 : 1.001;
    double value = 0, q = largest_norm(w, 0, (uint32_t)token, 1, head, dim, NULL),
           k = largest_norm(w, 1, 0, TABLE, kv_head, dim, NULL);
    if (a->normed) {
        double most[2] = {0, 0};
        for (uint32_t i = 0; i < 2; i++)
            largest_norm(w, 3 + i, 0, 1, 0, dim, &most[i]);
        q = sqrt(dim) * most[0], k = sqrt(dim) * most[1];
    }
    largest_norm(w, t->kv.v_in_k ? 1 : 2, 0, TABLE, kv_head, t->kv.v_in_k ? dim : t->kv.head_dim_v, &value);
    const bool packed = t->kv.type_k == LODE_Q8_0;
    const double kept = packed ? 0x1p-11 : 0, least = packed ? 0x1p-25 : 0;
    const double s = (double)a->scale * q * (packed ? 1.023 * k : k) * turned * turned;
    const double sixteens = dim > 256 ? dim / 256.0 : 1; /* of steps */
    const double d = s * (half + kept + sixteens * 0x1p-14 + 0x1p-20) + (double)a->scale * q * turned * sqrt(dim) * least + 0x1p-21 * (1 + (double)a->cap);
    const double pages = 1 + (t->before + CTX) / 64 / 64; /* of a chain, at most (attention_fast.cuh) */
    const double share = exp(2 * d) * (1 + half + kept + pages * 0x1p-15) - 1, rest = pages * 0x1p-19 * value + least;
    /* values that are keys cannot be made magnitudes by themselves: their weighed sum is no more than the largest */
    return t->kv.v_in_k ? (struct distance){0, share * value + rest} : (struct distance){share, rest};
}

static void take_signs_of(struct oc_weights *w, uint32_t id) {
    for (size_t b = sizeof(float) - 1; b < w->home[id].size; b += sizeof(float))
        w->data[id][b] &= 0x7f;
}

/* ---- both ---- */

/* Whether all rows are as far from the scalar CPU's as they may be, at most. */
static bool is_near(const struct oc_case *k, struct oc *t, struct lode_cuda *c, const int32_t tokens[ALL_ROWS],
                    const struct all_rows *b, uint32_t width, const char *name) {
    struct life exact = {0}, most = {0};
    struct all_rows e = {0}, s = {0};
    const bool deep = k->bound == OC_ATTENTION_DEEP, attends = deep || k->bound == OC_ATTENTION;
    const enum lode_isa isa = deep ? lode_isa_best() : LODE_ISA_scalar; /* of many keys scalar takes a minute, for the same bits */
    const enum numbers numbers = !attends && is_packed(t->type) ? WIDENED : EXACT;
    struct distance far = {attends ? 0 : share_of_sum(t->type, c != NULL), 0};
    bool held = true;
    begin_life(&exact, t, NULL, isa, 1, numbers, 0);
    run_all(&exact, t, tokens, false, &e);
    end_life(&exact);
    if (attends && !t->kv.v_in_k)
        take_signs_of(t->weights, 2);
    else if (!attends)
        take_signs(t->weights);
    begin_life(&most, t, NULL, isa, 1, numbers, 0);
    run_all(&most, t, tokens, false, &s);
    end_life(&most);
    for (size_t i = 0; held && i < (size_t)b->n * width; i++) {
        if (attends && i % t->kv.head_dim_v == 0)
            far = distance_of_attention(t, tokens[i / width], (uint32_t)(i % width) / t->kv.head_dim_v);
        const double may = far.share * (double)s.v[i] + far.rest;
        held = fabs((double)b->v[i] - (double)e.v[i]) <= may;
        if (!held)
            fprintf(stderr, "FAIL %s, fast: row %zu, number %zu of %u: %.9g, the scalar CPU has %.9g; they may be "
                            "%.3g apart\n", name, i / width, i % width, width, (double)b->v[i], (double)e.v[i], may);
    }
    free(e.v);
    free(s.v);
    return held;
}

static bool compare_fast(const struct oc_case *k, struct oc *t, struct lode_cuda *c, const char *name) {
    static int32_t tokens[ALL_ROWS];
    struct life alone = {0}, now = {0};
    struct all_rows a = {0}, b = {0};
    bool held = true;
    for (int i = 0; i < ALL_ROWS; i++)
        tokens[i] = (int32_t)kc_below(t->kc, TABLE);
    begin_life(&alone, t, c, lode_isa_best(), 2, FAST, 0);
    begin_life(&now, t, c, lode_isa_best(), 2, FAST, 0);
    run_all(&alone, t, tokens, true, &a);
    run_all(&now, t, tokens, false, &b);
    const uint32_t width = now.plan.values[now.plan.result].width;
    end_life(&alone);
    end_life(&now);
    for (size_t i = 0; held && i < (size_t)b.n * width; i++) {
        held = same(a.v[i], b.v[i]);
        if (!held)
            fprintf(stderr, "FAIL %s, fast: row %zu, number %zu of %u: %.9g among others, %.9g alone\n", name, i / width,
                    i % width, width, (double)b.v[i], (double)a.v[i]);
    }
    if (k->bound != OC_NO_BOUND && k->bound != OC_SAME && held)
        held = is_near(k, t, c, tokens, &b, width, name);
    free(a.v);
    free(b.v);
    return held;
}

/* All steps, as `how` has products; nobody looks at what comes.  Whether there are experts. */
static bool launch_all(const struct oc *t, struct lode_cuda *c, enum numbers how, uint32_t bring_rows) {
    static const int32_t tokens[ALL_ROWS];
    struct lode_error err = {0};
    struct all_rows rows;
    struct life now = {0};
    begin_life(&now, t, c, lode_isa_best(), 2, how, bring_rows);
    run_all(&now, t, tokens, false, &rows);
    if (lode_exec_gives_best(now.exec))
        must(lode_exec_best(now.exec, 1, LODE_BEST_MAX, &err) ? 0 : -1, &err);
    const bool has_experts = now.plan.experts.n > 0;
    free(rows.v);
    end_life(&now);
    return has_experts;
}

int oc_run(const struct oc_case *k, enum lode_dtype type, int variant, const struct oc_opts *o, char skip[256]) {
    struct lode_cuda *const c = o->c;
    static struct kc_state state;
    static struct oc_weights weights;
    static struct lode_graph g;
    struct kc kc = {.state = &state};
    struct oc t = {.g = &g, .type = type, .variant = variant, .kc = &kc, .weights = &weights};
    struct life truth = {0}, now = {0};
    struct lode_error err = {0};
    int result = 1, n_beside = 0;
    memset(&weights, 0, sizeof weights);
    memset(&g, 0, sizeof g);
    weights.source = (struct lode_source){.ops = &source_ops, .path = "opcheck", .arch = "", .notes = ""};
    if (k->variants)
        snprintf(case_name, sizeof case_name, "%s %d", k->name, variant);
    else
        snprintf(case_name, sizeof case_name, "%s %s", k->name, lode_dtypes[type].name);
    state.rng = o->seed * 0x9e3779b97f4a7c15u + 1;
    for (const char *p = case_name; *p; p++)
        state.rng = (state.rng ^ (uint64_t)(unsigned char)*p) * 0x100000001b3u;
    g.result = k->build(&t);
    must(lode_graph_error(&g, &err), &err);
    for (uint32_t i = 0; c && result == 1 && i < g.n_nodes; i++)
        if (lode_cuda_check(c, g.nodes[i], false, &err) < 0) {
            snprintf(skip, 256, "%s: %.180s", case_name, err.text);
            result = -1;
        }
    if (result == 1) {
        static uint16_t uses[MAX_WEIGHTS];
        for (uint32_t i = 0; i < MAX_WEIGHTS; i++)
            uses[i] = 2;
        if (c)
            must(lode_cuda_load(c, &weights.source, weights.w, weights.n, uses, 2, NULL, NULL, &err), &err);
        if (o->launches) {
            if (launch_all(&t, c, o->fast ? FAST : EXACT, 0) && !o->fast) {
                launch_all(&t, c, EXACT, 3);
                launch_all(&t, c, EXACT, 16);
            }
            if (c)
                lode_cuda_forget_experts(c);
        } else if (o->fast) {
            result = compare_fast(k, &t, c, case_name);
        } else {
            int32_t tokens[ALL_ROWS];
            struct all_rows rows = {0};
            for (int i = 0; i < ALL_ROWS; i++)
                tokens[i] = (int32_t)kc_below(&kc, TABLE);
            begin_life(&truth, &t, NULL, LODE_ISA_scalar, 1, EXACT, 0);
            run_all(&truth, &t, tokens, false, &rows);
            begin_life(&now, &t, c, lode_isa_best(), 2, EXACT, 0);
            result = compare(&now, &t, tokens, &rows, case_name) && compare_states(&now, &truth, &t, case_name);
            n_beside = truth.plan.experts.n ? 2 : 0; /* nothing depends on what was before */
            end_life(&now);
            for (int i = 0; i < n_beside && result == 1; i++) {
                now = (struct life){0};
                begin_life(&now, &t, c, lode_isa_best(), 2, EXACT, i ? 16 : 3);
                result = compare(&now, &t, tokens, &rows, case_name);
                end_life(&now);
            }
            free(rows.v);
            end_life(&truth);
            if (c)
                lode_cuda_forget_experts(c);
        }
    }
    lode_graph_free(&g);
    for (uint32_t i = 0; i < weights.n; i++) {
        free(weights.own[i]);
        free(weights.wide[i]);
    }
    free(weights.order);
    return result;
}
