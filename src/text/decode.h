/* decode.h - decoders: ids -> text.
 *
 * A list of stages, each a transducer that is handed one token's text after the other and hands on
 * what it makes of it; the whole text of ids is what a stream of them gives, so both come from the
 * same code.  Stages before LODE_DECODE_FUSE (or LODE_DECODE_BYTES) see tokens, those behind it one
 * string in parts.
 */
#ifndef LODE_TEXT_DECODE_H
#define LODE_TEXT_DECODE_H

#include "base/error.h"
#include "text/vocab.h"

enum lode_decode_op {
    LODE_DECODE_BYTES,         /* GPT-2's alphabet back to bytes, then lossy UTF-8 */
    LODE_DECODE_BYTE_FALLBACK, /* a row of <0xAB>: its text, or one U+FFFD a byte */
    LODE_DECODE_REPLACE,
    LODE_DECODE_FUSE,
    LODE_DECODE_STRIP,     /* up to start and stop times `from` at the ends */
    LODE_DECODE_METASPACE, /* `from` to a space, in the first token to nothing */
    LODE_DECODE_WORDPIECE, /* `from` is the prefix; cleanup */
    LODE_DECODE_BPE,       /* `from`, the suffix, to a space, in the last token to nothing */
    LODE_DECODE_JOIN,      /* a space between tokens: no decoder at all */
    LODE_DECODE_SPM,       /* sentencepiece's own; see struct */
};

struct lode_decode_step {
    enum lode_decode_op op;
    struct lode_str from, to; /* in the arena */
    uint32_t start, stop;     /* STRIP */
    bool keep_first;          /* METASPACE: spaces of the first token too */
    bool cleanup;             /* WORDPIECE */
    /* SPM: */
    bool drop_space;   /* one leading space is the encoder's own (add_dummy_prefix) */
    bool drop_spaces;  /* all leading spaces (remove_extra_whitespaces) */
    bool hide_control; /* control pieces give nothing, unknown ones `to` */
};

enum { LODE_DECODE_MAX = 16 };

struct lode_decode {
    struct lode_decode_step steps[LODE_DECODE_MAX];
    uint32_t n;
    const struct lode_vocab *vocab; /* borrowed */
};

struct lode_decode_state { /* of one stage in one stream */
    struct lode_buf held;  /* owned: what cannot be handed on yet */
    struct lode_buf work;  /* owned: what is being handed on */
    uint64_t n_tokens;     /* seen */
    uint32_t stripped;
    bool fused, started, space_seen, past_start;
};

struct lode_decode_run {
    const struct lode_decode *decode; /* borrowed */
    struct lode_decode_state states[LODE_DECODE_MAX];
    struct lode_buf out; /* owned: the text so far; the caller empties it */
};

void lode_decode_run_init(struct lode_decode_run *run, const struct lode_decode *decode);
void lode_decode_run_reset(struct lode_decode_run *run); /* keeps the memory */
void lode_decode_run_deinit(struct lode_decode_run *run);

/* Adds to run->out.  false: out of memory. */
bool lode_decode_push(struct lode_decode_run *run, int32_t id);
bool lode_decode_finish(struct lode_decode_run *run);
/* Whether the bytes so far end within a character. */
bool lode_decode_in_character(const struct lode_decode_run *run);

#endif
