/* responses.h: the pieces of the OpenAI Responses wire that its files share. Source of the formats:
 * the public types of the official client libraries.
 *
 * Ids tell where they belong, so that one can be found without a table of its own:
 *
 *     resp_HEX         an answer
 *     msg_HEX_2        its third item: msg_ rs_ fc_
 *     msg_HEX_i0       the first item of what was asked, where the client gave it no id
 *
 * An answer may go on from one that is kept (ask.previous_id), and its input may refer to items of
 * kept answers. The parser knows no shelf: it sets ask.needs_shelf, and whoever has one calls
 * responses_recall before the conversation is used. */
#pragma once

#include "api/common/fields.h"
#include "api/common/wire.h"

enum { RESPONSES_ID_MAX = 128 };

/* responses_request.c */
int responses_parse(struct ask *ask, const struct json *body, struct arena *a, struct err *e);

/* What is kept, as it was told: an answer's object and the list of items that it was asked with. */
struct responses_kept {
    struct str answer, input;
};

struct responses_shelf { /* every text must live as long as the arena of the request */
    void *ctx;
    /* The answer with this id: true when there is one. */
    bool (*find)(void *ctx, struct str id, struct responses_kept *out);
};

/* The conversation again: everything before it (n kept answers, the oldest first), then the input,
 * with the items that it refers to. ERR_NOT_FOUND names an item that is not there, ERR_CORRUPT
 * what is kept and is not what it was, ERR_MEMORY. */
int responses_recall(struct ask *ask, const struct responses_kept *before, size_t n,
    const struct responses_shelf *shelf, struct arena *a, struct err *e);

/* responses_items.c: kept lists of items, then the input (an array, or a string for one message)
 * -> f->ask->convo; the input's own items, in the places of those that stand for them, become
 * ask->items. */
struct items_ask {
    const struct json *const *before;
    size_t n_before;
    const struct json *input, *instructions; /* instructions NULL: none */
    const struct responses_shelf *shelf;     /* NULL: none; see responses_resolve */
};
int responses_read_items(struct fields *f, const struct items_ask *want);

/* responses_refs.c: item references in `list` (a string or an array, called `name`) are replaced by
 * the items they name. Without a shelf they stay, and ask.needs_shelf is set. Time and memory are
 * linear in the list and in what is kept of whom it names. */
int responses_resolve(struct fields *f, const char *name, const struct json *list,
    const struct responses_shelf *shelf, const struct json **out);
bool responses_is_reference(const struct json *item);
/* "msg_HEX_2" -> "resp_HEX" in `out`; false: it is no id of ours. */
bool responses_id_of_item(struct str item, char out[RESPONSES_ID_MAX]);

/* responses_tools.c -> f->ask, for tools_settle */
int responses_read_tools(struct fields *f, const struct json *v);
int responses_read_tool_choice(struct fields *f, const struct json *v);

/* responses_object.c */
struct responses_told { /* an answer as its items are told; see responses_response.c */
    const char *status; /* "queued", "in_progress", ... */
    struct str items;   /* JSON, with commas */
    const struct err *err;
};
void responses_put_object(struct jw *w, const struct answer *a, const struct responses_told *t);
/* An object that says "queued", with another status. For those of which there is nothing more. */
void responses_restate(struct buf *out, struct str object, const char *status, const struct err *e);
/* The last event of a stream, number n, that such an object ends. */
void responses_put_failed(struct buf *out, struct str object, uint64_t n);
/* The items that were asked, as GET .../input_items lists them: an array. */
void responses_put_input(struct jw *w, const struct answer *a);

/* A page of that list. `after` is an id that it begins behind, or STR_NONE. */
struct responses_page {
    struct str after;
    size_t limit; /* >= 1 */
    bool is_ascending;
};
int responses_list_input(struct buf *out, struct str input, const struct responses_page *page,
    struct arena *a, struct err *e);

/* {"id","object":"response","deleted":true} */
void responses_deleted(struct buf *out, struct str id);
/* {"object":"response.input_tokens","input_tokens":n} */
void responses_count(struct buf *out, int n);
