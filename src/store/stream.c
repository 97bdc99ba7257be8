#include "store/stream.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "store/stream_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { GLANCE_NS = 50000000 /* a wait looks up that often, for who cancels */ };

static const struct lode_store_ops ops;

static struct stream *stream(struct lode_store *s) { return (struct stream *)s; }

/* The group of a weight, or LODE_NO_GROUP: it is in the store below. */
static uint32_t group_here(const struct stream *s, uint32_t id) {
    const uint32_t g = s->weights[id].group - s->first_group;
    return g < s->n_groups ? g : LODE_NO_GROUP;
}

void lode_stream_sizes(const struct lode_source *source, const struct lode_weight *weights,
                       const struct lode_group *groups, uint32_t n_groups, uint64_t *least,
                       uint64_t *most) {
    *least = *most = 0;
    for (uint32_t i = 0; i < n_groups; i++) {
        const size_t size = lode_layout_size(source, weights, &groups[i]);
        *least = size > *least ? size : *least;
        *most += size;
    }
}

/* ---- pins ---- */

/* The matrix of a layer that begins at a byte of its file; "": none does. */
static const char *name_at(const struct stream *s, const struct lode_group *g, uint64_t offset) {
    struct lode_place p;
    for (uint32_t i = 0; i < g->n_weights; i++) {
        const struct lode_weight *w = &s->weights[g->weights[i]];
        if (lode_source_place(s->source, w->home, w->offset, w->size, &p) && p.offset == offset)
            return w->home->name;
    }
    return "";
}

static int fail_group(struct stream *s, const struct stream_slot *slot, struct lode_error *err) {
    const struct lode_group *g = &s->groups[slot->group];
    const bool damaged = slot->read.fault.cause == LODE_READ_DAMAGED;
    char what[LODE_GGUF_MAX_NAME + 32];
    if (slot->read.fault.cause == LODE_READ_SOURCE)
        return lode_assembler_fail(s->assembler, slot->group, err);
    if (g->expert == LODE_NO_EXPERT)
        snprintf(what, sizeof what, "%s%slayer %" PRIu32,
                 damaged ? name_at(s, g, slot->read.fault.offset) : "", damaged ? " of " : "", g->layer);
    else
        snprintf(what, sizeof what, "expert %" PRIu32 " of layer %" PRIu32, g->expert, g->layer);
    return lode_reader_fail(s->reader, &slot->read.fault, what, err);
}

static int state_of(struct stream *s, const struct stream_slot *slot, uint32_t id,
                    const void **data, struct lode_error *err) {
    if (slot->state == STREAM_LOADING)
        return LODE_PENDING;
    if (slot->state == STREAM_FAILED)
        return fail_group(s, slot, err);
    *data = slot->read.base + s->layouts.at[id];
    return LODE_READY;
}

/* While one group is computed with, the next is read; behind the last comes the first. */
static void read_next(struct stream *s, uint32_t group) {
    const uint32_t next = group + 1 < s->n_groups ? group + 1 : 0;
    if (s->where[next] != LODE_NO_ROOM)
        return;
    struct stream_slot *slot = stream_make_room(s, s->layouts.groups[next].size);
    if (slot) {
        stream_load(s, slot, next, true);
        slot->guess = false;
    }
}

/* The slot of a group that is used; NULL: there is no room, or it has just been called off and must
 * be gone before it can be read again. */
static struct stream_slot *slot_of(struct stream *s, uint32_t group) {
    if (s->where[group] == LODE_NO_ROOM) {
        lode_policy_visit(s->policy, stream_policy_id(s, group));
        struct stream_slot *slot = stream_make_room(s, s->layouts.groups[group].size);
        if (slot)
            stream_load(s, slot, group, false);
        return slot;
    }
    struct stream_slot *slot = &s->slots[s->where[group]];
    if (slot->state == STREAM_LEAVING)
        return NULL;
    if (slot->refs == 0)
        lode_policy_touch(s->policy, stream_policy_id(s, group));
    if (slot->guess)
        stream_came_true(s, slot);
    if (slot->state == STREAM_LOADING && slot->read.n_parts)
        lode_reader_urge(s->reader, &slot->read);
    return slot;
}

static int pin(struct lode_store *store, uint32_t id, const void **data, struct lode_error *err) {
    struct stream *s = stream(store);
    const uint32_t group = group_here(s, id);
    if (group == LODE_NO_GROUP)
        return s->resident->ops->pin(s->resident, id, data, err);
    pthread_mutex_lock(&s->lock);
    const bool hit = s->where[group] != LODE_NO_ROOM;
    struct stream_slot *slot = slot_of(s, group);
    const int rc = slot ? state_of(s, slot, id, data, err) : LODE_FULL;
    if (slot && id == s->groups[group].weights[0]) {
        s->uses[group]++;
        stream_count_of(s, group)->uses++;
        stream_count_of(s, group)->hits += hit;
    }
    if (rc == LODE_READY || rc == LODE_PENDING) {
        if (slot->refs++ == 0)
            stream_pin(s, slot);
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
    struct stream_slot *slot = &s->slots[s->where[group]];
    if (--slot->refs == 0) {
        stream_unpin(s, slot);
        if (slot->state == STREAM_FAILED)
            stream_drop(s, slot);
        stream_tell(s);
    }
    pthread_mutex_unlock(&s->lock);
}

/* ---- guesses, news ---- */

static void need(struct lode_store *store, uint32_t id) {
    struct stream *s = stream(store);
    const uint32_t group = group_here(s, id);
    if (group == LODE_NO_GROUP)
        return;
    pthread_mutex_lock(&s->lock);
    lode_policy_visit(s->policy, stream_policy_id(s, group));
    if (s->where[group] != LODE_NO_ROOM)
        lode_policy_expect(s->policy, stream_policy_id(s, group));
    pthread_mutex_unlock(&s->lock);
}

static void want(struct lode_store *store, struct lode_guesses *mine, struct lode_wanted *wanted, uint32_t n) {
    struct stream *s = stream(store);
    struct lode_wanted groups[LODE_GUESSES];
    uint32_t n_groups = 0;
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < n && n_groups < LODE_GUESSES; i++) {
        const uint32_t group = group_here(s, wanted[i].id);
        if (group == LODE_NO_GROUP || s->in_turn || !s->layouts.groups[group].n_parts)
            continue;
        wanted[i].away = s->where[group] == LODE_NO_ROOM || s->slots[s->where[group]].state != STREAM_HERE;
        groups[n_groups++] = (struct lode_wanted){.id = group, .chance = wanted[i].chance};
    }
    stream_want(s, mine, groups, n_groups);
    pthread_mutex_unlock(&s->lock);
}

static void settle(struct lode_store *store, struct lode_guesses *mine) {
    struct stream *s = stream(store);
    pthread_mutex_lock(&s->lock);
    stream_settle(s, mine);
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

static void wait(struct lode_store *store, uint64_t seen, uint32_t id) {
    struct stream *s = stream(store);
    const uint32_t group = group_here(s, id);
    const uint64_t start = lode_clock_ns(), until = start + GLANCE_NS;
    if (group == LODE_NO_GROUP) {
        s->resident->ops->wait(s->resident, seen, id);
        return;
    }
    const struct timespec t = {(time_t)(until / 1000000000), (long)(until % 1000000000)};
    pthread_mutex_lock(&s->lock);
    s->n_waiting++;
    while (s->news == seen && pthread_cond_timedwait(&s->arrived, &s->lock, &t) == 0)
        ;
    s->n_waiting--;
    stream_count_of(s, group)->wait_ns += lode_clock_ns() - start;
    pthread_mutex_unlock(&s->lock);
}

static void count(struct lode_store *store, struct lode_profile *out) {
    struct stream *s = stream(store);
    if (s->resident->ops->count)
        s->resident->ops->count(s->resident, out);
    pthread_mutex_lock(&s->lock);
    for (uint32_t l = 0; l < s->n_layers && l < LODE_PROFILE_LAYERS; l++) {
        const struct stream_count *c = &s->counts[l];
        struct lode_profile_layer *to = &out->layers[l];
        to->waited += (double)c->wait_ns * 1e-9;
        to->uses += c->uses;
        to->hits += c->hits;
        to->bytes += c->bytes;
        to->guesses += c->guesses;
        to->guessed += c->guessed;
    }
    out->streams = true;
    out->cache += s->budget + s->staged;
    out->held += lode_policy_used(s->policy);
    out->cancelled += s->cancelled;
    out->busy += s->reader ? (double)lode_reader_busy(s->reader) * 1e-9 : 0;
    out->busy += s->assembler ? (double)lode_assembler_busy(s->assembler) * 1e-9 : 0;
    out->reader = s->reader ? lode_reader_name(s->reader) : lode_assembler_name(s->assembler);
    pthread_mutex_unlock(&s->lock);
}

static const uint32_t *uses(struct lode_store *store) {
    return stream(store)->in_turn ? NULL : stream(store)->uses;
}

static int verify(struct lode_store *store, struct lode_error *err) {
    struct stream *s = stream(store);
    return lode_source_check(s->source, err);
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
    pthread_mutex_lock(&s->lock);
    const uint64_t given = stream_give_back(s, bytes);
    if (stay) /* never below a sixteenth: it would only read */
        s->budget =
            s->budget > given + s->budget_first / 16 && s->budget - given >= s->layouts.largest
                ? s->budget - given
                : s->budget;
    lode_policy_set_capacity(s->policy, s->budget);
    stream_tell(s);
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
    lode_assembler_free(s->assembler);
    lode_reader_free(s->reader);
    if (s->resident)
        s->resident->ops->free(s->resident);
    lode_policy_free(s->policy);
    lode_rooms_free(&s->rooms);
    lode_layouts_free(&s->layouts);
    void *const all[] = {s->where, s->group_of, s->slots, s->counts, s->uses};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        lode_free(all[i]);
    pthread_cond_destroy(&s->arrived);
    pthread_mutex_destroy(&s->lock);
    lode_free(s);
}

static const struct lode_store_ops ops = {.pin = pin,
                                          .look = look,
                                          .unpin = unpin,
                                          .need = need,
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
    s->counts = LODE_NEW_ARRAY(struct stream_count, n_layers);
    s->uses = LODE_NEW_ARRAY(uint32_t, s->n_groups);
    if (!s->counts || !s->uses)
        return lode_fail_nomem(err, "expert cache");
    const struct lode_policy_shape shape = {n_layers, s->n_experts + 1, s->budget};
    LODE_TRY(lode_policy_create(&s->policy, name, &shape, err));
    s->group_of = LODE_NEW_ARRAY(uint32_t, (size_t)n_layers * (s->n_experts + 1));
    if (!s->group_of)
        return lode_fail_nomem(err, "expert cache");
    for (uint32_t g = 0; g < s->n_groups; g++)
        s->group_of[stream_policy_id(s, g)] = g;
    return 0;
}

/* Room is address space first: memory comes with what is read into it, and within the budget. */
static int make_slots(struct stream *s, struct lode_error *err) {
    if (s->budget < s->layouts.largest)
        return lode_fail(err, LODE_ERR_LIMIT, "--expert-cache",
                         "%.2f MiB of memory are left for experts, but one takes %.2f MiB",
                         (double)s->budget / 0x1p20, (double)s->layouts.largest / 0x1p20);
    size_t *sizes = LODE_NEW_ARRAY(size_t, s->n_groups);
    s->where = LODE_NEW_ARRAY(uint32_t, s->n_groups);
    for (uint32_t g = 0; sizes && g < s->n_groups; g++)
        sizes[g] = s->layouts.groups[g].size;
    const int rc = sizes && s->where
                       ? lode_rooms_make(&s->rooms, sizes, s->n_groups, s->budget, err)
                       : lode_fail_nomem(err, "expert cache");
    lode_free(sizes);
    LODE_TRY(rc);
    s->slots = LODE_NEW_ARRAY(struct stream_slot, s->rooms.n);
    if (!s->slots)
        return lode_fail_nomem(err, "expert cache");
    for (uint32_t g = 0; g < s->n_groups; g++)
        s->where[g] = LODE_NO_ROOM;
    for (uint32_t i = 0; i < s->rooms.n; i++)
        s->slots[i].stream = s;
    return 0;
}

/* The most used first, while there is room; as guesses that are not judged, behind what is asked
 * for. */
static void start_warm(struct stream *s, const uint32_t *hot, uint32_t n_hot) {
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < n_hot; i++) {
        const uint32_t group = hot[i];
        const size_t size = s->layouts.groups[group].size;
        if (s->where[group] != LODE_NO_ROOM || !lode_rooms_has(&s->rooms, size) ||
            lode_policy_used(s->policy) + size > s->budget)
            continue;
        stream_load(s, stream_make_room(s, size), group, true);
        s->slots[s->where[group]].guess = false;
    }
    pthread_mutex_unlock(&s->lock);
}

/* What it holds is of the budget, as far as groups leave it: a small part. */
static int make_assembler(struct stream *s, const struct lode_stream_opts *o, struct lode_error *err) {
    /* layers have room for two, and what is left is for this */
    const uint64_t least = s->layouts.largest * (s->in_turn ? 2 : 1), most = s->in_turn ? s->budget : s->budget / 4;
    const uint64_t left = s->budget > least ? s->budget - least : 0;
    const struct lode_assembler_opts opts = {
        .memory = left < most ? left : most, .by_weight = s->in_turn, .reader = o->reader};
    LODE_TRY(lode_assembler_create(&s->assembler, s->source, s->weights, s->groups, s->n_groups, &s->layouts,
                                   &opts, &s->staged, err));
    s->budget -= s->staged;
    s->budget_first = s->budget;
    return 0;
}

static int make(struct stream *s, uint32_t n_weights, const struct lode_stream_opts *o,
                struct lode_error *err) {
    LODE_TRY(lode_layouts_make(&s->layouts, s->source, s->weights, n_weights, s->groups,
                               s->n_groups, err));
    if (s->layouts.assembled)
        LODE_TRY(make_assembler(s, o, err));
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
    s->base.resident = s->resident->resident + s->budget + s->staged;
    struct lode_reader_opts reader = o->reader;
    reader.n_rooms = s->rooms.n;
    reader.rooms_size = s->rooms.bytes;
    if (s->layouts.n_files)
        LODE_TRY(
            lode_reader_create(&s->reader, s->layouts.files, s->layouts.n_files, &reader, err));
    if (o->resident.prefault)
        LODE_TRY(lode_rooms_touch(&s->rooms, err));
    for (uint32_t i = 0; o->resident.prefault && i < s->rooms.n; i++)
        s->slots[i].touched = true;
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
                         .trial = LODE_TRIAL,
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
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->arrived, &monotonic);
    pthread_condattr_destroy(&monotonic);
    const int rc = make(s, n_weights, opts, err);
    if (rc < 0)
        stream_free(&s->base);
    else
        *out = &s->base;
    return rc;
}
