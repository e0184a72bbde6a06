#include "audit/checkpoint.h"
#include "base/mem.h"
#include "os/files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <unistd.h>

enum { N_SLOTS = 2, BYTES = N_SLOTS * CHECKPOINT_SLOT };

static const char slot_head[] = "audit-checkpoint 1 ";

/* Splits off the next word. */
static struct str next_word(struct str *rest)
{
    ptrdiff_t at = str_find(*rest, STR(" "));
    struct str word = { rest->p, at < 0 ? rest->n : (size_t)at };

    *rest = at < 0 ? STR_NONE : str_skip(*rest, (size_t)at + 1);
    return word;
}

enum slot_state { SLOT_EMPTY, SLOT_BAD, SLOT_KEY_UNKNOWN, SLOT_GOOD };

static enum slot_state read_slot(
    struct str slot, const struct audit_keys *keys, struct checkpoint *c)
{
    struct str rest = str_trim(slot);
    uint64_t is_closed;
    char mac[AUDIT_HEX + 1];

    if (!rest.n || !*rest.p)
        return SLOT_EMPTY;
    if (!str_starts(rest, str_of(slot_head)))
        return SLOT_BAD;
    const char *start = rest.p;
    rest = str_skip(rest, sizeof(slot_head) - 1);
    struct str counter = next_word(&rest), n_lines = next_word(&rest), last = next_word(&rest),
               offset = next_word(&rest), closed = next_word(&rest), kid = next_word(&rest);
    *c = (struct checkpoint){ 0 };
    if (!str_to_u64(counter, &c->counter) || !str_to_u64(n_lines, &c->chain.n_lines) ||
        !str_to_u64(offset, &c->offset) || !str_to_u64(closed, &is_closed) || is_closed > 1 ||
        last.n != AUDIT_HEX || !audit_is_hex(last.p, last.n) || kid.n != AUDIT_KEY_ID ||
        rest.n != AUDIT_HEX)
        return SLOT_BAD;
    const struct audit_key *key = audit_keys_find(keys, kid);
    if (!key)
        return SLOT_KEY_UNKNOWN;
    audit_hmac(key->chain, (struct str){ start, (size_t)(rest.p - start) }, mac);
    if (CRYPTO_memcmp(mac, rest.p, AUDIT_HEX))
        return SLOT_BAD;
    memcpy(c->chain.mac, last.p, AUDIT_HEX);
    c->chain.key_index = key->index;
    c->is_closed = is_closed;
    return SLOT_GOOD;
}

/* Chooses the newer of the valid slots. */
static enum slot_state read_slots(
    struct str all, const struct audit_keys *keys, struct checkpoint *out)
{
    enum slot_state best = SLOT_EMPTY;

    for (size_t at = 0; at < all.n; at += CHECKPOINT_SLOT) {
        struct checkpoint c;
        struct str slot = { all.p + at, MIN(all.n - at, (size_t)CHECKPOINT_SLOT) };
        enum slot_state state = read_slot(slot, keys, &c);
        if (state == SLOT_GOOD && (best != SLOT_GOOD || c.counter > out->counter))
            *out = c;
        best = MAX(best, state);
    }
    return best;
}

static int read_all(int fd, const struct audit_keys *keys, struct checkpoint *out,
    enum slot_state *state, struct err *e)
{
    char all[BYTES] = { 0 };
    off_t size = lseek(fd, 0, SEEK_END);
    size_t n = size < 0 ? 0 : (size_t)MIN(size, (off_t)BYTES);

    if (size < 0 || (n && file_read(fd, all, n, 0)))
        return err_set(e, ERR_IO, "%s", strerror(errno));
    *state = read_slots((struct str){ all, n }, keys, out);
    if (*state == SLOT_KEY_UNKNOWN)
        return err_set(e, ERR_INVALID, "it was written with a key that the key file lacks");
    return 0;
}

int checkpoint_open(struct checkpoint_file *f, const char *path, const struct audit_keys *keys,
    struct checkpoint *out, enum checkpoint_state *state, struct err *e)
{
    enum slot_state slots;
    int fd;

    *f = (struct checkpoint_file){ .fd = -1 };
    audit_chain_init(&out->chain);
    out->offset = out->counter = 0;
    out->is_closed = false;
    if (file_open_regular(path, O_RDWR | O_CREAT, &fd, e))
        return err_wrap(e, "audit checkpoint %s", path);
    if (read_all(fd, keys, out, &slots, e)) {
        close(fd);
        return err_wrap(e, "audit checkpoint %s", path);
    }
    *f = (struct checkpoint_file){ xstrdup(path), fd, out->counter };
    *state = slots == SLOT_GOOD    ? CHECKPOINT_VALID
             : slots == SLOT_EMPTY ? CHECKPOINT_NEW
                                   : CHECKPOINT_DAMAGED;
    return 0;
}

void checkpoint_close(struct checkpoint_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    mem_free(f->path);
    *f = (struct checkpoint_file){ .fd = -1 };
}

int checkpoint_write(
    struct checkpoint_file *f, struct checkpoint *c, const struct audit_key *key, struct err *e)
{
    char slot[CHECKPOINT_SLOT + 1], mac[AUDIT_HEX + 1];
    uint64_t counter = f->counter + 1;

    int n = snprintf(slot, sizeof(slot), "%s%" PRIu64 " %" PRIu64 " %s %" PRIu64 " %d %s ",
        slot_head, counter, c->chain.n_lines, c->chain.mac, c->offset, c->is_closed, key->id);
    audit_hmac(key->chain, (struct str){ slot, (size_t)n }, mac);
    n += snprintf(slot + n, sizeof(slot) - (size_t)n, "%s", mac);
    CHECK(n < CHECKPOINT_SLOT);
    memset(slot + n, ' ', (size_t)(CHECKPOINT_SLOT - n));
    slot[CHECKPOINT_SLOT - 1] = '\n';
    if (file_write(f->fd, slot, CHECKPOINT_SLOT, counter % N_SLOTS * CHECKPOINT_SLOT) ||
        (fdatasync(f->fd) && errno != EINVAL && errno != EROFS))
        return err_wrap(
            (err_set(e, ERR_IO, "%s", strerror(errno)), e), "audit checkpoint %s", f->path);
    f->counter = c->counter = counter;
    return 0;
}

int checkpoint_read(
    const char *path, const struct audit_keys *keys, struct checkpoint *out, struct err *e)
{
    enum slot_state state;
    int fd;

    if (file_open_regular(path, O_RDONLY, &fd, e))
        return err_wrap(e, "audit checkpoint %s", path);
    int rc = read_all(fd, keys, out, &state, e);
    close(fd);
    if (!rc && state != SLOT_GOOD)
        rc = err_set(e, ERR_CORRUPT, "damaged");
    return rc ? err_wrap(e, "audit checkpoint %s", path) : 0;
}
