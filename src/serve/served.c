/* served.c - a model that requests can name (server.h). */
#include "serve/forms.h"
#include "serve/models.h"
#include "serve/server.h"
#include "serve/vectors.h"

#include <string.h>

int served_init(struct served *m, struct lode_error *err) {
    int rc = 0;
    m->tokenizer = lode_model_tokenizer(m->model);
    if (m->template)
        rc = lode_template_compile(&m->tmpl, m->template, strlen(m->template), err);
    if (rc == 0)
        rc = lode_toolcall_detect(&m->style, m->tmpl, err);
    if (rc == 0)
        rc = forms_create(&m->forms, m->model, err);
    if (rc == 0)
        rc = vectors_create(&m->vectors, m, err);
    if (rc < 0)
        served_deinit(m);
    return rc;
}

void served_deinit(struct served *m) {
    vectors_free(m->vectors);
    forms_free(m->forms);
    lode_template_free(m->tmpl);
    m->vectors = NULL;
    m->forms = NULL;
    m->tmpl = NULL;
}

int server_model(struct server *s, const char *name, struct served **out, struct lode_error *err) {
    return models_pin(s->models, name, out, err);
}

uint32_t served_ctx(const struct served *m) {
    return m->scheduler ? lode_scheduler_ctx(m->scheduler) : vectors_ctx(m->vectors);
}

int server_grow(struct server *s, struct served *m, uint64_t bytes, struct lode_error *err) {
    return models_grow(s->models, m, bytes, err);
}

void server_release(struct server *s, struct served *m) { models_unpin(s->models, m); }
