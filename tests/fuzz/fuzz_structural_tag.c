/* Fuzzes structural_tag.c: see support/fuzz_grammar.h. */
#include "constrain/grammar/structural_tag.h"
#include "support/fuzz_grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grammar(structural_tag_read, data, size);
}
