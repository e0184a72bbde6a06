#include "audit/audit_keys.h"
#include "base/mem.h"
#include "base/rng.h"
#include "os/clock.h"
#include "os/files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 128, FILE_MAX_BYTES = AUDIT_KEYS_MAX * LINE_MAX_BYTES };

static const char file_head[] = "# Keys of the InferFlux audit log: id, time of creation, secret. "
                                "The last one is in use.\n";

struct audit_keys {
    char *path;
    int n;
    struct audit_key *all[AUDIT_KEYS_MAX]; /* in the order of the file */
};

/* ---- hex */

void audit_to_hex(const unsigned char *bytes, size_t n, char *hex)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < n; i++) {
        hex[2 * i] = digits[bytes[i] >> 4];
        hex[2 * i + 1] = digits[bytes[i] & 15];
    }
    hex[2 * n] = '\0';
}

bool audit_is_hex(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!((p[i] >= '0' && p[i] <= '9') || (p[i] >= 'a' && p[i] <= 'f')))
            return false;
    return true;
}

static unsigned hex_value(char c)
{
    return (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
}

/* ---- derivation */

static void hmac(const unsigned char key[AUDIT_HASH], struct str s, unsigned char out[AUDIT_HASH])
{
    unsigned n = AUDIT_HASH;

    CHECK(HMAC(EVP_sha256(), key, AUDIT_HASH, (const unsigned char *)s.p, s.n, out, &n));
}

void audit_hmac(const unsigned char key[AUDIT_HASH], struct str bytes, char hex[AUDIT_HEX + 1])
{
    unsigned char hash[AUDIT_HASH];

    hmac(key, bytes.p ? bytes : STR(""), hash);
    audit_to_hex(hash, AUDIT_HASH, hex);
}

static void derive(struct audit_key *k)
{
    unsigned char id[AUDIT_HASH];

    hmac(k->secret, STR("inferflux audit key id"), id);
    hmac(k->secret, STR("inferflux audit chain"), k->chain);
    hmac(k->secret, STR("inferflux audit text"), k->text);
    audit_to_hex(id, AUDIT_KEY_ID / 2, k->id);
}

/* ---- reading */

static int read_key(struct audit_keys *k, struct str line, int n_line, struct err *e)
{
    struct str time;
    int64_t created_s;

    if (line.n < AUDIT_KEY_ID + AUDIT_HEX + 3 || line.p[AUDIT_KEY_ID] != ' ' ||
        line.p[line.n - AUDIT_HEX - 1] != ' ' ||
        !audit_is_hex(line.p + line.n - AUDIT_HEX, AUDIT_HEX))
        return err_set(e, ERR_CORRUPT, "line %d is not `ID TIME SECRET`", n_line);
    time = (struct str){ line.p + AUDIT_KEY_ID + 1, line.n - AUDIT_KEY_ID - AUDIT_HEX - 2 };
    if (!str_to_i64(time, &created_s))
        return err_set(e, ERR_CORRUPT, "line %d has no time of creation", n_line);
    if (k->n == AUDIT_KEYS_MAX)
        return err_set(e, ERR_TOO_LARGE, "more than %d keys", AUDIT_KEYS_MAX);
    struct audit_key *key = xcalloc(1, sizeof(*key));
    k->all[k->n] = key;
    key->index = k->n++;
    key->created_s = created_s;
    const char *secret = line.p + line.n - AUDIT_HEX;
    for (int i = 0; i < AUDIT_HASH; i++)
        key->secret[i] =
            (unsigned char)(hex_value(secret[2 * i]) << 4 | hex_value(secret[2 * i + 1]));
    derive(key);
    if (memcmp(key->id, line.p, AUDIT_KEY_ID))
        return err_set(e, ERR_CORRUPT, "line %d: the id does not match the secret", n_line);
    return 0;
}

static int read_keys(struct audit_keys *k, struct str text, struct err *e)
{
    for (int n_line = 1; text.n; n_line++) {
        ptrdiff_t lf = str_find(text, STR("\n"));
        if (lf < 0)
            return err_set(e, ERR_CORRUPT, "line %d is incomplete", n_line);
        struct str line = { text.p, (size_t)lf };
        text = str_skip(text, (size_t)lf + 1);
        if (line.n && *line.p != '#' && read_key(k, line, n_line, e))
            return -1;
    }
    return k->n ? 0 : err_set(e, ERR_CORRUPT, "no key");
}

static int read_file(struct audit_keys *k, struct err *e)
{
    char text[LINE_MAX_BYTES];
    struct buf all;
    struct stat st;
    ssize_t n;
    int fd, rc = -1;

    if (file_open_regular(k->path, O_RDONLY, &fd, e))
        return -1;
    buf_init(&all, FILE_MAX_BYTES);
    if (fstat(fd, &st)) {
        err_set(e, ERR_IO, "%s", strerror(errno));
        goto out;
    }
    if (st.st_mode & 077) {
        err_set(e, ERR_INVALID, "other users have access (mode %03o); chmod 600 it",
            (unsigned)st.st_mode & 0777);
        goto out;
    }
    while ((n = read(fd, text, sizeof(text))) > 0)
        buf_put(&all, text, (size_t)n);
    if (n < 0)
        err_set(e, ERR_IO, "%s", strerror(errno));
    else if (!buf_ok(&all))
        err_set(e, ERR_TOO_LARGE, "more than %d bytes", FILE_MAX_BYTES);
    else
        rc = read_keys(k, buf_str(&all), e);

out:
    OPENSSL_cleanse(text, sizeof(text));
    if (all.p)
        OPENSSL_cleanse(all.p, all.n);
    buf_clear(&all);
    close(fd);
    return rc;
}

/* ---- writing */

static int replace_file(const char *path, struct str content, struct err *e)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char *dir_path = slash ? xstrdup(path) : xstrdup(".");

    if (slash)
        dir_path[slash == path ? 1 : slash - path] = '\0';
    int dir = open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    mem_free(dir_path);
    if (dir < 0)
        return err_set(e, ERR_IO, "%s", strerror(errno));
    int rc = file_replace_at(dir, name, content.p, content.n, e);
    close(dir);
    return rc;
}

static int write_file(const struct audit_keys *k, struct err *e)
{
    char secret[AUDIT_HEX + 1];
    struct buf b;
    int rc = -1;

    buf_init(&b, FILE_MAX_BYTES);
    buf_putz(&b, file_head);
    for (int i = 0; i < k->n; i++) {
        audit_to_hex(k->all[i]->secret, AUDIT_HASH, secret);
        buf_printf(&b, "%s %" PRId64 " %s\n", k->all[i]->id, k->all[i]->created_s, secret);
    }
    if (!buf_ok(&b))
        err_set(e, ERR_MEMORY, "no memory for the keys");
    else
        rc = replace_file(k->path, buf_str(&b), e);
    OPENSSL_cleanse(secret, sizeof(secret));
    if (b.p)
        OPENSSL_cleanse(b.p, b.n);
    buf_clear(&b);
    return rc;
}

static void free_key(struct audit_key *key)
{
    OPENSSL_cleanse(key, sizeof(*key));
    mem_free(key);
}

int audit_keys_rotate(struct audit_keys *k, struct err *e)
{
    if (k->n == AUDIT_KEYS_MAX)
        return err_wrap((err_set(e, ERR_RANGE, "more than %d keys", AUDIT_KEYS_MAX), e),
            "audit keys %s", k->path);
    struct audit_key *key = xcalloc(1, sizeof(*key));
    for (size_t i = 0; i < AUDIT_HASH; i += 8) {
        uint64_t r = rng_entropy();
        memcpy(key->secret + i, &r, 8);
    }
    key->created_s = clock_wall_s();
    key->index = k->n;
    derive(key);
    k->all[k->n++] = key;
    if (!write_file(k, e))
        return 0;
    free_key(k->all[--k->n]);
    return err_wrap(e, "audit keys %s", k->path);
}

/* ---- life */

int audit_keys_open(struct audit_keys **out, const char *path, bool create, struct err *e)
{
    struct audit_keys *k = xcalloc(1, sizeof(*k));

    k->path = xstrdup(path);
    if (create && access(path, F_OK) && errno == ENOENT) {
        if (audit_keys_rotate(k, e))
            goto fail;
    } else if (read_file(k, e)) {
        err_wrap(e, "audit keys %s", path);
        goto fail;
    }
    *out = k;
    return 0;

fail:
    audit_keys_close(k);
    return -1;
}

void audit_keys_close(struct audit_keys *k)
{
    if (!k)
        return;
    for (int i = 0; i < k->n; i++)
        free_key(k->all[i]);
    mem_free(k->path);
    mem_free(k);
}

const struct audit_key *audit_keys_current(const struct audit_keys *k)
{
    return k->all[k->n - 1];
}

const struct audit_key *audit_keys_find(const struct audit_keys *k, struct str id)
{
    for (int i = k->n; i-- > 0;)
        if (str_is(id, k->all[i]->id))
            return k->all[i];
    return NULL;
}
