#include "base/dmath.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define DMATH
#define DMATH_STATIC static
#include "base/dmath_body.h"
