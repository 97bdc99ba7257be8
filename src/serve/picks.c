/* picks.c - see picks.h. */
#include "serve/picks.h"

#include "base/buf.h"
#include "serve/request.h"

#include <stdlib.h>
#include <string.h>

void picks_clear(struct picks *p) {
    for (size_t i = 0; i < p->n; i++)
        free(p->list[i].ids);
    p->n = p->at = 0;
}

void picks_deinit(struct picks *p) {
    picks_clear(p);
    free(p->list);
    *p = (struct picks){0};
}

/* The tokens of text that stands behind a newline: at the beginning of a text some tokenizers would
 * add a blank. */
static int tokenize(const struct lode_tokenizer *t, const char *text, size_t len, struct pick *a,
                    struct lode_error *err) {
    struct lode_buf line = {0};
    int32_t before[8];
    int rc = 0;
    lode_buf_addc(&line, '\n');
    lode_buf_add(&line, text, len);
    const size_t cap = len + 16;
    int32_t *ids = malloc(cap * sizeof *ids);
    const int64_t n_before = lode_tokenize(t, "\n", 1, LODE_TOK_PARSE, before, 8, err);
    int64_t n = line.failed || !ids
                    ? LODE_ERR_NOMEM
                    : lode_tokenize(t, line.data, line.len, LODE_TOK_PARSE, ids, cap, err);
    if (n > 0 && n_before > 0 && n_before <= 8 && n > n_before && (size_t)n <= cap &&
        !memcmp(ids, before, (size_t)n_before * sizeof *ids)) {
        n -= n_before;
        memmove(ids, ids + n_before, (size_t)n * sizeof *ids);
    } else if (n >= 0) {
        n = lode_tokenize(t, text, len, LODE_TOK_PARSE, ids, cap, err);
    }
    lode_buf_free(&line);
    if (n < 0 || (size_t)n > cap) {
        free(ids);
        rc = n == LODE_ERR_NOMEM || n >= 0 ? request_no_memory(err) : (int)n;
    } else {
        a->ids = ids;
        a->n = (size_t)n;
    }
    return rc;
}

int picks_add(struct picks *p, const struct lode_tokenizer *t, int what, size_t arg,
              const char *text, size_t len, struct lode_error *err) {
    if (p->n == p->cap) {
        const size_t cap = 2 * p->cap + 8;
        struct pick *list = realloc(p->list, cap * sizeof *list);
        if (!list)
            return request_no_memory(err);
        p->list = list;
        p->cap = cap;
    }
    struct pick *a = &p->list[p->n];
    *a = (struct pick){.what = what, .arg = arg};
    const int rc = len ? tokenize(t, text, len, a, err) : 0;
    p->n += rc == 0;
    return rc;
}

size_t picks_take(struct picks *p, int32_t id) {
    for (size_t i = 0; i < p->n; i++) {
        struct pick *a = &p->list[i];
        a->out = a->out || a->n <= p->at || a->ids[p->at] != id;
    }
    p->at++;
    for (size_t i = 0; i < p->n; i++)
        if (!p->list[i].out && p->list[i].n == p->at)
            return i;
    return PICKS_NONE;
}

bool picks_begin_with(const struct picks *p, int32_t id) {
    for (size_t i = 0; i < p->n; i++)
        if (p->list[i].n && p->list[i].ids[0] == id)
            return true;
    return false;
}
