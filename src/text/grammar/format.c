/* format.c - the formats that a model's strings are held to, as patterns.
 *
 * By the draft, `format` is an annotation: any string is valid.  So instances are never refused for
 * it; but what a model writes is held to the form, which the draft allows and users expect. */
#include "text/grammar/literal.h"

#define DATE                                                                                       \
    "(\\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|"            \
    "02-(0[1-9]|1\\d|2[0-8]))|(\\d\\d(0[48]|[2468][048]|[13579][26])|"                             \
    "([02468][048]|[13579][26])00)-02-29)"
#define TIME "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define BYTE "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define HEX4 "[0-9a-fA-F]{1,4}"
#define LABEL "[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
#define IPV6                                                                                       \
    "((" HEX4 ":){7}" HEX4 "|(" HEX4 ":){1,7}:|(" HEX4 ":){1,6}:" HEX4 "|(" HEX4 ":){1,5}(:" HEX4  \
    "){1,2}|(" HEX4 ":){1,4}(:" HEX4 "){1,3}|(" HEX4 ":){1,3}(:" HEX4 "){1,4}|(" HEX4              \
    ":){1,2}(:" HEX4 "){1,5}|" HEX4 ":(:" HEX4 "){1,6}|:((:" HEX4 "){1,7}|:))"
#define URI_CHAR "([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})"

static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "T" TIME},
    {"duration", "P(\\d+W|(\\d+D|\\d+M(\\d+D)?|\\d+Y(\\d+M(\\d+D)?)?)(T(\\d+H(\\d+M(\\d+S)?)?|"
                 "\\d+M(\\d+S)?|\\d+S))?|T(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?|\\d+S))"},
    {"email", "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@" LABEL
              "(\\." LABEL ")*"},
    {"hostname", LABEL "(\\." LABEL ")*"},
    {"ipv4", BYTE "(\\." BYTE "){3}"},
    {"ipv6", IPV6},
    {"uri", "[A-Za-z][A-Za-z0-9+.-]*:" URI_CHAR "+(#" URI_CHAR "*)?"},
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
};

const char *format_pattern(struct lode_str name) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (lode_str_eqz(name, formats[i].name))
            return formats[i].pattern;
    return NULL;
}
