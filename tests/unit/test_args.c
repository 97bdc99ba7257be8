/* test_args.c - the command-line parser: precedence, ranges, spellings, complaints. */
#include "tools/args.h"
#include "tools/sampling.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct opts {
    const char *model, *prompt, *ctk, *format;
    int64_t ctx, top_k;
    double temp;
    uint64_t size;
    struct arg_share share;
    struct arg_shares shares;
    bool stats, no_mmap, greedy;
    struct arg_ints p;
    struct arg_strs bias, types;
};

static const char *const formats[] = {"md", "csv", "json", NULL};

static const struct arg_flag flags[] = {
    ARG_MODEL(struct opts, model),
    {"-p, --prompt", ARG_STR, ARG_AT(struct opts, prompt), .pos = 2, .meta = "TEXT"},
    {"-c, --ctx-size, --ctx", ARG_INT, ARG_AT(struct opts, ctx), .min = 0, .max = 1 << 24},
    {"--temp, --temperature", ARG_FLOAT, ARG_AT(struct opts, temp), .def = "0.8", .min = 0,
     .max = 100, .key = "temp"},
    {"--top-k", ARG_INT, ARG_AT(struct opts, top_k), .def = "40", .min = -1, .max = 1e9,
     .key = "top_k"},
    {"-ctk, --cache-type-k", ARG_CHOICE, ARG_AT(struct opts, ctk), .def = "f16",
     .choices = arg_kv_types},
    {"-o, --output", ARG_CHOICE, ARG_AT(struct opts, format), .choices = formats},
    {"--cache", ARG_SIZE, ARG_AT(struct opts, size)},
    {"--ram", ARG_SHARE, ARG_AT(struct opts, share)},
    {"--budgets", ARG_SHARES, ARG_AT(struct opts, shares)},
    {"--stats", ARG_BOOL, ARG_AT(struct opts, stats)},
    {"--no-mmap", ARG_BOOL, ARG_AT(struct opts, no_mmap), .debug = true},
    {"--greedy", ARG_BOOL, ARG_AT(struct opts, greedy), .def = "on"},
    {"--n-prompt", ARG_INTS, ARG_AT(struct opts, p), .def = "512", .min = 0, .max = 1 << 20},
    {"-l, --logit-bias", ARG_STRS, ARG_AT(struct opts, bias)},
    {"--types", ARG_CHOICES, ARG_AT(struct opts, types), .choices = arg_kv_types},
    {"-ngl, --n-gpu-layers", ARG_FOREIGN, .help = "runs on the CPU"},
    {"--jinja", ARG_FOREIGN_BOOL, .help = "always so"},
};
static const struct arg_spec spec = {
    .verb = "test",
    .usage = "MODEL",
    .brief = "",
    .about = "",
    .flags = flags,
    .n_flags = ARG_COUNT(flags),
};

static const char *const *env_pairs; /* name, value, ..., NULL */

static const char *fake_env(const char *name) {
    for (const char *const *p = env_pairs; p && *p; p += 2)
        if (!strcmp(p[0], name))
            return p[1];
    return NULL;
}

/* Parses a line of words separated by single spaces. */
static enum args_result parse(struct args *a, struct opts *o, struct lode_error *err,
                              const char *line) {
    static char copy[1024];
    static char *argv[64];
    int argc = 0;
    snprintf(copy, sizeof copy, "test %s", line);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    argv[argc] = NULL;
    return args_parse(a, &spec, o, argc, argv, fake_env, err);
}

static void test_spellings(void **state) {
    (void)state;
    struct args a;
    struct opts o;
    struct lode_error err;
    assert_int_equal(parse(&a, &o, &err, "m.gguf hello -c 128 --temp=0.5 --top_k 7 --stats"),
                     ARGS_OK);
    assert_string_equal(o.model, "m.gguf");
    assert_string_equal(o.prompt, "hello");
    assert_int_equal(o.ctx, 128);
    assert_true(o.temp == 0.5);
    assert_int_equal(o.top_k, 7);
    assert_true(o.stats);
    assert_true(o.greedy);
    assert_string_equal(o.ctk, "f16");

    /* -m frees the first place for the prompt, wherever it stands */
    assert_int_equal(parse(&a, &o, &err, "hello -m m.gguf"), ARGS_OK);
    assert_string_equal(o.model, "m.gguf");
    assert_string_equal(o.prompt, "hello");

    assert_int_equal(parse(&a, &o, &err, "--ctx 9 --temp -- -x"), ARGS_BAD);
    assert_int_equal(parse(&a, &o, &err, "--ctx 9 -- -x"), ARGS_OK);
    assert_string_equal(o.model, "-x");

    assert_int_equal(
        parse(&a, &o, &err, "m -ctk q8_0 -ngl 99 --jinja --no-stats --mmap --no-greedy"), ARGS_OK);
    assert_string_equal(o.ctk, "q8_0");
    assert_false(o.stats);
    assert_false(o.no_mmap);
    assert_false(o.greedy);
    assert_null(o.prompt);
    assert_int_equal(parse(&a, &o, &err, "m --no-mmap --stats=enabled --greedy=0"), ARGS_OK);
    assert_true(o.no_mmap);
    assert_true(o.stats);
    assert_false(o.greedy);

    assert_int_equal(parse(&a, &o, &err, "m --bogus --help"), ARGS_BAD);
    assert_int_equal(parse(&a, &o, &err, "m --help --bogus"), ARGS_HELP);
    assert_int_equal(parse(&a, &o, &err, "--help-debug"), ARGS_HELP_DEBUG);
}

static void test_precedence(void **state) {
    (void)state;
    struct args a;
    struct opts o;
    struct lode_error err;
    static const char *const env[] = {
        "LODE_TOP_K", "5",        "LODE_TEMPERATURE", "0.25", "LODE_STATS", "on",
        "LODE_MODEL", "env.gguf", "LODE_N_PROMPT",    "1,2",  NULL};
    env_pairs = env;
    assert_int_equal(parse(&a, &o, &err, "--top-k 9"), ARGS_OK);
    assert_int_equal(o.top_k, 9);
    assert_true(o.temp == 0.25);
    assert_true(o.stats);
    assert_string_equal(o.model, "env.gguf");
    assert_int_equal(o.p.n, 2);
    assert_int_equal(args_origin(&a, offsetof(struct opts, top_k)), ARG_FROM_FLAG);
    assert_int_equal(args_origin(&a, offsetof(struct opts, temp)), ARG_FROM_ENV);
    assert_int_equal(parse(&a, &o, &err, "flag.gguf --n-prompt 7 --no-stats"), ARGS_OK);
    assert_string_equal(o.model, "flag.gguf");
    assert_int_equal(o.p.n, 1);
    assert_int_equal(o.p.v[0], 7);
    assert_false(o.stats);

    static const char *const bad[] = {"LODE_TOP_K", "many", NULL};
    env_pairs = bad;
    assert_int_equal(parse(&a, &o, &err, "m"), ARGS_BAD);
    assert_string_equal(err.where, "LODE_TOP_K");
    env_pairs = NULL;
}

static bool model_default(const void *user, const char *key, double *v) {
    (void)user;
    *v = !strcmp(key, "temp") ? 0.6 : 20;
    return true;
}

static void test_model_defaults(void **state) {
    (void)state;
    struct args a;
    struct opts o;
    struct lode_error err;
    assert_int_equal(parse(&a, &o, &err, "m --top-k 3"), ARGS_OK);
    args_model_defaults(&a, model_default, NULL);
    assert_true(o.temp == 0.6);
    assert_int_equal(o.top_k, 3);
    static const char *const env[] = {"LODE_TEMP", "0.1", NULL};
    env_pairs = env;
    assert_int_equal(parse(&a, &o, &err, "m"), ARGS_OK);
    env_pairs = NULL;
    args_model_defaults(&a, model_default, NULL);
    assert_true(o.temp == 0.1);
    assert_int_equal(o.top_k, 20);
}

static void test_complaints(void **state) {
    (void)state;
    static const struct {
        const char *line, *where, *text;
    } rows[] = {
        {"m --top-k x", "--top-k", "'x' is not a whole number from -1 to 1000000000"},
        {"m -c 1e3", "-c", "'1e3' is not a whole number from 0 to 16777216"},
        {"m --ctx=-1", "--ctx", "'-1' is not a whole number from 0 to 16777216"},
        {"m -c 99999999999999999999", "-c",
         "'99999999999999999999' is not a whole number from 0 to 16777216"},
        {"m --temp nan", "--temp", "'nan' is not a number from 0 to 100"},
        {"m --temp", "--temp", "needs a value (VALUE)"},
        {"m --prompt --stats", "--prompt",
         "needs a value (TEXT), but --stats is a flag; write --prompt=--stats if you mean it"},
        {"m -ctk f8", "-ctk", "'f8' is not one of f32, f16, bf16 or q8_0"},
        {"m --stats=maybe", "--stats",
         "'maybe' is not on or off (1, true, enabled; 0, false, disabled)"},
        {"m -c 32g", "-c", "'32g' is not a whole number from 0 to 16777216"},
        {"m -c 99999999999999999m", "-c", "'99999999999999999m' is not a whole number from 0 to 16777216"},
        {"m --cache 50%", "--cache", "'50%' is not a size in bytes, or like 512M or 24G"},
        {"m --ram 101%", "--ram", "'101%' is not a size like 512M or 24G, or a share like 75%"},
        {"m --ram 0%", "--ram", "'0%' is not a size like 512M or 24G, or a share like 75%"},
        {"m --budgets 5%,,1G", "--budgets", "'5%,,1G' is not a list of sizes and shares like 10%,512M,24G"},
        {"m --cache 12Q", "--cache", "'12Q' is not a size in bytes, or like 512M or 24G"},
        {"m --tmep 1", "--tmep", "unknown flag; did you mean --temp?"},
        {"m --zzzzzzzz", "--zzzzzzzz", "unknown flag"},
        {"m p q", "q", "unexpected argument"},
        {"m --n-prompt 4-2", "--n-prompt",
         "'4-2' is not a list like 1,8 or 1-9, 1-9+2, 1-64*2 of whole numbers from 0 to 1048576"},
        {"m --n-prompt 0-8*2", "--n-prompt",
         "the range in '0-8*2' would never end: it needs a step of at least 1, or a factor of at "
         "least 2 from a start of at least 1"},
        {"m --n-prompt 1-1*0", "--n-prompt",
         "the range in '1-1*0' would never end: it needs a step of at least 1, or a factor of at "
         "least 2 from a start of at least 1"},
        {"m --n-prompt 1-900", "--n-prompt", "more than 64 values in '1-900'"},
    };
    for (size_t i = 0; i < ARG_COUNT(rows); i++) {
        struct args a;
        struct opts o;
        struct lode_error err = {0};
        assert_int_equal(parse(&a, &o, &err, rows[i].line), ARGS_BAD);
        assert_string_equal(err.where, rows[i].where);
        assert_string_equal(err.text, rows[i].text);
    }
}

static void test_values(void **state) {
    (void)state;
    struct args a;
    struct opts o;
    struct lode_error err;
    static const struct {
        const char *line;
        uint64_t size;
    } sizes[] = {
        {"m --cache 24G", 24ull << 30}, {"m --cache 1.5k", 1536},      {"m --cache 7", 7},
        {"m --cache 2MiB", 2 << 20},    {"m --cache 3GB", 3ull << 30},
    };
    for (size_t i = 0; i < ARG_COUNT(sizes); i++) {
        assert_int_equal(parse(&a, &o, &err, sizes[i].line), ARGS_OK);
        assert_int_equal(o.size, sizes[i].size);
    }

    assert_int_equal(parse(&a, &o, &err, "m --n-prompt 1-7+3,5 --n-prompt 16-100*2 -l 5+1 -l 6-2"),
                     ARGS_OK);
    static const int64_t wants[] = {1, 4, 7, 5, 16, 32, 64};
    assert_int_equal(o.p.n, ARG_COUNT(wants));
    assert_memory_equal(o.p.v, wants, sizeof wants);
    assert_int_equal(o.bias.n, 2);
    assert_string_equal(o.bias.v[1], "6-2");

    assert_int_equal(parse(&a, &o, &err, "m --types f16,Q8_0"), ARGS_OK);
    assert_int_equal(o.types.n, 2);
    assert_string_equal(o.types.v[1], "q8_0");

    char text[64];
    const struct arg_flag *f = args_find(&spec, "top_k");
    assert_non_null(f);
    assert_int_equal(args_set(&a, f, "12", &err), 0);
    args_show(&a, f, text, sizeof text);
    assert_string_equal(text, "12");
    assert_true(args_set(&a, f, "-9", &err) < 0);
    assert_string_equal(err.where, "--top-k");
    assert_ptr_equal(args_find(&spec, "c"), args_find(&spec, "--ctx"));
    assert_null(args_find(&spec, "nothing"));
}

static void test_shares(void **state) {
    (void)state;
    struct opts o;
    struct args a;
    struct lode_error err;
    assert_int_equal(parse(&a, &o, &err, "m --ram 75% --budgets 5%,1.5G -c 32k"), ARGS_OK);
    assert_int_equal(arg_share_of(&o.share, 1000), 750);
    assert_int_equal(o.shares.n, 2);
    assert_int_equal(arg_share_of(&o.shares.v[0], 1000), 50);
    assert_int_equal(arg_share_of(&o.shares.v[1], 1000), 3 << 29);
    assert_int_equal(o.ctx, 32768);
}

/* Help of any table: no line is wider than the page, and hidden flags stay hidden. */
static void test_help(void **state) {
    (void)state;
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    args_help(f, &spec);
    fclose(f);
    assert_null(strstr(text, "--no-mmap"));
    assert_non_null(strstr(text, "(default: 40)"));
    assert_non_null(strstr(text, ": f32|f16|bf16|q8_0 (default: f16)"));
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        assert_true(strlen(line) <= 100);
    free(text);
    f = open_memstream(&text, &size);
    args_help_debug(f, &spec);
    fclose(f);
    assert_non_null(strstr(text, "--no-mmap"));
    assert_non_null(strstr(text, "(default: off)"));
    assert_null(strstr(text, "--stats"));
    free(text);
}

/* What a person gets without a flag is what the library does by default. */
static void test_sampling_defaults(void **state) {
    (void)state;
    struct sampled {
        struct sampling_opts sampling;
    } o;
    static const struct arg_flag rows[] = {SAMPLING_FLAGS(struct sampled)};
    static const struct arg_spec sampling_spec = {.verb = "test",
                                                  .usage = "",
                                                  .brief = "",
                                                  .about = "",
                                                  .flags = rows,
                                                  .n_flags = ARG_COUNT(rows)};
    struct args a;
    struct lode_error err;
    struct lode_sampler_opts want;
    char verb[] = "test", *argv[] = {verb, NULL};
    assert_int_equal(args_parse(&a, &sampling_spec, &o, 1, argv, NULL, &err), ARGS_OK);
    lode_sampler_defaults(&want);
#define SAME(flag, option) assert_true((double)want.option == (double)(float)o.sampling.flag)
    SAME(temp, temp);
    SAME(dynatemp_range, dynatemp_range);
    SAME(dynatemp_exp, dynatemp_exponent);
    SAME(top_k, top_k);
    SAME(top_p, top_p);
    SAME(min_p, min_p);
    SAME(typical, typical_p);
    SAME(top_nsigma, top_n_sigma);
    SAME(min_keep, min_keep);
    SAME(xtc_probability, xtc_probability);
    SAME(xtc_threshold, xtc_threshold);
    SAME(repeat_last_n, repeat_last_n);
    SAME(repeat_penalty, repeat_penalty);
    SAME(presence_penalty, presence_penalty);
    SAME(frequency_penalty, frequency_penalty);
    SAME(dry_multiplier, dry_multiplier);
    SAME(dry_base, dry_base);
    SAME(dry_allowed_length, dry_allowed_length);
    SAME(dry_penalty_last_n, dry_penalty_last_n);
    SAME(mirostat, mirostat);
    SAME(mirostat_ent, mirostat_tau);
    SAME(mirostat_lr, mirostat_eta);
#undef SAME
    assert_null(o.sampling.samplers);
    assert_null(want.samplers);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spellings),
        cmocka_unit_test(test_precedence),
        cmocka_unit_test(test_model_defaults),
        cmocka_unit_test(test_complaints),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_sampling_defaults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
