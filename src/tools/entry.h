/* entry.h - what a person says next in a chat: a line; lines joined by a backslash at their end; or everything between two """. */
#ifndef LODE_TOOLS_ENTRY_H
#define LODE_TOOLS_ENTRY_H

#include "line.h"

/* LINE_TEXT: *text is the caller's to free; else too, where it is not NULL.  An end of input within an entry ends the entry.  After an interrupt
 * it says how to leave and reads on; LINE_INTERRUPTED: there was another before an entry. */
enum line_result entry_read(struct line *lines, char **text);

#endif
