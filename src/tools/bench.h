/* bench.h - one measured test of `lode bench`, and how it is printed (bench_print.c). */
#ifndef LODE_TOOLS_BENCH_H
#define LODE_TOOLS_BENCH_H

#include "lode/model.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct bench_row {
    const struct lode_model_info *info;
    const char *filename, *type_k, *type_v, *cpu;
    uint32_t n_batch, n_threads;
    int64_t n_prompt, n_gen, n_depth, n_parallel; /* n_parallel: answers at once */
    char test_time[32];
    size_t n_samples;
    const uint64_t *samples_ns; /* (n_samples) */
    const double *samples_ts;   /* (n_samples), tokens/s */
    double avg_ns, stddev_ns, avg_ts, stddev_ts;
    double bytes_per_token; /* weights and KV read for one generated token; 0 for prompts */
    double read_bandwidth;  /* of the machine, bytes/s; 0 where it was not measured */
    double bandwidth_share; /* of it, measured around each answer: the median; 0 for prompts */
    double ops_per_token;   /* of a prompt's products with weights (2 for a multiply-add); 0 else */
    double peak_ops;        /* what the machine's dot products of this kind give, ops/s; or 0 */
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

/* `lode bench --roofline`: what the machine can do at best, in one of the formats' names. */
int bench_roofline(const char *format);
/* What dot products of 8-bit integers or floats give at best with this instruction set, ops/s; 0:
 * not known. */
double bench_dot_peak(const char *isa, bool integers, uint32_t threads, double seconds);

extern const struct bench_format bench_formats[]; /* the last has no name */

#endif
