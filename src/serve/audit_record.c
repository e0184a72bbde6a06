#include "serve/audit_record.h"

#include "base/mem.h"
#include "os/clock.h"

#include <openssl/evp.h>

enum { DIGEST_BYTES = 32, TEXT_BYTES = 64 * 1024 };

struct choice_record {
    EVP_MD_CTX *hash; /* NULL: no token yet */
    struct buf ids;   /* first tokens, for the text */
};

struct audit_record {
    bool has_text, is_text_cut;
    bool has_failed; /* no memory for a hash */
    int n_kept;      /* tokens in all `ids` */
    int n_choices;
    struct choice_record choices[];
};

int audit_record_open(struct audit_record **out, const struct inflight *r, struct err *e)
{
    int n = request_n_choices(&r->request);

    *out = NULL;
    if (!r->io->o->audit)
        return 0;
    struct audit_record *a = try_malloc(sizeof(*a) + (size_t)n * sizeof(*a->choices));
    if (!a)
        return err_set(e, ERR_MEMORY, "no memory for the request");
    memset(a, 0, sizeof(*a) + (size_t)n * sizeof(*a->choices));
    a->n_choices = n;
    a->has_text = audit_wants_text(r->io->o->audit);
    for (int i = 0; i < n; i++)
        buf_init(&a->choices[i].ids, AUDIT_RECORD_TOKENS * sizeof(int32_t));
    *out = a;
    return 0;
}

static EVP_MD_CTX *new_hash(void)
{
    EVP_MD_CTX *h = EVP_MD_CTX_new();

    if (h && EVP_DigestInit_ex(h, EVP_sha256(), NULL) == 1)
        return h;
    EVP_MD_CTX_free(h);
    return NULL;
}

void audit_record_token(struct audit_record *a, int choice, int32_t id)
{
    if (!a)
        return;
    struct choice_record *c = &a->choices[choice];
    if (!c->hash)
        c->hash = new_hash();
    if (!c->hash || EVP_DigestUpdate(c->hash, &id, sizeof(id)) != 1)
        a->has_failed = true;
    if (!a->has_text)
        return;
    if (a->n_kept < AUDIT_RECORD_TOKENS) {
        buf_put(&c->ids, (const char *)&id, sizeof(id));
        a->n_kept++;
    } else {
        a->is_text_cut = true;
    }
}

void audit_record_free(struct audit_record *a)
{
    if (!a)
        return;
    for (int i = 0; i < a->n_choices; i++) {
        EVP_MD_CTX_free(a->choices[i].hash);
        buf_clear(&a->choices[i].ids);
    }
    mem_free(a);
}

/* Appends the SHA-256 of each choice; a choice without tokens has the hash of the empty text. */
static void put_digests(struct audit_record *a, struct buf *out)
{
    for (int i = 0; i < a->n_choices; i++) {
        unsigned char digest[DIGEST_BYTES] = { 0 };
        struct choice_record *c = &a->choices[i];
        if (!c->hash)
            c->hash = new_hash();
        if (!c->hash || EVP_DigestFinal_ex(c->hash, digest, NULL) != 1)
            a->has_failed = true;
        buf_put(out, (const char *)digest, sizeof(digest));
    }
}

/* One prompt: its token ids. Several: each is preceded by its number of tokens. */
static void put_prompts(const struct inflight *r, struct buf *out)
{
    for (int i = 0; r->prompts && i < r->request.n_prompts; i++) {
        const struct prompt *p = &r->prompts[i];
        if (r->request.n_prompts > 1)
            buf_put(out, (const char *)&p->n, sizeof(p->n));
        buf_put(out, (const char *)p->ids, (size_t)p->n * sizeof(*p->ids));
    }
}

/* ---- texts in debug mode */

static void put_text(const struct vocab *v, const int32_t *ids, size_t n, struct buf *out)
{
    struct detok d = { 0 };

    for (size_t i = 0; i < n && out->n < TEXT_BYTES / 2; i++)
        detok_put(&d, v, ids[i], true, out);
    detok_end(&d, out);
}

static void prompt_text(const struct inflight *r, struct buf *out)
{
    for (int i = 0; r->prompts && i < r->request.n_prompts && out->n < TEXT_BYTES / 2; i++)
        put_text(r->model->vocab, r->prompts[i].ids, (size_t)r->prompts[i].n, out);
}

/* Writes the texts of all choices to `out` and their parts to texts[]. */
static void response_texts(const struct inflight *r, struct buf *out, struct str *texts)
{
    const struct audit_record *a = r->audit_record;

    for (int i = 0; i < a->n_choices; i++) {
        const struct buf *ids = &a->choices[i].ids;
        size_t from = out->n;
        put_text(
            r->model->vocab, (const int32_t *)(const void *)ids->p, ids->n / sizeof(int32_t), out);
        texts[i].n = out->n - from;
    }
    for (size_t i = 0, at = 0; i < (size_t)a->n_choices; at += texts[i++].n)
        texts[i].p = out->p + at;
}

static void write_with_texts(const struct inflight *r, struct audit_entry *en)
{
    struct buf prompt, responses;
    struct str *texts = xcalloc((size_t)r->audit_record->n_choices, sizeof(*texts));

    buf_init(&prompt, 2 * (size_t)TEXT_BYTES);
    buf_init(&responses, 16 * (size_t)MB);
    prompt_text(r, &prompt);
    response_texts(r, &responses, texts);
    if (buf_ok(&prompt) && buf_ok(&responses)) {
        en->prompt_text = buf_str(&prompt);
        en->response_texts = texts;
        en->n_responses = r->audit_record->n_choices;
        en->is_text_cut = r->audit_record->is_text_cut || prompt.n >= TEXT_BYTES / 2;
    }
    audit_write(r->io->o->audit, en);
    buf_clear(&prompt);
    buf_clear(&responses);
    mem_free(texts);
}

/* ---- lines */

void audit_record_write(const struct inflight *r, const char *finish, int status)
{
    struct audit_record *a = r->audit_record;
    uint64_t first_ns = r->first_token_ns;
    struct buf prompt, response;

    buf_init(&prompt, SIZE_MAX);
    buf_init(&response, SIZE_MAX);
    put_prompts(r, &prompt);
    put_digests(a, &response);
    struct audit_entry en = { .request_id = r->request_id,
        .key_id = r->caller.id,
        .tenant = r->caller.tenant,
        .route = r->route->path,
        .model = str_of(r->model->spec->id),
        .prompt = buf_str(&prompt),
        .response = a->has_failed ? STR("") : buf_str(&response),
        .status = status,
        .finish = finish,
        .n_prompt = r->n_prompt,
        .n_completion = r->n_completion,
        .n_cached = r->n_cached,
        .first_token_ns = first_ns ? MAX(first_ns - r->began_ns, (uint64_t)1) : 0,
        .total_ns = clock_ns() - r->began_ns,
        .guardrails = request_guard_hits(r),
        .is_reserved = r->has_audit_room };
    if (a->has_text)
        write_with_texts(r, &en);
    else
        audit_write(r->io->o->audit, &en);
    buf_clear(&prompt);
    buf_clear(&response);
}

int audit_change_reserve(const struct io *io, struct err *e)
{
    if (!io->o->audit || audit_reserve(io->o->audit))
        return 0;
    return err_set(e, ERR_OVERLOADED, "The audit log cannot be written at present.");
}

void audit_change_write(const struct route_call *c, const char *action, const struct buf *before,
    const struct buf *after)
{
    struct audit *a = c->io->o->audit;

    if (a)
        audit_record_change(a, &(struct audit_change){ .request_id = c->request_id,
                                   .key_id = c->caller.id,
                                   .tenant = c->caller.tenant,
                                   .action = action,
                                   .route = str_of(c->route->path),
                                   .status = 200,
                                   .before = buf_str(before),
                                   .after = buf_str(after),
                                   .is_reserved = true });
}
