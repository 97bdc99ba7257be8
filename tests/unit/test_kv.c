/* Pages of keys and values: where the host's lie, and that a page is the same bytes wherever it lies. */
#include "store/kv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sys/mman.h>
#include <unistd.h>

enum { DEVICE = 1, N_LAYERS = 4, PAGES = 2 * LODE_KV_RUN + 1, CTX = PAGES * LODE_KV_PAGE };

/* Rows whose pages are whole pages of the system's and such whose are not; values within keys; two windows. */
static const struct lode_kv_layer layers[N_LAYERS] = {
    {.n_heads = 3, .head_dim = 64, .head_dim_v = 64, .type_k = LODE_F16, .type_v = LODE_F16},
    {.n_heads = 1, .head_dim = 32, .head_dim_v = 16, .window = 100, .type_k = LODE_F32, .type_v = LODE_BF16},
    {.n_heads = 2, .head_dim = 96, .head_dim_v = 64, .type_k = LODE_Q8_0, .v_in_k = true},
    {.n_heads = 2, .head_dim = 64, .head_dim_v = 32, .type_k = LODE_Q8_0, .type_v = LODE_F16},
};

static const struct lode_memory *const memory[LODE_PLACES] = {&lode_host_memory, &lode_host_memory};

static struct lode_kv_pool *create(uint8_t place) {
    struct lode_kv_layer at[N_LAYERS];
    struct lode_kv_pool *p;
    struct lode_error err;
    memcpy(at, layers, sizeof at);
    for (uint32_t l = 0; l < N_LAYERS; l++)
        at[l].place = place;
    const struct lode_kv_room room = {.ctx = CTX, .batch = LODE_KV_PAGE, .n_seqs = 2, .tokens = CTX};
    assert_int_equal(lode_kv_pool_create(&p, at, N_LAYERS, &room, memory, &err), 0);
    return p;
}

/* Says of every byte whose it is. */
static unsigned char mark(uint32_t layer, uint32_t head, uint32_t page, bool value, size_t i) {
    return (unsigned char)(1 + (layer * 7 + head * 31 + page * 61 + value * 101 + i * 13 + i / 256) % 255);
}

static void write_rows(const struct lode_kv_pool *p, uint32_t group, uint32_t page, uint32_t as) {
    for (uint32_t l = 0; l < N_LAYERS; l++) {
        const struct lode_kv_place *at = lode_kv_pool_place(p, l);
        for (uint32_t h = 0; at->group == group && h < layers[l].n_heads; h++) {
            char *k = lode_kv_page_keys(p, l, h, page), *v = lode_kv_page_values(p, l, h, page);
            for (size_t i = 0; i < LODE_KV_PAGE * at->v_stride; i++)
                v[i] = (char)mark(l, h, as, true, i);
            for (size_t i = 0; i < LODE_KV_PAGE * at->k_stride; i++)
                k[i] = (char)mark(l, h, as, false, i);
        }
    }
}

static void holds_rows(const struct lode_kv_pool *p, uint32_t group, uint32_t page, uint32_t as) {
    for (uint32_t l = 0; l < N_LAYERS; l++) {
        const struct lode_kv_place *at = lode_kv_pool_place(p, l);
        for (uint32_t h = 0; at->group == group && h < layers[l].n_heads; h++) {
            const char *k = lode_kv_page_keys(p, l, h, page), *v = lode_kv_page_values(p, l, h, page);
            for (size_t i = 0; i < LODE_KV_PAGE * at->k_stride; i++)
                assert_int_equal((unsigned char)k[i], mark(l, h, as, false, i));
            for (size_t i = 0; !layers[l].v_in_k && i < LODE_KV_PAGE * at->v_stride; i++)
                assert_int_equal((unsigned char)v[i], mark(l, h, as, true, i));
        }
    }
}

/* As kv.h has it for devices: layer after layer keys, then values. */
static void holds_bytes(const struct lode_kv_pool *p, uint32_t group, const unsigned char *bytes, uint32_t as) {
    size_t size = 0;
    for (uint32_t l = 0; l < N_LAYERS; l++) {
        const struct lode_kv_place *at = lode_kv_pool_place(p, l);
        if (at->group != group)
            continue;
        const size_t k = LODE_KV_PAGE * at->k_stride, v = LODE_KV_PAGE * at->v_stride;
        assert_true(at->k == size);
        assert_true(at->v == (layers[l].v_in_k ? at->k : at->k + layers[l].n_heads * k));
        for (uint32_t h = 0; h < layers[l].n_heads; h++) {
            for (size_t i = 0; i < k; i++)
                assert_int_equal(bytes[at->k + h * k + i], mark(l, h, as, false, i));
            for (size_t i = 0; !layers[l].v_in_k && i < v; i++)
                assert_int_equal(bytes[at->v + h * v + i], mark(l, h, as, true, i));
        }
        size = at->k + layers[l].n_heads * (k + (layers[l].v_in_k ? 0 : v));
    }
    assert_true(lode_kv_pool_group(p, group)->page_size == size);
}

static void *page_bytes(const struct lode_kv_pool *p, uint32_t group) {
    void *bytes = malloc(lode_kv_pool_group(p, group)->page_size);
    assert_non_null(bytes);
    return bytes;
}

static void take_all(struct lode_kv_pool *p, uint32_t group) {
    for (uint32_t page = 0; page < lode_kv_pool_group(p, group)->n_pages; page++)
        assert_int_equal(lode_kv_page_take(p, group), page);
}

/* Nothing overlaps, nothing lies outside: every page is written, then every page still is there.  The last run is
 * shorter than the others. */
static void test_apart(void **state) {
    (void)state;
    struct lode_kv_pool *p = create(LODE_HOST);
    assert_int_equal(lode_kv_pool_groups(p), 2);
    for (uint32_t g = 0; g < 2; g++) {
        const struct lode_kv_group *group = lode_kv_pool_group(p, g);
        take_all(p, g);
        assert_int_not_equal(group->n_pages % LODE_KV_RUN, 0);
        for (uint32_t page = 0; page < group->n_pages; page++)
            write_rows(p, g, page, page);
        for (uint32_t page = 0; page < group->n_pages; page++)
            holds_rows(p, g, page, page);
    }
    for (uint32_t l = 0; l < N_LAYERS; l++) {
        const struct lode_kv_group *g = lode_kv_pool_group(p, lode_kv_pool_place(p, l)->group);
        const char *end = lode_kv_page_keys(p, l, layers[l].n_heads - 1, g->n_pages - 1) +
                          LODE_KV_PAGE * lode_kv_pool_place(p, l)->k_stride;
        assert_true(end <= g->data + g->n_pages * g->page_size);
    }
    lode_kv_pool_release(p);
}

/* What decode of a head reads one after the other is one piece of memory, but from run to run. */
static void test_together(void **state) {
    (void)state;
    struct lode_kv_pool *p = create(LODE_HOST);
    for (uint32_t l = 0; l < N_LAYERS; l++) {
        const struct lode_kv_place *at = lode_kv_pool_place(p, l);
        const size_t k = LODE_KV_PAGE * at->k_stride, v = layers[l].v_in_k ? 0 : LODE_KV_PAGE * at->v_stride;
        for (uint32_t page = 0; page < lode_kv_pool_group(p, at->group)->n_pages; page++) {
            const char *keys = lode_kv_page_keys(p, l, 0, page);
            assert_ptr_equal(lode_kv_page_values(p, l, 0, page), v ? keys + k : keys);
            if (page % LODE_KV_RUN)
                assert_ptr_equal(keys, lode_kv_page_keys(p, l, 0, page - 1) + k + v);
        }
    }
    lode_kv_pool_release(p);
}

/* Between the host, bytes and a device's memory, and from page to page. */
static void test_bytes(void **state) {
    (void)state;
    struct lode_error err;
    struct lode_kv_pool *p = create(LODE_HOST), *device = create(DEVICE);
    for (uint32_t g = 0; g < 2; g++) {
        unsigned char *bytes = page_bytes(p, g), *again = page_bytes(p, g);
        const size_t size = lode_kv_pool_group(p, g)->page_size;
        const uint32_t last = lode_kv_pool_group(p, g)->n_pages - 1;
        take_all(p, g);
        take_all(device, g);
        write_rows(p, g, 1, 5);
        write_rows(p, g, 2, 6);
        assert_int_equal(lode_kv_page_read(p, g, 1, bytes, &err), 0);
        holds_bytes(p, g, bytes, 5);

        assert_int_equal(lode_kv_page_write(device, g, last, bytes, &err), 0);
        assert_int_equal(lode_kv_page_copy(device, g, 0, last, &err), 0);
        assert_int_equal(lode_kv_page_read(device, g, 0, again, &err), 0);
        assert_memory_equal(bytes, again, size);
        assert_memory_equal(bytes, lode_kv_pool_group(device, g)->data, size); /* in one piece */
        holds_rows(device, g, 0, 5); /* a device's rows, where the host can read them */

        assert_int_equal(lode_kv_page_write(p, g, last, again, &err), 0);
        holds_rows(p, g, last, 5);
        assert_int_equal(lode_kv_page_copy(p, g, 3, last, &err), 0);
        holds_rows(p, g, 3, 5);
        holds_rows(p, g, 2, 6); /* the neighbour */
        free(bytes);
        free(again);
    }
    lode_kv_pool_release(device);
    lode_kv_pool_release(p);
}

/* What nobody holds goes back to the system, and nothing else: alone, as the beginning and the end of a run, and
 * whole runs. */
static void test_trim(void **state) {
    enum { INSIDE = 4096 }; /* of a head's 8 KB of keys: the system's page there is no other head's */
    (void)state;
    struct lode_kv_pool *p = create(LODE_HOST);
    const uint32_t g = lode_kv_pool_place(p, 0)->group, n = lode_kv_pool_group(p, g)->n_pages;
    take_all(p, g);
    for (uint32_t page = 0; page < n; page++)
        write_rows(p, g, page, page);
    for (uint32_t page = 0; page < n; page++)
        if (page == 1 || page >= LODE_KV_RUN + 2)
            lode_kv_page_drop(p, g, page);
    lode_kv_pool_trim(p);
    for (uint32_t page = 0; page < n; page++)
        if (lode_kv_page_holders(p, g, page))
            holds_rows(p, g, page, page);
        else
            assert_int_equal(lode_kv_page_keys(p, 0, 0, page)[INSIDE], 0);
    for (uint32_t page = 0; page < n; page++)
        if (lode_kv_page_holders(p, g, page))
            lode_kv_page_drop(p, g, page);
    lode_kv_pool_trim(p);
    for (uint32_t page = 0; page < n; page++)
        assert_int_equal(lode_kv_page_keys(p, 0, 0, page)[INSIDE], 0);
    lode_kv_pool_release(p);
}

static bool is_resident(const char *p) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    unsigned char here = 0;
    assert_int_equal(mincore((void *)((uintptr_t)p & ~(page - 1)), 1, &here), 0);
    return here & 1;
}

/* Runs of 4 MB: what a short text does not need is not touched, whatever pages the system has, and large ones go back, too. */
static void test_large_pages(void **state) {
    enum { RUNS = 4, MIDDLE = 64 << 10 }; /* of a head's 256 KB */
    const struct lode_kv_layer layer = {.n_heads = 4, .head_dim = 512, .head_dim_v = 512, .type_k = LODE_F32, .type_v = LODE_F32};
    const struct lode_kv_room room = {.ctx = RUNS * LODE_KV_RUN * LODE_KV_PAGE, .batch = LODE_KV_PAGE, .n_seqs = 1};
    struct lode_kv_pool *p;
    struct lode_error err;
    (void)state;
    assert_int_equal(lode_kv_pool_create(&p, &layer, 1, &room, memory, &err), 0);
    take_all(p, 0);
    const uint32_t later = 2 * LODE_KV_RUN + 1;
    memset(lode_kv_page_keys(p, 0, 0, 0), 1, LODE_KV_PAGE * 4 * 512);
    assert_true(is_resident(lode_kv_page_keys(p, 0, 0, 0) + MIDDLE));
    assert_false(is_resident(lode_kv_page_keys(p, 0, 0, 1) + MIDDLE));
    assert_false(is_resident(lode_kv_page_keys(p, 0, 1, 0) + MIDDLE));
    memset(lode_kv_page_keys(p, 0, 2, later), 1, LODE_KV_PAGE * 4 * 512);
    for (uint32_t page = 0; page < RUNS * LODE_KV_RUN; page++)
        if (page != 2 * LODE_KV_RUN)
            lode_kv_page_drop(p, 0, page);
    lode_kv_pool_trim(p); /* the page before the one that was written is held, in a large one as the case may be */
    assert_int_equal(lode_kv_page_keys(p, 0, 2, later)[MIDDLE], 0);
    assert_int_equal(lode_kv_page_keys(p, 0, 0, 0)[MIDDLE], 0);
    lode_kv_page_drop(p, 0, 2 * LODE_KV_RUN);
    lode_kv_pool_trim(p);
    for (uint32_t page = 0; page < RUNS * LODE_KV_RUN; page++)
        assert_false(is_resident(lode_kv_page_values(p, 0, 1, page) + MIDDLE));
    lode_kv_pool_release(p);
}

/* A sequence finds its rows, also where its page numbers are not in order, and the page that two share is copied
 * whole by the first that writes. */
static void test_sequences(void **state) {
    (void)state;
    struct lode_error err;
    struct lode_kv_pool *p = create(LODE_HOST);
    struct lode_kv *a, *b;
    size_t stride;
    assert_int_equal(lode_kv_open(&a, p, &err), 0);
    assert_int_equal(lode_kv_open(&b, p, &err), 0);
    const uint32_t n = 2 * LODE_KV_PAGE + 5;
    for (uint32_t pos = 0; pos < n; pos++)
        assert_int_equal(lode_kv_extend(a, pos, 1, &err), 0);
    for (uint32_t g = 0; g < 2; g++)
        for (uint32_t page = 0; page < 3; page++)
            write_rows(p, g, lode_kv_page(a, g, page), page);
    lode_kv_fork(b, a);
    assert_int_equal(lode_kv_extend(b, n, 1, &err), 0);
    for (uint32_t g = 0; g < 2; g++) {
        assert_int_equal(lode_kv_page(a, g, 1), lode_kv_page(b, g, 1));
        assert_int_not_equal(lode_kv_page(a, g, 2), lode_kv_page(b, g, 2));
        for (uint32_t page = 0; page < 3; page++)
            holds_rows(p, g, lode_kv_page(b, g, page), page);
    }
    for (uint32_t l = 0; l < N_LAYERS; l++) {
        const unsigned char *k = lode_kv_k(b, l, layers[l].n_heads - 1, 2, &stride);
        assert_true(stride == lode_kv_pool_place(p, l)->k_stride);
        assert_int_equal(k[3 * stride], mark(l, layers[l].n_heads - 1, 2, false, 3 * stride));
        const unsigned char *v = lode_kv_v(b, l, 0, 1, &stride);
        assert_true(stride == lode_kv_pool_place(p, l)->v_stride);
        assert_int_equal(v[stride], mark(l, 0, 1, !layers[l].v_in_k, stride));
    }
    lode_kv_free(a);
    lode_kv_free(b);
    lode_kv_pool_release(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_apart), cmocka_unit_test(test_together), cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_trim),  cmocka_unit_test(test_large_pages), cmocka_unit_test(test_sequences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
