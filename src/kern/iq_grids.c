#include "kern/iq_grids.h"

#define LODE_GRID(name, n) const uint16_t lode_grid_##name[n]
#include "kern/iq_grids_data.h"
