/* base64.h: RFC 4648: the standard alphabet with padding, and the URL alphabet without. Any
 * thread. */
#pragma once

#include "base/buf.h"

void base64_encode(struct buf *out, struct str bytes);
/* False: the text is not base64; `out` contains the bytes decoded before the error. Padding is
 * optional. */
bool base64_decode(struct buf *out, struct str text);

void base64url_encode(struct buf *out, struct str bytes);
/* Decodes the URL alphabet without padding into `out`, which has room for text.n / 4 * 3 + 2 bytes.
 * Returns their number; -1: not the one encoding of any bytes (also if unused bits are set). */
ptrdiff_t base64url_decode(void *out, struct str text);
