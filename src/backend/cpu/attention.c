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

struct scratch {           /* of a task: n_q query rows, made a multiple of 16 by rows of zeros */
    float *q;              /* (n_q, head_dim) */
    float *s;              /* (n_q, LODE_KV_PAGE), or (LODE_KV_PAGE, n) of n queries side by side */
    float *part, *sum;     /* (n_q, head_dim_v): o' and o */
    float *max, *total;    /* (n_q): m and l */
    float *a, *b;          /* (n_q) */
    float *turned;         /* q, SIDE_BY_SIDE rows at a time: (16, head_dim / 16, n) each */
    float *keys, *values;  /* (LODE_KV_PAGE, head_dim), (LODE_KV_PAGE, head_dim_v) */
};

/* Query rows that meet a page together.  Side by side so few that they and their scores stay in the
 * nearest cache; row by row all that share a KV head, for which its page is read once. */
enum { SIDE_BY_SIDE = 32, ROW_BY_ROW = 128 };

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static size_t up_to_16(size_t n) { return (n + 15) & ~(size_t)15; }

size_t lode_cpu_attention_scratch(uint32_t max_heads, uint32_t max_head_dim) {
    const size_t dim = up_to_16(max_head_dim);
    const size_t n_q = up_to_16(LODE_ATT_ROWS > max_heads ? LODE_ATT_ROWS : max_heads);
    return n_q * (4 * dim + LODE_KV_PAGE + 4) + 2 * LODE_KV_PAGE * dim;
}

static struct scratch carve(char *memory, size_t n_q, uint32_t head_dim, uint32_t head_dim_v) {
    struct scratch s;
    const size_t q = up_to_16(head_dim), v = up_to_16(head_dim_v);
    s.s = (float *)memory;
    s.turned = s.s + n_q * LODE_KV_PAGE;
    s.keys = s.turned + n_q * q;
    s.values = s.keys + LODE_KV_PAGE * q;
    s.q = s.values + LODE_KV_PAGE * v;
    s.part = s.q + n_q * q;
    s.sum = s.part + n_q * v;
    s.max = s.sum + n_q * v;
    s.total = s.max + n_q;
    s.a = s.total + n_q;
    s.b = s.a + n_q;
    return s;
}

/* One of the two that joining takes is of 0. */
static float exp_of(float d) { return d == 0 ? 1.0f : lode_expf(d); }

/* (m, l) of row r and (max, total): M and l, and what o and o' are multiplied by. */
static void join(struct scratch *t, size_t r, float max, float total, float *a, float *b) {
    const float top = t->max[r] > max ? t->max[r] : max;
    *a = exp_of(t->max[r] - top);
    *b = exp_of(max - top);
    t->total[r] = fmaf(total, *b, t->total[r] * *a);
    t->max[r] = top;
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
    float a, b;
    join(t, r, max, total, &a, &b);
    if (a != 1.0f) /* times one changes nothing */
        k->scale(o, o, a, dim);
    k->axpy(o, part, b, dim);
}

/* A sink changes l, and o by a factor, which is the result. */
static float join_sink(struct scratch *t, size_t r, float sink) {
    float a, b;
    join(t, r, sink, 1.0f, &a, &b);
    return a;
}

static uint32_t first_seen(const union lode_op_params *a, uint32_t p) {
    const uint32_t window = a->attention.window, chunk = a->attention.chunk;
    const uint32_t from = window && p >= window ? p - window + 1 : 0;
    const uint32_t start = chunk ? p - p % chunk : 0;
    return from > start ? from : start;
}

/* Query rows `from` and on, n of them, of a task whose tokens begin at position `pos`, `group` rows each. */
struct queries {
    uint32_t pos, group;
    size_t from, n;
};

static uint32_t position(const struct queries *q, size_t r) { return q->pos + (uint32_t)(r / q->group); }
static uint32_t first_position(const struct queries *q) { return position(q, q->from); }
static uint32_t last_position(const struct queries *q) { return position(q, q->from + q->n - 1); }

/* A page as it lies in the cache, and what will be read after it, or NULL. */
struct page {
    uint32_t start, n_k;
    const char *keys, *values, *next_keys, *next_values;
    size_t k_stride, v_stride;
};

static struct page page_at(const struct lode_segment *seg, const struct lode_instr *in,
                           uint32_t head, uint32_t page, uint32_t last) {
    struct page p = {.start = page * LODE_KV_PAGE};
    const uint32_t layer = in->p.attention.layer;
    p.n_k = last - p.start < LODE_KV_PAGE ? last - p.start + 1 : LODE_KV_PAGE;
    p.keys = lode_kv_k(seg->kv, layer, head, page, &p.k_stride);
    p.values = lode_kv_v(seg->kv, layer, head, page, &p.v_stride);
    if (page < last / LODE_KV_PAGE) {
        size_t stride;
        p.next_keys = lode_kv_k(seg->kv, layer, head, page + 1, &stride);
        p.next_values = lode_kv_v(seg->kv, layer, head, page + 1, &stride);
    }
    return p;
}

/* Row by row: few queries, or such as do not all see the whole page. */
static void attend_rows(const struct job *j, struct scratch *t, const struct queries *q,
                        const struct lode_kv_layer *layer, const struct page *p) {
    const struct lode_kern *k = &j->cpu->kern;
    const struct lode_instr *in = j->in;
    const uint32_t dim = in->p.attention.head_dim, dim_v = in->p.attention.head_dim_v;
    const uint32_t last = last_position(q);
    const size_t n_k = in->p.attention.both_ways ? p->n_k : least(p->n_k, last - p->start + 1);
    float *s = t->s + q->from * LODE_KV_PAGE;
    uint32_t lo[ROW_BY_ROW], hi[ROW_BY_ROW];
    float max[ROW_BY_ROW], total[ROW_BY_ROW];

    k->kv_score[layer->type_k](s, LODE_KV_PAGE, t->q + q->from * dim, dim, q->n, p->keys, p->k_stride,
                               n_k, dim, p->values);
    for (size_t r = 0; r < q->n; r++) {
        const uint32_t pos = position(q, q->from + r), from = first_seen(&in->p, pos);
        lo[r] = from > p->start ? from - p->start : 0;
        hi[r] = in->p.attention.both_ways   ? p->n_k
                : pos < p->start            ? 0
                : pos - p->start < p->n_k ? pos - p->start + 1
                                            : p->n_k;
        if (lo[r] >= hi[r])
            lo[r] = hi[r] = 0;
        else
            k->softmax_part(s + r * LODE_KV_PAGE + lo[r], hi[r] - lo[r], in->p.attention.scale,
                            in->p.attention.cap, &max[r], &total[r]);
    }
    k->kv_mix[layer->type_v](t->part + q->from * dim_v, dim_v, s, LODE_KV_PAGE, lo, hi, q->n, p->values,
                             p->v_stride, dim_v, p->next_keys);
    for (size_t r = 0; r < q->n; r++) {
        const uint32_t from = first_seen(&in->p, position(q, q->from + r));
        if (lo[r] < hi[r])
            merge(k, t, q->from + r, max[r], total[r], p->start == from / LODE_KV_PAGE * LODE_KV_PAGE,
                  dim_v);
    }
}

static void widen(const struct lode_kern *k, float *y, enum lode_dtype type, const char *rows,
                  size_t stride, uint32_t n, uint32_t dim) {
    for (uint32_t i = 0; i < n; i++)
        k->dequant[type](y + (size_t)i * dim, rows + i * stride, dim);
}

/* Asks for n bytes, into the second level: the first is full of widened numbers. */
static void ask(const char *from, size_t n) {
    for (size_t i = 0; i < n; i += 64)
        __builtin_prefetch(from + i, 0, 2);
}

/* The scores of n queries from row `from` of n_q on with the first keys.  A few keys at a time, and with each their share of
 * the next page, which comes from memory meanwhile: all lines at once would wait for one another. */
static void score_page(const struct lode_kern *k, struct scratch *t, size_t from, size_t n, size_t n_q,
                       uint32_t dim, const struct page *p, size_t keys) {
    enum { KEYS = 12 }; /* a multiple of the kernels' tiles */
    for (size_t i = 0; i < keys; i += KEYS) {
        const size_t n_k = least(keys - i, KEYS);
        if (p->next_keys) {
            const size_t row = (from * p->n_k + n * i) / n_q;
            const size_t rows = (from * p->n_k + n * (i + n_k)) / n_q - row;
            ask(p->next_keys + row * p->k_stride, rows * p->k_stride);
            ask(p->next_values + row * p->v_stride, rows * p->v_stride);
        }
        k->att_score(t->s + i * n, t->turned + from * dim, n, t->keys + i * dim, n_k, dim);
    }
}

/* All queries see the page, which is widened, from its start on: side by side. */
static void attend_together(const struct job *j, struct scratch *t, const struct queries *q, size_t n_q,
                            bool first, const struct page *p) {
    const struct lode_kern *k = &j->cpu->kern;
    const struct lode_instr *in = j->in;
    const uint32_t dim = in->p.attention.head_dim, dim_v = in->p.attention.head_dim_v;
    const size_t i = q->from, n = up_to_16(q->n);
    const uint32_t last = last_position(q) - p->start;
    const bool some = !in->p.attention.both_ways && first_position(q) - p->start + 1 < p->n_k;
    const size_t n_k = some && last + 1 < p->n_k ? last + 1 : p->n_k;
    uint32_t seen[SIDE_BY_SIDE];
    for (size_t r = 0; some && r < n; r++)
        seen[r] = r < q->n ? (uint32_t)least(position(q, i + r) - p->start + 1, n_k) : (uint32_t)n_k;
    score_page(k, t, i, n, n_q, dim, p, n_k);
    k->att_weigh(t->s, n, n_k, some ? seen : NULL, in->p.attention.scale, in->p.attention.cap, first, t->max + i,
                 t->total + i, t->a + i, t->b + i);
    k->att_mix(t->sum + i * dim_v, t->s, n, t->values, n_k, some ? seen : NULL, dim_v, first, t->a + i, t->b + i);
}

/* Query rows by the page, SIDE_BY_SIDE of n_q at a time where there are `many`. */
static void attend_page(const struct job *j, struct scratch *t, const struct queries *all, bool many,
                        const struct lode_kv_layer *layer, const struct page *p) {
    const struct lode_kern *k = &j->cpu->kern;
    const struct lode_instr *in = j->in;
    const bool both_ways = in->p.attention.both_ways;
    struct queries q = *all;
    bool wide = false;
    for (; q.from < all->n; q.from += q.n) {
        q.n = least(all->n - q.from, many ? SIDE_BY_SIDE : ROW_BY_ROW);
        const uint32_t oldest = first_seen(&in->p, first_position(&q));
        const uint32_t newest = first_seen(&in->p, last_position(&q)), end = p->start + p->n_k - 1;
        if (oldest > end || (!both_ways && last_position(&q) < p->start))
            continue;
        /* from its start on; the last ones perhaps more of it than the first */
        const bool all_see = newest <= p->start && (both_ways || first_position(&q) >= p->start);
        /* who has not seen a page before is in the first page of all, or all see it first */
        const bool same_first = oldest / LODE_KV_PAGE == newest / LODE_KV_PAGE;
        if (!many || !all_see || (!same_first && p->start <= newest)) {
            attend_rows(j, t, &q, layer, p);
            continue;
        }
        if (!wide) {
            widen(k, t->keys, layer->type_k, p->keys, p->k_stride, p->n_k, in->p.attention.head_dim);
            widen(k, t->values, layer->type_v, p->values, p->v_stride, p->n_k, in->p.attention.head_dim_v);
            wide = true;
        }
        attend_together(j, t, &q, all->n, p->start / LODE_KV_PAGE == oldest / LODE_KV_PAGE, p);
    }
}

typedef float four __attribute__((vector_size(16)));

/* Four rows of four numbers to four columns of four. */
static void turn_four(float *y, size_t y_stride, const float *x, size_t x_stride) {
    four r[4];
    for (size_t i = 0; i < 4; i++)
        memcpy(&r[i], x + i * x_stride, sizeof r[i]);
    const four a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5), b = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
    const four c = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7), d = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
    const four to[4] = {__builtin_shufflevector(a, b, 0, 1, 4, 5), __builtin_shufflevector(a, b, 2, 3, 6, 7),
                        __builtin_shufflevector(c, d, 0, 1, 4, 5), __builtin_shufflevector(c, d, 2, 3, 6, 7)};
    for (size_t i = 0; i < 4; i++)
        memcpy(y + i * y_stride, &to[i], sizeof to[i]);
}

/* The queries side by side, as att_score reads them; rows up to a multiple of 16 are there. */
static void turn(struct scratch *t, size_t rows, uint32_t dim) {
    for (size_t i = 0, n; i < rows; i += n) {
        n = least(up_to_16(rows - i), SIDE_BY_SIDE);
        for (uint32_t c = 0; c < dim; c += 4) { /* four lanes, neighbours in a row */
            float *y = t->turned + i * dim + (c % 16 * (dim / 16) + c / 16) * n;
            for (size_t r = 0; r < n; r += 4)
                turn_four(y + r, dim / 16 * n, t->q + (i + r) * dim + c, dim);
        }
    }
}

static void attend(const struct job *j, const struct lode_segment *seg, uint32_t head,
                   uint32_t first, uint32_t n, char *memory) {
    enum { MANY_ROWS = 12 }; /* of which it pays to widen a page for all of them */
    const struct lode_kern *k = &j->cpu->kern;
    const struct lode_instr *in = j->in;
    const uint32_t group = in->p.attention.n_heads / in->p.attention.n_kv_heads;
    const uint32_t dim = in->p.attention.head_dim, dim_v = in->p.attention.head_dim_v;
    const struct queries q = {seg->pos + first, group, 0, (size_t)n * group};
    struct scratch t = carve(memory, up_to_16(q.n), dim, dim_v);
    const struct lode_kv_layer *layer = lode_kv_layer(seg->kv, in->p.attention.layer);

    for (uint32_t i = 0; i < n; i++)
        memcpy(t.q + (size_t)i * group * dim,
               in->in[0].data + (seg->first_row + first + i) * in->in[0].stride +
                   (size_t)head * group * dim * sizeof(float),
               (size_t)group * dim * sizeof(float));
    const bool many = q.n >= MANY_ROWS && dim % 16 == 0 && dim_v % 16 == 0;
    memset(t.q + q.n * dim, 0, (up_to_16(q.n) - q.n) * dim * sizeof *t.q);
    if (many)
        turn(&t, q.n, dim);

    const uint32_t last = in->p.attention.both_ways ? seg->pos + seg->n_rows - 1 : last_position(&q);
    for (uint32_t i = first_seen(&in->p, q.pos) / LODE_KV_PAGE; i <= last / LODE_KV_PAGE; i++) {
        const struct page p = page_at(seg, in, head, i, last);
        attend_page(j, &t, &q, many, layer, &p);
    }
    const struct lode_value *out = &in->parts[0].out;
    const float *sinks = in->parts[0].w_data;
    for (size_t r = 0; r < q.n; r++) {
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
