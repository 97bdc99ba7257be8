/* chat_routes.c - see chat_routes.h.  Built without SQLite, /lode/chats says so, and the page keeps
 * its chats in the browser. */
#include "serve/chat_routes.h"

#include "base/clock.h"
#include "base/error.h"
#include "lode/plan.h"
#include "serve/exchange.h"
#include "serve/fields.h"
#include "serve/json_read.h"
#include "serve/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef LODE_HAVE_SQLITE
#include "serve/chats.h"
#include "serve/guard.h"
#endif

static bool reading(const struct page_request *r) {
    return !strcmp(r->method, "GET") || !strcmp(r->method, "HEAD");
}

static void send_json(struct page_reply *reply, int status, json_t *value) {
    char *text = value ? json_text(value) : NULL;
    reply->status = status;
    lode_buf_clear(&reply->out);
    if (!text || !lode_buf_addz(&reply->out, text)) {
        reply->status = 503;
        reply->fixed = LODE_STR("{\"error\":{\"message\":\"out of memory\",\"code\":503}}");
    }
    free(text);
    json_decref(value);
}

static void send_error(struct page_reply *reply, int status, const struct lode_error *err) {
    send_json(reply, status, openai_error(status, err));
}

void chat_routes_refuse(struct page_reply *reply, int status, const char *text) {
    struct lode_error err = {.code = LODE_ERR_ARG};
    snprintf(err.text, sizeof err.text, "%s", text);
    send_error(reply, status, &err);
}

/* ---- /lode/status ---- */

/* Bytes of this process that are in memory, of them its own. */
static void read_memory(int64_t *resident, int64_t *own) {
    long long pages = 0, shared = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%*d %lld %lld", &pages, &shared) != 2)
        pages = shared = 0;
    if (f)
        fclose(f);
    *resident = (int64_t)pages * sysconf(_SC_PAGESIZE);
    *own = (int64_t)(pages - shared) * sysconf(_SC_PAGESIZE);
}

static json_t *model_json(const struct served *v) {
    const struct lode_model_info *m = lode_model_info(v->model);
    struct lode_memory_plan p = {0};
    struct lode_error err;
    struct lode_scheduler_stats st;
    const uint32_t slots = lode_scheduler_slots(v->scheduler);
    const struct lode_session_opts opts = {.ctx = lode_scheduler_ctx(v->scheduler)};
    lode_scheduler_stats(v->scheduler, &st);
    const bool planned = lode_plan_memory(v->model, &opts, &p, &err) == 0 && p.ctx;
    return json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:b, s:o}", "id", v->name, "arch", m->arch,
        "path", m->path, "n_params", (json_int_t)m->n_params, "size", (json_int_t)m->size, "ctx",
        (json_int_t)opts.ctx, "ctx_train", (json_int_t)m->ctx_train, "slots", (json_int_t)slots,
        "thinks", v->template && strstr(v->template, "enable_thinking"), "plan",
        !planned ? json_null()
                 : json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "weights", (json_int_t)p.weights,
                             "repacked", (json_int_t)p.repacked, "kv",
                             (json_int_t)((double)p.kv / p.ctx * (double)st.kv_size), "state",
                             (json_int_t)(p.state * slots), "work", (json_int_t)p.work, "available",
                             (json_int_t)p.available));
}

static json_t *work_json(const struct lode_scheduler_stats *st) {
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "running",
                     (json_int_t)st->running, "waiting", (json_int_t)st->waiting, "kv_used",
                     (json_int_t)st->kv_used, "kv_size", (json_int_t)st->kv_size, "cached_bytes",
                     (json_int_t)st->cached_bytes, "prompt_tokens", (json_int_t)st->prompt_tokens,
                     "reused_tokens", (json_int_t)st->reused_tokens, "generated_tokens",
                     (json_int_t)st->generated_tokens, "steps", (json_int_t)st->steps, "fed_tokens",
                     (json_int_t)st->fed_tokens, "step_seconds", st->seconds);
}

struct models_now {
    json_t *list;
    struct lode_scheduler_stats work; /* of all */
};

static void see_model(void *user, const struct model_view *v) {
    struct models_now *now = user;
    struct lode_scheduler_stats *w = &now->work;
    json_array_append_new(now->list,
                          v->state == MODEL_LOADED
                              ? model_json(v->served)
                              : json_pack("{s:s, s:s, s:I, s:n}", "id", v->spec->name, "path",
                                          v->spec->path, "size", (json_int_t)v->size, "plan"));
    w->running += v->stats.running;
    w->waiting += v->stats.waiting;
    w->kv_used += v->stats.kv_used;
    w->kv_size += v->stats.kv_size;
    w->cached_bytes += v->stats.cached_bytes;
    w->prompt_tokens += v->stats.prompt_tokens;
    w->reused_tokens += v->stats.reused_tokens;
    w->generated_tokens += v->stats.generated_tokens;
    w->steps += v->stats.steps;
    w->fed_tokens += v->stats.fed_tokens;
    w->seconds += v->stats.seconds;
}

static const char *why_none(const struct server *s) {
    return *s->no_chats ? s->no_chats : "the server was started with --no-chats";
}

/* Where the chats are: {"kept": true, path, notice}, or why the browser must keep them. */
static json_t *chats_json(struct server *s) {
#ifdef LODE_HAVE_SQLITE
    if (s->chats) {
        struct lode_buf notice = {0};
        chats_notice(s->chats, &notice);
        json_t *v = json_pack("{s:b, s:s, s:s%}", "kept", 1, "path", s->o.chats, "notice",
                              lode_buf_str(&notice).data, notice.len);
        lode_buf_free(&notice);
        return v;
    }
#endif
    return json_pack("{s:b, s:s}", "kept", 0, "why", why_none(s));
}

static json_t *status_json(struct server *s) {
    int64_t resident, own;
    read_memory(&resident, &own);
    const double at = lode_clock();
    struct models_now now = {.list = json_array()};
    models_each(s->models, see_model, &now);
    return json_pack("{s:s, s:f, s:I, s:{s:I, s:I}, s:o, s:o, s:o}", "version", LODE_VERSION,
                     "clock", at, "uptime", (json_int_t)(time(NULL) - s->started), "memory", "resident",
                     (json_int_t)resident, "own", (json_int_t)own, "models", now.list, "work",
                     work_json(&now.work), "chats", chats_json(s));
}

/* ---- /lode/chats ---- */

#ifdef LODE_HAVE_SQLITE

static int status_of_chats(const struct lode_error *err) {
    switch (err->code) {
    case LODE_ERR_MISSING:
        return 404;
    case LODE_ERR_LIMIT:
        return !strcmp(err->where, "chats") ? 507 : 413;
    case LODE_ERR_CANCELLED:
    case LODE_ERR_NOMEM:
        return 503;
    case LODE_ERR_ARG:
        return 400;
    default:
        return 500;
    }
}

static uint32_t number_arg(const struct page_request *r, const char *name) {
    const char *s = r->arg ? r->arg(r->user, name) : NULL;
    const unsigned long n = s ? strtoul(s, NULL, 10) : 0;
    return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

static int put_chat(struct server *s, const char *id, const struct page_request *r,
                    struct page_reply *reply, struct lode_error *err) {
    json_error_t why;
    json_t *body = json_read(r->len ? r->body : "", r->len, JSON_REJECT_DUPLICATES, &why);
    int rc;
    if (!json_is_object(body))
        rc = lode_fail(err, LODE_ERR_ARG, "", "the body is not a JSON object%s%s", body ? "" : ": ",
                       body ? "" : why.text);
    else
        rc = chats_put(s->chats, id, body, err);
    json_decref(body);
    if (rc == 0)
        lode_buf_addz(&reply->out, "{\"ok\":true}");
    return rc;
}

static void answer_chats(struct server *s, const struct page_request *r, struct page_reply *reply) {
    const char *id = r->path + strlen("/lode/chats");
    struct lode_error err = {0};
    int rc;
    id += *id == '/';
    if (!*id && reading(r)) {
        const struct chats_query q = {.text = r->arg ? r->arg(r->user, "q") : NULL,
                                      .offset = number_arg(r, "offset"),
                                      .limit = number_arg(r, "limit")};
        rc = chats_list(s->chats, &q, &reply->out, &err);
    } else if (*id && reading(r)) {
        rc = chats_get(s->chats, id, &reply->out, &err);
    } else if (*id && !strcmp(r->method, "PUT")) {
        rc = put_chat(s, id, r, reply, &err);
    } else if (*id && !strcmp(r->method, "DELETE")) {
        rc = chats_delete(s->chats, id, &err);
        lode_buf_addz(&reply->out, "{\"ok\":true}");
    } else {
        chat_routes_refuse(reply, 405, "GET expected, or PUT and DELETE of one chat");
        return;
    }
    if (rc == 0 && reply->out.failed)
        rc = lode_fail(&err, LODE_ERR_NOMEM, "chats", "out of memory");
    if (rc < 0) {
        lode_buf_free(&reply->out);
        send_error(reply, status_of_chats(&err), &err);
    }
}

/* Chats that every caller on the network could read are kept only where somebody asked for it. */
int page_init(struct server *s, struct lode_error *err) {
    if (!s->o.chats)
        return 0;
    if (!s->loopback && !guard_keys(s->guard) && !s->o.chats_asked) {
        snprintf(s->no_chats, sizeof s->no_chats,
                 "the server listens beyond this machine without a key, so "
                 "that anybody could read them (--api-key or --chats FILE keeps them)");
        return 0;
    }
    LODE_TRY(chats_create(&s->chats, s->o.chats, s->o.chats_size, err));
    /* A file that is there is looked at now, so that damage is reported at the start; one that
     * nobody asked for is made when there is a chat to keep. */
    const bool now = s->o.chats_asked || access(s->o.chats, F_OK) == 0;
    const int rc = now ? chats_open(s->chats, err) : 0;
    if (rc < 0 && s->o.chats_asked)
        return rc;
    struct lode_buf note = {0};
    if (rc < 0) {
        snprintf(s->no_chats, sizeof s->no_chats, "%.120s: %.380s", err->where, err->text);
        chats_free(s->chats);
        s->chats = NULL;
        lode_buf_addf(&note, "The page's chats stay in the browser: %s", s->no_chats);
    } else {
        chats_notice(s->chats, &note);
    }
    if (note.len && s->o.note && lode_buf_addc(&note, '\0'))
        s->o.note(s->o.user, note.data);
    lode_buf_free(&note);
    return 0;
}

void page_deinit(struct server *s) { chats_free(s->chats); }

#else

static void answer_chats(struct server *s, const struct page_request *r, struct page_reply *reply) {
    (void)s, (void)r, (void)reply; /* s->chats is always NULL */
}

int page_init(struct server *s, struct lode_error *err) {
    snprintf(s->no_chats, sizeof s->no_chats, "this build has no SQLite");
    if (s->o.chats_asked)
        return lode_fail(
            err, LODE_ERR_UNSUPPORTED, "--chats",
            "left out of this build: it needs SQLite (scripts/packages.sh install build)");
    return 0;
}

void page_deinit(struct server *s) { (void)s; }

#endif

void chat_routes_answer(struct server *s, const struct page_request *r, struct page_reply *reply) {
    if (!strcmp(r->path, "/lode/status")) {
        if (reading(r))
            send_json(reply, 200, status_json(s));
        else
            chat_routes_refuse(reply, 405, "GET expected");
    } else if (!s->chats) {
        chat_routes_refuse(reply, 501, why_none(s));
    } else {
        answer_chats(s, r, reply);
    }
}
