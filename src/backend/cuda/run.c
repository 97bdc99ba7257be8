/* run.c - runs plans on the device: one launch or a few for each instruction, and for steps of few
 * rows the whole plan as one captured graph.
 *
 * What changes from step to step (tokens, positions, pages) is in device memory at a fixed address,
 * written by one copy before the plan runs; the arguments of launches depend on the plan and the
 * number of rows alone, and on how many pages attention may have to look at, rounded up.  So a graph
 * that was captured once runs every later step of its shape. */
#include "backend/cuda/cuda.h"

#include "base/alloc.h"

#include <string.h>

enum {
    SLOTS = 3,          /* host copies of steps that may be on their way */
    TABLE_ROOM = 8 << 20, /* bytes for page tables, rotary frequencies and views */
    SCRATCH = 64 << 20, /* bytes for parts of attention */
    GRAPHS = 32,
    GRAPH_ROWS = 64, /* steps of up to so many rows are captured */
    MANY = 16, /* rows from which on the tensor cores are faster */
    WAVE = 32768, /* (row, expert) pairs of one launch */
};

struct graph_key {
    const struct lode_instr *instrs;
    uint32_t n_rows, n_out, pages, segments, tiles;
};

struct run {
    struct lode_backend base;
    struct lode_cuda *c;
    struct lode_cuda_opts o;
    void *stream;
    struct {
        char *host; /* pinned; (step_size) */
        void *sent;
    } slot[SLOTS];
    unsigned next_slot;
    lode_dev step; /* device; (step_size) */
    size_t step_size;
    lode_dev scratch;
    char *read; /* pinned; (max_read, row of max_out_width) */
    size_t read_size;
    /* experts: (pairs of a wave, stride) */
    lode_dev gate, up, h, down;
    uint64_t ff_stride, out_stride;
    /* of the step that runs */
    uint32_t pages, tiles_rows;
    struct {
        struct graph_key key;
        void *exec;
        uint32_t seen; /* how often the shape came before it was captured */
        uint64_t used;
    } graphs[GRAPHS];
    uint64_t clock;
};

static struct run *run_of(struct lode_backend *b) { return (struct run *)b; }

/* ---- sizes ---- */

static uint64_t wide(uint64_t n) { return (n * sizeof(float) + 255) & ~(uint64_t)255; }

static uint32_t wave_pairs(const struct lode_cuda_opts *o) {
    const uint64_t all = (uint64_t)o->max_rows * o->experts.n_used;
    return all < WAVE ? (uint32_t)all : WAVE / o->experts.n_used * o->experts.n_used;
}

static uint64_t experts_size(const struct lode_cuda_opts *o) {
    return o->experts.n
               ? wave_pairs(o) * (3 * wide(o->experts.d_ff) + wide(o->experts.d_out))
               : 0;
}

static size_t step_size(const struct lode_cuda_opts *o) {
    return sizeof(struct lode_cuda_step) + TABLE_ROOM + 256 +
           (size_t)o->max_rows * (sizeof(struct lode_cuda_row) + sizeof(uint32_t));
}

uint64_t lode_cuda_work_size(const struct lode_cuda_opts *o) {
    return step_size(o) + SCRATCH + experts_size(o);
}

/* ---- the step, as the device reads it ---- */

struct writer {
    char *host;
    lode_dev device;
    size_t at, size;
    bool full;
};

static void *put(struct writer *w, size_t n, size_t size, lode_dev *where) {
    w->at = (w->at + 15) & ~(size_t)15;
    const size_t bytes = n * size;
    if (w->full || bytes > w->size - w->at) {
        w->full = true;
        return NULL;
    }
    void *p = w->host + w->at;
    *where = w->device + w->at;
    w->at += bytes;
    return p;
}

/* One sequence's page tables, a view for each layer. */
static void put_views(struct writer *w, const struct lode_kv *kv, uint32_t n_layers, uint32_t n_pages,
                      lode_dev *where) {
    struct lode_cuda_view *views = put(w, n_layers, sizeof *views, where);
    lode_dev table_of[64] = {0}; /* of a group; more groups than that have a table a layer */
    for (uint32_t l = 0; views && l < n_layers; l++) {
        const struct lode_kv_view v = lode_kv_view(kv, l);
        const struct lode_kv_layer *layer = lode_kv_layer(kv, l);
        const uint32_t n = n_pages < v.n_entries ? n_pages : v.n_entries;
        lode_dev table = v.group < 64 ? table_of[v.group] : 0;
        if (!table) {
            lode_dev *pages = put(w, n, sizeof *pages, &table);
            for (uint32_t i = 0; pages && i < n; i++)
                pages[i] = v.table[i] == UINT32_MAX
                               ? 0
                               : (lode_dev)(uintptr_t)v.pool + v.table[i] * (lode_dev)v.page_size;
            if (v.group < 64)
                table_of[v.group] = table;
        }
        views[l] = (struct lode_cuda_view){.pages = table, .n_entries = v.n_entries,
                                           .k_stride = (uint32_t)v.k_stride,
                                           .v_stride = (uint32_t)v.v_stride,
                                           .type_k = layer->type_k, .type_v = layer->type_v,
                                           .v_in_k = layer->v_in_k, .k = v.k, .v = v.v};
    }
}

static void put_ropes(struct writer *w, const struct lode_rope *ropes, uint32_t n, lode_dev *where) {
    struct lode_cuda_rope *out = put(w, n, sizeof *out, where);
    for (uint32_t i = 0; out && i < n; i++) {
        lode_dev at = 0;
        double *freq = put(w, ropes[i].n_pairs, sizeof *freq, &at);
        if (freq)
            memcpy(freq, ropes[i].freq, ropes[i].n_pairs * sizeof *freq);
        out[i] = (struct lode_cuda_rope){at, ropes[i].scale};
    }
}

static int send_step(struct run *r, const struct lode_step *step, struct lode_error *err) {
    const struct lode_cu *cu = &r->c->cu;
    const unsigned i = r->next_slot++ % SLOTS;
    LODE_TRY(lode_cu_check(cu, cu->event_wait(r->slot[i].sent), "step", err));
    struct writer w = {r->slot[i].host, r->step, 0, r->step_size, false};
    lode_dev at = 0;
    struct lode_cuda_step *s = put(&w, 1, sizeof *s, &at);
    *s = (struct lode_cuda_step){.n_rows = step->n_rows, .n_segments = step->n_segments,
                                 .n_out = step->n_out};
    struct lode_cuda_row *rows = put(&w, step->n_rows, sizeof *rows, &s->rows);
    uint32_t *out = put(&w, step->n_out, sizeof *out, &s->out_rows);
    struct lode_cuda_segment *segs = put(&w, step->n_segments, sizeof *segs, &s->segments);
    if (out && step->n_out)
        memcpy(out, step->out_rows, step->n_out * sizeof *out);
    r->pages = 1;
    for (uint32_t k = 0; rows && segs && k < step->n_segments; k++) {
        const struct lode_segment *g = &step->segments[k];
        const uint32_t pages = (g->pos + g->n_rows - 1) / LODE_KV_PAGE + 1;
        r->pages = pages > r->pages ? pages : r->pages;
        segs[k] = (struct lode_cuda_segment){.first_row = g->first_row, .n_rows = g->n_rows,
                                             .pos = g->pos};
        put_views(&w, g->kv, r->o.n_layers, pages, &segs[k].views);
        put_ropes(&w, g->ropes, r->o.n_ropes, &segs[k].ropes);
        for (uint32_t n = 0; n < g->n_rows; n++)
            rows[g->first_row + n] =
                (struct lode_cuda_row){g->pos + n, k, step->tokens[g->first_row + n],
                                       n >= g->second};
    }
    if (w.full)
        return lode_fail(err, LODE_ERR_LIMIT, "cuda",
                         "the sequences of one step have too many pages for a GPU's step (%u MiB of "
                         "tables): feed fewer of them at once",
                         TABLE_ROOM >> 20);
    LODE_TRY(lode_cu_check(cu, cu->to_device(r->step, r->slot[i].host, w.at, r->stream), "step", err));
    LODE_TRY(lode_cu_check(cu, cu->event_record(r->slot[i].sent, r->stream), "step", err));
    uint32_t up = 1; /* graphs are for powers of two */
    while (up < r->pages)
        up *= 2;
    r->pages = up;
    return 0;
}

/* ---- instructions ---- */

struct op {
    struct run *r;
    const struct lode_instr *in;
    const struct lode_step *step;
    struct lode_error *err;
    uint32_t n; /* rows of the result */
};

static struct lode_cuda_mat mat(const struct lode_value *v) {
    return (struct lode_cuda_mat){(lode_dev)(uintptr_t)v->data, v->stride};
}
static lode_dev weight(const struct op *o, const struct lode_operand *w) {
    return w ? o->r->c->weights[w->id] : 0;
}
static const struct lode_cuda_kernels *kernels(const struct op *o) { return &o->r->c->kernels; }

static int launch(const struct op *o, void *kernel, uint32_t x, uint32_t y, uint32_t z,
                  uint32_t threads, uint32_t shared, const void *args) {
    return lode_cuda_launch(o->r->c, o->r->stream, kernel, x, y, z, threads, shared, args, o->err);
}

static struct lode_cuda_row_args row_args(const struct op *o) {
    const struct lode_instr *in = o->in;
    const struct lode_part *p = &in->parts[0];
    return (struct lode_cuda_row_args){.step = o->r->step, .y = mat(&p->out), .a = mat(&in->in[0]),
                                       .b = mat(&in->in[1]), .w = weight(o, p->w),
                                       .bias = weight(o, p->bias), .width = p->out.width,
                                       .width_a = in->in[0].width, .width_b = in->in[1].width};
}

/* Number by number: blocks of 256 threads, each with up to 4 numbers. */
static int each(const struct op *o, void *kernel, const struct lode_cuda_row_args *a) {
    return launch(o, kernel, o->n, (a->width + 1023) / 1024, 1, 256, 0, a);
}

static int run_embed(const struct op *o) {
    const struct lode_part *p = &o->in->parts[0];
    const struct lode_cuda_embed_args a = {
        .step = o->r->step, .w = weight(o, p->w), .y = mat(&p->out),
        .w_stride = lode_cuda_row_size(p->w->type, p->w->cols), .cols = p->w->cols,
        .by = o->in->p.embed.by, .scale = o->in->p.embed.scale};
    return launch(o, kernels(o)->embed[p->w->type], o->n, 1, 1, 256, 0, &a);
}

static int run_norm(const struct op *o) {
    const bool rms = o->in->op == LODE_OP_RMS_NORM;
    struct lode_cuda_row_args a = row_args(o);
    a.group = rms ? o->in->p.rms_norm.group : o->in->p.layer_norm.group;
    a.eps = rms ? o->in->p.rms_norm.eps : o->in->p.layer_norm.eps;
    const uint32_t threads = a.group >= 4096 ? 1024 : a.group >= 1024 ? 512 : a.group >= 256 ? 128 : 32;
    return launch(o, rms ? kernels(o)->rms_norm : kernels(o)->layer_norm, o->n, a.width / a.group, 1,
                  threads, a.group * 4, &a);
}

static int run_l2_norm(const struct op *o) {
    struct lode_cuda_row_args a = row_args(o);
    a.group = o->in->p.l2_norm.group;
    a.n = o->in->p.l2_norm.n;
    a.first = o->in->p.l2_norm.n_scaled;
    a.scale = o->in->p.l2_norm.scale;
    a.eps = o->in->p.l2_norm.eps;
    return launch(o, kernels(o)->l2_norm, o->n, a.n / a.group + 1, 1, 128, a.group * 4, &a);
}

static int quant(const struct op *o, enum lode_dtype type, struct lode_cuda_row_args *a, uint32_t n) {
    const uint32_t blocks = a->width / lode_dtypes[type].block;
    return launch(o, type == LODE_A32 ? kernels(o)->quant_a32 : kernels(o)->quant_a256, n,
                  (blocks + 7) / 8, 1, 256, 0, a);
}

static int run_quant(const struct op *o) {
    struct lode_cuda_row_args a = row_args(o);
    return quant(o, o->in->parts[0].out.type, &a, o->n);
}

/* Rows of w that a block of threads takes, with 1 << i rows of x (kernels/mul.cuh). */
static uint32_t tile_of(enum lode_dtype type, int i) {
    static const uint32_t tile[4] = {16, 16, 8, 4};
    return lode_cuda_layouts[type].plain ? 32 : tile[i];
}

static int run_linear(const struct op *o) {
    const struct lode_instr *in = o->in;
    const bool heads = in->op == LODE_OP_HEADS;
    const uint32_t n_heads = heads ? in->p.heads.n_heads : 1;
    const uint32_t n_x = lode_value_rows(&in->in[0], o->step);
    int i = 0;
    while (i < 3 && 1u << i < n_x)
        i++;
    for (uint32_t first = 0; first < in->n_parts;) { /* runs of one type */
        const struct lode_operand *w = in->parts[first].w;
        struct lode_cuda_mul_args a = {.x = mat(&in->in[0]), .n_x = n_x, .cols = w->cols};
        const bool many = n_x >= MANY && !heads && kernels(o)->gemm[w->type];
        const uint32_t tile = many ? 64 : tile_of(w->type, i);
        uint32_t tiles = 0;
        if (heads) {
            size_t bytes = 0;
            lode_dtype_row_size(in->in[0].type, w->cols, &bytes);
            a.head_rows = w->rows / n_heads;
            a.x_head = (uint32_t)bytes;
        }
        for (; first < in->n_parts && a.n_parts < LODE_CUDA_PARTS &&
               in->parts[first].w->type == w->type; first++) {
            const struct lode_part *p = &in->parts[first];
            a.parts[a.n_parts++] = (struct lode_cuda_part){
                .w = weight(o, p->w), .bias = weight(o, p->bias),
                .y = (lode_dev)(uintptr_t)p->out.data,
                .w_stride = lode_cuda_row_size(w->type, w->cols), .y_stride = p->out.stride,
                .rows = p->w->rows, .first_tile = tiles};
            tiles += heads ? n_heads * ((a.head_rows + tile - 1) / tile) : (p->w->rows + tile - 1) / tile;
        }
        if (many) {
            LODE_TRY(launch(o, kernels(o)->gemm[w->type], (n_x + 63) / 64, tiles, 1, 256, 0, &a));
            continue;
        }
        LODE_TRY(launch(o, kernels(o)->mul[w->type][i], tiles, (n_x + (1u << i) - 1) >> i, 1, 256, 0,
                        &a));
    }
    return 0;
}

static int run_rope_table(const struct op *o) {
    struct lode_cuda_row_args a = row_args(o);
    a.kind = o->in->p.rope_table.spec;
    a.n = o->in->p.rope_table.n_pairs;
    return each(o, kernels(o)->rope_table, &a);
}

static int run_rope(const struct op *o) {
    struct lode_cuda_row_args a = row_args(o);
    a.group = o->in->p.rope.head_dim;
    a.n = o->in->p.rope.n_pairs;
    a.kind = o->in->p.rope.pairs;
    return launch(o, kernels(o)->rope, o->n, o->in->p.rope.n_heads, 1, a.group < 128 ? 64 : 128,
                  a.group * 4, &a);
}

static int run_kv_put(const struct op *o) {
    const struct lode_kv_layer *l = lode_kv_layer(o->step->segments[0].kv, o->in->p.kv_put.layer);
    const struct lode_cuda_put_args a = {.step = o->r->step, .k = mat(&o->in->in[0]),
                                         .v = mat(&o->in->in[1]), .layer = o->in->p.kv_put.layer,
                                         .n_heads = l->n_heads, .head_dim = l->head_dim,
                                         .head_dim_v = l->head_dim_v};
    return launch(o, kernels(o)->kv_put, o->step->n_rows, (2 * l->n_heads + 7) / 8, 1, 256, 0, &a);
}

static int run_attention(const struct op *o) {
    const struct lode_instr *in = o->in;
    const union lode_op_params *p = &in->p;
    const uint32_t group = p->attention.n_heads / p->attention.n_kv_heads, rows = o->step->n_rows;
    struct lode_cuda_att_args a = {
        .step = o->r->step, .sinks = weight(o, in->parts[0].w), .scratch = o->r->scratch,
        .q = mat(&in->in[0]), .y = mat(&in->parts[0].out), .layer = p->attention.layer,
        .n_heads = p->attention.n_heads, .n_kv_heads = p->attention.n_kv_heads,
        .head_dim = p->attention.head_dim, .head_dim_v = p->attention.head_dim_v,
        .window = p->attention.window, .chunk = p->attention.chunk,
        .both_ways = p->attention.both_ways, .scale = p->attention.scale, .cap = p->attention.cap};
    uint32_t pages = o->r->pages;
    if (a.window) { /* a window and the rows of a tile reach over at most so many */
        const uint32_t most = (a.window + 16) / LODE_KV_PAGE + 2;
        pages = pages < most ? pages : most;
    }
    uint32_t tiles = 0;
    for (uint32_t i = 0; i < o->step->n_segments; i++)
        tiles += (o->step->segments[i].n_rows * group + 15) / 16;
    const uint32_t shared = lode_cuda_attention_shared(a.head_dim, a.head_dim_v);
    const uint64_t part = 4ull * (a.head_dim_v + 2) * a.n_heads * rows;
    a.max_pages = pages;
    const bool few = tiles * a.n_kv_heads < 4 * (uint32_t)o->r->c->multiprocessors;
    if (pages > 1 && pages <= 65535 && few && part * pages <= SCRATCH) {
        LODE_TRY(launch(o, kernels(o)->attention_page, a.n_kv_heads, tiles, pages, 256, shared, &a));
        return launch(o, kernels(o)->attention_merge, a.n_heads, rows, 1,
                      a.head_dim_v <= 64 ? 64 : a.head_dim_v <= 128 ? 128 : 256, 0, &a);
    }
    return launch(o, kernels(o)->attention_walk, a.n_kv_heads, tiles, 1, 256, shared, &a);
}

static int run_route(const struct op *o) {
    const struct lode_part *p = &o->in->parts[0];
    const union lode_op_params *q = &o->in->p;
    const struct lode_cuda_route_args a = {
        .x = mat(&o->in->in[0]), .y = mat(&p->out), .bias = weight(o, p->w), .n = o->in->in[0].width,
        .n_used = q->route.n_used, .gating = q->route.gating, .normalise = q->route.normalise,
        .n_groups = q->route.n_groups, .n_groups_used = q->route.n_groups_used,
        .scale = q->route.scale};
    return launch(o, kernels(o)->route, o->n, 1, 1, 32, 0, &a);
}

/* Rows first .. first + n of an EXPERTS instruction. */
static int experts_wave(const struct op *o, uint32_t first, uint32_t n) {
    struct run *r = o->r;
    const struct lode_part *parts = o->in->parts;
    const struct lode_operand *gate = parts[0].w, *down = parts[2].w;
    struct lode_cuda_mat x = mat(&o->in->in[0]), route = mat(&o->in->in[1]);
    struct lode_cuda_mat y = mat(&parts[0].out);
    const uint32_t n_used = o->in->in[1].width / 2, pairs = n * n_used;
    x.data += first * x.stride;
    route.data += first * route.stride;
    y.data += first * y.stride;
    struct lode_cuda_moe_args a = {
        .x = x, .route = route, .expert_size = r->c->weights[gate->id + 1] - r->c->weights[gate->id],
        .w_stride = lode_cuda_row_size(gate->type, gate->cols), .y_stride = r->ff_stride,
        .n_used = n_used, .x_div = n_used, .rows = gate->rows, .cols = gate->cols, .n_pairs = pairs};
    if (gate->count == 1)
        a.expert_size = 0;
    const lode_dev out[2] = {r->gate, r->up};
    for (int k = 0; k < 2; k++) {
        a.w[a.n_kinds] = weight(o, parts[k].w);
        a.bias[a.n_kinds] = weight(o, parts[k].bias);
        a.y[a.n_kinds++] = out[k];
        if (k == 1 || parts[1].w->type != gate->type) { /* both at once where they are of one type */
            const struct lode_operand *w = parts[k].w;
            a.w_stride = lode_cuda_row_size(w->type, w->cols);
            a.expert_size = w->count > 1 ? r->c->weights[w->id + 1] - r->c->weights[w->id] : 0;
            LODE_TRY(launch(o, kernels(o)->moe[w->type],
                            (a.rows + tile_of(w->type, 0) - 1) / tile_of(w->type, 0), pairs,
                            a.n_kinds, 256, 0, &a));
            a.n_kinds = 0;
        }
    }
    const enum lode_dtype act = lode_dtypes[down->type].act;
    const bool rounded = act == LODE_A32 || act == LODE_A256;
    const struct lode_cuda_moe_act_args ma = {.gate = r->gate, .up = r->up, .y = r->gate, .route = route,
                                              .stride = r->ff_stride, .n = gate->rows,
                                              .n_used = n_used, .act = o->in->p.experts.act,
                                              .weigh_input = o->in->p.experts.weigh_input};
    LODE_TRY(launch(o, kernels(o)->moe_act, pairs, (gate->rows + 1023) / 1024, 1, 256, 0, &ma));
    const lode_dev h = rounded ? r->h : r->gate;
    if (rounded) {
        struct lode_cuda_row_args q = {.y = {r->h, r->ff_stride}, .a = {r->gate, r->ff_stride},
                                       .width = gate->rows};
        LODE_TRY(quant(o, act, &q, pairs));
    }
    struct lode_cuda_moe_args d = {
        .w = {weight(o, down)}, .bias = {weight(o, parts[2].bias)}, .y = {r->down},
        .x = {h, r->ff_stride}, .route = route,
        .expert_size = down->count > 1 ? r->c->weights[down->id + 1] - r->c->weights[down->id] : 0,
        .w_stride = lode_cuda_row_size(down->type, down->cols), .y_stride = r->out_stride,
        .n_kinds = 1, .n_used = n_used, .x_div = 1, .rows = down->rows, .cols = down->cols,
        .n_pairs = pairs};
    const uint32_t tile = tile_of(down->type, 0);
    LODE_TRY(launch(o, kernels(o)->moe[down->type], (down->rows + tile - 1) / tile, pairs, 1, 256, 0,
                    &d));
    const struct lode_cuda_moe_sum_args s = {.down = r->down, .route = route, .y = y,
                                             .stride = r->out_stride, .n = down->rows,
                                             .n_used = n_used,
                                             .weigh_input = o->in->p.experts.weigh_input};
    return launch(o, kernels(o)->moe_sum, n, (down->rows + 1023) / 1024, 1, 256, 0, &s);
}

static int run_experts(const struct op *o) {
    const uint32_t n_used = o->in->in[1].width / 2, most = wave_pairs(&o->r->o) / n_used;
    for (uint32_t first = 0; first < o->n; first += most)
        LODE_TRY(experts_wave(o, first, o->n - first < most ? o->n - first : most));
    return 0;
}

/* Called between launches, never while capturing. */
static int run_trace(const struct op *o) {
    const struct lode_value *x = &o->in->in[0];
    const struct lode_cu *cu = &o->r->c->cu;
    const bool out_only = x->rows == LODE_ROWS_OUT;
    const uint32_t n = lode_value_rows(x, o->step);
    const size_t row = x->width * sizeof(float);
    if (!o->step->trace || n == 0)
        return 0;
    char *rows = o->r->read;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        rc = lode_cu_check(cu, cu->to_host(rows + i * row,
                                           (lode_dev)(uintptr_t)x->data + i * x->stride, row,
                                           o->r->stream), "trace", o->err);
    if (rc == 0)
        rc = lode_cu_check(cu, cu->stream_wait(o->r->stream), "trace", o->err);
    if (rc == 0)
        o->step->trace(o->step->trace_user, o->in->p.trace.layer, o->step, (const float *)rows, row,
                       out_only);
    return rc;
}

static int run_instr(const struct op *o) {
    const union lode_op_params *p = &o->in->p;
    const struct lode_cuda_kernels *k = kernels(o);
    struct lode_cuda_row_args a = row_args(o);
    switch (o->in->op) {
    case LODE_OP_EMBED:
        return run_embed(o);
    case LODE_OP_RMS_NORM:
    case LODE_OP_LAYER_NORM:
        return run_norm(o);
    case LODE_OP_L2_NORM:
        return run_l2_norm(o);
    case LODE_OP_QUANT:
        return run_quant(o);
    case LODE_OP_LINEAR:
    case LODE_OP_HEADS:
        return run_linear(o);
    case LODE_OP_ROPE_TABLE:
        return run_rope_table(o);
    case LODE_OP_ROPE:
    case LODE_OP_UNPAIR:
        return run_rope(o);
    case LODE_OP_KV_PUT:
        return run_kv_put(o);
    case LODE_OP_ATTENTION:
        return run_attention(o);
    case LODE_OP_ADD:
        a.scale = p->add.scale;
        return each(o, k->add, &a);
    case LODE_OP_GLU:
        a.kind = p->glu.act;
        return each(o, k->glu, &a);
    case LODE_OP_ACT:
        a.kind = p->act.act;
        return each(o, k->act, &a);
    case LODE_OP_ROW_GATE:
        return each(o, k->row_gate, &a);
    case LODE_OP_ROUTE:
        return run_route(o);
    case LODE_OP_EXPERTS:
        return run_experts(o);
    case LODE_OP_SCALE:
        a.scale = p->scale.scale;
        return each(o, k->scale, &a);
    case LODE_OP_SOFTCAP:
        a.scale = p->softcap.cap;
        return each(o, k->softcap, &a);
    case LODE_OP_TEMPERATURE:
        a.scale = p->temperature.coef;
        a.n = p->temperature.floor;
        return each(o, k->temperature, &a);
    case LODE_OP_PICK:
        return each(o, k->pick, &a);
    case LODE_OP_CUT:
        a.n = p->cut.n_heads;
        a.first = p->cut.first;
        return each(o, k->cut, &a);
    case LODE_OP_JOIN:
        a.n = p->join.n_heads;
        return each(o, k->join, &a);
    case LODE_OP_TRACE:
        return run_trace(o);
    default:
        return lode_fail(o->err, LODE_ERR_INTERNAL, "cuda", "%s has no kernel",
                         lode_ops[o->in->op].name);
    }
}

/* ---- plans ---- */

static int run_all(struct run *r, const struct lode_instr *instrs, uint32_t n,
                   const struct lode_step *step, bool (*cancel)(void *user), void *cancel_user,
                   struct lode_error *err) {
    for (uint32_t i = 0; i < n; i++) {
        const struct lode_instr *in = &instrs[i];
        const struct lode_value *out = in->n_parts ? &in->parts[0].out : NULL;
        const struct op o = {r, in, step, err, lode_value_rows(out && out->data ? out : &in->in[0], step)};
        if (cancel && cancel(cancel_user))
            return lode_fail(err, LODE_ERR_CANCELLED, "", "cancelled");
        LODE_TRY(run_instr(&o));
    }
    return 0;
}

static bool same(const struct graph_key *a, const struct graph_key *b) {
    return a->instrs == b->instrs && a->n_rows == b->n_rows && a->n_out == b->n_out &&
           a->pages == b->pages && a->segments == b->segments && a->tiles == b->tiles;
}

/* The graph of a shape; captured when it comes the second time.  *exec NULL: run it plainly. */
static int find_graph(struct run *r, const struct graph_key *key, const struct lode_instr *instrs,
                      uint32_t n, const struct lode_step *step, void **exec, struct lode_error *err) {
    const struct lode_cu *cu = &r->c->cu;
    int at = 0;
    *exec = NULL;
    for (int i = 0; i < GRAPHS; i++) {
        if (same(&r->graphs[i].key, key)) {
            at = i;
            break;
        }
        if (r->graphs[i].used < r->graphs[at].used)
            at = i;
    }
    if (!same(&r->graphs[at].key, key)) {
        if (r->graphs[at].exec)
            cu->graph_exec_destroy(r->graphs[at].exec);
        r->graphs[at].key = *key;
        r->graphs[at].exec = NULL;
        r->graphs[at].seen = 0;
    }
    r->graphs[at].used = ++r->clock;
    if (!r->graphs[at].exec && r->graphs[at].seen++ == 1) {
        void *graph = NULL;
        LODE_TRY(lode_cu_check(cu, cu->capture_begin(r->stream, 2 /* relaxed */), "capture", err));
        const int rc = run_all(r, instrs, n, step, NULL, NULL, err);
        const int ended = lode_cu_check(cu, cu->capture_end(r->stream, &graph), "capture", err);
        int made = rc < 0 ? rc : ended;
        if (made == 0)
            made = lode_cu_check(cu, cu->graph_instantiate(&r->graphs[at].exec, graph, 0), "graph",
                                 err);
        if (graph)
            cu->graph_destroy(graph);
        LODE_TRY(made);
    }
    *exec = r->graphs[at].exec;
    return 0;
}

static int run_plan(struct lode_backend *b, const struct lode_instr *instrs, uint32_t n,
                    const struct lode_step *step, bool (*cancel)(void *user), void *cancel_user,
                    struct lode_error *err) {
    struct run *r = run_of(b);
    LODE_TRY(lode_cuda_enter(r->c, err));
    if (step->n_segments)
        LODE_TRY(send_step(r, step, err));
    else
        r->pages = 0; /* a head: nothing in it looks at pages */
    if (cancel && cancel(cancel_user))
        return lode_fail(err, LODE_ERR_CANCELLED, "", "cancelled");
    void *exec = NULL;
    if (!step->trace && step->n_rows <= GRAPH_ROWS) {
        struct graph_key key = {instrs, step->n_rows, step->n_out, r->pages, step->n_segments, 0};
        for (uint32_t i = 0; i < step->n_segments; i++) /* attention's grid depends on the split */
            key.tiles = key.tiles * 65599 + step->segments[i].n_rows;
        LODE_TRY(find_graph(r, &key, instrs, n, step, &exec, err));
    }
    if (exec)
        return lode_cu_check(&r->c->cu, r->c->cu.graph_launch(exec, r->stream), "graph", err);
    return run_all(r, instrs, n, step, cancel, cancel_user, err);
}

static const char *run_read(struct lode_backend *b, const struct lode_value *v, uint32_t n,
                            struct lode_error *err) {
    struct run *r = run_of(b);
    const struct lode_cu *cu = &r->c->cu;
    const size_t size = n * v->stride;
    if (size > r->read_size) {
        lode_fail(err, LODE_ERR_INTERNAL, "cuda", "%zu bytes to read, %zu expected at most", size,
                  r->read_size);
        return NULL;
    }
    if (lode_cuda_enter(r->c, err) < 0 ||
        lode_cu_check(cu, cu->to_host(r->read, (lode_dev)(uintptr_t)v->data, size, r->stream), "read",
                      err) < 0 ||
        lode_cu_check(cu, cu->stream_wait(r->stream), "the step", err) < 0)
        return NULL;
    return r->read;
}

static int run_copy(struct lode_backend *b, const struct lode_value *dst,
                    const struct lode_value *src, uint32_t first, uint32_t n,
                    struct lode_error *err) {
    struct run *r = run_of(b);
    size_t row = 0;
    lode_dtype_row_size(src->type, src->width, &row);
    LODE_TRY(lode_cuda_enter(r->c, err));
    for (uint32_t i = 0; i < n; i++)
        LODE_TRY(lode_cu_check(&r->c->cu,
                               r->c->cu.copy((lode_dev)(uintptr_t)dst->data + i * dst->stride,
                                             (lode_dev)(uintptr_t)src->data + (first + i) * src->stride,
                                             row, r->stream),
                               "copy", err));
    return 0;
}

static void run_free(struct lode_backend *b) {
    struct run *r = run_of(b);
    if (!r)
        return;
    const struct lode_cu *cu = &r->c->cu;
    if (lode_cuda_enter(r->c, NULL) == 0) {
        if (r->stream)
            cu->stream_wait(r->stream);
        for (int i = 0; i < GRAPHS; i++)
            if (r->graphs[i].exec)
                cu->graph_exec_destroy(r->graphs[i].exec);
        for (int i = 0; i < SLOTS; i++) {
            if (r->slot[i].host)
                cu->host_free(r->slot[i].host);
            if (r->slot[i].sent)
                cu->event_destroy(r->slot[i].sent);
        }
        if (r->read)
            cu->host_free(r->read);
        const lode_dev all[] = {r->step, r->scratch, r->gate, r->up, r->h, r->down};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            if (all[i])
                cu->free(all[i]);
        if (r->stream)
            cu->stream_destroy(r->stream);
    }
    lode_free(r);
}

static const struct lode_backend_ops ops = {
    .name = "CUDA", .run_plan = run_plan, .read = run_read, .copy = run_copy, .free = run_free};

static int take(struct run *r, lode_dev *p, uint64_t size, struct lode_error *err) {
    if (r->c->cu.alloc(p, size) == 0)
        return 0;
    return lode_fail(err, LODE_ERR_NOMEM, "-b",
                     "work buffers on '%s' need %.1f MiB more than are free: use a smaller batch",
                     r->c->name, (double)size / 0x1p20);
}

static int create(struct run *r, struct lode_error *err) {
    const struct lode_cu *cu = &r->c->cu;
    const struct lode_cuda_opts *o = &r->o;
    LODE_TRY(lode_cuda_enter(r->c, err));
    LODE_TRY(lode_cu_check(cu, cu->stream_create(&r->stream, 1 /* non-blocking */), "stream", err));
    r->step_size = step_size(o);
    for (int i = 0; i < SLOTS; i++) {
        LODE_TRY(lode_cu_check(cu, cu->host_alloc((void **)&r->slot[i].host, r->step_size, 0),
                               "pinned buffer", err));
        LODE_TRY(lode_cu_check(cu, cu->event_create(&r->slot[i].sent, 2), "event", err));
    }
    r->read_size = o->max_read * wide(o->max_out_width);
    const size_t traced = o->max_rows * wide(o->max_traced);
    r->read_size = r->read_size > traced ? r->read_size : traced;
    LODE_TRY(lode_cu_check(cu, cu->host_alloc((void **)&r->read, r->read_size, 0), "pinned buffer",
                           err));
    LODE_TRY(take(r, &r->step, r->step_size, err));
    LODE_TRY(take(r, &r->scratch, SCRATCH, err));
    if (!o->experts.n)
        return 0;
    const uint64_t pairs = wave_pairs(o);
    r->ff_stride = wide(o->experts.d_ff);
    r->out_stride = wide(o->experts.d_out);
    LODE_TRY(take(r, &r->gate, pairs * r->ff_stride, err));
    LODE_TRY(take(r, &r->up, pairs * r->ff_stride, err));
    LODE_TRY(take(r, &r->h, pairs * r->ff_stride, err));
    return take(r, &r->down, pairs * r->out_stride, err);
}

int lode_cuda_create(struct lode_backend **out, struct lode_cuda *c,
                     const struct lode_cuda_opts *opts, struct lode_error *err) {
    *out = NULL;
    struct run *r = LODE_NEW(struct run);
    if (!r)
        return lode_fail_nomem(err, "CUDA backend");
    *r = (struct run){.base = {.ops = &ops, .memory = &c->memory, .threads = 1}, .c = c, .o = *opts};
    const int rc = create(r, err);
    if (rc < 0)
        run_free(&r->base);
    else
        *out = &r->base;
    return rc;
}
