/* load.c - see load.h. */
#include "load.h"

#include "out.h"
#include "progress.h"

#include <string.h>

const char *const load_isas[] = {"scalar", "avx2", "avx512", "avx512vnni", "neon", NULL};

static int on_progress(void *user, const char *what, uint64_t done, uint64_t total) {
    struct progress *p = user;
    p->what = what;
    p->total = total;
    progress_update(p, done);
    return 0;
}

/* What is left out or assumed, a line each. */
static void say_notes(const char *notes) {
    while (*notes) {
        const int n = (int)strcspn(notes, "\n");
        fprintf(stderr, "lode: note: %.*s\n", n, notes);
        notes += n + (notes[n] == '\n');
    }
}

int load_model(struct lode_model **out, const struct load_opts *o, struct lode_error *err) {
    struct progress bar;
    if (!o->model)
        return tool_fail(err, LODE_ERR_ARG, "model",
                         "no model given: name a GGUF file or a Hugging Face directory as the "
                         "first argument, or with -m");
    progress_begin(&bar, "loading", "B", 0);
    const int rc = lode_model_load(out, o->model,
                                   &(struct lode_model_opts){
                                       .isa = o->isa,
                                       .no_mmap = o->no_mmap,
                                       .mlock = o->mlock,
                                       .float_act = o->float_act,
                                       .experts = (uint32_t)o->experts,
                                       .progress = on_progress,
                                       .progress_user = &bar,
                                   },
                                   err);
    progress_end(&bar);
    if (rc == 0)
        say_notes(lode_model_info(*out)->notes);
    return rc;
}

struct lode_session_opts load_session_opts(const struct load_opts *o) {
    return (struct lode_session_opts){
        .ctx = (uint32_t)o->ctx,
        .batch = (uint32_t)o->batch,
        .threads = (uint32_t)o->threads,
        .ctk = o->ctk,
        .ctv = o->ctv,
    };
}
