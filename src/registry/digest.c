#include "registry/digest.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/files.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CACHE_BYTES_MAX = 64 * 1024, CHUNK = 1 << 20, HEX = 64 };

static const char cache_name[] = ".digests";

/* The line of the cache file up to the digest. */
static int format_file_id(const struct stat *st, char *out, size_t size)
{
    return snprintf(out, size, "%llx %llx %llu %lld %lld ", (unsigned long long)st->st_dev,
        (unsigned long long)st->st_ino, (unsigned long long)st->st_size,
        st->st_mtim.tv_sec * 1000000000ll + st->st_mtim.tv_nsec,
        st->st_ctim.tv_sec * 1000000000ll + st->st_ctim.tv_nsec);
}

static bool from_hex(struct str hex, uint8_t out[32])
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < HEX; i++) {
        const char *d = memchr(digits, hex.p[i], sizeof(digits) - 1);
        if (!d)
            return false;
        out[i / 2] = (uint8_t)(out[i / 2] << 4 | (d - digits));
    }
    return true;
}

/* ---- cache file */

static int open_cache(const char *dir)
{
    if (!dir || !*dir)
        return -1;
    if (mkdir(dir, 0700) && errno != EEXIST)
        return -1;
    return open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static bool find_cached(int dir, struct str wanted, uint8_t out[32])
{
    struct buf text;
    struct err e;
    bool is_found = false;

    buf_init(&text, CACHE_BYTES_MAX);
    if (!file_read_at(dir, cache_name, &text, &e))
        for (struct str rest = buf_str(&text); rest.n && !is_found;) {
            ptrdiff_t end = str_find(rest, STR("\n"));
            struct str line = { rest.p, end < 0 ? rest.n : (size_t)end };
            rest = str_skip(rest, line.n + 1);
            is_found = line.n == wanted.n + HEX && str_starts(line, wanted) &&
                       from_hex(str_skip(line, wanted.n), out);
        }
    buf_clear(&text);
    return is_found;
}

/* One write call, so that lines of two processes are not mixed. A full file is truncated first. */
static void append_cached(int dir, struct str what, const uint8_t digest[32])
{
    char line[256];
    struct stat st;
    int n = snprintf(line, sizeof(line), STR_FMT, STR_ARG(what));
    int fd = openat(dir, cache_name, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0)
        return;
    for (int i = 0; i < 32; i++)
        n += snprintf(line + n, sizeof(line) - (size_t)n, "%02x", digest[i]);
    line[n++] = '\n';
    bool has_room = !fstat(fd, &st) && (st.st_size + n <= CACHE_BYTES_MAX || !ftruncate(fd, 0));
    if (!has_room || write(fd, line, (size_t)n) != n)
        /* the digest is computed again next time */
        log_warn("registry", "digest_failed", "error=\"%s\"", strerror(errno));
    close(fd);
}

/* ---- model file */

static int hash_file(int fd, uint8_t out[32], struct err *e)
{
    EVP_MD_CTX *sum = EVP_MD_CTX_new();
    uint8_t *chunk = try_malloc(CHUNK);
    bool is_ok = sum && chunk && EVP_DigestInit_ex(sum, EVP_sha256(), NULL);
    ssize_t n = -1;

    if (!is_ok)
        err_set(e, ERR_MEMORY, "no memory for the digest of a file");
    while (is_ok && (n = read(fd, chunk, CHUNK)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        is_ok = n > 0 && EVP_DigestUpdate(sum, chunk, (size_t)n);
        if (!is_ok)
            err_set(e, ERR_IO, "%s", strerror(errno));
    }
    is_ok = is_ok && EVP_DigestFinal_ex(sum, out, NULL);
    mem_free(chunk);
    EVP_MD_CTX_free(sum);
    return is_ok ? 0 : -1;
}

static int digest_of_file(uint8_t out[32], const char *path, const char *dir, struct err *e)
{
    char before[160], after[160];
    struct stat st;
    int dir_fd = open_cache(dir), fd = open(path, O_RDONLY | O_CLOEXEC), failed = -1;

    if (fd < 0 || fstat(fd, &st)) {
        err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
        goto out;
    }
    struct str what = { before, (size_t)format_file_id(&st, before, sizeof(before)) };
    failed = 0;
    if (dir_fd >= 0 && find_cached(dir_fd, what, out))
        goto out;
    failed = hash_file(fd, out, e) ? err_wrap(e, "%s", path) : 0;
    if (failed)
        goto out;
    if (fstat(fd, &st) || format_file_id(&st, after, sizeof(after)) < 0 ||
        strcmp(before, after) != 0)
        failed = err_set(e, ERR_IO, "%s: the file changed while it was read", path);
    else if (dir_fd >= 0)
        append_cached(dir_fd, what, out);

out:
    if (fd >= 0)
        close(fd);
    if (dir_fd >= 0)
        close(dir_fd);
    return failed;
}

int digest_of_model(
    uint8_t out[32], const struct opened_file *files, size_t n, const char *dir, struct err *e)
{
    EVP_MD_CTX *sum = n > 1 ? EVP_MD_CTX_new() : NULL;
    int failed = 0;

    if (n <= 1)
        return digest_of_file(out, files[0].path, dir, e);
    if (!sum || !EVP_DigestInit_ex(sum, EVP_sha256(), NULL))
        failed = err_set(e, ERR_MEMORY, "no memory for the digest of a model");
    for (size_t i = 0; i < n && !failed; i++) {
        failed = digest_of_file(out, files[i].path, dir, e);
        if (!failed)
            CHECK(EVP_DigestUpdate(sum, out, 32));
    }
    if (!failed)
        CHECK(EVP_DigestFinal_ex(sum, out, NULL));
    EVP_MD_CTX_free(sum);
    return failed ? -1 : 0;
}
