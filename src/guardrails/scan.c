#include "guardrails/scan.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "guardrails/fold.h"

struct guard_char {
    uint16_t folded; /* bytes */
    uint16_t raw;    /* bytes */
    uint8_t n;       /* bytes in the text */
    bool is_word, is_covered;
};

enum {
    CONTEXT_BYTES = 4 * GUARD_LOOKBEHIND_MAX,
    HELD_MAX = 16 * 1024 * 1024, /* more than a piece and what is held */
    PIECE_MAX = 512              /* characters between two steps, which bounds the cost of a hit */
};

/* ---- life */

static void start_text(struct guard_scan *s)
{
    s->state = s->pending = AHO_CORASICK_ROOT;
    buf_reset(&s->text);
    buf_reset(&s->raw);
    buf_reset(&s->chars);
    s->base = s->held = 0;
    s->block_at = SIZE_MAX;
    s->is_word_before = s->is_covered = false;
    for (int i = 0; i < s->n_cursors; i++) {
        s->cursors[i].at = 0;
        s->cursors[i].tail = TAIL_NONE;
    }
}

int guard_scan_init(struct guard_scan *s, const struct guardrails *g, uint64_t sets, struct err *e)
{
    const struct guardrails_compiled *c = guardrails_compiled(g);

    *s = (struct guard_scan){ .g = g, .sets = sets };
    buf_init(&s->text, HELD_MAX);
    buf_init(&s->raw, HELD_MAX);
    buf_init(&s->chars, HELD_MAX);
    s->cursors = try_calloc((size_t)MAX(c->n_matchers, 1), sizeof(*s->cursors));
    for (int i = 0; s->cursors && i < c->n_matchers; i++)
        if (sets >> c->matchers[i].set & 1)
            s->cursors[s->n_cursors++].matcher = i;
    if (s->cursors && guardrails_have_patterns(g, sets))
        s->search = guard_search_new();
    if (!s->cursors || (!s->search && guardrails_have_patterns(g, sets))) {
        guard_scan_clear(s);
        return err_set(e, ERR_MEMORY, "no memory for the guardrails");
    }
    start_text(s);
    return 0;
}

void guard_scan_clear(struct guard_scan *s)
{
    guard_search_free(s->search);
    mem_free(s->cursors);
    buf_clear(&s->text);
    buf_clear(&s->raw);
    buf_clear(&s->chars);
    s->search = NULL;
    s->cursors = NULL;
    s->n_cursors = 0;
}

/* ---- hits */

static struct guard_char *chars_of(const struct guard_scan *s)
{
    return (struct guard_char *)(void *)s->chars.p;
}

static int n_chars(const struct guard_scan *s)
{
    return (int)(s->chars.n / sizeof(struct guard_char));
}

static size_t text_end(const struct guard_scan *s)
{
    return s->base + s->text.n;
}

/* The hit has positions in the text; only what is held can be covered. */
static void add_hit(struct guard_scan *s, const struct guard_hit *hit)
{
    enum guard_action action = guardrails_at(s->g, hit->set)->action;
    struct guard_char *c = chars_of(s);
    size_t at = text_end(s);

    if (s->on_hit)
        s->on_hit(s->ctx, hit);
    if (action == GUARD_REDACT && s->on_cover)
        s->on_cover(s->ctx, hit->begin, hit->end);
    if (action == GUARD_BLOCK)
        s->block_at = MIN(s->block_at, hit->begin);
    for (int i = n_chars(s) - 1; action == GUARD_REDACT && at > hit->begin && i >= 0; i--) {
        at -= c[i].n;
        c[i].is_covered |= at < hit->end;
    }
}

/* ---- blocklists */

/* Sets *begin to the position of a string of n folded bytes that ends at `end`, after character
 * `last`. False: it does not begin at a character, or has more than GUARD_SPAN_MAX bytes. */
static bool find_begin(
    const struct guard_scan *s, int last, size_t n, size_t end, size_t *begin, bool *is_word_before)
{
    const struct guard_char *c = chars_of(s);
    int i = last;

    *begin = end;
    while (n && i >= 0 && n >= c[i].folded && end - *begin <= GUARD_SPAN_MAX) {
        n -= c[i].folded;
        *begin -= c[i--].n;
    }
    *is_word_before = i >= 0 ? c[i].is_word : s->is_word_before;
    return !n && end - *begin <= GUARD_SPAN_MAX;
}

/* Reports the entries of the strings that end after character `last`: those of whole words, or the
 * others. */
static void add_word_hits(struct guard_scan *s, uint32_t state, int last, size_t end, bool whole)
{
    const struct guardrails_compiled *c = guardrails_compiled(s->g);

    for (uint32_t at = aho_corasick_end(c->words, state); at;
         at = aho_corasick_next_end(c->words, at)) {
        int string = aho_corasick_hit(c->words, at);
        size_t begin;
        bool is_word_before;
        if (!find_begin(s, last, c->words->strings[string].n, end, &begin, &is_word_before))
            continue;
        for (uint32_t i = c->first_owner[string]; i < c->first_owner[string + 1]; i++) {
            const struct guard_owner *o = &c->owners[i];
            bool is_whole = guardrails_at(s->g, o->set)->whole_words;
            if (s->sets >> o->set & 1 && is_whole == whole && !(whole && is_word_before))
                add_hit(s, &(struct guard_hit){ GUARD_WORD, o->set, o->entry, begin, end });
        }
    }
}

/* The last character that was added. */
static void match_words(struct guard_scan *s, struct str folded, bool is_word, size_t n)
{
    const struct aho_corasick *words = guardrails_compiled(s->g)->words;
    int last = n_chars(s) - 1;

    if (s->pending && !is_word)
        add_word_hits(s, s->pending, last - 1, text_end(s) - n, true);
    s->pending = AHO_CORASICK_ROOT;
    if (!folded.n)
        return;
    for (size_t i = 0; i < folded.n; i++)
        s->state = aho_corasick_step(words, s->state, folded.p[i]);
    if (aho_corasick_end(words, s->state)) {
        add_word_hits(s, s->state, last, text_end(s), false);
        s->pending = s->state;
    }
}

static void add_char(struct guard_scan *s, struct str character, struct str raw)
{
    struct guard_char c = { .n = (uint8_t)character.n, .raw = (uint16_t)raw.n };
    char folded[FOLD_BYTES_MAX];
    uint32_t cp = 0;

    if (utf8_decode(character, &cp) <= 0)
        cp = 0xFFFD;
    c.folded = (uint16_t)fold_char(cp, folded);
    c.is_word = fold_is_word(cp);
    buf_puts(&s->text, character);
    buf_puts(&s->raw, raw);
    buf_put(&s->chars, &c, sizeof(c));
    if (!buf_ok(&s->text) || !buf_ok(&s->raw) || !buf_ok(&s->chars))
        s->has_failed = true;
    else if (guardrails_compiled(s->g)->words)
        match_words(s, (struct str){ folded, c.folded }, c.is_word, c.n);
}

/* ---- patterns and detectors */

/* What is held, or was held shortly before, from the position. */
static struct str text_from(const struct guard_scan *s, size_t at)
{
    return str_skip(buf_str(&s->text), at - s->base);
}

static enum guard_found find_next(struct guard_scan *s, const struct guard_cursor *c, bool is_end,
    struct guard_hit *hit, enum detect_tail *tail)
{
    const struct guard_matcher *m = &guardrails_compiled(s->g)->matchers[c->matcher];
    struct str text = buf_str(&s->text);
    struct guard_range range = { c->at - s->base, 0 };
    size_t n;

    hit->kind = m->kind;
    hit->set = m->set;
    hit->entry = m->entry;
    *tail = TAIL_NONE;
    if (m->kind == GUARD_PATTERN) {
        enum guard_found found = guard_pattern_find(m->pattern, s->search, text, is_end, &range);
        hit->begin = s->base + range.begin;
        hit->end = s->base + range.end;
        return found;
    }
    for (size_t at = c->at - s->base; at < text.n; at++) {
        unsigned char before = at ? (unsigned char)text.p[at - 1] : 0;
        struct str rest = { text.p + at, MIN(text.n - at, (size_t)DETECT_WINDOW) };
        enum detect_result r = detect((enum guard_detector)m->entry, rest, before,
            is_end || rest.n == DETECT_WINDOW, &n, tail);
        hit->begin = s->base + at;
        hit->end = hit->begin + n;
        if (r != DETECT_NONE)
            return r == DETECT_FOUND ? GUARD_FOUND : GUARD_FOUND_MORE;
    }
    return GUARD_FOUND_NONE;
}

/* The value that was found last goes on: more of it is a part of the hit. False: undecided. */
static bool follow_tail(struct guard_scan *s, struct guard_cursor *c, bool is_end)
{
    const struct guard_matcher *m = &guardrails_compiled(s->g)->matchers[c->matcher];
    struct str rest = text_from(s, c->at);
    size_t n = detect_tail(&c->tail, rest, is_end);
    void (*on_hit)(void *, const struct guard_hit *) = s->on_hit;

    s->on_hit = NULL; /* the hit was reported */
    if (n)
        add_hit(s, &(struct guard_hit){ m->kind, m->set, m->entry, c->at, c->at + n });
    s->on_hit = on_hit;
    c->at += n;
    return c->tail == TAIL_NONE || n == rest.n;
}

static size_t next_character(const struct guard_scan *s, size_t at)
{
    struct str rest = text_from(s, at);
    size_t n = 1;

    while (n < rest.n && ((unsigned char)rest.p[n] & 0xC0) == 0x80)
        n++;
    return at + MIN(n, rest.n);
}

static void advance(struct guard_scan *s, struct guard_cursor *c, bool is_end)
{
    struct guard_hit hit = { 0 };

    while (c->at < text_end(s)) {
        if (c->tail != TAIL_NONE) {
            if (!follow_tail(s, c, is_end))
                return;
            continue;
        }
        enum guard_found found = find_next(s, c, is_end, &hit, &c->tail);
        if (found != GUARD_FOUND) {
            c->tail = TAIL_NONE;
            c->at = found == GUARD_FOUND_MORE ? hit.begin : text_end(s);
            return;
        }
        if (hit.end > hit.begin)
            add_hit(s, &hit);
        c->at = hit.end > hit.begin ? hit.end : next_character(s, hit.begin);
    }
}

/* ---- output */

/* The position before which no further hit can begin. */
static size_t decided_end(const struct guard_scan *s)
{
    const struct guardrails_compiled *g = guardrails_compiled(s->g);
    const struct guard_char *c = chars_of(s);
    size_t end = text_end(s), at = end, depth = 0;
    uint32_t pending = s->pending;

    if (g->words)
        depth = aho_corasick_depth(g->words, s->state);
    if (pending)
        depth = MAX(depth, g->words->strings[aho_corasick_hit(g->words, pending)].n);
    for (int i = n_chars(s) - 1; depth && i >= 0 && end - at < GUARD_SPAN_MAX; i--) {
        at -= c[i].n;
        depth -= MIN(depth, (size_t)c[i].folded);
    }
    for (int i = 0; i < s->n_cursors; i++)
        at = MIN(at, s->cursors[i].at);
    return MAX(at, s->held);
}

/* Writes the first characters that are held, up to the position, and drops them. */
static void release(struct guard_scan *s, size_t end)
{
    const struct guard_char *c = chars_of(s);
    size_t raw_from = 0, raw = 0;
    int n = 0;

    for (; n < n_chars(s) && s->held < end && s->held < s->block_at; n++) {
        if (c[n].is_covered && raw > raw_from && s->on_text)
            s->on_text(s->ctx, (struct str){ s->raw.p + raw_from, raw - raw_from });
        if (c[n].is_covered && !s->is_covered && s->on_text)
            s->on_text(s->ctx, STR(GUARD_MARKER));
        s->is_covered = c[n].is_covered;
        s->is_redacted |= c[n].is_covered;
        s->is_word_before = c[n].is_word;
        s->held += c[n].n;
        raw += c[n].raw;
        raw_from = c[n].is_covered ? raw : raw_from;
    }
    if (raw > raw_from && s->on_text)
        s->on_text(s->ctx, (struct str){ s->raw.p + raw_from, raw - raw_from });
    buf_drop(&s->raw, raw);
    buf_drop(&s->chars, (size_t)n * sizeof(*c));
    s->is_blocked |= s->block_at != SIZE_MAX && end >= s->block_at;
    /* Whole characters before what is held stay as context. */
    size_t context = s->held - s->base,
           drop = context > CONTEXT_BYTES ? context - CONTEXT_BYTES : 0;
    while (drop && ((unsigned char)s->text.p[drop] & 0xC0) == 0x80)
        drop--;
    buf_drop(&s->text, drop);
    s->base += drop;
}

/* Decides what can be decided, and writes it. */
static void step(struct guard_scan *s, bool is_end)
{
    s->n_since_step = 0;
    if (s->is_blocked || s->has_failed)
        return;
    for (int i = 0; i < s->n_cursors; i++)
        advance(s, &s->cursors[i], is_end);
    release(s, is_end ? SIZE_MAX - 1 : decided_end(s));
}

void guard_scan_put_char(struct guard_scan *s, struct str character, struct str raw)
{
    if (s->is_blocked || s->has_failed)
        return;
    add_char(s, character, raw);
    if (++s->n_since_step == PIECE_MAX)
        guard_scan_step(s);
}

void guard_scan_step(struct guard_scan *s)
{
    step(s, false);
}

void guard_scan_put(struct guard_scan *s, struct str text)
{
    uint32_t cp;

    for (int n; text.n; text = str_skip(text, (size_t)n)) {
        n = MAX(utf8_decode(text, &cp), 1);
        struct str c = { text.p, (size_t)n };
        guard_scan_put_char(s, c, c);
    }
    guard_scan_step(s);
}

void guard_scan_end(struct guard_scan *s)
{
    if (s->pending && !s->is_blocked && !s->has_failed)
        add_word_hits(s, s->pending, n_chars(s) - 1, text_end(s), true);
    step(s, true);
    if (!s->is_blocked)
        start_text(s);
}

void guard_scan_drop(struct guard_scan *s)
{
    if (!s->is_blocked)
        start_text(s);
}
