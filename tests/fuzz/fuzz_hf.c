/* Fuzzes model directories: config.json, the index, and the header and data of a safetensors file,
 * with a fixed tokenizer. A directory is rejected with an error of one line, or all rows of its
 * tensors can be read.
 *
 * Input: config.json, a zero byte, model.safetensors.index.json or nothing, a zero byte,
 * model.safetensors. */
#include "base/mem.h"
#include "format/hf/hf.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { TENSOR_MAX = 1 << 20 };

static const char tokenizer[] =
    "{\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true}],\"normalizer\":null,"
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true},"
    "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"ignore_merges\":false,"
    "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}}";

static char folder[] = "/tmp/inferflux-fuzz-hf-XXXXXX";

static void write_file(const char *name, struct str bytes)
{
    char path[96];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    unlink(path); /* ext4 writes a truncated file to disk when it is closed */
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    CHECK(fd >= 0 && write(fd, bytes.p, bytes.n) == (ssize_t)bytes.n);
    close(fd);
}

static void remove_folder(void)
{
    static const char *const names[] = { "config.json", "tokenizer.json", "model.safetensors",
        "model.safetensors.index.json" };
    char path[96];

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

static void make_folder(void)
{
    static bool is_made;

    if (is_made)
        return;
    is_made = true;
    CHECK(mkdtemp(folder));
    atexit(remove_folder);
    write_file("tokenizer.json", str_of(tokenizer));
}

/* The bytes up to the next zero byte, which is removed with them. */
static struct str take_text(struct str *rest)
{
    const char *zero = rest->n ? memchr(rest->p, 0, rest->n) : NULL;
    struct str text = { rest->p, zero ? (size_t)(zero - rest->p) : rest->n };

    *rest = str_skip(*rest, MIN(text.n + 1, rest->n));
    return text;
}

static void read_tensors(const struct gguf *g)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (t->bytes > TENSOR_MAX)
            continue;
        uint8_t *copy = xmalloc((size_t)t->bytes);
        if (t->data)
            memcpy(copy, t->data, (size_t)t->bytes);
        else
            gguf_read_rows(g, t, 0, t->dims[1] * t->dims[2] * t->dims[3], copy);
        for (uint64_t k = 0; k < t->bytes; k++)
            sum += copy[k];
        mem_free(copy);
    }
    CHECK(sum < UINT64_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct str rest = { (const char *)data, n };
    const struct str config = take_text(&rest), index = take_text(&rest);
    struct gguf *g = NULL;
    struct err e = { 0 };

    make_folder();
    write_file("config.json", config);
    write_file("model.safetensors.index.json", index); /* an empty one counts as none */
    write_file("model.safetensors", rest);
    if (hf_open(&g, folder, &e)) {
        CHECK(e.code != ERR_NONE && e.msg[0] && !strchr(e.msg, '\n'));
        return 0;
    }
    read_tensors(g);
    gguf_close(g);
    return 0;
}
