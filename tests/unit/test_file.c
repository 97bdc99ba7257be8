/* Files to read, and mapped files that shrink under their readers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/cursor.h"
#include "base/file.h"
#include "base/sigbus.h"
#include "lode/lode.h"
#include "tmpdir.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { PAGES = 64 };
static size_t page;

/* A file of n bytes, byte i being (i / page + 1). */
static char *make_file(const char *name, size_t n) {
    char *path = tmp_path(name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (size_t i = 0; i < n; i++)
        putc((int)(i / page + 1), f);
    assert_int_equal(fclose(f), 0);
    return path;
}

static void cursor_stops_at_the_end(void **state) {
    (void)state;
    const unsigned char bytes[] = {1, 2, 0, 3, 0, 0, 0, 'h', 'i'};
    struct lode_cursor c = {.data = bytes, .len = sizeof bytes};
    assert_int_equal(lode_cursor_u8(&c), 1);
    assert_int_equal(lode_cursor_u16(&c), 2);
    assert_int_equal(lode_cursor_u32(&c), 3);
    assert_int_equal(lode_cursor_left(&c), 2);
    assert_true(lode_str_eqz(lode_cursor_str(&c, 2), "hi"));
    assert_false(c.failed);
    assert_int_equal(lode_cursor_str(&c, 0).len, 0);
    assert_false(c.failed);
    assert_int_equal(lode_cursor_u8(&c), 0);
    assert_true(c.failed);

    c = (struct lode_cursor){.data = bytes, .len = sizeof bytes, .pos = 3};
    assert_int_equal(lode_cursor_u64(&c), 0); /* six bytes left */
    assert_true(c.failed && c.pos == 3);
    assert_int_equal(lode_cursor_u8(&c), 0); /* for good */
    assert_null(lode_cursor_take(&c, 0));
    c = (struct lode_cursor){.data = bytes, .len = sizeof bytes, .pos = 3};
    assert_null(lode_cursor_take(&c, UINT64_MAX));
    c = (struct lode_cursor){0};
    assert_int_equal(lode_cursor_u32(&c), 0);
    assert_true(c.failed);
}

static void names_what_cannot_be_opened(void **state) {
    (void)state;
    struct lode_in_file f;
    struct lode_error err;
    assert_int_equal(lode_in_open(&f, "/nonexistent/file", &err), LODE_ERR_MISSING);
    assert_string_equal(err.where, "/nonexistent/file");
    lode_in_close(&f); /* harmless */
    assert_int_equal(lode_in_open(&f, tmp_dir(), &err), LODE_ERR_IO);
    assert_non_null(strstr(err.text, "directory"));

    char *path = make_file("empty", 0);
    assert_int_equal(lode_in_open(&f, path, &err), LODE_ERR_FORMAT);
    assert_string_equal(err.text, "the file is empty");
    char *below = NULL;
    assert_true(asprintf(&below, "%s/below", path) > 0);
    assert_int_equal(lode_in_open(&f, below, &err), LODE_ERR_MISSING);
    free(below);
    free(path);

    char *fifo = tmp_path("fifo"); /* nobody writes to it: opening must not wait */
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(lode_in_open(&f, fifo, &err), LODE_ERR_IO);
    assert_non_null(strstr(err.text, "pipe or device"));
    free(fifo);

    path = make_file("secret", 10);
    assert_int_equal(chmod(path, 0), 0);
    if (geteuid() != 0) { /* root may read anything */
        assert_int_equal(lode_in_open(&f, path, &err), LODE_ERR_IO);
        assert_string_equal(err.text, "no permission to read it");
    }
    free(path);
}

/* The file that was opened, whatever has its path by now. */
static void opens_it_again(void **state) {
    (void)state;
    struct lode_in_file f;
    struct lode_error err;
    char *path = make_file("again", 3 * page), *other = make_file("other", 10), c[2];
    assert_int_equal(lode_in_open(&f, path, &err), 0);
    assert_int_equal(rename(other, path), 0);
    const int fd = lode_in_reopen(&f, 0, &err);
    assert_true(fd >= 0 && fd != f.fd);
    assert_int_equal(pread(fd, c, 2, (off_t)page - 1), 2);
    assert_true(c[0] == 1 && c[1] == 2);
    close(fd);
    lode_in_close(&f);
    free(path);
    free(other);
}

static void reads_and_maps(void **state) {
    (void)state;
    struct lode_in_file f;
    struct lode_error err;
    const size_t size = 3 * page + 10;
    char *path = make_file("plain", size), c[16];
    assert_int_equal(lode_in_open(&f, path, &err), 0);
    assert_int_equal(f.size, size);
    assert_null(f.data);
    lode_in_advise(&f, 0, size, LODE_IN_WILLNEED); /* not mapped: nothing */
    assert_int_equal(lode_in_read(&f, page - 8, c, 16, &err), 0);
    assert_true(c[7] == 1 && c[8] == 2);
    assert_int_equal(lode_in_read(&f, size, c, 0, &err), 0);
    assert_int_equal(lode_in_read(&f, size - 8, c, 16, &err), LODE_ERR_IO);
    char words[80];
    snprintf(words, sizeof words, "the file ends at byte %zu, 8 more expected", size);
    assert_string_equal(err.text, words);
    assert_int_equal(lode_in_read(&f, UINT64_MAX, c, 1, &err), LODE_ERR_IO);

    assert_int_equal(lode_in_map(&f, &err), 0);
    const unsigned char *data = f.data;
    assert_int_equal(lode_in_map(&f, &err), 0);
    assert_ptr_equal(f.data, data);
    static const uint64_t offsets[] = {0, 1, 4096, 12289, UINT64_MAX};
    static const uint64_t lengths[] = {0, 1, 4095, 4096, 10000, UINT64_MAX};
    for (int hint = LODE_IN_WILLNEED; hint <= LODE_IN_DONTNEED; hint++)
        for (int o = 0; o < 5; o++)
            for (int n = 0; n < 6; n++)
                lode_in_advise(&f, offsets[o], lengths[n], (enum lode_in_hint)hint);
    for (size_t i = 0; i < size; i++)
        assert_int_equal(f.data[i], i / page + 1);
    assert_int_equal(lode_in_check(&f, &err), 0);
    lode_in_unmap(&f);
    assert_int_equal(lode_in_check(&f, &err), 0);
    lode_in_close(&f);
    lode_in_close(NULL);
    free(path);
}

static void maps_many_files_but_not_endlessly(void **state) {
    (void)state;
    struct lode_error err;
    char *path = make_file("many", 10);
    struct lode_in_file *f = calloc(LODE_SIGBUS_MAX + 1, sizeof *f);
    assert_non_null(f);
    /* One descriptor for all: the table of mappings is what is tested, not ulimit -n. */
    assert_int_equal(lode_in_open(&f[0], path, &err), 0);
    for (int i = 1; i <= LODE_SIGBUS_MAX; i++)
        f[i] = (struct lode_in_file){.path = f[0].path, .size = f[0].size, .fd = f[0].fd, .slot = -1};
    for (int i = 0; i < LODE_SIGBUS_MAX; i++)
        assert_int_equal(lode_in_map(&f[i], &err), 0);
    assert_int_equal(lode_in_map(&f[LODE_SIGBUS_MAX], &err), LODE_ERR_LIMIT);
    assert_null(f[LODE_SIGBUS_MAX].data);
    lode_in_unmap(&f[7]);
    assert_int_equal(lode_in_map(&f[LODE_SIGBUS_MAX], &err), 0);
    for (int i = LODE_SIGBUS_MAX; i > 0; i--)
        lode_in_unmap(&f[i]);
    lode_in_close(&f[0]);
    free(f);
    free(path);
}

/* ---- SIGBUS ---- */

static atomic_bool cut_done;

/* Reads the whole mapping again and again until it has been cut, then once more; the sum of the
 * last round. */
static void *reader(void *arg) {
    const volatile unsigned char *data = arg;
    bool last;
    uintptr_t sum;
    do {
        last = atomic_load(&cut_done);
        sum = 0;
        for (size_t i = 0; i < PAGES * page; i += page / 4)
            sum += data[i];
    } while (!last);
    return (void *)sum;
}

static void shrinking_under_threads_is_an_error(void **state) {
    (void)state;
    struct lode_error err;
    struct lode_in_file f, other;
    char *path = make_file("shrinks", PAGES * page), *whole = make_file("stays", 2 * page);
    assert_int_equal(lode_install_sigbus_handler(&err), 0);
    assert_int_equal(lode_install_sigbus_handler(&err), 0); /* twice is once */
    assert_int_equal(lode_in_open(&f, path, &err), 0);
    assert_int_equal(lode_in_open(&other, whole, &err), 0);
    assert_int_equal(lode_in_map(&f, &err), 0);
    assert_int_equal(lode_in_map(&other, &err), 0);

    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, reader, (void *)(uintptr_t)f.data), 0);
    assert_int_equal(truncate(path, (off_t)(3 * page + 1)), 0);
    atomic_store(&cut_done, true);
    for (int i = 0; i < 4; i++) {
        void *sum;
        pthread_join(t[i], &sum);
        /* four whole pages remain (the last, cut, is filled with zeros), the rest reads as zero */
        assert_int_equal((uintptr_t)sum, 4 * (1 + 2 + 3) + 4);
    }
    assert_int_equal(lode_in_check(&f, &err), LODE_ERR_IO);
    assert_string_equal(err.where, path);
    char words[160];
    snprintf(words, sizeof words,
             "the file shrank from %zu to %zu bytes while in use and cannot be read at byte ",
             PAGES * page, 3 * page + 1);
    assert_memory_equal(err.text, words, strlen(words));
    /* the page where the first of the readers was */
    const unsigned long long at = strtoull(err.text + strlen(words), NULL, 10);
    assert_int_equal(at % page, 0);
    assert_in_range(at / page, 4, PAGES - 1);

    /* Restored, it can be read again, but what was read before stays void. */
    assert_int_equal(truncate(path, (off_t)(PAGES * page)), 0);
    assert_int_equal(lode_in_check(&f, &err), LODE_ERR_IO);
    assert_non_null(strstr(err.text, "cut and restored"));
    lode_in_unmap(&f);
    assert_int_equal(lode_in_map(&f, &err), 0);
    assert_int_equal(lode_in_check(&f, &err), 0);

    assert_int_equal(other.data[page], 2);
    assert_int_equal(lode_in_check(&other, &err), 0);
    lode_in_close(&f);
    lode_in_close(&other);
    free(path);
    free(whole);
}

/* What was read before and what is read after would be of two files. */
static void tells_that_it_was_written_to(void **state) {
    (void)state;
    struct lode_in_file f;
    struct lode_error err;
    char *path = make_file("written", 3 * page), words[120];
    const struct timespec long_ago[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    assert_int_equal(utimensat(AT_FDCWD, path, long_ago, 0), 0);
    assert_int_equal(lode_in_open(&f, path, &err), 0);
    assert_int_equal(lode_in_check_unwritten(&f, &err), 0);
    FILE *again = fopen(path, "r+");
    assert_non_null(again);
    assert_int_equal(fputc(1, again), 1);
    assert_int_equal(fclose(again), 0);
    assert_int_equal(lode_in_check(&f, &err), 0);
    assert_int_equal(lode_in_check_unwritten(&f, &err), LODE_ERR_IO);
    assert_string_equal(err.where, path);
    assert_string_equal(err.text, "it was written to after it was opened: load it again");
    assert_int_equal(truncate(path, (off_t)page), 0);
    assert_int_equal(lode_in_check_unwritten(&f, &err), LODE_ERR_IO);
    snprintf(words, sizeof words, "it has %zu bytes and had %zu when it was opened: load it again", page, 3 * page);
    assert_string_equal(err.text, words);
    lode_in_close(&f);
    free(path);
}

static void exit_42(int sig) {
    (void)sig;
    _exit(42);
}

static void exit_43(int sig, siginfo_t *info, void *context) {
    (void)sig;
    (void)context;
    _exit(info->si_addr ? 43 : 1);
}

/* A child installs `before`, then lode's handler, then faults on a mapping that is not lode's (or
 * is sent the signal); how it ended. */
static int child_faults(const char *path, const struct sigaction *before, bool sent) {
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const int fd = open(path, O_RDONLY);
        sigaction(SIGBUS, before, NULL);
        if (lode_install_sigbus_handler(NULL) < 0)
            _exit(2);
        const volatile unsigned char *p = mmap(NULL, 2 * page, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
            _exit(3);
        if (sent)
            raise(SIGBUS);
        else
            (void)p[page]; /* beyond the end of the file */
        _exit(4);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void foreign_faults_go_where_they_went_before(void **state) {
    (void)state;
    char *path = make_file("foreign", 10);
    struct sigaction mine = {.sa_handler = exit_42}, old;
    /* so that this process's own earlier installation is not what the children chain to */
    assert_int_equal(sigaction(SIGBUS, &(struct sigaction){.sa_handler = SIG_DFL}, &old), 0);
    int status = child_faults(path, &mine, false);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    mine = (struct sigaction){.sa_sigaction = exit_43, .sa_flags = SA_SIGINFO};
    status = child_faults(path, &mine, false);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 43);
    mine = (struct sigaction){.sa_handler = SIG_DFL};
    status = child_faults(path, &mine, false);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    status = child_faults(path, &mine, true);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    mine = (struct sigaction){.sa_handler = SIG_IGN};
    status = child_faults(path, &mine, false); /* the kernel does not let a fault be ignored */
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    status = child_faults(path, &mine, true); /* a sent one it does */
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 4);
    assert_int_equal(sigaction(SIGBUS, &old, NULL), 0);
    free(path);
}

int main(void) {
    page = (size_t)sysconf(_SC_PAGESIZE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cursor_stops_at_the_end),
        cmocka_unit_test(names_what_cannot_be_opened),
        cmocka_unit_test(opens_it_again), cmocka_unit_test(reads_and_maps),
        cmocka_unit_test(maps_many_files_but_not_endlessly),
        cmocka_unit_test(shrinking_under_threads_is_an_error),
        cmocka_unit_test(tells_that_it_was_written_to),
        cmocka_unit_test(foreign_faults_go_where_they_went_before),
    };
    return cmocka_run_group_tests(tests, NULL, tmp_clean);
}
