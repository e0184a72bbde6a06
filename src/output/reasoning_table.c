/* reasoning_table.c: reasoning formats of model families (format_table.h). */
#include "output/format_table.h"
#include "output/format_literals.h"

static const struct marker harmony_marks[] = { HARMONY_MARKS };
static const struct marker think_marks[] = {
    { MARK_REASONING, 0, T("<think>") },
    { MARK_REASONING_END, 0, T("</think>") },
};
static const struct marker mistral_think_marks[] = {
    { MARK_REASONING, 0, T("[THINK]") },
    { MARK_REASONING_END, 0, T("[/THINK]") },
};
/* Granite 3.2 uses sentences as markers; 3.3 has <think> and <response>, as in its template. */
static const struct marker granite_think_marks[] = {
    { MARK_REASONING, 0, T("<think>") },
    { MARK_REASONING_END, 0, T("</think>") },
    { MARK_ANSWER, 0, T("<response>") },
    { MARK_ANSWER_END, 0, T("</response>") },
    { MARK_REASONING, 0, T("Here is my thought process:") },
    { MARK_REASONING_END, 0, T("Here is my response:") },
};
static const struct marker seed_think_marks[] = {
    { MARK_REASONING, 0, T("<seed:think>") },
    { MARK_REASONING_END, 0, T("</seed:think>") },
};
/* MiniMax M2 uses <think>, later versions <mm:think>. */
static const struct marker minimax_think_marks[] = {
    { MARK_REASONING, 0, T("<think>") },
    { MARK_REASONING_END, 0, T("</think>") },
    { MARK_REASONING, 0, T("<mm:think>") },
    { MARK_REASONING_END, 0, T("</mm:think>") },
};
static const struct marker gemma_think_marks[] = {
    { MARK_REASONING, 0, T("<|channel>thought\n") },
    { MARK_REASONING_END, 0, T("<channel|>") },
};
static const struct marker command_think_marks[] = {
    { MARK_REASONING, 0, T("<|START_THINKING|>") },
    { MARK_REASONING_END, 0, T("<|END_THINKING|>") },
    { MARK_DROP, 0, T("<|START_RESPONSE|>") },
    { MARK_DROP, 0, T("<|END_RESPONSE|>") },
    { MARK_DROP, 0, T("<|START_TEXT|>") },
    { MARK_DROP, 0, T("<|END_TEXT|>") },
};
/* Kimi-VL and Kimi K1.5 use markers with triangles. */
static const struct marker kimi_think_marks[] = {
    { MARK_REASONING, 0, T("<think>") },
    { MARK_REASONING_END, 0, T("</think>") },
    { MARK_REASONING, 0, T("\xE2\x97\x81think\xE2\x96\xB7") },
    { MARK_REASONING_END, 0, T("\xE2\x97\x81/think\xE2\x96\xB7") },
};
static const struct marker kimi_k3_think_marks[] = {
    { MARK_REASONING, 0, T(XTML_OPEN("think")) },
    { MARK_REASONING_END, 0, T(XTML_CLOSE("think")) },
    { MARK_DROP, 0, T(XTML_OPEN("response")) },
    { MARK_DROP, 0, T(XTML_CLOSE("response")) },
    { MARK_DROP, 0, T(XTML_CLOSE("message")) },
};
/* Hunyuan A13B encloses the answer; the tags of Hunyuan 4 end in :opensource. */
static const struct marker hunyuan_think_marks[] = {
    { MARK_REASONING, 0, T("<think>") },
    { MARK_REASONING_END, 0, T("</think>") },
    { MARK_REASONING, 0, T("<think:opensource>") },
    { MARK_REASONING_END, 0, T("</think:opensource>") },
    { MARK_ANSWER, 0, T("<answer>") },
    { MARK_ANSWER_END, 0, T("</answer>") },
};
static const struct marker exaone_think_marks[] = {
    { MARK_REASONING, 0, T("<thought>") },
    { MARK_REASONING_END, 0, T("</thought>") },
};
static const struct marker apertus_think_marks[] = {
    { MARK_REASONING, 0, T("<|inner_prefix|>") },
    { MARK_REASONING_END, 0, T("<|inner_suffix|>") },
};

/* Apriel 1.6: the prompt ends with the first marker; version 1.5 ends the answer with the last.
 * Source: llama.cpp, models/templates/Apriel-1.6-15b-Thinker-fixed.jinja and
 * models/templates/unsloth-Apriel-1.5.jinja */
static const struct marker apriel_think_marks[] = {
    { MARK_REASONING, 0, T("Here are my reasoning steps:") },
    { MARK_REASONING_END, 0, T("[BEGIN FINAL RESPONSE]") },
    { MARK_DROP, 0, T("[END FINAL RESPONSE]") },
};
/* ERNIE 4.5 Thinking encloses the answer; its calls are hermes_json. Source: vLLM,
 * vllm/tool_parsers/ernie45_tool_parser.py */
static const struct marker ernie45_think_marks[] = {
    { MARK_REASONING, 0, T("<think>") },
    { MARK_REASONING_END, 0, T("</think>") },
    { MARK_ANSWER, 0, T("<response>") },
    { MARK_ANSWER_END, 0, T("</response>") },
};
/* Muse: messages to=self are reasoning. */
static const struct marker muse_think_marks[] = {
    { MARK_REASONING, 0, T("to=self<|message|>") },
    { MARK_HEADER, 0, T("<|start|>") },
    { MARK_MESSAGE_END, 0, T("<|eom|>") },
    { MARK_MESSAGE_END, 0, T("<|eot|>") },
    { MARK_DROP, 0, T("to=user<|message|>") },
    { MARK_DROP, 0, T("<|message|>") },
};

static const struct reasoning_format reasoning_formats[] = {
    { .id = "null" },
    { .id = "think_tag", .flags = REASONING_TOGGLE, MARKS(think_marks) },
    /* The prompt of R1 opens the tag, or the model omits it. */
    { .id = "deepseek_r1", .flags = REASONING_STARTS, MARKS(think_marks) },
    /* V3.1 and later; a tool call may follow reasoning without an end marker. */
    { .id = "deepseek_v3", .flags = REASONING_TOGGLE | REASONING_CALL_ENDS, MARKS(think_marks) },
    { .id = "harmony", .flags = REASONING_IS_CHANNEL, MARKS(harmony_marks) },
    { .id = "mistral", MARKS(mistral_think_marks) },
    { .id = "ernie45", .flags = REASONING_STARTS, MARKS(ernie45_think_marks) },
    { .id = "granite", .flags = REASONING_TOGGLE, MARKS(granite_think_marks) },
    { .id = "seed_oss", .flags = REASONING_TOGGLE, MARKS(seed_think_marks) },
    { .id = "minimax_m2",
        .flags = REASONING_STARTS | REASONING_CALL_ENDS,
        MARKS(minimax_think_marks) },
    { .id = "gemma4", .flags = REASONING_TOGGLE, MARKS(gemma_think_marks) },
    { .id = "nemotron", .flags = REASONING_TOGGLE, MARKS(think_marks) },
    { .id = "command_r", .flags = REASONING_CALL_ENDS, MARKS(command_think_marks) },
    { .id = "kimi_k2", .flags = REASONING_CALL_ENDS, MARKS(kimi_think_marks) },
    { .id = "kimi_k3",
        .flags = REASONING_TOGGLE | REASONING_CALL_ENDS,
        MARKS(kimi_k3_think_marks) },
    { .id = "hunyuan", .flags = REASONING_TOGGLE, MARKS(hunyuan_think_marks) },
    { .id = "exaone", .flags = REASONING_TOGGLE, MARKS(exaone_think_marks) },
    { .id = "apertus", .flags = REASONING_CALL_ENDS, MARKS(apertus_think_marks) },
    { .id = "apriel", .flags = REASONING_STARTS, MARKS(apriel_think_marks) },
    { .id = "muse", .flags = REASONING_IS_CHANNEL, MARKS(muse_think_marks) },
};

const struct reasoning_format *reasoning_format_at(size_t i)
{
    return i < ARRAY_LEN(reasoning_formats) ? &reasoning_formats[i] : NULL;
}

const struct reasoning_format *reasoning_format_find(struct str id)
{
    for (size_t i = 0; i < ARRAY_LEN(reasoning_formats); i++)
        if (str_is(id, reasoning_formats[i].id))
            return &reasoning_formats[i];
    return NULL;
}
