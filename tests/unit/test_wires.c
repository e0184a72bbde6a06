/* One request in the words of every wire: whatever a client says it in, nothing of it is lost. A
 * random conversation and random sampling are written as each wire has them, read back, and
 * compared to the byte. */
#include "wire_kit.h"

#include "base/rng.h"

#include <inttypes.h>

enum { TURNS_MAX = 6, PARTS_MAX = 3, ROUNDS = 400 };

struct turn {
    enum role role;
    int n_parts;
    struct str parts[PARTS_MAX];
};

struct wish { /* what every wire can say */
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
static struct wish wish;
static char texts[64 * 1024];
static size_t texts_n;

static uint32_t below(uint32_t n)
{
    return (uint32_t)rng_below(&rng, n);
}

/* Letters, escapes, control characters, all lengths of UTF-8, markers of templates. */
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

/* System or not, then user and assistant in turn, the user last. */
static void make_wish(void)
{
    int n_pairs = (int)below(3);

    memset(&wish, 0, sizeof(wish));
    texts_n = 0;
    if (below(2))
        wish.turns[wish.n_turns++].role = ROLE_SYSTEM;
    for (int i = 0; i < 2 * n_pairs + 1; i++)
        wish.turns[wish.n_turns++].role = i % 2 ? ROLE_ASSISTANT : ROLE_USER;
    for (int i = 0; i < wish.n_turns; i++) {
        struct turn *t = &wish.turns[i];
        t->n_parts = 1 + (int)below(PARTS_MAX);
        for (int k = 0; k < t->n_parts; k++)
            t->parts[k] = some_text(t->role == ROLE_SYSTEM);
    }
    wish.max_tokens = 1 + (int)below(1000);
    wish.top_k = (int)below(100);
    wish.temperature = (float)below(1000) / 1000.0f;
    wish.top_p = (float)below(1000) / 1000.0f;
    wish.n_stops = (int)below(3);
    for (int i = 0; i < wish.n_stops; i++)
        wish.stops[i] = some_text(1);
    wish.user = some_text(0);
    wish.stream = below(2);
    wish.seed = (int64_t)below(1u << 30);
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
    for (int i = 0; i < wish.n_stops; i++)
        jw_str(w, wish.stops[i]);
    jw_end_array(w);
}

static void put_sampling(struct jw *w)
{
    put_number(w, "temperature", wish.temperature);
    put_number(w, "top_p", wish.top_p);
    put_int(w, "top_k", wish.top_k);
    put_int(w, "seed", wish.seed);
}

/* A string where it is one part and the dice say so, else blocks. */
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
    for (int i = from; i < wish.n_turns; i++) {
        jw_object(w);
        jw_key(w, "role");
        jw_z(w, role_name(wish.turns[i].role));
        jw_key(w, "content");
        put_content(w, &wish.turns[i]);
        jw_end_object(w);
    }
    jw_end_array(w);
}

static void put_stream(struct jw *w)
{
    jw_key(w, "stream");
    jw_bool(w, wish.stream);
}

static void write_openai(struct jw *w)
{
    put_messages(w, 0);
    put_sampling(w);
    put_stops(w, "stop");
    put_int(w, "max_completion_tokens", wish.max_tokens);
    jw_key(w, "user");
    jw_str(w, wish.user);
    put_stream(w);
}

static void write_anthropic(struct jw *w)
{
    bool has_system = wish.turns[0].role == ROLE_SYSTEM;

    if (has_system) {
        jw_key(w, "system");
        put_content(w, &wish.turns[0]);
    }
    put_messages(w, has_system);
    put_sampling(w);
    put_stops(w, "stop_sequences");
    put_int(w, "max_tokens", wish.max_tokens);
    jw_key(w, "metadata");
    jw_object(w);
    jw_key(w, "user_id");
    jw_str(w, wish.user);
    jw_end_object(w);
    put_stream(w);
}

/* Its content is a string, always. */
static void write_ollama(struct jw *w)
{
    jw_key(w, "messages");
    jw_array(w);
    for (int i = 0; i < wish.n_turns; i++) {
        jw_object(w);
        jw_key(w, "role");
        jw_z(w, role_name(wish.turns[i].role));
        jw_key(w, "content");
        jw_str(w, wish.turns[i].parts[0]);
        jw_end_object(w);
    }
    jw_end_array(w);
    jw_key(w, "options");
    jw_object(w);
    put_sampling(w);
    put_stops(w, "stop");
    put_int(w, "num_predict", wish.max_tokens);
    jw_end_object(w);
    put_stream(w);
}

static void write_llama(struct jw *w)
{
    jw_key(w, "prompt");
    jw_array(w);
    for (int i = 0; i < wish.turns[0].n_parts; i++)
        jw_str(w, wish.turns[0].parts[i]);
    jw_end_array(w);
    put_sampling(w);
    put_stops(w, "stop");
    put_int(w, "n_predict", wish.max_tokens);
    put_stream(w);
}

/* Every part is typed by who says it; a message may say its type or not. */
static void write_responses(struct jw *w)
{
    jw_key(w, "input");
    jw_array(w);
    for (int i = 0; i < wish.n_turns; i++) {
        const struct turn *t = &wish.turns[i];
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
    put_int(w, "max_output_tokens", wish.max_tokens);
    jw_key(w, "user");
    jw_str(w, wish.user);
    put_stream(w);
}

/* ---- comparing */

static void expect_turns(int n_parts_most)
{
    const struct convo *c = &kit.ask.convo;

    EXPECT_EQ(c->n_messages, wish.n_turns);
    for (int i = 0; i < wish.n_turns; i++) {
        const struct turn *t = &wish.turns[i];
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
    EXPECT_EQ(kit.ask.n_prompts, wish.turns[0].n_parts);
    for (int i = 0; i < kit.ask.n_prompts; i++)
        EXPECT(str_eq(kit.ask.prompts[i].text, wish.turns[0].parts[i]));
}

static void expect_sampling(void)
{
    const struct ask *a = &kit.ask;

    EXPECT_EQ(a->max_tokens, wish.max_tokens);
    EXPECT_EQ(a->sample.top_k, wish.top_k);
    EXPECT_EQ(a->sample.temperature, wish.temperature);
    EXPECT_EQ(a->sample.top_p, wish.top_p);
    EXPECT_EQ((int64_t)a->sample.seed, wish.seed);
    EXPECT_EQ(a->stream, wish.stream);
    EXPECT_EQ(a->n_stops, wish.n_stops);
    for (int i = 0; i < wish.n_stops; i++)
        EXPECT(str_eq(a->stops[i], wish.stops[i]));
}

static void through(const struct wire *wire, void (*write)(struct jw *w))
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
    jw_str(&w, wish.user);
    jw_end_object(&w);
    arena_free(kit.arena);
    kit.arena = arena_new(64 * MB);
    memset(&kit.e, 0, sizeof(kit.e));
    if (ask_parse(&kit.ask, wire, arena_str(kit.arena, buf_str(&b)), kit.arena, &kit.e))
        fprintf(stderr, "%s: %s\n" STR_FMT "\n", wire->name, kit.e.msg, STR_ARG(b));
    EXPECT(!kit.e.code);
    buf_clear(&b);
    EXPECT(str_is(kit.ask.model, "m"));
    EXPECT(str_eq(json_get(kit.ask.raw, "x_unknown")->s, wish.user));
    expect_sampling();
}

static void nothing_of_a_request_is_lost(void)
{
    uint64_t seed = 20261121;

    printf("seed %" PRIu64 "\n", seed);
    rng = (struct rng){ seed, 0 };
    for (int i = 0; i < ROUNDS; i++) {
        make_wish();
        through(&wire_openai_chat, write_openai);
        expect_turns(PARTS_MAX);
        EXPECT(str_eq(kit.ask.user, wish.user));
        through(&wire_anthropic, write_anthropic);
        expect_turns(PARTS_MAX);
        EXPECT(str_eq(kit.ask.user, wish.user));
        through(&wire_responses, write_responses);
        expect_turns(PARTS_MAX);
        EXPECT(str_eq(kit.ask.user, wish.user));
        through(&wire_ollama_chat, write_ollama);
        expect_turns(1);
        through(&wire_llama, write_llama);
        expect_prompts();
    }
    kit_close();
}

TESTS(TEST(nothing_of_a_request_is_lost))
