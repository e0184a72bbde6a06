/* parse.c: parses the head line by line, the chunk framing byte by byte, and body data in runs.
 *
 *   START_LINE -> FIELDS -> HEAD_DONE -+-> LENGTH_DATA -----------------------------> ENDED
 *                                      +-> CHUNK_SIZE -> [CHUNK_EXT] -> CHUNK_SIZE_LF
 *                                      |     ^              |
 *                                      |     |   CHUNK_DATA (size > 0)   TRAILER (size 0) -> ENDED
 *                                      |     +-- CHUNK_CR, CHUNK_LF <-+
 *                                      +-> ENDED (no body)
 *
 * A line of the head is parsed once, when its LF has arrived, so a head that arrives byte by byte
 * costs no more than one that arrives at once. */
#include "http/parse.h"

enum parse_state {
    START_LINE,
    FIELDS,
    HEAD_DONE,
    LENGTH_DATA,
    CHUNK_SIZE,
    CHUNK_EXT,
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_CR,
    CHUNK_LF,
    TRAILER_START,
    TRAILER_NAME,
    TRAILER_VALUE,
    TRAILER_LF,
    LAST_LF,
    ENDED,
    BAD,
};

enum { MAX_METHOD = 32, MAX_BLANK_LINES = 4, MAX_SIZE_DIGITS = 15 };

void http_parser_init(struct http_parser *p, const struct http_parse_limits *limits)
{
    *p = (struct http_parser){ .limits = limits };
    buf_init(&p->head, limits->max_head_bytes);
}

void http_parser_reset(struct http_parser *p)
{
    buf_clear(&p->head);
    http_parser_init(p, p->limits);
}

static enum http_event reject(struct http_parser *p, int status, const char *why)
{
    p->state = BAD;
    p->status = status;
    p->why = why;
    return HTTP_BAD;
}

/* ---- characters */

static bool is_tchar(unsigned char c)
{
    static const bool table[256] = { ['a' ... 'z'] = true,
        ['A' ... 'Z'] = true,
        ['0' ... '9'] = true,
        ['!'] = true,
        ['#' ... '\''] = true,
        ['*'] = true,
        ['+'] = true,
        ['-'] = true,
        ['.'] = true,
        ['^' ... '`'] = true,
        ['|'] = true,
        ['~'] = true };

    return table[c];
}

/* Character of a field value: visible, space, tab, or a byte above 0x7f. */
static bool is_vchar(unsigned char c)
{
    return c == '\t' || (c >= ' ' && c != 0x7f);
}

static int hex_digit(unsigned char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool http_is_token(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (!is_tchar((unsigned char)s.p[i]))
            return false;
    return s.n > 0;
}

static struct str trim_blanks(struct str s)
{
    while (s.n && (s.p[0] == ' ' || s.p[0] == '\t'))
        s = str_skip(s, 1);
    while (s.n && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t'))
        s.n--;
    return s;
}

/* The next element of a comma list (RFC 9110 5.6.1), trimmed; false at the end. */
static bool list_next(struct str *list, struct str *item)
{
    if (!list->p)
        return false;
    const char *comma = list->n ? memchr(list->p, ',', list->n) : NULL;
    if (comma) {
        *item = (struct str){ list->p, (size_t)(comma - list->p) };
        *list = str_skip(*list, item->n + 1);
    } else {
        *item = *list;
        *list = STR_NONE;
    }
    *item = trim_blanks(*item);
    return true;
}

ptrdiff_t http_percent_decode(struct str s, char *out)
{
    ptrdiff_t n = 0;

    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] != '%') {
            out[n++] = s.p[i];
            continue;
        }
        if (s.n - i < 3)
            return -1;
        int hi = hex_digit((unsigned char)s.p[i + 1]), lo = hex_digit((unsigned char)s.p[i + 2]);
        if (hi < 0 || lo < 0 || (hi | lo) == 0)
            return -1;
        out[n++] = (char)(hi << 4 | lo);
        i += 2;
    }
    return n;
}

/* ---- the request line */

static bool has_valid_escapes(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] != '%')
            continue;
        if (s.n - i < 3)
            return false;
        int hi = hex_digit((unsigned char)s.p[i + 1]), lo = hex_digit((unsigned char)s.p[i + 2]);
        if (hi < 0 || lo < 0 || (hi | lo) == 0)
            return false;
    }
    return true;
}

static enum http_event parse_request_line(struct http_parser *p, struct str line)
{
    const char *sp = memchr(line.p, ' ', line.n);
    if (!sp)
        return reject(p, 400, "malformed request line");
    struct str method = { line.p, (size_t)(sp - line.p) };
    struct str rest = str_skip(line, method.n + 1);
    if (method.n > MAX_METHOD || !http_is_token(method))
        return reject(p, 400, "malformed method");

    sp = rest.n ? memchr(rest.p, ' ', rest.n) : NULL;
    if (!sp || sp == rest.p)
        return reject(p, 400, "malformed request line");
    struct str target = { rest.p, (size_t)(sp - rest.p) };
    struct str version = str_skip(rest, target.n + 1);
    for (size_t i = 0; i < target.n; i++) {
        unsigned char c = (unsigned char)target.p[i];
        if (c <= ' ' || c >= 0x7f || c == '#')
            return reject(p, 400, "a character in the target that must be percent-encoded");
    }
    if (version.n != 8 || !str_starts(version, STR("HTTP/")) || version.p[6] != '.' ||
        version.p[5] < '0' || version.p[5] > '9' || version.p[7] < '0' || version.p[7] > '9')
        return reject(p, 400, "malformed HTTP version");
    /* A higher minor version is served as HTTP/1.1 (RFC 9110 2.5). */
    if (version.p[5] != '1')
        return reject(p, 505, "only HTTP/1.1 and HTTP/1.0 are supported");
    p->is_http10 = version.p[7] == '0';
    p->want_close = p->is_http10;
    p->method_n = (uint32_t)method.n;
    p->target_at = (uint32_t)(target.p - p->head.p);
    p->target_n = (uint32_t)target.n;
    p->state = FIELDS;
    return HTTP_MORE;
}

/* Removes scheme and authority from an absolute-form target; authority is STR_NONE for other
 * forms. */
static struct str origin_form(struct str target, struct str *authority)
{
    static const struct str schemes[] = { { "http://", 7 }, { "https://", 8 } };

    *authority = STR_NONE;
    for (size_t i = 0; i < ARRAY_LEN(schemes); i++) {
        size_t n = schemes[i].n;
        if (target.n < n || !str_eq_nocase((struct str){ target.p, n }, schemes[i]))
            continue;
        struct str rest = str_skip(target, n);
        size_t end = 0;
        while (end < rest.n && rest.p[end] != '/' && rest.p[end] != '?')
            end++;
        *authority = (struct str){ rest.p, end };
        return str_skip(rest, end);
    }
    return target;
}

/* ---- fields */

/* Whether all characters are those of a host name (reg-name) or are in `more`. */
static bool is_host_name(struct str s, const char *more)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        bool is_name = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!c || (!is_name && !strchr("-._~%!$&'()*+,;=", c) && !strchr(more, c)))
            return false;
    }
    return true;
}

/* Host, or IP address in brackets, with an optional port (RFC 9110 7.2); the host may be empty. */
static bool is_host(struct str s)
{
    bool is_bracketed = str_starts(s, STR("["));
    ptrdiff_t at = str_find(s, is_bracketed ? STR("]") : STR(":"));

    if (is_bracketed && at < 2)
        return false;
    size_t end = at < 0 ? s.n : (size_t)at + is_bracketed;
    struct str port = str_skip(s, end);
    if (is_bracketed ? !is_host_name((struct str){ s.p + 1, end - 2 }, ":")
                     : !is_host_name((struct str){ s.p, end }, ""))
        return false;
    if (port.n && port.p[0] != ':')
        return false;
    for (size_t i = 1; i < port.n; i++)
        if (port.p[i] < '0' || port.p[i] > '9')
            return false;
    return true;
}

static enum http_event parse_content_length(struct http_parser *p, struct str value)
{
    if (p->has_length)
        return reject(p, 400, "more than one Content-Length");
    /* str_to_u64 accepts digits only: no sign, no list, no inner space. */
    if (value.n > 19 || !str_to_u64(value, &p->length))
        return reject(p, 400, "malformed Content-Length");
    p->has_length = true;
    return HTTP_MORE;
}

static enum http_event parse_transfer_encoding(struct http_parser *p, struct str value)
{
    struct str item;

    p->has_coding = true;
    while (list_next(&value, &item)) {
        if (!item.n)
            continue;
        bool is_chunked = str_eq_nocase(item, STR("chunked"));
        if (is_chunked && p->has_chunked)
            return reject(p, 400, "chunked twice");
        p->has_chunked |= is_chunked;
        p->has_unknown_coding |= !is_chunked;
        p->is_chunked_last = is_chunked;
    }
    return HTTP_MORE;
}

static enum http_event set_once(struct http_parser *p, bool *seen, const char *why)
{
    if (*seen)
        return reject(p, 400, why);
    *seen = true;
    return HTTP_MORE;
}

/* Records the fields that determine the framing of the request; the application reads the
 * others. */
static enum http_event record_field(struct http_parser *p, struct str name, struct str value)
{
    struct str item;

    if (str_eq_nocase(name, STR("host"))) {
        if (!is_host(value))
            return reject(p, 400, "malformed Host");
        p->host_at = (uint32_t)(value.p - p->head.p);
        p->host_n = (uint32_t)value.n;
        return set_once(p, &p->has_host, "more than one Host");
    }
    if (str_eq_nocase(name, STR("content-length")))
        return parse_content_length(p, value);
    if (str_eq_nocase(name, STR("transfer-encoding")))
        return parse_transfer_encoding(p, value);
    if (str_eq_nocase(name, STR("content-type")))
        return set_once(p, &p->has_type, "more than one Content-Type");
    if (str_eq_nocase(name, STR("authorization")))
        return set_once(p, &p->has_authorization, "more than one Authorization");
    if (str_eq_nocase(name, STR("origin")))
        return set_once(p, &p->has_origin, "more than one Origin");
    if (str_eq_nocase(name, STR("connection"))) {
        while (list_next(&value, &item))
            p->want_close |= str_eq_nocase(item, STR("close"));
    } else if (str_eq_nocase(name, STR("expect"))) {
        if (!str_eq_nocase(value, STR("100-continue")))
            return reject(p, 417, "unsupported expectation, only 100-continue is supported");
        p->want_continue = true;
    }
    return HTTP_MORE;
}

static enum http_event parse_field_line(struct http_parser *p, struct str line)
{
    if (line.p[0] == ' ' || line.p[0] == '\t')
        return reject(p, 400, "folded field");
    const char *colon = memchr(line.p, ':', line.n);
    if (!colon)
        return reject(p, 400, "field without colon");
    struct str name = { line.p, (size_t)(colon - line.p) };
    if (!http_is_token(name))
        return reject(p, 400, "malformed field name");
    struct str value = trim_blanks(str_skip(line, name.n + 1));
    for (size_t i = 0; i < value.n; i++)
        if (!is_vchar((unsigned char)value.p[i]))
            return reject(p, 400, "control character in a field");
    if (++p->n_fields > p->limits->max_fields)
        return reject(p, 431, "too many fields");
    return record_field(p, name, value);
}

/* ---- the complete head */

static enum http_event check_target(struct http_parser *p)
{
    struct str target = { p->head.p + p->target_at, p->target_n };
    struct str host = { p->head.p + p->host_at, p->host_n };
    struct str authority, method = { p->head.p, p->method_n };

    if (str_is(target, "*"))
        return str_is(method, "OPTIONS") ? HTTP_MORE : reject(p, 400, "target * without OPTIONS");
    struct str origin = origin_form(target, &authority);
    if (authority.p) {
        if (!authority.n || !is_host(authority))
            return reject(p, 400, "malformed authority in the target");
        if (p->has_host && !str_eq_nocase(authority, host))
            return reject(p, 400, "target and Host disagree");
    }
    if (origin.n && origin.p[0] != '/' && !(authority.p && origin.p[0] == '?'))
        return reject(p, 400, "malformed target");
    if (!origin.n && !authority.p)
        return reject(p, 400, "malformed target");
    const char *mark = origin.n ? memchr(origin.p, '?', origin.n) : NULL;
    size_t path_n = mark ? (size_t)(mark - origin.p) : origin.n;
    if (!has_valid_escapes((struct str){ origin.p, path_n }))
        return reject(p, 400, "bad percent-escape in the path");
    return HTTP_MORE;
}

static enum http_event finish_head(struct http_parser *p)
{
    if (!p->has_host && !p->is_http10)
        return reject(p, 400, "no Host");
    if (check_target(p) == HTTP_BAD)
        return HTTP_BAD;
    if (p->has_coding) {
        if (p->has_length)
            return reject(p, 400, "Content-Length with Transfer-Encoding");
        if (p->is_http10)
            return reject(p, 400, "Transfer-Encoding in HTTP/1.0");
        /* If chunked is not the last coding, the end of the body is undefined (RFC 9112 6.3). */
        if (!p->is_chunked_last)
            return reject(p, 400, "the last transfer coding is not chunked");
        if (p->has_unknown_coding)
            return reject(p, 501, "a transfer coding that is not chunked");
    }
    p->want_continue &= !p->is_http10 && http_parser_has_body(p);
    p->state = HEAD_DONE;
    return HTTP_HEAD;
}

static enum http_event parse_line(struct http_parser *p, struct str line)
{
    if (line.n < 2 || line.p[line.n - 2] != '\r')
        return reject(p, 400, "line ends in a bare LF");
    line.n -= 2;
    if (p->state == FIELDS)
        return line.n ? parse_field_line(p, line) : finish_head(p);
    if (line.n)
        return parse_request_line(p, line);
    /* Some clients send an extra line after a body (RFC 9112 2.2). */
    if (++p->n_blank_lines > MAX_BLANK_LINES)
        return reject(p, 400, "no request line");
    p->head.n = 0;
    return HTTP_MORE;
}

static enum http_event parse_head(struct http_parser *p, struct str *in)
{
    enum http_event ev = HTTP_MORE;

    while (in->n && ev == HTTP_MORE) {
        const char *lf = memchr(in->p, '\n', in->n);
        size_t n = lf ? (size_t)(lf - in->p) + 1 : in->n;
        if (n > p->limits->max_head_bytes - p->head.n)
            return reject(p, 431, "the head is too large");
        buf_put(&p->head, in->p, n);
        if (!buf_ok(&p->head))
            return reject(p, 503, "out of memory");
        *in = str_skip(*in, n);
        if (!lf)
            return HTTP_MORE;
        ev = parse_line(p, (struct str){ p->head.p + p->line_at, p->head.n - p->line_at });
        p->line_at = p->head.n;
    }
    return ev;
}

bool http_parser_has_body(const struct http_parser *p)
{
    return p->has_coding || p->length > 0;
}

int http_parser_request(const struct http_parser *p, struct arena *a, struct http_request *r)
{
    struct str head = buf_str(&p->head), authority;

    r->method = (struct str){ head.p, p->method_n };
    r->target = (struct str){ head.p + p->target_at, p->target_n };
    struct str origin = origin_form(r->target, &authority);
    if (authority.p)
        r->host = authority;
    else if (p->has_host)
        r->host = (struct str){ head.p + p->host_at, p->host_n };
    const char *mark = origin.n ? memchr(origin.p, '?', origin.n) : NULL;
    struct str raw = { origin.p, mark ? (size_t)(mark - origin.p) : origin.n };
    r->query = mark ? str_skip(origin, raw.n + 1) : (struct str){ "", 0 };
    if (!raw.n)
        raw = STR("/");
    char *path = arena_alloc(a, raw.n);
    struct http_field *f = arena_zalloc(a, (size_t)p->n_fields + 1, sizeof(*f));
    if (!path || !f)
        return -1;
    ptrdiff_t n = http_percent_decode(raw, path);
    CHECK(n >= 0); /* guaranteed by check_target */
    r->path = (struct str){ path, (size_t)n };

    /* Every line was validated on arrival: name, colon, value, CRLF. */
    const char *lf = memchr(head.p, '\n', head.n);
    struct str rest = str_skip(head, (size_t)(lf - head.p) + 1);
    for (int i = 0; i < p->n_fields; i++) {
        lf = memchr(rest.p, '\n', rest.n);
        struct str line = { rest.p, (size_t)(lf - rest.p) - 1 };
        const char *colon = memchr(line.p, ':', line.n);
        f[i].name = (struct str){ line.p, (size_t)(colon - line.p) };
        f[i].value = trim_blanks(str_skip(line, f[i].name.n + 1));
        rest = str_skip(rest, line.n + 2);
    }
    r->fields = f;
    r->n_fields = p->n_fields;
    return 0;
}

/* ---- bodies */

static enum http_event start_body(struct http_parser *p)
{
    if (p->has_coding) {
        p->state = CHUNK_SIZE;
        return HTTP_MORE;
    }
    if (p->length > p->body_max)
        return reject(p, 413, "the body is too large");
    p->left = p->length;
    p->state = p->left ? LENGTH_DATA : ENDED;
    return HTTP_MORE;
}

static enum http_event take_data(struct http_parser *p, struct str *in, struct str *piece)
{
    size_t n = (size_t)MIN((uint64_t)in->n, p->left);

    *piece = (struct str){ in->p, n };
    *in = str_skip(*in, n);
    p->left -= n;
    p->body_n += n;
    if (!p->left)
        p->state = p->state == CHUNK_DATA ? CHUNK_CR : ENDED;
    return HTTP_BODY;
}

/* Extensions and trailers are discarded, but their size is limited. */
static enum http_event count_extra(struct http_parser *p)
{
    if (++p->extra > p->limits->max_head_bytes)
        return reject(p, 431, "chunk extensions or trailers are too large");
    return HTTP_MORE;
}

static enum http_event parse_chunk_size(struct http_parser *p, unsigned char c)
{
    int digit = hex_digit(c);

    if (digit >= 0) {
        if (++p->n_digits > MAX_SIZE_DIGITS)
            return reject(p, 400, "chunk size with too many digits");
        p->left = p->left << 4 | (uint64_t)digit;
        return HTTP_MORE;
    }
    if (!p->n_digits || (c != ';' && c != '\r'))
        return reject(p, 400, "malformed chunk size");
    if (p->left > p->body_max - p->body_n)
        return reject(p, 413, "the body is too large");
    p->n_digits = 0;
    p->state = c == ';' ? CHUNK_EXT : CHUNK_SIZE_LF;
    return HTTP_MORE;
}

static enum http_event parse_trailer(struct http_parser *p, unsigned char c)
{
    if (count_extra(p) == HTTP_BAD)
        return HTTP_BAD;
    if (p->state == TRAILER_START && c == '\r') {
        p->state = LAST_LF;
    } else if (p->state == TRAILER_VALUE) {
        if (c == '\r')
            p->state = TRAILER_LF;
        else if (!is_vchar(c))
            return reject(p, 400, "control character in a trailer");
    } else if (p->state == TRAILER_NAME && c == ':') {
        p->state = TRAILER_VALUE;
    } else if (is_tchar(c)) {
        if (p->state == TRAILER_START && ++p->n_trailers > p->limits->max_fields)
            return reject(p, 431, "too many trailers");
        p->state = TRAILER_NAME;
    } else {
        return reject(p, 400, "malformed trailer");
    }
    return HTTP_MORE;
}

static enum http_event expect_char(struct http_parser *p, unsigned char c, char want, int next)
{
    if (c != (unsigned char)want)
        return reject(p, 400, "malformed chunk");
    p->state = (uint8_t)next;
    return HTTP_MORE;
}

/* One byte of chunked framing. */
static enum http_event parse_chunk_byte(struct http_parser *p, unsigned char c)
{
    switch ((enum parse_state)p->state) {
    case CHUNK_SIZE:
        return parse_chunk_size(p, c);
    case CHUNK_EXT:
        if (c == '\r')
            p->state = CHUNK_SIZE_LF;
        else if (!is_vchar(c))
            return reject(p, 400, "control character in a chunk extension");
        return count_extra(p);
    case CHUNK_SIZE_LF:
        return expect_char(p, c, '\n', p->left ? CHUNK_DATA : TRAILER_START);
    case CHUNK_CR:
        return expect_char(p, c, '\r', CHUNK_LF);
    case CHUNK_LF:
        return expect_char(p, c, '\n', CHUNK_SIZE);
    case TRAILER_START:
    case TRAILER_NAME:
    case TRAILER_VALUE:
        return parse_trailer(p, c);
    case TRAILER_LF:
        return expect_char(p, c, '\n', TRAILER_START);
    case LAST_LF:
        return expect_char(p, c, '\n', ENDED);
    case START_LINE:
    case FIELDS:
    case HEAD_DONE:
    case LENGTH_DATA:
    case CHUNK_DATA:
    case ENDED:
    case BAD:
        break;
    }
    CHECK(!"a state without framing");
}

enum http_event http_parse(struct http_parser *p, struct str *in, struct str *piece)
{
    enum http_event ev = HTTP_MORE;

    if (p->state <= FIELDS)
        return parse_head(p, in);
    if (p->state == BAD)
        return HTTP_BAD;
    if (p->state == HEAD_DONE)
        ev = start_body(p);
    while (ev == HTTP_MORE) {
        if (p->state == ENDED)
            return HTTP_END;
        if (!in->n)
            return HTTP_MORE;
        if (p->state == LENGTH_DATA || p->state == CHUNK_DATA)
            return take_data(p, in, piece);
        ev = parse_chunk_byte(p, (unsigned char)in->p[0]);
        *in = str_skip(*in, 1);
    }
    return ev;
}
