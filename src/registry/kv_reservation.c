#include "registry/kv_reservation.h"
#include "base/hash.h"
#include "kernel/kernels.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static int open_file(struct kv_reservation *r, const char *dir, struct err *e)
{
    char path[4096];

    if (r->fd >= 0)
        return 0;
    if ((size_t)snprintf(path, sizeof(path), "%s/.reserved", dir) >= sizeof(path))
        return err_set(e, ERR_RANGE, "the name of the KV offload directory is too long");
    r->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    return r->fd < 0 ? err_set(e, ERR_IO, "%s: %s", path, strerror(errno)) : 0;
}

static off_t offset_of(const struct model *m, const struct kernels *k)
{
    uint64_t h = hash_bytes(0, k->name, strlen(k->name));

    h = hash_bytes(h, m->spec->kv_type, strlen(m->spec->kv_type));
    for (size_t i = 0; i < m->n_parts; i++)
        h = hash_bytes(h, &m->files[i].id, sizeof(m->files[i].id));
    return (off_t)(h >> 2); /* positive, and the end of the range is too */
}

int kv_reserve(struct kv_reservation *r, const struct model *m, struct err *e)
{
    const struct model_spec *s = m->spec;
    const struct kernels *k;

    if (!s->engine.kv_disk || !*s->engine.kv_disk || !s->engine.prefix_cache ||
        s->backend != BACKEND_NATIVE)
        return 0;
    if (open_file(r, s->engine.kv_disk, e) || kernels_choose(&k, s->kernels, e))
        return -1;
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = offset_of(m, k), .l_len = 1
    };
    if (!fcntl(r->fd, F_OFD_SETLK, &lock))
        return 0;
    if (errno == EAGAIN || errno == EACCES)
        return err_set(e, ERR_IO, "%s: another process uses it for this model", s->engine.kv_disk);
    return err_set(e, ERR_IO, "%s/.reserved: %s", s->engine.kv_disk, strerror(errno));
}

void kv_reservation_close(struct kv_reservation *r)
{
    if (r->fd >= 0)
        close(r->fd);
    r->fd = -1;
}
