/* prefix.c - see prefix.h.
 *
 * Which leaf was used least recently is known without a search: nodes that nobody pins are in one
 * list by last use, and a path is put there from its end to its beginning, so that a node is always
 * older than its parent.  The oldest node of the list is thus a leaf.  Pages of windows and states go
 * by a clock's hand: those looked at twice without having been used in between.
 */
#include "engine/prefix.h"

#include "base/alloc.h"

#include <assert.h>
#include <string.h>

enum { NO_STATE = -1, MOST_CHILDREN = 256 /* looked at for a page that begins alike */ };

struct lode_prefix_node {
    struct lode_prefix_node *parent, *child, *next, *previous; /* siblings; the newest first */
    struct lode_prefix_node *chain;                            /* of the hash table; of free nodes */
    struct lode_prefix_node *newer, *older;                    /* while nobody pins it */
    XXH128_hash_t key;
    uint32_t depth, n, users, index;
    int32_t state;
    bool listed, live;
    int32_t tokens[LODE_KV_PAGE]; /* (n) */
};

struct lode_prefix {
    struct lode_kv_pool *pool;
    uint32_t n_groups, n_nodes;
    struct lode_prefix_node *nodes; /* owned; (n_nodes); the first is the root */
    struct lode_prefix_node *free;
    struct lode_prefix_node **table; /* owned; (n_buckets) */
    uint32_t n_buckets;              /* a power of two */
    uint32_t *pages; /* owned; (n_nodes, n_groups): LODE_KV_NONE where the node has none */
    uint8_t *used;   /* owned; (n_nodes, n_groups): since the clock's hand came by */
    uint32_t *hand;  /* owned; (n_groups) */
    uint32_t *pinned; /* owned; (n_groups) */
    struct lode_prefix_node *newest, *oldest;
    struct lode_prefix_node **path; /* owned; (max_depth): of find */
    uint32_t *run;                  /* owned; (n_groups): of find */
    uint32_t max_depth;
    uint64_t bytes, evicted;
    uint64_t max_bytes, full_bytes; /* the bound: now, and where memory is not short */
    size_t state_block;
    char *states; /* owned; (max_states, state_block) */
    struct lode_prefix_node **state_of; /* owned; (max_states): whose it is, or NULL */
    uint64_t *state_used;               /* owned; (max_states) */
    uint32_t max_states;
    uint64_t clock;
};

static size_t page_size(const struct lode_prefix *p, uint32_t group) {
    return lode_kv_pool_group(p->pool, group)->page_size;
}

int lode_prefix_create(struct lode_prefix **out, const struct lode_prefix_opts *o,
                       struct lode_error *err) {
    struct lode_prefix *p = LODE_NEW(struct lode_prefix);
    *out = NULL;
    if (!p)
        return lode_fail_nomem(err, "prefix cache");
    p->pool = lode_kv_pool_share(o->pool);
    p->n_groups = lode_kv_pool_groups(o->pool);
    p->max_depth = o->ctx / LODE_KV_PAGE + 1;
    p->state_block = (size_t)o->state_block;
    p->max_states = o->state_block ? o->max_states : 0;
    p->n_nodes = 1 + p->max_depth; /* windows let pages go, and the nodes stay */
    uint64_t room = (uint64_t)p->max_states * p->state_block;
    for (uint32_t i = 0; i < p->n_groups; i++) {
        p->n_nodes += lode_kv_pool_group(o->pool, i)->n_pages;
        room += (uint64_t)lode_kv_pool_group(o->pool, i)->n_pages * page_size(p, i);
    }
    p->full_bytes = p->max_bytes = o->max_bytes < room ? o->max_bytes : room;
    for (p->n_buckets = 16; p->n_buckets < p->n_nodes; p->n_buckets *= 2)
        ;
    p->nodes = LODE_NEW_ARRAY(struct lode_prefix_node, p->n_nodes);
    p->table = LODE_NEW_ARRAY(struct lode_prefix_node *, p->n_buckets);
    p->pages = LODE_NEW_ARRAY(uint32_t, (size_t)p->n_nodes * p->n_groups);
    p->used = LODE_NEW_ARRAY(uint8_t, (size_t)p->n_nodes * p->n_groups);
    p->hand = LODE_NEW_ARRAY(uint32_t, p->n_groups);
    p->pinned = LODE_NEW_ARRAY(uint32_t, p->n_groups);
    p->run = LODE_NEW_ARRAY(uint32_t, p->n_groups);
    p->path = LODE_NEW_ARRAY(struct lode_prefix_node *, p->max_depth);
    bool ok = p->nodes && p->table && p->pages && p->used && p->hand && p->pinned && p->run && p->path;
    if (p->max_states) {
        p->states = lode_alloc_aligned(4096, p->max_states, p->state_block);
        p->state_of = LODE_NEW_ARRAY(struct lode_prefix_node *, p->max_states);
        p->state_used = LODE_NEW_ARRAY(uint64_t, p->max_states);
        ok = ok && p->states && p->state_of && p->state_used;
    }
    if (!ok) {
        lode_prefix_free(p);
        return lode_fail_nomem(err, "prefix cache");
    }
    for (uint32_t i = p->n_nodes; i-- > 1;) {
        p->nodes[i].index = i;
        p->nodes[i].chain = p->free;
        p->free = &p->nodes[i];
    }
    p->nodes[0].users = 1; /* the root stays */
    p->nodes[0].state = NO_STATE;
    p->nodes[0].key = XXH3_128bits("", 0);
    *out = p;
    return 0;
}

static uint32_t *page_at(const struct lode_prefix *p, const struct lode_prefix_node *n, uint32_t group) {
    return &p->pages[(size_t)n->index * p->n_groups + group];
}

static void drop_page(struct lode_prefix *p, struct lode_prefix_node *n, uint32_t group) {
    uint32_t *page = page_at(p, n, group);
    if (*page == LODE_KV_NONE)
        return;
    lode_kv_page_drop(p->pool, group, *page);
    *page = LODE_KV_NONE;
    p->bytes -= page_size(p, group);
    p->pinned[group] -= n->users > 0;
}

void lode_prefix_free(struct lode_prefix *p) {
    if (!p)
        return;
    for (uint32_t i = 1; p->nodes && p->pages && i < p->n_nodes; i++)
        for (uint32_t g = 0; p->nodes[i].live && g < p->n_groups; g++)
            if (*page_at(p, &p->nodes[i], g) != LODE_KV_NONE)
                lode_kv_page_drop(p->pool, g, *page_at(p, &p->nodes[i], g));
    lode_kv_pool_release(p->pool);
    lode_free(p->nodes);
    lode_free(p->table);
    lode_free(p->pages);
    lode_free(p->used);
    lode_free(p->hand);
    lode_free(p->pinned);
    lode_free(p->run);
    lode_free(p->path);
    lode_free_aligned(p->states);
    lode_free(p->state_of);
    lode_free(p->state_used);
    lode_free(p);
}

/* ---- the list of what nobody pins ---- */

static void unlist(struct lode_prefix *p, struct lode_prefix_node *n) {
    if (!n->listed)
        return;
    *(n->newer ? &n->newer->older : &p->newest) = n->older;
    *(n->older ? &n->older->newer : &p->oldest) = n->newer;
    n->listed = false;
}

static void list(struct lode_prefix *p, struct lode_prefix_node *n) { /* as the newest */
    n->newer = NULL;
    n->older = p->newest;
    *(p->newest ? &p->newest->newer : &p->oldest) = n;
    p->newest = n;
    n->listed = true;
}

static void add_user(struct lode_prefix *p, struct lode_prefix_node *n) {
    if (n->users++ > 0)
        return;
    unlist(p, n);
    for (uint32_t g = 0; g < p->n_groups; g++)
        p->pinned[g] += *page_at(p, n, g) != LODE_KV_NONE;
}

void lode_prefix_pin(struct lode_prefix *p, struct lode_prefix_node *at) {
    for (; at->parent; at = at->parent)
        add_user(p, at);
}

void lode_prefix_unpin(struct lode_prefix *p, struct lode_prefix_node *at) {
    for (; at->parent; at = at->parent) {
        assert(at->users > 0);
        if (--at->users > 0)
            continue;
        for (uint32_t g = 0; g < p->n_groups; g++)
            p->pinned[g] -= *page_at(p, at, g) != LODE_KV_NONE;
        list(p, at);
    }
}

void lode_prefix_advance(struct lode_prefix *p, struct lode_prefix_node *child) { add_user(p, child); }

/* ---- letting go ---- */

void lode_prefix_forget_state(struct lode_prefix *p, struct lode_prefix_node *n) {
    if (n->state == NO_STATE)
        return;
    p->state_of[n->state] = NULL;
    n->state = NO_STATE;
    p->bytes -= p->state_block;
}

static struct lode_prefix_node **bucket(const struct lode_prefix *p, XXH128_hash_t key) {
    return &p->table[key.low64 & (p->n_buckets - 1)];
}

static void evict(struct lode_prefix *p, struct lode_prefix_node *n) {
    assert(n->users == 0 && !n->child);
    struct lode_prefix_node **at = bucket(p, n->key);
    while (*at != n)
        at = &(*at)->chain;
    *at = n->chain;
    unlist(p, n);
    *(n->previous ? &n->previous->next : &n->parent->child) = n->next;
    if (n->next)
        n->next->previous = n->previous;
    for (uint32_t g = 0; g < p->n_groups; g++)
        drop_page(p, n, g);
    lode_prefix_forget_state(p, n);
    n->live = false;
    n->chain = p->free;
    p->free = n;
    p->evicted++;
}

static bool evict_oldest(struct lode_prefix *p) {
    if (!p->oldest)
        return false;
    evict(p, p->oldest);
    return true;
}

void lode_prefix_clear(struct lode_prefix *p) {
    while (evict_oldest(p))
        ;
}

/* Free pages and states are given to the system. */
static void trim(const struct lode_prefix *p) {
    for (uint32_t i = 0; i < p->max_states; i++)
        if (!p->state_of[i])
            lode_alloc_discard(p->states + i * p->state_block, p->state_block);
    lode_kv_pool_trim(p->pool);
}

void lode_prefix_shrink(struct lode_prefix *p, uint64_t bytes, uint64_t for_good) {
    const uint64_t least = p->bytes > bytes ? p->bytes - bytes : 0;
    if (for_good) {
        const uint64_t bound = p->bytes < p->max_bytes ? p->bytes : p->max_bytes;
        p->max_bytes = bound > for_good ? bound - for_good : 0;
    }
    while (p->bytes > least && evict_oldest(p))
        ;
    trim(p);
}

void lode_prefix_settle(struct lode_prefix *p) {
    const uint64_t evicted = p->evicted;
    while (p->bytes > p->max_bytes && evict_oldest(p))
        ;
    if (p->evicted > evicted)
        trim(p);
}

void lode_prefix_grow(struct lode_prefix *p) {
    const uint64_t step = p->full_bytes / 16 + 1, missing = p->full_bytes - p->max_bytes;
    p->max_bytes += step < missing ? step : missing;
}

/* A page of a window that only the tree holds and nobody has used for long. */
static bool drop_window_page(struct lode_prefix *p, uint32_t group) {
    for (uint32_t i = 0; i < 2 * p->n_nodes; i++) {
        const uint32_t at = p->hand[group]++ % p->n_nodes;
        struct lode_prefix_node *n = &p->nodes[at];
        uint8_t *used = &p->used[(size_t)at * p->n_groups + group];
        if (!n->live || *page_at(p, n, group) == LODE_KV_NONE ||
            lode_kv_page_holders(p->pool, group, *page_at(p, n, group)) > 1)
            continue;
        if (!*used) {
            drop_page(p, n, group);
            return true;
        }
        *used = 0;
    }
    return false;
}

bool lode_prefix_reclaim(struct lode_prefix *p, uint32_t group, uint32_t n) {
    const struct lode_kv_group *g = lode_kv_pool_group(p->pool, group);
    while (g->n_free < n)
        if (!(g->window && drop_window_page(p, group)) && !evict_oldest(p))
            return false;
    return true;
}

/* Room within the bound. */
static bool make_room(struct lode_prefix *p, uint64_t bytes) {
    while (p->bytes + bytes > p->max_bytes)
        if (!evict_oldest(p))
            return false;
    return true;
}

/* ---- finding ---- */

struct lode_prefix_node *lode_prefix_root(struct lode_prefix *p) { return &p->nodes[0]; }

XXH128_hash_t lode_prefix_next_key(XXH128_hash_t before, const int32_t *tokens) {
    struct {
        XXH128_hash_t before;
        int32_t tokens[LODE_KV_PAGE];
    } all = {.before = before};
    memcpy(all.tokens, tokens, sizeof all.tokens);
    return XXH3_128bits(&all, sizeof all);
}

struct lode_prefix_node *lode_prefix_child(struct lode_prefix *p, const struct lode_prefix_node *at,
                                           const int32_t *tokens) {
    struct lode_prefix_node *n = *bucket(p, lode_prefix_next_key(at->key, tokens));
    while (n && (n->parent != at || n->n != LODE_KV_PAGE ||
                 memcmp(n->tokens, tokens, sizeof n->tokens) != 0))
        n = n->chain;
    return n;
}

static uint32_t alike(const struct lode_prefix_node *n, const int32_t *tokens, uint32_t most) {
    uint32_t i = 0;
    while (i < n->n && i < most && n->tokens[i] == tokens[i])
        i++;
    return i;
}

static bool has_all_pages(const struct lode_prefix *p, const struct lode_prefix_node *n) {
    for (uint32_t g = 0; g < p->n_groups; g++)
        if (*page_at(p, n, g) == LODE_KV_NONE)
            return false;
    return true;
}

/* Whether a step can go on at position n, where `run` pages before the one that n is in, or ends,
 * are there without a gap. */
static bool windows_there(const struct lode_prefix *p, uint32_t n) {
    const uint32_t depth = n / LODE_KV_PAGE;
    for (uint32_t g = 0; g < p->n_groups; g++)
        if (depth - lode_kv_oldest(p->pool, g, n) > p->run[g] &&
            lode_kv_oldest(p->pool, g, n) < depth)
            return false;
    return true;
}

struct lode_prefix_match lode_prefix_find(struct lode_prefix *p, const int32_t *tokens, uint32_t most) {
    struct lode_prefix_node *at = &p->nodes[0], *n;
    struct lode_prefix_match m = {.at = at};
    uint32_t depth = 0, pinned = 0;
    memset(p->run, 0, p->n_groups * sizeof *p->run);
    while ((depth + 1) * LODE_KV_PAGE <= most &&
           (n = lode_prefix_child(p, at, tokens + depth * LODE_KV_PAGE))) {
        at = n;
        depth++;
        pinned += n->users > 0;
        for (uint32_t g = 0; g < p->n_groups; g++)
            p->run[g] = *page_at(p, n, g) == LODE_KV_NONE ? 0 : p->run[g] + 1;
        if (windows_there(p, depth * LODE_KV_PAGE) && (!p->state_block || n->state != NO_STATE))
            m = (struct lode_prefix_match){n, NULL, depth * LODE_KV_PAGE, pinned};
    }
    if (p->state_block)
        return m;
    uint32_t looked = 0;
    for (n = at->child; n && looked < MOST_CHILDREN; n = n->next, looked++) {
        const uint32_t same = depth * LODE_KV_PAGE +
                              alike(n, tokens + depth * LODE_KV_PAGE, most - depth * LODE_KV_PAGE);
        if (same > m.n && has_all_pages(p, n) && windows_there(p, same))
            m = (struct lode_prefix_match){at, same % LODE_KV_PAGE ? n : NULL, same, pinned};
    }
    return m;
}

static void attach(struct lode_prefix *p, struct lode_prefix_node *n, uint32_t group,
                   struct lode_kv *kv) {
    lode_kv_attach(kv, group, n->depth - 1, *page_at(p, n, group));
    p->used[(size_t)n->index * p->n_groups + group] = 1;
}

void lode_prefix_enter(struct lode_prefix *p, const struct lode_prefix_match *m, struct lode_kv *kv,
                       struct lode_state *state) {
    lode_prefix_pin(p, m->at);
    for (uint32_t g = 0; g < p->n_groups; g++) {
        const uint32_t oldest = lode_kv_oldest(p->pool, g, m->n);
        for (struct lode_prefix_node *n = m->at; n->parent && n->depth > oldest; n = n->parent)
            attach(p, n, g, kv);
        if (m->part)
            attach(p, m->part, g, kv);
    }
    if (state && m->n > 0) {
        p->state_used[m->at->state] = ++p->clock;
        lode_state_restore(state, p->states + (size_t)m->at->state * p->state_block, m->n);
    } else if (state) {
        lode_state_truncate(state, 0);
        lode_state_rewind(state, 0);
    }
}

/* ---- growing ---- */

static struct lode_prefix_node *new_node(struct lode_prefix *p, struct lode_prefix_node *at,
                                         const int32_t *tokens, uint32_t n) {
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < p->n_groups; g++)
        bytes += page_size(p, g);
    assert(at->users > 0); /* or it could go to make room */
    if (!make_room(p, bytes) || (!p->free && !evict_oldest(p)))
        return NULL;
    struct lode_prefix_node *node = p->free;
    p->free = node->chain;
    const uint32_t index = node->index;
    *node = (struct lode_prefix_node){.parent = at, .next = at->child, .depth = at->depth + 1,
                                      .n = n, .index = index, .state = NO_STATE, .live = true};
    memcpy(node->tokens, tokens, n * sizeof *tokens);
    node->key = lode_prefix_next_key(at->key, node->tokens);
    if (at->child)
        at->child->previous = node;
    at->child = node;
    node->chain = *bucket(p, node->key);
    *bucket(p, node->key) = node;
    for (uint32_t g = 0; g < p->n_groups; g++)
        *page_at(p, node, g) = LODE_KV_NONE;
    list(p, node);
    return node;
}

/* Takes over one hold of the page. */
static void set_page(struct lode_prefix *p, struct lode_prefix_node *n, uint32_t group, uint32_t page) {
    *page_at(p, n, group) = page;
    p->used[(size_t)n->index * p->n_groups + group] = 1;
    p->bytes += page_size(p, group);
    p->pinned[group] += n->users > 0;
}

/* Leaves that are but the beginning of what comes now. */
static void drop_beginnings(struct lode_prefix *p, struct lode_prefix_node *at, const int32_t *tokens,
                            uint32_t n) {
    uint32_t looked = 0;
    for (struct lode_prefix_node *c = at->child, *next; c && looked < MOST_CHILDREN; c = next, looked++) {
        next = c->next;
        if (c->n < n && c->users == 0 && !c->child && alike(c, tokens, n) == c->n)
            evict(p, c);
    }
}

static struct lode_prefix_node *same_part(struct lode_prefix_node *at, const int32_t *tokens, uint32_t n) {
    uint32_t looked = 0;
    for (struct lode_prefix_node *c = at->child; c && looked < MOST_CHILDREN; c = c->next, looked++)
        if (c->n >= n && alike(c, tokens, n) == n)
            return c;
    return NULL;
}

struct lode_prefix_node *lode_prefix_add(struct lode_prefix *p, struct lode_prefix_node *at,
                                         const int32_t *tokens, uint32_t n, struct lode_kv *kv) {
    const bool full = n == LODE_KV_PAGE;
    struct lode_prefix_node *node = full ? lode_prefix_child(p, at, tokens) : same_part(at, tokens, n);
    if (!full && node)
        return node;
    if (!node) {
        drop_beginnings(p, at, tokens, n);
        node = new_node(p, at, tokens, n);
    }
    for (uint32_t g = 0; node && g < p->n_groups; g++) {
        const uint32_t page = lode_kv_page(kv, g, at->depth), have = *page_at(p, node, g);
        if (page == LODE_KV_NONE || page == have)
            continue;
        if (have != LODE_KV_NONE) {
            attach(p, node, g, kv);
        } else if (p->bytes + page_size(p, g) <= p->max_bytes) {
            lode_kv_page_hold(p->pool, g, page);
            set_page(p, node, g, page);
        }
    }
    return node;
}

struct lode_prefix_node *lode_prefix_put(struct lode_prefix *p, struct lode_prefix_node *at,
                                         const int32_t *tokens, const uint32_t *pages) {
    struct lode_prefix_node *node = lode_prefix_child(p, at, tokens);
    if (!node) {
        drop_beginnings(p, at, tokens, LODE_KV_PAGE);
        node = new_node(p, at, tokens, LODE_KV_PAGE);
    }
    for (uint32_t g = 0; g < p->n_groups; g++) {
        if (pages[g] == LODE_KV_NONE)
            continue;
        if (node && *page_at(p, node, g) == LODE_KV_NONE && p->bytes + page_size(p, g) <= p->max_bytes)
            set_page(p, node, g, pages[g]);
        else
            lode_kv_page_drop(p->pool, g, pages[g]);
    }
    return node;
}

void *lode_prefix_state(struct lode_prefix *p, struct lode_prefix_node *node) {
    if (p->max_states == 0)
        return NULL;
    uint32_t slot = 0;
    if (node->state != NO_STATE) {
        slot = (uint32_t)node->state;
    } else {
        for (uint32_t i = 0; i < p->max_states; i++) {
            if (!p->state_of[i]) {
                slot = i;
                break;
            }
            if (p->state_used[i] < p->state_used[slot])
                slot = i;
        }
        if (p->state_of[slot])
            lode_prefix_forget_state(p, p->state_of[slot]);
        if (!make_room(p, p->state_block) || !node->live)
            return NULL;
        p->state_of[slot] = node;
        node->state = (int32_t)slot;
        p->bytes += p->state_block;
    }
    p->state_used[slot] = ++p->clock;
    return p->states + (size_t)slot * p->state_block;
}

/* ---- looking ---- */

uint64_t lode_prefix_bytes(const struct lode_prefix *p) { return p->bytes; }

uint64_t lode_prefix_idle(const struct lode_prefix *p) {
    uint64_t pinned = 0;
    for (uint32_t g = 0; g < p->n_groups; g++)
        pinned += (uint64_t)p->pinned[g] * page_size(p, g);
    for (uint32_t i = 0; i < p->max_states; i++)
        pinned += p->state_of[i] && p->state_of[i]->users ? p->state_block : 0;
    return p->bytes - pinned;
}

uint32_t lode_prefix_pinned(const struct lode_prefix *p, uint32_t group) { return p->pinned[group]; }
uint64_t lode_prefix_evicted(const struct lode_prefix *p) { return p->evicted; }
uint32_t lode_prefix_depth(const struct lode_prefix_node *node) { return node->depth; }
struct lode_prefix_node *lode_prefix_parent(const struct lode_prefix_node *node) { return node->parent; }
XXH128_hash_t lode_prefix_key(const struct lode_prefix_node *node) { return node->key; }
bool lode_prefix_is(const struct lode_prefix_node *node, XXH128_hash_t key) {
    return node->live && XXH128_isEqual(node->key, key);
}
const int32_t *lode_prefix_tokens(const struct lode_prefix_node *node) { return node->tokens; }

uint32_t lode_prefix_page(const struct lode_prefix *p, const struct lode_prefix_node *node,
                          uint32_t group) {
    return *page_at(p, node, group);
}

const void *lode_prefix_state_of(const struct lode_prefix *p, const struct lode_prefix_node *node) {
    return node->state == NO_STATE ? NULL : p->states + (size_t)node->state * p->state_block;
}
