/* fuzz_hot.c - a list of the experts that a cache begins with: what is taken are groups of the model, what is not is an
 * error that names the list. */
#include "base/alloc.h"
#include "model/profile.h"

#include <stdlib.h>
#include <string.h>

enum { LAYERS = 3, EXPERTS = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct lode_group groups[LAYERS * EXPERTS + 1]; /* the last one a layer's own */
    static struct lode_model m = {.groups = groups, .n_groups = LAYERS * EXPERTS + 1, .n_expert_groups = LAYERS * EXPERTS,
                                  .hp = {.n_layers = LAYERS, .n_experts = EXPERTS}};
    for (uint32_t i = 0; i < LAYERS * EXPERTS; i++)
        groups[i] = (struct lode_group){.layer = i / EXPERTS, .expert = i % EXPERTS};
    groups[LAYERS * EXPERTS] = (struct lode_group){.layer = 0, .expert = LODE_NO_EXPERT};
    char *text = malloc(size + 1); /* as it is read: with a NUL behind it */
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    struct lode_error err = {0};
    uint32_t *hot, n;
    const int rc = lode_hot_parse(&m, (struct lode_str){text, size}, "hot.json", &hot, &n, &err);
    if (rc < 0 && (hot || n || !strstr(err.where, "hot.json") || !err.text[0]))
        abort();
    for (uint32_t i = 0; i < n; i++)
        if (hot[i] >= m.n_expert_groups)
            abort();
    lode_free(hot);
    free(text);
    return 0;
}
