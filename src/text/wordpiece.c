#include "text/wordpiece.h"

#include "text/unicode.h"

void lode_wordpiece_encode(const struct lode_wordpiece *w, struct lode_str word,
                           struct lode_ids *out) {
    char key[LODE_WORDPIECE_MAX_PREFIX + 4 * LODE_WORDPIECE_MAX_CHARS];
    uint32_t chars = 0;
    for (size_t i = 0; i < word.len && chars <= w->max_chars; i++)
        chars += ((uint8_t)word.data[i] & 0xc0) != 0x80;
    const size_t before = out->n;
    size_t start = chars > w->max_chars ? word.len + 1 : 0;
    while (start < word.len) {
        const size_t skip = start ? w->prefix.len : 0;
        if (skip)
            memcpy(key, w->prefix.data, skip);
        memcpy(key + skip, word.data + start, word.len - start);
        size_t len = word.len - start;
        int32_t id = -1;
        while (len > 0 && (id = lode_vocab_find(w->vocab, key, skip + len)) < 0) {
            do
                len--;
            while (len > 0 && ((uint8_t)key[skip + len] & 0xc0) == 0x80);
        }
        if (id < 0) {
            start = word.len + 1;
            break;
        }
        lode_ids_add(out, id);
        start += len;
    }
    if (start == word.len)
        return;
    out->n = before;
    if (w->unk >= 0)
        lode_ids_add(out, w->unk);
}
