/* plan.c - `lode plan`: what of a model would live where, and how fast it would be, before anything is
 * loaded. */
#include "args.h"
#include "disk.h"
#include "load.h"
#include "out.h"
#include "progress.h"
#include "trace.h"
#include "verbs.h"

#include "lode/lode.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

struct opts {
    struct load_opts load;
    const char *trace;
    int64_t parallel;
    uint64_t disk, ram_speed, vram_speed;
    bool json, no_measure;
};

static const struct arg_flag flags[] = {
    LOAD_MODEL_FLAGS(struct opts),
    {"-c, --ctx-size, --ctx", ARG_INT, ARG_AT(struct opts, load.ctx), .meta = "N", .def = "0",
     .shown = "the model's, or what fits", .min = 0, .max = 1 << 28, .group = "Sessions",
     .help = "longest timeline in tokens (32k: 32768)"},
    {"-np, --parallel", ARG_INT, ARG_AT(struct opts, parallel), .meta = "N", .def = "1", .min = 1,
     .max = 256, .help = "requests at once, each with the whole context"},
    LOAD_SESSION_FLAGS(struct opts),
    {"--trace", ARG_STR, ARG_AT(struct opts, trace), .meta = "FILE", .group = "Speeds",
     .shown = "what routes are like", .help = "a route trace of this model (lode trace record): "
     "the hits of its experts' cache are counted from it, and what is waited for"},
    {"--ram-speed", ARG_SIZE, ARG_AT(struct opts, ram_speed), .meta = "SIZE", .shown = "measured",
     .help = "bytes that the memory reads in a second"},
    {"--disk-speed", ARG_SIZE, ARG_AT(struct opts, disk), .meta = "SIZE", .shown = "measured",
     .help = "bytes that the disk reads in a second"},
    {"--vram-speed", ARG_SIZE, ARG_AT(struct opts, vram_speed), .meta = "SIZE", .shown = "measured",
     .help = "bytes that the GPU's memory reads in a second"},
    {"--no-bandwidth", ARG_BOOL, ARG_AT(struct opts, no_measure),
     .help = "measure nothing; speeds that are not given are not known"},
    {"--json", ARG_BOOL, ARG_AT(struct opts, json), .group = "Output",
     .help = "one JSON object instead of the table"},
};

static const struct arg_spec spec = {
    .verb = "plan",
    .usage = "MODEL [--ram SIZE] [--vram SIZE] [-c N] [flags]",
    .brief = "what of a model would live where, and how fast it would be",
    .about =
        "Reads the model's headers and nothing else, measures memory, products and disk for a moment,\n"
        "and shows what would live in VRAM, RAM and on disk, what a token reads from each, and the\n"
        "tokens/s that follow.  The same count decides when run, serve, bench or logits load a model\n"
        "with these flags.  What does not fit is said with numbers and what would make it fit; the\n"
        "exit status is then 1.  docs/bigger-than-memory.md has the formula.",
    .examples = "lode plan big-moe.gguf --ram 24G\n"
                "lode plan model.gguf --ram 75% --vram 12G -c 32k -ctk q8_0 -ctv q8_0\n"
                "lode plan big-moe.gguf --ram 8G --trace book.trace --json",
    .flags = flags,
    .n_flags = ARG_COUNT(flags),
};

/* The largest file below a directory: what of it is read. */
static void find_largest(const char *dir, char path[4096], off_t *size) {
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        char name[4096];
        struct stat st;
        const int n = snprintf(name, sizeof name, "%s/%s", dir, e->d_name);
        if (n > 0 && (size_t)n < sizeof name && !stat(name, &st) && S_ISREG(st.st_mode) && st.st_size > *size) {
            memcpy(path, name, (size_t)n + 1);
            *size = st.st_size;
        }
    }
    if (d)
        closedir(d);
}

/* Of the disk that the model lies on; zeros: not known. */
static struct disk_speed measure_disk(const char *model) {
    struct disk_speed d;
    struct lode_error why;
    struct stat st;
    char path[4096] = "";
    off_t size = 0;
    if (!stat(model, &st) && S_ISDIR(st.st_mode))
        find_largest(model, path, &size);
    return disk_measure_file(&d, *path ? path : model, 0.6, &why) < 0 ? (struct disk_speed){0} : d;
}

/* Where the model's GPU, if it has any, is not known otherwise. */
static void measure_gpu(struct lode_budget *b, const struct lode_model *m, const struct opts *o) {
    struct lode_error why;
    struct lode_device_speeds s;
    if (lode_model_info(m)->n_gpus == 0 || lode_device_speeds(lode_model_info(m)->gpu, &s, &why) < 0)
        return;
    b->vram_speed = o->vram_speed ? b->vram_speed : s.copy;
    b->bus_speed = s.bus;
}

/* *alone: what a lone read of the disk takes longer; 0: not known. */
static int measure(struct lode_budget *b, double *alone, const struct lode_model *m, const struct opts *o,
                   struct lode_error *err) {
    b->ram_speed = (double)o->ram_speed;
    b->disk_speed = (double)o->disk;
    b->vram_speed = (double)o->vram_speed;
    if (o->no_measure)
        return 0;
    if (!o->ram_speed)
        b->ram_speed = lode_machine_read_bandwidth((uint32_t)o->load.threads, 0.4, err);
    if (b->ram_speed < 0)
        return (int)b->ram_speed;
    if (!o->ram_speed) { /* of another machine's memory the cores are not known either */
        b->multiply_speed = lode_model_multiply_bandwidth(m, (uint32_t)o->load.threads, err);
        if (b->multiply_speed < 0)
            return (int)b->multiply_speed;
        const int rc = lode_model_besides(m, (uint32_t)o->load.threads, &b->besides, err);
        if (rc < 0)
            return rc;
    }
    if (!o->disk) {
        const struct disk_speed d = measure_disk(lode_model_info(m)->path);
        b->disk_speed = d.bytes_per_second;
        *alone = d.alone;
    }
    b->fork_time = lode_machine_fork_time((uint32_t)o->load.threads, err);
    if (b->fork_time < 0)
        return (int)b->fork_time;
    measure_gpu(b, m, o);
    return 0;
}

/* A trace of another model would be replayed all the same. */
static int check_trace(const struct lode_trace *t, const struct lode_model *m, const char *path,
                       struct lode_error *err) {
    const struct lode_trace_shape *of = lode_trace_shape(t), is = lode_model_routes(m);
    bool same = of->n_layers == is.n_layers && of->n_experts == is.n_experts && of->n_used == is.n_used;
    for (uint32_t l = 0; same && l < is.n_layers; l++)
        same = !of->expert_bytes[l] == !is.expert_bytes[l];
    if (is.n_experts == 0)
        return tool_fail(err, LODE_ERR_ARG, "--trace", "the model has no routed experts: there are no routes to replay");
    if (lode_trace_n_tokens(t) == 0)
        return tool_fail(err, LODE_ERR_FORMAT, path, "it has no tokens");
    return same ? 0
                : tool_fail(err, LODE_ERR_ARG, path,
                            "the trace is of another model: %s%s%u layers and %u of %u experts a token, where this one "
                            "has %u and %u of %u",
                            of->name, *of->name ? ", " : "", of->n_layers, of->n_used, of->n_experts, is.n_layers,
                            is.n_used, is.n_experts);
}

/* What a trace says of a cache of the plan's size: its hits, and with guesses those that are there or on
 * their way; the seconds that a token waits, with guesses or without, whichever is less: a model that runs
 * tries that out. */
struct routes {
    double hit_rate, ahead, waits; /* ahead 0: the trace has no guesses */
};

static double rate_of(const struct lode_replay *r) { return r->uses ? (double)r->hits / (double)r->uses : 0; }

static int replay_routes(struct routes *out, const struct lode_trace *t, const struct lode_placement *p,
                         const struct lode_budget *b, double alone, struct lode_error *err) {
    struct lode_replay r, ahead, computed;
    /* sizes on disk may be padded: the same share */
    const double share = (double)p->expert_cache / (double)p->experts_size;
    const uint64_t all = lode_trace_bytes(t), capacity = (uint64_t)(share * (double)all);
    const struct lode_replay_pace pace = {.ram = lode_plan_ram_pace(b), .disk = b->disk_speed,
                                          .layer = lode_plan_besides(p, b) / p->n_layers, .wait = alone};
    int rc = lode_trace_replay_at(t, NULL, capacity, &pace, false, &r, err);
    rc = rc < 0 ? rc : lode_trace_replay_at(t, NULL, capacity, &pace, true, &ahead, err);
    /* a disk that takes no time leaves computing */
    const struct lode_replay_pace no_disk = {.ram = pace.ram, .layer = pace.layer};
    rc = rc < 0 ? rc : lode_trace_replay_at(t, NULL, capacity, &no_disk, false, &computed, err);
    if (rc == 0 && r.tokens) {
        const double least = ahead.seconds < r.seconds ? ahead.seconds : r.seconds;
        const bool known = b->ram_speed > 0 && b->disk_speed > 0 && !p->on_gpu;
        *out = (struct routes){rate_of(&r), lode_trace_shape(t)->guesses ? rate_of(&ahead) : 0,
                               known ? (least - computed.seconds) / (double)r.tokens : 0};
    }
    return rc;
}

/* --------------------------------------------------------------------------------- for people */

static void print_cell(double bytes) {
    char text[32];
    printf("  %9s", bytes > 0 ? format_bytes(bytes, text) : "-");
}

static void print_row(const uint64_t size[LODE_RUNGS], const double read[LODE_RUNGS], bool disk) {
    char text[32];
    for (int k = 0; k < LODE_RUNGS; k++)
        print_cell((double)size[k]);
    const double all = read[LODE_RUNG_RAM] + read[LODE_RUNG_VRAM];
    printf("  %12s", all > 0 ? format_bytes(all, text) : "-");
    if (disk)
        printf("  %10s", read[LODE_RUNG_DISK] > 0 ? format_bytes(read[LODE_RUNG_DISK], text) : "-");
}

/* Within 80 columns. */
static void print_table(const struct lode_placement *p) {
    char text[32];
    const bool disk = p->read[LODE_RUNG_DISK] > 0;
    printf("%s%-20s  %9s  %9s  %9s  %12s%s%s\n", out_bold(stdout), "", "VRAM", "RAM", "disk", "read a token",
           disk ? "   from disk" : "", out_plain(stdout));
    for (uint32_t i = 0; i < p->n_rows; i++) {
        printf("%-20s", p->rows[i].name);
        print_row(p->rows[i].size, p->rows[i].read, disk);
        putchar('\n');
    }
    printf("%s%-20s", out_bold(stdout), "in all");
    print_row(p->size, p->read, disk);
    printf("%s\n%-20s", out_plain(stdout), "there is");
    for (int k = 0; k < LODE_RUNGS; k++)
        print_cell((double)p->budget[k]);
    putchar('\n');
    for (uint32_t i = 0; p->n_gpus > 1 && i < p->n_gpus; i++) {
        printf("of that on device %-2u", i + 1);
        print_cell((double)p->gpu_size[i]);
        printf("  of %s\n", format_bytes((double)p->gpu_room[i], text));
    }
}

/* Three digits, which is more than is known. */
static int decimals(double v) { return v < 0.01 ? 5 : v < 0.1 ? 4 : v < 1 ? 3 : v < 10 ? 2 : v < 100 ? 1 : 0; }

static void print_text(const struct lode_model *m, const struct lode_placement *p, const struct lode_budget *b,
                       const struct routes *routes) {
    const struct lode_model_info *info = lode_model_info(m);
    char a[32], c[32], batch[48] = "";
    if (p->batch != 512 && p->batch < p->ctx)
        snprintf(batch, sizeof batch, ", prompts %u tokens at a time", p->batch);
    printf("%s%s%s: %s, %s, %u layers, context %u%s%s%s\n\n", out_bold(stdout), info->path,
           out_plain(stdout), info->arch, info->type, info->n_layers, p->ctx,
           p->ctx < p->ctx_wanted ? " (cut to fit)" : "", batch,
           p->parallel > 1 ? ", several at once" : "");
    print_table(p);
    putchar('\n');
    if (p->expert_cache && p->fits) {
        printf("Experts are read when they are used: %.0f %% of uses are taken to be in the cache", 100 * p->hit_rate);
        if (routes->ahead > 0)
            printf(", %.0f %%\nthere or on their way with guesses", 100 * routes->ahead);
        printf("%s.\n", routes->hit_rate > 0 ? ", as in the trace" : " (--trace FILE: as recorded)");
    }
    if (p->gpu_beside) {
        printf("The GPU has a cache of %s for the CPU's experts: %.0f %% of uses are taken to find theirs there.\n",
               format_bytes((double)p->gpu_cache, a), 100 * p->gpu_hit_rate);
        if (p->upload_seconds > 0)
            printf("Of a long prompt it computes all: %.0f ms a batch to bring the others.\n", 1e3 * p->upload_seconds);
    }
    if (p->brings && p->bring_rows)
        printf("Of a prompt's batch of %u tokens or more the GPU computes the CPU's layers too (but for attention): %s\n"
               "of weights are brought in %.0f ms.\n", p->bring_rows, format_bytes((double)p->bring_size, a), 1e3 * p->bring_seconds);
    else if (p->bring_lacks)
        printf("%s more of the GPU's memory, or fewer layers there, would let it compute the CPU's of long prompts too.\n",
               format_bytes((double)p->bring_lacks, a));
    else if (p->brings && p->bring_seconds > 0)
        printf("The CPU computes its layers of a prompt quicker than their %s of weights could be brought to the GPU (%.0f ms).\n",
               format_bytes((double)p->bring_size, a), 1e3 * p->bring_seconds);
    if (b->ram_speed > 0)
        printf("Memory reads %s/s%s%s%s.\n", format_bytes(b->ram_speed, a),
               b->disk_speed > 0 ? ", the disk " : "",
               b->disk_speed > 0 ? format_bytes(b->disk_speed, c) : "", b->disk_speed > 0 ? "/s" : "");
    struct lode_budget reads = *b;
    reads.multiply_speed = 0;
    if (b->besides.whole)
        printf("The weights fit the processor's cache: %s/s of them there, with all that a token takes.\n",
               format_bytes(lode_plan_ram_pace(b), a));
    else if (b->ram_speed > 0 && lode_plan_ram_pace(b) < lode_plan_ram_pace(&reads))
        printf("Products take longer than that: %s/s of these weights where they lie in the cores' own cache.\n",
               format_bytes(b->multiply_speed, a));
    if (p->fits && p->tokens_per_second > 0)
        printf("%sAbout %.*f tokens/s%s, %.*f with a full context.\n", out_green(stdout),
               decimals(p->tokens_per_second), p->tokens_per_second, out_plain(stdout),
               decimals(p->tokens_per_second_full), p->tokens_per_second_full);
    if (!p->fits)
        printf("%sIt does not fit.%s\n", out_red(stdout), out_plain(stdout));
    for (const char *at = p->advice; *at;) {
        const int n = (int)strcspn(at, "\n");
        printf("- %.*s\n", n, at);
        at += n + (at[n] == '\n');
    }
}

/* ---------------------------------------------------------------------------------------- json */

static void print_json(const struct lode_model *m, const struct lode_placement *p, const struct lode_budget *b,
                       const struct routes *routes) {
    static const char *const rungs[LODE_RUNGS] = {"vram", "ram", "disk"};
    printf("{\n  \"model\": ");
    out_json_string(stdout, lode_model_info(m)->path);
    printf(",\n  \"n_layers\": %u, \"gpu_layers\": %u, \"cpu_experts\": %u,\n"
           "  \"fits\": %s, \"on_gpu\": %s, \"ctx\": %u, \"ctx_wanted\": %u, \"parallel\": %u, \"batch\": %u,\n"
           "  \"layer_cache\": %llu, \"layer_cache_least\": %llu, \"layers_size\": %llu,\n"
           "  \"expert_cache\": %llu, \"expert_cache_least\": %llu, \"experts_size\": %llu, \"hit_rate\": %.6f,\n",
           p->n_layers, p->gpu_layers, p->cpu_experts, p->fits ? "true" : "false", p->on_gpu ? "true" : "false", p->ctx, p->ctx_wanted,
           p->parallel, p->batch, (unsigned long long)p->layer_cache, (unsigned long long)p->layer_cache_least,
           (unsigned long long)p->layers_size, (unsigned long long)p->expert_cache,
           (unsigned long long)p->expert_cache_least, (unsigned long long)p->experts_size, p->hit_rate);
    if (routes->ahead > 0)
        printf("  \"hit_rate_with_guesses\": %.6f,\n", routes->ahead);
    if (b->waits > 0)
        printf("  \"seconds_waited\": %.9g,\n", b->waits);
    printf("  \"bus\": %.0f, \"borders\": %u, \"exchanges\": %u,\n  \"gpus\": [", p->bus, p->borders, p->exchanges);
    for (uint32_t i = 0; i < p->n_gpus; i++)
        printf("%s{\"size\": %llu, \"budget\": %llu}", i ? ", " : "", (unsigned long long)p->gpu_size[i],
               (unsigned long long)p->gpu_room[i]);
    printf("],\n");
    printf("  \"gpu_beside\": %s, \"gpu_cache\": %llu, \"gpu_hit_rate\": %.6f, \"upload_seconds\": %.9g,\n",
           p->gpu_beside ? "true" : "false", (unsigned long long)p->gpu_cache, p->gpu_hit_rate, p->upload_seconds);
    printf("  \"brings\": %s, \"bring_size\": %llu, \"bring_seconds\": %.9g, \"bring_rows\": %u, \"bring_lacks\": %llu,\n",
           p->brings ? "true" : "false", (unsigned long long)p->bring_size, p->bring_seconds, p->bring_rows, (unsigned long long)p->bring_lacks);
    printf("  \"forks\": %u, \"fork_seconds\": %.9g, \"seconds_besides\": %.9g, \"launches\": %u,\n", p->forks,
           b->fork_time, lode_plan_besides(p, b), p->launches);
    printf("  \"vram_bytes_per_second\": %.0f, \"bus_bytes_per_second\": %.0f,\n", b->vram_speed,
           b->bus_speed);
    printf("  \"ram_bytes_per_second\": %.0f, \"multiply_bytes_per_second\": %.0f, \"disk_bytes_per_second\": %.0f,\n"
           "  \"weights_bytes_per_second\": %.0f, \"cached\": %s,\n"
           "  \"tokens_per_second\": %.4f, \"tokens_per_second_full\": %.4f,\n",
           b->ram_speed, b->multiply_speed, b->disk_speed, lode_plan_ram_pace(b), b->besides.whole ? "true" : "false",
           p->tokens_per_second, p->tokens_per_second_full);
    for (int k = 0; k < LODE_RUNGS; k++)
        printf("  \"%s\": {\"size\": %llu, \"budget\": %llu, \"read\": %.0f},\n", rungs[k],
               (unsigned long long)p->size[k], (unsigned long long)p->budget[k], p->read[k]);
    printf("  \"rows\": [");
    for (uint32_t i = 0; i < p->n_rows; i++) {
        printf("%s\n    {\"name\": ", i ? "," : "");
        out_json_string(stdout, p->rows[i].name);
        for (int k = 0; k < LODE_RUNGS; k++)
            printf(", \"%s\": %llu, \"%s_read\": %.0f", rungs[k],
                   (unsigned long long)p->rows[i].size[k], rungs[k], p->rows[i].read[k]);
        putchar('}');
    }
    printf("\n  ],\n  \"advice\": ");
    out_json_string(stdout, p->advice);
    printf("\n}\n");
}

/* Flags of what is loaded that change nothing here. */
static void say_unused(const struct load_opts *o) {
    const struct {
        const char *flag;
        bool given;
        const char *why;
    } all[] = {{"--expert-cache", o->expert_cache, "it is taken as it is, and a plan chooses one (--ram)"},
               {"--layer-cache", o->layer_cache, "it is taken as it is, and a plan chooses one (--ram)"},
               {"--hot-experts", o->hot, "nothing is loaded"},
               {"--profile", o->profile, "nothing is computed"},
               {"--profile-json", o->profile_json, "nothing is computed"},
               {"--profile-tokens", o->profile_tokens, "nothing is computed"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].given)
            fprintf(stderr, "lode: note: %s has no part in a plan: %s\n", all[i].flag, all[i].why);
}

int verb_plan(int argc, char **argv) {
    struct opts o = {0}; /* not all of load has a flag here */
    struct args a;
    const int status = args_main(&a, &spec, &o, argc, argv);
    if (status >= 0)
        return status;
    struct lode_error err = {0};
    struct lode_model *m = NULL;
    struct lode_trace *t = NULL;
    struct lode_placement p = {0};
    struct routes routes = {0};
    double alone = 0;
    say_unused(&o.load);
    o.load.parallel = (uint32_t)o.parallel;
    const struct lode_session_opts so = load_session_opts(&o.load);
    int rc = load_open(&m, &o.load, &err);
    struct lode_budget b = load_budget(&o.load);
    if (rc == 0 && o.trace)
        rc = trace_open(&t, o.trace, &err);
    if (rc == 0 && t)
        rc = check_trace(t, m, o.trace, &err);
    rc = rc < 0 ? rc : measure(&b, &alone, m, &o, &err);
    rc = rc < 0 ? rc : lode_plan_place(m, &so, &b, &p, &err);
    if (rc == 0 && t && p.expert_cache && p.fits) {
        rc = replay_routes(&routes, t, &p, &b, alone, &err);
        b.hit_rate = routes.hit_rate;
        b.waits = routes.waits;
        rc = rc < 0 ? rc : lode_plan_place(m, &so, &b, &p, &err);
    }
    if (rc == 0 && o.json)
        print_json(m, &p, &b, &routes);
    else if (rc == 0)
        print_text(m, &p, &b, &routes);
    lode_trace_free(t);
    lode_model_free(m);
    return rc < 0 ? tool_report(&err) : !p.fits;
}
