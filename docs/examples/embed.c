/* embed.c: embeds a model in a program: sends one question, prints the response as it is generated.
 *
 *     cc embed.c $(pkg-config --cflags --libs inferflux) -o embed
 *     ./embed model.gguf "What is InferFlux?"
 *
 * A response of more than 2,000 bytes is cancelled, as an example of inferflux_cancel(). */
#include <inferflux.h>

#include <stdio.h>

struct reader {
    inferflux_request *request;
    size_t shown;
    int status;
};

static void on_event(void *user, const inferflux_event *event)
{
    struct reader *me = user;

    if (event->kind == INFERFLUX_TEXT) {
        fwrite(event->text, 1, event->n_text, stdout);
        fflush(stdout);
        me->shown += event->n_text;
        if (me->shown > 2000 && me->request)
            inferflux_cancel(me->request);
        return;
    }
    printf("\n");
    if (event->finish == INFERFLUX_ERROR) {
        fprintf(stderr, "embed: %s\n", event->error);
        me->status = 1;
    }
    fprintf(stderr, "%d prompt tokens, %d completion tokens\n", event->prompt_tokens,
        event->completion_tokens);
}

int main(int argc, char **argv)
{
    inferflux *model;
    char why[256];
    struct reader me = { 0 };

    if (argc != 3) {
        fprintf(stderr, "usage: embed MODEL.gguf QUESTION\n");
        return 2;
    }
    if (inferflux_open(&model, argv[1], NULL, why, sizeof(why))) {
        fprintf(stderr, "embed: %s\n", why);
        return 1;
    }
    inferflux_message question = { .role = "user", .content = argv[2] };
    inferflux_params params = { .messages = &question, .n_messages = 1, .max_tokens = 128 };
    me.request = inferflux_submit(model, &params, on_event, &me, why, sizeof(why));
    if (!me.request) {
        fprintf(stderr, "embed: %s\n", why);
        me.status = 1;
    }
    inferflux_release(me.request);
    inferflux_close(model);
    return me.status;
}
