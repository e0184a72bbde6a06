/* Models of the registry: loads on demand, references, eviction, expiry, files that change. */
#include "base/mem.h"
#include "os/clock.h"
#include "os/mapfile.h"
#include "registry/registry.h"
#include "support/check.h"
#include "support/tmpdir.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { PATIENCE_MS = 60000 };

static struct registry *registry;
static _Atomic int n_changes, n_closed;

static void count_change(void *arg)
{
    n_changes++;
}

static void count_close(void *arg, const struct model *m)
{
    EXPECT(m->n_refs == 0);
    n_closed++;
}

static struct model_spec spec_of(const char *id, bool on_demand)
{
    struct model_spec s = model_spec_of(id, "models/demo.gguf");

    s.backend = BACKEND_SCRIPT;
    s.threads = 1;
    s.on_demand = on_demand;
    return s;
}

/* Opens a registry with the models "a", "b", "c", ..., which are loaded on demand. */
static void open_registry(int n, struct model_pool_options pool)
{
    static const char *const ids[] = { "a", "b", "c", "d", "e", "f", "g", "h" };
    struct model_spec specs[ARRAY_LEN(ids)];
    struct err e;

    for (int i = 0; i < n; i++)
        specs[i] = spec_of(ids[i], true);
    struct registry_options o = { .specs = specs, .n_specs = n, .pool = pool };
    EXPECT_EQ(registry_open(&registry, &o, &e), 0);
    n_changes = n_closed = 0;
    registry_watch(registry, &(struct registry_watch){ count_change, count_close, NULL });
    EXPECT_EQ(registry_start(registry, &e), 0);
}

static struct registry_entry *find(const char *id)
{
    struct registry_entry *m = registry_find_id(registry, str_of(id));

    CHECK(m);
    return m;
}

static enum model_state state_of(const char *id)
{
    struct registry_entry *m = find(id);
    struct registry_view v;

    registry_view(m, &v);
    registry_view_clear(&v);
    registry_entry_unref(m);
    return v.state;
}

static void await_state(const char *id, enum model_state s)
{
    for (int i = 0; state_of(id) != s && i < PATIENCE_MS; i++)
        poll(NULL, 0, 1);
    EXPECT(state_of(id) == s);
}

/* Waits for the model like a request does; NULL if it fails. The caller owns a reference. */
static struct model *use(const char *id, struct err *e)
{
    struct registry_entry *m = find(id);
    struct model *model = NULL;
    enum take result;

    registry_wait(m);
    while ((result = registry_take(m, &model, e)) == TAKE_LATER)
        poll(NULL, 0, 1);
    registry_wait_end(m);
    registry_entry_unref(m);
    return result == TAKE_OK ? model : NULL;
}

static void a_model_is_loaded_on_demand_and_stays(void)
{
    struct registry_entry *m;
    struct model *model;
    struct err e;

    open_registry(2, (struct model_pool_options){ 0 });
    m = find("a");
    EXPECT(state_of("a") == MODEL_KNOWN);
    EXPECT(registry_take(m, &model, &e) == TAKE_LATER);
    EXPECT(e.code == ERR_NOT_READY);
    model = use("a", &e);
    EXPECT(model && model->engine);
    EXPECT(state_of("b") == MODEL_KNOWN);
    registry_unload(m);
    EXPECT(state_of("a") == MODEL_DRAINING); /* the reference keeps it */
    EXPECT(vocab_n_tokens(model->vocab) > 0);
    model_release(model);
    await_state("a", MODEL_UNLOADED);
    EXPECT_EQ(n_closed, 1);
    registry_load(m);
    await_state("a", MODEL_READY);
    registry_entry_unref(m);
    registry_close(registry);
}

static void *request(void *arg)
{
    struct err e;
    struct model *m = use(arg, &e);

    EXPECT(m);
    model_release(m);
    return NULL;
}

static void requests_for_a_cold_model_share_one_load(void)
{
    enum { N = 32 };
    pthread_t threads[N];
    struct err e;

    open_registry(1, (struct model_pool_options){ .parallel_loads = 4 });
    for (int i = 0; i < N; i++)
        CHECK(!pthread_create(&threads[i], NULL, request, (void *)(uintptr_t) "a"));
    for (int i = 0; i < N; i++)
        pthread_join(threads[i], NULL);
    struct model *m = use("a", &e);
    EXPECT(m);
    uint64_t load = m ? m->load : 0;
    model_release(m);
    EXPECT_EQ(n_closed, 0);
    m = use("a", &e);
    EXPECT(m && m->load == load);
    model_release(m);
    registry_close(registry);
}

static void the_least_recently_used_idle_model_is_evicted(void)
{
    struct err e;

    open_registry(4, (struct model_pool_options){ .parallel_loads = 2, .max_models = 2 });
    model_release(use("a", &e));
    model_release(use("b", &e));
    model_release(use("a", &e));
    struct model *c = use("c", &e); /* evicts b */
    EXPECT(c);
    EXPECT(state_of("a") == MODEL_READY);
    EXPECT(state_of("b") == MODEL_UNLOADED);
    model_release(use("d", &e)); /* evicts a, since c is in use */
    EXPECT(state_of("a") == MODEL_UNLOADED);
    EXPECT(state_of("c") == MODEL_READY);
    model_release(c);
    registry_close(registry);
}

static void pinned_models_are_never_evicted(void)
{
    struct registry_entry *a;
    struct err e = { 0 };

    open_registry(2, (struct model_pool_options){ .max_models = 1 });
    model_release(use("a", &e));
    a = find("a");
    registry_pin(a, true);
    EXPECT(!use("b", &e));
    EXPECT(strstr(e.msg, "none of them may be evicted"));
    EXPECT(state_of("a") == MODEL_READY);
    registry_pin(a, false);
    for (int i = 0; i < PATIENCE_MS && state_of("b") != MODEL_READY; i += 100) {
        model_release(use("b", &e)); /* tried again after a second */
        poll(NULL, 0, 100);
    }
    EXPECT(state_of("a") == MODEL_UNLOADED);
    registry_entry_unref(a);
    registry_close(registry);
}

static void a_load_waits_until_a_busy_model_is_idle(void)
{
    pthread_t thread;
    struct err e;

    open_registry(2, (struct model_pool_options){ .parallel_loads = 2, .max_models = 1 });
    struct model *a = use("a", &e);
    CHECK(!pthread_create(&thread, NULL, request, (void *)(uintptr_t) "b"));
    await_state("b", MODEL_LOADING);
    EXPECT(state_of("a") == MODEL_READY);
    model_release(a);
    pthread_join(thread, NULL);
    EXPECT(state_of("a") == MODEL_UNLOADED);
    EXPECT(state_of("b") == MODEL_READY);
    registry_close(registry);
}

static void a_load_that_no_request_waits_for_is_cancelled(void)
{
    struct err e;

    open_registry(2, (struct model_pool_options){ .parallel_loads = 2, .max_models = 1 });
    struct model *a = use("a", &e);
    struct registry_entry *b = find("b");
    registry_wait(b);
    await_state("b", MODEL_LOADING);
    registry_wait_end(b); /* while the load waits for room */
    model_release(a);
    await_state("b", MODEL_KNOWN);
    EXPECT(state_of("a") == MODEL_READY);
    registry_load(b);
    await_state("b", MODEL_READY);
    registry_entry_unref(b);
    registry_close(registry);
}

/* The first model is checked when the registry is opened, before a loader thread counts it. */
static void a_checked_model_can_be_unloaded_and_removed_before_its_load(void)
{
    struct model_spec specs[2] = { spec_of("a", false), spec_of("b", true) };
    struct registry_options o = {
        .specs = specs, .n_specs = 2, .must_serve = true, .pool = { .max_models = 1 }
    };
    struct err e;

    for (int is_removed = 0; is_removed < 2; is_removed++) {
        EXPECT_EQ(registry_open(&registry, &o, &e), 0);
        registry_watch(registry, &(struct registry_watch){ count_change, count_close, NULL });
        struct registry_entry *a = find("a");
        registry_unload(a);
        EXPECT(state_of("a") == MODEL_KNOWN);
        if (is_removed)
            registry_remove(a);
        EXPECT_EQ(registry_start(registry, &e), 0);
        struct model *m = use(is_removed ? "b" : "a", &e);
        EXPECT(m);
        model_release(m);
        if (!is_removed) /* the limit still counts */
            model_release(use("b", &e));
        EXPECT(state_of("b") == MODEL_READY);
        EXPECT_EQ(registry_n_ready(registry), 1);
        registry_entry_unref(a);
        registry_close(registry);
    }
}

static void an_idle_model_expires(void)
{
    struct err e;

    open_registry(2, (struct model_pool_options){ .idle_ttl_ms = 30 });
    struct model *a = use("a", &e);
    model_release(use("b", &e));
    await_state("b", MODEL_UNLOADED);
    EXPECT(state_of("a") == MODEL_READY);
    model_release(a);
    await_state("a", MODEL_UNLOADED);
    registry_close(registry);
}

static void models_are_added_and_removed(void)
{
    struct model_spec spec = spec_of("new", false);
    struct registry_list list;
    struct err e;

    open_registry(1, (struct model_pool_options){ 0 });
    EXPECT_EQ(registry_add(registry, &spec, &e), 0);
    EXPECT_EQ(registry_add(registry, &spec, &e), -1);
    EXPECT(e.code == ERR_INVALID);
    await_state("new", MODEL_READY);
    struct registry_entry *m = find("new");
    struct model *model = use("new", &e);
    registry_remove(m);
    EXPECT(!registry_find_id(registry, STR("new")));
    EXPECT_EQ(registry_list(registry, &list, &e), 0);
    EXPECT(list.n == 1);
    registry_list_clear(&list);
    EXPECT_EQ(registry_add(registry, &spec, &e), 0); /* the name is free */
    await_state("new", MODEL_READY);
    EXPECT(vocab_n_tokens(model->vocab) > 0); /* the removed model still exists */
    model_release(model);
    registry_entry_unref(m);
    registry_close(registry);
}

static void a_failed_model_recovers_with_its_file(void)
{
    char dir[TMPDIR_NAME], path[TMPDIR_NAME + 16], part[TMPDIR_NAME + 16];
    struct mapfile demo;
    FILE *f;
    struct err e;

    tmpdir_make(dir);
    snprintf(path, sizeof(path), "%s/m.gguf", dir);
    open_registry(1, (struct model_pool_options){ 0 });
    struct model_spec spec = spec_of("file", false);
    spec.path = path;
    EXPECT_EQ(registry_add(registry, &spec, &e), 0);
    await_state("file", MODEL_FAILED);
    EXPECT(!use("file", &e));
    EXPECT_EQ(mapfile_open(&demo, "models/demo.gguf", &e), 0);
    snprintf(part, sizeof(part), "%s/part", dir);
    EXPECT((f = fopen(part, "we")) && fwrite(demo.p, 1, demo.n, f) == demo.n && !fclose(f));
    mapfile_close(&demo);
    EXPECT(!rename(part, path));
    await_state("file", MODEL_READY);
    registry_close(registry);
    tmpdir_remove(dir);
}

static void a_model_larger_than_the_pool_is_refused(void)
{
    struct model_spec spec = spec_of("large", true);
    struct err e;

    open_registry(1, (struct model_pool_options){ .memory_bytes = 1 * MB });
    spec.backend = BACKEND_NATIVE;
    EXPECT_EQ(registry_add(registry, &spec, &e), 0);
    EXPECT(!use("large", &e));
    EXPECT(strstr(e.msg, "MB are missing"));
    registry_close(registry);
}

TESTS(TEST(a_model_is_loaded_on_demand_and_stays), TEST(requests_for_a_cold_model_share_one_load),
    TEST(the_least_recently_used_idle_model_is_evicted), TEST(pinned_models_are_never_evicted),
    TEST(a_load_waits_until_a_busy_model_is_idle),
    TEST(a_load_that_no_request_waits_for_is_cancelled),
    TEST(a_checked_model_can_be_unloaded_and_removed_before_its_load), TEST(an_idle_model_expires),
    TEST(models_are_added_and_removed), TEST(a_failed_model_recovers_with_its_file),
    TEST(a_model_larger_than_the_pool_is_refused))
