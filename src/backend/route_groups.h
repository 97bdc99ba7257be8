/* route_groups.h - a router's choice among groups of experts, for every backend: included as C and as device code. */
#ifndef LODE_BACKEND_ROUTE_GROUPS_H
#define LODE_BACKEND_ROUTE_GROUPS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

enum { LODE_ROUTE_GROUPS = 64 }; /* at most */

/* Experts outside the n_used best of n_groups groups get no chance.  A group is as good as its best expert, or as its two best
 * together (`two`) where the scores carry a bias (DeepSeek-V3). */
static inline void lode_drop_groups(float *choice, uint32_t n, uint32_t n_groups, uint32_t n_used, bool two) {
    const uint32_t size = n / n_groups;
    float score[LODE_ROUTE_GROUPS];
    for (uint32_t g = 0; g < n_groups; g++) {
        float best = -INFINITY, second = -INFINITY;
        for (uint32_t i = g * size; i < (g + 1) * size; i++) {
            if (choice[i] > best) {
                second = best;
                best = choice[i];
            } else if (choice[i] > second) {
                second = choice[i];
            }
        }
        score[g] = two ? best + second : best;
    }
    for (uint32_t g = 0; g < n_groups; g++) {
        uint32_t better = 0;
        for (uint32_t h = 0; h < n_groups; h++)
            better += score[h] > score[g] || (score[h] == score[g] && h < g);
        for (uint32_t i = g * size; better >= n_used && i < (g + 1) * size; i++)
            choice[i] = -INFINITY;
    }
}

#endif
