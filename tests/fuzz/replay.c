/* replay.c: runs a fuzz target without libFuzzer: every file of its corpus, then mutations of them.
 *
 *     fuzz_json CORPUS_DIR N_MUTATIONS INPUT_FILE
 *
 * The mutations depend on their index only, so that each run executes the same inputs. INPUT_FILE
 * is a path with a directory. The file contains the current input, preceded by its size in 8 bytes,
 * and after a crash the input that caused it. `make fuzz` runs the same targets under libFuzzer,
 * which is guided by coverage. */
#include "base/base.h"
#include "base/rng.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { INPUT_MAX = 1 << 20, FILES_MAX = 4096, SECONDS_MAX = 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    uint8_t *bytes;
    size_t n;
};

struct shared_input { /* mapped from INPUT_FILE */
    uint64_t n;
    uint8_t bytes[INPUT_MAX];
};

static struct input files[FILES_MAX];
static size_t n_files;

static void die(const char *what, const char *path)
{
    perror(path);
    fprintf(stderr, "replay: cannot %s %s\n0 passed, 1 failed\n", what, path);
    exit(1);
}

static int compare_names(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void read_corpus(const char *dir)
{
    struct dirent **names;
    int n = scandir(dir, &names, NULL, compare_names);

    if (n < 0)
        die("read", dir);
    for (int i = 0; i < n; i++) {
        char path[4096];
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]->d_name);
        FILE *f = names[i]->d_name[0] == '.' || n_files == FILES_MAX ? NULL : fopen(path, "rb");
        free(names[i]);
        if (!f)
            continue;
        struct input *in = &files[n_files++];
        in->bytes = malloc(INPUT_MAX);
        in->n = in->bytes ? fread(in->bytes, 1, INPUT_MAX, f) : 0;
        fclose(f);
    }
    free(names);
}

/* Applies one random change to the input; `other` is the source of a splice. */
static void mutate(struct shared_input *in, struct rng *r, const struct input *other)
{
    static const uint8_t special[] = { 0, 1, 0x7f, 0x80, 0xff, '"', '\\', '{', '}', '[', '<',
        '\n' };
    size_t at = in->n ? rng_below(r, in->n) : 0, n = 1 + rng_below(r, 16);

    switch (rng_below(r, 5)) {
    case 0:
        if (in->n)
            in->bytes[at] ^= (uint8_t)(1u << rng_below(r, 8));
        break;
    case 1:
        if (in->n)
            in->bytes[at] = special[rng_below(r, sizeof(special))];
        break;
    case 2: /* delete */
        n = MIN(n, in->n - at);
        memmove(in->bytes + at, in->bytes + at + n, in->n - at - n);
        in->n -= n;
        break;
    case 3: /* repeat */
        n = MIN(MIN(n, in->n - at), INPUT_MAX - in->n);
        memmove(in->bytes + at + n, in->bytes + at, in->n - at);
        in->n += n;
        break;
    default: /* splice: the end of another file */
        if (other->n) {
            size_t from = rng_below(r, other->n);
            n = MIN(other->n - from, INPUT_MAX - at);
            memcpy(in->bytes + at, other->bytes + from, n);
            in->n = at + n;
        }
    }
}

int main(int argc, char **argv)
{
    if (argc != 4)
        die("run without three arguments:", argv[0]);
    if (!strchr(argv[3], '/')) /* a number that was meant as a seed, for example */
        die("use an input file without a directory:", argv[3]);
    int fd = open(argv[3], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(struct shared_input)))
        die("create", argv[3]);
    struct shared_input *in = mmap(NULL, sizeof(*in), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (in == MAP_FAILED)
        die("map", argv[3]);
    read_corpus(argv[1]);
    if (!n_files)
        files[n_files++] = (struct input){ malloc(1), 0 };
    long n_mutations = strtol(argv[2], NULL, 10), i;
    time_t end = time(NULL) + SECONDS_MAX;

    for (size_t f = 0; f < n_files; f++) {
        in->n = files[f].n;
        memcpy(in->bytes, files[f].bytes, files[f].n);
        LLVMFuzzerTestOneInput(in->bytes, in->n);
    }
    for (i = 0; i < n_mutations && time(NULL) < end; i++) {
        struct rng r = { .key = (uint64_t)i };
        const struct input *base = &files[rng_below(&r, n_files)];
        in->n = base->n;
        memcpy(in->bytes, base->bytes, base->n);
        for (uint64_t k = 1 + rng_below(&r, 6); k > 0; k--)
            mutate(in, &r, &files[rng_below(&r, n_files)]);
        LLVMFuzzerTestOneInput(in->bytes, in->n);
    }
    printf("%zu files, %ld mutations\n%zu passed, 0 failed\n", n_files, i, n_files);
    return 0;
}
