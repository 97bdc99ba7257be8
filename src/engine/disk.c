#define XXH_STATIC_LINKING_ONLY /* states of sums without an allocation */
#include "engine/disk.h"

#include "base/alloc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BUCKETS = 1 << 12, NONE = -1, MAX_NAME = 96 };

static const char *const suffixes[] = {[LODE_DISK_PAGES] = "pages", [LODE_DISK_STATE] = "state",
                                       [LODE_DISK_WORDS] = "words"};

struct entry {
    uint64_t directory; /* the name of its identity's */
    XXH128_hash_t key;
    uint64_t size, used; /* nanoseconds since 1970 */
    enum lode_disk_kind kind;
    int32_t next; /* in its bucket, or of the unused; NONE */
    bool live;
};

struct lode_disk {
    int fd;           /* of the directory */
    uint64_t own;     /* directory of this identity */
    XXH128_hash_t identity;
    uint64_t max_bytes;
    struct entry *entries; /* owned; (n_entries) */
    int32_t n_entries, unused;
    int32_t buckets[BUCKETS];
    struct lode_disk_stats stats;
};

struct header {
    char magic[8];
    XXH128_hash_t identity, key;
    uint32_t kind, n_parts;
    uint64_t sizes[LODE_DISK_MAX_PARTS]; /* 0: not there */
    int32_t tokens[LODE_KV_PAGE];
};
static const char magic[8] = "lodekv1";

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void name_of(char out[MAX_NAME], uint64_t directory, XXH128_hash_t key,
                    enum lode_disk_kind kind) {
    snprintf(out, MAX_NAME, "%016" PRIx64 "/%016" PRIx64 "%016" PRIx64 ".%s", directory, key.high64,
             key.low64, suffixes[kind]);
}

/* ---- the list ---- */

static int32_t *bucket(struct lode_disk *d, XXH128_hash_t key) {
    return &d->buckets[key.low64 % BUCKETS];
}

static struct entry *find(const struct lode_disk *d, uint64_t directory, XXH128_hash_t key,
                          enum lode_disk_kind kind) {
    for (int32_t i = d->buckets[key.low64 % BUCKETS]; i != NONE; i = d->entries[i].next) {
        struct entry *e = &d->entries[i];
        if (e->directory == directory && e->kind == kind && XXH128_isEqual(e->key, key))
            return e;
    }
    return NULL;
}

/* Not listed where there is no memory for it: then it is not used, and not counted. */
static void insert(struct lode_disk *d, uint64_t directory, XXH128_hash_t key,
                   enum lode_disk_kind kind, uint64_t size, uint64_t used) {
    if (d->unused == NONE) {
        const int32_t n = d->n_entries ? d->n_entries * 2 : 64;
        struct entry *e = n > 0 ? lode_realloc(d->entries, (size_t)n, sizeof *e) : NULL;
        if (!e)
            return;
        d->entries = e;
        for (int32_t i = n; i-- > d->n_entries;) {
            e[i] = (struct entry){.next = d->unused};
            d->unused = i;
        }
        d->n_entries = n;
    }
    const int32_t i = d->unused;
    d->unused = d->entries[i].next;
    d->entries[i] = (struct entry){directory, key, size, used, kind, *bucket(d, key), true};
    *bucket(d, key) = i;
    d->stats.bytes += size;
    d->stats.entries += directory == d->own;
    d->stats.foreign += directory != d->own;
}

static void forget(struct lode_disk *d, struct entry *e) {
    const int32_t index = (int32_t)(e - d->entries);
    int32_t *at = bucket(d, e->key);
    while (*at != index)
        at = &d->entries[*at].next;
    *at = e->next;
    d->stats.bytes -= e->size;
    d->stats.entries -= e->directory == d->own;
    d->stats.foreign -= e->directory != d->own;
    e->live = false;
    e->next = d->unused;
    d->unused = index;
}

static void delete(struct lode_disk *d, struct entry *e) {
    char name[MAX_NAME];
    name_of(name, e->directory, e->key, e->kind);
    unlinkat(d->fd, name, 0);
    forget(d, e);
}

static void keep_bound(struct lode_disk *d) {
    while (d->stats.bytes > d->max_bytes) {
        struct entry *oldest = NULL;
        for (int32_t i = 0; i < d->n_entries; i++)
            if (d->entries[i].live && (!oldest || d->entries[i].used < oldest->used))
                oldest = &d->entries[i];
        if (!oldest)
            return;
        delete(d, oldest);
        d->stats.evicted++;
    }
}

bool lode_disk_has(const struct lode_disk *d, XXH128_hash_t key, enum lode_disk_kind kind) {
    return find(d, d->own, key, kind) != NULL;
}

uint64_t lode_disk_content(const struct lode_disk *d, XXH128_hash_t key, enum lode_disk_kind kind) {
    const struct entry *e = find(d, d->own, key, kind);
    const uint64_t rest = sizeof(struct header) + sizeof(XXH128_canonical_t);
    return e && e->size > rest ? e->size - rest : 0;
}

void lode_disk_add(struct lode_disk *d, XXH128_hash_t key, enum lode_disk_kind kind, uint64_t size) {
    if (!lode_disk_has(d, key, kind))
        insert(d, d->own, key, kind, size, now_ns());
    keep_bound(d);
}

void lode_disk_stats(const struct lode_disk *d, struct lode_disk_stats *out) { *out = d->stats; }

/* ---- opening ---- */

/* Sixteen digits. */
static bool read_hex(const char *s, uint64_t *out) {
    *out = 0;
    for (int i = 0; i < 16; i++) {
        const char c = s[i];
        if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'f'))
            return false;
        *out = *out << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return true;
}

/* What a process left that is gone: "part-PID-...". */
static bool is_left_over(const char *name) {
    const long pid = strncmp(name, "part-", 5) == 0 ? strtol(name + 5, NULL, 10) : 0;
    return pid > 0 && kill((pid_t)pid, 0) < 0 && errno == ESRCH;
}

static void list_file(struct lode_disk *d, int fd, uint64_t directory, const char *name) {
    struct stat st;
    XXH128_hash_t key;
    if (is_left_over(name))
        unlinkat(fd, name, 0);
    if (strlen(name) < 33 || !read_hex(name, &key.high64) || !read_hex(name + 16, &key.low64) ||
        name[32] != '.' || fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
        return;
    for (int kind = LODE_DISK_PAGES; kind < LODE_DISK_KINDS; kind++)
        if (strcmp(name + 33, suffixes[kind]) == 0)
            insert(d, directory, key, (enum lode_disk_kind)kind, (uint64_t)st.st_size,
                   (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec);
}

static DIR *open_list(int fd, const char *name) {
    const int sub = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *list = sub < 0 ? NULL : fdopendir(sub);
    if (sub >= 0 && !list)
        close(sub);
    return list;
}

static void list_all(struct lode_disk *d) {
    DIR *all = open_list(d->fd, ".");
    for (const struct dirent *e; all && (e = readdir(all));) {
        uint64_t directory;
        if (strlen(e->d_name) != 16 || !read_hex(e->d_name, &directory))
            continue;
        DIR *one = open_list(d->fd, e->d_name);
        for (const struct dirent *f; one && (f = readdir(one));)
            list_file(d, dirfd(one), directory, f->d_name);
        if (one)
            closedir(one);
    }
    if (all)
        closedir(all);
}

int lode_disk_open(struct lode_disk **out, const char *path, uint64_t max_bytes,
                   XXH128_hash_t identity, struct lode_error *err) {
    char name[MAX_NAME];
    *out = NULL;
    struct lode_disk *d = LODE_NEW(struct lode_disk);
    if (!d)
        return lode_fail_nomem(err, "prefixes on disk");
    d->identity = identity;
    d->own = identity.high64;
    d->max_bytes = max_bytes;
    d->unused = NONE;
    for (int i = 0; i < BUCKETS; i++)
        d->buckets[i] = NONE;
    if (mkdir(path, 0700) && errno != EEXIST)
        d->fd = -1;
    else
        d->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    snprintf(name, sizeof name, "%016" PRIx64, d->own);
    if (d->fd < 0 || (mkdirat(d->fd, name, 0700) && errno != EEXIST)) {
        const int e = errno;
        lode_disk_close(d);
        return lode_fail(err, LODE_ERR_IO, path, "cannot keep prefixes here: %s", strerror(e));
    }
    list_all(d);
    keep_bound(d);
    *out = d;
    return 0;
}

void lode_disk_close(struct lode_disk *d) {
    if (!d)
        return;
    if (d->fd >= 0)
        close(d->fd);
    lode_free(d->entries);
    lode_free(d);
}

/* ---- one file ---- */

uint64_t lode_disk_size(const struct lode_disk_entry *e) {
    uint64_t size = sizeof(struct header) + sizeof(XXH128_canonical_t);
    for (uint32_t i = 0; i < e->n_parts; i++)
        size += e->parts[i] ? e->sizes[i] : 0;
    return size;
}

static bool write_all(int fd, const void *bytes, size_t n) {
    for (const char *at = bytes; n > 0;) {
        const ssize_t some = write(fd, at, n);
        if (some < 0 && errno == EINTR)
            continue;
        if (some <= 0)
            return false;
        at += some;
        n -= (size_t)some;
    }
    return true;
}

static bool read_all(int fd, void *bytes, size_t n) {
    for (char *at = bytes; n > 0;) {
        const ssize_t some = read(fd, at, n);
        if (some < 0 && errno == EINTR)
            continue;
        if (some <= 0)
            return false;
        at += some;
        n -= (size_t)some;
    }
    return true;
}

static struct header header_of(const struct lode_disk *d, const struct lode_disk_entry *e) {
    struct header h = {.identity = d->identity, .key = e->key, .kind = e->kind, .n_parts = e->n_parts};
    memcpy(h.magic, magic, sizeof magic);
    memcpy(h.tokens, e->tokens, sizeof h.tokens);
    for (uint32_t i = 0; i < e->n_parts; i++)
        h.sizes[i] = e->parts[i] ? e->sizes[i] : 0;
    return h;
}

static bool write_file(int fd, const struct header *h, const struct lode_disk_entry *e) {
    XXH3_state_t sum;
    XXH128_canonical_t end;
    XXH3_128bits_reset(&sum);
    XXH3_128bits_update(&sum, h, sizeof *h);
    bool ok = write_all(fd, h, sizeof *h);
    for (uint32_t i = 0; ok && i < e->n_parts; i++) {
        if (!e->parts[i])
            continue;
        XXH3_128bits_update(&sum, e->parts[i], e->sizes[i]);
        ok = write_all(fd, e->parts[i], e->sizes[i]);
    }
    XXH128_canonicalFromHash(&end, XXH3_128bits_digest(&sum));
    return ok && write_all(fd, &end, sizeof end);
}

int lode_disk_write(const struct lode_disk *d, const struct lode_disk_entry *e) {
    char name[MAX_NAME], part[MAX_NAME];
    name_of(name, d->own, e->key, e->kind);
    snprintf(part, sizeof part, "%016" PRIx64 "/part-%ld-%016" PRIx64 "-%s", d->own, (long)getpid(),
             e->key.low64, suffixes[e->kind]);
    const int fd = openat(d->fd, part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return LODE_ERR_IO;
    const struct header h = header_of(d, e);
    bool ok = write_file(fd, &h, e);
    ok = close(fd) == 0 && ok;
    ok = ok && renameat(d->fd, part, d->fd, name) == 0;
    if (!ok)
        unlinkat(d->fd, part, 0);
    return ok ? 0 : LODE_ERR_IO;
}

/* Whether the file is what it claims, and its parts fit their places. */
static bool read_file(int fd, const struct header *want, struct lode_disk_entry *e,
                      void *const *places) {
    struct header h;
    XXH3_state_t sum;
    XXH128_canonical_t end;
    if (!read_all(fd, &h, sizeof h) || memcmp(h.magic, want->magic, sizeof h.magic) ||
        !XXH128_isEqual(h.identity, want->identity) || !XXH128_isEqual(h.key, want->key) ||
        h.kind != want->kind || h.n_parts != want->n_parts ||
        memcmp(h.tokens, want->tokens, sizeof h.tokens))
        return false;
    XXH3_128bits_reset(&sum);
    XXH3_128bits_update(&sum, &h, sizeof h);
    for (uint32_t i = 0; i < e->n_parts; i++) {
        e->parts[i] = h.sizes[i] ? places[i] : NULL;
        if (h.sizes[i] == 0)
            continue;
        if (h.sizes[i] != e->sizes[i] || !read_all(fd, places[i], e->sizes[i]))
            return false;
        XXH3_128bits_update(&sum, places[i], e->sizes[i]);
    }
    char beyond;
    return read_all(fd, &end, sizeof end) && read(fd, &beyond, 1) == 0 &&
           XXH128_isEqual(XXH3_128bits_digest(&sum), XXH128_hashFromCanonical(&end));
}

int lode_disk_read(struct lode_disk *d, struct lode_disk_entry *e, void *const *places) {
    char name[MAX_NAME];
    struct entry *listed = find(d, d->own, e->key, e->kind);
    if (!listed)
        return LODE_ERR_MISSING;
    name_of(name, d->own, e->key, e->kind);
    const int fd = openat(d->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) { /* another process may have removed it */
        forget(d, listed);
        return LODE_ERR_IO;
    }
    const struct header want = header_of(d, e);
    const bool ok = read_file(fd, &want, e, places);
    if (ok) { /* the order of use is found again by the next process */
        listed->used = now_ns();
        futimens(fd, NULL);
    } else {
        delete(d, listed);
        d->stats.corrupt++;
    }
    close(fd);
    return ok ? 0 : LODE_ERR_FORMAT;
}
