/* pack.c - `lode pack MODEL -o DIR`: a model whose experts are read one by one. */
#include "args.h"
#include "interrupt.h"
#include "out.h"
#include "progress.h"
#include "verbs.h"

#include "lode/lode.h"

#include <inttypes.h>

struct opts {
    const char *source, *out;
    bool check;
};

static const struct arg_flag flags[] = {
    {"-m, --model", ARG_STR, ARG_AT(struct opts, source), .meta = "MODEL", .pos = 1,
     .group = "Files",
     .help = "a GGUF file, or a Hugging Face or MLX directory; also the first argument"},
    {"-o, --out, --output", ARG_STR, ARG_AT(struct opts, out), .meta = "DIR", .pos = 2,
     .help = "the directory to make"},
    {"--check, --verify", ARG_BOOL, ARG_AT(struct opts, check),
     .help = "MODEL is a packed one: read all of it and compare the checksums"},
};

static const struct arg_spec spec = {
    .verb = "pack",
    .usage = "MODEL -o DIR\nDIR --check",
    .brief = "lays out a model so that its experts can be read one by one",
    .about =
        "For mixtures of experts that are larger than memory.  An expert becomes one stretch of a\n"
        "file, read at once when a token needs it, and checked each time.  Every number stays what\n"
        "it is, so the answers do too.  DIR is then a model like any other: lode run DIR, best\n"
        "with --expert-cache or --ram; several processes may use it at a time.\n"
        "\n"
        "Packing that was stopped, by whatever, goes on where it was when the same command is\n"
        "given again.  docs/bigger-than-memory.md says what to expect, docs/packed-format.md what\n"
        "is in DIR.",
    .examples = "lode pack qwen3-235b-00001-of-00003.gguf -o qwen3-235b.lode\n"
                "lode run qwen3-235b.lode --ram 24G\n"
                "lode pack qwen3-235b.lode --check",
    .flags = flags,
    .n_flags = ARG_COUNT(flags),
};

static int on_progress(void *user, const char *what, uint64_t done, uint64_t total) {
    struct progress *bar = user;
    bar->what = what;
    bar->total = total;
    progress_update(bar, done);
    return interrupt_seen();
}

int verb_pack(int argc, char **argv) {
    struct opts o;
    struct args a;
    struct progress bar;
    struct lode_error err = {0};
    struct lode_pack_info info;
    char size[32], each[32], time[32], rate[32];
    const int status = args_main(&a, &spec, &o, argc, argv);
    if (status >= 0)
        return status;
    if (!o.source)
        return args_usage_error(&spec, "which model? lode pack MODEL -o DIR");
    if (!o.out && !o.check)
        return args_usage_error(&spec, "where to? -o DIR");
    interrupt_catch_all();
    const double start = clock_now();
    progress_begin(&bar, o.check ? "checking" : "packing", "B", 0);
    const int rc = o.check ? lode_pack_check(o.source, on_progress, &bar, &info, &err)
                           : lode_pack(o.source, o.out, on_progress, &bar, &info, &err);
    progress_end(&bar);
    if (rc < 0)
        return tool_report(&err);
    const double spent = clock_now() - start;
    format_bytes((double)info.size, size);
    format_bytes((double)info.expert_size, each);
    format_bytes((double)(info.size - info.kept) / (spent > 0 ? spent : 1), rate);
    printf("%s %s: %s, %" PRIu32 " tensors", o.check ? "Checked" : "Packed",
           o.check ? o.source : o.out, size, info.n_dense);
    if (info.n_experts)
        printf(" and %" PRIu32 " experts of at most %s", info.n_experts, each);
    printf(", in %s (%s/s)%s\n", format_seconds(spent, time), rate,
           o.check ? "; every checksum is right" : "");
    if (!info.n_experts)
        fprintf(stderr, "lode: note: the model has no experts: packing it gains nothing\n");
    if (info.kept)
        fprintf(stderr, "lode: note: %s of it were there from an earlier start\n",
                format_bytes((double)info.kept, each));
    return 0;
}
