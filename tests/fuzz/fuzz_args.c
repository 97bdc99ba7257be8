/* fuzz_args.c - command lines: lines of the input are words; the first lines, up to an empty one,
 * are the environment, NAME=VALUE.  Whatever is accepted is within its range. */
#include "tools/args.h"

#include <stdlib.h>
#include <string.h>

struct opts {
    const char *model, *prompt, *choice;
    int64_t ctx;
    double temp;
    uint64_t size;
    bool on, no_map;
    struct arg_ints list;
    struct arg_strs words, types;
    struct arg_share share;
    struct arg_shares shares;
};

static const struct arg_flag flags[] = {
    ARG_MODEL(struct opts, model),
    {"-p, --prompt", ARG_STR, ARG_AT(struct opts, prompt), .pos = 2},
    {"-c, --ctx-size, --ctx", ARG_INT, ARG_AT(struct opts, ctx), .min = 1, .max = 4096, .def = "7"},
    {"--temp", ARG_FLOAT, ARG_AT(struct opts, temp), .max = 100, .key = "temp"},
    {"-ctk, --cache-type-k", ARG_CHOICE, ARG_AT(struct opts, choice), .choices = arg_kv_types},
    {"--size", ARG_SIZE, ARG_AT(struct opts, size)},
    {"--share", ARG_SHARE, ARG_AT(struct opts, share)},
    {"--shares", ARG_SHARES, ARG_AT(struct opts, shares), .def = "10%,4G"},
    {"--on", ARG_BOOL, ARG_AT(struct opts, on), .def = "on"},
    {"--no-map", ARG_BOOL, ARG_AT(struct opts, no_map), .debug = true},
    {"-n, --list", ARG_INTS, ARG_AT(struct opts, list), .max = 1e6, .def = "1-8*2"},
    {"--word", ARG_STRS, ARG_AT(struct opts, words)},
    {"--types", ARG_CHOICES, ARG_AT(struct opts, types), .choices = arg_kv_types},
    {"-ngl, --gpu-layers", ARG_FOREIGN},
    {"--jinja", ARG_FOREIGN_BOOL},
};
static const struct arg_spec spec = {.verb = "fuzz",
                                     .usage = "",
                                     .brief = "",
                                     .about = "",
                                     .flags = flags,
                                     .n_flags = ARG_COUNT(flags)};

static char *env_lines[16];
static size_t n_env;

static const char *environment(const char *name) {
    for (size_t i = 0; i < n_env; i++) {
        const size_t n = strlen(name);
        if (!strncmp(env_lines[i], name, n) && env_lines[i][n] == '=')
            return env_lines[i] + n + 1;
    }
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1), *argv[128], verb[] = "fuzz";
    int argc = 0;
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    n_env = 0;
    argv[argc++] = verb;
    bool in_env = true;
    for (char *at = text; at && argc < 127;) {
        char *end = strchr(at, '\n');
        if (end)
            *end = 0;
        if (in_env && *at && n_env < 16)
            env_lines[n_env++] = at;
        else if (in_env)
            in_env = false;
        else
            argv[argc++] = at;
        at = end ? end + 1 : NULL;
    }
    argv[argc] = NULL;

    struct args a;
    struct opts o;
    struct lode_error err = {0};
    const enum args_result got = args_parse(&a, &spec, &o, argc, argv, environment, &err);
    if (got == ARGS_BAD && (!err.where[0] || !err.text[0]))
        abort();
    if (got == ARGS_OK) {
        char shown[128];
        if (o.ctx < 1 || o.ctx > 4096 || !(o.temp >= 0 && o.temp <= 100) ||
            o.list.n > ARG_MAX_LIST || o.words.n > ARG_MAX_LIST || o.types.n > ARG_MAX_LIST)
            abort();
        for (size_t i = 0; i < o.list.n; i++)
            if (o.list.v[i] < 0 || o.list.v[i] > 1000000)
                abort();
        for (size_t i = 0; i < ARG_COUNT(flags); i++)
            args_show(&a, &flags[i], shown, sizeof shown);
        if (o.prompt)
            args_find(&spec, o.prompt);
        if (o.model)
            args_set(&a, &flags[2], o.model, &err);
    }
    free(text);
    return 0;
}
