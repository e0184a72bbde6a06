#include "policy/logins.h"

#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/clock.h"
#include "os/thread.h"
#include "policy/login_store.h"

#include <openssl/crypto.h>

/* Jobs have the kind of their reply, which is another one. */
enum { MSG_STOP = -1, MSG_KEYS = -2, MSG_FETCHED = -3, MSG_REFRESHED = -4 };
enum {
    SLOTS = 8192, /* a power of two */
    TICK_MS = 1000,
    STORE_USE_S = 60,   /* the use of a login is stored at most this often */
    REFRESHES_MAX = 16, /* that run at once */
    RETRY_S = 30,       /* of a refresh, while the issuer does not respond */
    OUTAGE_S = 300      /* then the login ends */
};

struct refresh { /* of a login with a refresh token */
    struct list_link link;
    struct login *login; /* NULL: the login has ended while the request ran */
    char *token;
    int64_t due_s;     /* the access token expires */
    int64_t next_s;    /* the next request is permitted */
    int64_t failing_s; /* the issuer has not responded since; 0 = it has */
    bool is_running;
    struct code_exchange exchange;
};

struct login {
    struct login_row row;
    struct login *next;    /* in the slot */
    struct list_link link; /* in the order of creation */
    int64_t stored_use_s;
    unsigned n_refreshed;    /* the claims were replaced */
    struct refresh *refresh; /* NULL: none */
};

struct keys_message {
    struct msg msg;
    struct oidc_result result; /* with a reference of the keys */
    struct oidc_endpoints endpoints;
};

struct logins {
    const struct logins_options *o;
    struct mailbox *mailbox;
    pthread_t thread;
    bool has_thread, is_stopping;
    struct msg stop;
    /* of the thread */
    struct login_store *store;
    struct code_flow *flow;    /* NULL: none */
    struct login_job *waiting; /* for a key of the issuer */
    uint64_t keys_number;      /* of the last result of oidc.h */
    struct list refreshes;
    int n_fetches; /* requests to the issuer that run */
    int n_refreshes;

    pthread_mutex_t mu;
    struct login *slots[SLOTS];
    struct list by_age; /* the oldest first */
    int n;
};

/* ---- table */

static void free_refresh(struct logins *l, struct refresh *r)
{
    if (!r)
        return;
    if (r->link.list)
        list_remove(&r->link);
    if (r->token)
        OPENSSL_cleanse(r->token, strlen(r->token));
    mem_free(r->token);
    r->token = NULL;
    r->login = NULL;
    if (!r->is_running)
        mem_free(r);
}

static struct login **slot_of(struct logins *l, const uint8_t digest[POLICY_DIGEST_BYTES])
{
    uint32_t h;

    memcpy(&h, digest, sizeof(h)); /* a digest of a random secret */
    struct login **at = &l->slots[h & (SLOTS - 1)];
    while (*at && CRYPTO_memcmp((*at)->row.digest, digest, POLICY_DIGEST_BYTES) != 0)
        at = &(*at)->next;
    return at;
}

static bool is_over(const struct logins *l, const struct login *g, int64_t used_s, int64_t now_s)
{
    return now_s >= g->row.expires_s || (l->o->idle_s && now_s >= used_s + l->o->idle_s);
}

bool logins_find(struct logins *l, struct str cookie, int64_t now_s, struct login_found *out)
{
    uint8_t digest[POLICY_DIGEST_BYTES];

    if (cookie.n != LOGIN_COOKIE_BYTES)
        return false;
    policy_digest(digest, cookie);
    pthread_mutex_lock(&l->mu);
    struct login *g = *slot_of(l, digest);
    bool is_found = g && !is_over(l, g, g->row.used_s, now_s);
    if (is_found) {
        g->row.used_s = MAX(g->row.used_s, now_s);
        *out = (struct login_found){ .is_user = g->row.key != NULL,
            .key = policy_key_ref(g->row.key),
            .expires_s = g->row.expires_s };
        memcpy(out->key_digest, g->row.key_digest, sizeof(out->key_digest));
        memcpy(out->digest, digest, sizeof(digest));
        for (int i = 0; i < 4; i++) /* other claims, another digest */
            out->digest[POLICY_DIGEST_BYTES - 1 - i] ^= (uint8_t)(g->n_refreshed >> 8 * i);
    }
    pthread_mutex_unlock(&l->mu);
    return is_found;
}

/* The caller holds the mutex. */
static void insert(struct logins *l, struct login *take)
{
    struct login **slot = slot_of(l, take->row.digest);

    CHECK(!*slot);
    *slot = take;
    list_add_last(&l->by_age, &take->link);
    l->n++;
}

/* Io threads change the time of the last use. */
static int64_t use_of(struct logins *l, const struct login *g)
{
    pthread_mutex_lock(&l->mu);
    int64_t used_s = g->row.used_s;
    pthread_mutex_unlock(&l->mu);
    return used_s;
}

static void store_row(struct logins *l, struct login *g)
{
    struct err e;

    pthread_mutex_lock(&l->mu);
    struct login_row row = g->row;
    pthread_mutex_unlock(&l->mu);
    g->stored_use_s = row.used_s;
    if (login_store_put(l->store, &row, &e))
        log_error("policy", "login_store_failed", "error=\"%s\"", e.msg);
}

/* Takes a login out of the table; logins thread. */
static void take_out(struct logins *l, struct login *g)
{
    pthread_mutex_lock(&l->mu);
    *slot_of(l, g->row.digest) = g->next;
    list_remove(&g->link);
    l->n--;
    pthread_mutex_unlock(&l->mu);
}

static void free_login(struct logins *l, struct login *g)
{
    free_refresh(l, g->refresh);
    policy_key_unref(g->row.key);
    mem_free(g);
}

/* Ends a login. If the database fails, it has ended in memory, and its row expires. */
static int end_login(struct logins *l, struct login *g, struct err *e)
{
    take_out(l, g);
    int failed = login_store_delete(l->store, g->row.digest, e);
    free_login(l, g);
    return failed;
}

static void end_quietly(struct logins *l, struct login *g, const char *why)
{
    struct err e;

    log_info("policy", "login_ended", "key=%s reason=%s", g->row.id, why);
    if (end_login(l, g, &e))
        log_error("policy", "login_store_failed", "error=\"%s\"", e.msg);
}

/* ---- jobs: keys */

/* Makes room for one login of a caller: ends the oldest of the table, and of the caller. Only this
 * thread changes the list. */
static void make_room(struct logins *l, const uint8_t key_digest[POLICY_DIGEST_BYTES])
{
    struct login *oldest = NULL;
    int n = 0;

    LIST_EACH (struct login, g, &l->by_age, link) {
        if (memcmp(g->row.key_digest, key_digest, POLICY_DIGEST_BYTES) != 0)
            continue;
        oldest = oldest ? oldest : g;
        n++;
    }
    if (n >= LOGINS_PER_CALLER)
        end_quietly(l, oldest, "number_of_caller");
    else if (l->n >= LOGINS_MAX)
        end_quietly(l, LIST_ELEMENT(l->by_age.first, struct login, link), "number");
}

/* key: of the caller; is_user: the login has a copy of it. */
static struct login *new_login(const struct logins *l, struct login_job *j)
{
    struct login *g = try_calloc(1, sizeof(*g));
    const struct policy_key *k = j->key;
    int64_t now_s = clock_wall_s();

    if (!g)
        return NULL;
    code_flow_secret_new(j->cookie);
    policy_digest(g->row.digest, str_of(j->cookie));
    memcpy(g->row.key_digest, k->digest, sizeof(g->row.key_digest));
    memcpy(g->row.id, k->id, sizeof(g->row.id));
    g->row.created_s = g->row.used_s = g->stored_use_s = now_s;
    g->row.expires_s = now_s + l->o->life_s;
    if (k->is_token && j->action == LOGIN_CREATE) /* no longer than the token that was sent */
        g->row.expires_s = MIN(g->row.expires_s, k->expires_at);
    g->row.stored_expires_s = g->row.expires_s;
    g->row.key = k->is_token ? policy_key_ref(k) : NULL;
    return g;
}

static int create(struct logins *l, struct login_job *j, struct login **out, struct err *e)
{
    struct login *g = new_login(l, j);

    if (!g)
        return err_set(e, ERR_MEMORY, "no memory for a login");
    make_room(l, g->row.key_digest);
    if (login_store_put(l->store, &g->row, e)) {
        free_login(l, g);
        OPENSSL_cleanse(j->cookie, sizeof(j->cookie));
        return -1;
    }
    pthread_mutex_lock(&l->mu);
    insert(l, g);
    pthread_mutex_unlock(&l->mu);
    j->expires_s = g->row.expires_s;
    *out = g;
    return 0;
}

static int end_by_cookie(struct logins *l, struct login_job *j, struct err *e)
{
    uint8_t digest[POLICY_DIGEST_BYTES];

    if (l->flow)
        code_flow_logout_url(l->flow, j->url);
    if (strlen(j->cookie) != LOGIN_COOKIE_BYTES)
        return 0;
    policy_digest(digest, str_of(j->cookie));
    struct login *g = *slot_of(l, digest);
    if (!g)
        return 0;
    if (!g->row.key) /* a login with an API key did not come from the issuer */
        *j->url = '\0';
    j->n_ended = 1;
    return end_login(l, g, e);
}

static int end_by_token(struct logins *l, struct login_job *j, struct err *e)
{
    uint8_t digest[POLICY_DIGEST_BYTES];
    int failed = 0;

    if (code_flow_read_logout(l->flow, j->token, digest, e))
        return -1;
    LIST_EACH (struct login, g, &l->by_age, link)
        if (g->row.key && !memcmp(g->row.key_digest, digest, sizeof(digest))) {
            j->n_ended++;
            failed |= end_login(l, g, e);
        }
    log_info("policy", "logins_ended", "n=%d reason=logout_token", j->n_ended);
    return failed;
}

/* ---- jobs: code flow */

static void reply(struct login_job *j)
{
    code_exchange_clear(&j->exchange);
    mailbox_post(j->reply_to, &j->msg);
}

static void fail(struct login_job *j, const struct err *e)
{
    j->err = *e;
    reply(j);
}

static int add_refresh(struct logins *l, struct login *g, char *take, int64_t expires_in_s)
{
    struct refresh *r = take ? try_calloc(1, sizeof(*r)) : NULL;

    if (!r) {
        mem_free(take);
        return take ? -1 : 0;
    }
    r->token = take;
    r->login = g;
    r->due_s = r->next_s = clock_wall_s() + expires_in_s;
    g->refresh = r;
    list_add_last(&l->refreshes, &r->link);
    return 0;
}

/* The time at which a login ends after a restart, when its refresh token is lost. */
static void store_expiry(struct logins *l, struct login *g)
{
    int64_t end_s = g->refresh ? g->refresh->due_s + OUTAGE_S : g->row.expires_s;

    g->row.stored_expires_s = MIN(end_s, g->row.expires_s);
    store_row(l, g);
}

/* The document of the issuer has not arrived, or its keys were rotated: the job waits once for the
 * next result. */
static bool must_wait(struct logins *l, struct login_job *j, const struct err *e)
{
    bool is_missing = e->code == ERR_NOT_FOUND || !code_flow_has_issuer(l->flow);

    if (!is_missing || j->has_waited || !oidc_refetch(l->o->oidc, l->keys_number))
        return false;
    j->has_waited = true;
    j->next_waiting = l->waiting;
    l->waiting = j;
    return true;
}

static void finish_flow(struct logins *l, struct login_job *j)
{
    struct code_result r;
    struct login *g;
    struct err e;

    if (code_flow_read(l->flow, &j->exchange, &r, &e)) {
        if (!must_wait(l, j, &e))
            fail(j, &e);
        return;
    }
    r.key->expires_at = clock_wall_s() + l->o->life_s;
    j->key = r.key;
    if (create(l, j, &g, &e)) {
        policy_key_unref(r.key);
        j->key = NULL;
        mem_free(r.refresh_token);
        fail(j, &e);
        return;
    }
    if (add_refresh(l, g, r.refresh_token, r.expires_in_s))
        log_warn("policy", "no_refresh", "key=%s error=\"no memory\"", g->row.id);
    if (g->refresh)
        store_expiry(l, g);
    reply(j);
}

static void start_exchange(struct logins *l, struct login_job *j)
{
    struct err e;

    j->exchange.fetch.msg.kind = MSG_FETCHED;
    j->exchange.fetch.reply_to = l->mailbox;
    if (code_flow_exchange(l->flow, &j->exchange, j->code, j->secret, j->has_issuer, &e)) {
        if (!must_wait(l, j, &e))
            fail(j, &e);
        return;
    }
    l->n_fetches++;
}

static void execute(struct logins *l, struct login_job *j)
{
    struct login *created;
    struct err e;
    int failed = 0;

    j->err.code = ERR_NONE;
    switch (j->action) {
    case LOGIN_CREATE:
        failed = create(l, j, &created, &e);
        break;
    case LOGIN_END:
        failed = end_by_cookie(l, j, &e);
        break;
    case LOGIN_BEGIN_FLOW:
        code_flow_secret_new(j->secret);
        failed = code_flow_url(l->flow, j->secret, j->url, &e);
        if (failed && must_wait(l, j, &e))
            return;
        break;
    case LOGIN_END_FLOW:
        start_exchange(l, j);
        return;
    case LOGIN_LOGOUT_TOKEN:
        failed = end_by_token(l, j, &e);
        break;
    }
    if (failed)
        fail(j, &e);
    else
        reply(j);
}

static void on_keys(struct logins *l, struct keys_message *m)
{
    struct login_job *waiting = l->waiting;

    code_flow_set_issuer(l->flow, &m->result);
    l->keys_number = m->result.number;
    jwks_unref(m->result.keys);
    mem_free(m);
    l->waiting = NULL;
    for (struct login_job *next; waiting; waiting = next) {
        next = waiting->next_waiting;
        if (waiting->exchange.has_response)
            finish_flow(l, waiting);
        else
            execute(l, waiting);
    }
}

/* ---- refresh */

static void start_refresh(struct logins *l, struct refresh *r)
{
    struct err e;

    r->exchange.fetch.msg.kind = MSG_REFRESHED;
    r->exchange.fetch.reply_to = l->mailbox;
    if (code_flow_refresh(l->flow, &r->exchange, r->token, &e)) {
        code_exchange_clear(&r->exchange);
        return;
    }
    r->is_running = true;
    l->n_fetches++;
    l->n_refreshes++;
}

static bool is_of(const struct login *g, const struct policy_key *k)
{
    return !memcmp(k->digest, g->row.key_digest, POLICY_DIGEST_BYTES);
}

/* The new key has the claims of the new tokens. Requests hold references of the old one. */
static void take_refreshed(
    struct logins *l, struct login *g, struct code_result *result, int64_t now_s)
{
    struct refresh *r = g->refresh;

    if (result->key) {
        result->key->expires_at = g->row.expires_s;
        pthread_mutex_lock(&l->mu);
        const struct policy_key *old = g->row.key;
        g->row.key = result->key;
        g->n_refreshed++;
        pthread_mutex_unlock(&l->mu);
        policy_key_unref(old);
    }
    if (result->refresh_token) {
        OPENSSL_cleanse(r->token, strlen(r->token));
        mem_free(r->token);
        r->token = result->refresh_token;
    }
    r->due_s = r->next_s = now_s + result->expires_in_s;
    r->failing_s = 0;
    store_expiry(l, g);
}

static void on_refreshed(struct logins *l, struct refresh *r)
{
    int64_t now_s = clock_wall_s();
    struct login *g = r->login;
    struct code_result result;
    struct err e;

    r->is_running = false;
    l->n_fetches--;
    l->n_refreshes--;
    if (!g) { /* it has ended */
        code_exchange_clear(&r->exchange);
        mem_free(r);
        return;
    }
    int failed = code_flow_read(l->flow, &r->exchange, &result, &e);
    code_exchange_clear(&r->exchange);
    if (!failed && result.key && !is_of(g, result.key)) {
        policy_key_unref(result.key);
        mem_free(result.refresh_token);
        end_quietly(l, g, "other_subject");
    } else if (!failed) {
        take_refreshed(l, g, &result, now_s);
    } else if (e.code == ERR_AUTH) {
        end_quietly(l, g, "refused_by_issuer");
    } else {
        log_warn("policy", "refresh_failed", "key=%s error=\"%s\"", g->row.id, e.msg);
        r->next_s = now_s + RETRY_S;
        r->failing_s = r->failing_s ? r->failing_s : now_s;
    }
}

/* A login that is not used is not refreshed. Its next request has the scopes of the last tokens
 * until the next tick. */
static void refresh_due(struct logins *l, int64_t now_s)
{
    LIST_EACH (struct refresh, r, &l->refreshes, link) {
        if (r->is_running || now_s < r->next_s || use_of(l, r->login) < r->due_s)
            continue;
        if (r->failing_s && now_s >= r->failing_s + OUTAGE_S)
            end_quietly(l, r->login, "issuer_unavailable");
        else if (l->n_refreshes < REFRESHES_MAX)
            start_refresh(l, r);
    }
}

/* ---- thread */

/* Removes logins that are over, and stores the last use of the others. */
static void tick(struct logins *l)
{
    int64_t now_s = clock_wall_s();

    LIST_EACH (struct login, g, &l->by_age, link) {
        int64_t used_s = use_of(l, g);
        if (is_over(l, g, used_s, now_s))
            end_quietly(l, g, "lifetime");
        else if (used_s >= g->stored_use_s + STORE_USE_S)
            store_row(l, g);
    }
    if (l->flow && !l->is_stopping)
        refresh_due(l, now_s);
}

static void on_message(struct logins *l, struct msg *m)
{
    struct login_job *j;

    switch (m->kind) {
    case MSG_STOP:
        l->is_stopping = true;
        break;
    case MSG_KEYS:
        on_keys(l, container_of(m, struct keys_message, msg));
        break;
    case MSG_FETCHED:
        j = container_of(m, struct login_job, exchange.fetch.msg);
        l->n_fetches--;
        finish_flow(l, j);
        break;
    case MSG_REFRESHED:
        on_refreshed(l, container_of(m, struct refresh, exchange.fetch.msg));
        break;
    default:
        execute(l, container_of(m, struct login_job, msg));
    }
}

/* Jobs that wait for keys when the thread ends. */
static void fail_waiting(struct logins *l)
{
    struct err e;

    err_set(&e, ERR_DRAINING, "The server is shutting down.");
    for (struct login_job *j = l->waiting, *next; j; j = next) {
        next = j->next_waiting;
        fail(j, &e);
    }
    l->waiting = NULL;
}

static void *run(void *arg)
{
    struct logins *l = arg;
    uint64_t tick_ns = clock_ns() + TICK_MS * NS_PER_MS;

    while (!l->is_stopping || l->n_fetches) {
        mailbox_wait(l->mailbox, tick_ns);
        for (struct msg *m = mailbox_drain(l->mailbox), *next; m; m = next) {
            next = m->next;
            on_message(l, m);
        }
        if (clock_ns() >= tick_ns) {
            tick(l);
            tick_ns = clock_ns() + TICK_MS * NS_PER_MS;
        }
    }
    fail_waiting(l);
    return NULL;
}

void logins_post(struct logins *l, struct login_job *take)
{
    mailbox_post(l->mailbox, &take->msg);
}

void logins_publish(struct logins *l, const struct oidc_result *r)
{
    struct keys_message *m = xcalloc(1, sizeof(*m));

    m->msg.kind = MSG_KEYS;
    m->result = *r;
    jwks_ref(r->keys);
    if (r->endpoints) {
        m->endpoints = *r->endpoints;
        m->result.endpoints = &m->endpoints;
    }
    mailbox_post(l->mailbox, &m->msg);
}

/* ---- life */

/* A row of the database; the thread does not run yet. */
static int restore(void *ctx, const struct login_row *row, struct err *e)
{
    struct logins *l = ctx;
    struct login *g;

    if (l->n >= LOGINS_MAX || *slot_of(l, row->digest))
        return 0;
    g = try_calloc(1, sizeof(*g));
    if (!g)
        return err_set(e, ERR_MEMORY, "no memory for the logins");
    g->row = *row;
    g->row.key = policy_key_ref(row->key);
    g->stored_use_s = row->used_s;
    insert(l, g);
    return 0;
}

int logins_open(struct logins **out, const struct logins_options *o, struct err *e)
{
    struct logins *l = xcalloc(1, sizeof(*l));

    l->o = o;
    pthread_mutex_init(&l->mu, NULL);
    if (mailbox_open(&l->mailbox, e) ||
        (o->flow && code_flow_open(&l->flow, o->flow, o->rules, o->client, e)) ||
        login_store_open(&l->store, o->path, e) ||
        login_store_load(l->store, o->flow ? o->rules : NULL, clock_wall_s(), restore, l, e)) {
        logins_close(l);
        return -1;
    }
    *out = l;
    return 0;
}

int logins_start(struct logins *l, struct err *e)
{
    if (thread_start(&l->thread, "logins", run, l, e))
        return -1;
    l->has_thread = true;
    return 0;
}

void logins_stop(struct logins *l)
{
    if (!l || !l->has_thread)
        return;
    l->stop.kind = MSG_STOP;
    mailbox_post(l->mailbox, &l->stop);
    pthread_join(l->thread, NULL);
    l->has_thread = false;
}

/* Key sets that came after the end of the thread. */
static void drain(struct logins *l)
{
    for (struct msg *m = mailbox_drain(l->mailbox), *next; m; m = next) {
        next = m->next;
        CHECK(m->kind == MSG_KEYS);
        struct keys_message *k = container_of(m, struct keys_message, msg);
        jwks_unref(k->result.keys);
        mem_free(k);
    }
}

void logins_close(struct logins *l)
{
    if (!l)
        return;
    logins_stop(l);
    if (l->mailbox) {
        drain(l);
        mailbox_close(l->mailbox);
    }
    LIST_EACH (struct login, g, &l->by_age, link)
        free_login(l, g);
    login_store_close(l->store);
    code_flow_close(l->flow);
    pthread_mutex_destroy(&l->mu);
    mem_free(l);
}
