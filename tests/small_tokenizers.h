/* small_tokenizers.h - tokenizers made up in memory, for tests that load them many times: one of
 * each kind, with added tokens of every sort.  small_tokenizer_json(i) is a tokenizer.json;
 * small_gguf(pre) a GGUF with a byte-level vocabulary.  free() what they give; NULL: no such one.
 */
#ifndef LODE_TESTS_SMALL_TOKENIZERS_H
#define LODE_TESTS_SMALL_TOKENIZERS_H

#include "base/utf8.h"
#include "text/bpe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL_TOKENIZERS = 4 };

#define SMALL_MERGES(X)                                                                            \
    X("t", "h") X("th", "e") X("a", "n") X("an", "d") X("i", "n") X("in", "g") X("e", "r")         \
    X("o", "u") X("1", "2") X("12", "3") X("a", "a") X("aa", "aa") X("aaaa", "aaaa")

static const char *const small_merges[][2] = {
#define SMALL_PAIR(a, b) {a, b},
    SMALL_MERGES(SMALL_PAIR)
#undef SMALL_PAIR
};
enum { SMALL_N_MERGES = sizeof small_merges / sizeof *small_merges };

struct small_text {
    char *data;
    size_t len, cap;
};

static inline void small_add(struct small_text *t, const char *s, size_t len) {
    if (t->len + len + 1 > t->cap) {
        t->cap = (t->len + len + 1) * 2;
        t->data = realloc(t->data, t->cap);
        if (!t->data)
            abort();
    }
    memcpy(t->data + t->len, s, len);
    t->len += len;
    t->data[t->len] = '\0';
}

static inline void small_addz(struct small_text *t, const char *s) { small_add(t, s, strlen(s)); }

static inline void small_piece(struct small_text *t, const char *piece, int id) {
    char number[32];
    small_addz(t, id ? ",\"" : "\"");
    for (const char *c = piece; *c; c++) {
        if (*c == '"' || *c == '\\')
            small_addz(t, "\\");
        small_add(t, c, 1);
    }
    snprintf(number, sizeof number, "\":%d", id);
    small_addz(t, number);
}

static inline void small_bpe_model(struct small_text *t, int n) {
    small_addz(t, "},\"merges\":[");
    for (int i = 0; i < SMALL_N_MERGES; i++) {
        char merge[64];
        snprintf(merge, sizeof merge, i % 2 ? "%s\"%s %s\"" : "%s[\"%s\",\"%s\"]", i ? "," : "",
                 small_merges[i][0], small_merges[i][1]);
        small_addz(t, merge);
    }
    char added[1024];
    snprintf(added, sizeof added,
             "]},\"added_tokens\":["
             "{\"id\":%d,\"content\":\"<|bos|>\",\"special\":true},"
             "{\"id\":%d,\"content\":\"<|sp|>\",\"special\":true},"
             "{\"id\":%d,\"content\":\"<|both|>\",\"special\":true,\"lstrip\":true,\"rstrip\":true},"
             "{\"id\":%d,\"content\":\"[ADD]\",\"special\":false,\"normalized\":true},"
             "{\"id\":%d,\"content\":\"WORD\",\"special\":false,\"single_word\":true,\"normalized\":false}],"
             "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":"
             "{\"id\":\"<|bos|>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],"
             "\"special_tokens\":{\"<|bos|>\":{\"id\":\"<|bos|>\",\"ids\":[%d]}}},",
             n, n + 1, n + 2, n + 3, n + 4, n);
    small_addz(t, added);
}

static inline char *small_byte_level(void) {
    struct small_text t = {0};
    char c[8];
    int n = 0;
    small_addz(&t, "{\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (; n < 256; n++) {
        c[lode_utf8_encode(lode_byte_char((uint8_t)n), c)] = '\0';
        small_piece(&t, c, n);
    }
    for (int i = 0; i < SMALL_N_MERGES; i++) {
        char both[32];
        snprintf(both, sizeof both, "%s%s", small_merges[i][0], small_merges[i][1]);
        small_piece(&t, both, n++);
    }
    small_bpe_model(&t, n);
    small_addz(&t, "\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"Sequence\","
                   "\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
                   "\"(?i:'s|'t)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}"
                   "\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},"
                   "\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\","
                   "\"add_prefix_space\":false,\"use_regex\":false}]},"
                   "\"decoder\":{\"type\":\"ByteLevel\"}}");
    return t.data;
}

static inline char *small_char_level(void) {
    struct small_text t = {0};
    char piece[32];
    int n = 0;
    small_addz(&t, "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"byte_fallback\":true,"
                   "\"fuse_unk\":true,\"vocab\":{");
    small_piece(&t, "<unk>", n++);
    for (int b = 0; b < 256; b++) {
        snprintf(piece, sizeof piece, "<0x%02X>", (unsigned)b);
        small_piece(&t, piece, n++);
    }
    for (int c = 33; c < 127; c++) {
        snprintf(piece, sizeof piece, "%c", c);
        small_piece(&t, piece, n++);
    }
    small_piece(&t, "\xe2\x96\x81", n++);
    for (int i = 0; i < SMALL_N_MERGES; i++) {
        snprintf(piece, sizeof piece, "%s%s", small_merges[i][0], small_merges[i][1]);
        small_piece(&t, piece, n++);
    }
    small_bpe_model(&t, n);
    small_addz(&t, "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\","
                   "\"prepend\":\"\xe2\x96\x81\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
                   "\"content\":\"\xe2\x96\x81\"}]},\"decoder\":{\"type\":\"Sequence\",\"decoders\":["
                   "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xe2\x96\x81\"},\"content\":\" \"},"
                   "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":"
                   "\" \",\"start\":1,\"stop\":1}]}}");
    return t.data;
}

static inline char *small_unigram(void) {
    static const char text[] =
        "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"</s>\",0],"
        "[\"\xe2\x96\x81\",-2.5],[\"\xe2\x96\x81the\",-3],[\"a\",-4],[\"e\",-4],[\"t\",-4.5],[\"h\",-5],"
        "[\"th\",-5.5],[\"\xe2\x96\x81" "a\",-5],[\"aa\",-6],[\"aaa\",-7],[\"n\",-5],[\"an\",-5],"
        "[\"\xc3\xa9\",-9],[\"1\",-8]]},\"added_tokens\":[{\"id\":1,\"content\":\"</s>\",\"special\":true}],"
        "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Nmt\"},{\"type\":\"NFKC\"},"
        "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\" \"}]},"
        "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"},"
        "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"always\"}]},"
        "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}},"
        "{\"SpecialToken\":{\"id\":\"</s>\"}}],\"special_tokens\":{\"</s>\":{\"ids\":[1]}}},"
        "\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"always\"}}";
    struct small_text t = {0};
    small_addz(&t, text);
    return t.data;
}

static inline char *small_wordpiece(void) {
    static const char text[] =
        "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"vocab\":{\"[UNK]\":0,\"[CLS]\":1,"
        "\"[SEP]\":2,\"the\":3,\"##re\":4,\"a\":5,\"##a\":6,\"an\":7,\"##d\":8,\"!\":9,\"don\":10,\"'\":11,"
        "\"t\":12,\".\":13,\"e\":14,\"##n\":15}},\"added_tokens\":[{\"id\":0,\"content\":\"[UNK]\","
        "\"special\":true},{\"id\":1,\"content\":\"[CLS]\",\"special\":true},{\"id\":2,\"content\":"
        "\"[SEP]\",\"special\":true}],\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true,"
        "\"handle_chinese_chars\":true,\"strip_accents\":null,\"lowercase\":true},\"pre_tokenizer\":"
        "{\"type\":\"BertPreTokenizer\"},\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":"
        "[\"[SEP]\",2],\"cls\":[\"[CLS]\",1]},\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\","
        "\"cleanup\":true}}";
    struct small_text t = {0};
    small_addz(&t, text);
    return t.data;
}

static inline char *small_tokenizer_json(int which) {
    switch (which) {
    case 0: return small_byte_level();
    case 1: return small_char_level();
    case 2: return small_unigram();
    case 3: return small_wordpiece();
    default: return NULL;
    }
}

/* -- GGUF ------------------------------------------------------------------------------ */

static inline void small_u32(struct small_text *t, uint32_t v) { small_add(t, (char *)&v, 4); }
static inline void small_u64(struct small_text *t, uint64_t v) { small_add(t, (char *)&v, 8); }
static inline void small_str(struct small_text *t, const char *s, size_t len) {
    small_u64(t, len);
    small_add(t, s, len);
}
static inline void small_key(struct small_text *t, const char *key, uint32_t type) {
    small_str(t, key, strlen(key));
    small_u32(t, type);
}

/* All bytes, the merges above, <|sp|> and <|im_end|> as control tokens. */
static inline char *small_gguf(const char *pre, size_t *len) {
    struct small_text t = {0};
    const uint64_t n = 256 + SMALL_N_MERGES + 2;
    char c[64];
    small_add(&t, "GGUF", 4);
    small_u32(&t, 3);
    small_u64(&t, 0);
    small_u64(&t, 6);
    small_key(&t, "tokenizer.ggml.model", 8);
    small_str(&t, "gpt2", 4);
    small_key(&t, "tokenizer.ggml.pre", 8);
    small_str(&t, pre, strlen(pre));
    small_key(&t, "tokenizer.ggml.tokens", 9);
    small_u32(&t, 8);
    small_u64(&t, n);
    for (int b = 0; b < 256; b++)
        small_str(&t, c, lode_utf8_encode(lode_byte_char((uint8_t)b), c));
    for (int i = 0; i < SMALL_N_MERGES; i++)
        small_str(&t, c, (size_t)snprintf(c, sizeof c, "%s%s", small_merges[i][0], small_merges[i][1]));
    small_str(&t, "<|sp|>", 6);
    small_str(&t, "<|im_end|>", 10);
    small_key(&t, "tokenizer.ggml.token_type", 9);
    small_u32(&t, 5);
    small_u64(&t, n);
    for (uint64_t i = 0; i < n; i++)
        small_u32(&t, i + 2 < n ? 1 : 3);
    small_key(&t, "tokenizer.ggml.merges", 9);
    small_u32(&t, 8);
    small_u64(&t, SMALL_N_MERGES);
    for (int i = 0; i < SMALL_N_MERGES; i++)
        small_str(&t, c, (size_t)snprintf(c, sizeof c, "%s %s", small_merges[i][0], small_merges[i][1]));
    small_key(&t, "tokenizer.ggml.eos_token_id", 4);
    small_u32(&t, (uint32_t)n - 2);
    *len = t.len;
    return t.data;
}

#endif
