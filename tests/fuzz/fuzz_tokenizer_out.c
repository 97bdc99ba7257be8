/* Any ids to text, whole and as a stream: the parts are the whole, valid UTF-8 each, and a stream
 * that is reset does not remember.
 *
 *     byte 0   low bits: which made-up tokenizer; bit 3: special tokens left out; bit 4: push half,
 *              reset, and begin again
 *     then     two bytes an id, modulo the vocabulary
 */
#include "../small_tokenizers.h"

#include "base/buf.h"
#include "text/tokenizer.h"

static const struct lode_tokenizer *small(unsigned which) {
    static struct lode_tokenizer *made[SMALL_TOKENIZERS + 1];
    const struct lode_str none = {0};
    if (!made[which] && which == SMALL_TOKENIZERS) {
        /* sentencepiece's decoder: <unk>, <s>, bytes and a few pieces */
        struct small_text m = {0};
        static const char *const pieces[] = {"\xe2\x96\x81", "a", "\xe2\x96\x81the", "\xc3\xa9"};
        for (int i = 0; i < 2 + 256 + 4; i++) {
            char piece[16];
            const int kind = i == 0 ? 2 : i == 1 ? 3 : i < 258 ? 6 : 1;
            if (i < 258)
                snprintf(piece, sizeof piece, i < 2 ? "<%u>" : "<0x%02X>",
                         (unsigned)(i < 2 ? i : i - 2));
            else
                snprintf(piece, sizeof piece, "%s", pieces[i - 258]);
            const char head[] = {0x0a, (char)(strlen(piece) + 4), 0x0a, (char)strlen(piece)};
            const char tail[] = {0x18, (char)kind};
            small_add(&m, head, 4);
            small_addz(&m, piece);
            small_add(&m, tail, 2);
        }
        if (lode_tokenizer_from_spm(&made[which], (struct lode_str){m.data, m.len}, none, none,
                                    NULL) < 0)
            abort();
        free(m.data);
    } else if (!made[which]) {
        char *json = small_tokenizer_json((int)which);
        if (lode_tokenizer_from_json(&made[which], lode_str(json), none, none, NULL) < 0)
            abort();
        free(json);
    }
    return made[which];
}

static void take(struct lode_buf *all, const char *text, size_t len) {
    if (!lode_utf8_valid(text, len))
        abort();
    lode_buf_add(all, text, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0 || size > 1 << 16)
        return 0;
    const struct lode_tokenizer *t = small((data[0] & 7) % (SMALL_TOKENIZERS + 1));
    const bool skip = data[0] & 8;
    const size_t n = (size - 1) / 2;
    int32_t *ids = malloc((n + 1) * sizeof *ids);
    for (size_t i = 0; i < n; i++)
        ids[i] =
            (int32_t)((data[1 + 2 * i] | (uint32_t)data[2 + 2 * i] << 8) % lode_tokenizer_size(t));

    struct lode_buf all = {0};
    struct lode_detok *d;
    const char *text;
    size_t len;
    if (lode_detok_create(&d, t, skip, NULL) < 0)
        abort();
    if (data[0] & 16) {
        for (size_t i = 0; i < n / 2; i++)
            lode_detok_push(d, ids[i], &text, &len, NULL);
        lode_detok_reset(d);
    }
    for (size_t i = 0; i < n; i++) {
        if (lode_detok_push(d, ids[i], &text, &len, NULL) < 0)
            abort();
        take(&all, text, len);
    }
    if (lode_detok_finish(d, &text, &len, NULL) < 0)
        abort();
    take(&all, text, len);
    lode_detok_free(d);

    const int64_t whole = lode_detokenize(t, ids, n, skip, NULL, 0, NULL);
    char *back = malloc((size_t)whole + 1);
    if (whole != (int64_t)all.len ||
        lode_detokenize(t, ids, n, skip, back, (size_t)whole, NULL) != whole ||
        (whole && memcmp(back, all.data, (size_t)whole) != 0))
        abort();
    free(back);
    free(ids);
    lode_buf_free(&all);
    return 0;
}
