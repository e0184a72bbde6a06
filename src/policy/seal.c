#include "policy/seal.h"

#include <endian.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

enum {
    FORMAT_VERSION = 1,
    VERSION_AT = 8,
    COST_AT = 12,
    SALT_AT = 16,
    NONCE_AT = 32,
    NONCE_BYTES = 12,
    SIZE_AT = 48,
    R = 8,
    P = 1,
    SCRYPT_MEMORY_MAX = 256 * 1024 * 1024
};

static const char magic[8] = { 'I', 'F', 'L', 'U', 'X', 'P', 'O', 'L' };

static int no_memory(struct err *e)
{
    return err_set(e, ERR_MEMORY, "no memory for the encryption of the policy");
}

/* ---- key */

static int derive_key(struct seal_key *k, struct str passphrase, struct err *e)
{
    if (EVP_PBE_scrypt(passphrase.p, passphrase.n, k->salt, sizeof(k->salt), 1ull << k->log2_n,
            k->r, k->p, SCRYPT_MEMORY_MAX, k->key, sizeof(k->key)) == 1)
        return 0;
    return no_memory(e);
}

int seal_key_new(struct seal_key *k, struct str passphrase, int log2_n, struct err *e)
{
    CHECK(log2_n >= SEAL_LOG2_N_MIN && log2_n <= SEAL_LOG2_N_MAX);
    *k = (struct seal_key){ .log2_n = (uint8_t)log2_n, .r = R, .p = P };
    if (RAND_bytes(k->salt, sizeof(k->salt)) != 1)
        return err_set(e, ERR_IO, "the system has no random numbers");
    return derive_key(k, passphrase, e);
}

void seal_key_clear(struct seal_key *k)
{
    OPENSSL_cleanse(k, sizeof(*k));
}

/* ---- AES-256-GCM; the header is authenticated data */

static bool begin_cipher(
    EVP_CIPHER_CTX *c, const struct seal_key *k, const uint8_t *head, bool is_encryption)
{
    int n;

    return EVP_CipherInit_ex(c, EVP_aes_256_gcm(), NULL, k->key, head + NONCE_AT, is_encryption) ==
               1 &&
           EVP_CipherUpdate(c, NULL, &n, head, SEAL_HEAD_BYTES) == 1;
}

static bool encrypt(const struct seal_key *k, const uint8_t *head, struct str text, uint8_t *out)
{
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    int n = 0, n_last = 0;
    bool is_done = c && begin_cipher(c, k, head, true) &&
                   EVP_CipherUpdate(c, out, &n, (const uint8_t *)text.p, (int)text.n) == 1 &&
                   EVP_CipherFinal_ex(c, out + n, &n_last) == 1 &&
                   EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_GET_TAG, SEAL_TAG_BYTES, out + text.n) == 1;

    EVP_CIPHER_CTX_free(c);
    return is_done;
}

/* body: the encrypted text and its tag. */
static bool decrypt(const struct seal_key *k, const uint8_t *head, struct str body, uint8_t *out)
{
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    size_t n_text = body.n - SEAL_TAG_BYTES;
    uint8_t tag[SEAL_TAG_BYTES];
    int n = 0, n_last = 0;

    memcpy(tag, body.p + n_text, sizeof(tag));
    bool is_done = c && begin_cipher(c, k, head, false) &&
                   EVP_CipherUpdate(c, out, &n, (const uint8_t *)body.p, (int)n_text) == 1 &&
                   EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_SET_TAG, sizeof(tag), tag) == 1 &&
                   EVP_CipherFinal_ex(c, out + n, &n_last) == 1;
    EVP_CIPHER_CTX_free(c);
    return is_done;
}

int seal_write(const struct seal_key *k, struct str text, struct buf *out, struct err *e)
{
    uint8_t head[SEAL_HEAD_BYTES] = { 0 };
    const uint32_t version = htole32(FORMAT_VERSION);
    const uint64_t n = htole64(text.n);

    if (text.n > INT32_MAX - SEAL_HEAD_BYTES - SEAL_TAG_BYTES)
        return err_set(e, ERR_TOO_LARGE, "the policy is larger than 2 GB");
    memcpy(head, magic, sizeof(magic));
    memcpy(head + VERSION_AT, &version, sizeof(version));
    head[COST_AT] = k->log2_n;
    head[COST_AT + 1] = k->r;
    head[COST_AT + 2] = k->p;
    memcpy(head + SALT_AT, k->salt, sizeof(k->salt));
    memcpy(head + SIZE_AT, &n, sizeof(n));
    if (RAND_bytes(head + NONCE_AT, NONCE_BYTES) != 1)
        return err_set(e, ERR_IO, "the system has no random numbers");
    uint8_t *to = (uint8_t *)buf_reserve(out, sizeof(head) + text.n + SEAL_TAG_BYTES);
    if (!to || !encrypt(k, head, text, to + sizeof(head)))
        return no_memory(e);
    memcpy(to, head, sizeof(head));
    out->n += sizeof(head) + text.n + SEAL_TAG_BYTES;
    return 0;
}

/* Reads the header; the key is not derived. */
static int read_head(struct seal_key *k, struct str sealed, struct err *e)
{
    const uint8_t *head = (const uint8_t *)sealed.p;
    uint32_t version;
    uint64_t n;

    if (sealed.n < SEAL_HEAD_BYTES + SEAL_TAG_BYTES || memcmp(head, magic, sizeof(magic)))
        return err_set(e, ERR_INVALID, "not an encrypted policy");
    memcpy(&version, head + VERSION_AT, sizeof(version));
    if (le32toh(version) != FORMAT_VERSION)
        return err_set(e, ERR_UNSUPPORTED, "version %u of the format; this program reads %d",
            le32toh(version), FORMAT_VERSION);
    memcpy(&n, head + SIZE_AT, sizeof(n));
    *k = (struct seal_key){
        .log2_n = head[COST_AT], .r = head[COST_AT + 1], .p = head[COST_AT + 2]
    };
    if (le64toh(n) != sealed.n - SEAL_HEAD_BYTES - SEAL_TAG_BYTES || sealed.n > INT32_MAX ||
        k->log2_n < SEAL_LOG2_N_MIN || k->log2_n > SEAL_LOG2_N_MAX || k->r != R || k->p != P)
        return err_set(e, ERR_CORRUPT, "the header was changed or the file is incomplete");
    memcpy(k->salt, head + SALT_AT, sizeof(k->salt));
    return 0;
}

int seal_read(
    struct seal_key *k, struct str passphrase, struct str sealed, struct buf *text, struct err *e)
{
    struct str body = str_skip(sealed, SEAL_HEAD_BYTES);

    if (read_head(k, sealed, e) || derive_key(k, passphrase, e)) {
        seal_key_clear(k);
        return -1;
    }
    size_t n = body.n - SEAL_TAG_BYTES;
    char *to = buf_reserve(text, MAX(n, (size_t)1));
    int failed = !to ? no_memory(e)
                 : decrypt(k, (const uint8_t *)sealed.p, body, (uint8_t *)to)
                     ? 0
                     : err_set(e, ERR_CORRUPT, "the passphrase is wrong, or the file was changed");
    if (!failed) {
        text->n += n;
        return 0;
    }
    if (to)
        OPENSSL_cleanse(to, n); /* text that is not authenticated */
    seal_key_clear(k);
    return -1;
}
