/* placing_advice.c - what a plan says to change. */
#include "engine/placing.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 2, 3))) static void advise(struct lode_placement *p, const char *fmt,
                                                         ...) {
    const size_t n = strlen(p->advice);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(p->advice + n, sizeof p->advice - n, fmt, ap);
    va_end(ap);
}

static double mib(uint64_t bytes) { return (double)bytes / 0x1p20; }

/* What was asked for is more than a GPU has. */
static int advise_devices(struct placing *pl) {
    for (uint32_t p = 1; p < pl->m->n_places; p++) {
        const uint64_t need = pl->device[p] + placing_cache_at(pl, p) + placing_sessions_at(pl, p);
        if (need > pl->room[p])
            advise(pl->p, "%u layers on the GPU need %.0f MiB there, %.0f MiB more than there are: %s\n", pl->split.n_gpu_layers,
                   mib(need), mib(need - pl->room[p]),
                   pl->m->n_ranks ? "-sm layer, where some may be on the CPU, or a smaller context"
                                  : "a smaller -ngl or --vram-experts, or --n-cpu-moe, or leave them out");
    }
    return 0;
}

/* With more memory on the GPUs they would do more. */
static void advise_more(struct placing *pl) {
    uint64_t left = 0;
    for (int k = 0; k < PLACING_N_KINDS; k++)
        left += pl->weights[k][LODE_RUNG_RAM].size;
    advise(pl->p, "%.0f MiB more of GPU memory would have all of the model there\n",
           mib(left + pl->needs.kv[LODE_HOST] + pl->needs.state[LODE_HOST]));
}

/* A KV format of 16 bits a number, which is the default. */
static bool is_wide(const char *format) { return !format || strcmp(format, "f16") == 0 || strcmp(format, "bf16") == 0; }

/* The pages that a program has of its own files differ by some windows of 64 KiB from one start to the
 * next, with its addresses: what is told to be enough has to be enough next time as well. */
#define OTHER_STARTS ((uint64_t)1 << 20)

static const char *streamed_names(const struct lode_placement *p) {
    return p->experts_size ? "with experts and layers" : "with layers";
}

static int say_what_helps(struct placing *pl, struct lode_error *err) {
    struct lode_placement *p = pl->p;
    const struct lode_placement chosen = *p;
    const uint64_t room = pl->room[LODE_HOST], kv = pl->needs.kv[LODE_HOST];
    const uint64_t need = placing_least_size(pl), sessions = placing_sessions_at(pl, LODE_HOST);
    if (!placing_fits_devices(pl))
        return advise_devices(pl);
    if (p->gpu_layers && p->fits && (p->cpu_experts || p->gpu_layers <= pl->m->hp.n_layers))
        advise_more(pl);
    if (p->fits && p->layer_cache) {
        advise(p, "%.0f MiB more would keep the layers' own matrices in memory: each token reads what "
                  "is missing of them\n", mib(p->layers_size - p->layer_cache));
        return 0;
    }
    if (p->fits && p->expert_cache) {
        advise(p, "%.0f MiB more would keep all experts in memory\n",
               mib(pl->slots_most - p->expert_cache));
        return 0;
    }
    if (p->fits)
        return 0;
    const uint64_t told = need + OTHER_STARTS;
    if (told <= pl->free)
        advise(p, "--ram %.0fM is the least for these settings, %s read from the disk as they are used: "
                  "%.0f MiB more\n",
               ceil(mib(told)), streamed_names(p), mib(told - room));
    else
        advise(p, "these settings need %.0f MiB at least, %s read from the disk as they are used: "
                  "%.0f MiB more than are free\n", ceil(mib(told)), streamed_names(p), mib(told - pl->free));
    const uint64_t weights = need - sessions;
    if (weights > room) {
        advise(p, "weights that stay in memory alone take %.0f MiB: take a model of fewer bits "
                  "(lode convert --type)\n", mib(weights));
        return 0;
    }
    if (kv > pl->needs.work[LODE_HOST] && is_wide(pl->opts.ctk) && is_wide(pl->opts.ctv))
        advise(p, "-ctk q8_0 -ctv q8_0 saves about %.0f MiB of KV cache\n", mib(kv) * 15 / 32);
    if (p->parallel > 1)
        advise(p, "--parallel 1 saves %.0f MiB\n", mib(kv - pl->kv_read[LODE_RUNG_RAM]));
    uint32_t fits;
    LODE_TRY(placing_largest_streamed_ctx(pl, &fits, err));
    if (fits)
        advise(p, "-c %u is the largest context that fits\n", fits);
    else if (lode_session_batch(&pl->opts, chosen.ctx) > 64)
        advise(p, "-b 64 makes the buffers smaller\n");
    p->ctx = chosen.ctx;
    return placing_count_sessions(pl, chosen.ctx, err);
}

int placing_give_advice(struct placing *pl, struct lode_error *err) {
    LODE_TRY(say_what_helps(pl, err));
    if (pl->budget->ram > pl->free)
        advise(pl->p, "the budget is more than the %.0f MiB that are free: these count\n", mib(pl->free));
    return 0;
}
