/* constraint.c - see constraint.h. */
#include "constraint.h"

#include "input.h"
#include "out.h"

#include "lode/tokenizer.h"

#include <stdlib.h>
#include <string.h>

/* The one constraint that was given, as text; *text stays NULL where there is none. */
static int find_source(const struct constraint_opts *o, enum lode_grammar_kind *kind, char **text,
                       size_t *size, struct lode_error *err) {
    const struct {
        const char *text, *file;
        enum lode_grammar_kind kind;
    } given[] = {
        {o->schema, o->schema_file, LODE_GRAMMAR_SCHEMA},
        {o->grammar, o->grammar_file, LODE_GRAMMAR_GBNF},
        {o->regex, NULL, LODE_GRAMMAR_REGEX},
    };
    int n = 0, rc = 0;
    *text = NULL;
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        n += (given[i].text != NULL) + (given[i].file != NULL);
    if (n > 1)
        return tool_fail(err, LODE_ERR_ARG, "--json-schema, --grammar, --regex",
                         "one answer can be held to one form: give one of them");
    for (size_t i = 0; i < sizeof given / sizeof *given && rc == 0; i++) {
        if (!given[i].text && !given[i].file)
            continue;
        *kind = given[i].kind;
        if (given[i].file)
            rc = input_read(given[i].file, 0, text, size, err);
        else if ((*text = strdup(given[i].text)))
            *size = strlen(*text);
        else
            rc = tool_fail(err, LODE_ERR_NOMEM, "--grammar", "no memory");
    }
    return rc;
}

int constraint_create(struct constraint *c, const struct constraint_opts *o,
                      const struct lode_model *m, struct lode_error *err) {
    enum lode_grammar_kind kind = LODE_GRAMMAR_SCHEMA;
    const struct lode_tokenizer *t = lode_model_tokenizer(m);
    char *text;
    size_t size = 0;
    int rc = find_source(o, &kind, &text, &size, err);
    if (rc < 0 || !text)
        return rc;
    rc = lode_grammar_compile(&c->grammar, kind, text, size, err);
    free(text);
    if (rc == 0)
        rc = lode_grammar_vocab_create(&c->vocab, t, err);
    if (rc == 0)
        rc = lode_grammar_state_create(&c->state, c->grammar, c->vocab, err);
    if (rc < 0)
        return rc;
    const uint32_t n_model = lode_model_info(m)->n_vocab, n = lode_grammar_vocab_size(c->vocab);
    c->n_words = ((size_t)(n > n_model ? n : n_model) + 63) / 64;
    c->mask = calloc(c->n_words, sizeof *c->mask);
    return c->mask ? 0 : tool_fail(err, LODE_ERR_NOMEM, "mask", "no memory");
}

void constraint_free(struct constraint *c) {
    lode_grammar_state_free(c->state);
    lode_grammar_free(c->grammar);
    lode_grammar_vocab_free(c->vocab);
    free(c->mask);
    *c = (struct constraint){0};
}

int constraint_begin(struct constraint *c, struct lode_error *err) {
    return c->state ? lode_grammar_state_reset(c->state, err) : 0;
}

int constraint_mask(struct constraint *c, const struct lode_model *m, int32_t think, bool *over,
                    struct lode_error *err) {
    const struct lode_tokenizer *t = lode_model_tokenizer(m);
    bool any = false, end = false;
    const int rc = lode_grammar_mask(c->state, c->mask, err);
    if (rc < 0)
        return rc;
    if (think >= 0)
        c->mask[think / 64] |= (uint64_t)1 << think % 64;
    for (size_t i = 0; i < c->n_words && !any; i++)
        for (uint64_t left = c->mask[i]; left && !any; left &= left - 1) {
            const int32_t id = (int32_t)(64 * i) + __builtin_ctzll(left);
            any = !lode_tokenizer_is_end(t, id);
            end = end || !any;
        }
    *over = !any && (end || lode_grammar_complete(c->state));
    if (!any && !*over)
        return tool_fail(err, LODE_ERR_UNSUPPORTED, "grammar",
                         "no token of this model's vocabulary can go on from here");
    return 0;
}

int constraint_accept(struct constraint *c, int32_t id, struct lode_error *err) {
    return lode_grammar_accept(c->state, id, err);
}
