/* unicode_property.h: the sets of code points that \p{..} names in ECMA-262 patterns.
 *
 * Supported are General_Category (also as \p{Lu} and \p{L}), Script, and the binary properties in
 * unicode_sets.def, by their short and long names. Names are compared exactly, as ECMA-262
 * requires. Pure; any thread. */
#pragma once

#include "base/str.h"
#include "constrain/regular/code_points.h"

/* Adds the code points of the property to `s`; false if the name is unknown. `expression` is the
 * text between the braces: `L`, `Lu`, `gc=Lu`, `Script=Greek`, `Alphabetic`. */
bool unicode_property_add(struct code_points *s, struct str expression) MUST_CHECK;
