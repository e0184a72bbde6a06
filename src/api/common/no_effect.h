/* no_effect.h: log of request fields that are accepted for compatibility and do not change the
 * output (no_effect.def), one line per field and process. Any thread. */
#pragma once

/* `name` is a name of no_effect.def; others are ignored. */
void no_effect_note(const char *name);
