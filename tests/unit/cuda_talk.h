/* cuda_talk.h - what tests of models on a GPU that is not there begin with (fake_cuda.h). */
#ifndef LODE_TESTS_CUDA_TALK_H
#define LODE_TESTS_CUDA_TALK_H

#include "../own_files.h"
#include "cuda_rules.h"
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_PROMPT = 100, N_NEW = 6, CTX = 128, BATCH = 64 };

/* A prompt in a long step and a short one, then tokens. */
static int talk(struct lode_session *s, struct lode_error *err) { return say(s, N_PROMPT, N_NEW, err); }

#endif
