/* load.c - tokenizers from files and directories, and the JSON files beside them. */
#include "text/load.h"
#include "text/tokenizer.h"

#include "base/alloc.h"
#include "base/file.h"
#include "format/gguf.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>

enum { FILE_MAX = 512 << 20 };

/* -- JSON ---------------------------------------------------------------------------------------- */

json_t *lode_json_object(struct lode_str text, const char *where, struct lode_error *err) {
    json_error_t why;
    json_t *root = json_loadb(text.data, text.len, JSON_ALLOW_NUL, &why);
    if (json_is_object(root))
        return root;
    if (root)
        lode_fail(err, LODE_ERR_FORMAT, where, "is not a JSON object");
    else if (json_error_code(&why) == json_error_out_of_memory)
        lode_fail_nomem(err, where);
    else
        lode_fail(err, LODE_ERR_FORMAT, where, "line %d: %s", why.line, why.text);
    json_decref(root);
    return NULL;
}

bool lode_json_bool(const json_t *object, const char *key, bool otherwise) {
    const json_t *value = json_object_get(object, key);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

struct lode_str lode_json_str(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value))
        return (struct lode_str){0};
    return (struct lode_str){json_string_value(value), json_string_length(value)};
}

bool lode_json_copy(struct lode_arena *arena, const json_t *string, struct lode_str *out) {
    const size_t len = json_string_length(string);
    char *s = lode_arena_strndup(arena, len ? json_string_value(string) : "", len);
    *out = (struct lode_str){s, len};
    return s != NULL;
}

/* A token in tokenizer_config.json is its text, or an object that has it as content. */
static int32_t named_token(const struct lode_tokenizer *t, const json_t *config, const char *key) {
    struct lode_str name = lode_json_str(config, key);
    if (!name.data)
        name = lode_json_str(json_object_get(config, key), "content");
    return name.data ? lode_vocab_find(&t->vocab, name.data, name.len) : -1;
}

static void add_end_number(struct lode_tokenizer *t, const json_t *id) {
    if (json_is_integer(id) && json_integer_value(id) >= 0 && json_integer_value(id) < INT32_MAX)
        lode_tok_add_end(t, (int32_t)json_integer_value(id));
}

int lode_tok_read_config(struct lode_tokenizer *t, struct lode_str config_text,
                         struct lode_str generation_text, struct lode_tok_adds *adds,
                         struct lode_error *err) {
    json_t *config = NULL, *generation = NULL;
    adds->bos = adds->eos = -1;
    if (config_text.len) {
        config = lode_json_object(config_text, "tokenizer_config.json", err);
        if (!config)
            return LODE_ERR_FORMAT;
        const int32_t bos = named_token(t, config, "bos_token");
        const int32_t eos = named_token(t, config, "eos_token");
        t->bos = bos >= 0 ? bos : t->bos;
        t->eos = eos >= 0 ? eos : t->eos;
        if (json_is_boolean(json_object_get(config, "add_bos_token")))
            adds->bos = lode_json_bool(config, "add_bos_token", false);
        if (json_is_boolean(json_object_get(config, "add_eos_token")))
            adds->eos = lode_json_bool(config, "add_eos_token", false);
        json_decref(config);
    }
    if (generation_text.len) {
        generation = lode_json_object(generation_text, "generation_config.json", err);
        if (!generation)
            return LODE_ERR_FORMAT;
        const json_t *eos = json_object_get(generation, "eos_token_id");
        add_end_number(t, eos);
        for (size_t i = 0; i < json_array_size(eos); i++)
            add_end_number(t, json_array_get(eos, i));
        json_decref(generation);
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

/* -- files ------------------------------------------------------------------------------------------- */

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

    const char *slash = strrchr(path, '/');
    const struct lode_str dir = {path, slash ? (size_t)(slash - path) + 1 : 0};
    struct lode_buf text = {0}, config = {0}, generation = {0};
    rc = read_file(path, &text, err);
    if (rc == 0)
        rc = read_beside(dir, "tokenizer_config.json", &config, err);
    if (rc == 0)
        rc = read_beside(dir, "generation_config.json", &generation, err);
    if (rc == 0) {
        const size_t blank = strspn(text.data, " \t\r\n");
        const bool json = text.data[blank] == '{';
        rc = (json ? lode_tokenizer_from_json : lode_tokenizer_from_spm)(
            out, lode_buf_str(&text), lode_buf_str(&config), lode_buf_str(&generation), err);
        /* the readers know these bytes only by the name that such a file usually has */
        if (rc < 0 && err && !strncmp(err->where, "tokenizer.", 10))
            snprintf(err->where, sizeof err->where, "%s", path);
    }
    lode_buf_free(&text);
    lode_buf_free(&config);
    lode_buf_free(&generation);
    return rc;
}

/* The first *.gguf of the directory by name; path is left empty where there is none. */
static int first_gguf(struct lode_str dir, struct lode_buf *path, struct lode_error *err) {
    DIR *d = opendir(dir.data);
    char *best = NULL;
    int rc = 0;
    for (struct dirent *e; d && rc == 0 && (e = readdir(d));) {
        const size_t len = strlen(e->d_name);
        if (len < 5 || strcmp(e->d_name + len - 5, ".gguf") != 0 || strstr(e->d_name, "mmproj"))
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
    static const char *const names[] = {"tokenizer.json", "tokenizer.model"};
    struct lode_buf file = {0};
    int rc = LODE_ERR_MISSING;
    for (size_t i = 0; rc == LODE_ERR_MISSING && i < 2; i++) {
        if (!join_path(&file, lode_str(path), names[i]))
            rc = lode_fail_nomem(err, path);
        else if (exists(file.data))
            rc = 0;
    }
    if (rc == LODE_ERR_MISSING) {
        lode_buf_clear(&file);
        rc = first_gguf(lode_str(path), &file, err);
        if (rc == 0 && file.len == 0)
            rc = lode_fail(err, LODE_ERR_MISSING, path,
                           "the directory has no tokenizer.json, tokenizer.model or *.gguf");
    }
    if (rc == 0)
        rc = load_file(out, file.data, err);
    lode_buf_free(&file);
    return rc;
}

int lode_tokenizer_load(struct lode_tokenizer **out, const char *path, struct lode_error *err) {
    struct stat st;
    *out = NULL;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return load_directory(out, path, err);
    return load_file(out, path, err);
}
