#include "policy/old_form.h"
#include "base/mem.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/sha.h>

enum { NONCE_BYTES = 12, TAG_BYTES = 16, FILE_MAX = 256 * 1024 * 1024, DIGEST_HEX = 64 };

static const char head[] = "ENC\n";

bool old_form_is(struct str file)
{
    return str_starts(file, str_of(head));
}

/* Splits off the next line without its end. */
static struct str next_line(struct str *rest)
{
    ptrdiff_t lf = str_find(*rest, STR("\n"));
    struct str line = { rest->p, lf < 0 ? rest->n : (size_t)lf };

    *rest = lf < 0 ? STR_NONE : str_skip(*rest, (size_t)lf + 1);
    return str_trim(line);
}

/* ---- encryption */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Appends the bytes of `NAME=<hex>`. */
static int read_hex(struct str *rest, const char *name, struct buf *out, struct err *e)
{
    struct str line = next_line(rest), n = str_of(name);
    bool is_valid = str_starts(line, n) && (line.n - n.n) % 2 == 0;

    line = is_valid ? str_skip(line, n.n) : STR("");
    for (size_t i = 0; i + 1 < line.n && is_valid; i += 2) {
        int high = hex_digit(line.p[i]), low = hex_digit(line.p[i + 1]);
        is_valid = high >= 0 && low >= 0;
        if (is_valid)
            buf_putc(out, (char)(high << 4 | low));
    }
    if (!is_valid)
        return err_set(e, ERR_SYNTAX, "old form of a policy: no line %sHEX", name);
    return buf_ok(out) ? 0 : err_set(e, ERR_MEMORY, "no memory for the policy");
}

static bool decrypt(struct str passphrase, const struct buf *nonce, struct buf *tag,
    const struct buf *data, uint8_t *out)
{
    uint8_t key[SHA256_DIGEST_LENGTH];
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    int n = 0, n_last = 0;

    SHA256((const uint8_t *)passphrase.p, passphrase.n, key);
    bool is_done =
        c && EVP_DecryptInit_ex(c, EVP_aes_256_gcm(), NULL, key, (const uint8_t *)nonce->p) == 1 &&
        EVP_DecryptUpdate(c, out, &n, (const uint8_t *)data->p, (int)data->n) == 1 &&
        EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_SET_TAG, TAG_BYTES, tag->p) == 1 &&
        EVP_DecryptFinal_ex(c, out + n, &n_last) == 1;
    EVP_CIPHER_CTX_free(c);
    OPENSSL_cleanse(key, sizeof(key));
    return is_done;
}

/* Decrypts the file to `text`. */
static int read_sealed(struct str passphrase, struct str file, struct buf *text, struct err *e)
{
    struct str rest = str_skip(file, sizeof(head) - 1);
    struct buf nonce, tag, data;
    int rc = -1;

    buf_init(&nonce, 1024);
    buf_init(&tag, 1024);
    buf_init(&data, FILE_MAX);
    if (read_hex(&rest, "nonce=", &nonce, e) || read_hex(&rest, "tag=", &tag, e) ||
        read_hex(&rest, "data=", &data, e))
        goto out;
    if (nonce.n != NONCE_BYTES || tag.n != TAG_BYTES || !data.n) {
        err_set(e, ERR_SYNTAX, "old form of a policy: nonce, tag or data has another length");
        goto out;
    }
    char *to = buf_reserve(text, data.n);
    if (!to) {
        err_set(e, ERR_MEMORY, "no memory for the policy");
    } else if (!decrypt(passphrase, &nonce, &tag, &data, (uint8_t *)to)) {
        OPENSSL_cleanse(to, data.n);
        err_set(e, ERR_CORRUPT, "the passphrase is wrong or the file was changed");
    } else {
        text->n += data.n;
        rc = 0;
    }

out:
    buf_clear(&nonce);
    buf_clear(&tag);
    buf_clear(&data);
    return rc;
}

/* ---- text */

struct old_policy {
    struct buf keys; /* sections of the present form, without limits */
    int64_t per_minute, now_s;
    int n_words;
};

static int read_key(struct old_policy *p, struct str digest, struct str scopes, struct err *e)
{
    bool has_scope = false;

    if (digest.n != DIGEST_HEX)
        return err_set(e, ERR_INVALID, "the hash of an API key has not %d digits", DIGEST_HEX);
    buf_printf(&p->keys, "\n[api_key " STR_FMT "]\ncreated_at = %lld\nversion = 1\nscopes = read",
        STR_ARG(digest), (long long)p->now_s);
    while (scopes.n) {
        ptrdiff_t comma = str_find(scopes, STR(","));
        struct str scope = str_trim((struct str){ scopes.p, comma < 0 ? scopes.n : (size_t)comma });
        scopes = comma < 0 ? STR_NONE : str_skip(scopes, (size_t)comma + 1);
        has_scope |= scope.n > 0;
        if (scope.n && !str_is(scope, "read"))
            buf_printf(&p->keys, "\t" STR_FMT, STR_ARG(scope));
    }
    buf_putz(&p->keys, has_scope ? "\n" : "\tgenerate\n");
    /* the limit may follow in the text: its place is marked by an empty comment */
    buf_putz(&p->keys, "#\n");
    return 0;
}

static int count_words(struct str words)
{
    int n = 0;

    while (words.n) {
        ptrdiff_t comma = str_find(words, STR(","));
        n += str_trim((struct str){ words.p, comma < 0 ? words.n : (size_t)comma }).n > 0;
        words = comma < 0 ? STR_NONE : str_skip(words, (size_t)comma + 1);
    }
    return n;
}

static int read_member(
    struct old_policy *p, struct str section, struct str name, struct str value, struct err *e)
{
    if (str_is(section, "api_keys"))
        return read_key(p, name, value, e);
    if (str_is(section, "guardrail") && str_is(name, "words"))
        p->n_words = count_words(value);
    else if (str_is(section, "rate_limit") && str_is(name, "tokens") &&
             !str_to_i64(value, &p->per_minute))
        return err_set(e, ERR_INVALID, "rate_limit.tokens is not a number");
    return 0;
}

static int read_text(struct old_policy *p, struct str text, struct err *e)
{
    struct str section = STR("");

    for (int number = 1; text.n; number++) {
        struct str line = next_line(&text);
        ptrdiff_t is = str_find(line, STR("="));
        if (!line.n || *line.p == '#' || (is < 0 && *line.p != '['))
            continue;
        if (*line.p == '[' && str_ends(line, STR("]")))
            section = (struct str){ line.p + 1, line.n - 2 };
        else if (is >= 0 && read_member(p, section, str_trim((struct str){ line.p, (size_t)is }),
                                str_trim(str_skip(line, (size_t)is + 1)), e))
            return err_wrap(e, "line %d", number);
    }
    return 0;
}

/* The present form: each mark of a key is replaced by the limit of all keys. */
static void write_keys(const struct old_policy *p, struct buf *out)
{
    struct str rest = buf_str(&p->keys);

    buf_putz(out, "[policy]\nversion = 1\n");
    while (rest.n) {
        struct str line = next_line(&rest);
        if (str_is(line, "#") && p->per_minute > 0)
            buf_printf(out, "limits = requests_per_minute=%lld\n", (long long)p->per_minute);
        else if (!str_is(line, "#"))
            buf_printf(out, STR_FMT "\n", STR_ARG(line));
    }
}

int old_form_read(struct str passphrase, struct str file, int64_t now_s, struct buf *out,
    int *n_words, struct err *e)
{
    struct old_policy p = { .now_s = now_s };
    struct buf text;

    if (file.n > FILE_MAX)
        return err_set(e, ERR_TOO_LARGE, "the policy is larger than %d bytes", FILE_MAX);
    buf_init(&text, FILE_MAX);
    buf_init(&p.keys, FILE_MAX);
    int rc = read_sealed(passphrase, file, &text, e);
    if (!rc)
        rc = read_text(&p, buf_str(&text), e);
    if (!rc) {
        write_keys(&p, out);
        *n_words = p.n_words;
        if (!buf_ok(&p.keys) || !buf_ok(out))
            rc = err_set(e, ERR_MEMORY, "no memory for the policy");
    }
    if (text.p)
        OPENSSL_cleanse(text.p, text.n);
    buf_clear(&text);
    buf_clear(&p.keys);
    return rc;
}
