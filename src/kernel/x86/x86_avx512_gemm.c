/* x86_avx512_gemm.c: packed weights times activations with VNNI byte dots.
 *
 * A vector is the 16 rows of a panel. The unit of work is a turn: some consecutive blocks of one
 * panel times up to GROUP rows of activations, whose sums stay in registers.
 *
 * Few rows (decoding): memory is the limit. A call reads several panels in turns where that is
 * faster (cpu.h), longer ones where several rows take their time, each stream going through
 * consecutive panels, prefetching ahead of itself.
 *
 * Many rows: a panel, or a pair of them, which the first group of rows brings into the cache, is
 * gone through whole for one group of rows after the other. */
#ifndef __AVX512VNNI__
#error "compile with the AVX-512 flags of the Makefile"
#endif

#include "kernel/x86/x86_avx512_gemm_pairs.h"
#include "kernel/x86/x86_avx512_gemm_small.h"

/* n blocks at w times n blocks at x[m], added to acc[m]. */
typedef void (*turn_fn)(const uint8_t *w, const uint8_t *const *x, int n, __m512 *acc);

struct format {
    turn_fn turn[GROUP + 1]; /* by number of rows */
    pair_fn pair;            /* NULL: one panel is as good */
    int block;               /* elements of k */
    size_t w_bytes, x_bytes; /* of a block, of the panel and of a row */
};

/* ---- drivers */

static void set_rows(const struct gemm_args *g, int m, int n, const uint8_t *x[])
{
    for (int i = 0; i < n; i++)
        x[i] = acts_row(g->x, m + i);
}

static void store(const struct gemm_args *g, int panel, int m, int n, const __m512 *acc)
{
    int rows = MIN(PANEL, g->w->n_rows - panel * PANEL);
    float *y = g->y + (size_t)m * g->y_stride + (size_t)panel * PANEL;

    for (int i = 0; i < n; i++)
        _mm512_mask_storeu_ps(y + (size_t)i * g->y_stride, first_lanes(rows), acc[i]);
}

/* All rows (at most GROUP) times panels, interleaved. */
static void few_rows(const struct gemm_args *g, const struct format *f)
{
    int n_rows = g->x->n_rows, n_panels = g->panel_to - g->panel_from;
    const bool is_chained = f->w_bytes == sizeof(uint16_t) * PANEL && n_rows < GROUP;
    const struct cpu_turns turns = is_chained ? cpu_reading()->chained : cpu_reading()->plain;
    const int streams = turns.streams;
    int n_blocks = g->w->n_cols / f->block;
    int bytes = turns.bytes * (is_chained ? 1 : MAX(1, n_rows / 2));
    int per_turn = MAX(1, bytes / (int)f->w_bytes);
    turn_fn turn = f->turn[n_rows];
    const uint8_t *x0[GROUP], *x[GROUP];
    __m512 acc[CPU_STREAMS][GROUP];
    int from[CPU_STREAMS + 1];

    if (f->block == 1)
        per_turn = MAX(2, per_turn / 2 * 2); /* turn_bf16() */
    set_rows(g, 0, n_rows, x0);
    for (int s = 0; s <= streams; s++)
        from[s] = g->panel_from + (int)((int64_t)n_panels * s / streams);
    for (int i = 0; i < (n_panels + streams - 1) / streams; i++) {
        memset(acc, 0, (size_t)streams * sizeof(acc[0]));
        for (int b = 0; b < n_blocks; b += per_turn) {
            int n = MIN(per_turn, n_blocks - b);
            for (int m = 0; m < n_rows; m++)
                x[m] = x0[m] + (size_t)b * f->x_bytes;
            for (int s = 0; s < streams; s++)
                if (from[s] + i < from[s + 1])
                    turn(g->w->data + (size_t)(from[s] + i) * g->w->panel_bytes +
                             (size_t)b * f->w_bytes,
                        x, n, acc[s]);
        }
        for (int s = 0; s < streams; s++)
            if (from[s] + i < from[s + 1])
                store(g, from[s] + i, 0, n_rows, acc[s]);
    }
}

/* Rows [m, m + n) times one panel. */
static void one_panel(const struct gemm_args *g, const struct format *f, int panel, int m, int n)
{
    const uint8_t *x[GROUP];
    __m512 acc[GROUP] = { 0 };

    set_rows(g, m, n, x);
    f->turn[n](g->w->data + (size_t)panel * g->w->panel_bytes, x, g->w->n_cols / f->block, acc);
    store(g, panel, m, n, acc);
}

static void two_panels(const struct gemm_args *g, const struct format *f, int panel, int m)
{
    const size_t bytes = g->w->panel_bytes;
    const uint8_t *w = g->w->data + (size_t)panel * bytes, *x[GROUP];
    const uint8_t *next = panel + 2 < g->panel_to || !g->next ? w + 2 * bytes : g->next;
    __m512 acc[2][GROUP];

    set_rows(g, m, GROUP, x);
    f->pair(&(struct pair){ { w, w + bytes }, { next, next + bytes } }, x, g->w->n_cols / f->block,
        acc);
    store(g, panel, m, GROUP, acc[0]);
    store(g, panel + 1, m, GROUP, acc[1]);
}

static void many_rows(const struct gemm_args *g, const struct format *f)
{
    const int step = f->pair ? 2 : 1;

    for (int p = g->panel_from; p < g->panel_to; p += step)
        for (int m = 0; m < g->x->n_rows; m += GROUP) {
            int n = MIN(GROUP, g->x->n_rows - m), to = MIN(p + step, g->panel_to);
            if (n == GROUP && to == p + 2) {
                two_panels(g, f, p, m);
                continue;
            }
            for (int i = p; i < to; i++)
                one_panel(g, f, i, m, n);
        }
}

static void run(const struct gemm_args *g, const struct format *f)
{
    if (g->x->n_rows > GROUP)
        many_rows(g, f);
    else if (g->x->n_rows > 0)
        few_rows(g, f);
}

/* ---- blocks of 32 */

/* Dot of `quads` x 4 bytes added to start. In assembly, since gcc takes an instruction of its own
 * to spread four bytes over the rows, which the product does on its way (a tenth of the time). */
INLINE __m512i dot(__m512i start, const __m512i *w, const int8_t *q, int quads)
{
    typedef int32_t __attribute__((may_alias)) quad;

    UNROLL for (int i = 0; i < quads; i++) __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(start) :
        "v"(w[i]), "m"(*(const quad *)(const void *)(q + 4 * i)));
    return start;
}

#define TURN_SMALL(type, start, has_mins)                                                          \
    INLINE void turn_##type(                                                                       \
        int rows, const uint8_t *wp, const uint8_t *const *xp, int n, __m512 *out)                 \
    {                                                                                              \
        const struct p16_##type *p = (const void *)wp;                                             \
        __m512 acc[GROUP];                                                                         \
        struct small s;                                                                            \
                                                                                                   \
        UNROLL for (int m = 0; m < rows; m++) acc[m] = out[m];                                     \
        for (int b = 0; b < n; b++, p++) {                                                         \
            fetch_ahead((const uint8_t *)p, sizeof(*p));                                           \
            load_##type(&s, p);                                                                    \
            UNROLL for (int m = 0; m < rows; m++)                                                  \
            {                                                                                      \
                const struct act_q8_0 *x = (const struct act_q8_0 *)(const void *)xp[m] + b;       \
                acc[m] = scaled(acc[m], s.d, x->d, dot(start(x), s.w, x->q, 8));                   \
                if (has_mins)                                                                      \
                    acc[m] = plus_min(acc[m], s.m, x);                                             \
            }                                                                                      \
        }                                                                                          \
        UNROLL for (int m = 0; m < rows; m++) out[m] = acc[m];                                     \
    }

/* ---- blocks of 256 */

INLINE void turn_q4_k(int rows, const uint8_t *wp, const uint8_t *const *xp, int n, __m512 *out)
{
    const struct p16_q4_k *p = (const void *)wp;
    struct sub_scales s;
    __m512i w[8], sum[GROUP];

    for (int b = 0; b < n; b++, p++) {
        load_scales(&s, p->scale_lo, p->scale_hi);
        UNROLL for (int m = 0; m < rows; m++) sum[m] = _mm512_setzero_si512();
        for (int j = 0; j < 8; j++) {
            fetch_ahead((const uint8_t *)p + (size_t)j * sizeof(*p) / 8, sizeof(*p) / 8);
            load_nibbles(w, p->q[j]);
            __m512i scale = unsigned_of_pair(s.scale[j / 2], j % 2);
            UNROLL for (int m = 0; m < rows; m++)
            {
                const struct act_q8_k *x = (const struct act_q8_k *)(const void *)xp[m] + b;
                __m512i d = dot(_mm512_setzero_si512(), w, x->q + 32 * j, 8);
                sum[m] = _mm512_add_epi32(sum[m], _mm512_mullo_epi32(d, scale));
            }
        }
        const __m512 d[2] = { half16(p->d), half16(p->dmin) };
        UNROLL for (int m = 0; m < rows; m++) out[m] =
            affine(out[m], d, (const struct act_q8_k *)(const void *)xp[m] + b, sum[m], s.min);
    }
}

INLINE void turn_q5_k(int rows, const uint8_t *wp, const uint8_t *const *xp, int n, __m512 *out)
{
    const struct p16_q5_k *p = (const void *)wp;
    struct sub_scales s;
    __m512i w[8], sum[GROUP];

    for (int b = 0; b < n; b++, p++) {
        load_scales(&s, p->scale_lo, p->scale_hi);
        UNROLL for (int m = 0; m < rows; m++) sum[m] = _mm512_setzero_si512();
        for (int j = 0; j < 8; j++) {
            fetch_ahead((const uint8_t *)p + (size_t)j * sizeof(*p) / 8, sizeof(*p) / 8);
            load_nibbles(w, p->q[j]);
            add_fifth(w, p->high[j]);
            __m512i scale = unsigned_of_pair(s.scale[j / 2], j % 2);
            UNROLL for (int m = 0; m < rows; m++)
            {
                const struct act_q8_k *x = (const struct act_q8_k *)(const void *)xp[m] + b;
                __m512i d = dot(_mm512_setzero_si512(), w, x->q + 32 * j, 8);
                sum[m] = _mm512_add_epi32(sum[m], _mm512_mullo_epi32(d, scale));
            }
        }
        const __m512 d[2] = { half16(p->d), half16(p->dmin) };
        UNROLL for (int m = 0; m < rows; m++) out[m] =
            affine(out[m], d, (const struct act_q8_k *)(const void *)xp[m] + b, sum[m], s.min);
    }
}

INLINE void turn_q6_k(int rows, const uint8_t *wp, const uint8_t *const *xp, int n, __m512 *out)
{
    const struct p16_q6_k *p = (const void *)wp;
    ALIGNED(64) int32_t start[GROUP][16];
    __m512i w[4], sum[GROUP];

    for (int b = 0; b < n; b++, p++) {
        UNROLL for (int m = 0; m < rows; m++)
        {
            minus32(start[m], ((const struct act_q8_k *)(const void *)xp[m] + b)->sum16);
            sum[m] = _mm512_setzero_si512();
        }
        for (int j = 0; j < 16; j++) {
            fetch_ahead((const uint8_t *)p + (size_t)j * sizeof(*p) / 16, sizeof(*p) / 16);
            load_q6(w, p->sub[j].low, p->sub[j].high);
            __m512i scale = signed_of_pair(p->scale[j / 2], j % 2);
            UNROLL for (int m = 0; m < rows; m++)
            {
                const struct act_q8_k *x = (const struct act_q8_k *)(const void *)xp[m] + b;
                __m512i d = dot(_mm512_set1_epi32(start[m][j]), w, x->q + 16 * j, 4);
                sum[m] = _mm512_add_epi32(sum[m], _mm512_mullo_epi32(d, scale));
            }
        }
        __m512 dw = half16(p->d);
        UNROLL for (int m = 0; m < rows; m++) out[m] =
            scaled(out[m], dw, ((const struct act_q8_k *)(const void *)xp[m] + b)->d, sum[m]);
    }
}

INLINE void turn_iq4_xs(int rows, const uint8_t *wp, const uint8_t *const *xp, int n, __m512 *out)
{
    const struct p16_iq4_xs *p = (const void *)wp;
    __m512i w[8], sum[GROUP];

    for (int b = 0; b < n; b++, p++) {
        UNROLL for (int m = 0; m < rows; m++) sum[m] = _mm512_setzero_si512();
        for (int j = 0; j < 8; j++) {
            fetch_ahead((const uint8_t *)p + (size_t)j * sizeof(*p) / 8, sizeof(*p) / 8);
            load_nibbles(w, p->q[j]);
            look_up(w, iq4_list(IQ4_OFFSET));
            __m512i scale = signed_of_pair(p->scale[j / 2], j % 2);
            UNROLL for (int m = 0; m < rows; m++)
            {
                const struct act_q8_k *x = (const struct act_q8_k *)(const void *)xp[m] + b;
                __m512i start = _mm512_set1_epi32(-IQ4_OFFSET * x->sum32[j]);
                __m512i d = dot(start, w, x->q + 32 * j, 8);
                sum[m] = _mm512_add_epi32(sum[m], _mm512_mullo_epi32(d, scale));
            }
        }
        __m512 dw = half16(p->d);
        UNROLL for (int m = 0; m < rows; m++) out[m] =
            scaled(out[m], dw, ((const struct act_q8_k *)(const void *)xp[m] + b)->d, sum[m]);
    }
}

/* ---- float weights */

/* n counts single k here. */
INLINE void turn_f32(int rows, const uint8_t *wp, const uint8_t *const *xp, int n, __m512 *out)
{
    __m512 acc[GROUP];

    UNROLL for (int m = 0; m < rows; m++) acc[m] = out[m];
    for (int k = 0; k < n; k++) {
        fetch_ahead(wp + (size_t)k * 64, 64);
        __m512 w = _mm512_loadu_ps(wp + (size_t)k * 64);
        UNROLL for (int m = 0; m < rows; m++) acc[m] =
            _mm512_fmadd_ps(w, _mm512_set1_ps(((const float *)(const void *)xp[m])[k]), acc[m]);
    }
    UNROLL for (int m = 0; m < rows; m++) out[m] = acc[m];
}

INLINE void turn_f16(int rows, const uint8_t *wp, const uint8_t *const *xp, int n, __m512 *out)
{
    __m512 acc[GROUP];

    UNROLL for (int m = 0; m < rows; m++) acc[m] = out[m];
    for (int k = 0; k < n; k++) {
        if (k % 2 == 0)
            fetch_ahead(wp + (size_t)k * 32, 64);
        __m512 w = half16((const uint16_t *)(const void *)wp + (size_t)k * 16);
        UNROLL for (int m = 0; m < rows; m++) acc[m] =
            _mm512_fmadd_ps(w, _mm512_set1_ps(((const float *)(const void *)xp[m])[k]), acc[m]);
    }
    UNROLL for (int m = 0; m < rows; m++) out[m] = acc[m];
}

/* Starts at an even k: turns are of an even number. */
INLINE void turn_bf16(int rows, const uint8_t *wp, const uint8_t *const *xp, int n, __m512 *out)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    __m512 acc[GROUP];

    UNROLL for (int m = 0; m < rows; m++) acc[m] = out[m];
    for (int k = 0; k < n; k += 2) {
        fetch_ahead(wp + (size_t)k * 32, 64);
        __m512i pair = _mm512_loadu_si512(wp + (size_t)k * 32);
        __m512 w = _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16));
        UNROLL for (int m = 0; m < rows; m++) acc[m] =
            _mm512_fmadd_ps(w, _mm512_set1_ps(((const float *)(const void *)xp[m])[k]), acc[m]);
        if (k + 1 == n)
            break;
        w = _mm512_castsi512_ps(_mm512_and_si512(pair, upper));
        UNROLL for (int m = 0; m < rows; m++) acc[m] =
            _mm512_fmadd_ps(w, _mm512_set1_ps(((const float *)(const void *)xp[m])[k + 1]), acc[m]);
    }
    UNROLL for (int m = 0; m < rows; m++) out[m] = acc[m];
}

/* ---- one function per type and number of rows, one table per type, one entry per type */

#define TURN(type, rows)                                                                           \
    static void type##_##rows(const uint8_t *w, const uint8_t *const *x, int n, __m512 *acc)       \
    {                                                                                              \
        turn_##type(rows, w, x, n, acc);                                                           \
    }

#define GEMM(type, pair, block, w_bytes, x_bytes)                                                  \
    TURN(type, 1)                                                                                  \
    TURN(type, 2)                                                                                  \
    TURN(type, 3)                                                                                  \
    TURN(type, 4)                                                                                  \
    TURN(type, 5)                                                                                  \
    TURN(type, 6)                                                                                  \
    TURN(type, 7)                                                                                  \
    TURN(type, 8)                                                                                  \
    void avx512_gemm_##type(const struct gemm_args *g)                                             \
    {                                                                                              \
        static const struct format f = { { NULL, type##_1, type##_2, type##_3, type##_4, type##_5, \
                                             type##_6, type##_7, type##_8 },                       \
            pair, block, w_bytes, x_bytes };                                                       \
        run(g, &f);                                                                                \
    }

TURN_SMALL(q4_0, start_8, false)
TURN_SMALL(q8_0, start_128, false)
TURN_SMALL(q4_1, start_plain, true)
TURN_SMALL(q5_0, start_16, false)
TURN_SMALL(q5_1, start_plain, true)
TURN_SMALL(iq4_nl, start_128, false)
TURN_SMALL(mxfp4, start_12, false)

GEMM(f32, NULL, 1, 64, 4)
GEMM(f16, NULL, 1, 32, 4)
GEMM(bf16, NULL, 1, 32, 4)
GEMM(q8_0, avx512_pair_q8_0, 32, sizeof(struct p16_q8_0), sizeof(struct act_q8_0))
GEMM(q4_0, avx512_pair_q4_0, 32, sizeof(struct p16_q4_0), sizeof(struct act_q8_0))
GEMM(q4_k, NULL, 256, sizeof(struct p16_q4_k), sizeof(struct act_q8_k))
GEMM(q5_k, NULL, 256, sizeof(struct p16_q5_k), sizeof(struct act_q8_k))
GEMM(q6_k, avx512_pair_q6_k, 256, sizeof(struct p16_q6_k), sizeof(struct act_q8_k))
GEMM(q4_1, NULL, 32, sizeof(struct p16_q4_1), sizeof(struct act_q8_0))
GEMM(q5_0, avx512_pair_q5_0, 32, sizeof(struct p16_q5_0), sizeof(struct act_q8_0))
GEMM(q5_1, NULL, 32, sizeof(struct p16_q5_1), sizeof(struct act_q8_0))
GEMM(iq4_nl, NULL, 32, sizeof(struct p16_iq4_nl), sizeof(struct act_q8_0))
GEMM(mxfp4, NULL, 32, sizeof(struct p16_mxfp4), sizeof(struct act_q8_0))
GEMM(iq4_xs, NULL, 256, sizeof(struct p16_iq4_xs), sizeof(struct act_q8_k))
