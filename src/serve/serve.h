/* serve.h - models over HTTP.
 *
 * The server loads models by a function that it is given, when they are asked for, and lets go of
 * those that nobody uses.  Connections cost no threads (transport.h); each request that is being answered
 * has one, which starts a generation and writes what comes; the scheduler's thread alone touches
 * sessions.  What a client sends is checked field by field (fields.h); a client that goes away
 * cancels its request.
 */
#ifndef LODE_SERVE_SERVE_H
#define LODE_SERVE_SERVE_H

#include "serve/guard.h"
#include "serve/log.h"

#include "lode/embed.h"
#include "lode/scheduler.h"

enum { SERVE_STOP = 's', SERVE_RELOAD = 'r' }; /* bytes of control_fd */

struct serve_model { /* one that clients can name */
    const char *name, *path;
    const char *const *aliases; /* (n_aliases): other names */
    size_t n_aliases;
    uint64_t size;  /* bytes that it needs, as far as that is known before it is loaded */
    bool at_start;  /* loaded before the server answers; else when it is asked for */
};

/* What a model gives; completions: it has no chat template; scores: of pairs. */
enum serve_kind { SERVE_CHATS, SERVE_COMPLETIONS, SERVE_VECTORS, SERVE_SCORES };

struct serve_loaded { /* what is made of it */
    struct lode_model *model;
    struct lode_scheduler *scheduler; /* the server frees it; NULL: the model gives vectors only */
    const char *template;              /* Jinja source; NULL: the model has none */
    struct lode_sampler_opts sampling; /* where a request says nothing; its pointers outlive */
    struct lode_embed_opts embed;      /* how its texts become vectors; as above */
    uint64_t size; /* bytes that it takes now (of a model that gives vectors only, with what that needs);
                      0: as was said */
};

struct serve_opts {
    const struct serve_model *models; /* (n_models), at least one; the first answers who names none */
    size_t n_models;
    bool strict;      /* who names another model is told so; else the first answers */
    uint64_t budget;  /* bytes of all that are loaded; 0: any */
    uint32_t at_once; /* as many are loaded at most; 0: any */
    uint32_t idle;    /* seconds without requests until a model is unloaded; 0: never */
    /* i < n_models.  Neither is called twice at once for one i. */
    int (*open)(void *models_user, size_t i, struct serve_loaded *out, struct lode_error *err);
    void (*close)(void *models_user, size_t i, struct serve_loaded *l);
    void *models_user;
    uint32_t most_active; /* requests that run or wait at once; more are refused; 0: 64 */

    const char *host;                  /* a numeric address or "localhost" */
    uint16_t port;                     /* 0: any free one */
    struct guard_opts guard;           /* who may ask */
    const char *chats;    /* the file of the page's chats; NULL: none are kept */
    bool chats_asked;     /* it was named by the user: without it the server does not start */
    uint64_t chats_size;  /* bytes that it may have; 0: 1 GiB */
    const char *tls_key, *tls_cert;    /* PEM text; NULL: plain HTTP */
    uint32_t connections; /* at once; 0: 16384, or what the limit of open files allows */
    uint32_t patience;    /* seconds that a client gets to send a request; 0: 60 */
    size_t max_body;      /* bytes; 0: 32 MiB */
    uint32_t drain;       /* seconds that running requests get once told to stop */
    int control_fd;       /* SERVE_STOP: stop, any byte after: do not wait for running requests;
                             SERVE_RELOAD: read the keys again */
    void (*ready)(void *user, uint16_t port, enum serve_kind first); /* first: what the first model gives */
    void (*note)(void *user, const char *text); /* what the user should know; NULL: nobody listens */
    /* The keys were read again: rc and err as of guard_reload. */
    void (*reloaded)(void *user, int rc, size_t n_keys, const struct lode_error *err);
    void *user;
    struct log_opts log;
    bool log_prompts; /* bodies of requests are logged too */
};

struct server;

/* Loads what is to be loaded at once; listens to nobody yet. */
int serve_open(struct server **out, const struct serve_opts *opts, struct lode_error *err);
void serve_close(struct server *s); /* nothing asks any more */
/* Listens until it is told to stop.  LODE_ERR_IO where the address cannot be had. */
int serve_run(struct server *s, struct lode_error *err);
/* A POST without a connection; any thread.  stop (may be NULL), asked some times a second, cuts it off.  Returns the
 * HTTP status; *reply: its JSON, free it; NULL without memory or where it was cut off. */
int serve_ask(struct server *s, const char *path, const char *body, size_t len,
              bool (*stop)(void *user), void *user, char **reply);

#endif
