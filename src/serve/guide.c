/* guide.c - see guide.h.
 *
 * A guide is always in one phase: free text that is watched for the beginning of a call; a pick among
 * a few texts, as the tokens that they are; JSON by a grammar; a text up to a tag; or over.  What
 * follows a phase is a list of picks, made when the phase is entered.
 */
#include "serve/guide.h"

#include "base/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum phase {
    FREE, /* any text, until a trigger */
    PICK, /* one of the alternatives */
    FORM, /* the answer's form */
    JSON, /* a value, then one of the alternatives */
    TEXT, /* a value, up to its tag */
    OVER,
};

enum action { TO_TOOL, TO_KEY, TO_VALUE_END, TO_CALL_END, TO_END, TO_FREE, TO_THINKING, TO_FORM };

struct alt {
    int32_t *ids; /* owned; (n); none: the answer's end */
    size_t n;
    enum action action;
    size_t arg;
    bool out; /* another token came */
};

enum { MOST_BANNED = 64, TAIL = 256, LONGEST = 512 /* bytes of a token that are looked at */ };

struct guide {
    struct guide_opts o; /* tools is not kept */
    struct lode_toolcall *parser;
    struct lode_detok *detok;
    size_t n_words;
    uint64_t *mask; /* (n_words) */
    enum phase phase;
    bool begun;     /* the thinking is over, or there is none */
    bool in_string; /* of a call's arguments */
    bool escaped;
    struct alt *alts;
    size_t n_alts, cap_alts, at; /* tokens of the alternatives that have come */
    struct lode_grammar_state *state; /* of FORM and JSON */
    bool object;         /* JSON is over with the value's bracket */
    size_t tool, param, n_calls, n_written;
    const char *until;   /* TEXT */
    char tail[TAIL];     /* the last bytes of FREE or TEXT */
    size_t n_tail;
    int32_t banned[MOST_BANNED];
    size_t n_banned;
};

static int no_memory(struct lode_error *err) {
    *err = (struct lode_error){.code = LODE_ERR_NOMEM, .text = "no memory for a grammar"};
    return LODE_ERR_NOMEM;
}

/* ---- alternatives ---- */

static void clear_alts(struct guide *g) {
    for (size_t i = 0; i < g->n_alts; i++)
        free(g->alts[i].ids);
    g->n_alts = g->at = 0;
}

/* The tokens of text that stands behind a newline: at the beginning of a text some tokenizers would
 * add a blank. */
static int tokenize(const struct guide *g, const char *text, size_t len, struct alt *a,
                    struct lode_error *err) {
    const struct lode_tokenizer *t = g->o.tokenizer;
    struct lode_buf line = {0};
    int32_t before[8];
    int rc = 0;
    lode_buf_addc(&line, '\n');
    lode_buf_add(&line, text, len);
    const size_t cap = len + 16;
    int32_t *ids = malloc(cap * sizeof *ids);
    const int64_t n_before = lode_tokenize(t, "\n", 1, LODE_TOK_PARSE, before, 8, err);
    int64_t n = line.failed || !ids ? LODE_ERR_NOMEM
                                    : lode_tokenize(t, line.data, line.len, LODE_TOK_PARSE, ids, cap, err);
    if (n > 0 && n_before > 0 && n_before <= 8 && n > n_before && (size_t)n <= cap &&
        !memcmp(ids, before, (size_t)n_before * sizeof *ids)) {
        n -= n_before;
        memmove(ids, ids + n_before, (size_t)n * sizeof *ids);
    } else if (n >= 0) {
        n = lode_tokenize(t, text, len, LODE_TOK_PARSE, ids, cap, err);
    }
    lode_buf_free(&line);
    if (n < 0 || (size_t)n > cap) {
        free(ids);
        rc = n == LODE_ERR_NOMEM || n >= 0 ? no_memory(err) : (int)n;
    } else {
        a->ids = ids;
        a->n = (size_t)n;
    }
    return rc;
}

static int add_alt(struct guide *g, enum action action, size_t arg, const struct lode_buf *text,
                   struct lode_error *err) {
    if (text && text->failed)
        return no_memory(err);
    if (g->n_alts == g->cap_alts) {
        const size_t cap = 2 * g->cap_alts + 8;
        struct alt *alts = realloc(g->alts, cap * sizeof *alts);
        if (!alts)
            return no_memory(err);
        g->alts = alts;
        g->cap_alts = cap;
    }
    struct alt *a = &g->alts[g->n_alts];
    *a = (struct alt){.action = action, .arg = arg};
    if (text && text->len) {
        const int rc = tokenize(g, text->data, text->len, a, err);
        if (rc < 0)
            return rc;
    }
    g->n_alts++;
    return 0;
}

static int add_text(struct guide *g, enum action action, size_t arg, const char *text,
                    struct lode_error *err) {
    struct lode_buf b = {0};
    lode_buf_addz(&b, text);
    const int rc = add_alt(g, action, arg, &b, err);
    lode_buf_free(&b);
    return rc;
}

/* ---- calls ---- */

static const struct call_syntax *syntax(const struct guide *g) { return g->o.calls->syntax; }

static void add_numbered(const struct guide *g, struct lode_buf *b, const char *text) {
    for (; *text; text++)
        if (*text == '#')
            lode_buf_addf(b, "%zu", g->n_calls);
        else
            lode_buf_addc(b, *text);
}

/* Each tool's call up to its arguments, without the first `skip` bytes, which have come. */
static int add_heads(struct guide *g, const char *before, const char *have, struct lode_error *err) {
    const struct calls *c = g->o.calls;
    int rc = 0;
    for (size_t i = 0; i < c->n_tools && rc == 0; i++) {
        struct lode_buf b = {0}, rest = {0};
        lode_buf_addz(&b, before);
        add_numbered(g, &b, c->syntax->pre);
        lode_buf_addz(&b, c->tools[i].name);
        add_numbered(g, &b, c->syntax->post);
        /* what has come stands at the beginning, or, in harmony, within the header */
        const char *at = b.failed ? NULL : *have ? strstr(b.data, have) : b.data;
        if (b.failed)
            rc = no_memory(err);
        else if (at)
            lode_buf_addz(&rest, at + strlen(have));
        if (rc == 0 && at)
            rc = add_alt(g, TO_TOOL, i, &rest, err);
        lode_buf_free(&b);
        lode_buf_free(&rest);
    }
    return rc;
}

/* What may follow a call that is complete. */
static int add_after_call(struct guide *g, struct lode_error *err) {
    const struct calls *c = g->o.calls;
    const bool free_after = c->choice == TOOLS_AUTO && !*c->syntax->close;
    int rc = 0;
    g->n_calls++;
    if (free_after)
        return add_alt(g, TO_FREE, 0, NULL, err);
    if (c->several && c->syntax->between)
        rc = add_heads(g, c->syntax->between, "", err);
    if (rc < 0)
        return rc;
    return *c->syntax->close
               ? add_text(g, c->choice == TOOLS_AUTO ? TO_FREE : TO_END, 0, c->syntax->close, err)
               : add_alt(g, TO_END, 0, NULL, err);
}

/* Behind the arguments as one object. */
static int add_call_end(struct guide *g, struct lode_error *err) {
    return *syntax(g)->end_call ? add_text(g, TO_CALL_END, 0, syntax(g)->end_call, err)
                                : add_after_call(g, err);
}

/* The parameters that may come next, and the call's end where none must. */
static int add_keys(struct guide *g, const char *before, struct lode_error *err) {
    const struct call_syntax *x = syntax(g);
    const struct call_tool *t = &g->o.calls->tools[g->tool];
    bool due = false;
    int rc = 0;
    for (size_t i = g->param; i < t->n_params && !due && rc == 0; i++) {
        const struct call_param *p = &t->params[i];
        struct lode_buf b = {0};
        lode_buf_addf(&b, "%s%s%s%s", before, g->n_written ? x->sep : "", x->key_pre, p->name);
        if (x->typed_keys)
            lode_buf_addf(&b, "\" string=\"%s", p->text ? "true" : "false");
        lode_buf_addf(&b, "%s%s", x->key_post, p->text ? x->text_pre : "");
        rc = add_alt(g, TO_KEY, i, &b, err);
        lode_buf_free(&b);
        due = p->required;
    }
    if (rc == 0 && !due) {
        struct lode_buf b = {0};
        lode_buf_addf(&b, "%s%s", before, x->end_call);
        rc = add_alt(g, TO_CALL_END, 0, &b, err);
        lode_buf_free(&b);
    }
    return rc;
}

/* ---- phases ---- */

static int act(struct guide *g, enum action action, size_t arg, struct lode_error *err);

static int begin_grammar(struct guide *g, struct form *form, enum phase phase,
                         struct lode_error *err) {
    lode_grammar_state_free(g->state);
    g->state = NULL;
    g->phase = phase;
    return form_state(form, &g->state, err);
}

static int begin_free(struct guide *g) {
    g->phase = FREE;
    g->n_tail = 0;
    return 0;
}

static int begin_tool(struct guide *g, size_t i, struct lode_error *err) {
    const struct call_tool *t = &g->o.calls->tools[i];
    g->tool = i;
    g->param = g->n_written = 0;
    if (syntax(g)->tagged) {
        g->phase = PICK;
        return add_keys(g, "", err);
    }
    g->object = true;
    const int rc = begin_grammar(g, t->form, JSON, err);
    return rc < 0 ? rc : add_call_end(g, err);
}

static int begin_value(struct guide *g, size_t i, struct lode_error *err) {
    const struct call_param *p = &g->o.calls->tools[g->tool].params[i];
    int rc = 0;
    g->param = i + 1;
    g->n_written++;
    if (!p->text) {
        g->object = false;
        rc = begin_grammar(g, p->form, JSON, err);
        return rc < 0 ? rc : add_keys(g, syntax(g)->value_post, err);
    }
    if (!p->n_choices) {
        g->phase = TEXT;
        g->until = syntax(g)->text_post;
        g->n_tail = 0;
        return 0;
    }
    g->phase = PICK;
    for (size_t k = 0; k < p->n_choices && rc == 0; k++) {
        struct lode_buf b = {0};
        lode_buf_addf(&b, "%s%s", p->choices[k], syntax(g)->text_post);
        rc = add_alt(g, TO_VALUE_END, 0, &b, err);
        lode_buf_free(&b);
    }
    return rc;
}

static int act(struct guide *g, enum action action, size_t arg, struct lode_error *err) {
    clear_alts(g);
    switch (action) {
    case TO_TOOL:
        return begin_tool(g, arg, err);
    case TO_KEY:
        return begin_value(g, arg, err);
    case TO_VALUE_END:
        g->phase = PICK;
        return add_keys(g, "", err);
    case TO_CALL_END:
        g->phase = PICK;
        return add_after_call(g, err);
    case TO_FREE:
        return begin_free(g);
    case TO_THINKING: /* harmony's: up to the end of its message */
        g->phase = TEXT;
        g->until = "<|end|>";
        g->n_tail = 0;
        return 0;
    case TO_FORM:
        return begin_grammar(g, g->o.form, FORM, err);
    case TO_END:
        break;
    }
    g->phase = OVER;
    return 0;
}

/* An alternative without tokens, alone, is what happens at once. */
static int settle(struct guide *g, struct lode_error *err) {
    while (g->phase == PICK && g->n_alts == 1 && g->alts[0].n == 0) {
        const int rc = act(g, g->alts[0].action, g->alts[0].arg, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static bool is_harmony(const struct guide *g) {
    return g->o.style.format && !strcmp(g->o.style.format, "harmony");
}

/* The answer begins: thinking is over, or there is none. */
static int begin_answer(struct guide *g, const char *before, struct lode_error *err) {
    const struct calls *c = g->o.calls;
    const bool must = c && c->choice == TOOLS_REQUIRED;
    const bool calls = c && (must || c->strict);
    int rc = 0;
    clear_alts(g);
    if (!must && !g->o.form)
        return begin_free(g);
    if (calls) {
        struct lode_buf b = {0};
        lode_buf_addf(&b, "%s%s", before, c->syntax->open);
        rc = b.failed ? no_memory(err) : add_heads(g, b.data, "", err);
        lode_buf_free(&b);
    }
    g->phase = PICK;
    if (is_harmony(g)) {
        struct lode_buf b = {0};
        lode_buf_addf(&b, "%s<|channel|>final<|message|>", before);
        if (rc == 0 && !must)
            rc = add_alt(g, TO_FORM, 0, &b, err);
        lode_buf_free(&b);
        if (rc == 0 && !*before)
            rc = add_text(g, TO_THINKING, 0, "<|channel|>analysis<|message|>", err);
    } else if (rc == 0 && !must) {
        rc = begin_grammar(g, g->o.form, FORM, err);
    }
    return rc;
}

/* ---- masks ---- */

static void add_id(struct guide *g, int32_t id) { g->mask[id / 64] |= (uint64_t)1 << id % 64; }

static void add_words(struct guide *g, const uint64_t *words) {
    for (size_t i = 0; i < g->n_words; i++)
        g->mask[i] |= words[i];
}

static void remove_words(struct guide *g, const uint64_t *words) {
    for (size_t i = 0; i < g->n_words; i++)
        g->mask[i] &= ~words[i];
}

static bool any_word(const struct guide *g, const uint64_t *but) {
    for (size_t i = 0; i < g->n_words; i++)
        if (g->mask[i] & ~(but ? but[i] : 0))
            return true;
    return false;
}

static void add_next_ids(struct guide *g) {
    for (size_t i = 0; i < g->n_alts; i++) {
        const struct alt *a = &g->alts[i];
        if (!a->out && a->n > g->at)
            add_id(g, a->ids[g->at]);
        else if (!a->out && a->n == 0)
            add_words(g, forms_ends(g->o.forms));
    }
}

/* Special tokens that a tag is made of. */
static void add_tag_ids(struct guide *g, const char *tag) {
    for (const char *at = tag; (at = strchr(at, '<')); at++) {
        char piece[64];
        const char *end = strchr(at, '>');
        const size_t n = end ? (size_t)(end - at) + 1 : 0;
        if (!n || n >= sizeof piece)
            continue;
        memcpy(piece, at, n);
        piece[n] = '\0';
        const int32_t id = lode_tokenizer_find(g->o.tokenizer, piece);
        if (id >= 0)
            add_id(g, id);
    }
}

/* In a call that nothing else holds: tags and names, not what stands in its texts. */
static bool is_syntax(const struct guide *g) {
    return g->o.calls && lode_toolcall_stage(g->parser) == LODE_TOOLCALL_AT_CALL && !g->in_string;
}

static int mask_now(struct guide *g, struct lode_generation_hint *h, struct lode_error *err) {
    const uint64_t *ends = forms_ends(g->o.forms);
    int rc = 0;
    memset(g->mask, 0, g->n_words * sizeof *g->mask);
    h->mask = g->mask;
    switch (g->phase) {
    case FREE:
        h->greedy = is_syntax(g);
        if (!h->greedy && !g->n_banned)
            h->mask = NULL;
        else
            memset(g->mask, 0xff, g->n_words * sizeof *g->mask);
        return 0;
    case PICK:
        add_next_ids(g);
        h->greedy = true;
        return 0;
    case TEXT:
        add_words(g, forms_texts(g->o.forms));
        add_tag_ids(g, g->until);
        return 0;
    case FORM:
    case JSON:
        rc = lode_grammar_mask(g->state, g->mask, err);
        if (rc < 0)
            return rc;
        if (g->phase == JSON)
            remove_words(g, ends);
        if (g->phase == FORM || lode_grammar_complete(g->state))
            add_next_ids(g);
        if (g->phase == FORM && !any_word(g, ends) && lode_grammar_complete(g->state))
            h->over = true;
        return 0;
    case OVER:
        h->over = true;
    }
    return 0;
}

static int32_t think_id(const struct guide *g) {
    return g->o.style.think ? lode_tokenizer_find(g->o.tokenizer, g->o.style.think) : -1;
}

/* Thinking is free, but must end before an answer that is held to something does. */
static void mask_thinking(struct guide *g, struct lode_generation_hint *h) {
    const struct calls *c = g->o.calls;
    if (!g->o.form && !(c && c->choice == TOOLS_REQUIRED))
        return;
    memset(g->mask, 0xff, g->n_words * sizeof *g->mask);
    remove_words(g, forms_ends(g->o.forms));
    h->mask = g->mask;
}

static int guide_next(void *user, struct lode_generation_hint *h, struct lode_error *err) {
    struct guide *g = user;
    const enum lode_toolcall_stage stage = lode_toolcall_stage(g->parser);
    int rc = 0;
    *h = (struct lode_generation_hint){0};
    if (!g->begun && stage == LODE_TOOLCALL_AT_THINKING) {
        mask_thinking(g, h);
    } else {
        if (!g->begun)
            rc = begin_answer(g, "", err);
        if (rc == 0)
            rc = mask_now(g, h, err);
        if (rc == 0 && !g->begun && stage == LODE_TOOLCALL_AT_START && h->mask &&
            think_id(g) >= 0) { /* thinking may come instead of the answer's first token */
            add_id(g, think_id(g));
            h->greedy = h->over = false;
        }
    }
    for (size_t i = 0; rc == 0 && h->mask && i < g->n_banned; i++)
        g->mask[g->banned[i] / 64] &= ~((uint64_t)1 << g->banned[i] % 64);
    return rc;
}

/* ---- tokens that came ---- */

/* Looks for a tag in what has come and what this token adds.  1: it ends here; 0: not yet; -1: it
 * ended within the token. */
static int find_tag(const struct guide *g, const char *text, size_t len, const char *tag) {
    char all[TAIL + LONGEST];
    len = len > LONGEST ? LONGEST : len;
    const size_t n = g->n_tail + len, n_tag = strlen(tag);
    memcpy(all, g->tail, g->n_tail);
    memcpy(all + g->n_tail, text, len);
    const char *at = memmem(all, n, tag, n_tag);
    while (at && (size_t)(at - all) + n_tag <= g->n_tail) /* it was there before */
        at = memmem(at + 1, n - (size_t)(at + 1 - all), tag, n_tag);
    return !at ? 0 : (size_t)(at - all) + n_tag == n ? 1 : -1;
}

static void keep_tail(struct guide *g, const char *text, size_t len) {
    if (len >= TAIL) {
        memcpy(g->tail, text + len - TAIL, TAIL);
        g->n_tail = TAIL;
        return;
    }
    const size_t drop = g->n_tail + len > TAIL ? g->n_tail + len - TAIL : 0;
    memmove(g->tail, g->tail + drop, g->n_tail - drop);
    g->n_tail -= drop;
    memcpy(g->tail + g->n_tail, text, len);
    g->n_tail += len;
}

static int ban(struct guide *g, int32_t id) {
    if (g->n_banned == MOST_BANNED)
        return 0; /* so many are wrong that this one is taken as it is */
    g->banned[g->n_banned++] = id;
    return 1;
}

/* Where a call may begin within an answer: then its tool and its arguments are held. */
static int watch(struct guide *g, int32_t id, struct lode_error *err) {
    const struct calls *c = g->o.calls;
    char own[160];
    size_t len;
    if (!c || !c->strict)
        return 0;
    const char *text = forms_token(g->o.forms, id, &len);
    const char *trigger = c->syntax->trigger;
    int found = trigger ? find_tag(g, text, len, trigger) : 0;
    for (size_t i = 0; !trigger && !found && i < c->n_tools; i++) { /* the call's head itself */
        if ((size_t)snprintf(own, sizeof own, "%s%s%s", c->syntax->open, c->tools[i].name,
                             c->syntax->post) < sizeof own)
            found = find_tag(g, text, len, own);
        if (found == 1) {
            keep_tail(g, text, len);
            return act(g, TO_TOOL, i, err);
        }
    }
    if (found < 0)
        return ban(g, id);
    keep_tail(g, text, len);
    if (!found)
        return 0;
    clear_alts(g);
    g->phase = PICK;
    const int rc = add_heads(g, c->syntax->open, trigger, err);
    if (rc == 0 && !g->n_alts)
        return begin_free(g);
    return rc;
}

static int accept_pick(struct guide *g, int32_t id, struct lode_error *err) {
    for (size_t i = 0; i < g->n_alts; i++) {
        struct alt *a = &g->alts[i];
        a->out = a->out || a->n <= g->at || a->ids[g->at] != id;
    }
    g->at++;
    for (size_t i = 0; i < g->n_alts; i++)
        if (!g->alts[i].out && g->alts[i].n == g->at)
            return act(g, g->alts[i].action, g->alts[i].arg, err);
    return 0;
}

static bool is_next_id(const struct guide *g, int32_t id) {
    for (size_t i = 0; i < g->n_alts; i++)
        if (g->alts[i].n && g->alts[i].ids[0] == id)
            return true;
    return false;
}

/* The value is over: one of the alternatives must follow, or follows already. */
static int end_value(struct guide *g) {
    lode_grammar_state_free(g->state);
    g->state = NULL;
    g->phase = PICK;
    return 0;
}

static int accept_grammar(struct guide *g, int32_t id, struct lode_error *err) {
    const bool switches = g->phase == FORM || lode_grammar_complete(g->state);
    if (switches && g->phase == JSON && is_next_id(g, id)) {
        end_value(g);
        return accept_pick(g, id, err);
    }
    int rc = lode_grammar_accept(g->state, id, err);
    if (rc == LODE_ERR_ARG && switches && is_next_id(g, id)) {
        end_value(g);
        return accept_pick(g, id, err);
    }
    if (rc < 0)
        return rc;
    if (g->phase == FORM)
        clear_alts(g); /* the answer has begun with the form */
    else if (g->object && lode_grammar_complete(g->state))
        end_value(g);
    return 0;
}

static int accept_text(struct guide *g, int32_t id, struct lode_error *err) {
    size_t len;
    const char *text = forms_token(g->o.forms, id, &len);
    const int found = find_tag(g, text, len, g->until);
    if (found < 0)
        return ban(g, id);
    keep_tail(g, text, len);
    if (!found)
        return 0;
    return strcmp(g->until, "<|end|>") ? act(g, TO_VALUE_END, 0, err)
                                       : begin_answer(g, "<|start|>assistant", err);
}

/* Shows the token to the parser, which knows where thinking ends. */
static int follow(struct guide *g, int32_t id, struct lode_error *err) {
    struct lode_token_info info;
    const char *text = "";
    size_t len = 0;
    int rc = 0;
    if (lode_token_info(g->o.tokenizer, id, &info) < 0 || !info.special ||
        lode_toolcall_wants(g->parser, info.piece, info.piece_len))
        rc = lode_detok_push(g->detok, id, &text, &len, err);
    return rc == 0 ? lode_toolcall_push(g->parser, text, len, err) : rc;
}

static int guide_accept(void *user, int32_t id, struct lode_error *err) {
    struct guide *g = user;
    const bool end = lode_tokenizer_is_end(g->o.tokenizer, id);
    int rc = 0;
    const enum lode_toolcall_stage stage = lode_toolcall_stage(g->parser);
    const bool thinks = !g->begun && (stage == LODE_TOOLCALL_AT_THINKING ||
                                      (stage == LODE_TOOLCALL_AT_START && id == think_id(g)));
    if (thinks)
        clear_alts(g);
    else if (end)
        g->phase = OVER;
    else if (g->phase == PICK)
        rc = accept_pick(g, id, err);
    else if (g->phase == FREE)
        rc = watch(g, id, err);
    else if (g->phase == TEXT)
        rc = accept_text(g, id, err);
    else if (g->state)
        rc = accept_grammar(g, id, err);
    if (rc)
        return rc;
    g->begun = g->begun || !thinks;
    g->n_banned = 0;
    rc = settle(g, err);
    return rc < 0 || end ? rc : follow(g, id, err);
}

/* ---- the guide ---- */

/* Whether the arguments are within a string. */
static int on_event(void *user, const struct lode_toolcall_event *e) {
    struct guide *g = user;
    if (e->kind == LODE_TOOLCALL_BEGIN)
        g->in_string = g->escaped = false;
    for (size_t i = 0; e->kind == LODE_TOOLCALL_ARGUMENTS && i < e->len; i++) {
        if (g->escaped)
            g->escaped = false;
        else if (g->in_string && e->text[i] == '\\')
            g->escaped = true;
        else if (e->text[i] == '"')
            g->in_string = !g->in_string;
    }
    if (e->kind == LODE_TOOLCALL_END || e->kind == LODE_TOOLCALL_MALFORMED)
        g->in_string = false;
    return 0;
}

static void guide_free(void *user) {
    struct guide *g = user;
    clear_alts(g);
    free(g->alts);
    free(g->mask);
    lode_grammar_state_free(g->state);
    lode_toolcall_free(g->parser);
    lode_detok_free(g->detok);
    forms_put(g->o.form);
    calls_put(g->o.calls);
    free(g);
}

int guide_create(struct lode_generation_guide *out, const struct guide_opts *o,
                 struct lode_error *err) {
    *out = (struct lode_generation_guide){0};
    if (!o->form && !o->calls)
        return 0;
    struct guide *g = calloc(1, sizeof *g);
    if (!g)
        return no_memory(err);
    g->o = *o;
    g->o.tools = NULL;
    if (o->form)
        forms_hold(o->form);
    if (o->calls)
        calls_hold(o->calls);
    g->n_words = forms_words(o->forms);
    g->mask = calloc(g->n_words, sizeof *g->mask);
    const struct lode_toolcall_opts parse = {.style = o->style,
                                             .thinking = o->thinking,
                                             .tools = o->tools,
                                             .tools_len = o->tools ? strlen(o->tools) : 0,
                                             .put = on_event,
                                             .user = g};
    int rc = g->mask ? lode_toolcall_create(&g->parser, &parse, err) : no_memory(err);
    if (rc == 0)
        rc = lode_detok_create(&g->detok, o->tokenizer, false, err);
    if (rc < 0) {
        guide_free(g);
        return rc;
    }
    *out = (struct lode_generation_guide){guide_next, guide_accept, guide_free, g};
    return 0;
}
