/* machine.c - see machine.h. */
#include "text/grammar/machine.h"

/* ---- pools ---- */

static uint32_t hash_bytes(const uint8_t *v, uint32_t n) {
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (uint32_t i = 0; i < n; i += 4) {
        uint32_t w;
        memcpy(&w, v + i, 4);
        h = (h ^ w) * 0xff51afd7ed558ccdu;
        h ^= h >> 29;
    }
    return (uint32_t)(h ^ h >> 32);
}

static uint32_t *find_slot(struct pool *p, const void *item) {
    uint32_t at = hash_bytes(item, p->size) & (uint32_t)(p->slots.n - 1);
    while (p->slots.v[at] &&
           memcmp(p->v + (size_t)(p->slots.v[at] - 1) * p->size, item, p->size) != 0)
        at = (at + 1) & (uint32_t)(p->slots.n - 1);
    return &p->slots.v[at];
}

static bool pool_grow(struct pool *p) {
    const size_t n_slots = p->slots.n ? 2 * p->slots.n : 256;
    uint32_t *slots = lode_alloc_zero(n_slots, sizeof *slots);
    if (!slots)
        return false;
    lode_free(p->slots.v);
    p->slots.v = slots;
    p->slots.n = p->slots.cap = n_slots;
    for (uint32_t i = 0; i < p->n; i++)
        *find_slot(p, p->v + (size_t)i * p->size) = i + 1;
    return true;
}

uint32_t pool_put(struct pool *p, const void *item) {
    if (2 * ((size_t)p->n + 1) > p->slots.n && !pool_grow(p))
        return UINT32_MAX;
    uint32_t *slot = find_slot(p, item);
    if (*slot)
        return *slot - 1;
    if (p->n == p->cap) {
        const uint32_t cap = p->cap ? 2 * p->cap : 64;
        uint8_t *v = lode_realloc(p->v, cap, p->size);
        if (!v)
            return UINT32_MAX;
        p->v = v;
        p->cap = cap;
    }
    memcpy(p->v + (size_t)p->n * p->size, item, p->size);
    *slot = ++p->n;
    return p->n - 1;
}

void pool_cut(struct pool *p, uint32_t n) {
    /* the last put is the last of its chain, so taking slots back in this order leaves no holes */
    while (p->n > n) {
        uint32_t *slot = find_slot(p, p->v + (size_t)(p->n - 1) * p->size);
        *slot = 0;
        p->n--;
    }
}

void pool_free(struct pool *p) {
    lode_free(p->v);
    GVEC_FREE(&p->slots);
    p->v = NULL;
    p->n = p->cap = 0;
}

static bool pool_copy(struct pool *to, const struct pool *from) {
    *to = (struct pool){.size = from->size};
    to->v = lode_alloc((size_t)from->n + 1, from->size);
    if (!to->v)
        return false;
    memcpy(to->v, from->v, (size_t)from->n * from->size);
    to->n = from->n;
    to->cap = from->n + 1;
    to->slots.v = lode_alloc(from->slots.n, sizeof *to->slots.v);
    if (!to->slots.v)
        return false;
    memcpy(to->slots.v, from->slots.v, from->slots.n * sizeof *to->slots.v);
    to->slots.n = to->slots.cap = from->slots.n;
    return true;
}

/* ---- threads ---- */

static void emit(struct machine *m, frame_list *out, size_t from, const struct frame *f) {
    for (size_t i = from; i < out->n; i++)
        if (!memcmp(&out->v[i], f, sizeof *f))
            return;
    if (out->n - from >= MACHINE_MAX_THREADS)
        m->failed = LODE_ERR_LIMIT;
    else if (!GVEC_PUSH(out, *f))
        m->failed = LODE_ERR_NOMEM;
}

/* Puts a frame below; false where that fails. */
static bool push(struct machine *m, const struct frame *f, uint32_t *out, uint32_t *depth) {
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

static bool is_blank(uint8_t c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

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

/* ---- characters ---- */

/* `lex` within a character: kind << 28 | digits or bytes << 24 | bits. */
enum { LEX_NONE, LEX_UTF8, LEX_ESCAPE, LEX_HEX, LEX_LOW_SLASH, LEX_LOW_U, LEX_LOW_HEX };
static uint32_t lex_of(uint32_t kind, uint32_t n, uint32_t bits) {
    return kind << 28 | n << 24 | bits;
}

/* What bytes are: a text; the inside of a JSON string, as it is read, as a model writes it.  A
 * model escapes by \u only what is not printable ASCII: it could spell every key in a way of its
 * own. */
enum spelling { SPELT_TEXT, SPELT_JSON, SPELT_WRITTEN };

enum taken { TAKEN_DEAD, TAKEN_PART, TAKEN_CHAR, TAKEN_QUOTE };

typedef bool char_range_fn(const void *user, uint32_t lo, uint32_t hi);

/* The first characters that `bits` (of n bytes still to come) can become. */
static bool utf8_lives(uint32_t bits, uint32_t n, uint32_t least, char_range_fn *any,
                       const void *user) {
    uint32_t lo = bits << 6 * n, hi = lo | ((1u << 6 * n) - 1);
    lo = lo < least ? least : lo;
    hi = hi > 0x10ffff ? 0x10ffff : hi;
    return lo <= hi && any(user, lo, hi);
}

static bool pair_lives(uint32_t lo, uint32_t hi, char_range_fn *any, const void *user) {
    lo = lo < 0xd800 ? 0xd800 : lo;
    hi = hi > 0xdbff ? 0xdbff : hi;
    return lo <= hi &&
           any(user, 0x10000 + ((lo - 0xd800) << 10), 0x10000 + ((hi - 0xd800) << 10) + 0x3ff);
}

/* The same for one \uXXXX, or two that make a pair. */
static bool escape_lives(uint32_t lo, uint32_t hi, enum spelling spelling, char_range_fn *any,
                         const void *user) {
    if (pair_lives(lo, hi, any, user))
        return true;
    if (spelling == SPELT_JSON)
        return any(user, lo, hi);
    return (lo < 0x20 && any(user, lo, hi < 0x20 ? hi : 0x1f)) ||
           (hi > 0x7e && any(user, lo > 0x7e ? lo : 0x7f, hi));
}

static int hex_value(uint8_t c) {
    const uint8_t low = c | 32;
    return c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

static const char short_from[] = "\"\\/bfnrt", short_to[] = "\"\\/\b\f\n\r\t";

static bool backslash_lives(enum spelling spelling, char_range_fn *any, const void *user) {
    for (const char *c = short_to; *c; c++)
        if (any(user, (uint8_t)*c, (uint8_t)*c))
            return true;
    return escape_lives(0, 0xffff, spelling, any, user);
}

static enum taken take_escape(uint32_t *lex, uint8_t c, enum spelling spelling, uint32_t *cp,
                              char_range_fn *any, const void *user) {
    const uint32_t kind = *lex >> 28, n = *lex >> 24 & 15, bits = *lex & 0xffffff;
    const int hex = hex_value(c);
    if (kind == LEX_ESCAPE) {
        const char *known = c ? strchr(short_from, c) : NULL;
        if (known) {
            *lex = 0;
            *cp = (uint8_t)short_to[known - short_from];
            return any(user, *cp, *cp) ? TAKEN_CHAR : TAKEN_DEAD;
        }
        *lex = lex_of(LEX_HEX, 0, 0);
        return c == 'u' && escape_lives(0, 0xffff, spelling, any, user) ? TAKEN_PART : TAKEN_DEAD;
    }
    if (kind == LEX_HEX) {
        if (hex < 0)
            return TAKEN_DEAD;
        const uint32_t v = bits << 4 | (uint32_t)hex, left = 4 * (3 - n);
        const uint32_t lo = v << left, hi = lo | ((1u << left) - 1);
        if (n == 3 && v >= 0xd800 && v < 0xdc00) {
            *lex = lex_of(LEX_LOW_SLASH, 0, v - 0xd800);
            return pair_lives(v, v, any, user) ? TAKEN_PART : TAKEN_DEAD;
        }
        if (n == 3) {
            *lex = 0;
            *cp = v;
            return escape_lives(v, v, spelling, any, user) ? TAKEN_CHAR : TAKEN_DEAD;
        }
        *lex = lex_of(LEX_HEX, n + 1, v);
        return escape_lives(lo, hi, spelling, any, user) ? TAKEN_PART : TAKEN_DEAD;
    }
    if (kind == LEX_LOW_SLASH || kind == LEX_LOW_U) {
        *lex = lex_of(kind + 1, 0, kind == LEX_LOW_U ? bits << 12 : bits);
        return c == (kind == LEX_LOW_U ? 'u' : '\\') ? TAKEN_PART : TAKEN_DEAD;
    }
    /* LEX_LOW_HEX: ten bits of the first half, up to twelve of the second */
    if (hex < 0)
        return TAKEN_DEAD;
    const uint32_t v = (bits & 0xfff) << 4 | (uint32_t)hex, left = 4 * (3 - n);
    uint32_t lo = v << left, hi = lo | ((1u << left) - 1);
    lo = lo < 0xdc00 ? 0xdc00 : lo;
    hi = hi > 0xdfff ? 0xdfff : hi;
    const uint32_t base = 0x10000 + (bits >> 12 << 10);
    if (lo > hi || !any(user, base + (lo - 0xdc00), base + (hi - 0xdc00)))
        return TAKEN_DEAD;
    *cp = base + (lo - 0xdc00);
    *lex = n == 3 ? 0 : lex_of(LEX_LOW_HEX, n + 1, (bits & ~0xfffu) | v);
    return n == 3 ? TAKEN_CHAR : TAKEN_PART;
}

/* One byte of a text, or of a JSON string, in which `any` says which characters may come now. */
static enum taken take_byte(uint32_t *lex, uint8_t c, enum spelling spelling, uint32_t *cp,
                            char_range_fn *any, const void *user) {
    const bool json = spelling != SPELT_TEXT;
    if (*lex == 0) {
        if (json && c == '"')
            return TAKEN_QUOTE;
        if (json && c == '\\') {
            *lex = lex_of(LEX_ESCAPE, 0, 0);
            return backslash_lives(spelling, any, user) ? TAKEN_PART : TAKEN_DEAD;
        }
        if (c < 0x80) {
            *cp = c;
            return (!json || c >= 0x20) && any(user, c, c) ? TAKEN_CHAR : TAKEN_DEAD;
        }
        if (c < 0xc2 || c > 0xf4)
            return TAKEN_DEAD;
        const uint32_t n = c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
        const uint32_t bits = c & (0x3fu >> n), least = n == 1 ? 0x80 : n == 2 ? 0x800 : 0x10000;
        *lex = lex_of(LEX_UTF8, n, bits);
        return utf8_lives(bits, n, least, any, user) ? TAKEN_PART : TAKEN_DEAD;
    }
    if (*lex >> 28 != LEX_UTF8)
        return take_escape(lex, c, spelling, cp, any, user);
    const uint32_t n = (*lex >> 24 & 15) - 1, bits = (*lex & 0xffffff) << 6 | (c & 0x3f);
    if ((c & 0xc0) != 0x80)
        return TAKEN_DEAD;
    /* overlong forms are recognised at their second byte, where n was 3 or 2 */
    const uint32_t least = n == 2 ? 0x10000 : n == 1 ? 0x800 : 0;
    *lex = n ? lex_of(LEX_UTF8, n, bits) : 0;
    *cp = bits;
    return !utf8_lives(bits, n, least, any, user) ? TAKEN_DEAD : n ? TAKEN_PART : TAKEN_CHAR;
}

struct in_dfa {
    const struct dfa *d;
    uint32_t q;
};
static bool dfa_range_lives(const void *user, uint32_t lo, uint32_t hi) {
    const struct in_dfa *x = user;
    return dfa_any(x->d, x->q, lo, hi);
}

static enum taken take_dfa(const struct dfa *d, uint32_t *q, uint32_t *lex, uint8_t c,
                           enum spelling spelling, uint32_t *cp) {
    const struct in_dfa x = {d, *q};
    const enum taken t = take_byte(lex, c, spelling, cp, dfa_range_lives, &x);
    if (t == TAKEN_CHAR)
        *q = dfa_next(d, *q, *cp);
    return t;
}

/* ---- JSON ---- */

static void step_thread(struct machine *m, const struct frame *t, uint8_t c, frame_list *out,
                        size_t first);

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

/* The value is over: the thread goes on in the frame below. */
static void go_back(struct machine *m, uint32_t parent, frame_list *out, size_t first) {
    const struct frame f = *machine_frame(m, parent);
    emit(m, out, first, &f);
}

static void enter_value(struct machine *m, const struct frame *below, uint32_t node,
                        frame_list *out, size_t first) {
    struct frame v = {.kind = F_VALUE, .id = node};
    if (node_ok(m, node) && push(m, below, &v.parent, &v.depth))
        emit(m, out, first, &v);
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

static void step_object(struct machine *m, struct frame f, uint8_t c, frame_list *out,
                        size_t first) {
    const struct g_obj *o = obj_of(m, &f);
    if (is_blank(c)) {
        if (take_blank(m, &f, c))
            emit(m, out, first, &f);
        return;
    }
    f.space = 0;
    if (c == '}' && (f.phase == AT_FIRST || f.phase == AT_NEXT)) {
        if (f.count >= o->min && f.req == o->n_required)
            go_back(m, f.parent, out, first);
    } else if (c == ',' && f.phase == AT_NEXT) {
        f.phase = AT_KEY;
        if (more_keys(m, &f))
            emit(m, out, first, &f);
    } else if (c == '"' && (f.phase == AT_FIRST || f.phase == AT_KEY)) {
        struct frame key = {.kind = F_KEY, .id = f.id, .sub = f.sub, .count = no_key.a};
        f.phase = AT_KEY;
        if (more_keys(m, &f) && push(m, &f, &key.parent, &key.depth))
            emit(m, out, first, &key);
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
        emit(m, out, first, &f);
        return;
    }
    const struct g_obj *o = obj_of(m, &f);
    const uint32_t label = o->label[t->q];
    if (label == G_NONE)
        return;
    const struct g_class *k = &o->classes[label];
    const uint64_t key = k->name != G_NONE ? k->name : key_of((struct key_hash){t->count, t->req});
    if (!node_ok(m, k->node) || key_seen(m, &f, key) || (!k->required && !machine_key_slack(m, &f)))
        return;
    const struct cell cell = {.key = key, .next = f.keys};
    f.keys = pool_put(&m->cells, &cell);
    if (f.keys == UINT32_MAX) {
        m->failed = LODE_ERR_NOMEM;
        return;
    }
    f.count++;
    f.req += k->required;
    f.phase = AT_COLON;
    f.q = label;
    emit(m, out, first, &f);
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

static void step_key(struct machine *m, struct frame t, uint8_t c, frame_list *out, size_t first) {
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
    emit(m, out, first, below.kind == F_UNKNOWN && !open ? &below : &t);
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

static void step_array(struct machine *m, struct frame f, uint8_t c, frame_list *out,
                       size_t first) {
    const struct g_arr *a = arr_of(m, &f);
    if (is_blank(c)) {
        if (take_blank(m, &f, c))
            emit(m, out, first, &f);
        return;
    }
    f.space = 0;
    if (c == ']') {
        if (f.count >= a->min && (!a->contains || (f.req >= a->least && f.req <= a->most)))
            go_back(m, f.parent, out, first);
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

static void step_value(struct machine *m, struct frame t, uint8_t c, frame_list *out,
                       size_t first) {
    const struct g_node *n = &m->g->nodes[t.id];
    if (is_blank(c)) {
        if (take_blank(m, &t, c))
            emit(m, out, first, &t);
        return;
    }
    t.space = 0;
    if (c == '"') {
        const uint32_t s = m->free_form ? n->str_free : n->str;
        if (s == G_NONE || !m->g->strs[s].dfa.n)
            return;
        t.kind = F_STRING;
        t.id = s;
        emit(m, out, first, &t);
    } else if (c == '{') {
        t.kind = F_OBJECT;
        for (t.sub = 0; t.sub < n->n_objs; t.sub++)
            emit(m, out, first, &t);
    } else if (c == '[') {
        t.kind = F_ARRAY;
        for (t.sub = 0; t.sub < n->n_arrs; t.sub++)
            emit(m, out, first, &t);
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
        emit(m, out, first, &t);
    } else {
        for (uint32_t i = 0; i < 3; i++)
            if (n->literals >> i & 1 && literal_text[i][0] == (char)c) {
                t.kind = F_LITERAL;
                t.id = i;
                t.q = 1;
                emit(m, out, first, &t);
            }
    }
}

static void step_string(struct machine *m, struct frame t, uint8_t c, frame_list *out,
                        size_t first) {
    const struct g_str *s = &m->g->strs[t.id];
    uint32_t cp;
    if (s->counted && t.count >= s->max && c != '"')
        return;
    const enum taken how = take_dfa(&s->dfa, &t.q, &t.lex, c, spelling_of(m), &cp);
    if (how == TAKEN_QUOTE) {
        if (s->dfa.accept[t.q] && (!s->counted || t.count >= s->min))
            go_back(m, t.parent, out, first);
        return;
    }
    if (how == TAKEN_DEAD)
        return;
    if (how == TAKEN_CHAR && s->counted && (s->max != G_MANY || t.count < s->min))
        t.count++;
    emit(m, out, first, &t);
}

/* Whether the number that was read, in any spelling, is one of the node's. */
static bool number_good(const struct machine *m, const struct frame *t) {
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

static void step_number(struct machine *m, struct frame t, uint8_t c, frame_list *out,
                        size_t first) {
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
        done = t.q == DFA_NONE && number_good(m, &before);
    }
    if (t.q != DFA_NONE)
        emit(m, out, first, &t);
    else if (done) { /* nothing but the next byte ends a number */
        const struct frame below = *machine_frame(m, t.parent);
        step_thread(m, &below, c, out, first);
    }
}

/* ---- rules ---- */

struct in_set {
    const struct expr *e;
    uint32_t set;
};
static bool set_range_lives(const void *user, uint32_t lo, uint32_t hi) {
    const struct in_set *x = user;
    return expr_set_has(x->e, x->set, lo, hi);
}

/* Adds the threads that stand before a character when the rules are at state q, above `parent`. */
static void close_rule(struct machine *m, uint32_t q, uint32_t parent, uint32_t depth,
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
        close_rule(m, s->a, parent, depth, out, first);
        close_rule(m, s->b, parent, depth, out, first);
        break;
    case NFA_SET:
        emit(m, out, first, &f);
        break;
    case NFA_CALL:
        if (m->g->nfa.states.v[s->a].op == NFA_MATCH) {
            /* nothing is left to do here: the rule returns for both */
            close_rule(m, m->g->rules[s->b], parent, depth, out, first);
            break;
        }
        f.kind = F_RETURN;
        f.q = s->a;
        if (push(m, &f, &f.parent, &f.depth))
            close_rule(m, m->g->rules[s->b], f.parent, f.depth, out, first);
        break;
    case NFA_MATCH:
        if (below->kind == F_RETURN)
            close_rule(m, below->q, below->parent, below->depth, out, first);
        else
            go_back(m, parent, out, first); /* the end, or unknown */
        break;
    case NFA_BOL:
    case NFA_EOL:
        break;
    }
}

static void step_rule(struct machine *m, struct frame t, uint8_t c, frame_list *out, size_t first) {
    const struct nfa_state *s = &m->g->nfa.states.v[t.q];
    const struct in_set x = {&m->g->expr, s->b};
    uint32_t cp;
    const enum taken how = take_byte(&t.lex, c, SPELT_TEXT, &cp, set_range_lives, &x);
    if (how == TAKEN_PART)
        emit(m, out, first, &t);
    if (how != TAKEN_CHAR)
        return;
    m->visited.n = 0;
    close_rule(m, s->a, t.parent, t.depth, out, first);
}

/* ---- */

static void step_thread(struct machine *m, const struct frame *t, uint8_t c, frame_list *out,
                        size_t first) {
    struct frame f = *t;
    switch ((enum frame_kind)t->kind) {
    case F_END:
        if (m->g->root == G_ROOT_JSON && m->free_form && is_blank(c))
            emit(m, out, first, &f);
        break;
    case F_UNKNOWN:
        emit(m, out, first, &f);
        break;
    case F_VALUE:
        step_value(m, f, c, out, first);
        break;
    case F_LITERAL:
        if (literal_text[f.id][f.q] != (char)c)
            break;
        if (literal_text[f.id][++f.q])
            emit(m, out, first, &f);
        else
            go_back(m, f.parent, out, first);
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
            emit(m, out, first, &f);
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
            (t->kind == F_NUMBER_FREE && t->parent == 0 && number_good(m, t)) ||
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
        close_rule(m, g->rules[g->start_rule], 0, 0, &m->now, 0);
    } else {
        f.kind = g->root == G_ROOT_JSON ? F_VALUE : F_TEXT;
        if (g->root == G_ROOT_JSON ? g->nodes[0].ok : g->text.n > 0)
            emit(m, &m->now, 0, &f);
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
