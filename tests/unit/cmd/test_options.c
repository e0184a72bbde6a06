/* Option table: flags, environment, configuration file; precedence; rejected values and their
 * position. */
#include "support/check.h"
#include "cmd/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char *no_env[] = { NULL };

static int read_args(struct options *o, struct err *e, char **env, const char *a, const char *b)
{
    char *argv[] = { (char[]){ "inferfluxd" }, NULL, NULL, NULL };
    int argc = 1;

    if (a)
        argv[argc++] = (char *)(uintptr_t)a;
    if (b)
        argv[argc++] = (char *)(uintptr_t)b;
    return options_read(o, argc, argv, env ? env : no_env, e);
}

/* Writes a file, reads it with --config, and returns the result of options_read. */
static int read_file(struct options *o, struct err *e, char **env, const char *text)
{
    char path[] = "/tmp/inferflux-test-XXXXXX";
    char flag[64];

    int fd = mkstemp(path);
    EXPECT(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    snprintf(flag, sizeof(flag), "--config=%s", path);
    int rc = read_args(o, e, env, flag, NULL);
    unlink(path);
    return rc;
}

static void defaults_are_those_of_the_table(void)
{
    struct options o;
    struct err e;

    EXPECT_EQ(read_args(&o, &e, NULL, NULL, NULL), 0);
    EXPECT_STR(o.host, "127.0.0.1");
    EXPECT_EQ(o.port, 8080);
    EXPECT_EQ(o.max_body, 16777216);
    EXPECT(!o.strict_model);
    options_clear(&o);
}

static void a_flag_wins_over_the_environment_and_that_over_the_file(void)
{
    char *env[] = { (char[]){ "INFERFLUX_PORT=2" }, (char[]){ "INFERFLUX_THREADS=3" }, NULL };
    struct options o;
    struct err e;

    EXPECT_EQ(
        read_file(&o, &e, env, "server:\n  port: 1\nruntime:\n  threads: 1\n  ctx_size: 1\n"), 0);
    EXPECT_EQ(o.port, 2);
    EXPECT_EQ(o.threads, 3);
    EXPECT_EQ(o.ctx_size, 1);
    options_clear(&o);
    EXPECT_EQ(read_args(&o, &e, env, "--port", "4"), 0);
    EXPECT_EQ(o.port, 4);
    options_clear(&o);
}

static void flags_may_be_written_in_every_usual_way(void)
{
    struct options o;
    struct err e;

    EXPECT_EQ(read_args(&o, &e, NULL, "--max-body=64K", "--strict-model"), 0);
    EXPECT_EQ(o.max_body, 65536);
    EXPECT(o.strict_model);
    options_clear(&o);
    EXPECT_EQ(read_args(&o, &e, NULL, "-c", "77"), 0);
    EXPECT_EQ(o.ctx_size, 77);
    options_clear(&o);
}

static void bad_flags_are_named(void)
{
    static const struct {
        const char *a, *b, *says;
    } rows[] = {
        { "--prot", "1", "unknown flag --prot; did you mean --port?" },
        { "--kv-byte", "1", "unknown flag --kv-byte; did you mean --kv-bytes?" },
        { "--versoin", NULL, "unknown flag --versoin; did you mean --version?" },
        { "--colour", "1", "unknown flag --colour; see --help" },
        { "--kv-type", "q8_O",
            "--kv-type: 'q8_O' is not one of f16|bf16|q8_0; did you mean q8_0?" },
        { "--pack", "flie", "--pack: 'flie' is not one of off|ram|file; did you mean file?" },
        { "--port", NULL, "--port needs a value" },
        { "--port", "99999", "--port: 99999 is not in 0..65535" },
        { "--port", "eight", "--port: 'eight' is not a number" },
        { "--kernels", "sse", "--kernels: 'sse' is not one of auto|ref|avx2|avxvnni|avx512|amx" },
        { "--strict-model=perhaps", NULL, "--strict-model: 'perhaps' is neither true nor false" },
        { "--max-body", "9999999999999999999T",
            "--max-body: '9999999999999999999T' is not a size (like 4096, 512M or 2G)" },
        { "model.gguf", NULL, "'model.gguf' is not a flag; see --help" },
    };
    struct options o;
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        EXPECT_EQ(read_args(&o, &e, NULL, rows[i].a, rows[i].b), -1);
        EXPECT_STR(e.msg, rows[i].says);
        options_clear(&o);
    }
}

static int read_variable(struct options *o, struct err *e, const char *variable)
{
    char *env[] = { (char *)(uintptr_t)variable, NULL };
    int rc = read_args(o, e, env, NULL, NULL);

    options_clear(o);
    return rc;
}

static void unknown_variables_are_errors(void)
{
    static const struct {
        const char *variable, *says;
    } bad[] = {
        { "INFERFLUX_PROT=1",
            "unknown environment variable INFERFLUX_PROT; did you mean INFERFLUX_PORT?" },
        { "INFERFLUX_KV_BYTE=", "unknown environment variable INFERFLUX_KV_BYTE; did you mean "
                                "INFERFLUX_KV_BYTES?" },
        { "INFERFLUX_COLOUR=1", "unknown environment variable INFERFLUX_COLOUR" },
        { "INFERFLUX_LOG_LEVEL=inof", "INFERFLUX_LOG_LEVEL: 'inof' is not one of "
                                      "error|warn|info|debug; did you mean info?" },
        { "INFERFLUX_PORT=tcp", "INFERFLUX_PORT: 'tcp' is not a number" },
    };
    static const char *const good[] = { "PORT=x", "INFERFLUX=1", "INFERFLUX_URL=http://x",
        "INFERFLUX_API_KEY=x", "INFERFLUX_PORT=", "INFERFLUX_SERVICE_HOST=10.0.0.1",
        "INFERFLUX_SERVICE_PORT=80", "INFERFLUX_SERVICE_PORT_HTTP=80",
        "INFERFLUX_PORT=tcp://10.0.0.1:80", "INFERFLUX_PORT_80_TCP=tcp://10.0.0.1:80",
        "INFERFLUX_PORT_80_TCP_ADDR=10.0.0.1", "INFERFLUX_WEB_UI_SERVICE_HOST=10.0.0.1",
        "INFERFLUX_FAIRNESS_MAX_TIMESLICE=3" };
    struct options o;
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        EXPECT_EQ(read_variable(&o, &e, bad[i].variable), -1);
        EXPECT_STR(e.msg, bad[i].says);
    }
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        EXPECT_EQ(read_variable(&o, &e, good[i]), 0);
}

static void a_bad_file_is_an_error_with_its_line(void)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        { "server:\n  prot: 1\n",
            ":2: server.prot: unknown key 'server.prot'; did you mean server.port?" },
        { "server:\n  ctx_size: 1\n",
            ":2: server.ctx_size: unknown key 'server.ctx_size'; did you mean runtime.ctx_size?" },
        { "port: 1\n", ":1: port: unknown key 'port'; did you mean server.port?" },
        { "module: 1\n", ":1: module: unknown key 'module'" },
        { "models:\n  - id: a\n    path: x\n    backend: natve\n",
            ":2: model 'a': backend 'natve' is not one of native|script; did you mean native?" },
        { "server:\n  port: many\n", ":2: server.port: 'many' is not a number" },
        { "a: &x 1\nb: *x\n", ":1: anchors and aliases are not supported" },
        { "- 1\n", ":1: the file must be a mapping of settings" },
        { "server: [1]\n", ":1: a list is not expected here" },
        { "server:\n  port: 1\n port: 2\n", ":3: " },
        { "models:\n  - path: x\n", ":2: a model needs an `id`" },
        { "models:\n  - id: a\n", ":2: model 'a' needs a `path`" },
        { "models:\n  - id: a\n    path: x\n    backend: gpu\n",
            ":2: model 'a': backend 'gpu' is not one of native|script" },
        { "models:\n  - id: a\n    path: x\n  - id: a\n    path: y\n",
            ":4: model id 'a' is already used in line 2" },
        { "models:\n  - id: a\n    pth: x\n",
            ":3: unknown key 'models[].pth'; did you mean path?" },
        { "models: 3\n", ":1: models: unknown key 'models'" },
    };
    struct options o;
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        EXPECT_EQ(read_file(&o, &e, NULL, rows[i].text), -1);
        if (!strstr(e.msg, rows[i].says))
            EXPECT_STR(e.msg, rows[i].says);
        options_clear(&o);
    }
}

static void hostile_files_are_rejected_early(void)
{
    struct options o;
    struct err e;
    char deep[4000] = "";

    for (int i = 0; i < 40; i++) {
        size_t n = strlen(deep);
        snprintf(deep + n, sizeof(deep) - n, "%*sa:\n", i, "");
    }
    EXPECT_EQ(read_file(&o, &e, NULL, deep), -1);
    options_clear(&o);
    EXPECT_EQ(read_args(&o, &e, NULL, "--config", "/dev/zero"), -1);
    options_clear(&o);
    EXPECT_EQ(read_args(&o, &e, NULL, "--config", "/nonexistent.yaml"), -1);
    EXPECT_STR(e.msg, "/nonexistent.yaml: No such file or directory");
    options_clear(&o);
}

static void models_are_a_list_of_entries(void)
{
    struct options o;
    struct err e;

    EXPECT_EQ(read_file(&o, &e, NULL,
                  "models:\n  - {id: a, path: x, ctx_size: 12, draft: z}\n  - id: b\n    path: y\n"
                  "    backend: script\n    family: chatml\nserver:\n  port: 9\n"),
        0);
    EXPECT_EQ(o.n_models, 2);
    EXPECT_STR(o.models[0].id, "a");
    EXPECT_EQ(o.models[0].ctx_size, 12);
    EXPECT_STR(o.models[0].draft, "z");
    EXPECT_STR(o.models[1].draft, "");
    EXPECT_STR(o.models[1].backend, "script");
    EXPECT_STR(o.models[1].family, "chatml");
    EXPECT_EQ(o.port, 9);
    options_clear(&o);
}

static void speculative_options_have_the_names_of_other_servers(void)
{
    struct options o;
    struct err e;

    EXPECT_EQ(read_args(&o, &e, NULL, "-md", "small.gguf"), 0);
    EXPECT_STR(o.model_draft, "small.gguf");
    EXPECT_STR(o.spec, "auto");
    EXPECT_EQ(o.draft_max, 16);
    EXPECT_EQ(o.draft_min, 0);
    options_clear(&o);
    EXPECT_EQ(read_args(&o, &e, NULL, "--spec", "draft"), 0);
    EXPECT_STR(o.spec, "draft");
    options_clear(&o);
    EXPECT_EQ(read_args(&o, &e, NULL, "--draft-max", "65"), -1);
    options_clear(&o);
}

static void options_have_aliases(void)
{
    struct options o;
    struct err e;

    EXPECT_EQ(read_file(&o, &e, NULL,
                  "runtime:\n  fairness:\n    max_timeslice_tokens: 8\n"
                  "    high_priority_threshold: -2\n    enable_preemption: true\n"),
        0);
    EXPECT_EQ(o.fairness_slice, 8);
    EXPECT_EQ(o.fairness_high, -2);
    EXPECT(o.fairness_preempt);
    options_clear(&o);
    EXPECT_EQ(read_file(&o, &e, NULL, "runtime:\n  fairness:\n    max: 8\n"), -1);
    options_clear(&o);
}

static void help_has_at_most_two_lines_per_flag_and_each_group_once(void)
{
    static const char indent[] = "                            ";
    struct buf b;
    struct str rest;
    int n_lines = 0, n_flags = 0, n_model_groups = 0;

    buf_init(&b, MB);
    options_help(&b);
    for (rest = buf_str(&b); rest.n;) {
        ptrdiff_t end = str_find(rest, STR("\n"));
        struct str line = { rest.p, end < 0 ? rest.n : (size_t)end };
        rest = str_skip(rest, MIN(line.n + 1, rest.n));
        EXPECT(line.n <= 110);
        EXPECT(!line.n || line.p[line.n - 1] != ' ');
        bool has_text = line.n > sizeof(indent) - 1 && line.p[sizeof(indent) - 2] == ' ';
        n_lines = str_starts(line, str_of(indent)) ? n_lines + 1 : has_text;
        n_flags += str_starts(line, STR("  --"));
        n_model_groups += str_is(line, "model:");
        EXPECT(n_lines <= 2);
    }
    EXPECT(n_flags > 50);
    EXPECT_EQ(n_model_groups, 1);
    buf_clear(&b);
}

TESTS(TEST(help_has_at_most_two_lines_per_flag_and_each_group_once),
    TEST(defaults_are_those_of_the_table),
    TEST(a_flag_wins_over_the_environment_and_that_over_the_file),
    TEST(flags_may_be_written_in_every_usual_way), TEST(bad_flags_are_named),
    TEST(unknown_variables_are_errors), TEST(a_bad_file_is_an_error_with_its_line),
    TEST(hostile_files_are_rejected_early), TEST(models_are_a_list_of_entries),
    TEST(speculative_options_have_the_names_of_other_servers), TEST(options_have_aliases))
