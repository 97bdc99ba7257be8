/* Models whose experts are read when they are used: the same bits as with all of them in memory,
 * under every budget, engine and company.  Faults are test_stream_faults.c's. */
#include "effort.h"
#include "mlx_moe.h"
#include "stream_fixture.h"

#include "copy_file.h"

#include <sys/stat.h>

/* experts of several shapes: with biases, shared ones, in groups, beside recurrent layers */
static const char *const models[] = {"qwen3_moe", "gpt_oss_trunc", "deepseek_v3", "qwen3_5_moe",
                                     "olmoe",     "qwen2_moe",     "minimax_m2",  "qwen3_next"};

static bool is_there(const char *name) { return access(path_of(name), R_OK) == 0; }

/* ---- budgets, engines, policies ---- */

static void same_bits(void **state) {
    (void)state;
    static const double shares[] = {0, 0.25, 0.5, 1};
    static const enum lode_reader_engine engines[] = {LODE_READER_AUTO, LODE_READER_THREADS};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        if (!is_there(models[i]))
            continue;
        make_reference(models[i]);
        for (size_t k = 0; k < 4; k++) {
            struct how how = {.share = shares[k], .reader.engine = engines[k % 2]};
            struct lode_model *m = load(models[i], &how);
            same(m, 1, 1 + (uint32_t)(k & 1));
            same(m, N, 2 - (uint32_t)(k & 1));
            lode_model_free(m);
        }
    }
}

/* A file that another takes the place of, once it has been opened: the weights are still those of the one. */
struct taken {
    struct how how;
    char path[64], other[72];
};
static int make_when_taken(struct lode_store **out, void *user, const struct lode_model *m, struct lode_error *err) {
    struct taken *t = user;
    assert_int_equal(rename(t->other, t->path), 0);
    return make_stream(out, &t->how, m, err);
}
/* All of the second half, which are weights. */
static void spoil(const char *path) {
    static const char zeros[1 << 20];
    const int fd = open(path, O_WRONLY);
    struct stat st;
    assert_true(fd >= 0 && fstat(fd, &st) == 0 && st.st_size / 2 < (off_t)sizeof zeros);
    const size_t half = (size_t)st.st_size / 2;
    assert_int_equal(pwrite(fd, zeros, half, st.st_size - (off_t)half), half);
    close(fd);
}
static void a_file_whose_place_is_taken(void **state) {
    (void)state;
    struct taken t = {.how.share = 0.3};
    struct lode_model *m;
    struct lode_error err;
    snprintf(t.path, sizeof t.path, "/tmp/lode-test-taken-%d.gguf", (int)getpid());
    snprintf(t.other, sizeof t.other, "%s.other", t.path);
    copy_file(path_of(models[0]), t.path);
    copy_file(t.path, t.other);
    spoil(t.other);
    make_reference(models[0]);
    if (lode_model_load_with(&m, t.path, NULL, make_when_taken, &t, &err) < 0)
        fail_msg("%s: %s", err.where, err.text);
    same(m, N, 2);
    lode_model_free(m);
    unlink(t.path);
}

static void policies(void **state) {
    (void)state;
    make_reference(models[0]);
#define TRY_POLICY(name, about)                                                                    \
    {                                                                                              \
        struct how how = {.share = 0.3, .policy = #name, .reader.page_cache = true};              \
        struct lode_model *m = load(models[0], &how);                                              \
        same(m, 3, 2);                                                                             \
        lode_model_free(m);                                                                        \
    }
    LODE_POLICY_LIST(TRY_POLICY)
#undef TRY_POLICY
}

/* What routers would choose is read ahead, and nothing depends on it. */
static void guesses(void **state) {
    (void)state;
    static struct lode_profile p;
    make_reference(models[0]);
    struct how how = {.share = 0.4};
    struct lode_model *m = load(models[0], &how);
    same(m, 1, 1);
    lode_model_profile(m, &p);
    uint64_t read = p.cancelled, came_true = 0;
    for (uint32_t l = 0; l < p.n_layers; l++) {
        assert_true(p.layers[l].guessed <= p.layers[l].guesses);
        read += p.layers[l].guesses;
        came_true += p.layers[l].guessed;
    }
    assert_true(read > 0 && came_true > 0);
    lode_model_free(m);
}

/* ---- two sessions, one store that holds less than they want ---- */

struct partner {
    struct lode_model *model;
    float got[N][V];
    int rc;
    struct lode_error err;
};

static void *run_partner(void *arg) {
    struct partner *p = arg;
    for (int i = 0; i < 3 && p->rc == 0; i++)
        p->rc = eval(p->model, i ? 1 : 7, 1, p->got, &p->err);
    return NULL;
}

/* n sessions at once, all with the reference's bits. */
static void run_at_once(struct lode_model *m, int n) {
    static struct partner p[3];
    pthread_t t[3];
    for (int i = 0; i < n; i++) {
        p[i] = (struct partner){.model = m};
        assert_int_equal(pthread_create(&t[i], NULL, run_partner, &p[i]), 0);
    }
    for (int i = 0; i < n; i++) {
        pthread_join(t[i], NULL);
        if (p[i].rc != 0)
            fail_msg("%s: %s", p[i].err.where, p[i].err.text);
        assert_memory_equal(p[i].got, reference, sizeof reference);
    }
}

/* The trace of a text, as a file. */
static size_t record(struct how *how, uint32_t batch, const char *path, char *data, size_t most) {
    struct lode_model *m = load(models[0], how);
    struct lode_trace_shape shape = lode_model_routes(m);
    struct lode_trace *t;
    struct lode_session *s;
    struct lode_error err;
    static float got[N][V];
    shape.guesses = true;
    assert_int_equal(lode_trace_create(&t, &shape, N, &err), 0);
    const struct lode_session_opts o = {.ctx = 64, .batch = batch, .threads = 2, .routes = lode_trace_put,
                                        .guesses = lode_trace_put_guess, .routes_user = t};
    assert_int_equal(lode_session_create(&s, m, &o, &err), 0);
    assert_int_equal(lode_session_eval_each(s, ids, N, keep, got, &err), 0);
    assert_memory_equal(got, reference, sizeof got); /* telling changes nothing */
    assert_int_equal(lode_trace_write(t, path, &err), 0);
    FILE *f = fopen(path, "rb");
    const size_t n = fread(data, 1, most, f);
    fclose(f);
    lode_session_free(s);
    lode_trace_free(t);
    lode_model_free(m);
    return n;
}

/* Routes and guesses depend on the text alone: not on batches, nor on what is in memory. */
static void guesses_are_told(void **state) {
    (void)state;
    enum { MOST = 1 << 20 };
    char path[] = "/tmp/lode-guesses-XXXXXX";
    char *data = malloc(MOST), *other = malloc(MOST);
    close(mkstemp(path));
    make_reference(models[0]);
    const size_t n = record(NULL, 1, path, data, MOST);
    const uint32_t batches[] = {7, N};
    for (size_t i = 0; i < 2; i++) {
        struct how how = {.share = 0.3};
        assert_int_equal(record(NULL, batches[i], path, other, MOST), n);
        assert_memory_equal(other, data, n);
        assert_int_equal(record(&how, batches[i], path, other, MOST), n);
        assert_memory_equal(other, data, n);
    }
    struct lode_trace *t;
    struct lode_replay r, ahead;
    struct lode_error err;
    assert_int_equal(lode_trace_parse(&t, data, n, "here", &err), 0);
    assert_true(lode_trace_shape(t)->guesses && lode_trace_shape(t)->head_bytes > 0);
    assert_int_equal(lode_trace_replay_at(t, NULL, lode_trace_bytes(t) / 2, NULL, false, &r, &err), 0);
    assert_int_equal(lode_trace_replay_at(t, NULL, lode_trace_bytes(t) / 2, NULL, true, &ahead, &err), 0);
    assert_true(ahead.guessed > 0 && ahead.hits > r.hits);
    lode_trace_free(t);
    unlink(path);
    free(data);
    free(other);
}

static void two_at_once(void **state) {
    (void)state;
    make_reference(models[0]);
    for (int k = 0; k < 2; k++) {
        struct how how = {.share = 0.15 * k};
        struct lode_model *m = load(models[0], &how);
        run_at_once(m, 3);
        lode_model_free(m);
    }
}

/* A disk that gives nothing until it is let. */
static ssize_t hold_back(void *user, uint32_t file, uint64_t offset, char *to, size_t n, ssize_t result) {
    (void)file;
    (void)offset;
    (void)to;
    (void)n;
    while (!atomic_load((atomic_bool *)user))
        usleep(1000);
    return result;
}

/* Returns a bit for each that was not there. */
static unsigned want_groups(const struct lode_model *m, struct lode_guesses *who, const uint32_t *groups,
                            uint32_t n) {
    struct lode_wanted wanted[4];
    unsigned away = 0;
    for (uint32_t i = 0; i < n; i++)
        wanted[i] = (struct lode_wanted){.id = m->groups[groups[i]].weights[0], .chance = 0.9f};
    m->store->ops->want(m->store, who, wanted, n);
    for (uint32_t i = 0; i < n; i++)
        away |= (unsigned)wanted[i].away << i;
    return away;
}

static struct lode_profile *profile_of(const struct lode_model *m) {
    static struct lode_profile p;
    lode_model_profile(m, &p);
    return &p;
}

/* Who guesses anew calls off what is its own alone. */
static void guesses_have_owners(void **state) {
    (void)state;
    atomic_bool open = false;
    make_reference(models[0]);
    struct how how = {.share = 1, .reader = {.depth = 1, .piece = 4096, .fault = hold_back, .fault_user = &open}};
    struct lode_model *m = load(models[0], &how);
    struct lode_guesses a = {0}, b = {0};
    assert_int_equal(want_groups(m, &a, (uint32_t[]){0, 1}, 2), 3);
    assert_int_equal(want_groups(m, &b, (uint32_t[]){1, 2, 1}, 3), 7); /* 1 is on its way, not there */
    assert_int_equal(a.n, 2);
    assert_int_equal(b.n, 2);
    assert_int_equal(profile_of(m)->cancelled, 0);
    want_groups(m, &a, (uint32_t[]){3, 2}, 2); /* not 0 any more; 1 is still b's */
    assert_int_equal(a.n, 2);
    assert_int_equal(profile_of(m)->cancelled, 1);
    m->store->ops->settle(m->store, &b); /* 1; 2 is a's too */
    assert_int_equal(b.n, 0);
    assert_int_equal(profile_of(m)->cancelled, 2);
    atomic_store(&open, true);
    for (uint32_t g = 2; g < 4; g++) {
        const uint32_t id = m->groups[g].weights[0];
        const void *data;
        struct lode_error err;
        assert_int_equal(lode_store_pin_now(m->store, id, &data, NULL, NULL, &err), LODE_READY);
        m->store->ops->unpin(m->store, id);
    }
    const struct lode_profile_layer *l = &profile_of(m)->layers[m->groups[2].layer];
    assert_int_equal(l->guesses, 2); /* those that were read, and both were used */
    assert_int_equal(l->guessed, 2);
    m->store->ops->settle(m->store, &a);
    assert_int_equal(profile_of(m)->cancelled, 2);
    assert_int_equal(want_groups(m, &a, (uint32_t[]){2, 5, 3}, 3), 2); /* two of them are there */
    m->store->ops->settle(m->store, &a);
    same(m, 1, 1);
    lode_model_free(m);
}

static void use_group(struct lode_model *m, uint32_t g) {
    const void *data;
    struct lode_error err;
    assert_int_equal(lode_store_pin_now(m->store, m->groups[g].weights[0], &data, NULL, NULL, &err), LODE_READY);
    m->store->ops->unpin(m->store, m->groups[g].weights[0]);
}

/* A layer's experts that are there stay while one of them that is not is read. */
static void neighbours_stay(void **state) {
    (void)state;
    make_reference(models[0]);
    struct how how = {.share = 0.125};
    struct lode_model *m = load(models[0], &how);
    const uint32_t room = m->n_expert_groups / 8;
    assert_true(room > 1 && m->groups[room].layer == m->groups[0].layer);
    for (uint32_t g = 0; g < room; g++)
        use_group(m, g);
    for (uint32_t g = 0; g + 1 < room; g++)
        m->store->ops->need(m->store, m->groups[g].weights[0]);
    use_group(m, room);
    for (uint32_t g = 0; g + 1 < room; g++)
        use_group(m, g);
    assert_int_equal(profile_of(m)->layers[m->groups[0].layer].hits, room - 1);
    same(m, 1, 1);
    lode_model_free(m);
}

/* Two sessions that guess at once, beside and against each other. */
static void guessing_at_once(void **state) {
    (void)state;
    make_reference(models[0]);
    struct how how = {.share = 0.5};
    struct lode_model *m = load(models[0], &how);
    uint64_t came_true = 0;
    run_at_once(m, 2);
    for (uint32_t l = 0; l < profile_of(m)->n_layers; l++) {
        assert_true(profile_of(m)->layers[l].guessed <= profile_of(m)->layers[l].guesses);
        came_true += profile_of(m)->layers[l].guessed;
    }
    assert_true(came_true > 0);
    lode_model_free(m);
}

/* Layers in turn, alone and beside experts; recurrent ones, and a dense model. */
static void layers(void **state) {
    (void)state;
    static const char *const names[] = {"llama", "gemma3", "qwen3_moe", "qwen3_next", "deepseek_v3"};
    int n_streamed = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i += few_do() ? 2 : 1) {
        if (!is_there(names[i]))
            continue;
        make_reference(names[i]);
        uint64_t least = 1;
        for (int k = 0; k < 4; k++) {
            struct lode_model *m;
            struct lode_error err;
            const struct lode_model_opts o = {.layer_cache = least + (k > 1) * 16384,
                                              .expert_cache = k % 2 && i > 1 ? 1 << 18 : 0};
            int rc = lode_model_load(&m, path_of(names[i]), &o, &err);
            if (least == 1) { /* the error says how much two layers take */
                assert_int_equal(rc, LODE_ERR_LIMIT);
                least = (uint64_t)(atof(strstr(err.text, "two take ") + 9) * 0x1p20) + 65536; /* it is rounded */
                k--;
                continue;
            }
            if (rc < 0)
                fail_msg("%s: %s", err.where, err.text);
            same(m, 1, 1);
            same(m, N, 2);
            static struct lode_profile p;
            lode_model_profile(m, &p);
            n_streamed += p.layers[p.n_layers - 1].bytes > 0; /* two layers are no more than two */
            run_at_once(m, 2);
            lode_model_free(m);
        }
    }
    assert_true(n_streamed >= 4);
}

/* Layers whose matrices are converted on their way, with experts beside them that are, or not. */
static void converted_layers(void **state) {
    (void)state;
    struct mlx_moe mlx;
    struct lode_error err;
    struct lode_model *m;
    mlx_write(&mlx);
    make_reference(mlx.dir);
    struct lode_model_opts o = {.layer_cache = 1};
    assert_int_equal(lode_model_load(&m, mlx.dir, &o, &err), LODE_ERR_LIMIT);
    o.layer_cache = (uint64_t)(atof(strstr(err.text, "two take ") + 9) * 0x1p20) + 8192; /* it is rounded */
    for (int k = 0; k < 2; k++) {
        o.expert_cache = k ? 1 << 17 : 0;
        if (lode_model_load(&m, mlx.dir, &o, &err) < 0)
            fail_msg("%s: %s", err.where, err.text);
        same(m, 1, 1);
        same(m, N, 2);
        run_at_once(m, 2);
        assert_non_null(strstr(profile_of(m)->reader, "converted"));
        lode_model_free(m);
    }
    mlx_remove(&mlx);
}

/* Everything past the page cache: all in memory, and what is not streamed. */
static void direct(void **state) {
    (void)state;
    static const char *const names[] = {"llama", "qwen3_moe", "gpt_oss_trunc"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int k = 0; k < 2 && is_there(names[i]); k++) {
            struct lode_model *m;
            struct lode_error err;
            const struct lode_model_opts o = {
                .direct = true, .prefault = true, .expert_cache = k && i ? 1 << 19 : 0};
            make_reference(names[i]);
            if (lode_model_load(&m, path_of(names[i]), &o, &err) < 0)
                fail_msg("%s: %s", err.where, err.text);
            same(m, 7, 2);
            lode_model_free(m);
        }
}

/* A budget too small for one expert is refused, with the number. */
static void too_small(void **state) {
    (void)state;
    struct lode_model *m;
    struct lode_error err;
    assert_int_equal(lode_model_load(&m, path_of(models[0]),
                                     &(struct lode_model_opts){.expert_cache = 4096}, &err),
                     LODE_ERR_LIMIT);
    assert_non_null(strstr(err.text, "one takes"));
    assert_int_equal(lode_model_load(&m, path_of("llama"),
                                     &(struct lode_model_opts){.expert_cache = 1 << 20}, &err),
                     LODE_ERR_ARG);
}

/* ---- memory that cannot be had ---- */

static void no_memory(void **state) {
    (void)state;
    struct lode_model *m;
    struct lode_error err;
    struct how how = {.share = 0.3, .reader = {.depth = 2}};
    lode_model_free(load(models[0], &how)); /* the C library keeps what a thread had */
    for (uint64_t n = 1;; n += 1 + n / 16) {
        failmalloc_start(n, n % 2);
        const int rc = lode_model_load_with(&m, path_of(models[0]), NULL, make_stream, &how, &err);
        if (rc == 0)
            lode_model_free(m);
        const struct failmalloc_stats s = failmalloc_stop();
        assert_int_equal(s.live, 0);
        if (s.failed == 0) {
            assert_int_equal(rc, 0);
            break;
        }
    }
}

/* Packing without memory leaves nothing that would be taken for a model, and goes on afterwards. */
static void pack_no_memory(void **state) {
    (void)state;
    char dir[] = "/tmp/lode-test-XXXXXX", to[64], file[128];
    static const char *const files[] = {"manifest.json", "keys.gguf", "weights.bin", "pack.journal",
                                        "manifest.json.lode-part", "keys.gguf.lode-part"};
    struct lode_error err;
    struct lode_model *m;
    int n_refused = 0;
    assert_non_null(mkdtemp(dir));
    snprintf(to, sizeof to, "%s/packed", dir);
    make_reference(models[0]);
    for (uint64_t n = 1;; n += 1 + n / 8) {
        failmalloc_start(n, n % 2);
        const int rc = lode_pack(path_of(models[0]), to, NULL, NULL, NULL, &err);
        const struct failmalloc_stats s = failmalloc_stop();
        assert_true(s.live <= 0); /* under a sanitizer an earlier thread may give back its own now */
        if (s.failed == 0) {
            assert_int_equal(rc, 0);
            break;
        }
        if (rc == 0) { /* it could be done without */
            snprintf(file, sizeof file, "%s/manifest.json", to);
            assert_int_equal(unlink(file), 0);
            continue;
        }
        n_refused++;
        assert_int_equal(rc, LODE_ERR_NOMEM);
        assert_true(lode_model_load(&m, to, NULL, &err) < 0);
    }
    assert_true(n_refused > 10);
    if (lode_model_load(&m, to, &(struct lode_model_opts){.expert_cache = 1 << 17}, &err) < 0)
        fail_msg("%s: %s", err.where, err.text);
    same(m, 5, 1);
    lode_model_free(m);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(file, sizeof file, "%s/%s", to, files[i]);
        unlink(file);
    }
    rmdir(to);
    assert_int_equal(rmdir(dir), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits),      cmocka_unit_test(a_file_whose_place_is_taken),
        cmocka_unit_test(policies), cmocka_unit_test(guesses),
        cmocka_unit_test(guesses_are_told),
        cmocka_unit_test(two_at_once),    cmocka_unit_test(layers), cmocka_unit_test(direct),
        cmocka_unit_test(converted_layers),
        cmocka_unit_test(guesses_have_owners), cmocka_unit_test(neighbours_stay), cmocka_unit_test(guessing_at_once),
        cmocka_unit_test(too_small),
        cmocka_unit_test(no_memory),      cmocka_unit_test(pack_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
