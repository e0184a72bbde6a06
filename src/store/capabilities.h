/* capabilities.h: results of the capability probe, stored in a SQLite file across restarts.
 *
 * One table, model_capabilities, with one row per model id. A row is valid for one model file: the
 * reader compares `fingerprint`. The schema has a version (PRAGMA user_version). An older version
 * is migrated step by step in one transaction; a newer one is rejected. A damaged file is renamed
 * to PATH.damaged-N with an error in the log, and a new file is created: the probe can compute the
 * lost rows again.
 *
 * Calls block on the disk, so no io thread makes them; the loader threads and inferctl do. Any
 * thread after capabilities_open, which SQLite serialises; other processes may have the same file
 * open. */
#pragma once

#include "base/err.h"

enum { PROBE_VERSION = 3 };

enum known { UNKNOWN = -1, KNOWN_NO = 0, KNOWN_YES = 1 };

struct model_capabilities {
    char model_id[256];
    char model_type[16];     /* TEXT_GEN, VISION, EMBEDDINGS, AUDIO */
    char model_family[32];   /* see chat/family.h */
    char tool_parser_id[32]; /* see output/parser.h */
    char thinking_parser_id[32];
    bool supports_native_tools, supports_thinking;
    char tool_format[16]; /* "native", "injection"; "" = none */
    /* prompt and completion that fit into the memory of this machine; 0 = unknown */
    int64_t practical_max_tokens;
    bool supports_multi_image, supports_video;
    int64_t embedding_dimensions; /* 0 = no embeddings */
    int64_t max_sequence_length;  /* training context of the model; 0 = unknown */
    enum known is_normalized;     /* property of the embeddings */
    bool supports_tts, supports_stt;
    int64_t probed_at; /* wall clock, seconds */
    int probe_version;
    char fingerprint[65]; /* hex; identifies the model file that was probed */
};

struct capabilities;

/* If `writes`, creates the file and its parent directories; otherwise a missing file is
 * ERR_NOT_FOUND, and ERR_IO if its directory is missing too. A damaged database is renamed, and a
 * new one is created. Other errors: ERR_INVALID (another kind of file, which stays unchanged),
 * ERR_IO, ERR_UNSUPPORTED (a newer version). */
int capabilities_open(struct capabilities **out, const char *path, bool writes, struct err *e);
void capabilities_close(struct capabilities *c); /* accepts NULL */

/* Returns 1 and *out; 0 if there is no such row; -1 with ERR_IO. */
int capabilities_get(
    struct capabilities *c, const char *model_id, struct model_capabilities *out, struct err *e);
int capabilities_put(struct capabilities *c, const struct model_capabilities *row, struct err *e);
int capabilities_delete(struct capabilities *c, const char *model_id, struct err *e);
