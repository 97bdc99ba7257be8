#include "kc.h"
#include "base/half.h"
#include "kc_run.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

const size_t kc_lengths[KC_N_LENGTHS] = {0,   1,   2,   3,   5,    7,    8,    9,    15,   16,  17,
                                         24,  31,  32,  33,  47,   48,   49,   63,   64,   65,  79,
                                         80,  96,  127, 128, 129,  160,  255,  256,  257,  288, 333,
                                         511, 512, 513, 576, 1000, 1024, 1025, 2048, 4099, 5120};

/* --- buffers ------------------------------------------------------------------------------- */

struct kc_buffer {
    void *base;
    size_t size;
};

static void release(struct kc_state *s, size_t mark) {
    while (s->n_buffers > mark) {
        s->n_buffers--;
        munmap(s->buffers[s->n_buffers].base, s->buffers[s->n_buffers].size);
    }
}

void *kc_tight_aligned(struct kc *t, size_t size, size_t align) {
    struct kc_state *s = t->state;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t room = size + s->slack, body = (room + page - 1) / page * page;
    if (s->n_buffers == s->cap_buffers) {
        s->cap_buffers = s->cap_buffers ? s->cap_buffers * 2 : 64;
        s->buffers = realloc(s->buffers, s->cap_buffers * sizeof *s->buffers);
    }
    char *base =
        mmap(NULL, body + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!s->buffers || base == MAP_FAILED) {
        perror("kerncheck: memory");
        exit(2);
    }
    mprotect(base, page, PROT_NONE);
    mprotect(base + page + body, page, PROT_NONE);
    s->buffers[s->n_buffers++] = (struct kc_buffer){base, body + 2 * page};
    char *p = base + page + (s->side == KC_END ? (body - room) / align * align : 0);
    if (!t->bench) {
        for (size_t i = 0; i + 8 <= size; i += 8)
            memcpy(p + i, &(uint64_t){kc_bits(t)}, 8);
    } else {
        memset(p, 0, size); /* real pages, not the one page of zeros */
    }
    return p;
}

void *kc_tight(struct kc *t, size_t size) { return kc_tight_aligned(t, size, 1); }

struct kc_loop kc_loop(struct kc *t, const size_t *list, size_t count) {
    const size_t one_of = count > 2 ? t->state->one_of : 1;
    const size_t first = one_of > 1 ? kc_below(t, one_of < count ? one_of : count) : 0;
    return (struct kc_loop){list, count, first, t->state->n_buffers, t->bench, one_of};
}

bool kc_next(struct kc *t, struct kc_loop *l, size_t *n) {
    release(t->state, l->mark);
    if (l->i == l->count || t->state->n_errors >= KC_MAX_ERRORS)
        return false;
    *n = l->list[l->i];
    l->i += l->one_of > 1 ? 1 + kc_below(t, 2 * l->one_of - 1) : 1;
    if (l->i > l->count)
        l->i = l->count;
    return true;
}

/* --- random numbers ------------------------------------------------------------------------ */

uint64_t kc_bits(struct kc *t) { /* splitmix64 */
    uint64_t z = t->state->rng += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

size_t kc_below(struct kc *t, size_t n) { return (size_t)(kc_bits(t) % n); }
double kc_uniform(struct kc *t) { return (double)(kc_bits(t) >> 11) * 0x1p-53; }

float kc_normal(struct kc *t) { /* four uniforms of 16 bits: near enough */
    const uint64_t bits = kc_bits(t), some = 0xffff;
    const uint64_t sum = (bits & some) + (bits >> 16 & some) + (bits >> 32 & some) + (bits >> 48);
    return (float)(((double)sum * 0x1p-16 - 2) * 1.7320508075688772); /* times the root of 12 / 4 */
}

float kc_float(struct kc *t, enum kc_kind kind) {
    static const float special[] = {
        0.0f,       -0.0f,     1.0f,      -1.0f,      INFINITY, -INFINITY, NAN,      0x1p-149f,
        -0x1p-149f, 0x1p-126f, 0x1p-24f,  -0x1p-30f,  3.4e38f,  -3.4e38f,  65504.0f, 65520.0f,
        -70000.f,   0x1p-15f,  88.72284f, -103.9721f, 89.5f,    -87.5f,    9.02f,    -9.5f};
    switch (kind) {
    case KC_WIDE:
        return ldexpf((float)(1 + kc_uniform(t)), (int)kc_below(t, 80) - 40) *
               (kc_bits(t) & 1 ? 1 : -1);
    case KC_SPECIAL:
        if (kc_below(t, 40) == 0) /* a NaN of any payload, quiet or not */
            return lode_bits_f32((uint32_t)kc_bits(t) | 0x7f800001);
        if (kc_below(t, 3) == 0)
            return special[kc_below(t, sizeof special / sizeof *special)];
        return kc_normal(t);
    case KC_NORMAL:
        break;
    }
    return kc_normal(t);
}

void kc_fill(struct kc *t, float *x, size_t n, enum kc_kind kind) {
    for (size_t i = 0; i < n; i++) {
        const float f = kc_float(t, kind);
        memcpy((char *)x + i * sizeof f, &f, sizeof f);
    }
}

float *kc_floats(struct kc *t, size_t n, enum kc_kind kind) {
    float *x = kc_tight(t, n * sizeof *x);
    kc_fill(t, x, n, kind);
    return x;
}

/* --- judging ------------------------------------------------------------------------------- */

void kc_case(struct kc *t, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(t->state->what, sizeof t->state->what, fmt, ap);
    va_end(ap);
}

__attribute__((format(printf, 2, 3))) static bool fail(struct kc *t, const char *fmt, ...) {
    struct kc_state *s = t->state;
    if (s->n_errors++ >= KC_MAX_ERRORS)
        return false;
    fprintf(stderr, "FAIL %s %s [%s]: ", s->name, t->now->isa, s->what);
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "; again: kerncheck %s--seed %llu %s\n", kc_sizes_flag(s), (unsigned long long)s->seed, s->name);
    return false;
}

bool kc_of_ref(const struct kc *t) { return t->now == t->ref && t->state->side == KC_END; }

bool kc_same(struct kc *t, float got, float want, size_t at) {
    if (lode_f32_bits(got) == lode_f32_bits(want) || (isnan(got) && isnan(want)))
        return true;
    return fail(t, "number %zu is %a, scalar has %a", at, (double)got, (double)want);
}

bool kc_same_floats(struct kc *t, const float *got, const float *want, size_t n) {
    bool same = true;
    for (size_t i = 0; i < n && same; i++) /* one message an array */
        same = kc_same(t, got[i], want[i], i);
    return same;
}

bool kc_same_bytes(struct kc *t, const void *got, const void *want, size_t n) {
    const unsigned char *g = got, *w = want;
    for (size_t i = 0; i < n; i++)
        if (g[i] != w[i])
            return fail(t, "byte %zu of %zu is %02x, scalar has %02x", i, n, g[i], w[i]);
    return true;
}

bool kc_near(struct kc *t, double got, double exact, double bound, size_t at) {
    if ((isnan(got) && isnan(exact)) || got == exact || fabs(got - exact) <= bound)
        return true;
    return fail(t, "at %zu: %.9g, exact %.9g, distance %.3g, bound %.3g", at, got, exact,
                fabs(got - exact), bound);
}

bool kc_true(struct kc *t, bool holds, const char *what) { return holds || fail(t, "%s", what); }

/* --- timing -------------------------------------------------------------------------------- */

/* Of this thread: a busy neighbour then costs cache and memory bandwidth, but not its time too. */
static double now_s(void) {
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

enum { ROUNDS = 7 };
static const double batch_s = 0.02;   /* a batch lasts at least this long, or one call */
static const double scalar_ops = 4e9; /* more of them than this take the scalar kernel too long */

struct kc_timer kc_timer(struct kc *t, const char *label, double bytes, double ops) {
    struct kc_timer m = {.t = t, .label = label, .bytes = bytes, .ops = ops, .best = INFINITY};
    if (!t->bench) {
        m.left = t->state->side == KC_END ? 1 : 0; /* once a check is enough */
        m.round = ROUNDS;
    } else if (t->now == t->ref && ops > scalar_ops) {
        m.round = ROUNDS;
    } else {
        m.left = m.batch = 1;
        m.round = -1; /* finding the batch size */
        m.start = now_s();
    }
    return m;
}

static void report(const struct kc_timer *m) {
    struct kc_state *s = m->t->state;
    const double ns = m->best * 1e9;
    if (m->t->now == m->t->ref && s->n_scalar < KC_MAX_TIMES)
        s->scalar[s->n_scalar++] = (struct kc_time){m->label, ns};
    double ratio = NAN;
    for (size_t i = 0; i < s->n_scalar; i++)
        if (strcmp(s->scalar[i].label, m->label) == 0)
            ratio = s->scalar[i].ns / ns;
    printf("%-14s %-22s %-11s %12.1f ns %8.2f GB/s %8.2f GOPS", s->name, m->label, m->t->now->isa,
           ns, m->bytes / ns, m->ops / ns);
    if (isnan(ratio))
        printf("\n");
    else
        printf(" %7.2f x scalar\n", ratio);
    fflush(stdout);
}

bool kc_timer_next(struct kc_timer *m) {
    if (m->round == ROUNDS)
        return false;
    const double each = (now_s() - m->start) / (double)m->batch;
    if (m->round < 0 && each * (double)m->batch < batch_s) {
        m->batch *= 2;
    } else {
        m->round++;
        m->best = fmin(m->best, each);
        if (m->round == ROUNDS) {
            report(m);
            return false;
        }
    }
    m->left = m->batch - 1; /* this one counts */
    m->start = now_s();
    return true;
}

/* --- one check ----------------------------------------------------------------------------- */

static uint64_t name_hash(const char *name) { /* FNV-1a */
    uint64_t h = 0xcbf29ce484222325u;
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    return h;
}

bool kc_run(struct kc *t, const char *name, kc_check *check) {
    struct kc_state *s = t->state;
    s->name = name;
    s->n_errors = 0;
    for (int side = KC_END; side <= KC_START; side++) {
        s->side = (enum kc_side)side;
        s->rng = s->seed ^ name_hash(name);
        s->what[0] = 0;
        check(t);
        release(s, 0);
        if (t->bench)
            break;
    }
    return s->n_errors == 0;
}
