/* test_chats.c - the page's chats: what is stored comes back, sizes are kept, searches find, and
 * neither failing allocations, full disks, damaged files nor a second server lose what was
 * accepted.
 *
 * Disks fail through a file system of SQLite's kind (a VFS) that is laid over the usual one: its
 * n-th write or sync fails as if the disk were full.
 */
#include "failmalloc.h"
#include "tmpdir.h"

#include "serve/chats.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- a disk that fails ---- */

static sqlite3_vfs full_vfs;
static sqlite3_io_methods full_methods[2]; /* of journals, which are not locked, and of databases */
static const sqlite3_io_methods *real_methods[2];
static int writes_left = -1; /* negative: none fails */

static int count_write(void) {
    return writes_left < 0 || writes_left-- > 0 ? SQLITE_OK : (writes_left = 0, SQLITE_FULL);
}

static int full_write(sqlite3_file *f, const void *data, int n, sqlite3_int64 at) {
    const int rc = count_write();
    return rc ? rc : real_methods[f->pMethods == &full_methods[1]]->xWrite(f, data, n, at);
}

static int full_sync(sqlite3_file *f, int flags) {
    const int rc = count_write();
    return rc ? SQLITE_IOERR_FSYNC : real_methods[f->pMethods == &full_methods[1]]->xSync(f, flags);
}

static int full_open(sqlite3_vfs *v, sqlite3_filename name, sqlite3_file *f, int flags, int *out) {
    sqlite3_vfs *real = v->pAppData;
    const int rc = real->xOpen(real, name, f, flags, out);
    const int k = (flags & SQLITE_OPEN_MAIN_DB) != 0;
    if (rc == SQLITE_OK && f->pMethods) {
        real_methods[k] = f->pMethods;
        full_methods[k] = *f->pMethods;
        full_methods[k].xWrite = full_write;
        full_methods[k].xSync = full_sync;
        f->pMethods = &full_methods[k];
    }
    return rc;
}

static void disk_that_fails(bool on) {
    sqlite3_vfs *real = sqlite3_vfs_find("unix");
    if (!full_vfs.zName) {
        full_vfs = *real;
        full_vfs.zName = "full";
        full_vfs.pAppData = real;
        full_vfs.pNext = NULL;
        full_vfs.xOpen = full_open;
    }
    sqlite3_vfs_register(on ? &full_vfs : real, 1);
    writes_left = -1;
}

/* ---- helpers ---- */

static char path[4096]; /* of the file of this test */

static int new_path(void **state) {
    static int n;
    (void)state;
    snprintf(path, sizeof path, "%s/%d/deep/chats.db", tmp_dir(), n++);
    return 0;
}

static struct chats *open_chats(uint64_t max_bytes) {
    struct chats *c;
    struct lode_error err;
    if (chats_create(&c, path, max_bytes, &err) < 0 || chats_open(c, &err) < 0)
        fail_msg("%s: %s", err.where, err.text);
    return c;
}

static json_t *json(const char *fmt, ...) {
    char text[4096];
    json_error_t why;
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    for (char *p = text; *p; p++) /* so that the tests are readable */
        *p = *p == '\'' ? '"' : *p;
    json_t *v = json_loads(text, 0, &why);
    if (!v)
        fail_msg("%s in %s", why.text, text);
    return v;
}

/* Takes body. */
static int put(struct chats *c, const char *id, json_t *body, struct lode_error *err) {
    const int rc = chats_put(c, id, body, err);
    json_decref(body);
    return rc;
}

static void must_put(struct chats *c, const char *id, json_t *body) {
    struct lode_error err;
    if (put(c, id, body, &err) < 0)
        fail_msg("%s: %s", err.where, err.text);
}

static json_t *parsed(struct lode_buf *b) {
    json_error_t why;
    json_t *v = json_loadb(b->data, b->len, 0, &why);
    if (!v)
        fail_msg("%s at %d in %.*s", why.text, why.position, (int)b->len, b->data);
    lode_buf_free(b);
    return v;
}

static json_t *get(struct chats *c, const char *id) {
    struct lode_buf b = {0};
    struct lode_error err;
    if (chats_get(c, id, &b, &err) < 0) {
        lode_buf_free(&b);
        return NULL;
    }
    return parsed(&b);
}

static json_t *list(struct chats *c, const char *text, uint32_t offset, uint32_t limit) {
    struct lode_buf b = {0};
    struct lode_error err;
    const struct chats_query q = {.text = text, .offset = offset, .limit = limit};
    if (chats_list(c, &q, &b, &err) < 0)
        fail_msg("%s: %s", err.where, err.text);
    return parsed(&b);
}

/* The ids of what is found, as one text. */
static const char *found(struct chats *c, const char *text) {
    static char ids[1000];
    json_t *r = list(c, text, 0, 0), *chat;
    size_t i;
    *ids = '\0';
    json_array_foreach(json_object_get(r, "chats"), i, chat) {
        strcat(ids, i ? " " : "");
        strcat(ids, json_string_value(json_object_get(chat, "id")));
    }
    json_decref(r);
    return ids;
}

static size_t n_messages(struct chats *c, const char *id) {
    json_t *chat = get(c, id);
    const size_t n = json_array_size(json_object_get(chat, "messages"));
    json_decref(chat);
    return n;
}

static void fill(struct chats *c, int n) {
    for (int i = 0; i < n; i++) {
        char id[16];
        snprintf(id, sizeof id, "c%d", i);
        must_put(c, id,
                 json("{'new':true,'title':'Chat %d','updated':%d,'messages':["
                      "{'id':'a','parent':null,'role':'user','content':'question %d'},"
                      "{'id':'b','parent':'a','role':'assistant','content':'answer %d'}]}",
                      i, 1000 + i, i, i));
    }
}

/* ---- what is stored ---- */

static void test_there_and_back(void **state) {
    (void)state;
    struct chats *c = open_chats(0);
    json_t *chat = json("{'title':'A \\\\ \\n \\u0001 ü "
                        "\\\"x\\\"','created':5,'updated':7,'head':'b','system':'be','settings':"
                        "{'temperature':0.5},'messages':["
                        "{'id':'a','parent':null,'role':'user','content':'hi <b>\\u2028\\t'},"
                        "{'id':'b','parent':'a','role':'assistant','content':'','tool_calls':[{'id'"
                        ":'x'}],'reasoning':'hm'},"
                        "{'id':'c','parent':'a','role':'assistant','content':null}]}");
    json_t *body = json_copy(chat);
    json_object_set_new(body, "new", json_true());
    must_put(c, "one", body);
    json_object_set_new(chat, "id", json_string("one"));
    json_t *back = get(c, "one");
    assert_true(json_equal(chat, back));
    json_decref(back);
    chats_free(c);
    c = open_chats(0); /* another day */
    back = get(c, "one");
    assert_true(json_equal(chat, back));
    json_decref(back);
    json_decref(chat);
    chats_free(c);
}

static void test_changes(void **state) {
    (void)state;
    struct chats *c = open_chats(0);
    struct lode_error err;
    assert_int_equal(put(c, "one", json("{'title':'x'}"), &err),
                     LODE_ERR_MISSING); /* deleted, or never there */
    must_put(c, "one",
             json("{'new':true,'title':'x','system':'s','messages':[{'id':'a','role':'user','"
                  "content':'1'}]}"));
    must_put(c, "one",
             json("{'new':true,'head':'b','messages':[{'id':'b','parent':'a','role':'user','"
                  "content':'2'}]}"));
    must_put(c, "one", json("{'title':'y'}"));
    must_put(c, "one", json("{'messages':[{'id':'a','role':'user','content':'3'}]}"));
    json_t *back = get(c, "one"), *messages = json_object_get(back, "messages");
    assert_string_equal(json_string_value(json_object_get(back, "title")), "y");
    assert_string_equal(json_string_value(json_object_get(back, "system")), "s");
    assert_string_equal(json_string_value(json_object_get(back, "head")), "b");
    assert_int_equal(json_array_size(messages), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(messages, 0), "content")),
                        "3");
    json_decref(back);
    assert_int_equal(chats_delete(c, "one", &err), 0);
    assert_int_equal(chats_delete(c, "one", &err), LODE_ERR_MISSING);
    assert_null(get(c, "one"));
    must_put(c, "one", json("{'new':true}")); /* its messages went with it */
    assert_int_equal(n_messages(c, "one"), 0);
    chats_free(c);
}

static void test_list(void **state) {
    (void)state;
    struct chats *c = open_chats(0);
    fill(c, 25);
    json_t *r = list(c, "", 0, 10);
    assert_int_equal(json_array_size(json_object_get(r, "chats")), 10);
    assert_true(json_is_true(json_object_get(r, "more")));
    json_t *first = json_array_get(json_object_get(r, "chats"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "id")), "c24"); /* the newest */
    assert_int_equal(json_integer_value(json_object_get(first, "n_messages")), 2);
    json_decref(r);
    r = list(c, NULL, 20, 10);
    assert_int_equal(json_array_size(json_object_get(r, "chats")), 5);
    assert_true(json_is_false(json_object_get(r, "more")));
    json_decref(r);
    r = list(c, "QUESTION", 20, 10); /* searches go by pages too */
    assert_int_equal(json_array_size(json_object_get(r, "chats")), 5);
    json_decref(r);
    chats_free(c);
}

static void test_search(void **state) {
    (void)state;
    static const struct {
        const char *text, *found;
    } rows[] = {
        {"cat", "two one"},                                     /* in a title; in a message */
        {"CAT", "two one"}, {"größe", "three"}, {"GRÖSSE", ""}, /* lower case is not folding: ß
                                                                   stays ß */
        {"GRÖßE", "three"}, {"100%", "one"},    {"_", ""},        {"%", "one"},
        {"\\", "two"},      {"nowhere", ""},    {"aab", "three"}, /* behind a beginning that fails
                                                                   */
        {"\xff", ""},
    };
    struct chats *c = open_chats(0);
    must_put(c, "three",
             json("{'new':true,'updated':1,'messages':[{'id':'a','role':'user','content':'Die "
                  "Größe: aaab'}]}"));
    must_put(c, "one",
             json("{'new':true,'updated':2,'messages':[{'id':'a','role':'user','content':'the Cat "
                  "is 100%% fine'}]}"));
    must_put(c, "two",
             json("{'new':true,'updated':3,'title':'My "
                  "cats','messages':[{'id':'a','role':'user','content':'\\\\'}]}"));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(found(c, rows[i].text), rows[i].found);
    json_t *r = list(c, "CAT IS", 0, 0);
    assert_string_equal(json_string_value(json_object_get(
                            json_array_get(json_object_get(r, "chats"), 0), "snippet")),
                        "the Cat is 100% fine");
    json_decref(r);
    chats_free(c);
}

static void test_bad_bodies(void **state) {
    (void)state;
    static const struct {
        const char *body, *where;
    } rows[] = {
        {"{'title':1}", "title"},
        {"{'head':'../x'}", "head"},
        {"{'messages':{}}", "messages"},
        {"{'messages':[1]}", "messages"},
        {"{'messages':[{'role':'user'}]}", "id"},
        {"{'messages':[{'id':'a'}]}", "role"},
        {"{'messages':[{'id':'a b','role':'user'}]}", "id"},
        {"{'messages':[{'id':'a','role':'user','content':[1]}]}", "content"},
        {"{'messages':[{'id':'a','role':'user','parent':7}]}", "parent"},
        {"{'created':-1}", "created"},
        {"{'new':1}", "new"},
        {"{'messages':[{'id':'ok','role':'user','content':'x'},{'id':'','role':'user'}]}", "id"},
    };
    struct chats *c = open_chats(0);
    struct lode_error err;
    must_put(c, "one", json("{'new':true}"));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(put(c, "one", json("%s", rows[i].body), &err), LODE_ERR_ARG);
        assert_string_equal(err.where, rows[i].where);
        assert_int_equal(n_messages(c, "one"), 0); /* all or nothing */
    }
    assert_int_equal(put(c, "a/b", json("{}"), &err), LODE_ERR_ARG);
    assert_int_equal(chats_delete(c, "", &err), LODE_ERR_ARG);
    chats_free(c);
}

static char *long_text(size_t n) {
    char *s = malloc(n + 1);
    assert_non_null(s);
    memset(s, 'x', n);
    s[n] = '\0';
    return s;
}

static json_t *long_message(const char *id, size_t n) {
    char *s = long_text(n);
    json_t *v =
        json_pack("{s:[{s:s, s:s, s:s}]}", "messages", "id", id, "role", "user", "content", s);
    free(s);
    return v;
}

static void test_sizes(void **state) {
    (void)state;
    struct chats *c = open_chats(0);
    struct lode_error err;
    char id[16];
    must_put(c, "one", json("{'new':true}"));
    assert_int_equal(put(c, "one", long_message("a", CHATS_MAX_MESSAGE + 1), &err), LODE_ERR_LIMIT);
    assert_string_equal(err.where, "messages");
    for (int i = 0; i < 8; i++) { /* 2 bytes each are the empty rest, {} */
        snprintf(id, sizeof id, "m%d", i);
        must_put(c, "one", long_message(id, CHATS_MAX_CHAT / 8 - 2));
    }
    assert_int_equal(put(c, "one", long_message("n", 1), &err), LODE_ERR_LIMIT);
    assert_int_equal(n_messages(c, "one"), 8);
    char *title = long_text(CHATS_MAX_TITLE + 1);
    assert_int_equal(put(c, "one", json_pack("{s:s}", "title", title), &err), LODE_ERR_ARG);
    free(title);
    char *words = long_text(CHATS_MAX_SEARCH + 1);
    struct lode_buf b = {0};
    assert_int_equal(chats_list(c, &(struct chats_query){.text = words}, &b, &err), LODE_ERR_ARG);
    assert_int_equal(chats_list(c, &(struct chats_query){.limit = CHATS_MAX_LIST + 1}, &b, &err),
                     LODE_ERR_ARG);
    lode_buf_free(&b);
    free(words);
    chats_free(c);
}

/* ---- no room ---- */

static void test_full_file(void **state) {
    (void)state;
    struct chats *c = open_chats(1 << 20);
    struct lode_error err;
    must_put(c, "one", json("{'new':true}"));
    char id[16];
    int rc = 0, n = 0;
    while (rc == 0 && n < 100) {
        snprintf(id, sizeof id, "m%d", n);
        rc = put(c, "one", long_message(id, 50000), &err);
        n += rc == 0;
    }
    assert_int_equal(rc, LODE_ERR_LIMIT);
    assert_string_equal(err.where, "chats");
    assert_int_equal(n_messages(c, "one"), n);
    assert_int_equal(chats_delete(c, "one", &err), 0); /* makes room */
    must_put(c, "two", json("{'new':true}"));
    must_put(c, "two", long_message("m", 500000));
    chats_free(c);
}

/* Each write of a put fails in turn: the put fails or is stored, what was there stays, and the next
 * works. */
static void test_full_disk(void **state) {
    (void)state;
    int failures = 0;
    for (int n = 0;; n++) {
        struct lode_error err;
        new_path(NULL);
        disk_that_fails(true);
        struct chats *c = open_chats(0);
        fill(c, 3);
        writes_left = n;
        const int rc = put(
            c, "c1", json("{'title':'new','messages':[{'id':'n','role':'user','content':'new'}]}"),
            &err);
        const bool over = writes_left > 0;
        writes_left = -1;
        failures += rc < 0;
        if (rc < 0)
            assert_true(err.code == LODE_ERR_LIMIT || err.code == LODE_ERR_IO);
        assert_int_equal(n_messages(c, "c1"), rc == 0 ? 3 : 2);
        must_put(c, "c2", json("{'title':'later'}"));
        chats_free(c);
        disk_that_fails(false);
        c = open_chats(0); /* read afresh */
        assert_int_equal(n_messages(c, "c1"), rc == 0 ? 3 : 2);
        assert_int_equal(n_messages(c, "c0"), 2);
        struct lode_buf notice = {0};
        chats_notice(c, &notice);
        assert_int_equal(notice.len, 0);
        lode_buf_free(&notice);
        chats_free(c);
        if (over)
            break;
    }
    assert_true(failures >= 2); /* the journal's write, and its sync */
}

/* ---- memory ---- */

/* The n-th allocation fails, SQLite's and jansson's too.  SQLite goes on without some of its memory
 * (its caches), so that a call may succeed though one failed; then its result must be right. */
static void test_memory(void **state) {
    (void)state;
    struct lode_error err;
    json_t *body =
        json("{'new':true,'title':'t','messages':[{'id':'a','role':'user','content':'find me'},"
             "{'id':'b','parent':'a','role':'assistant','content':'x','usage':{'n':1}}]}");
    struct chats *c = open_chats(0); /* the file is there: its making is tested by the others */
    must_put(
        c, "old",
        json("{'new':true,'title':'old','messages':[{'id':'a','role':'user','content':'kept'}]}"));
    chats_free(c);
    uint64_t n_failed = 0;
    for (uint64_t n = 1;; n++) {
        struct lode_buf b = {0};
        failmalloc_start(n, false);
        int put_rc = -1, rc = chats_create(&c, path, 0, &err);
        if (rc == 0)
            rc = put_rc = chats_put(c, "one", body, &err);
        if (rc == 0)
            rc = chats_list(c, &(struct chats_query){.text = "find"}, &b, &err);
        if (rc == 0) {
            lode_buf_clear(&b);
            rc = chats_get(c, "one", &b, &err);
        }
        const struct failmalloc_stats s = failmalloc_stop();
        if (rc == 0)
            assert_true(b.len > 100);
        else
            assert_true(err.code == LODE_ERR_NOMEM || err.code == LODE_ERR_IO);
        n_failed += rc < 0;
        lode_buf_free(&b);
        if (c) { /* the store is whole, and works again */
            assert_int_equal(n_messages(c, "old"), 1);
            if (put_rc == 0)
                assert_int_equal(n_messages(c, "one"), 2);
        }
        chats_free(c);
        c = NULL;
        if (!s.failed)
            break;
    }
    assert_true(n_failed > 50);
    json_decref(body);
    c = open_chats(0);
    struct lode_buf notice = {0};
    chats_notice(c, &notice);
    assert_int_equal(notice.len, 0); /* want of memory was never taken for damage */
    lode_buf_free(&notice);
    chats_free(c);
}

/* ---- damage ---- */

static void overwrite(long at, size_t n) {
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, at, SEEK_SET);
    for (size_t i = 0; i < n; i++)
        fputc((int)(i * 37 + 11) & 255, f);
    fclose(f);
}

static long file_size(const char *name) {
    struct stat st;
    return stat(name, &st) ? -1 : (long)st.st_size;
}

/* The file that the notice names. */
static void aside_name(struct chats *c, char *out, size_t size) {
    struct lode_buf b = {0};
    chats_notice(c, &b);
    assert_true(b.len > 0);
    lode_buf_addc(&b, '\0');
    const char *from = strstr(b.data, path), *to = from ? strstr(from, "; ") : NULL;
    assert_non_null(to);
    snprintf(out, size, "%.*s", (int)(to - from), from);
    lode_buf_free(&b);
}

static void test_damage(void **state) {
    (void)state;
    static const struct {
        double at; /* a part of the file */
        size_t n;
        int least; /* messages that must be read again, of 400 */
    } rows[] = {
        {0, 16, 0},       /* the header: no database to anybody */
        {0, 4096, 0},     /* the first page, which says where all is */
        {0.3, 4096, 100}, /* a page in the middle */
        {0.7, 9000, 100},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char aside[4200];
        new_path(NULL);
        struct chats *c = open_chats(0);
        fill(c, 200);
        chats_free(c); /* moves the journal into the file */
        const long size = file_size(path);
        overwrite((long)((double)size * rows[i].at) / 4096 * 4096, rows[i].n);
        c = open_chats(0);
        aside_name(c, aside, sizeof aside);
        assert_int_equal(file_size(aside), size); /* kept as it was */
        int n = 0;
        for (int k = 0; k < 200; k++) {
            char id[16];
            snprintf(id, sizeof id, "c%d", k);
            n += (int)n_messages(c, id);
        }
        assert_true(n >= rows[i].least);
        must_put(c, "new",
                 json("{'new':true,'messages':[{'id':'a','role':'user','content':'works'}]}"));
        chats_free(c);
        c = open_chats(0); /* said once */
        struct lode_buf b = {0};
        chats_notice(c, &b);
        assert_int_equal(b.len, 0);
        assert_int_equal(n_messages(c, "new"), 1);
        lode_buf_free(&b);
        chats_free(c);
    }
}

/* Damage while the file is open: an error first, then the file is looked through and set aside. */
static void test_damage_while_open(void **state) {
    (void)state;
    struct chats *c = open_chats(0);
    fill(c, 400);
    must_put(c, "c3",
             long_message("m", CHATS_MAX_MESSAGE / 2)); /* more than SQLite keeps in memory */
    chats_free(c);
    c = open_chats(0);
    json_decref(get(c, "c3"));
    overwrite(4096, (size_t)file_size(path) - 4096);
    struct lode_error err = {0};
    struct lode_buf b = {0};
    int rc = 0;
    for (int i = 0; i < 400 && rc == 0; i++) {
        char id[16];
        snprintf(id, sizeof id, "c%d", i);
        lode_buf_clear(&b);
        rc = chats_get(c, id, &b, &err);
    }
    assert_int_equal(rc, LODE_ERR_FORMAT);
    lode_buf_free(&b);
    must_put(c, "new", json("{'new':true}"));
    char aside[4200];
    aside_name(c, aside, sizeof aside);
    assert_true(file_size(aside) > 4096);
    chats_free(c);
}

static void test_not_ours(void **state) {
    (void)state;
    struct chats *c = open_chats(0);
    struct lode_error err;
    sqlite3 *db;
    char lock[4200];
    chats_free(c);
    unlink(path);
    snprintf(lock, sizeof lock, "%s.lock", path);
    unlink(lock);
    FILE *f = fopen(path, "w"); /* somebody's notes */
    fputs("dear diary, this is no database at all\n", f);
    fclose(f);
    for (int i = 0; i < 2; i++) { /* the refusal leaves no claim behind */
        assert_int_equal(chats_create(&c, path, 0, &err), 0);
        assert_int_equal(chats_open(c, &err), LODE_ERR_FORMAT);
        chats_free(c);
        assert_int_equal(file_size(path), 39);
    }
    unlink(path);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK); /* another program's database */
    assert_int_equal(sqlite3_exec(db, "CREATE TABLE t(x)", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(chats_create(&c, path, 0, &err), 0);
    assert_int_equal(chats_open(c, &err), LODE_ERR_FORMAT);
    assert_non_null(strstr(err.text, "another program"));
    chats_free(c);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(db,
                     "DROP TABLE t; PRAGMA application_id = 0x6c6f6465; PRAGMA user_version = 99",
                     NULL, NULL, NULL),
        SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(chats_create(&c, path, 0, &err), 0);
    assert_int_equal(chats_open(c, &err), LODE_ERR_UNSUPPORTED);
    chats_free(c);
}

static void test_places(void **state) {
    (void)state;
    struct chats *c = open_chats(0);
    struct stat st;
    struct lode_error err;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    chats_free(c);
    assert_int_equal(chats_create(&c, "/dev/null/x/chats.db", 0, &err), 0);
    assert_int_equal(chats_open(c, &err), LODE_ERR_IO);
    assert_int_equal(chats_open(c, &err), LODE_ERR_IO);
    chats_free(c);
}

/* ---- two servers ---- */

enum { N_PUTS = 40, N_WRITERS = 4 };

static void *writer(void *arg) {
    struct chats *c = open_chats(0); /* a connection of its own, as another server's */
    const int me = *(int *)arg;
    for (int i = 0; i < N_PUTS; i++) {
        struct lode_error err;
        json_t *body = json_pack("{s:[{s:o, s:s, s:s}]}", "messages", "id",
                                 json_sprintf("m%d-%d", me, i), "role", "user", "content", "x");
        if (put(c, "both", body, &err) < 0)
            fail_msg("%s: %s", err.where, err.text);
    }
    chats_free(c);
    return NULL;
}

static void test_two_servers(void **state) {
    (void)state;
    struct chats *c = open_chats(0);
    pthread_t threads[N_WRITERS];
    int ids[N_WRITERS];
    must_put(c, "both", json("{'new':true}"));
    for (int i = 0; i < N_WRITERS; i++) {
        ids[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, writer, &ids[i]), 0);
    }
    for (int i = 0; i < N_WRITERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(n_messages(c, "both"), N_PUTS * N_WRITERS);
    /* a damaged file is not taken away from one who has it open */
    chats_free(c); /* the journal goes into the file, and what is overwritten now is lost */
    c = open_chats(0);
    struct chats *other;
    struct lode_error err;
    overwrite(0, 4096);
    assert_int_equal(chats_create(&other, path, 0, &err), 0);
    assert_int_equal(chats_open(other, &err), LODE_ERR_FORMAT);
    assert_non_null(strstr(err.text, "another lode"));
    chats_free(other);
    chats_free(c);
}

int main(void) {
    if (!access("/dev/shm",
                W_OK)) /* SQLite waits for the disk often, and the disk is not what is tested */
        setenv("TMPDIR", "/dev/shm", 0);
#define TEST(f) cmocka_unit_test_setup(f, new_path)
    const struct CMUnitTest tests[] = {
        TEST(test_there_and_back), TEST(test_changes),           TEST(test_list),
        TEST(test_search),         TEST(test_bad_bodies),        TEST(test_sizes),
        TEST(test_full_file),      TEST(test_full_disk),         TEST(test_memory),
        TEST(test_damage),         TEST(test_damage_while_open), TEST(test_not_ours),
        TEST(test_places),         TEST(test_two_servers),
    };
    return cmocka_run_group_tests(tests, NULL, tmp_clean);
}
