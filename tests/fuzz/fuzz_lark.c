/* Fuzzes lark.c: see support/fuzz_grammar.h. */
#include "constrain/grammar/lark.h"
#include "support/fuzz_grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grammar(lark_read, data, size);
}
