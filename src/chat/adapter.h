/* adapter.h: the conversation format of one model, decided once when the model is loaded: how a
 * conversation becomes a prompt, and how the generated text is parsed.
 *
 *   convo --call_ids_convert, convo_convert--> convo the template supports --chat template-->
 *   prompt generated text --parser--> content, reasoning, tool calls
 *
 * The parsers come from the first source that has them: the operator's options, the capability
 * probe (an entry of the capabilities store), the chat template (template_probe.h), the defaults of
 * the model family (family.h), unless the template contradicts them.
 *
 * Owner: none; read-only once open, so any thread may use it. */
#pragma once

#include "chat/family.h"
#include "output/parser.h"
#include "chat/template.h"
#include "store/capabilities.h"

struct adapter;

struct adapter_options {          /* borrowed for the call, except `template` and `vocab` */
    struct str arch;              /* general.architecture */
    struct str family;            /* family set by the operator; "" = detect it */
    const char *tool, *reasoning; /* parser ids set by the operator; NULL or "" = detect them */
    const struct chat_template *template; /* NULL: the model cannot chat. Outlives the adapter */
    const struct template_env *env;       /* bos and eos tokens of the vocabulary */
    const struct vocab *vocab;            /* outlives the adapter */
    /* result of a capability probe, borrowed for the call; NULL = not probed */
    const struct model_capabilities *known;
    /* no tools in the system prompt: if the template does not render tools, requests with tools
     * fail */
    bool no_injection;
};

/* ERR_INVALID for an unknown parser id, ERR_NOT_FOUND for an unknown family, ERR_MEMORY. */
int adapter_open(struct adapter **out, const struct adapter_options *o, struct err *e);
void adapter_close(struct adapter *a);

struct render_options {
    int64_t now;              /* wall-clock seconds */
    const _Atomic bool *stop; /* cancels rendering, as in template_env; or NULL */
};

/* Renders the prompt of a conversation into arena `to`. Messages that the template does not support
 * are converted first (convo_convert.h). `enable_thinking` or `thinking` in the conversation's
 * template_kwargs is translated to the toggle of the template. ERR_UNSUPPORTED: the model cannot
 * chat, or (param "tools") has no way to receive tools; otherwise as chat_template_render. */
int adapter_render(const struct adapter *a, const struct convo *c,
    const struct render_options *when, struct arena *to, struct rendered *out, struct err *e);

/* Lower bound on the tokens of the prompt, from the user texts, without rendering. Returns 0 if a
 * cheap check cannot exclude that the prompt has at most n_max tokens. */
size_t adapter_min_tokens(const struct adapter *a, const struct convo *c, size_t n_max);

/* Parser format for the output of this model. */
const struct parser_format *adapter_format(const struct adapter *a);
/* Parser state at the first generated token: inside reasoning if the prompt ends there. */
enum parser_start adapter_start(
    const struct adapter *a, const struct convo *c, const struct rendered *prompt);

/* The token ends a turn in this family; in addition to the tokens of vocab_is_end. */
bool adapter_is_end(const struct adapter *a, int32_t id);

/* Text that ends a turn because no token does: the end marker of a built-in template that is not an
 * end token of the vocabulary. "" = none. Lives as long as the adapter. */
struct str adapter_turn_end(const struct adapter *a);

/* Like adapter_start, for the given reasoning format. */
struct reasoning_format;
enum parser_start adapter_start_for_format(
    const struct reasoning_format *row, const struct convo *c, const struct rendered *prompt);

struct adapter_info {
    const char *family;                        /* "qwen" */
    const char *tool_parser, *thinking_parser; /* ids */
    bool injects_tools;                        /* tools are listed in the system prompt */
    bool has_native_tools;                     /* the template renders tools */
    /* the template has tools or tool calls in a format that no parser reads; they are text */
    bool has_unknown_calls;
    bool can_call_tools; /* natively, or by tools in the system prompt */
    bool can_reason;
    bool can_toggle_reasoning;
    bool reasons_by_default; /* reasoning is on unless the request turns it off */
};
const struct adapter_info *adapter_info(const struct adapter *a);
