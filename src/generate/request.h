/* request.h: the request type of all dialects. No field of the client is lost: `raw` is the whole
 * body as a JSON tree, including fields that are not used here.
 *
 * Plain data in the request's arena. The parser of a dialect (dialect.h) fills it; afterwards it is
 * read-only, except for the fields that a comment leaves to the server. A field that is absent or
 * null in the body has its default here; request_has() distinguishes the two, so that a model's own
 * defaults can apply.
 *
 * Owner: the thread that handles the request (io or worker thread). */
#pragma once

#include "chat/convo.h"
#include "chat/infill.h"
#include "constrain/constraint.h"
#include "output/parser.h"
#include "engine/sample/sampler.h"

enum request_kind { REQUEST_CHAT, REQUEST_COMPLETION };

enum {
    REQUEST_N_MAX = 128, /* for n and best_of */
    REQUEST_FILES_MAX = 1024,
    REQUEST_PROMPTS_MAX = 1024, /* prompts of a completion, and choices over all prompts */
    REQUEST_STOPS_MAX = 16,
    REQUEST_STOP_IDS_MAX = 256,
    REQUEST_BIAS_MAX = 4096,
    REQUEST_ALLOWED_MAX = 300000, /* larger than any vocabulary */
    REQUEST_MESSAGES_MAX = 100000,
    REQUEST_METADATA_MAX = 16,
    REQUEST_TOOLS_MAX = 4096,
};

struct text_bias { /* logit bias for each token of the text */
    struct str text;
    float bias;
};

struct prompt_piece {
    bool is_token;
    struct str text;
    int32_t id;
};

struct request_prompt { /* prompt of a completion: text, or token ids that are used as they are */
    bool is_tokens;
    struct str text;
    const int32_t *ids;
    int n_ids;
    const struct prompt_piece *pieces; /* replaces text and ids; in order; NULL = none */
    int n_pieces;
    const struct infill *infill; /* replaces all of the above: fill-in-the-middle; NULL = none */
};

enum script_unit { SCRIPT_TOKENS, SCRIPT_CHARS, SCRIPT_ALL };

struct request_script { /* output of the `script` back end */
    bool is_set;
    struct str text;
    /* Replaces text: output for each turn of the assistant; the last one also for all later
     * turns. */
    const struct str *turns;
    int n_turns;           /* 0: none */
    enum script_unit unit; /* unit of a chunk: tokens, characters, or all */
    int per_chunk;         /* >= 1; for SCRIPT_TOKENS, SCRIPT_CHARS */
    uint32_t delay_ms;     /* before each chunk */
};

enum tool_choice {
    TOOL_CHOICE_NONE, /* also if there are no tools: output is not parsed for calls */
    TOOL_CHOICE_AUTO,
    TOOL_CHOICE_REQUIRED, /* at least one call */
    TOOL_CHOICE_NAMED     /* a call of tool_name */
};

struct request_constraint { /* required format of the output (structured output) */
    bool is_set;
    const char *field; /* path of the member that requires it, for errors */
    /* Without is_set, only the options may be set. The text is part of the body. */
    struct constraint_source source;
    struct str name, description; /* members of a JSON schema in OpenAI's format; .p NULL: none */
    bool is_strict;
    bool close_at_limit; /* the output is completed within its limit of tokens */
};

enum thinking { THINKING_DEFAULT, THINKING_ON, THINKING_OFF };

struct dialect;

struct request {
    enum request_kind kind;
    const struct dialect *dialect;
    const struct json *raw; /* the body */
    struct str model;       /* .p NULL when absent */

    struct convo convo;             /* REQUEST_CHAT; includes the template's variables */
    struct request_prompt *prompts; /* for REQUEST_COMPLETION */
    int n_prompts;                  /* 1 for REQUEST_CHAT */

    /* Tools; checked by api/common/tools.h. convo.tools contains those that may be called. */
    const struct json *tools; /* in OpenAI's format, for every dialect; NULL = none */
    enum tool_choice tool_choice;
    struct str tool_name;            /* for TOOL_CHOICE_NAMED */
    const struct str *allowed_tools; /* names that may be called; n_allowed_tools 0 = all */
    int n_allowed_tools;
    bool parallel_tool_calls; /* default true; false: at most one call */
    /* OpenAI's deprecated `functions`: one call, returned as function_call */
    bool has_functions;

    struct request_constraint constraint;

    /* Number of choices and length limits. */
    int n;          /* choices to return, per prompt */
    int best_of;    /* choices to generate, per prompt; >= n */
    int max_tokens; /* per choice; -1 = up to the context limit */
    int min_tokens;
    struct str *stops; /* without empty strings */
    int n_stops;
    int32_t *stop_ids; /* field stop_token_ids */
    int n_stop_ids;
    bool ignore_eos;
    bool include_stop; /* field include_stop_str_in_output */
    double timeout_s;  /* field x_timeout; 0 = none */

    /* Sampling: ready for the engine, including seed, logit_bias and allowed tokens. want_logprobs
     * is also set if best_of requires a ranking. The server adds banned_until_min. */
    struct sample_params sample;
    bool has_seed; /* false: sample.seed is a random number, drawn once */

    /* The server adds these to sample.bias when the model is known. */
    const struct text_bias *text_bias;
    int n_text_bias;

    bool load_only; /* only load the model; the request has no prompts */

    /* Format of the response. */
    bool stream, include_usage, continuous_usage;
    bool echo;                /* the response starts with the prompt */
    bool want_logprobs;       /* requested by the client; number of alternatives: sample.n_top */
    bool tokens_as_ids;       /* return_tokens_as_token_ids: "token_id:17" in logprobs */
    bool want_token_ids;      /* field return_token_ids */
    bool skip_special_tokens; /* default true */
    bool add_special_tokens;  /* default true: BOS is added if the vocabulary requires it */

    /* Identity, reasoning, cache and priority. */
    struct str user, safety_identifier, service_tier, cache_salt, prompt_cache_key, request_id;
    struct str reasoning_effort; /* also in convo.template_kwargs */
    bool is_reasoning_unparsed;  /* reasoning is not parsed and stays in the text */
    bool is_reasoning_hidden;    /* reasoning is parsed but not sent */
    enum thinking thinking;      /* also in convo.template_kwargs */
    int thinking_budget;         /* tokens; 0 = not specified */
    bool is_reasoning_omitted;   /* reasoning blocks are sent with empty text */
    int n_unverified_reasoning;  /* reasoning blocks without a valid signature of this server */
    const struct json *metadata; /* object or NULL */
    int priority;                /* a higher value is served first */
    bool cache_prompt;           /* default true */
    int id_slot;                 /* llama-server's slot; -1 = any */
    struct str prediction;       /* predicted output, source of draft tokens; .p NULL = none */

    /* Stored responses (api/responses/responses.h). */
    bool may_truncate; /* drop the oldest turns if the conversation exceeds the context */
    bool store;        /* store the response */
    bool background;   /* generate without a connection; stored from the start; requires store */
    struct str previous_id;    /* the response to continue from; .p NULL = none */
    bool needs_response_store; /* the conversation is incomplete without stored items */
    const struct json *items;  /* `input` of this request: an array of items, or a string */

    struct request_script script;
};

/* "json_schema", "regex", ..: kinds in responses and metrics. */
const char *constraint_kind_name(enum constraint_kind kind);

extern const struct request request_default; /* sampling values are neutral, temperature is 1 */
/* True if the body has the field and it is not null. */
bool request_has(const struct request *request, const char *field);

/* Number of choices to generate, over all prompts: n_prompts * best_of. */
static inline int request_n_choices(const struct request *request)
{
    return request->n_prompts * request->best_of;
}

/* Checks token ids, which requires the model: logit_bias, stop_token_ids, allowed_token_ids and the
 * prompts. ERR_RANGE with the field. */
int request_check_vocab(const struct request *request, int32_t n_vocab, struct err *e);

/* Copies the biases to request->sample, sorted by token id. If a token occurs twice, its last entry
 * is used. ERR_MEMORY. */
int request_set_bias(
    struct request *request, struct arena *a, const struct token_bias *list, int n, struct err *e);

/* Sets ERR_CONTEXT with a text that agents recognise, so that they compact the conversation.
 * `param` is "messages" or "prompt". Return -1. In err_context_at_least, n_prompt_tokens is a lower
 * bound: the prompt was not tokenised completely. */
int err_context(struct err *e, const char *param, int n_prompt_tokens, int n_ctx);
int err_context_at_least(struct err *e, const char *param, int n_prompt_tokens, int n_ctx);
