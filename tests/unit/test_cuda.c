/* CUDA's host side with a driver that stands in (fake_cuda.h), so that everything can go wrong in turn:
 *
 *     whatever runs keeps the driver's rules: no copy past an allocation, no launch too large
 *     whichever of the things that a device gives is refused, and whichever allocation of the host's,
 *         the call that met it says what was short, nothing is leaked, and the next attempt works
 *     a device that is lost at any call fails what runs on it; sessions, schedulers and models stay what
 *         they are, and work again with a device that does
 *     memory that other programs have is not planned with
 *     weights arrive as they are, by two pinned buffers of which one is filled while the other goes
 */
#include "../fake_nccl/fake_nccl.h"
#include "../own_files.h"
#include "backend/cuda/cuda.h"
#include "cuda_rules.h"
#include "effort.h"
#include "model/model.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_PROMPT = 40, N_NEW = 4, CTX = 128, BATCH = 16 };

/* Tokens that the device draws, each step but the last begun before it is asked for. */
static int draw_some(struct lode_session *s, uint32_t n_vocab, int n, struct lode_error *err) {
    struct lode_sampler *sampler = NULL;
    struct lode_sampler_opts o;
    lode_sampler_defaults(&o);
    int rc = lode_sampler_create(&sampler, n_vocab, &o, err);
    for (int i = 0; rc == 0 && i < n; i++) {
        int32_t id = i ? lode_session_sample(s, sampler) : 1;
        lode_session_draw(s, sampler, i + 1 < n);
        rc = lode_session_eval(s, &id, 1, err);
    }
    lode_session_want(s, 0);
    lode_sampler_free(sampler);
    return rc;
}

static int talk(struct lode_session *s, uint32_t n_vocab, struct lode_error *err) {
    const int rc = say(s, N_PROMPT, N_NEW, err);
    return rc < 0 ? rc : draw_some(s, n_vocab, N_NEW, err);
}

/* What the driver's device has for what was wanted. */
static const char *numerics_of(const struct lode_model_opts *opts, bool on_cpu) {
    const bool fast = opts->numerics && strcmp(opts->numerics, "fast") == 0;
    if (fake_cuda.major < 8 || (!fast && (opts->numerics || on_cpu)))
        return "exact";
    return fast ? "fast (CUDA tensor cores)" : "tensor (CUDA tensor cores)";
}

/* From a path to the last step. */
static int live_with(const char *path, const struct lode_model_opts *opts, struct lode_error *err) {
    struct lode_model *model = NULL;
    struct lode_session *session = NULL;
    int rc = lode_model_load(&model, path, opts, err);
    if (rc == 0)
        assert_string_equal(lode_model_info(model)->numerics, numerics_of(opts, lode_model_info(model)->on_cpu));
    if (rc == 0)
        rc = lode_session_create(&session, model,
                                 &(struct lode_session_opts){.ctx = CTX, .batch = BATCH, .threads = 1}, err);
    if (rc == 0)
        rc = talk(session, lode_model_info(model)->n_vocab, err);
    lode_session_free(session);
    lode_model_free(model);
    return rc;
}

static int live(const char *path, const char *device, struct lode_error *err) {
    return live_with(path, &(struct lode_model_opts){.device = device}, err);
}

/* By rows on two devices; all is shared out that can be. */
static const struct lode_model_opts by_rows = {.device = "cuda:0,cuda:1", .split_mode = "row", .split_least = 1};

/* ---- all is well ---- */

static void every_architecture_keeps_the_rules(void **state) {
    (void)state;
    DIR *d = opendir(own_file("data/arch"));
    assert_non_null(d);
    unsigned n = 0;
    for (struct dirent *e; (e = readdir(d));) {
        char name[300];
        struct lode_error err;
        if (e->d_name[0] == '.')
            continue;
        snprintf(name, sizeof name, "arch/%s", e->d_name);
        for (uint64_t major = 7; major <= 9; major++)
            for (int i = 0; i < 3; i++) {
                static const char *const numerics[] = {NULL, "exact", "fast"};
                fake_cuda_reset();
                fake_cuda.major = major;
                must(live_with(own_model(name), &(struct lode_model_opts){.device = "cuda", .numerics = numerics[i]}, &err), &err);
                assert_true(fake_cuda.n_launches > 0);
                assert_true(fake_cuda.n_graphs > 0);
                no_trace_left(name);
            }
        for (int least = 0; least < 2; least++) {
            struct lode_model_opts o = by_rows;
            o.split_least = (uint64_t)least;
            fake_cuda_reset();
            fake_cuda.n_devices = 2;
            must(live_with(own_model(name), &o, &err), &err);
            assert_true(fake_cuda.n_graphs > 0 && fake_cuda.n_graphs % 2 == 0);
            assert_true(fake_cuda.n_exchanges > 8);
            no_trace_left(name);
        }
        n++;
    }
    closedir(d);
    assert_true(n > 20);
}

/* Body, head and draw are launched as one, and what a step tells the device comes by a kernel before them, not by a copy. */
static void a_drawn_step_is_one_graph(void **state) {
    struct lode_model *model = NULL;
    struct lode_session *s = NULL;
    struct lode_error err;
    (void)state;
    must(lode_model_load(&model, own_model("arch/qwen3"), &(struct lode_model_opts){.device = "cuda"}, &err), &err);
    must(lode_session_create(&s, model, &(struct lode_session_opts){.ctx = CTX, .batch = BATCH, .threads = 1}, &err), &err);
    const uint32_t n_vocab = lode_model_info(model)->n_vocab;
    must(draw_some(s, n_vocab, N_NEW, &err), &err); /* captured the second time */
    const uint64_t graphs = fake_cuda.n_graphs, copies = fake_cuda.n_copies_up;
    must(draw_some(s, n_vocab, N_NEW, &err), &err);
    assert_int_equal(fake_cuda.n_graphs - graphs, N_NEW);
    assert_int_equal(fake_cuda.n_copies_up - copies, 0);
    lode_session_free(s);
    lode_model_free(model);
    no_trace_left("drawn steps");
}

static void two_devices_keep_the_rules(void **state) {
    struct lode_error err;
    (void)state;
    fake_cuda.n_devices = 2;
    must(live(own_model("arch/qwen3"), "cuda:0,cuda:1", &err), &err);
    no_trace_left("two devices");
    must(live(own_model("arch/qwen3_next"), "cuda:0,cuda:1", &err), &err);
    no_trace_left("two devices");
}

/* What is on the device is what the file has, though every copy happens as late as it may. */
static void weights_arrive(void **state) {
    static const char *const names[] = {"arch/llama", "arch/qwen3", "arch/olmoe"};
    (void)state;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        struct lode_model *model;
        struct lode_error err;
        uint64_t n = 0, bytes = 0;
        fake_cuda_reset();
        must(lode_model_load(&model, own_model(names[k]), &(struct lode_model_opts){.device = "cuda"}, &err), &err);
        const struct lode_cuda *c = model->devices[1].cuda;
        assert_non_null(c);
        for (uint32_t i = 0; i < model->n_weights; i++) {
            const struct lode_weight *w = &model->weights[i];
            const size_t row = w->op.rows ? w->size / w->op.rows : 0;
            if (!(model->uses[i] & 2) || w->op.type != w->home->type || !lode_cuda_layouts[w->op.type].plain ||
                lode_cuda_row_size(w->op.type, w->op.cols) != row)
                continue; /* a kernel lays it out */
            const void *there = fake_cuda_look(c->weights[i]);
            const void *here = lode_source_data(model->source, w->home, w->offset, w->size);
            assert_non_null(there);
            assert_non_null(here);
            assert_memory_equal(there, here, w->size);
            n++;
            bytes += w->size;
        }
        assert_true(n >= 8 && bytes > 100000);
        assert_true(fake_cuda.n_overlaps >= n / 2);
        lode_model_free(model);
        no_trace_left(names[k]);
    }
}

/* Who wants few logits gets those, and beside others that want all nobody gets less. */
static void few_logits_cross_where_few_are_wanted(void **state) {
    struct lode_model *model;
    struct lode_session *s[40];
    struct lode_feed feeds[40];
    struct lode_error err;
    const int32_t ids[3] = {5, 6, 7};
    size_t n;
    (void)state;
    must(lode_model_load(&model, own_model("arch/qwen3"), &(struct lode_model_opts){.device = "cuda"}, &err), &err);
    for (int i = 0; i < 40; i++) { /* more than the head takes at once */
        must(lode_session_create(&s[i], model, &(struct lode_session_opts){.ctx = 256, .batch = 128, .with = i ? s[0] : NULL},
                                 &err),
             &err);
        feeds[i] = (struct lode_feed){s[i], ids, 3};
        lode_session_want(s[i], i % 3 ? (uint32_t)i : 0);
    }
    must(lode_session_step(feeds, 40, &err), &err);
    for (int i = 0; i < 40; i++) {
        const struct lode_best *best = lode_session_best(s[i], &n);
        assert_true(i % 3 ? best && n >= (size_t)i : !best && n == 0);
        assert_true(i % 3 ? !lode_session_logits(s[i]) : lode_session_logits(s[i]) != NULL);
        lode_session_want(s[i], 0);
    }
    must(lode_session_step(feeds, 40, &err), &err);
    for (int i = 0; i < 40; i++)
        assert_non_null(lode_session_logits(s[i]));
    lode_session_want(s[0], 300); /* more than there can be: LODE_BEST_MAX */
    must(lode_session_eval(s[0], ids, 3, &err), &err);
    assert_true(lode_session_best(s[0], &n) && n == LODE_BEST_MAX);
    must(lode_session_truncate(s[0], 1, &err), &err);
    assert_null(lode_session_best(s[0], &n));
    for (int i = 40; i-- > 0;)
        lode_session_free(s[i]);
    lode_model_free(model);
    no_trace_left("few logits");
}

static void count_routes(void *user, uint32_t layer, uint32_t pos, const uint32_t *experts, const float *weights,
                         uint32_t n_used) {
    unsigned *n = user;
    (void)layer, (void)pos, (void)experts, (void)weights;
    assert_true(n_used > 0);
    ++*n;
}

static void count_layers(void *user, uint32_t layer, uint32_t pos, const float *x, size_t n) {
    unsigned *rows = user;
    (void)layer, (void)pos, (void)x;
    assert_true(n > 0);
    ++*rows;
}

/* Whoever asks what layers give and routers choose is told on a device too, captured shapes or not. */
static void layers_and_routes_are_told(void **state) {
    struct lode_model *model;
    struct lode_session *s;
    struct lode_error err;
    unsigned n_routes[2] = {0}, n_rows[2] = {0};
    (void)state;
    for (int i = 0; i < 2; i++) {
        const struct lode_session_opts o = {.ctx = CTX, .batch = BATCH, .routes = count_routes, .routes_user = &n_routes[i],
                                            .trace = i ? count_layers : NULL, .trace_user = &n_rows[i]};
        must(lode_model_load(&model, own_model("arch/qwen3_moe"), &(struct lode_model_opts){.device = "cuda"}, &err), &err);
        must(lode_session_create(&s, model, &o, &err), &err);
        must(talk(s, lode_model_info(model)->n_vocab, &err), &err);
        const uint32_t n_layers = lode_model_info(model)->n_layers;
        assert_int_equal(n_routes[i], n_routes[0]);
        assert_true(n_routes[i] >= (n_layers - 1) * (N_PROMPT + N_NEW));
        assert_int_equal(n_rows[i] > 0, i);
        lode_session_free(s);
        lode_model_free(model);
    }
    no_trace_left("layers and routes");
}

/* ---- what is refused ---- */

static bool has_number(const char *text) {
    while (*text && !isdigit((unsigned char)*text))
        text++;
    return *text;
}

struct life {
    const char *name, *device;
    bool rows;
};

static int live_so(const struct life *l, struct lode_error *err) {
    return l->rows ? live_with(own_model(l->name), &by_rows, err) : live(own_model(l->name), l->device, err);
}

static const struct life lives[] = {
    {"arch/qwen3", "cuda", false},           {"arch/qwen3_moe", "cuda", false},
    {"arch/qwen3_5", "cuda", false},         {"quant/qwen3-256-Q5_0", "cuda", false},
    {"arch/gemma3", "cuda:0,cuda:1", false}, {"arch/qwen3_moe", "two, by rows", true},
};

static void what_a_device_refuses(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof lives / sizeof *lives; k++) {
        uint64_t refused = 1;
        for (uint64_t n = 1; refused; n += effort_step(1))
            for (uint64_t on = 0; on < 2; on++) {
                char what[128];
                struct lode_error err = {0};
                fake_cuda_reset();
                fake_cuda.n_devices = 2;
                fake_cuda.fail_at = n;
                fake_cuda.fail_on = on;
                const int rc = live_so(&lives[k], &err);
                refused = fake_cuda.n_refused;
                snprintf(what, sizeof what, "%s, thing %llu refused%s", lives[k].name, (unsigned long long)n,
                         on ? " and all after it" : "");
                no_trace_left(what);
                if (rc < 0 && (rc != LODE_ERR_NOMEM || err.code != rc || !err.text[0]))
                    fail_msg("%s: %d (%s), said \"%s: %s\"", what, rc, lode_error_name(rc), err.where, err.text);
                if (strstr(err.text, "MiB") && !has_number(err.text))
                    fail_msg("%s: said \"%s: %s\"", what, err.where, err.text);
            }
    }
}

static void the_host_refuses(const struct life *life) {
    struct lode_error err;
    fake_cuda_reset();
    fake_cuda.n_devices = 2;
    must(live_so(life, &err), &err); /* and whatever libraries set up once */
    struct failmalloc_stats s = {.failed = 1};
    for (uint64_t n = 1; s.failed; n += effort_step(1))
        for (int on = 0; on < 2; on++) {
            fake_cuda_reset();
            fake_cuda.n_devices = 2;
            failmalloc_start(n, on);
            const int rc = live_so(life, &err);
            s = failmalloc_stop();
            host_refused(n, rc, &err, &s);
        }
}

static void what_the_host_refuses(void **state) {
    (void)state;
    the_host_refuses(&lives[1]);
    the_host_refuses(&lives[5]);
}

static void a_kernel_that_is_not_there(void **state) {
    struct lode_error err;
    (void)state;
    fake_cuda.lack_at = 20;
    assert_int_equal(live(own_model("arch/qwen3"), "cuda", &err), LODE_ERR_DEVICE);
    no_trace_left("a kernel that is not there");
}

/* ---- a device that is lost ---- */

static void lost_at_any_call(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof lives / sizeof *lives; k++) {
        struct lode_error err;
        fake_cuda_reset();
        fake_cuda.n_devices = 2;
        must(live_so(&lives[k], &err), &err);
        const uint64_t all = fake_cuda.n_calls;
        for (uint64_t n = 1; n <= all; n += effort_step(k == 0 ? 1 : 7)) {
            fake_cuda_reset();
            fake_cuda.n_devices = 2;
            fake_cuda.lose_at = n;
            failmalloc_start(0, false);
            const int rc = live_so(&lives[k], &err);
            const struct failmalloc_stats s = failmalloc_stop();
            device_lost(lives[k].name, n, all, rc, &err, &s);
        }
    }
}

/* Whatever was being done when the device failed, the session is where it was. */
static void a_session_outlives_it(void **state) {
    static const char *const names[] = {"arch/qwen3", "arch/gemma3", "arch/qwen3_next", "arch/qwen3_moe"};
    (void)state;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        const struct lode_model_opts one = {.device = "cuda"}, *o = k == 3 ? &by_rows : &one;
        struct lode_model *model;
        struct lode_session *s;
        struct lode_error err;
        fake_cuda_reset();
        fake_cuda.n_devices = 2;
        must(lode_model_load(&model, own_model(names[k]), o, &err), &err);
        must(lode_session_create(&s, model, &(struct lode_session_opts){.ctx = 2 * CTX, .batch = BATCH}, &err),
             &err);
        must(talk(s, lode_model_info(model)->n_vocab, &err), &err);
        const size_t length = lode_session_length(s);
        const int32_t ids[20] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
        for (uint64_t n = 1;; n++) {
            fake_cuda.lose_at = fake_cuda.n_calls + n;
            const int rc = lode_session_eval(s, ids, 20, &err);
            fake_cuda.lose_at = 0;
            if (rc == 0)
                break;
            if (rc != LODE_ERR_DEVICE)
                fail_msg("%s lost at call %llu of a step: %d, said \"%s: %s\"", names[k], (unsigned long long)n, rc,
                         err.where, err.text);
            assert_int_equal(lode_session_length(s), length);
            assert_null(lode_session_logits(s));
        }
        must(lode_session_truncate(s, 10, &err), &err);
        must(talk(s, lode_model_info(model)->n_vocab, &err), &err);
        lode_session_free(s);
        lode_model_free(model);
        no_trace_left(names[k]);
    }
}

/* Whichever call of the library of exchanges fails, nobody waits for who does not come, the step's error says
 * so, and the next step connects anew. */
static void an_exchange_that_fails(void **state) {
    struct lode_model *model;
    struct lode_session *s = NULL;
    struct lode_error err;
    unsigned failed = 0;
    (void)state;
    fake_cuda.n_devices = 2;
    must(lode_model_load(&model, own_model("arch/qwen3_moe"), &by_rows, &err), &err);
    const unsigned connections = fake_nccl_connections();
    const uint32_t n_vocab = lode_model_info(model)->n_vocab;
    for (uint64_t n = 1; !s; n++) {
        fake_cuda.fail_exchange_at = fake_cuda.n_exchanges + n;
        const int rc = lode_session_create(&s, model, &(struct lode_session_opts){.ctx = 2 * CTX, .batch = BATCH}, &err);
        assert_true(rc == 0 ? n > 4 : rc == LODE_ERR_DEVICE && strcmp(err.where, "nccl") == 0);
        keeps_the_rules("a session that is created");
    }
    for (uint64_t n = 1;; n++) {
        const size_t length = lode_session_length(s);
        const uint64_t before = fake_cuda.n_exchanges;
        fake_cuda.fail_exchange_at = before + n;
        const int rc = talk(s, n_vocab, &err);
        keeps_the_rules("a step whose exchange failed");
        if (rc == 0 && fake_cuda.n_exchanges < before + n)
            break;
        if (rc < 0) {
            assert_int_equal(rc, LODE_ERR_DEVICE);
            assert_string_equal(err.where, "nccl");
            failed++;
        }
        must(lode_session_truncate(s, length, &err), &err);
        must(talk(s, n_vocab, &err), &err);
        must(lode_session_truncate(s, length, &err), &err);
    }
    assert_true(failed > 20);
    assert_true(fake_nccl_connections() - connections > failed);
    lode_session_free(s);
    lode_model_free(model);
    no_trace_left("exchanges that fail");
}

/* Where only one device is, or it is asked for what a split by rows has no place for. */
static void rows_need_what_they_need(void **state) {
    struct lode_model *model;
    struct lode_error err;
    struct lode_model_opts o = by_rows;
    (void)state;
    o.device = NULL;
    must(lode_model_load(&model, own_model("arch/qwen3"), &o, &err), &err);
    assert_true(strstr(lode_model_info(model)->device_note, "there is one GPU"));
    lode_model_free(model);
    fake_cuda_reset();
    fake_cuda.n_devices = 2;
    must(lode_model_load(&model, own_model("arch/qwen3"), &o, &err), &err);
    assert_int_equal(lode_model_info(model)->n_gpus, 2);
    assert_string_equal(lode_model_info(model)->device_note, "");
    lode_model_free(model);
    o.tensor_split = "1,2";
    assert_int_equal(lode_model_load(&model, own_model("arch/qwen3"), &o, &err), LODE_ERR_ARG);
    o.tensor_split = NULL;
    o.split_mode = "diagonal";
    assert_int_equal(lode_model_load(&model, own_model("arch/qwen3"), &o, &err), LODE_ERR_ARG);
    o.split_mode = "none";
    o.device = "cuda:1,cuda:0";
    must(lode_model_load(&model, own_model("arch/qwen3"), &o, &err), &err);
    assert_int_equal(lode_model_info(model)->n_gpus, 1);
    assert_int_equal(lode_model_info(model)->gpu, 1);
    lode_model_free(model);
    no_trace_left("rows");
}

/* What became of a request. */
static int ask(struct lode_scheduler *s, struct lode_error *err) {
    const int32_t prompt[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    struct lode_generation_opts o = {.prompt = prompt, .n_prompt = 10, .max_tokens = 6, .ignore_end = true};
    struct lode_generation_token t;
    struct lode_generation *g;
    lode_sampler_defaults(&o.sampler);
    int rc = lode_generation_start(&g, s, &o, err);
    if (rc < 0)
        return rc;
    while ((rc = lode_generation_next(g, &t, -1, err)) == LODE_GENERATION_TOKEN)
        ;
    lode_generation_free(g);
    return rc;
}

static void a_scheduler_outlives_it(void **state) {
    struct lode_model *model;
    struct lode_scheduler *s;
    struct lode_error err;
    (void)state;
    must(lode_model_load(&model, own_model("arch/qwen3"), &(struct lode_model_opts){.device = "cuda"}, &err), &err);
    must(lode_scheduler_create(&s, model,
                               &(struct lode_scheduler_opts){.slots = 2, .session = {.ctx = CTX, .batch = BATCH}},
                               &err),
         &err);
    assert_int_equal(ask(s, &err), LODE_GENERATION_LIMIT);
    unsigned failed = 0;
    for (uint64_t n = 1; n < 60; n += 3) {
        fake_cuda.lose_at = fake_cuda.n_calls + n;
        const int rc = ask(s, &err);
        if (rc != LODE_GENERATION_LIMIT) {
            assert_int_equal(rc, LODE_ERR_DEVICE);
            failed++;
            assert_int_equal(ask(s, &err), LODE_ERR_DEVICE); /* as long as the device is lost */
        }
        fake_cuda.lose_at = 0;
        assert_int_equal(ask(s, &err), LODE_GENERATION_LIMIT);
    }
    assert_true(failed > 5);
    lode_scheduler_free(s);
    lode_model_free(model);
    no_trace_left("a scheduler");
}

/* ---- memory that others have ---- */

/* Whatever is left of the device's memory, no more is asked of the driver than it has: a model that does not
 * fit is refused with numbers, or where the device is free to choose runs on the CPU and says why. */
static void others_memory_is_respected(void **state) {
    const char *path = own_model("arch/qwen3_moe");
    struct lode_error err;
    (void)state;
    must(live(path, "cuda", &err), &err);
    const uint64_t most = fake_cuda.most_used;
    unsigned ran = 0, told = 0;
    for (uint64_t i = 0; i <= 40; i++)
        for (int any = 0; any < 2; any++) {
            struct lode_model *model = NULL;
            struct lode_session *s = NULL;
            fake_cuda_reset();
            fake_cuda.others = fake_cuda.memory - most * (i + 2) / 40;
            int rc = lode_model_load(&model, path, &(struct lode_model_opts){.device = any ? NULL : "cuda"}, &err);
            const bool on_gpu = rc == 0 && lode_model_info(model)->on_gpu;
            if (rc == 0 && !on_gpu) {
                assert_true(any && has_number(lode_model_info(model)->device_note));
                told++;
            }
            if (rc == 0)
                rc = lode_session_create(&s, model,
                                         &(struct lode_session_opts){.ctx = CTX, .batch = BATCH, .threads = 1}, &err);
            if (rc == 0)
                rc = talk(s, lode_model_info(model)->n_vocab, &err);
            if (rc < 0) {
                if (rc != LODE_ERR_LIMIT || !has_number(err.text) || !strstr(err.text, "MiB"))
                    fail_msg("with %llu MiB: %d, said \"%s: %s\"", (unsigned long long)(most * (i + 2) / 40 >> 20), rc,
                             err.where, err.text);
                told++;
            }
            ran += rc == 0 && on_gpu;
            if (fake_cuda.n_refused)
                fail_msg("with %llu MiB of %llu, the driver had to refuse",
                         (unsigned long long)(most * (i + 2) / 40 >> 20), (unsigned long long)(most >> 20));
            lode_session_free(s);
            lode_model_free(model);
            no_trace_left("little memory");
        }
    assert_true(ran > 0 && told > 10);
}

/* ---- choices that are kept ---- */

static void write_text(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* What is timed is kept and found again; what is damaged, or another device's, is named and not used. */
static void choices_are_kept(void **state) {
    char folder[] = "/tmp/lode-tuning-XXXXXX", below[64], text[256];
    struct lode_model *model;
    struct lode_tune_result r;
    struct lode_error err;
    struct lode_tuning_device d;
    const struct lode_model_opts o = {.device = "cuda"};
    const char *path = own_model("quant/llama-256-Q4_K_M");
    static const char *const bad[] = {"lode-tuning 1\ndevice Another\ncompute 9.0\n",
                                      "lode-tuning 2\n",
                                      "lode-tuning 1\ndevice Stand-in 0\ncompute 9.0\ndepth Q4_K 8 7\n",
                                      "lode-tuning 1\ndevice Stand-in 0\ncompute 9.0\ndepth Q4_K 8",
                                      "",
                                      "lode-tuning 1\ndevice Stand-in 0\ncompute 9.0\nheight Q4_K 8 2\n"};
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(below, sizeof below, "%s/none/yet", folder); /* folders that are to be made */
    setenv("XDG_CACHE_HOME", below, 1);
    must(lode_model_load(&model, path, &o, &err), &err);
    assert_null(strstr(lode_model_info(model)->notes, "--tune"));
    must(lode_tune(model, NULL, NULL, &r, &err), &err);
    assert_true(r.n_timed >= LODE_TUNING_KNOBS && strncmp(r.path, below, strlen(below)) == 0);
    struct lode_tuning *t = lode_cuda_tuning(model->devices[1].cuda, &d);
    t->value[LODE_TUNING_depth][LODE_Q4_K][8] = 2;
    const struct lode_tuning kept = *t;
    must(lode_tuning_save(t, &d, r.path, sizeof r.path, &err), &err);
    lode_model_free(model);
    must(lode_model_load(&model, path, &o, &err), &err);
    assert_memory_equal(lode_cuda_tuning(model->devices[1].cuda, &d), &kept, sizeof kept);
    lode_model_free(model);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        static struct lode_tuning defaults;
        write_text(r.path, bad[i]);
        must(lode_model_load(&model, path, &o, &err), &err);
        snprintf(text, sizeof text, "%s", lode_model_info(model)->notes);
        if (!strstr(text, "--tune") || !strstr(text, "tuning: "))
            fail_msg("file %zu: said \"%s\"", i, text);
        lode_tuning_defaults(&defaults);
        assert_memory_equal(lode_cuda_tuning(model->devices[1].cuda, &d), &defaults, sizeof defaults);
        lode_model_free(model);
    }
    fake_cuda.memory = 60000000; /* nothing runs there */
    must(lode_model_load(&model, path, &(struct lode_model_opts){.device = "cpu"}, &err), &err);
    assert_int_equal(lode_tune(model, NULL, NULL, &r, &err), LODE_ERR_UNSUPPORTED);
    lode_model_free(model);
    no_trace_left("choices");
    snprintf(text, sizeof text, "%s/lode/tune-Stand-in-0-9.0.txt", below);
    assert_int_equal(remove(text), 0);
    for (char *end; (end = strrchr(text, '/')) && (size_t)(end - text) >= strlen(folder);) {
        *end = '\0';
        assert_int_equal(rmdir(text), 0);
    }
    unsetenv("XDG_CACHE_HOME");
}

/* GPU-15: a device's speeds, of memory that is given back whatever happens. */
static void speeds_are_measured(void **state) {
    (void)state;
    struct lode_device_speeds s;
    struct lode_error err = {0};
    must(lode_device_speeds(0, &s, &err), &err);
    assert_true(s.read > 0 && s.copy > 0 && s.bus > 0);
    no_trace_left("speeds");
    fake_cuda_reset();
    fake_cuda.memory = 300 << 20;
    assert_int_equal(lode_device_speeds(0, &s, &err), LODE_ERR_NOMEM);
    assert_true(has_number(err.text) && s.read == 0 && s.fast);
    no_trace_left("no room for speeds");
    uint64_t refused = 1;
    for (uint64_t n = 1; refused; n++) {
        fake_cuda_reset();
        fake_cuda.fail_at = n;
        const int rc = lode_device_speeds(0, &s, &err);
        refused = fake_cuda.n_refused;
        no_trace_left("speeds, something refused");
        assert_true(rc == LODE_ERR_NOMEM || (rc == 0 && !refused));
    }
}

int main(void) {
    if (no_devices())
        return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_architecture_keeps_the_rules, reset),
        cmocka_unit_test_setup(a_drawn_step_is_one_graph, reset),
        cmocka_unit_test_setup(two_devices_keep_the_rules, reset),
        cmocka_unit_test_setup(weights_arrive, reset),
        cmocka_unit_test_setup(layers_and_routes_are_told, reset),
        cmocka_unit_test_setup(few_logits_cross_where_few_are_wanted, reset),
        cmocka_unit_test_setup(choices_are_kept, reset),
        cmocka_unit_test_setup(what_a_device_refuses, reset),
        cmocka_unit_test_setup(what_the_host_refuses, reset),
        cmocka_unit_test_setup(a_kernel_that_is_not_there, reset),
        cmocka_unit_test_setup(lost_at_any_call, reset),
        cmocka_unit_test_setup(a_session_outlives_it, reset),
        cmocka_unit_test_setup(an_exchange_that_fails, reset),
        cmocka_unit_test_setup(rows_need_what_they_need, reset),
        cmocka_unit_test_setup(a_scheduler_outlives_it, reset),
        cmocka_unit_test_setup(others_memory_is_respected, reset),
        cmocka_unit_test_setup(speeds_are_measured, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
