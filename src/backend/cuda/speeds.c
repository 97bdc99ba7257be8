/* speeds.c - how fast a device reads and copies its memory, and what comes from the host. */
#include "backend/cuda/cuda.h"

#include "base/clock.h"

enum { PROBE = 256 << 20, TIMES = 8 };

struct probe {
    const struct lode_cuda *c;
    lode_dev at;
    uint64_t size; /* there; where it is read so much that the second cache is a small part of it */
    void *host;    /* PROBE bytes, pinned */
    void *stream;
};

static int read_all(const struct probe *p, struct lode_error *err) {
    const struct lode_cuda_reads_args a = {.at = p->at, .n = p->size / 16};
    return lode_cuda_launch(p->c, p->stream, p->c->kernels.reads, (uint32_t)p->c->multiprocessors * 64, 1, 1,
                            LODE_READS_THREADS, 0, &a, err);
}

static int copy_some(const struct probe *p, struct lode_error *err) {
    return lode_cu_check(&p->c->cu, p->c->cu.copy(p->at, p->at + PROBE, PROBE, p->stream), "speed", err);
}

static int send_some(const struct probe *p, struct lode_error *err) {
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

/* `least` bytes of the device's memory, or half of what is free, up to `most`; and of the host's what is sent. */
static int begin(struct probe *p, struct lode_cuda *c, uint64_t least, uint64_t most, struct lode_error *err) {
    const struct lode_cu *cu = &c->cu;
    *p = (struct probe){.c = c, .size = least};
    LODE_TRY(lode_cuda_enter(c, err));
    const uint64_t free = lode_cuda_available(c);
    while (p->size < most && 4 * p->size <= free)
        p->size *= 2;
    LODE_TRY(lode_cuda_take(c, &p->at, p->size, "speed", "measured reads and copies", err));
    LODE_TRY(lode_cuda_take_pinned(c, &p->host, PROBE, err));
    return lode_cu_check(cu, cu->stream_create(&p->stream, 1 /* non-blocking */), "speed", err);
}

static void end(struct probe *p) {
    const struct lode_cu *cu = &p->c->cu;
    if (p->stream)
        cu->stream_destroy(p->stream);
    if (p->at)
        cu->free(p->at);
    if (p->host)
        cu->host_free(p->host);
}

int lode_cuda_speeds(struct lode_cuda *c, struct lode_device_speeds *out, struct lode_error *err) {
    struct probe p;
    *out = (struct lode_device_speeds){0};
    int rc = begin(&p, c, 2ull * PROBE, 4ull << 30, err);
    if (rc == 0)
        rc = measure(&p, read_all, (double)p.size, 4, &out->read, err);
    if (rc == 0) /* each byte is read and written */
        rc = measure(&p, copy_some, 2.0 * PROBE, 1, &out->copy, err);
    if (rc == 0)
        rc = measure(&p, send_some, PROBE, 1, &out->bus, err);
    end(&p);
    return rc;
}

int lode_cuda_bus_speed(struct lode_cuda *c, double *bus, struct lode_error *err) {
    struct probe p;
    *bus = 0;
    int rc = begin(&p, c, PROBE, PROBE, err);
    if (rc == 0)
        rc = measure(&p, send_some, PROBE, 1, bus, err);
    end(&p);
    return rc;
}
