/* speeds.c - how fast a device reads and copies its memory, and what comes from the host. */
#include "backend/cuda/cuda.h"

#include "base/clock.h"

enum { PROBE = 256 << 20, TIMES = 8 };

struct probe {
    const struct lode_cuda *c;
    lode_dev at;
    uint64_t size; /* there: 2 PROBE or more, so much that the second cache is a small part of it */
    void *host;  /* PROBE bytes, pinned */
    void *stream;
};

static int read_all(const struct probe *p, struct lode_error *err) {
    const struct lode_cuda_reads_args a = {.at = p->at, .n = p->size / 16};
    return lode_cuda_launch(p->c, p->stream, p->c->kernels.reads, (uint32_t)p->c->multiprocessors * 64, 1, 1,
                            LODE_READS_THREADS, 0, &a, err);
}

static int copy_half(const struct probe *p, struct lode_error *err) {
    return lode_cu_check(&p->c->cu, p->c->cu.copy(p->at, p->at + PROBE, PROBE, p->stream), "speed", err);
}

static int send_half(const struct probe *p, struct lode_error *err) {
    return lode_cu_check(&p->c->cu, p->c->cu.to_device(p->at, p->host, PROBE, p->stream), "speed", err);
}

/* Bytes/s of what moves so many at a time: TIMES of it asked for at once and timed together, the best of some rounds. */
static int measure(const struct probe *p, int (*once)(const struct probe *, struct lode_error *), double bytes, int rounds,
                   double *speed, struct lode_error *err) {
    LODE_TRY(once(p, err)); /* wakes it up */
    for (int r = 0; r < rounds; r++) {
        LODE_TRY(lode_cu_check(&p->c->cu, p->c->cu.stream_wait(p->stream), "speed", err));
        const double start = lode_clock();
        for (int i = 0; i < TIMES; i++)
            LODE_TRY(once(p, err));
        LODE_TRY(lode_cu_check(&p->c->cu, p->c->cu.stream_wait(p->stream), "speed", err));
        const double v = bytes * TIMES / (lode_clock() - start);
        *speed = v > *speed ? v : *speed;
    }
    return 0;
}

/* Half of what is free, up to 4 GiB. */
static uint64_t probe_size(const struct lode_cuda *c) {
    const uint64_t free = lode_cuda_available(c);
    uint64_t size = 2ull * PROBE;
    while (size < 4ull << 30 && 4 * size <= free)
        size *= 2;
    return size;
}

int lode_cuda_speeds(struct lode_cuda *c, struct lode_device_speeds *out, struct lode_error *err) {
    struct probe p = {.c = c, .size = probe_size(c)};
    *out = (struct lode_device_speeds){0};
    LODE_TRY(lode_cuda_enter(c, err));
    int rc = c->cu.alloc(&p.at, p.size) || c->cu.host_alloc(&p.host, PROBE, 0)
                 ? lode_fail(err, LODE_ERR_NOMEM, "speed", "%d MiB twice, to read and to copy between, are not free", PROBE >> 20)
                 : lode_cu_check(&c->cu, c->cu.stream_create(&p.stream, 1 /* non-blocking */), "speed", err);
    if (rc == 0)
        rc = measure(&p, read_all, (double)p.size, 4, &out->read, err);
    if (rc == 0) /* each byte is read and written */
        rc = measure(&p, copy_half, 2.0 * PROBE, 1, &out->copy, err);
    if (rc == 0)
        rc = measure(&p, send_half, PROBE, 1, &out->bus, err);
    if (p.stream)
        c->cu.stream_destroy(p.stream);
    if (p.at)
        c->cu.free(p.at);
    if (p.host)
        c->cu.host_free(p.host);
    return rc;
}
