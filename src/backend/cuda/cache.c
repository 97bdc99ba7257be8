#include "backend/cuda/cache.h"

#include "backend/cuda/registered.h"
#include "backend/cuda/run.h"
#include "base/alloc.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct lode_cuda_cache {
    const struct lode_cuda *c;
    pthread_mutex_t lock; /* of all that changes after create */
    lode_dev arena;       /* owned, as all below */
    struct lode_cuda_kind *kinds; /* (n_kinds) */
    struct lode_cuda_kept *layers; /* (n_layers) */
    struct lode_cuda_registered host; /* the layers' matrices, if the device fetches them */
    uint32_t n_kinds, n_layers;
    uint64_t size, in_use; /* bytes of slots */
};

/* ---- who is there ---- */

struct lode_cuda_kept *lode_cuda_cache_find(struct lode_cuda_cache *cache, const struct lode_instr *in) {
    for (uint32_t i = 0; i < cache->n_layers; i++)
        if (cache->layers[i].first[0] == in->parts[0].w->id)
            return &cache->layers[i];
    return NULL;
}

static uint64_t slot_size(const struct lode_cuda_kind *k) {
    uint64_t sum = 0;
    for (int i = 0; i < 3; i++)
        sum += k->size[i] + k->bias_size[i];
    return sum;
}

static uint32_t id_of(const struct lode_cuda_kept *k, uint32_t expert) {
    return lode_policy_id(k->kind->policy, k->nth, expert);
}

static bool is_here(const struct lode_cuda_kind *k, uint32_t id) {
    return k->slot_of[id] != LODE_CUDA_NO_SLOT && k->here[k->slot_of[id]];
}

bool lode_cuda_cache_has(struct lode_cuda_cache *cache, const struct lode_cuda_kept *k, uint32_t expert) {
    pthread_mutex_lock(&cache->lock);
    const bool has = is_here(k->kind, id_of(k, expert));
    pthread_mutex_unlock(&cache->lock);
    return has;
}

uint32_t lode_cuda_cache_use(struct lode_cuda_cache *cache, struct lode_cuda_kept *k, uint32_t expert) {
    struct lode_cuda_kind *kind = k->kind;
    const uint32_t id = id_of(k, expert);
    uint32_t slot = LODE_CUDA_NO_SLOT;
    pthread_mutex_lock(&cache->lock);
    k->uses++;
    if (is_here(kind, id)) {
        slot = kind->slot_of[id];
        lode_policy_touch(kind->policy, id);
        lode_policy_pin(kind->policy, id);
        k->hits++;
    } else if (!lode_policy_holds(kind->policy, id)) { /* that it was used is remembered all the same */
        lode_policy_admit(kind->policy, id, 0, false);
        lode_policy_remove(kind->policy, id);
    }
    pthread_mutex_unlock(&cache->lock);
    return slot;
}

void lode_cuda_cache_end_uses(struct lode_cuda_cache *cache, struct lode_cuda_kept *k) {
    pthread_mutex_lock(&cache->lock);
    lode_policy_end_visit(k->kind->policy);
    pthread_mutex_unlock(&cache->lock);
}

/* An expert leaves its slot; the policy knows already. */
static void empty(struct lode_cuda_cache *cache, struct lode_cuda_kind *kind, uint32_t id) {
    const uint32_t slot = kind->slot_of[id], nth = id / kind->n_experts;
    kind->slot_of[id] = kind->id_in[slot] = LODE_CUDA_NO_SLOT;
    kind->here[slot] = false;
    kind->n_free++;
    cache->in_use -= slot_size(kind);
    for (uint32_t i = 0; i < cache->n_layers; i++)
        if (cache->layers[i].kind == kind && cache->layers[i].nth == nth)
            cache->layers[i].n_held--;
}

uint32_t lode_cuda_cache_make_room(struct lode_cuda_cache *cache, struct lode_cuda_kept *k, uint32_t expert,
                                   bool evict) {
    struct lode_cuda_kind *kind = k->kind;
    const uint32_t id = id_of(k, expert);
    uint32_t slot = LODE_CUDA_NO_SLOT, old;
    pthread_mutex_lock(&cache->lock);
    if (kind->slot_of[id] == LODE_CUDA_NO_SLOT) {
        if (kind->n_free) {
            for (slot = 0; kind->id_in[slot] != LODE_CUDA_NO_SLOT; slot++)
                ;
        } else if (evict && lode_policy_victim(kind->policy, &old)) {
            slot = kind->slot_of[old];
            empty(cache, kind, old);
        }
    }
    if (slot != LODE_CUDA_NO_SLOT) {
        lode_policy_admit(kind->policy, id, 1, false);
        lode_policy_pin(kind->policy, id);
        kind->slot_of[id] = slot;
        kind->id_in[slot] = id;
        kind->n_free--;
        cache->in_use += slot_size(kind);
        k->n_held++;
    }
    pthread_mutex_unlock(&cache->lock);
    return slot;
}

void lode_cuda_cache_let_go(struct lode_cuda_cache *cache, struct lode_cuda_kept *k, uint32_t slot, bool came) {
    struct lode_cuda_kind *kind = k->kind;
    pthread_mutex_lock(&cache->lock);
    const uint32_t id = kind->id_in[slot];
    lode_policy_unpin(kind->policy, id);
    if (came) {
        kind->here[slot] = true;
    } else if (!kind->here[slot]) {
        lode_policy_remove(kind->policy, id);
        empty(cache, kind, id);
    }
    pthread_mutex_unlock(&cache->lock);
}

void lode_cuda_cache_brought(struct lode_cuda_cache *cache, struct lode_cuda_kept *k, uint64_t n) {
    pthread_mutex_lock(&cache->lock);
    k->brought += n * lode_cuda_raw_size(k->kind);
    pthread_mutex_unlock(&cache->lock);
}

uint32_t lode_cuda_cache_quota(const struct lode_cuda_kept *k) {
    return (k->kind->n_slots + k->kind->n_layers - 1) / k->kind->n_layers;
}

void lode_cuda_count_experts(const struct lode_cuda *c, struct lode_profile *out) {
    struct lode_cuda_cache *cache = c->cache;
    if (!cache)
        return;
    pthread_mutex_lock(&cache->lock);
    for (uint32_t i = 0; i < cache->n_layers; i++) {
        const struct lode_cuda_kept *k = &cache->layers[i];
        if (k->layer >= LODE_PROFILE_LAYERS)
            continue;
        out->layers[k->layer].gpu_uses += k->uses;
        out->layers[k->layer].gpu_hits += k->hits;
        out->layers[k->layer].gpu_bytes += k->brought;
    }
    out->gpu_cache += cache->size;
    out->gpu_held += cache->in_use;
    pthread_mutex_unlock(&cache->lock);
}

/* ---- what there is ---- */

static bool alike(const struct lode_cuda_kind *k, const struct lode_node *n) {
    for (int i = 0; i < 3; i++)
        if (k->w[i]->type != n->w[i]->type || k->w[i]->rows != n->w[i]->rows ||
            k->w[i]->cols != n->w[i]->cols || k->w[i]->count != n->w[i]->count ||
            k->biased[i] != (n->w[3 + i] != NULL))
            return false;
    return true;
}

static uint64_t raw_size(const struct lode_operand *w) {
    size_t row = 0;
    lode_dtype_row_size(w->type, w->cols, &row);
    return (uint64_t)row * w->rows;
}

static void set_kind(struct lode_cuda_kind *k, const struct lode_node *n) {
    *k = (struct lode_cuda_kind){.n_experts = n->w[0]->count, .many = true};
    for (int i = 0; i < 3; i++) {
        const struct lode_operand *w = k->w[i] = n->w[i];
        k->biased[i] = n->w[3 + i] != NULL;
        k->raw[i] = raw_size(w);
        k->size[i] = lode_cuda_matrix_size(w);
        k->bias_size[i] = k->biased[i] ? (uint64_t)w->rows * sizeof(float) : 0;
        k->many &= lode_cuda_layouts[w->type].gemm && (!lode_cuda_layouts[w->type].plain || w->cols % 64 == 0);
    }
}

/* Whether a layer's experts may be computed on either side. */
static bool may_keep(const struct lode_cuda *c, const struct lode_cuda_experts_opts *o, const struct lode_node *n) {
    if (n->op != LODE_OP_EXPERTS || (o->uses && !(o->uses[n->w[0]->id] & 1u)) || n->w[0]->count < 2 ||
        o->weights[n->w[0]->id].group == LODE_NO_GROUP ||
        lode_cuda_check(c, n, o->float_act, NULL) < 0)
        return false;
    for (int i = 0; i < 3; i++)
        if (n->w[i]->order || n->w[i]->count != n->w[0]->count || (o->fast && lode_fast_of(o->fast, n->w[i]->type)) ||
            o->weights[n->w[i]->id].home->type != n->w[i]->type ||
            o->weights[n->w[i]->id].size != raw_size(n->w[i]))
            return false;
    return true;
}

/* Kinds and layers; there is room for one each for each node. */
static void list(const struct lode_cuda *c, const struct lode_cuda_experts_opts *o, struct lode_cuda_kind *kinds,
                 struct lode_cuda_kept *layers, uint32_t *n_kinds, uint32_t *n_layers) {
    *n_kinds = *n_layers = 0;
    for (uint32_t i = 0; i < o->graph->n_nodes; i++) {
        const struct lode_node *n = o->graph->nodes[i];
        if (!may_keep(c, o, n))
            continue;
        uint32_t k = 0;
        while (k < *n_kinds && !alike(&kinds[k], n))
            k++;
        if (k == *n_kinds)
            set_kind(&kinds[(*n_kinds)++], n);
        struct lode_cuda_kept *l = &layers[(*n_layers)++];
        *l = (struct lode_cuda_kept){.kind = &kinds[k], .first = {n->w[0]->id, n->w[1]->id, n->w[2]->id},
                                     .nth = kinds[k].n_layers++,
                                     .layer = o->groups[o->weights[n->w[0]->id].group].layer};
    }
}

static uint64_t all_size(const struct lode_cuda_kind *kinds, uint32_t n) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += slot_size(&kinds[i]) * kinds[i].n_layers * kinds[i].n_experts;
    return sum;
}

/* Slots of the kinds, by their shares of all experts; returns their bytes. */
static uint64_t share_out(struct lode_cuda_kind *kinds, uint32_t n, uint64_t bytes) {
    const double part = (double)bytes / (double)all_size(kinds, n);
    uint64_t used = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t all = kinds[i].n_layers * kinds[i].n_experts;
        kinds[i].n_slots = part >= 1 ? all : (uint32_t)(part * all);
        used += kinds[i].n_slots * slot_size(&kinds[i]);
    }
    return used;
}

static void set_places(struct lode_cuda_cache *cache) {
    lode_dev at = cache->arena;
    for (uint32_t i = 0; i < cache->n_kinds; i++) {
        struct lode_cuda_kind *k = &cache->kinds[i];
        for (int m = 0; m < 3; m++) {
            k->at[m] = at;
            at += k->size[m] * k->n_slots;
        }
        for (int m = 0; m < 3; m++) {
            k->bias_at[m] = k->biased[m] ? at : 0;
            at += k->bias_size[m] * k->n_slots;
        }
    }
}

static int make_books(struct lode_cuda_kind *k, const char *policy, struct lode_error *err) {
    const size_t n = (size_t)k->n_layers * k->n_experts;
    const struct lode_policy_shape shape = {k->n_layers, k->n_experts, k->n_slots};
    LODE_TRY(lode_policy_create(&k->policy, policy, &shape, err));
    k->slot_of = LODE_NEW_ARRAY(uint32_t, n);
    k->id_in = LODE_NEW_ARRAY(uint32_t, k->n_slots + 1);
    k->here = LODE_NEW_ARRAY(bool, k->n_slots + 1);
    if (!k->slot_of || !k->id_in || !k->here)
        return lode_fail_nomem(err, "the GPU's cache of experts");
    for (size_t i = 0; i < n; i++)
        k->slot_of[i] = LODE_CUDA_NO_SLOT;
    for (uint32_t i = 0; i < k->n_slots; i++)
        k->id_in[i] = LODE_CUDA_NO_SLOT;
    k->n_free = k->n_slots;
    return 0;
}

/* ---- matrices that the device reads where the host has them ---- */

/* What is mapped of a layer's matrices; false: not all of it is, in one piece each. */
static bool find_host(const struct lode_cuda_experts_opts *o, const struct lode_cuda_kept *l, const char *host[3]) {
    for (int i = 0; i < 3; i++)
        for (uint32_t e = 0; e < l->kind->n_experts; e++) {
            const struct lode_weight *w = &o->weights[l->first[i] + e];
            const char *at = lode_source_data(o->source, w->home, w->offset, w->size);
            host[i] = e == 0 ? at : host[i];
            if (!at || at != host[i] + e * l->kind->raw[i])
                return false;
        }
    return true;
}

/* So that the device may fetch an expert with nobody's help; what the driver does not take is copied by way of
 * pinned buffers instead. */
static int pin_host(struct lode_cuda_cache *cache, const struct lode_cuda_experts_opts *o, struct lode_error *err) {
    uint32_t n = 0;
    struct lode_cuda_range *all = LODE_NEW_ARRAY(struct lode_cuda_range, 3 * cache->n_layers);
    bool found = all;
    if (!all)
        return lode_fail_nomem(err, "the GPU's cache of experts");
    for (uint32_t i = 0; found && i < cache->n_layers; i++) {
        struct lode_cuda_kept *l = &cache->layers[i];
        found = find_host(o, l, l->host);
        for (int k = 0; found && k < 3; k++)
            all[n++] = (struct lode_cuda_range){(char *)(uintptr_t)l->host[k], l->kind->n_experts * l->kind->raw[k]};
    }
    if (!found || !lode_cuda_register(cache->c, &cache->host, all, n)) {
        for (uint32_t i = 0; i < cache->n_layers; i++)
            memset(cache->layers[i].host, 0, sizeof cache->layers[i].host);
        lode_free(all);
    }
    return 0;
}

/* ---- making one ---- */

/* The most of both that a graph can have. */
static uint32_t count_nodes(const struct lode_graph *g) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        n += g->nodes[i]->op == LODE_OP_EXPERTS;
    return n;
}

static int make(struct lode_cuda_cache *cache, const struct lode_cuda_experts_opts *o, struct lode_error *err) {
    const struct lode_cuda *c = cache->c;
    const uint32_t most = count_nodes(o->graph);
    cache->kinds = LODE_NEW_ARRAY(struct lode_cuda_kind, most + 1);
    cache->layers = LODE_NEW_ARRAY(struct lode_cuda_kept, most + 1);
    if (!cache->kinds || !cache->layers)
        return lode_fail_nomem(err, "the GPU's cache of experts");
    list(c, o, cache->kinds, cache->layers, &cache->n_kinds, &cache->n_layers);
    if (cache->n_layers == 0)
        return 0;
    cache->size = share_out(cache->kinds, cache->n_kinds, o->bytes);
    for (uint32_t i = 0; i < cache->n_kinds; i++)
        LODE_TRY(make_books(&cache->kinds[i], o->policy, err));
    LODE_TRY(lode_cuda_enter(c, err));
    if (cache->size)
        LODE_TRY(lode_cuda_take(c, &cache->arena, cache->size, "--vram", "the cache of experts", err));
    set_places(cache);
    return o->may_pin ? pin_host(cache, o, err) : 0;
}

int lode_cuda_keep_experts(struct lode_cuda *c, const struct lode_cuda_experts_opts *o, struct lode_error *err) {
    lode_cuda_forget_experts(c);
    struct lode_cuda_cache *cache = LODE_NEW(struct lode_cuda_cache);
    if (!cache)
        return lode_fail_nomem(err, "the GPU's cache of experts");
    *cache = (struct lode_cuda_cache){.c = c};
    pthread_mutex_init(&cache->lock, NULL);
    c->cache = cache;
    const int rc = make(cache, o, err);
    if (rc < 0)
        lode_cuda_forget_experts(c);
    return rc;
}

void lode_cuda_forget_experts(struct lode_cuda *c) {
    struct lode_cuda_cache *cache = c->cache;
    if (!cache)
        return;
    if (lode_cuda_enter(c, NULL) == 0) {
        lode_cuda_unregister(cache->c, &cache->host);
        if (cache->arena)
            c->cu.free(cache->arena);
    }
    for (uint32_t i = 0; i < cache->n_kinds; i++) {
        lode_policy_free(cache->kinds[i].policy);
        lode_free(cache->kinds[i].slot_of);
        lode_free(cache->kinds[i].id_in);
        lode_free(cache->kinds[i].here);
    }
    pthread_mutex_destroy(&cache->lock);
    lode_free(cache->kinds);
    lode_free(cache->layers);
    lode_free(cache->host.at);
    lode_free(cache);
    c->cache = NULL;
}

bool lode_cuda_fetches_experts(const struct lode_cuda *c) { return c->cache && c->cache->host.n; }

int lode_cuda_experts_sizes(const struct lode_cuda *c, const struct lode_cuda_experts_opts *o,
                            struct lode_cuda_experts_sizes *out, struct lode_error *err) {
    const uint32_t most = count_nodes(o->graph);
    struct lode_cuda_kind *kinds = LODE_NEW_ARRAY(struct lode_cuda_kind, most + 1);
    struct lode_cuda_kept *layers = LODE_NEW_ARRAY(struct lode_cuda_kept, most + 1);
    uint32_t n_kinds = 0, n_layers = 0;
    *out = (struct lode_cuda_experts_sizes){0};
    if (kinds && layers)
        list(c, o, kinds, layers, &n_kinds, &n_layers);
    for (uint32_t i = 0; i < n_kinds; i++) {
        const struct lode_cuda_kind *k = &kinds[i];
        uint64_t raw = 0;
        for (int m = 0; m < 3; m++)
            raw += k->raw[m] + k->bias_size[m];
        out->raw = raw > out->raw ? raw : out->raw;
        out->slot = slot_size(k) > out->slot ? slot_size(k) : out->slot;
        out->n_layers += k->n_layers;
    }
    out->all = all_size(kinds, n_kinds);
    const bool ok = kinds && layers;
    lode_free(kinds);
    lode_free(layers);
    return ok ? 0 : lode_fail_nomem(err, "the GPU's cache of experts");
}
