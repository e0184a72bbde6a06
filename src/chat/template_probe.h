/* template_probe.h: detects the features of a chat template by rendering small conversations.
 *
 * A model has learned to write tool calls as its template renders them in history. The parser that
 * reads a rendered call back is therefore the parser of the model; reasoning is detected likewise.
 * A call that no parser reads back is of an unknown format: no other parser may be assumed then.
 * Message types which the template omits or rejects must be converted first (convo_convert.h).
 *
 * Pure; any thread. About 40 renderings with limits on steps and memory, about 2 ms. */
#pragma once

#include "chat/family.h"
#include "chat/template.h"

enum reasoning_toggle { /* how reasoning is turned on or off */
    TOGGLE_NONE,
    TOGGLE_ENABLE_THINKING, /* template variables `enable_thinking` and `thinking` */
    TOGGLE_THINKING,
    TOGGLE_NO_THINK, /* the text /no_think in the system prompt */
};

struct template_features {
    /* parser ids of format_table.c; NULL: the template shows no format */
    const char *tool, *reasoning;
    enum reasoning_toggle toggle;
    bool supports_reasoning_effort; /* reasoning_effort changes the prompt */
    bool supports_tools;            /* `tools` is rendered */
    /* an assistant message with tool calls only needs "" as its content, not null */
    bool needs_content;
    bool supports_tool_calls;   /* tool calls of the assistant are rendered */
    bool has_unknown_calls;     /* they are rendered, and no parser reads them back */
    bool supports_tool_results; /* tool messages are rendered */
    bool supports_system;       /* a system message at the beginning is rendered */
    bool supports_late_system;  /* a system message elsewhere is rendered */
    bool
        shows_all_users; /* the texts of all user messages are rendered, not only of the last one */
    bool supports_same_role; /* two consecutive user messages are rendered */
    /* the prompt opens the reasoning if the request does not set the toggle */
    bool reasons_by_default;
    char end[64]; /* text after an assistant message, which ends a turn. "" = unknown */
};

/* ERR_MEMORY. A template whose renderings all fail has no features. */
int template_probe(struct template_features *out, const struct chat_template *t,
    const struct template_env *env, const struct chat_family *f, struct err *e);
