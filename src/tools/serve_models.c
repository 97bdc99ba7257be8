/* serve_models.c - see serve_models.h. */
#include "serve_models.h"

#include "chat_source.h"
#include "ini.h"
#include "input.h"
#include "out.h"
#include "profile.h"

#include "lode/plan.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_ALIASES = 16, MAX_MODELS = 256, MAX_SETTINGS = 16384 };

const char *const serve_poolings[] = {"mean", "cls", "last", "rank", NULL};

struct setting { /* a line of the file; all point into its text */
    const char *section, *key, *value; /* key NULL: the section begins */
    int line;
};

struct one {
    struct args args;       /* of opts */
    struct model_opts *opts; /* owned: a copy of the verb's whole options */
    char *names;            /* owned: what the aliases lie in */
    const char *aliases[MAX_ALIASES];
    char *template;         /* owned; NULL: the model's */
    struct profile *profile; /* owned, while it is loaded */
};

struct serve_models {
    const char *config;
    char *text;               /* owned: the file */
    struct setting *settings; /* (n_settings), owned */
    size_t n_settings;
    struct one *each;          /* (n), owned */
    struct serve_model *specs; /* (n), owned */
    size_t n;
    bool listed; /* by the file */
};

static int no_memory(struct lode_error *err) {
    return tool_fail(err, LODE_ERR_NOMEM, "models", "no memory for their list");
}

/* ---- the file ---- */

static int put_setting(void *user, const char *section, const char *key, const char *value, int line,
                       struct lode_error *err) {
    struct serve_models *m = user;
    if (m->n_settings == MAX_SETTINGS)
        return tool_fail(err, LODE_ERR_LIMIT, m->config, "more than %d settings", MAX_SETTINGS);
    if (!(m->n_settings & (m->n_settings - 1))) {
        struct setting *more = realloc(m->settings, (2 * m->n_settings + 1) * sizeof *more);
        if (!more)
            return no_memory(err);
        m->settings = more;
    }
    m->settings[m->n_settings++] = (struct setting){section, key, value, line};
    return 0;
}

static int fail_at(const struct serve_models *m, const struct setting *s, struct lode_error *err,
                   const char *text, const char *what) {
    char where[256];
    snprintf(where, sizeof where, "%.230s:%d", m->config, s->line);
    return tool_fail(err, LODE_ERR_FORMAT, where, text, what);
}

static bool is_general(const struct setting *s) { return !*s->section || !strcmp(s->section, "*"); }

static bool is_models(const struct arg_flag *f) { return f->offset < sizeof(struct model_opts); }

/* given: where the command line's values came from, which go before the file's. */
static int apply(const struct serve_models *m, const struct setting *s, struct args *to,
                 const struct args *given, struct lode_error *err) {
    const struct arg_flag *f = args_find(to->spec, s->key);
    struct lode_error why;
    if (!*s->section && !strcmp(s->key, "version"))
        return strcmp(s->value, "1") ? fail_at(m, s, err, "version %s; 1 is known", s->value) : 0;
    if (!f || !strcmp(s->key, "config"))
        return fail_at(m, s, err, "there is no setting \"%.60s\" (lode serve --help lists them)", s->key);
    if (f->type == ARG_FOREIGN || f->type == ARG_FOREIGN_BOOL)
        return 0;
    if (*s->section && !is_models(f))
        return fail_at(m, s, err, "\"%.60s\" is a setting of the server: above the first section", s->key);
    if (is_general(s) && (f->offset == offsetof(struct model_opts, load.model) ||
                          f->offset == offsetof(struct model_opts, alias)))
        return fail_at(m, s, err, "\"%.60s\" belongs into a section of its own, [NAME]", s->key);
    if (args_origin(given, f->offset) >= ARG_FROM_ENV)
        return 0;
    return args_set(to, f, s->value, &why) < 0 ? fail_at(m, s, err, "%s", why.text) : 0;
}

static int read_config(struct serve_models *m, struct args *a, struct lode_error *err) {
    const struct args given = *a;
    size_t size;
    int rc = input_read(m->config, 1 << 20, &m->text, &size, err);
    if (rc == 0 && strlen(m->text) != size)
        rc = tool_fail(err, LODE_ERR_FORMAT, m->config, "holds a NUL byte: it is not text");
    if (rc == 0)
        rc = ini_parse(m->text, m->config, put_setting, m, err);
    for (size_t i = 0; rc == 0 && i < m->n_settings; i++)
        if (m->settings[i].key && is_general(&m->settings[i]))
            rc = apply(m, &m->settings[i], a, &given, err);
    return rc;
}

/* ---- names and sizes ---- */

/* "a, b": the first is the name where none is given. */
static int set_names(struct one *o, struct serve_model *spec, const char *name, struct lode_error *err) {
    const char *path = o->opts->load.model, *slash = strrchr(path, '/');
    const char *list = o->opts->alias;
    spec->name = name;
    spec->path = path;
    spec->aliases = o->aliases;
    if (!list)
        list = "";
    o->names = strdup(list);
    if (!o->names)
        return no_memory(err);
    for (char *at = o->names, *next; at && *at; at = next) {
        next = strchr(at, ',');
        if (next)
            *next++ = 0;
        at += strspn(at, " \t");
        at[strcspn(at, " \t")] = 0;
        if (!*at)
            continue;
        if (!spec->name)
            spec->name = at;
        else if (spec->n_aliases == MAX_ALIASES)
            return tool_fail(err, LODE_ERR_LIMIT, "alias", "at most %d for a model", MAX_ALIASES);
        else
            o->aliases[spec->n_aliases++] = at;
    }
    if (!spec->name)
        spec->name = slash && slash[1] ? slash + 1 : path;
    return 0;
}

/* What the weights take as they lie: a file, or the files of a directory; 0 where that can't be seen. */
static uint64_t weights_size(const char *path) {
    struct stat st;
    uint64_t sum = 0;
    if (stat(path, &st))
        return 0;
    if (S_ISREG(st.st_mode))
        return (uint64_t)st.st_size;
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        const char *dot = strrchr(e->d_name, '.');
        if (dot && (!strcmp(dot, ".safetensors") || !strcmp(dot, ".gguf") || !strcmp(dot, ".bin")) &&
            !fstatat(dirfd(d), e->d_name, &st, 0))
            sum += (uint64_t)st.st_size;
    }
    if (d)
        closedir(d);
    return sum;
}

/* Two models must not answer to one name. */
static int check_names(const struct serve_models *m, struct lode_error *err) {
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k <= m->specs[i].n_aliases; k++) {
            const char *name = k ? m->specs[i].aliases[k - 1] : m->specs[i].name;
            for (size_t j = 0; j < i; j++)
                for (size_t l = 0; l <= m->specs[j].n_aliases; l++)
                    if (!strcmp(name, l ? m->specs[j].aliases[l - 1] : m->specs[j].name))
                        return tool_fail(err, LODE_ERR_FORMAT, m->config, "two models are called \"%.60s\"", name);
        }
    return 0;
}

/* What a model writes about itself: of two in one file neither would be whole. */
static int check_files(const struct serve_models *m, struct lode_error *err) {
    for (size_t i = 0; i < m->n; i++)
        for (size_t j = 0; j < i; j++) {
            const struct load_opts *a = &m->each[i].opts->load, *b = &m->each[j].opts->load;
            const struct {
                const char *key, *a, *b;
            } files[] = {{"profile-json", a->profile_json, b->profile_json},
                         {"profile-tokens", a->profile_tokens, b->profile_tokens},
                         {"hot-experts", a->hot, b->hot}};
            for (size_t k = 0; k < sizeof files / sizeof *files; k++)
                if (files[k].a && files[k].b && !strcmp(files[k].a, files[k].b))
                    return tool_fail(err, LODE_ERR_ARG, m->config,
                                     "[%.60s] and [%.60s] would both write %s: each needs its own line %s = FILE",
                                     m->specs[j].name, m->specs[i].name, files[k].a, files[k].key);
        }
    return 0;
}

/* ---- loading ---- */

/* llama.cpp's defaults, and over them those of the model's file. */
static void choose_sampling(struct lode_sampler_opts *o, const struct lode_model *m) {
    double v;
    lode_sampler_defaults(o);
    const struct {
        const char *key;
        float *out;
    } reals[] = {{"temp", &o->temp}, {"top_p", &o->top_p}, {"min_p", &o->min_p},
                 {"penalty_repeat", &o->repeat_penalty}};
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (lode_model_sampling_default(m, reals[i].key, &v))
            *reals[i].out = (float)v;
    if (lode_model_sampling_default(m, "top_k", &v))
        o->top_k = (int32_t)v;
    if (lode_model_sampling_default(m, "penalty_last_n", &v))
        o->repeat_last_n = (int32_t)v;
}

/* What it takes as it is now: weights, the pages of all slots, states and buffers. */
static uint64_t loaded_size(const struct serve_loaded *l, const struct lode_session_opts *so) {
    struct lode_memory_plan plan;
    struct lode_scheduler_stats st;
    struct lode_error err;
    uint64_t vectors;
    if (!l->scheduler && lode_embed_plan(l->model, &l->embed, &vectors, &err) == 0)
        return lode_model_info(l->model)->size + vectors;
    if (lode_plan_memory(l->model, so, &plan, &err) < 0 || !plan.ctx)
        return lode_model_info(l->model)->size;
    lode_scheduler_stats(l->scheduler, &st);
    return plan.weights + plan.repacked + plan.work +
           plan.state * lode_scheduler_slots(l->scheduler) +
           (uint64_t)((double)plan.kv / plan.ctx * (double)st.kv_size);
}

static int open_one(void *user, size_t i, struct serve_loaded *out, struct lode_error *err) {
    struct serve_models *m = user;
    struct one *one = &m->each[i];
    const struct model_opts *o = one->opts;
    struct load_opts load = o->load;
    load.parallel = (uint32_t)o->parallel;
    load.waiting = (uint32_t)o->queue;
    int rc = load_model(&out->model, &load, err);
    if (rc < 0)
        return rc;
    struct lode_session_opts so = load_session_opts(&load);
    rc = profile_begin(&one->profile, out->model, &o->load, err);
    profile_watch(one->profile, &so);
    if (rc == 0 && !lode_model_tokenizer(out->model))
        rc = tool_fail(err, LODE_ERR_UNSUPPORTED, o->load.model, "has no vocabulary: it cannot answer texts");
    if (rc == 0 && o->template && !one->template)
        rc = chat_template_source(o->template, &one->template, err);
    if (rc == 0 && !lode_model_info(out->model)->vectors_only)
        rc = lode_scheduler_create(&out->scheduler, out->model,
                                   &(struct lode_scheduler_opts){
                                       .session = so,
                                       .slots = (uint32_t)o->parallel,
                                       .queue = (uint32_t)o->queue,
                                       .chunk = (uint32_t)o->chunk,
                                       .kv_tokens = (uint64_t)o->kv_tokens,
                                       .cache_bytes = o->cache_ram > 0 ? (uint64_t)o->cache_ram << 20 : 0,
                                       .no_cache = o->no_cache || o->cache_ram == 0,
                                       .cache_dir = o->cache_dir,
                                       .cache_dir_bytes = o->cache_dir_size,
                                   },
                                   err);
    if (rc < 0) {
        profile_finish(one->profile, rc, NULL);
        lode_model_free(out->model);
        *out = (struct serve_loaded){0};
        return rc;
    }
    choose_sampling(&out->sampling, out->model);
    out->template = one->template ? one->template : lode_model_info(out->model)->chat_template;
    out->embed = (struct lode_embed_opts){.pooling = o->pooling,
                                          .ctx = out->scheduler ? lode_scheduler_ctx(out->scheduler) : so.ctx,
                                          .batch = out->scheduler ? so.batch : 0, /* an encoder's: a text */
                                          .threads = so.threads};
    out->size = loaded_size(out, &so);
    return 0;
}

static void close_one(void *user, size_t i, struct serve_loaded *l) {
    const struct serve_models *m = user;
    struct lode_error err;
    if (profile_finish(m->each[i].profile, 0, &err) < 0)
        tool_report(&err);
    lode_model_free(l->model);
}

/* ---- the list ---- */

static struct one *add_one(struct serve_models *m, const struct args *a, size_t size, struct lode_error *err) {
    if (m->n == MAX_MODELS) {
        tool_fail(err, LODE_ERR_LIMIT, m->config, "more than %d models", MAX_MODELS);
        return NULL;
    }
    struct one *each = realloc(m->each, (m->n + 1) * sizeof *each);
    if (each)
        m->each = each;
    struct serve_model *specs = each ? realloc(m->specs, (m->n + 1) * sizeof *specs) : NULL;
    if (specs)
        m->specs = specs;
    struct model_opts *copy = specs ? malloc(size) : NULL;
    if (!copy) {
        no_memory(err);
        return NULL;
    }
    memcpy(copy, a->opts, size);
    m->each[m->n] = (struct one){.args = *a, .opts = copy};
    m->each[m->n].args.opts = copy;
    m->specs[m->n] = (struct serve_model){0};
    return &m->each[m->n++];
}

static int add_section(struct serve_models *m, size_t first, const struct args *base,
                       const struct args *given, size_t size, struct lode_error *err) {
    const struct setting *s = &m->settings[first];
    for (size_t i = 0; i < first; i++)
        if (!m->settings[i].key && !strcmp(m->settings[i].section, s->section))
            return fail_at(m, s, err, "the section [%.60s] is there twice", s->section);
    struct one *one = add_one(m, base, size, err);
    if (!one)
        return LODE_ERR_NOMEM;
    one->opts->load.model = NULL;
    for (size_t i = first + 1; i < m->n_settings && m->settings[i].key; i++) {
        const int rc = apply(m, &m->settings[i], &one->args, given, err);
        if (rc < 0)
            return rc;
    }
    return one->opts->load.model ? 0 : fail_at(m, s, err, "[%.60s] needs a line: model = FILE", s->section);
}

static int add_models(struct serve_models *m, struct args *a, const struct args *given, size_t size,
                      struct lode_error *err) {
    const struct model_opts *o = a->opts;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < m->n_settings; i++)
        m->listed = m->listed || (!m->settings[i].key && !is_general(&m->settings[i]));
    if (m->listed && o->load.model)
        return tool_fail(err, LODE_ERR_ARG, o->load.model, "%s lists the models: one or the other", m->config);
    if (!m->listed && !o->load.model)
        return tool_fail(err, LODE_ERR_ARG, "models", "which one? name a file, or sections in --config");
    for (size_t i = 0; rc == 0 && m->listed && i < m->n_settings; i++)
        if (!m->settings[i].key && !is_general(&m->settings[i]))
            rc = add_section(m, i, a, given, size, err);
    if (rc == 0 && !m->listed && !add_one(m, a, size, err))
        rc = LODE_ERR_NOMEM;
    for (size_t i = 0, at = 0; rc == 0 && i < m->n; i++) { /* what points into `each` comes last: it has moved */
        const char *name = NULL;
        while (m->listed && (m->settings[at].key || is_general(&m->settings[at])))
            at++;
        if (m->listed)
            name = m->settings[at++].section;
        rc = set_names(&m->each[i], &m->specs[i], name, err);
        m->specs[i].size = weights_size(m->each[i].opts->load.model);
        m->specs[i].at_start = !m->listed || m->each[i].opts->at_start;
    }
    rc = rc < 0 ? rc : check_names(m, err);
    return rc < 0 ? rc : check_files(m, err);
}

int serve_models_open(struct serve_models **out, struct args *a, size_t size, const char *config,
                      struct lode_error *err) {
    struct serve_models *m = calloc(1, sizeof *m);
    const struct args given = *a;
    *out = NULL;
    if (!m)
        return no_memory(err);
    m->config = config;
    int rc = config ? read_config(m, a, err) : 0;
    if (rc == 0)
        rc = add_models(m, a, &given, size, err);
    if (rc < 0)
        serve_models_close(m);
    else
        *out = m;
    return rc;
}

void serve_models_close(struct serve_models *m) {
    if (!m)
        return;
    for (size_t i = 0; i < m->n; i++) {
        free(m->each[i].opts);
        free(m->each[i].names);
        free(m->each[i].template);
    }
    free(m->each);
    free(m->specs);
    free(m->settings);
    free(m->text);
    free(m);
}

void serve_models_fill(struct serve_models *m, struct serve_opts *o) {
    o->models = m->specs;
    o->n_models = m->n;
    o->strict = m->listed;
    o->open = open_one;
    o->close = close_one;
    o->models_user = m;
    for (size_t i = 0; i < m->n; i++)
        o->most_active += (uint32_t)(m->each[i].opts->parallel + m->each[i].opts->queue) + 1;
}
