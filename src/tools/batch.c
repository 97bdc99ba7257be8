/* batch.c - `lode batch`: a file of requests, answered without a server.
 *
 * Answers are written in the order of their requests, so the output is at any time what the first so
 * many lines gave: whoever is killed goes on where it stopped.
 */
#include "args.h"
#include "input.h"
#include "interrupt.h"
#include "out.h"
#include "progress.h"
#include "serve_models.h"
#include "verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct opts {
    struct model_opts one; /* first */
    const char *in, *out, *config;
};

static const struct arg_flag flags[] = {
    {"--in", ARG_STR, ARG_AT(struct opts, in), .meta = "IN.jsonl", .pos = 1, .group = "Requests",
     .help = "a request a line, as OpenAI's batches have them (also the first argument)"},
    {"-o, --output", ARG_STR, ARG_AT(struct opts, out), .meta = "OUT.jsonl",
     .help = "an answer a line; one that exists is gone on with"},
    {"-m, --model", ARG_STR, ARG_AT(struct opts, one.load.model), .meta = "FILE", .group = "Model",
     .help = "the model"},
    {"--config", ARG_STR, ARG_AT(struct opts, config), .meta = "FILE",
     .help = "several models, as lode serve --config has them"},
    SERVE_MODEL_FLAGS,
    SERVE_MEMORY_FLAGS,
    LOAD_FOREIGN_FLAGS,
};

static const struct arg_spec spec = {
    .verb = "batch",
    .usage = "IN.jsonl -o OUT.jsonl -m MODEL",
    .brief = "answers a file of requests, without a server",
    .about = "Each line of IN.jsonl is a request in the format of OpenAI's batches:\n"
             "  {\"custom_id\": \"a\", \"method\": \"POST\", \"url\": \"/v1/chat/completions\", \"body\": {...}}\n"
             "and each line of OUT.jsonl its answer, in the same order:\n"
             "  {\"id\": ..., \"custom_id\": \"a\", \"response\": {\"status_code\": 200, \"body\": {...}}, \"error\": null}\n"
             "A request that fails has its error there and stops nothing.  Run again with the same files,\n"
             "it goes on behind the last answer.",
    .examples = "lode batch questions.jsonl -o answers.jsonl -m models/demo.gguf --parallel 8",
    .flags = flags,
    .n_flags = ARG_COUNT(flags),
};

#ifdef LODE_HAVE_MHD

enum { AHEAD = 4 /* finished answers that wait for an earlier one, as multiples of the workers */ };

struct line { /* a request; its text lies in the file's */
    const char *text;
    size_t len;
    char *answer; /* owned: once it is done and not written yet */
};

struct batch {
    struct server *server;
    struct line *lines; /* (n) */
    size_t n;
    int fd;
    struct progress bar;

    pthread_mutex_t lock; /* for what is below */
    pthread_cond_t written;
    size_t next, done; /* the line to begin, the line to write */
    size_t window, failed;
    int rc;
    struct lode_error err;
};

/* ---- the files ---- */

static const char *id_of(const json_t *line) {
    return json_string_value(json_object_get(line, "custom_id"));
}

/* Every line must have an id of its own, or a run could not go on with what another began. */
static int read_lines(struct batch *b, char *text, const char *path, struct lode_error *err) {
    json_t *seen = json_object();
    int at = 0, rc = 0;
    for (char *next; rc == 0 && text && *text; text = next) {
        json_error_t why;
        next = strchr(text, '\n');
        if (next)
            *next++ = 0;
        at++;
        if (!text[strspn(text, " \t\r")])
            continue;
        json_t *line = json_loads(text, 0, &why);
        const char *id = id_of(line);
        if (!id || !json_is_object(json_object_get(line, "body")) ||
            !json_is_string(json_object_get(line, "url"))) {
            rc = tool_fail(err, LODE_ERR_FORMAT, path, "line %d: %s", at,
                           !line ? why.text : "custom_id, url and body (an object) expected");
        } else if (json_object_get(seen, id)) {
            rc = tool_fail(err, LODE_ERR_FORMAT, path, "line %d: the custom_id \"%.60s\" is there twice", at, id);
        } else {
            struct line *more = b->n & (b->n - 1) ? b->lines : realloc(b->lines, (2 * b->n + 1) * sizeof *more);
            if (!more)
                rc = tool_fail(err, LODE_ERR_NOMEM, path, "no memory for its lines");
            else
                b->lines = more;
            if (rc == 0)
                b->lines[b->n++] = (struct line){.text = text, .len = strlen(text)};
            json_object_set_new(seen, id, json_true());
        }
        json_decref(line);
    }
    json_decref(seen);
    if (rc == 0 && b->n == 0)
        rc = tool_fail(err, LODE_ERR_FORMAT, path, "holds no request");
    return rc;
}

static char *custom_id(const struct line *l) {
    json_t *line = json_loadb(l->text, l->len, 0, NULL);
    char *id = id_of(line) ? strdup(id_of(line)) : NULL;
    json_decref(line);
    return id;
}

/* What an earlier run has answered: whole lines, of the first requests, in their order.  Half a line at
 * the end is cut off. */
static int go_on(struct batch *b, const char *path, struct lode_error *err) {
    struct stat st;
    char *text = NULL;
    size_t size = 0, good = 0;
    if (stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
        const int rc = input_read(path, 0, &text, &size, err);
        if (rc < 0)
            return rc;
    }
    while (good < size) {
        const char *end = memchr(text + good, '\n', size - good);
        if (!end)
            break;
        json_t *line = json_loadb(text + good, (size_t)(end - text) - good, JSON_ALLOW_NUL, NULL);
        char *id = b->done < b->n ? custom_id(&b->lines[b->done]) : NULL;
        const bool same = id && id_of(line) && !strcmp(id, id_of(line));
        json_decref(line);
        free(id);
        if (!same) {
            free(text);
            return tool_fail(err, LODE_ERR_FORMAT, path,
                             "line %zu is no answer to request %zu of the input: name another output",
                             b->done + 1, b->done + 1);
        }
        b->done++;
        good = (size_t)(end - text) + 1;
    }
    free(text);
    b->next = b->done;
    b->fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (b->fd < 0 || (S_ISREG(st.st_mode) && ftruncate(b->fd, (off_t)good)) ||
        (lseek(b->fd, 0, SEEK_END) < 0 && errno != ESPIPE))
        return tool_fail(err, LODE_ERR_IO, path, "cannot be written: %s", strerror(errno));
    return 0;
}

/* ---- a request ---- */

static bool stopped(void *user) {
    const struct batch *b = user;
    return interrupt_seen() || b->rc < 0;
}

static char *answer(struct batch *b, const struct line *l, size_t i, bool *failed) {
    json_t *line = json_loadb(l->text, l->len, 0, NULL);
    const char *method = json_string_value(json_object_get(line, "method"));
    char *body = json_dumps(json_object_get(line, "body"), JSON_COMPACT), *reply = NULL, id[40];
    int status = 400;
    if (method && strcmp(method, "POST") != 0)
        reply = strdup("{\"error\":{\"message\":\"method: POST expected\",\"type\":\"invalid_request_error\"}}");
    else if (body)
        status = serve_ask(b->server, json_string_value(json_object_get(line, "url")), body, strlen(body),
                           stopped, b, &reply);
    json_t *parsed = reply ? json_loads(reply, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
    json_t *out = NULL;
    snprintf(id, sizeof id, "batch_req_%zu", i + 1);
    *failed = status != 200;
    if (parsed) {
        const json_t *e = json_object_get(parsed, "error");
        const char *message = json_string_value(json_object_get(e, "message"));
        out = json_pack("{s:s, s:O, s:{s:i, s:s, s:o}, s:o}", "id", id, "custom_id",
                        json_object_get(line, "custom_id"), "response", "status_code", status,
                        "request_id", id, "body", parsed, "error",
                        *failed ? json_pack("{s:i, s:s}", "code", status, "message",
                                            message ? message : "")
                                : json_null());
    }
    char *text = out ? json_dumps(out, JSON_COMPACT) : NULL;
    json_decref(out);
    json_decref(line);
    free(body);
    free(reply);
    return text;
}

/* With the lock held: what is next in order leaves. */
static void write_ready(struct batch *b) {
    while (b->rc == 0 && b->done < b->n && b->lines[b->done].answer) {
        char *text = b->lines[b->done].answer;
        size_t len = strlen(text), at = 0;
        text[len++] = '\n'; /* in place of its end */
        while (at < len && b->rc == 0) {
            const ssize_t n = write(b->fd, text + at, len - at);
            if (n > 0)
                at += (size_t)n;
            else if (errno != EINTR)
                b->rc = tool_fail(&b->err, LODE_ERR_IO, "output", "cannot be written: %s", strerror(errno));
        }
        free(text);
        b->lines[b->done++].answer = NULL;
    }
    progress_update(&b->bar, b->done);
    pthread_cond_broadcast(&b->written);
}

static void *work(void *user) {
    struct batch *b = user;
    pthread_mutex_lock(&b->lock);
    while (b->next < b->n && !stopped(b)) {
        if (b->next >= b->done + b->window) {
            pthread_cond_wait(&b->written, &b->lock);
            continue;
        }
        const size_t i = b->next++;
        bool failed;
        pthread_mutex_unlock(&b->lock);
        char *text = answer(b, &b->lines[i], i, &failed);
        pthread_mutex_lock(&b->lock);
        if (stopped(b)) { /* it was cut: the next run answers it */
            free(text);
        } else if (!text) {
            b->rc = tool_fail(&b->err, LODE_ERR_NOMEM, "batch", "no memory for an answer");
        } else {
            b->lines[i].answer = text;
            b->failed += failed;
            write_ready(b);
        }
    }
    pthread_cond_broadcast(&b->written);
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

/* ---- the whole ---- */

static int run_workers(struct batch *b, size_t n, struct lode_error *err) {
    pthread_t *ids = calloc(n, sizeof *ids);
    size_t started = 0;
    if (!ids)
        return tool_fail(err, LODE_ERR_NOMEM, "batch", "no memory");
    b->window = n * AHEAD;
    progress_begin(&b->bar, "answered", "requests", b->n);
    while (started < n && pthread_create(&ids[started], NULL, work, b) == 0)
        started++;
    for (size_t i = 0; i < started; i++)
        pthread_join(ids[i], NULL);
    progress_end(&b->bar);
    free(ids);
    if (b->rc < 0)
        *err = b->err;
    else if (started == 0)
        return tool_fail(err, LODE_ERR_NOMEM, "batch", "no thread can be started");
    return b->rc;
}

static int batch(const struct opts *o, struct args *a, struct batch *b, struct lode_error *err) {
    struct serve_models *models = NULL;
    char *text = NULL;
    size_t size;
    int rc = input_read(o->in, 0, &text, &size, err);
    if (rc == 0)
        rc = read_lines(b, text, o->in, err);
    if (rc == 0)
        rc = go_on(b, o->out, err);
    if (rc == 0 && b->done < b->n) {
        struct serve_opts so = {0};
        rc = serve_models_open(&models, a, sizeof *o, o->config, err);
        if (rc == 0) {
            serve_models_fill(models, &so);
            rc = serve_open(&b->server, &so, err);
        }
        interrupt_catch_all();
        if (rc == 0)
            rc = run_workers(b, (size_t)o->one.parallel, err);
        serve_close(b->server);
        serve_models_close(models);
    }
    if (b->fd >= 0 && close(b->fd) && rc == 0)
        rc = tool_fail(err, LODE_ERR_IO, o->out, "cannot be written: %s", strerror(errno));
    for (size_t i = 0; i < b->n; i++)
        free(b->lines[i].answer);
    free(b->lines);
    free(text);
    return rc;
}

int verb_batch(int argc, char **argv) {
    struct opts o = {0};
    struct args a;
    struct lode_error err = {0};
    struct batch b = {.fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER, .written = PTHREAD_COND_INITIALIZER};
    const int status = args_main(&a, &spec, &o, argc, argv);
    if (status >= 0)
        return status;
    if (!o.in || !o.out)
        return args_usage_error(&spec, "IN.jsonl and -o OUT.jsonl are needed");
    if (!o.one.load.model && !o.config)
        return args_usage_error(&spec, "which model? (-m MODEL)");
    if (batch(&o, &a, &b, &err) < 0)
        return tool_report(&err);
    fprintf(stderr, "lode: %zu of %zu answered, %zu of them with an error in this run\n", b.done, b.n, b.failed);
    return b.done < b.n ? 130 : 0;
}

#else

int verb_batch(int argc, char **argv) {
    struct opts o = {0};
    struct args a;
    const int status = args_main(&a, &spec, &o, argc, argv);
    return status >= 0 ? status : tool_left_out("batch", "libmicrohttpd");
}

#endif
