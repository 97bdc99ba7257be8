/* trace_replay.c - `lode trace replay`: what caches of some sizes make of recorded routes.
 *
 * Tokens/s are those of lode_trace_replay_at: computing with weights at the memory's speed, waiting for what is
 * missed, and with guesses reading some of that before it is. */
#include "trace.h"

#include "args.h"
#include "disk.h"
#include "out.h"
#include "progress.h"

#include "lode/lode.h"

#include <stdlib.h>
#include <string.h>

struct opts {
    struct arg_strs files, policies;
    struct arg_shares sizes;
    uint64_t disk, ram;
    bool json;
};

static const struct arg_flag flags[] = {
    {"-f, --file", ARG_STRS, ARG_AT(struct opts, files), .meta = "FILE", .pos = 1,
     .help = "a trace (also the arguments without a flag)"},
    {"--sizes", ARG_SHARES, ARG_AT(struct opts, sizes), .meta = "LIST", .def = "10%,25%,50%,75%",
     .help = "cache sizes: shares of all experts, or bytes: 10%,512M,4G"},
    {"--policy", ARG_STRS, ARG_AT(struct opts, policies), .meta = "NAME",
     .shown = "all, and belady", .help = "a policy; may be given several times"},
    {"--disk-speed", ARG_SIZE, ARG_AT(struct opts, disk), .meta = "SIZE", .shown = "measured",
     .help = "bytes that the disk reads in a second"},
    {"--ram-speed", ARG_SIZE, ARG_AT(struct opts, ram), .meta = "SIZE", .shown = "measured",
     .help = "bytes that the memory reads in a second"},
    {"--json", ARG_BOOL, ARG_AT(struct opts, json), .group = "Output",
     .help = "one JSON object instead of tables"},
};

static const struct arg_spec spec = {
    .verb = "trace replay",
    .usage = "TRACE... [--sizes LIST] [flags]",
    .brief = "what caches of some sizes make of recorded routes",
    .about = "For each trace, size and policy: the share of uses that were in the cache, the bytes\n"
             "read from disk for each token, the tokens/s that follow, and the part that this is of\n"
             "what Belady's rule, which knows the future, would have had.  Belady's is the optimum\n"
             "where all experts have one size; where sizes differ it is marked with ~.  Where the trace\n"
             "has guesses, the same with them: what is there or on its way when it is asked for, what is\n"
             "read, and how much of that for nothing.",
    .examples = "lode trace replay book.trace\n"
                "lode trace replay a.trace b.trace --sizes 1G,2G,4G --policy slru --policy belady",
    .flags = flags,
    .n_flags = ARG_COUNT(flags),
};

enum { MAX_POLICIES = 16 };

struct speeds {
    double disk, ram; /* bytes/s */
    double alone;     /* seconds by which a lone read of the disk takes longer */
};

static double tokens_per_second(const struct lode_replay *r) { return (double)r->tokens / r->seconds; }

static bool is_optimum(const char *policy) { return strcmp(policy, "belady") == 0; }

static bool one_size(const struct lode_trace *t) {
    const struct lode_trace_shape *s = lode_trace_shape(t);
    uint64_t size = 0;
    for (uint32_t l = 0; l < s->n_layers; l++) {
        if (size && s->expert_bytes[l] && s->expert_bytes[l] != size)
            return false;
        size = s->expert_bytes[l] ? s->expert_bytes[l] : size;
    }
    return true;
}

/* The policies asked for, belady last. */
static size_t choose(const struct opts *o, const char *names[MAX_POLICIES]) {
    size_t n = 0;
    if (o->policies.n == 0) {
        for (const char *const *p = lode_trace_policies(); *p && n + 1 < MAX_POLICIES; p++)
            names[n++] = *p;
        names[n++] = "belady";
    }
    for (size_t i = 0; i < o->policies.n && n < MAX_POLICIES; i++)
        names[n++] = o->policies.v[i];
    return n;
}

struct cell {
    struct lode_replay r, ahead; /* without guesses, with them */
    const char *policy;
    uint64_t capacity;
};

static double hit_rate(const struct lode_replay *r) { return (double)r->hits / (double)r->uses; }

static void print_row(const struct lode_trace *t, const struct cell *c, const struct lode_replay *best) {
    char read[32];
    const bool standard = !strcmp(c->policy, lode_trace_policies()[0]);
    printf("  %s%-8s%s %7.2f %%  %12s  %9.2f", standard ? out_bold(stdout) : "", c->policy,
           out_plain(stdout), 100 * hit_rate(&c->r),
           format_bytes((double)c->r.bytes_read / (double)c->r.tokens, read), tokens_per_second(&c->r));
    if (best && best->hits)
        printf("  %10.3f", (double)c->r.hits / (double)best->hits);
    if (lode_trace_shape(t)->guesses && !is_optimum(c->policy)) {
        const double n = (double)c->ahead.tokens;
        printf("  | %7.2f %%  %12s", 100 * hit_rate(&c->ahead), format_bytes((double)c->ahead.bytes_read / n, read));
        printf("  %10s  %9.2f", format_bytes((double)c->ahead.bytes_wrong / n, read), tokens_per_second(&c->ahead));
    }
    putchar('\n');
}

static void print_size(const struct lode_trace *t, const struct cell *cells, size_t n) {
    char bytes[32], all[32];
    const double whole = (double)lode_trace_bytes(t);
    const struct lode_replay *best = NULL;
    for (size_t i = 0; i < n; i++)
        if (is_optimum(cells[i].policy))
            best = &cells[i].r;
    printf("%scache of %s%s, %.1f %% of %s\n", out_bold(stdout),
           format_bytes((double)cells[0].capacity, bytes), out_plain(stdout),
           100 * (double)cells[0].capacity / whole, format_bytes(whole, all));
    const bool guesses = lode_trace_shape(t)->guesses;
    printf("  %spolicy        hits  read a token   tokens/s%s%s%s\n", out_dim(stdout),
           best ? one_size(t) ? "   of belady" : "  of ~belady" : "",
           guesses ? "  | with guesses  read a token     for nothing   tokens/s" : "", out_plain(stdout));
    for (size_t i = 0; i < n; i++)
        print_row(t, &cells[i], best);
}

static void print_guesses(const struct lode_replay *r) {
    printf(", \"guesses\": {\"hit_rate\": %.6f, \"hits\": %llu, \"guessed\": %llu, \"bytes_read\": %llu, "
           "\"bytes_wrong\": %llu, \"tokens_per_second\": %.4f}",
           hit_rate(r), (unsigned long long)r->hits, (unsigned long long)r->guessed,
           (unsigned long long)r->bytes_read, (unsigned long long)r->bytes_wrong, tokens_per_second(r));
}

static void print_json(const struct lode_trace *t, const struct cell *cells, size_t n, bool first) {
    for (size_t i = 0; i < n; i++) {
        const struct lode_replay *r = &cells[i].r;
        printf("%s\n      {\"capacity\": %llu, \"policy\": ", first && i == 0 ? "" : ",",
               (unsigned long long)cells[i].capacity);
        out_json_string(stdout, cells[i].policy);
        printf(", \"hit_rate\": %.6f, \"uses\": %llu, \"hits\": %llu, \"bytes_used\": %llu, "
               "\"bytes_read\": %llu, \"first_reads\": %llu, \"tokens_per_second\": %.4f",
               hit_rate(r), (unsigned long long)r->uses, (unsigned long long)r->hits,
               (unsigned long long)r->bytes_used, (unsigned long long)r->bytes_read,
               (unsigned long long)r->first_reads, tokens_per_second(r));
        if (lode_trace_shape(t)->guesses && !is_optimum(cells[i].policy))
            print_guesses(&cells[i].ahead);
        putchar('}');
    }
}

static int measure(struct speeds *v, const struct opts *o, struct lode_error *err) {
    struct disk_speed d = {.bytes_per_second = (double)o->disk};
    v->ram = o->ram ? (double)o->ram : lode_machine_read_bandwidth(0, 0.4, err);
    if (v->ram < 0)
        return (int)v->ram;
    struct lode_error why;
    if (!o->disk && disk_measure_dir(&d, ".", 1.0, &why) < 0)
        return tool_fail(err, why.code, "--disk-speed", "name it (like 2G), it cannot be measured: %s: %s", why.where, why.text);
    v->disk = d.bytes_per_second;
    v->alone = d.alone;
    return 0;
}

/* What comes before the first trace, when that was found to be one: measuring takes a second. */
static int begin(struct speeds *v, const struct opts *o, struct lode_error *err) {
    char ram[32], disk[32];
    const int rc = measure(v, o, err);
    if (rc < 0)
        return rc;
    if (o->json)
        printf("{\"ram_bytes_per_second\": %.0f, \"disk_bytes_per_second\": %.0f, \"traces\": [", v->ram, v->disk);
    else
        printf("memory reads %s/s, the disk %s/s\n", format_bytes(v->ram, ram), format_bytes(v->disk, disk));
    return 0;
}

static int show(const struct opts *o, const char *path, struct speeds *v, bool first,
                struct lode_error *err) {
    struct lode_trace *t;
    struct cell cells[MAX_POLICIES];
    const char *names[MAX_POLICIES];
    const size_t n = choose(o, names);
    char bytes[32];
    int rc = trace_open(&t, path, err);
    if (rc < 0)
        return rc;
    const struct lode_trace_shape *s = lode_trace_shape(t);
    if (lode_trace_n_tokens(t) == 0)
        rc = tool_fail(err, LODE_ERR_FORMAT, path, "it has no tokens");
    if (rc == 0 && first)
        rc = begin(v, o, err);
    if (rc < 0) {
        lode_trace_free(t);
        return rc;
    }
    if (o->json) {
        printf("%s\n    {\"file\": ", first ? "" : ",");
        out_json_string(stdout, path);
        printf(", \"model\": ");
        out_json_string(stdout, s->name);
        printf(", \"tokens\": %zu, \"expert_bytes\": %llu, \"one_size\": %s, \"sizes\": [",
               lode_trace_n_tokens(t), (unsigned long long)lode_trace_bytes(t),
               one_size(t) ? "true" : "false");
    } else {
        printf("%s%s%s: %s%s%zu tokens, %u of %u experts, %s in all\n", out_bold(stdout), path,
               out_plain(stdout), s->name, *s->name ? ", " : "", lode_trace_n_tokens(t), s->n_used,
               s->n_experts, format_bytes((double)lode_trace_bytes(t), bytes));
    }
    const struct lode_replay_pace pace = {.ram = LODE_PLAN_RAM_SHARE * v->ram, .disk = v->disk, .wait = v->alone};
    size_t n_shown = 0;
    for (size_t k = 0; rc == 0 && k < o->sizes.n; k++) {
        const uint64_t capacity = arg_share_of(&o->sizes.v[k], lode_trace_bytes(t));
        for (size_t i = 0; rc == 0 && i < n; i++) {
            cells[i] = (struct cell){.policy = names[i], .capacity = capacity};
            rc = lode_trace_replay_at(t, names[i], capacity, &pace, false, &cells[i].r, err);
            rc = rc < 0 ? rc : lode_trace_replay_at(t, names[i], capacity, &pace, true, &cells[i].ahead, err);
        }
        if (rc == LODE_ERR_LIMIT && (n_shown || k + 1 < o->sizes.n)) { /* a share may be less than a layer needs */
            fprintf(stderr, "lode: note: a cache of %s is left out: %s\n", format_bytes((double)capacity, bytes), err->text);
            rc = 0;
            continue;
        }
        if (rc == 0 && o->json)
            print_json(t, cells, n, n_shown == 0);
        else if (rc == 0)
            print_size(t, cells, n);
        n_shown += rc == 0;
    }
    if (rc == 0 && o->json)
        printf("]}");
    lode_trace_free(t);
    return rc;
}

int trace_replay(int argc, char **argv) {
    struct opts o;
    struct args a;
    const int status = args_main(&a, &spec, &o, argc, argv);
    if (status >= 0)
        return status;
    if (!o.files.n)
        return args_usage_error(&spec, "the trace is missing");
    struct lode_error err = {0};
    struct speeds v = {0};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < o.files.n; i++)
        rc = show(&o, o.files.v[i], &v, i == 0, &err);
    if (rc == 0 && o.json)
        printf("\n]}\n");
    return rc < 0 ? tool_report(&err) : 0;
}
