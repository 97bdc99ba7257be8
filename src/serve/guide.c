/* guide.c - see guide.h.
 *
 * A guide is always in one phase: free text that is watched for the beginning of a call; a pick among
 * a few texts, as the tokens that they are; JSON by a grammar; a text up to a tag; or over.  What
 * follows a phase is a list of picks, made when the phase is entered.
 */
#include "serve/guide_parts.h"

#include "serve/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    for (size_t i = 0; i < g->picks.n; i++) {
        const struct pick *a = &g->picks.list[i];
        if (!a->out && a->n > g->picks.at)
            add_id(g, a->ids[g->picks.at]);
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
            rc = guide_begin_answer(g, "", err);
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
    int found = trigger ? tail_find(&g->tail, text, len, trigger) : 0;
    for (size_t i = 0; !trigger && !found && i < c->n_tools; i++) { /* the call's head itself */
        if ((size_t)snprintf(own, sizeof own, "%s%s%s", c->syntax->open, c->tools[i].name,
                             c->syntax->post) < sizeof own)
            found = tail_find(&g->tail, text, len, own);
        if (found == 1) {
            tail_keep(&g->tail, text, len);
            return guide_act(g, TO_TOOL, i, err);
        }
    }
    if (found < 0)
        return ban(g, id);
    tail_keep(&g->tail, text, len);
    if (!found)
        return 0;
    picks_clear(&g->picks);
    g->phase = PICK;
    const int rc = guide_add_heads(g, c->syntax->open, trigger, err);
    if (rc == 0 && !g->picks.n)
        return guide_begin_free(g);
    return rc;
}

static int accept_pick(struct guide *g, int32_t id, struct lode_error *err) {
    const size_t i = picks_take(&g->picks, id);
    return i == PICKS_NONE ? 0 : guide_act(g, (enum action)g->picks.list[i].what, g->picks.list[i].arg, err);
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
    if (switches && g->phase == JSON && picks_begin_with(&g->picks, id)) {
        end_value(g);
        return accept_pick(g, id, err);
    }
    int rc = lode_grammar_accept(g->state, id, err);
    if (rc == LODE_ERR_ARG && switches && picks_begin_with(&g->picks, id)) {
        end_value(g);
        return accept_pick(g, id, err);
    }
    if (rc < 0)
        return rc;
    if (g->phase == FORM)
        picks_clear(&g->picks); /* the answer has begun with the form */
    else if (g->object && lode_grammar_complete(g->state))
        end_value(g);
    return 0;
}

static int accept_text(struct guide *g, int32_t id, struct lode_error *err) {
    size_t len;
    const char *text = forms_token(g->o.forms, id, &len);
    const int found = tail_find(&g->tail, text, len, g->until);
    if (found < 0)
        return ban(g, id);
    tail_keep(&g->tail, text, len);
    if (!found)
        return 0;
    return strcmp(g->until, "<|end|>") ? guide_act(g, TO_VALUE_END, 0, err)
                                       : guide_begin_answer(g, "<|start|>assistant", err);
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

/* An alternative without tokens, alone, is what happens at once. */
static int settle(struct guide *g, struct lode_error *err) {
    while (g->phase == PICK && g->picks.n == 1 && g->picks.list[0].n == 0) {
        const int rc = guide_act(g, (enum action)g->picks.list[0].what, g->picks.list[0].arg, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int guide_accept(void *user, int32_t id, struct lode_error *err) {
    struct guide *g = user;
    const bool end = lode_tokenizer_is_end(g->o.tokenizer, id);
    int rc = 0;
    const enum lode_toolcall_stage stage = lode_toolcall_stage(g->parser);
    const bool thinks = !g->begun && (stage == LODE_TOOLCALL_AT_THINKING ||
                                      (stage == LODE_TOOLCALL_AT_START && id == think_id(g)));
    if (thinks)
        picks_clear(&g->picks);
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
    picks_deinit(&g->picks);
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
        return request_no_memory(err);
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
    int rc = g->mask ? lode_toolcall_create(&g->parser, &parse, err) : request_no_memory(err);
    if (rc == 0)
        rc = lode_detok_create(&g->detok, o->tokenizer, false, err);
    if (rc < 0) {
        guide_free(g);
        return rc;
    }
    *out = (struct lode_generation_guide){guide_next, guide_accept, guide_free, g};
    return 0;
}
