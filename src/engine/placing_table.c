/* placing_table.c - the rows of a plan, and the tokens/s that its sums come to.
 *
 * All bytes are those that will be allocated, mapped or cached; a token's reads are those of its
 * weights, each once, of its experts and of keys and values.  A token takes
 *
 *     read[VRAM] / (0.8 speed[VRAM]) + read[RAM] / min(0.85 speed[RAM], speed of products) + read[DISK] / speed[DISK]
 *     + what it takes on the CPU besides its weights (engine/besides.c)
 *     + bus / speed[bus] + 20 us * borders
 *     + 1.54 us * instructions on a GPU + 33 us * those of experts there
 *     + EXCHANGE_SECONDS * exchanges of GPUs that share rows, which each read their part of the VRAM's
 *
 * seconds: places work one after the other, but the disk's reading of whole layers, which takes as long as the
 * rest or longer, at 0.9 of its speed as all cores read memory besides.  Of experts the disk reads many before
 * they are asked for, while others are computed; but an eighth of what it reads is for nothing, and it is slower
 * beside computing, which together comes to the same.  Where a GPU computes experts beside the CPU, what its cache
 * has counts as read there, and of the others both get a part, so that their speeds add up.  0.85 and 0.8 are the
 * share of plain reading's speed that products reach (bench/measured/cpu.md: 0.82 to 0.95 of memory's).  Where a
 * GPU takes part, what a token takes besides is not measured: then fork time * products on the CPU stands for it,
 * 0.75 for 0.85 (0.65 to 0.83 of whole answers), and 0.9 of products' speed for all of it.
 */
#include "engine/placing.h"

#include <math.h>

#define DEVICE_SHARE 0.8
#define IN_TURN_SHARE 0.9
/* To wait for a GPU, to copy a row and to start it again. */
#define BORDER_SECONDS 20e-6
/* What an instruction of a captured step takes on a GPU besides its bytes, and experts more than others;
 * both on an H200, where a token of Qwen3-0.6B's and of Qwen3-30B-A3B's shape took 1.01 and 3.41 ms. */
#define LAUNCH_SECONDS 1.54e-6
#define EXPERTS_SECONDS 33e-6
#define EXCHANGE_SECONDS 9e-6 /* a row between two H200s, by NCCL within a captured step */
/* Of the bus's speed, what bringing experts one by one comes to. */
#define BRING_SHARE 0.8

static const char *const names[] = {
#define KIND(id, name, part) name,
    PLACING_KINDS(KIND)
#undef KIND
};

static struct lode_placement_row *add_row(struct placing *pl, const char *name, const uint64_t size[LODE_RUNGS],
                                          const double read[LODE_RUNGS]) {
    struct lode_placement *p = pl->p;
    if (size[LODE_RUNG_VRAM] + size[LODE_RUNG_RAM] == 0)
        return NULL;
    struct lode_placement_row *row = &p->rows[p->n_rows++];
    *row = (struct lode_placement_row){.name = name};
    for (int r = 0; r < LODE_RUNG_DISK; r++) {
        row->size[r] = size[r];
        row->read[r] = read[r];
    }
    return row;
}

static struct lode_placement_row *add_kind(struct placing *pl, enum placing_kind k) {
    const struct placing_weights *w = pl->weights[k];
    return add_row(pl, names[k],
                   (uint64_t[LODE_RUNGS]){w[LODE_RUNG_VRAM].size, w[LODE_RUNG_RAM].size},
                   (double[LODE_RUNGS]){w[LODE_RUNG_VRAM].read, w[LODE_RUNG_RAM].read});
}

static void add_places(struct placing *pl, const char *name, const uint64_t bytes[LODE_PLACES],
                       double read_share) {
    const uint64_t v = placing_at_rung(bytes, LODE_RUNG_VRAM), r = placing_at_rung(bytes, LODE_RUNG_RAM);
    add_row(pl, name, (uint64_t[LODE_RUNGS]){v, r},
            (double[LODE_RUNGS]){read_share * (double)v, read_share * (double)r});
}

/* Some layers stay in what is left beside two of the largest; the others are read for each
 * token.  Each kind has its part in that. */
static void stream_row(const struct placing *pl, struct lode_placement_row *row) {
    const struct lode_placement *p = pl->p;
    double all = 0;
    for (int k = PLACING_FFN; k <= PLACING_RECURRENT; k++)
        all += (double)pl->weights[k][LODE_RUNG_RAM].size;
    const double part = (double)row->size[LODE_RUNG_RAM] / all;
    const uint64_t away = (uint64_t)ceil(part * (double)(p->layers_size - p->layer_cache));
    row->size[LODE_RUNG_RAM] -= away;
    row->size[LODE_RUNG_DISK] = away;
    row->read[LODE_RUNG_DISK] = (double)away + part * (double)p->layer_cache_least;
}

void placing_fill_rows(struct placing *pl) {
    struct lode_placement *p = pl->p;
    for (int k = PLACING_EMBEDDING; k < PLACING_N_KINDS; k++) {
        struct lode_placement_row *row = add_kind(pl, (enum placing_kind)k);
        if (row && p->layer_cache && k >= PLACING_FFN && k <= PLACING_RECURRENT)
            stream_row(pl, row);
    }
    const uint64_t on_host = pl->weights[PLACING_EXPERTS][LODE_RUNG_RAM].size;
    struct lode_placement_row *row = add_kind(pl, PLACING_EXPERTS);
    if (row && p->gpu_beside) {
        const double hits = p->gpu_hit_rate * row->read[LODE_RUNG_RAM];
        row->size[LODE_RUNG_VRAM] += p->gpu_cache;
        row->read[LODE_RUNG_VRAM] += hits;
        row->read[LODE_RUNG_RAM] -= hits;
    }
    pl->host_experts = row ? row->read[LODE_RUNG_RAM] : 0;
    if (row && p->expert_cache) {
        row->size[LODE_RUNG_RAM] = p->expert_cache;
        row->size[LODE_RUNG_DISK] = on_host > p->expert_cache ? on_host - p->expert_cache : 0;
        row->read[LODE_RUNG_DISK] = (1 - p->hit_rate) * row->read[LODE_RUNG_RAM];
    }
    add_places(pl, "KV cache", pl->needs.kv, 0);
    /* a token reads and writes one of a sequence's blocks */
    add_places(pl, "recurrent state", pl->needs.state,
               2.0 / (1 + LODE_STATE_CHECKPOINTS) / pl->p->parallel);
    add_places(pl, "activations, buffers", pl->needs.work, 0);
    const bool past_cache = pl->m->opts.direct || (placing_fits_devices(pl) && !placing_all_fits(pl));
    add_row(pl, "program, vocabulary", (uint64_t[LODE_RUNGS]){0, pl->program + (past_cache ? pl->around : 0)},
            (double[LODE_RUNGS]){0});
    p->n_gpus = pl->m->n_places - 1;
    for (uint32_t i = 0; i < p->n_gpus; i++) {
        p->gpu_size[i] = pl->device[1 + i] + placing_sessions_at(pl, 1 + i);
        p->gpu_room[i] = pl->room[1 + i];
    }
    for (uint32_t i = 0; i < p->n_rows; i++)
        for (int r = 0; r < LODE_RUNGS; r++) {
            p->size[r] += p->rows[i].size[r];
            p->read[r] += p->rows[i].read[r];
        }
    for (int r = 0; r < LODE_RUNGS; r++)
        p->read_full[r] = p->read[r] + (double)pl->kv_read[r];
}

double lode_plan_ram_pace(const struct lode_budget *b) {
    if (b->besides.whole)
        return b->besides.bytes / b->besides.seconds;
    const bool apart = b->besides.seconds > 0; /* what lies between products is counted by itself */
    const double reads = (apart ? LODE_PLAN_RAM_SHARE_APART : LODE_PLAN_RAM_SHARE) * b->ram_speed;
    const double products = (apart ? 1 : LODE_PLAN_MULTIPLY_SHARE) * b->multiply_speed;
    return products > 0 ? fmin(reads, products) : reads;
}

double lode_plan_besides(const struct lode_placement *p, const struct lode_budget *b) {
    const double products = b->multiply_speed > 0 ? b->besides.bytes / b->multiply_speed : 0;
    return b->besides.whole ? 0 : fmax(p->forks * b->fork_time, b->besides.seconds - products);
}

/* ranks: GPUs that read at the same time. */
static double seconds(const struct placing *pl, uint32_t ranks, const double read[LODE_RUNGS]) {
    const struct lode_placement *p = pl->p;
    const struct lode_budget *b = pl->budget;
    const double speeds[LODE_RUNGS] = {DEVICE_SHARE * b->vram_speed * (ranks ? ranks : 1), lode_plan_ram_pace(b), b->disk_speed};
    double sum = p->borders * BORDER_SECONDS + lode_plan_besides(p, b) + p->launches * LAUNCH_SECONDS +
                 p->expert_launches * EXPERTS_SECONDS + p->exchanges * EXCHANGE_SECONDS;
    for (int r = 0; r < LODE_RUNGS; r++)
        if (read[r] > 0 && speeds[r] <= 0)
            return 0;
    for (int r = 0; r < LODE_RUNG_DISK; r++)
        sum += read[r] > 0 ? read[r] / speeds[r] : 0;
    if (p->gpu_beside && !p->expert_cache && b->bus_speed > 0) { /* read from both ends */
        const double host = speeds[LODE_RUNG_RAM];
        sum -= pl->host_experts / host - pl->host_experts / (host + BRING_SHARE * b->bus_speed);
    }
    const bool replayed = b->waits > 0 && p->expert_cache && !p->layer_cache;
    const double disk = replayed                   ? b->waits
                        : read[LODE_RUNG_DISK] > 0 ? read[LODE_RUNG_DISK] / speeds[LODE_RUNG_DISK]
                                                   : 0;
    /* which layer comes next is known, and it is read meanwhile; which experts, is not */
    sum = p->layer_cache && !p->expert_cache ? fmax(sum, disk / IN_TURN_SHARE)
                                             : sum + disk;
    return sum + (b->bus_speed > 0 ? p->bus / b->bus_speed : 0);
}

void placing_predict(struct placing *pl) {
    struct lode_placement *p = pl->p;
    const uint32_t ranks = pl->m->n_ranks;
    const double empty = seconds(pl, ranks, p->read), full = seconds(pl, ranks, p->read_full);
    if (empty > 0 && full > 0) {
        p->tokens_per_second = 1 / empty;
        p->tokens_per_second_full = 1 / full;
    }
}
