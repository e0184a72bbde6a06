/* responses.h: internal interface of the OpenAI Responses dialect. Source of the formats: the
 * public types of the official client libraries.
 *
 * An id contains the id of its response, so that a stored item is found without an index:
 *
 *     resp_HEX         a response
 *     msg_HEX_2        its third output item: msg_ rs_ fc_
 *     msg_HEX_i0       its first input item, if the client gave it no id
 *
 * A response can continue a stored one (request.previous_id), and its input can refer to items of
 * stored responses. The parser has no access to the response store: it sets
 * request.needs_response_store, and the server calls responses_load_history before the conversation
 * is used.
 *
 * Owner: parsers and functions on stored JSON run on any thread; functions on a response run on its
 * io thread. */
#pragma once

#include "api/common/fields.h"
#include "api/common/dialect.h"

enum { RESPONSES_ID_MAX = 128 };

/* responses_request.c */
int responses_parse(
    struct request *request, const struct json *body, struct arena *a, struct err *e);

/* A stored response as JSON: the response object and the array of its input items. */
struct responses_stored {
    struct str response, input;
};

/* lookup in the response store; each text lives as long as the request's arena */
struct responses_lookup {
    void *ctx;
    /* True if a response with this id is stored. */
    bool (*find)(void *ctx, struct str id, struct responses_stored *out);
};

/* Rebuilds the conversation: the n stored responses before it, oldest first, then the input, in
 * which references are replaced by their items. ERR_NOT_FOUND names a missing item; ERR_CORRUPT: a
 * stored response is not valid; ERR_MEMORY. */
int responses_load_history(struct request *request, const struct responses_stored *before, size_t n,
    const struct responses_lookup *lookup, struct arena *a, struct err *e);

/* responses_items.c: stored item lists, then the input (an array, or a string for one message) ->
 * f->request->convo. The input's own items, with references replaced, become request->items. */
struct items_source {
    const struct json *const *before;
    size_t n_before;
    const struct json *input, *instructions; /* instructions NULL: none */
    const struct responses_lookup *lookup;   /* NULL: none; see responses_resolve */
};
int responses_read_items(struct fields *f, const struct items_source *want);

/* responses_refs.c: replaces item references in `list` (a string or an array, called `name`) by the
 * items. Without a store they remain, and request.needs_response_store is set. Time and memory are
 * linear in the list and in the stored responses it refers to. */
int responses_resolve(struct fields *f, const char *name, const struct json *list,
    const struct responses_lookup *lookup, const struct json **out);
bool responses_is_reference(const struct json *item);
/* "msg_HEX_2" -> "resp_HEX" in `out`; false: not an id of this server. */
bool responses_id_of_item(struct str item, char out[RESPONSES_ID_MAX]);

/* responses_tools.c -> f->request, for tools_resolve */
int responses_read_tools(struct fields *f, const struct json *v);
int responses_read_tool_choice(struct fields *f, const struct json *v);

/* responses_object.c */
struct responses_output { /* output so far; see responses_response.c */
    const char *status;   /* "queued", "in_progress", ... */
    struct str items;     /* JSON, separated by commas */
    const struct err *err;
};
void responses_put_object(struct jw *w, const struct response *a, const struct responses_output *t);
/* Rewrites an object with status "queued" to another status. For responses that ended without
 * output. */
void responses_set_status(
    struct buf *out, struct str object, const char *status, const struct err *e);
/* Writes the last event of a stream, with number n, for such an object. */
void responses_put_failed(struct buf *out, struct str object, uint64_t n);
/* Writes the input items, as an array in the format of GET .../input_items. */
void responses_put_input(struct jw *w, const struct response *a);

/* A page of that list. `after` is the id that precedes the page, or STR_NONE. */
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
