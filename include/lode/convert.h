/* convert.h - any model that lode opens as one GGUF file, in any of its number formats.
 *
 * Opening decides everything: which type each tensor gets, what the metadata will be, how large the
 * file is.  Writing then streams the numbers, a few rows at a time, so that the model may be larger
 * than memory.  The file appears whole or not at all, whenever the process ends.
 *
 *     struct lode_convert *c;
 *     struct lode_convert_opts o = { .type = "Q4_K_M" };
 *     if (lode_convert_open(&c, "some/directory", &o, &err) < 0) ...
 *     printf("%llu bytes\n", lode_convert_info(c)->size);
 *     rc = lode_convert_write(c, "model.gguf", NULL, NULL, &err);
 *     lode_convert_close(c);
 *
 * The same source and options give the same bytes, on every CPU and with any number of threads.
 */
#ifndef LODE_CONVERT_H
#define LODE_CONVERT_H

#include "lode/model.h"

#ifdef __cplusplus
extern "C" {
#endif

struct lode_convert;

/* Tensors whose name matches the regular expression (anywhere in it) get the type. */
struct lode_convert_rule {
    const char *pattern, *type;
};

struct lode_convert_opts { /* zero means the default */
    const char *type;      /* of the matrices, by a name of lode_convert_type: "BF16", "Q6_K", or a
                              mix, "Q4_K_M"; NULL: as the source has them */
    bool pure;             /* a mix's own type for all matrices, no more bits for any of them */
    const struct lode_convert_rule *rules; /* (n_rules); the first that matches counts */
    size_t n_rules;
    const char *imatrix;   /* a file of llama.cpp's imatrix: what each column is worth; or NULL */
    const char *name;      /* general.name; NULL: the source's */
    uint32_t threads;      /* 0: physical cores of the cgroup's share */
};

/* source: as for lode_model_load.  Strings of opts are needed during the call only. */
LODE_API int lode_convert_open(struct lode_convert **out, const char *source,
                               const struct lode_convert_opts *opts, struct lode_error *err);
LODE_API void lode_convert_close(struct lode_convert *c);

struct lode_convert_info { /* lives as long as the conversion */
    const char *arch, *format; /* of the source: "qwen3", "Hugging Face" */
    uint64_t size;             /* bytes of the file to be written */
    uint64_t work;             /* bytes of the source's tensors: the total that progress counts to */
    bool exact; /* every number stays what it is, so both models give the same logits bit for bit */
};
LODE_API const struct lode_convert_info *lode_convert_info(const struct lode_convert *c);

struct lode_convert_tensor { /* in the order of the file */
    const char *name, *from, *to; /* types; the same pointer for the same type */
    uint32_t n_dims;
    uint64_t dims[4]; /* innermost first; 1 beyond n_dims */
    uint64_t from_size, to_size;
    bool fallback; /* its rows do not fit the wanted type's blocks, so it has another */
};
LODE_API size_t lode_convert_n_tensors(const struct lode_convert *c);
LODE_API struct lode_convert_tensor lode_convert_tensor(const struct lode_convert *c, size_t i);

/* What the file cannot say, or what was not used: sentences for people. */
LODE_API size_t lode_convert_n_notes(const struct lode_convert *c);
LODE_API const char *lode_convert_note(const struct lode_convert *c, size_t i);

/* Writes the file; once a conversion.  progress (may be NULL) counts bytes of the source, and may
 * cancel: LODE_ERR_CANCELLED, and nothing is left. */
LODE_API int lode_convert_write(struct lode_convert *c, const char *path,
                                lode_progress_fn *progress, void *user, struct lode_error *err);

/* Names that opts.type and the rules take, with what they are; name NULL: i is behind the last. */
struct lode_convert_type {
    const char *name, *about;
    bool mix; /* not one type: rules do not take it */
};
LODE_API struct lode_convert_type lode_convert_type(size_t i);

#ifdef __cplusplus
}
#endif
#endif
