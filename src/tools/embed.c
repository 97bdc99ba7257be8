/* embed.c - `lode embed`: texts as vectors, and pairs of texts as scores. */
#include "args.h"
#include "input.h"
#include "load.h"
#include "out.h"
#include "profile.h"
#include "verbs.h"

#include "lode/lode.h"

#include <stdlib.h>
#include <string.h>

static const char *const poolings[] = {"mean", "cls", "last", "rank", NULL};
static const char *const formats[] = {"json", "array", "raw", NULL};

struct opts {
    struct load_opts load;
    const char *prompt, *file, *ids, *separator, *pair_separator, *pooling, *format, *query;
    int64_t normalize;
};

static const struct arg_flag flags[] = {
    LOAD_MODEL_FLAGS(struct opts),
    {"-p, --prompt", ARG_STR, ARG_AT(struct opts, prompt), .meta = "TEXT",
     .group = "Input and output", .help = "the texts, one a line"},
    {"-f, --file", ARG_STR, ARG_AT(struct opts, file), .meta = "FILE",
     .shown = "standard input", .help = "a file with the texts, one a line"},
    {"--embd-separator", ARG_STR, ARG_AT(struct opts, separator), .meta = "STRING", .def = "\n",
     .shown = "a newline", .help = "what stands between texts"},
    {"--rerank, --query", ARG_STR, ARG_AT(struct opts, query), .meta = "QUERY",
     .help = "score each text as a document for this query, by a cross-encoder"},
    {"--cls-separator", ARG_STR, ARG_AT(struct opts, pair_separator), .meta = "STRING",
     .def = "\t", .shown = "a tab",
     .help = "with --pooling rank and no --rerank: what stands between a text's query and document"},
    {"--embd-output-format", ARG_CHOICE, ARG_AT(struct opts, format), .meta = "FORMAT",
     .def = "json", .choices = formats,
     .help = "json as OpenAI's (scores: as Jina's), array: [[...], ...], raw: one line a text"},
    {"--ids", ARG_STR, ARG_AT(struct opts, ids), .meta = "LIST", .debug = true,
     .help = "one text as token ids: 1,2,3, or @FILE"},
    {"--pooling", ARG_CHOICE, ARG_AT(struct opts, pooling), .meta = "KIND", .choices = poolings,
     .shown = "the model's; else an encoder's mean, a decoder's last", .group = "Vectors",
     .help = "which tokens' final states make the vector; rank: the classifier's score"},
    {"--embd-normalize", ARG_INT, ARG_AT(struct opts, normalize), .meta = "N", .min = -1,
     .max = 1000, .def = "2",
     .help = "length 1 by the N-norm (2 Euclid, 1 taxicab); 0: largest magnitude 32760; -1: as "
             "pooled"},
    {"-c, --ctx-size, --ctx", ARG_INT, ARG_AT(struct opts, load.ctx), .meta = "N", .def = "0",
     .shown = "what the model was trained for", .min = 0, .max = 1 << 28,
     .group = "Speed and memory", .help = "longest text in tokens"},
    {"-t, --threads", ARG_INT, ARG_AT(struct opts, load.threads), .meta = "N", .min = 0,
     .max = 1024, .def = "0", .shown = "the physical cores this process may use",
     .help = "threads"},
    {"-b, --batch-size, --batch", ARG_INT, ARG_AT(struct opts, load.batch), .meta = "N", .min = 0,
     .max = 1 << 16, .def = "0", .shown = "512, and an encoder's longest text",
     .help = "tokens evaluated at once"},
    {"-ctk, --cache-type-k", ARG_CHOICE, ARG_AT(struct opts, load.ctk), .meta = "TYPE",
     .choices = arg_kv_types, .shown = "f16, an encoder's f32", .help = "how keys are stored"},
    {"-ctv, --cache-type-v", ARG_CHOICE, ARG_AT(struct opts, load.ctv), .meta = "TYPE",
     .choices = arg_kv_types, .shown = "f16, an encoder's f32", .help = "how values are stored"},
    LOAD_EXPERTS_FLAG(struct opts),
    {"--attention", ARG_FOREIGN, .meta = "KIND", .help = "the file says which tokens see which"},
    {"--embedding, --embeddings", ARG_FOREIGN_BOOL, .help = "that is all this verb does"},
    LOAD_FOREIGN_FLAGS,
};

static const struct arg_spec spec = {
    .verb = "embed",
    .usage = "MODEL [-p TEXT | -f FILE] [--pooling KIND] [flags]\n"
             "MODEL --rerank QUERY [-p TEXT | -f FILE] [flags]",
    .brief = "texts as vectors, and how well documents answer a query",
    .about = "Prints a vector for each text: pooled final states of an encoder (BERT, Nomic, XLM-R)\n"
             "or of any decoder.  A text's vector is the same bits alone and among others, for any\n"
             "number of threads and instruction set.  Texts longer than the context are refused.",
    .examples = "lode embed all-MiniLM-L6-v2 -p 'a cat sat on the mat'\n"
                "lode embed nomic.gguf -f queries.txt --embd-output-format raw\n"
                "lode embed bge-reranker --rerank 'what is a panda?' -f documents.txt",
    .flags = flags,
    .n_flags = ARG_COUNT(flags),
};

struct texts {
    struct lode_embed_text *v; /* (n of cap); tokens owned */
    size_t n, cap;
};

static void texts_free(struct texts *t) {
    for (size_t i = 0; i < t->n; i++)
        free((void *)t->v[i].tokens);
    free(t->v);
}

static int add(struct texts *t, struct lode_embed_text text, struct lode_error *err) {
    if (t->n == t->cap) {
        const size_t cap = t->cap ? 2 * t->cap : 64;
        struct lode_embed_text *more = realloc(t->v, cap * sizeof *more);
        if (!more) {
            free((void *)text.tokens);
            return tool_fail(err, LODE_ERR_NOMEM, "texts", "no memory for %zu texts", cap);
        }
        t->v = more;
        t->cap = cap;
    }
    t->v[t->n++] = text;
    return 0;
}

static int add_pair(struct texts *t, const struct lode_model *m, const char *query, size_t query_len,
                    const char *text, size_t len, struct lode_error *err) {
    struct lode_embed_text e = {0};
    size_t cap = query_len + len + 16;
    int32_t *ids = NULL;
    for (;;) {
        int32_t *more = realloc(ids, cap * sizeof *ids);
        if (!more) {
            free(ids);
            return tool_fail(err, LODE_ERR_NOMEM, "texts", "no memory for %zu tokens", cap);
        }
        ids = more;
        const int64_t n = lode_embed_pair(m, query, query_len, text, len, ids, cap, &e.second, err);
        if (n < 0) {
            free(ids);
            return (int)n;
        }
        e.n = (size_t)n;
        if (e.n <= cap)
            break;
        cap = e.n;
    }
    e.tokens = ids;
    return add(t, e, err);
}

static int add_text(struct texts *t, const struct opts *o, const struct lode_model *m, bool rank,
                    const char *text, size_t len, struct lode_error *err) {
    if (o->query)
        return add_pair(t, m, o->query, strlen(o->query), text, len, err);
    const size_t n_sep = strlen(o->pair_separator);
    for (size_t i = 0; rank && n_sep && i + n_sep <= len; i++)
        if (memcmp(text + i, o->pair_separator, n_sep) == 0)
            return add_pair(t, m, text, i, text + i + n_sep, len - i - n_sep, err);
    struct ids ids = {0};
    const int rc = ids_tokenize(&ids, lode_model_tokenizer(m), text, len,
                                LODE_TOK_SPECIAL | LODE_TOK_PARSE, err);
    if (rc < 0)
        return rc;
    return add(t, (struct lode_embed_text){ids.v, ids.n, 0}, err);
}

/* The texts between separators; one separator at the end ends the last text. */
static int split(struct texts *t, const struct opts *o, const struct lode_model *m, bool rank,
                 const char *data, size_t size, struct lode_error *err) {
    const size_t n_sep = strlen(o->separator);
    if (!lode_model_tokenizer(m))
        return tool_fail(err, LODE_ERR_MISSING, o->load.model, "the model has no vocabulary");
    if (n_sep && size >= n_sep && memcmp(data + size - n_sep, o->separator, n_sep) == 0)
        size -= n_sep;
    int rc = 0;
    for (size_t first = 0; rc == 0 && first <= size;) {
        size_t end = first;
        while (n_sep && end + n_sep <= size && memcmp(data + end, o->separator, n_sep) != 0)
            end++;
        if (!n_sep || end + n_sep > size)
            end = size;
        rc = add_text(t, o, m, rank, data + first, end - first, err);
        first = end + (n_sep ? n_sep : 1);
    }
    return rc;
}

static int read_texts(struct texts *t, const struct opts *o, const struct lode_model *m, bool rank,
                      struct lode_error *err) {
    struct ids ids = {0};
    if (o->ids) {
        const int rc = ids_parse(&ids, o->ids, err);
        return rc < 0 ? rc : add(t, (struct lode_embed_text){ids.v, ids.n, 0}, err);
    }
    char *data = NULL;
    size_t size = o->prompt ? strlen(o->prompt) : 0;
    int rc = o->prompt ? 0 : input_read(o->file ? o->file : "-", 0, &data, &size, err);
    if (rc == 0)
        rc = split(t, o, m, rank, o->prompt ? o->prompt : data, size, err);
    free(data);
    return rc;
}

static void print_vector(const float *v, size_t n, const char *between) {
    for (size_t i = 0; i < n; i++)
        printf("%s%.9g", i ? between : "", (double)v[i]);
}

static void print_all(const char *format, const struct texts *t, const float *v, size_t width,
                      bool rank) {
    size_t tokens = 0;
    const bool json = !strcmp(format, "json"), raw = !strcmp(format, "raw");
    const bool score = rank && width == 1;
    if (!raw)
        fputs(!json ? "[" : rank ? "{\"object\":\"list\",\"results\":["
                                 : "{\"object\":\"list\",\"data\":[", stdout);
    for (size_t i = 0; i < t->n; i++, v += width) {
        tokens += t->v[i].n;
        if (raw) {
            print_vector(v, width, " ");
            putchar('\n');
            continue;
        }
        fputs(i ? ",\n" : "\n", stdout);
        if (json && rank)
            printf("{\"index\":%zu,\"relevance_score\":", i);
        else if (json)
            printf("{\"object\":\"embedding\",\"index\":%zu,\"embedding\":", i);
        fputs(score && json ? "" : "[", stdout);
        print_vector(v, width, ",");
        fputs(score && json ? "" : "]", stdout);
        if (json)
            putchar('}');
    }
    if (json)
        printf("\n],\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu}}\n", tokens, tokens);
    else if (!raw)
        puts("\n]");
}

static int embed(const struct opts *o, struct lode_model *m, struct lode_error *err) {
    struct lode_embedder *e = NULL;
    struct texts t = {0};
    float *v = NULL;
    int rc = lode_embed_create(&e, m,
                               &(struct lode_embed_opts){.pooling = o->query ? "rank" : o->pooling,
                                                         .plain = true,
                                                         .ctx = (uint32_t)o->load.ctx,
                                                         .batch = (uint32_t)o->load.batch,
                                                         .threads = (uint32_t)o->load.threads,
                                                         .ctk = o->load.ctk,
                                                         .ctv = o->load.ctv},
                               err);
    const bool rank = rc == 0 && !strcmp(lode_embed_pooling(e), "rank");
    if (rc == 0)
        rc = read_texts(&t, o, m, rank, err);
    const size_t width = rc == 0 ? lode_embed_width(e) : 0;
    if (rc == 0 && !(v = calloc(t.n + 1, width * sizeof *v)))
        rc = tool_fail(err, LODE_ERR_NOMEM, "vectors", "no memory for %zu of %zu numbers", t.n, width);
    if (rc == 0)
        rc = lode_embed_run(e, t.v, t.n, v, err);
    for (size_t i = 0; rc == 0 && !rank && i < t.n; i++)
        lode_embed_normalize(v + i * width, width, (int)o->normalize);
    if (rc == 0)
        print_all(o->format, &t, v, width, rank);
    free(v);
    texts_free(&t);
    lode_embed_free(e);
    return rc;
}

int verb_embed(int argc, char **argv) {
    struct opts o = {0}; /* not all of load has a flag here */
    struct args a;
    const int status = args_main(&a, &spec, &o, argc, argv);
    if (status >= 0)
        return status;
    if (!o.load.model)
        return args_usage_error(&spec, "which model?");
    if (!!o.prompt + !!o.file + !!o.ids > 1)
        return args_usage_error(&spec, "-p, -f and --ids are several texts; give one of them");
    struct lode_error err = {0};
    struct lode_model *m = NULL;
    struct profile *profile = NULL;
    int rc = load_model(&m, &o.load, &err);
    if (rc == 0)
        rc = profile_begin(&profile, m, &o.load, &err);
    if (rc == 0)
        rc = embed(&o, m, &err);
    rc = profile_finish(profile, rc, &err);
    lode_model_free(m);
    return rc < 0 ? tool_report(&err) : 0;
}
