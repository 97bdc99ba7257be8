/* disk.h - pages of prefixes, recurrent states and remembered timelines in a directory, for the next
 * time.
 *
 *     DIR/0123456789abcdef/KEY.pages, KEY.state, KEY.words    of one identity, see lode_disk_identity
 *
 * KEY is the hash of all tokens from the beginning on (engine/prefix.h); of words (tokens by a key of
 * their owner's), that key.  A file is written under
 * another name and renamed, and ends with a checksum of all of it: whenever a process dies, a file
 * is there whole or not at all, and one that is not as it was written is removed and counted, never
 * used.  It is not asked to be on the medium before going on: what a loss of power takes is read anew.
 *
 * What was made with another model, other numerics or another device is in directories of its own: kept,
 * counted, not used.  All of them together stay below a bound; the entries used least recently go.
 *
 * Little-endian, like the pages themselves.  One thread, but for lode_disk_write.
 */
#ifndef LODE_ENGINE_DISK_H
#define LODE_ENGINE_DISK_H

#include "model/model.h"
#include "store/kv.h"

#include <xxhash.h>

struct lode_disk;

enum lode_disk_kind { LODE_DISK_PAGES, LODE_DISK_STATE, LODE_DISK_WORDS, LODE_DISK_KINDS };
enum { LODE_DISK_MAX_PARTS = 32 };

/* Everything that a page's bytes depend on besides its tokens: the model's weights (a sample of each),
 * the revision of the kernels, how activations are rounded, the kind of device, the formats of keys and
 * values, the rotary tables. */
int lode_disk_identity(const struct lode_model *m, const struct lode_kv_pool *pool,
                       const struct lode_rope *ropes, XXH128_hash_t *out, struct lode_error *err);

/* path: made if it is not there (its parent must be).  LODE_ERR_IO where it cannot be used. */
int lode_disk_open(struct lode_disk **out, const char *path, uint64_t max_bytes,
                   XXH128_hash_t identity, struct lode_error *err);
void lode_disk_close(struct lode_disk *d);

struct lode_disk_entry {
    XXH128_hash_t key;
    enum lode_disk_kind kind;
    int32_t tokens[LODE_KV_PAGE]; /* of the page that ends there; of words: zeros */
    uint32_t n_parts;
    const void *parts[LODE_DISK_MAX_PARTS]; /* NULL: not there */
    size_t sizes[LODE_DISK_MAX_PARTS];
};

bool lode_disk_has(const struct lode_disk *d, XXH128_hash_t key, enum lode_disk_kind kind);
/* Bytes of the entry's parts; 0: it is not there. */
uint64_t lode_disk_content(const struct lode_disk *d, XXH128_hash_t key, enum lode_disk_kind kind);
/* Bytes of a file of these parts. */
uint64_t lode_disk_size(const struct lode_disk_entry *e);
/* Fills the parts' places, of e->sizes; parts[i] becomes NULL where the file has none.  Negative: it
 * cannot be used, and is not listed any more. */
int lode_disk_read(struct lode_disk *d, struct lode_disk_entry *e, void *const *places);
/* The file, listed by lode_disk_add.  Any thread, but for one key at a time. */
int lode_disk_write(const struct lode_disk *d, const struct lode_disk_entry *e);
/* It is there now: others go where the bound wants it. */
void lode_disk_add(struct lode_disk *d, XXH128_hash_t key, enum lode_disk_kind kind, uint64_t size);

struct lode_disk_stats {
    uint64_t bytes, entries, foreign; /* foreign: entries of other identities */
    uint64_t corrupt, evicted;
};
void lode_disk_stats(const struct lode_disk *d, struct lode_disk_stats *out);

#endif
