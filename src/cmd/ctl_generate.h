/* ctl_generate.h: generates text on the server and prints it as it arrives; shared by the commands
 * completion and chat. One thread. */
#pragma once

#include "cmd/ctl.h"

struct ctl_generate_params { /* request parameters; < 0 = default of the server */
    double temperature, top_p;
    int64_t max_tokens, seed;
    bool no_stream;
};

extern const struct ctl_generate_params ctl_generate_params_default;

/* Option names for ctl_next, and a function that reads option i of them: 0, or -1 after it has
 * printed an error. */
enum { CTL_GENERATE_N_OPTIONS = 5 };
extern const char *const ctl_generate_options[CTL_GENERATE_N_OPTIONS];
int ctl_generate_option(struct ctl_generate_params *p, int i, const char *value);
extern const char ctl_generate_help[];

void ctl_generate_put_params(
    struct jw *w, const struct ctl *c, const struct ctl_generate_params *p);

/* Posts `body`, prints the text (with --json the raw response) and appends it to *text, which may
 * be NULL. Ctrl-C stops the response; the status is then EXIT_OK. */
int ctl_generate(
    struct ctl *c, const char *path, const struct buf *body, bool stream, struct buf *text);

/* After this call Ctrl-C sets a flag instead of ending the program; ctl_generate() clears the
 * flag. */
void ctl_generate_catch_interrupt(void);
bool ctl_generate_was_interrupted(void);
