#include "kern/iq_grids.h"

#define LODE_GRID(name, n, type) const type lode_grid_##name[n]
#include "kern/iq_grids_data.h"
