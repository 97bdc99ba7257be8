/* step_json.c - values of JSON, as a schema has them: see step.h. */
#include "text/grammar/chars.h"
#include "text/grammar/step.h"

/* Blanks where JSON allows them.  A model may write one, or a line's end and an indentation:
 * without a bound it could go on for ever. */
static bool take_blank(const struct machine *m, struct frame *f, uint8_t c) {
    enum { ONE = 1000, MOST = 100 };
    if (m->free_form)
        return true;
    if (f->space == 0) {
        f->space = c == '\n' ? 1 : ONE;
        return c != '\r';
    }
    if (f->space >= MOST || c == '\n' || c == '\r')
        return false;
    f->space++;
    return true;
}

static enum spelling spelling_of(const struct machine *m) {
    return m->free_form ? SPELT_JSON : SPELT_WRITTEN;
}
static const struct g_obj *obj_of(const struct machine *m, const struct frame *f) {
    return m->g->nodes[f->id].objs[f->sub];
}
static const struct g_arr *arr_of(const struct machine *m, const struct frame *f) {
    return m->g->nodes[f->id].arrs[f->sub];
}
static bool node_ok(void *user, uint32_t node) {
    const struct machine *m = user;
    return node != G_NONE && m->g->nodes[node].ok;
}

static void enter_value(struct machine *m, const struct frame *below, uint32_t node,
                        frame_list *out, size_t first) {
    struct frame v = {.kind = F_VALUE, .id = node};
    if (node_ok(m, node) && step_push(m, below, &v.parent, &v.depth))
        step_emit(m, out, first, &v);
}

static uint32_t names_seen(const struct machine *m, const struct g_obj *o, const struct frame *f,
                           uint32_t low, uint32_t high, bool required) {
    uint32_t n = 0;
    const struct cell *cells = (const struct cell *)(const void *)m->cells.v;
    for (uint32_t i = f->keys; i; i = cells[i].next)
        n += cells[i].key >= low && cells[i].key < high &&
             (!required || o->classes[cells[i].key].required);
    return n;
}

static bool key_seen(const struct machine *m, const struct frame *f, uint64_t key) {
    const struct cell *cells = (const struct cell *)(const void *)m->cells.v;
    for (uint32_t i = f->keys; i; i = cells[i].next)
        if (cells[i].key == key)
            return true;
    return false;
}

/* Whether a key of those without a name is still owed: it is what f.req lacks beside names. */
static bool owes_some(const struct machine *m, const struct g_obj *o, const struct frame *f) {
    return o->some && f->req == names_seen(m, o, f, 0, o->n_names, true);
}

/* Whether a key that is not required still leaves room for those that are. */
bool machine_key_slack(const struct machine *m, const struct frame *f) {
    const struct g_obj *o = obj_of(m, f);
    return (uint64_t)f->count + 1 + (o->n_required - f->req) <= o->max;
}

/* What tells keys without a name apart: FNV-1a and one of its kin, over the characters. */
struct key_hash {
    uint32_t a, b;
};
static const struct key_hash no_key = {0x9747b28c, 0};
static struct key_hash hash_char(struct key_hash h, uint32_t cp) {
    h.a = (h.a ^ cp) * 0x01000193u;
    h.b = (h.b + cp + 1) * 0x85ebca6bu;
    h.b ^= h.b >> 15;
    return h;
}
static uint64_t key_of(struct key_hash h) { return 1ull << 63 | (uint64_t)h.a << 32 | h.b; }

/* Whether of the keys that a finite part of the automaton can still become one was not used.  It
 * looks at no more keys than were used, and one. */
static bool words_left(const struct machine *m, const struct frame *f, uint32_t q,
                       struct key_hash h, uint32_t depth) {
    const struct g_obj *o = obj_of(m, f);
    const uint32_t label = o->label[q];
    if (label != G_NONE && o->classes[label].name == G_NONE && !key_seen(m, f, key_of(h)) &&
        m->g->nodes[o->classes[label].node].ok)
        return true;
    for (uint32_t i = o->keys.first[q]; i < o->keys.first[q + 1]; i++) {
        const struct dfa_range *r = &o->keys.ranges[i];
        if (!o->open[r->to])
            continue;
        if (!o->finite[r->to] || depth == MACHINE_MAX_DEPTH)
            return true;
        for (uint32_t cp = r->lo; cp <= r->hi; cp++)
            if (words_left(m, f, r->to, hash_char(h, cp), depth + 1))
                return true;
    }
    return false;
}

/* Whether a key that is in state q, after characters of this hash, can end well in this object. */
static bool key_lives(const struct machine *m, const struct frame *f, uint32_t q,
                      struct key_hash h) {
    const struct g_obj *o = obj_of(m, f);
    const bool slack = machine_key_slack(m, f);
    const uint32_t low = o->low[q], high = o->high[q];
    if (slack && o->open[q] && (!o->finite[q] || words_left(m, f, q, h, 0)))
        return true;
    if (o->some && !slack && o->some[q] && owes_some(m, o, f)) /* none of them was used */
        return true;
    if (low == high)
        return false;
    if (slack) /* names that are neither impossible nor used */
        return high - low - (o->dead[high] - o->dead[low]) > names_seen(m, o, f, low, high, false);
    return o->required[high] - o->required[low] > names_seen(m, o, f, low, high, true);
}

static bool more_keys(const struct machine *m, const struct frame *f) {
    const struct g_obj *o = obj_of(m, f);
    return o->keys.n && f->count < o->max && key_lives(m, f, 0, no_key);
}

void step_object(struct machine *m, struct frame f, uint8_t c, frame_list *out, size_t first) {
    const struct g_obj *o = obj_of(m, &f);
    if (step_is_blank(c)) {
        if (take_blank(m, &f, c))
            step_emit(m, out, first, &f);
        return;
    }
    f.space = 0;
    if (c == '}' && (f.phase == AT_FIRST || f.phase == AT_NEXT)) {
        if (f.count >= o->min && f.req == o->n_required)
            step_back(m, f.parent, out, first);
    } else if (c == ',' && f.phase == AT_NEXT) {
        f.phase = AT_KEY;
        if (more_keys(m, &f))
            step_emit(m, out, first, &f);
    } else if (c == '"' && (f.phase == AT_FIRST || f.phase == AT_KEY)) {
        struct frame key = {.kind = F_KEY, .id = f.id, .sub = f.sub, .count = no_key.a};
        f.phase = AT_KEY;
        if (more_keys(m, &f) && step_push(m, &f, &key.parent, &key.depth))
            step_emit(m, out, first, &key);
    } else if (c == ':' && f.phase == AT_COLON) {
        const uint32_t node = o->classes[f.q].node;
        f.phase = AT_NEXT;
        f.q = 0;
        enter_value(m, &f, node, out, first);
    }
}

/* The key is over: the object below notes it and waits for the colon. */
static void end_key(struct machine *m, const struct frame *t, frame_list *out, size_t first) {
    struct frame f = *machine_frame(m, t->parent);
    if (f.kind == F_UNKNOWN) {
        step_emit(m, out, first, &f);
        return;
    }
    const struct g_obj *o = obj_of(m, &f);
    const uint32_t label = o->label[t->q];
    if (label == G_NONE)
        return;
    const struct g_class *k = &o->classes[label];
    const uint64_t key = k->name != G_NONE ? k->name : key_of((struct key_hash){t->count, t->req});
    const bool required = k->required && (k->name != G_NONE || owes_some(m, o, &f));
    if (!node_ok(m, k->node) || key_seen(m, &f, key) || (!required && !machine_key_slack(m, &f)))
        return;
    const struct cell cell = {.key = key, .next = f.keys};
    f.keys = pool_put(&m->cells, &cell);
    if (f.keys == UINT32_MAX) {
        m->failed = LODE_ERR_NOMEM;
        return;
    }
    f.count++;
    f.req += required;
    f.phase = AT_COLON;
    f.q = label;
    step_emit(m, out, first, &f);
}

/* The characters that a key may go on with: those after which it can still end well.  Where the
 * object below is unknown, all that lead on, and `open` notes whether one does whatever it says. */
struct in_key {
    const struct machine *m;
    const struct frame *below;
    const struct g_obj *o;
    uint32_t q;
    struct key_hash hash;
    bool *open;
};

static bool key_range_lives(const void *user, uint32_t lo, uint32_t hi) {
    const struct in_key *x = user;
    const struct dfa *d = &x->o->keys;
    bool any = false;
    for (uint32_t i = d->first[x->q]; i < d->first[x->q + 1]; i++) {
        if (d->ranges[i].hi < lo || d->ranges[i].lo > hi)
            continue;
        const uint32_t to = d->ranges[i].to;
        const bool finite = x->o->open[to] && x->o->finite[to];
        if (x->below->kind == F_UNKNOWN) {
            *x->open = *x->open || (x->o->open[to] && !finite);
            any = true;
            continue;
        }
        /* where keys can run out it matters which character comes */
        uint32_t cp = d->ranges[i].lo > lo ? d->ranges[i].lo : lo;
        const uint32_t end = !finite ? cp : d->ranges[i].hi < hi ? d->ranges[i].hi : hi;
        for (; cp <= end; cp++)
            if (key_lives(x->m, x->below, to, hash_char(x->hash, cp)))
                return true;
    }
    return any;
}

void step_key(struct machine *m, struct frame t, uint8_t c, frame_list *out, size_t first) {
    const struct g_obj *o = obj_of(m, &t);
    const struct frame below = *machine_frame(m, t.parent);
    bool open = false;
    const struct in_key x = {m, &below, o, t.q, {t.count, t.req}, &open};
    uint32_t cp;
    const enum taken how = take_byte(&t.lex, c, spelling_of(m), &cp, key_range_lives, &x);
    if (how == TAKEN_QUOTE)
        end_key(m, &t, out, first);
    if (how == TAKEN_QUOTE || how == TAKEN_DEAD)
        return;
    if (how == TAKEN_CHAR) {
        const struct key_hash h = hash_char(x.hash, cp);
        t.q = dfa_next(&o->keys, t.q, cp);
        t.count = h.a;
        t.req = h.b;
    }
    /* what lives here only by a name is the object's to say */
    step_emit(m, out, first, below.kind == F_UNKNOWN && !open ? &below : &t);
}

/* How far counts matter: beyond, states are the same. */
static void settle_array(const struct g_arr *a, struct frame *f) {
    const uint32_t enough = a->min > a->n_prefix ? a->min : a->n_prefix;
    if (a->max == G_MANY && f->count > enough)
        f->count = enough;
    if (a->most == G_MANY && f->req > a->least)
        f->req = a->least;
}

static void begin_item(struct machine *m, const struct frame *f, frame_list *out, size_t first) {
    const struct g_arr *a = arr_of(m, f);
    const uint32_t at = f->count < a->n_prefix ? f->count : a->n_prefix;
    if (f->count >= a->max)
        return;
    for (uint32_t counts = 0; counts <= a->contains; counts++) {
        struct frame next = *f;
        next.phase = AT_NEXT;
        next.space = 0;
        next.count++;
        next.req += counts;
        if (node_ok(m, a->items[2 * at + counts]) &&
            g_arr_live(a, next.count, next.req, node_ok, m)) {
            settle_array(a, &next);
            enter_value(m, &next, a->items[2 * at + counts], out, first);
        }
    }
}

void step_array(struct machine *m, struct frame f, uint8_t c, frame_list *out, size_t first) {
    const struct g_arr *a = arr_of(m, &f);
    if (step_is_blank(c)) {
        if (take_blank(m, &f, c))
            step_emit(m, out, first, &f);
        return;
    }
    f.space = 0;
    if (c == ']') {
        if (f.count >= a->min && (!a->contains || (f.req >= a->least && f.req <= a->most)))
            step_back(m, f.parent, out, first);
    } else if (f.phase == AT_NEXT) {
        if (c == ',')
            begin_item(m, &f, out, first);
    } else { /* the first item begins with this byte */
        frame_list items = {0};
        begin_item(m, &f, &items, 0);
        for (size_t i = 0; i < items.n; i++)
            step_thread(m, &items.v[i], c, out, first);
        GVEC_FREE(&items);
    }
}

/* All threads that are within a number read the same one: it is kept once, with room for its
 * digits. */
static void take_number_byte(struct machine *m, uint8_t c) {
    m->number_at = m->serial;
    m->digits.len = 0;
    if (!lode_buf_addc(&m->number, (char)c) || !lode_buf_reserve(&m->digits, m->number.len))
        m->failed = LODE_ERR_NOMEM;
}

static const char *const literal_text[] = {"null", "true", "false"};

void step_value(struct machine *m, struct frame t, uint8_t c, frame_list *out, size_t first) {
    const struct g_node *n = &m->g->nodes[t.id];
    if (step_is_blank(c)) {
        if (take_blank(m, &t, c))
            step_emit(m, out, first, &t);
        return;
    }
    t.space = 0;
    if (c == '"') {
        const uint32_t s = m->free_form ? n->str_free : n->str;
        if (s == G_NONE || !m->g->strs[s].dfa.n)
            return;
        t.kind = F_STRING;
        t.id = s;
        step_emit(m, out, first, &t);
    } else if (c == '{') {
        t.kind = F_OBJECT;
        for (t.sub = 0; t.sub < n->n_objs; t.sub++)
            step_emit(m, out, first, &t);
    } else if (c == '[') {
        t.kind = F_ARRAY;
        for (t.sub = 0; t.sub < n->n_arrs; t.sub++)
            step_emit(m, out, first, &t);
    } else if (c == '-' || (c >= '0' && c <= '9')) {
        if (!n->number.n)
            return;
        t.kind = m->free_form ? F_NUMBER_FREE : F_NUMBER;
        if (!m->free_form) {
            t.q = dfa_next(&n->number, 0, c);
            if (t.q == DFA_NONE)
                return;
        } else {
            t.q = c == '-' ? 0 : c == '0' ? 1 : 2;
            lode_buf_clear(&m->number);
            take_number_byte(m, c);
        }
        step_emit(m, out, first, &t);
    } else {
        for (uint32_t i = 0; i < 3; i++)
            if (n->literals >> i & 1 && literal_text[i][0] == (char)c) {
                t.kind = F_LITERAL;
                t.id = i;
                t.q = 1;
                step_emit(m, out, first, &t);
            }
    }
}

void step_literal(struct machine *m, struct frame t, uint8_t c, frame_list *out, size_t first) {
    if (literal_text[t.id][t.q] != (char)c)
        return;
    if (literal_text[t.id][++t.q])
        step_emit(m, out, first, &t);
    else
        step_back(m, t.parent, out, first);
}

void step_string(struct machine *m, struct frame t, uint8_t c, frame_list *out, size_t first) {
    const struct g_str *s = &m->g->strs[t.id];
    uint32_t cp;
    if (s->counted && t.count >= s->max && c != '"')
        return;
    const enum taken how = take_dfa(&s->dfa, &t.q, &t.lex, c, spelling_of(m), &cp);
    if (how == TAKEN_QUOTE) {
        if (s->dfa.accept[t.q] && (!s->counted || t.count >= s->min))
            step_back(m, t.parent, out, first);
        return;
    }
    if (how == TAKEN_DEAD)
        return;
    if (how == TAKEN_CHAR && s->counted && (s->max != G_MANY || t.count < s->min))
        t.count++;
    step_emit(m, out, first, &t);
}

/* Whether the number that was read, in any spelling, is one of the node's. */
bool step_number_done(const struct machine *m, const struct frame *t) {
    const struct g_node *n = &m->g->nodes[t->id];
    struct decimal d;
    bool good = false;
    if (t->q != 1 && t->q != 2 && t->q != 4 && t->q != 7)
        return false;
    decimal_parse(lode_buf_str(&m->number), m->digits.data, &d);
    for (uint32_t i = 0; i < n->n_conds && !good; i++)
        good = decimal_meets(&d, n->conds[i].v, n->conds[i].n);
    return good;
}

/* The parts of a number: sign, zero, whole, point, fraction, e, its sign, its digits. */
static uint32_t number_part(uint32_t q, uint8_t c) {
    const bool digit = c >= '0' && c <= '9';
    if (q == 0)
        return c == '0' ? 1 : digit ? 2 : DFA_NONE;
    if (digit)
        return q == 1 ? DFA_NONE : q == 2 ? 2 : q <= 4 ? 4 : 7;
    if (c == '.')
        return q == 1 || q == 2 ? 3 : DFA_NONE;
    if (c == 'e' || c == 'E')
        return q == 1 || q == 2 || q == 4 ? 5 : DFA_NONE;
    return (c == '+' || c == '-') && q == 5 ? 6 : DFA_NONE;
}

void step_number(struct machine *m, struct frame t, uint8_t c, frame_list *out, size_t first) {
    const struct frame before = t;
    bool done;
    if (t.kind == F_NUMBER) {
        const struct dfa *d = &m->g->nodes[t.id].number;
        done = d->accept[t.q];
        t.q = dfa_next(d, t.q, c);
    } else {
        t.q = number_part(t.q, c);
        if (t.q != DFA_NONE && m->number_at != m->serial)
            take_number_byte(m, c);
        done = t.q == DFA_NONE && step_number_done(m, &before);
    }
    if (t.q != DFA_NONE)
        step_emit(m, out, first, &t);
    else if (done) { /* nothing but the next byte ends a number */
        const struct frame below = *machine_frame(m, t.parent);
        step_thread(m, &below, c, out, first);
    }
}
