/* Tool calls: the first byte chooses the format, the second how the text is cut.  Nothing may crash
 * or hang; no byte is lost; cut differently, the events say the same; arguments are JSON objects.
 */
#include "base/utf8.h"
#include "lode/toolcall.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char tools[] = "[{\"name\":\"f\",\"parameters\":{\"properties\":{\"n\":{\"type\":"
                            "\"integer\"},\"s\":{\"type\":\"string\"}}}}]";

struct seen {
    FILE *said_f, *all_f, *args_f;
    char *said, *all, *args;
    size_t n_said, n_all, n_args;
    int kind;
    bool valid;
};

static void check_arguments(struct seen *s) {
    fflush(s->args_f);
    if (!s->valid || memchr(s->args, 0, s->n_args))
        return;
    /* jansson refuses numbers out of range, halves of surrogate pairs and NULs in keys, which JSON
     * allows */
    json_error_t why;
    json_t *v = json_loadb(s->args, s->n_args, JSON_DECODE_INT_AS_REAL, &why);
    if (!v && !strstr(why.text, "real number overflow") && !strstr(why.text, "invalid Unicode") &&
        !strstr(why.text, "\\u0000") && !strstr(why.text, "NUL byte"))
        abort();
    json_decref(v);
}

static int put(void *user, const struct lode_toolcall_event *e) {
    struct seen *s = user;
    const bool merges = e->kind == LODE_TOOLCALL_CONTENT || e->kind == LODE_TOOLCALL_REASONING ||
                        e->kind == LODE_TOOLCALL_MARKUP || e->kind == LODE_TOOLCALL_ARGUMENTS;
    if (e->kind != LODE_TOOLCALL_BEGIN && e->kind != LODE_TOOLCALL_ARGUMENTS)
        fwrite(e->text, 1, e->len, s->all_f);
    if (!merges || (int)e->kind != s->kind)
        fprintf(s->said_f, "|%d %d %s %s|", (int)e->kind, (int)e->index, e->name ? e->name : "",
                e->reason ? e->reason : "");
    fwrite(e->text, 1, e->len, s->said_f);
    s->kind = (int)e->kind;
    if (e->kind == LODE_TOOLCALL_BEGIN)
        rewind(s->args_f);
    if (e->kind == LODE_TOOLCALL_ARGUMENTS)
        fwrite(e->text, 1, e->len, s->args_f);
    if (e->kind == LODE_TOOLCALL_END)
        check_arguments(s);
    return 0;
}

static void parse(struct seen *s, const char *format, const char *text, size_t len, size_t piece,
                  bool with_tools, bool thinking) {
    struct lode_toolcall *p;
    const struct lode_toolcall_opts o = {.style = {format, "<think>"},
                                         .thinking = thinking,
                                         .tools = with_tools ? tools : NULL,
                                         .tools_len = sizeof tools - 1,
                                         .put = put,
                                         .user = s};
    *s = (struct seen){.kind = -1, .valid = lode_utf8_valid(text, len)};
    s->said_f = open_memstream(&s->said, &s->n_said);
    s->all_f = open_memstream(&s->all, &s->n_all);
    s->args_f = open_memstream(&s->args, &s->n_args);
    if (lode_toolcall_create(&p, &o, NULL) < 0)
        abort();
    for (size_t at = 0; at < len; at += piece)
        if (lode_toolcall_push(p, text + at, len - at < piece ? len - at : piece, NULL) < 0)
            abort();
    if (lode_toolcall_finish(p, NULL) < 0)
        abort();
    lode_toolcall_free(p);
    fclose(s->said_f);
    fclose(s->all_f);
    fclose(s->args_f);
    if (s->n_all != len || (len && memcmp(s->all, text, len) != 0))
        abort();
}

static void release(struct seen *s) {
    free(s->said);
    free(s->all);
    free(s->args);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2)
        return 0;
    size_t n = 0;
    while (lode_toolcall_format(n, NULL))
        n++;
    const char *format = lode_toolcall_format(data[0] % n, NULL), *text = (const char *)data + 2;
    const bool with_tools = data[1] & 64, thinking = data[1] & 128;
    struct seen whole, pieces;
    parse(&whole, format, text, size - 2, size, with_tools, thinking);
    parse(&pieces, format, text, size - 2, 1 + data[1] % 8, with_tools, thinking);
    if (whole.n_said != pieces.n_said || memcmp(whole.said, pieces.said, whole.n_said) != 0)
        abort();
    release(&whole);
    release(&pieces);
    return 0;
}
