#include "store/stream.h"

#include "base/alloc.h"
#include "base/caches.h"
#include "store/policy.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <xxhash.h>

#define NOWHERE UINT32_MAX

enum state { EMPTY, LOADING, HERE, FAILED };

/* A place of the cache.  It has room for the largest group, and holds as much memory as the largest
 * that it had since it was last emptied. */
struct slot {
    struct lode_read read; /* first: `done` finds the slot by it */
    struct stream *stream;
    enum state state;
    uint32_t group, refs;
    bool guess; /* nobody has asked for it yet */
    size_t touched;
};

/* What a group is in the files and in its slot. */
struct layout {
    uint32_t first_part, n_parts; /* 0: it is put together by the source */
    size_t size;
    size_t summed, summed_at; /* bytes in the slot whose XXH3 is sum; 0: none are */
    uint64_t sum;
};

/* Guesses are judged in lots: fewer than three quarters of a lot used, and there are none for a while.
 * A wrong one costs the disk a whole read, a right one gains what computing would have hidden: at 0.70
 * the two were measured to be even. */
enum { GUESSES = 64, LOT = 256, PAUSE = 4096 /* settled layers */ };

struct layer_count {
    uint64_t wait_ns, uses, hits, bytes, guesses, guessed;
};

enum { HELPERS = 2, NO_PART = -3 /* a fault of the source: its words are in `error` */ };

struct stream {
    struct lode_store base;
    const struct lode_source *source;
    const struct lode_weight *weights;
    const struct lode_group *groups;
    uint32_t first_group, n_groups; /* of the model's list, the first of which is groups[0] */
    bool in_turn;
    struct lode_store *resident; /* owned, as all below: what has the other weights */
    struct lode_reader *reader;  /* NULL: no group lies in files as it is */
    struct layout *layouts;      /* (n_groups) */
    struct lode_read_part *parts;
    const char **paths;
    uint32_t n_paths;
    size_t *at;      /* (n_weights): in the slot of its group */
    uint32_t *where; /* (n_groups): slot, or NOWHERE */
    uint32_t *group_of; /* by the policy's id */
    char *memory;
    size_t stride;
    struct slot *slots;
    uint32_t *free_slots; /* (n_slots), the last is taken first */
    uint32_t n_slots, n_free;
    uint32_t n_experts;
    uint64_t budget, budget_first; /* now, with the lock; as it was given */
    struct lode_cache cache;       /* listed while there is a policy */
    bool check; /* checksums, where there are some */

    pthread_mutex_t lock; /* of all below, the slots and the tables */
    pthread_cond_t arrived;
    struct lode_policy *policy;
    uint64_t news;
    uint32_t n_waiting;
    uint32_t guesses[GUESSES], n_guesses; /* slots, of one layer */
    uint32_t lot, lot_used, pause;
    uint64_t cancelled;
    uint32_t n_layers;
    struct layer_count *counts; /* owned; (n_layers) */
    uint32_t *uses;             /* owned; (n_groups) */

    /* Groups that the source puts together. */
    pthread_t helpers[HELPERS];
    uint32_t n_helpers;
    pthread_cond_t work;
    struct slot *first, *last; /* by read.next */
    bool stop;
    struct lode_error error;
};

static const struct lode_store_ops ops;

static struct stream *stream(struct lode_store *s) { return (struct stream *)s; }

/* The group of a weight, or LODE_NO_GROUP: it is in the store below. */
static uint32_t group_here(const struct stream *s, uint32_t id) {
    const uint32_t g = s->weights[id].group - s->first_group;
    return g < s->n_groups ? g : LODE_NO_GROUP;
}

/* ---- where groups lie ---- */

static size_t round_up(size_t n) {
    return (n + LODE_READ_ALIGN - 1) & ~(size_t)(LODE_READ_ALIGN - 1);
}

struct placed {
    uint32_t id;
    struct lode_place p;
};

/* Where a group's weights lie, in the order of the file; false: not all lie in one piece. */
static bool find_places(const struct lode_source *source, const struct lode_weight *weights,
                        const struct lode_group *g, struct placed *out) {
    for (uint32_t i = 0; i < g->n_weights; i++) {
        const struct lode_weight *w = &weights[g->weights[i]];
        struct placed x = {.id = g->weights[i]};
        uint32_t k = i;
        if (!lode_source_place(source, w->home, w->offset, w->size, &x.p))
            return false;
        for (; k > 0 && out[k - 1].p.path == x.p.path && out[k - 1].p.offset > x.p.offset; k--)
            out[k] = out[k - 1];
        out[k] = x;
    }
    return true;
}

/* The stretches of files that make a group, neighbours joined.  parts (may be NULL) and at get what
 * was found; returns how many stretches, 0 where the source has to put it together. */
static uint32_t lay_out(const struct lode_source *source, const struct lode_weight *weights,
                        const struct lode_group *g, struct lode_read_part *parts,
                        const char **files, size_t *at, struct layout *l) {
    struct placed places[LODE_GROUP_WEIGHTS];
    const uint32_t n_places = find_places(source, weights, g, places) ? g->n_weights : 0;
    uint32_t n = 0;
    uint64_t end = 0, start = 0; /* of the last stretch */
    size_t to = 0;               /* where it begins in the slot */
    struct lode_place p = {0};
    l->size = 0;
    for (uint32_t i = 0; i < n_places; i++) {
        const struct lode_weight *w = &weights[places[i].id];
        if (n == 0 || places[i].p.path != p.path || places[i].p.offset - end >= LODE_READ_ALIGN) {
            start = places[i].p.offset / LODE_READ_ALIGN * LODE_READ_ALIGN;
            to = l->size;
            n++;
        }
        p = places[i].p;
        end = p.offset + w->size;
        if (at)
            at[places[i].id] = to + (size_t)(p.offset - start);
        const size_t needed = (size_t)(end - start);
        l->size = to + round_up(needed);
        if (parts) {
            parts[n - 1] = (struct lode_read_part){0, start, round_up(needed), needed, to};
            files[n - 1] = p.path;
        }
    }
    if (n == 1 && p.record_size && p.record >= start && p.record + p.record_size == end) {
        l->summed = p.record_size;
        l->summed_at = (size_t)(p.record - start);
        l->sum = p.sum;
    }
    if (n)
        return n;
    for (uint32_t i = 0; i < g->n_weights; i++) {
        if (at)
            at[g->weights[i]] = l->size;
        l->size += (weights[g->weights[i]].size + 63) & ~(size_t)63;
    }
    l->size = round_up(l->size);
    return 0;
}

void lode_stream_sizes(const struct lode_source *source, const struct lode_weight *weights,
                       const struct lode_group *groups, uint32_t n_groups, uint64_t *least,
                       uint64_t *most) {
    *least = *most = 0;
    for (uint32_t i = 0; i < n_groups; i++) {
        struct layout l = {0};
        lay_out(source, weights, &groups[i], NULL, NULL, NULL, &l);
        *least = l.size > *least ? l.size : *least;
        *most += l.size;
    }
}

static int add_path(struct stream *s, const char *path, uint32_t *out, struct lode_error *err) {
    for (*out = 0; *out < s->n_paths; ++*out)
        if (s->paths[*out] == path)
            return 0;
    const char **more = lode_realloc(s->paths, s->n_paths + 1, sizeof *more);
    if (!more)
        return lode_fail_nomem(err, "list of files");
    s->paths = more;
    s->paths[s->n_paths++] = path;
    return 0;
}

static int lay_out_all(struct stream *s, struct lode_error *err) {
    struct lode_read_part parts[LODE_GROUP_WEIGHTS];
    const char *files[LODE_GROUP_WEIGHTS];
    size_t n = 0, most = 0;
    for (uint32_t g = 0; g < s->n_groups; g++)
        most += s->groups[g].n_weights;
    s->parts = LODE_NEW_ARRAY(struct lode_read_part, most);
    s->layouts = LODE_NEW_ARRAY(struct layout, s->n_groups);
    if (!s->parts || !s->layouts)
        return lode_fail_nomem(err, "table of experts");
    for (uint32_t g = 0; g < s->n_groups; g++) {
        struct layout *l = &s->layouts[g];
        l->first_part = (uint32_t)n;
        l->n_parts = lay_out(s->source, s->weights, &s->groups[g], parts, files, s->at, l);
        for (uint32_t i = 0; i < l->n_parts; i++, n++) {
            LODE_TRY(add_path(s, files[i], &parts[i].file, err));
            s->parts[n] = parts[i];
        }
        s->stride = l->size > s->stride ? l->size : s->stride;
    }
    return 0;
}

/* ---- room; with the lock ---- */

static uint32_t policy_id(const struct stream *s, uint32_t group) {
    const struct lode_group *g = &s->groups[group];
    return lode_policy_id(s->policy, g->layer, g->expert == LODE_NO_EXPERT ? s->n_experts : g->expert);
}

/* The slot holds nothing any more; its memory stays, for whoever takes it next. */
static void empty(struct stream *s, uint32_t i) {
    s->lot += s->slots[i].guess;
    s->where[s->slots[i].group] = NOWHERE;
    s->slots[i].state = EMPTY;
    s->free_slots[s->n_free++] = i;
}

static void give_back(struct stream *s, struct slot *slot, size_t keep) {
    if (slot->touched > keep) {
        madvise(s->memory + (size_t)(slot - s->slots) * s->stride + keep, slot->touched - keep,
                MADV_DONTNEED);
        slot->touched = keep;
    }
}

/* A slot for `size` bytes, within the budget; NULL: all that is here is in use. */
static struct slot *make_room(struct stream *s, size_t size) {
    uint32_t old, n_before = s->n_free;
    while (lode_policy_used(s->policy) + size > s->budget) {
        if (!lode_policy_victim(s->policy, &old))
            return NULL;
        empty(s, s->where[s->group_of[old]]);
    }
    struct slot *slot = &s->slots[s->free_slots[--s->n_free]];
    give_back(s, slot, size);
    slot->touched = size;
    for (uint32_t i = n_before; i < s->n_free; i++) /* more left than one came */
        give_back(s, &s->slots[s->free_slots[i]], 0);
    return slot;
}

static void tell(struct stream *s) {
    s->news++;
    if (s->n_waiting)
        pthread_cond_broadcast(&s->arrived);
}

/* ---- arrivals ---- */

static void drop_failed(struct stream *s, struct slot *slot) {
    lode_policy_remove(s->policy, policy_id(s, slot->group));
    empty(s, (uint32_t)(slot - s->slots));
}

static void arrive(struct lode_read *read) {
    struct slot *slot = (struct slot *)read;
    struct stream *s = slot->stream;
    const struct layout *l = &s->layouts[slot->group];
    if (!read->fault.cause && l->summed && s->check &&
        XXH3_64bits(read->base + l->summed_at, l->summed) != l->sum)
        read->fault = (struct lode_read_fault){LODE_READ_DAMAGED, read->parts[0].file,
                                               read->parts[0].offset + l->summed_at};
    pthread_mutex_lock(&s->lock);
    slot->state = read->fault.cause ? FAILED : HERE;
    lode_policy_unpin(s->policy, policy_id(s, slot->group)); /* the load's own */
    if (slot->state == FAILED && slot->refs == 0)
        drop_failed(s, slot);
    tell(s);
    pthread_mutex_unlock(&s->lock);
}

static void *put_together(void *arg) {
    struct stream *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        struct slot *slot = s->first;
        if (!slot) {
            pthread_cond_wait(&s->work, &s->lock);
            continue;
        }
        s->first = (struct slot *)slot->read.next;
        if (!s->first)
            s->last = NULL;
        pthread_mutex_unlock(&s->lock);
        const struct lode_group *g = &s->groups[slot->group];
        struct lode_error err = {0};
        int rc = 0;
        for (uint32_t i = 0; rc == 0 && i < g->n_weights; i++) {
            const struct lode_weight *w = &s->weights[g->weights[i]];
            rc = lode_source_read(s->source, w->home, w->offset,
                                  slot->read.base + s->at[g->weights[i]], w->size, &err);
        }
        slot->read.fault = (struct lode_read_fault){.cause = rc < 0 ? NO_PART : 0};
        if (rc < 0) {
            pthread_mutex_lock(&s->lock);
            s->error = err;
            pthread_mutex_unlock(&s->lock);
        }
        arrive(&slot->read);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void start_load(struct stream *s, struct slot *slot, uint32_t group, bool guess) {
    const struct layout *l = &s->layouts[group];
    slot->group = group;
    slot->state = LOADING;
    slot->refs = 0;
    slot->guess = guess;
    s->counts[s->groups[group].layer].bytes += l->size;
    s->where[group] = (uint32_t)(slot - s->slots);
    const uint32_t id = policy_id(s, group);
    lode_policy_admit(s->policy, id, l->size);
    lode_policy_pin(s->policy, id);
    slot->read = (struct lode_read){.parts = s->parts + l->first_part,
                                    .n_parts = l->n_parts,
                                    .base = s->memory + s->where[group] * s->stride,
                                    .urgent = !guess,
                                    .done = arrive};
    if (l->n_parts) {
        lode_reader_submit(s->reader, &slot->read);
        return;
    }
    *(s->last ? (struct slot **)&s->last->read.next : &s->first) = slot;
    s->last = slot;
    pthread_cond_signal(&s->work);
}

/* ---- the store ---- */

static int fail_group(struct stream *s, const struct slot *slot, struct lode_error *err) {
    const struct lode_group *g = &s->groups[slot->group];
    char what[64];
    if (slot->read.fault.cause == NO_PART) {
        if (err)
            *err = s->error;
        return s->error.code;
    }
    if (g->expert == LODE_NO_EXPERT)
        snprintf(what, sizeof what, "layer %" PRIu32, g->layer);
    else
        snprintf(what, sizeof what, "expert %" PRIu32 " of layer %" PRIu32, g->expert, g->layer);
    return lode_reader_fail(s->reader, &slot->read.fault, what, err);
}

static int state_of(struct stream *s, const struct slot *slot, uint32_t id, const void **data,
                    struct lode_error *err) {
    if (slot->state == LOADING)
        return LODE_PENDING;
    if (slot->state == FAILED)
        return fail_group(s, slot, err);
    *data = s->memory + (size_t)(slot - s->slots) * s->stride + s->at[id];
    return LODE_READY;
}

/* A guess is asked for. */
static void came_true(struct stream *s, struct slot *slot) {
    slot->guess = false;
    s->lot++;
    s->lot_used++;
    s->counts[s->groups[slot->group].layer].guessed++;
    if (slot->state == LOADING && s->layouts[slot->group].n_parts)
        lode_reader_urge(s->reader, &slot->read);
}

/* While one group is computed with, the next is read; behind the last comes the first. */
static void read_next(struct stream *s, uint32_t group) {
    const uint32_t next = group + 1 < s->n_groups ? group + 1 : 0;
    if (s->where[next] != NOWHERE)
        return;
    struct slot *slot = make_room(s, s->layouts[next].size);
    if (slot) {
        start_load(s, slot, next, true);
        slot->guess = false;
    }
}

static int pin(struct lode_store *store, uint32_t id, const void **data, struct lode_error *err) {
    struct stream *s = stream(store);
    const uint32_t group = group_here(s, id);
    if (group == LODE_NO_GROUP)
        return s->resident->ops->pin(s->resident, id, data, err);
    pthread_mutex_lock(&s->lock);
    int rc = LODE_FULL;
    struct slot *slot;
    const bool first = id == s->groups[group].weights[0], hit = s->where[group] != NOWHERE;
    if (hit) {
        slot = &s->slots[s->where[group]];
        if (slot->refs == 0)
            lode_policy_touch(s->policy, policy_id(s, group));
        if (slot->guess)
            came_true(s, slot);
        else if (slot->state == LOADING && s->layouts[group].n_parts)
            lode_reader_urge(s->reader, &slot->read);
    } else {
        slot = make_room(s, s->layouts[group].size);
        if (slot)
            start_load(s, slot, group, false);
    }
    if (slot && first) {
        s->uses[group]++;
        s->counts[s->groups[group].layer].uses++;
        s->counts[s->groups[group].layer].hits += hit;
    }
    if (slot)
        rc = state_of(s, slot, id, data, err);
    if (rc == LODE_READY || rc == LODE_PENDING) {
        if (slot->refs++ == 0)
            lode_policy_pin(s->policy, policy_id(s, group));
        if (s->in_turn)
            read_next(s, group);
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

static int look(struct lode_store *store, uint32_t id, const void **data, struct lode_error *err) {
    struct stream *s = stream(store);
    const uint32_t group = group_here(s, id);
    if (group == LODE_NO_GROUP)
        return s->resident->ops->look(s->resident, id, data, err);
    pthread_mutex_lock(&s->lock);
    const int rc = state_of(s, &s->slots[s->where[group]], id, data, err);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

static void unpin(struct lode_store *store, uint32_t id) {
    struct stream *s = stream(store);
    const uint32_t group = group_here(s, id);
    if (group == LODE_NO_GROUP) {
        s->resident->ops->unpin(s->resident, id);
        return;
    }
    pthread_mutex_lock(&s->lock);
    struct slot *slot = &s->slots[s->where[group]];
    if (--slot->refs == 0) {
        lode_policy_unpin(s->policy, policy_id(s, group));
        if (slot->state == FAILED)
            drop_failed(s, slot);
        tell(s);
    }
    pthread_mutex_unlock(&s->lock);
}

static void want(struct lode_store *store, uint32_t id) {
    struct stream *s = stream(store);
    const uint32_t group = group_here(s, id);
    if (group == LODE_NO_GROUP || s->in_turn || s->layouts[group].n_parts == 0)
        return;
    pthread_mutex_lock(&s->lock);
    if (s->lot >= LOT) {
        s->pause = s->lot_used < LOT * 3 / 4 ? PAUSE : 0;
        s->lot = s->lot_used = 0;
    }
    struct slot *slot = s->where[group] == NOWHERE && !s->pause && s->n_guesses < GUESSES
                            ? make_room(s, s->layouts[group].size)
                            : NULL;
    if (slot) {
        start_load(s, slot, group, true);
        s->guesses[s->n_guesses++] = s->where[group];
        s->counts[s->groups[group].layer].guesses++;
    }
    pthread_mutex_unlock(&s->lock);
}

static void settle(struct lode_store *store) {
    struct stream *s = stream(store);
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < s->n_guesses; i++) {
        struct slot *slot = &s->slots[s->guesses[i]];
        if (slot->guess && slot->state == LOADING && slot->refs == 0 &&
            lode_reader_cancel(s->reader, &slot->read)) {
            struct layer_count *c = &s->counts[s->groups[slot->group].layer];
            c->bytes -= s->layouts[slot->group].size;
            c->guesses--;
            s->cancelled++;
            slot->guess = false;
            lode_policy_unpin(s->policy, policy_id(s, slot->group)); /* the load's own */
            drop_failed(s, slot);
            tell(s);
        }
    }
    s->n_guesses = 0;
    s->pause -= s->pause > 0;
    pthread_mutex_unlock(&s->lock);
}

static uint64_t news(struct lode_store *store, uint32_t id) {
    struct stream *s = stream(store);
    if (group_here(s, id) == LODE_NO_GROUP)
        return s->resident->ops->news(s->resident, id);
    pthread_mutex_lock(&s->lock);
    const uint64_t n = s->news;
    pthread_mutex_unlock(&s->lock);
    return n;
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void wait(struct lode_store *store, uint64_t seen, uint32_t id) {
    struct stream *s = stream(store);
    const uint32_t group = group_here(s, id);
    const uint64_t start = now_ns();
    if (group == LODE_NO_GROUP) {
        s->resident->ops->wait(s->resident, seen, id);
        return;
    }
    pthread_mutex_lock(&s->lock);
    s->n_waiting++;
    while (s->news == seen)
        pthread_cond_wait(&s->arrived, &s->lock);
    s->n_waiting--;
    s->counts[s->groups[group].layer].wait_ns += now_ns() - start;
    pthread_mutex_unlock(&s->lock);
}

static void count(struct lode_store *store, struct lode_profile *out) {
    struct stream *s = stream(store);
    if (s->resident->ops->count)
        s->resident->ops->count(s->resident, out);
    pthread_mutex_lock(&s->lock);
    for (uint32_t l = 0; l < s->n_layers && l < LODE_PROFILE_LAYERS; l++) {
        const struct layer_count *c = &s->counts[l];
        struct lode_profile_layer *to = &out->layers[l];
        to->waited += (double)c->wait_ns * 1e-9;
        to->uses += c->uses;
        to->hits += c->hits;
        to->bytes += c->bytes;
        to->guesses += c->guesses;
        to->guessed += c->guessed;
    }
    out->streams = true;
    out->cache += s->budget;
    out->held += lode_policy_used(s->policy);
    out->cancelled += s->cancelled;
    out->reader = s->reader ? lode_reader_name(s->reader) : "put together from parts";
    pthread_mutex_unlock(&s->lock);
}

static const uint32_t *uses(struct lode_store *store) {
    return stream(store)->in_turn ? NULL : stream(store)->uses;
}

static int verify(struct lode_store *store, struct lode_error *err) {
    struct stream *s = stream(store);
    return s->resident->ops->verify(s->resident, err);
}

/* ---- memory that others want ---- */

static uint64_t cache_held(void *user) {
    struct stream *s = user;
    pthread_mutex_lock(&s->lock);
    const uint64_t held = lode_policy_used(s->policy);
    pthread_mutex_unlock(&s->lock);
    return held;
}

static uint64_t cache_shrink(void *user, uint64_t bytes, bool stay) {
    struct stream *s = user;
    uint64_t given = 0;
    uint32_t old;
    pthread_mutex_lock(&s->lock);
    while (given < bytes && lode_policy_victim(s->policy, &old)) {
        const uint32_t i = s->where[s->group_of[old]];
        given += s->layouts[s->slots[i].group].size;
        empty(s, i);
        give_back(s, &s->slots[i], 0);
    }
    if (stay) /* never below a sixteenth: it would only read */
        s->budget = s->budget > given + s->budget_first / 16 && s->budget - given >= s->stride
                        ? s->budget - given
                        : s->budget;
    lode_policy_set_capacity(s->policy, s->budget);
    tell(s);
    pthread_mutex_unlock(&s->lock);
    return given;
}

static void cache_grow(void *user) {
    struct stream *s = user;
    pthread_mutex_lock(&s->lock);
    s->budget += s->budget_first / 16;
    s->budget = s->budget < s->budget_first ? s->budget : s->budget_first;
    lode_policy_set_capacity(s->policy, s->budget);
    pthread_mutex_unlock(&s->lock);
}

static void stream_free(struct lode_store *store) {
    struct stream *s = stream(store);
    if (!s)
        return;
    lode_cache_unlist(&s->cache);
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
    for (uint32_t i = 0; i < s->n_helpers; i++)
        pthread_join(s->helpers[i], NULL);
    lode_reader_free(s->reader);
    if (s->resident)
        s->resident->ops->free(s->resident);
    lode_policy_free(s->policy);
    lode_free_aligned(s->memory);
    void *const all[] = {s->layouts, s->parts, s->paths,      s->at,        s->where,
                         s->group_of, s->slots, s->free_slots, s->counts, s->uses};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        lode_free(all[i]);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->arrived);
    pthread_mutex_destroy(&s->lock);
    lode_free(s);
}

static const struct lode_store_ops ops = {.pin = pin,
                                          .look = look,
                                          .unpin = unpin,
                                          .want = want,
                                          .settle = settle,
                                          .news = news,
                                          .wait = wait,
                                          .count = count,
                                          .uses = uses,
                                          .verify = verify,
                                          .free = stream_free};

/* ---- making one ---- */

static int make_policy(struct stream *s, const char *name, struct lode_error *err) {
    uint32_t n_layers = 0;
    for (uint32_t g = 0; g < s->n_groups; g++) {
        const struct lode_group *group = &s->groups[g];
        n_layers = group->layer >= n_layers ? group->layer + 1 : n_layers;
        if (group->expert != LODE_NO_EXPERT && group->expert >= s->n_experts)
            s->n_experts = group->expert + 1;
    }
    s->n_layers = n_layers;
    s->counts = LODE_NEW_ARRAY(struct layer_count, n_layers);
    s->uses = LODE_NEW_ARRAY(uint32_t, s->n_groups);
    if (!s->counts || !s->uses)
        return lode_fail_nomem(err, "expert cache");
    const struct lode_policy_shape shape = {n_layers, s->n_experts + 1, s->budget};
    LODE_TRY(lode_policy_create(&s->policy, name, &shape, err));
    s->group_of = LODE_NEW_ARRAY(uint32_t, (size_t)n_layers * (s->n_experts + 1));
    if (!s->group_of)
        return lode_fail_nomem(err, "expert cache");
    for (uint32_t g = 0; g < s->n_groups; g++)
        s->group_of[policy_id(s, g)] = g;
    return 0;
}

/* Room is address space first: memory comes with what is read into it, and within the budget. */
static int make_slots(struct stream *s, struct lode_error *err) {
    size_t least = s->stride, all = 0;
    for (uint32_t g = 0; g < s->n_groups; g++) {
        least = s->layouts[g].size < least ? s->layouts[g].size : least;
        all += s->layouts[g].size;
    }
    if (s->budget < s->stride)
        return lode_fail(err, LODE_ERR_LIMIT, "--expert-cache",
                         "%.2f MiB of memory are left for experts, but one takes %.2f MiB",
                         (double)s->budget / 0x1p20, (double)s->stride / 0x1p20);
    const uint64_t n = s->budget >= all ? s->n_groups : s->budget / least;
    s->n_slots = n < s->n_groups ? (uint32_t)n : s->n_groups;
    s->memory = lode_alloc_aligned(LODE_READ_ALIGN, s->n_slots, s->stride);
    s->slots = LODE_NEW_ARRAY(struct slot, s->n_slots);
    s->free_slots = LODE_NEW_ARRAY(uint32_t, s->n_slots);
    s->where = LODE_NEW_ARRAY(uint32_t, s->n_groups);
    if (!s->memory || !s->slots || !s->free_slots || !s->where)
        return lode_fail(err, LODE_ERR_NOMEM, "--expert-cache", "out of memory for %.0f MiB",
                         (double)s->n_slots * (double)s->stride / 0x1p20);
    /* large pages would give memory to the unused ends of slots */
    madvise(s->memory, s->n_slots * s->stride, least == s->stride ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    memset(s->where, 0xff, s->n_groups * sizeof *s->where);
    for (uint32_t i = 0; i < s->n_slots; i++) {
        s->slots[i].stream = s;
        s->free_slots[i] = s->n_slots - 1 - i;
    }
    s->n_free = s->n_slots;
    return 0;
}

static int start_helpers(struct stream *s, struct lode_error *err) {
    bool needed = false;
    for (uint32_t g = 0; g < s->n_groups; g++)
        needed |= s->layouts[g].n_parts == 0;
    while (needed && s->n_helpers < HELPERS &&
           pthread_create(&s->helpers[s->n_helpers], NULL, put_together, s) == 0)
        s->n_helpers++;
    return s->n_helpers || !needed ? 0
                                   : lode_fail(err, LODE_ERR_LIMIT, "experts",
                                               "no thread can be started to read them");
}

/* The most used first, while there is room; as guesses that are not judged, behind what is asked for. */
static void start_warm(struct stream *s, const uint32_t *hot, uint32_t n_hot) {
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < n_hot && s->n_free > 0; i++) {
        const uint32_t group = hot[i];
        const size_t size = s->layouts[group].size;
        if (s->where[group] != NOWHERE || lode_policy_used(s->policy) + size > s->budget)
            continue;
        start_load(s, make_room(s, size), group, true);
        s->slots[s->where[group]].guess = false;
    }
    pthread_mutex_unlock(&s->lock);
}

static int make(struct stream *s, uint32_t n_weights, const struct lode_stream_opts *o,
                struct lode_error *err) {
    s->at = LODE_NEW_ARRAY(size_t, n_weights);
    if (!s->at)
        return lode_fail_nomem(err, "expert cache");
    LODE_TRY(lay_out_all(s, err));
    LODE_TRY(make_policy(s, o->policy, err));
    LODE_TRY(make_slots(s, err));
    struct lode_file_store_opts resident = o->resident;
    if (resident.n_skip == 0) {
        resident.skip_first = s->first_group;
        resident.n_skip = s->n_groups;
    }
    if (!s->resident)
        LODE_TRY(
            lode_file_store_create(&s->resident, s->source, s->weights, n_weights, &resident, err));
    s->base.resident = s->resident->resident + s->budget;
    if (s->n_paths)
        LODE_TRY(lode_reader_create(&s->reader, s->paths, s->n_paths, &o->reader, err));
    LODE_TRY(start_helpers(s, err));
    start_warm(s, o->hot, o->n_hot);
    s->cache = (struct lode_cache){cache_held, cache_shrink, cache_grow, s, NULL};
    lode_cache_list(&s->cache);
    return 0;
}

int lode_stream_create(struct lode_store **out, const struct lode_source *source,
                       const struct lode_weight *weights, uint32_t n_weights,
                       const struct lode_group *groups, uint32_t first, uint32_t n_groups,
                       const struct lode_stream_opts *opts, struct lode_error *err) {
    *out = NULL;
    struct stream *s = LODE_NEW(struct stream);
    if (!s) {
        if (opts->under)
            opts->under->ops->free(opts->under);
        return lode_fail_nomem(err, "expert cache");
    }
    *s = (struct stream){.base = {.ops = &ops},
                         .source = source,
                         .weights = weights,
                         .groups = groups + first,
                         .first_group = first,
                         .n_groups = n_groups,
                         .in_turn = opts->in_turn,
                         .resident = opts->under,
                         .budget = opts->budget,
                         .budget_first = opts->budget,
                         .check = !opts->no_checksum};
    s->base.guesses = !opts->no_prefetch && !opts->in_turn;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->arrived, NULL);
    pthread_cond_init(&s->work, NULL);
    const int rc = make(s, n_weights, opts, err);
    if (rc < 0)
        stream_free(&s->base);
    else
        *out = &s->base;
    return rc;
}
