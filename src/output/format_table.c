#include "output/format_table.h"
#include "output/format_literals.h"

/* Two characters of DeepSeek's control tokens: full-width vertical bar, lower one eighth block. */
#define BAR "\xEF\xBD\x9C"
#define LOW "\xE2\x96\x81"

/* ---- JSON ---- */

/* <tool_call>
 * {"name": "f", "arguments": {"a": 1}}
 * </tool_call>                          Qwen 2.5 and 3, Hermes 2 and 3, SmolLM3, Granite 4, MiMo,
 *                                       ERNIE 4.5 */
static const struct marker hermes_marks[] = {
    { MARK_OPEN, 0, T("<tool_call>") },
    { MARK_CLOSE, 0, T("</tool_call>") },
};

/* {"name": "f", "parameters": {"a": 1}}   as the whole output; several separated by "; ".
 * <|python_tag|> may precede them. */
static const struct marker llama3_marks[] = {
    { MARK_OPEN, 0, T("<|python_tag|>") },
    { MARK_DROP, 0, T("<|eom_id|>") },
    { MARK_DROP, 0, T("<|eot_id|>") },
};

/* [TOOL_CALLS][{"name": "f", "arguments": {..}, "id": "123456789"}]   up to tokenizer v7 */
static const struct marker mistral_marks[] = {
    { MARK_OPEN, 0, T("[TOOL_CALLS]") },
};

/* <|tool_call|>[{"name": "f", "arguments": {..}}]   Granite 3; earlier versions: <function_call>,
 * which is plain text for other models */
static const struct marker granite_marks[] = {
    { MARK_OPEN, 0, T("<|tool_call|>") },
    { MARK_OPEN, 0, T("<function_call>") },
};

/* <|tool_call|>[{"name": "f", "arguments": {..}}]<|/tool_call|>   as in its system prompt; the
 * model was observed to write functools[{..}] */
static const struct marker phi4_marks[] = {
    { MARK_OPEN, 0, T("<|tool_call|>") },
    { MARK_CLOSE, 0, T("<|/tool_call|>") },
    { MARK_OPEN, 0, T("functools") },
};

/* <tool_calls>[
 *     {"name": "f", "arguments": {..}}
 * ]</tool_calls>                          Jamba, Hunyuan A13B, Apriel */
static const struct marker jamba_marks[] = {
    { MARK_OPEN, 0, T("<tool_calls>") },
    { MARK_CLOSE, 0, T("</tool_calls>") },
};

/* <|START_ACTION|>[
 *     {"tool_call_id": "0", "tool_name": "f", "parameters": {..}}
 * ]<|END_ACTION|>                         Command R7B, Command A */
static const struct marker command_marks[] = {
    { MARK_OPEN, 0, T("<|START_ACTION|>") },
    { MARK_CLOSE, 0, T("<|END_ACTION|>") },
    { MARK_DROP, 0, T("<|START_RESPONSE|>") },
    { MARK_DROP, 0, T("<|END_RESPONSE|>") },
    { MARK_DROP, 0, T("<|START_TEXT|>") },
    { MARK_DROP, 0, T("<|END_TEXT|>") },
};

/* <TOOLCALL>[{"name": "f", "arguments": {..}}]</TOOLCALL>   Nemotron Nano 9B v2 */
static const struct marker nemotron_marks[] = {
    { MARK_OPEN, 0, T("<TOOLCALL>") },
    { MARK_CLOSE, 0, T("</TOOLCALL>") },
};

/* <|action_start|><|plugin|>
 * {"name": "f", "parameters": {..}}<|action_end|>   InternLM 2.5 */
static const struct marker internlm_marks[] = {
    { MARK_SECTION, 0, T("<|action_start|>") },
    { MARK_OPEN, 0, T("<|plugin|>") },
    { MARK_CLOSE, 0, T("<|action_end|>") },
};

/* <|tools_prefix|>[{"f": {..}}, {"g": {..}}]<|tools_suffix|>   Apertus; the name is the key */
static const struct marker apertus_marks[] = {
    { MARK_OPEN, 0, T("<|tools_prefix|>") },
    { MARK_CLOSE, 0, T("<|tools_suffix|>") },
};

/* <longcat_tool_call>{"name": "f", "arguments": {..}}</longcat_tool_call> */
static const struct marker longcat_marks[] = {
    { MARK_OPEN, 0, T("<longcat_tool_call>") },
    { MARK_CLOSE, 0, T("</longcat_tool_call>") },
};

/* Action:
 * ```json
 * [
 *     {"tool_name": "f", "parameters": {..}}
 * ]```      Command R and R+ (2024); source: vLLM, examples/command_r_tool_chat_template.jinja */
static const struct marker command_plus_marks[] = {
    { MARK_OPEN, 0, T("Action:") },
};

/* function call<|role_sep|>
 * {"name": "f", "arguments": {..}}<|message_sep|>   GigaChat 3, a message of its own after the
 * content; also after <|function_call|>. Source: llama.cpp,
 * models/templates/GigaChat3-10B-A1.8B.jinja; vLLM, gigachat3_tool_parser.py */
static const struct marker gigachat3_marks[] = {
    { MARK_OPEN, 0, T("function call<|role_sep|>") },
    { MARK_OPEN, 0, T("<|function_call|>") },
    { MARK_DROP, 0, T("<|message_sep|>") },
};

/* [{"name": "f", "arguments": {..}}, ..]   xLAM 2, as the whole output or after text; in a fence,
 * and after [TOOL_CALLS] or <tool_call> too. Source: vLLM,
 * examples/tool_chat_template_xlam_llama.jinja, tests/tool_parsers/test_xlam_tool_parser.py */
static const struct marker xlam_marks[] = {
    { MARK_OPEN, 0, T("[TOOL_CALLS]") },
    { MARK_OPEN, 0, T("<tool_call>") },
    { MARK_CLOSE, 0, T("</tool_call>") },
    { MARK_DROP, 0, T("<|eot_id|>") },
};

/* ---- a name, then JSON ---- */

/* <tool_call><name>f</name><arguments>{..}</arguments></tool_call>   GLM 4 */
static const struct marker glm4_xml_marks[] = {
    { MARK_OPEN, 0, T("<tool_call>") },
    { MARK_CLOSE, 0, T("</tool_call>") },
    { MARK_CLOSE, 0, T("</arguments>") },
};
static const struct tag_edge glm4_xml_edges[] = {
    { TAG_HEAD, T("<name>"), TAG_NAME },
    { TAG_NAME, T("</name>"), TAG_GAP },
    { TAG_GAP, T("<arguments>"), TAG_ARGS },
    { TAG_GAP, T("</tool_call>"), TAG_DONE },
    { TAG_ARGS, T("{"), TAG_JSON },
    { TAG_ARGS, T("</arguments>"), TAG_DONE },
};

/* <function=f>{..}</function>   Llama 3.x by prompt, Functionary 3.1 */
static const struct marker llama_xml_marks[] = {
    { MARK_OPEN, 0, T("<function=") },
    { MARK_CLOSE, 0, T("</function>") },
    { MARK_DROP, 0, T("<|eom_id|>") },
};
static const struct tag_edge llama_xml_edges[] = {
    { TAG_NAME, T(">"), TAG_ARGS },
    { TAG_ARGS, T("{"), TAG_JSON },
    { TAG_ARGS, T("</function>"), TAG_DONE },
};

/* [TOOL_CALLS]f[ARGS]{..}, or f[CALL_ID]123456789[ARGS]{..}, or f{..}: tokenizer v11 and later.
 * Each call has its own [TOOL_CALLS]. */
static const struct marker mistral_v11_marks[] = {
    { MARK_OPEN, 0, T("[TOOL_CALLS]") },
};
static const struct tag_edge mistral_v11_edges[] = {
    { TAG_NAME, T("[ARGS]"), TAG_ARGS },
    { TAG_NAME, T("[CALL_ID]"), TAG_SKIP },
    { TAG_NAME, T("{"), TAG_JSON },
    { TAG_SKIP, T("[ARGS]"), TAG_ARGS },
    { TAG_ARGS, T("{"), TAG_JSON },
};

/* <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f
 * ```json
 * {..}
 * ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>   DeepSeek R1, V3 */
#define DEEPSEEK_CALLS     "<" BAR "tool" LOW "calls" LOW "begin" BAR ">"
#define DEEPSEEK_BEGIN     "<" BAR "tool" LOW "call" LOW "begin" BAR ">"
#define DEEPSEEK_SEP       "<" BAR "tool" LOW "sep" BAR ">"
#define DEEPSEEK_CALLS_END "<" BAR "tool" LOW "calls" LOW "end" BAR ">"
#define DEEPSEEK_END       "<" BAR "tool" LOW "call" LOW "end" BAR ">"
static const struct marker deepseek_v3_marks[] = {
    { MARK_SECTION, 0, T(DEEPSEEK_CALLS) },
    { MARK_CLOSE, 0, T(DEEPSEEK_CALLS_END) },
    { MARK_OPEN, 0, T(DEEPSEEK_BEGIN) },
    { MARK_CLOSE, 0, T(DEEPSEEK_END) },
    { MARK_CLOSE, 0, T("```" DEEPSEEK_END) },
};
static const struct tag_edge deepseek_v3_edges[] = {
    { TAG_SKIP, T(DEEPSEEK_SEP), TAG_NAME },
    { TAG_NAME, T("\n"), TAG_ARGS },
    { TAG_ARGS, T("```json"), TAG_ARGS },
    { TAG_ARGS, T("{"), TAG_JSON },
};

/* ..<｜tool▁call▁begin｜>f<｜tool▁sep｜>{..}<｜tool▁call▁end｜>..   DeepSeek V3.1 */
static const struct tag_edge deepseek_v31_edges[] = {
    { TAG_NAME, T(DEEPSEEK_SEP), TAG_ARGS },
    { TAG_ARGS, T("{"), TAG_JSON },
    { TAG_ARGS, T(DEEPSEEK_END), TAG_DONE },
};

/* <|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{..}
 * <|tool_call_end|><|tool_calls_section_end|>   Kimi K2; without line break */
static const struct marker kimi_marks[] = {
    { MARK_SECTION, 0, T("<|tool_calls_section_begin|>") },
    { MARK_CLOSE, 0, T("<|tool_calls_section_end|>") },
    { MARK_OPEN, 0, T("<|tool_call_begin|>") },
    { MARK_CLOSE, 0, T("<|tool_call_end|>") },
};
static const struct tag_edge kimi_edges[] = {
    { TAG_NAME, T("<|tool_call_argument_begin|>"), TAG_ARGS },
    { TAG_ARGS, T("{"), TAG_JSON },
    { TAG_ARGS, T("<|tool_call_end|>"), TAG_DONE },
};

/* >>>f
 * {..}     Functionary 3.2; text follows >>>all and a newline. The prompt ends with the first >>>,
 * so the output begins after it. */
static const struct marker functionary_marks[] = {
    { MARK_OPEN, 0, T(">>>") },
};
static const struct tag_edge functionary_edges[] = {
    { TAG_NAME, T("\n"), TAG_ARGS },
    { TAG_ARGS, T("{"), TAG_JSON },
};

/* ---- arguments between tags ---- */

/* <tool_call>f
 * <arg_key>a</arg_key>
 * <arg_value>1</arg_value>
 * </tool_call>                GLM 4.5, 4.6; without newlines: 4.7. Strings are unquoted */
static const struct tag_edge glm_edges[] = {
    { TAG_NAME, T("\n"), TAG_GAP },
    { TAG_NAME, T("<arg_key>"), TAG_KEY },
    { TAG_NAME, T("</tool_call>"), TAG_DONE },
    { TAG_GAP, T("<arg_key>"), TAG_KEY },
    { TAG_GAP, T("</tool_call>"), TAG_DONE },
    { TAG_KEY, T("</arg_key>"), TAG_MID },
    { TAG_MID, T("<arg_value>"), TAG_VALUE },
    { TAG_VALUE, T("</arg_value>"), TAG_GAP },
    { TAG_VALUE, T("<arg_key>"), TAG_KEY },
    { TAG_VALUE, T("</tool_call>"), TAG_DONE },
};

/* <tool_call>
 * <function=f>
 * <parameter=a>
 * 1
 * </parameter>
 * </function>
 * </tool_call>    Qwen3-Coder, Nemotron 3; the model sometimes omits the outer tag */
static const struct marker qwen3_coder_marks[] = {
    { MARK_SECTION, 0, T("<tool_call>") },
    { MARK_CLOSE, 0, T("</tool_call>") },
    { MARK_OPEN, 0, T("<function=") },
    { MARK_CLOSE, 0, T("</function>") },
};
static const struct tag_edge qwen3_coder_edges[] = {
    { TAG_NAME, T(">"), TAG_GAP },
    { TAG_GAP, T("<parameter="), TAG_KEY },
    { TAG_GAP, T("</function>"), TAG_DONE },
    { TAG_GAP, T("</tool_call>"), TAG_DONE },
    { TAG_KEY, T(">"), TAG_VALUE },
    { TAG_VALUE, T("</parameter>"), TAG_GAP },
    { TAG_VALUE, T("<parameter="), TAG_KEY },
    { TAG_VALUE, T("</function>"), TAG_DONE },
};

/* Like qwen3_coder, but between <seed:tool_call> and </seed:tool_call>   Seed-OSS */
static const struct marker seed_marks[] = {
    { MARK_SECTION, 0, T("<seed:tool_call>") },
    { MARK_CLOSE, 0, T("</seed:tool_call>") },
    { MARK_OPEN, 0, T("<function=") },
    { MARK_CLOSE, 0, T("</function>") },
};
static const struct tag_edge seed_edges[] = {
    { TAG_NAME, T(">"), TAG_GAP },
    { TAG_GAP, T("<parameter="), TAG_KEY },
    { TAG_GAP, T("</function>"), TAG_DONE },
    { TAG_GAP, T("</seed:tool_call>"), TAG_DONE },
    { TAG_KEY, T(">"), TAG_VALUE },
    { TAG_VALUE, T("</parameter>"), TAG_GAP },
    { TAG_VALUE, T("<parameter="), TAG_KEY },
    { TAG_VALUE, T("</function>"), TAG_DONE },
};

/* <minimax:tool_call>
 * <invoke name="f">
 * <parameter name="a">1</parameter>
 * </invoke>
 * </minimax:tool_call>    MiniMax M2 */
static const struct marker minimax_marks[] = {
    { MARK_SECTION, 0, T("<minimax:tool_call>") },
    { MARK_SECTION_END, 0, T("</minimax:tool_call>") },
    { MARK_OPEN, MARK_IN_SECTION, T("<invoke name=\"") },
};
static const struct tag_edge minimax_edges[] = {
    { TAG_NAME, T("\">"), TAG_GAP },
    { TAG_GAP, T("<parameter name=\""), TAG_KEY },
    { TAG_GAP, T("</invoke>"), TAG_DONE },
    { TAG_KEY, T("\">"), TAG_VALUE },
    { TAG_VALUE, T("</parameter>"), TAG_GAP },
    { TAG_VALUE, T("<parameter name=\""), TAG_KEY },
    { TAG_VALUE, T("</invoke>"), TAG_DONE },
};

/* ]<]minimax[>[<tool_call>
 * ]<]minimax[>[<invoke name="f">
 * ]<]minimax[>[<a>1]<]minimax[>[</a>]<]minimax[>[<b>]<]minimax[>[<item>x]<]minimax[>[</item>
 * ]<]minimax[>[</b>]<]minimax[>[</invoke>
 * ]<]minimax[>[</tool_call>    MiniMax M3; the edge is the beginning of every tag in a call.
 * Source: vLLM, vllm/parser/minimax_m3.py */
#define M3 "]<]minimax[>["
static const struct marker minimax_m3_marks[] = {
    { MARK_SECTION, 0, T(M3 "<tool_call>") },
    { MARK_CLOSE, 0, T(M3 "</tool_call>") },
    { MARK_OPEN, 0, T(M3 "<invoke name=\"") },
};
static const struct tag_edge minimax_m3_edges[] = { { TAG_VALUE, T(M3 "<"), TAG_KEY } };

/* <｜DSML｜function_calls>
 * <｜DSML｜invoke name="f">
 * <｜DSML｜parameter name="a" string="false">1</｜DSML｜parameter>
 * </｜DSML｜invoke>
 * </｜DSML｜function_calls>    DeepSeek V3.2; tool_calls in V4 */
#define DSML BAR "DSML" BAR
#define DSML_SECTION(tag, word)                                                                    \
    { MARK_SECTION, 0, T("<" tag word ">") },                                                      \
    {                                                                                              \
        MARK_SECTION_END, 0, T("</" tag word ">")                                                  \
    }
#define DSML_INVOKE(tag)                                                                           \
    { MARK_OPEN, 0, T("<" tag "invoke name=\"") },                                                 \
    {                                                                                              \
        MARK_CLOSE, 0, T("</" tag "invoke>")                                                       \
    }
#define DSML_EDGES(tag)                                                                            \
    { TAG_NAME, T("\">"), TAG_GAP }, { TAG_GAP, T("<" tag "parameter name=\""), TAG_KEY },         \
        { TAG_GAP, T("</" tag "invoke>"), TAG_DONE },                                              \
        { TAG_KEY, T("\" string=\"true\">"), TAG_STRING },                                         \
        { TAG_KEY, T("\" string=\"false\">"), TAG_ANY }, { TAG_KEY, T("\">"), TAG_VALUE },         \
        { TAG_STRING, T("</" tag "parameter>"), TAG_GAP },                                         \
        { TAG_ANY, T("</" tag "parameter>"), TAG_GAP },                                            \
    {                                                                                              \
        TAG_VALUE, T("</" tag "parameter>"), TAG_GAP                                               \
    }
static const struct marker deepseek_v32_marks[] = {
    DSML_SECTION(DSML, "function_calls"),
    DSML_SECTION(DSML, "tool_calls"),
    DSML_INVOKE(DSML),
};
static const struct tag_edge deepseek_v32_edges[] = { DSML_EDGES(DSML) };

/* <｜DSML｜ calls>
 * <｜DSML｜ invoke name="f">
 * <｜DSML｜ parameter name="a" string="false">1</｜DSML｜ parameter>
 * </｜DSML｜ invoke>
 * </｜DSML｜ calls>    DeepSeek V4.1, with a blank in each tag; source: vLLM,
 * vllm/parser/deepseek_v41.py */
static const struct marker deepseek_v41_marks[] = {
    DSML_SECTION(DSML " ", "calls"),
    DSML_INVOKE(DSML " "),
};
static const struct tag_edge deepseek_v41_edges[] = { DSML_EDGES(DSML " ") };

/* <｜GCML｜tool_calls>
 * <｜GCML｜invoke name="f">
 * <｜GCML｜parameter name="a" string="false">1</｜GCML｜parameter>
 * </｜GCML｜invoke>
 * </｜GCML｜tool_calls>    GigaChat 3.5; source: llama.cpp, models/templates/GigaChat3.5.jinja */
#define GCML BAR "GCML" BAR
static const struct marker gigachat35_marks[] = {
    DSML_SECTION(GCML, "tool_calls"),
    DSML_INVOKE(GCML),
};
static const struct tag_edge gigachat35_edges[] = { DSML_EDGES(GCML) };

/* <tool_calls>
 * <tool_call>f<tool_sep>
 * <arg_key>a</arg_key>
 * <arg_value>1</arg_value>
 * </tool_call>
 * </tool_calls>    Hunyuan 3 (Hy3). Hunyuan 4 has no <tool_sep>, and its tags end in :opensource.
 * Source: vLLM, vllm/tool_parsers/hy_v3_tool_parser.py and
 * tests/tool_parsers/test_hy_v4_tool_parser.py; the template of Hy3-preview */
#define HUNYUAN_MARKS(s)                                                                           \
    { MARK_SECTION, 0, T("<tool_calls" s ">") }, { MARK_CLOSE, 0, T("</tool_calls" s ">") },       \
        { MARK_OPEN, 0, T("<tool_call" s ">") },                                                   \
    {                                                                                              \
        MARK_CLOSE, 0, T("</tool_call" s ">")                                                      \
    }
#define HUNYUAN_EDGES(s)                                                                           \
    { TAG_NAME, T("<tool_sep" s ">"), TAG_GAP }, { TAG_NAME, T("\n"), TAG_GAP },                   \
        { TAG_NAME, T("<arg_key" s ">"), TAG_KEY },                                                \
        { TAG_NAME, T("</tool_call" s ">"), TAG_DONE }, { TAG_GAP, T("<arg_key" s ">"), TAG_KEY }, \
        { TAG_GAP, T("</tool_call" s ">"), TAG_DONE }, { TAG_KEY, T("</arg_key" s ">"), TAG_MID }, \
        { TAG_MID, T("<arg_value" s ">"), TAG_VALUE },                                             \
        { TAG_VALUE, T("</arg_value" s ">"), TAG_GAP },                                            \
        { TAG_VALUE, T("<arg_key" s ">"), TAG_KEY },                                               \
    {                                                                                              \
        TAG_VALUE, T("</tool_call" s ">"), TAG_DONE                                                \
    }
static const struct marker hunyuan_v3_marks[] = { HUNYUAN_MARKS("") };
static const struct tag_edge hunyuan_v3_edges[] = { HUNYUAN_EDGES("") };
static const struct marker hunyuan_v4_marks[] = { HUNYUAN_MARKS(":opensource") };
static const struct tag_edge hunyuan_v4_edges[] = { HUNYUAN_EDGES(":opensource") };

/* <function name="f"><param name="a">1</param></function>   MiniCPM 5; a value may be
 * <![CDATA[..]]>. Source: vLLM, vllm/tool_parsers/minicpm5xml_tool_parser.py and its test */
static const struct marker minicpm5_marks[] = {
    { MARK_OPEN, 0, T("<function name=\"") },
    { MARK_CLOSE, 0, T("</function>") },
};
static const struct tag_edge minicpm5_edges[] = {
    { TAG_NAME, T("\">"), TAG_GAP },
    { TAG_GAP, T("<param name=\""), TAG_KEY },
    { TAG_GAP, T("</function>"), TAG_DONE },
    { TAG_KEY, T("\">"), TAG_VALUE },
    { TAG_VALUE, T("<![CDATA["), TAG_CDATA },
    { TAG_VALUE, T("</param>"), TAG_GAP },
    { TAG_VALUE, T("<param name=\""), TAG_KEY },
    { TAG_VALUE, T("</function>"), TAG_DONE },
    { TAG_CDATA, T("]]></param>"), TAG_GAP },
};

/* <|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|>
 * <|open|>argument key="a" type="number"<|sep|>1<|close|>argument<|sep|>
 * <|close|>call<|sep|><|close|>tools<|sep|>   Kimi K3; without line breaks. Instead of arguments:
 * <|open|>json type="object"<|sep|>{..}<|close|>json<|sep|>. Source: llama.cpp,
 * models/templates/Kimi-K3.jinja */
static const struct marker kimi_k3_marks[] = {
    { MARK_SECTION, 0, T(XTML_OPEN("tools")) },
    { MARK_CLOSE, 0, T(XTML_CLOSE("tools")) },
    { MARK_OPEN, 0, T("<|open|>call tool=\"") },
    { MARK_CLOSE, 0, T(XTML_CLOSE("call")) },
    { MARK_CLOSE, 0, T(XTML_CLOSE("json")) },
    { MARK_DROP, 0, T(XTML_OPEN("response")) },
    { MARK_DROP, 0, T(XTML_CLOSE("response")) },
    { MARK_DROP, 0, T(XTML_CLOSE("message")) },
};
static const struct tag_edge kimi_k3_edges[] = {
    { TAG_NAME, T("\"<|sep|>"), TAG_GAP },
    { TAG_NAME, T("\" index=\""), TAG_SKIP },
    { TAG_SKIP, T("\"<|sep|>"), TAG_GAP },
    { TAG_GAP, T("<|open|>argument key=\""), TAG_KEY },
    { TAG_GAP, T(XTML_OPEN("json type=\"object\"")), TAG_ARGS },
    { TAG_GAP, T(XTML_CLOSE("call")), TAG_DONE },
    { TAG_KEY, T("\" type=\"string\"<|sep|>"), TAG_STRING },
    { TAG_KEY, T("\" type=\"number\"<|sep|>"), TAG_ANY },
    { TAG_KEY, T("\" type=\"boolean\"<|sep|>"), TAG_ANY },
    { TAG_KEY, T("\" type=\"null\"<|sep|>"), TAG_ANY },
    { TAG_KEY, T("\" type=\"object\"<|sep|>"), TAG_ANY },
    { TAG_KEY, T("\" type=\"array\"<|sep|>"), TAG_ANY },
    { TAG_KEY, T("\"<|sep|>"), TAG_VALUE },
    { TAG_STRING, T(XTML_CLOSE("argument")), TAG_GAP },
    { TAG_ANY, T(XTML_CLOSE("argument")), TAG_GAP },
    { TAG_VALUE, T(XTML_CLOSE("argument")), TAG_GAP },
    { TAG_ARGS, T("{"), TAG_JSON },
};

/* <|start|>assistant to=f<|message|><atem:function_calls>
 * <atem:invoke name="f">
 * <atem:parameter name="a">1</atem:parameter>
 * </atem:invoke>
 * </atem:function_calls><|eom|>    Muse, one call per message. Other messages go to=self
 * (reasoning) and to=user. The prompt ends with <|start|>assistant. Source: vLLM,
 * examples/tool_chat_template_muse_glimmer.jinja, vllm/parser/muse_glimmer.py */
static const struct marker muse_marks[] = {
    { MARK_SECTION, 0, T("<atem:function_calls>") },
    { MARK_SECTION_END, 0, T("</atem:function_calls>") },
    { MARK_OPEN, MARK_IN_SECTION, T("<atem:invoke name=\"") },
    { MARK_HEADER, 0, T("<|start|>") },
    { MARK_MESSAGE_END, 0, T("<|eom|>") },
    { MARK_MESSAGE_END, 0, T("<|eot|>") },
    { MARK_DROP, 0, T("<|message|>") },
};
static const struct tag_edge muse_edges[] = {
    { TAG_NAME, T("\">"), TAG_GAP },
    { TAG_GAP, T("<atem:parameter name=\""), TAG_KEY },
    { TAG_GAP, T("</atem:invoke>"), TAG_DONE },
    { TAG_KEY, T("\">"), TAG_VALUE },
    { TAG_VALUE, T("</atem:parameter>"), TAG_GAP },
    { TAG_VALUE, T("<atem:parameter name=\""), TAG_KEY },
    { TAG_VALUE, T("</atem:invoke>"), TAG_DONE },
};

/* <｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="f">
 * <steptml:parameter name="a">1</steptml:parameter></steptml:invoke><｜tool_call_end｜>
 * <｜tool_calls_end｜>   Step 3; line breaks are not verified, blanks are skipped anyway */
static const struct marker step3_marks[] = {
    { MARK_SECTION, 0, T("<" BAR "tool_calls_begin" BAR ">") },
    { MARK_CLOSE, 0, T("<" BAR "tool_calls_end" BAR ">") },
    { MARK_OPEN, 0, T("<" BAR "tool_call_begin" BAR ">") },
    { MARK_CLOSE, 0, T("<" BAR "tool_call_end" BAR ">") },
};
static const struct tag_edge step3_edges[] = {
    { TAG_SKIP, T("<" BAR "tool_sep" BAR ">"), TAG_HEAD },
    { TAG_HEAD, T("<steptml:invoke name=\""), TAG_NAME },
    { TAG_NAME, T("\">"), TAG_GAP },
    { TAG_GAP, T("<steptml:parameter name=\""), TAG_KEY },
    { TAG_GAP, T("</steptml:invoke>"), TAG_DONE },
    { TAG_KEY, T("\">"), TAG_VALUE },
    { TAG_VALUE, T("</steptml:parameter>"), TAG_GAP },
    { TAG_VALUE, T("<steptml:parameter name=\""), TAG_KEY },
    { TAG_VALUE, T("</steptml:invoke>"), TAG_DONE },
};

/* ---- Python ---- */

/* <|python_tag|>module.method(a=1)<|eom_id|>   built-in tools of Llama 3; .call is not part of the
 * name */
static const struct marker llama_python_marks[] = {
    { MARK_OPEN, 0, T("<|python_tag|>") },
    { MARK_DROP, 0, T("<|eom_id|>") },
    { MARK_DROP, 0, T("<|eot_id|>") },
};

/* <|tool_call_start|>[f(a=1), g(b="x")]<|tool_call_end|>   LFM2; LFM2.5, whose objects are JSON.
 * Source: llama.cpp, models/templates/LFM2.5-8B-A1B.jinja */
static const struct marker lfm2_marks[] = {
    { MARK_OPEN, 0, T("<|tool_call_start|>") },
    { MARK_CLOSE, 0, T("<|tool_call_end|>") },
};

/* ```tool_code
 * f(a=1)
 * ```              Gemma 3, as its documentation prompts for; not in its template */
static const struct marker gemma_marks[] = {
    { MARK_OPEN, 0, T("```tool_code\n") },
};

/* <|tool_call>call:f{a:1,b:<|"|>x<|"|>}<tool_call|>   Gemma 4 */
static const struct marker gemma4_marks[] = {
    { MARK_OPEN, 0, T("<|tool_call>") },
    { MARK_CLOSE, 0, T("<tool_call|>") },
};

/* <start_function_call>call:f{a:1,b:<escape>x<escape>}<end_function_call>   FunctionGemma */
static const struct marker function_gemma_marks[] = {
    { MARK_OPEN, 0, T("<start_function_call>") },
    { MARK_CLOSE, 0, T("<end_function_call>") },
};

/* <function_calls>
 * f(a=1)
 * g(b="x")
 * </function_calls>   OLMo 3 */
static const struct marker olmo3_marks[] = {
    { MARK_OPEN, 0, T("<function_calls>") },
    { MARK_CLOSE, 0, T("</function_calls>") },
};

/* ---- channels ---- */

static const struct marker harmony_marks[] = { HARMONY_MARKS };

static const struct tool_format tools[] = {
    { .id = "null", .body = BODY_NONE },
    { .id = "hermes_json",
        .before_name = "<tool_call>\n{\"name\": \"",
        .after_name = "\", \"arguments\": ",
        .after_args = "}\n</tool_call>",
        .next_call = "\n<tool_call>\n{\"name\": \"",
        .body = BODY_JSON,
        .flags = TOOL_LIST,
        MARKS(hermes_marks) },
    { .id = "glm4_native",
        .before_name = "<tool_call>",
        .after_name = "\n",
        .after_args = "</tool_call>",
        .next_call = "\n<tool_call>",
        .body = BODY_TAGS,
        .first = TAG_NAME,
        MARKS(hermes_marks),
        EDGES(glm_edges) },
    { .id = "glm4_xml",
        .before_name = "<tool_call><name>",
        .after_name = "</name><arguments>",
        .after_args = "</arguments></tool_call>",
        .next_call = "\n<tool_call><name>",
        .body = BODY_TAGS,
        .first = TAG_HEAD,
        MARKS(glm4_xml_marks),
        EDGES(glm4_xml_edges) },
    { .id = "llama_xml",
        .before_name = "<function=",
        .after_name = ">",
        .after_args = "</function>",
        .next_call = "\n<function=",
        .body = BODY_TAGS,
        .first = TAG_NAME,
        MARKS(llama_xml_marks),
        EDGES(llama_xml_edges) },
    { .id = "llama_python",
        .before_name = "<|python_tag|>",
        .after_name = ".call(",
        .body = BODY_PYTHON,
        .flags = TOOL_MANY,
        .suffix = ".call",
        MARKS(llama_python_marks) },
    { .id = "llama3_json",
        .before_name = "{\"name\": \"",
        .after_name = "\", \"parameters\": ",
        .after_args = "}",
        .next_call = "; {\"name\": \"",
        .body = BODY_JSON,
        .flags = TOOL_LIST | TOOL_SEMICOLON | TOOL_FENCE,
        .start_bytes = "{[`",
        MARKS(llama3_marks) },
    { .id = "xlam",
        .before_name = "[{\"name\": \"",
        .after_name = "\", \"arguments\": ",
        .after_args = "}",
        .next_call = ", {\"name\": \"",
        .after_calls = "]",
        .body = BODY_JSON,
        .flags = TOOL_LIST | TOOL_SEMICOLON | TOOL_FENCE,
        .start_bytes = "{[`",
        MARKS(xlam_marks) },
    { .id = "json",
        .before_name = "{\"name\": \"",
        .after_name = "\", \"arguments\": ",
        .after_args = "}",
        .next_call = "; {\"name\": \"",
        .body = BODY_JSON,
        .flags = TOOL_LIST | TOOL_SEMICOLON | TOOL_FENCE,
        .start_bytes = "{[`" },
    { .id = "pythonic",
        .before_name = "[",
        .after_name = "(",
        .body = BODY_PYTHON,
        .start_bytes = "[" },
    { .id = "qwen3_coder",
        .before_name = "<tool_call>\n<function=",
        .after_name = ">\n",
        .after_args = "</function>\n</tool_call>",
        .next_call = "\n<tool_call>\n<function=",
        .body = BODY_TAGS,
        .first = TAG_NAME,
        MARKS(qwen3_coder_marks),
        EDGES(qwen3_coder_edges) },
    { .id = "mistral",
        .before_name = "[TOOL_CALLS][{\"name\": \"",
        .after_name = "\", \"arguments\": ",
        .after_args = "}",
        .next_call = ", {\"name\": \"",
        .after_calls = "]",
        .ids = CALL_IDS_NINE,
        .body = BODY_JSON,
        .flags = TOOL_LIST,
        MARKS(mistral_marks) },
    { .id = "mistral_v11",
        .before_name = "[TOOL_CALLS]",
        .after_name = "[ARGS]",
        .after_args = "",
        .next_call = "[TOOL_CALLS]",
        .ids = CALL_IDS_NINE,
        .body = BODY_TAGS,
        .first = TAG_NAME,
        MARKS(mistral_v11_marks),
        EDGES(mistral_v11_edges) },
    { .id = "deepseek_v3",
        .before_name = DEEPSEEK_CALLS DEEPSEEK_BEGIN "function" DEEPSEEK_SEP,
        .after_name = "\n```json\n",
        .after_args = "\n```" DEEPSEEK_END,
        .next_call = "\n" DEEPSEEK_BEGIN "function" DEEPSEEK_SEP,
        .after_calls = DEEPSEEK_CALLS_END,
        .body = BODY_TAGS,
        .first = TAG_SKIP,
        MARKS(deepseek_v3_marks),
        EDGES(deepseek_v3_edges) },
    { .id = "deepseek_v31",
        .before_name = DEEPSEEK_CALLS DEEPSEEK_BEGIN,
        .after_name = DEEPSEEK_SEP,
        .after_args = DEEPSEEK_END,
        .next_call = DEEPSEEK_BEGIN,
        .after_calls = DEEPSEEK_CALLS_END,
        .body = BODY_TAGS,
        .first = TAG_NAME,
        MARKS(deepseek_v3_marks),
        EDGES(deepseek_v31_edges) },
    { .id = "deepseek_v32",
        .before_name = "<" DSML "function_calls>\n<" DSML "invoke name=\"",
        .after_name = "\">\n",
        .after_args = "</" DSML "invoke>\n",
        .next_call = "<" DSML "invoke name=\"",
        .after_calls = "</" DSML "function_calls>",
        .body = BODY_TAGS,
        .flags = TOOL_VERBATIM,
        .first = TAG_NAME,
        MARKS(deepseek_v32_marks),
        EDGES(deepseek_v32_edges) },
    { .id = "deepseek_v41",
        .before_name = "<" DSML " calls>\n<" DSML " invoke name=\"",
        .after_name = "\">\n",
        .after_args = "</" DSML " invoke>\n",
        .next_call = "<" DSML " invoke name=\"",
        .after_calls = "</" DSML " calls>",
        .body = BODY_TAGS,
        .flags = TOOL_VERBATIM,
        .first = TAG_NAME,
        MARKS(deepseek_v41_marks),
        EDGES(deepseek_v41_edges) },
    { .id = "gigachat3",
        .before_name = "<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"",
        .after_name = "\", \"arguments\": ",
        .body = BODY_JSON,
        MARKS(gigachat3_marks) },
    { .id = "gigachat35",
        .before_name = "<" GCML "tool_calls>\n<" GCML "invoke name=\"",
        .after_name = "\">\n",
        .after_args = "</" GCML "invoke>\n",
        .next_call = "<" GCML "invoke name=\"",
        .after_calls = "</" GCML "tool_calls>",
        .body = BODY_TAGS,
        .flags = TOOL_VERBATIM,
        .first = TAG_NAME,
        MARKS(gigachat35_marks),
        EDGES(gigachat35_edges) },
    { .id = "kimi_k2",
        .before_name = "<|tool_calls_section_begin|><|tool_call_begin|>functions.",
        .after_name = "<|tool_call_argument_begin|>",
        .after_args = "<|tool_call_end|>",
        .next_call = "<|tool_call_begin|>functions.",
        .after_calls = "<|tool_calls_section_end|>",
        .ids = CALL_IDS_NAME,
        .body = BODY_TAGS,
        .first = TAG_NAME,
        .prefix = "functions.",
        .suffix = ":",
        MARKS(kimi_marks),
        EDGES(kimi_edges) },
    { .id = "glm45",
        .before_name = "<tool_call>",
        .after_name = "\n",
        .after_args = "</tool_call>",
        .next_call = "\n<tool_call>",
        .body = BODY_TAGS,
        .first = TAG_NAME,
        MARKS(hermes_marks),
        EDGES(glm_edges) },
    { .id = "kimi_k3",
        .before_name = XTML_OPEN("tools") "<|open|>call tool=\"",
        .after_name = "\" index=\"1\"<|sep|>",
        .after_args = XTML_CLOSE("call"),
        .next_call = "<|open|>call tool=\"",
        .after_calls = XTML_CLOSE("tools"),
        .body = BODY_TAGS,
        .flags = TOOL_VERBATIM,
        .first = TAG_NAME,
        MARKS(kimi_k3_marks),
        EDGES(kimi_k3_edges) },
    { .id = "harmony",
        .before_name = "<|channel|>commentary to=functions.",
        .after_name = " <|constrain|>json<|message|>",
        .after_args = "<|call|>",
        .body = BODY_CHANNELS,
        .start_bytes = "t",
        .prefix = "functions.",
        MARKS(harmony_marks) },
    { .id = "minimax_m2",
        .before_name = "<minimax:tool_call>\n<invoke name=\"",
        .after_name = "\">\n",
        .after_args = "</invoke>\n",
        .next_call = "<invoke name=\"",
        .after_calls = "</minimax:tool_call>",
        .body = BODY_TAGS,
        .first = TAG_NAME,
        MARKS(minimax_marks),
        EDGES(minimax_edges) },
    { .id = "minimax_m3",
        .before_name = M3 "<tool_call>\n" M3 "<invoke name=\"",
        .after_name = "\">\n",
        .body = BODY_ELEMENTS,
        MARKS(minimax_m3_marks),
        EDGES(minimax_m3_edges) },
    { .id = "granite",
        .before_name = "<|tool_call|>[{\"name\": \"",
        .after_name = "\", \"arguments\": ",
        .after_args = "}",
        .next_call = ", {\"name\": \"",
        .after_calls = "]",
        .body = BODY_JSON,
        .flags = TOOL_LIST,
        MARKS(granite_marks) },
    { .id = "phi4",
        .before_name = "<|tool_call|>[{\"name\": \"",
        .after_name = "\", \"arguments\": ",
        .after_args = "}",
        .next_call = ", {\"name\": \"",
        .after_calls = "]<|/tool_call|>",
        .body = BODY_JSON,
        .flags = TOOL_LIST,
        MARKS(phi4_marks) },
    { .id = "jamba",
        .before_name = "<tool_calls>[\n    {\"name\": \"",
        .after_name = "\", \"arguments\": ",
        .after_args = "}",
        .next_call = ",\n    {\"name\": \"",
        .after_calls = "\n]</tool_calls>",
        .body = BODY_JSON,
        .flags = TOOL_LIST,
        MARKS(jamba_marks) },
    { .id = "command_r",
        .before_name = "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"",
        .after_name = "\", \"parameters\": ",
        .after_args = "}",
        .next_call = ",\n    {\"tool_call_id\": \"0\", \"tool_name\": \"",
        .after_calls = "\n]<|END_ACTION|>",
        .body = BODY_JSON,
        .flags = TOOL_LIST,
        MARKS(command_marks) },
    { .id = "command_r_plus",
        .before_name = "Action:\n```json\n[\n    {\n        \"tool_name\": \"",
        .after_name = "\",\n        \"parameters\": ",
        .after_args = "\n    }",
        .next_call = ",\n    {\n        \"tool_name\": \"",
        .after_calls = "\n]```",
        .body = BODY_JSON,
        .flags = TOOL_LIST | TOOL_FENCE,
        MARKS(command_plus_marks) },
    { .id = "hunyuan_v3",
        .before_name = "<tool_calls>\n<tool_call>",
        .after_name = "<tool_sep>\n",
        .after_args = "</tool_call>\n",
        .next_call = "<tool_call>",
        .after_calls = "</tool_calls>",
        .body = BODY_TAGS,
        .first = TAG_NAME,
        MARKS(hunyuan_v3_marks),
        EDGES(hunyuan_v3_edges) },
    { .id = "hunyuan_v4",
        .before_name = "<tool_calls:opensource><tool_call:opensource>",
        .after_name = "\n",
        .after_args = "</tool_call:opensource>",
        .next_call = "<tool_call:opensource>",
        .after_calls = "</tool_calls:opensource>",
        .body = BODY_TAGS,
        .first = TAG_NAME,
        MARKS(hunyuan_v4_marks),
        EDGES(hunyuan_v4_edges) },
    { .id = "minicpm5",
        .before_name = "<function name=\"",
        .after_name = "\">",
        .after_args = "</function>",
        .next_call = "\n<function name=\"",
        .body = BODY_TAGS,
        .first = TAG_NAME,
        MARKS(minicpm5_marks),
        EDGES(minicpm5_edges) },
    { .id = "muse",
        .before_name = "<|message|><atem:function_calls>\n<atem:invoke name=\"",
        .after_name = "\">\n",
        .body = BODY_TAGS,
        .flags = TOOL_VERBATIM | TOOL_START_IS_HEADER,
        .start_bytes = "t",
        .first = TAG_NAME,
        MARKS(muse_marks),
        EDGES(muse_edges) },
    { .id = "nemotron",
        .before_name = "<TOOLCALL>[{\"name\": \"",
        .after_name = "\", \"arguments\": ",
        .after_args = "}",
        .next_call = ", {\"name\": \"",
        .after_calls = "]</TOOLCALL>",
        .body = BODY_JSON,
        .flags = TOOL_LIST,
        MARKS(nemotron_marks) },
    { .id = "internlm",
        .before_name = "<|action_start|><|plugin|>\n{\"name\": \"",
        .after_name = "\", \"parameters\": ",
        .after_args = "}<|action_end|>",
        .body = BODY_JSON,
        MARKS(internlm_marks) },
    { .id = "longcat",
        .before_name = "<longcat_tool_call>\n{\"name\": \"",
        .after_name = "\", \"arguments\": ",
        .after_args = "}\n</longcat_tool_call>",
        .next_call = "\n<longcat_tool_call>\n{\"name\": \"",
        .body = BODY_JSON,
        MARKS(longcat_marks) },
    { .id = "apertus",
        .before_name = "<|tools_prefix|>[{\"",
        .after_name = "\": ",
        .after_args = "}",
        .next_call = ", {\"",
        .after_calls = "]<|tools_suffix|>",
        .body = BODY_JSON,
        .flags = TOOL_LIST | TOOL_KEY_IS_NAME,
        MARKS(apertus_marks) },
    { .id = "functionary",
        .before_name = "",
        .after_name = "\n",
        .after_args = "",
        .next_call = "\n>>>",
        .body = BODY_TAGS,
        .flags = TOOL_START_IS_CALL,
        .first = TAG_NAME,
        .start_bytes = "",
        .text_name = "all",
        MARKS(functionary_marks),
        EDGES(functionary_edges) },
    { .id = "seed_oss",
        .before_name = "<seed:tool_call>\n<function=",
        .after_name = ">\n",
        .after_args = "</function>\n</seed:tool_call>",
        .next_call = "\n<seed:tool_call>\n<function=",
        .body = BODY_TAGS,
        .first = TAG_NAME,
        MARKS(seed_marks),
        EDGES(seed_edges) },
    { .id = "step3",
        .before_name = "<" BAR "tool_calls_begin" BAR "><" BAR "tool_call_begin" BAR
                       ">function<" BAR "tool_sep" BAR "><steptml:invoke name=\"",
        .after_name = "\">",
        .after_args = "</steptml:invoke><" BAR "tool_call_end" BAR ">",
        .next_call = "\n<" BAR "tool_call_begin" BAR ">function<" BAR "tool_sep" BAR
                     "><steptml:invoke name=\"",
        .after_calls = "<" BAR "tool_calls_end" BAR ">",
        .body = BODY_TAGS,
        .first = TAG_SKIP,
        MARKS(step3_marks),
        EDGES(step3_edges) },
    { .id = "lfm2",
        .before_name = "<|tool_call_start|>[",
        .after_name = "(",
        .body = BODY_PYTHON,
        MARKS(lfm2_marks) },
    { .id = "olmo3",
        .before_name = "<function_calls>\n",
        .after_name = "(",
        .body = BODY_PYTHON,
        .flags = TOOL_MANY,
        MARKS(olmo3_marks) },
    { .id = "gemma",
        .before_name = "```tool_code\n",
        .after_name = "(",
        .body = BODY_PYTHON,
        .flags = TOOL_MANY | TOOL_FENCE,
        MARKS(gemma_marks) },
    { .id = "gemma4",
        .before_name = "<|tool_call>call:",
        .after_name = "{",
        .body = BODY_PYTHON,
        .prefix = "call:",
        .open = '{',
        .close = '}',
        .assign = ':',
        .quote = T("<|\"|>"),
        MARKS(gemma4_marks) },
    { .id = "function_gemma",
        .before_name = "<start_function_call>call:",
        .after_name = "{",
        .body = BODY_PYTHON,
        .prefix = "call:",
        .open = '{',
        .close = '}',
        .assign = ':',
        .quote = T("<escape>"),
        MARKS(function_gemma_marks) },
};

const struct tool_format *tool_format_at(size_t i)
{
    return i < ARRAY_LEN(tools) ? &tools[i] : NULL;
}

const struct tool_format *tool_format_find(struct str id)
{
    for (size_t i = 0; i < ARRAY_LEN(tools); i++)
        if (str_is(id, tools[i].id))
            return &tools[i];
    return NULL;
}
