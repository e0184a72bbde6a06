#include "audit/audit_line.h"

#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdio.h>

static const char prev_head[] = "{\"prev\":\"",
                  seq_head[] = "\",\"seq\":", kid_head[] = ",\"kid\":\"",
                  mac_head[] = "\",\"mac\":\"", line_end[] = "\"}";

#define SIZE_OF(literal) (sizeof(literal) - 1)

enum {
    SEQ_AT = SIZE_OF(prev_head) + AUDIT_HEX + SIZE_OF(seq_head),
    MAC_PART = SIZE_OF(mac_head) - 1 + AUDIT_HEX + SIZE_OF(line_end), /* from `,"mac` on */
    KID_PART = SIZE_OF(kid_head) + AUDIT_KEY_ID + 1 + MAC_PART,
    SEQ_DIGITS = 20
};

_Static_assert(AUDIT_MEMBERS_BYTES + SEQ_AT + SEQ_DIGITS + 1 + KID_PART + 1 <= AUDIT_LINE_BYTES,
    "a line with the longest members fits");

void audit_chain_init(struct audit_chain *c)
{
    *c = (struct audit_chain){ 0 };
    memset(c->mac, '0', AUDIT_HEX);
}

void audit_chain_add(
    struct audit_chain *c, struct buf *out, const struct audit_key *key, struct str members)
{
    size_t start = out->n;

    CHECK(members.n <= AUDIT_MEMBERS_BYTES);
    buf_printf(out, "%s%s%s%" PRIu64 ",", prev_head, c->mac, seq_head, c->n_lines);
    buf_puts(out, members);
    buf_printf(out, "%s%s\"", kid_head, key->id);
    if (!buf_ok(out))
        return;
    char mac[AUDIT_HEX + 1];
    audit_hmac(key->chain, (struct str){ out->p + start, out->n - start }, mac);
    buf_printf(out, "%s%s%s\n", mac_head + 1, mac, line_end);
    if (!buf_ok(out))
        return;
    memcpy(c->mac, mac, sizeof(mac));
    c->n_lines++;
    c->key_index = key->index;
}

static bool has_at(struct str s, size_t at, const char *literal)
{
    size_t n = strlen(literal);

    return at <= s.n && n <= s.n - at && !memcmp(s.p + at, literal, n);
}

bool audit_line_read(struct audit_line *l, struct str s)
{
    if (s.n >= AUDIT_LINE_BYTES || s.n < SEQ_AT + 2 + KID_PART || !has_at(s, 0, prev_head) ||
        !has_at(s, SEQ_AT - SIZE_OF(seq_head), seq_head))
        return false;
    size_t kid_at = s.n - KID_PART, mac_at = s.n - MAC_PART;
    if (!has_at(s, kid_at, kid_head) || !has_at(s, mac_at - 1, mac_head) ||
        !has_at(s, s.n - SIZE_OF(line_end), line_end))
        return false;
    *l = (struct audit_line){ .prev = { s.p + SIZE_OF(prev_head), AUDIT_HEX },
        .key_id = { s.p + kid_at + SIZE_OF(kid_head), AUDIT_KEY_ID },
        .mac = { s.p + s.n - SIZE_OF(line_end) - AUDIT_HEX, AUDIT_HEX },
        .sealed = { s.p, mac_at } };
    if (!audit_is_hex(l->prev.p, AUDIT_HEX) || !audit_is_hex(l->mac.p, AUDIT_HEX) ||
        !audit_is_hex(l->key_id.p, AUDIT_KEY_ID))
        return false;
    const char *comma = memchr(s.p + SEQ_AT, ',', kid_at - SEQ_AT);
    if (!comma)
        return false;
    l->members = (struct str){ comma + 1, (size_t)(s.p + kid_at - comma - 1) };
    return str_to_u64((struct str){ s.p + SEQ_AT, (size_t)(comma - s.p) - SEQ_AT }, &l->seq);
}

bool audit_line_is_event(const struct audit_line *l, const char *event)
{
    const char *comma = memchr(l->members.p, ',', l->members.n);

    return comma && str_starts(l->members, STR("\"time\":")) &&
           str_starts(str_skip(l->members, (size_t)(comma + 1 - l->members.p)), str_of(event));
}

int audit_chain_check(
    struct audit_chain *c, const struct audit_line *l, const struct audit_keys *keys, struct err *e)
{
    const struct audit_key *key = audit_keys_find(keys, l->key_id);
    char mac[AUDIT_HEX + 1];

    if (l->seq != c->n_lines)
        return err_set(e, ERR_CORRUPT,
            "line %" PRIu64 " is expected, the line has the number %" PRIu64, c->n_lines, l->seq);
    if (!key)
        return err_set(e, ERR_CORRUPT, "line %" PRIu64 ": the key file has no key " STR_FMT, l->seq,
            STR_ARG(l->key_id));
    if (key->index < c->key_index)
        return err_set(
            e, ERR_CORRUPT, "line %" PRIu64 " has an older key than the line before", l->seq);
    if (!str_is(l->prev, c->mac))
        return err_set(
            e, ERR_CORRUPT, "line %" PRIu64 " does not follow the line before it", l->seq);
    audit_hmac(key->chain, l->sealed, mac);
    if (CRYPTO_memcmp(mac, l->mac.p, AUDIT_HEX))
        return err_set(e, ERR_CORRUPT, "line %" PRIu64 " was changed: its MAC is wrong", l->seq);
    memcpy(c->mac, mac, sizeof(mac));
    c->n_lines++;
    c->key_index = key->index;
    return 0;
}
