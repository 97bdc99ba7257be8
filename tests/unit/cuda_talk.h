/* cuda_talk.h - what tests of models on a GPU that is not there begin with (fake_cuda.h). */
#ifndef LODE_TESTS_CUDA_TALK_H
#define LODE_TESTS_CUDA_TALK_H

#include "../fake_cuda/fake_cuda.h"
#include "lode/lode.h"
#include "model/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_PROMPT = 100, N_NEW = 6, CTX = 128, BATCH = 64 };

/* Once a program: */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
    return "leak:dl_open_worker_begin"; /* as in test_cuda.c */
}

static const char *path_of(const char *name) {
    static char path[4096];
    const char *tests = getenv("LODE_TESTS");
    snprintf(path, sizeof path, "%s/data/arch/%s/model.gguf", tests ? tests : "tests", name);
    return path;
}

static void must(int rc, const struct lode_error *err) {
    if (rc < 0)
        fail_msg("%s: %s", err->where, err->text);
}

static void no_trace_left(const char *what) {
    if (fake_cuda.n_wrong)
        fail_msg("%s: %llu calls that no driver takes, the first: %s", what, (unsigned long long)fake_cuda.n_wrong,
                 fake_cuda.wrong);
    if (fake_cuda.n_live)
        fail_msg("%s: %llu things of the device are left", what, (unsigned long long)fake_cuda.n_live);
}

static int reset(void **state) {
    (void)state;
    fake_cuda_reset();
    return 0;
}

/* A prompt in long steps and short ones, then tokens one by one. */
static int talk(struct lode_session *s, struct lode_error *err) {
    int32_t ids[N_PROMPT];
    for (int32_t i = 0; i < N_PROMPT; i++)
        ids[i] = (7 * i + 3) % 37;
    int rc = lode_session_eval(s, ids, N_PROMPT, err);
    for (int i = 0; rc == 0 && i < N_NEW; i++)
        rc = lode_session_eval(s, &ids[i], 1, err);
    return rc;
}


#endif
