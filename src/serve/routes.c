/* routes.c: table of all routes: method, path, required scope, error format, time limit, dialect.
 * Constant; any thread. */
#include "serve/api_keys.h"
#include "serve/audit_routes.h"
#include "serve/limits.h"
#include "serve/object_routes.h"
#include "serve/session_routes.h"
#include "serve/usage_list.h"

#include <stdio.h>

static const struct route routes[] = {
    { "GET", "/livez", SCOPE_NONE, false, ERROR_PROBLEM, health_live },
    { "GET", "/readyz", SCOPE_NONE, false, ERROR_PROBLEM, health_ready },
    { "GET", "/healthz", SCOPE_NONE, false, ERROR_PROBLEM, health_status },
    { "GET", "/", SCOPE_NONE, false, ERROR_PROBLEM, health_root },
    { "GET", "/v1/session", SCOPE_NONE, false, ERROR_PROBLEM, session_routes_show },
    { "POST", "/v1/session", SCOPE_ANY, true, ERROR_PROBLEM, session_routes_create },
    { "DELETE", "/v1/session", SCOPE_NONE, false, ERROR_PROBLEM, session_routes_end },
    { "GET", "/v1/session/login", SCOPE_NONE, false, ERROR_PROBLEM, session_routes_login },
    { "GET", "/v1/session/callback", SCOPE_NONE, false, ERROR_PROBLEM, session_routes_callback },
    { "POST", "/v1/session/logout_token", SCOPE_NONE, true, ERROR_PROBLEM,
        session_routes_logout_token },
    { "GET", "/metrics", SCOPE_READ, false, ERROR_PROBLEM, health_metrics },
    { "GET", "/v1/admin/fairness", SCOPE_ADMIN, false, ERROR_PROBLEM, fairness_show },
    { "PUT", "/v1/admin/fairness", SCOPE_ADMIN, true, ERROR_PROBLEM, fairness_change },
    { "GET", "/v1/admin/api_keys", SCOPE_ADMIN, false, ERROR_PROBLEM, api_keys_list },
    { "POST", "/v1/admin/api_keys", SCOPE_ADMIN, true, ERROR_PROBLEM, api_keys_create },
    { "GET", "/v1/admin/api_keys/*", SCOPE_ADMIN, false, ERROR_PROBLEM, api_keys_show },
    { "PUT", "/v1/admin/api_keys/*", SCOPE_ADMIN, true, ERROR_PROBLEM, api_keys_replace },
    { "DELETE", "/v1/admin/api_keys/*", SCOPE_ADMIN, false, ERROR_PROBLEM, api_keys_delete },
    { "GET", "/v1/admin/audit", SCOPE_ADMIN, false, ERROR_PROBLEM, audit_routes_list },
    { "GET", "/v1/admin/limits", SCOPE_ADMIN, false, ERROR_PROBLEM, limits_list },
    { "GET", "/v1/admin/limits/*", SCOPE_ADMIN, false, ERROR_PROBLEM, limits_show },
    { "PUT", "/v1/admin/limits/*", SCOPE_ADMIN, true, ERROR_PROBLEM, limits_replace },
    { "DELETE", "/v1/admin/limits/*", SCOPE_ADMIN, false, ERROR_PROBLEM, limits_delete },
    { "GET", "/v1/admin/tenants", SCOPE_ADMIN, false, ERROR_PROBLEM, tenants_list },
    { "GET", "/v1/admin/tenants/*", SCOPE_ADMIN, false, ERROR_PROBLEM, limits_show },
    { "PUT", "/v1/admin/tenants/*", SCOPE_ADMIN, true, ERROR_PROBLEM, limits_replace },
    { "DELETE", "/v1/admin/tenants/*", SCOPE_ADMIN, false, ERROR_PROBLEM, limits_delete },
    { "GET", "/v1/admin/rate_limit", SCOPE_ADMIN, false, ERROR_PROBLEM, rate_limit_show },
    { "PUT", "/v1/admin/rate_limit", SCOPE_ADMIN, true, ERROR_PROBLEM, rate_limit_replace },
    { "GET", "/v1/admin/roles", SCOPE_ADMIN, false, ERROR_PROBLEM, roles_list },
    { "GET", "/v1/admin/roles/*", SCOPE_ADMIN, false, ERROR_PROBLEM, roles_show },
    { "PUT", "/v1/admin/roles/*", SCOPE_ADMIN, true, ERROR_PROBLEM, roles_replace },
    { "DELETE", "/v1/admin/roles/*", SCOPE_ADMIN, false, ERROR_PROBLEM, roles_delete },
    { "GET", "/v1/admin/guardrails", SCOPE_ADMIN, false, ERROR_PROBLEM, guardrails_list },
    { "PUT", "/v1/admin/guardrails", SCOPE_ADMIN, true, ERROR_PROBLEM, guardrails_replace },
    { "DELETE", "/v1/admin/guardrails", SCOPE_ADMIN, false, ERROR_PROBLEM, guardrails_remove },
    { "POST", "/v1/admin/guardrails/test", SCOPE_ADMIN, true, ERROR_PROBLEM, guardrails_test },
    { "GET", "/v1/admin/guardrails/*", SCOPE_ADMIN, false, ERROR_PROBLEM, guardrails_show },
    { "PUT", "/v1/admin/guardrails/*", SCOPE_ADMIN, true, ERROR_PROBLEM, guardrails_replace },
    { "DELETE", "/v1/admin/guardrails/*", SCOPE_ADMIN, false, ERROR_PROBLEM, guardrails_remove },
    { "GET", "/v1/admin/usage", SCOPE_ADMIN, false, ERROR_PROBLEM, usage_list },
    { "GET", "/v1/admin/cache", SCOPE_ADMIN, false, ERROR_PROBLEM, admin_cache_show },
    { "DELETE", "/v1/admin/cache", SCOPE_ADMIN, false, ERROR_PROBLEM, admin_cache_flush },
    { "GET", "/debug/invariants", SCOPE_ADMIN, false, ERROR_PROBLEM, health_invariants },
    { "DELETE", "/v1/requests/*", SCOPE_GENERATE, false, ERROR_OPENAI, cancel_by_id },
    { "GET", "/v1/models", SCOPE_READ, false, ERROR_OPENAI, models_all },
    { "GET", "/v1/models/*", SCOPE_READ, false, ERROR_OPENAI, models_single },
    { "GET", "/models", SCOPE_READ, false, ERROR_OPENAI, models_all },
    { "POST", "/v1/chat/completions", SCOPE_GENERATE, true, ERROR_OPENAI, generate_response,
        LIMIT_CHAT, &dialect_openai_chat },
    { "POST", "/chat/completions", SCOPE_GENERATE, true, ERROR_OPENAI, generate_response,
        LIMIT_CHAT, &dialect_openai_chat },
    { "POST", "/v1/completions", SCOPE_GENERATE, true, ERROR_OPENAI, generate_response,
        LIMIT_COMPLETION, &dialect_openai_completion },
    { "POST", "/v1/responses", SCOPE_GENERATE, true, ERROR_OPENAI, generate_response, LIMIT_CHAT,
        &dialect_responses },
    { "POST", "/responses", SCOPE_GENERATE, true, ERROR_OPENAI, generate_response, LIMIT_CHAT,
        &dialect_responses },
    { "POST", "/v1/chat/completions/input_tokens", SCOPE_READ, true, ERROR_OPENAI,
        tokenize_routes_count_chat, LIMIT_TOKENIZE, &dialect_openai_chat },
    { "POST", "/chat/completions/input_tokens", SCOPE_READ, true, ERROR_OPENAI,
        tokenize_routes_count_chat, LIMIT_TOKENIZE, &dialect_openai_chat },
    { "POST", "/v1/responses/input_tokens", SCOPE_READ, true, ERROR_OPENAI,
        tokenize_routes_count_responses, LIMIT_TOKENIZE, &dialect_responses },
    { "POST", "/v1/responses/compact", SCOPE_GENERATE, true, ERROR_OPENAI, responses_compact,
        LIMIT_TOKENIZE },
    { "POST", "/v1/responses/*", SCOPE_GENERATE, true, ERROR_OPENAI, responses_cancel },
    { "GET", "/v1/responses/*", SCOPE_READ, false, ERROR_OPENAI, responses_show },
    { "DELETE", "/v1/responses/*", SCOPE_GENERATE, false, ERROR_OPENAI, responses_delete },
    { "POST", "/v1/messages", SCOPE_GENERATE, true, ERROR_ANTHROPIC, generate_response, LIMIT_CHAT,
        &dialect_anthropic },
    { "POST", "/v1/messages/count_tokens", SCOPE_READ, true, ERROR_ANTHROPIC,
        tokenize_routes_count_messages, LIMIT_TOKENIZE, &dialect_anthropic_count },
    { "POST", "/api/chat", SCOPE_GENERATE, true, ERROR_OLLAMA, generate_response, LIMIT_CHAT,
        &dialect_ollama_chat },
    { "POST", "/api/generate", SCOPE_GENERATE, true, ERROR_OLLAMA, generate_response,
        LIMIT_COMPLETION, &dialect_ollama_generate },
    { "POST", "/api/embed", SCOPE_GENERATE, true, ERROR_OLLAMA, ollama_post_embed },
    { "POST", "/api/embeddings", SCOPE_GENERATE, true, ERROR_OLLAMA, ollama_post_embed },
    { "POST", "/api/pull", SCOPE_READ, true, ERROR_OLLAMA, ollama_post_pull },
    { "POST", "/api/push", SCOPE_ADMIN, true, ERROR_OLLAMA, ollama_change },
    { "POST", "/api/create", SCOPE_ADMIN, true, ERROR_OLLAMA, ollama_change },
    { "POST", "/api/copy", SCOPE_ADMIN, true, ERROR_OLLAMA, ollama_change },
    { "DELETE", "/api/delete", SCOPE_ADMIN, true, ERROR_OLLAMA, ollama_change },
    { "POST", "/api/blobs/*", SCOPE_ADMIN, true, ERROR_OLLAMA, ollama_change },
    { "HEAD", "/api/blobs/*", SCOPE_READ, false, ERROR_OLLAMA, ollama_head_blob },
    { "GET", "/api/tags", SCOPE_READ, false, ERROR_OLLAMA, ollama_get_tags },
    { "GET", "/api/ps", SCOPE_READ, false, ERROR_OLLAMA, ollama_get_ps },
    { "GET", "/api/version", SCOPE_READ, false, ERROR_OLLAMA, ollama_get_version },
    { "POST", "/api/show", SCOPE_READ, true, ERROR_OLLAMA, ollama_post_show },
    { "POST", "/completion", SCOPE_GENERATE, true, ERROR_LLAMA, generate_response, LIMIT_COMPLETION,
        &dialect_llama },
    { "POST", "/completions", SCOPE_GENERATE, true, ERROR_LLAMA, generate_response,
        LIMIT_COMPLETION, &dialect_llama },
    { "POST", "/infill", SCOPE_GENERATE, true, ERROR_LLAMA, generate_response, LIMIT_COMPLETION,
        &dialect_llama_infill },
    { "GET", "/props", SCOPE_READ, false, ERROR_LLAMA, props_show },
    { "GET", "/slots", SCOPE_READ, false, ERROR_LLAMA, slots_show },
    { "POST", "/slots/*", SCOPE_GENERATE, true, ERROR_LLAMA, slots_post_action },
    { "GET", "/health", SCOPE_NONE, false, ERROR_LLAMA, props_health },
    { "GET", "/v1/health", SCOPE_NONE, false, ERROR_LLAMA, props_health },
    { "POST", "/tokenize", SCOPE_READ, true, ERROR_OPENAI, tokenize_routes_tokenize,
        LIMIT_TOKENIZE },
    { "POST", "/detokenize", SCOPE_READ, true, ERROR_OPENAI, tokenize_routes_detokenize,
        LIMIT_TOKENIZE },
    { "POST", "/apply-template", SCOPE_READ, true, ERROR_OPENAI, tokenize_routes_apply_template,
        LIMIT_TOKENIZE },
    { "POST", "/v1/grammar/check", SCOPE_READ, true, ERROR_OPENAI, grammar_check, LIMIT_TOKENIZE },
    { "POST", "/v1/parse", SCOPE_READ, true, ERROR_OPENAI, tokenize_routes_parse, LIMIT_TOKENIZE },
};

const struct route *route_at(size_t i)
{
    return i < ARRAY_LEN(routes) ? &routes[i] : NULL;
}

static bool path_matches(const char *pattern, struct str path)
{
    struct str p = str_of(pattern);

    if (str_ends(p, STR("*"))) {
        p.n--;
        return path.n > p.n && str_starts(path, p);
    }
    return str_eq(p, path);
}

const struct route *route_find(struct str method, struct str path, const struct route **near)
{
    bool is_head = str_is(method, "HEAD"); /* HEAD is GET without the body, which http drops */

    *near = NULL;
    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        const struct route *r = &routes[i];
        if (!path_matches(r->path, path))
            continue;
        if (str_is(method, r->method) || (is_head && !strcmp(r->method, "GET")))
            return r;
        *near = r;
    }
    return NULL;
}

enum error_form route_errors(const struct route *near, struct str path)
{
    static const struct {
        const char *prefix; /* the path itself, or its first segments */
        enum error_form errors;
    } unknown_paths[] = {
        { "/v1/admin", ERROR_PROBLEM },
        { "/v1/session", ERROR_PROBLEM },
        { "/v1/messages", ERROR_ANTHROPIC },
        { "/v1", ERROR_OPENAI },
        { "/chat", ERROR_OPENAI },
        { "/models", ERROR_OPENAI },
        { "/responses", ERROR_OPENAI },
        { "/api", ERROR_OLLAMA },
    };

    for (size_t i = 0; !near && i < ARRAY_LEN(unknown_paths); i++) {
        struct str prefix = str_of(unknown_paths[i].prefix);
        if (str_starts(path, prefix) && (path.n == prefix.n || path.p[prefix.n] == '/'))
            return unknown_paths[i].errors;
    }
    return near ? near->errors : ERROR_PROBLEM;
}

struct str route_methods(struct str path, char out[64])
{
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        const struct route *r = &routes[i];
        if (!path_matches(r->path, path))
            continue;
        const char *head = strcmp(r->method, "GET") ? "" : ", HEAD";
        n += (size_t)snprintf(out + n, 64 - n, "%s%s%s", n ? ", " : "", r->method, head);
        CHECK(n < 64);
    }
    return (struct str){ out, n };
}
