#include "store/state.h"

#include "base/alloc.h"

#include <assert.h>
#include <string.h>

#define NOWHERE UINT32_MAX

struct place { /* of a layer in a block, in floats */
    size_t inputs, delta;
};

struct lode_state {
    struct lode_state_layer *layers; /* owned; (n_layers) */
    struct place *places;            /* owned; (n_layers) */
    size_t block;                    /* floats, a multiple of 16 */
    const struct lode_memory *memory; /* of the blocks */
    float *blocks; /* owned; (1 + CHECKPOINTS, block): the state, then its checkpoints */
    uint32_t pos;  /* where it stands */
    uint32_t at[LODE_STATE_CHECKPOINTS]; /* where each checkpoint stands */
    uint32_t held;                       /* the position of the one that the last prompt left */
    struct {
        uint32_t pos, n, mark; /* mark: rows before the checkpoint */
        uint32_t slot;
    } step;
};

static size_t padded(uint64_t floats) { return (size_t)((floats + 15) & ~UINT64_C(15)); }

static uint64_t delta_floats(const struct lode_state_layer *l) {
    return (uint64_t)l->dim_k * l->dim_v;
}

uint64_t lode_state_block(const struct lode_state_layer *layers, uint32_t n_layers) {
    uint64_t floats = 0;
    for (uint32_t l = 0; l < n_layers; l++)
        floats += padded((uint64_t)layers[l].inputs * layers[l].width) +
                  padded(layers[l].n_heads * delta_floats(&layers[l]));
    return floats * sizeof(float);
}

int lode_state_create(struct lode_state **out, const struct lode_state_layer *layers,
                      uint32_t n_layers, const struct lode_memory *memory,
                      struct lode_error *err) {
    struct lode_state *s = LODE_NEW(struct lode_state);
    *out = s;
    if (!s)
        return lode_fail_nomem(err, "recurrent state");
    s->layers = LODE_NEW_ARRAY(struct lode_state_layer, n_layers);
    s->places = LODE_NEW_ARRAY(struct place, n_layers);
    s->block = (size_t)(lode_state_block(layers, n_layers) / sizeof(float));
    s->memory = memory;
    s->blocks = memory->alloc(memory, 4096, 1 + LODE_STATE_CHECKPOINTS, s->block * sizeof(float));
    if (!s->layers || !s->places || !s->blocks) {
        const double size = (double)s->block * sizeof(float) * (1 + LODE_STATE_CHECKPOINTS);
        lode_state_free(s);
        *out = NULL;
        return lode_fail(err, LODE_ERR_NOMEM, "session",
                         "the state of the recurrent layers and its checkpoints need %.1f MiB",
                         size / 0x1p20);
    }
    memcpy(s->layers, layers, n_layers * sizeof *layers);
    size_t at = 0;
    for (uint32_t l = 0; l < n_layers; l++) {
        s->places[l].inputs = at;
        at += padded((uint64_t)layers[l].inputs * layers[l].width);
        s->places[l].delta = at;
        at += padded(layers[l].n_heads * delta_floats(&layers[l]));
    }
    s->pos = s->held = NOWHERE;
    for (uint32_t i = 0; i < LODE_STATE_CHECKPOINTS; i++)
        s->at[i] = NOWHERE;
    return 0;
}

void lode_state_free(struct lode_state *s) {
    if (!s)
        return;
    lode_free(s->layers);
    lode_free(s->places);
    s->memory->free(s->memory, s->blocks);
    lode_free(s);
}

/* ---- checkpoints ---- */

static size_t bytes_of(const struct lode_state *s) { return s->block * sizeof(float); }

static float *block_of(const struct lode_state *s, uint32_t slot) {
    return s->blocks + (size_t)(slot + 1) * s->block;
}

/* The newest checkpoint at or before n, or CHECKPOINTS. */
static uint32_t newest(const struct lode_state *s, uint32_t n) {
    uint32_t best = LODE_STATE_CHECKPOINTS;
    for (uint32_t i = 0; i < LODE_STATE_CHECKPOINTS; i++)
        if (s->at[i] != NOWHERE && s->at[i] <= n &&
            (best == LODE_STATE_CHECKPOINTS || s->at[i] > s->at[best]))
            best = i;
    return best;
}

/* From the checkpoint before this one to the next: up to where a new one is wanted, if it is last.
 */
static uint32_t gap(const struct lode_state *s, uint32_t slot, uint32_t wanted) {
    uint32_t before = 0, after = wanted;
    for (uint32_t i = 0; i < LODE_STATE_CHECKPOINTS; i++) {
        if (s->at[i] < s->at[slot] && s->at[i] > before)
            before = s->at[i];
        if (s->at[i] > s->at[slot] && s->at[i] < after)
            after = s->at[i];
    }
    return after - before;
}

/* A place for a checkpoint; those of the last prompt and the newest one stay. */
static uint32_t free_slot(const struct lode_state *s, uint32_t wanted) {
    uint32_t best = LODE_STATE_CHECKPOINTS;
    const uint32_t last = newest(s, wanted);
    for (uint32_t i = 0; i < LODE_STATE_CHECKPOINTS; i++) {
        if (s->at[i] == NOWHERE)
            return i;
        if (i != last && s->at[i] != s->held &&
            (best == LODE_STATE_CHECKPOINTS || gap(s, i, wanted) < gap(s, best, wanted)))
            best = i;
    }
    return best;
}

static uint32_t multiple(uint32_t pos) { return pos - pos % LODE_STATE_EVERY; }

/* Where a step over pos .. pos + n - 1 leaves a checkpoint; NOWHERE. */
static uint32_t wanted_at(const struct lode_state *s, uint32_t pos, uint32_t n) {
    const uint32_t end = pos + n;
    uint32_t at = n > LODE_STATE_BACK ? multiple(end - LODE_STATE_BACK) : pos;
    if (at <= pos)
        at = multiple(end);
    if (at <= pos)
        return NOWHERE;
    for (uint32_t i = 0; i < LODE_STATE_CHECKPOINTS; i++)
        if (s->at[i] == at) /* tokens are being evaluated again */
            return NOWHERE;
    return at;
}

void lode_state_begin(struct lode_state *s, uint32_t pos, uint32_t n) {
    assert(lode_state_at(s, pos));
    const uint32_t at = wanted_at(s, pos, n);
    s->pos = NOWHERE;
    s->step.pos = pos;
    s->step.n = n;
    s->step.mark = UINT32_MAX;
    if (at == NOWHERE)
        return;
    s->step.mark = at - pos;
    s->step.slot = free_slot(s, at);
    s->at[s->step.slot] = NOWHERE;
}

void lode_state_commit(struct lode_state *s) {
    s->pos = s->step.pos + s->step.n;
    if (s->step.mark != UINT32_MAX)
        s->at[s->step.slot] = s->step.pos + s->step.mark;
    if (s->step.n == 1 || s->pos < LODE_STATE_BACK)
        return;
    const uint32_t slot = newest(s, s->pos - LODE_STATE_BACK);
    s->held = slot < LODE_STATE_CHECKPOINTS ? s->at[slot] : NOWHERE;
}

bool lode_state_at(const struct lode_state *s, uint32_t n) { return s->pos == n && n != NOWHERE; }

void lode_state_truncate(struct lode_state *s, uint32_t n) {
    if (s->pos != n)
        s->pos = NOWHERE;
    for (uint32_t i = 0; i < LODE_STATE_CHECKPOINTS; i++)
        if (s->at[i] != NOWHERE && s->at[i] > n)
            s->at[i] = NOWHERE;
}

uint32_t lode_state_rewind(struct lode_state *s, uint32_t n) {
    const uint32_t slot = newest(s, n);
    const bool found = slot < LODE_STATE_CHECKPOINTS;
    s->pos = found ? s->at[slot] : 0;
    if (found)
        s->memory->copy(s->memory, s->blocks, block_of(s, slot), bytes_of(s));
    else
        s->memory->zero(s->memory, s->blocks, bytes_of(s));
    return s->pos;
}

void lode_state_save(const struct lode_state *s, void *out) {
    assert(s->pos != NOWHERE);
    s->memory->get(s->memory, out, s->blocks, bytes_of(s));
}

void lode_state_restore(struct lode_state *s, const void *block, uint32_t n) {
    s->memory->put(s->memory, s->blocks, block, bytes_of(s));
    s->pos = n;
    lode_state_truncate(s, n);
}

bool lode_state_checkpoint(const struct lode_state *s, uint32_t n, void *out) {
    const uint32_t slot = newest(s, n);
    if (slot == LODE_STATE_CHECKPOINTS || s->at[slot] != n)
        return false;
    s->memory->get(s->memory, out, block_of(s, slot), bytes_of(s));
    return true;
}

uint32_t lode_state_newest(const struct lode_state *s, uint32_t n) {
    const uint32_t slot = newest(s, n);
    return slot < LODE_STATE_CHECKPOINTS ? s->at[slot] : 0;
}

void lode_state_fork(struct lode_state *s, const struct lode_state *src) {
    lode_state_truncate(s, 0);
    s->memory->copy(s->memory, s->blocks, src->blocks, bytes_of(s));
    s->pos = src->pos;
}

/* ---- for ops ---- */

uint32_t lode_state_mark(const struct lode_state *s) { return s->step.mark; }

static float *layer_of(const struct lode_state *s, bool mark) {
    return mark ? block_of(s, s->step.slot) : s->blocks;
}

float *lode_state_inputs(const struct lode_state *s, uint32_t layer, bool mark) {
    return layer_of(s, mark) + s->places[layer].inputs;
}

float *lode_state_delta(const struct lode_state *s, uint32_t layer, uint32_t head, bool mark) {
    return layer_of(s, mark) + s->places[layer].delta +
           head * (size_t)delta_floats(&s->layers[layer]);
}
