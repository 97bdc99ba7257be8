/* attention.c - softmax attention over the pages of the KV cache.
 *
 * Definition, for one query row and head at position p that sees the positions from f on (window w:
 * f = max(0, p - w + 1); chunk c: f = p - p mod c) to its own (both ways: to the last of its
 * sequence, which the step holds as a whole): the pages that hold them are walked in ascending order.
 * A page
 * gives scores s = <q, k> scale (soft-capped), its maximum m', e = exp(s - m'), its sum l' and
 * o' = sum e v.  The first page sets (m, l, o); each later one is merged:
 *
 *     M = max(m, m');  a = exp(m - M);  b = exp(m' - M)
 *     l = fma(l', b, l a);  o = fma(o', b, o a);  m = M
 *
 * A head's sink s joins last, as a page of one score whose value is 0: m' = s, l' = 1, o' = 0 in
 * the lines above (the product with o' left out).  The result is o (1 / l).  K and V are read as the cache stores them, for the row's own
 * position too, so prefill equals decode.
 */
#include "backend/cpu/cpu.h"

#include "kern/expf.h"

#include <math.h>

struct job {
    struct lode_cpu *cpu;
    const struct lode_instr *in;
    const struct lode_step *step;
    uint32_t tokens; /* query tokens of one task */
};

struct scratch {        /* one query row after the other: LODE_ATT_ROWS rows */
    float *q;           /* (rows, head_dim) */
    float *s;           /* (rows, LODE_KV_PAGE) */
    float *part, *sum;  /* (rows, head_dim_v): o' and o */
    float *max, *total; /* (rows): m and l */
};

static size_t rows_for(uint32_t max_heads) {
    return LODE_ATT_ROWS > max_heads ? LODE_ATT_ROWS : max_heads;
}

size_t lode_cpu_attention_scratch(uint32_t max_heads, uint32_t max_head_dim) {
    return rows_for(max_heads) * (LODE_KV_PAGE + 3 * ((max_head_dim + 15) & ~15u) + 2 + 32);
}

static struct scratch carve(char *memory, size_t rows, uint32_t head_dim, uint32_t head_dim_v) {
    struct scratch s;
    const size_t q = (head_dim + 15) & ~15u, v = (head_dim_v + 15) & ~15u;
    s.s = (float *)memory;
    s.q = s.s + rows * LODE_KV_PAGE;
    s.part = s.q + rows * q;
    s.sum = s.part + rows * v;
    s.max = s.sum + rows * v;
    s.total = s.max + rows;
    return s;
}

static void merge(const struct lode_kern *k, struct scratch *t, size_t r, float max, float total,
                  bool first, size_t dim) {
    float *o = t->sum + r * dim;
    const float *part = t->part + r * dim;
    if (first) {
        memcpy(o, part, dim * sizeof *o);
        t->max[r] = max;
        t->total[r] = total;
        return;
    }
    const float top = t->max[r] > max ? t->max[r] : max;
    const float a = lode_expf(t->max[r] - top), b = lode_expf(max - top);
    t->total[r] = fmaf(total, b, t->total[r] * a);
    t->max[r] = top;
    if (a != 1.0f) /* times one changes nothing */
        k->scale(o, o, a, dim);
    k->axpy(o, part, b, dim);
}

/* A sink changes l, and o by a factor, which is the result. */
static float join_sink(struct scratch *t, size_t r, float sink) {
    const float top = t->max[r] > sink ? t->max[r] : sink;
    const float a = lode_expf(t->max[r] - top), b = lode_expf(sink - top);
    t->total[r] = fmaf(1.0f, b, t->total[r] * a);
    return a;
}

static uint32_t first_seen(const union lode_op_params *a, uint32_t p) {
    const uint32_t window = a->attention.window, chunk = a->attention.chunk;
    const uint32_t from = window && p >= window ? p - window + 1 : 0;
    const uint32_t start = chunk ? p - p % chunk : 0;
    return from > start ? from : start;
}

static void attend(const struct job *j, const struct lode_segment *seg, uint32_t head,
                   uint32_t first, uint32_t n, char *memory) {
    const struct lode_kern *k = &j->cpu->kern;
    const struct lode_instr *in = j->in;
    const uint32_t group = in->p.attention.n_heads / in->p.attention.n_kv_heads;
    const uint32_t dim = in->p.attention.head_dim, dim_v = in->p.attention.head_dim_v;
    const size_t rows = (size_t)n * group;
    struct scratch t = carve(memory, rows, dim, dim_v);
    const struct lode_kv_layer *layer = lode_kv_layer(seg->kv, in->p.attention.layer);
    uint32_t lo[256], hi[256];

    for (uint32_t i = 0; i < n; i++)
        memcpy(t.q + (size_t)i * group * dim,
               in->in[0].data + (seg->first_row + first + i) * in->in[0].stride +
                   (size_t)head * group * dim * sizeof(float),
               (size_t)group * dim * sizeof(float));

    const uint32_t pos = seg->pos + first;
    const bool both_ways = in->p.attention.both_ways;
    const uint32_t last = both_ways ? seg->pos + seg->n_rows - 1 : pos + n - 1;
    const uint32_t oldest = first_seen(&in->p, pos);
    for (uint32_t page = oldest / LODE_KV_PAGE; page <= last / LODE_KV_PAGE; page++) {
        const uint32_t start = page * LODE_KV_PAGE;
        const uint32_t n_k = last - start < LODE_KV_PAGE ? last - start + 1 : LODE_KV_PAGE;
        size_t k_stride, v_stride;
        const void *keys = lode_kv_k(seg->kv, in->p.attention.layer, head, page, &k_stride);
        const void *values = lode_kv_v(seg->kv, in->p.attention.layer, head, page, &v_stride);
        k->kv_score[layer->type_k](t.s, LODE_KV_PAGE, t.q, dim, rows, keys, k_stride, n_k, dim);
        float max[256], total[256];
        for (size_t r = 0; r < rows; r++) {
            const uint32_t p = pos + (uint32_t)r / group, from = first_seen(&in->p, p);
            lo[r] = from > start ? from - start : 0;
            hi[r] = both_ways ? n_k : p < start ? 0 : p - start < n_k ? p - start + 1 : n_k;
            if (lo[r] >= hi[r])
                lo[r] = hi[r] = 0;
            else
                k->softmax_part(t.s + r * LODE_KV_PAGE + lo[r], hi[r] - lo[r],
                                in->p.attention.scale, in->p.attention.cap, &max[r], &total[r]);
        }
        k->kv_mix[layer->type_v](t.part, dim_v, t.s, LODE_KV_PAGE, lo, hi, rows, values, v_stride,
                                 dim_v);
        for (size_t r = 0; r < rows; r++) {
            const uint32_t from = first_seen(&in->p, pos + (uint32_t)r / group);
            if (lo[r] < hi[r])
                merge(k, &t, r, max[r], total[r], page == from / LODE_KV_PAGE, dim_v);
        }
    }
    const struct lode_value *out = &in->parts[0].out;
    const float *sinks = in->parts[0].w_data;
    for (size_t r = 0; r < rows; r++) {
        float *o = t.sum + r * dim_v;
        const float a = sinks ? join_sink(&t, r, sinks[head * group + r % group]) : 1.0f;
        if (a != 1.0f)
            k->scale(o, o, a, dim_v);
        float *y = (float *)(out->data + (seg->first_row + first + r / group) * out->stride) +
                   ((size_t)head * group + r % group) * dim_v;
        k->scale(y, o, 1.0f / t.total[r], dim_v);
    }
}

static void run_task(void *arg, uint32_t task, uint32_t worker) {
    const struct job *j = arg;
    const uint32_t heads = j->in->p.attention.n_kv_heads;
    const struct lode_segment *seg = j->step->segments;
    uint32_t tasks;
    while (task >= (tasks = heads * ((seg->n_rows + j->tokens - 1) / j->tokens))) {
        task -= tasks;
        seg++;
    }
    /* The last tokens of a prompt see most: they are taken first. */
    const uint32_t blocks = tasks / heads, block = blocks - 1 - task / heads;
    const uint32_t first = block * j->tokens;
    const uint32_t n = seg->n_rows - first < j->tokens ? seg->n_rows - first : j->tokens;
    attend(j, seg, task % heads, first, n, lode_cpu_scratch(j->cpu, worker));
}

static size_t count_tasks(const struct job *j) {
    size_t n = 0;
    for (uint32_t i = 0; i < j->step->n_segments; i++)
        n += (size_t)j->in->p.attention.n_kv_heads *
             ((j->step->segments[i].n_rows + j->tokens - 1) / j->tokens);
    return n;
}

void lode_cpu_attention(struct lode_backend *b, const struct lode_instr *in,
                        const struct lode_step *step) {
    struct lode_cpu *c = lode_cpu(b);
    const uint32_t group = in->p.attention.n_heads / in->p.attention.n_kv_heads;
    struct job j = {c, in, step, group >= LODE_ATT_ROWS ? 1 : LODE_ATT_ROWS / group};
    /* what is cached is widened once for a task, so few large ones, but enough for all threads */
    while (j.tokens > 1 && count_tasks(&j) < 4 * (size_t)c->threads)
        j.tokens = (j.tokens + 1) / 2;
    size_t seen = 0;
    for (uint32_t i = 0; i < step->n_segments; i++)
        seen += (size_t)step->segments[i].n_rows * (step->segments[i].pos + 1);
    lode_cpu_for(c, run_task, &j, count_tasks(&j), seen * in->parts[0].out.width);
}
