/* load.c - see load.h. */
#include "load.h"

#include "out.h"
#include "progress.h"

#include <string.h>

const char *const load_isas[] = {"scalar",     "avx2", "avxvnni", "avx512",
                                  "avx512vnni", "amx",  "neon",    NULL};

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

int load_list_devices(void) {
    struct lode_error why = {0};
    const int n = lode_device_count(&why);
    printf("cpu\tthe CPU\n");
    for (int i = 0; i < n; i++) {
        char name[256];
        uint64_t memory;
        if (lode_device_info(i, name, &memory, NULL) == 0)
            printf("cuda:%d\t%s, %.0f MiB\n", i, name, (double)memory / 0x1p20);
    }
    if (n == 0)
        fprintf(stderr, "lode: note: %s\n", why.text);
    return 0;
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
                                       .device = o->gpu_layers == 0 ? "cpu" : o->device,
                                       .no_mmap = o->no_mmap,
                                       .mlock = o->mlock,
                                       .float_act = o->float_act,
                                       .expert_cache = o->expert_cache,
                                       .cache_policy = o->cache_policy,
                                       .hot = o->hot,
                                       .no_prefetch = o->no_prefetch,
                                       .no_checksum = o->no_checksum,
                                       .experts = (uint32_t)o->experts,
                                       .progress = on_progress,
                                       .progress_user = &bar,
                                   },
                                   err);
    progress_end(&bar);
    if (rc < 0)
        return rc;
    const struct lode_model_info *info = lode_model_info(*out);
    say_notes(info->notes);
    say_notes(info->device_note);
    if (o->gpu_layers > 0 && o->gpu_layers < info->n_layers && info->on_gpu)
        fprintf(stderr, "lode: note: -ngl %d: a model runs on one device as a whole: all %u layers are "
                        "on the GPU\n",
                (int)o->gpu_layers, info->n_layers);
    return 0;
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
