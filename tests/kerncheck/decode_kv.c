/* decode_kv.c - attention of one position to a long context, as attention.c of the CPU backend goes through
 * it: keys and values of 128 numbers a head, from memory, in pages that lie as kv_pool.c has them.
 *
 * The names are kv_f16, kv_q8_0, ...  A KV head is a task, shared by one, two or four query heads.
 */
#include "decode.h"

#include "base/alloc.h"
#include "store/kv_pool.h"

#include <stdio.h>
#include <string.h>

/* RUN pages of a head follow one another, then come the other heads'. */
enum { DIM = 128, PAGE = LODE_KV_PAGE, RUN = LODE_KV_RUN, HEADS = 128, MOST = 4 };

struct heads {
    const struct lode_kern *kern;
    enum lode_dtype type;
    size_t row;       /* bytes */
    uint32_t queries; /* that share a KV head */
    uint32_t pages;   /* of each head, a multiple of RUN */
    const char *data;
    const float *q; /* (MOST, DIM) */
};

static const char *piece(const struct heads *h, uint32_t head, uint32_t page) {
    const size_t size = 2 * PAGE * h->row;
    return h->data + ((size_t)(page / RUN * HEADS + head) * RUN + page % RUN) * size;
}

static void attend(void *arg, uint32_t head, uint32_t worker) {
    const struct heads *h = arg;
    const struct lode_kern *k = h->kern;
    float s[MOST * PAGE], part[MOST * DIM], sum[MOST * DIM], max[MOST], total[MOST];
    uint32_t lo[MOST] = {0}, hi[MOST];
    (void)worker;
    memset(sum, 0, sizeof sum);
    for (uint32_t i = 0; i < MOST; i++)
        hi[i] = PAGE;
    for (uint32_t page = 0; page < h->pages; page++) {
        const char *keys = piece(h, head, page), *values = keys + PAGE * h->row;
        const char *next = page + 1 < h->pages ? piece(h, head, page + 1) : NULL;
        k->kv_score[h->type](s, PAGE, h->q, DIM, h->queries, keys, h->row, PAGE, DIM, values);
        for (uint32_t i = 0; i < h->queries; i++)
            k->softmax_part(s + i * PAGE, PAGE, 0.1f, 0, &max[i], &total[i]);
        k->kv_mix[h->type](part, DIM, s, PAGE, lo, hi, h->queries, values, h->row, DIM, next);
        for (uint32_t i = 0; i < h->queries; i++)
            k->axpy(sum + i * DIM, part + i * DIM, total[i], DIM);
    }
}

static void fill(struct kc *t, struct heads *h, char *data) {
    const size_t page = 2 * PAGE * h->row, pages = (size_t)HEADS * h->pages;
    float x[DIM];
    for (int i = 0; i < DIM; i++)
        x[i] = (float)(kc_bits(t) % 2001) / 1000.0f - 1.0f;
    for (int i = 0; i < 2 * PAGE; i++)
        t->now->kv_put[h->type](data + i * h->row, x, DIM);
    for (size_t i = 1; i < pages; i++)
        memcpy(data + i * page, data, page);
}

int kc_decode_kv(struct kc *t, struct lode_pool *pool, enum lode_dtype type, bool head) {
    struct heads of[KC_PASSES] = {{.kern = t->now, .type = type}};
    struct kc_pass pass[KC_PASSES];
    struct kc_rounds got;
    float q[MOST * DIM];
    lode_dtype_row_size(type, DIM, &of[0].row);
    of[0].pages = (uint32_t)(KC_DECODE_SIZE / (HEADS * RUN * 2 * PAGE * of[0].row) * RUN);
    const size_t size = (size_t)HEADS * of[0].pages * 2 * PAGE * of[0].row;
    char *data = lode_alloc_large(size, 1); /* as kv_pool.c has all but a short text's */
    if (!data)
        return -1;
    for (int i = 0; i < MOST * DIM; i++)
        q[i] = (float)(kc_bits(t) % 2001) / 1000.0f - 1.0f;
    of[0].data = data;
    of[0].q = q;
    fill(t, &of[0], data);
    for (int i = 0; i < KC_PASSES; i++) {
        of[i] = of[0];
        of[i].queries = 1u << i;
        pass[i] = (struct kc_pass){attend, &of[i], HEADS, (double)size};
    }
    kc_rounds(&got, pool, pass);
    if (head)
        puts("\n| keys and values | reads, GB/s | of 1 query, GB/s | of reads | of 2 | of reads | of 4 | of reads |\n"
             "| --- | --- | --- | --- | --- | --- | --- | --- |");
    printf("| %-8s | %7.1f ", lode_dtypes[type].name, got.reads.median / 1e9);
    for (int i = 0; i < KC_PASSES; i++)
        printf("| %7.1f | %3.0f %% (%.0f-%.0f) ", got.speed[i].median / 1e9, 100 * got.share[i].median,
               100 * got.share[i].low, 100 * got.share[i].high);
    puts("|");
    fflush(stdout);
    lode_free_aligned(data);
    return 0;
}
