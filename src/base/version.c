#include "lode/lode.h"

const char *lode_version(void) { return LODE_VERSION; }
