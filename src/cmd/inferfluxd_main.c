/* inferfluxd_main.c: the server's main function. Reads the options, opens the model registry and
 * the service, waits for a signal, and drains. Exit status: 0 after a drain, 1 on failure, 2 on a
 * usage error. */
#include "http/tls.h"
#include "api/common/response.h"
#include "audit/audit_index.h"
#include "base/log.h"
#include "base/mem.h"
#include "cmd/options.h"
#include "cmd/paths.h"
#include "generate/probe.h"
#include "os/clock.h"
#include "os/files.h"
#include "os/log_queue.h"
#include "os/mapfile.h"
#include "os/service_notify.h"
#include "os/thread.h"
#include "registry/pack.h"
#include "serve/serve.h"
#include "serve/slots.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <openssl/crypto.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

enum { BATCH_TOKENS_DEFAULT = 8192 }; /* default in options.def: not logged */

/* Reads scheduler.batch: a number, or `auto`, which selects 8 sequences per thread (16 to 128),
 * twice as many admitted sequences, and 256 tokens per thread in a step (2,048 to 8,192). */
static int read_batch(const struct options *o, struct engine_options *eo, struct err *e)
{
    uint64_t n;

    eo->max_batch_tokens = (int)o->batch_tokens;
    eo->max_sequences = (int)o->max_sequences;
    if (!strcmp(o->batch, "auto")) {
        int n_threads = o->threads ? (int)o->threads : thread_count_online();
        eo->max_batch = MAX(16, MIN(8 * n_threads, 128));
        eo->max_batch_tokens = MIN(eo->max_batch_tokens, MAX(2048, MIN(256 * n_threads, 8192)));
        eo->max_sequences = MAX(eo->max_sequences, 2 * eo->max_batch);
    } else if (str_to_u64(str_of(o->batch), &n) && n >= 1 && n <= 1024) {
        eo->max_batch = (int)n;
    } else {
        return err_set(
            e, ERR_INVALID, "scheduler.batch: '%s' is neither auto nor 1 to 1024", o->batch);
    }
    if (o->parallel)
        eo->max_batch = (int)o->parallel;
    return 0;
}

static struct model_spec spec_with_defaults(
    const struct options *o, const struct engine_options *batch)
{
    struct model_spec s = {
        .family = "",
        .template_path = "",
        .no_injection = !o->tool_injection,
        .tool_parser = o->tool_parser,
        .thinking_parser = o->thinking_parser,
        .kernels = o->kernels,
        .kv_type = o->kv_type,
        .pack = pack_mode_of(o->pack),
        .threads = (int)o->threads,
        .ctx_size = o->ctx_size,
        .kv_bytes = o->kv_bytes,
        .state_cache = o->state_cache,
        .engine = engine_options_default,
        .show_progress = true,
        .idle_ttl_ms = -1,
    };

    s.engine.max_batch = batch->max_batch;
    s.engine.max_batch_tokens = batch->max_batch_tokens;
    s.engine.max_sequences = batch->max_sequences;
    s.engine.prefill_chunk = (int)MIN(o->prefill_chunk, batch->max_batch_tokens);
    s.engine.mixed_step_percent = (int)o->mixed_step_percent;
    s.engine.mixed_step_percent_short = (int)o->mixed_step_percent_short;
    s.engine.live_fairness = batch->live_fairness;
    s.engine.max_queue = (int)o->max_queue;
    s.engine.max_queue_tokens = o->max_queue_tokens;
    s.engine.spec.max = strcmp(o->spec, "off") ? (int)o->draft_max : 0;
    s.engine.spec.min = (int)MIN(o->draft_min, o->draft_max);
    s.engine.spec.by_history = strcmp(o->spec, "draft") != 0;
    s.engine.prefix_cache = !strcmp(o->prefix_cache, "on");
    s.engine.kv_evict = strcmp(o->kv_evict, "clock") ? EVICT_LRU : EVICT_CLOCK;
    s.engine.kv_disk = o->kv_disk;
    s.engine.kv_disk_bytes = (uint64_t)o->kv_disk_bytes;
    s.engine.kv_tenant_share = (int)o->kv_tenant_share;
    return s;
}

static bool uses_draft(const struct options *o)
{
    return !strcmp(o->spec, "auto") || !strcmp(o->spec, "draft");
}

static int list_models(const struct options *o, const struct engine_options *batch,
    struct model_spec *specs, char *id, size_t n_id)
{
    int n = 0;

    if (*o->model) {
        specs[n] = spec_with_defaults(o, batch);
        specs[n].path = o->model;
        specs[n].draft_path = uses_draft(o) ? o->model_draft : "";
        specs[n++].id = *o->alias ? o->alias : model_id_of_path(o->model, id, n_id);
    }
    for (int i = 0; i < o->n_models && n < REGISTRY_MODELS_MAX; i++) {
        const struct model_entry *m = &o->models[i];
        struct model_spec *s = &specs[n++];
        *s = spec_with_defaults(o, batch);
        s->id = m->id;
        s->path = m->path;
        s->family = m->family;
        s->template_path = m->template_path;
        s->tool_parser = *m->tool_parser ? m->tool_parser : s->tool_parser;
        s->thinking_parser = *m->thinking_parser ? m->thinking_parser : s->thinking_parser;
        s->draft_path = uses_draft(o) ? m->draft : "";
        s->backend = !strcmp(m->backend, "script") ? BACKEND_SCRIPT : BACKEND_NATIVE;
        s->ctx_size = m->ctx_size ? m->ctx_size : s->ctx_size;
        s->kv_bytes = m->kv_bytes ? m->kv_bytes : s->kv_bytes;
        s->state_cache = m->state_cache ? m->state_cache : s->state_cache;
        s->on_demand = !strcmp(m->load, "demand");
        s->is_pinned = !strcmp(m->pin, "true");
        s->idle_ttl_ms = m->idle_ttl_s < 0 ? -1 : m->idle_ttl_s * 1000;
        if (m->parallel)
            s->engine.max_batch = (int)MIN(m->parallel, 1024);
    }
    return n;
}

static int decide_auth(const struct options *o, struct serve_options *so, struct err *e)
{
    bool is_local = host_is_loopback(o->host);

    struct policy_snapshot *first = policy_first(so->policy);
    int n_keys = policy_snapshot_count(first);

    policy_snapshot_unref(first);
    bool has_callers = n_keys > 0 || so->oidc;
    so->needs_key_once_set = !strcmp(o->auth, "auto");
    so->needs_key =
        !strcmp(o->auth, "always") || (so->needs_key_once_set && (has_callers || !is_local));
    if (so->needs_key && !has_callers)
        return err_set(e, ERR_INVALID,
            "listening on %s needs an API key: set INFERFLUX_API_KEYS or --api-key-file (or use "
            "--auth never)",
            o->host);
    return 0;
}

static void http_settings(const struct options *o, struct http_options *h)
{
    *h = http_options_default;
    h->host = o->host;
    h->port = (uint16_t)o->port;
    h->max_connections = (int)o->max_connections;
    h->head_ms = (uint32_t)o->head_timeout_ms;
    h->body_ms = (uint32_t)o->body_timeout_ms;
    h->idle_ms = (uint32_t)o->idle_timeout_ms;
    h->write_ms = (uint32_t)o->write_timeout_ms;
    h->tls_cert = *o->tls_cert ? o->tls_cert : NULL;
    h->tls_key = *o->tls_key ? o->tls_key : NULL;
    h->tls_client_ca = *o->tls_client_ca ? o->tls_client_ca : NULL;
}

/* Only several keys need shares. The part of a holder that is small decreases with the limit, so
 * that a share of the reserve has room for it. */
static struct budget *new_budget(
    const struct options *o, const struct serve_options *so, struct budget_options limits)
{
    bool is_dynamic = policy_has_backend(so->policy) || so->oidc;
    int n_owners = so->oidc ? POLICY_KEYS_MAX + TOKEN_OWNERS : POLICY_KEYS_MAX;
    bool has_shares = is_dynamic || (so->needs_key && keys_count(so->keys) > 1);

    limits.small = MIN(limits.small, limits.max / 512);
    limits.share_percent = has_shares ? (int)o->request_share : 100;
    limits.n_owners = (is_dynamic ? n_owners : keys_count(so->keys)) + 1;
    return budget_new(&limits);
}

static void open_budgets(const struct options *o, struct serve_options *so)
{
    so->http.bodies = new_budget(
        o, so, (struct budget_options){ .max = (size_t)o->max_bodies, .small = 64 * KB });
    so->request_memory = new_budget(o, so,
        (struct budget_options){
            .max = (size_t)o->request_memory, .small = 256 * KB, .charge_max = REQUEST_BYTES_MAX });
}

/* Blocks of 1 MB and more, the chunks of large arenas among them, are mapped, and unmapped when
 * they are freed. By default glibc raises this threshold with the largest block that was freed, and
 * keeps the memory of large requests. Up to 8 MB per heap remain for the next request. */
static void return_freed_memory(void)
{
    mallopt(M_MMAP_THRESHOLD, 1024 * 1024);
    mallopt(M_TRIM_THRESHOLD, 8 * 1024 * 1024);
}

static void print_banner(const struct options *o, const struct service *s)
{
    bool is_v6 = strchr(o->host, ':') != NULL;
    const char *scheme = *o->tls_cert ? "https" : "http";
    char url[300];

    snprintf(url, sizeof(url), "%s://%s%s%s:%d", scheme, is_v6 ? "[" : "", o->host,
        is_v6 ? "]" : "", service_port(s));
    printf("InferFlux %s listens on %s\n\n"
           "  curl %s/v1/chat/completions -H 'Content-Type: application/json' \\\n"
           "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]}'\n\n",
        INFERFLUX_VERSION, url, url);
    fflush(stdout);
}

/* Raises the descriptor limit to the hard limit, since each connection uses one. */
static void raise_descriptor_limit(void)
{
    struct rlimit l;

    if (!getrlimit(RLIMIT_NOFILE, &l) && l.rlim_cur < l.rlim_max) {
        l.rlim_cur = l.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &l))
            log_warn("cmd", "descriptor_limit_failed", "error=\"%s\"", strerror(errno));
    }
}

/* SIGTERM and SIGINT start the drain; a second one ends the process at once. */
static void set_end_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
}

/* Signals that main() blocks in all threads and wait_for_signal() receives. SIGHUP remains blocked
 * until the end of the process. */
static void block_signals(void)
{
    sigset_t set;

    set_end_signals(&set);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* write(2) returns EFBIG instead */
}

static void reload_tls(struct service *service)
{
    struct err e;

    if (service_reload_tls(service, &e))
        log_error("cmd", "tls_reload_failed", "error=\"%s\"", e.msg);
}

static uint64_t tls_stamp(const struct options *o)
{
    const struct tls_files files = { o->tls_cert, o->tls_key, o->tls_client_ca };

    return tls_files_stamp(&files);
}

/* Reads the certificates again if SIGHUP was received or their files have changed. */
static void follow_tls(
    struct service *service, const struct options *o, uint64_t *stamp, bool must_reload)
{
    if (!*o->tls_cert)
        return;
    uint64_t now = tls_stamp(o);
    if (now != *stamp || must_reload)
        reload_tls(service);
    *stamp = now;
}

/* Waits for a signal that starts the drain. SIGHUP reopens the log files, for logrotate, and
 * reloads the certificates; their files are also looked at once a second. */
static void wait_for_signal(struct audit *audit, struct service *service, const struct options *o)
{
    const struct timespec second = { 1, 0 };
    sigset_t set, end;
    int sig;

    set_end_signals(&end);
    set = end;
    sigaddset(&set, SIGHUP);
    uint64_t stamp = tls_stamp(o);
    while ((sig = sigtimedwait(&set, NULL, *o->tls_cert ? &second : NULL)) < 0 || sig == SIGHUP) {
        if (sig == SIGHUP)
            log_info("cmd", "reopen", "signal=\"%s\"", strsignal(sig));
        if (sig == SIGHUP && audit)
            audit_reopen(audit);
        follow_tls(service, o, &stamp, sig == SIGHUP);
    }
    log_info("cmd", "drain", "signal=\"%s\"", strsignal(sig));
    pthread_sigmask(SIG_UNBLOCK, &end, NULL);
}

static int open_audit(
    struct audit **out, struct audit_index **index, const struct options *o, struct err *e)
{
    enum { HOUR_S = 3600, DAY_S = 24 * HOUR_S };
    static const char *const when_full[] = {
        [AUDIT_DROP] = "drop", [AUDIT_REFUSE] = "refuse", [AUDIT_BLOCK] = "block"
    };
    struct audit_options ao = { .path = o->audit_log,
        .keys_path = o->audit_keys,
        .syslog_path = o->audit_syslog,
        .rotate_bytes = (uint64_t)o->audit_rotate_bytes,
        .rotate_s = o->audit_rotate_hours * HOUR_S,
        .retain_s = o->audit_retain_days * DAY_S,
        .key_s = o->audit_key_days * DAY_S,
        .debug_mode = o->audit_debug };

    while (strcmp(o->audit_when_full, when_full[ao.when_full]))
        ao.when_full++;
    return audit_open(out, &ao, e) || audit_index_open(index, o->audit_log, *out, e) ? -1 : 0;
}

enum { PASSPHRASE_MAX = 4096 };

/* Reads the first line of a file, which has less than `max` bytes. */
static int read_secret_file(char *out, size_t max, const char *path, struct err *e)
{
    struct stat st;
    int fd;

    if (file_open_regular(path, O_RDONLY, &fd, e))
        return -1;
    int failed =
        fstat(fd, &st) || st.st_size >= (off_t)max || file_read(fd, out, (size_t)st.st_size, 0);
    close(fd);
    if (failed)
        return err_set(e, ERR_IO, "%s: not readable, or longer than %zu bytes", path, max - 1);
    out[st.st_size] = '\0';
    out[strcspn(out, "\r\n")] = '\0';
    return 0;
}

/* Reads INFERFLUX_POLICY_PASSPHRASE, or the first line of the file that
 * INFERFLUX_POLICY_PASSPHRASE_FILE names. The variable is overwritten. */
static int read_passphrase(char out[PASSPHRASE_MAX], struct err *e)
{
    char *text = getenv("INFERFLUX_POLICY_PASSPHRASE");
    const char *path = getenv("INFERFLUX_POLICY_PASSPHRASE_FILE");

    *out = '\0';
    if (text && *text && path && *path)
        return err_set(e, ERR_INVALID,
            "INFERFLUX_POLICY_PASSPHRASE and INFERFLUX_POLICY_PASSPHRASE_FILE are both set");
    if (text && snprintf(out, PASSPHRASE_MAX, "%s", text) >= PASSPHRASE_MAX)
        return err_set(e, ERR_INVALID, "INFERFLUX_POLICY_PASSPHRASE is longer than %d bytes",
            PASSPHRASE_MAX - 1);
    if (text)
        OPENSSL_cleanse(text, strlen(text));
    if (!path || !*path)
        return 0;
    return read_secret_file(out, PASSPHRASE_MAX, path, e)
               ? err_wrap(e, "INFERFLUX_POLICY_PASSPHRASE_FILE")
               : 0;
}

static int open_policy(
    struct policy **out, const struct options *o, const struct keys *keys, struct err *e)
{
    char passphrase[PASSPHRASE_MAX] = "";
    bool has_backend = strcmp(o->policy_backend, "none") != 0;

    if (*o->policy_url && strcmp(o->policy_backend, "postgres"))
        return err_set(e, ERR_INVALID, "policy.url is set, and policy.backend is not postgres");
    if (*o->policy_path && !has_backend)
        return err_set(e, ERR_INVALID, "policy.path is set, and policy.backend is none");
    int failed = read_passphrase(passphrase, e);
    if (!failed) {
        struct policy_options po = { .keys = keys,
            .backend = has_backend ? o->policy_backend : "",
            .storage = { o->policy_path, o->policy_url, str_of(passphrase) },
            .stale_ms = o->policy_stale_ms };
        failed = policy_open(out, &po, e);
    }
    OPENSSL_cleanse(passphrase, sizeof(passphrase));
    return failed;
}

enum { CLIENT_SECRET_MAX = 513 };

/* Tokens of an issuer, logins of browsers, and the HTTP client, which fetches its keys. */
struct issuer {
    struct http_client *client;
    struct oidc *oidc;
    struct oidc_options oidc_options;
    struct token_options token_options;
    struct token_rules rules;
    struct code_flow_options flow;
    struct logins_options logins;
    char client_secret[CLIENT_SECRET_MAX], logins_path[1024];
};

/* Path of a database next to that of the policy. */
static int path_beside_policy(
    char out[1024], const char *own, const struct options *o, const char *suffix, struct err *e)
{
    bool is_beside = !*own && *o->policy_path;
    int n = snprintf(out, 1024, "%s%s", is_beside ? o->policy_path : own, is_beside ? suffix : "");

    return n < 1024 ? 0 : err_set(e, ERR_INVALID, "%.40s...: the path is too long", out);
}

static int open_logins(
    struct serve_options *so, struct issuer *is, const struct options *o, struct err *e)
{
    bool has_flow = *o->login_client_id;

    if (has_flow && !so->oidc)
        return err_set(e, ERR_INVALID, "auth.login.client_id is set, and auth.oidc.issuer is not");
    if ((*o->login_client_secret_file &&
            read_secret_file(
                is->client_secret, CLIENT_SECRET_MAX, o->login_client_secret_file, e) &&
            err_wrap(e, "--login-client-secret-file")) ||
        path_beside_policy(is->logins_path, o->login_path, o, ".logins", e))
        return -1;
    is->flow = (struct code_flow_options){ .client_id = o->login_client_id,
        .client_secret = is->client_secret,
        .redirect_url = o->login_redirect_url,
        .scopes = o->login_scopes,
        .uses_id_token = !strcmp(o->login_claims, "id_token") };
    is->logins = (struct logins_options){ .path = is->logins_path,
        .life_s = o->login_lifetime_s,
        .idle_s = o->login_idle_s,
        .rules = so->oidc ? &is->rules : NULL,
        .flow = has_flow ? &is->flow : NULL,
        .client = is->client,
        .oidc = so->oidc };
    so->login_flow = is->logins.flow;
    so->login_life_s = o->login_lifetime_s;
    so->has_secure_cookies = !strcmp(o->login_secure, "always") || *o->tls_cert ||
                             str_starts(str_of(o->login_redirect_url), STR("https://"));
    return logins_open(&so->logins, &is->logins, e);
}

static int open_oidc(struct issuer *is, const struct options *o, struct err *e)
{
    struct http_client_options co = { .ca_file = o->client_ca_file };

    if (!*o->oidc_issuer)
        return 0;
    is->oidc_options = (struct oidc_options){ o->oidc_issuer, o->oidc_jwks_url,
        (uint32_t)o->oidc_refresh_s, (uint32_t)o->oidc_refetch_ms, *o->login_client_id != '\0' };
    is->token_options = (struct token_options){ .issuer = o->oidc_issuer,
        .audience = o->oidc_audience,
        .algorithms = o->oidc_algorithms,
        .scopes = o->oidc_scopes,
        .scopes_claim = o->oidc_scopes_claim,
        .tenant_claim = o->oidc_tenant_claim,
        .skew_s = o->oidc_skew_s };
    if (token_rules_read(&is->rules, &is->token_options, e) ||
        http_client_open(&is->client, &co, e))
        return -1;
    return oidc_open(&is->oidc, &is->oidc_options, is->client, e);
}

static int open_issuer(
    struct serve_options *so, struct issuer *is, const struct options *o, struct err *e)
{
    if (open_oidc(is, o, e))
        return -1;
    so->oidc = is->oidc;
    so->token_rules = &is->rules;
    return open_logins(so, is, o, e);
}

static void close_issuer(struct issuer *is, struct logins *logins)
{
    http_client_stop(is->client);
    logins_stop(logins);
    oidc_close(is->oidc);
    http_client_close(is->client);
}

/* Opens the limits and the usage, from which the budgets of this day and month continue. */
static int open_limits(struct serve_options *so, const struct options *o, struct err *e)
{
    const struct limit_time now = { clock_ns(), clock_wall_s() };
    char path[1024];

    if (path_beside_policy(path, o->usage_path, o, ".usage", e))
        return -1;
    so->pace = !strcmp(o->when_full, "pace");
    return limiter_open(&so->limiter, (uint64_t)o->limits_window_s * NS_PER_S, e) ||
                   usage_open(&so->usage, path, e) ||
                   usage_restore(so->usage, so->limiter, &now, e) || usage_start(so->usage, e)
               ? -1
               : 0;
}

static int open_compile_cache(struct compile_cache **out, const struct options *o, struct err *e)
{
    if (!o->constraint_cache_bytes)
        return 0;
    *out = compile_cache_new((size_t)o->constraint_cache_bytes);
    return *out ? 0 : err_set(e, ERR_MEMORY, "no memory for the cache of constraints");
}

static int open_response_cache(struct response_cache **out, const struct options *o, struct err *e)
{
    struct response_cache_options eo = { (size_t)o->response_cache_bytes,
        o->response_cache_ttl_s * NS_PER_S };

    return eo.max_bytes ? response_cache_open(out, &eo, e) : 0;
}

static int open_response_store(struct response_store **out, const struct options *o, struct err *e)
{
    size_t bytes = (size_t)o->responses_bytes;
    struct response_store_options so = { bytes, bytes / 100 * (size_t)o->responses_share,
        o->responses_ttl_s * NS_PER_S };

    return bytes ? response_store_open(out, &so, e) : 0;
}

static unsigned reasoning_names(const char *field)
{
    unsigned one = strcmp(field, "reasoning") ? REASONING_CONTENT : REASONING;

    return strcmp(field, "both") ? one : REASONING_CONTENT | REASONING;
}

/* Settings that are accepted for compatibility, and have no effect with these values. */
static void log_no_effect(const struct options *o, const struct engine_options *batch)
{
    int64_t rows = MAX(MAX((int64_t)MODEL_STEP_ROWS, o->prefill_chunk), batch->max_batch);
    const struct {
        const char *flag, *note;
        bool is_set;
    } settings[] = {
        { "--role", "this version has no KV transfer: every role serves whole requests",
            strcmp(o->role, "unified") != 0 },
        { "--prefill-pool-size", "prefill and decode share the threads of --threads",
            o->prefill_pool != 0 },
        { "--decode-pool-size", "prefill and decode share the threads of --threads",
            o->decode_pool != 0 },
        { "--batch-size",
            "a step of a native model has at most 512 tokens, --ubatch-size or --batch",
            o->batch_tokens != BATCH_TOKENS_DEFAULT && o->batch_tokens > rows },
    };

    for (size_t i = 0; i < ARRAY_LEN(settings); i++)
        if (settings[i].is_set)
            log_warn(
                "cmd", "no_effect", "option=%s note=\"%s\"", settings[i].flag, settings[i].note);
}

/* The options that name directories; `create`: the server creates the directory. */
static int check_directories(const struct options *o, struct err *e)
{
    const struct {
        const char *flag, *path;
        bool create;
    } dirs[] = { { "--slot-save-path", o->slot_save_path, false },
        { "--kv-disk", o->kv_disk, true } };

    for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
        if (*dirs[i].path && dir_check(dirs[i].path, dirs[i].create, e))
            return err_wrap(e, "%s", dirs[i].flag);
    return 0;
}

static _Atomic bool has_no_model; /* no model that was loaded at start can be served */

/* The service manager may start what depends on this server; without a usable model, the main
 * thread leaves wait_for_signal. Runs on the loader thread, after the listeners are open. */
static void end_loading(int n_ready, bool can_serve)
{
    char lines[64];

    if (!can_serve) {
        has_no_model = true;
        kill(getpid(), SIGTERM);
        return;
    }
    snprintf(lines, sizeof(lines), "READY=1\nSTATUS=models ready: %d", n_ready);
    service_notify(lines);
}

static int check_served(struct registry *registry, struct err *e)
{
    return has_no_model ? registry_check_failed(registry, e) : 0;
}

enum { AUDIT_FLUSH_MS = 5000 }; /* time for the last audit lines, if the disk is slow */

static enum tool_strictness tool_strictness(const char *name)
{
    return !strcmp(name, "all")     ? TOOL_STRICTNESS_ALL
           : !strcmp(name, "names") ? TOOL_STRICTNESS_NAMES
                                    : TOOL_STRICTNESS_ASKED;
}

static int run_server(const struct options *o, struct err *e)
{
    struct model_spec specs[REGISTRY_MODELS_MAX];
    char id[256], store[1024];
    struct keys *keys = NULL;
    struct registry *registry = NULL;
    struct service *service = NULL;
    struct issuer issuer = { NULL };
    struct serve_options so = { .n_threads = (int)o->threads_http,
        .max_body = o->max_body,
        .ping_ms = (uint32_t)o->sse_ping_ms,
        .drain_ms = (uint32_t)o->drain_ms,
        .load_wait_ms = (uint32_t)o->load_wait_ms,
        .demand_wait_ms = (uint32_t)o->pool_wait_ms,
        .limit_ms = { [LIMIT_CHAT] = (uint32_t)o->chat_timeout_ms,
            [LIMIT_COMPLETION] = (uint32_t)o->completion_timeout_ms,
            [LIMIT_TOKENIZE] = (uint32_t)o->tokenize_timeout_ms },
        .cors_origin = o->cors_origin,
        .hosts = o->hosts,
        .proxies = o->proxies,
        .role = o->role,
        .strip_billing = o->strip_billing,
        .reasoning_names = reasoning_names(o->reasoning_field),
        .constraint_bytes_max = (size_t)o->max_constraint,
        .tool_strictness = tool_strictness(o->tool_strictness),
        .default_max_tokens = (int)o->max_tokens,
        .share_prefixes = !strcmp(o->prefix_share, "all"),
        .slot_dir = o->slot_save_path,
        .slot_bytes = o->slot_save_bytes };
    int rc = -1;

    struct engine_options batch = engine_options_default;
    struct live_fairness fairness;
    fairness_set(&fairness,
        &(struct fairness){ o->fairness_preempt, (int)o->fairness_high, (int)o->fairness_slice });
    batch.live_fairness = so.fairness = &fairness;
    if (read_batch(o, &batch, e))
        return -1;
    log_no_effect(o, &batch);
    store_path(o->store, store, sizeof(store));
    if (!strcmp(o->store, "auto") && strcmp(o->probe, "auto") && access(store, F_OK))
        *store = '\0'; /* the default store does not exist yet */
    struct registry_options po = { specs, list_models(o, &batch, specs, id, sizeof(id)),
        o->strict_model, o->model_aliases, store,
        !strcmp(o->probe, "auto") ? model_probe_default : NULL, true, end_loading,
        { (int)o->pool_loads, (uint64_t)o->pool_memory, (int)o->pool_models,
            (uint64_t)o->pool_idle_s * 1000 } };
    if (!po.n_specs)
        return err_set(e, ERR_INVALID, "no model: give --model FILE.gguf or --config FILE.yaml");
    if (keys_open(&keys, o->api_keys, e) ||
        (*o->api_keys_file && keys_add_file(keys, o->api_keys_file, e)))
        goto out;
    so.keys = keys;
    if (open_limits(&so, o, e))
        goto out;
    if (open_policy(&so.policy, o, keys, e) || open_issuer(&so, &issuer, o, e))
        goto out;
    http_settings(o, &so.http);
    if (decide_auth(o, &so, e) || check_directories(o, e) ||
        (*o->audit_log && open_audit(&so.audit, &so.audit_index, o, e)) ||
        registry_open(&registry, &po, e))
        goto out;
    if (*o->slot_save_path)
        slots_remove_stale_files(o->slot_save_path);
    open_budgets(o, &so);
    so.registry = registry;
    so.slots = slots_new(*o->slot_save_path);
    if (open_compile_cache(&so.compile_cache, o, e) ||
        open_response_cache(&so.response_cache, o, e) ||
        open_response_store(&so.response_store, o, e) || service_open(&service, &so, e) ||
        registry_start(registry, e))
        goto out;
    print_banner(o, service);
    wait_for_signal(so.audit, service, o);
    service_notify("STOPPING=1");
    service_drain(service);
    rc = check_served(registry, e);

out:
    /* Engines end before the mailboxes that they post to. */
    compile_cache_free(so.compile_cache); /* before the vocabularies of the models */
    if (registry)
        registry_close(registry);
    policy_stop(so.policy);
    close_issuer(&issuer, so.logins);
    service_close(service);
    logins_close(so.logins);
    policy_close(so.policy);
    usage_close(so.usage);
    limiter_close(so.limiter);
    slots_free(so.slots);
    response_store_close(so.response_store);
    response_cache_close(so.response_cache);
    audit_index_close(so.audit_index);
    audit_close(so.audit, AUDIT_FLUSH_MS);
    budget_free(so.request_memory);
    budget_free(so.http.bodies);
    keys_close(keys);
    return rc;
}

static void print_generated(void (*write_to)(struct buf *out))
{
    struct buf b;

    buf_init(&b, MB);
    write_to(&b);
    fwrite(b.p, 1, b.n, stdout);
    buf_clear(&b);
}

enum { LOG_FLUSH_MS = 1000 }; /* time for the last log lines, if stderr is not read */

int main(int argc, char **argv)
{
    struct options o;
    struct err e;
    enum log_level level;
    int status = 0;

    block_signals();
    mapfile_catch_faults();
    raise_descriptor_limit();
    return_freed_memory();
    int failed = options_read(&o, argc, argv, environ, &e);
    options_hide_secrets(argc, argv);
    if (failed) {
        fprintf(stderr, "inferfluxd: %s\n", e.msg);
        status = 2;
    } else if (o.want_help) {
        print_generated(options_help);
    } else if (o.want_version) {
        printf("inferfluxd %s\n", INFERFLUX_VERSION);
    } else if (o.docs) {
        print_generated(!strcmp(o.docs, "man") ? options_man : options_docs);
        if (!*o.docs)
            print_generated(metrics_docs);
    } else {
        if (log_level_parse(o.log_level, &level))
            log_set_level(level);
        status = log_queue_open(&e) || run_server(&o, &e);
        log_queue_close(LOG_FLUSH_MS);
        if (status)
            fprintf(stderr, "inferfluxd: %s\n", e.msg);
    }
    options_clear(&o);
    return status;
}
