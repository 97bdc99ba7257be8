/* kern: what products take of their thread's stack is what lode_isa_stack says, which `lode plan` counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kern/kern.h"

/* Shapes that go through all of a product's ways: one column, a few, more than a panel of any set. */
enum { ROWS = 96, COLS = 640, K = 1024, STACK = 1 << 20, PAINT = 0xa5 };

struct job {
    void(*mul) LODE_MUL_ARGS;
    float *y;
    const uint8_t *w, *x;
    size_t w_stride, x_stride;
};

static void *multiply(void *arg) {
    const struct job *j = arg;
    if (!j->mul)
        return NULL;
    for (size_t n = 1; n <= COLS; n = n < 8 ? n + 1 : n * 3)
        j->mul(j->y, ROWS, j->w, j->w_stride, ROWS, j->x, j->x_stride, n, K);
    j->mul(j->y, ROWS, j->w, j->w_stride, ROWS, j->x, j->x_stride, COLS, K);
    return NULL;
}

/* Bytes of its stack that a thread has written that multiplies, or only ends. */
static size_t written(struct job *j, uint8_t *stack) {
    pthread_attr_t attr;
    pthread_t thread;
    memset(stack, PAINT, STACK);
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstack(&attr, stack, STACK), 0);
    assert_int_equal(pthread_create(&thread, &attr, multiply, j), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attr);
    size_t clean = 0;
    while (clean < STACK && stack[clean] == PAINT)
        clean++;
    return STACK - clean;
}

static void products_take_what_is_said(void **state) {
    (void)state;
    uint8_t *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(stack != MAP_FAILED);
    float *y = calloc((size_t)ROWS * COLS, sizeof *y);
    const size_t of_thread = written(&(struct job){0}, stack);
    void *w = calloc(ROWS, K * sizeof(float)), *x = calloc(COLS, 2 * K * sizeof(float));
    for (int isa = 0; isa < LODE_ISA_COUNT; isa++) {
        if (!lode_isa_usable((enum lode_isa)isa))
            continue;
        struct lode_kern kern;
        lode_kern_table(&kern, (enum lode_isa)isa);
        size_t most = 0;
        for (int type = 0; type < LODE_DTYPE_COUNT; type++) {
            struct job j = {.mul = kern.mul[type], .y = y, .w = w, .x = x};
            if (!j.mul)
                continue;
            assert_true(lode_dtype_row_size((enum lode_dtype)type, K, &j.w_stride));
            assert_true(lode_dtype_row_size(lode_dtypes[type].act, K, &j.x_stride));
            const size_t now = written(&j, stack) - of_thread;
            most = now > most ? now : most;
            if (now > lode_isa_stack((enum lode_isa)isa))
                fail_msg("%s %s: %zu KiB of %zu", lode_isa_name((enum lode_isa)isa), lode_dtypes[type].name, now >> 10,
                         lode_isa_stack((enum lode_isa)isa) >> 10);
        }
        print_message("%s: %zu KiB of %zu\n", lode_isa_name((enum lode_isa)isa), most >> 10,
                      lode_isa_stack((enum lode_isa)isa) >> 10);
    }
    free(x);
    free(w);
    free(y);
    munmap(stack, STACK);
}

int main(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang__) || !defined(__OPTIMIZE__)
    return 77; /* other compilers and settings have other frames; gcc's are what is shipped and planned with */
#endif
    const struct CMUnitTest tests[] = {cmocka_unit_test(products_take_what_is_said)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
