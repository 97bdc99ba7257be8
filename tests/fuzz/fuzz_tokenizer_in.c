/* Any bytes as text for tokenizers of every kind, and as the files that tokenizers come from.
 *
 *     byte 0, low bits   0..3 a made-up tokenizer.json, 4..6 made-up GGUFs: the rest is text
 *                        7 the rest is a file: '{' tokenizer.json, "GGUF", else tokenizer.model;
 *                          '#': parts, vocab.json, merges.txt, ranks and so on, a NUL between
 *     byte 0, bits 3, 4  flags of lode_tokenize
 */
#include "../small_tokenizers.h"

#include "base/alloc.h"
#include "format/gguf.h"
#include "text/load.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

static struct lode_tokenizer *from_pre(const char *pre) {
    struct lode_tokenizer *t = NULL;
    struct lode_gguf *g;
    size_t len;
    char *data = small_gguf(pre, &len);
    if (lode_gguf_parse(&g, data, len, NULL) < 0 || lode_tokenizer_from_gguf(&t, g, NULL) < 0)
        abort();
    lode_gguf_close(g);
    free(data);
    return t;
}

static const struct lode_tokenizer *small(unsigned which) {
    static struct lode_tokenizer *made[7];
    static const char *const pres[] = {"gpt-4o", "deepseek-llm", "superbpe"};
    const struct lode_str none = {0};
    if (!made[which] && which >= SMALL_TOKENIZERS) {
        made[which] = from_pre(pres[which - SMALL_TOKENIZERS]);
    } else if (!made[which]) {
        char *json = small_tokenizer_json((int)which);
        if (lode_tokenizer_from_json(&made[which], lode_str(json), none, none, NULL) < 0)
            abort();
        free(json);
    }
    return made[which];
}

/* Ids are in the vocabulary and their number does not depend on the room; text comes back, exactly
 * where the tokenizer keeps every byte (keeps). */
static void encode(const struct lode_tokenizer *t, const char *text, size_t size, int flags,
                   bool keeps) {
    struct lode_error err;
    const int64_t n = lode_tokenize(t, text, size, flags, NULL, 0, &err);
    if (n < 0) {
        if (err.code != n || !*err.text)
            abort();
        return;
    }
    int32_t *ids = malloc(((size_t)n + 1) * sizeof *ids);
    if (lode_tokenize(t, text, size, flags, ids, (size_t)n, &err) != n)
        abort();
    for (int64_t i = 0; i < n; i++) {
        struct lode_token_info info;
        if (lode_token_info(t, ids[i], &info) < 0)
            abort();
    }
    const int64_t len = lode_detokenize(t, ids, (size_t)n, false, NULL, 0, &err);
    char *back = malloc((size_t)len + 1);
    if (len < 0 || lode_detokenize(t, ids, (size_t)n, false, back, (size_t)len, &err) != len ||
        !lode_utf8_valid(back, (size_t)len))
        abort();
    if (keeps && !(flags & LODE_TOK_SPECIAL)) {
        struct lode_buf clean = {0};
        lode_utf8_lossy(&clean, text, size, true);
        if (clean.len != (size_t)len || (len && memcmp(clean.data, back, (size_t)len) != 0))
            abort();
        lode_buf_free(&clean);
    }
    free(back);
    free(ids);
}

static void load(const char *data, size_t size) {
    static const char text[] =
        "The <|sp|> thing's 123  aaaaaaaa e\xcc\x81 \xc3\xa9\xff [ADD] <s> \xe2\x96\x81";
    struct lode_tokenizer *t = NULL;
    struct lode_gguf *g = NULL;
    struct lode_error err = {0};
    const struct lode_str file = {data, size}, none = {0};
    int rc;
    if (size && data[0] == '#') {
        struct lode_str p[6] = {{0}};
        const char *at = data + 1, *end = data + size;
        for (int i = 0; i < 6 && at < end; i++) {
            const char *nul = memchr(at, 0, (size_t)(end - at));
            p[i] = (struct lode_str){at, (size_t)((nul ? nul : end) - at)};
            at = nul ? nul + 1 : end;
        }
        const struct lode_tok_parts parts = {.vocab = p[0], .merges = p[1], .ranks = p[2],
                                             .added = p[3], .config = p[4], .model_config = p[5]};
        lode_tok_is_ranks(p[2]);
        rc = lode_tokenizer_from_parts(&t, &parts, &err);
    } else if (size >= 4 && memcmp(data, "GGUF", 4) == 0) {
        rc = lode_gguf_parse(&g, data, size, &err);
        if (rc == 0)
            rc = lode_tokenizer_from_gguf(&t, g, &err);
        lode_gguf_close(g);
    } else if (size && data[0] == '{') {
        rc = lode_tokenizer_from_json(&t, file, none, none, &err);
    } else {
        rc = lode_tokenizer_from_spm(&t, file, none, none, &err);
    }
    if (rc < 0 && (t || err.code != rc || !*err.text))
        abort();
    if (rc == 0)
        encode(t, text, sizeof text - 1, 3, false);
    lode_tokenizer_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    char *rest = malloc(size); /* ends at an unreadable byte */
    memcpy(rest, data + 1, size - 1);
    char *tight = realloc(rest, size - 1 ? size - 1 : 1);
    const unsigned which = data[0] & 7;
    if (which == 7)
        load(tight, size - 1);
    else
        /* GGUFs here have byte-level vocabularies without normalisers; tokens that take white
         * space along are in the JSON ones only */
        encode(small(which), tight, size - 1, data[0] >> 3 & 3, which >= SMALL_TOKENIZERS);
    free(tight);
    return 0;
}
