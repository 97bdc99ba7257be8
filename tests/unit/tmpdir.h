/* tmpdir.h - a folder of a test program's own, for the files it makes.
 *
 *     char *path = tmp_path("model.gguf");       free(path) afterwards
 *     return cmocka_run_group_tests(tests, NULL, tmp_clean);
 */
#ifndef LODE_TESTS_TMPDIR_H
#define LODE_TESTS_TMPDIR_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char tmp_dir_[4000];

/* Made at the first call, under $TMPDIR or /tmp. */
static inline const char *tmp_dir(void) {
    if (!tmp_dir_[0]) {
        const char *base = getenv("TMPDIR");
        snprintf(tmp_dir_, sizeof tmp_dir_, "%s/lode-test-XXXXXX", base && *base ? base : "/tmp");
        if (!mkdtemp(tmp_dir_)) {
            perror(tmp_dir_);
            abort();
        }
    }
    return tmp_dir_;
}

static inline char *tmp_path(const char *name) {
    char *path = NULL;
    if (asprintf(&path, "%s/%s", tmp_dir(), name) < 0)
        abort();
    return path;
}

static inline int tmp_remove_(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

/* A group teardown. */
static inline int tmp_clean(void **state) {
    (void)state;
    if (tmp_dir_[0])
        nftw(tmp_dir_, tmp_remove_, 16, FTW_DEPTH | FTW_PHYS);
    return 0;
}

#endif
