/* The float kernels over v16_neon.h. */
#include "kern/v16_neon.h"

#include "kern/row_body.h"
#include "kern/mul_body.h"
#include "kern/kv_body.h"
#include "kern/att_body.h"
#include "kern/recur_body.h"
