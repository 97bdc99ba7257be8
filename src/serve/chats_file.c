/* chats_file.c - see chats_file.h. */
#include "serve/chats_file.h"

#include "base/error.h"
#include "base/out_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    PAGE = 4096 /* bytes, as told to SQLite below */,
    WAIT_MS = 5000,
    APPLICATION = 0x6c6f6465 /* "lode" */,
    VERSION = 1
};

/* rest: the fields that are not looked at here, as a JSON object.  A message's text comes last in
 * its row, so that counting and walking do not read it. */
static const char schema[] =
    "CREATE TABLE chats(id TEXT PRIMARY KEY, title TEXT NOT NULL, created INTEGER NOT NULL,"
    " updated INTEGER NOT NULL, head TEXT, n_messages INTEGER NOT NULL, bytes INTEGER NOT NULL,"
    " rest TEXT NOT NULL);"
    "CREATE INDEX chats_by_time ON chats(updated DESC, id);"
    "CREATE TABLE messages(n INTEGER PRIMARY KEY, chat TEXT NOT NULL REFERENCES chats(id)"
    " ON DELETE CASCADE, id TEXT NOT NULL, parent TEXT, role TEXT NOT NULL, size INTEGER NOT NULL,"
    " rest TEXT NOT NULL, content TEXT, UNIQUE(chat, id));";

int chats_file_fail(struct chats_file *f, int rc, struct lode_error *err) {
    switch (rc & 0xff) {
    case SQLITE_NOMEM:
        return lode_fail(err, LODE_ERR_NOMEM, f->path, "out of memory");
    case SQLITE_FULL:
        return lode_fail(
            err, LODE_ERR_LIMIT, "chats",
            "no room for this in %s: the disk is full, or the file has reached its %llu "
            "bytes; delete chats, or allow more with --chats-size",
            f->path, (unsigned long long)f->max_bytes);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return lode_fail(err, LODE_ERR_CANCELLED, f->path,
                         "another program has held the file for %d seconds; try again",
                         WAIT_MS / 1000);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        chats_file_close(f);
        f->damaged = true;
        return lode_fail(err, LODE_ERR_FORMAT, f->path,
                         "the file of chats is damaged; try again, and it will "
                         "be set aside for a new one with what can be read");
    default:
        return lode_fail(err, LODE_ERR_IO, f->path, "%s%s%s", sqlite3_errstr(rc), f->db ? ": " : "",
                         f->db ? sqlite3_errmsg(f->db) : "");
    }
}

void chats_file_close(struct chats_file *f) {
    sqlite3_close_v2(f->db); /* _v2: statements that are still open close it with them */
    f->db = NULL;
    if (f->lock >= 0)
        close(f->lock);
    f->lock = -1;
}

static int64_t pragma(sqlite3 *db, const char *sql, int *rc) {
    sqlite3_stmt *st = NULL;
    int64_t v = -1;
    *rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
    if (*rc == SQLITE_OK && (*rc = sqlite3_step(st)) == SQLITE_ROW) {
        v = sqlite3_column_int64(st, 0);
        *rc = SQLITE_OK;
    }
    sqlite3_finalize(st);
    return v;
}

/* SQLITE_CORRUPT where any page or index does not hold together. */
static int look_through(sqlite3 *db) {
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &st, NULL);
    if (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        const char *said = (const char *)sqlite3_column_text(st, 0);
        rc = !said ? SQLITE_NOMEM : strcmp(said, "ok") ? SQLITE_CORRUPT : SQLITE_OK;
    }
    sqlite3_finalize(st);
    return rc;
}

static int run(sqlite3 *db, const char *sql) { return sqlite3_exec(db, sql, NULL, NULL, NULL); }

/* Tables for a file that has none; two servers may come here at once. */
static int make_tables(sqlite3 *db) {
    int rc = run(db, "BEGIN IMMEDIATE");
    if (rc != SQLITE_OK)
        return rc;
    const int64_t version = pragma(db, "PRAGMA user_version", &rc);
    char sql[sizeof schema + 100];
    snprintf(sql, sizeof sql, "%sPRAGMA application_id = %d; PRAGMA user_version = %d;", schema,
             APPLICATION, VERSION);
    if (rc == SQLITE_OK && version == 0)
        rc = run(db, sql);
    if (rc == SQLITE_OK)
        rc = run(db, "COMMIT");
    if (rc != SQLITE_OK)
        run(db, "ROLLBACK");
    return rc;
}

/* Whose file it is: 0, or an error that leaves it alone.  *rc: SQLite's opinion. */
static int check_owner(struct chats_file *f, bool *empty, int *rc, struct lode_error *err) {
    const int64_t id = pragma(f->db, "PRAGMA application_id", rc);
    const int64_t version = *rc == SQLITE_OK ? pragma(f->db, "PRAGMA user_version", rc) : 0;
    const int64_t n =
        *rc == SQLITE_OK ? pragma(f->db, "SELECT count(*) FROM sqlite_schema", rc) : 0;
    *empty = n == 0;
    if (*rc != SQLITE_OK)
        return 0;
    if (id != APPLICATION && (n > 0 || version))
        return lode_fail(err, LODE_ERR_FORMAT, f->path,
                         "this database is another program's: choose another file with --chats");
    if (version > VERSION)
        return lode_fail(err, LODE_ERR_UNSUPPORTED, f->path,
                         "a newer lode made this file (form %lld, this one knows %d)",
                         (long long)version, VERSION);
    return 0;
}

static int try_open(struct chats_file *f, int *rc, struct lode_error *err) {
    char sql[300];
    bool empty;
    *rc = sqlite3_open_v2(f->path, &f->db,
                          SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    if (*rc != SQLITE_OK)
        return 0;
    sqlite3_busy_timeout(f->db, WAIT_MS);
    sqlite3_limit(f->db, SQLITE_LIMIT_ATTACHED, 0);
    sqlite3_db_config(f->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(f->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    LODE_TRY(check_owner(f, &empty, rc, err));
    /* These two are said before the first table, and to a file that has tables they are a write. */
    if (*rc == SQLITE_OK && empty)
        *rc = run(f->db, "PRAGMA page_size = 4096; PRAGMA auto_vacuum = INCREMENTAL");
    /* What is deleted is overwritten: chats are private. */
    snprintf(sql, sizeof sql,
             "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; "
             "PRAGMA secure_delete = ON;"
             "PRAGMA cell_size_check = ON; PRAGMA journal_size_limit = 4194304;"
             "PRAGMA max_page_count = %llu;",
             (unsigned long long)(f->max_bytes / PAGE));
    if (*rc == SQLITE_OK)
        *rc = run(f->db, sql);
    if (*rc == SQLITE_OK)
        *rc = make_tables(f->db);
    if (*rc == SQLITE_OK)
        *rc = look_through(f->db);
    return 0;
}

/* ---- damaged files ---- */

/* Rows of one table of the old file into the new, up to the first page that cannot be read. */
static int64_t copy_rows(sqlite3 *old, sqlite3 *db, const char *select, const char *insert) {
    sqlite3_stmt *from = NULL, *to = NULL;
    int64_t n = 0;
    if (sqlite3_prepare_v2(old, select, -1, &from, NULL) == SQLITE_OK &&
        sqlite3_prepare_v2(db, insert, -1, &to, NULL) == SQLITE_OK) {
        while (sqlite3_step(from) == SQLITE_ROW) {
            for (int i = 0; i < sqlite3_column_count(from); i++)
                sqlite3_bind_value(to, i + 1, sqlite3_column_value(from, i));
            n += sqlite3_step(to) == SQLITE_DONE && sqlite3_changes(db) > 0;
            sqlite3_reset(to);
        }
    }
    sqlite3_finalize(from);
    sqlite3_finalize(to);
    return n;
}

/* Forward and backward, so that one bad page in the middle hides as little as can be; a message
 * whose chat is lost gets one.  Returns the messages that were read. */
static int64_t rescue(const char *aside, sqlite3 *db) {
    static const char chats[] =
        "INSERT OR IGNORE INTO chats(" CHATS_COLUMNS ") VALUES(?,?,?,?,?,?,?,?)";
    static const char messages[] =
        "INSERT OR IGNORE INTO messages(" MESSAGES_COLUMNS ") VALUES(?,?,?,?,?,?,?)";
    sqlite3 *old = NULL;
    int64_t n = 0;
    if (sqlite3_open_v2(aside, &old, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) ==
            SQLITE_OK &&
        run(db, "PRAGMA foreign_keys = OFF; BEGIN IMMEDIATE") == SQLITE_OK) {
        copy_rows(old, db, "SELECT " CHATS_COLUMNS " FROM chats NOT INDEXED ORDER BY rowid", chats);
        copy_rows(old, db, "SELECT " CHATS_COLUMNS " FROM chats NOT INDEXED ORDER BY rowid DESC",
                  chats);
        n += copy_rows(old, db, "SELECT " MESSAGES_COLUMNS " FROM messages NOT INDEXED ORDER BY n",
                       messages);
        n += copy_rows(old, db,
                       "SELECT " MESSAGES_COLUMNS " FROM messages NOT INDEXED ORDER BY n DESC",
                       messages);
        run(db, "INSERT OR IGNORE INTO chats SELECT DISTINCT chat, 'Found in a damaged file',"
                " unixepoch() * 1000, unixepoch() * 1000, NULL, 0, 0, '{}' FROM messages;"
                "UPDATE chats SET (n_messages, bytes) = (SELECT count(*), coalesce(sum(size), 0)"
                " FROM messages WHERE chat = chats.id);"
                "COMMIT");
        if (!sqlite3_get_autocommit(db)) { /* what cannot be stored lies in the old file still */
            run(db, "ROLLBACK");
            n = 0;
        }
        run(db, "PRAGMA foreign_keys = ON");
    }
    sqlite3_close_v2(old);
    return n;
}

/* Renames the file and its journal.  Nobody else may have it open: a server that goes on writing to
 * a renamed file would write where nobody looks. */
static int set_aside(struct chats_file *f, char *aside, size_t size, struct lode_error *err) {
    static const char *const parts[] = {"-wal", "-shm", ""};
    const time_t now = time(NULL);
    char stamp[32], from[4200], to[4200];
    struct tm tm;
    if (flock(f->lock, LOCK_EX | LOCK_NB))
        return lode_fail(
            err, LODE_ERR_FORMAT, f->path,
            "the file of chats is damaged, and another lode has it open: end that one, so "
            "that the file can be set aside");
    localtime_r(&now, &tm);
    strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &tm);
    for (int i = 0; i < 100; i++) { /* a name that is free */
        snprintf(aside, size, i ? "%s.damaged-%s-%d" : "%s.damaged-%s", f->path, stamp, i);
        if (access(aside, F_OK))
            break;
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        snprintf(from, sizeof from, "%s%s", f->path, parts[i]);
        snprintf(to, sizeof to, "%s%s", aside, parts[i]);
        if (rename(from, to) && errno != ENOENT)
            return lode_fail(err, LODE_ERR_IO, f->path,
                             "the file of chats is damaged, and cannot be "
                             "renamed to %s: %s",
                             aside, strerror(errno));
    }
    return 0;
}

static int replace_damaged(struct chats_file *f, struct lode_error *err) {
    char aside[4200];
    int rc = SQLITE_OK;
    sqlite3_close_v2(f->db);
    f->db = NULL;
    LODE_TRY(set_aside(f, aside, sizeof aside, err));
    LODE_TRY(try_open(f, &rc, err));
    if (rc != SQLITE_OK)
        return chats_file_fail(f, rc, err);
    f->damaged = false;
    const int64_t n = rescue(aside, f->db);
    snprintf(
        f->notice, sizeof f->notice,
        "The file of chats was damaged. It was kept as %.700s; %lld messages could be read from it "
        "and are here.",
        aside, (long long)n);
    flock(f->lock, LOCK_SH);
    return 0;
}

/* ---- opening ---- */

/* Made before SQLite sees it, so that its mode, which SQLite's other files copy, is ours. */
static int make_file(const char *path, struct lode_error *err) {
    const int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno != EEXIST)
        return lode_fail(err, LODE_ERR_IO, path, "cannot be made: %s", strerror(errno));
    if (fd >= 0)
        close(fd);
    return 0;
}

static int take_lock(struct chats_file *f, const char *name, bool *was_ours,
                     struct lode_error *err) {
    *was_ours = access(name, F_OK) == 0;
    f->lock = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    /* waits for one who is setting the file aside */
    while (f->lock >= 0 && flock(f->lock, LOCK_SH))
        if (errno != EINTR)
            return lode_fail(err, LODE_ERR_IO, name, "cannot be locked: %s", strerror(errno));
    return f->lock >= 0 ? 0
                        : lode_fail(err, LODE_ERR_IO, name, "cannot be made: %s", strerror(errno));
}

int chats_file_open(struct chats_file *f, struct lode_error *err) {
    char lock[4200];
    bool was_ours = true;
    int rc = SQLITE_OK;
    if (f->db)
        return 0;
    if (strlen(f->path) + 40 > 4096)
        return lode_fail(err, LODE_ERR_ARG, "--chats", "the path is too long");
    LODE_TRY(lode_out_folders(f->path, err));
    snprintf(lock, sizeof lock, "%s.lock", f->path);
    const bool existed = access(f->path, F_OK) == 0;
    LODE_TRY(make_file(f->path, err));
    int status = take_lock(f, lock, &was_ours, err);
    if (status == 0 &&
        f->damaged) /* whatever a look through it says: that does not read everything */
        rc = SQLITE_CORRUPT;
    else if (status == 0)
        status = try_open(f, &rc, err);
    if (status == 0 && ((rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_NOTADB)) {
        /* A file that no lode has locked before and that is no database may be anything. */
        if (existed && !was_ours && (rc & 0xff) == SQLITE_NOTADB)
            status = lode_fail(err, LODE_ERR_FORMAT, f->path,
                               "this is no database of chats: choose another file with --chats");
        else
            status = replace_damaged(f, err);
    } else if (status == 0 && rc != SQLITE_OK) {
        status = chats_file_fail(f, rc, err);
    }
    if (status < 0) {
        chats_file_close(f);
        if (!was_ours && existed) /* no claim to what was refused */
            unlink(lock);
    }
    return status;
}
