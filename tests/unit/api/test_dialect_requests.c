/* One request in every dialect: a random conversation with random sampling parameters is written
 * in each dialect, parsed, and compared byte by byte. */
#include "support/dialect_kit.h"

#include "base/rng.h"

#include <inttypes.h>

enum { TURNS_MAX = 6, PARTS_MAX = 3, ROUNDS = 400 };

struct turn {
    enum role role;
    int n_parts;
    struct str parts[PARTS_MAX];
};

struct sample_request { /* a request that every dialect can express */
    struct turn turns[TURNS_MAX];
    int n_turns;
    int max_tokens, top_k;
    float temperature, top_p;
    struct str stops[2], user;
    int n_stops;
    bool stream;
    int64_t seed;
};

static struct rng rng;
static struct sample_request sample_request;
static char texts[64 * 1024];
static size_t texts_n;

static uint32_t below(uint32_t n)
{
    return (uint32_t)rng_below(&rng, n);
}

/* Random letters, escapes, control characters, UTF-8 of all lengths, template markers. */
static struct str some_text(size_t at_least)
{
    static const char *const pieces[] = { "a", "Z ", "\"", "\\", "\n", "\t", "\x01", "é", "日",
        "🙂", "<|im_end|>", "{{", "</s>", "\r\n", "null", "\x7f", " " };
    size_t n = at_least + below(6), from = texts_n;

    for (size_t i = 0; i < n; i++) {
        const char *p = pieces[below(ARRAY_LEN(pieces))];
        memcpy(texts + texts_n, p, strlen(p));
        texts_n += strlen(p);
    }
    CHECK(texts_n < sizeof(texts));
    return (struct str){ texts + from, texts_n - from };
}

/* Optional system message, then user and assistant alternating, the user last. */
static void make_request(void)
{
    int n_pairs = (int)below(3);

    memset(&sample_request, 0, sizeof(sample_request));
    texts_n = 0;
    if (below(2))
        sample_request.turns[sample_request.n_turns++].role = ROLE_SYSTEM;
    for (int i = 0; i < 2 * n_pairs + 1; i++)
        sample_request.turns[sample_request.n_turns++].role = i % 2 ? ROLE_ASSISTANT : ROLE_USER;
    for (int i = 0; i < sample_request.n_turns; i++) {
        struct turn *t = &sample_request.turns[i];
        t->n_parts = 1 + (int)below(PARTS_MAX);
        for (int k = 0; k < t->n_parts; k++)
            t->parts[k] = some_text(t->role == ROLE_SYSTEM);
    }
    sample_request.max_tokens = 1 + (int)below(1000);
    sample_request.top_k = (int)below(100);
    sample_request.temperature = (float)below(1000) / 1000.0f;
    sample_request.top_p = (float)below(1000) / 1000.0f;
    sample_request.n_stops = (int)below(3);
    for (int i = 0; i < sample_request.n_stops; i++)
        sample_request.stops[i] = some_text(1);
    sample_request.user = some_text(0);
    sample_request.stream = below(2);
    sample_request.seed = (int64_t)below(1u << 30);
}

/* ---- writing */

static void put_number(struct jw *w, const char *key, float v)
{
    jw_key(w, key);
    jw_f32(w, v);
}

static void put_int(struct jw *w, const char *key, int64_t v)
{
    jw_key(w, key);
    jw_i64(w, v);
}

static void put_stops(struct jw *w, const char *key)
{
    jw_key(w, key);
    jw_array(w);
    for (int i = 0; i < sample_request.n_stops; i++)
        jw_str(w, sample_request.stops[i]);
    jw_end_array(w);
}

static void put_sampling(struct jw *w)
{
    put_number(w, "temperature", sample_request.temperature);
    put_number(w, "top_p", sample_request.top_p);
    put_int(w, "top_k", sample_request.top_k);
    put_int(w, "seed", sample_request.seed);
}

/* A string if there is one part and a random choice permits it, otherwise blocks. */
static void put_content_as(struct jw *w, const struct turn *t, const char *type)
{
    if (t->n_parts == 1 && below(2)) {
        jw_str(w, t->parts[0]);
        return;
    }
    jw_array(w);
    for (int i = 0; i < t->n_parts; i++) {
        jw_object(w);
        jw_key(w, "type");
        jw_z(w, type);
        jw_key(w, "text");
        jw_str(w, t->parts[i]);
        jw_end_object(w);
    }
    jw_end_array(w);
}

static void put_content(struct jw *w, const struct turn *t)
{
    put_content_as(w, t, "text");
}

static void put_messages(struct jw *w, int from)
{
    jw_key(w, "messages");
    jw_array(w);
    for (int i = from; i < sample_request.n_turns; i++) {
        jw_object(w);
        jw_key(w, "role");
        jw_z(w, role_name(sample_request.turns[i].role));
        jw_key(w, "content");
        put_content(w, &sample_request.turns[i]);
        jw_end_object(w);
    }
    jw_end_array(w);
}

static void put_stream(struct jw *w)
{
    jw_key(w, "stream");
    jw_bool(w, sample_request.stream);
}

static void write_openai(struct jw *w)
{
    put_messages(w, 0);
    put_sampling(w);
    put_stops(w, "stop");
    put_int(w, "max_completion_tokens", sample_request.max_tokens);
    jw_key(w, "user");
    jw_str(w, sample_request.user);
    put_stream(w);
}

static void write_anthropic(struct jw *w)
{
    bool has_system = sample_request.turns[0].role == ROLE_SYSTEM;

    if (has_system) {
        jw_key(w, "system");
        put_content(w, &sample_request.turns[0]);
    }
    put_messages(w, has_system);
    put_sampling(w);
    put_stops(w, "stop_sequences");
    put_int(w, "max_tokens", sample_request.max_tokens);
    jw_key(w, "metadata");
    jw_object(w);
    jw_key(w, "user_id");
    jw_str(w, sample_request.user);
    jw_end_object(w);
    put_stream(w);
}

/* Message content is always a string in this dialect. */
static void write_ollama(struct jw *w)
{
    jw_key(w, "messages");
    jw_array(w);
    for (int i = 0; i < sample_request.n_turns; i++) {
        jw_object(w);
        jw_key(w, "role");
        jw_z(w, role_name(sample_request.turns[i].role));
        jw_key(w, "content");
        jw_str(w, sample_request.turns[i].parts[0]);
        jw_end_object(w);
    }
    jw_end_array(w);
    jw_key(w, "options");
    jw_object(w);
    put_sampling(w);
    put_stops(w, "stop");
    put_int(w, "num_predict", sample_request.max_tokens);
    jw_end_object(w);
    put_stream(w);
}

static void write_llama(struct jw *w)
{
    jw_key(w, "prompt");
    jw_array(w);
    for (int i = 0; i < sample_request.turns[0].n_parts; i++)
        jw_str(w, sample_request.turns[0].parts[i]);
    jw_end_array(w);
    put_sampling(w);
    put_stops(w, "stop");
    put_int(w, "n_predict", sample_request.max_tokens);
    put_stream(w);
}

/* Each part has a type that depends on the role; the type of a message is optional. */
static void write_responses(struct jw *w)
{
    jw_key(w, "input");
    jw_array(w);
    for (int i = 0; i < sample_request.n_turns; i++) {
        const struct turn *t = &sample_request.turns[i];
        jw_object(w);
        if (below(2)) {
            jw_key(w, "type");
            jw_z(w, "message");
        }
        jw_key(w, "role");
        jw_z(w, role_name(t->role));
        jw_key(w, "content");
        put_content_as(w, t, t->role == ROLE_ASSISTANT ? "output_text" : "input_text");
        jw_end_object(w);
    }
    jw_end_array(w);
    put_sampling(w);
    put_stops(w, "stop");
    put_int(w, "max_output_tokens", sample_request.max_tokens);
    jw_key(w, "user");
    jw_str(w, sample_request.user);
    put_stream(w);
}

/* ---- comparing */

static void expect_conversation(int n_parts_most)
{
    const struct convo *c = &kit.request.convo;

    EXPECT_EQ(c->n_messages, sample_request.n_turns);
    for (int i = 0; i < sample_request.n_turns; i++) {
        const struct turn *t = &sample_request.turns[i];
        const struct message *m = &c->messages[i];
        EXPECT_EQ((int)m->role, (int)t->role);
        EXPECT_EQ(m->n_parts, MIN(t->n_parts, n_parts_most));
        for (int k = 0; k < m->n_parts; k++)
            EXPECT(m->parts[k].kind == PART_TEXT && str_eq(m->parts[k].text, t->parts[k]));
    }
    EXPECT(c->add_generation_prompt && !c->continue_final_message);
}

static void expect_prompts(void)
{
    EXPECT_EQ(kit.request.n_prompts, sample_request.turns[0].n_parts);
    for (int i = 0; i < kit.request.n_prompts; i++)
        EXPECT(str_eq(kit.request.prompts[i].text, sample_request.turns[0].parts[i]));
}

static void expect_sampling(void)
{
    const struct request *a = &kit.request;

    EXPECT_EQ(a->max_tokens, sample_request.max_tokens);
    EXPECT_EQ(a->sample.top_k, sample_request.top_k);
    EXPECT_EQ(a->sample.temperature, sample_request.temperature);
    EXPECT_EQ(a->sample.top_p, sample_request.top_p);
    EXPECT_EQ((int64_t)a->sample.seed, sample_request.seed);
    EXPECT_EQ(a->stream, sample_request.stream);
    EXPECT_EQ(a->n_stops, sample_request.n_stops);
    for (int i = 0; i < sample_request.n_stops; i++)
        EXPECT(str_eq(a->stops[i], sample_request.stops[i]));
}

static void round_trip(const struct dialect *dialect, void (*write)(struct jw *w))
{
    struct buf b;
    struct jw w;

    buf_init(&b, MB);
    jw_init(&w, &b);
    jw_object(&w);
    jw_key(&w, "model");
    jw_z(&w, "m");
    write(&w);
    jw_key(&w, "x_unknown");
    jw_str(&w, sample_request.user);
    jw_end_object(&w);
    arena_free(kit.arena);
    kit.arena = arena_new(64 * MB);
    memset(&kit.e, 0, sizeof(kit.e));
    if (request_parse(&kit.request, dialect, arena_str(kit.arena, buf_str(&b)), kit.arena, &kit.e))
        fprintf(stderr, "%s: %s\n" STR_FMT "\n", dialect->name, kit.e.msg, STR_ARG(b));
    EXPECT(!kit.e.code);
    buf_clear(&b);
    EXPECT(str_is(kit.request.model, "m"));
    EXPECT(str_eq(json_get(kit.request.raw, "x_unknown")->s, sample_request.user));
    expect_sampling();
}

static void request_is_complete_in_every_dialect(void)
{
    uint64_t seed = 20261121;

    printf("seed %" PRIu64 "\n", seed);
    rng = (struct rng){ seed, 0 };
    for (int i = 0; i < ROUNDS; i++) {
        make_request();
        round_trip(&dialect_openai_chat, write_openai);
        expect_conversation(PARTS_MAX);
        EXPECT(str_eq(kit.request.user, sample_request.user));
        round_trip(&dialect_anthropic, write_anthropic);
        expect_conversation(PARTS_MAX);
        EXPECT(str_eq(kit.request.user, sample_request.user));
        round_trip(&dialect_responses, write_responses);
        expect_conversation(PARTS_MAX);
        EXPECT(str_eq(kit.request.user, sample_request.user));
        round_trip(&dialect_ollama_chat, write_ollama);
        expect_conversation(1);
        round_trip(&dialect_llama, write_llama);
        expect_prompts();
    }
    kit_close_response();
}

TESTS(TEST(request_is_complete_in_every_dialect))
