/* masks.c - see masks.h. */
#include "text/grammar/masks.h"

#include <pthread.h>
#include <time.h>

enum { CACHE_BYTES = 48 << 20, CACHE_SLOTS = 1 << 12 };

struct place {
    struct frame frame; /* what is below it: F_UNKNOWN; of strings that are alike: plain_place */
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

size_t mask_cache_bytes(struct mask_cache *c) {
    pthread_mutex_lock(&c->lock);
    const size_t bytes = sizeof *c + c->bytes;
    pthread_mutex_unlock(&c->lock);
    return bytes;
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

/* Whether in state q any character may come, as ever again, and the text may end. */
static bool any_text(const struct dfa *d, uint32_t q) {
    const uint32_t n = d->first[q + 1] - d->first[q];
    bool same = n == dfa_all.first[1] && d->accept[q];
    for (uint32_t i = 0; same && i < n; i++) {
        const struct dfa_range *r = &d->ranges[d->first[q] + i], *all = &dfa_all.ranges[i];
        same = r->to == q && r->lo == all->lo && r->hi == all->hi;
    }
    return same;
}

/* A thread's place: the frame to look at, and under which it is kept. */
struct spot {
    struct frame frame, key;
    bool plain; /* with the vocabulary: texts of any kind are alike in all grammars */
};

/* Masks over most of a vocabulary are made once for it.  closes: the quote may come now. */
static void set_plain(struct spot *p, bool closes) {
    p->plain = true;
    p->key = (struct frame){
        .kind = F_STRING, .phase = closes, .id = G_NONE, .parent = p->frame.parent, .lex = p->frame.lex};
}

static void spot_string(struct spot *p, const struct g_str *s, uint64_t reach) {
    struct frame *f = &p->frame;
    const bool any = any_text(&s->dfa, f->q);
    p->key = *f;
    if (!s->counted) {
        if (any)
            set_plain(p, true);
        return;
    }
    /* no token can reach a bound: then all counts are alike */
    const bool below_max = s->max == G_MANY || f->count + reach <= s->max;
    if (f->count + reach < s->min && reach < s->min && (s->max == G_MANY || reach <= s->max))
        p->key.count = f->count = 0;
    else if (f->count >= s->min && below_max && (s->max == G_MANY || s->min + reach <= s->max))
        p->key.count = f->count = s->min;
    else
        return;
    if (any)
        set_plain(p, f->count >= s->min);
}

/* False where what is below matters from the start. */
static bool find_spot(const struct masker *k, const struct machine *m, const struct frame *t,
                      struct spot *p) {
    *p = (struct spot){.frame = *t};
    p->frame.parent = 1; /* F_UNKNOWN */
    p->frame.depth = 0;
    if (t->kind == F_KEY) {
        const struct frame *below = machine_frame(m, t->parent);
        const struct g_obj *o = m->g->nodes[t->id].objs[t->sub];
        p->frame.count = p->frame.req = 0;
        p->key = p->frame;
        if (any_text(&o->keys, t->q) && o->open[t->q] && !o->finite[t->q])
            set_plain(p, true);
        return o->open[t->q] && !o->finite[t->q] &&
               (below->kind == F_UNKNOWN || machine_key_slack(m, below));
    }
    if (t->kind == F_STRING) {
        spot_string(p, &m->g->strs[t->id], k->vocab->longest);
        return true;
    }
    p->key = p->frame;
    return t->kind == F_VALUE || t->kind == F_RULE || t->kind == F_TEXT;
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

static struct place *make_place(struct masker *k, struct machine *m, const struct spot *at) {
    const size_t words = ((size_t)k->vocab->n + 63) / 64;
    struct place *p = LODE_NEW(struct place);
    gvec_u32 open = {0};
    if (p)
        p->mask = lode_alloc_zero(words + 1, sizeof *p->mask);
    if (!p || !p->mask || !walk_all(k, m, &at->frame, p->mask, &open)) {
        GVEC_FREE(&open);
        place_free(p);
        m->failed = m->failed ? m->failed : LODE_ERR_NOMEM;
        return NULL;
    }
    p->frame = at->key;
    p->vocab = k->vocab->serial;
    p->open = open.v;
    p->n_open = (uint32_t)open.n;
    return p;
}

/* Finds it, or makes it; *kept: in the cache, and not the caller's to free. */
static const struct place *get_place(struct masker *k, struct machine *m, const struct spot *at, bool *kept) {
    struct mask_cache *c = at->plain ? k->vocab->plain : m->g->cache;
    const size_t words = ((size_t)k->vocab->n + 63) / 64;
    pthread_mutex_lock(&c->lock);
    struct place *p = find_place(c, &at->key, k->vocab->serial);
    pthread_mutex_unlock(&c->lock);
    *kept = p != NULL;
    if (p || !(p = make_place(k, m, at)))
        return p;
    const size_t size = sizeof *p + words * sizeof *p->mask + p->n_open * sizeof *p->open;
    pthread_mutex_lock(&c->lock);
    if (c->bytes + size <= CACHE_BYTES && !find_place(c, &at->key, k->vocab->serial)) {
        struct place **slot = &c->slots[slot_of(&at->key, k->vocab->serial)];
        p->next = *slot;
        *slot = p;
        c->bytes += size;
        *kept = true;
    }
    pthread_mutex_unlock(&c->lock);
    return p;
}

/* Adds what one thread allows. */
static void add_thread(struct masker *k, struct machine *m, const struct frame *t, uint64_t *mask) {
    const size_t words = ((size_t)k->vocab->n + 63) / 64;
    struct spot at;
    bool kept;
    if (!find_spot(k, m, t, &at)) {
        walk_all(k, m, t, mask, NULL);
        return;
    }
    const struct place *p = get_place(k, m, &at, &kept);
    if (!p)
        return;
    for (size_t i = 0; i < words; i++)
        mask[i] |= p->mask[i];
    walk_some(k, m, t, p->open, p->n_open, mask);
    if (!kept)
        place_free((struct place *)p);
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

/* ---- ahead ---- */

struct ahead {
    struct masker *k;
    struct machine *m;
    struct timespec end;
};

/* Whether there is time for more. */
static bool make_ahead(struct ahead *a, const struct frame *f) {
    struct timespec t;
    struct spot at;
    bool kept = true;
    clock_gettime(CLOCK_MONOTONIC, &t);
    if (t.tv_sec > a->end.tv_sec || (t.tv_sec == a->end.tv_sec && t.tv_nsec >= a->end.tv_nsec))
        return false;
    if (!find_spot(a->k, a->m, f, &at))
        return true;
    const struct place *p = get_place(a->k, a->m, &at, &kept);
    if (!kept)
        place_free((struct place *)p);
    return !a->m->failed && kept;
}

/* Of all automata their first states, then all second ones, ...: the rest of a text is in later ones. */
static void texts_ahead(struct ahead *a) {
    const struct lode_grammar *g = a->m->g;
    bool more = true;
    for (uint32_t q = 0; more; q++) {
        more = false;
        for (uint32_t i = 0; i < g->n_strs; i++)
            if (q < g->strs[i].dfa.n) {
                more = true;
                if (!make_ahead(a, &(struct frame){.kind = F_STRING, .id = i, .q = q, .parent = 1}))
                    return;
            }
        for (uint32_t i = 0; i < g->n_nodes; i++)
            for (uint32_t k = 0; k < g->nodes[i].n_objs; k++)
                if (q < g->nodes[i].objs[k]->keys.n) {
                    more = true;
                    if (!make_ahead(a, &(struct frame){
                                           .kind = F_KEY, .id = i, .sub = k, .q = q, .parent = 1}))
                        return;
                }
        if (g->root == G_ROOT_TEXT && q < g->text.n) {
            more = true;
            if (!make_ahead(a, &(struct frame){.kind = F_TEXT, .q = q, .parent = 1}))
                return;
        }
        if (g->root == G_ROOT_RULES && q < g->nfa.states.n) {
            more = true;
            if (g->nfa.states.v[q].op == NFA_SET &&
                !make_ahead(a, &(struct frame){.kind = F_RULE, .q = q, .parent = 1}))
                return;
        }
    }
}

int masker_ahead(struct masker *k, struct machine *m, double seconds, struct lode_error *err) {
    struct ahead a = {.k = k, .m = m};
    clock_gettime(CLOCK_MONOTONIC, &a.end);
    const double end = (double)a.end.tv_nsec * 1e-9 + seconds;
    a.end.tv_sec += (time_t)end;
    a.end.tv_nsec = (long)((end - (double)(time_t)end) * 1e9);
    k->ends.n = 0;
    if (!GVEC_ROOM(&k->ends, VOCAB_MAX_TOKEN))
        return lode_fail_nomem(err, "a mask of tokens");
    for (size_t i = 0; i < m->now.n && !m->failed; i++)
        if (!make_ahead(&a, &m->now.v[i]))
            break;
    texts_ahead(&a);
    const bool no_memory = m->failed == LODE_ERR_NOMEM;
    m->failed = 0; /* a place that cannot be made is the business of who comes there */
    return no_memory ? lode_fail_nomem(err, "a mask of tokens") : 0;
}
