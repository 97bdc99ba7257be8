/* detok.c - ids -> text, whole and as a stream. */
#include "text/tok.h"

#include "base/alloc.h"

struct lode_detok {
    const struct lode_tokenizer *t; /* borrowed */
    bool skip_special;
    struct lode_decode_run run;
    size_t given; /* bytes of run.out that the caller has had */
};

static int push(const struct lode_tokenizer *t, struct lode_decode_run *run, int32_t id,
                bool skip_special, struct lode_error *err) {
    if (id < 0 || (uint32_t)id >= t->vocab.n)
        return lode_fail(err, LODE_ERR_ARG, "token", "id %d is not in the vocabulary (0..%u)", id,
                         t->vocab.n - 1);
    /* ids that the file leaves undefined have no text, as in the reference */
    if ((skip_special && t->vocab.special[id]) || t->vocab.kinds[id] == LODE_PIECE_NONE)
        return 0;
    return lode_decode_push(run, id) ? 0 : lode_fail_nomem(err, "text of tokens");
}

int64_t lode_detokenize(const struct lode_tokenizer *t, const int32_t *ids, size_t n,
                        bool skip_special, char *text, size_t cap, struct lode_error *err) {
    struct lode_decode_run run;
    lode_decode_run_init(&run, &t->decode);
    int64_t rc = 0;
    size_t total = 0;
    for (size_t i = 0; rc == 0 && i <= n; i++) {
        if (i < n)
            rc = push(t, &run, ids[i], skip_special, err);
        else if (!lode_decode_finish(&run))
            rc = lode_fail_nomem(err, "text of tokens");
        /* hand it over bit by bit, so that a long text is not held twice */
        if (rc == 0 && run.out.len) {
            if (total < cap)
                memcpy(text + total, run.out.data,
                       run.out.len < cap - total ? run.out.len : cap - total);
            total += run.out.len;
            lode_buf_clear(&run.out);
        }
    }
    lode_decode_run_deinit(&run);
    return rc < 0 ? rc : (int64_t)total;
}

int lode_detok_create(struct lode_detok **out, const struct lode_tokenizer *t, bool skip_special,
                      struct lode_error *err) {
    struct lode_detok *d = LODE_NEW(struct lode_detok);
    *out = d;
    if (!d)
        return lode_fail_nomem(err, "a stream of text");
    d->t = t;
    d->skip_special = skip_special;
    lode_decode_run_init(&d->run, &t->decode);
    return 0;
}

void lode_detok_free(struct lode_detok *d) {
    if (d)
        lode_decode_run_deinit(&d->run);
    lode_free(d);
}

void lode_detok_reset(struct lode_detok *d) {
    lode_decode_run_reset(&d->run);
    d->given = 0;
}

static void take(struct lode_detok *d, bool final, const char **text, size_t *len) {
    *text = d->run.out.data ? d->run.out.data : "";
    *len = d->run.out.len;
    /* A token whose last character is incomplete, or U+FFFD, waits whole for what follows, as in
     * the reference's stream. */
    const bool replaced = *len >= 3 && memcmp(*text + *len - 3, LODE_REPLACEMENT, 3) == 0;
    if (!final && (replaced || lode_decode_in_character(&d->run)))
        *len = 0;
    d->given = *len;
}

static void forget_given(struct lode_detok *d) {
    if (d->given)
        lode_buf_clear(&d->run.out);
    d->given = 0;
}

int lode_detok_push(struct lode_detok *d, int32_t id, const char **text, size_t *len,
                    struct lode_error *err) {
    *text = "";
    *len = 0;
    forget_given(d);
    LODE_TRY(push(d->t, &d->run, id, d->skip_special, err));
    take(d, false, text, len);
    return 0;
}

int lode_detok_finish(struct lode_detok *d, const char **text, size_t *len,
                      struct lode_error *err) {
    *text = "";
    *len = 0;
    forget_given(d);
    if (!lode_decode_finish(&d->run))
        return lode_fail_nomem(err, "text of tokens");
    take(d, true, text, len);
    return 0;
}
