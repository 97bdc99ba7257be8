/* reply.h - whole replies over a connection, and errors in the shape of the API that was asked.
 *
 * A thread says when it begins with a request.  What JSON finds no memory for from then on is
 * noticed: what was made of it may lack something or look malformed, and neither may be taken for
 * what was sent, so that the reply is an error then, whatever it was to be.
 */
#ifndef LODE_SERVE_REPLY_H
#define LODE_SERVE_REPLY_H

#include "serve/exchange.h"
#include "serve/transport.h"

extern const struct lode_error reply_no_memory;

void reply_setup(void); /* once, before any JSON is made */
void reply_begin(void);
bool reply_starved(void); /* since then */

/* Takes the value; NULL: there was no memory for it. */
void reply_json(struct http_call *x, int status, json_t *value);
/* The same with status 200, if all of it could be made. */
void reply_whole(struct server *s, struct http_call *x, json_t *value);
void reply_error(struct server *s, struct http_call *x, int status, const struct lode_error *err);
/* An error of the client's: the field (or header), and what is wrong. */
void reply_refusal(struct server *s, struct http_call *x, int status, const char *where,
                   const char *text);

#endif
