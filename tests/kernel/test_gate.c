/* Regression check of kernel performance: recorded results of bench/kernels compared with new
 * measurements. */
#include "support/check.h"
#include "../../bench/kernels_gate.h"

#include <unistd.h>

static char path[64];

static void write_file(const char *text)
{
    snprintf(path, sizeof(path), "/tmp/test_gate.%d.csv", (int)getpid());
    FILE *f = fopen(path, "w");
    EXPECT(f && fputs(text, f) >= 0 && !fclose(f));
}

static void recorded_values_are_found_again(void)
{
    static struct gate out, in;

    write_file("");
    EXPECT(gate_record(&out, path, 2));
    gate_add_result(&out, "avx512", "Q4_0", 64, 81.25);
    gate_add_result(&out, "avx2", "BF16", 1, 97);
    EXPECT_EQ(gate_end(&out), 0);
    EXPECT(gate_read(&in, path, 1));
    unlink(path);
    EXPECT_EQ(in.n_rows, 2);
    EXPECT(!strncmp(in.machine, out.machine, strlen(out.machine)));
    const struct gate_row *r = gate_find(&in, "avx2", "BF16", 1);
    EXPECT(r && r->percent == 97.0);
    EXPECT(gate_find(&in, "avx512", "Q4_0", 64));
    EXPECT(!gate_find(&in, "avx512", "Q4_0", 1) && !gate_find(&in, "avx512", "BF16", 1));
}

static void a_drop_by_a_quarter_fails(void)
{
    static const struct {
        double percent;
        int status;
    } cases[] = { { 100, 0 }, { 80, 0 }, { 60.1, 0 }, { 59.9, 1 }, { 1, 1 } };

    write_file("# m\nset,what,rows,percent\navx512,Q4_0,64,80.0\navx2,Q4_0,1,90.0\n");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct gate g = { 0 };
        EXPECT(gate_read(&g, path, 1));
        EXPECT_STR(g.machine, "m");
        gate_add_result(
            &g, "avx2", "Q4_0", 1, 95); /* good results of other kernels do not compensate */
        gate_add_result(&g, "avx512", "Q4_0", 64, cases[i].percent);
        gate_add_result(&g, "avx512", "Q8_0", 64, 1); /* not recorded */
        EXPECT_EQ(g.n_compared, 2);
        EXPECT_EQ(gate_end(&g), cases[i].status);
    }
    unlink(path);
}

static void a_missing_measurement_fails(void)
{
    write_file("# m\nset,what,rows,percent\namx,Q4_0,64,80.0\navx2,Q4_0,1,90.0\navx2,add,0,50.0\n");
    for (int with_add = 0; with_add < 2; with_add++) {
        struct gate g = { 0 };
        EXPECT(gate_read(&g, path, 1));
        gate_set_unavailable(&g, "amx"); /* the machine lacks the set: not a regression */
        gate_add_result(&g, "avx2", "Q4_0", 1, 95);
        if (with_add)
            gate_add_result(&g, "avx2", "add", 0, 49);
        EXPECT_EQ(gate_end(&g), !with_add);
    }
    unlink(path);
}

static void another_machine_is_detected(void)
{
    static struct gate out, in;

    write_file("");
    EXPECT(gate_record(&out, path, 1));
    gate_add_result(&out, "avx2", "add", 0, 50);
    EXPECT_EQ(gate_end(&out), 0);
    EXPECT(gate_read(&in, path, 1));
    unlink(path);
    EXPECT(gate_check_machine(&in, 1));
    EXPECT(!gate_check_machine(&in, 2));
    snprintf(in.machine, sizeof(in.machine), "Z80 (family 0, model 0), threads: 1");
    EXPECT(!gate_check_machine(&in, 1));
}

static void every_machine_has_its_own_section(void)
{
    enum { THREADS = 3 };
    static struct gate out, again, in, other;

    write_file("# Z80\nset,what,rows,percent\navx2,add,0,10.0\n");
    EXPECT(gate_record(&out, path, THREADS));
    gate_add_result(&out, "avx2", "add", 0, 20);
    gate_add_result(&out, "avx2", "max", 0, 20);
    EXPECT_EQ(gate_end(&out), 0);
    EXPECT(gate_record(&again, path, THREADS)); /* replaces the section of this machine */
    gate_add_result(&again, "avx2", "add", 0, 30);
    EXPECT_EQ(gate_end(&again), 0);
    EXPECT(gate_read(&in, path, THREADS));
    EXPECT(gate_check_machine(&in, THREADS));
    EXPECT(in.n_rows == 1 && in.rows[0].percent == 30.0);
    /* appended; the section of the Z80 is unchanged */
    EXPECT(gate_record(&out, path, THREADS + 1));
    EXPECT_EQ(gate_end(&out), 0);
    EXPECT(gate_read(&in, path, THREADS) && in.n_rows == 1);
    FILE *f = fopen(path, "r");
    char line[64] = "";
    EXPECT(f && fgets(line, sizeof(line), f) && !fclose(f));
    EXPECT_STR(line, "# Z80\n");
    EXPECT(!gate_read(&other, path, THREADS + 1)); /* the section has no rows */
    unlink(path);
}

static void comparing_nothing_fails(void)
{
    static struct gate g, empty;

    write_file("# m\nset,what,rows,percent\namx,Q4_0,64,80.0\n");
    EXPECT(gate_read(&g, path, 1));
    EXPECT_EQ(gate_end(&g), 1);
    write_file("set,what,rows,percent\n");
    EXPECT(!gate_read(&empty, path, 1));
    unlink(path);
    EXPECT(!gate_read(&empty, path, 1));
}

TESTS(TEST(a_missing_measurement_fails), TEST(another_machine_is_detected),
    TEST(recorded_values_are_found_again), TEST(a_drop_by_a_quarter_fails),
    TEST(every_machine_has_its_own_section), TEST(comparing_nothing_fails))
