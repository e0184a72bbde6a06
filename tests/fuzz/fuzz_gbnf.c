/* Fuzzes gbnf.c: see support/fuzz_grammar.h. */
#include "constrain/grammar/gbnf.h"
#include "support/fuzz_grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grammar(gbnf_read, data, size);
}
