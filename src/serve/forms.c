/* forms.c - see forms.h. */
#include "serve/forms.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_IDLE = 64, MOST_IDLE_BYTES = 64 << 20 };

/* What a new form may take for masks that it will need first.  A mask over a large vocabulary takes some
 * milliseconds, for which all answers of a step would wait if it were made there. */
static const double AHEAD_SECONDS = 0.1;

struct form {
    struct forms *owner;
    struct form *next; /* the one used longer ago */
    enum lode_grammar_kind kind;
    char *text; /* owned */
    size_t len;
    struct lode_grammar *grammar;
    unsigned holders;
};

struct forms {
    pthread_mutex_t lock; /* guards the list, the counts, and the making of vocab */
    const struct lode_tokenizer *tokenizer;
    struct lode_grammar_vocab *vocab; /* made for the first form: most servers never need it */
    struct form *first;               /* the one used last */
    size_t n_words;
    uint64_t *ends, *texts; /* (n_words) */
};

static int no_memory(struct lode_error *err) {
    *err = (struct lode_error){.code = LODE_ERR_NOMEM, .text = "no memory for a grammar"};
    return LODE_ERR_NOMEM;
}

int forms_create(struct forms **out, const struct lode_model *m, struct lode_error *err) {
    struct forms *f = calloc(1, sizeof *f);
    *out = NULL;
    if (!f || pthread_mutex_init(&f->lock, NULL)) {
        free(f);
        return no_memory(err);
    }
    f->tokenizer = lode_model_tokenizer(m);
    const uint32_t n_model = lode_model_info(m)->n_vocab, n = lode_tokenizer_size(f->tokenizer);
    f->n_words = ((size_t)(n > n_model ? n : n_model) + 63) / 64;
    f->ends = calloc(f->n_words, sizeof *f->ends);
    f->texts = calloc(f->n_words, sizeof *f->texts);
    if (!f->ends || !f->texts) {
        forms_free(f);
        return no_memory(err);
    }
    for (uint32_t id = 0; id < n; id++) {
        struct lode_token_info info;
        const uint64_t bit = (uint64_t)1 << id % 64;
        if (lode_tokenizer_is_end(f->tokenizer, (int32_t)id))
            f->ends[id / 64] |= bit;
        else if (lode_token_info(f->tokenizer, (int32_t)id, &info) == 0 && !info.special)
            f->texts[id / 64] |= bit;
    }
    *out = f;
    return 0;
}

static void free_form(struct form *form) {
    lode_grammar_free(form->grammar);
    free(form->text);
    free(form);
}

void forms_free(struct forms *f) {
    if (!f)
        return;
    for (struct form *form = f->first, *next; form; form = next) {
        next = form->next;
        free_form(form);
    }
    lode_grammar_vocab_free(f->vocab);
    pthread_mutex_destroy(&f->lock);
    free(f->ends);
    free(f->texts);
    free(f);
}

/* With the lock: the form, first in the list and held once more; NULL: it is not there. */
static struct form *find(struct forms *f, enum lode_grammar_kind kind, const char *text, size_t len) {
    for (struct form **at = &f->first; *at; at = &(*at)->next) {
        struct form *form = *at;
        if (form->kind != kind || form->len != len || memcmp(form->text, text, len))
            continue;
        *at = form->next;
        form->next = f->first;
        f->first = form;
        form->holders++;
        return form;
    }
    return NULL;
}

static size_t form_bytes(const struct form *form) {
    return sizeof *form + form->len + 1 + lode_grammar_bytes(form->grammar);
}

/* With the lock: those that nobody holds, beyond as many as are kept. */
static void drop_old(struct forms *f) {
    size_t idle = 0, bytes = 0;
    for (struct form **at = &f->first; *at;) {
        struct form *form = *at;
        bytes += form->holders ? 0 : form_bytes(form);
        if (form->holders || (++idle <= MOST_IDLE && bytes <= MOST_IDLE_BYTES)) {
            at = &form->next;
            continue;
        }
        *at = form->next;
        free_form(form);
    }
}

static int compile(struct forms *f, enum lode_grammar_kind kind, const char *text, size_t len,
                   struct form **out, struct lode_error *err) {
    struct form *form = calloc(1, sizeof *form);
    int rc = 0;
    if (form && (form->text = malloc(len + 1)))
        rc = lode_grammar_compile(&form->grammar, kind, text, len, err);
    else
        rc = no_memory(err);
    if (rc == 0 && lode_grammar_is_empty(form->grammar)) {
        *err = (struct lode_error){.code = LODE_ERR_ARG, .text = "no text at all has this form"};
        rc = LODE_ERR_ARG;
    }
    if (rc == 0)
        rc = lode_grammar_prepare(form->grammar, f->vocab, AHEAD_SECONDS, err);
    if (rc < 0) {
        if (form)
            free_form(form);
        return rc;
    }
    memcpy(form->text, text, len);
    form->len = len;
    form->kind = kind;
    form->owner = f;
    form->holders = 1;
    *out = form;
    return 0;
}

int forms_get(struct forms *f, enum lode_grammar_kind kind, const char *text, size_t len,
              struct form **out, struct lode_error *err) {
    struct form *fresh = NULL;
    int rc = 0;
    pthread_mutex_lock(&f->lock);
    if (!f->vocab)
        rc = lode_grammar_vocab_create(&f->vocab, f->tokenizer, err);
    *out = rc == 0 ? find(f, kind, text, len) : NULL;
    pthread_mutex_unlock(&f->lock);
    if (rc < 0 || *out)
        return rc;
    rc = compile(f, kind, text, len, &fresh, err); /* may take long: others go on */
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&f->lock);
    *out = find(f, kind, text, len);
    if (!*out) {
        fresh->next = f->first;
        *out = f->first = fresh;
        fresh = NULL;
        drop_old(f);
    }
    pthread_mutex_unlock(&f->lock);
    if (fresh) /* another thread was faster */
        free_form(fresh);
    return 0;
}

void forms_hold(struct form *form) {
    pthread_mutex_lock(&form->owner->lock);
    form->holders++;
    pthread_mutex_unlock(&form->owner->lock);
}

void forms_put(struct form *form) {
    if (!form)
        return;
    struct forms *f = form->owner;
    pthread_mutex_lock(&f->lock);
    form->holders--;
    drop_old(f);
    pthread_mutex_unlock(&f->lock);
}

size_t forms_bytes(struct forms *f) {
    size_t bytes = 0;
    pthread_mutex_lock(&f->lock);
    for (const struct form *form = f->first; form; form = form->next)
        bytes += form_bytes(form);
    pthread_mutex_unlock(&f->lock);
    return bytes;
}

int form_state(struct form *form, struct lode_grammar_state **out, struct lode_error *err) {
    return lode_grammar_state_create(out, form->grammar, form->owner->vocab, err);
}

size_t forms_words(const struct forms *f) { return f->n_words; }
const uint64_t *forms_ends(const struct forms *f) { return f->ends; }
const uint64_t *forms_texts(const struct forms *f) { return f->texts; }

const char *forms_token(const struct forms *f, int32_t id, size_t *len) {
    struct lode_token_info info;
    const char *text = f->vocab ? lode_grammar_vocab_bytes(f->vocab, id, len) : "";
    if (f->vocab && *len)
        return text;
    *len = 0;
    if (lode_token_info(f->tokenizer, id, &info) < 0 || !info.special)
        return "";
    *len = info.piece_len;
    return info.piece;
}
