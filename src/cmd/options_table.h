/* options_table.h: the option table of options.def as an array, for options.c and options_docs.c.
 * Constant; any thread. */
#pragma once

#include "cmd/options.h"

enum option_kind { STRING, SECRET, CHOICE, INTEGER, BYTES, BOOL };

struct option {
    enum option_kind kind;
    const char *section, *key, *flag, *env;
    const char *def, *choices, *help;
    int64_t def_int, lo, hi;
    size_t offset; /* offset in struct options */
};

extern const struct option option_table[];
extern const size_t n_option_table;
