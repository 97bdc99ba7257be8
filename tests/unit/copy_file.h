/* copy_file.h - a file's bytes to another, which may be there and is then written over in place.  After cmocka.h. */
#ifndef TESTS_COPY_FILE_H
#define TESTS_COPY_FILE_H

#include <fcntl.h>
#include <unistd.h>

static inline void copy_file(const char *from, const char *to) {
    static char buffer[1 << 20];
    const int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT, 0600);
    ssize_t n;
    assert_true(in >= 0 && out >= 0);
    while ((n = read(in, buffer, sizeof buffer)) > 0)
        assert_int_equal(write(out, buffer, (size_t)n), n);
    close(in);
    close(out);
}

#endif
