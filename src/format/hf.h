/* hf.h - a Hugging Face directory as a source: config.json, safetensors, and the files beside them.
 *
 * config.json is taken in the form that transformers 5 writes (rope_parameters) and in that of
 * older files (rope_theta, rope_scaling, ...); a model inside of a multimodal one (text_config) is
 * found by its prefix.  What a configuration asks for and lode does not compute is an error that
 * names the field: a model never runs as something that it is not.
 *
 * Tensors lie where the safetensors have them, and are used from there, where their numbers follow
 * one another as the model wants them: also experts that are stored one by one, or joined with
 * their twins.  Others are put in order when read: queries, keys and values that are woven into one
 * another, experts that lie turned, norms whose model adds one to the weight (widened to F32).
 * Rotary divisors are computed from the configuration.
 */
#ifndef LODE_FORMAT_HF_H
#define LODE_FORMAT_HF_H

#include "format/source.h"

/* LODE_ERR_MISSING when the directory has no config.json or no weights. */
int lode_hf_open(struct lode_source **out, const char *dir, bool map, struct lode_error *err);

#endif
