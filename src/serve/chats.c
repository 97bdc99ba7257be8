/* chats.c - see chats.h. */
#include "serve/chats.h"

#include "base/error.h"
#include "serve/chats_file.h"
#include "serve/fields.h"
#include "serve/needle.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    MAX_ID = 64,
    MAX_ROLE = 32,
    MAX_REST = 64 << 10 /* of a chat */,
    SEARCH_MS = 2000,
};

#define STATEMENTS(X)                                                                              \
    X(LIST, "SELECT id, title, created, updated, n_messages, bytes FROM chats"                     \
            " ORDER BY updated DESC, id LIMIT -1 OFFSET ?1")                                       \
    X(TEXTS, "SELECT content FROM messages WHERE chat = ?1 ORDER BY n")                            \
    X(CHAT, "SELECT title, created, updated, head, rest, bytes FROM chats WHERE id = ?1")          \
    X(MESSAGES, "SELECT id, parent, role, content, rest FROM messages WHERE chat = ?1 ORDER BY n") \
    X(ADD, "INSERT INTO chats(" CHATS_COLUMNS ") VALUES(?1, '', ?2, ?2, NULL, 0, 0, '{}')")        \
    X(CHANGE,                                                                                      \
      "UPDATE chats SET title = coalesce(?2, title), created = coalesce(?3, created),"             \
      " updated = ?4, head = coalesce(?5, head), rest = iif(?6 = '{}', rest, ?6) WHERE id = ?1")   \
    X(PUT, "INSERT INTO messages(" MESSAGES_COLUMNS ") VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)"         \
           " ON CONFLICT(chat, id) DO UPDATE SET parent = excluded.parent, role = excluded.role,"  \
           " size = excluded.size, rest = excluded.rest, content = excluded.content")              \
    X(COUNT, "UPDATE chats SET (n_messages, bytes) = (SELECT count(*), coalesce(sum(size), 0)"     \
             " FROM messages WHERE chat = ?1) WHERE id = ?1 RETURNING n_messages, bytes")          \
    X(DELETE, "DELETE FROM chats WHERE id = ?1")

enum statement {
#define STATEMENT_ENUM(name, sql) ST_##name,
    STATEMENTS(STATEMENT_ENUM)
#undef STATEMENT_ENUM
        N_STATEMENTS
};

static const char *const sql_of[] = {
#define STATEMENT_SQL(name, sql) sql,
    STATEMENTS(STATEMENT_SQL)
#undef STATEMENT_SQL
};

struct chats {
    pthread_mutex_t mutex; /* over all that follows */
    struct chats_file file;
    sqlite3_stmt *statements[N_STATEMENTS]; /* prepared at first use */
};

int chats_create(struct chats **out, const char *path, uint64_t max_bytes, struct lode_error *err) {
    struct chats *c = calloc(1, sizeof *c);
    *out = NULL;
    if (c)
        c->file = (struct chats_file){
            .path = strdup(path), .max_bytes = max_bytes ? max_bytes : 1U << 30, .lock = -1};
    if (!c || !c->file.path) {
        free(c);
        return lode_fail(err, LODE_ERR_NOMEM, "chats", "out of memory");
    }
    pthread_mutex_init(&c->mutex, NULL);
    *out = c;
    return 0;
}

static void drop_statements(struct chats *c) {
    for (size_t i = 0; i < N_STATEMENTS; i++) {
        sqlite3_finalize(c->statements[i]);
        c->statements[i] = NULL;
    }
}

void chats_free(struct chats *c) {
    if (!c)
        return;
    drop_statements(c);
    chats_file_close(&c->file);
    pthread_mutex_destroy(&c->mutex);
    free(c->file.path);
    free(c);
}

static int open_locked(struct chats *c, struct lode_error *err) {
    if (!c->file.db) /* closed because it is damaged: its statements hold it open */
        drop_statements(c);
    return chats_file_open(&c->file, err);
}

static int fail(struct chats *c, int rc, struct lode_error *err) {
    return chats_file_fail(&c->file, rc, err);
}

static int prepare(struct chats *c, enum statement i, sqlite3_stmt **out, struct lode_error *err) {
    *out = NULL;
    if (!c->statements[i]) {
        const int rc = sqlite3_prepare_v3(c->file.db, sql_of[i], -1, SQLITE_PREPARE_PERSISTENT,
                                          &c->statements[i], NULL);
        if (rc != SQLITE_OK)
            return fail(c, rc, err);
    }
    *out = c->statements[i];
    return 0;
}

/* Ends a statement's run; rc: of its last step. */
static int done(struct chats *c, sqlite3_stmt *st, int rc, struct lode_error *err) {
    const int status =
        rc == SQLITE_DONE || rc == SQLITE_ROW || rc == SQLITE_OK ? 0 : fail(c, rc, err);
    sqlite3_reset(st);
    sqlite3_clear_bindings(st);
    return status;
}

/* One that gives no rows. */
static int step(struct chats *c, sqlite3_stmt *st, int bound, struct lode_error *err) {
    return done(c, st, bound == SQLITE_OK ? sqlite3_step(st) : bound, err);
}

static int bind_text(sqlite3_stmt *st, int i, const char *text, size_t len) {
    return text ? sqlite3_bind_text64(st, i, text, len, SQLITE_STATIC, SQLITE_UTF8)
                : sqlite3_bind_null(st, i);
}

static const char *column(sqlite3_stmt *st, int i) {
    const char *s = (const char *)sqlite3_column_text(st, i);
    return s ? s : "";
}

static int64_t now_ms(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- JSON out ---- */

static void add_string(struct lode_buf *b, const char *s, size_t n) {
    lode_buf_addc(b, '"');
    for (size_t i = 0, from = 0; i <= n; i++) {
        const unsigned char ch = i < n ? (unsigned char)s[i] : '"';
        if (ch >= 0x20 && ch != '"' && ch != '\\')
            continue;
        lode_buf_add(b, s + from, i - from);
        from = i + 1;
        if (i < n && ch < 0x20)
            lode_buf_addf(b, "\\u%04x", ch);
        else if (i < n)
            lode_buf_addf(b, "\\%c", ch);
    }
    lode_buf_addc(b, '"');
}

/* "name":"text", or null where the column is. */
static void add_column(struct lode_buf *b, const char *name, sqlite3_stmt *st, int i) {
    const char *s = (const char *)sqlite3_column_text(st, i);
    lode_buf_addf(b, "\"%s\":", name);
    if (s)
        add_string(b, s, (size_t)sqlite3_column_bytes(st, i));
    else
        lode_buf_addz(b, "null");
}

/* The members of a stored object, behind a comma. */
static void add_rest(struct lode_buf *b, sqlite3_stmt *st, int i) {
    const char *s = column(st, i);
    const size_t n = (size_t)sqlite3_column_bytes(st, i);
    if (n > 2) {
        lode_buf_addc(b, ',');
        lode_buf_add(b, s + 1, n - 2);
    }
}

/* ---- search ---- */

/* Whether a message of the chat has it; the first that does is the snippet's. */
static int search_messages(struct chats *c, const char *chat, const struct needle *w,
                           struct lode_buf *snippet, bool *found, struct lode_error *err) {
    sqlite3_stmt *st;
    size_t covers;
    int rc = SQLITE_DONE;
    LODE_TRY(prepare(c, ST_TEXTS, &st, err));
    bind_text(st, 1, chat, strlen(chat));
    while (!*found && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        const char *text = column(st, 0);
        const size_t n = (size_t)sqlite3_column_bytes(st, 0), at = needle_find(w, text, n, &covers);
        *found = at < n;
        if (*found)
            needle_snippet(snippet, text, n, at, covers);
    }
    return done(c, st, rc, err);
}

/* ---- the list ---- */

static void add_entry(struct lode_buf *out, sqlite3_stmt *st, const struct lode_buf *snippet,
                      bool first) {
    lode_buf_addz(out, first ? "{" : ",{");
    add_column(out, "id", st, 0);
    lode_buf_addc(out, ',');
    add_column(out, "title", st, 1);
    lode_buf_addf(
        out, ",\"created\":%lld,\"updated\":%lld,\"n_messages\":%lld,\"bytes\":%lld,\"snippet\":",
        (long long)sqlite3_column_int64(st, 2), (long long)sqlite3_column_int64(st, 3),
        (long long)sqlite3_column_int64(st, 4), (long long)sqlite3_column_int64(st, 5));
    add_string(out, lode_buf_str(snippet).data, snippet->len);
    lode_buf_addc(out, '}');
}

static int list_locked(struct chats *c, const struct chats_query *q, const struct needle *w,
                       struct lode_buf *out, struct lode_error *err) {
    const int64_t end = now_ms(CLOCK_MONOTONIC) + SEARCH_MS;
    const uint32_t limit = q->limit ? q->limit : 100;
    uint32_t skip = w->n ? q->offset : 0, n = 0;
    bool more = false, partial = false;
    struct lode_buf snippet = {0};
    sqlite3_stmt *st;
    int rc = SQLITE_DONE, status = 0;
    LODE_TRY(prepare(c, ST_LIST, &st, err));
    sqlite3_bind_int64(st, 1, w->n ? 0 : q->offset);
    lode_buf_addz(out, "{\"chats\":[");
    while (status == 0 && !more && !partial && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        size_t covers;
        const char *title = column(st, 1);
        const size_t len = (size_t)sqlite3_column_bytes(st, 1);
        bool found = !w->n || needle_find(w, title, len, &covers) < len;
        lode_buf_clear(&snippet);
        if (!found)
            status = search_messages(c, column(st, 0), w, &snippet, &found, err);
        partial = w->n && now_ms(CLOCK_MONOTONIC) > end;
        if (!found || status < 0)
            continue;
        if (skip) {
            skip--;
        } else if (n == limit) {
            more = true;
        } else {
            add_entry(out, st, &snippet, n++ == 0);
        }
    }
    if (status == 0)
        status = done(c, st, rc, err);
    else
        sqlite3_reset(st);
    lode_buf_addf(out, "],\"more\":%s,\"partial\":%s}", more ? "true" : "false",
                  partial ? "true" : "false");
    lode_buf_free(&snippet);
    return status;
}

/* ---- one chat ---- */

static int get_locked(struct chats *c, const char *id, struct lode_buf *out,
                      struct lode_error *err) {
    sqlite3_stmt *st;
    LODE_TRY(prepare(c, ST_CHAT, &st, err));
    bind_text(st, 1, id, strlen(id));
    int rc = sqlite3_step(st);
    if (rc == SQLITE_DONE) {
        sqlite3_reset(st);
        return lode_fail(err, LODE_ERR_MISSING, "id", "there is no chat \"%.64s\"", id);
    }
    if (rc == SQLITE_ROW) {
        lode_buf_reserve(out, (size_t)sqlite3_column_int64(st, 5) + 1024);
        lode_buf_addf(out, "{\"id\":\"%s\",", id); /* ids need no escapes */
        add_column(out, "title", st, 0);
        lode_buf_addf(out, ",\"created\":%lld,\"updated\":%lld,",
                      (long long)sqlite3_column_int64(st, 1),
                      (long long)sqlite3_column_int64(st, 2));
        add_column(out, "head", st, 3);
        add_rest(out, st, 4);
    }
    LODE_TRY(done(c, st, rc, err));
    LODE_TRY(prepare(c, ST_MESSAGES, &st, err));
    bind_text(st, 1, id, strlen(id));
    lode_buf_addz(out, ",\"messages\":[");
    for (bool first = true; (rc = sqlite3_step(st)) == SQLITE_ROW; first = false) {
        static const char *const names[] = {"id", "parent", "role", "content"};
        for (int i = 0; i < 4; i++) {
            lode_buf_addz(out, i ? "," : first ? "{" : ",{");
            add_column(out, names[i], st, i);
        }
        add_rest(out, st, 4);
        lode_buf_addc(out, '}');
    }
    lode_buf_addz(out, "]}");
    return done(c, st, rc, err);
}

static bool is_id(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') ||
              (s[i] >= '0' && s[i] <= '9') || s[i] == '-' || s[i] == '_'))
            return false;
    return n >= 1 && n <= MAX_ID;
}

static int read_id(const json_t *body, const char *name, const char **out, struct lode_error *err) {
    LODE_TRY(field_string(body, name, out, err));
    if (*out && !is_id(*out, strlen(*out)))
        return field_fail(err, name, "1 to %d letters, digits, - or _ expected", MAX_ID);
    return 0;
}

/* The fields but for these, as text; NULL without memory.  free() */
static char *dump_rest(const json_t *body, const char *const *taken, size_t n_taken) {
    json_t *rest = json_copy((json_t *)body); /* the members are shared, not copied */
    for (size_t i = 0; rest && i < n_taken; i++)
        json_object_del(rest, taken[i]);
    char *text = rest ? json_text(rest) : NULL;
    json_decref(rest);
    return text;
}

static int put_message(struct chats *c, const char *chat, const json_t *m, struct lode_error *err) {
    static const char *const taken[] = {"id", "parent", "role", "content"};
    const char *id = NULL, *parent = NULL, *role = NULL, *content = NULL;
    sqlite3_stmt *st;
    if (!json_is_object(m))
        return field_fail(err, "messages", "a list of objects expected");
    LODE_TRY(read_id(m, "id", &id, err));
    LODE_TRY(read_id(m, "parent", &parent, err));
    LODE_TRY(field_string(m, "role", &role, err));
    LODE_TRY(field_string(m, "content", &content, err));
    if (!id || !role || strlen(role) > MAX_ROLE)
        return field_fail(err, id ? "role" : "id", "a short text expected in every message");
    LODE_TRY(prepare(c, ST_PUT, &st, err));
    char *rest = dump_rest(m, taken, sizeof taken / sizeof *taken);
    if (!rest)
        return lode_fail(err, LODE_ERR_NOMEM, "chats", "out of memory");
    const size_t n_rest = strlen(rest), n = json_string_length(json_object_get(m, "content"));
    int status;
    if (n + n_rest > CHATS_MAX_MESSAGE) {
        status =
            lode_fail(err, LODE_ERR_LIMIT, "messages",
                      "a message of %zu bytes; at most %d are kept", n + n_rest, CHATS_MAX_MESSAGE);
    } else {
        int rc = bind_text(st, 1, chat, strlen(chat));
        rc |= bind_text(st, 2, id, strlen(id));
        rc |= bind_text(st, 3, parent, parent ? strlen(parent) : 0);
        rc |= bind_text(st, 4, role, strlen(role));
        rc |= sqlite3_bind_int64(st, 5, (sqlite3_int64)(n + n_rest));
        rc |= bind_text(st, 6, rest, n_rest);
        rc |= bind_text(st, 7, content, n);
        status = step(c, st, rc ? SQLITE_NOMEM : SQLITE_OK, err);
    }
    free(rest);
    return status;
}

static int bind_time(sqlite3_stmt *st, int i, int64_t t) {
    return t < 0 ? sqlite3_bind_null(st, i) : sqlite3_bind_int64(st, i, t);
}

static int change_chat(struct chats *c, const char *id, const json_t *body,
                       struct lode_error *err) {
    static const char *const taken[] = {"id",   "title",    "created", "updated",
                                        "head", "messages", "new"};
    const int64_t latest = INT64_C(1) << 52;
    const char *title = NULL, *head = NULL;
    int64_t created = -1, updated = now_ms(CLOCK_REALTIME);
    sqlite3_stmt *st;
    LODE_TRY(field_string(body, "title", &title, err));
    LODE_TRY(read_id(body, "head", &head, err));
    LODE_TRY(field_int(body, "created", 0, latest, &created, err));
    LODE_TRY(field_int(body, "updated", 0, latest, &updated, err));
    if (title && strlen(title) > CHATS_MAX_TITLE)
        return field_fail(err, "title", "at most %d bytes expected", CHATS_MAX_TITLE);
    LODE_TRY(prepare(c, ST_CHANGE, &st, err));
    char *rest = dump_rest(body, taken, sizeof taken / sizeof *taken);
    if (!rest)
        return lode_fail(err, LODE_ERR_NOMEM, "chats", "out of memory");
    int status;
    if (strlen(rest) > MAX_REST) {
        status = lode_fail(err, LODE_ERR_LIMIT, "settings",
                           "%zu bytes of settings; at most %d are kept", strlen(rest), MAX_REST);
    } else {
        int rc = bind_text(st, 1, id, strlen(id));
        rc |= bind_text(st, 2, title, title ? strlen(title) : 0);
        rc |= bind_time(st, 3, created);
        rc |= bind_time(st, 4, updated);
        rc |= bind_text(st, 5, head, head ? strlen(head) : 0);
        rc |= bind_text(st, 6, rest, strlen(rest));
        status = step(c, st, rc ? SQLITE_NOMEM : SQLITE_OK, err);
    }
    free(rest);
    if (status == 0 && sqlite3_changes(c->file.db) == 0)
        status = lode_fail(err, LODE_ERR_MISSING, "id", "there is no chat \"%s\"", id);
    return status;
}

static int add_chat(struct chats *c, const char *id, struct lode_error *err) {
    sqlite3_stmt *st;
    LODE_TRY(prepare(c, ST_CHAT, &st, err));
    bind_text(st, 1, id, strlen(id));
    const int rc = sqlite3_step(st);
    LODE_TRY(done(c, st, rc, err));
    if (rc == SQLITE_ROW)
        return 0;
    LODE_TRY(prepare(c, ST_ADD, &st, err));
    bind_text(st, 1, id, strlen(id));
    sqlite3_bind_int64(st, 2, now_ms(CLOCK_REALTIME));
    return step(c, st, SQLITE_OK, err);
}

static int count_chat(struct chats *c, const char *id, struct lode_error *err) {
    sqlite3_stmt *st;
    LODE_TRY(prepare(c, ST_COUNT, &st, err));
    bind_text(st, 1, id, strlen(id));
    const int rc = sqlite3_step(st);
    const int64_t n = rc == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    const int64_t bytes = rc == SQLITE_ROW ? sqlite3_column_int64(st, 1) : 0;
    LODE_TRY(done(c, st, rc, err));
    if (n > CHATS_MAX_MESSAGES || bytes > CHATS_MAX_CHAT)
        return lode_fail(err, LODE_ERR_LIMIT, "messages",
                         "a chat may have %d messages of %d bytes together; go on in a new one",
                         CHATS_MAX_MESSAGES, CHATS_MAX_CHAT);
    return 0;
}

static int begin(struct chats *c, struct lode_error *err) {
    const int rc = sqlite3_exec(c->file.db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : fail(c, rc, err);
}

/* Commits where all went well, else rolls back. */
static int end(struct chats *c, int status, struct lode_error *err) {
    if (status == 0) {
        const int rc = sqlite3_exec(c->file.db, "COMMIT", NULL, NULL, NULL);
        status = rc == SQLITE_OK ? 0 : fail(c, rc, err);
    }
    if (c->file.db && !sqlite3_get_autocommit(c->file.db))
        sqlite3_exec(c->file.db, "ROLLBACK", NULL, NULL, NULL);
    return status;
}

static int put_locked(struct chats *c, const char *id, const json_t *body, struct lode_error *err) {
    json_t *messages = NULL;
    bool is_new = false;
    LODE_TRY(field_bool(body, "new", &is_new, err));
    LODE_TRY(field_array(body, "messages", &messages, err));
    LODE_TRY(begin(c, err));
    int status = is_new ? add_chat(c, id, err) : 0;
    if (status == 0)
        status = change_chat(c, id, body, err);
    for (size_t i = 0; status == 0 && i < json_array_size(messages); i++)
        status = put_message(c, id, json_array_get(messages, i), err);
    if (status == 0)
        status = count_chat(c, id, err);
    return end(c, status, err);
}

static int delete_locked(struct chats *c, const char *id, struct lode_error *err) {
    sqlite3_stmt *st;
    LODE_TRY(prepare(c, ST_DELETE, &st, err));
    LODE_TRY(begin(c, err));
    bind_text(st, 1, id, strlen(id));
    int status = step(c, st, SQLITE_OK, err);
    if (status == 0 && sqlite3_changes(c->file.db) == 0)
        status = lode_fail(err, LODE_ERR_MISSING, "id", "there is no chat \"%s\"", id);
    status = end(c, status, err);
    if (status == 0) /* gives the room back; where that fails nothing is lost */
        sqlite3_exec(c->file.db, "PRAGMA incremental_vacuum", NULL, NULL, NULL);
    return status;
}

/* ---- from outside ---- */

/* A buffer that ran out of memory is an error as others are. */
static int checked(const struct lode_buf *out, int status, struct lode_error *err) {
    return status == 0 && out->failed ? lode_fail(err, LODE_ERR_NOMEM, "chats", "out of memory")
                                      : status;
}

static int check_id(const char *id, struct lode_error *err) {
    return is_id(id, strlen(id))
               ? 0
               : field_fail(err, "id", "1 to %d letters, digits, - or _ expected", MAX_ID);
}

int chats_open(struct chats *c, struct lode_error *err) {
    pthread_mutex_lock(&c->mutex);
    const int status = open_locked(c, err);
    pthread_mutex_unlock(&c->mutex);
    return status;
}

int chats_list(struct chats *c, const struct chats_query *q, struct lode_buf *out,
               struct lode_error *err) {
    struct needle w;
    LODE_TRY(needle_make(&w, q->text, err));
    if (q->limit > CHATS_MAX_LIST)
        return field_fail(err, "limit", "at most %d expected", CHATS_MAX_LIST);
    pthread_mutex_lock(&c->mutex);
    int status = open_locked(c, err);
    if (status == 0)
        status = list_locked(c, q, &w, out, err);
    pthread_mutex_unlock(&c->mutex);
    return checked(out, status, err);
}

int chats_get(struct chats *c, const char *id, struct lode_buf *out, struct lode_error *err) {
    LODE_TRY(check_id(id, err));
    pthread_mutex_lock(&c->mutex);
    int status = open_locked(c, err);
    if (status == 0)
        status = get_locked(c, id, out, err);
    pthread_mutex_unlock(&c->mutex);
    return checked(out, status, err);
}

int chats_put(struct chats *c, const char *id, const json_t *body, struct lode_error *err) {
    LODE_TRY(check_id(id, err));
    pthread_mutex_lock(&c->mutex);
    int status = open_locked(c, err);
    if (status == 0)
        status = put_locked(c, id, body, err);
    pthread_mutex_unlock(&c->mutex);
    return status;
}

int chats_delete(struct chats *c, const char *id, struct lode_error *err) {
    LODE_TRY(check_id(id, err));
    pthread_mutex_lock(&c->mutex);
    int status = open_locked(c, err);
    if (status == 0)
        status = delete_locked(c, id, err);
    pthread_mutex_unlock(&c->mutex);
    return status;
}

void chats_notice(struct chats *c, struct lode_buf *out) {
    pthread_mutex_lock(&c->mutex);
    lode_buf_addz(out, c->file.notice);
    pthread_mutex_unlock(&c->mutex);
}
