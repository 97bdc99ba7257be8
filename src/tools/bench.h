/* bench.h - one measured test of `lode bench`, and how it is printed (bench_print.c). */
#ifndef LODE_TOOLS_BENCH_H
#define LODE_TOOLS_BENCH_H

#include "lode/model.h"

#include <stdint.h>
#include <stdio.h>

struct bench_row {
    const struct lode_model_info *info;
    const char *filename, *type_k, *type_v, *cpu;
    uint32_t n_batch, n_threads;
    int64_t n_prompt, n_gen, n_depth;
    char test_time[32];
    size_t n_samples;
    const uint64_t *samples_ns; /* (n_samples) */
    const double *samples_ts;   /* (n_samples), tokens/s */
    double avg_ns, stddev_ns, avg_ts, stddev_ts;
    double bytes_per_token; /* weights and KV read for one generated token; 0 for prompts */
    double read_bandwidth;  /* of the machine, bytes/s; 0 where it was not measured */
    uint64_t fingerprint;   /* of the last logits */
};

struct bench_columns { /* of the table: shown where they differ from the default */
    int n_batch, type_k, type_v;
};

struct bench_format {
    const char *name;
    void (*begin)(FILE *f, const struct bench_columns *c);
    void (*row)(FILE *f, const struct bench_columns *c, const struct bench_row *r, size_t i_row);
    void (*end)(FILE *f);
};

extern const struct bench_format bench_formats[]; /* the last has no name */

#endif
