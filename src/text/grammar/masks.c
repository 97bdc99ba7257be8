/* masks.c - see masks.h. */
#include "text/grammar/masks.h"

#include <pthread.h>

enum { CACHE_BYTES = 48 << 20, CACHE_SLOTS = 1 << 12 };

struct place {
    struct frame frame; /* what is below it: F_UNKNOWN */
    uint64_t vocab;     /* its serial */
    uint64_t *mask;     /* owned: tokens that are allowed for certain */
    uint32_t *open;     /* owned; (n_open) nodes of the tree whose tokens depend on what is below */
    uint32_t n_open;
    struct place *next; /* in its slot */
};

struct mask_cache {
    pthread_mutex_t lock;
    struct place *slots[CACHE_SLOTS]; /* places never change, and live as long as the grammar */
    size_t bytes;
};

struct mask_cache *mask_cache_create(void) {
    struct mask_cache *c = LODE_NEW(struct mask_cache);
    if (c)
        pthread_mutex_init(&c->lock, NULL);
    return c;
}

static void place_free(struct place *p) {
    if (!p)
        return;
    lode_free(p->mask);
    lode_free(p->open);
    lode_free(p);
}

void mask_cache_free(struct mask_cache *c) {
    if (!c)
        return;
    for (size_t i = 0; i < CACHE_SLOTS; i++)
        for (struct place *p = c->slots[i], *next; p; p = next) {
            next = p->next;
            place_free(p);
        }
    pthread_mutex_destroy(&c->lock);
    lode_free(c);
}

void masker_forget(struct masker *k) {
    for (uint32_t i = 0; i < MASKS_KEPT; i++)
        k->n_keys[i] = 0;
}

void masker_free(struct masker *k) {
    for (uint32_t i = 0; i < MASKS_KEPT; i++) {
        lode_free(k->keys[i]);
        lode_free(k->masks[i]);
    }
    GVEC_FREE(&k->walk);
    GVEC_FREE(&k->ends);
}

static void allow(const struct lode_grammar_vocab *v, uint32_t node, uint64_t *mask) {
    for (uint32_t i = v->nodes[node].tokens; i < v->nodes[node + 1].tokens; i++)
        mask[(uint32_t)v->ids[i] / 64] |= (uint64_t)1 << v->ids[i] % 64;
}

/* Makes the threads at `depth` those of depth - 1 after one byte; the number of them. */
static size_t descend(struct masker *k, struct machine *m, const struct frame *root, uint32_t depth,
                      uint8_t byte) {
    const size_t first = depth > 1 ? k->ends.v[depth - 2] : 0;
    const size_t end = depth ? k->ends.v[depth - 1] : 0;
    frame_list out = {k->walk.v, end, k->walk.cap};
    if (depth) { /* the list may move while threads are added: room first */
        struct frame few[16];
        const size_t n = end - first;
        struct frame *copy = n <= 16 ? few : lode_alloc(n, sizeof *copy);
        if (!copy) {
            m->failed = LODE_ERR_NOMEM;
            return 0;
        }
        memcpy(copy, k->walk.v + first, n * sizeof *copy);
        machine_step(m, copy, n, byte, &out);
        if (n > 16)
            lode_free(copy);
    } else {
        machine_step(m, root, 1, byte, &out);
    }
    k->walk.v = out.v;
    k->walk.cap = out.cap;
    k->ends.v[depth] = (uint32_t)out.n;
    return out.n - end;
}

/* Whether among the threads of this depth one is known, one unknown. */
static void look(const struct masker *k, uint32_t depth, bool *known, bool *unknown) {
    *known = *unknown = false;
    for (size_t i = depth ? k->ends.v[depth - 1] : 0; i < k->ends.v[depth]; i++) {
        const bool u = k->walk.v[i].kind == F_UNKNOWN;
        *unknown = *unknown || u;
        *known = *known || !u;
    }
}

/* All tokens from one thread.  open (may be NULL): receives the nodes with tokens that reach an
 * unknown frame and are not allowed without it. */
static bool walk_all(struct masker *k, struct machine *m, const struct frame *root, uint64_t *mask,
                     gvec_u32 *open) {
    const struct lode_grammar_vocab *v = k->vocab;
    const uint32_t frames = m->frames.n, cells = m->cells.n;
    bool ok = true;
    for (uint32_t i = 0; i < v->n_nodes && ok && !m->failed;) {
        const struct vocab_node *node = &v->nodes[i];
        bool known, unknown;
        if (!descend(k, m, root, node->depth, node->byte)) {
            i = node->end;
            continue;
        }
        look(k, node->depth, &known, &unknown);
        if (known)
            allow(v, i, mask);
        else if (open && node->tokens < v->nodes[i + 1].tokens)
            ok = GVEC_PUSH(open, i);
        i++;
    }
    pool_cut(&m->frames, frames);
    pool_cut(&m->cells, cells);
    return ok;
}

/* The tokens of some nodes, in order, from one thread. */
static void walk_some(struct masker *k, struct machine *m, const struct frame *root,
                      const uint32_t *list, uint32_t n, uint64_t *mask) {
    const struct lode_grammar_vocab *v = k->vocab;
    const uint32_t frames = m->frames.n, cells = m->cells.n;
    uint32_t path[VOCAB_MAX_TOKEN], have[VOCAB_MAX_TOKEN], n_have = 0, dead = 0;
    for (uint32_t i = 0; i < n && !m->failed; i++) {
        const uint32_t target = list[i], depth = v->nodes[target].depth;
        if (target < dead)
            continue;
        uint32_t at = target, d = depth + 1;
        while (d > 0 && !(d - 1 < n_have && have[d - 1] == at)) {
            path[--d] = at;
            at = v->nodes[at].parent;
        }
        for (n_have = d; n_have <= depth; n_have++) {
            if (!descend(k, m, root, n_have, v->nodes[path[n_have]].byte)) {
                dead = v->nodes[path[n_have]].end;
                break;
            }
            have[n_have] = path[n_have];
        }
        if (n_have > depth)
            allow(v, target, mask);
    }
    pool_cut(&m->frames, frames);
    pool_cut(&m->cells, cells);
}

/* The place of a thread, or false where what is below matters from the start. */
static bool place_of(const struct masker *k, const struct machine *m, const struct frame *t,
                     struct frame *out) {
    *out = *t;
    out->parent = 1; /* F_UNKNOWN */
    out->depth = 0;
    if (t->kind == F_KEY) {
        const struct frame *below = machine_frame(m, t->parent);
        const struct g_obj *o = m->g->nodes[t->id].objs[t->sub];
        out->count = out->req = 0;
        return machine_key_slack(m, below) && o->open[t->q] && !o->finite[t->q];
    }
    if (t->kind == F_STRING && m->g->strs[t->id].counted) {
        /* no token can reach a bound: then all counts are alike */
        const struct g_str *s = &m->g->strs[t->id];
        const uint64_t reach = k->vocab->longest;
        const bool below_max = s->max == G_MANY || t->count + reach <= s->max;
        if (t->count + reach < s->min && reach < s->min && (s->max == G_MANY || reach <= s->max))
            out->count = 0;
        else if (t->count >= s->min && below_max && (s->max == G_MANY || s->min + reach <= s->max))
            out->count = s->min;
        return true;
    }
    return t->kind == F_STRING || t->kind == F_VALUE || t->kind == F_RULE;
}

static uint32_t slot_of(const struct frame *f, uint64_t vocab) {
    const uint8_t *bytes = (const uint8_t *)f;
    uint64_t h = vocab;
    for (size_t i = 0; i < sizeof *f; i++)
        h = (h ^ bytes[i]) * 0x100000001b3u;
    return (uint32_t)(h >> 20) % CACHE_SLOTS;
}

static struct place *find_place(struct mask_cache *c, const struct frame *f, uint64_t vocab) {
    struct place *p = c->slots[slot_of(f, vocab)];
    while (p && (p->vocab != vocab || memcmp(&p->frame, f, sizeof *f) != 0))
        p = p->next;
    return p;
}

static struct place *make_place(struct masker *k, struct machine *m, const struct frame *f) {
    const size_t words = ((size_t)k->vocab->n + 63) / 64;
    struct place *p = LODE_NEW(struct place);
    gvec_u32 open = {0};
    if (p)
        p->mask = lode_alloc_zero(words + 1, sizeof *p->mask);
    if (!p || !p->mask || !walk_all(k, m, f, p->mask, &open)) {
        GVEC_FREE(&open);
        place_free(p);
        m->failed = m->failed ? m->failed : LODE_ERR_NOMEM;
        return NULL;
    }
    p->frame = *f;
    p->vocab = k->vocab->serial;
    p->open = open.v;
    p->n_open = (uint32_t)open.n;
    return p;
}

/* Adds what one thread allows. */
static void add_thread(struct masker *k, struct machine *m, const struct frame *t, uint64_t *mask) {
    struct mask_cache *c = m->g->cache;
    const size_t words = ((size_t)k->vocab->n + 63) / 64;
    struct frame f;
    if (!c || !place_of(k, m, t, &f)) {
        walk_all(k, m, t, mask, NULL);
        return;
    }
    pthread_mutex_lock(&c->lock);
    struct place *p = find_place(c, &f, k->vocab->serial);
    pthread_mutex_unlock(&c->lock);
    bool kept = p != NULL;
    if (!p) {
        p = make_place(k, m, &f);
        if (!p)
            return;
        const size_t size = sizeof *p + words * sizeof *p->mask + p->n_open * sizeof *p->open;
        pthread_mutex_lock(&c->lock);
        if (c->bytes + size <= CACHE_BYTES && !find_place(c, &f, k->vocab->serial)) {
            struct place **slot = &c->slots[slot_of(&f, k->vocab->serial)];
            p->next = *slot;
            *slot = p;
            c->bytes += size;
            kept = true;
        }
        pthread_mutex_unlock(&c->lock);
    }
    for (size_t i = 0; i < words; i++)
        mask[i] |= p->mask[i];
    walk_some(k, m, t, p->open, p->n_open, mask);
    if (!kept)
        place_free(p);
}

/* A whole mask that was made for the same threads. */
static const uint64_t *find_whole(const struct masker *k, const struct machine *m) {
    for (uint32_t i = 0; i < MASKS_KEPT; i++)
        if (k->n_keys[i] == m->now.n && m->now.n &&
            !memcmp(k->keys[i], m->now.v, m->now.n * sizeof *m->now.v))
            return k->masks[i];
    return NULL;
}

/* Keeps one; where there is no memory it is not kept. */
static void keep_whole(struct masker *k, const struct machine *m, const uint64_t *mask,
                       size_t words) {
    const uint32_t i = k->next++ % MASKS_KEPT;
    struct frame *keys = lode_realloc(k->keys[i], m->now.n, sizeof *keys);
    if (!keys)
        return;
    k->keys[i] = keys;
    k->n_keys[i] = 0;
    if (!k->masks[i])
        k->masks[i] = lode_alloc(words, sizeof *mask);
    if (!k->masks[i])
        return;
    memcpy(k->masks[i], mask, words * sizeof *mask);
    memcpy(keys, m->now.v, m->now.n * sizeof *keys);
    k->n_keys[i] = m->now.n;
}

int masker_mask(struct masker *k, struct machine *m, uint64_t *mask, struct lode_error *err) {
    const size_t words = ((size_t)k->vocab->n + 63) / 64;
    const uint64_t *whole = find_whole(k, m);
    if (whole) {
        memcpy(mask, whole, words * sizeof *mask);
        return 0;
    }
    memset(mask, 0, words * sizeof *mask);
    k->ends.n = 0;
    if (!GVEC_ROOM(&k->ends, VOCAB_MAX_TOKEN))
        return lode_fail_nomem(err, "a mask of tokens");
    for (size_t i = 0; i < m->now.n && !m->failed; i++) {
        const struct frame t = m->now.v[i];
        if (t.kind != F_END)
            add_thread(k, m, &t, mask);
    }
    const int failed = m->failed;
    m->failed = 0; /* the walk's own: the threads are as they were */
    if (failed == LODE_ERR_NOMEM)
        return lode_fail_nomem(err, "a mask of tokens");
    if (failed)
        return lode_fail(err, LODE_ERR_LIMIT, "grammar",
                         "the text is nested more than %d deep, or the grammar can be read in more "
                         "than %d ways at once",
                         MACHINE_MAX_DEPTH, MACHINE_MAX_THREADS);
    if (machine_complete(m, m->now.v, m->now.n))
        for (size_t i = 0; i < k->vocab->n_ends; i++)
            mask[(uint32_t)k->vocab->ends[i] / 64] |= (uint64_t)1 << k->vocab->ends[i] % 64;
    if (m->now.n)
        keep_whole(k, m, mask, words);
    return 0;
}
