/* args_help.c - what a table of flags looks like to a person. */
#include "args.h"

#include "out.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMN = 31, NARROW = 60, WIDE = 100 };

static size_t width_of(FILE *f) {
    const size_t n = out_columns(f);
    return n < NARROW ? NARROW : n < WIDE ? n : WIDE;
}

/* Writes text from column `indent` on, breaking lines at spaces. */
static void put_wrapped(FILE *f, const char *text, size_t at, size_t indent) {
    const size_t width = width_of(f);
    while (*text) {
        size_t room = width - at, len = strlen(text);
        if (len > room) {
            for (len = room; len > 0 && text[len] != ' '; len--)
                ;
            len = len ? len : room;
        }
        fprintf(f, "%.*s", (int)len, text);
        text += len;
        text += *text == ' ';
        if (*text)
            fprintf(f, "\n%*s", (int)indent, "");
        at = indent;
    }
    fputc('\n', f);
}

/* "-c, --ctx-size N": the first two names. */
static size_t put_names(FILE *f, const struct arg_flag *flag) {
    const char *end = strchr(flag->names, ',');
    if (end)
        end = strchr(end + 1, ',');
    const size_t n = end ? (size_t)(end - flag->names) : strlen(flag->names);
    /* long names line up whether or not a short one stands before them */
    const char *pad = flag->names[1] == '-' ? "    " : "";
    int at = fprintf(f, "  %s%.*s", pad, (int)n, flag->names);
    if (flag->type != ARG_BOOL && flag->type != ARG_FOREIGN_BOOL)
        at += fprintf(f, " %s", flag->meta ? flag->meta : "VALUE");
    return (size_t)at;
}

static void put_flag(FILE *f, const struct arg_flag *flag) {
    char text[1024], choices[256] = "";
    const char *def = flag->shown ? flag->shown : flag->def;
    if (!def && flag->type == ARG_BOOL)
        def = "off";
    const char *const *list = args_choices(flag);
    if (list) {
        size_t n = 0;
        for (size_t i = 0; list[i] && n < sizeof choices; i++)
            n += (size_t)snprintf(choices + n, sizeof choices - n, "%s%s", i ? "|" : ": ",
                                  list[i]);
    }
    const bool show_default = def && *def && (flag->type != ARG_BOOL || flag->debug || flag->def);
    snprintf(text, sizeof text, "%s%s%s%s%s", flag->help ? flag->help : "", choices,
             show_default ? " (default: " : "", show_default ? def : "", show_default ? ")" : "");
    size_t at = put_names(f, flag);
    if (at + 1 > COLUMN) {
        fputc('\n', f);
        at = 0;
    }
    fprintf(f, "%*s", (int)(COLUMN - at), "");
    put_wrapped(f, text, COLUMN, COLUMN);
}

static void put_usage(FILE *f, const struct arg_spec *spec) {
    const char *lead = "Usage:";
    for (const char *at = spec->usage; *at;) {
        const size_t n = strcspn(at, "\n");
        fprintf(f, "%6s lode %s %.*s\n", lead, spec->verb, (int)n, at);
        at += n + (at[n] == '\n');
        lead = "";
    }
}

static void put_indented(FILE *f, const char *lines) {
    while (*lines) {
        const size_t n = strcspn(lines, "\n");
        fprintf(f, "  %.*s\n", (int)n, lines);
        lines += n + (lines[n] == '\n');
    }
}

static void put_flags(FILE *f, const struct arg_spec *spec, bool foreign) {
    const char *group = NULL;
    bool any = foreign; /* which have their heading already */
    for (size_t i = 0; i < spec->n_flags; i++) {
        const struct arg_flag *flag = &spec->flags[i];
        const bool is_foreign = flag->type == ARG_FOREIGN || flag->type == ARG_FOREIGN_BOOL;
        if (flag->debug || is_foreign != foreign)
            continue;
        if (!any && !flag->group)
            fputc('\n', f);
        any = true;
        if (flag->group && (!group || strcmp(group, flag->group)))
            fprintf(f, "\n%s%s%s\n", out_bold(f), group = flag->group, out_plain(f));
        put_flag(f, flag);
    }
}

void args_help(FILE *f, const struct arg_spec *spec) {
    bool debug = false, foreign = false;
    for (size_t i = 0; i < spec->n_flags; i++) {
        debug |= spec->flags[i].debug;
        foreign |= spec->flags[i].type >= ARG_FOREIGN;
    }
    fprintf(f, "%slode %s%s - %s\n\n", out_bold(f), spec->verb, out_plain(f), spec->brief);
    put_usage(f, spec);
    fprintf(f, "\n%s\n", spec->about);
    put_flags(f, spec, false);
    if (foreign) {
        fprintf(f, "\n%sAccepted from other programs, with a note%s\n", out_bold(f), out_plain(f));
        put_flags(f, spec, true);
    }
    if (spec->examples) {
        fprintf(f, "\n%sExamples%s\n", out_bold(f), out_plain(f));
        put_indented(f, spec->examples);
    }
    fprintf(f, "\nEvery flag can come from the environment: --some-flag is LODE_SOME_FLAG.\n");
    if (debug)
        fprintf(f, "Diagnostic switches: lode %s --help-debug\n", spec->verb);
}

void args_help_debug(FILE *f, const struct arg_spec *spec) {
    bool any = false;
    for (size_t i = 0; i < spec->n_flags; i++) {
        if (!spec->flags[i].debug)
            continue;
        if (!any)
            fprintf(f, "%slode %s%s, diagnostic switches\n", out_bold(f), spec->verb, out_plain(f));
        any = true;
        put_flag(f, &spec->flags[i]);
    }
    if (!any)
        fprintf(f, "%slode %s%s has no diagnostic switches\n", out_bold(f), spec->verb,
                out_plain(f));
}

int args_usage_error(const struct arg_spec *spec, const char *message, ...) {
    va_list ap;
    va_start(ap, message);
    fprintf(stderr, "lode %s: ", spec->verb);
    vfprintf(stderr, message, ap);
    va_end(ap);
    fprintf(stderr, "\nTry: lode %s --help\n", spec->verb);
    return 2;
}

static const char *environment(const char *name) {
    return getenv(name);
}

int args_main(struct args *a, const struct arg_spec *spec, void *opts, int argc, char **argv) {
    struct lode_error err;
    switch (args_parse(a, spec, opts, argc, argv, environment, &err)) {
    case ARGS_HELP:
        args_help(stdout, spec);
        return 0;
    case ARGS_HELP_DEBUG:
        args_help_debug(stdout, spec);
        return 0;
    case ARGS_BAD:
        return args_usage_error(spec, "%s: %s", err.where, err.text);
    case ARGS_OK:
        break;
    }
    for (size_t i = 0; i < spec->n_flags; i++)
        if (spec->flags[i].type >= ARG_FOREIGN && a->origin[i] == ARG_FROM_FLAG)
            fprintf(stderr, "lode %s: note: %.*s is ignored: %s\n", spec->verb,
                    (int)strcspn(spec->flags[i].names, ","), spec->flags[i].names,
                    spec->flags[i].help);
    return -1;
}
