/* trace.h - which experts tokens went to, recorded, and what a cache would have made of it.
 *
 * A route trace has, for each token, the experts that each layer with routed experts chose and the
 * weights they got.  A session gives them while it evaluates (lode_session_opts.routes); a trace
 * keeps them; a replay counts what a cache of so many bytes would have had and what it would have
 * read, by a policy or by Belady's rule, which knows the future and cannot be beaten.
 *
 *     struct lode_trace *t;
 *     lode_trace_create(&t, &shape, n_tokens, &err);
 *     session_opts.routes = lode_trace_put, session_opts.routes_user = t;
 *     session_opts.guesses = lode_trace_put_guess;
 *     ... evaluate ...
 *     lode_trace_write(t, "run.trace", &err);
 *     lode_trace_replay(t, "lru", 1 << 30, &result, &err);
 *     lode_trace_free(t);
 *
 * The file (docs/bigger-than-memory.md draws it) is little-endian:
 *
 *     "LODETRS4"
 *     u32 n_layers, n_experts, n_used, name_size
 *     u64 other_bytes, head_bytes, expert_bytes[n_layers]    0: the layer has no routed experts
 *     u8  guessed[n_layers]                          of the layer's choice: 1, an early guess; 2, a late one
 *     name_size bytes                                the model's name
 *     u64 n_tokens
 *     for each of them:
 *         u32 position                               0 begins another text
 *         for each layer with experts: n_used x u16 expert, ascending; n_used x f32 weight;
 *             for each bit of guessed n_used x u16 expert, the surest first; 65535: none was made
 *     u64 xxh3                                       of all bytes before it
 *
 * "LODETRC3", "LODETRC2" and "LODETRC1", which are read as well, have no xxh3; the latter two no n_tokens; the last
 * neither head_bytes nor guesses.
 */
#ifndef LODE_TRACE_H
#define LODE_TRACE_H

#include "lode/model.h"

#ifdef __cplusplus
extern "C" {
#endif

struct lode_trace;

struct lode_trace_shape {
    uint32_t n_layers, n_experts, n_used;
    uint64_t other_bytes;         /* of weights that every token reads beside its experts; */
    uint64_t head_bytes;          /* those of them that it reads after its last layer; 0: not known */
    const uint64_t *expert_bytes; /* (n_layers) of one expert; 0: a layer without any */
    const char *name;             /* of the model; NULL: "" */
    bool guesses;                 /* there is room for some, or there are some */
};

/* What a model's experts are; borrowed, lives as long as the model.  n_experts 0: it has none. */
LODE_API struct lode_trace_shape lode_model_routes(const struct lode_model *m);

/* Room for n_tokens, all at position 0 and expert 0 until they are put.  The shape is copied.  LODE_ERR_LIMIT
 * with the numbers where memory does not hold them. */
LODE_API int lode_trace_create(struct lode_trace **out, const struct lode_trace_shape *shape,
                               size_t n_tokens, struct lode_error *err);
LODE_API void lode_trace_free(struct lode_trace *t);
LODE_API const struct lode_trace_shape *lode_trace_shape(const struct lode_trace *t);
LODE_API size_t lode_trace_n_tokens(const struct lode_trace *t);
/* False: it was read from a file of the time before there was a checksum, and damage may have gone unseen. */
LODE_API bool lode_trace_summed(const struct lode_trace *t);
/* Bytes of all experts of all layers. */
LODE_API uint64_t lode_trace_bytes(const struct lode_trace *t);

/* What a session calls (lode_session_opts.routes), user being the trace: token `pos` of the layer.
 * Tokens beyond the room and layers without experts are left out. */
LODE_API void lode_trace_put(void *user, uint32_t layer, uint32_t pos, const uint32_t *experts,
                             const float *weights, uint32_t n);
/* The same for guesses (lode_session_opts.guesses) where the shape has them. */
LODE_API void lode_trace_put_guess(void *user, uint32_t layer, uint32_t pos, bool late,
                                   const uint32_t *experts, uint32_t n);
/* What is put from now on is a text of its own, whose position 0 is token `first` of the trace. */
LODE_API void lode_trace_begin(struct lode_trace *t, size_t first);
/* Forgets the tokens from n on. */
LODE_API void lode_trace_cut(struct lode_trace *t, size_t n);

/* LODE_ERR_FORMAT says what is wrong with it; that any one byte is not as it was written is found. */
LODE_API int lode_trace_parse(struct lode_trace **out, const void *data, size_t size,
                              const char *where, struct lode_error *err);
LODE_API int lode_trace_open(struct lode_trace **out, const char *path, struct lode_error *err);
LODE_API int lode_trace_write(const struct lode_trace *t, const char *path, struct lode_error *err);

struct lode_replay {
    uint64_t tokens, uses, hits;     /* hits: uses of what is there, or on its way because it was guessed; */
    uint64_t guessed;                /* of them, those that a guess brought */
    uint64_t bytes_used, bytes_read; /* of experts: all uses; those that were not there, and what was guessed */
    uint64_t bytes_wrong;            /* of bytes_read, guesses that were called off, or left unused */
    uint64_t first_reads;            /* of bytes_read, what no cache can avoid: each expert's first */
    double seconds;                  /* that it would have taken; 0 without a pace */
};

/* policy: "lru" and so on, NULL for the default, or "belady": the optimum where all experts have one
 * size, a good guess where they differ.  capacity in bytes; LODE_ERR_LIMIT where the experts of one
 * token and layer do not fit.  All experts of a step are in the cache at once, for every policy. */
LODE_API int lode_trace_replay(const struct lode_trace *t, const char *policy, uint64_t capacity,
                               struct lode_replay *out, struct lode_error *err);

/* How fast it goes: bytes/s at which computing goes through weights (lode_plan_ram_pace), and the disk reads
 * while nothing is computed; seconds that a layer takes besides, and that each takes which waits for the disk beside
 * what its bytes do: how much longer a read takes alone than as one of many. */
struct lode_replay_pace {
    double ram, disk, layer, wait;
};

/* The same in time, one token after the other: the disk reads what is asked for, all of a layer at once, each
 * is computed with when it is there, and meanwhile, with `guesses`, what the trace's guesses name is read
 * behind that, as a model does that streams its experts.  Without guesses in the trace, and for Belady's rule,
 * there are none.  pace NULL: nothing takes any time. */
LODE_API int lode_trace_replay_at(const struct lode_trace *t, const char *policy, uint64_t capacity,
                                  const struct lode_replay_pace *pace, bool guesses,
                                  struct lode_replay *out, struct lode_error *err);

/* The policies' names, NULL-terminated, and what each does, in words; the first is the default. */
LODE_API const char *const *lode_trace_policies(void);
LODE_API const char *lode_trace_policy_about(const char *name);

/* Texts in which expert e of a layer is drawn with a chance like 1 / rank^zipf: ranks drift by
 * `drift` x n_experts exchanges a token, and with chance `repeat` a token takes an expert that the
 * one before it took. */
struct lode_trace_synth {
    uint32_t n_layers, n_experts, n_used;
    size_t n_tokens;
    uint64_t expert_bytes, seed;
    double zipf, drift, repeat;
};
LODE_API int lode_trace_synthesise(struct lode_trace **out, const struct lode_trace_synth *how,
                                   struct lode_error *err);

#ifdef __cplusplus
}
#endif
#endif
