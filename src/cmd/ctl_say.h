/* ctl_say.h: asking for text and printing it as it comes: what completion and chat share. */
#pragma once

#include "cmd/ctl.h"

struct say_params { /* of the request; < 0 = leave it to the server */
    double temperature, top_p;
    int64_t max_tokens, seed;
    bool no_stream;
};

extern const struct say_params say_params_default;

/* Names for ctl_next, and what to do with option i of them. -1 after saying what is wrong. */
enum { SAY_N_OPTIONS = 5 };
extern const char *const say_options[SAY_N_OPTIONS];
int say_option(struct say_params *p, int i, const char *value);
extern const char say_help[];

void say_put_params(struct jw *w, const struct ctl *c, const struct say_params *p);

/* Posts `body`, prints the text (or with --json the raw answer) and gathers it in *text, which may
 * be NULL. Ctrl-C stops the answer: then *interrupted is set and the status is EXIT_OK. */
int say(struct ctl *c, const char *path, const struct buf *body, bool stream, struct buf *text);

/* Ctrl-C from now on sets a flag instead of ending the program; say() clears it. */
void say_catch_interrupt(void);
bool say_interrupted(void);
