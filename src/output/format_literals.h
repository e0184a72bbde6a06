/* format_literals.h: macros of the tables of output formats (format_table.c, reasoning_table.c),
 * and the literals that a tool format and a reasoning format share. */
#pragma once

#define T(text)                                                                                    \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    }
#define MARKS(rows) .marks = rows, .n_marks = ARRAY_LEN(rows)
#define EDGES(rows) .edges = rows, .n_edges = ARRAY_LEN(rows)

/* Elements of Kimi K3. */
#define XTML_OPEN(tag)  "<|open|>" tag "<|sep|>"
#define XTML_CLOSE(tag) "<|close|>" tag "<|sep|>"

/* Control tokens of gpt-oss. */
#define HARMONY_MARKS                                                                              \
    { MARK_HEADER, 0, T("<|channel|>") }, { MARK_HEADER, 0, T("<|start|>") },                      \
        { MARK_MESSAGE_END, 0, T("<|end|>") }, { MARK_MESSAGE_END, 0, T("<|return|>") },           \
        { MARK_MESSAGE_END, 0, T("<|call|>") }, { MARK_DROP, 0, T("<|message|>") },                \
    {                                                                                              \
        MARK_DROP, 0, T("<|constrain|>")                                                           \
    }
