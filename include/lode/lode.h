/* lode.h - all of the library's interface. */
#ifndef LODE_LODE_H
#define LODE_LODE_H

#include "lode/chat.h"
#include "lode/convert.h"
#include "lode/embed.h"
#include "lode/error.h"
#include "lode/file.h"
#include "lode/jobs.h"
#include "lode/machine.h"
#include "lode/memory.h"
#include "lode/model.h"
#include "lode/pack.h"
#include "lode/plan.h"
#include "lode/profile.h"
#include "lode/sampler.h"
#include "lode/scheduler.h"
#include "lode/session.h"
#include "lode/tokenizer.h"
#include "lode/toolcall.h"
#include "lode/trace.h"
#include "lode/tune.h"

#ifdef __cplusplus
extern "C" {
#endif

LODE_API const char *lode_version(void);

/* A file that shrinks while it is mapped makes the kernel send SIGBUS.  A program that installs
 * this handler gets LODE_ERR_IO from the step that read it instead.  Faults that are not ours go to
 * the handler that was there before. */
LODE_API int lode_install_sigbus_handler(struct lode_error *err);

#ifdef __cplusplus
}
#endif
#endif
