#include "profile.h"

#include "out.h"
#include "progress.h"

#include "lode/profile.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static double share(uint64_t part, uint64_t whole) {
    return whole ? 100 * (double)part / (double)whole : 0;
}

static void add(struct lode_profile_layer *sum, const struct lode_profile_layer *l) {
    sum->seconds += l->seconds;
    sum->waited += l->waited;
    sum->uses += l->uses;
    sum->hits += l->hits;
    sum->bytes += l->bytes;
    sum->guesses += l->guesses;
    sum->guessed += l->guessed;
}

static void print_row(const char *name, const struct lode_profile_layer *l, const struct lode_profile *p) {
    const double steps = p->steps ? (double)p->steps : 1;
    char bytes[32];
    fprintf(stderr, "%6s %10.3f %10.3f", name, 1e3 * (l->seconds - l->waited) / steps,
            1e3 * l->waited / steps);
    if (p->streams)
        fprintf(stderr, " %8.1f %7.1f %12s %8" PRIu64 " %7.1f", (double)l->uses / steps,
                share(l->hits, l->uses), format_bytes((double)l->bytes / steps, bytes), l->guesses,
                share(l->guessed, l->guesses));
    fputc('\n', stderr);
}

static void print_table(const struct lode_profile *p) {
    struct lode_profile_layer sum = {0};
    char name[16], a[32], b[32];
    fprintf(stderr, "%sprofile of %" PRIu64 " steps, %" PRIu64 " tokens; a step's share:%s\n",
            out_bold(stderr), p->steps, p->rows, out_plain(stderr));
    fprintf(stderr, "%6s %10s %10s", "layer", "compute ms", "disk ms");
    if (p->streams)
        fprintf(stderr, " %8s %7s %12s %8s %7s", "used", "hits %", "read", "guesses", "good %");
    fputc('\n', stderr);
    for (uint32_t l = 0; l < p->n_layers; l++) {
        snprintf(name, sizeof name, "%" PRIu32, l);
        print_row(name, &p->layers[l], p);
        add(&sum, &p->layers[l]);
    }
    print_row("head", &(struct lode_profile_layer){.seconds = p->head}, p);
    sum.seconds = p->seconds;
    print_row("all", &sum, p);
    if (!p->streams)
        return;
    fprintf(stderr,
            "%" PRIu64 " experts or layers used: %" PRIu64 " in memory or on their way (%" PRIu64
            " of them guessed), %" PRIu64 " from disk; %s read\n",
            sum.uses, sum.hits, sum.guessed, sum.uses - sum.hits, format_bytes((double)sum.bytes, a));
    fprintf(stderr, "cache %s of %s; read by %s", format_bytes((double)p->held, a),
            format_bytes((double)p->cache, b), p->reader);
    fprintf(stderr, ", %s/s over the whole time",
            format_bytes(p->seconds > 0 ? (double)sum.bytes / p->seconds : 0, a));
    fprintf(stderr, ", %s/s while it read, %.1f %% of the time; %" PRIu64 " guesses were called off\n",
            format_bytes(p->busy > 0 ? (double)sum.bytes / p->busy : 0, a),
            p->seconds > 0 ? 100 * p->busy / p->seconds : 0, p->cancelled);
}

static void print_json(FILE *f, const struct lode_profile *p) {
    fprintf(f,
            "{\"steps\": %" PRIu64 ", \"tokens\": %" PRIu64 ", \"seconds\": %.6f, \"head\": %.6f, "
            "\"streams\": %s, \"cache\": %" PRIu64 ", \"held\": %" PRIu64 ", \"cancelled\": %" PRIu64
            ", \"busy\": %.6f, \"reader\": \"%s\",\n \"layers\": [",
            p->steps, p->rows, p->seconds, p->head, p->streams ? "true" : "false", p->cache, p->held,
            p->cancelled, p->busy, p->reader);
    for (uint32_t i = 0; i < p->n_layers; i++) {
        const struct lode_profile_layer *l = &p->layers[i];
        fprintf(f,
                "%s\n  {\"seconds\": %.6f, \"waited\": %.6f, \"uses\": %" PRIu64 ", \"hits\": %" PRIu64
                ", \"bytes\": %" PRIu64 ", \"guesses\": %" PRIu64 ", \"guessed\": %" PRIu64 "}",
                i ? "," : "", l->seconds, l->waited, l->uses, l->hits, l->bytes, l->guesses,
                l->guessed);
    }
    fputs("\n]}\n", f);
}

/* to += sign * by, of all that is counted. */
static void count(struct lode_profile *to, const struct lode_profile *by, int sign) {
    const uint64_t s = sign < 0 ? UINT64_MAX : 1; /* wraps to what is meant */
    to->steps += s * by->steps;
    to->rows += s * by->rows;
    to->cancelled += s * by->cancelled;
    to->seconds += sign * by->seconds;
    to->head += sign * by->head;
    to->busy += sign * by->busy;
    for (uint32_t i = 0; i < LODE_PROFILE_LAYERS; i++) {
        struct lode_profile_layer *l = &to->layers[i];
        l->seconds += sign * by->layers[i].seconds;
        l->waited += sign * by->layers[i].waited;
        l->uses += s * by->layers[i].uses;
        l->hits += s * by->layers[i].hits;
        l->bytes += s * by->layers[i].bytes;
        l->guesses += s * by->layers[i].guesses;
        l->guessed += s * by->layers[i].guessed;
    }
}

static struct lode_profile left_out;

void profile_leave_out(const struct lode_model *m, bool begin) {
    static struct lode_profile now;
    lode_model_profile(m, &now);
    count(&left_out, &now, begin ? -1 : 1);
}

int profile_finish(const struct lode_model *m, const struct load_opts *o, struct lode_error *err) {
    static struct lode_profile p;
    lode_model_profile(m, &p);
    count(&p, &left_out, -1);
    if (o->profile)
        print_table(&p);
    if (o->profile_json) {
        FILE *f = fopen(o->profile_json, "w");
        if (f)
            print_json(f, &p);
        if (!f || ferror(f) | fclose(f))
            return tool_fail(err, LODE_ERR_IO, o->profile_json, "it cannot be written: %s",
                             strerror(errno));
    }
    return o->hot && p.streams ? lode_model_save_hot(m, o->hot, err) : 0;
}
