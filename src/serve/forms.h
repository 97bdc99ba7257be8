/* forms.h - a model's compiled constraints: each form once, whoever asks for it.
 *
 * A form is a grammar that requests share while they need it; those that nobody needs are kept for
 * the next who sends the same text, up to a number.  Any thread may call; a form's last holder may be
 * the scheduler's.
 */
#ifndef LODE_SERVE_FORMS_H
#define LODE_SERVE_FORMS_H

#include "lode/grammar.h"
#include "lode/model.h"

struct forms;
struct form;

int forms_create(struct forms **out, const struct lode_model *m, struct lode_error *err);
void forms_free(struct forms *f); /* after its forms were put back */

/* Compiles it, or finds it.  Errors are those of lode_grammar_compile; LODE_ERR_ARG where no text
 * has this form. */
int forms_get(struct forms *f, enum lode_grammar_kind kind, const char *text, size_t len,
              struct form **out, struct lode_error *err);
void forms_hold(struct form *form); /* once more */
void forms_put(struct form *form);  /* NULL is fine */

/* What all of them take: those that are held, and at most 64 MiB of others. */
size_t forms_bytes(struct forms *f);

/* At the form's beginning. */
int form_state(struct form *form, struct lode_grammar_state **out, struct lode_error *err);

/* Masks of the model's vocabulary, (forms_words) each, borrowed: tokens that end an answer, and those
 * that are text. */
/* A token's bytes: its text, or a special token's name; borrowed.  Once a form was made. */
const char *forms_token(const struct forms *f, int32_t id, size_t *len);
size_t forms_words(const struct forms *f);
const uint64_t *forms_ends(const struct forms *f);
const uint64_t *forms_texts(const struct forms *f);

#endif
