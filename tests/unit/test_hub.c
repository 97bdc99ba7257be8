/* Hugging Face's cache on the disk: what a name leads to, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tmpdir.h"

#include "base/alloc.h"
#include "base/hub.h"

#include <string.h>

static struct lode_error err;

/* Folders and, where text is given, a file, below the test's folder. */
static void make(const char *path, const char *text) {
    char *full = tmp_path(path);
    for (char *p = full + strlen(tmp_dir()) + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        mkdir(full, 0700);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_true(f && fputs(text, f) >= 0 && fclose(f) == 0);
    free(full);
}

/* What `path` leads to, below the test's folder; NULL: refused with `why`. */
static void leads(const char *path, const char *to, const char *why) {
    char *found;
    const int rc = lode_hub_find(&found, path, &err);
    if (to) {
        if (rc < 0)
            fail_msg("%s: %s", path, err.text);
        assert_string_equal(strncmp(found, tmp_dir(), strlen(tmp_dir())) == 0
                                ? found + strlen(tmp_dir()) + 1
                                : found,
                            to);
    } else {
        assert_int_equal(rc, LODE_ERR_MISSING);
        assert_null(found);
        if (!strstr(err.text, why))
            fail_msg("%s: %s", path, err.text);
    }
    lode_free(found);
}

static void finds(void **state) {
    (void)state;
    make("hub/models--acme--tiny/refs/main", "c1\n");
    make("hub/models--acme--tiny/refs/dev", "c2");
    make("hub/models--acme--tiny/snapshots/c1/config.json", "{}");
    make("hub/models--acme--tiny/snapshots/c2/config.json", "{}");
    make("hub/models--gpt2/snapshots/only/config.json", "{}");
    make("hub/models--acme--two/snapshots/a/config.json", "{}");
    make("hub/models--acme--two/snapshots/b/config.json", "{}");
    make("hub/models--acme--out/refs/main", "../../../..");
    make("hub/models--acme--gone/refs/main", "c9");
    char *root = tmp_path("hub"), *folder = tmp_path("hub/models--acme--tiny");
    unsetenv("HF_HUB_CACHE");
    unsetenv("HUGGINGFACE_HUB_CACHE");
    setenv("HF_HOME", tmp_dir(), 1);
    for (int i = 0; i < 2; i++) { /* by either variable */
        leads("acme/tiny", "hub/models--acme--tiny/snapshots/c1", NULL);
        leads("acme/tiny@dev", "hub/models--acme--tiny/snapshots/c2", NULL);
        leads("acme/tiny@c2", "hub/models--acme--tiny/snapshots/c2", NULL);
        leads("acme/tiny@c3", NULL, "c3");
        leads("gpt2", "hub/models--gpt2/snapshots/only", NULL);
        leads(folder, "hub/models--acme--tiny/snapshots/c1", NULL);
        leads("acme/two", NULL, "not exactly one");
        leads("acme/out", NULL, "not exactly one"); /* no commit, and no snapshots either */
        leads("acme/gone", NULL, "c9");
        leads("acme/other", NULL, "Hugging Face cache");
        /* whoever opens these says that they are not there */
        leads("acme/other.gguf", "acme/other.gguf", NULL);
        leads("acme/../tiny", "acme/../tiny", NULL);
        leads("-acme/tiny", "-acme/tiny", NULL);
        leads("other", "other", NULL);
        leads("", "", NULL);
        setenv("HF_HUB_CACHE", root, 1);
        setenv("HF_HOME", "/nonexistent", 1);
    }
    free(root);
    free(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(finds)};
    return cmocka_run_group_tests(tests, NULL, tmp_clean);
}
