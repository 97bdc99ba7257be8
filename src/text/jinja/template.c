/* template.c - the public face of the template engine: compile once, render many times. */
#include "base/alloc.h"
#include "base/error.h"
#include "text/jinja/jinja.h"

#include <locale.h>
#include <string.h>
#include <time.h>

int lode_template_compile(struct lode_template **out, const char *source, size_t len,
                          struct lode_error *err) {
    struct lode_error scratch;
    struct jinja_run r = {.err = err ? err : &scratch};
    *out = NULL;
    struct lode_template *t = LODE_NEW(struct lode_template);
    if (!t)
        return lode_fail_nomem(err, "chat template");
    t->c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!t->c_locale) {
        lode_template_free(t);
        return lode_fail_nomem(err, "chat template");
    }
    const locale_t before = uselocale(t->c_locale);
    const bool ok = jinja_compile(&r, t, source, len);
    uselocale(before);
    t->arena = r.arena; /* tokens too: the tree borrows their texts */
    if (!ok) {
        lode_template_free(t);
        return r.rc;
    }
    *out = t;
    return 0;
}

void lode_template_free(struct lode_template *t) {
    if (!t)
        return;
    if (t->c_locale)
        freelocale(t->c_locale);
    lode_arena_free(&t->arena);
    lode_free(t);
}

/* The variables that the template names: given, built in, or left undefined. */
static bool set_globals(struct jinja_run *r, const char *vars, size_t vars_len) {
    const struct lode_template *t = r->t;
    struct jv given;
    if (!jinja_json_read(r, vars, vars_len, &given))
        return false;
    if (given.kind != JV_DICT)
        return jinja_fail(r, LODE_ERR_ARG, "the template's variables are not a JSON object");
    if (!(r->globals = jinja_alloc(r, t->n_syms, sizeof *r->globals)))
        return false;
    for (uint32_t i = 0; i < t->n_syms; i++) {
        const struct jv *value = jinja_dict_getz(given.d, t->syms[i]);
        const struct jinja_builtin *b = jinja_find(jinja_globals, t->syms[i]);
        if (value) {
            r->globals[i] = *value;
        } else if (b) {
            struct jinja_func *f = jinja_alloc(r, 1, sizeof *f);
            if (!f)
                return false;
            f->b = b;
            r->globals[i] = (struct jv){.kind = JV_FUNC, .fn = f};
        }
    }
    return true;
}

int lode_template_render(const struct lode_template *t, const char *vars, size_t vars_len,
                         int64_t now, char **text, size_t *len, struct lode_error *err) {
    struct lode_error scratch;
    struct jinja_run r = {.err = err ? err : &scratch, .t = t, .now = now ? now : time(NULL)};
    *text = NULL;
    *len = 0;
    const locale_t before = uselocale(t->c_locale);
    const bool ok = lode_buf_reserve(&r.out, 256)
                        ? set_globals(&r, vars, vars_len) && jinja_run_template(&r)
                        : jinja_fail(&r, LODE_ERR_NOMEM, "out of memory for the chat template");
    uselocale(before);
    lode_arena_free(&r.arena);
    if (!ok) {
        lode_buf_free(&r.out);
        return r.rc;
    }
    *text = r.out.data;
    *len = r.out.len;
    return 0;
}

void lode_chat_text_free(char *text) {
    lode_free(text);
}
