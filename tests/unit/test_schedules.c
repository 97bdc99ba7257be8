/* One output, whatever happens around a request: hundreds of random schedules, with pages too few for
 * all, prefixes kept, bounded, forgotten or brought from disk, priorities, forks and cancels; and no
 * page is lost.
 */
#include "../own_files.h"
#include "effort.h"
#include "failmalloc.h"
#include "requests.h"
#include "tmpdir.h"

#include "model/model.h"
#include "store/file_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* gemma3: windows that rotate; llama: plain; qwen3_next and qwen3_5: recurrent layers. */
static const char *const models[] = {"gemma3", "llama", "qwen3_next", "qwen3_5"};
enum { N_MODELS = sizeof models / sizeof *models, MAX_LIVE = 7 };

static void prepare(const char *name) {
    load(name);
    for (uint64_t i = 0; i < N_REQUESTS; i++) {
        make_request(&requests[i], i);
        answer_alone(&requests[i]);
    }
}

static struct lode_scheduler *open_scheduler(struct lode_scheduler_opts o) {
    struct lode_scheduler *s;
    struct lode_error err;
    o.session.ctx = CTX;
    o.session.threads = 1;
    must(lode_scheduler_create(&s, model, &o, &err), &err);
    return s;
}

/* ---- one schedule ---- */

struct live {
    struct lode_generation *g;
    const struct request *r;
    size_t n, leave_at; /* tokens taken; and when its owner goes away */
    size_t from;        /* prompt tokens from here on are weighed; 0: none */
};

struct schedule {
    struct lode_scheduler *s;
    uint64_t seed, drawn;
    struct live live[MAX_LIVE];
    unsigned started, wrong;
};

static double draw(struct schedule *c) { return lode_rng_uniform(c->seed, c->drawn++, 1); }

static void begin(struct schedule *c, struct live *l) {
    struct lode_error err;
    const struct live *other = &c->live[(size_t)(draw(c) * MAX_LIVE)];
    *l = (struct live){.r = &requests[(size_t)(draw(c) * N_REQUESTS)]};
    if (other != l && other->g && draw(c) < 0.5)
        l->r = other->r;
    struct lode_generation_opts o = opts_of(l->r);
    o.priority = (int32_t)(draw(c) * 3) - 1;
    o.client = (uint64_t)(draw(c) * 3);
    o.no_cache = draw(c) < 0.1;
    if (other != l && other->g && other->r == l->r)
        o.like = other->g;
    if (draw(c) < 0.3)
        l->from = o.prompt_logprobs = 1 + (size_t)(draw(c) * (double)l->r->n_prompt);
    l->leave_at = draw(c) < 0.2 ? (size_t)(draw(c) * 6) : SIZE_MAX;
    must(lode_generation_start(&l->g, c->s, &o, &err), &err);
    c->started++;
}

/* What was said of its prompt. */
static unsigned wrong_given(const struct live *l) {
    struct lode_generation_token given[MAX_PROMPT];
    const size_t n = lode_generation_prompt(l->g, given, MAX_PROMPT);
    unsigned wrong = n != (l->from ? l->r->n_prompt - l->from : 0);
    for (size_t i = 0; i < n; i++)
        wrong += given[i].id != l->r->prompt[l->from + i] ||
                 memcmp(&given[i].logprob, &l->r->given[l->from + i], sizeof given[i].logprob) != 0;
    return wrong;
}

/* Takes what is there. */
static void look(struct schedule *c, struct live *l, int wait_ms) {
    struct lode_generation_token t;
    struct lode_error err;
    int rc = LODE_GENERATION_WAIT;
    while (l->n < l->leave_at &&
           (rc = lode_generation_next(l->g, &t, wait_ms, &err)) == LODE_GENERATION_TOKEN) {
        c->wrong += l->n >= l->r->n_answer || t.id != l->r->answer[l->n] ||
                    memcmp(&t.logprob, &l->r->logprob[l->n], sizeof t.logprob) != 0;
        l->n++;
        wait_ms = 0;
    }
    if (rc == LODE_GENERATION_WAIT && l->n < l->leave_at)
        return;
    if (l->n < l->leave_at)
        c->wrong += (rc != LODE_GENERATION_LIMIT || l->n != l->r->n_answer) + wrong_given(l);
    lode_generation_free(l->g);
    l->g = NULL;
}

static void run_schedule(struct lode_scheduler *s, uint64_t seed) {
    struct schedule c = {.s = s, .seed = seed};
    const uint64_t n_starts = effort(30);
    bool busy = true;
    while (busy) {
        busy = c.started < n_starts;
        for (size_t i = 0; i < MAX_LIVE; i++) {
            if (!c.live[i].g && c.started < n_starts && draw(&c) < 0.5)
                begin(&c, &c.live[i]);
            if (c.live[i].g)
                look(&c, &c.live[i], draw(&c) < 0.3 ? 1 : 0);
            busy |= c.live[i].g != NULL;
        }
        if (draw(&c) < 0.02)
            lode_scheduler_forget(s);
    }
    if (c.wrong)
        fail_msg("schedule %llu: %u wrong", (unsigned long long)seed, c.wrong);
}

/* Once nobody runs, and nothing is kept, all pages are free. */
static void no_page_is_lost(struct lode_scheduler *s) {
    struct lode_scheduler_stats st = {0};
    for (int i = 0; i < 5000; i++) {
        lode_scheduler_forget(s);
        lode_scheduler_stats(s, &st);
        if (st.running + st.waiting == 0 && st.free_pages == st.pages && st.cached_bytes == 0)
            return;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    fail_msg("%u of %u pages are free, %llu bytes cached", st.free_pages, st.pages,
             (unsigned long long)st.cached_bytes);
}

static void any_schedule(void **state) {
    (void)state;
    uint64_t preempted = 0, forked = 0, reused = 0, evicted = 0;
    for (size_t m = 0; m < N_MODELS; m++) {
        prepare(models[m]);
        for (uint64_t k = 0; k < 6; k++) {
            struct lode_scheduler *s = open_scheduler((struct lode_scheduler_opts){
                .slots = k < 1 ? 1 : 2 + (uint32_t)k,
                .queue = 64,
                .chunk = 8 << k % 3,
                .session.batch = 24 + 40 * (uint32_t)(k % 3),
                .kv_tokens = k < 5 ? CTX + 64 * (k / 2) : 0,
                .cache_bytes = k == 3 ? 200000 : 0,
                .no_cache = k == 2});
            for (uint64_t i = 0; i < 3; i++)
                run_schedule(s, 100 * m + 10 * k + i);
            no_page_is_lost(s);
            struct lode_scheduler_stats st;
            lode_scheduler_stats(s, &st);
            assert_int_equal(st.failed, 0);
            preempted += st.preemptions;
            forked += st.forks;
            reused += st.reused_tokens;
            evicted += st.evictions;
            lode_scheduler_free(s);
        }
        lode_model_free(model);
    }
    assert_true(preempted && forked && reused && evicted);
}

/* ---- on disk ---- */

static struct lode_scheduler_stats answer_all(struct lode_scheduler_opts o) {
    struct lode_scheduler_stats st;
    o.slots = 3;
    struct lode_scheduler *s = open_scheduler(o);
    run_schedule(s, 1);
    no_page_is_lost(s);
    run_schedule(s, 2);
    lode_scheduler_stats(s, &st);
    assert_int_equal(st.failed, 0);
    lode_scheduler_free(s);
    return st;
}

/* One request, whatever it is answered. */
static struct lode_scheduler_stats ask_once(struct lode_scheduler_opts o) {
    struct lode_scheduler *s = open_scheduler(o);
    const struct lode_generation_opts go = opts_of(&requests[0]);
    struct lode_generation *g;
    struct lode_generation_token t;
    struct lode_scheduler_stats st;
    struct lode_error err;
    must(lode_generation_start(&g, s, &go, &err), &err);
    while (lode_generation_next(g, &t, -1, &err) == LODE_GENERATION_TOKEN)
        ;
    lode_generation_free(g);
    no_page_is_lost(s);
    lode_scheduler_stats(s, &st);
    lode_scheduler_free(s);
    return st;
}

/* Calls fn for each file of the cache. */
static unsigned each_file(const char *dir, void (*fn)(const char *path)) {
    unsigned n = 0;
    DIR *all = opendir(dir);
    for (struct dirent *e; all && (e = readdir(all));) {
        char sub[8192];
        snprintf(sub, sizeof sub, "%s/%s", dir, e->d_name);
        DIR *one = e->d_name[0] == '.' ? NULL : opendir(sub);
        for (struct dirent *f; one && (f = readdir(one));) {
            char path[16384];
            snprintf(path, sizeof path, "%s/%s", sub, f->d_name);
            if (f->d_name[0] == '.')
                continue;
            n++;
            if (fn)
                fn(path);
        }
        if (one)
            closedir(one);
    }
    if (all)
        closedir(all);
    return n;
}

static void spoil(const char *path) { /* a bit somewhere, or the end missing */
    struct stat st;
    unsigned char byte;
    static unsigned n;
    assert_int_equal(stat(path, &st), 0);
    const off_t at = (off_t)(lode_rng_uniform(n++, 0, 0) * (double)st.st_size);
    const int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    if (n % 4 == 0) {
        assert_int_equal(ftruncate(fd, at), 0);
    } else {
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= (unsigned char)(1u << n % 8);
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    close(fd);
}

static void across_restarts(void **state) {
    (void)state;
    for (size_t m = 0; m < N_MODELS; m++) {
        char *dir = tmp_path(models[m]);
        prepare(models[m]);
        const struct lode_scheduler_opts o = {.cache_dir = dir};
        struct lode_scheduler_stats st = answer_all(o);
        assert_true(st.disk.written > 0);
        assert_int_equal(st.disk.errors, 0);
        st = answer_all(o); /* another process, as far as the directory knows */
        assert_true(st.disk.read > 0 && st.disk.corrupt == 0);

        const uint64_t entries = each_file(dir, NULL); /* what was written last is not in st */
        struct lode_scheduler_opts other = o; /* of another format: kept, not used */
        other.session.ctk = "f32";
        st = ask_once(other);
        assert_int_equal(st.disk.foreign, entries);
        assert_int_equal(st.disk.read, 0);

        each_file(dir, spoil);
        st = answer_all(o);
        assert_true(st.disk.corrupt > 0);

        struct lode_scheduler_opts small = o; /* a bound */
        small.cache_dir_bytes = st.disk.bytes / 4;
        st = answer_all(small);
        assert_true(st.disk.bytes <= small.cache_dir_bytes && st.disk.evicted > 0);
        lode_model_free(model);
        free(dir);
    }
}

/* "llama", with other options; false: this machine cannot. */
static bool load_as(const struct lode_model_opts *o) {
    struct lode_error err;
    const int rc = lode_model_load(&model, own_model("arch/llama"), o, &err);
    if (rc != LODE_ERR_UNSUPPORTED)
        must(rc, &err);
    return rc == 0;
}

/* What one CPU wrote another one uses, wherever the directory lies; what other numerics made is kept,
 * counted, not used, and there again for those that made it. */
static void from_another_machine(void **state) {
    (void)state;
    char *dir = tmp_path("here"), *moved = tmp_path("there");
    const char *const *isas = lode_machine_isas();
    prepare("llama");
    lode_model_free(model);
    assert_true(load_as(&(struct lode_model_opts){.isa = "scalar"}));
    struct lode_scheduler_stats st = answer_all((struct lode_scheduler_opts){.cache_dir = dir});
    assert_true(st.disk.written > 0);
    lode_model_free(model);
    assert_int_equal(rename(dir, moved), 0);
    const struct lode_scheduler_opts o = {.cache_dir = moved};
    for (size_t i = 0; isas[i]; i++) { /* answers are compared with those of the best one */
        if (!load_as(&(struct lode_model_opts){.isa = isas[i]}))
            continue;
        st = answer_all(o);
        assert_true(st.disk.read > 0);
        assert_int_equal(st.disk.foreign + st.disk.corrupt, 0);
        lode_model_free(model);
    }
    const uint64_t entries = st.disk.entries;
    const struct lode_model_opts others[] = {{.float_act = true}, {.numerics = "fast"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (!load_as(&others[i]))
            continue;
        if (others[i].numerics && strcmp(lode_model_info(model)->numerics, "exact") == 0) { /* has no fast ones */
            lode_model_free(model);
            continue;
        }
        st = ask_once(o);
        assert_true(st.disk.foreign >= entries);
        assert_int_equal(st.disk.read, 0);
        lode_model_free(model);
    }
    assert_true(load_as(NULL));
    st = answer_all(o);
    assert_true(st.disk.read > 0 && st.disk.foreign > 0 && st.disk.entries >= entries);
    lode_model_free(model);
    free(dir);
    free(moved);
}

/* Killed at any moment, the next process finds whole entries and no others. */
static void after_a_kill(void **state) {
    (void)state;
    char *dir = tmp_path("killed");
    const struct lode_scheduler_opts o = {.cache_dir = dir, .slots = 2};
    for (int i = 0; i < 4; i++) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            load("llama");
            for (uint64_t k = 0; k < N_REQUESTS; k++)
                make_request(&requests[k], k);
            struct lode_scheduler *s = open_scheduler(o);
            struct lode_generation *g[N_REQUESTS];
            for (size_t k = 0; k < N_REQUESTS; k++) {
                const struct lode_generation_opts go = opts_of(&requests[k]);
                if (lode_generation_start(&g[k], s, &go, NULL) < 0)
                    _exit(1);
            }
            struct lode_generation_token t;
            lode_generation_next(g[2 * i + 1], &t, -1, NULL);
            nanosleep(&(struct timespec){.tv_nsec = 700000 * i}, NULL);
            kill(getpid(), SIGKILL);
        }
        int status;
        waitpid(child, &status, 0);
        assert_true(WIFSIGNALED(status));
    }
    prepare("llama");
    const struct lode_scheduler_stats st = answer_all(o);
    assert_int_equal(st.disk.corrupt, 0);
    assert_true(st.disk.read > 0);
    lode_model_free(model);
    free(dir);
}

/* A disk that takes nothing more costs no answer. */
static void full_disk(void **state) {
    (void)state;
    char *dir = tmp_path("full");
    struct rlimit all, few;
    prepare("llama");
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
    few = all;
    few.rlim_cur = 2000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
    const struct lode_scheduler_stats st =
        answer_all((struct lode_scheduler_opts){.cache_dir = dir});
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
    assert_true(st.disk.errors > 0);
    assert_int_equal(st.disk.written, 0);
    assert_int_equal(each_file(dir, NULL), 0);
    lode_model_free(model);
    free(dir);
}

/* ---- order and limits ---- */

/* A generation that nobody reads: it holds the only slot. */
static struct lode_generation *hold_the_slot(struct lode_scheduler *s) {
    struct lode_generation_opts o = opts_of(&requests[0]);
    struct lode_generation *g;
    struct lode_generation_token t;
    struct lode_error err;
    o.max_tokens = -1;
    must(lode_generation_start(&g, s, &o, &err), &err);
    assert_int_equal(lode_generation_next(g, &t, -1, &err), LODE_GENERATION_TOKEN);
    return g;
}

static void order(void **state) {
    (void)state;
    prepare("llama");
    struct lode_scheduler *s = open_scheduler((struct lode_scheduler_opts){.slots = 1});
    struct lode_generation *g[5];
    struct lode_generation_token t;
    struct lode_generation_stats st;
    struct lode_error err;
    struct lode_generation *first = hold_the_slot(s);
    struct lode_generation_opts o = opts_of(&requests[1]);
    const struct { /* two clients, a priority, a deadline */
        uint64_t client;
        int32_t priority;
        double deadline;
        size_t place; /* once all five wait */
    } wants[5] = {{1, 0, 0, 2}, {1, 0, 0, 4}, {2, 0, 0, 3}, {1, 5, 0, 1}, {1, -1, 0.05, 5}};
    for (size_t i = 0; i < 5; i++) {
        o.client = wants[i].client;
        o.priority = wants[i].priority;
        o.deadline = wants[i].deadline;
        must(lode_generation_start(&g[i], s, &o, &err), &err);
    }
    for (size_t i = 0; i < 4; i++) {
        lode_generation_stats(g[i], &st);
        assert_int_equal(st.place, wants[i].place);
    }
    assert_int_equal(lode_generation_next(g[4], &t, 10000, &err), LODE_ERR_LIMIT);
    assert_string_equal(err.where, "deadline");
    for (size_t i = 0; i < 5; i++)
        lode_generation_free(g[i]);
    lode_generation_free(first);
    no_page_is_lost(s);
    lode_scheduler_free(s);
    assert_int_equal(lode_scheduler_create(
                         &s, model,
                         &(struct lode_scheduler_opts){.session.ctx = CTX, .kv_tokens = CTX - 1}, &err),
                     LODE_ERR_ARG);
    assert_string_equal(err.where, "kv_tokens");
    lode_model_free(model);
}

/* One client's requests by their deadlines, none counting as a minute; another client's places stay. */
static void order_of_deadlines(void **state) {
    (void)state;
    prepare("llama");
    struct lode_scheduler *s = open_scheduler((struct lode_scheduler_opts){.slots = 1});
    struct lode_generation *g[7];
    struct lode_generation_stats st;
    struct lode_error err;
    struct lode_generation *first = hold_the_slot(s);
    struct lode_generation_opts o = opts_of(&requests[1]);
    const struct {
        uint64_t client;
        double deadline;
        size_t place; /* once all wait */
    } wants[7] = {{1, 0, 5}, {1, 40, 3}, {2, 0, 2}, {1, 300, 7}, {1, 30, 1}, {2, 100, 4}, {1, 0, 6}};
    /* client 1's five, by deadline: 30, 40, 60, 60, 300; client 2's two between them, as they came */
    for (size_t i = 0; i < 7; i++) {
        o.client = wants[i].client;
        o.deadline = wants[i].deadline;
        must(lode_generation_start(&g[i], s, &o, &err), &err);
    }
    for (size_t i = 0; i < 7; i++) {
        lode_generation_stats(g[i], &st);
        assert_int_equal(st.place, wants[i].place);
    }
    o.deadline = 1e300; /* the same as none */
    struct lode_generation *last;
    must(lode_generation_start(&last, s, &o, &err), &err);
    lode_generation_free(first);
    for (size_t i = 0; i < 7; i++) { /* whoever comes when, the answer is the same */
        struct live l = {.g = g[i], .r = &requests[1], .leave_at = SIZE_MAX};
        struct schedule c = {.s = s};
        while (l.g)
            look(&c, &l, 10);
        assert_int_equal(c.wrong, 0);
    }
    lode_generation_free(last);
    no_page_is_lost(s);
    lode_scheduler_free(s);
    lode_model_free(model);
}

/* While a long prompt is read, a stream gets a token with each of its chunks. */
static void a_stream_waits_for_a_chunk(void **state) {
    (void)state;
    enum { CHUNK = 8, LONG = 240 };
    prepare("llama");
    struct lode_scheduler *s = open_scheduler((struct lode_scheduler_opts){.slots = 2, .chunk = CHUNK});
    static int32_t prompt[LONG];
    struct lode_generation *stream, *other;
    struct lode_generation_token t;
    struct lode_generation_stats st;
    struct lode_error err;
    struct lode_generation_opts o = opts_of(&requests[0]);
    o.n_prompt = 3;
    o.max_tokens = 200;
    must(lode_generation_start(&stream, s, &o, &err), &err);
    assert_int_equal(lode_generation_next(stream, &t, -1, &err), LODE_GENERATION_TOKEN);
    o.prompt = prompt;
    o.n_prompt = LONG;
    o.max_tokens = 1;
    must(lode_generation_start(&other, s, &o, &err), &err);
    size_t read = 0, n = 0;
    for (; read < LONG && n < 190; n++) { /* each token is waited for: what is read in between is a chunk */
        assert_int_equal(lode_generation_next(stream, &t, -1, &err), LODE_GENERATION_TOKEN);
        lode_generation_stats(other, &st);
        read = st.n_read;
    }
    lode_generation_stats(stream, &st);
    assert_int_equal(read, LONG);
    assert_true(st.n_generated >= LONG / CHUNK); /* at least one a chunk, whoever was faster */
    struct lode_scheduler_stats all;
    lode_scheduler_stats(s, &all);
    assert_true(all.fed_tokens <= 3 + LONG + st.n_generated);
    assert_true(all.steps >= LONG / CHUNK);
    lode_generation_free(stream);
    lode_generation_free(other);
    lode_scheduler_free(s);
    lode_model_free(model);
}

/* ---- jobs ---- */

/* What the continuation weighs, in a session of its own. */
static double weigh(struct lode_ids prompt, struct lode_ids text) {
    struct lode_session *s;
    struct lode_error err;
    double sum = 0;
    const uint32_t n_vocab = lode_model_info(model)->n_vocab;
    must(lode_session_create(&s, model, &(struct lode_session_opts){.ctx = CTX, .threads = 1}, &err), &err);
    must(lode_session_eval(s, prompt.ids, prompt.n, &err), &err);
    for (size_t i = 0; i < text.n; i++) {
        sum += (double)lode_logprob_of(lode_session_logits(s), n_vocab, text.ids[i]);
        must(lode_session_eval(s, &text.ids[i], 1, &err), &err);
    }
    lode_session_free(s);
    return sum;
}

static bool always(void *user) {
    (void)user;
    return true;
}

static void jobs(void **state) {
    (void)state;
    for (size_t m = 0; m < 3; m++) {
        prepare(models[m]);
        struct lode_scheduler *s = open_scheduler((struct lode_scheduler_opts){.slots = 3});
        struct lode_error err;
        const struct lode_ids prompt = {requests[3].prompt, requests[3].n_prompt};
        struct lode_scored pairs[9];
        for (size_t i = 0; i < 9; i++)
            pairs[i] = (struct lode_scored){.prompt = i < 6 ? prompt : (struct lode_ids){requests[i].prompt, 7},
                                            .text = {requests[i].prompt, i % 6}};
        must(lode_score(s, pairs, 9, NULL, &err), &err);
        for (size_t i = 0; i < 9; i++)
            assert_true(pairs[i].logprob == weigh(pairs[i].prompt, pairs[i].text));
        pairs[0].text = (struct lode_ids){(int32_t[]){-1}, 1};
        assert_int_equal(lode_score(s, pairs, 1, NULL, &err), LODE_ERR_ARG);
        pairs[0].text.n = 0;
        assert_int_equal(lode_score(s, pairs, 1, &(struct lode_job_opts){.cancel = always}, &err),
                         LODE_ERR_CANCELLED);

        struct lode_beam *beams;
        size_t n;
        must(lode_beam_search(s, prompt, &(struct lode_beam_opts){.width = 5, .max_tokens = 6}, &beams, &n,
                              &err), &err);
        assert_int_equal(n, 5);
        for (size_t i = 0; i < n; i++) { /* each weighs what it says; the best first */
            assert_true(beams[i].logprob == weigh(prompt, (struct lode_ids){beams[i].ids, beams[i].n}));
            assert_true(beams[i].ended || beams[i].n == 6);
            assert_true(i == 0 || beams[i - 1].score >= beams[i].score);
        }
        const double best = beams[0].score;
        lode_beams_free(beams, n);
        must(lode_beam_search(s, prompt, &(struct lode_beam_opts){.width = 1, .max_tokens = 6}, &beams, &n,
                              &err), &err);
        assert_int_equal(n, 1);
        assert_true(beams[0].score <= best);
        lode_beams_free(beams, n);
        no_page_is_lost(s);
        lode_scheduler_free(s);
        lode_model_free(model);
    }
}

/* A scheduler with a directory, and jobs, with any allocation failing: an error or the right answer, and
 * nothing is lost. */
static void any_allocation_fails(void **state) {
    (void)state;
    prepare("llama");
    char *dir = tmp_path("nomem");
    const struct lode_ids prompt = {requests[0].prompt, 5}, text = {requests[1].prompt, 3};
    struct lode_scored pairs[2] = {{prompt, text, 0}, {prompt, text, 0}};
    struct lode_scheduler *s;
    struct lode_error err;
    uint64_t failures = 0;
    for (uint64_t n = 1;; n++) {
        failmalloc_start(n, false);
        const int rc = lode_scheduler_create(
            &s, model,
            &(struct lode_scheduler_opts){
                .slots = 2, .cache_dir = dir, .session = {.ctx = 64, .threads = 1}}, &err);
        lode_scheduler_free(rc < 0 ? NULL : s);
        const struct failmalloc_stats st = failmalloc_stop();
        assert_int_equal(st.live, 0);
        failures += rc < 0;
        if (st.failed == 0)
            break;
    }
    s = open_scheduler((struct lode_scheduler_opts){.slots = 2, .cache_dir = dir});
    const double want = weigh(prompt, text);
    for (int job = 0; job < 2; job++)
        for (uint64_t n = 1;; n++) {
            struct lode_beam *beams = NULL;
            size_t n_beams = 0;
            failmalloc_start(n, false);
            const int rc = job ? lode_beam_search(s, prompt,
                                                  &(struct lode_beam_opts){.width = 2, .max_tokens = 2},
                                                  &beams, &n_beams, &err)
                               : lode_score(s, pairs, 2, NULL, &err);
            const struct failmalloc_stats st = failmalloc_stop();
            assert_true(rc == 0 || rc == LODE_ERR_NOMEM);
            assert_true(rc < 0 || job == 1 || (pairs[0].logprob == want && pairs[1].logprob == want));
            lode_beams_free(beams, n_beams);
            failures += rc < 0;
            if (st.failed == 0)
                break;
        }
    assert_true(failures > 30);
    no_page_is_lost(s);
    lode_scheduler_free(s);
    lode_model_free(model);
    free(dir);
}

/* ---- weights that cannot be read ---- */

struct faulty {
    struct lode_store base;
    struct lode_store *real;
};
static atomic_long pins_left; /* before one fails; negative: none does */
static atomic_uint faults;

static int faulty_pin(struct lode_store *s, uint32_t id, const void **data, struct lode_error *err) {
    struct lode_store *real = ((struct faulty *)s)->real;
    if (atomic_fetch_sub(&pins_left, 1) == 0) {
        faults++;
        return lode_fail(err, LODE_ERR_IO, "weights", "could not be read, for once");
    }
    return real->ops->pin(real, id, data, err);
}

static int faulty_look(struct lode_store *s, uint32_t id, const void **data, struct lode_error *err) {
    struct lode_store *real = ((struct faulty *)s)->real;
    return real->ops->look(real, id, data, err);
}

static void faulty_unpin(struct lode_store *s, uint32_t id) {
    struct lode_store *real = ((struct faulty *)s)->real;
    real->ops->unpin(real, id);
}

static uint64_t faulty_news(struct lode_store *s, uint32_t id) {
    struct lode_store *real = ((struct faulty *)s)->real;
    return real->ops->news(real, id);
}

static int faulty_verify(struct lode_store *s, struct lode_error *err) {
    struct lode_store *real = ((struct faulty *)s)->real;
    return real->ops->verify(real, err);
}

static void faulty_free(struct lode_store *s) {
    struct faulty *f = (struct faulty *)s;
    f->real->ops->free(f->real);
    free(f);
}

static const struct lode_store_ops faulty_ops = {.pin = faulty_pin,
                                                 .look = faulty_look,
                                                 .unpin = faulty_unpin,
                                                 .news = faulty_news,
                                                 .verify = faulty_verify,
                                                 .free = faulty_free};

static int make_faulty(struct lode_store **out, void *user, const struct lode_model *m,
                       struct lode_error *err) {
    struct faulty *f = calloc(1, sizeof *f);
    (void)user;
    f->base.ops = &faulty_ops;
    *out = &f->base;
    return lode_file_store_create(&f->real, m->source, m->weights, m->n_weights,
                                  &(struct lode_file_store_opts){0}, err);
}

/* A read that fails once fails the request that was alone in its step; of many in a step, each is
 * tried alone, and none fails. */
static void a_read_fails(void **state) {
    (void)state;
    unsigned failed = 0, answered = 0;
    for (size_t m = 0; m < 3; m++) {
        char path[4096];
        struct lode_error err;
        prepare(models[m]);
        snprintf(path, sizeof path, "%s", lode_model_info(model)->path);
        lode_model_free(model);
        atomic_store(&pins_left, -1);
        must(lode_model_load_with(&model, path, NULL, make_faulty, NULL, &err), &err);
        struct lode_scheduler *s = open_scheduler((struct lode_scheduler_opts){.slots = 3, .chunk = 16});
        for (long n = 0; n < 40; n++) {
            struct lode_generation *g[3];
            const size_t n_live = n % 4 ? 3 : 1;
            atomic_store(&pins_left, n % 4 ? 13 * n : 3 * n);
            for (size_t i = 0; i < n_live; i++) {
                const struct lode_generation_opts o = opts_of(&requests[(n + (long)i) % N_REQUESTS]);
                must(lode_generation_start(&g[i], s, &o, &err), &err);
            }
            for (size_t i = 0; i < n_live; i++) {
                const struct request *r = &requests[(n + (long)i) % N_REQUESTS];
                struct lode_generation_token t;
                size_t k = 0;
                int rc;
                while ((rc = lode_generation_next(g[i], &t, -1, &err)) == LODE_GENERATION_TOKEN) {
                    assert_true(k < r->n_answer);
                    assert_int_equal(t.id, r->answer[k++]);
                }
                assert_true(rc == LODE_GENERATION_LIMIT || rc == LODE_ERR_IO);
                assert_true(rc == LODE_ERR_IO || k == r->n_answer);
                assert_true(n_live > 1 || rc == LODE_ERR_IO || atomic_load(&pins_left) >= 0);
                failed += rc < 0;
                answered += rc >= 0;
                lode_generation_free(g[i]);
            }
            atomic_store(&pins_left, -1);
        }
        no_page_is_lost(s);
        lode_scheduler_free(s);
        lode_model_free(model);
    }
    assert_true(failed > 20 && answered > 200 && faults > 90);
}

/* A long prompt that nobody wants any more ends within its step. */
static void a_step_nobody_wants(void **state) {
    (void)state;
    prepare("llama");
    struct lode_scheduler *s = open_scheduler((struct lode_scheduler_opts){.slots = 2, .no_cache = true});
    static int32_t prompt[CTX];
    struct lode_scheduler_stats st;
    struct lode_error err;
    for (int i = 0; i < 50; i++) {
        struct lode_generation_opts o = opts_of(&requests[0]);
        struct lode_generation *g;
        o.prompt = prompt;
        o.n_prompt = CTX;
        must(lode_generation_start(&g, s, &o, &err), &err);
        nanosleep(&(struct timespec){.tv_nsec = 20000 * i}, NULL);
        lode_generation_free(g);
    }
    no_page_is_lost(s);
    lode_scheduler_stats(s, &st);
    assert_int_equal(st.cancelled + st.finished, 50);
    assert_true(st.cancelled > 10);
    struct lode_generation_opts o = opts_of(&requests[1]); /* and the next is answered as ever */
    struct live l = {.r = &requests[1], .leave_at = SIZE_MAX};
    struct schedule c = {.s = s};
    must(lode_generation_start(&l.g, s, &o, &err), &err);
    while (l.g)
        look(&c, &l, 10);
    assert_int_equal(c.wrong, 0);
    lode_scheduler_free(s);
    lode_model_free(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_a_kill), /* first: it forks, and nothing has threads yet */
        cmocka_unit_test(any_schedule),
        cmocka_unit_test(across_restarts),
        cmocka_unit_test(from_another_machine),
        cmocka_unit_test(full_disk),
        cmocka_unit_test(order),
        cmocka_unit_test(order_of_deadlines),
        cmocka_unit_test(a_stream_waits_for_a_chunk),
        cmocka_unit_test(jobs),
        cmocka_unit_test(any_allocation_fails),
        cmocka_unit_test(a_read_fails),
        cmocka_unit_test(a_step_nobody_wants),
    };
    return cmocka_run_group_tests(tests, NULL, tmp_clean);
}
