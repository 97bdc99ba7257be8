/* line.c - see line.h. */
#include "line.h"

#include "interrupt.h"
#include "out.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#ifdef LODE_HAVE_LIBEDIT
#include <histedit.h>
#endif

struct line {
    char *plain; /* owned: the last line, without its newline; from a pipe, with what was read beyond it */
    size_t cap, held, taken; /* bytes: there are, read, and of those the last line's */
#ifdef LODE_HAVE_LIBEDIT
    EditLine *el; /* NULL: standard input is not a terminal */
    History *history;
    char history_path[1024]; /* "": nowhere */
    const char *prompt;
    const char *const *words;
#endif
};

/* Room for `size` bytes, and for some more. */
static bool has_room(struct line *l, size_t size) {
    if (size <= l->cap)
        return true;
    const size_t cap = size + size / 2 + 4096;
    char *more = realloc(l->plain, cap);
    if (more)
        l->plain = more, l->cap = cap;
    return more;
}
/* The line is the first n bytes, but for what ends it. */
static enum line_result line_of(struct line *l, size_t n, const char **text) {
    while (n > 0 && (l->plain[n - 1] == '\n' || l->plain[n - 1] == '\r'))
        n--;
    l->plain[n] = 0;
    *text = l->plain;
    return LINE_TEXT;
}

/* A line from a pipe, or from a terminal without libedit.  Not by stdio, whose reads a Ctrl+C that comes just before them would not end. */
static enum line_result read_plain(struct line *l, const char *prompt, const char **text) {
    if (out_is_terminal(stdin)) {
        fputs(prompt, stderr);
        fflush(stderr);
    }
    l->held -= l->taken;
    if (l->taken && l->held)
        memmove(l->plain, l->plain + l->taken, l->held);
    l->taken = 0;
    const char *end = NULL;
    for (size_t seen = 0; !(end = l->held > seen ? memchr(l->plain + seen, '\n', l->held - seen) : NULL);) {
        seen = l->held;
        if (!has_room(l, l->held + 2)) /* a byte and a NUL */
            return LINE_END;
        const ssize_t n = interrupt_wait(STDIN_FILENO) ? read(STDIN_FILENO, l->plain + l->held, l->cap - l->held - 1) : -1;
        if (n < 0 && errno == EINTR && interrupt_seen())
            return LINE_INTERRUPTED;
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0 && l->held == 0)
            return LINE_END;
        if (n <= 0)
            break; /* a last line without a newline */
        l->held += (size_t)n;
    }
    l->taken = end ? (size_t)(end - l->plain) + 1 : l->held;
    return line_of(l, l->taken, text);
}

#ifdef LODE_HAVE_LIBEDIT

enum { HISTORY_SIZE = 500 };

/* One character.  Ours, because libedit's own goes on reading after some signals and not after
 * others: Ctrl+C must end the line each time. */
static int get_character(EditLine *el, wchar_t *out) {
    mbstate_t state = {0};
    for (;;) {
        char byte;
        const ssize_t n = interrupt_wait(STDIN_FILENO) ? read(STDIN_FILENO, &byte, 1) : -1;
        if (n < 0 && errno == EINTR && !interrupt_seen()) {
            el_resize(el); /* the window changed its size */
            continue;
        }
        if (n <= 0)
            return (int)n;
        const size_t used = mbrtowc(out, &byte, 1, &state);
        if (used == (size_t)-1)
            state = (mbstate_t){0}; /* not UTF-8: begin anew with the next byte */
        else if (used != (size_t)-2)
            return 1;
    }
}

static char *get_prompt(EditLine *el) {
    static char shown[128];
    struct line *l;
    el_get(el, EL_CLIENTDATA, &l);
    FILE *f = out_is_terminal(stdout) ? stdout : stderr;
    /* \1 tells libedit that an escape sequence takes no room */
    if (*out_bold(f))
        snprintf(shown, sizeof shown, "\1%s\1%s\1%s\1", out_bold(f), l->prompt, out_plain(f));
    else
        snprintf(shown, sizeof shown, "%s", l->prompt);
    return shown;
}

/* Tab: completes the first word as far as the words that fit agree. */
static unsigned char complete(EditLine *el, int ch) {
    (void)ch;
    struct line *l;
    el_get(el, EL_CLIENTDATA, &l);
    const LineInfo *info = el_line(el);
    const size_t n = (size_t)(info->cursor - info->buffer);
    const char *found = NULL;
    size_t agree = 0;
    for (const char *const *w = l->words; w && *w; w++) {
        if (strncmp(*w, info->buffer, n))
            continue;
        if (!found) {
            found = *w;
            agree = strlen(*w);
        }
        for (size_t i = n; i < agree; i++)
            if (found[i] != (*w)[i])
                agree = i;
    }
    if (n == 0 || !found || agree == n)
        return CC_ERROR;
    char rest[64];
    snprintf(rest, sizeof rest, "%.*s", (int)(agree - n), found + n);
    return el_insertstr(el, rest) ? CC_ERROR : CC_REFRESH;
}

/* A terminal brackets what is pasted with \033[200~ and \033[201~ when asked to: so pasted lines
 * become one entry, and not one question each. */
static unsigned char paste(EditLine *el, int ch) {
    static const wchar_t end[] = L"\033[201~";
    (void)ch;
    size_t seen = 0; /* characters of `end` */
    wchar_t c[2] = {0};
    while (el_wgetc(el, c) == 1) {
        seen = c[0] == end[seen] ? seen + 1 : c[0] == end[0];
        if (!end[seen])
            break;
        if (seen)
            continue; /* an escape sequence is not text */
        if (c[0] == L'\r')
            c[0] = L'\n';
        if ((c[0] >= L' ' || c[0] == L'\n' || c[0] == L'\t') && el_winsertstr(el, c))
            return CC_REFRESH_BEEP;
    }
    return CC_REFRESH;
}

/* $XDG_STATE_HOME/lode/history, made private; "" where there is no home. */
static void find_history(char *path, size_t cap) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (state && *state == '/')
        n = snprintf(path, cap, "%s/lode", state);
    else if (home && *home == '/')
        n = snprintf(path, cap, "%s/.local/state/lode", home);
    if (n < 0 || (size_t)n + sizeof "/history" > cap) {
        *path = 0;
        return;
    }
    strcat(path, "/history");
    outfile_folders(path, NULL); /* without them no line is remembered */
}

static bool open_editor(struct line *l) {
    HistEvent ev;
    FILE *out = out_is_terminal(stdout) ? stdout : stderr;
    l->el = el_init("lode", stdin, out, stderr);
    l->history = history_init();
    if (!l->el || !l->history)
        return false;
    history(l->history, &ev, H_SETSIZE, HISTORY_SIZE);
    history(l->history, &ev, H_SETUNIQUE, 1);
    find_history(l->history_path, sizeof l->history_path);
    if (l->history_path[0])
        history(l->history, &ev, H_LOAD, l->history_path);
    el_set(l->el, EL_CLIENTDATA, l);
    el_set(l->el, EL_PROMPT_ESC, get_prompt, '\1');
    el_set(l->el, EL_EDITOR, "emacs");
    el_set(l->el, EL_HIST, history, l->history);
    el_set(l->el, EL_SIGNAL, 0); /* Ctrl+C is interrupt.c's */
    el_set(l->el, EL_GETCFN, get_character);
    /* the wide call: the other one leaks copies of the strings */
    el_wset(l->el, EL_ADDFN, L"lode-complete", L"complete a command", complete);
    el_set(l->el, EL_BIND, "^I", "lode-complete", NULL);
    el_wset(l->el, EL_ADDFN, L"lode-paste", L"insert pasted text", paste);
    el_set(l->el, EL_BIND, "\033[200~", "lode-paste", NULL);
    el_set(l->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_set(l->el, EL_BIND, "\033[1~", "ed-move-to-beg", NULL);
    el_set(l->el, EL_BIND, "\033[4~", "ed-move-to-end", NULL);
    el_set(l->el, EL_BIND, "\033[3~", "ed-delete-next-char", NULL);
    el_source(l->el, NULL); /* ~/.editrc */
    return true;
}

static enum line_result read_edited(struct line *l, const char *prompt, const char **text) {
    int n = 0;
    l->prompt = prompt;
    el_resize(l->el);
    errno = 0;
    fputs("\033[?2004h", out_is_terminal(stdout) ? stdout : stderr);
    const char *got = el_gets(l->el, &n);
    const int cause = errno;
    fputs("\033[?2004l", out_is_terminal(stdout) ? stdout : stderr);
    if (!got || n <= 0)
        return interrupt_seen() || cause == EINTR ? LINE_INTERRUPTED : LINE_END;
    if (!has_room(l, (size_t)n + 1))
        return LINE_END;
    memcpy(l->plain, got, (size_t)n);
    return line_of(l, (size_t)n, text);
}

#endif

struct line *line_open(const char *const *words) {
    struct line *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    /* libedit edits characters, so it must know that bytes are UTF-8; numbers stay as in C */
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8"))
        setlocale(LC_CTYPE, "C.UTF-8");
#ifdef LODE_HAVE_LIBEDIT
    l->words = words;
    if (out_is_terminal(stdin) && !open_editor(l)) {
        line_close(l);
        return NULL;
    }
#else
    (void)words;
#endif
    return l;
}

void line_close(struct line *l) {
    if (!l)
        return;
#ifdef LODE_HAVE_LIBEDIT
    HistEvent ev;
    if (l->history && l->history_path[0]) {
        const mode_t old = umask(0077); /* what was said is nobody else's business */
        history(l->history, &ev, H_SAVE, l->history_path);
        umask(old);
    }
    if (l->el)
        el_end(l->el);
    if (l->history)
        history_end(l->history);
#endif
    free(l->plain);
    free(l);
}

enum line_result line_read(struct line *l, const char *prompt, const char **text) {
#ifdef LODE_HAVE_LIBEDIT
    if (l->el)
        return read_edited(l, prompt, text);
#endif
    return read_plain(l, prompt, text);
}

void line_remember(struct line *l, const char *text) {
#ifdef LODE_HAVE_LIBEDIT
    HistEvent ev;
    if (l->history && *text && !strchr(text, '\n'))
        history(l->history, &ev, H_ENTER, text);
#else
    (void)l;
    (void)text;
#endif
}
