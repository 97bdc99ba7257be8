/* besides.h - lode_model_besides (lode/plan.h), with the choices that it makes left to the caller. */
#ifndef LODE_ENGINE_BESIDES_H
#define LODE_ENGINE_BESIDES_H

#include "lode/plan.h"
#include "model/model.h"

/* Of a model that runs on the CPU and gives tokens.  whole: the stand-in has all rows, each with bytes of its own;
 * seconds: how long tokens are timed. */
int lode_besides_measure(const struct lode_model *m, uint32_t threads, bool whole, double seconds,
                         struct lode_besides *out, struct lode_error *err);

#endif
