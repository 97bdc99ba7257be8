/* args.c - see args.h.  args_help.c prints; this file parses. */
#include "args.h"

#include "out.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const char *const arg_kv_types[] = {"f32", "f16", "bf16", "q8_0", NULL};

/* ------------------------------------------------------------------------------------- names */

/* Walks "-c, --ctx-size, --ctx": the next name and its length, NULL at the end. */
static const char *next_name(const char *at, size_t *len) {
    at += strspn(at, ", ");
    *len = strcspn(at, ", ");
    return *len ? at : NULL;
}

#define EACH_NAME(name, len, flag)                                                                 \
    for (const char *name = next_name((flag)->names, &(len)); name;                                \
         name = next_name(name + (len), &(len)))

/* Equal, taking underscores for dashes. */
static bool same_name(const char *a, size_t na, const char *b, size_t nb) {
    if (na != nb)
        return false;
    for (size_t i = 0; i < na; i++)
        if (a[i] != b[i] && !(a[i] == '_' && b[i] == '-' && i > 0))
            return false;
    return true;
}

/* "--no-NAME" of a boolean, either way round. */
static bool is_negation(const char *word, size_t n, const char *name, size_t len) {
    return (len > 2 && n == len + 3 && !strncmp(word, "--no", 4) &&
            same_name(word + 4, n - 4, name + 1, len - 1)) ||
           (len > 5 && n + 3 == len && !strncmp(name, "--no-", 5) && !strncmp(word, "--", 2) &&
            same_name(word + 2, n - 2, name + 5, len - 5));
}

static const struct arg_flag *find_flag(const struct arg_spec *spec, const char *word, size_t n,
                                        bool *negated) {
    *negated = false;
    for (size_t i = 0; i < spec->n_flags; i++) {
        size_t len;
        EACH_NAME(name, len, &spec->flags[i])
            if (same_name(word, n, name, len))
                return &spec->flags[i];
    }
    for (size_t i = 0; i < spec->n_flags; i++) {
        size_t len;
        if (spec->flags[i].type == ARG_BOOL)
            EACH_NAME(name, len, &spec->flags[i])
                if (is_negation(word, n, name, len)) {
                    *negated = true;
                    return &spec->flags[i];
                }
    }
    return NULL;
}

const struct arg_flag *args_find(const struct arg_spec *spec, const char *name) {
    char word[64];
    bool negated;
    name += strspn(name, "-");
    snprintf(word, sizeof word, "--%s", name);
    const struct arg_flag *f = find_flag(spec, word, strlen(word), &negated);
    if (!f || negated) {
        snprintf(word, sizeof word, "-%s", name);
        f = find_flag(spec, word, strlen(word), &negated);
    }
    return negated ? NULL : f;
}

/* Edit distance, at most `limit` + 1, over words short enough for the row. */
static size_t distance(const char *a, const char *b, size_t limit) {
    size_t row[64], na = strlen(a), nb = strlen(b);
    if (nb >= 64 || na >= 64)
        return limit + 1;
    for (size_t j = 0; j <= nb; j++)
        row[j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            best = best < row[j] + 1 ? best : row[j] + 1;
            best = best < row[j - 1] + 1 ? best : row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[nb];
}

const char *args_nearest(const char *word, const char *const *names) {
    const char *best = NULL;
    size_t best_distance = strlen(word) / 3 + 2;
    for (; *names; names++) {
        size_t d = distance(word, *names, best_distance);
        /* a wrong first letter is rarely a slip of the finger */
        d += *word != **names;
        if (d < best_distance) {
            best_distance = d;
            best = *names;
        }
    }
    return best;
}

static const char *nearest_flag(const struct arg_spec *spec, const char *word, char out[64]) {
    static const char *const common[] = {"--help", "--help-debug", NULL};
    const char *found = args_nearest(word, common);
    size_t best = found ? distance(word, found, 64) : strlen(word) / 3 + 2;
    if (found)
        snprintf(out, 64, "%s", found);
    for (size_t i = 0; i < spec->n_flags; i++) {
        size_t len;
        EACH_NAME(name, len, &spec->flags[i]) {
            char copy[64];
            snprintf(copy, sizeof copy, "%.*s", (int)len, name);
            size_t d = distance(word, copy, best);
            if (len > 3 && d < best) {
                best = d;
                found = strcpy(out, copy);
            }
        }
    }
    return found;
}

/* "-c, --ctx-size, --ctx" as complaints name it: the first long name, else the first. */
static const char *shown_name(const struct arg_flag *f, char out[64]) {
    size_t len;
    out[0] = 0;
    EACH_NAME(name, len, f)
        if (!out[0] || (out[1] != '-' && name[1] == '-'))
            snprintf(out, 64, "%.*s", (int)len, name);
    return out;
}

/* -------------------------------------------------------------------------------------- values */

static int bad_value(struct lode_error *err, const char *where, const char *text, const char *wants,
                     const struct arg_flag *f) {
    if (f && (f->min != 0 || f->max != 0))
        return tool_fail(err, LODE_ERR_ARG, where, "'%.80s' is not %s from %.15g to %.15g", text,
                         wants, f->min, f->max);
    return tool_fail(err, LODE_ERR_ARG, where, "'%.80s' is not %s", text, wants);
}

static bool in_range(const struct arg_flag *f, double v) {
    return (f->min == 0 && f->max == 0) || (v >= f->min && v <= f->max);
}

static bool parse_int(const char *text, const char **end, int64_t *out) {
    char *stop;
    errno = 0;
    const long long v = strtoll(text, &stop, 10);
    if (stop == text || errno == ERANGE || strchr(" \t\n\v\f\r", *text))
        return false;
    const int shift = (*stop | 0x20) == 'k' ? 10 : (*stop | 0x20) == 'm' ? 20 : 0;
    if (shift && (v < 0 || v > INT64_MAX >> shift))
        return false;
    *end = stop + (shift > 0);
    *out = v * (1LL << shift);
    return true;
}

static bool parse_bool(const char *text, bool *out) {
    static const char *const yes[] = {"1", "on", "true", "enabled", "yes", NULL};
    static const char *const no[] = {"0", "off", "false", "disabled", "no", NULL};
    for (size_t i = 0; yes[i]; i++) {
        if (!strcasecmp(text, yes[i]) || !strcasecmp(text, no[i])) {
            *out = !strcasecmp(text, yes[i]);
            return true;
        }
    }
    return false;
}

static bool parse_share(const char *text, size_t len, struct arg_share *out) {
    char *end, copy[64];
    if (len >= sizeof copy)
        return false;
    snprintf(copy, sizeof copy, "%.*s", (int)len, text);
    const double v = strtod(copy, &end);
    if (end == copy || !(v >= 0) || strpbrk(copy, "xXnN \t"))
        return false;
    *out = (struct arg_share){.given = true};
    if (*end == '%') {
        out->share = v / 100;
        return !end[1] && v > 0 && v <= 100;
    }
    int shift = 0;
    if (*end) {
        const char *unit = strchr("kmgt", *end | 0x20);
        if (!unit)
            return false;
        shift = 10 * (int)(unit - "kmgt" + 1);
        end++;
        if (*end == 'i')
            end++;
        if ((*end | 0x20) == 'b')
            end++;
    }
    const double bytes = ldexp(v, shift);
    if (*end || bytes >= 0x1p63)
        return false;
    out->bytes = (uint64_t)bytes;
    return true;
}

static bool parse_size(const char *text, uint64_t *out) {
    struct arg_share s;
    if (!parse_share(text, strlen(text), &s) || s.share > 0)
        return false;
    *out = s.bytes;
    return true;
}

uint64_t arg_share_of(const struct arg_share *s, uint64_t whole) {
    const uint64_t part = (uint64_t)(s->share * (double)whole);
    return s->share <= 0 ? s->bytes : part || !whole ? part : 1; /* 0 means that none was named */
}

static int parse_shares(struct arg_shares *list, const char *text, const char *where,
                        struct lode_error *err) {
    for (const char *at = text;; at++) {
        const size_t len = strcspn(at, ",");
        if (list->n == ARG_MAX_LIST)
            return tool_fail(err, LODE_ERR_ARG, where, "more than %d values in '%.80s'",
                             ARG_MAX_LIST, text);
        if (!parse_share(at, len, &list->v[list->n]))
            return bad_value(err, where, text, "a list of sizes and shares like 10%,512M,24G", NULL);
        list->n++;
        at += len;
        if (!*at)
            return 0;
    }
}

/* "a", "a-b", "a-b+step", "a-b*mult", joined by commas. */
static int parse_ints(const struct arg_flag *f, struct arg_ints *list, const char *text,
                      const char *where, struct lode_error *err) {
    static const char wants[] = "a list like 1,8 or 1-9, 1-9+2, 1-64*2 of whole numbers";
    for (const char *at = text;; at++) {
        int64_t first, last, step = 1;
        char op = '+';
        if (!parse_int(at, &at, &first))
            return bad_value(err, where, text, wants, f);
        last = first;
        if (*at == '-') {
            if (!parse_int(at + 1, &at, &last))
                return bad_value(err, where, text, wants, f);
            if (*at == '+' || *at == '*') {
                op = *at;
                if (!parse_int(at + 1, &at, &step))
                    return bad_value(err, where, text, wants, f);
            }
        }
        if ((*at && *at != ',') || first > last || !in_range(f, (double)first) ||
            !in_range(f, (double)last))
            return bad_value(err, where, text, wants, f);
        if (op == '+' ? step < 1 : step < 2 || first < 1)
            return tool_fail(err, LODE_ERR_ARG, where,
                             "the range in '%.80s' would never end: it needs a step of at least 1, "
                             "or a factor of at least 2 from a start of at least 1",
                             text);
        for (int64_t v = first;;) {
            if (list->n == ARG_MAX_LIST)
                return tool_fail(err, LODE_ERR_ARG, where, "more than %d values in '%.80s'",
                                 ARG_MAX_LIST, text);
            list->v[list->n++] = v;
            if (op == '+' ? step > last - v : v > last / step)
                break;
            v = op == '+' ? v + step : v * step;
        }
        if (!*at)
            return 0;
    }
}

const char *const *args_choices(const struct arg_flag *f) {
    return f->choices_of ? f->choices_of() : f->choices;
}

/* "md, csv or json" */
static const char *join_choices(const char *const *choices, char *out, size_t cap) {
    size_t n = 0;
    out[0] = 0;
    for (size_t i = 0; choices[i] && n < cap; i++) {
        const char *joint = choices[i + 1] ? ", " : " or ";
        n += (size_t)snprintf(out + n, cap - n, "%s%s", i ? joint : "", choices[i]);
    }
    return out;
}

static int find_choice(const struct arg_flag *f, const char *word, size_t len, const char **out,
                       const char *where, struct lode_error *err) {
    char all[256];
    const char *const *choices = args_choices(f);
    for (size_t i = 0; choices[i]; i++)
        if (strlen(choices[i]) == len && !strncasecmp(choices[i], word, len)) {
            *out = choices[i];
            return 0;
        }
    return tool_fail(err, LODE_ERR_ARG, where, "'%.*s' is not one of %s",
                     (int)(len < 80 ? len : 80), word, join_choices(choices, all, sizeof all));
}

static int append_str(struct arg_strs *list, const char *s, const char *where,
                      struct lode_error *err) {
    if (list->n == ARG_MAX_LIST)
        return tool_fail(err, LODE_ERR_ARG, where, "given more than %d times", ARG_MAX_LIST);
    list->v[list->n++] = s;
    return 0;
}

/* Parses text into the flag's field.  where: how the user named it ("--top-k", "LODE_TOP_K"). */
static int store(void *opts, const struct arg_flag *f, const char *text, const char *where,
                 struct lode_error *err) {
    void *field = (char *)opts + f->offset;
    const char *end;
    switch (f->type) {
    case ARG_BOOL:
        if (!parse_bool(text, field))
            return bad_value(err, where, text, "on or off (1, true, enabled; 0, false, disabled)",
                             NULL);
        return 0;
    case ARG_INT: {
        int64_t v;
        if (!parse_int(text, &end, &v) || *end || !in_range(f, (double)v))
            return bad_value(err, where, text, "a whole number", f);
        *(int64_t *)field = v;
        return 0;
    }
    case ARG_FLOAT: {
        char *stop;
        const double v = strtod(text, &stop);
        if (stop == text || *stop || !isfinite(v) || !in_range(f, v))
            return bad_value(err, where, text, "a number", f);
        *(double *)field = v;
        return 0;
    }
    case ARG_SIZE:
        if (!parse_size(text, field))
            return bad_value(err, where, text, "a size in bytes, or like 512M or 24G", NULL);
        return 0;
    case ARG_SHARE:
        if (!parse_share(text, strlen(text), field))
            return bad_value(err, where, text, "a size like 512M or 24G, or a share like 75%", NULL);
        return 0;
    case ARG_SHARES:
        return parse_shares(field, text, where, err);
    case ARG_STR:
        *(const char **)field = text;
        return 0;
    case ARG_CHOICE:
        return find_choice(f, text, strlen(text), field, where, err);
    case ARG_STRS:
        return append_str(field, text, where, err);
    case ARG_INTS:
        return parse_ints(f, field, text, where, err);
    case ARG_CHOICES:
        for (const char *at = text;; at++) {
            const char *choice;
            const size_t len = strcspn(at, ",");
            int rc = find_choice(f, at, len, &choice, where, err);
            rc = rc < 0 ? rc : append_str(field, choice, where, err);
            at += len;
            if (rc < 0 || !*at)
                return rc;
        }
    case ARG_FOREIGN:
    case ARG_FOREIGN_BOOL:
        return 0;
    }
    return 0;
}

/* Lists grow with each use of a flag; what a weaker origin gave is dropped first. */
static void clear_list(void *opts, const struct arg_flag *f) {
    if (f->type == ARG_STRS || f->type == ARG_CHOICES)
        ((struct arg_strs *)(void *)((char *)opts + f->offset))->n = 0;
    if (f->type == ARG_INTS)
        ((struct arg_ints *)(void *)((char *)opts + f->offset))->n = 0;
    if (f->type == ARG_SHARES)
        ((struct arg_shares *)(void *)((char *)opts + f->offset))->n = 0;
}

static void set_zero(void *opts, const struct arg_flag *f) {
    static const size_t sizes[] = {
        [ARG_BOOL] = sizeof(bool),
        [ARG_INT] = sizeof(int64_t),
        [ARG_FLOAT] = sizeof(double),
        [ARG_SIZE] = sizeof(uint64_t),
        [ARG_SHARE] = sizeof(struct arg_share),
        [ARG_SHARES] = sizeof(struct arg_shares),
        [ARG_STR] = sizeof(char *),
        [ARG_CHOICE] = sizeof(char *),
        [ARG_STRS] = sizeof(struct arg_strs),
        [ARG_INTS] = sizeof(struct arg_ints),
        [ARG_CHOICES] = sizeof(struct arg_strs),
        [ARG_FOREIGN] = 0,
        [ARG_FOREIGN_BOOL] = 0,
    };
    if (sizes[f->type])
        memset((char *)opts + f->offset, 0, sizes[f->type]);
}

/* ------------------------------------------------------------------------------------- parsing */

/* LODE_CTX_SIZE from "--ctx-size"; only long names have one. */
static bool env_name(const char *name, size_t len, char out[64]) {
    if (len < 3 || len > 50 || strncmp(name, "--", 2))
        return false;
    int n = snprintf(out, 64, "LODE_");
    for (size_t i = 2; i < len; i++) {
        const char c = name[i];
        out[n++] = c == '-' ? '_' : c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
    }
    out[n] = 0;
    return true;
}

static int from_environment(struct args *a, const char *(*env)(const char *),
                            struct lode_error *err) {
    for (size_t i = 0; i < a->spec->n_flags; i++) {
        const struct arg_flag *f = &a->spec->flags[i];
        size_t len;
        if (f->type == ARG_FOREIGN || f->type == ARG_FOREIGN_BOOL)
            continue;
        EACH_NAME(name, len, f) {
            char var[64];
            const char *text = env_name(name, len, var) ? env(var) : NULL;
            if (!text || (!*text && f->type != ARG_STR))
                continue;
            clear_list(a->opts, f);
            const int rc = store(a->opts, f, text, var, err);
            if (rc < 0)
                return rc;
            a->origin[i] = ARG_FROM_ENV;
            break;
        }
    }
    return 0;
}

static int take_value(struct args *a, const struct arg_flag *f, const char *text, const char *where,
                      struct lode_error *err) {
    enum arg_origin *origin = &a->origin[f - a->spec->flags];
    if (*origin != ARG_FROM_FLAG)
        clear_list(a->opts, f);
    const int rc = store(a->opts, f, text, where, err);
    if (rc == 0)
        *origin = ARG_FROM_FLAG;
    return rc;
}

/* The k-th argument without a flag goes to the k-th positional flag that no flag has set; a list
 * takes all that come. */
static int take_positional(struct args *a, const char *word, struct lode_error *err) {
    const struct arg_flag *best = NULL;
    for (size_t i = 0; i < a->spec->n_flags; i++) {
        const struct arg_flag *f = &a->spec->flags[i];
        const bool open = a->origin[i] != ARG_FROM_FLAG || f->type == ARG_STRS;
        if (f->pos && open && (!best || f->pos < best->pos))
            best = f;
    }
    if (!best)
        return tool_fail(err, LODE_ERR_ARG, *word ? word : "''", "unexpected argument");
    return take_value(a, best, word, word, err);
}

static int take_flag(struct args *a, char *const **at, char *const *end, struct lode_error *err) {
    const char *word = **at;
    const size_t n = strcspn(word, "=");
    const char *value = word[n] ? word + n + 1 : NULL;
    char where[64], other[64];
    bool negated;
    const struct arg_flag *f = find_flag(a->spec, word, n, &negated);
    snprintf(where, sizeof where, "%.*s", (int)n, word);
    if (!f) {
        const char *near = nearest_flag(a->spec, where, other);
        if (near)
            return tool_fail(err, LODE_ERR_ARG, where, "unknown flag; did you mean %s?", near);
        return tool_fail(err, LODE_ERR_ARG, where, "unknown flag");
    }
    if (f->type == ARG_BOOL) {
        int rc = take_value(a, f, value ? value : "on", where, err);
        bool *field = (bool *)((char *)a->opts + f->offset);
        if (rc == 0 && negated)
            *field = !*field;
        return rc;
    }
    if (f->type == ARG_FOREIGN_BOOL)
        return take_value(a, f, "", where, err);
    if (!value) {
        if (*at + 1 == end)
            return tool_fail(err, LODE_ERR_ARG, where, "needs a value (%s)",
                             f->meta ? f->meta : "VALUE");
        value = *++*at;
        if (value[0] == '-' && find_flag(a->spec, value, strcspn(value, "="), &negated))
            return tool_fail(
                err, LODE_ERR_ARG, where,
                "needs a value (%s), but %.60s is a flag; write %s=%.60s if you mean it",
                f->meta ? f->meta : "VALUE", value, where, value);
    }
    return take_value(a, f, value, where, err);
}

enum args_result args_parse(struct args *a, const struct arg_spec *spec, void *opts, int argc,
                            char *const *argv, const char *(*env)(const char *name),
                            struct lode_error *err) {
    assert(spec->n_flags <= ARG_MAX_FLAGS);
    memset(a, 0, sizeof *a);
    a->spec = spec;
    a->opts = opts;
    for (size_t i = 0; i < spec->n_flags; i++) {
        set_zero(opts, &spec->flags[i]);
        if (spec->flags[i].def && store(opts, &spec->flags[i], spec->flags[i].def, "default", err))
            return ARGS_BAD;
    }
    if (env && from_environment(a, env, err) < 0)
        return ARGS_BAD;

    /* Words without a flag wait until all flags are known: `run PROMPT -m MODEL`. */
    char *const *end = argv + argc;
    bool flags_over = false;
    for (char *const *at = argv + 1; at < end; at++) {
        if (flags_over || **at != '-' || !strcmp(*at, "-"))
            continue;
        if (!strcmp(*at, "-h") || !strcmp(*at, "--help") || !strcmp(*at, "--usage"))
            return ARGS_HELP;
        if (!strcmp(*at, "--help-debug"))
            return ARGS_HELP_DEBUG;
        if (!strcmp(*at, "--"))
            flags_over = true;
        else if (take_flag(a, &at, end, err) < 0)
            return ARGS_BAD;
    }
    flags_over = false;
    for (char *const *at = argv + 1; at < end; at++) {
        if (flags_over || **at != '-' || !strcmp(*at, "-")) {
            if (take_positional(a, *at, err) < 0)
                return ARGS_BAD;
        } else if (!strcmp(*at, "--")) {
            flags_over = true;
        } else if (!strchr(*at, '=')) { /* skip its value, as above */
            bool negated;
            const struct arg_flag *f = find_flag(spec, *at, strlen(*at), &negated);
            at += f->type != ARG_BOOL && f->type != ARG_FOREIGN_BOOL;
        }
    }
    return ARGS_OK;
}

int args_set(struct args *a, const struct arg_flag *flag, const char *text,
             struct lode_error *err) {
    char where[64];
    return take_value(a, flag, text, shown_name(flag, where), err);
}

void args_model_defaults(struct args *a, bool (*get)(const void *user, const char *key, double *v),
                         const void *user) {
    for (size_t i = 0; i < a->spec->n_flags; i++) {
        const struct arg_flag *f = &a->spec->flags[i];
        void *field = (char *)a->opts + f->offset;
        double v;
        if (!f->key || a->origin[i] > ARG_FROM_MODEL || !get(user, f->key, &v) || !isfinite(v) ||
            !in_range(f, v))
            continue;
        if (f->type == ARG_FLOAT)
            *(double *)field = v;
        else if (f->type == ARG_INT)
            *(int64_t *)field = (int64_t)v;
        else
            continue;
        a->origin[i] = ARG_FROM_MODEL;
    }
}

enum arg_origin args_origin(const struct args *a, size_t offset) {
    for (size_t i = 0; i < a->spec->n_flags; i++)
        if (a->spec->flags[i].offset == offset && a->spec->flags[i].type < ARG_FOREIGN)
            return a->origin[i];
    return ARG_FROM_DEFAULT;
}

void args_show(const struct args *a, const struct arg_flag *flag, char *out, size_t cap) {
    const void *field = (const char *)a->opts + flag->offset;
    switch (flag->type) {
    case ARG_BOOL:
        snprintf(out, cap, "%s", *(const bool *)field ? "on" : "off");
        break;
    case ARG_INT:
        snprintf(out, cap, "%lld", (long long)*(const int64_t *)field);
        break;
    case ARG_FLOAT:
        snprintf(out, cap, "%.7g", *(const double *)field);
        break;
    case ARG_SIZE:
        snprintf(out, cap, "%llu", (unsigned long long)*(const uint64_t *)field);
        break;
    case ARG_SHARE: {
        const struct arg_share *s = field;
        if (s->share > 0)
            snprintf(out, cap, "%.7g%%", 100 * s->share);
        else
            snprintf(out, cap, "%llu", (unsigned long long)s->bytes);
        break;
    }
    case ARG_STR:
    case ARG_CHOICE: {
        const char *s = *(const char *const *)field;
        snprintf(out, cap, "%s", s ? s : "");
        break;
    }
    default:
        snprintf(out, cap, "(list)");
    }
}
