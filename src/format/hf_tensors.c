/* hf_tensors.c - tensors as runs through those of the files. */
#include "format/hf_parts.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/half.h"

#include <stdio.h>

/* ---- numbers and loops ---- */

bool lode_hf_dtype(const struct lode_st_tensor *s, enum lode_dtype *type) {
    if (lode_hf_linear(s)) {
        *type = lode_hf_linear(s)->type;
        return true;
    }
    *type = s->type == LODE_ST_F32 ? LODE_F32 : s->type == LODE_ST_F16 ? LODE_F16 : LODE_BF16;
    return s->type == LODE_ST_F32 || s->type == LODE_ST_F16 || s->type == LODE_ST_BF16;
}

uint64_t lode_hf_n_numbers(const struct lode_st_tensor *s) {
    uint64_t n = 1; /* safetensors.c has checked that this fits */
    for (uint32_t d = 0; d < s->n_dims; d++)
        n *= s->dims[d];
    return n;
}

struct lode_hf_run lode_hf_run_all(const struct lode_st_tensor *s) {
    return (struct lode_hf_run){
        .from = s, .n = {1, 1, 1, lode_hf_n_numbers(s)}, .step = {0, 0, 0, 1}};
}

/* Bytes of n numbers of s, whole blocks of them. */
static size_t bytes_of(const struct lode_st_tensor *s, uint64_t n) {
    enum lode_dtype type;
    lode_hf_dtype(s, &type);
    return (size_t)(n / lode_dtypes[type].block * lode_dtypes[type].bytes);
}

/* Loops that are one: fewer, longer inner ones make reading simple. */
static void merge(struct lode_hf_run *r) {
    int last = LODE_HF_LOOPS - 1;
    for (int k = last - 1; k >= 0; k--) {
        if (r->n[k] == 1)
            continue;
        if (r->n[last] == 1) {
            r->n[last] = r->n[k];
            r->step[last] = r->step[k];
        } else if (r->step[k] == r->n[last] * r->step[last]) {
            r->n[last] *= r->n[k];
        } else {
            last--;
            r->n[last] = r->n[k];
            r->step[last] = r->step[k];
        }
        if (k < last) {
            r->n[k] = 1;
            r->step[k] = 0;
        }
    }
    for (int k = 0; k < last; k++) {
        r->n[k] = 1;
        r->step[k] = 0;
    }
    if (r->n[LODE_HF_LOOPS - 1] == 1)
        r->step[LODE_HF_LOOPS - 1] = 1;
}

/* Runs that follow one another in their tensor are one; -> how many there are then. */
static uint32_t join(struct lode_hf_run *runs, uint32_t n) {
    uint32_t kept = 0;
    for (uint32_t i = 1; i < n; i++) {
        struct lode_hf_run *a = &runs[kept];
        const struct lode_hf_run *b = &runs[i];
        const bool plain = a->n[2] == 1 && a->step[3] == 1 && b->n[2] == 1 && b->step[3] == 1;
        if (plain && a->from && a->from == b->from && a->base + a->n[3] == b->base)
            a->n[3] += b->n[3];
        else
            runs[++kept] = *b;
    }
    return kept + 1;
}

/* How many numbers the run has; 0: none, or some would lie outside of its tensor. */
static uint64_t count_run(const struct lode_hf_run *r) {
    uint64_t n = 1, last = r->base, reach;
    for (int k = 0; k < LODE_HF_LOOPS; k++)
        if (r->n[k] == 0 || __builtin_mul_overflow(n, r->n[k], &n) ||
            __builtin_mul_overflow(r->n[k] - 1, r->step[k], &reach) ||
            __builtin_add_overflow(last, reach, &last))
            return 0;
    return last < lode_hf_n_numbers(r->from) ? n : 0;
}

/* Quantised weights can be cut between rows; through them only as F32. */
static bool fit_linear(const struct lode_hf *h, const struct lode_hf_run *r, bool mapped) {
    const struct lode_hf_linear *l = lode_hf_linear(r->from);
    bool rows = r->step[3] == 1 && !mapped && r->base % l->cols == 0 && r->n[3] % l->cols == 0;
    for (int k = 0; k < LODE_HF_LOOPS - 1; k++)
        rows = rows && r->step[k] % l->cols == 0;
    return rows || l->type == LODE_F32 || lode_hf_widen_linear(&h->linears, r->from);
}

/* ---- adding ---- */

static int add(struct lode_hf *h, const char *name, enum lode_dtype type, uint32_t n_dims,
               const uint64_t *dims, size_t size, const struct lode_hf_home *home,
               struct lode_error *err) {
    const uint32_t i = (uint32_t)h->base.n_tensors;
    uint32_t old = 0;
    if (i == h->cap_tensors)
        return lode_fail(err, LODE_ERR_INTERNAL, name, "too many tensors");
    const char *copy = lode_arena_strndup(&h->arena, name, strlen(name));
    const int rc = copy ? lode_map_put(&h->names, lode_str(copy), i, &old) : -1;
    if (rc < 0)
        return lode_fail_nomem(err, name);
    if (rc == 0) {
        const struct lode_hf_home *other = &h->homes[old];
        return lode_fail(err, LODE_ERR_FORMAT, h->base.path,
                         "two tensors are both %s, of which %.100s is one", name,
                         other->n_runs && other->runs[0].from ? other->runs[0].from->name
                                                              : "a computed one");
    }
    h->tensors[i] = (struct lode_gguf_tensor){
        .name = copy, .type = type, .n_dims = n_dims, .dims = {1, 1, 1, 1}, .size = size};
    memcpy(h->tensors[i].dims, dims, n_dims * sizeof *dims);
    h->homes[i] = *home;
    h->base.n_tensors++;
    return 0;
}

int lode_hf_add(struct lode_hf *h, const char *name, lode_hf_map *map, uint32_t n_dims,
                const uint64_t *dims, const struct lode_hf_run *runs, uint32_t n_runs,
                struct lode_error *err) {
    struct lode_hf_home home = {.runs = LODE_ARENA_ARRAY(&h->arena, struct lode_hf_run, n_runs),
                                .n_runs = n_runs,
                                .map = map};
    enum lode_dtype type = LODE_F32, other;
    uint64_t want = 1, at = 0;
    bool known = false; /* the type */
    if (!home.runs)
        return lode_fail_nomem(err, name);
    for (uint32_t d = 0; d < n_dims; d++)
        if (__builtin_mul_overflow(want, dims[d], &want) || want > INT64_MAX / 4)
            return lode_fail(err, LODE_ERR_FORMAT, name, "its experts together are too large");
    for (uint32_t i = 0; i < n_runs; i++) {
        struct lode_hf_run *r = &home.runs[i];
        *r = runs[i];
        r->at = at;
        if (!r->from) { /* an expert that comes later */
            at += want / n_runs;
            continue;
        }
        const uint64_t n = count_run(r);
        merge(r);
        if (lode_hf_linear(r->from) && n && !fit_linear(h, r, map != NULL))
            return lode_fail(err, LODE_ERR_UNSUPPORTED, r->from->name,
                             "quantised like that it can not be cut into %s", name);
        if (!lode_hf_dtype(r->from, &other))
            return lode_fail(err, LODE_ERR_UNSUPPORTED, r->from->name,
                             "its dtype is %s; F32, F16 and BF16 are supported in directories",
                             lode_st_type_name(r->from->type));
        if (!n)
            return lode_fail(err, LODE_ERR_FORMAT, r->from->name,
                             "its shape is not that of %s by config.json", name);
        if (known && other != type && !map)
            return lode_fail(err, LODE_ERR_FORMAT, r->from->name,
                             "its dtype is not that of the others that make %s", name);
        known = true;
        type = other;
        at += n;
    }
    home.n_runs = join(home.runs, n_runs);
    if (at != want)
        return lode_fail(err, LODE_ERR_FORMAT, name, "%llu numbers expected, the files have %llu",
                         (unsigned long long)want, (unsigned long long)at);
    type = map ? LODE_F32 : type;
    if (dims[0] % lode_dtypes[type].block)
        return lode_fail(err, LODE_ERR_FORMAT, name, "rows of %llu are no whole blocks of %s",
                         (unsigned long long)dims[0], lode_dtypes[type].name);
    return add(h, name, type, n_dims, dims,
               (size_t)(want / lode_dtypes[type].block * lode_dtypes[type].bytes), &home, err);
}

int lode_hf_add_made(struct lode_hf *h, const char *name, const float *numbers, uint32_t n,
                     struct lode_error *err) {
    const uint64_t dims[1] = {n};
    return add(h, name, LODE_F32, 1, dims, n * sizeof *numbers,
               &(struct lode_hf_home){.made = numbers}, err);
}

/* ---- all tensors of the files ---- */

float lode_hf_plus_one(float number) { return number + 1; }

static int place(struct lode_hf *h, const struct lode_st_tensor *s, const struct lode_hf_spot *spot,
                 struct lode_error *err) {
    char name[LODE_HF_NAME];
    uint64_t dims[3];
    if (spot->name->place)
        return spot->name->place(h, s, spot, err);
    if (s->n_dims == 0 || s->n_dims > 3)
        return lode_fail(err, LODE_ERR_FORMAT, s->name, "it has %u dimensions; 1 to 3 expected",
                         s->n_dims);
    for (uint32_t d = 0; d < s->n_dims; d++)
        dims[d] = s->dims[s->n_dims - 1 - d];
    lode_hf_spot_name(spot, NULL, name);
    const char *norm = strstr(name, "norm.weight");
    lode_hf_map *map = spot->name->map;
    if (!map && h->family->plus_one && norm && s->n_dims == 1)
        map = lode_hf_plus_one;
    const struct lode_hf_run all = lode_hf_run_all(s);
    return lode_hf_add(h, name, map, s->n_dims, dims, &all, 1, err);
}

/* What the model has no use for, said once: by the first words of the names. */
enum { UNUSED_WORDS = 4 }; /* that are named */
struct unused {
    uint32_t n, n_words;
    char words[UNUSED_WORDS][32];
    bool others;
};

static void leave_out(struct unused *u, const char *name) {
    char word[32];
    size_t n = strcspn(name, ".");
    if (strncmp(name, "model.", 6) == 0)
        n = 6 + strcspn(name + 6, ".");
    snprintf(word, sizeof word, "%.*s", (int)(n < 28 ? n : 28), name);
    u->n++;
    for (uint32_t i = 0; i < u->n_words; i++)
        if (strcmp(u->words[i], word) == 0)
            return;
    if (u->n_words < UNUSED_WORDS)
        memcpy(u->words[u->n_words++], word, sizeof word);
    else
        u->others = true;
}

static int say_unused(struct lode_hf *h, const struct unused *u, struct lode_error *err) {
    if (!u->n)
        return 0;
    return lode_hf_note(
        h, err, "%u tensors that the text model does not use are left out: %s%s%s%s%s%s%s%s", u->n,
        u->words[0], u->n_words > 1 ? ", " : "", u->words[1], u->n_words > 2 ? ", " : "",
        u->words[2], u->n_words > 3 ? ", " : "", u->words[3], u->others ? " and others" : "");
}

/* Whether the graph can bring the input into the order of its columns (lode_g_linear): a matrix of
 * its own, that is no table. */
static bool can_be_ordered(const struct lode_st_tensor *s, const struct lode_hf_spot *spot) {
    return s->n_dims == 2 && !spot->name->place && strcmp(spot->name->gguf, "token_embd") != 0;
}

int lode_hf_list_tensors(struct lode_hf *h, struct lode_error *err) {
    uint32_t others = 0;
    enum lode_dtype type;
    h->cap_tensors = lode_st_n_tensors(h->st);
    h->tensors = LODE_ARENA_ARRAY(&h->arena, struct lode_gguf_tensor, h->cap_tensors);
    h->homes = LODE_ARENA_ARRAY(&h->arena, struct lode_hf_home, h->cap_tensors);
    if (!h->tensors || !h->homes)
        return lode_fail_nomem(err, "list of tensors");
    h->base.tensors = h->tensors;
    for (size_t i = 0; i < h->cap_tensors; i++) {
        const struct lode_st_tensor *s = lode_st_tensor(h->st, i);
        uint64_t dims[LODE_GGUF_MAX_DIMS];
        const struct lode_hf_run all = lode_hf_run_all(s);
        if (!lode_hf_dtype(s, &type) || s->n_dims == 0 || s->n_dims > LODE_GGUF_MAX_DIMS ||
            !s->size) {
            others++;
            continue;
        }
        for (uint32_t d = 0; d < s->n_dims; d++)
            dims[d] = s->dims[s->n_dims - 1 - d];
        LODE_TRY(lode_hf_add(h, s->name, NULL, s->n_dims, dims, &all, 1, err));
    }
    return others ? lode_hf_note(h, err,
                                 "%u tensors of other types than F32, F16 and BF16 are not "
                                 "listed",
                                 others)
                  : 0;
}

int lode_hf_read_tensors(struct lode_hf *h, struct lode_error *err) {
    struct unused unused = {0};
    LODE_TRY(lode_hf_find_linears(&h->linears, &h->arena, h->st, h->config, h->config_path, err));
    const size_t n = h->linears.n_inputs;
    h->cap_tensors = 2 * n + LODE_HF_MAX_MADE; /* none becomes more than two */
    h->tensors = LODE_ARENA_ARRAY(&h->arena, struct lode_gguf_tensor, h->cap_tensors);
    h->homes = LODE_ARENA_ARRAY(&h->arena, struct lode_hf_home, h->cap_tensors);
    if (!h->tensors || !h->homes)
        return lode_fail_nomem(err, "list of tensors");
    h->base.tensors = h->tensors;
    for (size_t i = 0; i < n; i++) {
        const struct lode_st_tensor *s = h->linears.inputs[i];
        struct lode_hf_spot spot;
        if (!lode_hf_find_spot(h, s->name, &spot) || spot.layer >= (int64_t)h->n_layers ||
            (spot.tail[0] && strcmp(spot.tail, ".weight") != 0 && strcmp(spot.tail, ".bias") != 0))
            leave_out(&unused, s->name);
        else if (spot.name->gguf[0] && !(h->tied && strcmp(spot.name->gguf, "output") == 0)) {
            LODE_TRY(lode_hf_describe_linear(&h->linears, s, err));
            if (lode_hf_linear(s) && strstr(spot.name->gguf, "ffn_gate_inp"))
                lode_hf_widen_linear(&h->linears, s); /* small, and a rounded input would choose
                                                         other experts now and then */
            if (lode_hf_linear(s) && lode_hf_linear(s)->order && !can_be_ordered(s, &spot))
                lode_hf_widen_linear(&h->linears, s);
            LODE_TRY(place(h, s, &spot, err));
        }
    }
    for (uint32_t i = 0; i < h->base.n_tensors; i++)
        LODE_TRY(lode_hf_check_stack(h, i, err));
    if (lode_json_is(lode_hf_field(h, "tie_word_embeddings"), LODE_JSON_FALSE) &&
        lode_source_tensor(&h->base, "output_norm.weight") &&
        !lode_source_tensor(&h->base, "output.weight"))
        LODE_TRY(lode_hf_note(h, err,
                              "config.json says that the output matrix is not the embedding, but "
                              "there is none: the embedding is taken"));
    return say_unused(h, &unused, err);
}

/* ---- reading ---- */

/* The run that holds a number. */
static const struct lode_hf_run *run_at(const struct lode_hf_home *home, uint64_t number) {
    uint32_t low = 0, high = home->n_runs;
    while (high - low > 1) {
        const uint32_t mid = low + (high - low) / 2;
        *(home->runs[mid].at <= number ? &low : &high) = mid;
    }
    return &home->runs[low];
}

static uint64_t run_count(const struct lode_hf_run *r) {
    return r->n[0] * r->n[1] * r->n[2] * r->n[3];
}

/* Where the run's number i is in its tensor; *rest: how many follow in the innermost loop. */
static uint64_t place_of(const struct lode_hf_run *r, uint64_t i, uint64_t *rest) {
    uint64_t at = r->base;
    *rest = 1;
    for (int k = LODE_HF_LOOPS - 1; k >= 0; k--) {
        const uint64_t j = i % r->n[k];
        if (k == LODE_HF_LOOPS - 1)
            *rest = r->n[k] - j;
        at += j * r->step[k];
        i /= r->n[k];
    }
    return at;
}

/* The tensor of the files that has bytes [offset, offset + n) in one piece, as they are computed with,
 * and where in it they begin; NULL: none has. */
static const struct lode_st_tensor *one_piece(const struct lode_hf *h, const struct lode_gguf_tensor *t,
                                              size_t offset, size_t n, size_t *begin) {
    const struct lode_hf_home *home = &h->homes[t - h->tensors];
    const size_t width = t->type == LODE_F32 ? 4 : 2;
    if (home->made || home->map || offset >= t->size || lode_hf_linear(home->runs[0].from) ||
        offset % width)
        return NULL;
    const struct lode_hf_run *r = run_at(home, offset / width);
    uint64_t rest;
    if (lode_hf_linear(r->from))
        return NULL;
    *begin = place_of(r, offset / width - r->at, &rest) * width;
    return r->step[LODE_HF_LOOPS - 1] == 1 && n <= rest * width ? r->from : NULL;
}

const void *lode_hf_home_data(const struct lode_hf *h, const struct lode_gguf_tensor *t,
                              size_t offset, size_t n) {
    const struct lode_hf_home *home = &h->homes[t - h->tensors];
    const size_t width = t->type == LODE_F32 ? 4 : 2;
    size_t begin = 0;
    if (home->made)
        return (const char *)home->made + offset;
    const struct lode_st_tensor *s = one_piece(h, t, offset, n, &begin);
    const char *data = s ? lode_st_data(h->st, s) : NULL;
    /* Headers may have any length; kernels want numbers where numbers belong. */
    return data && (uintptr_t)data % width == 0 ? data + begin : NULL;
}

bool lode_hf_home_place(const struct lode_hf *h, const struct lode_gguf_tensor *t, size_t offset,
                        size_t n, struct lode_place *out) {
    size_t begin = 0;
    const struct lode_st_tensor *s = one_piece(h, t, offset, n, &begin);
    const struct lode_in_file *file = s ? lode_st_file(h->st, s->shard) : NULL;
    if (!file || s->offset % (t->type == LODE_F32 ? 4 : 2) != 0) /* the same of pages that are read */
        return false;
    *out = (struct lode_place){.file = file, .offset = s->offset + begin};
    return true;
}

enum { CHUNK = 1 << 20 };

static inline void scatter(char *out, const char *in, uint64_t n_small, uint64_t small_step,
                           uint64_t small_out, uint64_t n_large, uint64_t large_step,
                           uint64_t large_out, size_t width) {
    for (uint64_t s = 0; s < n_small; s++)
        for (uint64_t l = 0; l < n_large; l++)
            memcpy(out + (s * small_out + l * large_out) * width,
                   in + (s * small_step + l * large_step) * width, width);
}

/* n numbers of s, as they lie. */
static int read_numbers(const struct lode_st_from *from, const struct lode_st_tensor *s, uint64_t first,
                        uint64_t n, void *out, struct lode_error *err) {
    const struct lode_hf_linear *l = lode_hf_linear(s);
    return l ? lode_hf_linear_read(from, l, bytes_of(s, first), out, bytes_of(s, n), err)
             : lode_st_read_from(from, s, bytes_of(s, first), out, bytes_of(s, n), err);
}

/* `rows` rounds of the inner two loops from `first` on, where the innermost is not contiguous: the
 * file is read in its own order, a piece at a time. */
static int read_turned(const struct lode_st_from *from, const struct lode_hf_run *r, uint64_t first,
                       uint64_t rows, char *out, size_t width, struct lode_error *err) {
    const bool turned = r->step[2] <= r->step[3]; /* the loop with the longer step is outside */
    const uint64_t n_small = turned ? rows : r->n[3], n_large = turned ? r->n[3] : rows;
    const uint64_t small = r->step[turned ? 2 : 3], large = r->step[turned ? 3 : 2];
    const uint64_t small_out = turned ? r->n[3] : 1, large_out = turned ? 1 : r->n[3];
    const uint64_t span = (n_small - 1) * small + 1;
    uint64_t some = span * 2 >= large && large ? CHUNK / width / large : 0;
    some = some < 1 ? 1 : some > n_large ? n_large : some;
    char *in = lode_alloc((size_t)((some - 1) * large + span), width);
    int rc = in ? 0 : lode_fail_nomem(err, r->from->name);
    for (uint64_t l = 0; rc == 0 && l < n_large; l += some) {
        const uint64_t now = some < n_large - l ? some : n_large - l;
        rc = read_numbers(from, r->from, first + l * large, (now - 1) * large + span, in, err);
        char *to = out + l * large_out * width;
        if (rc == 0 && width == 2)
            scatter(to, in, n_small, small, small_out, now, large, large_out, 2);
        else if (rc == 0)
            scatter(to, in, n_small, small, small_out, now, large, large_out, 4);
    }
    lode_free(in);
    return rc;
}

/* n numbers from the run's number i on, as they lie. */
static int read_run(const struct lode_st_from *from, const struct lode_hf_run *r, uint64_t i, uint64_t n,
                    char *out, struct lode_error *err) {
    const struct lode_hf_linear *l = lode_hf_linear(r->from);
    uint64_t rest;
    for (uint64_t some; n > 0; i += some, n -= some, out += bytes_of(r->from, some)) {
        const uint64_t at = place_of(r, i, &rest), cols = r->n[3];
        const uint64_t left = r->n[2] - i / cols % r->n[2],
                       rows = n / cols < left ? n / cols : left;
        if (l && r->step[3] == 1 && cols == l->cols && rest == cols &&
            rows) { /* rows at a distance */
            some = rows * cols;
            LODE_TRY(
                lode_hf_linear_rows(from, l, at / l->cols, r->step[2] / l->cols, rows, out, err));
            continue;
        }
        if (r->step[3] == 1) {
            some = rest < n ? rest : n;
            LODE_TRY(read_numbers(from, r->from, at, some, out, err));
            continue;
        }
        const size_t width = bytes_of(r->from, 1); /* of a plain number */
        if (rest == cols && rows) {
            some = rows * cols;
            LODE_TRY(read_turned(from, r, at, rows, out, width, err));
            continue;
        }
        some = rest < n ? rest : n; /* of a row */
        const uint64_t before = cols - rest;
        char *row = lode_alloc((size_t)cols, width);
        int rc = row ? read_turned(from, r, place_of(r, i - before, &rest), 1, row, width, err)
                     : lode_fail_nomem(err, r->from->name);
        if (rc == 0)
            memcpy(out, row + before * width, (size_t)some * width);
        lode_free(row);
        LODE_TRY(rc);
    }
    return 0;
}

/* The same, widened and mapped. */
static int read_mapped(const struct lode_st_from *from, const struct lode_hf_run *r, lode_hf_map *map,
                       uint64_t i, uint64_t n, char *out, struct lode_error *err) {
    enum { SOME = 1024 };
    char raw[4 * SOME];
    enum lode_dtype type;
    lode_hf_dtype(r->from, &type);
    for (uint64_t some; n > 0; i += some, n -= some) {
        some = n < SOME ? n : SOME;
        LODE_TRY(read_run(from, r, i, some, raw, err));
        for (uint64_t k = 0; k < some; k++, out += sizeof(float)) {
            uint16_t half;
            float x;
            memcpy(&half, raw + 2 * k, 2);
            memcpy(&x, raw + 4 * k, 4);
            x = map(type == LODE_F32   ? x
                    : type == LODE_F16 ? lode_f16_f32(half)
                                       : lode_bf16_f32(half));
            memcpy(out, &x, sizeof x);
        }
    }
    return 0;
}

int lode_hf_read_home(const struct lode_hf *h, const struct lode_gguf_tensor *t, size_t offset,
                      void *out, size_t n, const struct lode_held *held, struct lode_error *err) {
    const struct lode_st_from from = {h->st, held};
    const struct lode_hf_home *home = &h->homes[t - h->tensors];
    if (offset > t->size || n > t->size - offset)
        return lode_fail(err, LODE_ERR_ARG, t->name, "%zu bytes at %zu of a tensor of %zu bytes", n,
                         offset, t->size);
    if (home->made) {
        memcpy(out, (const char *)home->made + offset, n);
        return 0;
    }
    const size_t bytes = lode_dtypes[t->type].bytes, block = lode_dtypes[t->type].block;
    if (offset % bytes || n % bytes)
        return lode_fail(err, LODE_ERR_ARG, t->name, "%zu bytes at %zu are no whole numbers", n,
                         offset);
    for (size_t done = 0; done < n;) {
        const uint64_t number = (offset + done) / bytes * block;
        const struct lode_hf_run *r = run_at(home, number);
        const uint64_t rest = run_count(r) - (number - r->at), left = (n - done) / bytes * block;
        const uint64_t some = rest < left ? rest : left;
        char *to = (char *)out + done;
        LODE_TRY(home->map ? read_mapped(&from, r, home->map, number - r->at, some, to, err)
                           : read_run(&from, r, number - r->at, some, to, err));
        done += (size_t)(some / block * bytes);
    }
    return 0;
}

/* The n numbers of a run from its number i on: all that lies between the first and the last. */
static uint32_t run_stretches(const struct lode_hf *h, const struct lode_hf_run *r, uint64_t i, uint64_t n,
                              struct lode_stretch out[LODE_HF_PARTS]) {
    const struct lode_hf_linear *l = lode_hf_linear(r->from);
    uint64_t rest;
    const uint64_t first = place_of(r, i, &rest), last = place_of(r, i + n - 1, &rest);
    if (last < first)
        return 0;
    if (l)
        return lode_hf_linear_stretches(h->st, l, first / l->cols, last / l->cols - first / l->cols + 1, out);
    const struct lode_in_file *file = lode_st_file(h->st, r->from->shard);
    if (!file)
        return 0;
    out[0] = (struct lode_stretch){file, r->from->offset + bytes_of(r->from, first),
                                   bytes_of(r->from, last - first + 1)};
    return 1;
}

uint32_t lode_hf_home_stretches(const struct lode_hf *h, const struct lode_gguf_tensor *t, size_t offset,
                                size_t n, struct lode_stretch *out, uint32_t most) {
    const struct lode_hf_home *home = &h->homes[t - h->tensors];
    const size_t bytes = lode_dtypes[t->type].bytes, block = lode_dtypes[t->type].block;
    uint32_t n_out = 0;
    if (home->made || home->map || offset > t->size || n > t->size - offset || offset % bytes || n % bytes)
        return 0;
    for (size_t done = 0; done < n;) {
        const uint64_t number = (offset + done) / bytes * block;
        const struct lode_hf_run *r = run_at(home, number);
        const uint64_t rest = run_count(r) - (number - r->at), left = (n - done) / bytes * block;
        const uint64_t some = rest < left ? rest : left;
        if (n_out + LODE_HF_PARTS > most)
            return 0;
        n_out += run_stretches(h, r, number - r->at, some, out + n_out);
        done += (size_t)(some / block * bytes);
    }
    return n_out;
}
