/* bench_print.c - llama-bench's table and keys, and ours after them. */
#include "bench.h"

#include "out.h"

#include "commit.h"

#include "lode/lode.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

static double speed(const struct bench_row *r) {
    return r->bytes_per_token * r->avg_ts;
}

static double ops(const struct bench_row *r) {
    return r->ops_per_token * r->avg_ts;
}

static double ops_share(const struct bench_row *r) {
    return r->peak_ops > 0 ? ops(r) / r->peak_ops : 0;
}

/* name, whether JSON quotes it, how it prints */
#define FIELD_LIST(X)                                                                              \
    X(build_commit, true, "%s", LODE_COMMIT)                                                       \
    X(build_version, true, "%s", lode_version())                                                   \
    X(cpu_info, true, "%s", r->cpu)                                                                \
    X(gpu_info, true, "%s", r->info->on_gpu ? r->info->device : "")                                \
    X(backends, true, "%s", r->info->on_gpu ? "CUDA" : "CPU")                                      \
    X(isa, true, "%s", r->info->isa)                                                               \
    X(numerics, true, "%s", r->info->numerics)                                                     \
    X(model_filename, true, "%s", r->filename)                                                     \
    X(model_type, true, "%s %s", r->info->arch, r->info->type)                                     \
    X(model_size, false, "%" PRIu64, r->info->size)                                                \
    X(model_n_params, false, "%" PRIu64, r->info->n_params)                                        \
    X(n_batch, false, "%u", r->n_batch)                                                            \
    X(n_threads, false, "%u", r->n_threads)                                                        \
    X(type_k, true, "%s", r->type_k)                                                               \
    X(type_v, true, "%s", r->type_v)                                                               \
    X(n_gpu_layers, false, "%u", r->info->gpu_layers)                                              \
    X(n_prompt, false, "%" PRId64, r->n_prompt)                                                    \
    X(n_gen, false, "%" PRId64, r->n_gen)                                                          \
    X(n_depth, false, "%" PRId64, r->n_depth)                                                      \
    X(n_parallel, false, "%" PRId64, r->n_parallel)                                                \
    X(test_time, true, "%s", r->test_time)                                                         \
    X(avg_ns, false, "%.0f", r->avg_ns)                                                            \
    X(stddev_ns, false, "%.0f", r->stddev_ns)                                                      \
    X(avg_ts, false, "%.6f", r->avg_ts)                                                            \
    X(stddev_ts, false, "%.6f", r->stddev_ts)                                                      \
    X(bytes_per_token, false, "%.0f", r->bytes_per_token)                                          \
    X(bytes_per_second, false, "%.0f", speed(r))                                                   \
    X(read_bandwidth, false, "%.0f", r->read_bandwidth)                                            \
    X(bandwidth_share, false, "%.6f", r->bandwidth_share)                                              \
    X(ops_per_token, false, "%.0f", r->ops_per_token)                                              \
    X(ops_per_second, false, "%.0f", ops(r))                                                       \
    X(peak_ops, false, "%.0f", r->peak_ops)                                                        \
    X(ops_share, false, "%.6f", ops_share(r))                                                      \
    X(logits_fingerprint, true, "%016" PRIx64, r->fingerprint)

/* ---------------------------------------------------------------------------------------- json */

static void put_json(FILE *f, const struct bench_row *r, const char *lead, const char *between) {
    char text[1024];
    fputc('{', f);
#define JSON_FIELD(name, quoted, ...)                                                              \
    snprintf(text, sizeof text, __VA_ARGS__);                                                      \
    fprintf(f, "%s\"%s\": ", lead, #name);                                                         \
    if (quoted)                                                                                    \
        out_json_string(f, text);                                                                  \
    else                                                                                           \
        fputs(text, f);                                                                            \
    fputs(between, f);
    FIELD_LIST(JSON_FIELD)
#undef JSON_FIELD
    fprintf(f, "%s\"samples_ns\": [", lead);
    for (size_t i = 0; i < r->n_samples; i++)
        fprintf(f, "%s%" PRIu64, i ? ", " : "", r->samples_ns[i]);
    fprintf(f, "]%s%s\"samples_ts\": [", between, lead);
    for (size_t i = 0; i < r->n_samples; i++)
        fprintf(f, "%s%.6f", i ? ", " : "", r->samples_ts[i]);
    fputc(']', f);
}

static void json_begin(FILE *f, const struct bench_columns *c) {
    (void)c;
    fputs("[", f);
}

static void json_row(FILE *f, const struct bench_columns *c, const struct bench_row *r,
                     size_t i_row) {
    (void)c;
    fputs(i_row ? ",\n  " : "\n  ", f);
    put_json(f, r, "\n    ", ",");
    fputs("\n  }", f);
}

static void json_end(FILE *f) {
    fputs("\n]\n", f);
}

static void jsonl_row(FILE *f, const struct bench_columns *c, const struct bench_row *r,
                      size_t i_row) {
    (void)c;
    (void)i_row;
    put_json(f, r, "", ", ");
    fputs("}\n", f);
}

/* ----------------------------------------------------------------------------------------- csv */

static void csv_begin(FILE *f, const struct bench_columns *c) {
    (void)c;
    const char *comma = "";
#define CSV_NAME(name, quoted, ...)                                                                \
    fprintf(f, "%s" #name, comma);                                                                 \
    comma = ",";
    FIELD_LIST(CSV_NAME)
#undef CSV_NAME
    fputc('\n', f);
}

static void put_csv(FILE *f, const char *s) {
    fputc('"', f);
    for (; *s; s++) {
        if (*s == '"')
            fputc('"', f);
        fputc(*s, f);
    }
    fputc('"', f);
}

static void csv_row(FILE *f, const struct bench_columns *c, const struct bench_row *r,
                    size_t i_row) {
    (void)c;
    (void)i_row;
    char text[1024];
    const char *comma = "";
#define CSV_VALUE(name, quoted, ...)                                                               \
    snprintf(text, sizeof text, __VA_ARGS__);                                                      \
    fputs(comma, f);                                                                               \
    put_csv(f, text);                                                                              \
    comma = ",";
    FIELD_LIST(CSV_VALUE)
#undef CSV_VALUE
    fputc('\n', f);
}

/* --------------------------------------------------------------------------------------- table */

static void binary_size(uint64_t bytes, char out[32]) {
    const double v = (double)bytes;
    if (v >= 0x1p30)
        snprintf(out, 32, "%.2f GiB", v / 0x1p30);
    else
        snprintf(out, 32, "%.2f MiB", v / 0x1p20);
}

static void count_params(uint64_t n, char out[32]) {
    if (n >= 1000000000)
        snprintf(out, 32, "%.2f B", (double)n / 1e9);
    else
        snprintf(out, 32, "%.2f M", (double)n / 1e6);
}

static void table_begin(FILE *f, const struct bench_columns *c) {
    fprintf(f, "| %-24s | %10s | %10s | %-7s | %7s |", "model", "size", "params", "backend",
            "threads");
    if (c->n_batch)
        fprintf(f, " %7s |", "n_batch");
    if (c->type_k)
        fprintf(f, " %6s |", "type_k");
    if (c->type_v)
        fprintf(f, " %6s |", "type_v");
    fprintf(f, " %14s | %19s | %9s | %7s | %16s |\n", "test", "t/s", "rate", "of peak", "logits");
    fprintf(f, "| %.24s | %.9s: | %.9s: | %.7s | %.6s: |", "------------------------", "---------",
            "---------", "-------", "------");
    if (c->n_batch)
        fputs(" ------: |", f);
    if (c->type_k)
        fputs(" -----: |", f);
    if (c->type_v)
        fputs(" -----: |", f);
    fputs(" -------------: | ------------------: | --------: | ------: | ---------------- |\n", f);
}

static void table_row(FILE *f, const struct bench_columns *c, const struct bench_row *r,
                      size_t i_row) {
    (void)i_row;
    char model[64], size[32], params[32], test[64], rate[64], bytes[32] = "", part[32] = "";
    snprintf(model, sizeof model, "%s %s", r->info->arch, r->info->type);
    binary_size(r->info->size, size);
    count_params(r->info->n_params, params);
    int n = r->n_prompt && r->n_gen
                ? snprintf(test, sizeof test, "pp%" PRId64 "+tg%" PRId64, r->n_prompt, r->n_gen)
            : r->n_prompt ? snprintf(test, sizeof test, "pp%" PRId64, r->n_prompt)
                          : snprintf(test, sizeof test, "tg%" PRId64, r->n_gen);
    if (r->n_depth)
        n += snprintf(test + n, sizeof test - (size_t)n, " @ d%" PRId64, r->n_depth);
    if (r->n_parallel > 1)
        snprintf(test + n, sizeof test - (size_t)n, " x %" PRId64, r->n_parallel);
    snprintf(rate, sizeof rate, "%.2f ± %.2f", r->avg_ts, r->stddev_ts);
    if (r->bytes_per_token > 0) {
        snprintf(bytes, sizeof bytes, "%.1f GB/s", speed(r) / 1e9);
        if (r->read_bandwidth > 0)
            snprintf(part, sizeof part, "%.1f %%", 100 * r->bandwidth_share);
    } else if (r->ops_per_token > 0) {
        snprintf(bytes, sizeof bytes, "%.0f GOPS", ops(r) / 1e9);
        if (r->peak_ops > 0)
            snprintf(part, sizeof part, "%.1f %%", 100 * ops_share(r));
    }
    fprintf(f, "| %-24s | %10s | %10s | %-7s | %7u |", model, size, params,
            r->info->on_gpu ? "CUDA" : "CPU", r->n_threads);
    if (c->n_batch)
        fprintf(f, " %7u |", r->n_batch);
    if (c->type_k)
        fprintf(f, " %6s |", r->type_k);
    if (c->type_v)
        fprintf(f, " %6s |", r->type_v);
    /* ± is one column and two bytes */
    fprintf(f, " %14s | %20s | %9s | %7s | %016" PRIx64 " |\n", test, rate, bytes, part,
            r->fingerprint);
}

static void table_end(FILE *f) {
    fprintf(f, "\nbuild: %s (lode %s)\n", LODE_COMMIT, lode_version());
}

static void no_begin(FILE *f, const struct bench_columns *c) {
    (void)f;
    (void)c;
}

static void no_end(FILE *f) {
    (void)f;
}

const struct bench_format bench_formats[] = {
    {"md", table_begin, table_row, table_end},
    {"csv", csv_begin, csv_row, no_end},
    {"json", json_begin, json_row, json_end},
    {"jsonl", no_begin, jsonl_row, no_end},
    {NULL, NULL, NULL, NULL},
};
