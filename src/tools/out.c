/* out.c - see out.h. */
#include "out.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* The temporary file that an interrupt has to remove; one at a time is all a verb needs. */
static char pending[4096];
static volatile sig_atomic_t has_pending;

static void on_fatal_signal(int sig) {
    if (has_pending)
        unlink(pending);
    signal(sig, SIG_DFL);
    raise(sig);
}

void out_init(void) {
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of the write */
    static const int fatal[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        if (signal(fatal[i], on_fatal_signal) == SIG_IGN)
            signal(fatal[i], SIG_IGN); /* nohup, and background jobs of a plain shell */
}

static int stdout_errno;

bool out_flush(void) {
    if (!stdout_errno) {
        errno = 0;
        if (fflush(stdout) || ferror(stdout))
            stdout_errno = errno ? errno : EIO;
    }
    return !stdout_errno;
}

int out_finish(int status) {
    bool ok = out_flush();
    if (ok && fclose(stdout)) {
        stdout_errno = errno;
        ok = stdout_errno == EBADF; /* started without a standard output: nothing was lost */
    }
    if (ok)
        return status;
    if (stdout_errno == EPIPE)
        fprintf(stderr, "lode: standard output was closed before everything was written\n");
    else
        fprintf(stderr, "lode: standard output cannot be written: %s\n", strerror(stdout_errno));
    return status ? status : 1;
}

bool out_is_terminal(FILE *f) {
    static signed char known[3] = {-1, -1, -1};
    const int fd = fileno(f);
    if (fd < 0 || fd > 2)
        return fd > 2 && isatty(fd);
    if (known[fd] < 0)
        known[fd] = (signed char)isatty(fd);
    return known[fd];
}

size_t out_columns(FILE *f) {
    struct winsize w;
    return out_is_terminal(f) && ioctl(fileno(f), TIOCGWINSZ, &w) == 0 && w.ws_col ? w.ws_col : SIZE_MAX;
}

static const char *escape(FILE *f, const char *sequence) {
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    if (!out_is_terminal(f) || (no_color && *no_color) || !term || !strcmp(term, "dumb"))
        return "";
    return sequence;
}

const char *out_bold(FILE *f) {
    return escape(f, "\033[1m");
}

const char *out_dim(FILE *f) {
    return escape(f, "\033[2m");
}

const char *out_red(FILE *f) {
    return escape(f, "\033[31m");
}

const char *out_green(FILE *f) {
    return escape(f, "\033[32m");
}

const char *out_plain(FILE *f) {
    return escape(f, "\033[0m");
}

int tool_fail(struct lode_error *err, int code, const char *where, const char *text, ...) {
    if (err) {
        va_list ap;
        err->code = code;
        snprintf(err->where, sizeof err->where, "%s", where ? where : "");
        va_start(ap, text);
        vsnprintf(err->text, sizeof err->text, text, ap);
        va_end(ap);
    }
    return code;
}

int tool_left_out(const char *verb, const char *library) {
    struct lode_error err;
    tool_fail(&err, LODE_ERR_UNSUPPORTED, verb,
              "left out of this build: it needs %s (scripts/packages.sh install build)", library);
    return tool_report(&err);
}

int tool_report(const struct lode_error *err) {
    fprintf(stderr, "%slode:%s %s%s%s\n", out_red(stderr), out_plain(stderr), err->where,
            err->where[0] ? ": " : "", err->text);
    return 1;
}

/* By its first bytes: GGUF's magic, or a size and the JSON of that size as safetensors begin. */
static bool is_model(const char *path, const struct stat *st) {
    unsigned char head[9] = {0};
    uint64_t size;
    const int fd = S_ISREG(st->st_mode) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return false;
    const bool whole = read(fd, head, sizeof head) == sizeof head;
    close(fd);
    memcpy(&size, head, sizeof size);
    return whole && (memcmp(head, "GGUF", 4) == 0 || (head[8] == '{' && size && size <= (uint64_t)st->st_size - 8));
}

/* A flag's argument left out makes of the model the file to write; it took hours to come. */
static int keep_model(const char *path, const struct stat *st, struct lode_error *err) {
    if (!is_model(path, st))
        return 0;
    return tool_fail(err, LODE_ERR_ARG, path, "is a model, and would be written over: name another file");
}

int out_may_write(const char *path, struct lode_error *err) {
    struct stat st;
    char dir[4096];
    if (!*path)
        return tool_fail(err, LODE_ERR_ARG, "output file", "its name is empty");
    const bool there = stat(path, &st) == 0;
    if (there && S_ISDIR(st.st_mode))
        return tool_fail(err, LODE_ERR_IO, path, "is a directory, not a file to write to");
    const char *slash = strrchr(path, '/');
    const int n = slash ? snprintf(dir, sizeof dir, "%.*s", (int)(slash - path + 1), path) : snprintf(dir, sizeof dir, ".");
    if (n < 0 || (size_t)n >= sizeof dir)
        return tool_fail(err, LODE_ERR_ARG, path, "the file name is too long");
    if (access(there ? path : dir, there ? W_OK : W_OK | X_OK) < 0)
        return tool_fail(err, LODE_ERR_IO, path, "cannot be written: %s", strerror(errno));
    return there ? keep_model(path, &st, err) : 0;
}

int outfile_folders(char *path, struct lode_error *err) {
    for (char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        const int failed = mkdir(path, 0700) && errno != EEXIST
                               ? tool_fail(err, LODE_ERR_IO, path, "cannot be made: %s", strerror(errno))
                               : 0;
        *at = '/';
        if (failed)
            return failed;
    }
    return 0;
}

int outfile_open(struct outfile *o, const char *path, struct lode_error *err) {
    struct stat st;
    *o = (struct outfile){.path = path};
    const bool there = stat(path, &st) == 0;
    if (there && keep_model(path, &st, err) < 0)
        return LODE_ERR_ARG;
    if (there && !S_ISREG(st.st_mode)) {
        if (S_ISDIR(st.st_mode))
            return tool_fail(err, LODE_ERR_IO, path, "is a directory, not a file to write to");
        o->f = fopen(path, "wb");
    } else {
        /* A link is written through: what it points at is what gets replaced. */
        char *real = realpath(path, NULL);
        const int n = snprintf(o->temporary, sizeof o->temporary, "%s.tmp-%ld", real ? real : path,
                               (long)getpid());
        free(real);
        if (n < 0 || (size_t)n >= sizeof o->temporary)
            return tool_fail(err, LODE_ERR_ARG, path, "the file name is too long");
        const int fd = open(o->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0) {
            memcpy(pending, o->temporary, sizeof pending);
            has_pending = 1;
            o->f = fdopen(fd, "wb");
        }
    }
    if (!o->f) {
        const int cause = errno;
        outfile_abandon(o);
        return tool_fail(err, LODE_ERR_IO, path, "cannot be written: %s", strerror(cause));
    }
    return 0;
}

bool outfile_write(struct outfile *o, const void *data, size_t size) {
    errno = 0;
    if (!o->cause && fwrite(data, 1, size, o->f) != size)
        o->cause = errno ? errno : EIO;
    return !o->cause;
}

int outfile_commit(struct outfile *o, struct lode_error *err) {
    errno = 0;
    bool bad = fflush(o->f) || ferror(o->f) || o->cause;
    int cause = o->cause ? o->cause : errno;
    if (fclose(o->f) && !bad) {
        bad = true;
        cause = errno;
    }
    o->f = NULL;
    if (!bad && o->temporary[0]) {
        char target[4096];
        /* the temporary name is the (resolved) target with a suffix */
        snprintf(target, sizeof target, "%s", o->temporary);
        *strrchr(target, '.') = 0;
        if (rename(o->temporary, target)) {
            bad = true;
            cause = errno;
        } else {
            has_pending = 0;
            o->temporary[0] = 0;
        }
    }
    if (!bad)
        return 0;
    outfile_abandon(o);
    return tool_fail(err, LODE_ERR_IO, o->path, "cannot be written: %s",
                     strerror(cause ? cause : EIO));
}

void outfile_abandon(struct outfile *o) {
    if (o->f)
        fclose(o->f);
    o->f = NULL;
    if (o->temporary[0]) {
        unlink(o->temporary);
        has_pending = 0;
    }
    o->temporary[0] = 0;
}

void out_json_string(FILE *f, const char *s) {
    fputc('"', f);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            fprintf(f, "\\%c", *s);
        else if ((unsigned char)*s < 0x20)
            fprintf(f, "\\u%04x", (unsigned char)*s);
        else
            fputc(*s, f);
    }
    fputc('"', f);
}
