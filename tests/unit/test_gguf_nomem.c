/* Opening GGUF files while the n-th allocation fails, for every n. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "failmalloc.h"
#include "gguf_writer.h"
#include "lode/file.h"
#include "tmpdir.h"

#include "format/gguf.h"

static char *path[2];

/* Two shards, out of order so that placing the tensors sorts them. */
static void make_set(void) {
    for (uint16_t i = 0; i < 2; i++) {
        struct gguf_writer w = {0};
        char name[64];
        if (i == 0)
            gguf_put_str(&w, "general.architecture", "toy");
        gguf_put_u16(&w, "split.no", i);
        gguf_put_u16(&w, "split.count", 2);
        gguf_put_strs(&w, "tokens", 2, (const char *const[]){"a", "b"});
        snprintf(name, sizeof name, "late.%d", i);
        gguf_put_record(&w, name, 0, 1, (uint64_t[]){8}, 32);
        snprintf(name, sizeof name, "early.%d", i);
        gguf_put_tensor(&w, name, LODE_F32, 1, (uint64_t[]){8}, NULL);
        gguf_bytes(&w.data, (char[32]){0}, 32);
        snprintf(name, sizeof name, "nomem-%05d-of-00002.gguf", i + 1);
        path[i] = tmp_path(name);
        gguf_write(&w, path[i]);
        gguf_writer_free(&w);
    }
}

static void each_allocation_may_fail(void **state) {
    (void)state;
    struct lode_error err;
    make_set();
    for (int persistent = 0; persistent <= 1; persistent++) {
        uint64_t n = 1, unharmed = 0;
        for (;; n++) {
            struct lode_file *f = NULL;
            struct lode_gguf *g = NULL;
            failmalloc_start(n, persistent);
            const int a = lode_gguf_open(&g, path[1], &err);
            lode_gguf_close(g);
            const int b = lode_file_open(&f, path[0], &err);
            lode_file_close(f);
            const struct failmalloc_stats s = failmalloc_stop();
            assert_int_equal(s.live, 0);
            if (s.failed == 0) {
                assert_int_equal(a, 0);
                assert_int_equal(b, 0);
                break;
            }
            if (a == 0 && b == 0) {
                unharmed++;
                continue;
            }
            assert_true(a == LODE_ERR_NOMEM || b == LODE_ERR_NOMEM);
            assert_non_null(strstr(err.text, "out of memory"));
        }
        assert_in_range(n, 20, 1000); /* it does allocate */
        /* giving back what was read ahead of a header may fail: once a shard */
        assert_int_equal(unharmed, persistent ? 0 : 4);
    }
    free(path[0]);
    free(path[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, tmp_clean);
}
