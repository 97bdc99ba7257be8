/* page.c - see page.h: the embedded page and the way to its routes. */
#include "serve/page.h"

#include "serve/chat_routes.h"
#include "serve/page_data.h"

#include <string.h>

/* No other origin has a part in the page: nothing is loaded, framed or posted, no script but its
 * own runs (the hashes are made with the file), and no string becomes markup (trusted types). */
static const char *const page_headers[][2] = {
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'sha256-" PAGE_SCRIPT_HASH
     "'; style-src 'sha256-" PAGE_STYLE_HASH
     "'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
     "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"Cache-Control", "no-cache"},
    {NULL, NULL},
};

static const char *const data_headers[][2] = {
    {"Cache-Control", "no-store"},
    {"X-Content-Type-Options", "nosniff"},
    {NULL, NULL},
};

bool page_is_open(const char *path) { return !strcmp(path, "/") || !strcmp(path, "/index.html"); }

bool page_has(const char *path) {
    return page_is_open(path) || !strcmp(path, "/lode/status") || !strcmp(path, "/lode/chats") ||
           !strncmp(path, "/lode/chats/", 12);
}

void page_answer(struct server *s, const struct page_request *r, struct page_reply *reply) {
    *reply = (struct page_reply){
        .status = 200, .type = "application/json; charset=utf-8", .headers = data_headers};
    if (!page_is_open(r->path)) {
        chat_routes_answer(s, r, reply);
    } else if (strcmp(r->method, "GET") && strcmp(r->method, "HEAD")) {
        chat_routes_refuse(reply, 405, "GET expected");
    } else {
        reply->type = "text/html; charset=utf-8";
        reply->headers = page_headers;
        reply->fixed = (struct lode_str){page_data, page_data_len};
    }
}
