/* ranks.c - several devices that run one plan in lock step, each with its parts of the rows, and put these
 * together by NCCL.
 *
 * One thread gives all of them their work: every device's instructions up to an ALL_GATHER, then that for all
 * in one group, so that whatever is refused, no device is left waiting for another that never comes.  Steps of
 * few rows are captured, collectives and all, as one graph a device.
 *
 * Where a device or the library fails nevertheless while others wait for it, the communicators are aborted,
 * which ends their waiting: the step's error is the request's, and the next step connects anew. */
#include "backend/cuda/nccl.h"
#include "backend/cuda/run.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

enum { GATHERED = 2 << 20 /* bytes of the first exchange, for which the library sets itself up */ };

struct lode_cuda_ranks {
    struct lode_nccl nccl;
    uint32_t n;
    struct run *runs[LODE_PLACES]; /* (n) borrowed; of device r */
    void *comms[LODE_PLACES];      /* (n) */
    bool connected;
};

/* Steps of several models or sessions on the same devices: each device meets their exchanges in one order, or
 * two could wait for each other's. */
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;

/* ---- connecting ---- */

static int drop_graphs(struct lode_cuda_ranks *k, struct lode_error *err) {
    for (uint32_t r = 0; r < k->n; r++) {
        LODE_TRY(lode_cuda_enter(k->runs[r]->c, err));
        LODE_TRY(lode_cuda_forget_graphs(k->runs[r], err));
    }
    return 0;
}

/* failed: somebody may be waiting for somebody.  Graphs hold communicators, so they go first. */
static void disconnect(struct lode_cuda_ranks *k, bool failed) {
    if (!k->connected)
        return;
    drop_graphs(k, NULL);
    for (uint32_t r = 0; r < k->n; r++)
        if (k->comms[r])
            (failed ? k->nccl.abort : k->nccl.destroy)(k->comms[r]);
    memset(k->comms, 0, sizeof k->comms);
    k->connected = false;
}

/* All devices' n numbers to all, on their streams; in one group, which is done for all or for none. */
static int exchange(struct lode_cuda_ranks *k, const lode_dev *from, const lode_dev *to, size_t n,
                    struct lode_error *err) {
    int rc = lode_nccl_check(&k->nccl, k->nccl.group_start(), "exchange", err);
    if (rc < 0)
        return rc;
    for (uint32_t r = 0; rc == 0 && r < k->n; r++)
        rc = lode_nccl_check(&k->nccl,
                             k->nccl.all_gather((const void *)(uintptr_t)from[r], (void *)(uintptr_t)to[r], n,
                                                LODE_NCCL_FLOAT, k->comms[r], k->runs[r]->stream),
                             "exchange", err);
    const int ended = lode_nccl_check(&k->nccl, k->nccl.group_end(), "exchange", rc < 0 ? NULL : err);
    return rc < 0 ? rc : ended;
}

/* With one exchange, so that what the library takes at the first it has now. */
static int connect_ranks(struct lode_cuda_ranks *k, struct lode_error *err) {
    int devices[LODE_PLACES];
    lode_dev from[LODE_PLACES], to[LODE_PLACES];
    for (uint32_t r = 0; r < k->n; r++) {
        devices[r] = k->runs[r]->c->device;
        from[r] = k->runs[r]->scratch;
        to[r] = from[r] + GATHERED;
    }
    LODE_TRY(drop_graphs(k, err)); /* what devices that were lost have kept of the communicators before */
    LODE_TRY(lode_nccl_check(&k->nccl, k->nccl.init_all(k->comms, (int)k->n, devices), "devices that exchange rows",
                             err));
    k->connected = true;
    int rc = exchange(k, from, to, GATHERED / sizeof(float), err);
    for (uint32_t r = 0; rc == 0 && r < k->n; r++) {
        rc = lode_cuda_enter(k->runs[r]->c, err);
        rc = rc < 0 ? rc : lode_cuda_wait_ranks(k, k->runs[r], err);
    }
    if (rc < 0)
        disconnect(k, true);
    return rc;
}

/* ---- waiting ---- */

/* Whether no device failed in a way that would keep others waiting. */
static int look_around(struct lode_cuda_ranks *k, struct lode_error *err) {
    for (uint32_t r = 0; r < k->n; r++) {
        const struct run *run = k->runs[r];
        lode_nccl_result later = 0;
        LODE_TRY(lode_cuda_enter(run->c, err));
        const lode_cu_result rc = run->c->cu.stream_query(run->stream);
        if (rc != LODE_CU_NOT_READY)
            LODE_TRY(lode_cu_check(&run->c->cu, rc, "the step", err));
        if (k->nccl.async_error(k->comms[r], &later) == 0)
            LODE_TRY(lode_nccl_check(&k->nccl, later, "exchange", err));
    }
    return 0;
}

/* A stream that waits for a device which is lost never ends by itself, so it is asked and not waited for. */
int lode_cuda_wait_ranks(struct lode_cuda_ranks *k, struct run *r, struct lode_error *err) {
    const struct timespec nap = {.tv_nsec = 20000};
    const double start = lode_clock();
    double looked = start;
    int rc = lode_cuda_enter(r->c, err);
    while (rc == 0) {
        const lode_cu_result done = r->c->cu.stream_query(r->stream);
        if (done != LODE_CU_NOT_READY) {
            rc = lode_cu_check(&r->c->cu, done, "the step", err);
            break;
        }
        const double now = lode_clock();
        if (now - start > 0.01) /* a prompt's, not a token's */
            nanosleep(&nap, NULL);
        if (now - looked > 0.25) {
            looked = now;
            rc = look_around(k, err);
            rc = rc < 0 ? rc : lode_cuda_enter(r->c, err);
        }
    }
    if (rc < 0)
        disconnect(k, true);
    return rc;
}

/* ---- plans ---- */

/* One ALL_GATHER, of which instrs[r] is rank r's.  Rows lie apart and have their columns in between each
 * other's: by way of the scratch memory, but for a single row. */
static int gather_rows(struct lode_cuda_ranks *k, const struct lode_instr *const *instrs, const struct lode_step *step,
                       uint32_t first, uint32_t rows, struct lode_error *err) {
    const struct lode_instr *in = instrs[0];
    const uint32_t width = in->in[0].width, heads = in->p.all_gather.n_heads;
    const uint64_t row = width * sizeof(float), size = rows * row, head = row / heads;
    lode_dev from[LODE_PLACES], to[LODE_PLACES];
    const bool direct = rows == 1 && heads == 1;
    for (uint32_t r = 0; r < k->n; r++) {
        const struct op o = {k->runs[r], instrs[r], step, err, rows};
        struct lode_cuda_mat x = lode_cuda_mat(&instrs[r]->in[0]);
        x.data += first * x.stride;
        from[r] = rows == 1 ? x.data : k->runs[r]->scratch;
        to[r] = direct ? lode_cuda_mat(&instrs[r]->parts[0].out).data + first * instrs[r]->parts[0].out.stride
                       : k->runs[r]->scratch + size;
        if (rows == 1)
            continue;
        const struct lode_cuda_unite_args pack = {.x = x, .y = {from[r], row}, .width = width, .n_heads = 1};
        LODE_TRY(lode_cuda_enter(k->runs[r]->c, err));
        LODE_TRY(lode_cuda_unite(&o, &pack, rows, 1));
    }
    LODE_TRY(exchange(k, from, to, size / sizeof(float), err));
    for (uint32_t r = 0; !direct && r < k->n; r++) {
        const struct op o = {k->runs[r], instrs[r], step, err, rows};
        struct lode_cuda_unite_args a = {.x = {to[r], row},
                                         .y = lode_cuda_mat(&instrs[r]->parts[0].out),
                                         .x_rank = size,
                                         .y_rank = head,
                                         .x_head = head,
                                         .y_head = k->n * head,
                                         .width = width / heads,
                                         .n_heads = heads};
        a.y.data += first * a.y.stride;
        LODE_TRY(lode_cuda_enter(k->runs[r]->c, err));
        LODE_TRY(lode_cuda_unite(&o, &a, rows, k->n));
    }
    return 0;
}

static int gather(struct lode_cuda_ranks *k, const struct lode_instr *const *instrs, const struct lode_step *step,
                  struct lode_error *err) {
    const uint32_t rows = lode_value_rows(&instrs[0]->in[0], step);
    const uint64_t most = LODE_CUDA_SCRATCH / ((k->n + 1) * (uint64_t)instrs[0]->in[0].width * sizeof(float));
    if (most == 0)
        return lode_fail(err, LODE_ERR_INTERNAL, "cuda", "a row of %u numbers to exchange", instrs[0]->in[0].width);
    for (uint32_t first = 0; first < rows; first += (uint32_t)most)
        LODE_TRY(gather_rows(k, instrs, step, first, rows - first < most ? rows - first : (uint32_t)most, err));
    return 0;
}

/* Gives all devices their work; cancel is asked where all have come equally far. */
static int enqueue(struct lode_cuda_ranks *k, const struct lode_instr *const *instrs, uint32_t n,
                   const struct lode_step *step, bool (*cancel)(void *user), void *cancel_user,
                   struct lode_error *err) {
    struct lode_step untold = *step; /* what layers give and routers choose, the first tells */
    untold.trace = NULL;
    untold.routes = NULL;
    for (uint32_t at = 0, end; at < n; at = end + 1) {
        for (end = at; end < n && instrs[0][end].op != LODE_OP_ALL_GATHER; end++)
            ;
        LODE_TRY(lode_cuda_ask_cancel(cancel, cancel_user, err));
        const struct lode_instr *here[LODE_PLACES];
        for (uint32_t r = 0; r < k->n; r++) {
            here[r] = instrs[r] + end;
            LODE_TRY(lode_cuda_enter(k->runs[r]->c, err));
            LODE_TRY(lode_cuda_run_all(k->runs[r], instrs[r] + at, end - at, n - at, r ? &untold : step, err));
        }
        if (end < n)
            LODE_TRY(gather(k, here, step, err));
    }
    return 0;
}

/* All devices' graphs, or none: which running the plan plainly replaces. */
static void capture(struct lode_cuda_ranks *k, struct graph **g, const struct lode_instr *const *instrs, uint32_t n,
                    const struct lode_step *step) {
    void *graphs[LODE_PLACES] = {0};
    uint32_t begun = 0;
    bool ok = true;
    while (ok && begun < k->n) {
        struct run *r = k->runs[begun];
        ok = lode_cuda_enter(r->c, NULL) == 0 && r->c->cu.capture_begin(r->stream, 2 /* relaxed */) == 0;
        begun += ok;
    }
    ok = ok && enqueue(k, instrs, n, step, NULL, NULL, NULL) == 0;
    for (uint32_t i = 0; i < begun; i++) {
        struct run *r = k->runs[i];
        ok = lode_cuda_enter(r->c, NULL) == 0 && r->c->cu.capture_end(r->stream, &graphs[i]) == 0 && ok;
    }
    for (uint32_t i = 0; i < begun; i++) {
        const struct run *r = k->runs[i];
        if (lode_cuda_enter(r->c, NULL) < 0)
            continue;
        ok = ok && r->c->cu.graph_instantiate(&g[i]->exec, graphs[i], 0) == 0;
        if (graphs[i])
            r->c->cu.graph_destroy(graphs[i]);
    }
    for (uint32_t i = 0; !ok && i < k->n; i++) {
        if (g[i]->exec && lode_cuda_enter(k->runs[i]->c, NULL) == 0)
            k->runs[i]->c->cu.graph_exec_destroy(g[i]->exec);
        g[i]->exec = NULL;
    }
}

/* One launch a device where the step's shape has come before; 0: none did. */
static int launch_graphs(struct lode_cuda_ranks *k, const struct lode_instr *const *instrs, uint32_t n,
                         const struct lode_step *step, struct lode_error *err) {
    struct graph *g[LODE_PLACES];
    bool all = true, again = true;
    for (uint32_t r = 0; r < k->n; r++) {
        struct graph_key key;
        if (!lode_cuda_graph_key(k->runs[r], instrs[r], step, 0, &key))
            return 0;
        LODE_TRY(lode_cuda_enter(k->runs[r]->c, err));
        g[r] = lode_cuda_graph_of(k->runs[r], &key);
        all &= g[r]->exec != NULL;
        again &= g[r]->seen++ == 1;
    }
    if (!all && again) {
        capture(k, g, instrs, n, step);
        all = g[0]->exec != NULL;
    }
    for (uint32_t r = 0; all && r < k->n; r++) {
        LODE_TRY(lode_cuda_enter(k->runs[r]->c, err));
        LODE_TRY(lode_cu_check(&k->runs[r]->c->cu, k->runs[r]->c->cu.graph_launch(g[r]->exec, k->runs[r]->stream),
                               "graph", err));
    }
    return all;
}

int lode_cuda_run_ranks(struct lode_backend *const *all, const struct lode_instr *const *instrs, uint32_t n_ranks,
                        uint32_t n, const struct lode_step *step, bool (*cancel)(void *user), void *cancel_user,
                        struct lode_error *err) {
    struct lode_cuda_ranks *k = ((struct run *)all[0])->ranks;
    if (!k || k->n != n_ranks)
        return lode_fail(err, LODE_ERR_INTERNAL, "cuda", "ranks that were not joined");
    if (!k->connected)
        LODE_TRY(connect_ranks(k, err));
    LODE_TRY(lode_cuda_ask_cancel(cancel, cancel_user, err));
    pthread_mutex_lock(&order);
    int rc = launch_graphs(k, instrs, n, step, err);
    if (rc == 0)
        rc = enqueue(k, instrs, n, step, cancel, cancel_user, err);
    pthread_mutex_unlock(&order);
    if (rc < 0 && rc != LODE_ERR_CANCELLED)
        disconnect(k, true);
    return rc < 0 ? rc : 0;
}

/* ---- joining ---- */

int lode_cuda_can_join(struct lode_error *err) {
    struct lode_nccl nccl;
    LODE_TRY(lode_nccl_open(&nccl, err));
    lode_nccl_close(&nccl);
    return 0;
}

void lode_cuda_part_ranks(struct lode_cuda_ranks *k) {
    bool failed = false;
    for (uint32_t r = 0; r < k->n; r++) {
        struct lode_error why;
        failed |= k->connected && lode_cuda_wait_ranks(k, k->runs[r], &why) < 0;
        k->runs[r]->ranks = NULL;
    }
    disconnect(k, failed);
    lode_nccl_close(&k->nccl);
    lode_free(k);
}

int lode_cuda_join(struct lode_backend *const *all, uint32_t n, struct lode_error *err) {
    struct lode_cuda_ranks *k = LODE_NEW(struct lode_cuda_ranks);
    if (!k)
        return lode_fail_nomem(err, "CUDA backend");
    *k = (struct lode_cuda_ranks){.n = n};
    for (uint32_t r = 0; r < n; r++)
        k->runs[r] = (struct run *)all[r];
    int rc = lode_nccl_open(&k->nccl, err);
    for (uint32_t r = 0; rc == 0 && r < n; r++) {
        const uint64_t available = lode_cuda_available(k->runs[r]->c);
        if (available < LODE_CUDA_JOIN_SIZE)
            rc = lode_fail(err, LODE_ERR_NOMEM, "--split-mode", "NCCL takes %d MiB, but %.1f MiB of the memory of '%s' "
                           "are free", LODE_CUDA_JOIN_SIZE >> 20, (double)available / 0x1p20, k->runs[r]->c->name);
    }
    rc = rc < 0 ? rc : connect_ranks(k, err);
    if (rc < 0) {
        lode_nccl_close(&k->nccl);
        lode_free(k);
        return rc;
    }
    for (uint32_t r = 0; r < n; r++)
        k->runs[r]->ranks = k;
    return 0;
}
