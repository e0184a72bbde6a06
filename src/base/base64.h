/* base64.h: RFC 4648, the standard alphabet, with padding. Any thread. */
#pragma once

#include "base/buf.h"

void base64_encode(struct buf *out, struct str bytes);
/* False: it is no base64, and `out` holds what came before. Padding may be absent. */
bool base64_decode(struct buf *out, struct str text);
