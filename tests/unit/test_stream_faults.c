/* Disks that fail under a model whose experts are streamed, from a GGUF file as they lie, packed, and converted
 * on their way: each fault at each read in turn, by both engines.  What a disk may do without harm must not change a bit; of what harms, the request is told
 * file, offset, expert and layer, and the next is answered as though nothing had been.  Prints what was
 * tried and found as a table.  LODE_LONG: every read, else some of them.
 *
 * Faults while packing, kill -9 and a full disk among them, are tests/verb_pack.py's. */
#include "effort.h"
#include "mlx_moe.h"
#include "stream_fixture.h"

#include "copy_file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>

static const char model[] = "qwen3_moe";
static const struct {
    enum lode_reader_engine engine;
    const char *name;
} engines[] = {{LODE_READER_AUTO, "io_uring"}, {LODE_READER_THREADS, "threads"}};
enum { ENGINES = 2, PIECE = 16384 };

/* ---- models in three forms ---- */

struct packed {
    char dir[32], to[64], weights[128];
};

static void make_packed(struct packed *p, const char *source) {
    struct lode_error err;
    snprintf(p->dir, sizeof p->dir, "/tmp/lode-test-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    snprintf(p->to, sizeof p->to, "%s/packed", p->dir);
    snprintf(p->weights, sizeof p->weights, "%s/weights.bin", p->to);
    if (lode_pack(path_of(source), p->to, NULL, NULL, NULL, &err) < 0)
        fail_msg("%s: %s", err.where, err.text);
}

static void remove_packed(const struct packed *p) {
    static const char *const files[] = {"manifest.json", "keys.gguf", "weights.bin", "pack.journal"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char file[128];
        snprintf(file, sizeof file, "%s/%s", p->to, files[i]);
        unlink(file);
    }
    rmdir(p->to);
    assert_int_equal(rmdir(p->dir), 0);
}

static struct packed packed_model;
static struct mlx_moe mlx;
static struct subject {
    const char *name, *path, *file; /* file: of the weights, whole and as messages name it */
    double share;                   /* of the experts, that the cache holds */
    uint32_t piece;
} subjects[] = {{"GGUF", model, "model.gguf", 0.3, PIECE},
                {"packed", packed_model.to, packed_model.weights, 0.3, PIECE},
                {"converted", mlx.dir, mlx.file, 0.5, 4096}};
enum { SUBJECTS = 3 };

static int make_models(void **state) {
    (void)state;
    make_packed(&packed_model, model);
    mlx_write(&mlx);
    return 0;
}

static int remove_models(void **state) {
    (void)state;
    remove_packed(&packed_model);
    mlx_remove(&mlx);
    return 0;
}

/* ---- what is injected ---- */

struct fault {
    const char *name;
    ssize_t result;   /* of the read: -errno, or the bytes that come */
    bool always;      /* and of all after it */
    const char *says; /* NULL: harmless */
    enum { RETURN, DELAY, SHRINK } kind;
};

struct injection {
    const struct fault *fault;
    atomic_uint calls;
    atomic_uint at;       /* which call; 0: none */
    unsigned delay;       /* microseconds */
    const char *path;     /* of the file that shrinks */
};

static ssize_t inject(void *user, uint32_t file, uint64_t offset, char *to, size_t n, ssize_t result) {
    struct injection *x = user;
    (void)file;
    (void)offset;
    const uint32_t i = atomic_fetch_add(&x->calls, 1) + 1, at = atomic_load(&x->at);
    if (!at || i < at || (i > at && !x->fault->always))
        return result;
    if (x->fault->kind == DELAY) {
        usleep(x->delay);
        return result;
    }
    if (x->fault->kind == SHRINK) {
        if (i == at)
            assert_int_equal(truncate(x->path, 4096), 0);
        return result;
    }
    /* the bytes that a failed or short read did not bring */
    const size_t got = x->fault->result > 0 && (size_t)x->fault->result < n ? (size_t)x->fault->result : 0;
    if (x->fault->result >= (ssize_t)n)
        return result;
    memset(to + got, 0x5a, n - got);
    return x->fault->result;
}

static struct how how_of(const struct subject *on, struct injection *x, int engine) {
    return (struct how){.share = on->share,
                        .reader = {.fault = inject, .fault_user = x, .piece = on->piece,
                                   .engine = engines[engine].engine}};
}

static uint32_t next_call(uint32_t at) { return at + (at_length() ? 1 : 1 + at / 2); }

/* ---- the table ---- */

static void print_head(void) {
    printf("%-30s %-9s %-9s %7s %7s %10s %10s %8s\n", "fault", "experts", "engine", "reads", "tried", "same bits",
           "reported", "healed");
}

static void print_row(const char *name, const struct subject *on, int engine, uint32_t reads, uint32_t tried, uint32_t same_bits,
                      uint32_t reported, uint32_t healed) {
    printf("%-30s %-9s %-9s %7u %7u %10u %10u %8u\n", name, on->name, engines[engine].name, reads, tried,
           same_bits, reported, healed);
}

/* ---- at each read in turn ---- */

enum { LATE = 5, EIO_ONCE };
static const struct fault faults[] = {
    {"interrupted (EINTR)", -EINTR, false, NULL, RETURN},
    {"refused once (EAGAIN)", -EAGAIN, false, NULL, RETURN},
    {"one byte came", 1, false, NULL, RETURN},
    {"one block came", 4096, false, NULL, RETURN},
    {"more than one block came", 5000, false, NULL, RETURN},
    [LATE] = {"late", 0, false, NULL, DELAY},
    [EIO_ONCE] = {"failed (EIO)", -EIO, false, "Input/output error", RETURN},
    {"failed from then on (EIO)", -EIO, true, "Input/output error", RETURN},
    {"refused from then on (EAGAIN)", -EAGAIN, true, "temporarily", RETURN},
    {"ended from then on", 0, true, "ends at byte", RETURN},
};

/* The request fails with all the words that name the place. */
static void must_report(const struct fault *f, const struct subject *on, const struct lode_error *err, int rc) {
    assert_int_equal(rc, LODE_ERR_IO);
    if (!strstr(err->where, on->file) || !strstr(err->text, "expert ") ||
        !strstr(err->text, " of layer ") || !strstr(err->text, "byte ") || !strstr(err->text, f->says))
        fail_msg("%s: %s: %s", f->name, err->where, err->text);
}

/* Once what was in flight has failed, the same bits again. */
static void must_heal(const struct lode_model *m, struct injection *x) {
    static float got[N][V];
    struct lode_error err;
    atomic_store(&x->at, 0);
    for (int i = 0; i < 100 && eval(m, N, 1, got, &err) < 0; i++)
        usleep(1000);
    same(m, N, 1);
}

static uint32_t count_reads(const struct subject *on, int engine) {
    static struct lode_profile p;
    struct injection x = {.fault = &faults[0]};
    struct how how = how_of(on, &x, engine);
    struct lode_model *m = load(on->path, &how);
    same(m, N, 1);
    lode_model_profile(m, &p);
    assert_int_equal(strstr(p.reader, "converted") != NULL, on->path == mlx.dir); /* not by the source itself */
    assert_int_equal(strstr(p.reader, "io_uring") != NULL && engine == 1, 0);
    lode_model_free(m);
    return atomic_load(&x.calls);
}

static void one_fault(const struct fault *f, const struct subject *on, int engine) {
    const uint32_t reads = count_reads(on, engine);
    /* how many there are is not the same each time: what has arrived when room is needed is not */
    const uint32_t last = f->says ? reads * 3 / 4 : reads;
    uint32_t tried = 0, n_same = 0, reported = 0, healed = 0;
    for (uint32_t at = 1; at <= last; at = next_call(at)) {
        static float got[N][V];
        struct lode_error err = {0};
        struct injection x = {.fault = f, .at = at, .delay = 5000};
        struct how how = how_of(on, &x, engine);
        struct lode_model *m = load(on->path, &how);
        tried++;
        if (f->says) {
            must_report(f, on, &err, eval(m, N, 1, got, &err));
            reported++;
            must_heal(m, &x);
            healed++;
        } else {
            same(m, N, 1);
            n_same++;
        }
        lode_model_free(m);
    }
    print_row(f->name, on, engine, reads, tried, n_same, reported, healed);
}

static void each_fault_at_each_read(void **state) {
    (void)state;
    print_head();
    for (int i = 0; i < SUBJECTS; i++) {
        make_reference(subjects[i].path);
        for (size_t f = 0; f < sizeof faults / sizeof *faults; f++)
            for (int e = 0; e < ENGINES; e++)
                if (at_length() || i == 0 || e == (int)(f + (size_t)i) % ENGINES) /* the first by both engines */
                    one_fault(&faults[f], &subjects[i], e);
    }
}

/* ---- a file that really gets shorter, and is restored ---- */

static void shrinking(const struct subject *on, const char *weights, const char *saved) {
    static const struct fault shrink = {"the file shrank to a page", 0, false, "ends at byte", SHRINK};
    for (int e = at_length() || !strcmp(on->name, "GGUF") ? 0 : 1; e < ENGINES; e++) {
        const uint32_t reads = count_reads(on, e);
        uint32_t tried = 0, reported = 0;
        for (uint32_t at = 1; at <= reads / 2; at = next_call(at)) {
            static float got[N][V];
            struct lode_error err = {0};
            struct injection x = {.fault = &shrink, .at = at, .path = weights};
            struct how how = how_of(on, &x, e);
            struct lode_model *m = load(on->path, &how);
            /* what is mapped, not read, may be asked for first: that is the same error, of the file */
            const int rc = eval(m, N, 1, got, &err);
            assert_int_equal(rc, LODE_ERR_IO);
            assert_non_null(strstr(err.where, on->file));
            tried++;
            reported++;
            lode_model_free(m);
            copy_file(saved, weights);
        }
        struct injection none = {.fault = &shrink};
        struct how how = how_of(on, &none, e);
        struct lode_model *m = load(on->path, &how);
        same(m, N, 1);
        lode_model_free(m);
        print_row(shrink.name, on, e, reads, tried, 0, reported, reported);
    }
}

static void shrinking_file(void **state) {
    (void)state;
    struct sigaction cmocka;
    assert_int_equal(sigaction(SIGBUS, NULL, &cmocka), 0);
    assert_int_equal(lode_install_sigbus_handler(NULL), 0); /* as programs do, for what is mapped */
    char dir[] = "/tmp/lode-test-XXXXXX", path[64], saved[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/model.gguf", dir);
    snprintf(saved, sizeof saved, "%s/saved", dir);
    for (int i = 0; i < SUBJECTS; i++) {
        struct subject on = subjects[i];
        if (on.path == model) {
            copy_file(path_of(model), path);
            on.path = on.file = path;
        }
        copy_file(on.file, saved);
        make_reference(on.path);
        shrinking(&on, on.file, saved);
        unlink(saved);
    }
    sigaction(SIGBUS, &cmocka, NULL);
    unlink(path);
    assert_int_equal(rmdir(dir), 0);
}

/* ---- a file that is written to ---- */

/* In place, while it is used: nobody can tell which bytes came before. */
static void written_while_it_is_used(void **state) {
    (void)state;
    static float got[N][V];
    char path[] = "/tmp/lode-test-XXXXXX.gguf";
    const int fd = mkstemps(path, 5);
    struct lode_error err;
    assert_true(fd >= 0);
    copy_file(path_of(model), path);
    const struct timespec long_ago[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    assert_int_equal(futimens(fd, long_ago), 0);
    make_reference(path);
    struct injection none = {.fault = &faults[0]};
    struct how how = how_of(&subjects[0], &none, 1);
    struct lode_model *m = load(path, &how), *copied;
    same(m, N, 1);
    assert_int_equal(lode_model_load(&copied, path, &(struct lode_model_opts){.no_mmap = true}, &err), 0);
    char last;
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(pread(fd, &last, 1, st.st_size - 1), 1);
    assert_int_equal(pwrite(fd, &last, 1, st.st_size - 1), 1);
    assert_int_equal(eval(m, N, 1, got, &err), LODE_ERR_IO);
    assert_string_equal(err.where, path);
    assert_non_null(strstr(err.text, "written to after it was opened"));
    same(copied, N, 1); /* which reads no file any more */
    lode_model_free(copied);
    lode_model_free(m);
    close(fd);
    unlink(path);
}

/* ---- who waits can leave ---- */

static uint64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static bool is_set(void *user) { return atomic_load((atomic_bool *)user); }

struct leaver {
    const struct lode_model *model;
    atomic_bool cancel;
    int rc;
    uint64_t took; /* ms, from the cancelling on */
};

static void *run_leaver(void *arg) {
    struct leaver *l = arg;
    struct lode_session *s;
    struct lode_error err;
    static float got[N][V];
    const struct lode_session_opts o = {
        .ctx = 64, .batch = N, .threads = 1, .cancel = is_set, .cancel_user = &l->cancel};
    l->rc = lode_session_create(&s, (struct lode_model *)(uintptr_t)l->model, &o, &err);
    if (l->rc == 0)
        l->rc = lode_session_eval_each(s, ids, N, keep, got, &err);
    lode_session_free(s);
    l->took = now_ms();
    return NULL;
}

/* The k-th read takes two seconds (thirty, in the long form); whoever waits for it is cancelled, and is
 * gone long before it comes.  Then the others are answered as ever. */
static void cancelled_while_waiting(void **state) {
    (void)state;
    for (int k = 0; k < ENGINES + 1; k++) { /* both engines, and converted */
        const int e = k % ENGINES;
        const struct subject *on = &subjects[k < ENGINES ? 0 : 2];
        struct injection x = {.fault = &faults[LATE], .at = 9, .delay = at_length() ? 30000000 : 2000000};
        struct how how = how_of(on, &x, e);
        make_reference(on->path);
        struct leaver l = {.model = load(on->path, &how)};
        pthread_t t;
        assert_int_equal(pthread_create(&t, NULL, run_leaver, &l), 0);
        while (atomic_load(&x.calls) < 9)
            usleep(1000);
        usleep(100000); /* it waits by now, or soon */
        const uint64_t start = now_ms();
        atomic_store(&l.cancel, true);
        pthread_join(t, NULL);
        assert_int_equal(l.rc, LODE_ERR_CANCELLED);
        assert_true(l.took - start < x.delay / 2000);
        same(l.model, N, 1);
        lode_model_free((struct lode_model *)(uintptr_t)l.model);
        printf("cancelled while a read took %.0f s: back after %.3f s (%s, %s)\n", x.delay / 1e6,
               (double)(l.took - start) / 1e3, on->name, engines[e].name);
    }
}

/* ---- company ---- */

struct partner {
    const struct lode_model *model;
    float got[N][V];
    int rc;
    struct lode_error err;
};

static void *run_partner(void *arg) {
    struct partner *p = arg;
    p->rc = eval(p->model, 5, 1, p->got, &p->err);
    return NULL;
}

/* Two requests at once, and one read of one expert fails: whoever wanted it is told; the other, if it did
 * not, and both when they ask again, have the right bits. */
static void company_on(const struct subject *on) {
    static struct partner p[2];
    uint32_t unharmed = 0, told = 0;
    make_reference(on->path);
    for (uint32_t at = 1; at < 40; at = next_call(at)) {
        struct injection x = {.fault = &faults[EIO_ONCE], .at = at};
        struct how how = how_of(on, &x, (int)(at % 2));
        struct lode_model *m = load(on->path, &how);
        pthread_t t[2];
        for (int i = 0; i < 2; i++) {
            p[i] = (struct partner){.model = m};
            assert_int_equal(pthread_create(&t[i], NULL, run_partner, &p[i]), 0);
        }
        for (int i = 0; i < 2; i++)
            pthread_join(t[i], NULL);
        for (int i = 0; i < 2; i++)
            if (p[i].rc == 0) {
                assert_memory_equal(p[i].got, reference, sizeof reference);
                unharmed++;
            } else {
                must_report(&faults[EIO_ONCE], on, &p[i].err, p[i].rc);
                told++;
            }
        must_heal(m, &x);
        lode_model_free(m);
    }
    assert_true(told > 0);
    printf("two requests, one failed read (%s): %u told, %u unharmed, all well afterwards\n", on->name, told,
           unharmed);
}

static void company(void **state) {
    (void)state;
    for (int i = 0; i < SUBJECTS; i++)
        company_on(&subjects[i]);
}

/* ---- a disk that wakes up ---- */

/* A read that takes five seconds, in each form and by each engine, all at once; two sessions of each model. */
struct sleeper {
    struct injection x;
    struct lode_model *model;
    struct partner p[2];
    pthread_t t[2];
};

static void five_seconds(void **state) {
    (void)state;
    static struct sleeper all[SUBJECTS * ENGINES];
    static float expected[SUBJECTS][N][V];
    for (int i = 0; i < SUBJECTS; i++) { /* of the same tokens: the vocabularies have one size */
        make_reference(subjects[i].path);
        memcpy(expected[i], reference, sizeof reference);
    }
    const uint64_t start = now_ms();
    for (int i = 0; i < SUBJECTS * ENGINES; i++) {
        struct sleeper *s = &all[i];
        const struct subject *on = &subjects[i / ENGINES];
        *s = (struct sleeper){.x = {.fault = &faults[LATE], .at = 5 + (uint32_t)i, .delay = 5000000}};
        struct how how = how_of(on, &s->x, i % ENGINES);
        s->model = load(on->path, &how);
        for (int k = 0; k < 2; k++) {
            s->p[k] = (struct partner){.model = s->model};
            assert_int_equal(pthread_create(&s->t[k], NULL, run_partner, &s->p[k]), 0);
        }
    }
    for (int i = 0; i < SUBJECTS * ENGINES; i++) {
        for (int k = 0; k < 2; k++)
            pthread_join(all[i].t[k], NULL);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(all[i].p[k].rc, 0);
            assert_memory_equal(all[i].p[k].got, expected[i / ENGINES], sizeof reference);
        }
        assert_true(atomic_load(&all[i].x.calls) >= atomic_load(&all[i].x.at));
        lode_model_free(all[i].model);
    }
    const uint64_t took = now_ms() - start;
    assert_true(took >= 5000);
    printf("a read of 5 s in each of %d stores, two sessions each: the same bits, after %.1f s\n",
           SUBJECTS * ENGINES, (double)took / 1e3);
}

/* Several that fail at once: each is told by its own name. */
static void each_its_own(void **state) {
    (void)state;
    static const struct fault *const broken = &faults[EIO_ONCE + 1];
    for (int i = 0; i < SUBJECTS; i++) {
        const struct subject *on = &subjects[i];
        struct injection x = {.fault = broken, .at = 1};
        struct how how = how_of(on, &x, i % ENGINES);
        how.share = 1;
        struct lode_model *m = load(on->path, &how);
        const struct lode_store_ops *ops = m->store->ops;
        for (uint32_t g = 0; g < 4; g++) {
            const void *data;
            struct lode_error err;
            assert_true(ops->pin(m->store, m->groups[g].weights[0], &data, &err) != LODE_FULL);
        }
        for (uint32_t g = 0; g < 4; g++) {
            const uint32_t id = m->groups[g].weights[0];
            const void *data;
            struct lode_error err = {0};
            char named[64];
            int rc;
            while ((rc = ops->look(m->store, id, &data, &err)) == LODE_PENDING)
                usleep(1000);
            must_report(broken, on, &err, rc);
            snprintf(named, sizeof named, "expert %u of layer %u ", m->groups[g].expert, m->groups[g].layer);
            if (!strstr(err.text, named))
                fail_msg("'%s' expected: %s", named, err.text);
        }
        for (uint32_t g = 0; g < 4; g++)
            ops->unpin(m->store, m->groups[g].weights[0]);
        lode_model_free(m);
    }
}

/* ---- a bit flipped in each record of a packed model ---- */

static void flip(const char *path, uint64_t at, int bit) {
    char byte = 0;
    const int fd = open(path, O_RDWR);
    assert_true(fd >= 0 && pread(fd, &byte, 1, (off_t)at) == 1);
    byte = (char)(byte ^ 1 << bit);
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    close(fd);
}

static void flipped_bits(void **state) {
    (void)state;
    struct packed packed;
    struct lode_error err;
    make_packed(&packed, model);
    make_reference(packed.to);
    const char *to = packed.to, *weights = packed.weights;
    /* where the records are, and which are used */
    struct injection none = {.fault = &faults[0]};
    struct how how = how_of(&subjects[1], &none, 0);
    how.share = 1;
    struct lode_model *m = load(to, &how);
    same(m, N, 1);
    const uint32_t *uses = m->store->ops->uses(m->store);
    const uint32_t n = m->n_expert_groups;
    struct lode_place *places = calloc(n, sizeof *places);
    bool *used = calloc(n, sizeof *used);
    struct lode_group *groups = calloc(n, sizeof *groups);
    assert_true(places && used && groups);
    for (uint32_t g = 0; g < n; g++) {
        const struct lode_weight *w = &m->weights[m->groups[g].weights[0]];
        assert_true(lode_source_place(m->source, w->home, w->offset, w->size, &places[g]));
        assert_true(places[g].record_size > 0);
        used[g] = uses[g] > 0;
        groups[g] = m->groups[g];
    }
    lode_model_free(m);
    uint32_t found = 0, unused = 0;
    for (uint32_t g = 0; g < n; g++) {
        static float got[N][V];
        char named[64];
        const uint64_t at = places[g].record + (977ull * g + 131) % places[g].record_size;
        flip(weights, at, (int)(g % 8));
        struct how again = how_of(&subjects[1], &none, (int)(g % 2));
        m = load(to, &again);
        const int rc = eval(m, N, 1, got, &err);
        lode_model_free(m);
        flip(weights, at, (int)(g % 8));
        if (!used[g]) {
            assert_int_equal(rc, 0);
            assert_memory_equal(got, reference, sizeof got);
            unused++;
            continue;
        }
        assert_int_equal(rc, LODE_ERR_IO);
        snprintf(named, sizeof named, "expert %u of layer %u at byte %llu is damaged", groups[g].expert,
                 groups[g].layer, (unsigned long long)places[g].record);
        if (!strstr(err.where, "weights.bin") || !strstr(err.text, named))
            fail_msg("'%s' expected: %s: %s", named, err.where, err.text);
        found++;
    }
    assert_true(found > 0);
    printf("a bit flipped in each of %u records: %u found and named, %u in none that was used\n", n, found,
           unused);
    free(places);
    free(used);
    free(groups);
    remove_packed(&packed);
}

/* ---- a bit flipped in each tensor that is no expert's, and in what is in memory all the time ---- */

/* Loads and evaluates as `o` says; whatever is damaged must be found by one of them. */
static int load_and_eval(const char *path, const struct lode_model_opts *o, struct lode_error *err) {
    static float got[N][V];
    struct lode_model *m;
    LODE_TRY(lode_model_load(&m, path, o, err));
    const int rc = eval(m, N, 1, got, err);
    lode_model_free(m);
    return rc;
}

static void flipped_dense(void **state) {
    (void)state;
    static const char *const sources[] = {model, "llama"};
    uint32_t found = 0;
    for (size_t k = 0; k < 2; k++) {
        struct packed packed;
        struct lode_source *s;
        struct lode_error err = {0};
        make_packed(&packed, sources[k]);
        make_reference(packed.to);
        /* mapped; read past the page cache; not mapped; layers streamed, experts beside them or not */
        struct lode_model_opts how[] = {{0}, {.direct = true}, {.no_mmap = true}, {.layer_cache = 1},
                                        {.expert_cache = 1 << 18}};
        assert_int_equal(load_and_eval(packed.to, &how[3], &err), LODE_ERR_LIMIT);
        how[3].layer_cache = (uint64_t)(atof(strstr(err.text, "two take ") + 9) * 0x1p20) + 65536;
        const size_t n_how = k ? 4 : 5;
        assert_int_equal(lode_source_open(&s, packed.to, false, &err), 0);
        for (size_t i = 0; i < s->n_tensors; i++) {
            const struct lode_gguf_tensor *t = &s->tensors[i];
            struct lode_place p;
            char named[128];
            const size_t in = (977 * i + 131) % t->size;
            unsigned layer = 0;
            assert_true(lode_source_place(s, t, in, 1, &p));
            const bool expert = strstr(t->name, "_exps.") != NULL;
            const bool in_layer = sscanf(t->name, "blk.%u.", &layer) == 1;
            if (expert)
                snprintf(named, sizeof named, "expert %u of layer %u at byte %llu is damaged",
                         (unsigned)(in / (t->size / t->dims[2])), layer, (unsigned long long)p.record);
            else
                snprintf(named, sizeof named, in_layer ? "%s of layer " : "%s at byte ", t->name);
            flip(packed.weights, p.offset, (int)(i % 8));
            for (size_t h = 0; h < n_how; h++) {
                if (expert && h == 4) /* those that are used: above */
                    continue;
                memset(&err, 0, sizeof err);
                const int rc = load_and_eval(packed.to, &how[h], &err);
                char at[64];
                snprintf(at, sizeof at, "at byte %llu is damaged", (unsigned long long)p.record);
                if (rc != LODE_ERR_IO || !strstr(err.where, "weights.bin") || !strstr(err.text, named) ||
                    !strstr(err.text, at))
                    fail_msg("%zu: '%s' expected: %d %s: %s", h, named, rc, err.where, err.text);
                found++;
                struct lode_model_opts unchecked = how[h];
                unchecked.no_checksum = true;
                if (!expert && i % 8 == 0)
                    assert_int_equal(load_and_eval(packed.to, &unchecked, &err), 0);
            }
            flip(packed.weights, p.offset, (int)(i % 8));
        }
        assert_int_equal(load_and_eval(packed.to, &how[0], &err), 0);
        lode_source_close(s);
        remove_packed(&packed);
    }
    printf("a bit flipped in each tensor, loaded and streamed: %u of %u found and named\n", found, found);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_fault_at_each_read), cmocka_unit_test(shrinking_file),
        cmocka_unit_test(written_while_it_is_used),
        cmocka_unit_test(cancelled_while_waiting), cmocka_unit_test(company), cmocka_unit_test(each_its_own), cmocka_unit_test(five_seconds),
        cmocka_unit_test(flipped_bits), cmocka_unit_test(flipped_dense),
    };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
