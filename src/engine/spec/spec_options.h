/* spec_options.h: settings of speculative decoding (spec.h). Plain data. */
#pragma once

#include "base/base.h"

struct drafter;

struct spec_options {
    int max;         /* draft tokens of one sequence in a step; 0 = none, at most DRAFT_MAX */
    int min;         /* draft tokens regardless of cost; for tests and measurements */
    bool by_history; /* n-gram drafts from prompt, output and prediction */
    /* Used if there is no n-gram draft; taken by the engine; NULL = none. */
    struct drafter *drafter;
    int n_vocab; /* set by the engine */
};
