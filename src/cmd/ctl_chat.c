/* ctl_chat.c: `inferctl chat`: a conversation at a terminal, or a single response for a pipe.
 *
 * At the terminal a line is a message; a line that ends in a backslash continues in the next one,
 * and three quotes start and end a block. Ctrl-C stops the response, not the program. */
#include "base/mem.h"
#include "cmd/ctl_generate.h"

#include <histedit.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { INPUT_MAX = 16 * 1024 * 1024, HISTORY_LINES = 1000 };

struct turn {
    const char *role;
    struct str text; /* owned */
};

struct chat {
    struct ctl *c;
    struct ctl_generate_params p;
    struct turn *turns;
    int n, cap;
    const char *system; /* NULL = none */
    EditLine *el;
    History *history;
    char history_path[1024];
};

static void add_turn(struct chat *t, const char *role, struct str take)
{
    if (t->n == t->cap) {
        t->cap = MAX(2 * t->cap, 16);
        t->turns = xrealloc(t->turns, sizeof(*t->turns) * (size_t)t->cap);
    }
    t->turns[t->n++] = (struct turn){ role, take };
}

static void drop_turns(struct chat *t, int keep)
{
    while (t->n > keep)
        mem_free((void *)(uintptr_t)t->turns[--t->n].text.p);
}

static void put_turn(struct jw *w, const char *role, struct str text)
{
    jw_object(w);
    jw_key(w, "role"), jw_z(w, role);
    jw_key(w, "content"), jw_str(w, text);
    jw_end_object(w);
}

/* Sends the conversation and adds the response to it. */
static int send_conversation(struct chat *t)
{
    struct buf body, response;
    struct jw w;

    buf_init(&body, 8 * (size_t)INPUT_MAX);
    buf_init(&response, INPUT_MAX);
    jw_init(&w, &body);
    jw_object(&w);
    jw_key(&w, "messages"), jw_array(&w);
    if (t->system)
        put_turn(&w, "system", str_of(t->system));
    for (int i = 0; i < t->n; i++)
        put_turn(&w, t->turns[i].role, t->turns[i].text);
    jw_end_array(&w);
    ctl_generate_put_params(&w, t->c, &t->p);
    jw_end_object(&w);
    int rc = ctl_generate(t->c, "/v1/chat/completions", &body, !t->p.no_stream, &response);
    if (rc == EXIT_OK && response.n)
        add_turn(t, "assistant", buf_steal(&response));
    else
        drop_turns(t, t->n - 1); /* no response: the message can be sent again */
    buf_clear(&response);
    buf_clear(&body);
    return rc;
}

/* ---- terminal */

static const char *prompt_text(EditLine *el)
{
    bool *is_more;

    el_get(el, EL_CLIENTDATA, &is_more);
    return *is_more ? ". " : "> ";
}

/* Returns a line without its newline, in a buffer of the editor; NULL at the end or after
 * Ctrl-C. */
static const char *read_line(struct chat *t, int *n)
{
    ctl_generate_was_interrupted(); /* drops a Ctrl-C that came after the last response */
    const char *line = el_gets(t->el, n);

    if (!line || *n <= 0)
        return NULL;
    if (line[*n - 1] == '\n')
        --*n;
    return line;
}

/* Reads a message: a line, lines joined by backslashes, or a block in triple quotes. False at the
 * end. */
static bool read_message(struct chat *t, struct buf *out)
{
    bool is_more = false, in_block = false;

    el_set(t->el, EL_CLIENTDATA, &is_more);
    buf_reset(out);
    for (;;) {
        int n;
        const char *line = read_line(t, &n);
        if (!line && ctl_generate_was_interrupted()) {
            ctl_put(STR("^C  (/quit or Ctrl-D ends the program)\n"));
            buf_reset(out);
            is_more = in_block = false;
            continue;
        }
        if (!line)
            return false;
        struct str s = { line, (size_t)n };
        if (str_is(str_trim(s), "\"\"\"")) {
            in_block = is_more = !in_block;
            if (!in_block)
                return true;
            continue;
        }
        bool continues = !in_block && str_ends(s, STR("\\"));
        if (is_more)
            buf_putc(out, '\n');
        if (in_block && !out->n && s.n == 0)
            continue;
        buf_put(out, s.p, s.n - (continues ? 1 : 0));
        is_more = continues || in_block;
        if (!is_more)
            return buf_ok(out);
    }
}

static void print_commands(void)
{
    ctl_put(
        STR("/help              print this list\n"
            "/clear             delete the conversation\n"
            "/system TEXT       set the system prompt; without TEXT, remove it\n"
            "/again             generate the last response again\n"
            "/history           print the conversation\n"
            "/quit              end the program, like Ctrl-D\n"
            "A line that ends in \\ continues in the next line; \"\"\" starts and ends a block.\n"
            "Ctrl-C stops a response.\n"));
}

/* Runs a command, which is a line that starts with a slash. False = end the program. */
static bool run_command(struct chat *t, struct str line)
{
    if (str_is(line, "/quit") || str_is(line, "/exit"))
        return false;
    if (str_is(line, "/clear")) {
        drop_turns(t, 0);
        ctl_put(STR("(deleted)\n"));
    } else if (str_starts(line, STR("/system"))) {
        struct str text = str_trim(str_skip(line, strlen("/system")));
        char *copy = xmalloc(text.n + 1);
        memcpy(copy, text.p, text.n);
        copy[text.n] = '\0';
        t->system = text.n ? copy : NULL;
        ctl_put(text.n ? STR("(set)\n") : STR("(none)\n"));
    } else if (str_is(line, "/again") && t->n >= 2) {
        drop_turns(t, t->n - 1);
        send_conversation(t);
    } else if (str_is(line, "/history")) {
        for (int i = 0; i < t->n; i++)
            ctl_printf("%s: " STR_FMT "\n", t->turns[i].role, STR_ARG(t->turns[i].text));
    } else {
        print_commands();
    }
    return true;
}

static void open_editor(struct chat *t)
{
    HistEvent ev;
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");

    t->el = el_init("inferctl", stdin, stdout, stderr);
    t->history = history_init();
    CHECK(t->el && t->history);
    history(t->history, &ev, H_SETSIZE, HISTORY_LINES);
    el_set(t->el, EL_PROMPT, prompt_text);
    el_set(t->el, EL_EDITOR, "emacs");
    el_set(t->el, EL_SIGNAL, 0);
    el_set(t->el, EL_HIST, history, t->history);
    el_source(t->el, NULL);
    if (state && *state)
        snprintf(t->history_path, sizeof(t->history_path), "%s/inferctl_history", state);
    else if (home && *home)
        snprintf(t->history_path, sizeof(t->history_path), "%s/.inferctl_history", home);
    if (*t->history_path)
        history(t->history, &ev, H_LOAD, t->history_path);
}

static void close_editor(struct chat *t)
{
    HistEvent ev;

    if (*t->history_path) {
        mode_t old = umask(077); /* the file contains the conversation: private */
        history(t->history, &ev, H_SAVE, t->history_path);
        umask(old);
    }
    history_end(t->history);
    el_end(t->el);
}

static int run_interactive(struct chat *t)
{
    struct buf message;
    HistEvent ev;

    buf_init(&message, INPUT_MAX);
    open_editor(t);
    ctl_generate_catch_interrupt();
    ctl_printf("%s  -  /help lists commands, Ctrl-C stops a response, Ctrl-D ends\n", t->c->url);
    while (read_message(t, &message)) {
        struct str s = str_trim(buf_str(&message));
        if (!s.n)
            continue;
        buf_putc(&message, '\0');
        history(t->history, &ev, H_ENTER, message.p);
        message.n--;
        if (s.p[0] == '/') {
            if (!run_command(t, s))
                break;
            continue;
        }
        add_turn(t, "user", buf_steal(&message));
        send_conversation(t); /* has printed its error, if any; the conversation continues */
    }
    ctl_put(STR("\n"));
    close_editor(t);
    buf_clear(&message);
    return EXIT_OK;
}

/* ---- single response */

static int run_single(struct chat *t, const char *message)
{
    struct buf in = { 0 }, all;

    buf_init(&all, INPUT_MAX);
    if (message)
        buf_putz(&all, message);
    if (!isatty(STDIN_FILENO)) {
        if (ctl_read_stdin(&in, INPUT_MAX))
            return ctl_fail("chat: standard input is larger than 16 MiB");
        if (message && in.n)
            buf_putz(&all, "\n\n");
        buf_puts(&all, buf_str(&in));
    }
    buf_clear(&in);
    if (!buf_ok(&all) || !str_trim(buf_str(&all)).n) {
        buf_clear(&all);
        return ctl_usage("chat: the message is empty");
    }
    ctl_generate_catch_interrupt();
    add_turn(t, "user", buf_steal(&all));
    return send_conversation(t);
}

static void print_help(void)
{
    ctl_printf(
        "usage: inferctl chat [options] [MESSAGE]\n\n"
        "Without MESSAGE at a terminal: an interactive conversation. With MESSAGE or a pipe: one\n"
        "response (text from a pipe is appended to MESSAGE).\n\n"
        "  --system TEXT     system prompt\n%s",
        ctl_generate_help);
}

int ctl_chat(struct ctl *c, int argc, char **argv)
{
    static const char *const names[] = {
        "temperature=", "top-p=", "max-tokens=", "seed=", "no-stream", "json", "help", "system="
    };
    struct ctl_args a = { .argc = argc, .argv = argv };
    struct chat t = { .c = c, .p = ctl_generate_params_default };
    const char *message = NULL;

    for (int i; (i = ctl_next(&a, names, ARRAY_LEN(names))) != -1;) {
        if (i == -3 ||
            (i >= 0 && i < CTL_GENERATE_N_OPTIONS && ctl_generate_option(&t.p, i, a.value)))
            return EXIT_USAGE;
        if (i == -2 && message)
            return ctl_usage("chat: one message; quote it if it has blanks");
        if (i == -2)
            message = a.value;
        else if (i == 5)
            c->as_json = true;
        else if (i == 7)
            t.system = a.value;
        else if (i == 6) {
            print_help();
            return EXIT_OK;
        }
    }
    int rc = message || !isatty(STDIN_FILENO) ? run_single(&t, message) : run_interactive(&t);
    drop_turns(&t, 0);
    mem_free(t.turns);
    return rc;
}
