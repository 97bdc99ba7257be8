#include "text/charsmap.h"

int lode_charsmap_init(struct lode_charsmap *m, struct lode_arena *arena, struct lode_str blob,
                       struct lode_error *err) {
    *m = (struct lode_charsmap){0};
    if (blob.len == 0)
        return 0;
    const uint8_t *b = (const uint8_t *)blob.data;
    const uint32_t size =
        blob.len < 4 ? 0 : b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
    if (size < 4 || size % 4 != 0 || size >= blob.len - 4 || blob.data[blob.len - 1] != '\0')
        return lode_fail(err, LODE_ERR_FORMAT, "precompiled_charsmap",
                         "%zu bytes with a trie of %u: not a character map", blob.len, size);
    uint32_t *units = lode_arena_alloc(arena, size / 4, sizeof *units);
    char *text = lode_arena_strndup(arena, blob.data + 4 + size, blob.len - 4 - size);
    if (!units || !text)
        return lode_fail_nomem(err, "the normaliser's character map");
    for (uint32_t i = 0; i < size / 4; i++, b += 4)
        units[i] = b[4] | (uint32_t)b[5] << 8 | (uint32_t)b[6] << 16 | (uint32_t)b[7] << 24;
    *m = (struct lode_charsmap){units, size / 4, text, blob.len - 4 - size};
    return 0;
}

/* The bits of a unit: 31 value (a leaf's own), 30..10 offset, 9 the offset is in 256s, 8 a leaf
 * follows, 7..0 label; in a leaf the value is 30..0. */
static uint32_t offset(uint32_t unit) {
    return (unit >> 10) << ((unit & 0x200) >> 6);
}
static bool labelled(uint32_t unit, uint8_t byte) {
    return (unit & 0x800000ff) == byte;
}

struct lode_str lode_charsmap_find(const struct lode_charsmap *m, const char *s, size_t n,
                                   bool longest, size_t *len) {
    struct lode_str found = {0};
    if (m->n_units == 0)
        return found;
    uint32_t at = offset(m->units[0]);
    for (size_t i = 0; i < n; i++) {
        const uint8_t byte = (uint8_t)s[i];
        at ^= byte;
        if (at >= m->n_units || !labelled(m->units[at], byte))
            break;
        const uint32_t unit = m->units[at];
        at ^= offset(unit);
        if (at >= m->n_units)
            break;
        if (unit & 0x100) {
            const uint32_t value = m->units[at] & 0x7fffffff;
            if (value >= m->text_len)
                break;
            found = lode_str(m->text + value);
            *len = i + 1;
            if (!longest)
                break;
        }
    }
    return found;
}
