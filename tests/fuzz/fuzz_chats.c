/* The page's chats: a file that is damaged anywhere, and any JSON as a chat.
 *
 * The input is a list of edits of a good file, each an offset (16 bits, in units of a 64th of the
 * file's bytes, then 8 bits within) and a byte, up to an offset of 0xffff; what follows is the body
 * of a chat. Whatever comes of it, another chat can be stored and read afterwards.
 */
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#ifdef LODE_HAVE_SQLITE
#include "serve/chats.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64], path[128];
static uint8_t *good; /* a file with a few chats */
static size_t n_good;

static struct chats *create(void) {
    struct chats *c;
    struct lode_error err;
    if (chats_create(&c, path, 8 << 20, &err) < 0)
        abort();
    return c;
}

static int put(struct chats *c, const char *id, const char *text, size_t n) {
    struct lode_error err;
    json_t *body = json_loadb(text, n, 0, NULL);
    const int rc = json_is_object(body) ? chats_put(c, id, body, &err) : LODE_ERR_ARG;
    json_decref(body);
    return rc;
}

static void remove_files(void) {
    char pattern[160];
    glob_t g;
    snprintf(pattern, sizeof pattern, "%s/chats.db*", folder);
    if (glob(pattern, 0, NULL, &g) == 0)
        for (size_t i = 0; i < g.gl_pathc; i++)
            unlink(g.gl_pathv[i]);
    globfree(&g);
}

static void clean(void) {
    remove_files();
    rmdir(folder);
    free(good);
}

static void make_good(void) {
    static const char text[] =
        "{\"new\":true,\"title\":\"t\",\"messages\":[{\"id\":\"a\",\"role\":\"user\",\"content\":"
        "\"words\"},"
        "{\"id\":\"b\",\"parent\":\"a\",\"role\":\"assistant\",\"content\":\"more words\"}]}";
    snprintf(folder, sizeof folder, "%s/lode-fuzz-XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    if (!mkdtemp(folder))
        abort();
    snprintf(path, sizeof path, "%s/chats.db", folder);
    struct chats *c = create();
    for (int i = 0; i < 40; i++) {
        char id[8];
        snprintf(id, sizeof id, "c%d", i);
        if (put(c, id, text, sizeof text - 1) < 0)
            abort();
    }
    chats_free(c);
    FILE *f = fopen(path, "rb");
    good = malloc(1 << 20);
    if (!f || !good)
        abort();
    n_good = fread(good, 1, 1 << 20, f);
    fclose(f);
    atexit(clean);
}

static size_t write_damaged(const uint8_t *data, size_t size) {
    size_t at = 0;
    uint8_t *bytes = malloc(n_good);
    if (!bytes)
        abort();
    memcpy(bytes, good, n_good);
    for (; at + 4 <= size && (data[at] & data[at + 1]) != 0xff; at += 4) {
        const size_t block = (size_t)(data[at] << 8 | data[at + 1]);
        bytes[(block * 64 + data[at + 2]) % n_good] = data[at + 3];
    }
    remove_files();
    char lock[160];
    snprintf(lock, sizeof lock, "%s.lock", path);
    FILE *f = fopen(path, "wb"), *l = fopen(lock, "wb"); /* the lock says that it is ours */
    if (!f || !l || fwrite(bytes, 1, n_good, f) != n_good || fclose(f) || fclose(l))
        abort();
    free(bytes);
    return at + 2 < size ? at + 2 : size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct lode_error err;
    struct lode_buf b = {0};
    if (!good)
        make_good();
    const size_t at = write_damaged(data, size);
    struct chats *c = create();
    chats_list(c, &(struct chats_query){.text = "WORDS"}, &b, &err);
    lode_buf_clear(&b);
    put(c, "c7", (const char *)data + at, size - at);
    chats_get(c, "c7", &b, &err);
    if (size == at && at <= 2) { /* nothing was damaged: what is given out is JSON */
        json_t *back = json_loadb(b.data, b.len, 0, NULL);
        if (!back)
            abort();
        json_decref(back);
    }
    lode_buf_clear(&b);
    chats_delete(c, "c3", &err);
    /* once found damaged it is set aside, and then chats can be stored again */
    int again = LODE_ERR_FORMAT;
    for (int i = 0; i < 3 && again == LODE_ERR_FORMAT; i++)
        again = put(c, "new", "{\"new\":true,\"title\":\"x\"}", 24);
    if (again == LODE_ERR_FORMAT && chats_open(c, &err) == 0)
        abort();
    lode_buf_free(&b);
    chats_free(c);
    return 0;
}

#else
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return (void)data, (void)size, 0; }
#endif
