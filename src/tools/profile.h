/* profile.h - --profile: where the time of a run went. */
#ifndef LODE_TOOLS_PROFILE_H
#define LODE_TOOLS_PROFILE_H

#include "load.h"

/* What happens between a call with `begin` and one without is left out of the profile. */
void profile_leave_out(const struct lode_model *m, bool begin);

/* What the flags of load.h ask for when the work is done: the table on standard error, the JSON file,
 * the list of hot experts. */
int profile_finish(const struct lode_model *m, const struct load_opts *o, struct lode_error *err);

#endif
