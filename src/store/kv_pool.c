#include "store/kv_pool.h"

#include "base/alloc.h"

#include <assert.h>
#include <string.h>

struct pages { /* of a group */
    uint32_t *holders; /* owned; (n_pages): how many hold it */
    uint32_t *free;    /* owned; (n_free of n_pages) */
};

struct lode_kv_pool {
    uint32_t refs;
    const struct lode_memory *memory[LODE_PLACES]; /* of the pages */
    uint32_t n_layers, n_groups;
    struct lode_kv_layer *layers; /* owned; (n_layers) */
    struct lode_kv_place *places; /* owned; (n_layers) */
    struct lode_kv_group *groups; /* owned; (n_layers), n_groups in use, as the next */
    struct pages *pages;
};

static uint64_t pages_for(uint64_t positions) { return (positions + LODE_KV_PAGE - 1) / LODE_KV_PAGE; }

/* A window w and a step of b rows reach from the page of the oldest visible position to that of
 * the newest row: w + b - 1 positions, which touch at most this many pages. */
static uint32_t entries_for(uint32_t window, const struct lode_kv_room *r) {
    const uint32_t all = (uint32_t)pages_for(r->ctx);
    if (!window)
        return all;
    const uint64_t ring = ((uint64_t)window + r->batch + LODE_KV_PAGE - 2) / LODE_KV_PAGE + 1;
    return ring < all ? (uint32_t)ring : all;
}

/* Windows need a ring for each sequence; a quarter of what full attention has is for the windows
 * that caches keep. */
static uint64_t n_pages_for(const struct lode_kv_group *g, const struct lode_kv_room *r) {
    const uint64_t n_seqs = r->n_seqs ? r->n_seqs : 1;
    const uint64_t tokens = r->tokens ? r->tokens : n_seqs * r->ctx;
    const uint64_t all = pages_for(tokens), least = g->n_entries;
    uint64_t n = n_seqs * g->n_entries;
    if (n_seqs > 1 || r->tokens)
        n += all / 4;
    if (!g->window || n > all)
        n = all;
    return n > least ? n : least;
}

static int row_size(enum lode_dtype type, uint32_t width, const char *flag, const char *what,
                    size_t *out, struct lode_error *err) {
    if (lode_dtype_row_size(type, width, out))
        return 0;
    return lode_fail(err, LODE_ERR_UNSUPPORTED, flag,
                     "a %s of %u numbers can't be kept as %s (blocks of %u): use f16", what, width,
                     lode_dtypes[type].name, lode_dtypes[type].block);
}

static int lay_out(struct lode_kv_pool *p, const struct lode_kv_room *room, struct lode_error *err) {
    for (uint32_t l = 0; l < p->n_layers; l++) {
        const struct lode_kv_layer *layer = &p->layers[l];
        struct lode_kv_place *at = &p->places[l];
        uint32_t i = 0;
        while (i < p->n_groups &&
               (p->groups[i].window != layer->window || p->groups[i].place != layer->place))
            i++;
        struct lode_kv_group *g = &p->groups[i];
        if (i == p->n_groups) {
            p->n_groups++;
            g->window = layer->window;
            g->place = layer->place;
            g->n_entries = entries_for(layer->window, room);
            const uint64_t n = n_pages_for(g, room);
            if (n >= LODE_KV_NONE)
                return lode_fail(err, LODE_ERR_LIMIT, "-c", "%llu pages of keys and values are too many",
                                 (unsigned long long)n);
            g->n_pages = (uint32_t)n;
        }
        at->group = i;
        LODE_TRY(row_size(layer->type_k, layer->head_dim, "-ctk", "key", &at->k_stride, err));
        LODE_TRY(row_size(layer->type_v, layer->head_dim_v, "-ctv", "value", &at->v_stride, err));
        at->k = g->page_size;
        g->page_size = at->k + at->k_stride * LODE_KV_PAGE * layer->n_heads;
        if (layer->v_in_k) {
            at->v = at->k;
            at->v_stride = at->k_stride;
        } else {
            at->v = g->page_size;
            g->page_size += at->v_stride * LODE_KV_PAGE * layer->n_heads;
        }
        g->page_size = (g->page_size + 63) & ~(size_t)63;
    }
    return 0;
}

static int describe(struct lode_kv_pool **out, const struct lode_kv_layer *layers, uint32_t n_layers,
                    const struct lode_kv_room *room, struct lode_error *err) {
    struct lode_kv_pool *p = LODE_NEW(struct lode_kv_pool);
    *out = p;
    if (!p)
        return lode_fail_nomem(err, "KV cache");
    p->refs = 1;
    p->layers = LODE_NEW_ARRAY(struct lode_kv_layer, n_layers);
    p->places = LODE_NEW_ARRAY(struct lode_kv_place, n_layers);
    p->groups = LODE_NEW_ARRAY(struct lode_kv_group, n_layers);
    p->pages = LODE_NEW_ARRAY(struct pages, n_layers);
    if (!p->layers || !p->places || !p->groups || !p->pages)
        return lode_fail_nomem(err, "KV cache");
    p->n_layers = n_layers;
    memcpy(p->layers, layers, n_layers * sizeof *layers);
    for (uint32_t l = 0; l < n_layers; l++)
        if (layers[l].v_in_k)
            p->layers[l].type_v = layers[l].type_k;
    return lay_out(p, room, err);
}

static uint64_t group_size(const struct lode_kv_group *g) {
    return (uint64_t)g->n_pages * g->page_size;
}

int lode_kv_pool_size(const struct lode_kv_layer *layers, uint32_t n_layers,
                      const struct lode_kv_room *room, uint64_t bytes[LODE_PLACES],
                      struct lode_error *err) {
    struct lode_kv_pool *p;
    const int rc = describe(&p, layers, n_layers, room, err);
    memset(bytes, 0, LODE_PLACES * sizeof *bytes);
    for (uint32_t i = 0; rc == 0 && i < p->n_groups; i++)
        bytes[p->groups[i].place] += group_size(&p->groups[i]);
    lode_kv_pool_release(p);
    return rc;
}

/* A long text's keys and values come faster from large pages; a short one's, the first run's, take no more than they need.  What is given back
 * beside what is held the system may fill again, up to the group's size at most, which plans count whole. */
static void use_large_pages(const struct lode_kv_group *g) {
    if (g->place == LODE_HOST && g->data && g->n_pages > LODE_KV_RUN)
        lode_alloc_use_large(g->data + LODE_KV_RUN * g->page_size, (g->n_pages - LODE_KV_RUN) * g->page_size);
}

int lode_kv_pool_create(struct lode_kv_pool **out, const struct lode_kv_layer *layers,
                        uint32_t n_layers, const struct lode_kv_room *room,
                        const struct lode_memory *const memory[LODE_PLACES],
                        struct lode_error *err) {
    struct lode_kv_pool *p;
    int rc = describe(&p, layers, n_layers, room, err);
    if (p)
        memcpy(p->memory, memory, sizeof p->memory);
    for (uint32_t i = 0; rc == 0 && i < p->n_groups; i++) {
        struct lode_kv_group *g = &p->groups[i];
        struct pages *pages = &p->pages[i];
        g->data = memory[g->place]->alloc(memory[g->place], 4096, g->n_pages, g->page_size);
        pages->holders = LODE_NEW_ARRAY(uint32_t, g->n_pages);
        pages->free = LODE_NEW_ARRAY(uint32_t, g->n_pages);
        if ((!g->data && group_size(g)) || !pages->holders || !pages->free) {
            rc = lode_fail(err, LODE_ERR_NOMEM, "-c",
                           "keys and values of %u tokens need %.1f MiB at once: use a smaller "
                           "context",
                           room->ctx, (double)group_size(g) / 0x1p20);
            break;
        }
        use_large_pages(g);
        for (uint32_t n = 0; n < g->n_pages; n++)
            pages->free[g->n_free++] = g->n_pages - 1 - n; /* low pages are used first */
    }
    if (rc < 0) {
        lode_kv_pool_release(p);
        p = NULL;
    }
    *out = p;
    return rc;
}

static const struct lode_memory *memory_of(const struct lode_kv_pool *p, uint32_t group) {
    return p->memory[p->groups[group].place];
}

struct lode_kv_pool *lode_kv_pool_share(struct lode_kv_pool *p) {
    p->refs++;
    return p;
}

void lode_kv_pool_release(struct lode_kv_pool *p) {
    if (!p || --p->refs > 0)
        return;
    for (uint32_t i = 0; i < p->n_groups; i++) {
        if (p->groups[i].data)
            memory_of(p, i)->free(memory_of(p, i), p->groups[i].data);
        lode_free(p->pages[i].holders);
        lode_free(p->pages[i].free);
    }
    lode_free(p->layers);
    lode_free(p->places);
    lode_free(p->groups);
    lode_free(p->pages);
    lode_free(p);
}

/* ---- layout ---- */

const struct lode_kv_layer *lode_kv_pool_layer(const struct lode_kv_pool *p, uint32_t layer) {
    return &p->layers[layer];
}

const struct lode_kv_place *lode_kv_pool_place(const struct lode_kv_pool *p, uint32_t layer) {
    return &p->places[layer];
}

uint32_t lode_kv_pool_groups(const struct lode_kv_pool *p) { return p->n_groups; }

const struct lode_kv_group *lode_kv_pool_group(const struct lode_kv_pool *p, uint32_t group) {
    return &p->groups[group];
}

/* ---- pages ---- */

uint32_t lode_kv_page_take(struct lode_kv_pool *p, uint32_t group) {
    struct lode_kv_group *g = &p->groups[group];
    if (g->n_free == 0)
        return LODE_KV_NONE;
    const uint32_t page = p->pages[group].free[--g->n_free];
    p->pages[group].holders[page] = 1;
    return page;
}

void lode_kv_page_hold(struct lode_kv_pool *p, uint32_t group, uint32_t page) {
    assert(p->pages[group].holders[page] > 0);
    p->pages[group].holders[page]++;
}

void lode_kv_page_drop(struct lode_kv_pool *p, uint32_t group, uint32_t page) {
    assert(p->pages[group].holders[page] > 0);
    if (--p->pages[group].holders[page] == 0)
        p->pages[group].free[p->groups[group].n_free++] = page;
}

uint32_t lode_kv_page_holders(const struct lode_kv_pool *p, uint32_t group, uint32_t page) {
    return p->pages[group].holders[page];
}

/* ---- where pages lie ---- */

/* A page of the host is pieces, one of each head of each layer: its keys, then its values.  Pages first ..
 * first + n - 1 are a run: their pieces of a head follow one another, and where in a page that lay in one piece
 * a head would begin at byte x, there it begins at n x. */
struct run {
    uint32_t first, n;
};

static struct run run_of(const struct lode_kv_group *g, uint32_t page) {
    const uint32_t first = page / LODE_KV_RUN * LODE_KV_RUN, left = g->n_pages - first;
    return (struct run){first, left < LODE_KV_RUN ? left : LODE_KV_RUN};
}

static size_t keys_size(const struct lode_kv_place *at) { return LODE_KV_PAGE * at->k_stride; }

static size_t piece_size(const struct lode_kv_layer *layer, const struct lode_kv_place *at) {
    return LODE_KV_PAGE * (at->k_stride + (layer->v_in_k ? 0 : at->v_stride));
}

static char *piece(const struct lode_kv_pool *p, uint32_t layer, uint32_t head, uint32_t page) {
    const struct lode_kv_place *at = &p->places[layer];
    const struct lode_kv_group *g = &p->groups[at->group];
    const struct run run = run_of(g, page);
    const size_t size = piece_size(&p->layers[layer], at);
    return g->data + run.first * g->page_size + (at->k + head * size) * run.n + (page - run.first) * size;
}

/* A page of a device. */
static char *address(const struct lode_kv_group *g, uint32_t page) {
    return g->data + page * g->page_size;
}

char *lode_kv_page_keys(const struct lode_kv_pool *p, uint32_t layer, uint32_t head, uint32_t page) {
    const struct lode_kv_place *at = &p->places[layer];
    const struct lode_kv_group *g = &p->groups[at->group];
    return g->place == LODE_HOST ? piece(p, layer, head, page) : address(g, page) + at->k + head * keys_size(at);
}

char *lode_kv_page_values(const struct lode_kv_pool *p, uint32_t layer, uint32_t head, uint32_t page) {
    const struct lode_kv_place *at = &p->places[layer];
    const struct lode_kv_group *g = &p->groups[at->group];
    if (p->layers[layer].v_in_k)
        return lode_kv_page_keys(p, layer, head, page);
    return g->place == LODE_HOST ? piece(p, layer, head, page) + keys_size(at)
                                 : address(g, page) + at->v + head * LODE_KV_PAGE * at->v_stride;
}

static void discard_pieces(const struct lode_kv_pool *p, uint32_t group, uint32_t page, uint32_t n) {
    for (uint32_t l = 0; l < p->n_layers; l++)
        for (uint32_t h = 0; p->places[l].group == group && h < p->layers[l].n_heads; h++)
            lode_alloc_discard(piece(p, l, h, page), n * piece_size(&p->layers[l], &p->places[l]));
}

/* A run of which nobody holds a page is one piece of memory. */
static void discard_free(const struct lode_kv_pool *p, uint32_t group, struct run run) {
    const struct lode_kv_group *g = &p->groups[group];
    const uint32_t *holders = p->pages[group].holders, last = run.first + run.n;
    for (uint32_t i = run.first, end; i < last; i = end) {
        for (end = i + 1; end < last && !holders[end] == !holders[i]; end++)
            ;
        if (end - i == run.n && !holders[i])
            lode_alloc_discard(g->data + i * g->page_size, run.n * g->page_size);
        else if (!holders[i])
            discard_pieces(p, group, i, end - i);
    }
}

void lode_kv_pool_trim(const struct lode_kv_pool *p) {
    for (uint32_t i = 0; i < p->n_groups; i++)
        for (uint32_t page = 0; p->groups[i].place == LODE_HOST && page < p->groups[i].n_pages; page += LODE_KV_RUN)
            discard_free(p, i, run_of(&p->groups[i], page));
}

/* ---- bytes of pages ---- */

static int moved(bool ok, struct lode_error *err) {
    return ok ? 0 : lode_fail(err, LODE_ERR_DEVICE, "KV cache", "a page could not be moved: its device failed");
}

/* Between the host's pieces and a page in one piece, which is read (in) or written. */
static bool move_pieces(const struct lode_kv_pool *p, uint32_t group, uint32_t page, char *bytes, bool in) {
    const struct lode_memory *m = memory_of(p, group);
    bool ok = true;
    for (uint32_t l = 0; l < p->n_layers; l++) {
        const struct lode_kv_place *at = &p->places[l];
        const size_t k = keys_size(at), v = piece_size(&p->layers[l], at) - k;
        for (uint32_t h = 0; ok && at->group == group && h < p->layers[l].n_heads; h++) {
            char *keys = piece(p, l, h, page), *values = keys + k;
            char *k_bytes = bytes + at->k + h * k, *v_bytes = bytes + at->v + h * v;
            ok = in ? m->put(m, keys, k_bytes, k) : m->get(m, k_bytes, keys, k);
            if (ok && v)
                ok = in ? m->put(m, values, v_bytes, v) : m->get(m, v_bytes, values, v);
        }
    }
    return ok;
}

static bool copy_pieces(const struct lode_kv_pool *p, uint32_t group, uint32_t to, uint32_t from) {
    const struct lode_memory *m = memory_of(p, group);
    bool ok = true;
    for (uint32_t l = 0; l < p->n_layers; l++)
        for (uint32_t h = 0; ok && p->places[l].group == group && h < p->layers[l].n_heads; h++)
            ok = m->copy(m, piece(p, l, h, to), piece(p, l, h, from), piece_size(&p->layers[l], &p->places[l]));
    return ok;
}

int lode_kv_page_read(const struct lode_kv_pool *p, uint32_t group, uint32_t page, void *out,
                      struct lode_error *err) {
    const struct lode_memory *m = memory_of(p, group);
    const struct lode_kv_group *g = &p->groups[group];
    return moved(g->place == LODE_HOST ? move_pieces(p, group, page, out, false)
                                       : m->get(m, out, address(g, page), g->page_size),
                 err);
}

int lode_kv_page_write(struct lode_kv_pool *p, uint32_t group, uint32_t page, const void *bytes,
                       struct lode_error *err) {
    const struct lode_memory *m = memory_of(p, group);
    const struct lode_kv_group *g = &p->groups[group];
    return moved(g->place == LODE_HOST ? move_pieces(p, group, page, (char *)bytes, true)
                                       : m->put(m, address(g, page), bytes, g->page_size),
                 err);
}

int lode_kv_page_copy(struct lode_kv_pool *p, uint32_t group, uint32_t to, uint32_t from,
                      struct lode_error *err) {
    const struct lode_memory *m = memory_of(p, group);
    const struct lode_kv_group *g = &p->groups[group];
    return moved(g->place == LODE_HOST ? copy_pieces(p, group, to, from)
                                       : m->copy(m, address(g, to), address(g, from), g->page_size),
                 err);
}
