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
static bool set_globals(struct jinja_run *r, const struct jinja_dict *given) {
    const struct lode_template *t = r->t;
    if (!(r->globals = jinja_alloc(r, t->n_syms, sizeof *r->globals)))
        return false;
    for (uint32_t i = 0; i < t->n_syms; i++) {
        const struct jv *value = jinja_dict_getz(given, t->syms[i]);
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

struct input { /* of one rendering: JSON text */
    const char *vars, *more;
    size_t vars_len, more_len;
    bool chat; /* vars is as in lode_template_render_chat */
};

static bool read_object(struct jinja_run *r, const char *text, size_t len, struct jv *out) {
    return jinja_json_read(r, text, len, out) &&
           (out->kind == JV_DICT ||
            jinja_fail(r, LODE_ERR_ARG, "the template's variables are not a JSON object"));
}

/* Adds the members of v, which may be null. */
static bool add_all(struct jinja_run *r, struct jinja_dict *to, struct jv v, const char *name) {
    if (v.kind == JV_NONE)
        return true;
    if (v.kind != JV_DICT)
        return jinja_fail(r, LODE_ERR_ARG, "%s is not a JSON object", name);
    for (uint32_t i = 0; i < v.d->n; i++)
        if (!jinja_dict_put(r, to, v.d->keys[i], v.d->values[i]))
            return false;
    return true;
}

static bool put(struct jinja_run *r, struct jinja_dict *d, const char *name, struct jv value) {
    struct jv key;
    return jinja_str_borrow(r, name, strlen(name), &key) && jinja_dict_put(r, d, key, value);
}

/* As transformers hands them over: special tokens, kwargs over them, and the rest. */
static bool chat_variables(struct jinja_run *r, const struct input *in, struct jv *vars) {
    static const char *const nested[] = {"special_tokens", "chat_template_kwargs", "kwargs"};
    enum { N_NESTED = sizeof nested / sizeof *nested };
    struct jv given, more;
    struct jinja_dict *d = jinja_dict_new(r);
    if (!d || (in->more && (!read_object(r, in->more, in->more_len, &more) ||
                            !add_all(r, d, more, "variables"))))
        return false;
    if (!put(r, d, "tools", jv_none()) || !put(r, d, "documents", jv_none()) ||
        !put(r, d, "add_generation_prompt", jv_bool(false)) ||
        !jinja_json_read(r, in->vars, in->vars_len, &given))
        return false;
    *vars = (struct jv){.kind = JV_DICT, .d = d};
    if (given.kind == JV_LIST)
        return put(r, d, "messages", given);
    if (given.kind != JV_DICT)
        return jinja_fail(r, LODE_ERR_ARG, "the input is neither a JSON array nor an object");
    const struct jv *messages = jinja_dict_getz(given.d, LODE_STR("messages"));
    if (!messages || messages->kind != JV_LIST)
        return jinja_fail(r, LODE_ERR_ARG, "the input has no list \"messages\"");
    for (size_t i = 0; i < N_NESTED; i++) {
        const struct jv *v = jinja_dict_getz(given.d, lode_str(nested[i]));
        if (v && !add_all(r, d, *v, nested[i]))
            return false;
    }
    for (uint32_t i = 0; i < given.d->n; i++) {
        size_t k = 0;
        while (k < N_NESTED && !jv_is_text(given.d->keys[i], nested[k]))
            k++;
        if (k == N_NESTED && !jinja_dict_put(r, d, given.d->keys[i], given.d->values[i]))
            return false;
    }
    return true;
}

static bool run(struct jinja_run *r, const struct input *in) {
    struct jv vars;
    if (!lode_buf_reserve(&r->out, 256))
        return jinja_fail(r, LODE_ERR_NOMEM, "out of memory for the chat template");
    return (in->chat ? chat_variables(r, in, &vars)
                     : read_object(r, in->vars, in->vars_len, &vars)) &&
           set_globals(r, vars.d) && jinja_run_template(r);
}

static int render(const struct lode_template *t, const struct input *in, int64_t now, char **text,
                  size_t *len, struct lode_error *err) {
    struct lode_error scratch;
    struct jinja_run r = {.err = err ? err : &scratch, .t = t, .now = now ? now : time(NULL)};
    *text = NULL;
    *len = 0;
    const locale_t before = uselocale(t->c_locale);
    const bool ok = run(&r, in);
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

int lode_template_render(const struct lode_template *t, const char *vars, size_t vars_len,
                         int64_t now, char **text, size_t *len, struct lode_error *err) {
    const struct input in = {.vars = vars, .vars_len = vars_len};
    return render(t, &in, now, text, len, err);
}

int lode_template_render_chat(const struct lode_template *t, const char *input, size_t input_len,
                              const char *more, size_t more_len, int64_t now, char **text,
                              size_t *len, struct lode_error *err) {
    const struct input in = {input, more, input_len, more_len, true};
    return render(t, &in, now, text, len, err);
}

void lode_chat_text_free(char *text) { lode_free(text); }
