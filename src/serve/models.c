/* models.c - see models.h. */
#include "serve/models.h"

#include "serve/forms.h"

#include "serve/log.h"
#include "serve/vectors.h"

#include "base/clock.h"
#include "base/error.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROOM_SECONDS = 30,  /* what a request waits for others to end that use the memory, or a lost device */
    RETRY_SECONDS = 30, /* at most until a model whose device was lost is tried again; at first one */
};

struct entry {
    struct served served; /* first: what requests hold */
    const struct serve_model *spec;
    size_t index;
    struct serve_loaded loaded;
    uint64_t size; /* bytes that it takes, as far as is known, */
    uint64_t grown; /* and what was added since it was loaded */
    enum model_state state;
    uint32_t pins, waits, ctx, slots; /* waits: pins of those that wait for it */
    uint32_t refused;                 /* how often it could not be loaded again since its device was lost */
    double retry;                     /* clock: not before */
    bool lost;                        /* its device was, and it has not been loaded since */
    double used; /* clock of its last request's end */
    uint64_t loads;
    struct metrics metrics;
    struct lode_scheduler_stats past; /* of the times before this one */
};

struct models {
    struct server *s;
    pthread_mutex_t lock; /* for all below, but for what a pinned entry points to */
    pthread_cond_t moved; /* a state or the last pin of an entry */
    struct entry *entries; /* (n) */
    size_t n;
    bool running; /* all that was wanted from the start is there */
};

/* ---- loading; without the lock, the state says that it is ours ---- */

static void close_entry(struct models *m, struct entry *e) {
    /* a request that was cut off may hold a form until its step is done */
    lode_scheduler_free(e->loaded.scheduler);
    served_deinit(&e->served);
    m->s->o.close(m->s->o.models_user, e->index, &e->loaded);
    e->loaded = (struct serve_loaded){0};
}

static int open_entry(struct models *m, struct entry *e, struct lode_error *err) {
    const int rc = m->s->o.open(m->s->o.models_user, e->index, &e->loaded, err);
    if (rc < 0) {
        e->loaded = (struct serve_loaded){0};
        return rc;
    }
    const struct serve_loaded *l = &e->loaded;
    e->served = (struct served){.name = e->spec->name,
                                .model = l->model,
                                .scheduler = l->scheduler,
                                .template = l->template,
                                .sampling = l->sampling,
                                .embed = l->embed,
                                .metrics = &e->metrics};
    const int made = served_init(&e->served, err);
    if (made < 0)
        close_entry(m, e);
    return made;
}

/* ---- with the lock held ---- */

static void add_stats(struct lode_scheduler_stats *to, const struct lode_scheduler_stats *st) {
    to->finished += st->finished;
    to->cancelled += st->cancelled;
    to->failed += st->failed;
    to->refused += st->refused;
    to->prompt_tokens += st->prompt_tokens;
    to->reused_tokens += st->reused_tokens;
    to->generated_tokens += st->generated_tokens;
    to->steps += st->steps;
    to->fed_tokens += st->fed_tokens;
    to->seconds += st->seconds;
    to->evictions += st->evictions;
    to->preemptions += st->preemptions;
    to->recomputed_tokens += st->recomputed_tokens;
    to->disk.corrupt += st->disk.corrupt;
    to->disk.evicted += st->disk.evicted;
    to->disk.written += st->disk.written;
    to->disk.read += st->disk.read;
    to->disk.errors += st->disk.errors;
    to->expert_uses += st->expert_uses;
    to->expert_hits += st->expert_hits;
    to->expert_bytes += st->expert_bytes;
    to->gpu_expert_uses += st->gpu_expert_uses;
    to->gpu_expert_hits += st->gpu_expert_hits;
    to->gpu_expert_bytes += st->gpu_expert_bytes;
    for (size_t i = 0; i < LODE_SCHEDULER_BATCHES; i++)
        to->batches[i] += st->batches[i];
}

static void set_state(struct models *m, struct entry *e, enum model_state state) {
    e->state = state;
    pthread_cond_broadcast(&m->moved);
}

static bool is_lost(const struct entry *e) { return e->state == MODEL_LOADED && lode_model_lost(e->loaded.model); }

static void unload(struct models *m, struct entry *e) {
    struct lode_scheduler_stats st;
    const bool lost = is_lost(e);
    lode_scheduler_stats(e->served.scheduler, &st);
    add_stats(&e->past, &st);
    e->grown = 0;
    set_state(m, e, MODEL_UNLOADING);
    pthread_mutex_unlock(&m->lock);
    close_entry(m, e);
    log_event(m->s->log, lost ? LOG_ERROR : LOG_INFO, lost ? "lost" : "unload",
              json_pack("{s:s}", "model", e->spec->name));
    pthread_mutex_lock(&m->lock);
    e->lost = e->lost || lost;
    set_state(m, e, MODEL_UNLOADED);
}

static int load(struct models *m, struct entry *e, struct lode_error *err) {
    set_state(m, e, MODEL_LOADING);
    pthread_mutex_unlock(&m->lock);
    log_event(m->s->log, LOG_INFO, "load", json_pack("{s:s}", "model", e->spec->name));
    const int rc = open_entry(m, e, err);
    if (rc < 0 && m->running) /* at the start it is the caller's to say */
        log_event(m->s->log, LOG_ERROR, "load",
                  json_pack("{s:s, s:s, s:s}", "model", e->spec->name, "where", err->where, "error", err->text));
    pthread_mutex_lock(&m->lock);
    if (rc == 0) {
        if (e->loaded.size)
            e->size = e->loaded.size;
        e->loads++;
        e->used = lode_clock();
        e->ctx = served_ctx(&e->served);
        e->slots = lode_scheduler_slots(e->served.scheduler);
    }
    set_state(m, e, rc == 0 ? MODEL_LOADED : MODEL_UNLOADED);
    return rc;
}

/* Whether it fits beside those that are there. */
static bool fits(const struct models *m, const struct entry *e) {
    uint64_t sum = e->size + e->grown;
    uint32_t n = 1;
    for (size_t i = 0; i < m->n; i++)
        if (m->entries[i].state != MODEL_UNLOADED && &m->entries[i] != e) {
            sum += m->entries[i].size + m->entries[i].grown;
            n++;
        }
    return (!m->s->o.budget || sum <= m->s->o.budget) && (!m->s->o.at_once || n <= m->s->o.at_once);
}

static struct entry *longest_unused(struct models *m) {
    struct entry *best = NULL;
    for (size_t i = 0; i < m->n; i++) {
        struct entry *e = &m->entries[i];
        if (e->state == MODEL_LOADED && !e->pins && (!best || e->used < best->used))
            best = e;
    }
    return best;
}

static void wait_a_second(struct models *m) {
    const struct timespec t = lode_clock_after(1000);
    pthread_cond_timedwait(&m->moved, &m->lock, &t);
}

/* False: something changed while we waited or unloaded; look again. */
static bool has_room(struct models *m, const struct entry *e, double end) {
    if (fits(m, e))
        return true;
    struct entry *victim = longest_unused(m);
    if (victim)
        unload(m, victim);
    else if (lode_clock() < end)
        wait_a_second(m);
    return false;
}

/* A device that was lost comes back when nobody has it any more: all models on it go, as soon as the requests
 * that met the loss have ended.  False: one went, or is still there; look again. */
static bool are_lost_gone(struct models *m) {
    for (size_t i = 0; i < m->n; i++) {
        struct entry *e = &m->entries[i];
        if (!is_lost(e))
            continue;
        if (e->pins == e->waits)
            unload(m, e);
        else
            wait_a_second(m);
        return false;
    }
    return true;
}

/* Loads it; where its device was lost and it cannot be, it is not tried again at once. */
static int load_again(struct models *m, struct entry *e, struct lode_error *err) {
    struct lode_error why;
    if (!e->lost)
        return load(m, e, err);
    const double left = e->retry - lode_clock();
    if (e->refused && left > 0)
        return lode_fail(err, LODE_ERR_LIMIT, "queue",
                         "the device of \"%s\" was lost, and it could not be loaded again (tried %u times); "
                         "the next attempt may be in %.0f s",
                         e->spec->name, e->refused, left < 1 ? 1 : left);
    const int rc = load(m, e, &why);
    if (rc < 0) {
        const uint32_t wait = e->refused < 5 ? 1u << e->refused : RETRY_SECONDS;
        e->refused++;
        e->retry = lode_clock() + wait;
        return lode_fail(err, LODE_ERR_LIMIT, "queue", "the device of \"%s\" was lost, and it cannot be loaded again: %s: %s",
                         e->spec->name, why.where, why.text);
    }
    e->lost = false;
    e->refused = 0;
    return 0;
}

static int make_loaded(struct models *m, struct entry *e, struct lode_error *err) {
    const double end = lode_clock() + ROOM_SECONDS;
    if (m->s->o.budget && e->size > m->s->o.budget)
        return lode_fail(err, LODE_ERR_UNSUPPORTED, "model",
                         "\"%s\" takes %.0f MiB, the models together may have %.0f", e->spec->name,
                         (double)e->size / 0x1p20, (double)m->s->o.budget / 0x1p20);
    e->pins++; /* nobody may unload it again meanwhile, but where it is lost */
    e->waits++;
    int rc = 0;
    while (rc == 0 && (e->state != MODEL_LOADED || is_lost(e))) {
        if (atomic_load(&m->s->stopping))
            rc = lode_fail(err, LODE_ERR_LIMIT, "queue", "the server is stopping");
        else if (e->state != MODEL_UNLOADED && e->state != MODEL_LOADED)
            pthread_cond_wait(&m->moved, &m->lock);
        else if (are_lost_gone(m) && e->state == MODEL_UNLOADED && has_room(m, e, end))
            rc = load_again(m, e, err);
        else if (lode_clock() > end)
            rc = lode_fail(err, LODE_ERR_LIMIT, "queue",
                           e->lost || is_lost(e)
                               ? "a device was lost, and \"%s\" (%.0f MiB) waits for requests that still use it"
                               : "no memory for \"%s\" now: it needs %.0f MiB, other models are at work",
                           e->spec->name, (double)e->size / 0x1p20);
    }
    e->waits--;
    e->pins -= rc < 0;
    return rc;
}

static bool is_name(const char *own, const char *name, size_t n) {
    return strlen(own) == n && !memcmp(own, name, n);
}

static bool is_called(const struct serve_model *spec, const char *name, size_t n) {
    bool found = is_name(spec->name, name, n);
    for (size_t i = 0; i < spec->n_aliases; i++)
        found = found || is_name(spec->aliases[i], name, n);
    return found;
}

static struct entry *find(struct models *m, const char *name) {
    if (!name || !*name)
        return m->entries;
    static const char tag[] = ":latest"; /* Ollama's clients add it */
    const size_t n = strlen(name), n_tag = sizeof tag - 1;
    const bool tagged = n > n_tag && !strcmp(name + n - n_tag, tag);
    for (int without = 0; without <= tagged; without++)
        for (size_t i = 0; i < m->n; i++)
            if (is_called(m->entries[i].spec, name, without ? n - n_tag : n))
                return &m->entries[i];
    return m->s->o.strict ? NULL : m->entries;
}

/* ---- the calls ---- */

int models_pin(struct models *m, const char *name, struct served **out, struct lode_error *err) {
    struct entry *e = find(m, name);
    *out = NULL;
    if (!e)
        return lode_fail(err, LODE_ERR_MISSING, "model", "there is no model \"%.100s\"; /v1/models lists them",
                         name);
    pthread_mutex_lock(&m->lock);
    const int rc = make_loaded(m, e, err);
    pthread_mutex_unlock(&m->lock);
    if (rc == 0)
        *out = &e->served;
    return rc;
}

void models_unpin(struct models *m, struct served *served) {
    struct entry *e = (struct entry *)served;
    pthread_mutex_lock(&m->lock);
    e->used = lode_clock();
    if (--e->pins == e->waits)
        pthread_cond_broadcast(&m->moved);
    pthread_mutex_unlock(&m->lock);
}

int models_grow(struct models *m, struct served *served, uint64_t bytes, struct lode_error *err) {
    struct entry *e = (struct entry *)served, *victim;
    int rc = 0;
    pthread_mutex_lock(&m->lock);
    e->grown += bytes;
    while (e->state == MODEL_LOADED && !fits(m, e) && (victim = longest_unused(m)))
        unload(m, victim);
    if (!fits(m, e)) {
        e->grown -= bytes;
        rc = lode_fail(err, LODE_ERR_LIMIT, "model",
                       "\"%s\" takes %.0f MiB and needs %.0f more for vectors; the models together may "
                       "have %.0f (--models-memory)",
                       e->spec->name, (double)(e->size + e->grown) / 0x1p20, (double)bytes / 0x1p20,
                       (double)m->s->o.budget / 0x1p20);
    }
    pthread_mutex_unlock(&m->lock);
    return rc;
}

enum serve_kind models_first_kind(struct models *m) {
    pthread_mutex_lock(&m->lock);
    const struct entry *e = &m->entries[0];
    enum serve_kind kind = SERVE_CHATS;
    if (e->state == MODEL_LOADED && !e->served.scheduler)
        kind = vectors_scores(e->served.vectors) ? SERVE_SCORES : SERVE_VECTORS;
    else if (e->state == MODEL_LOADED && !e->served.tmpl)
        kind = SERVE_COMPLETIONS;
    pthread_mutex_unlock(&m->lock);
    return kind;
}

void models_sweep(struct models *m) {
    const uint32_t idle = m->s->o.idle;
    if (!idle)
        return;
    pthread_mutex_lock(&m->lock);
    for (size_t i = 0; i < m->n; i++) {
        struct entry *e = &m->entries[i];
        if (e->state == MODEL_LOADED && !e->pins && lode_clock() - e->used > idle)
            unload(m, e);
    }
    pthread_mutex_unlock(&m->lock);
}

void models_each(struct models *m, void (*fn)(void *user, const struct model_view *v), void *user) {
    pthread_mutex_lock(&m->lock);
    for (size_t i = 0; i < m->n; i++) {
        struct entry *e = &m->entries[i];
        struct model_view v = {.spec = e->spec,
                               .state = e->state,
                               .served = &e->served,
                               .metrics = &e->metrics,
                               .ctx = e->ctx,
                               .slots = e->slots,
                               .pins = e->pins,
                               .loads = e->loads,
                               .size = e->size + e->grown};
        if (e->state == MODEL_LOADED) {
            lode_scheduler_stats(e->served.scheduler, &v.stats);
            v.forms = forms_bytes(e->served.forms);
        }
        add_stats(&v.stats, &e->past);
        fn(user, &v);
    }
    pthread_mutex_unlock(&m->lock);
}

int models_create(struct models **out, struct server *s, struct lode_error *err) {
    struct models *m = calloc(1, sizeof *m);
    pthread_condattr_t attr;
    int rc = 0;
    *out = NULL;
    if (m)
        m->entries = calloc(s->o.n_models, sizeof *m->entries);
    if (!m || !m->entries) {
        free(m);
        return lode_fail(err, LODE_ERR_NOMEM, "", "no memory for the list of models");
    }
    m->s = s;
    m->n = s->o.n_models;
    pthread_mutex_init(&m->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&m->moved, &attr);
    pthread_condattr_destroy(&attr);
    for (size_t i = 0; i < m->n; i++) {
        m->entries[i].spec = &s->o.models[i];
        m->entries[i].index = i;
        m->entries[i].size = s->o.models[i].size;
        m->entries[i].served.name = s->o.models[i].name;
        metrics_init(&m->entries[i].metrics);
    }
    for (size_t i = 0; rc == 0 && i < m->n; i++)
        if (m->entries[i].spec->at_start) {
            struct served *d;
            rc = models_pin(m, m->entries[i].spec->name, &d, err);
            if (rc == 0)
                models_unpin(m, d);
        }
    m->running = true;
    if (rc < 0)
        models_free(m);
    else
        *out = m;
    return rc;
}

void models_free(struct models *m) {
    if (!m)
        return;
    for (size_t i = 0; i < m->n; i++) {
        if (m->entries[i].state == MODEL_LOADED)
            close_entry(m, &m->entries[i]);
        metrics_deinit(&m->entries[i].metrics);
    }
    pthread_cond_destroy(&m->moved);
    pthread_mutex_destroy(&m->lock);
    free(m->entries);
    free(m);
}
