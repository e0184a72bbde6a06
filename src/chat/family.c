#include "chat/family.h"
#include "chat/template.h"

#define ASSISTANT                                                                                  \
    "<\xEF\xBD\x9C"                                                                                \
    "Assistant\xEF\xBD\x9C>" /* with full-width bars */

#define MARKERS(...)                                                                               \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

/* The first row whose markers a vocabulary has is its family: the particular before the general. */
static const struct chat_family families[] = {
    { "llama3", MARKERS("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        "llama-3 llama3.1 llama3.2",
        "{{ bos_token }}"
        "{% for message in messages %}"
        "<|start_header_id|>{{ 'ipython' if message.role == 'tool' else message.role }}"
        "<|end_header_id|>\n\n{{ message.content | default('', true) | trim }}<|eot_id|>"
        "{% endfor %}"
        "{% if add_generation_prompt %}"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
        "{% endif %}" },
    { "gemma", MARKERS("<start_of_turn>", "<end_of_turn>"), "gemma2 gemma3",
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
        "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}" },
    { "deepseek", MARKERS("<\xEF\xBD\x9CUser\xEF\xBD\x9C>", ASSISTANT), "deepseek-r1 deepseek-v3",
        "{{ bos_token }}"
        "{% for message in messages %}"
        "{% if message.role in ['system', 'developer'] %}{{ message.content }}"
        "{% elif message.role == 'assistant' %}" ASSISTANT
        "{{ (message.content | default('', true)).split('</think>')[-1] }}{{ eos_token }}"
        "{% else %}<\xEF\xBD\x9CUser\xEF\xBD\x9C>{{ message.content }}"
        "{% endif %}"
        "{% endfor %}"
        "{% if add_generation_prompt %}" ASSISTANT "{% endif %}" },
    { "chatml", MARKERS("<|im_start|>", "<|im_end|>"), "qwen qwen2 qwen3 yi smollm",
        "{% for message in messages %}"
        "<|im_start|>{{ message.role }}\n"
        "{{ message.content | default('', true) }}<|im_end|>\n"
        "{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}" },
    { "phi3", MARKERS("<|user|>", "<|assistant|>", "<|end|>"), "phi-3 phi3.5",
        "{% for message in messages %}"
        "<|{{ message.role }}|>\n{{ message.content | default('', true) }}<|end|>\n"
        "{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% endif %}" },
    { "mistral", MARKERS("[INST]", "[/INST]"), "mistral-v3 ministral mixtral",
        "{{ bos_token }}"
        "{% set ns = namespace(system='') %}"
        "{% for message in messages %}"
        "{% if message.role in ['system', 'developer'] %}"
        "{% set ns.system = ns.system + message.content + '\n\n' %}"
        "{% elif message.role == 'assistant' %}"
        " {{ message.content | default('', true) | trim }}{{ eos_token }}"
        "{% else %}"
        "[INST] {{ ns.system }}{{ message.content }}[/INST]{% set ns.system = '' %}"
        "{% endif %}"
        "{% endfor %}" },
    { "llama2", NULL, "llama-2",
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
        "{% endfor %}" },
    { "zephyr", NULL, "tinyllama stablelm",
        "{% for message in messages %}"
        "<|{{ message.role }}|>\n{{ message.content | default('', true) }}{{ eos_token }}\n"
        "{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% endif %}" },
    { "vicuna", NULL, "",
        "{% for message in messages %}"
        "{% if message.role in ['system', 'developer'] %}{{ message.content }}\n\n"
        "{% elif message.role == 'assistant' %}"
        " {{ message.content | default('', true) | trim }}{{ eos_token }}\n"
        "{% else %}USER: {{ message.content | trim }} ASSISTANT:"
        "{% endif %}"
        "{% endfor %}" },
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
        if (str_eq_nocase(name, str_of(families[i].name)) || is_listed(name, families[i].also))
            return &families[i];
    return NULL;
}

const struct chat_family *chat_family_of_vocab(const struct vocab *v)
{
    for (size_t i = 0; i < ARRAY_LEN(families); i++) {
        const char *const *m = families[i].markers;
        while (m && *m && vocab_find(v, str_of(*m)) != TOKEN_NONE)
            m++;
        if (m && !*m)
            return &families[i];
    }
    return NULL;
}

const char *chat_template_builtin(const char *name)
{
    const struct chat_family *f = chat_family_find(str_of(name));

    return f ? f->source : NULL;
}
