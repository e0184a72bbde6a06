/* models.h: the model list of GET /v1/models. Pure; any thread. */
#pragma once

#include "base/json.h"

struct model_info { /* strings are borrowed; NULL or 0 = unknown, and omitted */
    const char *id;
    const char *owned_by; /* NULL = "inferflux" */
    int64_t created;      /* seconds since the epoch */
    bool is_ready;
    const char *status;     /* "loaded", "loading", "unloaded", "failed" */
    const char *backend;    /* "native", "script", "remote" */
    const char *family;     /* "qwen3" */
    const char *vocab_type; /* "bpe", "spm" */
    const char *quantization;
    int64_t n_ctx, n_ctx_train, n_vocab, n_embd, n_params;
    int64_t n_experts, n_active_experts; /* per layer, and per token; 0: no experts */
    /* memory: packed weights, all KV pages, those of windowed layers, all state slots */
    uint64_t weight_bytes, kv_bytes, window_kv_bytes, state_bytes;
    uint64_t size_bytes;   /* size of the files */
    const uint8_t *digest; /* SHA-256 of the file, 32 bytes; NULL = unknown */
    const char *file;      /* file name without its folder */
    bool can_chat, can_complete;
    bool can_call_tools, can_reason, can_insert;
    /* Formats of chat output (chat/adapter.h); NULL = not yet known. */
    const char *chat_family, *tool_parser, *thinking_parser;
    const char *tool_format; /* "native", "injection"; NULL = none */
    bool has_unknown_calls;  /* the template's tool call format is not recognised */
    bool is_probed;
};

/* {"object":"list","data":[...],"models":[...]}: OpenAI's list in `data`, Ollama's in `models`. */
void models_list(struct buf *out, const struct model_info *m, size_t n);
/* One entry of `data`, for GET /v1/models/{id}. */
void models_one(struct buf *out, const struct model_info *m);

/* "capabilities":["completion",...] */
void models_put_capabilities(struct jw *w, const struct model_info *m);
/* Formats seconds since the epoch in RFC 3339, UTC. */
struct time_text {
    char z[48];
};
struct time_text models_time(int64_t seconds);
