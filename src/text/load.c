/* load.c - tokenizers from files and directories, and the JSON files beside them. */
#include "text/load.h"
#include "text/tokenizer.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/hub.h"
#include "format/gguf.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>

enum { FILE_MAX = 512 << 20 };

/* -- configuration --------------------------------------------------------------------- */

int lode_tok_copy(struct lode_tokenizer *t, struct lode_str s, struct lode_str *out,
                  struct lode_error *err) {
    char *copy = lode_arena_strndup(&t->arena, s.len ? s.data : "", s.len);
    *out = (struct lode_str){copy, s.len};
    return copy ? 0 : lode_fail_nomem(err, "a tokenizer");
}

/* A token in tokenizer_config.json is its text, or an object that has it as content. */
static int32_t named_token(const struct lode_tokenizer *t, const struct lode_json *config,
                           const char *key) {
    const struct lode_json *v = lode_json_get(config, key);
    if (lode_json_is(v, LODE_JSON_OBJECT))
        v = lode_json_get(v, "content");
    const struct lode_str name = lode_json_str(v);
    return name.data ? lode_vocab_find(&t->vocab, name.data, name.len) : -1;
}

static int said(const struct lode_json *config, const char *key) {
    const struct lode_json *v = lode_json_get(config, key);
    return lode_json_is(v, LODE_JSON_TRUE) ? 1 : lode_json_is(v, LODE_JSON_FALSE) ? 0 : -1;
}

static void add_end_number(struct lode_tokenizer *t, const struct lode_json *v) {
    int64_t id;
    if (lode_json_int(v, 0, INT32_MAX, &id))
        lode_tok_add_end(t, (int32_t)id);
}

int lode_tok_read_config(struct lode_tokenizer *t, struct lode_str config,
                         struct lode_str generation, struct lode_tok_adds *adds,
                         struct lode_error *err) {
    struct lode_json_doc doc;
    *adds = (struct lode_tok_adds){-1, -1};
    if (config.len) {
        LODE_TRY(lode_json_parse(&doc, config, "tokenizer_config.json", err));
        const int32_t bos = named_token(t, doc.nodes, "bos_token");
        const int32_t eos = named_token(t, doc.nodes, "eos_token");
        t->bos = bos >= 0 ? bos : t->bos;
        t->eos = eos >= 0 ? eos : t->eos;
        t->pad = named_token(t, doc.nodes, "pad_token");
        adds->bos = said(doc.nodes, "add_bos_token");
        adds->eos = said(doc.nodes, "add_eos_token");
        lode_json_free(&doc);
    }
    if (generation.len) {
        LODE_TRY(lode_json_parse(&doc, generation, "generation_config.json", err));
        const struct lode_json *eos = lode_json_get(doc.nodes, "eos_token_id");
        add_end_number(t, eos);
        for (const struct lode_json *id = lode_json_first(eos); id; id = lode_json_next(eos, id))
            add_end_number(t, id);
        lode_json_free(&doc);
    }
    /* A template that puts a token in front, or behind, says what begins and ends a text. */
    if (t->bos < 0 && t->n_before)
        t->bos = t->before[0];
    if (t->eos < 0 && t->n_after)
        t->eos = t->after[t->n_after - 1];
    static const char *const usual[] = {"</s>", "<eos>", "<|endoftext|>", "<|end_of_text|>"};
    for (size_t i = 0; t->eos < 0 && i < sizeof usual / sizeof *usual; i++)
        t->eos = lode_tokenizer_find(t, usual[i]);
    return 0;
}

/* -- files ----------------------------------------------------------------------------- */

static int read_file(const char *path, struct lode_buf *out, struct lode_error *err) {
    struct lode_in_file f;
    int rc = lode_in_open(&f, path, err);
    if (rc == 0 && f.size > FILE_MAX)
        rc = lode_fail(err, LODE_ERR_LIMIT, path, "%llu bytes; a tokenizer has at most %d",
                       (unsigned long long)f.size, FILE_MAX);
    if (rc == 0 && !lode_buf_reserve(out, (size_t)f.size))
        rc = lode_fail_nomem(err, path);
    if (rc == 0)
        rc = lode_in_read(&f, 0, out->data, (size_t)f.size, err);
    if (rc == 0) {
        out->len = (size_t)f.size;
        out->data[out->len] = '\0';
    }
    lode_in_close(&f);
    return rc;
}

/* dir/name, or name beside the file dir; false: out of memory. */
static bool join_path(struct lode_buf *out, struct lode_str dir, const char *name) {
    lode_buf_clear(out);
    lode_buf_add(out, dir.data, dir.len);
    if (dir.len && dir.data[dir.len - 1] != '/')
        lode_buf_addc(out, '/');
    return lode_buf_addz(out, name);
}

static bool exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* A file of the directory if it is there: absent ones are no error, unreadable ones are. */
static int read_beside(struct lode_str dir, const char *name, struct lode_buf *out,
                       struct lode_error *err) {
    struct lode_buf path = {0};
    int rc = join_path(&path, dir, name) ? 0 : lode_fail_nomem(err, name);
    if (rc == 0 && exists(path.data))
        rc = read_file(path.data, out, err);
    lode_buf_free(&path);
    return rc;
}

static int load_gguf(struct lode_tokenizer **out, const char *path, struct lode_error *err) {
    struct lode_gguf *g;
    LODE_TRY(lode_gguf_open_unmapped(&g, path, err));
    const int rc = lode_tokenizer_from_gguf(out, g, err);
    lode_gguf_close(g);
    return rc;
}

/* A file of JSON, of sentencepiece or of tiktoken, or vocab.json; and what lies beside it. */
static int load_parts(struct lode_tokenizer **out, const char *path, struct lode_error *err) {
    enum { CONFIG, GENERATION, MODEL, ADDED, MERGES, N };
    static const char *const names[N] = {"tokenizer_config.json", "generation_config.json",
                                         "config.json", "added_tokens.json", "merges.txt"};
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const struct lode_str dir = {path, (size_t)(name - path)};
    struct lode_buf text = {0}, beside[N] = {{0}};
    int rc = read_file(path, &text, err);
    const struct lode_str all = lode_buf_str(&text);
    const bool json = all.data[strspn(all.data, " \t\r\n")] == '{';
    const bool vocab = json && strcmp(name, "vocab.json") == 0, ranks = lode_tok_is_ranks(all);
    for (int i = 0; i < (vocab || ranks ? N : MODEL) && rc == 0; i++)
        rc = read_beside(dir, names[i], &beside[i], err);
    const struct lode_str config = lode_buf_str(&beside[CONFIG]);
    const struct lode_str generation = lode_buf_str(&beside[GENERATION]);
    const struct lode_tok_parts parts = {.vocab = vocab ? all : LODE_STR(""),
                                         .merges = lode_buf_str(&beside[MERGES]),
                                         .ranks = ranks ? all : LODE_STR(""),
                                         .added = lode_buf_str(&beside[ADDED]),
                                         .config = config,
                                         .generation = generation,
                                         .model_config = lode_buf_str(&beside[MODEL])};
    if (rc == 0 && vocab && !beside[MERGES].len)
        rc = lode_fail(err, LODE_ERR_MISSING, path, "there is no merges.txt beside it");
    if (rc == 0)
        rc = vocab || ranks ? lode_tokenizer_from_parts(out, &parts, err)
             : json         ? lode_tokenizer_from_json(out, all, config, generation, err)
                            : lode_tokenizer_from_spm(out, all, config, generation, err);
    /* the readers know these bytes only by the name that such a file usually has */
    if (rc < 0 && err && !strncmp(err->where, "tokenizer.", 10))
        snprintf(err->where, sizeof err->where, "%s", path);
    lode_buf_free(&text);
    for (int i = 0; i < N; i++)
        lode_buf_free(&beside[i]);
    return rc;
}

static int load_file(struct lode_tokenizer **out, const char *path, struct lode_error *err) {
    struct lode_in_file f;
    char magic[4] = "";
    int rc = lode_in_open(&f, path, err);
    if (rc == 0)
        rc = lode_in_read(&f, 0, magic, f.size < 4 ? (size_t)f.size : 4, err);
    lode_in_close(&f);
    LODE_TRY(rc);
    if (memcmp(magic, "GGUF", 4) == 0)
        return load_gguf(out, path, err);

    return load_parts(out, path, err);
}

/* The first file of the directory by name that ends so; path is left empty where there is none. */
static int first_file(struct lode_str dir, const char *end, struct lode_buf *path,
                      struct lode_error *err) {
    const size_t n_end = strlen(end);
    DIR *d = opendir(dir.data);
    char *best = NULL;
    int rc = 0;
    for (struct dirent *e; d && rc == 0 && (e = readdir(d));) {
        const size_t len = strlen(e->d_name);
        if (len < n_end || strcmp(e->d_name + len - n_end, end) != 0 || strstr(e->d_name, "mmproj"))
            continue;
        char *name = lode_strndup(e->d_name, len);
        if (!name)
            rc = lode_fail_nomem(err, "a directory");
        else if (best && strcmp(best, name) <= 0)
            lode_free(name);
        else {
            lode_free(best);
            best = name;
        }
    }
    if (d)
        closedir(d);
    if (rc == 0 && best && !join_path(path, dir, best))
        rc = lode_fail_nomem(err, "a path");
    lode_free(best);
    return rc;
}

static int load_directory(struct lode_tokenizer **out, const char *path, struct lode_error *err) {
    static const char *const names[] = {"tokenizer.json", "tokenizer.model", "vocab.json",
                                        "tiktoken.model"};
    static const char *const ends[] = {".tiktoken", ".gguf"};
    struct lode_buf file = {0};
    int rc = LODE_ERR_MISSING;
    for (size_t i = 0; rc == LODE_ERR_MISSING && i < sizeof names / sizeof *names; i++) {
        if (!join_path(&file, lode_str(path), names[i]))
            rc = lode_fail_nomem(err, path);
        else if (exists(file.data))
            rc = 0;
    }
    if (rc == LODE_ERR_MISSING) {
        lode_buf_clear(&file);
        rc = 0;
        for (size_t i = 0; rc == 0 && file.len == 0 && i < sizeof ends / sizeof *ends; i++)
            rc = first_file(lode_str(path), ends[i], &file, err);
        if (rc == 0 && file.len == 0)
            rc = lode_fail(err, LODE_ERR_MISSING, path,
                           "the directory has no tokenizer.json, tokenizer.model, vocab.json, "
                           "*.tiktoken or *.gguf");
    }
    if (rc == 0)
        rc = load_file(out, file.data, err);
    lode_buf_free(&file);
    return rc;
}

int lode_tokenizer_load(struct lode_tokenizer **out, const char *path, struct lode_error *err) {
    struct stat st;
    char *found;
    *out = NULL;
    LODE_TRY(lode_hub_find(&found, path, err));
    const bool folder = stat(found, &st) == 0 && S_ISDIR(st.st_mode);
    const int rc = (folder ? load_directory : load_file)(out, found, err);
    lode_free(found);
    return rc;
}
