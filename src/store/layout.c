#include "store/layout.h"

#include "base/alloc.h"

static size_t round_up(size_t n) {
    return (n + LODE_READ_ALIGN - 1) & ~(size_t)(LODE_READ_ALIGN - 1);
}

struct placed {
    uint32_t id;
    struct lode_place p;
};

/* Where a group's weights lie, in the order of the file; false: not all lie in one piece. */
static bool find_places(const struct lode_source *source, const struct lode_weight *weights,
                        const struct lode_group *g, struct placed *out) {
    for (uint32_t i = 0; i < g->n_weights; i++) {
        const struct lode_weight *w = &weights[g->weights[i]];
        struct placed x = {.id = g->weights[i]};
        uint32_t k = i;
        if (!lode_source_place(source, w->home, w->offset, w->size, &x.p))
            return false;
        for (; k > 0 && out[k - 1].p.file == x.p.file && out[k - 1].p.offset > x.p.offset; k--)
            out[k] = out[k - 1];
        out[k] = x;
    }
    return true;
}

/* What is laid out of a group; NULL where nobody asks. */
struct laid {
    struct lode_read_part *parts; /* (LODE_GROUP_WEIGHTS), as the next two */
    const struct lode_in_file **files;
    struct lode_layout_sum *sums;
    uint32_t *sum_part; /* (LODE_GROUP_WEIGHTS): which part a sum's bytes are of */
    size_t *at;         /* (n_weights) */
};

/* The checksums of records that the stretches have whole. */
static uint32_t find_sums(const struct placed *places, uint32_t n_places, const struct laid *to,
                          uint32_t n_parts) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_places; i++) {
        const struct lode_place *p = &places[i].p;
        const uint64_t end = p->record + p->record_size;
        if (p->record_size == 0 || (i && places[i - 1].p.file == p->file && places[i - 1].p.record == p->record))
            continue;
        for (uint32_t k = 0; k < n_parts; k++) {
            const struct lode_read_part *r = &to->parts[k];
            if (to->files[k] != p->file || p->record < r->offset || end > r->offset + r->needed)
                continue;
            to->sum_part[n] = k;
            to->sums[n++] = (struct lode_layout_sum){.at = r->to + (size_t)(p->record - r->offset),
                                                     .size = p->record_size,
                                                     .sum = p->sum,
                                                     .offset = p->record};
            break;
        }
    }
    return n;
}

/* The stretches of files that make a group, neighbours joined.  Returns how many, 0 where the source
 * has to put it together. */
static uint32_t lay_out(const struct lode_source *source, const struct lode_weight *weights,
                        const struct lode_group *g, const struct laid *out, struct lode_layout *l) {
    struct placed places[LODE_GROUP_WEIGHTS];
    const uint32_t n_places = find_places(source, weights, g, places) ? g->n_weights : 0;
    uint32_t n = 0;
    uint64_t end = 0, start = 0; /* of the last stretch */
    size_t to = 0;               /* where it begins in memory */
    struct lode_place p = {0};
    l->size = 0;
    for (uint32_t i = 0; i < n_places; i++) {
        const struct lode_weight *w = &weights[places[i].id];
        if (n == 0 || places[i].p.file != p.file || places[i].p.offset - end >= LODE_READ_ALIGN) {
            start = places[i].p.offset / LODE_READ_ALIGN * LODE_READ_ALIGN;
            to = l->size;
            n++;
        }
        p = places[i].p;
        end = p.offset + w->size;
        const size_t needed = (size_t)(end - start);
        l->size = to + round_up(needed);
        if (out) {
            out->at[places[i].id] = to + (size_t)(p.offset - start);
            out->parts[n - 1] = (struct lode_read_part){0, start, round_up(needed), needed, to};
            out->files[n - 1] = p.file;
        }
    }
    l->n_sums = out ? find_sums(places, n_places, out, n) : 0;
    if (n)
        return n;
    for (uint32_t i = 0; i < g->n_weights; i++) {
        if (out)
            out->at[g->weights[i]] = l->size;
        l->size += (weights[g->weights[i]].size + 63) & ~(size_t)63;
    }
    l->size = round_up(l->size);
    return 0;
}

size_t lode_layout_size(const struct lode_source *source, const struct lode_weight *weights,
                        const struct lode_group *g) {
    struct lode_layout l = {0};
    lay_out(source, weights, g, NULL, &l);
    return l.size;
}

static int add_file(struct lode_layouts *l, const struct lode_in_file *file, uint32_t *out, struct lode_error *err) {
    for (*out = 0; *out < l->n_files; ++*out)
        if (l->files[*out] == file)
            return 0;
    const struct lode_in_file **more = lode_realloc(l->files, l->n_files + 1, sizeof *more);
    if (!more)
        return lode_fail_nomem(err, "list of files");
    l->files = more;
    l->files[l->n_files++] = file;
    return 0;
}

int lode_layouts_make(struct lode_layouts *out, const struct lode_source *source,
                      const struct lode_weight *weights, uint32_t n_weights,
                      const struct lode_group *groups, uint32_t n_groups, struct lode_error *err) {
    struct lode_read_part parts[LODE_GROUP_WEIGHTS];
    struct lode_layout_sum sums[LODE_GROUP_WEIGHTS];
    const struct lode_in_file *files[LODE_GROUP_WEIGHTS];
    uint32_t sum_part[LODE_GROUP_WEIGHTS];
    size_t n = 0, most = 0;
    for (uint32_t g = 0; g < n_groups; g++)
        most += groups[g].n_weights;
    *out = (struct lode_layouts){.smallest = SIZE_MAX};
    out->at = LODE_NEW_ARRAY(size_t, n_weights);
    out->parts = LODE_NEW_ARRAY(struct lode_read_part, most);
    out->sums = LODE_NEW_ARRAY(struct lode_layout_sum, most);
    out->groups = LODE_NEW_ARRAY(struct lode_layout, n_groups);
    if (!out->at || !out->parts || !out->sums || !out->groups)
        return lode_fail_nomem(err, "table of experts");
    const struct laid laid = {parts, files, sums, sum_part, out->at};
    for (uint32_t g = 0; g < n_groups; g++) {
        struct lode_layout *l = &out->groups[g];
        l->first_part = (uint32_t)n;
        l->first_sum = (uint32_t)out->n_sums;
        l->n_parts = lay_out(source, weights, &groups[g], &laid, l);
        for (uint32_t i = 0; i < l->n_parts; i++, n++) {
            LODE_TRY(add_file(out, files[i], &parts[i].file, err));
            out->parts[n] = parts[i];
        }
        for (uint32_t i = 0; i < l->n_sums; i++) {
            sums[i].file = parts[sum_part[i]].file;
            out->sums[out->n_sums++] = sums[i];
        }
        out->n_parts = n;
        out->all += l->size;
        out->largest = l->size > out->largest ? l->size : out->largest;
        out->smallest = l->size < out->smallest ? l->size : out->smallest;
        out->assembled |= l->n_parts == 0;
    }
    return 0;
}

void lode_layouts_free(struct lode_layouts *l) {
    lode_free(l->groups);
    lode_free(l->parts);
    lode_free(l->sums);
    lode_free(l->files);
    lode_free(l->at);
    *l = (struct lode_layouts){0};
}
