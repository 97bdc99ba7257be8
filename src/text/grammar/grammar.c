/* grammar.c - the public face: compiling, checking, and a text on its way. */
#include "text/grammar/masks.h"

#include "base/clock.h"
#include "text/grammar/pattern.h"


static int compile(struct lode_grammar *g, enum lode_grammar_kind kind, struct lode_str text,
                   struct lode_error *err) {
    struct gbuild b = {.arena = &g->arena, .where = "schema", .err = err};
    switch (kind) {
    case LODE_GRAMMAR_SCHEMA:
        return schema_compile(&b, g, text);
    case LODE_GRAMMAR_REGEX:
        b.where = "regex";
        g->root = G_ROOT_TEXT;
        return pattern_compile(&b, text, false, &g->text);
    case LODE_GRAMMAR_GBNF:
        b.where = "grammar";
        return gbnf_compile(&b, g, text);
    }
    return lode_fail(err, LODE_ERR_ARG, "kind", "there is no grammar of kind %d", (int)kind);
}

int lode_grammar_compile(struct lode_grammar **out, enum lode_grammar_kind kind, const char *text,
                         size_t len, struct lode_error *err) {
    enum { MOST = 64 << 20 };
    struct lode_error ignored;
    const double start = lode_clock();
    *out = NULL;
    if (!err)
        err = &ignored;
    if (len > MOST)
        return lode_fail(err, LODE_ERR_LIMIT, "grammar", "%zu bytes, at most %d are read", len,
                         MOST);
    struct lode_grammar *g = LODE_NEW(struct lode_grammar);
    if (!g)
        return lode_fail_nomem(err, "a grammar");
    g->cache = mask_cache_create();
    int rc = g->cache ? compile(g, kind, (struct lode_str){text, len}, err)
                      : lode_fail_nomem(err, "a grammar");
    if (rc < 0) {
        lode_grammar_free(g);
        return rc;
    }
    g->seconds = lode_clock() - start;
    *out = g;
    return 0;
}

void lode_grammar_free(struct lode_grammar *g) {
    if (!g)
        return;
    mask_cache_free(g->cache);
    expr_free(&g->expr);
    GVEC_FREE(&g->nfa.states);
    lode_arena_free(&g->arena);
    lode_free(g);
}

size_t lode_grammar_bytes(const struct lode_grammar *g) {
    return sizeof *g + g->arena.bytes + g->nfa.states.cap * sizeof *g->nfa.states.v + expr_bytes(&g->expr) +
           mask_cache_bytes(g->cache);
}

double lode_grammar_seconds(const struct lode_grammar *g) { return g->seconds; }

bool lode_grammar_is_empty(const struct lode_grammar *g) {
    return g->root == G_ROOT_JSON ? !g->nodes[0].ok : g->root == G_ROOT_TEXT ? !g->text.n : false;
}

/* The machine's own failure as an error. */
static int machine_error(int failed, struct lode_error *err) {
    if (failed == LODE_ERR_NOMEM)
        return lode_fail_nomem(err, "a grammar's threads");
    return lode_fail(err, LODE_ERR_LIMIT, "grammar",
                     "the text is nested more than %d deep, or the grammar can be read in more "
                     "than %d ways at once",
                     MACHINE_MAX_DEPTH, MACHINE_MAX_THREADS);
}

/* Moves on by bytes.  *done: how many were taken before one led nowhere. */
static int run_bytes(struct machine *m, const char *text, size_t len, size_t *done,
                     struct lode_error *err) {
    frame_list next = {0};
    int rc = 0;
    for (*done = 0; *done < len && rc == 0; ++*done) {
        next.n = 0;
        machine_step(m, m->now.v, m->now.n, (uint8_t)text[*done], &next);
        if (m->failed) {
            rc = machine_error(m->failed, err);
            m->failed = 0;
        }
        if (rc < 0 || !next.n)
            break;
        const frame_list old = m->now;
        m->now = next;
        next = old;
    }
    GVEC_FREE(&next);
    return rc;
}

int lode_grammar_check(const struct lode_grammar *g, const char *text, size_t len, bool *accepted,
                       size_t *at, struct lode_error *err) {
    struct machine m;
    *accepted = false;
    *at = 0;
    if (lode_grammar_is_empty(g))
        return 0;
    const int rc = machine_init(&m, g, true);
    if (rc < 0)
        return machine_error(rc, err);
    /* in parts, so that what earlier parts left in the pools can go */
    const int run = run_bytes(&m, text, len, at, err);
    *accepted = run == 0 && *at == len && machine_complete(&m, m.now.v, m.now.n);
    machine_free(&m);
    return run;
}

/* ---- states ---- */

/* The threads before a step, for going back. */
struct past {
    struct frame *threads; /* owned */
    size_t n;
};

struct lode_grammar_state {
    struct machine m;
    struct masker k;
    struct past past[LODE_GRAMMAR_REWIND]; /* a ring */
    size_t n_past, next_past;
    uint32_t kept; /* frames in the pool after it was last cleaned */
};

int lode_grammar_state_create(struct lode_grammar_state **out, const struct lode_grammar *g,
                              const struct lode_grammar_vocab *v, struct lode_error *err) {
    *out = NULL;
    if (lode_grammar_is_empty(g))
        return lode_fail(err, LODE_ERR_ARG, "grammar",
                         "no text fits: the schema, or its parts together, can never be met");
    struct lode_grammar_state *s = LODE_NEW(struct lode_grammar_state);
    if (!s)
        return lode_fail_nomem(err, "a grammar's state");
    const int rc = machine_init(&s->m, g, false);
    if (rc < 0) {
        lode_free(s);
        return machine_error(rc, err);
    }
    s->k.vocab = v;
    *out = s;
    return 0;
}

static void forget_past(struct lode_grammar_state *s) {
    for (size_t i = 0; i < LODE_GRAMMAR_REWIND; i++) {
        lode_free(s->past[i].threads);
        s->past[i] = (struct past){0};
    }
    s->n_past = s->next_past = 0;
}

void lode_grammar_state_free(struct lode_grammar_state *s) {
    if (!s)
        return;
    forget_past(s);
    machine_free(&s->m);
    masker_free(&s->k);
    lode_free(s);
}

int lode_grammar_state_clone(struct lode_grammar_state **out, const struct lode_grammar_state *s,
                             struct lode_error *err) {
    *out = NULL;
    struct lode_grammar_state *c = LODE_NEW(struct lode_grammar_state);
    if (!c)
        return lode_fail_nomem(err, "a grammar's state");
    bool ok = machine_copy(&c->m, &s->m) == 0;
    c->k.vocab = s->k.vocab;
    c->n_past = s->n_past;
    c->next_past = s->next_past;
    c->kept = s->kept;
    for (size_t i = 0; i < LODE_GRAMMAR_REWIND && ok; i++) {
        if (!s->past[i].n)
            continue;
        c->past[i].threads = lode_alloc(s->past[i].n, sizeof *c->past[i].threads);
        ok = c->past[i].threads != NULL;
        if (ok) {
            c->past[i].n = s->past[i].n;
            memcpy(c->past[i].threads, s->past[i].threads,
                   s->past[i].n * sizeof *c->past[i].threads);
        }
    }
    if (!ok) {
        lode_grammar_state_free(c);
        return lode_fail_nomem(err, "a grammar's state");
    }
    *out = c;
    return 0;
}

int lode_grammar_state_reset(struct lode_grammar_state *s, struct lode_error *err) {
    struct machine fresh;
    const int rc = machine_init(&fresh, s->m.g, s->m.free_form);
    if (rc < 0)
        return machine_error(rc, err);
    forget_past(s);
    masker_forget(&s->k);
    machine_free(&s->m);
    s->m = fresh;
    s->kept = 0;
    return 0;
}

int lode_grammar_mask(struct lode_grammar_state *s, uint64_t *mask, struct lode_error *err) {
    return masker_mask(&s->k, &s->m, mask, err);
}

int lode_grammar_prepare(const struct lode_grammar *g, const struct lode_grammar_vocab *v, double seconds,
                         struct lode_error *err) {
    struct lode_grammar_state *s;
    if (lode_grammar_is_empty(g))
        return 0;
    int rc = lode_grammar_state_create(&s, g, v, err);
    if (rc < 0)
        return rc;
    rc = masker_ahead(&s->k, &s->m, seconds, err);
    lode_grammar_state_free(s);
    return rc;
}

bool lode_grammar_complete(const struct lode_grammar_state *s) {
    return machine_complete(&s->m, s->m.now.v, s->m.now.n);
}

/* ---- cleaning: frames that no thread, present or past, stands on ---- */

struct cleaning {
    struct machine *m;
    struct pool frames, cells;
    uint32_t *frame_to, *cell_to; /* new numbers; 0: not moved yet (0 itself stays 0) */
};

static uint32_t move_cell(struct cleaning *c, uint32_t i) {
    const struct cell *old = (const struct cell *)(const void *)c->m->cells.v;
    uint32_t n = 0, last = 0;
    /* oldest first, so that a cell's `next` is known: lists are short, walk them from each end */
    for (uint32_t k = i; k && !c->cell_to[k]; k = old[k].next)
        n++;
    for (; n > 0; n--) {
        uint32_t k = i;
        for (uint32_t j = 1; j < n; j++)
            k = old[k].next;
        struct cell x = old[k];
        x.next = x.next ? c->cell_to[x.next] : 0;
        last = pool_put(&c->cells, &x);
        if (last == UINT32_MAX)
            return last;
        c->cell_to[k] = last;
    }
    return i ? c->cell_to[i] : 0;
}

/* A frame's links, moved; its parents are moved already. */
static bool relink(struct cleaning *c, struct frame *f) {
    if (f->parent > 1)
        f->parent = c->frame_to[f->parent];
    if (f->keys)
        f->keys = move_cell(c, f->keys);
    return f->keys != UINT32_MAX;
}

/* Frames are put in the pool after their parents, so one pass in their order moves them. */
static bool mark(const struct machine *m, const struct frame *threads, size_t n, uint32_t *live) {
    for (size_t i = 0; i < n; i++)
        for (uint32_t p = threads[i].parent; p > 1 && !live[p]; p = machine_frame(m, p)->parent)
            live[p] = 1;
    return true;
}

static void clean(struct lode_grammar_state *s) {
    struct cleaning c = {.m = &s->m};
    const uint32_t n = s->m.frames.n;
    static const struct frame end = {.kind = F_END}, unknown = {.kind = F_UNKNOWN};
    static const struct cell no_cell = {.key = UINT64_MAX};
    if (n < 1024 || n < 4 * s->kept)
        return;
    c.frames.size = s->m.frames.size;
    c.cells.size = s->m.cells.size;
    c.frame_to = lode_alloc_zero(n, sizeof *c.frame_to);
    c.cell_to = lode_alloc_zero((size_t)s->m.cells.n + 1, sizeof *c.cell_to);
    bool ok = c.frame_to && c.cell_to && pool_put(&c.frames, &end) == 0 &&
              pool_put(&c.frames, &unknown) == 1 && pool_put(&c.cells, &no_cell) == 0;
    if (ok) {
        mark(&s->m, s->m.now.v, s->m.now.n, c.frame_to);
        for (size_t i = 0; i < LODE_GRAMMAR_REWIND; i++)
            mark(&s->m, s->past[i].threads, s->past[i].n, c.frame_to);
    }
    for (uint32_t i = 2; i < n && ok; i++) {
        if (!c.frame_to[i])
            continue;
        struct frame f = *machine_frame(&s->m, i);
        ok = relink(&c, &f);
        c.frame_to[i] = ok ? pool_put(&c.frames, &f) : 0;
        ok = ok && c.frame_to[i] != UINT32_MAX;
    }
    /* cells of the threads themselves, before anything is changed for good */
    for (size_t i = 0; i < s->m.now.n && ok; i++)
        ok = move_cell(&c, s->m.now.v[i].keys) != UINT32_MAX;
    for (size_t i = 0; i < LODE_GRAMMAR_REWIND && ok; i++)
        for (size_t k = 0; k < s->past[i].n && ok; k++)
            ok = move_cell(&c, s->past[i].threads[k].keys) != UINT32_MAX;
    if (ok) {
        for (size_t i = 0; i < s->m.now.n; i++)
            relink(&c, &s->m.now.v[i]);
        for (size_t i = 0; i < LODE_GRAMMAR_REWIND; i++)
            for (size_t k = 0; k < s->past[i].n; k++)
                relink(&c, &s->past[i].threads[k]);
        pool_free(&s->m.frames);
        pool_free(&s->m.cells);
        s->m.frames = c.frames;
        s->m.cells = c.cells;
        s->kept = s->m.frames.n;
        masker_forget(&s->k);
    } else { /* without memory: later */
        pool_free(&c.frames);
        pool_free(&c.cells);
    }
    lode_free(c.frame_to);
    lode_free(c.cell_to);
}

/* ---- moving on, and back ---- */

int lode_grammar_accept_bytes(struct lode_grammar_state *s, const char *text, size_t len,
                              struct lode_error *err) {
    struct past *p = &s->past[s->next_past];
    size_t done;
    struct frame *threads = lode_alloc(s->m.now.n + 1, sizeof *threads);
    if (!threads)
        return lode_fail_nomem(err, "a grammar's past");
    const size_t n = s->m.now.n;
    if (n)
        memcpy(threads, s->m.now.v, n * sizeof *threads);
    int rc = run_bytes(&s->m, text, len, &done, err);
    if (rc < 0 || done < len) { /* as it was */
        if (n && s->m.now.cap >= n)
            memcpy(s->m.now.v, threads, n * sizeof *threads);
        else if (n) { /* the lists changed places, and this one is too short: keep the copy */
            lode_free(s->m.now.v);
            s->m.now.v = threads;
            s->m.now.cap = n + 1;
            threads = NULL;
        }
        s->m.now.n = n;
        lode_free(threads);
        return rc < 0 ? rc
                      : lode_fail(err, LODE_ERR_ARG, "grammar",
                                  "the text does not fit at byte %zu of the token", done);
    }
    lode_free(p->threads);
    *p = (struct past){threads, n};
    s->next_past = (s->next_past + 1) % LODE_GRAMMAR_REWIND;
    s->n_past += s->n_past < LODE_GRAMMAR_REWIND;
    clean(s);
    return 0;
}

int lode_grammar_accept(struct lode_grammar_state *s, int32_t id, struct lode_error *err) {
    const struct lode_grammar_vocab *v = s->k.vocab;
    if (id < 0 || (uint32_t)id >= v->n)
        return lode_fail(err, LODE_ERR_ARG, "token", "id %d is not in the vocabulary (0..%u)", id,
                         v->n ? v->n - 1 : 0);
    for (size_t i = 0; i < v->n_ends; i++)
        if (v->ends[i] == id)
            return lode_grammar_complete(s)
                       ? 0
                       : lode_fail(err, LODE_ERR_ARG, "token", "the text cannot end here");
    if (!v->bytes[id].len)
        return lode_fail(err, LODE_ERR_ARG, "token", "token %d has no text", id);
    return lode_grammar_accept_bytes(s, v->bytes[id].data, v->bytes[id].len, err);
}

int lode_grammar_rewind(struct lode_grammar_state *s, size_t n, struct lode_error *err) {
    if (n > s->n_past)
        return lode_fail(err, LODE_ERR_ARG, "rewind", "%zu steps back, %zu are known", n,
                         s->n_past);
    for (size_t i = 0; i < n; i++) {
        s->next_past = (s->next_past + LODE_GRAMMAR_REWIND - 1) % LODE_GRAMMAR_REWIND;
        struct past *p = &s->past[s->next_past];
        lode_free(s->m.now.v);
        s->m.now.v = p->threads;
        s->m.now.n = p->n;
        s->m.now.cap = p->n + 1;
        *p = (struct past){0};
        s->n_past--;
    }
    return 0;
}

int64_t lode_grammar_forced(struct lode_grammar_state *s, char *text, size_t cap,
                            struct lode_error *err) {
    frame_list here = {0}, next = {0}, only = {0};
    const uint32_t frames = s->m.frames.n, cells = s->m.cells.n;
    size_t n = 0;
    bool more = GVEC_ROOM(&here, s->m.now.n + 1);
    int rc = more ? 0 : LODE_ERR_NOMEM;
    if (more && s->m.now.n)
        memcpy(here.v, s->m.now.v, s->m.now.n * sizeof *here.v);
    here.n = more ? s->m.now.n : 0;
    while (more && n < cap && !machine_complete(&s->m, here.v, here.n)) {
        int found = -1;
        for (int c = 0; c < 256 && found > -2; c++) {
            next.n = 0;
            machine_step(&s->m, here.v, here.n, (uint8_t)c, &next);
            if (!next.n)
                continue;
            found = found == -1 ? c : -2;
            const frame_list swap = only;
            only = next;
            next = swap;
        }
        more = found >= 0 && !s->m.failed;
        if (more) {
            text[n++] = (char)found;
            const frame_list swap = here;
            here = only;
            only = swap;
        }
    }
    if (s->m.failed)
        rc = s->m.failed;
    s->m.failed = 0;
    pool_cut(&s->m.frames, frames);
    pool_cut(&s->m.cells, cells);
    GVEC_FREE(&here);
    GVEC_FREE(&next);
    GVEC_FREE(&only);
    return rc < 0 ? machine_error(rc, err) : (int64_t)n;
}
