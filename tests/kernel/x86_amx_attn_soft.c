/* Attention over bf16 pages, over tiles in software. */
#define TILES_IN_SOFTWARE
#include "kernel/x86/x86_amx_attn.c"
