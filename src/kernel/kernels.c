#include "kernel/kernels.h"
#include "kernel/cpu.h"
#include "kernel/ref/ref.h"
#include "kernel/x86/x86_amx.h"
#include "kernel/x86/x86_avx2.h"
#include "kernel/x86/x86_avx512.h"
#include "kernel/x86/x86_avxvnni.h"

#include <pthread.h>

static const char *lacks_no_feature(void)
{
    return NULL;
}

/* Slowest to fastest. */
static const struct {
    const struct kernels *own;  /* entries of this set; NULL entries are filled from `base` */
    int base;                   /* index of a set that runs on every machine of this set */
    const char *(*lacks)(void); /* first missing feature; NULL: the set can run on this machine */
} sets[] = {
    { &kernels_ref, 0, lacks_no_feature },
#if defined(__x86_64__)
    { &kernels_avx2, 0, cpu_lacks_avx2 },
    { &avxvnni_kernels, 1, cpu_lacks_avxvnni },
    { &kernels_avx512, 1, cpu_lacks_avx512 },
    { &kernels_amx, 3, cpu_lacks_amx },
#endif
};

enum { N_SETS = ARRAY_LEN(sets) };

static struct kernels merged[N_SETS];

/* Returns b with NULL entries filled from a. */
static struct kernels fill_entries(const struct kernels *a, const struct kernels *b)
{
    struct kernels k = *b;

#define KERNEL(op, ret, params)                                                                    \
    if (!k.op)                                                                                     \
        k.op = a->op;
#include "kernel/kernels.def"
#undef KERNEL
    for (int i = 0; i < N_GEMM_SLOTS; i++)
        if (!k.gemm[i])
            k.gemm[i] = a->gemm[i];
    return k;
}

static void merge_sets(void)
{
    merged[0] = *sets[0].own;
    for (int i = 1; i < N_SETS; i++)
        merged[i] = fill_entries(&merged[sets[i].base], sets[i].own);
}

int kernels_choose(const struct kernels **out, const char *name, struct err *e)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    bool is_auto = !name || !strcmp(name, "auto");

    pthread_once(&once, merge_sets);
    for (int i = N_SETS - 1; i >= 0; i--) {
        if (!is_auto && strcmp(name, merged[i].name))
            continue;
        const char *missing = sets[i].lacks();
        if (!missing) {
            *out = &merged[i];
            return 0;
        }
        if (!is_auto)
            return err_set(
                e, ERR_UNSUPPORTED, "kernels '%s': this machine lacks %s", name, missing);
    }
    return err_set(e, ERR_UNSUPPORTED,
        "kernels '%s': unknown set; the sets are ref, avx2, avxvnni, avx512, amx", name);
}

enum act_kind kernels_act_kind(const struct kernels *k, enum qtype weight_type)
{
    return weight_type == Q_F16 || weight_type == Q_BF16 ? k->f16_acts : act_kind_for(weight_type);
}

void kernels_quantise_acts(const struct kernels *k, struct act_cols to, const float *x, int n)
{
    void *at = (uint8_t *)to.row + act_offset(to.kind, to.col);

    switch (to.kind) {
    case ACT_Q8_0:
        k->q8_0(x, n, at);
        break;
    case ACT_Q8_K:
        k->q8_k(x, n, at);
        break;
    case ACT_BF16X2:
        k->bf16x2(x, n, at);
        break;
    default:
        memcpy(at, x, (size_t)n * sizeof(*x));
    }
}
