/* launch.c - `lode launch claude|codex|opencode`: their settings, so that they use a lode server. */
#include "args.h"
#include "client.h"
#include "input.h"
#include "out.h"
#include "verbs.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct opts {
    const char *agent, *url, *model, *key;
    bool print;
};

static const char *const agents[] = {"claude", "codex", "opencode", NULL};

static const struct arg_flag flags[] = {
    {"--agent", ARG_CHOICE, ARG_AT(struct opts, agent), .meta = "NAME", .choices = agents, .pos = 1,
     .group = "Settings", .help = "whose settings (also the first argument)"},
    {"--url", ARG_STR, ARG_AT(struct opts, url), .meta = "URL", .def = "http://127.0.0.1:8080",
     .help = "where lode serve listens"},
    {"-m, --model", ARG_STR, ARG_AT(struct opts, model), .meta = "NAME",
     .shown = "the first that the server lists", .help = "the model's name at the server"},
    {"--api-key", ARG_STR, ARG_AT(struct opts, key), .meta = "KEY",
     .help = "what lode serve --api-key asks for"},
    {"--print", ARG_BOOL, ARG_AT(struct opts, print), .help = "print them, and change no file"},
};

static const struct arg_spec spec = {
    .verb = "launch",
    .usage = "claude|codex|opencode [--url URL] [--print]",
    .brief = "settings of coding agents, so that they use a lode server",
    .about = "Writes what Claude Code, Codex or opencode need to use `lode serve` into their own file\n"
             "of settings: what else it holds stays, and the file as it was is kept beside it, as\n"
             "FILE.before-lode.  --print only shows the settings.",
    .examples = "lode launch claude --print\n"
                "lode launch codex --url http://127.0.0.1:8080 --model qwen3-coder",
    .flags = flags,
    .n_flags = ARG_COUNT(flags),
};

/* ---- the server ---- */

struct reply {
    char text[65536];
    size_t len;
};

static int take(void *user, const struct client_reply *reply, const char *data, size_t len) {
    struct reply *r = user;
    const size_t room = sizeof r->text - 1 - r->len, n = len < room ? len : room;
    (void)reply;
    memcpy(r->text + r->len, data, n);
    r->len += n;
    return 0;
}

/* The first model that the server lists, strdup'd. */
static int find_model(const struct opts *o, char **out, struct lode_error *err) {
    struct reply *r = calloc(1, sizeof *r);
    struct client_reply head;
    if (!r)
        return tool_fail(err, LODE_ERR_NOMEM, "launch", "no memory");
    int rc = client_ask("GET", o->url, "/v1/models", o->key, NULL, take, NULL, r, &head, err);
    json_t *list = rc == 0 ? json_loads(r->text, 0, NULL) : NULL;
    const char *name = json_string_value(
        json_object_get(json_array_get(json_object_get(list, "data"), 0), "id"));
    *out = name ? strdup(name) : NULL;
    if (rc < 0)
        rc = tool_fail(err, rc, o->url, "no server says which model it has: start lode serve, or name one with "
                                        "--model");
    else if (!*out)
        rc = tool_fail(err, LODE_ERR_FORMAT, o->url, "status %d and no model: --api-key, or --model NAME", head.status);
    json_decref(list);
    free(r);
    return rc;
}

/* ---- what they need ---- */

static char *v1(const char *url) { /* the address as OpenAI's clients want it */
    char *text;
    size_t n = strlen(url);
    while (n && url[n - 1] == '/')
        n--;
    const bool has = n >= 3 && !strncmp(url + n - 3, "/v1", 3);
    return asprintf(&text, "%.*s%s", (int)n, url, has ? "" : "/v1") < 0 ? NULL : text;
}

static json_t *claude_settings(const struct opts *o, const char *model) {
    size_t n = strlen(o->url);
    while (n && o->url[n - 1] == '/')
        n--;
    if (n >= 3 && !strncmp(o->url + n - 3, "/v1", 3)) /* it adds that itself */
        n -= 3;
    json_t *env = json_pack("{s:s%, s:s, s:s, s:s, s:s, s:s, s:s}", "ANTHROPIC_BASE_URL", o->url, n,
                            "ANTHROPIC_AUTH_TOKEN", o->key ? o->key : "lode", "ANTHROPIC_MODEL", model,
                            "ANTHROPIC_DEFAULT_OPUS_MODEL", model, "ANTHROPIC_DEFAULT_SONNET_MODEL",
                            model, "ANTHROPIC_DEFAULT_HAIKU_MODEL", model,
                            "CLAUDE_CODE_SUBAGENT_MODEL", model);
    /* a header that changes with each request would cost the prefix; local models take their time */
    json_object_set_new(env, "CLAUDE_CODE_ATTRIBUTION_HEADER", json_string("0"));
    json_object_set_new(env, "CLAUDE_STREAM_IDLE_TIMEOUT_MS", json_string("600000"));
    json_object_set_new(env, "API_TIMEOUT_MS", json_string("3000000"));
    return json_pack("{s:o}", "env", env);
}

static json_t *opencode_settings(const struct opts *o, const char *model) {
    char *base = v1(o->url), *full;
    if (asprintf(&full, "lode/%s", model) < 0)
        full = NULL;
    json_t *s = json_pack("{s:s, s:{s:{s:s, s:s, s:{s:s, s:s}, s:{s:{s:s}}}}, s:s}", "$schema",
                          "https://opencode.ai/config.json", "provider", "lode", "npm",
                          "@ai-sdk/openai-compatible", "name", "lode", "options", "baseURL",
                          base ? base : "", "apiKey", o->key ? o->key : "lode", "models", model, "name",
                          model, "model", full ? full : "");
    free(base);
    free(full);
    return s;
}

static void add_toml_string(FILE *f, const char *s) {
    fputc('"', f);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            fputc('\\', f);
        if ((unsigned char)*s >= ' ')
            fputc(*s, f);
    }
    fputc('"', f);
}

static void codex_top(FILE *f, const char *model) {
    fputs("model = ", f);
    add_toml_string(f, model);
    fputs("\nmodel_provider = \"lode\"\n", f);
}

static void codex_provider(FILE *f, const struct opts *o) {
    char *base = v1(o->url);
    fputs("\n[model_providers.lode]\nname = \"lode\"\nbase_url = ", f);
    add_toml_string(f, base ? base : "");
    fputs("\nwire_api = \"responses\"\nstream_idle_timeout_ms = 600000\n", f);
    if (o->key) { /* Codex reads keys from the environment only */
        fputs("env_key = \"LODE_API_KEY\"\n", f);
    }
    free(base);
}

/* The file as it was without what we set: `model` and `model_provider` before the first table, and our
 * own table.  The rest keeps its place and its comments. */
static void codex_merge(FILE *f, const char *old, const struct opts *o, const char *model) {
    bool top = true, ours = false;
    size_t blank_lines = 0; /* those before our table and at the end are ours too */
    codex_top(f, model);
    while (*old) {
        const size_t n = strcspn(old, "\n"), blank = strspn(old, " \t\r");
        const char *line = old + blank;
        if (*line == '[') {
            top = false;
            ours = !strncmp(line, "[model_providers.lode]", 22) || !strncmp(line, "[model_providers.lode.", 22);
        }
        const size_t word = strcspn(line, " \t=\n");
        const bool replaced = top && ((word == 5 && !strncmp(line, "model", 5)) ||
                                      (word == 14 && !strncmp(line, "model_provider", 14)));
        if (!ours && blank == n) {
            blank_lines++;
        } else if (!ours && !replaced) {
            for (; blank_lines; blank_lines--)
                fputc('\n', f);
            fprintf(f, "%.*s\n", (int)n, old);
        }
        old += n + (old[n] == '\n');
    }
    codex_provider(f, o);
}

/* ---- files ---- */

static int config_path(char *out, size_t cap, const char *agent, struct lode_error *err) {
    static const struct {
        const char *agent, *env, *home, *file;
    } places[] = {{"claude", "CLAUDE_CONFIG_DIR", ".claude", "settings.json"},
                  {"codex", "CODEX_HOME", ".codex", "config.toml"},
                  {"opencode", "XDG_CONFIG_HOME", ".config", "opencode/opencode.json"}};
    const char *home = getenv("HOME");
    for (size_t i = 0; i < ARG_COUNT(places); i++) {
        if (strcmp(places[i].agent, agent) != 0)
            continue;
        const char *dir = getenv(places[i].env);
        if (dir && *dir)
            snprintf(out, cap, "%s/%s", dir, places[i].file);
        else if (home && *home)
            snprintf(out, cap, "%s/%s/%s", home, places[i].home, places[i].file);
        else
            return tool_fail(err, LODE_ERR_IO, agent, "HOME is not set, so there is no place for its settings");
    }
    return 0;
}

static int write_file(const char *path, const char *text, mode_t mode, struct lode_error *err) {
    struct outfile f;
    int rc = outfile_open(&f, path, err);
    if (rc < 0)
        return rc;
    fchmod(fileno(f.f), mode);
    outfile_write(&f, text, strlen(text));
    return outfile_commit(&f, err);
}

/* The file as it was goes to FILE.before-lode, or where that is an earlier one, to FILE.before-lode.2, ... */
static int keep_old(const char *path, const char *text, mode_t mode, char *backup, size_t cap,
                    struct lode_error *err) {
    struct stat st;
    snprintf(backup, cap, "%s.before-lode", path);
    for (int i = 2; !lstat(backup, &st); i++)
        snprintf(backup, cap, "%s.before-lode.%d", path, i);
    return write_file(backup, text, mode, err);
}

/* JSON settings laid over those that are there. */
static int merge_json(const char *path, const char *old, json_t *settings, char **out,
                      struct lode_error *err) {
    json_error_t why;
    json_t *all = *old ? json_loads(old, 0, &why) : json_object();
    if (!json_is_object(all)) {
        json_decref(all);
        return tool_fail(err, LODE_ERR_FORMAT, path,
                         "is no plain JSON (line %d: %s); --print shows what to add by hand", why.line, why.text);
    }
    json_object_update_recursive(all, settings);
    *out = json_dumps(all, JSON_INDENT(2));
    json_decref(all);
    return *out ? 0 : tool_fail(err, LODE_ERR_NOMEM, path, "no memory");
}

static int make_text(const struct opts *o, const char *model, const char *path, const char *old,
                     char **out, struct lode_error *err) {
    *out = NULL;
    if (!strcmp(o->agent, "codex")) {
        size_t len;
        FILE *f = open_memstream(out, &len);
        if (!f)
            return tool_fail(err, LODE_ERR_NOMEM, path, "no memory");
        codex_merge(f, old, o, model);
        return fclose(f) ? tool_fail(err, LODE_ERR_NOMEM, path, "no memory") : 0;
    }
    json_t *s = !strcmp(o->agent, "claude") ? claude_settings(o, model) : opencode_settings(o, model);
    const int rc = s ? merge_json(path, old, s, out, err)
                     : tool_fail(err, LODE_ERR_FORMAT, "--model", "is no UTF-8 text");
    json_decref(s);
    return rc;
}

static int write_settings(const struct opts *o, const char *model, struct lode_error *err) {
    char path[4096], backup[4200] = "", *old = NULL, *text;
    struct stat st;
    size_t size;
    mode_t mode = 0600;
    int rc = config_path(path, sizeof path, o->agent, err);
    if (rc == 0 && !stat(path, &st)) {
        mode = st.st_mode & 0777;
        rc = input_read(path, 16 << 20, &old, &size, err);
    }
    if (rc == 0)
        rc = make_text(o, model, path, old ? old : "", &text, err);
    if (rc < 0) {
        free(old);
        return rc;
    }
    if (old && !strcmp(old, text)) {
        printf("%s has these settings already\n", path);
    } else {
        rc = outfile_folders(path, err);
        if (rc == 0 && old)
            rc = keep_old(path, old, mode, backup, sizeof backup, err);
        if (rc == 0)
            rc = write_file(path, text, mode, err);
        if (rc == 0)
            printf("written: %s\n%s%s%s", path, *backup ? "as it was: " : "", backup, *backup ? "\n" : "");
    }
    if (rc == 0 && !strcmp(o->agent, "codex") && o->key)
        printf("Codex reads the key from the environment: export LODE_API_KEY=...\n");
    if (rc == 0)
        printf("now start: %s\n", o->agent);
    free(old);
    free(text);
    return rc;
}

static int print_settings(const struct opts *o, const char *model, struct lode_error *err) {
    char path[4096], *text;
    const char *key;
    json_t *v;
    int rc = config_path(path, sizeof path, o->agent, err);
    if (rc == 0)
        rc = make_text(o, model, path, "", &text, err);
    if (rc < 0)
        return rc;
    printf("# %s\n%s%s", path, text, text[strlen(text) - 1] == '\n' ? "" : "\n");
    if (!strcmp(o->agent, "claude")) {
        json_t *all = claude_settings(o, model);
        printf("\n# or, for one shell:\n");
        json_object_foreach(json_object_get(all, "env"), key, v)
            printf("export %s='%s'\n", key, json_string_value(v));
        json_decref(all);
    }
    free(text);
    return 0;
}

int verb_launch(int argc, char **argv) {
    struct opts o = {0};
    struct args a;
    struct lode_error err = {0};
    char *found = NULL;
    const int status = args_main(&a, &spec, &o, argc, argv);
    if (status >= 0)
        return status;
    if (!o.agent)
        return args_usage_error(&spec, "whose settings: claude, codex or opencode?");
    int rc = o.model ? 0 : find_model(&o, &found, &err);
    const char *model = o.model ? o.model : found;
    if (rc == 0)
        rc = o.print ? print_settings(&o, model, &err) : write_settings(&o, model, &err);
    free(found);
    return rc < 0 ? tool_report(&err) : 0;
}
