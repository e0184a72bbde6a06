/* inferctl_main.c: main function of inferctl, the client and administration program. Exit status:
 * 0, 1 on failure (with a message), 2 on a usage error. */
#include "cmd/ctl.h"
#include "base/mem.h"

#include <curl/curl.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const struct command commands[] = {
    { "status", "", "state of the server and its requests", ctl_status },
    { "models", "", "models of the server", ctl_models },
    { "cancel", "ID...", "cancel requests by their x-request-id", ctl_cancel },
    { "completion", "[PROMPT]", "continue a text (PROMPT or standard input)", ctl_completion },
    { "chat", "[MESSAGE]", "chat: interactive, or one response to MESSAGE or a pipe", ctl_chat },
    { "inspect", "FILE.gguf", "contents of a model file", ctl_inspect },
    { "probe", "FILE.gguf|NAME", "detect the capabilities of a model, for the server", ctl_probe },
    { "admin", "OBJECT ACTION ...", "administration: audit, api-keys", ctl_admin },
    { "bench", "FILE.gguf", "measure the speed of a model on this machine", ctl_bench },
    { "constrain", "COMMAND FILE...", "schemas and grammars: check texts, samples, benchmark",
        ctl_constrain },
    { "replay", "TRACE.csv", "latencies for a trace of request arrivals", ctl_replay },
};

static void print_help(void (*print)(const char *fmt, ...))
{
    print("usage: inferctl [--url URL] [--api-key KEY] [--model NAME] [--json] COMMAND ...\n\n");
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        char left[48];
        snprintf(left, sizeof(left), "%s %s", commands[i].name, commands[i].arguments);
        print("  %-24s %s\n", left, commands[i].help);
    }
    print("\n  --url URL       base URL of the server (INFERFLUX_URL) [http://127.0.0.1:8080]\n"
          "  --api-key KEY   API key (INFERFLUX_API_KEY)\n"
          "  --model NAME    model name; needed if the server has several\n"
          "  --json          machine-readable output\n"
          "  --help, --version\n\n"
          "`inferctl COMMAND --help` prints details. Exit status: 0 done, 1 failed, 2 usage.\n");
}

static const char *from_environment(const char *name, const char *default_value)
{
    const char *value = getenv(name);
    return value && *value ? value : default_value;
}

/* Copies a secret value out of an argument and removes it there, since all users of the machine can
 * read the arguments of a process. */
static void hide_key(struct ctl *c, char *arg, const char *value)
{
    mem_free(c->hidden_key);
    c->api_key = c->hidden_key = xstrdup(value);
    memset(arg + (value - arg), 0, strlen(value));
}

/* Reads the options before the command. Returns the index of the command, or -1 - status. */
static int read_options(struct ctl *c, int argc, char **argv)
{
    static const char *const names[] = { "url=", "api-key=", "model=", "json", "help", "version" };
    struct ctl_args a = { .argc = argc, .argv = argv };

    for (;;) {
        switch (ctl_next(&a, names, ARRAY_LEN(names))) {
        case 0:
            c->url = a.value;
            break;
        case 1:
            hide_key(c, argv[a.at], a.value);
            break;
        case 2:
            c->model = a.value;
            break;
        case 3:
            c->as_json = true;
            break;
        case 4:
            print_help(ctl_printf);
            return -1 - EXIT_OK;
        case 5:
            ctl_printf("inferctl %s\n", INFERFLUX_VERSION);
            return -1 - EXIT_OK;
        case -2:
            return a.at;
        case -1:
            print_help(ctl_warn);
            return -1 - EXIT_USAGE;
        default:
            return -1 - EXIT_USAGE;
        }
    }
}

static int run_command(struct ctl *c, int argc, char **argv)
{
    char url[1024];
    int at = read_options(c, argc, argv);

    if (at < 0)
        return -1 - at;
    snprintf(url, sizeof(url), "%s", c->url);
    if (*url && url[strlen(url) - 1] == '/')
        url[strlen(url) - 1] = '\0';
    c->url = url;
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        if (!strcmp(argv[at], commands[i].name)) {
            curl_global_init(CURL_GLOBAL_DEFAULT);
            int status = commands[i].run(c, argc - at, argv + at);
            curl_global_cleanup();
            return status;
        }
    return ctl_usage("unknown command '%s'; see inferctl --help", argv[at]);
}

int main(int argc, char **argv)
{
    struct ctl c = { .url = from_environment("INFERFLUX_URL", "http://127.0.0.1:8080"),
        .api_key = from_environment("INFERFLUX_API_KEY", ""),
        .model = "" };

    setlocale(LC_CTYPE, "");
    signal(SIGPIPE, SIG_IGN);
    int status = run_command(&c, argc, argv);
    mem_free(c.hidden_key);
    return status;
}
