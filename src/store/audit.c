#include "store/audit.h"
#include "base/fault.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "os/clock.h"
#include "os/files.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { HASH = 32, HEX = 2 * HASH, LINE_MAX_BYTES = 8192 };

struct audit {
    pthread_mutex_t mu; /* guards the end of the file and `last` */
    int fd;
    char last[HEX + 1]; /* hash of the last line, in hex */
    unsigned char secret[HASH];
};

static void to_hex(const unsigned char *hash, char *hex)
{
    for (int i = 0; i < HASH; i++)
        snprintf(hex + 2 * i, 3, "%02x", hash[i]);
}

static void hash_line(struct str line, char *hex)
{
    unsigned char hash[HASH];
    unsigned n = HASH;

    CHECK(EVP_Digest(line.p, line.n, hash, &n, EVP_sha256(), NULL) == 1);
    to_hex(hash, hex);
}

/* Reads all lines of the file; each must begin with the hash of the line before. */
static int check_chain(FILE *f, char *last, struct err *e)
{
    char *line = NULL;
    size_t cap = 0;
    int rc = 0;

    memset(last, '0', HEX);
    last[HEX] = '\0';
    for (int number = 1;; number++) {
        ssize_t n = getline(&line, &cap, f);
        if (n < 0)
            break;
        static const char head[] = "{\"prev\":\"";
        size_t skip = sizeof(head) - 1;
        if (n > LINE_MAX_BYTES || (size_t)n < skip + HEX || memcmp(line, head, skip) ||
            memcmp(line + skip, last, HEX) || line[n - 1] != '\n') {
            rc = err_set(
                e, ERR_CORRUPT, "line %d does not match the hash of the previous line", number);
            break;
        }
        hash_line((struct str){ line, (size_t)n - 1 }, last);
    }
    mem_free(line); /* getline allocated it */
    return rc;
}

int audit_verify(const char *path, struct err *e)
{
    char last[HEX + 1];

    FILE *f = fopen(path, "r");
    if (!f)
        return err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    int rc = check_chain(f, last, e);
    fclose(f);
    return rc ? err_wrap(e, "%s", path) : 0;
}

int audit_open(struct audit **out, const char *path, struct err *e)
{
    struct audit *a = xcalloc(1, sizeof(*a));

    a->fd = -1;
    if (file_open_regular(path, O_RDWR | O_APPEND | O_CREAT, &a->fd, e)) {
        err_wrap(e, "audit log");
        goto fail;
    }
    FILE *f = fopen(path, "r");
    if (!f) {
        err_set(e, ERR_IO, "audit log %s: %s", path, strerror(errno));
        goto fail;
    }
    int rc = check_chain(f, a->last, e);
    fclose(f);
    if (rc) {
        err_wrap(e, "audit log %s", path);
        goto fail;
    }
    for (size_t i = 0; i < HASH; i += 8) {
        uint64_t r = rng_entropy();
        memcpy(a->secret + i, &r, 8);
    }
    pthread_mutex_init(&a->mu, NULL);
    *out = a;
    return 0;

fail:
    if (a->fd >= 0)
        close(a->fd);
    mem_free(a);
    return -1;
}

void audit_close(struct audit *a)
{
    if (!a)
        return;
    if (fdatasync(a->fd) && errno != EINVAL && errno != EROFS)
        log_warn("store", "audit_sync_failed", "error=\"%s\"", strerror(errno));
    close(a->fd);
    pthread_mutex_destroy(&a->mu);
    mem_free(a);
}

static void put_entry(struct buf *b, const struct audit *a, const struct audit_entry *en)
{
    unsigned char hash[HASH];
    char hex[HEX + 1];
    unsigned n = HASH;
    struct jw w;

    CHECK(HMAC(EVP_sha256(), a->secret, HASH, (const unsigned char *)en->prompt.p, en->prompt.n,
        hash, &n));
    to_hex(hash, hex);
    jw_init(&w, b);
    jw_object(&w);
    jw_key(&w, "prev"), jw_z(&w, a->last);
    jw_key(&w, "time"), jw_i64(&w, clock_wall_s());
    jw_key(&w, "request_id"), jw_z(&w, en->request_id);
    jw_key(&w, "key"), jw_z(&w, en->key_id);
    jw_key(&w, "route"), jw_z(&w, en->route);
    jw_key(&w, "model"), jw_str(&w, (struct str){ en->model.p, MIN(en->model.n, 256) });
    jw_key(&w, "prompt_hmac"), jw_z(&w, hex);
    jw_key(&w, "status"), jw_i64(&w, en->status);
    jw_key(&w, "finish"), jw_z(&w, en->finish);
    jw_key(&w, "prompt_tokens"), jw_i64(&w, en->n_prompt);
    jw_key(&w, "completion_tokens"), jw_i64(&w, en->n_completion);
    jw_key(&w, "cached_tokens"), jw_i64(&w, en->n_cached);
    jw_key(&w, "total_ms"), jw_i64(&w, (int64_t)(en->total_ns / NS_PER_MS));
    jw_end_object(&w);
}

void audit_write(struct audit *a, const struct audit_entry *entry)
{
    struct buf b;

    buf_init(&b, LINE_MAX_BYTES);
    pthread_mutex_lock(&a->mu);
    put_entry(&b, a, entry);
    size_t n = b.n;
    buf_putc(&b, '\n');
    if (!buf_ok(&b) || fault_hit(FAULT_WRITE) || write(a->fd, b.p, b.n) != (ssize_t)b.n)
        log_error("store", "audit_line_lost", "error=\"%s\"", strerror(errno));
    else
        hash_line((struct str){ b.p, n }, a->last);
    pthread_mutex_unlock(&a->mu);
    buf_clear(&b);
}
