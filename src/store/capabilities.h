/* capabilities.h: what probing found out about models, kept over restarts in SQLite.
 *
 * One table, model_capabilities, one row per model id. A row belongs to the file it was found with:
 * `fingerprint` is compared by whoever reads it. The schema has a version (PRAGMA user_version);
 * older ones are brought up, step by step, in one transaction; newer ones are refused. A file that
 * is damaged is put aside as PATH.damaged-N, said loudly, and a new one is begun: what it held can
 * be found out again.
 *
 * Calls block on the disk, so no io thread makes them: the loader does, and inferctl. One thread at
 * a time; other processes may have the same file open. */
#pragma once

#include "base/err.h"

enum { PROBE_VERSION = 3 };

enum known { UNKNOWN = -1, KNOWN_NO = 0, KNOWN_YES = 1 };

struct model_capabilities {
    char model_id[256];
    char model_type[16];     /* TEXT_GEN, VISION, EMBEDDINGS, AUDIO */
    char model_family[32];   /* chat/family.h */
    char tool_parser_id[32]; /* chat/parser.h */
    char thinking_parser_id[32];
    bool supports_native_tools, supports_thinking;
    char tool_format[16];         /* native, injection; "" = none */
    int64_t practical_max_tokens; /* prompt and answer that the machine has room for; 0 = unknown */
    bool supports_multi_image, supports_video;
    int64_t embedding_dimensions; /* 0 = gives none */
    int64_t max_sequence_length;  /* what it was made for; 0 = unknown */
    enum known is_normalized;     /* of embeddings */
    bool supports_tts, supports_stt;
    int64_t probed_at; /* wall seconds */
    int probe_version;
    char fingerprint[65]; /* hex; of the file it was found with */
};

struct capabilities;

/* Makes the file, and directories in front of it, when `writes`; else ERR_NOT_FOUND when there is
 * none. ERR_IO, ERR_UNSUPPORTED (a newer version). */
int capabilities_open(struct capabilities **out, const char *path, bool writes, struct err *e);
void capabilities_close(struct capabilities *c); /* NULL is fine */

/* 1 and *out; 0 when there is no such row; -1 ERR_IO. */
int capabilities_get(
    struct capabilities *c, const char *model_id, struct model_capabilities *out, struct err *e);
int capabilities_put(struct capabilities *c, const struct model_capabilities *row, struct err *e);
int capabilities_delete(struct capabilities *c, const char *model_id, struct err *e);
