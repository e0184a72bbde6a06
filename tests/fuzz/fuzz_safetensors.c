/* Fuzzes safetensors files: a file is rejected with an error of one line, or its tensors are
 * disjoint, inside the file, and as large as their types and shapes require. */
#include "format/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct safetensors s;
    struct err e = { 0 };
    uint64_t total = 0, sum = 0;

    if (safetensors_read(&s, (struct str){ (const char *)data, n }, &e)) {
        CHECK(e.code != ERR_NONE && e.msg[0] && !strchr(e.msg, '\n'));
        return 0;
    }
    for (size_t i = 0; i < s.n; i++) {
        const struct st_tensor *t = &s.tensors[i];
        uint64_t bytes = st_dtype_bytes(t->dtype);
        CHECK(t->data >= data && t->bytes <= (size_t)(data + n - t->data));
        for (int d = 0; d < t->n_dims; d++)
            bytes *= t->dims[d];
        CHECK(bytes == t->bytes && t->name.n);
        for (uint64_t k = 0; k < t->bytes; k++)
            sum += t->data[k];
        total += t->bytes;
    }
    CHECK(total <= n && sum < UINT64_MAX);
    safetensors_clear(&s);
    return 0;
}
