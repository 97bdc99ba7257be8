/* bring.c - experts on their way to a device: to a half of its double buffer, and from there to slots or to where they are
 * computed with once. */
#include "backend/cuda/aside.h"

#include <string.h>

enum {
    HALF = 24 << 20,   /* bytes of a half, but one expert at least */
    PIECE = 256 << 10, /* bytes that a thread copies at a time */
};

/* Between matrices of a half lies what aligns them. */
uint64_t aside_half_size(const struct lode_cuda_aside_opts *o) {
    const uint64_t one = aside_up(o->raw > o->slot ? o->raw : o->slot, ASIDE_ALIGN) + 6 * ASIDE_ALIGN;
    const uint64_t n = HALF / one;
    return one * (n < 1 ? 1 : n > ASIDE_HALF_MOST ? ASIDE_HALF_MOST : n);
}

struct places aside_places(const struct lode_cuda_kind *k, uint32_t n) {
    struct places p = {0};
    for (int i = 0; i < 6; i++) {
        p.size[i] = i < 3 ? k->raw[i] : k->bias_size[i - 3];
        p.step[i] = i < 3 ? aside_up(p.size[i], ASIDE_ALIGN) : p.size[i];
        p.at[i] = aside_up(p.end, ASIDE_ALIGN);
        p.end = p.at[i] + n * p.step[i];
    }
    return p;
}

uint32_t aside_half_room(const struct aside *a, const struct lode_cuda_kind *k) {
    uint32_t n = ASIDE_HALF_MOST;
    while (n > 1) {
        uint64_t laid = 0;
        for (int i = 0; i < 3; i++)
            laid += n * k->size[i];
        if (aside_places(k, n).end <= a->half_size && laid <= a->half_size)
            break;
        n--;
    }
    return n;
}

struct copying {
    const struct wanted *experts;
    struct places p;
    uint32_t pieces[3], all; /* of a matrix; of an expert */
    char *to;
};

static void copy_piece(void *arg, uint32_t task, uint32_t worker) {
    const struct copying *c = arg;
    const uint32_t i = task / c->all;
    uint32_t piece = task % c->all, m = 0;
    (void)worker;
    while (piece >= c->pieces[m])
        piece -= c->pieces[m++];
    const uint64_t at = (uint64_t)piece * PIECE, left = c->p.size[m] - at;
    memcpy(c->to + c->p.at[m] + i * c->p.step[m] + at, c->experts[i].w[m] + at, left < PIECE ? left : PIECE);
}

static void copy_biases(const struct aside *a, const struct wanted *experts, uint32_t n, const struct places *p,
                        char *to) {
    for (int m = 0; m < 3; m++)
        for (uint32_t i = 0; p->size[3 + m] && i < n; i++) {
            const struct lode_part *part = &a->job.in->parts[m];
            memcpy(to + p->at[3 + m] + i * p->step[3 + m],
                   (const float *)part->bias_data + (size_t)experts[i].expert * part->w->rows, p->size[3 + m]);
        }
}

int aside_send(struct aside *a, struct half *h, const struct wanted *experts, uint32_t n,
                const struct lode_aside_host *host, struct lode_error *err) {
    const struct lode_cu *cu = &a->c->cu;
    const struct places p = aside_places(a->kept->kind, n);
    LODE_TRY(lode_cuda_half_open(a->c, h, a->copies, err));
    copy_biases(a, experts, n, &p, h->host);
    if (host) {
        struct copying c = {.experts = experts, .p = p, .to = h->host};
        for (int m = 0; m < 3; m++)
            c.all += c.pieces[m] = (uint32_t)((p.size[m] + PIECE - 1) / PIECE);
        host->each(host->user, copy_piece, &c, n * c.all);
        LODE_TRY(lode_cu_check(cu, cu->to_device(h->raw, h->host, p.end, a->copies), "experts", err));
    } else {
        for (int m = 0; m < 3; m++)
            for (uint32_t i = 0; i < n; i++)
                LODE_TRY(lode_cu_check(cu, cu->to_device(h->raw + p.at[m] + i * p.step[m], experts[i].w[m], p.size[m],
                                                         a->copies),
                                       "experts", err));
        if (p.end > p.at[3])
            LODE_TRY(lode_cu_check(cu, cu->to_device(h->raw + p.at[3], h->host + p.at[3], p.end - p.at[3], a->copies),
                                   "experts", err));
    }
    return lode_cuda_half_sent(a->c, h, a->copies, err);
}

int aside_lay_out(struct aside *a, void *stream, const struct half *h, uint32_t i, uint32_t n, uint32_t n_all,
                   const lode_dev to[3], struct lode_error *err) {
    const struct lode_cuda_kind *k = a->kept->kind;
    const struct places p = aside_places(k, n_all);
    for (int m = 0; m < 3; m++) {
        const struct lode_operand *w = k->w[m];
        const bool whole = p.step[m] == p.size[m] && k->size[m] == lode_cuda_row_size(w->type, w->cols) * w->rows;
        const uint32_t at_once = whole ? n : 1;
        for (uint32_t j = 0; j < n; j += at_once)
            LODE_TRY(lode_cuda_repack(a->c, stream, w->type, w->cols, h->raw + p.at[m] + (i + j) * p.step[m],
                                      to[m] + j * k->size[m], (uint64_t)at_once * w->rows, err));
    }
    return 0;
}

int aside_lay_in_slot(struct aside *a, void *stream, const struct half *h, uint32_t i, uint32_t n_all, uint32_t slot,
                       struct lode_error *err) {
    const struct lode_cuda_kind *k = a->kept->kind;
    const struct lode_cu *cu = &a->c->cu;
    const struct places p = aside_places(k, n_all);
    lode_dev to[3];
    for (int m = 0; m < 3; m++) {
        to[m] = k->at[m] + slot * k->size[m];
        if (k->biased[m])
            LODE_TRY(lode_cu_check(cu, cu->copy(k->bias_at[m] + slot * k->bias_size[m],
                                                h->raw + p.at[3 + m] + i * p.step[3 + m], k->bias_size[m], stream),
                                   "experts", err));
    }
    return aside_lay_out(a, stream, h, i, 1, n_all, to, err);
}
