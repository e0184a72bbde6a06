/* ask.h: the one request type. Every wire is translated into it, nothing of what a client sent is
 * lost: `raw` is the whole body as a tree, whether a field is used here or not.
 *
 * Plain data in the request's arena. Filled by a wire's parser (wire.h), read-only afterwards but
 * for what its comments leave to the server. What is absent or null in the request has its
 * default here; ask_has() tells the two apart, so that a model's own defaults can step in. */
#pragma once

#include "chat/convo.h"
#include "chat/infill.h"
#include "output/parser.h"
#include "engine/sample/sampler.h"

enum ask_kind { ASK_CHAT, ASK_COMPLETION };

enum {
    ASK_N_MAX = 128, /* n, best_of */
    ASK_FILES_MAX = 1024,
    ASK_PROMPTS_MAX = 1024, /* prompts of a completion; also choices of all of them together */
    ASK_STOPS_MAX = 16,
    ASK_STOP_IDS_MAX = 256,
    ASK_BIAS_MAX = 4096,
    ASK_ALLOWED_MAX = 300000, /* no vocabulary is larger */
    ASK_MESSAGES_MAX = 100000,
    ASK_METADATA_MAX = 16,
    ASK_TOOLS_MAX = 4096,
};

struct text_bias { /* of every token that the text is made of */
    struct str text;
    float bias;
};

struct ask_piece {
    bool is_token;
    struct str text;
    int32_t id;
};

struct ask_prompt { /* of a completion: text, or tokens that are not to be tokenised again */
    bool is_tokens;
    struct str text;
    const int32_t *ids;
    int n_ids;
    const struct ask_piece *pieces; /* instead of both, in their order; NULL */
    int n_pieces;
    const struct infill *fill; /* instead of all of them: what stands between two texts; NULL */
};

enum script_unit { SCRIPT_TOKENS, SCRIPT_CHARS, SCRIPT_ALL };

struct ask_script { /* what a script model is to answer */
    bool is_set;
    struct str text;
    const struct str *turns; /* instead of text: of each turn of the assistant, the last of all */
    int n_turns;             /* 0: none */
    enum script_unit unit;   /* what leaves together: tokens, characters, or everything */
    int per_chunk;           /* >= 1; of SCRIPT_TOKENS, SCRIPT_CHARS */
    uint32_t delay_ms;       /* before each chunk */
};

enum tool_choice {
    TOOL_CHOICE_NONE, /* also when there are no tools: calls are not looked for */
    TOOL_CHOICE_AUTO,
    TOOL_CHOICE_REQUIRED, /* at least one call */
    TOOL_CHOICE_NAMED     /* a call of tool_name */
};

enum shape { SHAPE_ANY, SHAPE_JSON_OBJECT, SHAPE_JSON_SCHEMA, SHAPE_GRAMMAR };

enum { ASK_SHAPE_MAX = 16 * 1024 }; /* bytes of a schema or grammar */

struct ask_shape { /* what an answer has to look like */
    enum shape kind;
    const char *field;         /* that asked for it, for errors */
    const struct json *schema; /* JSON_SCHEMA; JSON_OBJECT may have one, or NULL */
    struct str grammar;        /* GRAMMAR */
    struct str name, description;
    bool is_strict;
};

enum thinking { THINKING_UNSAID, THINKING_ON, THINKING_OFF };

struct wire;

struct ask {
    enum ask_kind kind;
    const struct wire *wire;
    const struct json *raw; /* the body */
    struct str model;       /* .p NULL when absent */

    struct convo convo;         /* ASK_CHAT; with what the template is told */
    struct ask_prompt *prompts; /* ASK_COMPLETION */
    int n_prompts;              /* 1 for ASK_CHAT */

    /* Tools; settled by api/tools.h. convo.tools has those that may be called. */
    const struct json *tools; /* OpenAI's function tools, from whatever wire; NULL = none */
    enum tool_choice tool_choice;
    struct str tool_name;            /* TOOL_CHOICE_NAMED */
    const struct str *allowed_tools; /* nothing else may be called; n_allowed_tools 0 = all may */
    int n_allowed_tools;
    bool parallel_tool_calls; /* default true; false: at most one call */
    bool has_functions;       /* OpenAI's first way: one call, told as function_call */

    struct ask_shape shape;

    /* how much, and until when */
    int n;          /* choices to show, per prompt */
    int best_of;    /* choices to generate, per prompt; >= n */
    int max_tokens; /* per choice; -1 = as many as fit */
    int min_tokens;
    struct str *stops; /* not empty strings */
    int n_stops;
    int32_t *stop_ids; /* stop_token_ids */
    int n_stop_ids;
    bool ignore_eos;
    bool include_stop; /* include_stop_str_in_output */
    double timeout_s;  /* x_timeout; 0 = none */

    /* how: ready for the engine, with seed, logit_bias and allowed tokens in it. want_logprobs is
     * also set when best_of has to rank. The server adds banned_until_min. */
    struct sample_params sample;
    bool has_seed; /* false: sample.seed was drawn at random, once */

    /* The server adds them to the sample's when the model is known. */
    const struct text_bias *text_bias;
    int n_text_bias;

    bool load_only; /* nothing to answer: the model is only to be there. No prompts then. */

    /* how it is told */
    bool stream, include_usage, continuous_usage;
    bool echo;                /* the prompt comes back in front */
    bool want_logprobs;       /* the client's wish; alternatives: sample.n_top */
    bool tokens_as_ids;       /* return_tokens_as_token_ids: "token_id:17" in logprobs */
    bool want_token_ids;      /* return_token_ids */
    bool skip_special_tokens; /* default true */
    bool add_special_tokens;  /* default true for a completion, false for a rendered chat */

    /* whose, and how urgent */
    struct str user, safety_identifier, service_tier, cache_salt, prompt_cache_key, request_id;
    struct str reasoning_effort; /* also in convo.template_kwargs */
    bool thoughts_are_text;      /* they are not looked for: they stay in the text */
    bool hides_thoughts;         /* they are looked for, and not told */
    enum thinking thinking;      /* likewise */
    int thinking_budget;         /* tokens; 0 = none was named */
    bool omits_thoughts;         /* that there were some is told, and not what they were */
    int n_strange_thoughts;      /* of the history: not told by this server, or changed since */
    const struct json *metadata; /* object or NULL */
    int priority;                /* higher first */
    bool cache_prompt;           /* default true */
    int id_slot;                 /* llama-server's; -1 = any */
    struct str prediction;       /* what the client thinks the answer will be; .p NULL = nothing */

    /* of an answer that can be kept and gone on from (api/responses.h) */
    bool may_shorten;         /* turns may go from the front of a conversation that does not fit */
    bool store;               /* keep it */
    bool background;          /* nobody waits for it: it is kept from its beginning; with store */
    struct str previous_id;   /* what it goes on from; .p NULL: nothing */
    bool needs_shelf;         /* the conversation is not complete without what is kept */
    const struct json *items; /* what was asked now, item by item, or as a string */

    struct ask_script script;
};

/* True when the body has the field and it is not null. */
bool ask_has(const struct ask *ask, const char *field);

/* How many choices run, of all prompts together: n_prompts * best_of. */
static inline int ask_n_choices(const struct ask *ask)
{
    return ask->n_prompts * ask->best_of;
}

/* What could not be checked before the model was known: token ids in logit_bias, stop_token_ids,
 * allowed_token_ids and the prompts. ERR_RANGE with the field. */
int ask_check_vocab(const struct ask *ask, int32_t n_vocab, struct err *e);

/* Copies the biases to ask->sample, sorted by token id. If a token occurs twice, its last entry is
 * used. ERR_MEMORY. */
int ask_set_bias(
    struct ask *ask, struct arena *a, const struct token_bias *list, int n, struct err *e);

/* Sets ERR_CONTEXT with a text that agents recognise, so that they compact the conversation.
 * `param` is "messages" or "prompt". Return -1. In err_context_least, n_prompt_tokens is a lower
 * bound: the prompt was not tokenised completely. */
int err_context(struct err *e, const char *param, int n_prompt_tokens, int n_ctx);
int err_context_least(struct err *e, const char *param, int n_prompt_tokens, int n_ctx);
