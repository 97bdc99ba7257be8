#include "base/hub.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_PATH = 4096, MAX_COMMIT = 128 };

static bool is_dir(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* One component of a path, which stays where it is. */
static bool is_word(const char *s, size_t n) {
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    if (n == 0 || n > MAX_COMMIT || s[0] == '.' || s[0] == '-')
        return false;
    for (size_t i = 0; i < n; i++)
        if (!memchr(allowed, s[i], sizeof allowed - 1))
            return false;
    return true;
}

/* snprintf that says whether all fitted. */
__attribute__((format(printf, 2, 3))) static bool join(char out[MAX_PATH], const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(out, MAX_PATH, fmt, ap);
    va_end(ap);
    return n > 0 && n < MAX_PATH;
}

static bool find_root(char out[MAX_PATH]) {
    static const struct {
        const char *variable, *below;
    } places[] = {{"HF_HUB_CACHE", ""},
                  {"HUGGINGFACE_HUB_CACHE", ""}, /* its older name */
                  {"HF_HOME", "/hub"},
                  {"XDG_CACHE_HOME", "/huggingface/hub"},
                  {"HOME", "/.cache/huggingface/hub"}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *value = getenv(places[i].variable);
        if (value && *value)
            return join(out, "%s%s", value, places[i].below);
    }
    return false;
}

/* The commit that refs/REVISION has; "": there is no such file, or it holds something else. */
static void read_ref(const char *folder, const char *revision, char out[MAX_COMMIT + 1]) {
    char path[MAX_PATH];
    struct lode_in_file f;
    out[0] = '\0';
    if (!join(path, "%s/refs/%s", folder, revision) || lode_in_open(&f, path, NULL) < 0)
        return;
    const size_t n = f.size < MAX_COMMIT ? (size_t)f.size : MAX_COMMIT;
    if (lode_in_read(&f, 0, out, n, NULL) == 0) {
        out[n] = '\0';
        out[strcspn(out, " \t\r\n")] = '\0';
    }
    if (!is_word(out, strlen(out)))
        out[0] = '\0';
    lode_in_close(&f);
}

/* The only one of snapshots/; how many there are. */
static int only_snapshot(const char *folder, char out[MAX_COMMIT + 1]) {
    char path[MAX_PATH];
    int n = 0;
    DIR *d = join(path, "%s/snapshots", folder) ? opendir(path) : NULL;
    for (struct dirent *e; d && (e = readdir(d));)
        if (is_word(e->d_name, strlen(e->d_name)) && n++ == 0)
            memcpy(out, e->d_name, strlen(e->d_name) + 1);
    if (d)
        closedir(d);
    return n;
}

static int snapshot_of(char **out, const char *folder, const char *revision,
                       struct lode_error *err) {
    char commit[MAX_COMMIT + 1], path[MAX_PATH];
    read_ref(folder, revision ? revision : "main", commit);
    if (!commit[0] && revision)
        snprintf(commit, sizeof commit, "%s", revision); /* a commit in full */
    if (!commit[0] && only_snapshot(folder, commit) != 1)
        return lode_fail(err, LODE_ERR_MISSING, folder,
                         "this folder of the Hugging Face cache has no refs/main and not exactly "
                         "one snapshot: name one, as in ORG/NAME@COMMIT, or its folder");
    if (!join(path, "%s/snapshots/%s", folder, commit) || !is_dir(path))
        return lode_fail(err, LODE_ERR_MISSING, folder,
                         "this folder of the Hugging Face cache has no snapshots/%s: an incomplete "
                         "download?",
                         commit);
    *out = lode_strndup(path, strlen(path));
    return *out ? 0 : lode_fail_nomem(err, path);
}

/* Who opens it says what is wrong. */
static int itself(char **out, const char *path, struct lode_error *err) {
    *out = lode_strndup(path, strlen(path));
    return *out ? 0 : lode_fail_nomem(err, path);
}

static int find_named(char **out, const char *path, struct lode_error *err) {
    char root[MAX_PATH], folder[MAX_PATH], revision[MAX_COMMIT + 1];
    const char *at = strchr(path, '@'), *slash = strchr(path, '/');
    const size_t n = at ? (size_t)(at - path) : strlen(path);
    const size_t n_org = slash && slash < path + n ? (size_t)(slash - path) : 0;
    const char *name = n_org ? slash + 1 : path;
    const size_t n_name = n - (size_t)(name - path);
    const bool named = is_word(name, n_name) && (!n_org || is_word(path, n_org)) &&
                       (!at || is_word(at + 1, strlen(at + 1)));
    if (!named || !find_root(root) ||
        !join(folder, "%s/models--%.*s%s%.*s", root, (int)n_org, path, n_org ? "--" : "",
              (int)n_name, name))
        return itself(out, path, err);
    if (!is_dir(folder) && n_org && !strstr(name, ".gguf"))
        return lode_fail(err, LODE_ERR_MISSING, path,
                         "there is no such file, and no such model in the Hugging Face cache (%s)",
                         root);
    if (!is_dir(folder))
        return itself(out, path, err);
    snprintf(revision, sizeof revision, "%s", at ? at + 1 : "");
    return snapshot_of(out, folder, at ? revision : NULL, err);
}

int lode_hub_find(char **out, const char *path, struct lode_error *err) {
    char snapshots[MAX_PATH], config[MAX_PATH];
    struct stat st;
    *out = NULL;
    if (stat(path, &st) < 0) {
        if (errno == ENOENT || errno == ENOTDIR)
            return find_named(out, path, err);
    } else if (S_ISDIR(st.st_mode) && join(snapshots, "%s/snapshots", path) && is_dir(snapshots) &&
               join(config, "%s/config.json", path) && stat(config, &st) < 0) {
        return snapshot_of(out, path, NULL, err);
    }
    return itself(out, path, err);
}
