/* Chat templates: the input is a template, a line "%%%%", and the variables as JSON text.  Nothing
 * may crash, hang or leak, and what is rendered is valid UTF-8. */
#include "base/utf8.h"
#include "lode/chat.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char mark[] = "\n%%%%\n", plain[] = "{\"messages\":[{\"role\":\"user\","
                                                     "\"content\":\"a\"}],\"tools\":null}";
    const char *source = (const char *)data, *vars = plain;
    size_t source_len = size, vars_len = sizeof plain - 1, len;
    const char *cut = size ? memmem(data, size, mark, sizeof mark - 1) : NULL;
    if (cut) {
        source_len = (size_t)(cut - source);
        vars = cut + sizeof mark - 1;
        vars_len = size - source_len - (sizeof mark - 1);
    }
    struct lode_template *t;
    struct lode_error err;
    char *text;
    if (lode_template_compile(&t, source, source_len, &err) < 0)
        return 0;
    if (lode_template_render(t, vars, vars_len, 1768480496, &text, &len, &err) == 0) {
        if (!lode_utf8_valid(text, len))
            abort();
        lode_chat_text_free(text);
    }
    lode_template_free(t);
    return 0;
}
