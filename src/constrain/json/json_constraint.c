#include "base/mem.h"
#include "constrain/constraint_in.h"
#include "constrain/json/json_program.h"

/* A compiled JSON Schema, or JSON mode. */
struct constraint_program {
    struct schema *schema; /* NULL: JSON mode */
    struct json_program *json;
};

static void free_program(struct constraint_program *p)
{
    if (!p)
        return;
    json_program_free(p->json);
    schema_free(p->schema);
    mem_free(p);
}

static size_t program_bytes(const struct constraint_program *p)
{
    return sizeof(*p) + json_program_bytes(p->json) + (p->schema ? schema_bytes(p->schema) : 0);
}

static int make_acceptor(struct acceptor **out, const struct constraint_program *p, struct err *e)
{
    return json_acceptor_new(out, p->json, e);
}

/* JSON strings may require every byte of UTF-8. Without a token for one of them, a mask could lead
 * into a character that no token ends. */
static int check_vocabulary(const struct vocab_tables *t, struct err *e)
{
    static const struct {
        uint8_t from, to;
    } required[] = { { 0x20, 0xBF }, { 0xC2, 0xF4 } };

    for (size_t k = 0; k < ARRAY_LEN(required); k++)
        for (unsigned b = required[k].from; b <= required[k].to; b++)
            if (!byte_set_has(&t->producible.single, (uint8_t)b))
                return err_set(e, ERR_INVALID,
                    "the constraint may require byte 0x%02X, for which the vocabulary has no token",
                    b);
    return 0;
}

static int compile(struct constraint_program **out, const struct constraint_source *src,
    const struct vocab_tables *t, uint64_t *work, struct err *e)
{
    bool is_mode = src->kind == CONSTRAINT_JSON;
    struct json_program_options o = { src->any_order, is_mode, src->whitespace };
    struct schema_options s = schema_options_default;
    struct constraint_program *p = try_calloc(1, sizeof(*p));

    if (!p)
        return err_set(e, ERR_MEMORY, "no memory for a constraint");
    s.closed_objects = src->closed_objects;
    if (src->bytes_max)
        s.bytes_max = (uint32_t)MIN(src->bytes_max, (size_t)UINT32_MAX);
    if (check_vocabulary(t, e) || (!is_mode && schema_new(&p->schema, src->text, &s, e)) ||
        json_program_new(&p->json, p->schema, &o, e)) {
        free_program(p);
        return -1;
    }
    *work = json_program_work(p->json);
    *out = p;
    return 0;
}

const struct constraint_kind_ops constraint_kind_json = { "schema", compile, make_acceptor,
    program_bytes, free_program };
