/* log.c - see log.h. */
#include "serve/log.h"

#include "base/buf.h"
#include "base/error.h"
#include "serve/fields.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct log {
    struct log_opts o;
    pthread_mutex_t lock;
    FILE *f;
};

int log_open(struct log **out, const struct log_opts *opts, struct lode_error *err) {
    struct log *l = calloc(1, sizeof *l);
    *out = NULL;
    if (!l)
        return lode_fail(err, LODE_ERR_NOMEM, "", "no memory for the log");
    l->o = *opts;
    l->f = opts->file ? fopen(opts->file, "ae") : stderr;
    if (!l->f) {
        free(l);
        return lode_fail(err, LODE_ERR_IO, opts->file, "cannot be written: %s", strerror(errno));
    }
    pthread_mutex_init(&l->lock, NULL);
    *out = l;
    return 0;
}

void log_close(struct log *l) {
    if (!l)
        return;
    if (l->f != stderr)
        fclose(l->f);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

bool log_wants(const struct log *l, enum log_level level) { return l && (int)level <= l->o.level; }

void log_reopen(struct log *l) {
    FILE *f = l->o.file ? fopen(l->o.file, "ae") : NULL;
    if (!f)
        return;
    pthread_mutex_lock(&l->lock);
    FILE *old = l->f;
    l->f = f;
    pthread_mutex_unlock(&l->lock);
    fclose(old);
}

static void add_time(struct lode_buf *b) {
    struct timespec t;
    struct tm tm;
    char text[32];
    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &tm);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    lode_buf_addf(b, "%s.%03ldZ", text, t.tv_nsec / 1000000);
}

/* A value as JSON writes it; as text, a word stays bare. */
static void add_value(struct lode_buf *b, const json_t *v, bool json) {
    const char *s = json_string_value(v);
    char *text = NULL;
    if (s && !json && *s && !strpbrk(s, " \"\\=\n\r\t"))
        lode_buf_addz(b, s);
    else if (json_is_real(v))
        lode_buf_addf(b, "%.6g", json_real_value(v));
    else
        lode_buf_addz(b, (text = json_text_as(v, JSON_ENSURE_ASCII)) ? text : "null");
    free(text);
}

void log_event(struct log *l, enum log_level level, const char *event, json_t *fields) {
    static const char *const names[] = {"error", "warning", "info", "detail"};
    struct lode_buf b = {0};
    const char *key;
    json_t *v;
    if (!log_wants(l, level)) {
        json_decref(fields);
        return;
    }
    if (l->o.json)
        lode_buf_addz(&b, "{\"ts\":\"");
    add_time(&b);
    lode_buf_addf(&b, l->o.json ? "\",\"level\":\"%s\",\"event\":\"%s\"" : " %s %s", names[level], event);
    json_object_foreach(fields, key, v) {
        lode_buf_addf(&b, l->o.json ? ",\"%s\":" : " %s=", key);
        add_value(&b, v, l->o.json);
    }
    lode_buf_addz(&b, l->o.json ? "}\n" : "\n");
    if (!b.failed) {
        pthread_mutex_lock(&l->lock);
        fwrite(b.data, 1, b.len, l->f);
        fflush(l->f);
        pthread_mutex_unlock(&l->lock);
    }
    lode_buf_free(&b);
    json_decref(fields);
}
