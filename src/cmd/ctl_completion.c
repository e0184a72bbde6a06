/* ctl_completion.c: `inferctl completion`: continues a text. */
#include "cmd/ctl_generate.h"

#include <stdio.h>

enum { PROMPT_MAX = 16 * 1024 * 1024 };

static void print_help(void)
{
    ctl_printf("usage: inferctl completion [options] [PROMPT]\n\n"
               "Continues PROMPT, or standard input without PROMPT.\n\n%s"
               "  --echo            also print the prompt\n",
        ctl_generate_help);
}

int ctl_completion(struct ctl *c, int argc, char **argv)
{
    static const char *const names[] = {
        "temperature=", "top-p=", "max-tokens=", "seed=", "no-stream", "json", "help", "echo"
    };
    struct ctl_args a = { .argc = argc, .argv = argv };
    struct ctl_generate_params p = ctl_generate_params_default;
    const char *prompt = NULL;
    bool echo = false;
    struct buf in = { 0 }, body;
    struct jw w;

    for (int i; (i = ctl_next(&a, names, ARRAY_LEN(names))) != -1;) {
        if (i == -3 ||
            (i >= 0 && i < CTL_GENERATE_N_OPTIONS && ctl_generate_option(&p, i, a.value)))
            return EXIT_USAGE;
        if (i == -2 && prompt)
            return ctl_usage("completion: one prompt; quote it if it has blanks");
        if (i == -2)
            prompt = a.value;
        else if (i == 5)
            c->as_json = true;
        else if (i == 7)
            echo = true;
        else if (i == 6) {
            print_help();
            return EXIT_OK;
        }
    }
    if (!prompt && ctl_read_stdin(&in, PROMPT_MAX))
        return ctl_fail("completion: standard input is larger than 16 MiB");
    if (p.max_tokens < 0)
        p.max_tokens = 256;
    buf_init(&body, 4 * (size_t)PROMPT_MAX);
    jw_init(&w, &body);
    jw_object(&w);
    jw_key(&w, "prompt"), jw_str(&w, prompt ? str_of(prompt) : buf_str(&in));
    if (echo)
        jw_key(&w, "echo"), jw_bool(&w, true);
    ctl_generate_put_params(&w, c, &p);
    jw_end_object(&w);
    ctl_generate_catch_interrupt();
    int rc = ctl_generate(c, "/v1/completions", &body, !p.no_stream, NULL);
    buf_clear(&body);
    buf_clear(&in);
    return rc;
}
