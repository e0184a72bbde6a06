#include "api/common/no_effect.h"
#include "base/base.h"
#include "base/log.h"

#include <stdatomic.h>

static const struct {
    const char *name, *note;
} fields[] = {
#define NO_EFFECT(name, note) { name, note },
#include "api/common/no_effect.def"
#undef NO_EFFECT
};

static atomic_bool is_logged[ARRAY_LEN(fields)];

void no_effect_note(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(fields); i++)
        if (!strcmp(name, fields[i].name) &&
            !atomic_exchange_explicit(&is_logged[i], true, memory_order_relaxed))
            log_warn("api", "no_effect", "field=%s note=\"%s\"", name, fields[i].note);
}
