/* Any config.json beside any safetensors file, as a directory: what opens must be readable in full
 * and in pieces, and every refusal says why.  Input: config.json, a NUL, model.safetensors; or
 * config.json, a NUL, I, model.safetensors.index.json, a NUL, a.safetensors. */
#include "format/source.h"

#include "base/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[64];

static void put(const char *name, const uint8_t *data, size_t size) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0)
        abort();
}

static void take(const char *name) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    unlink(path);
}

static void tidy(void) {
    take("config.json");
    take("model.safetensors");
    take("model.safetensors.index.json");
    take("a.safetensors");
    rmdir(dir);
}

static void touch(const struct lode_source *s) {
    struct lode_error err;
    for (size_t i = 0; i < s->n_tensors; i++) {
        const struct lode_gguf_tensor *t = &s->tensors[i];
        if (t->size > 1 << 20 || t->size == 0)
            continue;
        char *all = malloc(t->size), *part = malloc(t->size);
        if (!all || !part)
            abort();
        const int rc = lode_source_read(s, t, 0, all, t->size, &err);
        if (rc == 0) { /* a piece is a piece of the whole */
            const size_t unit = lode_dtypes[t->type].bytes; /* whole numbers or blocks */
            const size_t at = t->size / 3 / unit * unit, n = t->size / 2 / unit * unit;
            if (lode_source_read(s, t, at, part, n, &err) < 0 || memcmp(part, all + at, n) != 0)
                abort();
        } else if (!err.text[0]) {
            abort();
        }
        free(all);
        free(part);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *nul = memchr(data, 0, size);
    const size_t n = nul ? (size_t)(nul - data) : size;
    struct lode_source *s;
    struct lode_error err;
    if (!dir[0]) {
        snprintf(dir, sizeof dir, "%s", "/tmp/lode-fuzz-hf-XXXXXX");
        if (!mkdtemp(dir))
            abort();
        atexit(tidy);
    }
    put("config.json", data, n);
    const uint8_t *rest = nul ? nul + 1 : data + n, *end = data + size;
    const uint8_t *stop = rest < end && *rest == 'I' ? memchr(rest, 0, (size_t)(end - rest)) : NULL;
    if (stop) {
        put("model.safetensors.index.json", rest + 1, (size_t)(stop - rest - 1));
        put("a.safetensors", stop + 1, (size_t)(end - stop - 1));
        take("model.safetensors");
    } else {
        take("model.safetensors.index.json");
        put("model.safetensors", rest, (size_t)(end - rest));
    }
    const size_t before = lode_alloc_active();
    if (lode_source_open(&s, dir, size % 2, &err) == 0)
        touch(s);
    else if (!err.text[0] || s)
        abort();
    lode_source_close(s);
    if (lode_alloc_active() != before)
        abort();
    return 0;
}
