/* fuzz_packed.c - manifests of packed models from strangers: what lode_packed_parse accepts describes
 * places that lie within the file and do not overlap, and is written back as it was. */
#include "format/packed.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look(const struct lode_packed_index *x) {
    uint64_t end = 0;
    for (uint32_t i = 0; i < x->n_tensors; i++) {
        const struct lode_packed_tensor *t = &x->tensors[i];
        if (t->slice) {
            const struct lode_packed_records *r = &x->records[t->records];
            if (t->slice * r->n != t->t.size || t->at < r->at || t->at + t->slice > r->at + r->size)
                abort();
            continue;
        }
        if (t->at % LODE_PACKED_ALIGN || t->at < end || t->at + t->t.size > x->size)
            abort();
        end = t->at + t->t.size;
    }
    for (uint32_t i = 0; i < x->n_records; i++) {
        const struct lode_packed_records *r = &x->records[i];
        if (r->at % LODE_PACKED_ALIGN || r->at < end || r->size > r->step)
            abort();
        end = r->at + (uint64_t)r->step * r->n;
        if (end > x->size)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct lode_packed_index x, again;
    struct lode_error err;
    const struct lode_str text = {(const char *)data, size};
    if (lode_packed_parse(&x, text, "fuzz", &err) < 0) {
        if (!err.text[0] || !err.where[0])
            abort(); /* a refusal says why */
        return 0;
    }
    struct lode_buf written = {0}, twice = {0};
    look(&x);
    if (!lode_packed_print(&x, &written) ||
        lode_packed_parse(&again, lode_buf_str(&written), "again", &err) < 0)
        abort();
    if (!lode_packed_print(&again, &twice) ||
        !lode_str_eq(lode_buf_str(&written), lode_buf_str(&twice)))
        abort();
    lode_buf_free(&written);
    lode_buf_free(&twice);
    lode_packed_deinit(&again);
    lode_packed_deinit(&x);
    return 0;
}
