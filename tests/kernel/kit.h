/* kit.h: helpers of the kernel tests: packed weights, quantised activations, and a loop over all
 * kernel sets. */
#pragma once

#include "support/check.h"
#include "x86_amx_definition.h"
#include "kit_formats.h"
#include "x86_amx_soft.h"
#include "x86_avxvnni_evex.h"
#include "kernel/acts.h"
#include "kernel/kernels.h"

#include <stdlib.h>

static inline struct packed kit_pack(enum qtype type, int n_rows, int n_cols, const uint8_t *rows)
{
    struct err e;
    struct packed w;
    uint8_t *data = try_aligned(64, pack_bytes(type, n_rows, n_cols));

    if (!data || pack_init(&w, type, n_rows, n_cols, data, &e))
        abort();
    pack_panels(&w, rows, 0, w.n_panels);
    return w;
}

/* Activations in the kind that GEMM with `type` reads, quantised by `k`. */
static inline struct acts kit_acts(
    const struct kernels *k, enum qtype type, int n_rows, int n_cols, const float *x)
{
    struct acts a = { .kind = kernels_act_kind(k, type), .n_rows = n_rows, .n_cols = n_cols };

    a.stride = act_row_bytes(a.kind, n_cols);
    a.data = try_aligned(64, a.stride * (size_t)n_rows + 64);
    if (!a.data)
        abort();
    memset(a.data, 0, a.stride * (size_t)n_rows);
    for (int m = 0; m < n_rows; m++) {
        uint8_t *to = (uint8_t *)a.data + (size_t)m * a.stride;
        kernels_quantise_acts(
            k, (struct act_cols){ a.kind, to, 0 }, x + (size_t)m * (size_t)n_cols, n_cols);
    }
    return a;
}

/* Returns value k of row m of quantised activations. */
static inline double kit_act(const struct acts *a, int m, int k)
{
    const uint8_t *row = (const uint8_t *)a->data + (size_t)m * a->stride;
    const void *p = row;

    if (a->kind == ACT_F32)
        return ((const float *)p)[k];
    if (a->kind == ACT_Q8_0) {
        const struct act_q8_0 *b = (const struct act_q8_0 *)p + k / 32;
        return (double)b->d * b->q[k % 32];
    }
    if (a->kind == ACT_BF16X2) {
        const struct act_bf16x2 *b = (const struct act_bf16x2 *)p + k / 32;
        return (double)bf16_to_f32(b->hi[k % 32]) + bf16_to_f32(b->lo[k % 32]);
    }
    const struct act_q8_k *b = (const struct act_q8_k *)p + k / 256;
    return (double)b->d * b->q[k % 256];
}

/* Compares bits, except those of NaNs, which are unspecified: x86 returns one of the operands, and
 * compilers may swap operands. */
static inline bool kit_same_floats(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (f32_to_bits(a[i]) != f32_to_bits(b[i]) && !(a[i] != a[i] && b[i] != b[i])) {
            fprintf(stderr, "[%zu]: %a, %a\n", i, (double)a[i], (double)b[i]);
            return false;
        }
    return true;
}

static inline const struct kernels *kit_ref(void)
{
    const struct kernels *k;
    struct err e;

    if (kernels_choose(&k, "ref", &e))
        abort();
    return k;
}

/* The AMX set with tiles emulated in C; NULL entries are filled from AVX-512. Returns NULL if the
 * machine lacks AVX-512 or AVX-512 BF16. */
static inline const struct kernels *kit_amx_soft(void)
{
    static struct kernels k;
    const struct kernels *avx512;
    struct err e;

    if (kernels_choose(&avx512, "avx512", &e) || !__builtin_cpu_supports("avx512bf16"))
        return NULL;
    k = *avx512;
    k.name = kernels_amx_soft.name;
    k.numerics_id = kernels_amx_soft.numerics_id;
    k.f16_acts = kernels_amx_soft.f16_acts;
    k.bf16x2 = kernels_amx_soft.bf16x2;
    k.attend = kernels_amx_soft.attend;
    k.attend_merge = kernels_amx_soft.attend_merge;
    for (int i = 0; i < N_GEMM_SLOTS; i++)
        if (kernels_amx_soft.gemm[i])
            k.gemm[i] = kernels_amx_soft.gemm[i];
    return &k;
}

/* The definition for the AMX set: ref.c, and x86_amx_definition.c for the sums that only AMX
 * has. */
static inline const struct kernels *kit_amx_definition(void)
{
    static struct kernels k;

    k = *kit_ref();
    k.f16_acts = ACT_BF16X2;
    k.gemm[GEMM_BF16] = amx_definition_gemm_bf16;
    k.gemm[GEMM_F16] = amx_definition_gemm_f16;
    k.attend = amx_definition_attend;
    return &k;
}

/* The environment variable KERNEL_SET restricts tests to one set. */
static inline bool kit_wants(const char *set)
{
    const char *only = getenv("KERNEL_SET");

    return !only || !strcmp(only, set);
}

/* Calls fn with every set except ref that this machine can run, and with its definition; prints the
 * skipped sets. */
static inline void kit_each_set(void (*fn)(const struct kernels *k, const struct kernels *ref))
{
    static const char *const names[] = { "avx2", "avxvnni", "avx512", "amx" };

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const struct kernels *k;
        struct err e;
        if (!kit_wants(names[i]))
            continue;
        if (kernels_choose(&k, names[i], &e))
            printf("skipped: %s\n", e.msg);
        else
            fn(k, strcmp(names[i], "amx") ? kit_ref() : kit_amx_definition());
    }
    struct kernels vnni;
    if (kit_wants("avxvnni-evex") && avxvnni_evex_choose(&vnni))
        fn(&vnni, kit_ref());
    if (!kit_wants("amx-soft"))
        return;
    if (kit_amx_soft())
        fn(kit_amx_soft(), kit_amx_definition());
    else
        printf("skipped: tiles in software need AVX-512 BF16\n");
}
