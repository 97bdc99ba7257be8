/* Any bytes as a GGUF file: the parser over memory, the loader over a file, every accessor, and the
 * metadata as text, whose JSON must be JSON. */
#include "gguf_touch.h"

#include "base/alloc.h"
#include "lode/file.h"

#include <jansson.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void check_text(const struct lode_file *f) {
    for (size_t i = 0; i < lode_file_n_keys(f); i++) {
        char small[40];
        const size_t n = lode_file_value(f, i, small, sizeof small, false);
        if (n >= sizeof small || strlen(small) != n)
            abort();
        const size_t len = lode_file_value(f, i, NULL, 0, true);
        char *text = malloc(len + 1);
        if (!text || lode_file_value(f, i, text, len + 1, true) != len || strlen(text) != len)
            abort();
        /* reals: JSON integers have no range, jansson's do */
        json_t *j =
            json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
        if (!j)
            abort();
        json_decref(j);
        free(text);
    }
    for (size_t i = 0; i < lode_file_n_tensors(f); i++)
        if (!*lode_file_tensor(f, i).name)
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char path[32];
    static int fd = -1;
    struct lode_error err;
    struct lode_gguf *parsed, *opened;
    struct lode_file *file;
    const size_t before = lode_alloc_active();
    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }

    const bool valid = lode_gguf_parse(&parsed, data, size, &err) == 0;
    if (valid)
        gguf_touch(parsed);
    else if (!err.text[0] || parsed)
        abort();

    if (ftruncate(fd, 0) < 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
        abort();
    if (lode_gguf_open(&opened, path, &err) == 0) {
        /* The same header; the file only adds that the tensor data is there. */
        if (!valid || lode_gguf_n_keys(opened) != lode_gguf_n_keys(parsed) ||
            lode_gguf_n_tensors(opened) != lode_gguf_n_tensors(parsed))
            abort();
        gguf_touch(opened);
        lode_gguf_close(opened);
    } else if (!err.text[0] || opened) {
        abort();
    }
    if (lode_file_open(&file, path, &err) == 0) {
        check_text(file);
        lode_file_close(file);
    }
    lode_gguf_close(parsed);
    if (lode_alloc_active() != before)
        abort();
    return 0;
}
