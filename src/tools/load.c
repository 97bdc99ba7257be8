/* load.c - see load.h. */
#include "load.h"

#include "out.h"
#include "progress.h"

#include "lode/lode.h"

#include <string.h>

const char *const load_split_modes[] = {"layer", "row", "tensor", "none", NULL};

#define NUMERICS_NAME(name) #name,
const char *const load_numerics[] = {LODE_NUMERICS_LIST(NUMERICS_NAME) NULL};

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

/* What the flags say of the GPUs. */
static bool off_gpu(const struct load_opts *o) {
    return o->gpu_layers == 0 || (o->vram.given && o->vram.bytes == 0 && o->vram.share == 0);
}

static uint32_t cpu_experts(const struct load_opts *o) {
    return o->cpu_moe ? UINT32_MAX : (uint32_t)o->n_cpu_moe;
}

struct lode_budget load_budget(const struct load_opts *o) {
    struct lode_machine machine;
    struct lode_error none;
    char name[256];
    uint64_t vram = 0;
    lode_machine_probe(&machine);
    const uint64_t most = machine.cgroup_limit ? machine.cgroup_limit : machine.ram_total;
    if ((o->vram.share > 0 || o->vram_experts.share > 0) && lode_device_count(&none) > 0)
        lode_device_info(0, name, &vram, &none);
    return (struct lode_budget){.ram = arg_share_of(&o->ram, most),
                                .vram = arg_share_of(&o->vram, vram),
                                .gpu_layers = o->gpu_layers > 0 ? (uint32_t)o->gpu_layers : 0,
                                .cpu_experts = cpu_experts(o),
                                .gpu_cache = !o->vram_experts.given ? 0
                                             : arg_share_of(&o->vram_experts, vram) ? arg_share_of(&o->vram_experts, vram)
                                                                                    : LODE_NO_GPU_CACHE,
                                .no_bring = o->no_op_offload,
                                .parallel = o->parallel,
                                .own = o->own};
}

static int open_model(struct lode_model **out, const struct load_opts *o,
                            struct progress *bar, struct lode_error *err) {
    return lode_model_open(out, o->model,
                           &(struct lode_model_opts){
                               .isa = o->isa,
                               .numerics = o->numerics,
                               .device = off_gpu(o) ? "cpu" : o->device,
                               .tensor_devices = o->tensor_devices,
                               .tensor_split = o->tensor_split,
                               .split_mode = o->split_mode,
                               .split_least = o->split_least,
                               .no_mmap = o->no_mmap,
                               .direct = o->direct,
                               .mlock = o->mlock,
                               .prefault = o->prefault,
                               .float_act = o->float_act,
                               .layer_cache = o->layer_cache,
                               .cache_policy = o->cache_policy,
                               .hot = o->hot,
                               .no_prefetch = o->no_prefetch,
                               .bring_rows = (uint32_t)o->bring_rows,
                               .no_checksum = o->no_checksum,
                               .experts = (uint32_t)o->experts,
                               .progress = bar ? on_progress : NULL,
                               .progress_user = bar,
                           },
                           err);
}

/* A budget that nothing fits into is a slip. */
static int check_budget(const struct load_opts *o, struct lode_error *err) {
    if (!o->ram.given || o->ram.bytes || o->ram.share > 0)
        return 0;
    return tool_fail(err, LODE_ERR_ARG, "--ram",
                     "0 leaves room for nothing: name a size like 24G or a share like 75%%, or leave "
                     "the flag out for all that is free");
}

static int open_with(struct lode_model **out, const struct load_opts *o, struct progress *bar,
                     struct lode_error *err) {
    *out = NULL;
    if (!o->model)
        return tool_fail(err, LODE_ERR_ARG, "model",
                         "no model given: name a GGUF file or a Hugging Face directory as the "
                         "first argument, or with -m (models/demo.gguf comes with lode)");
    const int rc = check_budget(o, err);
    return rc < 0 ? rc : open_model(out, o, bar, err);
}

/* What was asked of a GPU where none is used, and why none is. */
static void say_no_gpu(const struct load_opts *o, const struct lode_model *m) {
    struct lode_error why = {0};
    const struct {
        const char *flag;
        bool given;
    } asked[] = {{"-ngl", o->gpu_layers > 0},
                 {"--vram", o->vram.given && !off_gpu(o)},
                 {"--vram-experts", o->vram_experts.given},
                 {"--cpu-moe", o->cpu_moe},
                 {"--n-cpu-moe", o->n_cpu_moe > 0},
                 {"-ts", o->tensor_split != NULL}};
    const bool may = !off_gpu(o) && (!o->device || strcmp(o->device, "auto") == 0);
    const bool stands_in = o->device && strchr(o->device, ','); /* "cpu,cpu" has devices without a GPU */
    if (lode_model_info(m)->n_gpus || stands_in || *lode_model_info(m)->device_note)
        return;
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        if (asked[i].given) {
            fprintf(stderr, "lode: note: %s is for GPUs, and none is used: %s\n", asked[i].flag,
                    !may                             ? "the CPU was asked for"
                    : lode_device_count(&why) > 0    ? "there is one, but not for this model"
                                                     : why.text);
            return;
        }
}

/* Positions that a model never saw are no error, but what it says there may make no sense. */
static void say_context(const struct load_opts *o, const struct lode_model *m) {
    const uint32_t trained = lode_model_info(m)->ctx_train;
    if (trained && o->ctx > (int64_t)trained)
        fprintf(stderr, "lode: note: the context of %lld is longer than the %u that the model was made for\n",
                (long long)o->ctx, trained);
}

int load_open(struct lode_model **out, const struct load_opts *o, struct lode_error *err) {
    const int rc = open_with(out, o, NULL, err);
    if (rc < 0)
        return rc;
    say_notes(lode_model_info(*out)->notes);
    if (o->split_mode && strcmp(o->split_mode, "layer") != 0)
        say_notes(lode_model_info(*out)->device_note);
    say_no_gpu(o, *out);
    say_context(o, *out);
    return 0;
}

/* Bytes with nothing streamed, as far as the host has it. */
static double all_in_memory(const struct lode_placement *p) {
    return (double)p->size[LODE_RUNG_RAM] + (double)p->size[LODE_RUNG_DISK];
}

static int refuse(const struct lode_placement *p, struct lode_error *err) {
    char need[32], have[32];
    const int first = (int)strcspn(p->advice, "\n");
    return tool_fail(err, LODE_ERR_LIMIT, "--ram",
                     "there are %s; all of the model in memory takes %s with a context of %u, and %.*s "
                     "(lode plan shows more)",
                     format_bytes((double)p->budget[LODE_RUNG_RAM], have),
                     format_bytes(all_in_memory(p), need), p->ctx, first, p->advice);
}

/* What is chosen is said where anything was, and with --fit always. */
static void say_plan(const struct load_opts *o, const struct lode_model *m, const struct lode_placement *p) {
    char a[32], b[32];
    if (!p->on_gpu && lode_model_info(m)->n_gpus > 0)
        fprintf(stderr, "lode: note: no layer fits into the GPU's memory, of which %s are free: all run on the CPU\n",
                format_bytes((double)p->budget[LODE_RUNG_VRAM], a));
    if (p->expert_cache && p->fits)
        fprintf(stderr, "lode: note: %s of memory for %s of experts; the others are read when they are "
                        "used\n",
                format_bytes((double)p->expert_cache, a), format_bytes((double)p->experts_size, b));
    if (p->layer_cache && p->fits)
        fprintf(stderr, "lode: note: %s of memory for %s of the layers' own matrices; each token reads "
                        "the others\n",
                format_bytes((double)p->layer_cache, a), format_bytes((double)p->layers_size, b));
    if (p->ctx < p->ctx_wanted)
        fprintf(stderr, "lode: note: the context is cut from %u to %u to fit into %s (-c)\n",
                p->ctx_wanted, p->ctx, format_bytes((double)p->budget[LODE_RUNG_RAM], a));
    if (!o->batch && p->batch < 512 && p->batch < p->ctx)
        fprintf(stderr, "lode: note: prompts are read %u tokens at a time instead of 512, which leaves more of the "
                        "memory to weights (-b)\n", p->batch);
    if (o->fit)
        fprintf(stderr, "lode: note: context %u, %s of %s of memory\n", p->ctx,
                format_bytes((double)p->size[LODE_RUNG_RAM], a),
                format_bytes((double)p->budget[LODE_RUNG_RAM], b));
    const uint32_t layers = p->gpu_layers < p->n_layers ? p->gpu_layers : p->n_layers;
    if (p->on_gpu && (o->fit || p->gpu_layers <= p->n_layers || p->cpu_experts))
        fprintf(stderr, "lode: note: %u of %u layers are on the GPU%s, in %s of %s of its memory\n", layers,
                p->n_layers, p->cpu_experts >= p->n_layers ? ", without their experts"
                             : p->cpu_experts              ? ", without the experts of some"
                                                           : "",
                format_bytes((double)p->size[LODE_RUNG_VRAM], a),
                format_bytes((double)p->budget[LODE_RUNG_VRAM], b));
    if (p->gpu_beside)
        fprintf(stderr, "lode: note: %s of that are for the experts that are used most, and the GPU computes others that "
                        "it is brought\n", format_bytes((double)p->gpu_cache, a));
    if (p->bring_lacks)
        fprintf(stderr, "lode: note: the CPU computes its layers of long prompts too: to bring them to the GPU takes %s more "
                        "of its memory than there is beside its layers (a smaller -ngl or -b)\n",
                format_bytes((double)p->bring_lacks, a));
    if (p->brings && o->fit)
        fprintf(stderr, "lode: note: of long prompts the GPU computes the other layers too: %s are brought to it each time\n",
                format_bytes((double)p->bring_size, a));
    if (!p->fits && p->size[LODE_RUNG_VRAM] > p->budget[LODE_RUNG_VRAM])
        fprintf(stderr, "lode: note: %s of the GPU's memory are needed and %s are free: ask for fewer layers (-ngl)\n",
                format_bytes((double)p->size[LODE_RUNG_VRAM], a),
                format_bytes((double)p->budget[LODE_RUNG_VRAM], b));
    else if (!p->fits)
        fprintf(stderr, "lode: note: %s are needed and %s are free: what does not fit will be read "
                        "again and again (lode plan)\n",
                format_bytes(all_in_memory(p), a),
                format_bytes((double)p->budget[LODE_RUNG_RAM], b));
}

/* By the plan; --expert-cache is taken as it is. */
static int fill_by_plan(struct lode_model *m, struct load_opts *o, struct lode_error *err) {
    struct lode_placement p;
    const struct lode_session_opts so = load_session_opts(o);
    const struct lode_budget b = load_budget(o);
    const bool hard = b.ram > 0;
    if (hard && (o->expert_cache || o->layer_cache))
        return tool_fail(err, LODE_ERR_ARG, "--ram", "it plans the caches, which %s names: give one of them",
                         o->expert_cache ? "--expert-cache" : "--layer-cache");
    if (o->expert_cache || o->layer_cache) {
        if (b.gpu_layers)
            lode_model_split(m, b.gpu_layers, UINT32_MAX);
        if (b.gpu_cache && b.gpu_cache != LODE_NO_GPU_CACHE)
            lode_model_gpu_cache(m, b.gpu_cache);
        if (!o->no_op_offload)
            lode_model_bring(m);
        return lode_model_fill(m, o->expert_cache, o->layer_cache, err);
    }
    int rc = lode_plan_place(m, &so, &b, &p, err);
    if (rc == 0 && hard && !p.fits)
        rc = refuse(&p, err);
    if (rc < 0)
        return rc;
    if (hard && p.budget[LODE_RUNG_RAM] < b.ram) {
        char asked[32], there[32];
        fprintf(stderr, "lode: note: --ram is %s, but no more than %s are free\n",
                format_bytes((double)b.ram, asked), format_bytes((double)p.budget[LODE_RUNG_RAM], there));
    }
    say_plan(o, m, &p);
    if (hard) { /* of all models of this program together: --ram is what it may hold, not each of them */
        /* what is too small to be planned must not end an answer, nor what a sampler has room for and rarely
         * writes: three numbers for each token of the vocabulary, which are no memory until then */
        const uint64_t rooms = (uint64_t)24 * lode_model_info(m)->n_vocab * ((o->parallel ? o->parallel : 1) + o->waiting);
        const uint64_t most = b.ram + b.ram / 50 + rooms;
        const uint64_t before = lode_memory_limit(most);
        if (before > most)
            lode_memory_limit(before);
    }
    if (o->hot && !p.expert_cache)
        fprintf(stderr, "lode: note: --hot-experts %s is not used: no experts are streamed\n", o->hot);
    if (p.expert_cache) /* where the kernel tells no pressure, budgets alone hold */
        lode_memory_watch(true, NULL);
    if (p.ctx < p.ctx_wanted)
        o->ctx = p.ctx;
    if (!o->batch)
        o->batch = p.batch;
    lode_model_split(m, p.gpu_layers, p.cpu_experts);
    if (p.gpu_beside)
        lode_model_gpu_cache(m, p.gpu_cache);
    if (p.brings)
        lode_model_bring(m);
    return lode_model_fill(m, p.fits ? p.expert_cache : 0, p.fits ? p.layer_cache : 0, err);
}

int load_model(struct lode_model **out, struct load_opts *o, struct lode_error *err) {
    struct progress bar;
    progress_begin(&bar, "loading", "B", 0);
    int rc = open_with(out, o, &bar, err);
    rc = rc < 0 ? rc : fill_by_plan(*out, o, err);
    progress_end(&bar);
    if (rc < 0) {
        lode_model_free(*out);
        *out = NULL;
        return rc;
    }
    const struct lode_model_info *info = lode_model_info(*out);
    say_notes(info->notes);
    say_notes(info->device_note);
    say_no_gpu(o, *out);
    say_context(o, *out);
    if (o->numerics && (strcmp(o->numerics, "fast") == 0 || strcmp(o->numerics, "tensor") == 0))
        fprintf(stderr, "lode: note: --numerics %s: %s\n", o->numerics,
                strcmp(info->numerics, "exact") == 0 ? "nothing here has that, so that all numbers are exact" : info->numerics);
    return 0;
}

struct lode_session_opts load_session_opts(const struct load_opts *o) {
    return (struct lode_session_opts){
        .ctx = (uint32_t)o->ctx,
        .batch = (uint32_t)o->batch,
        .threads = (uint32_t)o->threads,
        .ctk = o->kv ? o->kv : o->ctk,
        .ctv = o->kv ? o->kv : o->ctv,
    };
}
