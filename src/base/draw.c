#include "base/draw.h"

#include "base/dmath.h"

#include <float.h>
#include <stdbool.h>

#define DRAW static
#define DRAW_LANE 0
#define DRAW_LANES 1
#define DRAW_MEET() ((void)0)
#include "base/draw_body.h"

int32_t lode_draw_few(const struct lode_draw *d, struct lode_draw_room *room) { return draw_few(d, room); }
