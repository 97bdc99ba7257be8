#include "store/trace.h"

#include "base/alloc.h"
#include "base/cursor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/machine.h"
#include "base/out_file.h"
#include "base/utf8.h"

#include <xxhash.h>

/* The last letter is the version.  Before 4 there was no sum, and another letter before it, so that no damage to one
 * byte makes a file that has a sum into one that needs none; 2 has no number of tokens, 1 neither that nor head_bytes
 * nor guesses. */
static const char magic[8] = {'L', 'O', 'D', 'E', 'T', 'R', 'S', '4'};
static const char unsummed[8] = {'L', 'O', 'D', 'E', 'T', 'R', 'C', '3'}; /* the newest of them */

enum { LAST = sizeof magic - 1, SUM_SIZE = sizeof(uint64_t) };

void lode_trace_free(struct lode_trace *t) {
    if (!t)
        return;
    lode_free(t->name);
    lode_free(t->expert_bytes);
    lode_free(t->moe_bytes);
    lode_free(t->slot);
    lode_free(t->pos);
    lode_free(t->experts);
    lode_free(t->weights);
    lode_free(t->guesses);
    lode_free(t);
}

static int check_shape(const struct lode_trace_shape *s, const char *where,
                       struct lode_error *err) {
    const struct {
        const char *name;
        uint32_t value, most;
    } counts[] = {{"layers", s->n_layers, LODE_TRACE_MAX_LAYERS},
                  {"experts", s->n_experts, LODE_TRACE_MAX_EXPERTS},
                  {"experts of a token", s->n_used, LODE_TRACE_MAX_USED}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i].value == 0 || counts[i].value > counts[i].most)
            return lode_fail(err, LODE_ERR_FORMAT, where, "%u %s, 1 to %u expected",
                             counts[i].value, counts[i].name, counts[i].most);
    if (s->n_used > s->n_experts)
        return lode_fail(err, LODE_ERR_FORMAT, where, "a token uses %u of %u experts", s->n_used,
                         s->n_experts);
    return 0;
}

/* What a file calls its model is shown on terminals and in JSON: without control characters, and UTF-8. */
static void clean(char *name) {
    const bool valid = lode_utf8_valid(name, strlen(name));
    for (unsigned char *c = (unsigned char *)name; *c; c++)
        if (*c < 0x20 || *c == 0x7f || (*c >= 0x80 && !valid))
            *c = '?';
}

/* All but the tokens: expert_bytes and name are copied. */
static int make(struct lode_trace **out, const struct lode_trace_shape *s, size_t name_size,
                const char *where, struct lode_error *err) {
    *out = NULL;
    LODE_TRY(check_shape(s, where, err));
    struct lode_trace *t = LODE_NEW(struct lode_trace);
    if (!t)
        return lode_fail_nomem(err, "route trace");
    t->shape = *s;
    t->name = lode_strndup(s->name ? s->name : "", name_size);
    t->expert_bytes = LODE_NEW_ARRAY(uint64_t, s->n_layers);
    t->moe_bytes = LODE_NEW_ARRAY(uint64_t, s->n_layers);
    t->slot = LODE_NEW_ARRAY(uint32_t, s->n_layers);
    if (!t->name || !t->expert_bytes || !t->moe_bytes || !t->slot) {
        lode_trace_free(t);
        return lode_fail_nomem(err, "route trace");
    }
    memcpy(t->expert_bytes, s->expert_bytes, s->n_layers * sizeof *t->expert_bytes);
    clean(t->name);
    t->shape.name = t->name;
    t->summed = true;
    t->shape.expert_bytes = t->expert_bytes;
    for (uint32_t l = 0; l < s->n_layers; l++) {
        t->slot[l] = t->expert_bytes[l] ? t->n_moe : UINT32_MAX;
        if (t->expert_bytes[l])
            t->moe_bytes[t->n_moe++] = t->expert_bytes[l];
    }
    /* so that no sum over a trace's bytes overflows */
    if (s->other_bytes > UINT64_C(1) << 50 || s->head_bytes > s->other_bytes) {
        const int rc = lode_fail(err, LODE_ERR_FORMAT, where,
                                 "%llu bytes that are not experts', %llu of them after the layers: at most 2^50, "
                                 "and no more after the layers, expected",
                                 (unsigned long long)s->other_bytes, (unsigned long long)s->head_bytes);
        lode_trace_free(t);
        return rc;
    }
    for (uint32_t l = 0; l < s->n_layers; l++)
        if (t->expert_bytes[l] > UINT64_C(1) << 36) {
            const int rc = lode_fail(err, LODE_ERR_FORMAT, where,
                                     "an expert of layer %u has %llu bytes, at most 2^36 expected", l,
                                     (unsigned long long)t->expert_bytes[l]);
            lode_trace_free(t);
            return rc;
        }
    *out = t;
    return 0;
}

/* What the system would promise and could not keep is refused with numbers. */
static int check_memory(uint64_t bytes, const char *where, struct lode_error *err) {
    enum { A_LITTLE = 64 << 20 }; /* not worth asking */
    struct lode_machine machine;
    if (bytes <= A_LITTLE)
        return 0;
    lode_machine_probe(&machine);
    if (!machine.ram_left || bytes <= machine.ram_left)
        return 0;
    return lode_fail(err, LODE_ERR_LIMIT, where,
                     "the trace takes %.0f MiB of memory, and %.0f MiB are free: fewer tokens are needed",
                     (double)bytes / 0x1p20, (double)machine.ram_left / 0x1p20);
}

static int make_tokens(struct lode_trace *t, size_t n, const char *where, struct lode_error *err) {
    size_t pairs, bytes;
    const size_t each = sizeof *t->experts + sizeof *t->weights +
                        (t->shape.guesses ? LODE_TRACE_WHENS * sizeof *t->guesses : 0);
    if (!lode_mul_size(n, (size_t)t->n_moe * t->shape.n_used, &pairs) || !lode_mul_size(pairs, each, &bytes))
        return lode_fail_nomem(err, "route trace");
    LODE_TRY(check_memory(bytes, where, err));
    t->pos = LODE_NEW_ARRAY(uint32_t, n);
    t->experts = LODE_NEW_ARRAY(uint16_t, pairs);
    t->weights = LODE_NEW_ARRAY(float, pairs);
    if (!t->pos || !t->experts || !t->weights)
        return lode_fail_nomem(err, "route trace");
    if (t->shape.guesses) {
        size_t all;
        t->guesses = lode_mul_size(pairs, LODE_TRACE_WHENS, &all) ? LODE_NEW_ARRAY(uint16_t, all) : NULL;
        if (!t->guesses)
            return lode_fail_nomem(err, "route trace");
        memset(t->guesses, 0xff, all * sizeof *t->guesses); /* LODE_TRACE_NO_GUESS */
    }
    t->n_tokens = n;
    return 0;
}

int lode_trace_create(struct lode_trace **out, const struct lode_trace_shape *shape,
                      size_t n_tokens, struct lode_error *err) {
    if (shape->n_experts == 0) {
        *out = NULL;
        return lode_fail(err, LODE_ERR_ARG, shape->name ? shape->name : "route trace",
                         "the model has no routed experts: there are no routes to record");
    }
    LODE_TRY(make(out, shape, shape->name ? strlen(shape->name) : 0, "route trace", err));
    const int rc = make_tokens(*out, n_tokens, "route trace", err);
    if (rc < 0) {
        lode_trace_free(*out);
        *out = NULL;
    }
    return rc;
}

const struct lode_trace_shape *lode_trace_shape(const struct lode_trace *t) { return &t->shape; }
size_t lode_trace_n_tokens(const struct lode_trace *t) { return t->n_tokens; }
bool lode_trace_summed(const struct lode_trace *t) { return t->summed; }

uint64_t lode_trace_bytes(const struct lode_trace *t) {
    uint64_t sum = 0;
    for (uint32_t l = 0; l < t->shape.n_layers; l++)
        sum += t->expert_bytes[l] * t->shape.n_experts;
    return sum;
}

void lode_trace_put(void *user, uint32_t layer, uint32_t pos, const uint32_t *experts,
                    const float *weights, uint32_t n) {
    struct lode_trace *t = user;
    const size_t token = t->first + pos;
    if (token >= t->n_tokens || layer >= t->shape.n_layers || t->slot[layer] == UINT32_MAX ||
        n != t->shape.n_used)
        return;
    const size_t at = (token * t->n_moe + t->slot[layer]) * n;
    for (uint32_t k = 0; k < n; k++) {
        t->experts[at + k] = (uint16_t)experts[k];
        t->weights[at + k] = weights[k];
    }
    t->pos[token] = pos;
}

void lode_trace_put_guess(void *user, uint32_t layer, uint32_t pos, bool late, const uint32_t *experts,
                          uint32_t n) {
    struct lode_trace *t = user;
    const size_t token = t->first + pos;
    if (!t->guesses || token >= t->n_tokens || layer >= t->shape.n_layers || t->slot[layer] == UINT32_MAX ||
        n != t->shape.n_used)
        return;
    const size_t when = late ? LODE_TRACE_LATE : LODE_TRACE_EARLY;
    uint16_t *to = t->guesses + ((token * t->n_moe + t->slot[layer]) * LODE_TRACE_WHENS + when) * n;
    for (uint32_t k = 0; k < n; k++)
        to[k] = (uint16_t)experts[k];
}

void lode_trace_begin(struct lode_trace *t, size_t first) { t->first = first; }

void lode_trace_cut(struct lode_trace *t, size_t n) { t->n_tokens = n < t->n_tokens ? n : t->n_tokens; }

/* --- the file ------------------------------------------------------------------------------ */

/* guessed: of each layer with experts the guesses that tokens have, a bit each. */
static size_t token_size(const struct lode_trace *t, const uint8_t *guessed) {
    size_t size = sizeof *t->pos;
    for (uint32_t m = 0; m < t->n_moe; m++)
        size += t->shape.n_used * (sizeof *t->experts + sizeof *t->weights +
                                   (size_t)__builtin_popcount(guessed[m]) * sizeof *t->guesses);
    return size;
}

static int parse_guess(struct lode_trace *t, struct lode_cursor *c, size_t i, uint32_t i_moe, size_t when,
                       const char *where, struct lode_error *err) {
    const uint32_t n = t->shape.n_used;
    uint16_t *g = t->guesses + ((i * t->n_moe + i_moe) * LODE_TRACE_WHENS + when) * n;
    lode_cursor_copy(c, g, n * sizeof *g);
    const bool none = *g == LODE_TRACE_NO_GUESS;
    for (uint32_t k = 0; k < n; k++)
        if (none ? g[k] != LODE_TRACE_NO_GUESS : g[k] >= t->shape.n_experts)
            return lode_fail(err, LODE_ERR_FORMAT, where,
                             "token %zu: expert %u is guessed; ones below %u, or %u throughout, expected", i, g[k],
                             t->shape.n_experts, LODE_TRACE_NO_GUESS);
    return 0;
}

static int parse_token(struct lode_trace *t, struct lode_cursor *c, size_t i, const uint8_t *guessed,
                       const char *where, struct lode_error *err) {
    const uint32_t n = t->shape.n_used;
    t->pos[i] = lode_cursor_u32(c);
    for (uint32_t m = 0; m < t->n_moe; m++) {
        const size_t at = (i * t->n_moe + m) * n;
        lode_cursor_copy(c, t->experts + at, n * sizeof *t->experts);
        lode_cursor_copy(c, t->weights + at, n * sizeof *t->weights);
        for (uint32_t k = 0; k < n; k++)
            if (t->experts[at + k] >= t->shape.n_experts ||
                (k && t->experts[at + k] <= t->experts[at + k - 1]))
                return lode_fail(err, LODE_ERR_FORMAT, where,
                                 "token %zu: expert %u after %u; ascending ones below %u expected",
                                 i, t->experts[at + k], k ? t->experts[at + k - 1] : 0,
                                 t->shape.n_experts);
        for (size_t when = 0; when < LODE_TRACE_WHENS; when++)
            if (guessed[m] >> when & 1)
                LODE_TRY(parse_guess(t, c, i, m, when, where, err));
    }
    return 0;
}

/* Of each layer, as the file has it; moved together to those of layers with experts. */
static int check_guessed(uint8_t *guessed, struct lode_trace_shape *s, const char *where, struct lode_error *err) {
    uint32_t n_moe = 0;
    for (uint32_t l = 0; l < s->n_layers; l++) {
        if (guessed[l] >> (s->expert_bytes[l] ? LODE_TRACE_WHENS : 0))
            return lode_fail(err, LODE_ERR_FORMAT, where, "layer %u has guesses of kind %u", l, guessed[l]);
        s->guesses |= guessed[l] != 0;
        if (s->expert_bytes[l])
            guessed[n_moe++] = guessed[l];
    }
    return 0;
}

/* The version, 0: the bytes are no trace. */
static int parse_version(struct lode_cursor *c) {
    char found[sizeof magic];
    lode_cursor_copy(c, found, sizeof found);
    if (memcmp(found, magic, sizeof magic) == 0)
        return 4;
    const bool older = memcmp(found, unsummed, LAST) == 0 && found[LAST] >= '1' && found[LAST] <= unsummed[LAST];
    return older ? found[LAST] - '0' : 0;
}

/* The sum of all bytes before it lies behind the last of them. */
static int check_sum(const struct lode_cursor *c, const char *where, struct lode_error *err) {
    uint64_t sum;
    memcpy(&sum, c->data + c->len, sizeof sum);
    if (XXH3_64bits(c->data, c->len) == sum)
        return 0;
    return lode_fail(err, LODE_ERR_FORMAT, where,
                     "it was changed or is damaged: its checksum is another; record it again");
}

static int parse(struct lode_trace **out, struct lode_cursor *c, const char *where,
                 struct lode_error *err) {
    uint64_t bytes[LODE_TRACE_MAX_LAYERS];
    uint8_t guessed[LODE_TRACE_MAX_LAYERS] = {0};
    const int version = parse_version(c);
    if (!version)
        return lode_fail(err, LODE_ERR_FORMAT, where, "this is no route trace: it does not begin "
                         "with %.8s", magic);
    if (version >= 4) /* too short a file ends within its header */
        c->len -= lode_cursor_left(c) < SUM_SIZE ? lode_cursor_left(c) : SUM_SIZE;
    struct lode_trace_shape s = {.n_layers = lode_cursor_u32(c),
                                 .n_experts = lode_cursor_u32(c),
                                 .n_used = lode_cursor_u32(c)};
    const uint32_t name_size = lode_cursor_u32(c);
    s.other_bytes = lode_cursor_u64(c);
    s.head_bytes = version == 1 ? 0 : lode_cursor_u64(c);
    LODE_TRY(check_shape(&s, where, err));
    lode_cursor_copy(c, bytes, s.n_layers * sizeof *bytes);
    if (version > 1)
        lode_cursor_copy(c, guessed, s.n_layers);
    const struct lode_str name = lode_cursor_str(c, name_size);
    const uint64_t n_tokens = version >= 3 ? lode_cursor_u64(c) : 0;
    if (c->failed)
        return lode_fail(err, LODE_ERR_FORMAT, where, "the file ends within its header, at byte %zu",
                         c->len);
    s.expert_bytes = bytes;
    s.name = name.data;
    LODE_TRY(check_guessed(guessed, &s, where, err));
    LODE_TRY(make(out, &s, name.len, where, err));
    struct lode_trace *t = *out;
    t->summed = version >= 4;
    const size_t token = token_size(t, guessed), left = lode_cursor_left(c);
    if (version >= 3 && (left % token || left / token != n_tokens))
        return lode_fail(err, LODE_ERR_FORMAT, where,
                         "%zu bytes follow its header, and it says that these are %llu tokens of %zu: it was cut or "
                         "damaged, record it again",
                         left, (unsigned long long)n_tokens, token);
    if (left % token)
        return lode_fail(err, LODE_ERR_FORMAT, where,
                         "%zu bytes of tokens are not a multiple of the %zu that each has", left,
                         token);
    if (t->summed)
        LODE_TRY(check_sum(c, where, err));
    LODE_TRY(make_tokens(t, left / token, where, err));
    for (size_t i = 0; i < t->n_tokens; i++)
        LODE_TRY(parse_token(t, c, i, guessed, where, err));
    return 0;
}

int lode_trace_parse(struct lode_trace **out, const void *data, size_t size, const char *where,
                     struct lode_error *err) {
    struct lode_cursor c = {.data = data, .len = size};
    *out = NULL;
    const int rc = parse(out, &c, where, err);
    if (rc < 0) {
        lode_trace_free(*out);
        *out = NULL;
    }
    return rc;
}

int lode_trace_open(struct lode_trace **out, const char *path, struct lode_error *err) {
    struct lode_in_file f;
    *out = NULL;
    int rc = lode_in_open(&f, path, err);
    rc = rc < 0 ? rc : check_memory(f.size, path, err);
    char *data = rc < 0 ? NULL : lode_alloc(f.size, 1);
    if (rc == 0)
        rc = data ? lode_in_read(&f, 0, data, f.size, err) : lode_fail_nomem(err, path);
    if (rc == 0)
        rc = lode_trace_parse(out, data, f.size, path, err);
    lode_free(data);
    lode_in_close(&f);
    return rc;
}

/* Of a layer, the guesses that any token has. */
static uint8_t find_guessed(const struct lode_trace *t, uint32_t layer) {
    uint8_t found = 0;
    for (size_t i = 0; i < t->n_tokens && t->slot[layer] != UINT32_MAX; i++)
        for (int when = 0; when < LODE_TRACE_WHENS; when++)
            found |= (uint8_t)((lode_trace_guess(t, i, t->slot[layer], (enum lode_trace_when)when) != NULL) << when);
    return found;
}

static void add_token(const struct lode_trace *t, size_t i, const uint8_t *guessed, struct lode_buf *b) {
    const uint32_t n = t->shape.n_used;
    lode_buf_add(b, &t->pos[i], sizeof *t->pos);
    for (uint32_t l = 0; l < t->shape.n_layers; l++) {
        if (t->slot[l] == UINT32_MAX)
            continue;
        const size_t at = i * t->n_moe + t->slot[l];
        lode_buf_add(b, t->experts + at * n, n * sizeof *t->experts);
        lode_buf_add(b, t->weights + at * n, n * sizeof *t->weights);
        for (size_t when = 0; when < LODE_TRACE_WHENS; when++)
            if (guessed[l] >> when & 1)
                lode_buf_add(b, t->guesses + (at * LODE_TRACE_WHENS + when) * n, n * sizeof *t->guesses);
    }
}

struct writing {
    struct lode_out_file file;
    XXH3_state_t *sum; /* owned; of what was written */
};

static int put(struct writing *w, const void *data, size_t n, struct lode_error *err) {
    XXH3_64bits_update(w->sum, data, n);
    return lode_out_write(&w->file, data, n, err);
}

static int put_all(const struct lode_trace *t, struct writing *w, struct lode_error *err) {
    const struct lode_trace_shape *s = &t->shape;
    uint8_t guessed[LODE_TRACE_MAX_LAYERS];
    for (uint32_t l = 0; l < s->n_layers; l++)
        guessed[l] = find_guessed(t, l);
    const uint32_t name_size = (uint32_t)strlen(t->name);
    const uint32_t counts[] = {s->n_layers, s->n_experts, s->n_used, name_size};
    LODE_TRY(put(w, magic, sizeof magic, err));
    LODE_TRY(put(w, counts, sizeof counts, err));
    LODE_TRY(put(w, &s->other_bytes, sizeof s->other_bytes, err));
    LODE_TRY(put(w, &s->head_bytes, sizeof s->head_bytes, err));
    LODE_TRY(put(w, t->expert_bytes, s->n_layers * sizeof *t->expert_bytes, err));
    LODE_TRY(put(w, guessed, s->n_layers, err));
    LODE_TRY(put(w, t->name, name_size, err));
    const uint64_t n_tokens = t->n_tokens;
    LODE_TRY(put(w, &n_tokens, sizeof n_tokens, err));
    struct lode_buf b = {0};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < t->n_tokens; i++) {
        lode_buf_clear(&b);
        add_token(t, i, guessed, &b);
        rc = b.failed ? lode_fail_nomem(err, "route trace") : put(w, b.data, b.len, err);
    }
    lode_buf_free(&b);
    const uint64_t sum = XXH3_64bits_digest(w->sum);
    return rc < 0 ? rc : put(w, &sum, sizeof sum, err);
}

int lode_trace_write(const struct lode_trace *t, const char *path, struct lode_error *err) {
    struct writing w = {.sum = XXH3_createState()};
    if (!w.sum)
        return lode_fail_nomem(err, "route trace");
    XXH3_64bits_reset(w.sum);
    int rc = lode_out_open(&w.file, path, 0, err);
    if (rc == 0)
        rc = put_all(t, &w, err);
    if (rc == 0)
        rc = lode_out_commit(&w.file, err);
    lode_out_abandon(&w.file);
    XXH3_freeState(w.sum);
    return rc;
}
