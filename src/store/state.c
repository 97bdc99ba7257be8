#include "store/state.h"

#include "base/alloc.h"

#include <assert.h>
#include <string.h>

#define NOWHERE UINT32_MAX

struct place { /* of a layer in the block of its place, in floats */
    size_t inputs, delta;
};

struct blocks { /* at a place: the state, then its checkpoints */
    const struct lode_memory *memory;
    size_t size;  /* floats of one, a multiple of 16; 0: none are there */
    float *data;  /* owned; (1 + CHECKPOINTS, size) */
};

struct lode_state {
    struct lode_state_layer *layers; /* owned; (n_layers) */
    struct place *places;            /* owned; (n_layers) */
    struct blocks blocks[LODE_PLACES];
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

static uint64_t inputs_floats(const struct lode_state_layer *l) {
    return (uint64_t)l->inputs * l->width;
}

uint64_t lode_state_block_at(const struct lode_state_layer *layers, uint32_t n_layers, uint32_t place) {
    uint64_t floats = 0;
    for (uint32_t l = 0; l < n_layers; l++)
        if (layers[l].place == place)
            floats += padded(inputs_floats(&layers[l])) +
                      padded(layers[l].n_heads * delta_floats(&layers[l]));
    return floats * sizeof(float);
}

uint64_t lode_state_block(const struct lode_state_layer *layers, uint32_t n_layers) {
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < LODE_PLACES; p++)
        bytes += lode_state_block_at(layers, n_layers, p);
    return bytes;
}

/* (1 + CHECKPOINTS) blocks at each place that has any. */
static bool take_blocks(struct lode_state *s, const struct lode_state_layer *layers, uint32_t n_layers,
                        const struct lode_memory *const memory[LODE_PLACES]) {
    for (uint32_t p = 0; p < LODE_PLACES; p++) {
        struct blocks *b = &s->blocks[p];
        b->size = (size_t)(lode_state_block_at(layers, n_layers, p) / sizeof(float));
        b->memory = memory[p];
        if (b->size == 0)
            continue;
        b->data = b->memory->alloc(b->memory, 4096, 1 + LODE_STATE_CHECKPOINTS, b->size * sizeof(float));
        if (!b->data)
            return false;
    }
    return true;
}

int lode_state_create(struct lode_state **out, const struct lode_state_layer *layers,
                      uint32_t n_layers, const struct lode_memory *const memory[LODE_PLACES],
                      struct lode_error *err) {
    struct lode_state *s = LODE_NEW(struct lode_state);
    *out = s;
    if (!s)
        return lode_fail_nomem(err, "recurrent state");
    s->layers = LODE_NEW_ARRAY(struct lode_state_layer, n_layers);
    s->places = LODE_NEW_ARRAY(struct place, n_layers);
    if (!s->layers || !s->places || !take_blocks(s, layers, n_layers, memory)) {
        const double size =
            (double)lode_state_block(layers, n_layers) * (1 + LODE_STATE_CHECKPOINTS);
        lode_state_free(s);
        *out = NULL;
        return lode_fail(err, LODE_ERR_NOMEM, "session",
                         "the state of the recurrent layers and its checkpoints need %.1f MiB",
                         size / 0x1p20);
    }
    memcpy(s->layers, layers, n_layers * sizeof *layers);
    size_t at[LODE_PLACES] = {0};
    for (uint32_t l = 0; l < n_layers; l++) {
        size_t *end = &at[layers[l].place];
        s->places[l].inputs = *end;
        *end += padded(inputs_floats(&layers[l]));
        s->places[l].delta = *end;
        *end += padded(layers[l].n_heads * delta_floats(&layers[l]));
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
    for (uint32_t p = 0; p < LODE_PLACES; p++)
        if (s->blocks[p].data)
            s->blocks[p].memory->free(s->blocks[p].memory, s->blocks[p].data);
    lode_free(s);
}

/* ---- checkpoints ---- */

/* The state itself, as a checkpoint's slot. */
#define NOW UINT32_MAX

static float *block_of(const struct blocks *b, uint32_t slot) {
    return b->data + (size_t)(slot + 1) * b->size;
}

/* From one block to another, at all places; of another sequence's, of the same layers. */
static void copy_block(struct lode_state *s, uint32_t to, const struct lode_state *src, uint32_t from) {
    for (uint32_t p = 0; p < LODE_PLACES; p++) {
        const struct blocks *b = &s->blocks[p];
        if (b->size)
            b->memory->copy(b->memory, block_of(b, to), block_of(&src->blocks[p], from),
                            b->size * sizeof(float));
    }
}

/* A block as the host has it: those of the places one after the other.  false: a device failed. */
static bool get_block(const struct lode_state *s, uint32_t slot, void *out) {
    char *at = out;
    for (uint32_t p = 0; p < LODE_PLACES; p++) {
        const struct blocks *b = &s->blocks[p];
        if (b->size && !b->memory->get(b->memory, at, block_of(b, slot), b->size * sizeof(float)))
            return false;
        at += b->size * sizeof(float);
    }
    return true;
}

static void put_block(struct lode_state *s, const void *block) {
    const char *at = block;
    for (uint32_t p = 0; p < LODE_PLACES; p++) {
        const struct blocks *b = &s->blocks[p];
        if (b->size)
            b->memory->put(b->memory, b->data, at, b->size * sizeof(float));
        at += b->size * sizeof(float);
    }
}

static void zero_block(struct lode_state *s) {
    for (uint32_t p = 0; p < LODE_PLACES; p++) {
        const struct blocks *b = &s->blocks[p];
        if (b->size)
            b->memory->zero(b->memory, b->data, b->size * sizeof(float));
    }
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
        copy_block(s, NOW, s, slot);
    else
        zero_block(s);
    return s->pos;
}

bool lode_state_save(const struct lode_state *s, void *out) {
    assert(s->pos != NOWHERE);
    return get_block(s, NOW, out);
}

void lode_state_restore(struct lode_state *s, const void *block, uint32_t n) {
    put_block(s, block);
    s->pos = n;
    lode_state_truncate(s, n);
}

bool lode_state_checkpoint(const struct lode_state *s, uint32_t n, void *out) {
    const uint32_t slot = newest(s, n);
    if (slot == LODE_STATE_CHECKPOINTS || s->at[slot] != n)
        return false;
    return get_block(s, slot, out);
}

uint32_t lode_state_newest(const struct lode_state *s, uint32_t n) {
    const uint32_t slot = newest(s, n);
    return slot < LODE_STATE_CHECKPOINTS ? s->at[slot] : 0;
}

void lode_state_fork(struct lode_state *s, const struct lode_state *src) {
    lode_state_truncate(s, 0);
    copy_block(s, NOW, src, NOW);
    s->pos = src->pos;
}

/* ---- for ops ---- */

uint32_t lode_state_mark(const struct lode_state *s) { return s->step.mark; }

float *lode_state_begins(const struct lode_state *s, uint32_t place, bool mark) {
    const struct blocks *b = &s->blocks[place];
    return b->data ? block_of(b, mark ? s->step.slot : NOW) : NULL;
}

static float *layer_of(const struct lode_state *s, uint32_t layer, bool mark) {
    return lode_state_begins(s, s->layers[layer].place, mark);
}

float *lode_state_inputs(const struct lode_state *s, uint32_t layer, bool mark) {
    return layer_of(s, layer, mark) + s->places[layer].inputs;
}

float *lode_state_delta(const struct lode_state *s, uint32_t layer, uint32_t head, bool mark) {
    return layer_of(s, layer, mark) + s->places[layer].delta +
           head * (size_t)delta_floats(&s->layers[layer]);
}
