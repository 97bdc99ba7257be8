/* cuda_rules.h - what all tests with a driver that stands in hold a program to (fake_cuda.h). */
#ifndef LODE_TESTS_CUDA_RULES_H
#define LODE_TESTS_CUDA_RULES_H

#include "../fake_cuda/fake_cuda.h"
#include "failmalloc.h"
#include "lode/lode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

/* Once a program: what the C library keeps of a library that was linked and is opened for the first time, where the
 * address sanitizer does not look. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
    return "leak:dl_open_worker_begin";
}

static void must(int rc, const struct lode_error *err) {
    if (rc < 0)
        fail_msg("%s: %s", err->where, err->text);
}

static void keeps_the_rules(const char *what) {
    if (fake_cuda.n_wrong)
        fail_msg("%s: %llu calls that no driver takes, the first: %s", what, (unsigned long long)fake_cuda.n_wrong,
                 fake_cuda.wrong);
}

static void no_trace_left(const char *what) {
    keeps_the_rules(what);
    if (fake_cuda.n_live)
        fail_msg("%s: %llu things of the device are left", what, (unsigned long long)fake_cuda.n_live);
}

/* After the host's n-th allocation was refused. */
static void host_refused(uint64_t n, int rc, const struct lode_error *err, const struct failmalloc_stats *s) {
    no_trace_left("an allocation of the host's");
    if (s->live != 0)
        fail_msg("allocation %llu failing: %lld blocks leaked", (unsigned long long)n, (long long)s->live);
    if (rc < 0 && !failmalloc_told(rc, err))
        fail_msg("allocation %llu failing: %d (%s), said \"%s: %s\"", (unsigned long long)n, rc, lode_error_name(rc),
                 err->where, err->text);
}

/* After the device was lost at the n-th of `all` calls.  MISSING: before there is a driver; NOMEM: a session's buffers,
 * which it did not give; 0: when all that is left is to give things back. */
static void device_lost(const char *name, uint64_t n, uint64_t all, int rc, const struct lode_error *err,
                        const struct failmalloc_stats *s) {
    keeps_the_rules("a lost device");
    if (s->live != 0)
        fail_msg("%s lost at call %llu: %lld blocks leaked", name, (unsigned long long)n, (long long)s->live);
    if (rc < 0 && ((rc != LODE_ERR_DEVICE && rc != LODE_ERR_MISSING && rc != LODE_ERR_NOMEM) || err->code != rc ||
                   !err->text[0]))
        fail_msg("%s lost at call %llu of %llu: %d (%s), said \"%s: %s\"", name, (unsigned long long)n,
                 (unsigned long long)all, rc, lode_error_name(rc), err->where, err->text);
}

/* Says so where no driver stands in: nothing is to be run then. */
static bool no_devices(void) {
    struct lode_error why = {0};
    if (lode_device_count(&why) > 0)
        return false;
    printf("skipped: %s\n0 passed, 0 failed, 1 skipped\n", why.text);
    return true;
}

/* A prompt in as many steps as it takes, then tokens one by one, which is when steps are captured. */
static int say(struct lode_session *s, int32_t n_prompt, int n_new, struct lode_error *err) {
    int32_t ids[128];
    assert_true(n_prompt <= (int32_t)(sizeof ids / sizeof *ids) && n_new <= n_prompt);
    for (int32_t i = 0; i < n_prompt; i++)
        ids[i] = (7 * i + 3) % 37;
    int rc = lode_session_eval(s, ids, (size_t)n_prompt, err);
    for (int i = 0; rc == 0 && i < n_new; i++)
        rc = lode_session_eval(s, &ids[i], 1, err);
    return rc;
}

static int reset(void **state) {
    (void)state;
    fake_cuda_reset();
    return 0;
}

#endif
