/* serve_models.h - the models that `lode serve` and `lode batch` have: their flags, the file that may
 * list several, and how each is loaded.
 *
 * The file (ini.h) has the flags' names without their dashes as keys.  Keys before the first section
 * are settings of the program, or of all its models, as those of a section [*] are; every other
 * section is a model, called as the section is.  What the command line or the environment says
 * goes before the file.  A key that is not known is an error with its line.
 *
 *     port = 8080
 *     ctx-size = 8192
 *
 *     [qwen]
 *     model = /models/qwen3-8b.gguf
 *     alias = default, qwen3
 */
#ifndef LODE_TOOLS_SERVE_MODELS_H
#define LODE_TOOLS_SERVE_MODELS_H

#include "args.h"
#include "load.h"

#include "serve/serve.h"

struct model_opts { /* of one model; a verb's options begin with it */
    struct load_opts load;
    const char *alias, *template, *pooling;
    int64_t parallel, queue, chunk, kv_tokens, cache_ram;
    const char *cache_dir;
    uint64_t cache_dir_size;
    bool at_start, no_cache;
};

/* Rows of a verb's table; the model itself is the verb's own row (ARG_MODEL). */
#define SERVE_MODEL_FLAGS                                                                          \
    LOAD_DEBUG_FLAGS(struct model_opts),                                                           \
        {"-a, --alias", ARG_STR, ARG_AT(struct model_opts, alias), .meta = "NAME[,NAME]",          \
         .shown = "the file's name", .help = "what clients call the model"},                       \
        {"--chat-template", ARG_STR, ARG_AT(struct model_opts, template), .meta = "NAME|FILE",     \
         .shown = "the model's", .help = "another template: a built-in, Jinja text, or a file"},   \
        {"--pooling", ARG_CHOICE, ARG_AT(struct model_opts, pooling), .meta = "KIND",              \
         .choices = serve_poolings, .shown = "the model's; else an encoder's mean, a decoder's last", \
         .help = "of embeddings: which tokens' final states make a vector"},                       \
        {"--embedding, --embeddings, --reranking", ARG_FOREIGN_BOOL,                               \
         .help = "every model gives vectors when asked for them"},                                 \
        {"--load-on-startup", ARG_BOOL, ARG_AT(struct model_opts, at_start),                       \
         .help = "with --config: loads it before the server answers, not when it is asked for"}

#define SERVE_MEMORY_FLAGS                                                                         \
    {"-np, --parallel", ARG_INT, ARG_AT(struct model_opts, parallel), .meta = "N", .def = "4",     \
     .min = 1, .max = 1024, .group = "Speed and memory",                                           \
     .help = "requests that are answered at once"},                                                \
        {"--queue", ARG_INT, ARG_AT(struct model_opts, queue), .meta = "N", .def = "64", .min = 1, \
         .max = 1 << 20, .help = "requests that may wait; more are refused with 503"},             \
        {"--chunk", ARG_INT, ARG_AT(struct model_opts, chunk), .meta = "N", .def = "64", .min = 1, \
         .max = 1 << 16, .help = "prompt tokens of a step while others are being answered"},       \
        {"-c, --ctx-size, --ctx", ARG_INT, ARG_AT(struct model_opts, load.ctx), .meta = "N",       \
         .def = "0", .shown = "the model's, or what fits", .min = 0, .max = 1 << 28,               \
         .help = "longest conversation in tokens, of each request"},                               \
        LOAD_SESSION_FLAGS(struct model_opts),                                                     \
        {"--kv-tokens", ARG_INT, ARG_AT(struct model_opts, kv_tokens), .meta = "N", .def = "0",    \
         .shown = "a context for each, or what fits", .min = 0, .max = INT64_C(1) << 40,           \
         .group = "What is kept of prompts",                                                       \
         .help = "tokens whose keys and values all requests and kept prefixes together may have"}, \
        {"-cram, --cache-ram", ARG_INT, ARG_AT(struct model_opts, cache_ram), .meta = "MIB",       \
         .def = "-1", .min = -1, .max = 1 << 30,                                                   \
         .help = "the most of it for kept prefixes; -1: what no request needs; 0: keep none"},     \
        {"--cache-dir", ARG_STR, ARG_AT(struct model_opts, cache_dir), .meta = "DIR",              \
         .shown = "none", .help = "keep prefixes on disk too, for the next start"},                \
        {"--cache-dir-size", ARG_SIZE, ARG_AT(struct model_opts, cache_dir_size), .meta = "SIZE",  \
         .def = "16G", .min = 1 << 20, .max = 1e15, .help = "how much that may become"},           \
        {"--no-cache-prompt", ARG_BOOL, ARG_AT(struct model_opts, no_cache),                       \
         .help = "each request reads all of its prompt"}

struct serve_models;
extern const char *const serve_poolings[]; /* NULL ends them */

/* a, of the verb's options (size bytes, a struct model_opts first): the model that it names, or those of
 * the file (NULL: none).  What the file says to the program itself is set in the options. */
int serve_models_open(struct serve_models **out, struct args *a, size_t size, const char *config,
                      struct lode_error *err);
void serve_models_close(struct serve_models *m);
/* Sets models, n_models, strict, most_active, open, close and models_user of o. */
void serve_models_fill(struct serve_models *m, struct serve_opts *o);

#endif
