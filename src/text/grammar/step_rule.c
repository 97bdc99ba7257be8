/* step_rule.c - rules of a context-free grammar: see step.h. */
#include "text/grammar/chars.h"
#include "text/grammar/step.h"

struct in_set {
    const struct expr *e;
    uint32_t set;
};
static bool set_range_lives(const void *user, uint32_t lo, uint32_t hi) {
    const struct in_set *x = user;
    return expr_set_has(x->e, x->set, lo, hi);
}

void step_close_rule(struct machine *m, uint32_t q, uint32_t parent, uint32_t depth,
                     frame_list *out, size_t first) {
    const uint64_t place = (uint64_t)q << 32 | parent;
    const struct nfa_state *s = &m->g->nfa.states.v[q];
    for (size_t i = 0; i < m->visited.n; i++)
        if (m->visited.v[i] == place)
            return;
    if (m->visited.n >= MACHINE_MAX_THREADS || depth > MACHINE_MAX_DEPTH) {
        m->failed = LODE_ERR_LIMIT;
        return;
    }
    if (!GVEC_PUSH(&m->visited, place)) {
        m->failed = LODE_ERR_NOMEM;
        return;
    }
    struct frame f = {.kind = F_RULE, .q = q, .parent = parent, .depth = depth};
    const struct frame *below = machine_frame(m, parent);
    switch ((enum nfa_op)s->op) {
    case NFA_SPLIT:
        step_close_rule(m, s->a, parent, depth, out, first);
        step_close_rule(m, s->b, parent, depth, out, first);
        break;
    case NFA_SET:
        step_emit(m, out, first, &f);
        break;
    case NFA_CALL:
        if (m->g->nfa.states.v[s->a].op == NFA_MATCH) {
            /* nothing is left to do here: the rule returns for both */
            step_close_rule(m, m->g->rules[s->b], parent, depth, out, first);
            break;
        }
        f.kind = F_RETURN;
        f.q = s->a;
        if (step_push(m, &f, &f.parent, &f.depth))
            step_close_rule(m, m->g->rules[s->b], f.parent, f.depth, out, first);
        break;
    case NFA_MATCH:
        if (below->kind == F_RETURN)
            step_close_rule(m, below->q, below->parent, below->depth, out, first);
        else
            step_back(m, parent, out, first); /* the end, or unknown */
        break;
    case NFA_BOL:
    case NFA_EOL:
        break;
    }
}

void step_rule(struct machine *m, struct frame t, uint8_t c, frame_list *out, size_t first) {
    const struct nfa_state *s = &m->g->nfa.states.v[t.q];
    const struct in_set x = {&m->g->expr, s->b};
    uint32_t cp;
    const enum taken how = take_byte(&t.lex, c, SPELT_TEXT, &cp, set_range_lives, &x);
    if (how == TAKEN_PART)
        step_emit(m, out, first, &t);
    if (how != TAKEN_CHAR)
        return;
    m->visited.n = 0;
    step_close_rule(m, s->a, t.parent, t.depth, out, first);
}
