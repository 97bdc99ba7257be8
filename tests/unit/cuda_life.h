/* cuda_life.h - models of which parts are the host's, from a path to the last step, with a GPU that is not there (fake_cuda.h); and
 * the same with whatever can go wrong on the way. */
#ifndef LODE_TESTS_CUDA_LIFE_H
#define LODE_TESTS_CUDA_LIFE_H

#include "cuda_talk.h"
#include "effort.h"

/* The host's are the first layers, brought in long steps, or experts, with a cache of the GPU's. */
struct life {
    bool of_layers;
    uint32_t gpu_layers;   /* of_layers: the others are the host's */
    uint32_t n_cpu_moe;    /* else: layers whose experts are */
    uint32_t bring_rows;   /* rows from which a step brings */
    uint64_t gpu_cache;    /* bytes for experts */
    uint64_t expert_cache; /* experts are streamed; 0: no */
    uint64_t layer_cache;  /* layers are streamed; 0: no */
    bool no_mmap;
};

static const struct lode_session_opts life_session = {.ctx = CTX, .batch = BATCH, .threads = 2};

/* A model laid out so, ready to run. */
static int open_life(struct lode_model **model, const char *name, const struct life *life, struct lode_error *err) {
    const struct lode_model_opts mo = {.device = "cuda", .bring_rows = life->bring_rows, .no_mmap = life->no_mmap};
    int rc = lode_model_open(model, own_arch(name), &mo, err);
    if (rc < 0)
        return rc;
    lode_model_split(*model, life->of_layers ? life->gpu_layers : UINT32_MAX, life->n_cpu_moe);
    if (life->of_layers)
        lode_model_bring(*model);
    else
        lode_model_gpu_cache(*model, life->gpu_cache);
    rc = lode_model_fill(*model, life->expert_cache, life->layer_cache, err);
    if (rc < 0) {
        lode_model_free(*model);
        *model = NULL;
    }
    return rc;
}

static int live(const char *name, const struct life *life, struct lode_profile *profile, struct lode_error *err) {
    struct lode_model *model = NULL;
    struct lode_session *session = NULL;
    int rc = open_life(&model, name, life, err);
    if (rc < 0)
        return rc;
    rc = lode_session_create(&session, model, &life_session, err);
    if (rc == 0)
        rc = talk(session, err);
    if (rc == 0 && profile)
        lode_model_profile(model, profile);
    lode_session_free(session);
    lode_model_free(model);
    return rc;
}

/* Whichever thing of the device's is refused, alone or with all after it. */
static void refused_in_turn(const char *name, const struct life *life, uint64_t no_register) {
    uint64_t refused = 1;
    for (uint64_t n = 1; refused; n += effort_step(1))
        for (uint64_t on = 0; on < 2; on++) {
            struct lode_error err = {0};
            fake_cuda_reset();
            fake_cuda.no_register = no_register;
            fake_cuda.fail_at = n;
            fake_cuda.fail_on = on;
            const int rc = live(name, life, NULL, &err);
            refused = fake_cuda.n_refused;
            no_trace_left("something refused");
            if (rc < 0 && (rc != LODE_ERR_NOMEM || err.code != rc || !err.text[0]))
                fail_msg("thing %llu refused: %d (%s), said \"%s: %s\"", (unsigned long long)n, rc, lode_error_name(rc),
                         err.where, err.text);
        }
}

/* Whichever allocation of the host's is. */
static void host_refuses_in_turn(const char *name, const struct life *life) {
    struct lode_error err;
    must(live(name, life, NULL, &err), &err); /* and whatever libraries set up once */
    struct failmalloc_stats s = {.failed = 1};
    for (uint64_t n = 1; s.failed; n += effort_step(1)) {
        fake_cuda_reset();
        failmalloc_start(n, false);
        const int rc = live(name, life, NULL, &err);
        s = failmalloc_stop();
        host_refused(n, rc, &err, &s);
    }
}

/* Lost at every `step`-th call. */
static void lost_in_turn(const char *name, const struct life *life, uint64_t no_register, uint64_t step) {
    struct lode_error err;
    fake_cuda_reset();
    fake_cuda.no_register = no_register;
    must(live(name, life, NULL, &err), &err);
    const uint64_t all = fake_cuda.n_calls;
    for (uint64_t n = 1; n <= all; n += effort_step(step)) {
        fake_cuda_reset();
        fake_cuda.no_register = no_register;
        fake_cuda.lose_at = n;
        failmalloc_start(0, false);
        const int rc = live(name, life, NULL, &err);
        const struct failmalloc_stats s = failmalloc_stop();
        device_lost(name, n, all, rc, &err, &s);
    }
}

/* A device that fails at any call of a step, and works again, fails that step alone, of one row and of many. */
static void outlives_in_turn(const char *name, const struct life *life) {
    struct lode_model *model;
    struct lode_session *s;
    struct lode_error err;
    must(open_life(&model, name, life, &err), &err);
    must(lode_session_create(&s, model, &(struct lode_session_opts){.ctx = 2 * CTX, .batch = BATCH, .threads = 2}, &err), &err);
    must(talk(s, &err), &err);
    const size_t length = lode_session_length(s);
    const int32_t ids[20] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    bool whole = false; /* the long step, whose calls are the more */
    for (uint64_t n = 1; !whole; n++)
        for (size_t rows = 1; rows <= 20; rows += 19) {
            fake_cuda.lose_at = fake_cuda.n_calls + n;
            const int rc = lode_session_eval(s, ids, rows, &err);
            fake_cuda.lose_at = 0;
            whole = rc == 0;
            if (rc < 0 && rc != LODE_ERR_DEVICE)
                fail_msg("lost at call %llu of a step: %d, said \"%s: %s\"", (unsigned long long)n, rc, err.where, err.text);
            if (rc == 0)
                must(lode_session_truncate(s, length, &err), &err);
            assert_int_equal(lode_session_length(s), length);
        }
    lode_session_free(s);
    lode_model_free(model);
    no_trace_left("a lost device");
}

/* What is planned for a budget, which is what is then taken of its VRAM. */
static struct lode_placement run_as_planned(const char *name, const struct lode_budget *b, uint32_t bring_rows) {
    struct lode_model *model;
    struct lode_session *session;
    struct lode_placement p;
    struct lode_error err;
    fake_cuda_reset();
    must(lode_model_open(&model, own_arch(name), &(struct lode_model_opts){.device = "cuda", .bring_rows = bring_rows}, &err), &err);
    must(lode_plan_place(model, &life_session, b, &p, &err), &err);
    assert_true(p.fits && p.size[LODE_RUNG_VRAM] <= p.budget[LODE_RUNG_VRAM]);
    lode_model_split(model, p.gpu_layers, p.cpu_experts);
    if (p.brings)
        lode_model_bring(model);
    if (p.gpu_beside)
        lode_model_gpu_cache(model, p.gpu_cache);
    must(lode_model_fill(model, 0, 0, &err), &err);
    must(lode_session_create(&session, model, &life_session, &err), &err);
    must(talk(session, &err), &err);
    const uint64_t plan = p.size[LODE_RUNG_VRAM], used = fake_cuda.most_used;
    if (used > plan || used < plan - plan / 100)
        fail_msg("%llu bytes were to be used, %llu were", (unsigned long long)plan, (unsigned long long)used);
    lode_session_free(session);
    lode_model_free(model);
    no_trace_left("a plan");
    return p;
}

#endif
