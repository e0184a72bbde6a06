/* Products of float weights, over tiles in software. */
#define TILES_IN_SOFTWARE
#include "kernel/x86/x86_amx_float.c"
