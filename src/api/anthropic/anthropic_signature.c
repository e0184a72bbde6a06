/* anthropic_signature.c: signatures of thinking blocks: HMAC-SHA256 (RFC 2104) with a random key of
 * the process, so that a block that a client changed or invented is recognised. Any thread. */
#include "api/anthropic/anthropic.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <pthread.h>

/* The key of this process: written once, then read-only. */
static unsigned char key[32];
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

static void make_key(void)
{
    CHECK(RAND_bytes(key, sizeof(key)) == 1);
}

struct signature_text anthropic_sign(struct str escaped)
{
    struct signature_text out = { "" };
    unsigned char mac[EVP_MAX_MD_SIZE];
    unsigned n = 0;

    pthread_once(&key_once, make_key);
    CHECK(
        HMAC(EVP_sha256(), key, sizeof(key), (const unsigned char *)escaped.p, escaped.n, mac, &n));
    EVP_EncodeBlock((unsigned char *)out.z, mac, (int)n);
    return out;
}

bool anthropic_signature_is_valid(struct str text, struct str signature)
{
    struct buf escaped;
    bool is_valid = false;

    buf_init(&escaped, 6 * text.n + 1);
    json_escape(&escaped, text);
    if (buf_ok(&escaped)) {
        struct signature_text own = anthropic_sign(buf_str(&escaped));
        is_valid = signature.n == strlen(own.z) && !CRYPTO_memcmp(own.z, signature.p, signature.n);
    }
    buf_clear(&escaped);
    return is_valid;
}
