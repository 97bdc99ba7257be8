/* serve.c - `lode serve`: a model over HTTP, for clients that speak OpenAI's API. */
#include "args.h"
#include "chat_source.h"
#include "input.h"
#include "load.h"
#include "out.h"
#include "profile.h"
#include "verbs.h"

#include "serve/serve.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct opts {
    struct load_opts load;
    const char *host, *alias, *template, *key_file, *tls_key, *tls_cert, *chats;
    struct arg_strs keys, origins;
    uint64_t chats_size;
    bool no_chats, no_cache;
    const char *cache_dir;
    uint64_t cache_dir_size;
    int64_t cache_ram, kv_tokens;
    int64_t port, parallel, queue, chunk, drain, connections, patience;
};

static const struct arg_flag flags[] = {
    LOAD_MODEL_FLAGS(struct opts),
    {"-a, --alias", ARG_STR, ARG_AT(struct opts, alias), .meta = "NAME",
     .shown = "the file's name", .help = "what clients see as the model's name"},
    {"--chat-template", ARG_STR, ARG_AT(struct opts, template), .meta = "NAME|FILE",
     .shown = "the model's", .help = "another template: a built-in, Jinja text, or a file"},
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
    {"--chats", ARG_STR, ARG_AT(struct opts, chats), .meta = "FILE", .group = "Web page",
     .shown = "$XDG_DATA_HOME/lode/chats.db", .help = "where the page's chats are kept (SQLite)"},
    {"--chats-size", ARG_SIZE, ARG_AT(struct opts, chats_size), .meta = "SIZE", .def = "1G",
     .min = 1 << 20, .max = 1e15, .help = "how large that file may become"},
    {"--no-chats", ARG_BOOL, ARG_AT(struct opts, no_chats), .help = "the browser keeps them instead"},
    {"-np, --parallel", ARG_INT, ARG_AT(struct opts, parallel), .meta = "N", .def = "4", .min = 1,
     .max = 1024, .group = "Speed and memory", .help = "requests that are answered at once"},
    {"--queue", ARG_INT, ARG_AT(struct opts, queue), .meta = "N", .def = "64", .min = 1,
     .max = 1 << 20, .help = "requests that may wait; more are refused with 503"},
    {"--chunk", ARG_INT, ARG_AT(struct opts, chunk), .meta = "N", .def = "64", .min = 1,
     .max = 1 << 16, .help = "prompt tokens of a step while others are being answered"},
    {"-c, --ctx-size, --ctx", ARG_INT, ARG_AT(struct opts, load.ctx), .meta = "N", .def = "0",
     .shown = "the model's, or what fits", .min = 0, .max = 1 << 28,
     .help = "longest conversation in tokens, of each request"},
    LOAD_SESSION_FLAGS(struct opts),
    {"--kv-tokens", ARG_INT, ARG_AT(struct opts, kv_tokens), .meta = "N", .def = "0",
     .shown = "a context for each, or what fits", .min = 0, .max = INT64_C(1) << 40,
     .group = "What is kept of prompts",
     .help = "tokens whose keys and values all requests and kept prefixes together may have"},
    {"-cram, --cache-ram", ARG_INT, ARG_AT(struct opts, cache_ram), .meta = "MIB", .def = "-1",
     .min = -1, .max = 1 << 30,
     .help = "the most of it for kept prefixes; -1: what no request needs; 0: keep none"},
    {"--cache-dir", ARG_STR, ARG_AT(struct opts, cache_dir), .meta = "DIR", .shown = "none",
     .help = "keep prefixes on disk too, for the next start"},
    {"--cache-dir-size", ARG_SIZE, ARG_AT(struct opts, cache_dir_size), .meta = "SIZE", .def = "16G",
     .min = 1 << 20, .max = 1e15, .help = "how much that may become"},
    {"--no-cache-prompt", ARG_BOOL, ARG_AT(struct opts, no_cache),
     .help = "each request reads all of its prompt"},
    {"-cb, --cont-batching", ARG_FOREIGN_BOOL, .help = "it always does"},
    {"--jinja", ARG_FOREIGN_BOOL, .help = "templates are always Jinja"},
    {"--metrics", ARG_FOREIGN_BOOL, .help = "GET /metrics is always there"},
    LOAD_FOREIGN_FLAGS,
};

static const struct arg_spec spec = {
    .verb = "serve",
    .usage = "MODEL [--port N] [flags]",
    .brief = "a model over HTTP, as OpenAI's API",
    .about = "Answers POST /v1/chat/completions and /v1/completions, streamed or whole, many requests\n"
             "at once: each step of the model serves all of them, and an answer does not depend on its\n"
             "neighbours.  Also GET /v1/models, /props, /health, /metrics and POST /tokenize,\n"
             "/detokenize, /apply-template.",
    .examples = "lode serve models/demo.gguf\n"
                "lode serve qwen3-8b.gguf --parallel 8 -c 32768 --api-key secret",
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

static void say_ready(void *user, uint16_t port) {
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
    printf("lode: %s, %u requests at once, %u tokens each\n"
           "lode: listening on %s\n\n"
           "Chat: open %s/ in a browser\n"
           "Try:  curl %s/v1/chat/completions -H 'Content-Type: application/json' \\\n%s"
           "        -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'\n",
           o->name, lode_scheduler_slots(o->scheduler), lode_scheduler_ctx(o->scheduler), listens,
           all ? here : listens, all ? here : listens,
           keys ? "        -H 'Authorization: Bearer KEY' \\\n" : "");
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

static int serve(const struct opts *o, struct lode_model *m, struct lode_error *err) {
    const char *slash = strrchr(o->load.model, '/');
    char *given = NULL, *tls_key = NULL, *tls_cert = NULL;
    char *chats = o->chats || o->no_chats ? NULL : default_chats();
    struct serve_opts s = {
        .model = m,
        .host = o->host,
        .port = (uint16_t)o->port,
        .name = o->alias                  ? o->alias
                : slash && slash[1]       ? slash + 1
                                          : o->load.model,
        .guard = {.keys = o->keys.v,
                  .n_keys = o->keys.n,
                  .key_file = o->key_file,
                  .origins = o->origins.v,
                  .n_origins = o->origins.n},
        .chats = o->no_chats ? NULL : o->chats ? o->chats : chats,
        .chats_asked = o->chats && !o->no_chats,
        .chats_size = o->chats_size,
        .note = say_note,
        .connections = (uint32_t)o->connections,
        .queue = (uint32_t)o->queue,
        .patience = (uint32_t)o->patience,
        .drain = (uint32_t)o->drain,
        .ready = say_ready,
        .reloaded = say_reloaded,
        .user = &s,
    };
    choose_sampling(&s.sampling, m);
    int rc = catch_signals(err);
    s.control_fd = control_pipe[0];
    if (rc == 0)
        rc = read_tls(o, &tls_key, &tls_cert, err);
    s.tls_key = tls_key;
    s.tls_cert = tls_cert;
    if (rc == 0 && o->template)
        rc = chat_template_source(o->template, &given, err);
    s.template = given ? given : lode_model_info(m)->chat_template;
    if (rc == 0)
        rc = lode_scheduler_create(&s.scheduler, m,
                                   &(struct lode_scheduler_opts){
                                       .session = load_session_opts(&o->load),
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
    if (rc == 0)
        rc = serve_run(&s, err);
    free(given);
    free(chats);
    free(tls_key);
    free(tls_cert);
    return rc;
}

int verb_serve(int argc, char **argv) {
    struct opts o = {0};
    struct args a;
    const int status = args_main(&a, &spec, &o, argc, argv);
    if (status >= 0)
        return status;
    if (!o.load.model)
        return args_usage_error(&spec, "which model?");
    struct lode_error err = {0};
    struct lode_model *m = NULL;
    o.load.parallel = (uint32_t)o.parallel;
    int rc = load_model(&m, &o.load, &err);
    if (rc == 0)
        rc = serve(&o, m, &err);
    if (rc == 0)
        rc = profile_finish(m, &o.load, &err);
    lode_model_free(m);
    return rc < 0 ? tool_report(&err) : 0;
}

#else

int verb_serve(int argc, char **argv) {
    struct opts o = {0};
    struct args a;
    struct lode_error err;
    const int status = args_main(&a, &spec, &o, argc, argv);
    if (status >= 0)
        return status;
    tool_fail(&err, LODE_ERR_UNSUPPORTED, "serve",
              "left out of this build: it needs libmicrohttpd (scripts/packages.sh install build)");
    return tool_report(&err);
}

#endif
