/* serve.c - `lode serve`: a model over HTTP, for clients that speak OpenAI's API. */
#include "args.h"
#include "input.h"
#include "out.h"
#include "serve_models.h"
#include "verbs.h"

#include "lode/memory.h"

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct opts {
    struct model_opts one; /* first */
    const char *config, *host, *key_file, *tls_key, *tls_cert, *chats, *log_file, *log_format, *log_level;
    struct arg_strs keys, origins;
    uint64_t chats_size, budget;
    bool no_chats, log_prompts;
    int64_t port, drain, connections, patience, idle, at_once;
};

/* Of malloc.  An arena keeps what its busiest moment took, and by itself malloc makes eight a core; and the
 * size from which a piece is the system's own, which goes back when it is freed, would rise to that of the
 * largest that was ever freed: bodies and masks then lie among what stays. */
enum { ARENAS = 2, OWN_PIECE = 256 << 10 };

static const char *const log_formats[] = {"text", "json", NULL};
static const char *const log_levels[] = {"error", "warning", "info", "detail", NULL};

static const struct arg_flag flags[] = {
    ARG_MODEL(struct opts, one.load.model),
    SERVE_MODEL_FLAGS,
    {"--config, --models-preset", ARG_STR, ARG_AT(struct opts, config), .meta = "FILE",
     .group = "Several models",
     .help = "settings, and a [section] for each model (docs/server.md)"},
    {"--models-memory", ARG_SIZE, ARG_AT(struct opts, budget), .meta = "SIZE", .def = "0",
     .shown = "any", .help = "what all loaded models together may take; unused ones make room"},
    {"--models-max", ARG_INT, ARG_AT(struct opts, at_once), .meta = "N", .def = "0", .shown = "any",
     .min = 0, .max = 1 << 16, .help = "models that are loaded at once"},
    {"--sleep-idle-seconds", ARG_INT, ARG_AT(struct opts, idle), .meta = "N", .def = "-1",
     .shown = "never", .min = -1, .max = 1 << 30,
     .help = "a model that nobody has used for so long is unloaded"},
    {"--host", ARG_STR, ARG_AT(struct opts, host), .meta = "ADDRESS", .def = "127.0.0.1",
     .group = "Network", .help = "where to listen; 0.0.0.0 is every address of this machine"},
    {"--port", ARG_INT, ARG_AT(struct opts, port), .meta = "N", .def = "8080", .min = 0,
     .max = 65535, .help = "0: any free one"},
    {"--api-key", ARG_STRS, ARG_AT(struct opts, keys), .meta = "KEY",
     .help = "who does not send it is refused; several may be given"},
    {"--api-key-file", ARG_STR, ARG_AT(struct opts, key_file), .meta = "FILE",
     .help = "keys, one a line; read again on SIGHUP"},
    {"--cors-origin", ARG_STRS, ARG_AT(struct opts, origins), .meta = "ORIGIN",
     .help = "pages of this origin (https://chat.example) may call; several may be given"},
    {"--ssl-key-file", ARG_STR, ARG_AT(struct opts, tls_key), .meta = "FILE",
     .help = "HTTPS: the private key, PEM"},
    {"--ssl-cert-file", ARG_STR, ARG_AT(struct opts, tls_cert), .meta = "FILE",
     .help = "HTTPS: the certificate and its chain, PEM"},
    {"--max-connections", ARG_INT, ARG_AT(struct opts, connections), .meta = "N", .def = "16384",
     .min = 1, .max = 1 << 20, .help = "connections at once; idle ones cost some kilobytes"},
    {"-to, --timeout", ARG_INT, ARG_AT(struct opts, patience), .meta = "SECONDS", .def = "60",
     .min = 1, .max = 86400,
     .help = "what a client gets to send a request, or to begin the next; not what an answer may take"},
    {"--drain", ARG_INT, ARG_AT(struct opts, drain), .meta = "SECONDS", .def = "30", .min = 0,
     .max = 86400, .help = "what running requests get after SIGTERM or Ctrl+C; twice ends them"},
    {"--log-file", ARG_STR, ARG_AT(struct opts, log_file), .meta = "FILE", .group = "Log",
     .shown = "standard error", .help = "appended to; opened again on SIGHUP"},
    {"--log-format", ARG_CHOICE, ARG_AT(struct opts, log_format), .meta = "FORMAT", .def = "text",
     .choices = log_formats, .help = "json: an object a line"},
    {"--log-level", ARG_CHOICE, ARG_AT(struct opts, log_level), .meta = "LEVEL", .def = "warning",
     .choices = log_levels, .help = "info: a line for each request"},
    {"--log-prompts", ARG_BOOL, ARG_AT(struct opts, log_prompts),
     .help = "log what clients send, with --log-level info; never otherwise"},
    {"--chats", ARG_STR, ARG_AT(struct opts, chats), .meta = "FILE", .group = "Web page",
     .shown = "$XDG_DATA_HOME/lode/chats.db", .help = "where the page's chats are kept (SQLite)"},
    {"--chats-size", ARG_SIZE, ARG_AT(struct opts, chats_size), .meta = "SIZE", .def = "1G",
     .min = 1 << 20, .max = 1e15, .help = "how large that file may become"},
    {"--no-chats", ARG_BOOL, ARG_AT(struct opts, no_chats), .help = "the browser keeps them instead"},
    SERVE_MEMORY_FLAGS,
    {"-cb, --cont-batching", ARG_FOREIGN_BOOL, .help = "it always does"},
    {"--jinja", ARG_FOREIGN_BOOL, .help = "templates are always Jinja"},
    {"--metrics", ARG_FOREIGN_BOOL, .help = "GET /metrics is always there"},
    LOAD_FOREIGN_FLAGS,
};

static const struct arg_spec spec = {
    .verb = "serve",
    .usage = "MODEL [--port N] [flags]\n--config FILE [flags]",
    .brief = "models over HTTP, as OpenAI's, Anthropic's and Ollama's API",
    .about = "Answers OpenAI's, Anthropic's and Ollama's APIs (POST /v1/chat/completions, /v1/completions,\n"
             "/v1/responses, /v1/embeddings, /v1/rerank, /v1/messages, /api/chat; GET /v1/models and more,\n"
             "docs/api.md), many requests at once: each step of the model serves all of them, and an\n"
             "answer does not depend on its neighbours.  A web page for chats is at /, metrics for Prometheus\n"
             "at /metrics.",
    .examples = "lode serve models/demo.gguf\n"
                "lode serve qwen3-8b.gguf --parallel 8 -c 32768 --api-key secret\n"
                "lode serve --config server.ini",
    .flags = flags,
    .n_flags = ARG_COUNT(flags),
};

#ifdef LODE_HAVE_MHD

static int control_pipe[2];

static void on_signal(int n) {
    const char byte = n == SIGHUP ? SERVE_RELOAD : SERVE_STOP;
    const ssize_t sent = write(control_pipe[1], &byte, 1);
    (void)sent;
}

static int catch_signals(struct lode_error *err) {
    const struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    if (pipe(control_pipe) || sigaction(SIGTERM, &a, NULL) || sigaction(SIGINT, &a, NULL) ||
        sigaction(SIGHUP, &a, NULL))
        return tool_fail(err, LODE_ERR_IO, "signals", "cannot be caught");
    return 0;
}

static void say_note(void *user, const char *text) {
    (void)user;
    fprintf(stderr, "lode: %s\n", text);
}

/* Where the page's chats go when nobody says; NULL: no home.  free() */
static char *default_chats(void) {
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    char *path = NULL;
    /* a relative XDG path is to be ignored, says the specification */
    if (data && *data == '/' ? asprintf(&path, "%s/lode/chats.db", data) < 0
        : home && *home      ? asprintf(&path, "%s/.local/share/lode/chats.db", home) < 0
                             : true)
        return NULL;
    return path;
}

static const struct {
    const char *path, *body;
} try_it[] = {
    [SERVE_CHATS] = {"/v1/chat/completions",
                     "{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}"},
    [SERVE_COMPLETIONS] = {"/v1/completions", "{\"prompt\": \"Once upon a time\", \"max_tokens\": 50}"},
    [SERVE_VECTORS] = {"/v1/embeddings", "{\"input\": \"Hello\"}"},
    [SERVE_SCORES] = {"/v1/rerank", "{\"query\": \"Who wrote Faust?\", \"documents\": [\"Goethe did.\", \"Hello\"]}"},
};

static void say_ready(void *user, uint16_t port, enum serve_kind first) {
    const struct serve_opts *o = user;
    const bool v6 = strchr(o->host, ':'), all = !strcmp(o->host, "0.0.0.0") || !strcmp(o->host, "::");
    const bool local = guard_is_local(o->host) || !strcmp(o->host, "::1"), keys = o->guard.n_keys || o->guard.key_file;
    const char *http = o->tls_cert ? "https" : "http";
    char listens[300], here[300]; /* 0.0.0.0 is no address that a browser could go to */
    snprintf(listens, sizeof listens, "%s://%s%.200s%s:%u", http, v6 ? "[" : "", o->host, v6 ? "]" : "", port);
    snprintf(here, sizeof here, "%s://localhost:%u", http, port);
    if (!keys && !local)
        fprintf(stderr, "lode: everybody who reaches %s may use this server: --api-key asks for a key\n",
                o->host);
    for (size_t i = 0; i < o->n_models; i++)
        printf("lode: %s%s%s\n", o->models[i].name, o->n_models > 1 ? ", " : "",
               o->n_models == 1 ? "" : o->models[i].at_start ? "loaded" : "loaded when it is asked for");
    printf("lode: listening on %s\n\n", listens);
    if (first == SERVE_CHATS || o->n_models > 1)
        printf("Chat: open %s/ in a browser\n", all ? here : listens);
    printf("Try:  curl %s%s -H 'Content-Type: application/json' \\\n%s        -d '%s'\n", all ? here : listens,
           try_it[first].path, keys ? "        -H 'Authorization: Bearer KEY' \\\n" : "", try_it[first].body);
    out_flush();
}

static void say_reloaded(void *user, int rc, size_t n_keys, const struct lode_error *err) {
    (void)user;
    if (rc < 0)
        tool_report(err);
    else
        fprintf(stderr, "lode: SIGHUP: %zu keys\n", n_keys);
}

/* The key and the certificate of HTTPS; both or none. */
static int read_tls(const struct opts *o, char **key, char **cert, struct lode_error *err) {
    size_t size;
    if (!o->tls_key && !o->tls_cert)
        return 0;
    if (!o->tls_key || !o->tls_cert)
        return tool_fail(err, LODE_ERR_ARG, "HTTPS", "needs both --ssl-key-file and --ssl-cert-file");
    const int rc = input_read(o->tls_key, 1 << 20, key, &size, err);
    return rc < 0 ? rc : input_read(o->tls_cert, 1 << 20, cert, &size, err);
}

static int level_of(const struct opts *o) {
    int i = 0;
    while (strcmp(log_levels[i], o->log_level) != 0)
        i++;
    return i;
}

static int serve(const struct opts *o, struct serve_models *models, struct lode_error *err) {
    char *tls_key = NULL, *tls_cert = NULL;
    char *chats = o->chats || o->no_chats ? NULL : default_chats();
    struct server *server = NULL;
    struct serve_opts s = {
        .host = o->host,
        .port = (uint16_t)o->port,
        .guard = {.keys = o->keys.v,
                  .n_keys = o->keys.n,
                  .key_file = o->key_file,
                  .origins = o->origins.v,
                  .n_origins = o->origins.n},
        .budget = o->budget,
        .at_once = (uint32_t)o->at_once,
        .idle = o->idle < 0 ? 0 : (uint32_t)(o->idle + !o->idle),
        .chats = o->no_chats ? NULL : o->chats ? o->chats : chats,
        .chats_asked = o->chats && !o->no_chats,
        .chats_size = o->chats_size,
        .log = {.file = o->log_file, .level = level_of(o), .json = !strcmp(o->log_format, "json")},
        .log_prompts = o->log_prompts,
        .connections = (uint32_t)o->connections,
        .patience = (uint32_t)o->patience,
        .drain = (uint32_t)o->drain,
        .note = say_note,
        .ready = say_ready,
        .reloaded = say_reloaded,
        .user = &s,
    };
    serve_models_fill(models, &s);
    int rc = o->log_file ? out_may_write(o->log_file, err) : 0;
    rc = rc < 0 ? rc : catch_signals(err);
    s.control_fd = control_pipe[0];
    if (rc == 0)
        rc = read_tls(o, &tls_key, &tls_cert, err);
    s.tls_key = tls_key;
    s.tls_cert = tls_cert;
    if (rc == 0)
        rc = serve_open(&server, &s, err);
    if (rc == 0)
        rc = serve_run(server, err);
    serve_close(server);
    free(chats);
    free(tls_key);
    free(tls_cert);
    return rc;
}

int verb_serve(int argc, char **argv) {
    struct opts o = {0};
    struct args a;
    struct lode_error err = {0};
    struct serve_models *models = NULL;
    const int status = args_main(&a, &spec, &o, argc, argv);
    if (status >= 0)
        return status;
    if (!o.one.load.model && !o.config)
        return args_usage_error(&spec, "which model?");
#ifdef M_ARENA_MAX /* glibc's */
    mallopt(M_ARENA_MAX, ARENAS);
    mallopt(M_MMAP_THRESHOLD, OWN_PIECE);
#endif
    int rc = serve_models_open(&models, &a, sizeof o, o.config, &err);
    if (rc == 0) /* kept prefixes give way before others die; where the kernel tells no pressure, bounds hold */
        lode_memory_watch(true, NULL);
    if (rc == 0)
        rc = serve(&o, models, &err);
    serve_models_close(models);
    return rc < 0 ? tool_report(&err) : 0;
}

#else

int verb_serve(int argc, char **argv) {
    struct opts o = {0};
    struct args a;
    const int status = args_main(&a, &spec, &o, argc, argv);
    return status >= 0 ? status : tool_left_out("serve", "libmicrohttpd");
}

#endif
