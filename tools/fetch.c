/* tools/fetch: runs fetches of http/client, for tests.
 *
 *     fetch [--public ADDRESS] [--nameserver PORT] [--ca FILE]
 *
 * Reads lines "POLICY MAX_BYTES TIMEOUT_MS REDIRECTS URL [AUTHORIZATION [BODY]]" from stdin. POLICY
 * is `configured` or `public`. Fetches run at the same time; a line `wait` waits for all of them,
 * `stop` and `close` end them. Each result is one line of JSON with the number of the fetch.
 *
 * --public: ADDRESS counts as public. --nameserver: names are resolved by the DNS server on this
 * port of 127.0.0.1, through the resolver of the C library. */
#include "base/json.h"
#include "base/mem.h"
#include "http/client/address.h"
#include "http/client/http_client.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>
#include <stdio.h>
#include <stdlib.h>

enum { FETCHES_MAX = 256, LINE_MAX_BYTES = 16384 };

struct request {
    struct http_fetch fetch;
    char *line;
    int number;
};

static struct in_addr extra_public;
static bool has_extra_public;
static uint16_t nameserver_port;

static bool is_public(const struct sockaddr *a)
{
    struct sockaddr_in v4;

    if (has_extra_public && a->sa_family == AF_INET) {
        memcpy(&v4, a, sizeof(v4));
        if (v4.sin_addr.s_addr == extra_public.s_addr)
            return true;
    }
    return address_is_public(a);
}

/* Replaces the function of the C library for libcurl: the resolver of this thread uses the DNS
 * server of --nameserver. */
EXPORT int getaddrinfo(const char *restrict name, const char *restrict service,
    const struct addrinfo *restrict hints, struct addrinfo **restrict out)
{
    int (*original)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    void *found = dlsym(RTLD_NEXT, "getaddrinfo");

    memcpy(&original, &found, sizeof(original));
    if (nameserver_port && !res_init()) {
        _res.nscount = 1;
        _res.nsaddr_list[0] = (struct sockaddr_in){ .sin_family = AF_INET,
            .sin_port = htons(nameserver_port),
            .sin_addr = { htonl(INADDR_LOOPBACK) } };
        _res.options |= RES_NOTLDQUERY;
        _res.options &= ~(unsigned long)(RES_DNSRCH | RES_DEFNAMES);
        _res.retrans = 30; /* seconds: a server that does not answer holds up the resolver */
    }
    return original(name, service, hints, out);
}

static void print_result(const struct request *r)
{
    const struct http_fetch *f = &r->fetch;
    struct buf b;
    struct jw w;

    buf_init(&b, MB);
    jw_init(&w, &b);
    jw_object(&w);
    jw_member_i64(&w, "number", r->number);
    jw_member_str(&w, "error", str_of(f->err.code ? errcode_name(f->err.code) : ""));
    jw_member_str(&w, "message", str_of(f->err.code ? f->err.msg : ""));
    jw_member_i64(&w, "status", f->status);
    jw_member_i64(&w, "redirects", f->n_redirects);
    jw_member_u64(&w, "bytes", f->response.n);
    jw_member_i64(&w, "max_age", f->max_age_s);
    jw_member_str(&w, "type", str_of(f->content_type));
    jw_member_str(&w, "body", (struct str){ f->response.p, MIN(f->response.n, (size_t)1000) });
    jw_end_object(&w);
    printf("%.*s\n", (int)b.n, b.p);
    fflush(stdout);
    buf_clear(&b);
}

static int collect(struct mailbox *m, int n)
{
    while (n) {
        mailbox_wait(m, UINT64_MAX);
        for (struct msg *k = mailbox_drain(m), *next; k; k = next) {
            struct request *r = container_of(k, struct request, fetch.msg);
            next = k->next;
            print_result(r);
            buf_clear(&r->fetch.response);
            mem_free(r->line);
            mem_free(r);
            n--;
        }
    }
    return 0;
}

static char *next_word(char **rest)
{
    return strsep(rest, " ");
}

static struct request *read_request(const char *line, int number, struct mailbox *m)
{
    struct request *r = xcalloc(1, sizeof(*r));
    char *rest = r->line = xstrdup(line), *word;

    r->number = number;
    r->fetch.reply_to = m;
    word = next_word(&rest);
    r->fetch.policy = word && !strcmp(word, "public") ? FETCH_PUBLIC : FETCH_CONFIGURED;
    word = next_word(&rest);
    r->fetch.max_bytes = strtoul(word ? word : "0", NULL, 10);
    word = next_word(&rest);
    r->fetch.timeout_ms = (uint32_t)strtoul(word ? word : "0", NULL, 10);
    word = next_word(&rest);
    r->fetch.max_redirects = (int)strtoul(word ? word : "0", NULL, 10);
    word = next_word(&rest);
    r->fetch.url = word ? word : "";
    word = next_word(&rest);
    r->fetch.authorization = word && *word ? word : NULL;
    r->fetch.fields[0] = "X-Test: 1";
    r->fetch.body = str_of(rest);
    return r;
}

static void read_options(struct http_client_options *o, char **argv)
{
    for (; argv[0] && argv[1]; argv += 2) {
        if (!strcmp(argv[0], "--public"))
            has_extra_public = inet_pton(AF_INET, argv[1], &extra_public) == 1;
        else if (!strcmp(argv[0], "--nameserver"))
            nameserver_port = (uint16_t)strtoul(argv[1], NULL, 10);
        else if (!strcmp(argv[0], "--ca"))
            o->ca_file = argv[1];
    }
}

int main(int argc, char **argv)
{
    struct http_client_options o = { .is_public = is_public };
    static char line[LINE_MAX_BYTES];
    struct http_client *client;
    struct mailbox *m;
    struct err e;
    int n = 0, number = 0;

    read_options(&o, argv + 1);
    if (mailbox_open(&m, &e) || http_client_open(&client, &o, &e)) {
        fprintf(stderr, "fetch: %s\n", e.msg);
        return 1;
    }
    while (fgets(line, sizeof(line), stdin)) {
        line[strcspn(line, "\n")] = '\0';
        if (!strcmp(line, "wait")) {
            n = collect(m, n);
            continue;
        }
        if (!strcmp(line, "stop")) {
            http_client_stop(client);
            continue;
        }
        if (!strcmp(line, "close"))
            break;
        CHECK(n < FETCHES_MAX);
        http_client_post(client, &read_request(line, ++number, m)->fetch);
        n++;
    }
    http_client_close(client);
    collect(m, n);
    mailbox_close(m);
    return 0;
}
