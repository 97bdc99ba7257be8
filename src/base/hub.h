/* hub.h - models by the name that Hugging Face's hub has for them, where they are on the disk.
 *
 *     ROOT/models--ORG--NAME/refs/main              text: COMMIT
 *     ROOT/models--ORG--NAME/snapshots/COMMIT/...   the files (links to ../../blobs/...)
 *
 * ROOT is $HF_HUB_CACHE, else $HF_HOME/hub, else $XDG_CACHE_HOME/huggingface/hub, else
 * ~/.cache/huggingface/hub.  Nothing is downloaded, nothing is written.
 */
#ifndef LODE_BASE_HUB_H
#define LODE_BASE_HUB_H

#include "lode/error.h"

/* What a user's path means: itself; for a folder models--ORG--NAME its snapshot; for ORG/NAME or
 * NAME (with @REVISION for another than main) that of the cache, where no such file exists.  *out
 * is to be freed with lode_free.  LODE_ERR_MISSING says where it was looked for, LODE_ERR_FORMAT
 * what is wrong with the cache; LODE_ERR_NOMEM. */
int lode_hub_find(char **out, const char *path, struct lode_error *err);

#endif
