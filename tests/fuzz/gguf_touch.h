/* gguf_touch.h - reads everything that an opened GGUF file offers, by every accessor.
 *
 * The sanitizers watch; the sum only keeps the compiler from dropping the reads.
 */
#ifndef LODE_TESTS_GGUF_TOUCH_H
#define LODE_TESTS_GGUF_TOUCH_H

#include "base/error.h"
#include "format/gguf.h"

static uint64_t gguf_touch_str(struct lode_str s) {
    uint64_t sum = s.len;
    for (size_t i = 0; i < s.len; i++)
        sum = sum * 31 + (unsigned char)s.data[i];
    return sum;
}

static uint64_t gguf_touch_array(const struct lode_gguf_array *a) {
    uint64_t sum = (uint64_t)a->type;
    for (size_t i = 0; i < a->n; i++) {
        if (a->type == LODE_GGUF_STR)
            sum += gguf_touch_str(a->strs[i]);
        else if (a->type == LODE_GGUF_ARRAY)
            sum += gguf_touch_array(&a->arrays[i]);
        else
            sum += (uint64_t)lode_gguf_array_i64(a, i) + (lode_gguf_array_f64(a, i) > 0.5);
    }
    return sum;
}

static volatile uint64_t gguf_touched;

static void gguf_touch(const struct lode_gguf *g) {
    uint64_t sum = lode_gguf_version(g) + strlen(lode_gguf_path(g)) + lode_gguf_n_vocab(g) +
                   lode_gguf_n_shards(g) + gguf_touch_str(lode_str(lode_gguf_arch(g)));
    for (size_t i = 0; i < lode_gguf_n_keys(g); i++) {
        const struct lode_gguf_kv *kv = lode_gguf_key(g, i);
        sum += lode_gguf_find(g, kv->key) == &kv->value;
        if (kv->value.type == LODE_GGUF_STR)
            sum += gguf_touch_str(kv->value.s);
        if (kv->value.type == LODE_GGUF_ARRAY)
            sum += gguf_touch_array(&kv->value.a);
        const char *dot = strchr(kv->key, '.'), *tail = dot ? dot + 1 : kv->key;
#define GET(name, type)                                                                            \
    {                                                                                              \
        type out;                                                                                  \
        sum += lode_gguf_##name(g, kv->key, &out) + lode_gguf_arch_##name(g, tail, &out);          \
    }
        LODE_GGUF_GETTER_LIST(GET)
#undef GET
        struct lode_error err;
        sum += (uint64_t)(lode_gguf_fail_key(g, kv->key, "nothing", &err) +
                          lode_gguf_arch_fail_key(g, tail, "nothing", &err));
        sum += strlen(err.text);
    }
    for (size_t i = 0; i < lode_gguf_n_tensors(g); i++) {
        const struct lode_gguf_tensor *t = lode_gguf_tensor(g, i);
        sum += lode_gguf_find_tensor(g, t->name) == t;
        sum += t->offset + t->size + t->dims[3] + lode_dtypes[t->type].block;
        const unsigned char *data = lode_gguf_data(g, t);
        if (data)
            sum += data[0] + data[t->size - 1];
    }
    gguf_touched = sum;
}

#endif
