/* base64.h: RFC 4648, standard alphabet, with padding. Any thread. */
#pragma once

#include "base/buf.h"

void base64_encode(struct buf *out, struct str bytes);
/* False: the text is not base64; `out` contains the bytes decoded before the error. Padding is
 * optional. */
bool base64_decode(struct buf *out, struct str text);
