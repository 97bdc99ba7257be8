/* machine.c - see machine.h. */
#include "text/grammar/machine.h"

#include "text/grammar/chars.h"
#include "text/grammar/step.h"

void step_emit(struct machine *m, frame_list *out, size_t from, const struct frame *f) {
    for (size_t i = from; i < out->n; i++)
        if (!memcmp(&out->v[i], f, sizeof *f))
            return;
    if (out->n - from >= MACHINE_MAX_THREADS)
        m->failed = LODE_ERR_LIMIT;
    else if (!GVEC_PUSH(out, *f))
        m->failed = LODE_ERR_NOMEM;
}

bool step_push(struct machine *m, const struct frame *f, uint32_t *out, uint32_t *depth) {
    if (f->depth >= MACHINE_MAX_DEPTH) {
        m->failed = LODE_ERR_LIMIT;
        return false;
    }
    const uint32_t i = pool_put(&m->frames, f);
    if (i == UINT32_MAX) {
        m->failed = LODE_ERR_NOMEM;
        return false;
    }
    *depth = f->depth + 1; /* only now: they may be f's own */
    *out = i;
    return true;
}

void step_back(struct machine *m, uint32_t parent, frame_list *out, size_t first) {
    const struct frame f = *machine_frame(m, parent);
    step_emit(m, out, first, &f);
}

void step_thread(struct machine *m, const struct frame *t, uint8_t c, frame_list *out,
                 size_t first) {
    struct frame f = *t;
    switch ((enum frame_kind)t->kind) {
    case F_END:
        if (m->g->root == G_ROOT_JSON && m->free_form && step_is_blank(c))
            step_emit(m, out, first, &f);
        break;
    case F_UNKNOWN:
        step_emit(m, out, first, &f);
        break;
    case F_VALUE:
        step_value(m, f, c, out, first);
        break;
    case F_LITERAL:
        step_literal(m, f, c, out, first);
        break;
    case F_STRING:
        step_string(m, f, c, out, first);
        break;
    case F_NUMBER:
    case F_NUMBER_FREE:
        step_number(m, f, c, out, first);
        break;
    case F_KEY:
        step_key(m, f, c, out, first);
        break;
    case F_OBJECT:
        step_object(m, f, c, out, first);
        break;
    case F_ARRAY:
        step_array(m, f, c, out, first);
        break;
    case F_TEXT: {
        uint32_t cp;
        if (take_dfa(&m->g->text, &f.q, &f.lex, c, SPELT_TEXT, &cp) != TAKEN_DEAD)
            step_emit(m, out, first, &f);
        break;
    }
    case F_RULE:
        step_rule(m, f, c, out, first);
        break;
    case F_RETURN:
        break;
    }
}

void machine_step(struct machine *m, const struct frame *from, size_t n, uint8_t byte,
                  frame_list *out) {
    const size_t first = out->n;
    m->serial++;
    for (size_t i = 0; i < n; i++)
        step_thread(m, &from[i], byte, out, first);
}

bool machine_complete(const struct machine *m, const struct frame *threads, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const struct frame *t = &threads[i];
        if (t->kind == F_END ||
            (t->kind == F_NUMBER && t->parent == 0 && m->g->nodes[t->id].number.accept[t->q]) ||
            (t->kind == F_NUMBER_FREE && t->parent == 0 && step_number_done(m, t)) ||
            (t->kind == F_TEXT && !t->lex && m->g->text.accept[t->q]))
            return true;
    }
    return false;
}

int machine_init(struct machine *m, const struct lode_grammar *g, bool free_form) {
    static const struct frame end = {.kind = F_END}, unknown = {.kind = F_UNKNOWN};
    static const struct cell no_cell = {.key = UINT64_MAX};
    struct frame f = {0};
    *m = (struct machine){.g = g, .free_form = free_form};
    m->frames.size = sizeof(struct frame);
    m->cells.size = sizeof(struct cell);
    if (pool_put(&m->frames, &end) || pool_put(&m->frames, &unknown) != 1 ||
        pool_put(&m->cells, &no_cell)) {
        machine_free(m);
        return LODE_ERR_NOMEM;
    }
    if (g->root == G_ROOT_RULES) {
        step_close_rule(m, g->rules[g->start_rule], 0, 0, &m->now, 0);
    } else {
        f.kind = g->root == G_ROOT_JSON ? F_VALUE : F_TEXT;
        if (g->root == G_ROOT_JSON ? g->nodes[0].ok : g->text.n > 0)
            step_emit(m, &m->now, 0, &f);
    }
    if (m->failed < 0) {
        const int rc = m->failed;
        machine_free(m);
        return rc;
    }
    return 0;
}

void machine_free(struct machine *m) {
    pool_free(&m->frames);
    pool_free(&m->cells);
    GVEC_FREE(&m->now);
    GVEC_FREE(&m->visited);
    lode_buf_free(&m->number);
    lode_buf_free(&m->digits);
}

int machine_copy(struct machine *to, const struct machine *from) {
    *to = (struct machine){.g = from->g, .free_form = from->free_form, .failed = from->failed};
    to->serial = from->serial;
    to->number_at = from->number_at;
    bool ok = pool_copy(&to->frames, &from->frames) && pool_copy(&to->cells, &from->cells) &&
              GVEC_ROOM(&to->now, from->now.n + 1);
    if (ok && from->now.n)
        memcpy(to->now.v, from->now.v, from->now.n * sizeof *from->now.v);
    to->now.n = ok ? from->now.n : 0;
    if (from->number.len)
        ok = lode_buf_add(&to->number, from->number.data, from->number.len) &&
             lode_buf_reserve(&to->digits, from->number.len) && ok;
    if (!ok) {
        machine_free(to);
        return LODE_ERR_NOMEM;
    }
    return 0;
}
