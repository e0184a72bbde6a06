/* kv_reservation.h: reserves the part of a KV offload directory that a model uses for this process,
 * before the model is loaded.
 *
 * The tier of a model locks its own directory (cache/disk.h), whose name contains the digest of the
 * weights, which takes seconds to compute. The reservation is known at once: a lock of one byte of
 * the file `.reserved`, at an offset that is a hash of the identities of the model's files and of
 * the settings that determine the form of its pages. Equal offsets therefore mean the same tier
 * directory. Two files with equal content have different offsets; the lock of the tier directory
 * rejects the second one.
 *
 * The locks belong to one descriptor (F_OFD_SETLK), so they end with it or with the process, and
 * two models of one process never reject each other here.
 *
 * Owner: the thread that opens the registry, then the loader thread. */
#pragma once

#include "registry/registry.h"

struct kv_reservation {
    int fd; /* -1 = not open */
};

/* Reserves the part of m, which model_check has opened; nothing to do without an offload directory.
 * Opens the file on first use. ERR_IO: another process has reserved it, or the file is unusable. */
int kv_reserve(struct kv_reservation *r, const struct model *m, struct err *e);
/* Releases all reservations. */
void kv_reservation_close(struct kv_reservation *r);
