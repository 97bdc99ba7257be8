/* chat_routes.h - /lode/chats and /lode/status, for page.c. */
#ifndef LODE_SERVE_CHAT_ROUTES_H
#define LODE_SERVE_CHAT_ROUTES_H

#include "serve/page.h"

void chat_routes_answer(struct server *s, const struct page_request *r, struct page_reply *reply);
void chat_routes_refuse(struct page_reply *reply, int status, const char *text);

#endif
