#include "backend/tuning.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/out_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 1 << 20 }; /* bytes of a file: more than all lines that there can be */

const struct lode_tuning_knob_info lode_tuning_knobs[LODE_TUNING_KNOBS] = {
#define KNOB(name, work, ...)                                                                      \
    {#name, LODE_TUNING_##work, sizeof((uint16_t[]){__VA_ARGS__}) / sizeof(uint16_t), {__VA_ARGS__}},
    LODE_TUNING_LIST(KNOB)
#undef KNOB
};

uint32_t lode_tuning_class(uint32_t cols) {
    uint32_t class = 0;
    while (cols >>= 1)
        class++;
    return class < LODE_TUNING_CLASSES ? class : LODE_TUNING_CLASSES - 1;
}

uint16_t lode_tuning_default(enum lode_tuning_knob knob, uint32_t class) {
    return knob == LODE_TUNING_alone ? class >= LODE_TUNING_LONG : lode_tuning_knobs[knob].values[0];
}

void lode_tuning_defaults(struct lode_tuning *t) {
    for (uint32_t k = 0; k < LODE_TUNING_KNOBS; k++)
        for (uint32_t type = 0; type < LODE_DTYPE_COUNT; type++)
            for (uint32_t class = 0; class < LODE_TUNING_CLASSES; class++)
                t->value[k][type][class] = lode_tuning_default((enum lode_tuning_knob)k, class);
}

/* ---- its text ---- */

static bool is(const char *word, size_t n, const char *name) { return strlen(name) == n && !memcmp(word, name, n); }

/* The next word of a line; its length, 0 at the end. */
static size_t next_word(const char **at, const char *end, const char **word) {
    while (*at < end && **at == ' ')
        ++*at;
    *word = *at;
    while (*at < end && **at != ' ')
        ++*at;
    return (size_t)(*at - *word);
}

/* A number below `most`; -1: it is none. */
static int number(const char *word, size_t n, int most) {
    int v = n ? 0 : -1;
    for (size_t i = 0; i < n && v >= 0; i++)
        v = word[i] >= '0' && word[i] <= '9' && 10 * v + (word[i] - '0') < most ? 10 * v + (word[i] - '0') : -1;
    return v;
}

static bool parse_choice(struct lode_tuning *t, const char *at, const char *end) {
    const char *word;
    uint32_t knob = 0, type = 0, i = 0;
    size_t n = next_word(&at, end, &word);
    while (knob < LODE_TUNING_KNOBS && !is(word, n, lode_tuning_knobs[knob].name))
        knob++;
    n = next_word(&at, end, &word);
    while (type < LODE_DTYPE_COUNT && !(lode_dtypes[type].name && is(word, n, lode_dtypes[type].name)))
        type++;
    n = next_word(&at, end, &word);
    const int class = number(word, n, LODE_TUNING_CLASSES);
    n = next_word(&at, end, &word);
    const int value = number(word, n, UINT16_MAX);
    if (knob == LODE_TUNING_KNOBS || type == LODE_DTYPE_COUNT || class < 0 || value < 0 || next_word(&at, end, &word))
        return false;
    const struct lode_tuning_knob_info *k = &lode_tuning_knobs[knob];
    while (i < k->n && k->values[i] != value)
        i++;
    if (i == k->n)
        return false;
    t->value[knob][type][class] = (uint16_t)value;
    return true;
}

static int parse(struct lode_tuning *t, const struct lode_tuning_device *d, const char *text, size_t n,
                 struct lode_error *err) {
    char head[3][320];
    int line = 0;
    snprintf(head[0], sizeof head[0], "lode-tuning 1");
    snprintf(head[1], sizeof head[1], "device %s", d->name);
    snprintf(head[2], sizeof head[2], "compute %d.%d", d->major, d->minor);
    for (const char *at = text, *stop = text + n; at < stop; line++) {
        const char *newline = memchr(at, '\n', (size_t)(stop - at));
        if (!newline)
            return lode_fail(err, LODE_ERR_FORMAT, "tuning", "line %d is cut", line + 1);
        const size_t len = (size_t)(newline - at);
        if (line < 3 && !is(at, len, head[line]))
            return lode_fail(err, line ? LODE_ERR_UNSUPPORTED : LODE_ERR_FORMAT, "tuning",
                             "line %d is \"%.*s\", expected \"%s\"", line + 1, (int)(len < 80 ? len : 80), at, head[line]);
        if (line >= 3 && !parse_choice(t, at, newline))
            return lode_fail(err, LODE_ERR_FORMAT, "tuning", "line %d, \"%.*s\", is no choice", line + 1,
                             (int)(len < 80 ? len : 80), at);
        at = newline + 1;
    }
    return line < 3 ? lode_fail(err, LODE_ERR_FORMAT, "tuning", "it has %d lines", line) : 0;
}

int lode_tuning_parse(struct lode_tuning *t, const struct lode_tuning_device *d, const char *text, size_t n,
                      struct lode_error *err) {
    lode_tuning_defaults(t);
    const int rc = parse(t, d, text, n, err);
    if (rc < 0)
        lode_tuning_defaults(t);
    return rc;
}

static bool print(struct lode_buf *b, const struct lode_tuning *t, const struct lode_tuning_device *d) {
    bool ok = lode_buf_addf(b, "lode-tuning 1\ndevice %s\ncompute %d.%d\n", d->name, d->major, d->minor);
    for (uint32_t k = 0; k < LODE_TUNING_KNOBS; k++)
        for (uint32_t type = 0; type < LODE_DTYPE_COUNT; type++)
            for (uint32_t class = 0; class < LODE_TUNING_CLASSES; class++)
                if (t->value[k][type][class] != lode_tuning_default((enum lode_tuning_knob)k, class))
                    ok = ok && lode_buf_addf(b, "%s %s %u %u\n", lode_tuning_knobs[k].name, lode_dtypes[type].name, class,
                                             t->value[k][type][class]);
    return ok;
}

/* ---- its file ---- */

/* Below the user's cache; false: nothing says where that is, or its path is too long. */
static bool find_path(const struct lode_tuning_device *d, char *path, size_t cap) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char name[128];
    size_t n = 0;
    for (const char *c = d->name; *c && n + 1 < sizeof name; c++)
        name[n++] = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ? *c : '-';
    name[n] = '\0';
    const bool own = cache && *cache;
    if (!own && !(home && *home))
        return false;
    const int len = snprintf(path, cap, "%s%s/lode/tune-%s-%d.%d.txt", own ? cache : home, own ? "" : "/.cache", name,
                             d->major, d->minor);
    return len > 0 && (size_t)len < cap;
}

int lode_tuning_place(const struct lode_tuning_device *d, char *path, size_t cap, struct lode_error *err) {
    if (!find_path(d, path, cap))
        return lode_fail(err, LODE_ERR_IO, "--tune", "there is no place to keep it: set XDG_CACHE_HOME or HOME");
    return lode_out_folders(path, err);
}

int lode_tuning_load(struct lode_tuning *t, const struct lode_tuning_device *d, bool *found, struct lode_error *err) {
    char path[1024];
    *found = false;
    lode_tuning_defaults(t);
    const int fd = find_path(d, path, sizeof path) ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (fd < 0)
        return 0;
    *found = true;
    char *text = lode_alloc(MOST, 1);
    size_t n = 0;
    ssize_t some = text ? 1 : -1;
    while (some > 0 && n < MOST) {
        some = read(fd, text + n, MOST - n);
        n += some > 0 ? (size_t)some : 0;
    }
    close(fd);
    const int rc = !text      ? lode_fail_nomem(err, "tuning")
                   : some < 0 ? lode_fail(err, LODE_ERR_IO, path, "%s", strerror(errno))
                   : n == MOST ? lode_fail(err, LODE_ERR_FORMAT, path, "it is too long")
                               : lode_tuning_parse(t, d, text, n, err);
    lode_free(text);
    return rc;
}

int lode_tuning_save(const struct lode_tuning *t, const struct lode_tuning_device *d, char *path, size_t cap,
                     struct lode_error *err) {
    struct lode_buf b = {0};
    LODE_TRY(lode_tuning_place(d, path, cap, err));
    const int rc = print(&b, t, d) ? lode_out_whole(path, b.data, b.len, err) : lode_fail_nomem(err, "tuning");
    lode_buf_free(&b);
    return rc;
}
