#include "store/rooms.h"

#include "base/alloc.h"
#include "base/threads.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    NEAR = 64, /* sizes that differ by less than one part in so many are of one kind */
    FEWEST_ROOMS =
        16 /* of each kind, for there to be more than one: a layer asks for many at once */
};

static int descending(const void *a, const void *b) {
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x < y) - (x > y);
}

/* The kinds that the sizes (in descending order) fall into, with how many groups each has. */
static void find_kinds(struct lode_rooms *r, const size_t *sizes, uint32_t n) {
    struct lode_room_kind *k = NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (!k || (k->size - sizes[i] > k->size / NEAR && r->n_kinds < LODE_ROOM_KINDS)) {
            k = &r->kinds[r->n_kinds++];
            *k = (struct lode_room_kind){.size = sizes[i]};
        }
        k->n++;
    }
}

/* The same share of each kind's groups; what is left over goes to the largest that it holds. */
static void share_out(struct lode_rooms *r, uint64_t budget) {
    uint32_t n_groups[LODE_ROOM_KINDS];
    uint64_t all = 0, used = 0;
    for (uint32_t i = 0; i < r->n_kinds; i++)
        all += (uint64_t)r->kinds[i].n * r->kinds[i].size;
    const double share = (double)budget / (double)all;
    for (uint32_t i = 0; i < r->n_kinds; i++) {
        struct lode_room_kind *k = &r->kinds[i];
        n_groups[i] = k->n;
        k->n = (uint32_t)(share * k->n);
        used += (uint64_t)k->n * k->size;
    }
    for (uint32_t i = 0; i < r->n_kinds; i++) {
        struct lode_room_kind *k = &r->kinds[i];
        while (k->n < n_groups[i] && used + k->size <= budget) {
            k->n++;
            used += k->size;
        }
    }
}

static bool has_few(const struct lode_rooms *r) {
    for (uint32_t i = 0; i < r->n_kinds; i++)
        if (r->kinds[i].n < FEWEST_ROOMS)
            return true;
    return false;
}

static void choose_kinds(struct lode_rooms *r, const size_t *sizes, uint32_t n, uint64_t budget,
                         uint64_t all) {
    find_kinds(r, sizes, n);
    if (budget >= all)
        return; /* a room for each */
    share_out(r, budget);
    if (r->n_kinds > 1 && has_few(r)) {
        r->n_kinds = 1;
        r->kinds[0] = (struct lode_room_kind){.size = sizes[0], .n = n};
        share_out(r, budget);
    }
}

static int make_rooms(struct lode_rooms *r, struct lode_error *err) {
    size_t bytes = 0, at = 0;
    for (uint32_t i = 0; i < r->n_kinds; i++) {
        r->kinds[i].first = r->n;
        r->n += r->kinds[i].n;
        bytes += r->kinds[i].n * r->kinds[i].size;
    }
    r->memory = lode_alloc_large(1, bytes);
    r->offsets = LODE_NEW_ARRAY(size_t, r->n);
    r->free = LODE_NEW_ARRAY(uint32_t, r->n);
    r->kind = LODE_NEW_ARRAY(uint8_t, r->n);
    if (!r->memory || !r->offsets || !r->free || !r->kind)
        return lode_fail(err, LODE_ERR_NOMEM, "--expert-cache", "out of memory for %.0f MiB",
                         (double)bytes / 0x1p20);
    r->bytes = bytes;
    for (uint32_t i = 0; i < r->n_kinds; i++) {
        struct lode_room_kind *k = &r->kinds[i];
        for (uint32_t j = k->first; j < k->first + k->n; j++, at += k->size) {
            r->offsets[j] = at;
            r->kind[j] = (uint8_t)i;
            r->free[j] = 2 * k->first + k->n - 1 - j; /* the first is taken first */
        }
        k->n_free = k->n;
    }
    return 0;
}

int lode_rooms_make(struct lode_rooms *out, const size_t *sizes, uint32_t n, uint64_t budget,
                    struct lode_error *err) {
    uint64_t all = 0;
    *out = (struct lode_rooms){0};
    size_t *sorted = LODE_NEW_ARRAY(size_t, n);
    if (!sorted)
        return lode_fail_nomem(err, "expert cache");
    for (uint32_t i = 0; i < n; i++)
        all += sorted[i] = sizes[i];
    qsort(sorted, n, sizeof *sorted, descending);
    choose_kinds(out, sorted, n, budget, all);
    lode_free(sorted);
    return make_rooms(out, err);
}

void lode_rooms_free(struct lode_rooms *r) {
    lode_free_aligned(r->memory);
    lode_free(r->offsets);
    lode_free(r->free);
    lode_free(r->kind);
    *r = (struct lode_rooms){0};
}

enum { TOUCH_THREADS = 8, TOUCH = 32 << 20 /* bytes at a time */, PAGE = 4096 };

/* What the system does for a page that is written to first: clear it, and find a large one. */
static void touch_some(void *arg, uint32_t task, uint32_t worker) {
    const struct lode_rooms *r = arg;
    const size_t first = (size_t)task * TOUCH;
    const size_t end = r->bytes - first < TOUCH ? r->bytes : first + TOUCH;
    (void)worker;
    for (size_t at = first; at < end; at += PAGE)
        ((volatile char *)r->memory)[at] = 0;
}

int lode_rooms_touch(struct lode_rooms *r, struct lode_error *err) {
    struct lode_pool *pool;
    LODE_TRY(lode_pool_create(&pool, TOUCH_THREADS, false, err));
    lode_pool_run(pool, touch_some, r, (uint32_t)((r->bytes + TOUCH - 1) / TOUCH));
    lode_pool_free(pool);
    return 0;
}

bool lode_rooms_may_have(const struct lode_rooms *r, size_t size) {
    for (uint32_t i = 0; i < r->n_kinds; i++)
        if (r->kinds[i].size >= size && r->kinds[i].n_busy < r->kinds[i].n)
            return true;
    return false;
}

/* The smallest kind with a free room for size bytes; NULL: there is none. */
static struct lode_room_kind *kind_for(const struct lode_rooms *r, size_t size) {
    for (uint32_t i = r->n_kinds; i-- > 0;)
        if (r->kinds[i].size >= size && r->kinds[i].n_free)
            return (struct lode_room_kind *)(uintptr_t)&r->kinds[i];
    return NULL;
}

bool lode_rooms_has(const struct lode_rooms *r, size_t size) { return kind_for(r, size) != NULL; }

uint32_t lode_rooms_take(struct lode_rooms *r, size_t size) {
    struct lode_room_kind *k = kind_for(r, size);
    return k ? r->free[k->first + --k->n_free] : LODE_NO_ROOM;
}

void lode_rooms_give(struct lode_rooms *r, uint32_t room) {
    struct lode_room_kind *k = &r->kinds[r->kind[room]];
    r->free[k->first + k->n_free++] = room;
}

void lode_rooms_set_busy(struct lode_rooms *r, uint32_t room, bool busy) {
    uint32_t *n = &r->kinds[r->kind[room]].n_busy;
    *n = busy ? *n + 1 : *n - 1;
}

void lode_rooms_release(struct lode_rooms *r, uint32_t room) {
    madvise(lode_rooms_at(r, room), lode_rooms_size(r, room), MADV_DONTNEED);
}
