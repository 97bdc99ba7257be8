/* models.h - the models of a server: found by name, loaded when they are asked for, unloaded when
 * nobody has used them for a while or their memory is needed for another.
 *
 * A request pins the model that it uses (server_model, server_release in server.h); what is pinned
 * stays.  Memory is counted by what each model was said to need, against one budget; who is not used
 * for longest goes first.  A request whose model finds no room waits some seconds for the others.
 * A model whose device is lost is let go of and loaded anew for the next request; where that fails requests are
 * refused, and it is tried again after one second, two, four, up to half a minute.
 */
#ifndef LODE_SERVE_MODELS_H
#define LODE_SERVE_MODELS_H

#include "serve/metrics.h"
#include "serve/server.h"

struct models;

enum model_state { MODEL_UNLOADED, MODEL_LOADING, MODEL_LOADED, MODEL_UNLOADING };

/* Opens those that are wanted from the start. */
int models_create(struct models **out, struct server *s, struct lode_error *err);
void models_free(struct models *m); /* nothing is pinned */
/* *out is pinned; NULL or "": the first.  LODE_ERR_MISSING: no model has this name; LODE_ERR_LIMIT (where:
 * "queue"): no room now. */
int models_pin(struct models *m, const char *name, struct served **out, struct lode_error *err);
void models_unpin(struct models *m, struct served *served);
/* As server_grow. */
int models_grow(struct models *m, struct served *served, uint64_t bytes, struct lode_error *err);
/* What the first model gives, once it has been loaded. */
enum serve_kind models_first_kind(struct models *m);
/* Unloads what nobody has used for serve_opts.idle seconds. */
void models_sweep(struct models *m);

struct model_view { /* of one, while the list is held still */
    const struct serve_model *spec;
    enum model_state state;
    const struct served *served; /* what it points to is there while it is MODEL_LOADED */
    struct metrics *metrics;
    struct lode_scheduler_stats stats; /* from the start, over all times that it was loaded */
    uint32_t ctx, slots;               /* of its last loading; 0: none yet */
    uint32_t pins;
    uint64_t loads, size; /* bytes that it takes, as far as is known */
    uint64_t forms;       /* bytes that its compiled forms take */
};
/* Calls fn for each, in order; fn may not call back into this list. */
void models_each(struct models *m, void (*fn)(void *user, const struct model_view *v), void *user);

#endif
