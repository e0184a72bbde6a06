/* ctl_generate.h: generates text on the server and prints it as it arrives; shared by the commands
 * completion and chat. One thread. */
#pragma once

#include "cmd/ctl.h"

struct say_params { /* request parameters; < 0 = default of the server */
    double temperature, top_p;
    int64_t max_tokens, seed;
    bool no_stream;
};

extern const struct say_params say_params_default;

/* Option names for ctl_next, and a function that reads option i of them: 0, or -1 after it has
 * printed an error. */
enum { SAY_N_OPTIONS = 5 };
extern const char *const say_options[SAY_N_OPTIONS];
int say_option(struct say_params *p, int i, const char *value);
extern const char say_help[];

void say_put_params(struct jw *w, const struct ctl *c, const struct say_params *p);

/* Posts `body`, prints the text (with --json the raw response) and appends it to *text, which may
 * be NULL. Ctrl-C stops the response; the status is then EXIT_OK. */
int say(struct ctl *c, const char *path, const struct buf *body, bool stream, struct buf *text);

/* After this call Ctrl-C sets a flag instead of ending the program; ctl_generate() clears the
 * flag. */
void say_catch_interrupt(void);
bool say_interrupted(void);
