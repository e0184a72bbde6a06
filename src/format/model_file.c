#include "format/model_file.h"
#include "format/hf/hf.h"

#include <sys/stat.h>

static const struct {
    const char *end, *what;
} rejected[] = {
    { ".bin", "a pickle, which can contain code" },
    { ".pt", "a pickle, which can contain code" },
    { ".pth", "a pickle, which can contain code" },
    { ".ckpt", "a pickle, which can contain code" },
    { ".onnx", "an ONNX model" },
    { ".npz", "an NPZ archive" },
    { ".safetensors", "one file of a model" },
};

int model_file_open(struct gguf **out, const char *path, struct err *e)
{
    struct stat st;

    if (!stat(path, &st) && S_ISDIR(st.st_mode))
        return hf_open(out, path, e);
    for (size_t i = 0; i < ARRAY_LEN(rejected); i++)
        if (str_ends(str_of(path), str_of(rejected[i].end)))
            return err_set(e, ERR_UNSUPPORTED,
                "%.200s is %s; a model is a GGUF file, or a directory with config.json, "
                "tokenizer.json and *.safetensors",
                path, rejected[i].what);
    return gguf_open(out, path, e);
}
