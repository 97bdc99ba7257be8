/* guide_phases.c - what follows what: calls as their syntax has it, and the phases of a guide. */
#include "serve/guide_parts.h"

#include "base/buf.h"
#include "serve/request.h"

#include <string.h>

/* ---- what may be picked ---- */

static int add_alt(struct guide *g, enum action action, size_t arg, const struct lode_buf *text,
                   struct lode_error *err) {
    return text && text->failed ? request_no_memory(err)
                                : picks_add(&g->picks, g->o.tokenizer, action, arg, text ? text->data : NULL,
                                            text ? text->len : 0, err);
}

static int add_text(struct guide *g, enum action action, size_t arg, const char *text,
                    struct lode_error *err) {
    return picks_add(&g->picks, g->o.tokenizer, action, arg, text, strlen(text), err);
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

int guide_add_heads(struct guide *g, const char *before, const char *have, struct lode_error *err) {
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
            rc = request_no_memory(err);
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
        rc = guide_add_heads(g, c->syntax->between, "", err);
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

static int begin_grammar(struct guide *g, struct form *form, enum phase phase,
                         struct lode_error *err) {
    lode_grammar_state_free(g->state);
    g->state = NULL;
    g->phase = phase;
    return form_state(form, &g->state, err);
}

int guide_begin_free(struct guide *g) {
    g->phase = FREE;
    g->tail.n = 0;
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
        g->tail.n = 0;
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

int guide_act(struct guide *g, enum action action, size_t arg, struct lode_error *err) {
    picks_clear(&g->picks);
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
        return guide_begin_free(g);
    case TO_THINKING: /* harmony's: up to the end of its message */
        g->phase = TEXT;
        g->until = "<|end|>";
        g->tail.n = 0;
        return 0;
    case TO_FORM:
        return begin_grammar(g, g->o.form, FORM, err);
    case TO_END:
        break;
    }
    g->phase = OVER;
    return 0;
}

static bool is_harmony(const struct guide *g) {
    return g->o.style.format && !strcmp(g->o.style.format, "harmony");
}

int guide_begin_answer(struct guide *g, const char *before, struct lode_error *err) {
    const struct calls *c = g->o.calls;
    const bool must = c && c->choice == TOOLS_REQUIRED;
    const bool calls = c && (must || c->strict);
    int rc = 0;
    picks_clear(&g->picks);
    if (!must && !g->o.form)
        return guide_begin_free(g);
    if (calls) {
        struct lode_buf b = {0};
        lode_buf_addf(&b, "%s%s", before, c->syntax->open);
        rc = b.failed ? request_no_memory(err) : guide_add_heads(g, b.data, "", err);
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
