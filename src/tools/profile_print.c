/* profile_print.c - profiles as tables and as JSON. */
#include "profile.h"

#include "out.h"
#include "progress.h"

#include <inttypes.h>

static double share(uint64_t part, uint64_t whole) {
    return whole ? 100 * (double)part / (double)whole : 0;
}

/* ---- tables ---- */

static void print_times(FILE *f, double seconds, double waited, double steps) {
    fprintf(f, " %10.3f %10.3f", 1e3 * (seconds - waited) / steps, 1e3 * waited / steps);
}

static void print_uses(FILE *f, const struct lode_profile_layer *l, double steps) {
    char bytes[32];
    fprintf(f, " %8.1f %7.1f %12s %8" PRIu64 " %7.1f", (double)l->uses / steps, share(l->hits, l->uses),
            format_bytes((double)l->bytes / steps, bytes), l->guesses, share(l->guessed, l->guesses));
}

static void print_row(FILE *f, const char *name, const struct lode_profile_layer *l,
                      const struct lode_profile *p) {
    const double steps = p->steps ? (double)p->steps : 1;
    fprintf(f, "%6s", name);
    print_times(f, l->seconds, l->waited, steps);
    if (p->streams)
        print_uses(f, l, steps);
    fputc('\n', f);
}

static void print_titles(FILE *f, bool streams) {
    fprintf(f, " %10s %10s", "compute ms", "disk ms");
    if (streams)
        fprintf(f, " %8s %7s %12s %8s %7s", "used", "hits %", "read", "guesses", "good %");
}

static void print_slowest(FILE *f, const struct profile_steps *s, bool streams) {
    if (!s->n_single)
        return;
    fprintf(f, "%s%" PRIu64 " steps of one token a sequence, %.3f ms each; the slowest:%s\n", out_bold(f),
            s->n_single, 1e3 * s->seconds / (double)s->n_single, out_plain(f));
    fprintf(f, "%8s %8s %5s %10s", "step", "position", "seqs", "ms");
    print_titles(f, streams);
    fprintf(f, "  %s\n", "longest in");
    for (uint32_t i = 0; i < s->n_slowest; i++) {
        const struct profile_step *x = &s->slowest[i];
        fprintf(f, "%8" PRIu64 " %8" PRIu32 " %5" PRIu32 " %10.3f", x->number, x->pos, x->n_sequences,
                1e3 * x->seconds);
        print_times(f, x->seconds, x->sum.waited, 1);
        if (streams)
            print_uses(f, &x->sum, 1);
        if (x->head > x->worst_seconds)
            fprintf(f, "  head, %.3f ms\n", 1e3 * x->head);
        else
            fprintf(f, "  layer %" PRIu32 ", %.3f ms\n", x->worst, 1e3 * x->worst_seconds);
    }
}

void profile_print_table(FILE *f, const struct lode_profile *p, const struct profile_steps *s) {
    struct lode_profile_layer sum = {0};
    char name[16], a[32], b[32], c[32];
    fprintf(f, "%sprofile of %" PRIu64 " steps, %" PRIu64 " tokens; a step's share:%s\n", out_bold(f),
            p->steps, p->rows, out_plain(f));
    fprintf(f, "%6s", "layer");
    print_titles(f, p->streams);
    fputc('\n', f);
    for (uint32_t l = 0; l < p->n_layers; l++) {
        snprintf(name, sizeof name, "%" PRIu32, l);
        print_row(f, name, &p->layers[l], p);
        profile_add_layer(&sum, &p->layers[l], 1);
    }
    print_row(f, "head", &(struct lode_profile_layer){.seconds = p->head}, p);
    sum.seconds = p->seconds;
    print_row(f, "all", &sum, p);
    print_slowest(f, s, p->streams);
    if (p->gpu_cache || sum.gpu_uses)
        fprintf(f, "%" PRIu64 " experts used beside the GPU: %" PRIu64 " (%.1f %%) were in its memory; %s brought to it; %s of %s held\n",
                sum.gpu_uses, sum.gpu_hits, share(sum.gpu_hits, sum.gpu_uses), format_bytes((double)sum.gpu_bytes, a),
                format_bytes((double)p->gpu_held, b), format_bytes((double)p->gpu_cache, c));
    if (p->gpu_layers)
        fprintf(f, "%s of the CPU's layers brought to the GPU\n", format_bytes((double)p->gpu_layers, a));
    if (!p->streams)
        return;
    fprintf(f,
            "%" PRIu64 " experts or layers used: %" PRIu64 " in memory or on their way (%" PRIu64
            " of them guessed), %" PRIu64 " from disk; %s read\n",
            sum.uses, sum.hits, sum.guessed, sum.uses - sum.hits, format_bytes((double)sum.bytes, a));
    fprintf(f, "cache %s of %s; read by %s", format_bytes((double)p->held, a),
            format_bytes((double)p->cache, b), p->reader);
    fprintf(f, ", %s/s over the whole time",
            format_bytes(p->seconds > 0 ? (double)sum.bytes / p->seconds : 0, a));
    fprintf(f, ", %s/s while it read, %.1f %% of the time; %" PRIu64 " guesses were called off\n",
            format_bytes(p->busy > 0 ? (double)sum.bytes / p->busy : 0, a),
            p->seconds > 0 ? 100 * p->busy / p->seconds : 0, p->cancelled);
}

/* ---- JSON ---- */

static void json_counts(FILE *f, const struct lode_profile_layer *l) {
    fprintf(f,
            "\"seconds\": %.6f, \"waited\": %.6f, \"uses\": %" PRIu64 ", \"hits\": %" PRIu64
            ", \"bytes\": %" PRIu64 ", \"guesses\": %" PRIu64 ", \"guessed\": %" PRIu64 ", \"gpu_uses\": %" PRIu64
            ", \"gpu_hits\": %" PRIu64 ", \"gpu_bytes\": %" PRIu64,
            l->seconds, l->waited, l->uses, l->hits, l->bytes, l->guesses, l->guessed, l->gpu_uses, l->gpu_hits,
            l->gpu_bytes);
}

static void json_layers(FILE *f, const struct lode_profile *p, const char *before) {
    fputs("\"layers\": [", f);
    for (uint32_t i = 0; i < p->n_layers; i++) {
        fprintf(f, "%s%s{", i ? "," : "", before);
        json_counts(f, &p->layers[i]);
        fputc('}', f);
    }
}

/* All but the layers; nothing closes it. */
static void json_step(FILE *f, const struct profile_step *s) {
    struct lode_profile_layer all = s->sum;
    all.seconds = s->seconds;
    fprintf(f,
            "{\"step\": %" PRIu64 ", \"at\": %.6f, \"position\": %" PRIu32 ", \"tokens\": %" PRIu32
            ", \"sequences\": %" PRIu32 ", \"head\": %.6f, \"cancelled\": %" PRIu64 ", ",
            s->number, s->at, s->pos, s->n_tokens, s->n_sequences, s->head, s->cancelled);
    json_counts(f, &all);
}

void profile_print_step(FILE *f, const struct profile_step *s, const struct lode_profile *p) {
    json_step(f, s);
    fputs(", ", f);
    json_layers(f, p, " ");
    fputs("]}\n", f);
}

void profile_print_json(FILE *f, const struct lode_profile *p, const struct profile_steps *s) {
    fprintf(f,
            "{\"steps\": %" PRIu64 ", \"tokens\": %" PRIu64 ", \"seconds\": %.6f, \"head\": %.6f, "
            "\"streams\": %s, \"cache\": %" PRIu64 ", \"held\": %" PRIu64 ", \"cancelled\": %" PRIu64
            ", \"busy\": %.6f, \"reader\": \"%s\", \"gpu_cache\": %" PRIu64 ", \"gpu_held\": %" PRIu64
            ", \"gpu_layers\": %" PRIu64 ",\n ",
            p->steps, p->rows, p->seconds, p->head, p->streams ? "true" : "false", p->cache, p->held,
            p->cancelled, p->busy, p->reader, p->gpu_cache, p->gpu_held, p->gpu_layers);
    json_layers(f, p, "\n  ");
    fprintf(f, "\n ],\n \"single\": {\"steps\": %" PRIu64 ", \"seconds\": %.6f, \"slowest\": [", s->n_single,
            s->seconds);
    for (uint32_t i = 0; i < s->n_slowest; i++) {
        fputs(i ? ",\n  " : "\n  ", f);
        json_step(f, &s->slowest[i]);
        fputc('}', f);
    }
    fputs("\n ]}}\n", f);
}
