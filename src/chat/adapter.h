/* adapter.h: between a model and its conversations: everything that is particular about how it is
 * told things and how it tells them, decided once when the model is loaded.
 *
 *   convo --convert_messages, tools--> the family's kind of convo --template--> prompt
 *   answer --parser--> content, thinking, tool calls
 *
 * Which parsers, by the first of these that knows: the operator, the probe (a row of the
 * capabilities store), what the template shows (learn.h), the family's defaults (family.h).
 *
 * Read-only once open: any thread. */
#pragma once

#include "chat/family.h"
#include "output/parser.h"
#include "chat/template.h"
#include "store/capabilities.h"

struct adapter;

struct adapter_options {                    /* borrowed for the call, but for template and vocab */
    struct str arch;                        /* general.architecture */
    struct str family;                      /* the operator's; "" = to be found out */
    const char *tool, *thinking;            /* the operator's parser ids; NULL or "" = likewise */
    const struct chat_template *template;   /* NULL: the model cannot chat. Outlives the adapter */
    const struct template_env *env;         /* the vocabulary's tokens */
    const struct vocab *vocab;              /* outlives the adapter */
    const struct model_capabilities *known; /* a probe's; NULL = not probed. Only for the call */
    bool no_injection; /* tools that the template does not show are refused, not told in words */
};

/* ERR_INVALID for an unknown id, ERR_NOT_FOUND for an unknown family, ERR_MEMORY. */
int adapter_open(struct adapter **out, const struct adapter_options *o, struct err *e);
void adapter_close(struct adapter *a);

struct render_when {
    int64_t now;              /* wall seconds */
    const _Atomic bool *stop; /* as in template_env; or NULL */
};

/* The prompt of a conversation, in arena `to`. What the template does not
 * take is told in another way (convert.h); whether to think (enable_thinking or thinking among the
 * conversation's template_kwargs) is told as the family wants it. ERR_UNSUPPORTED when the model
 * cannot chat, or "tools" when it cannot be told of them; else as chat_template_render. */
int adapter_render(const struct adapter *a, const struct convo *c, const struct render_when *when,
    struct arena *to, struct rendered *out, struct err *e);

/* Any prompt of this conversation has at least so many tokens: by the text of its users, without
 * rendering. 0 when it may be as few as n_max for all that is quickly known. */
size_t adapter_min_tokens(const struct adapter *a, const struct convo *c, size_t n_max);

/* What reads this model's answers. */
const struct parser_format *adapter_format(const struct adapter *a);
/* How the answer to this prompt begins: in thinking when the prompt has opened it. */
enum parser_start adapter_start(
    const struct adapter *a, const struct convo *c, const struct rendered *prompt);

/* The token ends a turn of this family: beside those that vocab_is_end knows. */
bool adapter_is_end(const struct adapter *a, int32_t id);

/* The same, for an answer in which thinking is marked as this row says. */
struct thinking_row;
enum parser_start adapter_start_of(
    const struct thinking_row *row, const struct convo *c, const struct rendered *prompt);

struct adapter_info {
    const char *family;                        /* "qwen" */
    const char *tool_parser, *thinking_parser; /* ids */
    bool tells_tools;                          /* in the system message */
    bool has_native_tools;                     /* the template shows tools */
    bool can_call_tools;                       /* natively, or told in the system prompt */
    bool can_think;
    bool can_toggle_thinking;
    bool thinks_by_default; /* unless it is told not to */
};
const struct adapter_info *adapter_info(const struct adapter *a);
