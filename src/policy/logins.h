/* logins.h: sessions of browsers. The session cookie stands for an API key, or for a user of the
 * issuer after a login with the authorization code flow (code_flow.h).
 *
 *     cookie  64 hexadecimal digits (256 random bits), returned once
 *     login   SHA-256 of the cookie -> digest of the API key, or a key made of the user's claims
 *
 *     logins_open --> logins_start --> logins_stop --> logins_close
 *
 * A login ends after life_s, after idle_s without a request, with its API key, when its cookie or
 * the issuer ends it (logout), and when the issuer refuses to refresh its tokens. The table has at
 * most LOGINS_MAX logins, and LOGINS_PER_CALLER of one key or user: one more ends the oldest.
 *
 * The logins thread owns the code flow, the refresh tokens and the SQLite database, in which a
 * login is stored before its cookie is returned, and removed before its end is reported. A refresh
 * token is in memory only, so after a restart a login that has one ends with its last access
 * token.
 *
 * A mutex guards the table, which io threads search; it is held for one lookup. Owner: the main
 * thread, except where noted. */
#pragma once

#include "policy/code_flow.h"

enum { LOGINS_MAX = 8192, LOGINS_PER_CALLER = 64, LOGIN_COOKIE_BYTES = CODE_FLOW_SECRET_BYTES };

struct logins;

struct logins_options { /* borrowed for the life of the struct */
    const char *path;   /* of the database; "" = in memory */
    int64_t life_s;
    int64_t idle_s;                       /* 0 = no limit */
    const struct token_rules *rules;      /* NULL = no issuer: logins with API keys only */
    const struct code_flow_options *flow; /* NULL = no login at the issuer */
    struct http_client *client;
    struct oidc *oidc; /* set if flow is */
};

/* ERR_IO, ERR_CORRUPT, ERR_INVALID. */
int logins_open(struct logins **out, const struct logins_options *o, struct err *e) MUST_CHECK;
int logins_start(struct logins *l, struct err *e) MUST_CHECK;
void logins_stop(struct logins *l);  /* http_client_stop was called before; accepts NULL */
void logins_close(struct logins *l); /* accepts NULL */
/* Sends the thread a result of oidc.h, which it borrows. Any thread. */
void logins_publish(struct logins *l, const struct oidc_result *r);

struct login_found {
    bool is_user;
    uint8_t key_digest[POLICY_DIGEST_BYTES]; /* of the API key */
    const struct policy_key *key;            /* of a user: a reference of a key with the claims */
    uint8_t digest[POLICY_DIGEST_BYTES];     /* for token_keys_of_login */
    int64_t expires_s;
};
/* Finds the login of a cookie, and notes its use. Any thread. */
bool logins_find(
    struct logins *l, struct str cookie, int64_t now_s, struct login_found *out) MUST_CHECK;

enum login_action {
    LOGIN_CREATE,      /* with a key */
    LOGIN_END,         /* of `cookie` */
    LOGIN_BEGIN_FLOW,  /* `secret` -> `url` of the issuer */
    LOGIN_END_FLOW,    /* `secret` and `code` -> `cookie`, `key` */
    LOGIN_LOGOUT_TOKEN /* `token` of the issuer: ends the logins of its user */
};

struct login_job {
    struct msg msg; /* kind: of the reply */
    struct mailbox *reply_to;
    enum login_action action;
    const struct policy_key *key; /* CREATE: a reference, which remains the caller's. END_FLOW: the
                                   * result, a reference */
    char cookie[LOGIN_COOKIE_BYTES + 1]; /* END: "" = none; CREATE, END_FLOW: the result */
    char secret[CODE_FLOW_SECRET_BYTES + 1];
    bool has_issuer;             /* END_FLOW: the redirect named the issuer */
    struct str code, token;      /* borrowed until the reply */
    int64_t expires_s;           /* result of CREATE, END_FLOW */
    int n_ended;                 /* result of END, LOGOUT_TOKEN */
    char url[CODE_FLOW_URL_MAX]; /* BEGIN_FLOW; END: logout page of the issuer, or "" */
    struct err err;              /* code ERR_NONE: success */
    /* of the logins thread */
    struct code_exchange exchange;
    struct login_job *next_waiting;
    bool has_waited;
};
/* The job belongs to the thread until it is posted to reply_to. Any thread. */
void logins_post(struct logins *l, struct login_job *take);
