#include "backend/cpu/cpu.h"

#include "backend/copy_rows.h"
#include "base/alloc.h"
#include "base/machine.h"

static const struct lode_backend_ops ops;

/* Below this many numbers a fork and join costs more than it saves (about 2 us against 16 numbers
 * a nanosecond or so). */
enum { LODE_SHARE_WORK = 16384 };

void lode_cpu_for(struct lode_cpu *c, lode_pool_fn *fn, void *arg, size_t n, size_t work) {
    if (n > 1 && c->threads > 1 && work >= LODE_SHARE_WORK) {
        lode_pool_run(c->pool, fn, arg, (uint32_t)n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        fn(arg, (uint32_t)i, 0);
}

/* A device's part of a layer, and what a token's sampling takes. */
enum { TURN_NS = 400000 };

static size_t scratch_of(const struct lode_cpu_opts *o) {
    const size_t widen = (size_t)LODE_WIDEN_ROWS * ((o->max_cols + 15) & ~15u);
    const size_t att = lode_cpu_attention_scratch(o->max_heads, o->max_head_dim);
    const size_t route = 2 * (size_t)o->experts.n;
    const size_t most = widen > att ? widen : att;
    return ((most > route ? most : route) * sizeof(float) + 4095) & ~(size_t)4095;
}

/* Bytes from row to row of what fast products read: no power of two, so that neighbouring rows meet
 * in different sets of the cache. */
static size_t rounded_stride(const struct lode_cpu_opts *o) {
    return ((o->max_cols * sizeof(uint16_t) + 127) & ~(size_t)127) + 64;
}

static size_t rounded_rows(const struct lode_cpu_opts *o) {
    return ((size_t)o->max_rows + LODE_FAST_ROWS - 1) & ~(size_t)(LODE_FAST_ROWS - 1);
}

uint64_t lode_cpu_work_size(const struct lode_cpu_opts *o) {
    const uint64_t of_thread = scratch_of(o) + lode_isa_stack(o->isa);
    return of_thread * (o->threads ? o->threads : lode_machine_default_threads()) + lode_cpu_experts_size(o) +
           (o->fast ? rounded_rows(o) * rounded_stride(o) : 0);
}

void lode_cpu_round(const struct lode_cpu *c, void *y, const float *x, size_t n) {
    const size_t end = (n + LODE_FAST_STEP - 1) & ~(size_t)(LODE_FAST_STEP - 1);
    c->kern.kv_put_bf16(y, x, n);
    memset((uint16_t *)y + n, 0, (end - n) * sizeof(uint16_t));
}

int lode_cpu_create(struct lode_backend **out, const struct lode_cpu_opts *o,
                    struct lode_error *err) {
    *out = NULL;
    struct lode_cpu *c = LODE_NEW(struct lode_cpu);
    if (!c)
        return lode_fail_nomem(err, "CPU backend");
    c->base.ops = &ops;
    c->base.memory = &lode_host_memory;
    *out = &c->base;
    lode_kern_table(&c->kern, o->isa);
    c->threads = o->threads ? o->threads : lode_machine_default_threads();
    c->base.threads = c->threads;
    c->float_act = o->float_act;
    c->scratch_size = scratch_of(o);
    c->scratch = lode_alloc_aligned(4096, c->threads, c->scratch_size);
    c->store = o->store;
    c->aside = o->aside;
    if (o->experts.n)
        c->experts = lode_cpu_experts_create(o);
    c->fast = o->fast;
    c->rounded_stride = rounded_stride(o);
    if (o->fast)
        c->rounded = lode_alloc_aligned(4096, rounded_rows(o), c->rounded_stride);
    const bool enough =
        c->scratch && (c->experts || !o->experts.n) && (c->rounded || !o->fast);
    int rc = enough ? lode_pool_create(&c->pool, c->threads, true, err)
                    : lode_fail_nomem(err, "work memory of the CPU backend");
    if (rc == 0 && o->takes_turns)
        lode_pool_stay_awake(c->pool, TURN_NS);
    if (rc < 0) {
        ops.free(*out);
        *out = NULL;
    }
    return rc;
}

static const char *cpu_read(struct lode_backend *b, const struct lode_value *v, uint32_t n, size_t *stride,
                            struct lode_error *err) {
    (void)b;
    (void)n;
    (void)err;
    *stride = v->stride;
    return v->data;
}

static int cpu_copy(struct lode_backend *b, const struct lode_value *dst, struct lode_backend *from,
                    const struct lode_value *src, uint32_t first, uint32_t n,
                    struct lode_error *err) {
    struct lode_value rows = *src;
    struct lode_row_copy c = {.to = dst->data, .to_stride = dst->stride};
    lode_dtype_row_size(src->type, src->width, &c.bytes);
    rows.data += first * src->stride;
    c.from = from->ops->read(from, &rows, n, &c.from_stride, err);
    if (c.from)
        lode_cpu_for(lode_cpu(b), lode_copy_row, &c, n, n > LODE_COPY_ALONE ? n * c.bytes : 0);
    return c.from ? 0 : LODE_ERR_DEVICE;
}

/* Ranks whose memory is all the host's. */
static void cpu_all_gather(struct lode_backend *const *all, const struct lode_instr *const *instrs, uint32_t n_ranks,
                           const struct lode_step *step) {
    const uint32_t n_heads = instrs[0]->p.all_gather.n_heads;
    const size_t head = instrs[0]->in[0].width / n_heads * sizeof(float);
    const uint32_t n_rows = lode_value_rows(&instrs[0]->in[0], step);
    (void)all;
    for (uint32_t to = 0; to < n_ranks; to++)
        for (uint32_t from = 0; from < n_ranks; from++) {
            const struct lode_value *x = &instrs[from]->in[0], *y = &instrs[to]->parts[0].out;
            for (uint32_t r = 0; r < n_rows; r++)
                for (uint32_t h = 0; h < n_heads; h++)
                    memcpy(y->data + r * y->stride + (h * n_ranks + from) * head,
                           x->data + r * x->stride + h * head, head);
        }
}

static void cpu_free(struct lode_backend *b) {
    struct lode_cpu *c = lode_cpu(b);
    if (!c)
        return;
    lode_pool_free(c->pool);
    lode_cpu_experts_free(c->experts);
    lode_free_aligned(c->scratch);
    lode_free_aligned(c->rounded);
    lode_free(c);
}

static void share(struct lode_backend *b, lode_pool_fn *fn, void *arg, uint32_t n) {
    lode_pool_run(((struct lode_cpu *)b)->pool, fn, arg, n);
}

static const struct lode_backend_ops ops = {
    .name = "CPU",
    .run =
        {
#define ROWS(op, fn) [LODE_OP_##op] = lode_cpu_rows,
            LODE_CPU_ROW_OPS(ROWS)
#undef ROWS
            [LODE_OP_LINEAR] = lode_cpu_linear,
            [LODE_OP_ATTENTION] = lode_cpu_attention,
            [LODE_OP_ROUTE] = lode_cpu_route,
            [LODE_OP_EXPERTS] = lode_cpu_experts,
            [LODE_OP_EXPERTS_IN] = lode_cpu_experts,
            [LODE_OP_EXPERTS_OUT] = lode_cpu_experts,
            [LODE_OP_PICK] = lode_cpu_pick,
            [LODE_OP_HEADS] = lode_cpu_heads,
            [LODE_OP_TRACE] = lode_cpu_trace,
            [LODE_OP_CONV] = lode_cpu_conv,
            [LODE_OP_DELTA] = lode_cpu_delta,
        },
    .together = lode_cpu_together,
    .row_by_row = lode_cpu_row_by_row,
    .all_gather = cpu_all_gather,
    .read = cpu_read,
    .copy = cpu_copy,
    .share = share,
    .free = cpu_free,
};
