/* Tokenize, detokenize and model list bodies. They are written with ' for ". */
#include "support/check.h"

#include "api/models.h"
#include "api/tokenize.h"
#include "base/mem.h"

static struct arena *arena;
static struct err e;

static struct str body(const char *text)
{
    arena_free(arena);
    arena = arena_new(8 * MB);
    memset(&e, 0, sizeof(e));
    struct str copy = arena_str(arena, str_of(text));
    for (char *c = (char *)(uintptr_t)copy.p; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    return copy;
}

static int tokenize(struct tokenize_request *t, const char *text)
{
    struct str b = body(text);
    return tokenize_parse(t, b, arena, &e);
}

static int detokenize(struct detokenize_request *d, const char *text)
{
    struct str b = body(text);
    return detokenize_parse(d, b, arena, &e);
}

static void expect_body(struct buf *b, const char *want)
{
    static char got[8000];

    EXPECT(buf_ok(b));
    snprintf(got, sizeof(got), STR_FMT, STR_ARG(*b));
    for (char *c = got; *c; c++)
        *c = *c == '"' ? '\'' : *c;
    buf_clear(b);
    EXPECT_STR(got, want);
}

static void text_is_tokenized(void)
{
    struct tokenize_request t;

    EXPECT_EQ(tokenize(&t, "{'content':'a b'}"), 0);
    EXPECT(str_is(t.content, "a b") && !t.model.p);
    EXPECT(!t.add_special && t.parse_special && !t.with_pieces);
    EXPECT_EQ(tokenize(&t, "{'model':'m','content':'','add_special':true,"
                           "'parse_special':false,'with_pieces':true,'x':1}"),
        0);
    EXPECT(t.add_special && !t.parse_special && t.with_pieces && t.content.p && !t.content.n);
    EXPECT_EQ(tokenize(&t, "{'prompt':'p','add_special_tokens':true}"), 0);
    EXPECT(str_is(t.content, "p") && t.add_special);

    static const struct {
        const char *text, *param;
        enum errcode code;
    } bad[] = {
        { "{}", "content", ERR_MISSING },
        { "{'content':null}", "content", ERR_MISSING },
        { "{'content':1}", "content", ERR_INVALID },
        { "{'content':'a','with_pieces':1}", "with_pieces", ERR_INVALID },
        { "{'content':'a','add_special':'x'}", "add_special", ERR_INVALID },
        { "{'content':'a','model':1}", "model", ERR_INVALID },
        { "[]", "", ERR_INVALID },
        { "{", "", ERR_SYNTAX },
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        EXPECT_EQ(tokenize(&t, bad[i].text), -1);
        EXPECT(e.code == bad[i].code);
        EXPECT_STR(e.param, bad[i].param);
    }
    arena_free(arena);
    arena = NULL;
}

static struct str piece(const void *vocab, int32_t id)
{
    (void)vocab;
    return id == 1 ? STR("a\n") : STR("\xE2\x82");
}

static void tokens_are_listed_with_and_without_pieces(void)
{
    static const int32_t ids[] = { 1, 2 };
    struct buf b;

    buf_init(&b, MB);
    tokenize_put_response(&b, ids, 2, NULL, NULL);
    expect_body(&b, "{'tokens':[1,2]}");
    tokenize_put_response(&b, ids, 0, NULL, NULL);
    expect_body(&b, "{'tokens':[]}");
    tokenize_put_response(&b, ids, 2, piece, NULL);
    expect_body(&b, "{'tokens':[{'id':1,'piece':'a\\n'},{'id':2,'piece':[226,130]}]}");
    detokenize_put_response(&b, STR("a\"\xFF"));
    expect_body(&b, "{'content':'a\\'\xEF\xBF\xBD'}");
    apply_template_put_response(&b, STR("<|im_start|>\n"));
    expect_body(&b, "{'prompt':'<|im_start|>\\n'}");
}

static void tokens_are_detokenized(void)
{
    struct detokenize_request d;

    EXPECT_EQ(detokenize(&d, "{'tokens':[1,2147483647,0]}"), 0);
    EXPECT(d.n == 3 && d.ids[1] == INT32_MAX && d.ids[2] == 0);
    EXPECT_EQ(detokenize(&d, "{'tokens':[]}"), 0);
    EXPECT_EQ(d.n, (size_t)0);

    static const struct {
        const char *text;
        enum errcode code;
    } bad[] = {
        { "{}", ERR_MISSING },
        { "{'tokens':1}", ERR_INVALID },
        { "{'tokens':['a']}", ERR_INVALID },
        { "{'tokens':[1.5]}", ERR_INVALID },
        { "{'tokens':[-1]}", ERR_RANGE },
        { "{'tokens':[2147483648]}", ERR_RANGE },
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        EXPECT_EQ(detokenize(&d, bad[i].text), -1);
        EXPECT(e.code == bad[i].code);
        EXPECT_STR(e.param, "tokens");
    }
    arena_free(arena);
    arena = NULL;
}

static void models_are_written_as_list_and_alone(void)
{
    struct model_info m[] = {
        { .id = "org/m",
            .created = 1700000000,
            .is_ready = true,
            .status = "loaded",
            .backend = "native",
            .family = "qwen3",
            .vocab_type = "bpe",
            .quantization = "Q4_0",
            .n_ctx = 4096,
            .n_ctx_train = 32768,
            .n_vocab = 512,
            .n_embd = 64,
            .n_params = 1235814400,
            .n_experts = 8,
            .n_active_experts = 2,
            .weight_bytes = 700000000,
            .kv_bytes = 64000000,
            .window_kv_bytes = 8000000,
            .state_bytes = 32000000,
            .size_bytes = 770000000,
            .can_chat = true,
            .can_complete = true },
        { .id = "script", .status = "loaded", .backend = "script" },
        { .id = "odd",
            .status = "loaded",
            .backend = "native",
            .chat_family = "chatml",
            .tool_parser = "null",
            .thinking_parser = "think_tag",
            .has_unknown_calls = true,
            .is_probed = true },
    };
    struct buf b;

    buf_init(&b, MB);
    models_one(&b, &m[0]);
    expect_body(&b, "{'id':'org/m','object':'model','created':1700000000,'owned_by':'inferflux',"
                    "'ready':true,'status':'loaded','backend':'native','family':'qwen3',"
                    "'max_model_len':4096,'capabilities':['completion','chat'],"
                    "'architecture':{'input_modalities':['text'],'output_modalities':['text']},"
                    "'meta':{'vocab_type':'bpe','n_vocab':512,'n_ctx':4096,'n_ctx_train':32768,"
                    "'n_embd':64,'n_params':1235814400,'is_moe':true,'n_experts':8,"
                    "'n_active_experts':2,'weight_bytes':700000000,'kv_bytes':64000000,"
                    "'window_kv_bytes':8000000,'state_bytes':32000000,'size':770000000}}");
    models_one(&b, &m[2]);
    EXPECT(str_find(buf_str(&b), STR("\"adapter\":{\"family\":\"chatml\",\"tool_parser\":\"null\","
                                     "\"thinking_parser\":\"think_tag\",\"tool_format\":null,"
                                     "\"tool_format_unknown\":true,\"probed\":true}")) > 0);
    buf_reset(&b);
    models_list(&b, m, 0);
    expect_body(&b, "{'object':'list','data':[],'models':[]}");
    models_list(&b, m + 1, 1);
    expect_body(&b, "{'object':'list','data':[{'id':'script','object':'model','created':0,"
                    "'owned_by':'inferflux','ready':false,'status':'loaded','backend':'script',"
                    "'capabilities':[],'architecture':{'input_modalities':['text'],"
                    "'output_modalities':['text']},'meta':{}}],'models':[{'name':'script',"
                    "'model':'script','modified_at':'1970-01-01T00:00:00Z','size':0,'digest':'',"
                    "'type':'model','capabilities':[],'details':{'parent_model':'','format':'gguf',"
                    "'family':'','families':[],'parameter_size':'','quantization_level':''}}]}");
    models_list(&b, m, 2);
    EXPECT(str_find(buf_str(&b), STR("\"parameter_size\":\"1.2B\"")) > 0);
    EXPECT(str_find(buf_str(&b), STR("\"modified_at\":\"2023-11-14T22:13:20Z\"")) > 0);
    buf_clear(&b);
}

TESTS(TEST(text_is_tokenized), TEST(tokens_are_listed_with_and_without_pieces),
    TEST(tokens_are_detokenized), TEST(models_are_written_as_list_and_alone))
