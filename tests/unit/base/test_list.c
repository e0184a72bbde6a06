/* Intrusive lists, by pointer and by index, compared with an array that holds the same order. */
#include "base/list.h"
#include "base/rng.h"
#include "support/check.h"

enum { N = 9, STEPS = 20000 };

struct item {
    int value;
    struct list_link in_list;
    struct index_link by_index;
};

struct model { /* the expected order */
    int n, at[N];
};

static int model_find(const struct model *m, int value)
{
    for (int i = 0; i < m->n; i++)
        if (m->at[i] == value)
            return i;
    return -1;
}

static void model_insert(struct model *m, int pos, int value)
{
    memmove(&m->at[pos + 1], &m->at[pos], (size_t)(m->n - pos) * sizeof(m->at[0]));
    m->at[pos] = value;
    m->n++;
}

static void model_remove(struct model *m, int pos)
{
    m->n--;
    memmove(&m->at[pos], &m->at[pos + 1], (size_t)(m->n - pos) * sizeof(m->at[0]));
}

static void expect_list(const struct list *l, const struct item *items, const struct model *m)
{
    const struct list_link *k = l->first, *prev = NULL;
    int n = 0;

    for (; k && n < m->n; prev = k, k = k->next, n++) {
        EXPECT_EQ(
            (int)(LIST_ELEMENT((struct list_link *)(uintptr_t)k, struct item, in_list) - items),
            m->at[n]);
        EXPECT(k->prev == prev && list_has(l, k));
    }
    EXPECT(!k && n == m->n && l->last == prev);
}

static void expect_index_list(
    const struct index_list *l, const struct item *items, const struct model *m)
{
    uint32_t i = l->first, prev = INDEX_NONE;
    int n = 0;

    for (; i != INDEX_NONE && n < m->n; prev = i, i = items[i].by_index.next, n++)
        EXPECT(i == (uint32_t)m->at[n] && items[i].by_index.prev == prev);
    EXPECT(i == INDEX_NONE && n == m->n && l->last == prev);
}

static void random_changes_keep_the_order(void)
{
    struct item items[N] = { 0 };
    struct model m = { 0 };
    struct list l = { 0 };
    struct index_list x = INDEX_LIST_EMPTY;
    struct rng r = { .key = 1 };

    for (int step = 0; step < STEPS; step++) {
        uint32_t i = (uint32_t)rng_below(&r, N);
        int pos = model_find(&m, (int)i);
        EXPECT_EQ(list_has(&l, &items[i].in_list), pos >= 0);
        if (pos >= 0) {
            list_remove(&items[i].in_list);
            index_list_remove(&x, INDEX_LINKS(items, by_index), i);
            model_remove(&m, pos);
        } else if (rng_below(&r, 3) == 0) {
            list_add_first(&l, &items[i].in_list);
            index_list_add_first(&x, INDEX_LINKS(items, by_index), i);
            model_insert(&m, 0, (int)i);
        } else if (rng_below(&r, 2) == 0) {
            list_add_last(&l, &items[i].in_list);
            index_list_add_last(&x, INDEX_LINKS(items, by_index), i);
            model_insert(&m, m.n, (int)i);
        } else {
            pos = (int)rng_below(&r, (uint64_t)m.n + 1);
            list_add_before(&l, &items[i].in_list, pos < m.n ? &items[m.at[pos]].in_list : NULL);
            index_list_add_after(
                &x, INDEX_LINKS(items, by_index), i, pos ? (uint32_t)m.at[pos - 1] : INDEX_NONE);
            model_insert(&m, pos, (int)i);
        }
        expect_list(&l, items, &m);
        expect_index_list(&x, items, &m);
    }
}

static void a_loop_may_remove_its_element(void)
{
    struct item items[N] = { 0 };
    struct list l = { 0 }, odd = { 0 };
    int n = 0, last = -1;

    LIST_EACH (struct item, k, &l, in_list)
        n++;
    EXPECT_EQ(n, 0);
    for (int i = 0; i < N; i++) {
        items[i].value = i;
        list_add_last(&l, &items[i].in_list);
    }
    LIST_EACH (struct item, k, &l, in_list) {
        if (k->value % 2 == 0)
            continue;
        list_remove(&k->in_list);
        list_add_last(&odd, &k->in_list);
    }
    LIST_EACH (const struct item, k, &l, in_list) {
        EXPECT(k->value == last + 1 && k->value % 2 == 0);
        last = k->value + 1;
        n++;
    }
    LIST_EACH (const struct item, k, &odd, in_list)
        n += k->value % 2;
    EXPECT_EQ(n, N);
}

static void a_removed_link_is_in_no_list(void)
{
    struct item items[2] = { 0 };
    struct list l = { 0 }, other = { 0 };

    list_add_first(&l, &items[0].in_list);
    EXPECT(list_has(&l, &items[0].in_list) && !list_has(&other, &items[0].in_list));
    list_remove(&items[0].in_list);
    EXPECT(!list_has(&l, &items[0].in_list) && !l.first && !l.last);
    list_add_first(&other, &items[0].in_list); /* aborts if the link is still in a list */
    EXPECT(LIST_ELEMENT(other.first, struct item, in_list) == &items[0]);
    EXPECT(!LIST_ELEMENT(l.first, struct item, in_list));
}

TESTS(TEST(random_changes_keep_the_order), TEST(a_loop_may_remove_its_element),
    TEST(a_removed_link_is_in_no_list))
