#include "profile.h"

#include "out.h"
#include "progress.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct profile {
    const struct lode_model *m;
    const struct load_opts *o;
    struct lode_profile left_out, last, step; /* last: at the end of the latest step */
    struct profile_steps steps;
    uint64_t n_steps;
    double start;
    FILE *lines; /* --profile-tokens, a stream in its place from the first step on; NULL: nobody asked */
    bool paused;
};

void profile_add_layer(struct lode_profile_layer *to, const struct lode_profile_layer *by, int sign) {
    const uint64_t s = sign < 0 ? UINT64_MAX : 1; /* wraps to what is meant */
    to->seconds += sign * by->seconds;
    to->waited += sign * by->waited;
    to->uses += s * by->uses;
    to->hits += s * by->hits;
    to->bytes += s * by->bytes;
    to->guesses += s * by->guesses;
    to->guessed += s * by->guessed;
    to->gpu_uses += s * by->gpu_uses;
    to->gpu_hits += s * by->gpu_hits;
    to->gpu_bytes += s * by->gpu_bytes;
}

/* to += sign * by, of all that is counted. */
static void add(struct lode_profile *to, const struct lode_profile *by, int sign) {
    const uint64_t s = sign < 0 ? UINT64_MAX : 1;
    to->steps += s * by->steps;
    to->rows += s * by->rows;
    to->cancelled += s * by->cancelled;
    to->seconds += sign * by->seconds;
    to->head += sign * by->head;
    to->busy += sign * by->busy;
    for (uint32_t i = 0; i < by->n_layers; i++)
        profile_add_layer(&to->layers[i], &by->layers[i], sign);
}

/* ---- steps ---- */

static void sum_up(struct profile_step *s, const struct lode_profile *p) {
    s->seconds = p->seconds;
    s->head = p->head;
    s->cancelled = p->cancelled;
    for (uint32_t l = 0; l < p->n_layers; l++) {
        profile_add_layer(&s->sum, &p->layers[l], 1);
        if (p->layers[l].seconds > s->worst_seconds) {
            s->worst = l;
            s->worst_seconds = p->layers[l].seconds;
        }
    }
}

static void keep_slowest(struct profile_steps *all, const struct profile_step *s) {
    uint32_t i = all->n_slowest;
    while (i > 0 && all->slowest[i - 1].seconds < s->seconds)
        i--;
    if (i == PROFILE_SLOWEST)
        return;
    all->n_slowest += all->n_slowest < PROFILE_SLOWEST;
    memmove(&all->slowest[i + 1], &all->slowest[i], (all->n_slowest - i - 1) * sizeof *s);
    all->slowest[i] = *s;
}

/* What was counted since the latest step; what others did meanwhile is among it. */
static void stepped(void *user, uint32_t n_tokens, uint32_t n_sequences, uint32_t pos) {
    struct profile *p = user;
    if (p->paused)
        return;
    lode_model_profile(p->m, &p->step);
    struct profile_step s = {.number = ++p->n_steps,
                             .at = clock_now() - p->start,
                             .n_tokens = n_tokens,
                             .n_sequences = n_sequences,
                             .pos = pos};
    add(&p->step, &p->last, -1);
    add(&p->last, &p->step, 1);
    sum_up(&s, &p->step);
    if (n_tokens == n_sequences) {
        p->steps.n_single++;
        p->steps.seconds += s.seconds;
        keep_slowest(&p->steps, &s);
    }
    if (p->lines) {
        profile_print_step(p->lines, &s, &p->step);
        fflush(p->lines); /* for who follows it, and whatever ends the program; profile_finish tells of errors */
    }
}

/* ---- interface ---- */

static int fail_file(const char *path, struct lode_error *err) {
    return tool_fail(err, LODE_ERR_IO, path, "it cannot be written: %s", strerror(errno));
}

int profile_begin(struct profile **out, const struct lode_model *m, const struct load_opts *o,
                  struct lode_error *err) {
    *out = NULL;
    if (!o->profile && !o->profile_json && !o->profile_tokens && !o->hot)
        return 0;
    const char *const files[] = {o->profile_json, o->profile_tokens, o->hot};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const int rc = files[i] ? out_may_write(files[i], err) : 0;
        if (rc < 0)
            return rc;
        for (size_t j = 0; files[i] && j < i; j++)
            if (files[j] && !strcmp(files[i], files[j]))
                return tool_fail(err, LODE_ERR_ARG, files[i], "is named for two of --profile-json, --profile-tokens and "
                                 "--hot-experts: each needs its own");
    }
    struct profile *p = calloc(1, sizeof *p);
    if (!p)
        return tool_fail(err, LODE_ERR_NOMEM, "--profile", "out of memory");
    p->m = m;
    p->o = o;
    if (o->profile_tokens && !(p->lines = fopen(o->profile_tokens, "w"))) {
        free(p);
        return fail_file(o->profile_tokens, err);
    }
    p->start = clock_now();
    lode_model_profile(m, &p->last);
    *out = p;
    return 0;
}

void profile_watch(struct profile *p, struct lode_session_opts *so) {
    if (!p)
        return;
    so->stepped = stepped;
    so->stepped_user = p;
}

void profile_leave_out(struct profile *p, bool begin) {
    if (!p)
        return;
    lode_model_profile(p->m, &p->last);
    add(&p->left_out, &p->last, begin ? -1 : 1);
    p->paused = begin;
}

static int write_json(const struct profile *p, struct lode_error *err) {
    struct outfile out; /* what was there stays where the new one has no room */
    const int rc = outfile_open(&out, p->o->profile_json, err);
    if (rc < 0)
        return rc;
    profile_print_json(out.f, &p->step, &p->steps);
    return outfile_commit(&out, err);
}

int profile_finish(struct profile *p, int rc, struct lode_error *err) {
    if (!p)
        return rc;
    if (p->lines && (ferror(p->lines) | fclose(p->lines)) && rc >= 0)
        rc = fail_file(p->o->profile_tokens, err);
    lode_model_profile(p->m, &p->step);
    p->left_out.n_layers = p->step.n_layers;
    add(&p->step, &p->left_out, -1);
    if (rc >= 0 && p->o->profile)
        profile_print_table(stderr, &p->step, &p->steps);
    if (rc >= 0 && p->o->hot && p->step.streams) /* first: a profile can be made again */
        rc = lode_model_save_hot(p->m, p->o->hot, err);
    if (rc >= 0 && p->o->profile_json)
        rc = write_json(p, err);
    free(p);
    return rc;
}
