/* convo.h: a conversation, with nothing that a client sent lost.
 *
 * Plain data in a request's arena; strings are borrowed from it. The one message type of the
 * program: wires translate to and from it, templates render it. */
#pragma once

#include "base/json.h"

enum role { ROLE_SYSTEM, ROLE_DEVELOPER, ROLE_USER, ROLE_ASSISTANT, ROLE_TOOL, ROLE_FUNCTION };
const char *role_name(enum role r);
bool role_parse(struct str name, enum role *out);

enum part_kind { PART_TEXT, PART_IMAGE, PART_AUDIO, PART_FILE, PART_REFUSAL, PART_OTHER };

struct part {
    enum part_kind kind;
    struct str text;        /* TEXT, REFUSAL */
    const struct json *raw; /* the part as it came; NULL for a plain string content */
    bool is_ours;           /* a TEXT that no client wrote (convert.h): trusted */
};

struct tool_call {
    struct str id, name;
    struct str arguments; /* JSON text */
    const struct json *raw;
};

struct message {
    enum role role;
    bool has_content; /* false: null or absent */
    bool is_plain;    /* content was one string, not an array of parts */
    bool is_error;    /* of a tool: it failed, and content says why */
    struct part *parts;
    int n_parts;
    struct tool_call *tool_calls;
    int n_tool_calls;
    struct str name, tool_call_id;
    struct str reasoning;   /* reasoning_content or reasoning */
    const struct json *raw; /* the message as it came */
};

struct convo {
    struct message *messages;
    int n_messages;
    const struct json *tools;           /* array as sent, or NULL */
    const struct json *template_kwargs; /* object, or NULL */
    bool add_generation_prompt;
    bool continue_final_message;
};

/* All text parts of a message, joined by newlines. One part is borrowed, more are in arena a.
 * .p NULL when memory is gone. */
struct str message_text(const struct message *m, struct arena *a);

/* Some coding agents begin their system prompt with a line `x-anthropic-billing-header: ...` that
 * differs in every request, so that no two prompts would have a prefix in common. That line goes;
 * nothing else is touched. */
void convo_drop_billing(struct convo *c);
