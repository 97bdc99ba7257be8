/* pack.c - lode/pack.h: writes what format/packed.h reads.
 *
 * The numbers go to weights.bin in units (a dense tensor, or an expert's record), in one fixed order.
 * A journal beside it says whose source they are and lists the checksums of the units that are on the
 * disk: a line is added only after the bytes that it speaks of were synchronised, so whatever ends the
 * process, the lines that are there can be believed and the next call goes on behind them.  The
 * manifest is written last and appears whole; with it the journal goes.
 */
#include "convert/parts.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/out_file.h"
#include "format/packed.h"
#include "lode/pack.h"
#include "text/tokenizer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#define JOURNAL "pack.journal"

enum { PIECE = 4 << 20, MOST_UNSYNCED = 64 << 20, SUM_LINE = 17 /* 16 digits and the end of the line */ };

struct packing {
    struct lode_convert *c; /* owned: source, tokenizer, keys */
    struct lode_packed_index index;
    const char *dir; /* borrowed */
    struct lode_buf path; /* of what is being done, for errors */
    int journal, weights; /* -1: not open */
    char *buffer;     /* owned; (PIECE) */
    struct lode_buf lines; /* sums that are not in the journal yet */
    uint64_t unsynced;     /* bytes behind them */
    uint64_t done;         /* bytes of units */
    uint64_t total;
    uint64_t fingerprint;
    struct lode_pack_info info;
    lode_progress_fn *progress;
    void *user;
};

static const char *path_of(struct packing *p, const char *name) {
    lode_buf_clear(&p->path);
    lode_buf_addf(&p->path, "%s/%s", p->dir, name);
    return p->path.data ? p->path.data : name;
}

static int fail_write(struct packing *p, const char *name, int cause, struct lode_error *err) {
    return lode_fail(err, LODE_ERR_IO, path_of(p, name),
                     cause == ENOSPC ? "the disk is full (%s): make room and run the same command "
                                       "again, it goes on where it stopped"
                                     : "it cannot be written: %s; the same command goes on where it "
                                       "stopped",
                     strerror(cause));
}

/* ---- units ---- */

static uint32_t n_units(const struct packing *p) {
    return p->info.n_dense + p->info.n_experts;
}

struct unit {
    const struct lode_packed_tensor *tensor; /* dense, or NULL */
    const struct lode_packed_records *records;
    uint32_t expert;
    uint64_t *sum, size;
};

/* Dense tensors in their order, then records in theirs. */
static struct unit unit_of(struct packing *p, uint32_t i) {
    for (uint32_t t = 0; i < p->info.n_dense && t < p->index.n_tensors; t++)
        if (!p->index.tensors[t].slice && i-- == 0)
            return (struct unit){.tensor = &p->index.tensors[t],
                                 .sum = &p->index.tensors[t].sum,
                                 .size = p->index.tensors[t].t.size};
    i -= p->info.n_dense;
    for (uint32_t r = 0; r < p->index.n_records; r++) {
        const struct lode_packed_records *l = &p->index.records[r];
        if (i < l->n)
            return (struct unit){.records = l,
                                 .expert = i,
                                 .sum = (uint64_t *)(uintptr_t)&l->sums[i],
                                 .size = l->size};
        i -= l->n;
    }
    return (struct unit){0};
}

static int write_at(struct packing *p, const void *data, size_t n, uint64_t at,
                    struct lode_error *err) {
    for (const char *from = data; n > 0;) {
        const ssize_t some = pwrite(p->weights, from, n, (off_t)at);
        if (some < 0 && errno == EINTR)
            continue;
        if (some <= 0)
            return fail_write(p, LODE_PACKED_WEIGHTS, some < 0 ? errno : ENOSPC, err);
        from += some;
        at += (uint64_t)some;
        n -= (size_t)some;
    }
    return 0;
}

/* `size` bytes of the source's tensor i from `offset` on to weights.bin, and into the sum. */
static int copy(struct packing *p, uint32_t i, size_t offset, size_t size, uint64_t at,
                XXH3_state_t *sum, struct lode_error *err) {
    const struct lode_gguf_tensor *t = p->c->steps[i].t;
    while (size > 0) {
        const size_t n = size < PIECE ? size : PIECE;
        const void *data = lode_source_data(p->c->source, t, offset, n);
        if (!data) {
            LODE_TRY(lode_source_read(p->c->source, t, offset, p->buffer, n, err));
            data = p->buffer;
        }
        XXH3_64bits_update(sum, data, n);
        LODE_TRY(write_at(p, data, n, at, err));
        offset += n;
        at += n;
        size -= n;
        p->done += n;
        if (p->progress && p->progress(p->user, "packing", p->done, p->total))
            return lode_fail(err, LODE_ERR_CANCELLED, p->dir,
                             "stopped; the same command goes on from here");
    }
    return lode_source_check(p->c->source, err);
}

static int write_unit(struct packing *p, struct unit u, XXH3_state_t *sum, struct lode_error *err) {
    static const char zeros[LODE_PACKED_SLICE];
    XXH3_64bits_reset(sum);
    if (u.tensor) {
        LODE_TRY(copy(p, (uint32_t)(u.tensor - p->index.tensors), 0, u.tensor->t.size, u.tensor->at,
                      sum, err));
    } else {
        const uint32_t which = (uint32_t)(u.records - p->index.records);
        uint64_t end = 0; /* in the record */
        for (uint32_t i = 0; i < p->index.n_tensors; i++) {
            const struct lode_packed_tensor *t = &p->index.tensors[i];
            if (!t->slice || t->records != which)
                continue;
            const uint64_t begin = t->at - u.records->at;
            XXH3_64bits_update(sum, zeros, (size_t)(begin - end)); /* holes read as zeros */
            LODE_TRY(copy(p, i, u.expert * t->slice, t->slice,
                          t->at + (uint64_t)u.expert * u.records->step, sum, err));
            end = begin + t->slice;
        }
    }
    *u.sum = XXH3_64bits_digest(sum);
    return 0;
}

/* ---- the journal ---- */

static int sync_journal(struct packing *p, struct lode_error *err) {
    if (fdatasync(p->weights) < 0)
        return fail_write(p, LODE_PACKED_WEIGHTS, errno, err);
    for (size_t at = 0; at < p->lines.len;) {
        const ssize_t n = write(p->journal, p->lines.data + at, p->lines.len - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return fail_write(p, JOURNAL, n < 0 ? errno : ENOSPC, err);
        at += (size_t)n;
    }
    lode_buf_clear(&p->lines);
    p->unsynced = 0;
    return fdatasync(p->journal) < 0 ? fail_write(p, JOURNAL, errno, err) : 0;
}

static bool parse_line(const char *line, uint64_t *out) {
    *out = 0;
    for (int i = 0; i < SUM_LINE - 1; i++) {
        const char c = line[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
        *out = *out << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return line[SUM_LINE - 1] == '\n';
}

/* The room of everything is there before the first line is: without it somebody took the file away, or cut it. */
static bool has_room(const struct packing *p) {
    struct stat st;
    return fstat(p->weights, &st) == 0 && (uint64_t)st.st_size >= p->index.size;
}

/* How many units an earlier call has on the disk: whole lines, the first of which is ours. */
static int read_journal(struct packing *p, uint32_t *n_done, struct lode_error *err) {
    char line[SUM_LINE];
    uint64_t value;
    uint32_t n = 0;
    *n_done = 0;
    if (has_room(p) && pread(p->journal, line, SUM_LINE, 0) == SUM_LINE && parse_line(line, &value) &&
        value == p->fingerprint)
        while (n < n_units(p) &&
               pread(p->journal, line, SUM_LINE, (off_t)(n + 1) * SUM_LINE) == SUM_LINE &&
               parse_line(line, &value)) {
            const struct unit u = unit_of(p, n++);
            *u.sum = value;
            p->done += u.size;
        }
    p->info.kept = p->done;
    *n_done = n;
    const off_t end = p->done || n ? (off_t)(n + 1) * SUM_LINE : 0;
    if (ftruncate(p->journal, end) < 0 || lseek(p->journal, 0, SEEK_END) < 0)
        return fail_write(p, JOURNAL, errno, err);
    if (end == 0 && !lode_buf_addf(&p->lines, "%016" PRIx64 "\n", p->fingerprint))
        return lode_fail_nomem(err, JOURNAL);
    return 0;
}

/* ---- files ---- */

static int open_here(struct packing *p, const char *name, int *fd, struct lode_error *err) {
    *fd = open(path_of(p, name), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    return *fd < 0 ? fail_write(p, name, errno, err) : 0;
}

/* Room for everything, asked for now: a disk that is too small is an error before the work. */
static int reserve(struct packing *p, struct lode_error *err) {
    if (fallocate(p->weights, 0, 0, (off_t)p->index.size) == 0)
        return 0;
    if (errno == ENOSPC) {
        const bool large = p->index.size >= 1000000000;
        const double unit = large ? 1e9 : 1e6;
        struct statvfs v = {0};
        fstatvfs(p->weights, &v);
        return lode_fail(err, LODE_ERR_IO, path_of(p, LODE_PACKED_WEIGHTS),
                         "the packed model takes %.1f %s, and the disk has %.1f left: make room, or name another place",
                         (double)p->index.size / unit, large ? "GB" : "MB",
                         (double)v.f_bavail * (double)v.f_frsize / unit);
    }
    /* a file system that sets no room aside: it ends where it ends */
    return ftruncate(p->weights, (off_t)p->index.size) < 0
               ? fail_write(p, LODE_PACKED_WEIGHTS, errno, err)
               : 0;
}

static int sync_dir(struct packing *p, struct lode_error *err) {
    const int fd = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int rc = fd < 0 || fsync(fd) < 0 ? fail_write(p, "", errno, err) : 0;
    if (fd >= 0)
        close(fd);
    return rc;
}

/* What a packed model's directory may have: its files, whole or in part, and what file systems and desktops
 * leave in any. */
static bool is_ours(const char *name) {
    static const char *const names[] = {LODE_PACKED_MANIFEST, LODE_PACKED_KEYS, LODE_PACKED_WEIGHTS, JOURNAL,
                                        "lost+found", "."};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(name, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

/* A directory of something else is left alone: beside weights.bin a model of another kind would not be found
 * again. */
static int check_dir(const struct packing *p, struct lode_error *err) {
    DIR *d = opendir(p->dir);
    int rc = 0;
    if (!d)
        return lode_fail(err, LODE_ERR_IO, p->dir, "the directory cannot be opened: %s", strerror(errno));
    for (struct dirent *e; rc == 0 && (e = readdir(d));)
        if (!is_ours(e->d_name))
            rc = lode_fail(err, LODE_ERR_ARG, p->dir,
                           "it holds something else (%.100s): name a directory that is new, or empty", e->d_name);
    closedir(d);
    return rc;
}

static int open_files(struct packing *p, struct lode_error *err) {
    if (mkdir(p->dir, 0777) < 0 && errno != EEXIST)
        return lode_fail(err, LODE_ERR_IO, p->dir, "the directory cannot be made: %s",
                         strerror(errno));
    LODE_TRY(check_dir(p, err));
    LODE_TRY(open_here(p, JOURNAL, &p->journal, err));
    if (flock(p->journal, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
        return lode_fail(err, LODE_ERR_IO, p->dir, "another process is packing into it now");
    return open_here(p, LODE_PACKED_WEIGHTS, &p->weights, err);
}

static int write_manifest(struct packing *p, struct lode_error *err) {
    struct lode_buf text = {0};
    if (!lode_packed_print(&p->index, &text) || text.failed) {
        lode_buf_free(&text);
        return lode_fail_nomem(err, LODE_PACKED_MANIFEST);
    }
    const int rc = lode_out_whole(path_of(p, LODE_PACKED_MANIFEST), text.data, text.len, err);
    lode_buf_free(&text);
    return rc;
}

static int write_keys(struct packing *p, struct lode_error *err) {
    struct lode_in_file f;
    LODE_TRY(lode_gguf_writer_begin(p->c->writer, path_of(p, LODE_PACKED_KEYS), err));
    LODE_TRY(lode_gguf_writer_commit(p->c->writer, err));
    int rc = lode_in_open(&f, path_of(p, LODE_PACKED_KEYS), err);
    if (rc == 0)
        rc = lode_packed_sum(&f, &p->index.keys_sum, err);
    lode_in_close(&f);
    return rc;
}

/* ---- the whole ---- */

/* What is packed: the source's tensors and keys as they will lie. */
static int describe(struct packing *p, struct lode_error *err) {
    struct lode_convert *c = p->c;
    struct lode_packed_index *x = &p->index;
    const struct lode_convert_opts none = {0};
    if (c->source->n_tensors == 0 || c->source->n_tensors > LODE_PACKED_MAX_TENSORS)
        return lode_fail(err, LODE_ERR_UNSUPPORTED, c->source->path, "it has no weights to pack");
    x->n_tensors = (uint32_t)c->source->n_tensors;
    x->tensors = LODE_ARENA_ARRAY(&x->arena, struct lode_packed_tensor, x->n_tensors);
    c->steps = LODE_ARENA_ARRAY(&c->arena, struct lode_convert_step, x->n_tensors);
    if (!x->tensors || !c->steps)
        return lode_fail_nomem(err, "list of tensors");
    x->half_order = c->source->half_order;
    x->source = c->source->path;
    for (uint32_t i = 0; i < x->n_tensors; i++) {
        const struct lode_gguf_tensor *t = &c->source->tensors[i];
        if (lode_source_order(c->source, t))
            return lode_fail(err, LODE_ERR_UNSUPPORTED, t->name,
                             "its columns are in another order (desc_act), which a packed model "
                             "cannot say: lode convert first, then pack the result");
        c->steps[i] = (struct lode_convert_step){.t = t, .to = t->type};
        x->tensors[i].t = *t;
    }
    LODE_TRY(lode_packed_lay_out(x, err));
    for (uint32_t i = 0; i < x->n_tensors; i++) {
        p->info.n_dense += !x->tensors[i].slice;
        p->total += x->tensors[i].t.size;
    }
    for (uint32_t i = 0; i < x->n_records; i++) {
        p->info.n_experts += x->records[i].n;
        if (x->records[i].size > p->info.expert_size)
            p->info.expert_size = x->records[i].size;
    }
    p->info.size = x->size;
    return lode_convert_keys(c, &none, err);
}

/* Of the layout and the keys, and of the source's files as the system knows them: another source, or
 * one that was changed, starts over. */
static int take_fingerprint(struct packing *p, struct lode_error *err) {
    struct lode_buf b = {0};
    const struct lode_source *s = p->c->source;
    lode_packed_print(&p->index, &b);
    const int rc = lode_gguf_writer_header(p->c->writer, &b, err);
    for (size_t i = 0; rc == 0 && i < s->n_files; i++) {
        const struct lode_in_file *f = lode_source_file(s, i);
        struct stat st = {0};
        if (f && f->fd >= 0)
            fstat(f->fd, &st);
        /* the inode: another file with this one's name, size and time, as copying may keep them */
        lode_buf_addf(&b, "%llu %lld %lld.%09ld\n", (unsigned long long)st.st_ino, (long long)st.st_size,
                      (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    }
    if (rc == 0 && b.failed) {
        lode_buf_free(&b);
        return lode_fail_nomem(err, "manifest");
    }
    p->fingerprint = rc == 0 ? XXH3_64bits(b.data, b.len) : 0;
    lode_buf_free(&b);
    return rc;
}

static int open_source(struct packing *p, const char *source, struct lode_error *err) {
    struct lode_convert *c = p->c = LODE_NEW(struct lode_convert);
    if (!c)
        return lode_fail_nomem(err, source);
    LODE_TRY(lode_source_open(&c->source, source, true, err));
    if (lode_packed_index_of(c->source))
        return lode_fail(err, LODE_ERR_ARG, source, "it is packed already");
    if (!c->source->gguf) {
        const int rc = lode_tokenizer_load(&c->tokenizer, c->source->path, err);
        if (rc < 0 && rc != LODE_ERR_MISSING)
            return rc;
    }
    LODE_TRY(lode_gguf_writer_create(&c->writer, err));
    LODE_TRY(describe(p, err));
    return take_fingerprint(p, err);
}

static int write_all(struct packing *p, struct lode_error *err) {
    uint32_t i = 0;
    XXH3_state_t *sum = XXH3_createState();
    p->buffer = lode_alloc(PIECE, 1);
    int rc = sum && p->buffer ? read_journal(p, &i, err) : lode_fail_nomem(err, "packing");
    if (rc == 0 && i < n_units(p))
        rc = reserve(p, err);
    for (; rc == 0 && i < n_units(p); i++) {
        const struct unit u = unit_of(p, i);
        rc = write_unit(p, u, sum, err);
        if (rc == 0 && !lode_buf_addf(&p->lines, "%016" PRIx64 "\n", *u.sum))
            rc = lode_fail_nomem(err, JOURNAL);
        p->unsynced += u.size;
        if (rc == 0 && p->unsynced >= (p->total / 16 < MOST_UNSYNCED ? p->total / 16 : MOST_UNSYNCED))
            rc = sync_journal(p, err);
    }
    if (rc == LODE_ERR_CANCELLED || rc == 0) {
        struct lode_error later;
        const int synced = sync_journal(p, rc == 0 ? err : &later);
        rc = rc == 0 ? synced : rc;
    }
    XXH3_freeState(sum);
    return rc;
}

static int pack(struct packing *p, const char *source, struct lode_error *err) {
    LODE_TRY(open_source(p, source, err));
    if (lode_packed_is(p->dir))
        return lode_fail(err, LODE_ERR_ARG, p->dir,
                         "it holds a packed model already: remove it, or name another directory");
    LODE_TRY(open_files(p, err));
    LODE_TRY(write_all(p, err));
    LODE_TRY(write_keys(p, err));
    LODE_TRY(write_manifest(p, err));
    (void)unlink(path_of(p, JOURNAL));
    return sync_dir(p, err);
}

int lode_pack(const char *source, const char *dir, lode_progress_fn *progress, void *user,
              struct lode_pack_info *info, struct lode_error *err) {
    struct packing p = {.dir = dir, .journal = -1, .weights = -1, .progress = progress, .user = user};
    const int rc = pack(&p, source, err);
    if (info)
        *info = p.info;
    if (p.journal >= 0)
        close(p.journal);
    if (p.weights >= 0)
        close(p.weights);
    lode_convert_close(p.c);
    lode_packed_deinit(&p.index);
    lode_buf_free(&p.path);
    lode_buf_free(&p.lines);
    lode_free(p.buffer);
    return rc;
}

/* ---- checking ---- */

struct checking {
    const struct lode_source *source;
    char *buffer; /* (PIECE) */
    uint64_t done, total;
    lode_progress_fn *progress;
    void *user;
};

/* Whether [at, at + size) of the file has this sum. */
static int check_range(struct checking *c, const struct lode_in_file *f, uint64_t at, uint64_t size,
                       uint64_t expected, const char *what, struct lode_error *err) {
    XXH3_state_t *sum = XXH3_createState();
    int rc = sum ? 0 : lode_fail_nomem(err, "checksum");
    if (sum)
        XXH3_64bits_reset(sum);
    for (uint64_t i = 0; rc == 0 && i < size;) {
        const size_t n = size - i < PIECE ? (size_t)(size - i) : PIECE;
        rc = lode_in_read(f, at + i, c->buffer, n, err);
        if (rc == 0)
            XXH3_64bits_update(sum, c->buffer, n);
        i += n;
        c->done += n;
        if (rc == 0 && c->progress && c->progress(c->user, "checking", c->done, c->total))
            rc = lode_fail(err, LODE_ERR_CANCELLED, f->path, "stopped");
    }
    if (rc == 0 && XXH3_64bits_digest(sum) != expected)
        rc = lode_fail(err, LODE_ERR_IO, f->path,
                       "%s at byte %" PRIu64 " is damaged: its checksum is not the one in the "
                       "manifest; pack the model again",
                       what, at);
    XXH3_freeState(sum);
    return rc;
}

static int check_all(struct checking *c, const struct lode_packed_index *x,
                     const struct lode_in_file *f, struct lode_pack_info *info,
                     struct lode_error *err) {
    char what[LODE_GGUF_MAX_NAME + 32];
    for (uint32_t i = 0; i < x->n_tensors; i++) {
        const struct lode_packed_tensor *t = &x->tensors[i];
        if (t->slice)
            continue;
        snprintf(what, sizeof what, "tensor %s", t->t.name);
        LODE_TRY(check_range(c, f, t->at, t->t.size, t->sum, what, err));
        info->n_dense++;
    }
    for (uint32_t i = 0; i < x->n_records; i++)
        for (uint32_t e = 0; e < x->records[i].n; e++) {
            const struct lode_packed_records *r = &x->records[i];
            snprintf(what, sizeof what, "expert %u of layer %u", e, r->layer);
            LODE_TRY(check_range(c, f, r->at + (uint64_t)e * r->step, r->size, r->sums[e], what, err));
            info->n_experts++;
            info->expert_size = r->size > info->expert_size ? r->size : info->expert_size;
        }
    return 0;
}

int lode_pack_check(const char *dir, lode_progress_fn *progress, void *user,
                    struct lode_pack_info *info, struct lode_error *err) {
    struct lode_source *source;
    struct lode_pack_info own;
    struct lode_in_file f = {.fd = -1};
    struct lode_buf path = {0};
    info = info ? info : &own;
    *info = (struct lode_pack_info){0};
    LODE_TRY(lode_source_open(&source, dir, false, err));
    const struct lode_packed_index *x = lode_packed_index_of(source);
    struct checking c = {.source = source, .progress = progress, .user = user};
    c.buffer = lode_alloc(PIECE, 1);
    lode_buf_addf(&path, "%s/%s", source->path, LODE_PACKED_WEIGHTS);
    int rc = !x ? lode_fail(err, LODE_ERR_ARG, dir, "this is no packed model")
             : c.buffer && path.data ? lode_in_open(&f, path.data, err)
                                     : lode_fail_nomem(err, dir);
    if (rc == 0) {
        c.total = info->size = x->size;
        rc = check_all(&c, x, &f, info, err);
    }
    lode_in_close(&f);
    lode_buf_free(&path);
    lode_free(c.buffer);
    lode_source_close(source);
    return rc;
}
