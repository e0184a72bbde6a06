/* json_instance.h: reads a parsed JSON value with an acceptor of JSON values: is there a
 * serialisation that the output policy permits?
 *
 * The serialisation is compact. The properties of an object are written in the order of the schema,
 * for each alternative of the schema until one is accepted; numbers as in the source, or as plain
 * integers.
 *
 * Owner: that of the acceptor. */
#pragma once

#include "base/buf.h"
#include "constrain/acceptor.h"

struct json;

/* The position after the value; POS_DEAD if none is permitted. `text` receives the bytes up to the
 * rejected one at the farthest, or all. */
pos_id json_instance_read(struct acceptor *a, pos_id p, const struct json *value, struct buf *text);
