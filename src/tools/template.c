/* template.c - `lode template`: the prompt that a chat template makes of messages. */
#include "args.h"
#include "chat_source.h"
#include "input.h"
#include "out.h"
#include "verbs.h"

#include "lode/chat.h"
#include "lode/toolcall.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

struct opts {
    const char *model, *messages, *now, *chat_template, *kwargs, *parse;
    bool jsonl, source, names, formats;
};

static const struct arg_flag flags[] = {
    {"-m, --model", ARG_STR, ARG_AT(struct opts, model), .meta = "FILE", .pos = 1,
     .group = "Template",
     .help = "a model, a Jinja file, or a built-in by name (also the first argument)"},
    {"--chat-template, --chat-template-file", ARG_STR, ARG_AT(struct opts, chat_template),
     .meta = "NAME|FILE", .help = "use this template with the model's special tokens"},
    {"--messages", ARG_STR, ARG_AT(struct opts, messages), .meta = "FILE", .pos = 2,
     .group = "Input", .shown = "standard input", .help = "messages as JSON; - is standard input"},
    {"--chat-template-kwargs", ARG_STR, ARG_AT(struct opts, kwargs), .meta = "JSON",
     .help = "more variables, which the input may override"},
    {"--now", ARG_STR, ARG_AT(struct opts, now), .meta = "TIME", .shown = "the clock",
     .help = "the moment that strftime_now sees: 2026-01-15T12:34:56"},
    {"--jsonl", ARG_BOOL, ARG_AT(struct opts, jsonl),
     .help = "each input line is such an object, each output line a JSON string or an error"},
    {"--source", ARG_BOOL, ARG_AT(struct opts, source), .group = "Output",
     .help = "print the template itself"},
    {"--list", ARG_BOOL, ARG_AT(struct opts, names), .help = "print the names of the built-ins"},
    {"--parse", ARG_STR, ARG_AT(struct opts, parse), .meta = "FILE", .group = "The way back",
     .help = "read what a model wrote, as this template's models write: thinking, text and calls "
             "of tools, printed as a message (--messages: what it answers, for the tools' types)"},
    {"--formats", ARG_BOOL, ARG_AT(struct opts, formats),
     .help = "list the ways in which calls are written, and with a template, name its own"},
};

static const struct arg_spec spec = {
    .verb = "template",
    .usage = "MODEL|FILE.jinja|NAME --messages FILE [flags]",
    .brief = "shows the prompt that a chat template makes of messages",
    .about =
        "The input is a JSON array of messages, or an object with messages and, each optional,\n"
        "tools, documents, add_generation_prompt (false), kwargs and special_tokens (objects of\n"
        "more variables).  The output is what apply_chat_template of transformers gives, and\n"
        "nothing else, not even a newline.  A template that fails says the line and the reason.\n"
        "With --jsonl an error is a line {\"error\": reason, \"where\": line}.",
    .examples = "lode template models/demo.gguf --messages chat.json\n"
                "echo '[{\"role\": \"user\", \"content\": \"Hi\"}]' | lode template chatml\n"
                "lode template chat_template.jinja --jsonl < cases.jsonl\n"
                "lode template models/demo.gguf --source\n"
                "lode template chatml --parse answer.txt",
    .flags = flags,
    .n_flags = ARG_COUNT(flags),
};

/* A GGUF file, a directory or the name of one, rather than a template. */
static bool is_model(const char *path) {
    struct stat st;
    char magic[4] = {0};
    if (stat(path, &st) < 0 ? strchr(path, '/') && !strstr(path, ".jinja") : S_ISDIR(st.st_mode))
        return true;
    FILE *f = fopen(path, "rb");
    const bool gguf = f && fread(magic, 1, 4, f) == 4 && memcmp(magic, "GGUF", 4) == 0;
    if (f)
        fclose(f);
    return gguf;
}

/* "2026-01-15T12:34:56", local time. */
static bool parse_time(const char *text, int64_t *out) {
    struct tm tm = {.tm_isdst = -1};
    const char *end = strptime(text, "%Y-%m-%d", &tm);
    if (end && (*end == 'T' || *end == ' '))
        end = strptime(end + 1, "%H:%M:%S", &tm);
    *out = (int64_t)mktime(&tm);
    return end && !*end && *out != -1;
}

/* ---- where the template and its variables come from ---- */

struct rendering {
    struct lode_template *tmpl;
    char *vars; /* JSON: special tokens of the model, --chat-template-kwargs */
    int64_t now;
};

static int load_source(const struct opts *o, char **source, json_t *vars, struct lode_error *err) {
    const bool model = !lode_template_builtin(o->model) && is_model(o->model);
    int rc = 0;
    if (model)
        rc = chat_model_source(o->model, o->chat_template ? NULL : source, vars, err);
    if (rc == 0 && (o->chat_template || !model))
        rc = chat_template_source(o->chat_template ? o->chat_template : o->model, source, err);
    return rc;
}

static int add_kwargs(json_t *vars, const char *text, struct lode_error *err) {
    json_t *kwargs = NULL;
    int rc = text ? chat_parse_kwargs(text, &kwargs, err) : 0;
    if (kwargs)
        json_object_update(vars, kwargs);
    json_decref(kwargs);
    return rc;
}

static int prepare(struct rendering *r, const struct opts *o, struct lode_error *err) {
    char *source = NULL;
    json_t *vars = json_object();
    int rc = load_source(o, &source, vars, err);
    if (rc == 0)
        rc = add_kwargs(vars, o->kwargs, err);
    r->vars = rc == 0 ? json_dumps(vars, JSON_COMPACT) : NULL;
    if (rc == 0 && o->source)
        fputs(source, stdout);
    else if (rc == 0)
        rc = lode_template_compile(&r->tmpl, source, strlen(source), err);
    json_decref(vars);
    free(source);
    return rc;
}

static int render(const struct rendering *r, const char *input, size_t len, char **text, size_t *n,
                  struct lode_error *err) {
    return lode_template_render_chat(r->tmpl, input, len, r->vars, r->vars ? strlen(r->vars) : 0,
                                     r->now, text, n, err);
}

/* ---- one rendering, or one a line ---- */

static int render_one(const struct rendering *r, const char *path, struct lode_error *err) {
    char *input, *text;
    size_t size, len;
    int rc = input_read(path ? path : "-", 0, &input, &size, err);
    if (rc < 0)
        return rc;
    rc = render(r, input, size, &text, &len, err);
    free(input);
    if (rc < 0)
        return rc;
    fwrite(text, 1, len, stdout);
    lode_chat_text_free(text);
    return 0;
}

static void print_json(json_t *value) {
    if (!value || json_dumpf(value, stdout, JSON_ENCODE_ANY | JSON_COMPACT) < 0)
        fputs("{\"error\":\"out of memory\"}", stdout);
    putchar('\n');
    json_decref(value);
}

static void print_error(const struct lode_error *err) {
    print_json(json_pack("{s:s, s:s}", "error", err->text, "where", err->where));
}

static bool is_blank(const char *line) {
    while (isspace((unsigned char)*line))
        line++;
    return !*line;
}

/* broken: why the template itself cannot be used, which each line then says; or NULL. */
static int render_lines(const struct rendering *r, const char *path,
                        const struct lode_error *broken, struct lode_error *err) {
    FILE *f = !path || !strcmp(path, "-") ? stdin : fopen(path, "rb");
    char *line = NULL, *text;
    size_t cap = 0, len;
    if (!f)
        return tool_fail(err, LODE_ERR_IO, path, "cannot be opened");
    for (ssize_t n; (n = getline(&line, &cap, f)) >= 0;) {
        struct lode_error why = {0};
        if (is_blank(line))
            continue;
        if (broken) {
            print_error(broken);
        } else if (render(r, line, (size_t)n, &text, &len, &why) < 0) {
            print_error(&why);
        } else {
            print_json(json_stringn(text, len));
            lode_chat_text_free(text);
        }
        if (!out_flush())
            break;
    }
    free(line);
    if (f != stdin)
        fclose(f);
    return 0;
}

/* ---- the way back ---- */

static int print_formats(const struct rendering *r, struct lode_error *err) {
    const char *about, *name;
    struct lode_toolcall_style style;
    int rc = 0;
    if (r->tmpl && (rc = lode_toolcall_detect(&style, r->tmpl, err)) == 0)
        printf("%s, thinking in %s\n", style.format, style.think);
    for (size_t i = 0; !r->tmpl && (name = lode_toolcall_format(i, &about)); i++)
        printf("%-14s %s\n", name, about);
    return rc;
}

struct reading { /* what a model wrote, as a message */
    json_t *message, *calls, *malformed;
    FILE *content, *reasoning, *arguments;
    char *texts[3];
    size_t lens[3];
};

static int on_event(void *user, const struct lode_toolcall_event *e) {
    struct reading *d = user;
    switch (e->kind) {
    case LODE_TOOLCALL_CONTENT:
        fwrite(e->text, 1, e->len, d->content);
        break;
    case LODE_TOOLCALL_REASONING:
        fwrite(e->text, 1, e->len, d->reasoning);
        break;
    case LODE_TOOLCALL_BEGIN:
        rewind(d->arguments);
        break;
    case LODE_TOOLCALL_ARGUMENTS:
        fwrite(e->text, 1, e->len, d->arguments);
        break;
    case LODE_TOOLCALL_END:
        fflush(d->arguments);
        json_array_append_new(d->calls, json_pack("{s:s, s:s, s:{s:s, s:s%}}", "id", e->id, "type",
                                                  "function", "function", "name", e->name,
                                                  "arguments", d->texts[2], d->lens[2]));
        break;
    case LODE_TOOLCALL_MALFORMED:
        fwrite(e->text, 1, e->len, d->content);
        json_array_append_new(
            d->malformed, json_pack("{s:s%, s:s}", "text", e->text, e->len, "reason", e->reason));
        break;
    case LODE_TOOLCALL_MARKUP:
        break;
    }
    return 0;
}

/* What the conversation says of its answer: the tools, as JSON text (NULL: none), and whether the
 * prompt has opened the thinking.  Without a file, any question stands for it. */
static int read_prompt(const struct rendering *r, const char *path,
                       struct lode_toolcall_opts *parse, char **tools, struct lode_error *err) {
    static const char question[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"?\"}],"
                                   "\"add_generation_prompt\":true}";
    char *input = NULL, *text;
    size_t size = sizeof question - 1, len;
    *tools = NULL;
    const int rc = path ? input_read(path, 0, &input, &size, err) : 0;
    if (rc < 0)
        return rc;
    json_t *root =
        input ? json_loadb(input, size, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL) : NULL;
    const json_t *list = json_object_get(root, "tools");
    if (json_is_array(list))
        *tools = json_dumps(list, JSON_COMPACT);
    json_decref(root);
    /* a template that refuses the question has opened nothing */
    if (render(r, input ? input : question, size, &text, &len, NULL) == 0) {
        parse->thinking = lode_toolcall_thinks(&parse->style, text, len);
        lode_chat_text_free(text);
    }
    free(input);
    return 0;
}

static int read_answer(const struct rendering *r, const struct opts *o, struct reading *d,
                       struct lode_error *err) {
    struct lode_toolcall_opts parse = {.put = on_event, .user = d};
    struct lode_toolcall *p = NULL;
    char *text = NULL, *tools = NULL;
    size_t size = 0;
    int rc = input_read(o->parse, 0, &text, &size, err);
    rc = rc < 0 ? rc : lode_toolcall_detect(&parse.style, r->tmpl, err);
    rc = rc < 0 ? rc : read_prompt(r, o->messages, &parse, &tools, err);
    parse.tools = tools;
    parse.tools_len = tools ? strlen(tools) : 0;
    rc = rc < 0 ? rc : lode_toolcall_create(&p, &parse, err);
    rc = rc < 0 ? rc : lode_toolcall_push(p, text, size, err);
    rc = rc < 0 ? rc : lode_toolcall_finish(p, err);
    lode_toolcall_free(p);
    free(tools);
    free(text);
    return rc;
}

static int print_answer(const struct rendering *r, const struct opts *o, struct lode_error *err) {
    struct reading d = {.message = json_pack("{s:s}", "role", "assistant"),
                        .calls = json_array(),
                        .malformed = json_array()};
    FILE **const files[] = {&d.content, &d.reasoning, &d.arguments};
    bool opened = d.message && d.calls && d.malformed;
    for (size_t i = 0; i < 3; i++)
        opened = (*files[i] = open_memstream(&d.texts[i], &d.lens[i])) && opened;
    const int rc = opened ? read_answer(r, o, &d, err)
                          : tool_fail(err, LODE_ERR_NOMEM, "answer", "no memory for it");
    for (size_t i = 0; i < 3; i++)
        if (*files[i])
            fclose(*files[i]);
    if (rc == 0) {
        json_object_set_new(d.message, "content", json_stringn(d.texts[0], d.lens[0]));
        if (d.lens[1])
            json_object_set_new(d.message, "reasoning_content",
                                json_stringn(d.texts[1], d.lens[1]));
        if (json_array_size(d.calls))
            json_object_set(d.message, "tool_calls", d.calls);
        if (json_array_size(d.malformed))
            json_object_set(d.message, "malformed", d.malformed);
        print_json(json_incref(d.message));
    }
    json_decref(d.message);
    json_decref(d.calls);
    json_decref(d.malformed);
    for (size_t i = 0; i < 3; i++)
        free(d.texts[i]);
    return rc;
}

int verb_template(int argc, char **argv) {
    struct opts o;
    struct args a;
    struct lode_error err = {0};
    struct rendering r = {0};
    int status = args_main(&a, &spec, &o, argc, argv);
    if (status >= 0)
        return status;
    if (o.names) {
        for (const char *const *n = lode_template_names(); *n; n++)
            puts(*n);
        return 0;
    }
    if (o.formats && !o.model)
        return print_formats(&r, NULL);
    if (!o.model)
        return args_usage_error(&spec, "which model or template?");
    if (o.now && !parse_time(o.now, &r.now))
        return args_usage_error(&spec, "--now takes a time like 2026-01-15T12:34:56");
    int rc = prepare(&r, &o, &err);
    if (rc == 0 && o.formats)
        rc = print_formats(&r, &err);
    else if (rc == 0 && o.parse)
        rc = print_answer(&r, &o, &err);
    else if (rc == 0 && !o.source)
        rc = o.jsonl ? render_lines(&r, o.messages, NULL, &err) : render_one(&r, o.messages, &err);
    else if (rc < 0 && o.jsonl && !strncmp(err.where, "chat template", 13))
        render_lines(&r, o.messages, &err, &err);
    lode_template_free(r.tmpl);
    free(r.vars);
    return rc < 0 ? tool_report(&err) : 0;
}
