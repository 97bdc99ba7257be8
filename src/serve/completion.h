/* completion.h - one request for an answer, from its body to the last byte of its reply.
 *
 *     completion_create(&c, server, body, chat, &err);
 *     while ((rc = completion_step(c, 50, &err)) == COMPLETION_WAITS || rc == COMPLETION_MOVED)
 *         streaming: what c->out holds is to be sent, and cleared
 *     reply = completion_reply(c);                           not streaming
 *     completion_free(c);                                    cancels what still runs
 */
#ifndef LODE_SERVE_COMPLETION_H
#define LODE_SERVE_COMPLETION_H

#include "base/buf.h"
#include "serve/server.h"

struct completion;

enum completion_result { COMPLETION_WAITS, COMPLETION_MOVED, COMPLETION_DONE };

int completion_create(struct completion **out, struct server *s, const json_t *body, bool chat,
                      struct lode_error *err);
void completion_free(struct completion *c);
bool completion_streams(const struct completion *c);
/* Takes at most one token, waiting for it up to wait_ms. */
int completion_step(struct completion *c, int wait_ms, struct lode_error *err);
/* What a stream has to send. */
struct lode_buf *completion_out(struct completion *c);
/* The whole reply, once done; NULL without memory. */
json_t *completion_reply(struct completion *c);

#endif
