/* entry.h - what a person says next in a chat: a line; lines joined by a backslash at their end; or everything between two """. */
#ifndef LODE_TOOLS_ENTRY_H
#define LODE_TOOLS_ENTRY_H

#include "line.h"

/* What a chat says after the first LINE_INTERRUPTED in a row; after the second it ends. */
#define ENTRY_LEAVE_HINT "(Ctrl+C again, or Ctrl+D, leaves)\n"

/* LINE_TEXT: *text is the caller's to free; else too, where it is not NULL.  An end of input within an entry ends the entry. */
enum line_result entry_read(struct line *lines, char **text);

#endif
