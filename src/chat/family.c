#include "chat/family.h"
#include "chat/template.h"

#define ASSISTANT                                                                                  \
    "<\xEF\xBD\x9C"                                                                                \
    "Assistant\xEF\xBD\x9C>" /* with full-width bars */

/* ---- templates for model files without one */

static const char llama3_source[] =
    "{{ bos_token }}"
    "{% for message in messages %}"
    "<|start_header_id|>{{ 'ipython' if message.role == 'tool' else message.role }}"
    "<|end_header_id|>\n\n{{ message.content | default('', true) | trim }}<|eot_id|>"
    "{% endfor %}"
    "{% if add_generation_prompt %}"
    "<|start_header_id|>assistant<|end_header_id|>\n\n"
    "{% endif %}";
static const char gemma_source[] =
    "{{ bos_token }}"
    "{% set ns = namespace(system='') %}"
    "{% for message in messages %}"
    "{% if message.role in ['system', 'developer'] %}"
    "{% set ns.system = ns.system + message.content | trim + '\n\n' %}"
    "{% else %}"
    "<start_of_turn>{{ 'model' if message.role == 'assistant' else 'user' }}\n"
    "{% if message.role != 'assistant' %}{{ ns.system }}{% set ns.system = '' %}{% endif %}"
    "{{ message.content | default('', true) | trim }}<end_of_turn>\n"
    "{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}";
static const char deepseek_source[] =
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{% if message.role in ['system', 'developer'] %}{{ message.content }}"
    "{% elif message.role == 'assistant' %}" ASSISTANT
    "{{ (message.content | default('', true)).split('</think>')[-1] }}{{ eos_token }}"
    "{% else %}<\xEF\xBD\x9CUser\xEF\xBD\x9C>{{ message.content }}"
    "{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}" ASSISTANT "{% endif %}";
static const char chatml_source[] =
    "{% for message in messages %}"
    "<|im_start|>{{ message.role }}\n"
    "{{ message.content | default('', true) }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
static const char phi3_source[] =
    "{% for message in messages %}"
    "<|{{ message.role }}|>\n{{ message.content | default('', true) }}<|end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}";
static const char glm4_source[] =
    "[gMASK]<sop>"
    "{% for message in messages %}"
    "<|{{ 'observation' if message.role == 'tool' else message.role }}|>\n"
    "{{ message.content | default('', true) }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";

/* System text is put before the last user message. The blank after a marker exists only in
 * SentencePiece vocabularies; the later ones have none. */
#define MISTRAL(blank)                                                                             \
    "{{ bos_token }}"                                                                              \
    "{% set ns = namespace(system='', last=0) %}"                                                  \
    "{% for message in messages %}"                                                                \
    "{% if message.role in ['system', 'developer'] %}"                                             \
    "{% set ns.system = ns.system + message.content + '\n\n' %}"                                   \
    "{% elif message.role != 'assistant' %}{% set ns.last = loop.index0 %}"                        \
    "{% endif %}"                                                                                  \
    "{% endfor %}"                                                                                 \
    "{% for message in messages %}"                                                                \
    "{% if message.role == 'assistant' %}" blank                                                   \
    "{{ message.content | default('', true) | trim }}{{ eos_token }}"                              \
    "{% elif message.role not in ['system', 'developer'] %}"                                       \
    "[INST]" blank "{{ ns.system if loop.index0 == ns.last else '' }}{{ message.content }}[/INST]" \
    "{% endif %}"                                                                                  \
    "{% endfor %}"
static const char mistral_source[] = MISTRAL(" ");
static const char tekken_source[] = MISTRAL("");
static const char mistral_v7_source[] =
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{% if message.role in ['system', 'developer'] %}"
    "[SYSTEM_PROMPT]{{ message.content }}[/SYSTEM_PROMPT]"
    "{% elif message.role == 'assistant' %}"
    "{{ message.content | default('', true) | trim }}{{ eos_token }}"
    "{% else %}[INST]{{ message.content }}[/INST]"
    "{% endif %}"
    "{% endfor %}";
static const char llama2_source[] =
    "{% set ns = namespace(system='') %}"
    "{% for message in messages %}"
    "{% if message.role in ['system', 'developer'] %}"
    "{% set ns.system = '<<SYS>>\n' + message.content + '\n<</SYS>>\n\n' %}"
    "{% elif message.role == 'assistant' %}"
    " {{ message.content | default('', true) | trim }} {{ eos_token }}"
    "{% else %}"
    "{{ bos_token }}[INST] {{ ns.system }}{{ message.content | trim }} [/INST]"
    "{% set ns.system = '' %}"
    "{% endif %}"
    "{% endfor %}";
static const char zephyr_source[] =
    "{% for message in messages %}"
    "<|{{ message.role }}|>\n{{ message.content | default('', true) }}{{ eos_token }}\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}";
static const char vicuna_source[] =
    "{% for message in messages %}"
    "{% if message.role in ['system', 'developer'] %}{{ message.content }}\n\n"
    "{% elif message.role == 'assistant' %}"
    " {{ message.content | default('', true) | trim }}{{ eos_token }}\n"
    "{% else %}USER: {{ message.content | trim }} ASSISTANT:"
    "{% endif %}"
    "{% endfor %}";

#define MARKERS(...)                                                                               \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

/* Specific families come before general ones: the first family whose markers are all found is used,
 * unless another one whose markers are also found lists the architecture. */
static const struct chat_family families[] = {
    { "gpt_oss", "gpt-oss harmony", "gpt-oss", MARKERS("<|channel|>", "<|message|>", "<|start|>"),
        "harmony", "harmony", "<|return|> <|call|>", NULL },
    { "kimi", "kimi-k2", "", MARKERS("<|im_user|>", "<|im_assistant|>", "<|im_middle|>"), "kimi_k2",
        "kimi_k2", "<|im_end|>", NULL },
    { "minimax", "minimax-m2", "minimax-m2", MARKERS("]~b]", "[e~["), "minimax_m2", "minimax_m2",
        "[e~[", NULL },
    { "command_r", "command-r command-a", "command-r cohere2",
        MARKERS("<|START_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        "command_r", "command_r", "<|END_OF_TURN_TOKEN|>", NULL },
    { "granite", "granite3", "granite granitemoe granitehybrid",
        MARKERS("<|start_of_role|>", "<|end_of_role|>"), "granite", "granite", "", NULL },
    { "lfm2", "", "lfm2 lfm2moe", MARKERS("<|im_start|>", "<|tool_list_start|>", "<|im_end|>"),
        "lfm2", "null", "", NULL },
    { "seed_oss", "seed-oss", "seed_oss", MARKERS("<seed:bos>", "<seed:eos>"), "seed_oss",
        "seed_oss", "<seed:eos>", NULL },
    { "glm4", "glm glm-4 chatglm", "chatglm glm4 glm4moe",
        MARKERS("<|user|>", "<|assistant|>", "<|observation|>"), "glm4_native", "think_tag",
        "<|user|> <|observation|>", glm4_source },
    { "llama", "llama3 llama-3 llama3.1 llama3.2 llama3.3", "llama4",
        MARKERS("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"), "llama_xml", "null",
        "<|eom_id|>", llama3_source },
    { "gemma4", "", "gemma4", MARKERS("<|turn>", "<turn|>"), "gemma4", "gemma4", "", NULL },
    { "gemma", "gemma2 gemma3", "gemma gemma2 gemma3 gemma3n",
        MARKERS("<start_of_turn>", "<end_of_turn>"), "null", "null", "", gemma_source },
    { "deepseek", "deepseek-r1 deepseek-v3", "deepseek deepseek2",
        MARKERS("<\xEF\xBD\x9CUser\xEF\xBD\x9C>", ASSISTANT), "deepseek_v3", "deepseek_v3", "",
        deepseek_source },
    { "chatml", "yi smollm hermes", "", MARKERS("<|im_start|>", "<|im_end|>"), "hermes_json",
        "think_tag", "", chatml_source },
    { "qwen", "qwen2 qwen2.5 qwen3",
        "qwen qwen2 qwen2moe qwen2vl qwen3 qwen3moe qwen3next qwen35 qwen35moe qwen3vl",
        MARKERS("<|im_start|>", "<|im_end|>"), "hermes_json", "think_tag", "", chatml_source },
    { "phi4", "phi-4 phi4-mini", "", MARKERS("<|user|>", "<|end|>", "<|tool|>"), "phi4", "null",
        "<|end|>", NULL },
    { "phi3", "phi-3 phi3.5", "phi3", MARKERS("<|user|>", "<|assistant|>", "<|end|>"), "null",
        "null", "<|end|>", phi3_source },
    { "mistral_v7", "mistral-v7-tekken", "", MARKERS("<SPECIAL_20>", "[SYSTEM_PROMPT]", "[INST]"),
        "null", "null", "", mistral_v7_source },
    { "mistral_tekken", "mistral-v3-tekken mistral-nemo", "", MARKERS("<SPECIAL_20>", "[INST]"),
        "null", "null", "", tekken_source },
    { "mistral", "mistral-v3 ministral mixtral", "mistral3 mistral4", MARKERS("[INST]", "[/INST]"),
        "null", "null", "", mistral_source },
    { "exaone", "", "exaone exaone4", MARKERS("[|assistant|]", "[|endofturn|]"), "hermes_json",
        "think_tag", "[|endofturn|]", NULL },
    { "hunyuan", "", "hunyuan-moe hunyuan-dense", NULL, "jamba", "hunyuan", "", NULL },
    { "nemotron", "", "nemotron nemotron_h nemotron_h_moe", NULL, "nemotron", "nemotron", "",
        NULL },
    { "jamba", "", "jamba", NULL, "jamba", "null", "", NULL },
    { "internlm", "internlm2 internlm2.5", "internlm2", NULL, "internlm", "null", "", NULL },
    { "apertus", "", "apertus", NULL, "apertus", "apertus", "", NULL },
    { "olmo", "olmo3", "olmo2 olmo3", NULL, "olmo3", "null", "", NULL },
    { "llama2", "llama-2", "", NULL, "null", "null", "", llama2_source },
    { "zephyr", "tinyllama stablelm", "", NULL, "null", "null", "", zephyr_source },
    { "vicuna", "", "", NULL, "null", "null", "", vicuna_source },
    { "default", "", "", NULL, "null", "null", "", NULL },
};

static bool is_listed(struct str name, const char *words)
{
    for (const char *p = words; *p;) {
        size_t n = strcspn(p, " ");
        if (str_eq_nocase(name, (struct str){ p, n }))
            return true;
        p += n + (p[n] == ' ');
    }
    return false;
}

const struct chat_family *chat_family_at(size_t i)
{
    return i < ARRAY_LEN(families) ? &families[i] : NULL;
}

const struct chat_family *chat_family_find(struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(families); i++)
        if (str_eq_nocase(name, str_of(families[i].name)) || is_listed(name, families[i].aliases))
            return &families[i];
    return NULL;
}

static bool has_all(const struct chat_family *f, struct str source, const struct vocab *v)
{
    const char *const *m = f->markers;

    for (; m && *m; m++)
        if (source.p ? str_find(source, str_of(*m)) < 0 : vocab_find(v, str_of(*m)) == TOKEN_NONE)
            return false;
    return m != NULL;
}

/* One of the family's markers is the end token of the vocabulary. */
static bool ends_texts(const struct chat_family *f, const struct vocab *v)
{
    struct str eos = vocab_text(v, vocab_eos(v));

    for (const char *const *m = f->markers; *m; m++)
        if (str_is(eos, *m))
            return true;
    return eos.n && is_listed(eos, f->end_tokens);
}

/* Finds a family by its markers, in the source or else in the vocabulary. A vocabulary made for one
 * family and trained for another has the markers of both; the end token decides then. */
static const struct chat_family *find_marked(
    struct str arch, struct str source, const struct vocab *v)
{
    const struct chat_family *first = NULL, *by_end = NULL;

    for (size_t i = 0; i < ARRAY_LEN(families); i++) {
        const struct chat_family *f = &families[i];
        if (!has_all(f, source, v))
            continue;
        if (is_listed(arch, f->archs))
            return f;
        first = first ? first : f;
        if (!source.p && !by_end && ends_texts(f, v))
            by_end = f;
    }
    return by_end ? by_end : first;
}

const struct chat_family *chat_family_of_vocab(const struct vocab *v)
{
    return find_marked(STR(""), STR_NONE, v);
}

/* The family whose template this is. Some templates assemble their markers from pieces, which a
 * search for markers does not find. */
static const struct chat_family *find_written(struct str arch, struct str source)
{
    const struct chat_family *first = NULL;

    for (size_t i = 0; i < ARRAY_LEN(families); i++) {
        const struct chat_family *f = &families[i];
        if (!f->source || !str_is(source, f->source))
            continue;
        if (is_listed(arch, f->archs))
            return f;
        first = first ? first : f;
    }
    return first;
}

const struct chat_family *chat_family_detect(
    struct str arch, struct str source, const struct vocab *v)
{
    const struct chat_family *f = source.p ? find_written(arch, source) : NULL;

    if (!f && source.p)
        f = find_marked(arch, source, NULL);

    if (!f && !source.p)
        f = find_marked(arch, STR_NONE, v);
    for (size_t i = 0; !f && i < ARRAY_LEN(families); i++)
        if (is_listed(arch, families[i].archs))
            f = &families[i];
    return f ? f : chat_family_find(STR("default"));
}

const char *chat_template_builtin(const char *name)
{
    const struct chat_family *f = chat_family_find(str_of(name));

    return f ? f->source : NULL;
}
