/* learn.h: what a template shows of the model it belongs to, found out by rendering small
 * conversations.
 *
 * What a model's own template makes of an answer with a tool call is what the model has learned to
 * write. So the parser that reads the call back out of it is the model's, and likewise for
 * thinking. And a template that does not show something, or refuses it, has to be given it in
 * another way (convert.h).
 *
 * Pure; any thread. Some 40 renderings, bounded as any, about 2 ms. */
#pragma once

#include "chat/family.h"
#include "chat/template.h"

enum toggle { /* how thinking is asked for, or not */
    TOGGLE_NONE,
    TOGGLE_ENABLE_THINKING, /* variables of the template */
    TOGGLE_THINKING,
    TOGGLE_NO_THINK, /* the word /no_think in the system prompt */
};

struct learned {
    const char *tool, *thinking; /* ids of parser_rows.c; NULL: nothing was shown */
    enum toggle toggle;
    bool takes_effort;      /* reasoning_effort makes a difference */
    bool takes_tools;       /* `tools` is shown */
    bool needs_content;     /* an assistant that only calls has "" as its content, not null */
    bool takes_calls;       /* an assistant's tool calls are shown */
    bool takes_results;     /* a tool's message is shown */
    bool takes_system;      /* a system message in front is shown */
    bool takes_late_system; /* and elsewhere */
    bool takes_users;       /* the words of all users' messages are shown, not of the last alone */
    bool takes_same_role;   /* two messages of the user one after the other are shown */
    bool thinks_by_default; /* the prompt opens the thinking when nothing is said about it */
    char end[64];           /* what follows an assistant's text: ends a turn. "" = not known */
};

/* ERR_MEMORY. A template that renders nothing has learned nothing. */
int chat_learn(struct learned *out, const struct chat_template *t, const struct template_env *env,
    const struct chat_family *f, struct err *e);
