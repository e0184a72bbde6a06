/* x86_amx_attn_soft.c: compiles attention over bf16 pages with emulated tiles. */
#define TILES_IN_SOFTWARE
#include "kernel/x86/x86_amx_attn.c"
