#include "store/assemble.h"

#include "base/alloc.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    THREADS = 4, /* with memory for stretches: most wait for the disk */
    BARE_THREADS = 2,
    MOST = 64, /* stretches of a group */
    FAILURES = 8, /* that are remembered */
};

/* What weights are made of: stretches of whole pages, neighbours joined, one behind the other. */
struct recipe {
    struct lode_stretch stretches[MOST];
    struct lode_read_part parts[MOST];
    uint32_t n; /* 0: the source reads by itself */
    size_t size;
};

struct helper {
    struct lode_assembler *a;
    pthread_t thread;
    char *memory; /* owned; NULL: there is none */
    struct recipe recipe;
    const char *data[MOST];
};

struct lode_assembler {
    const struct lode_source *source; /* borrowed, as the next three */
    const struct lode_weight *weights;
    const struct lode_group *groups;
    const struct lode_layouts *layouts;
    const struct lode_in_file **files; /* owned; (n_files); the source's */
    uint32_t n_files;
    struct lode_reader *reader; /* owned; NULL: nothing is read here */
    char name[48];
    struct helper helpers[THREADS];
    uint32_t n_threads;
    bool by_weight;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t work;
    struct lode_read *first, *last; /* by next */
    bool stop;
    struct {
        uint32_t tag;
        struct lode_error error;
    } failures[FAILURES]; /* the n-th in n % FAILURES */
    uint32_t n_failures;
};

/* ---- what is read for a group ---- */

static int by_place(const void *x, const void *y) {
    const struct lode_stretch *a = x, *b = y;
    if (a->file != b->file)
        return (uintptr_t)a->file < (uintptr_t)b->file ? -1 : 1;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

static bool list_stretches(const struct lode_source *source, const struct lode_weight *weights,
                           const uint32_t *ids, uint32_t n, struct recipe *out) {
    out->n = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct lode_weight *w = &weights[ids[i]];
        const uint32_t more = lode_source_stretches(source, w->home, w->offset, w->size,
                                                    out->stretches + out->n, MOST - out->n);
        if (more == 0)
            return false;
        out->n += more;
    }
    return true;
}

static uint32_t file_of(const struct lode_assembler *a, const struct lode_in_file *file) {
    uint32_t i = 0;
    while (i < a->n_files && a->files[i] != file)
        i++;
    return i;
}

/* Of n weights; out->n 0 where the source does not know, or needs too many. */
static void find_recipe(const struct lode_source *source, const struct lode_weight *weights,
                        const uint32_t *ids, uint32_t n_ids, struct recipe *out) {
    uint32_t n = 0;
    out->size = 0;
    if (!list_stretches(source, weights, ids, n_ids, out)) {
        out->n = 0;
        return;
    }
    qsort(out->stretches, out->n, sizeof *out->stretches, by_place);
    for (uint32_t i = 0; i < out->n; i++) {
        const struct lode_stretch *s = &out->stretches[i];
        struct lode_stretch *last = n ? &out->stretches[n - 1] : NULL;
        const uint64_t begin = s->offset / LODE_READ_ALIGN * LODE_READ_ALIGN;
        const uint64_t end = s->offset + s->size;
        if (last && last->file == s->file && begin <= last->offset + last->size)
            last->size = end > last->offset + last->size ? (size_t)(end - last->offset) : last->size;
        else
            out->stretches[n++] = (struct lode_stretch){s->file, begin, (size_t)(end - begin)};
    }
    out->n = n;
    for (uint32_t i = 0; i < n; i++) {
        const size_t size = out->stretches[i].size;
        out->parts[i].size = (size + LODE_READ_ALIGN - 1) / LODE_READ_ALIGN * LODE_READ_ALIGN;
        out->size += out->parts[i].size;
    }
}

/* Where the reader finds them, and where they go. */
static void fill_parts(const struct lode_assembler *a, struct recipe *x) {
    size_t to = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        const struct lode_stretch *s = &x->stretches[i];
        const size_t size = x->parts[i].size;
        x->parts[i] = (struct lode_read_part){file_of(a, s->file), s->offset, size, s->size, to};
        to += size;
    }
}

size_t lode_assembler_stage(const struct lode_source *source, const struct lode_weight *weights, uint32_t id) {
    struct recipe x;
    find_recipe(source, weights, &id, 1, &x);
    return x.n ? x.size : 0;
}

/* ---- threads ---- */

/* Weights first .. first + n - 1 of the group. */
static int put_together(struct helper *h, const struct lode_read *r, uint32_t first, uint32_t n,
                        struct lode_error *err) {
    const struct lode_assembler *a = h->a;
    const struct lode_group *g = &a->groups[r->tag];
    const uint32_t *ids = g->weights + first;
    struct recipe *x = &h->recipe;
    struct lode_held held = {x->stretches, h->data, 0};
    if (h->memory)
        find_recipe(a->source, a->weights, ids, n, x);
    if (h->memory && x->n) {
        char what[64];
        if (g->expert == LODE_NO_EXPERT)
            snprintf(what, sizeof what, "layer %" PRIu32, g->layer);
        else
            snprintf(what, sizeof what, "expert %" PRIu32 " of layer %" PRIu32, g->expert, g->layer);
        fill_parts(a, x);
        LODE_TRY(lode_reader_read(a->reader, x->parts, x->n, h->memory, what, err));
        for (uint32_t i = 0; i < x->n; i++)
            h->data[i] = h->memory + x->parts[i].to;
        held.n = x->n;
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct lode_weight *w = &a->weights[ids[i]];
        LODE_TRY(lode_source_read_held(a->source, w->home, w->offset, r->base + a->layouts->at[ids[i]],
                                       w->size, &held, err));
    }
    if (!held.n) /* the page cache has what the source has read */
        lode_source_forget(a->source);
    return 0;
}

static void note_failure(struct lode_assembler *a, struct lode_read *r, const struct lode_error *err) {
    const uint32_t i = a->n_failures++ % FAILURES;
    a->failures[i].tag = r->tag;
    a->failures[i].error = *err;
    r->fault.cause = LODE_READ_SOURCE;
}

/* Takes a group or a weight of one, as i_part and n_flying of a reader's read take its pieces. */
static void *work(void *arg) {
    struct helper *h = arg;
    struct lode_assembler *a = h->a;
    pthread_mutex_lock(&a->lock);
    while (!a->stop) {
        struct lode_read *r = a->first;
        if (!r) {
            pthread_cond_wait(&a->work, &a->lock);
            continue;
        }
        const uint32_t all = a->groups[r->tag].n_weights, first = r->i_part, n = a->by_weight ? 1 : all;
        r->i_part += n;
        r->n_flying++;
        if (r->i_part == all) {
            a->first = r->next;
            a->last = a->first ? a->last : NULL;
        }
        pthread_mutex_unlock(&a->lock);
        struct lode_error err = {0};
        const int rc = put_together(h, r, first, n, &err);
        pthread_mutex_lock(&a->lock);
        if (rc < 0)
            note_failure(a, r, &err);
        if (--r->n_flying == 0 && r->i_part == all) {
            pthread_mutex_unlock(&a->lock);
            r->done(r);
            pthread_mutex_lock(&a->lock);
        }
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

/* ---- making one ---- */

static int add_files(struct lode_assembler *a, const struct recipe *x, struct lode_error *err) {
    for (uint32_t i = 0; i < x->n; i++) {
        if (file_of(a, x->stretches[i].file) < a->n_files)
            continue;
        const struct lode_in_file **more = lode_realloc(a->files, a->n_files + 1, sizeof *more);
        if (!more)
            return lode_fail_nomem(err, "list of files");
        a->files = more;
        a->files[a->n_files++] = x->stretches[i].file;
    }
    return 0;
}

/* The reader and as many threads' memory as there may be; n 0: none. */
static int take_memory(struct lode_assembler *a, uint32_t n_groups, const struct lode_assembler_opts *o,
                       uint64_t *memory, uint32_t *n, struct lode_error *err) {
    struct recipe *x = &a->helpers[0].recipe;
    size_t most = 0;
    for (uint32_t g = 0; g < n_groups; g++) {
        const uint32_t all = a->groups[g].n_weights, step = a->by_weight ? 1 : all;
        if (a->layouts->groups[g].n_parts)
            continue;
        for (uint32_t i = 0; i < all; i += step) {
            find_recipe(a->source, a->weights, a->groups[g].weights + i, step, x);
            LODE_TRY(add_files(a, x, err));
            most = x->size > most ? x->size : most;
        }
    }
    *n = most && o->memory / most < THREADS ? (uint32_t)(o->memory / most) : most ? THREADS : 0;
    if (*n == 0)
        return 0;
    struct lode_reader_opts reader = o->reader;
    reader.n_rooms = 0;
    reader.rooms_size = 0;
    LODE_TRY(lode_reader_create(&a->reader, a->files, a->n_files, &reader, err));
    for (uint32_t i = 0; i < *n; i++) {
        a->helpers[i].memory = lode_alloc_aligned(LODE_READ_ALIGN, most, 1);
        if (!a->helpers[i].memory)
            return lode_fail(err, LODE_ERR_NOMEM, "--expert-cache", "out of memory for %zu bytes", most);
        *memory += most;
    }
    snprintf(a->name, sizeof a->name, "%s, converted", lode_reader_name(a->reader));
    return 0;
}

int lode_assembler_create(struct lode_assembler **out, const struct lode_source *source,
                          const struct lode_weight *weights, const struct lode_group *groups,
                          uint32_t n_groups, const struct lode_layouts *layouts,
                          const struct lode_assembler_opts *opts, uint64_t *memory,
                          struct lode_error *err) {
    struct lode_assembler *a = LODE_NEW(struct lode_assembler);
    uint32_t n = 0;
    *out = NULL;
    *memory = 0;
    if (!a)
        return lode_fail_nomem(err, "expert cache");
    *a = (struct lode_assembler){.source = source, .weights = weights, .groups = groups,
                                 .layouts = layouts, .name = "put together from parts", .by_weight = opts->by_weight};
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->work, NULL);
    int rc = take_memory(a, n_groups, opts, memory, &n, err);
    n = n ? n : BARE_THREADS;
    for (; rc == 0 && a->n_threads < n; a->n_threads++) {
        struct helper *h = &a->helpers[a->n_threads];
        h->a = a;
        if (pthread_create(&h->thread, NULL, work, h) != 0)
            break;
    }
    if (rc == 0 && a->n_threads == 0)
        rc = lode_fail(err, LODE_ERR_LIMIT, "experts", "no thread can be started to read them");
    if (rc < 0)
        lode_assembler_free(a);
    else
        *out = a;
    return rc;
}

void lode_assembler_free(struct lode_assembler *a) {
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_broadcast(&a->work);
    pthread_mutex_unlock(&a->lock);
    for (uint32_t i = 0; i < a->n_threads; i++)
        pthread_join(a->helpers[i].thread, NULL);
    lode_reader_free(a->reader);
    for (uint32_t i = 0; i < THREADS; i++)
        lode_free_aligned(a->helpers[i].memory);
    lode_free(a->files);
    pthread_cond_destroy(&a->work);
    pthread_mutex_destroy(&a->lock);
    lode_free(a);
}

void lode_assembler_submit(struct lode_assembler *a, struct lode_read *read) {
    read->next = NULL;
    read->i_part = read->n_flying = 0;
    read->fault = (struct lode_read_fault){0};
    pthread_mutex_lock(&a->lock);
    *(a->last ? &a->last->next : &a->first) = read;
    a->last = read;
    pthread_cond_broadcast(&a->work);
    pthread_mutex_unlock(&a->lock);
}

int lode_assembler_fail(struct lode_assembler *a, uint32_t tag, struct lode_error *err) {
    pthread_mutex_lock(&a->lock);
    uint32_t i = 0;
    while (i + 1 < a->n_failures && i + 1 < FAILURES &&
           a->failures[(a->n_failures - 1 - i) % FAILURES].tag != tag)
        i++;
    const struct lode_error error = a->failures[(a->n_failures - 1 - i) % FAILURES].error;
    pthread_mutex_unlock(&a->lock);
    if (err)
        *err = error;
    return error.code;
}

const char *lode_assembler_name(const struct lode_assembler *a) { return a->name; }

uint64_t lode_assembler_busy(const struct lode_assembler *a) {
    return a->reader ? lode_reader_busy(a->reader) : 0;
}
