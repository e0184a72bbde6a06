#include "engine/sched/sorted.h"

static uint32_t weight(uint32_t i)
{
    i = (i ^ i >> 16) * 0x7feb352du;
    i = (i ^ i >> 15) * 0x846ca68bu;
    return i ^ i >> 16;
}

static bool is_before(const struct sorted_node *a, const struct sorted_node *b)
{
    return a->key != b->key ? a->key < b->key : a->tag < b->tag;
}

static uint64_t least_of(const struct sorted *s, uint32_t set)
{
    return set == SORTED_NONE ? UINT64_MAX : s->n[set].least;
}

static void update_least(struct sorted *s, uint32_t i)
{
    struct sorted_node *n = &s->n[i];

    n->least = MIN(n->tag, MIN(least_of(s, n->left), least_of(s, n->right)));
}

/* Splits into the nodes before node `at` and those after it. */
static void split(struct sorted *s, uint32_t set, uint32_t at, uint32_t *before, uint32_t *after)
{
    s->n_visited++;
    if (set == SORTED_NONE) {
        *before = *after = SORTED_NONE;
    } else if (is_before(&s->n[set], &s->n[at])) {
        *before = set;
        split(s, s->n[set].right, at, &s->n[set].right, after);
        update_least(s, set);
    } else {
        *after = set;
        split(s, s->n[set].left, at, before, &s->n[set].left);
        update_least(s, set);
    }
}

static uint32_t merge(struct sorted *s, uint32_t before, uint32_t after)
{
    s->n_visited++;
    if (before == SORTED_NONE)
        return after;
    if (after == SORTED_NONE)
        return before;
    if (weight(before) > weight(after)) {
        s->n[before].right = merge(s, s->n[before].right, after);
        update_least(s, before);
        return before;
    }
    s->n[after].left = merge(s, before, s->n[after].left);
    update_least(s, after);
    return after;
}

void sorted_insert(struct sorted *s, uint32_t *set, uint32_t i)
{
    struct sorted_node *n = &s->n[i];

    while (*set != SORTED_NONE && weight(*set) >= weight(i)) {
        struct sorted_node *at = &s->n[*set];
        s->n_visited++;
        at->least = MIN(at->least, n->tag);
        set = is_before(n, at) ? &at->left : &at->right;
    }
    split(s, *set, i, &n->left, &n->right);
    update_least(s, i);
    *set = i;
}

static uint32_t remove_node(struct sorted *s, uint32_t set, uint32_t i)
{
    CHECK(set != SORTED_NONE);
    s->n_visited++;
    if (set == i)
        return merge(s, s->n[i].left, s->n[i].right);
    struct sorted_node *at = &s->n[set];
    if (is_before(&s->n[i], at))
        at->left = remove_node(s, at->left, i);
    else
        at->right = remove_node(s, at->right, i);
    update_least(s, set);
    return set;
}

void sorted_remove(struct sorted *s, uint32_t *set, uint32_t i)
{
    *set = remove_node(s, *set, i);
}

uint32_t sorted_first(struct sorted *s, uint32_t set)
{
    while (set != SORTED_NONE && s->n[set].left != SORTED_NONE) {
        s->n_visited++;
        set = s->n[set].left;
    }
    return set;
}

uint32_t sorted_find(struct sorted *s, uint32_t set, int64_t key)
{
    uint32_t found = SORTED_NONE;

    while (set != SORTED_NONE) {
        const struct sorted_node *n = &s->n[set];
        s->n_visited++;
        if (n->key == key)
            found = set;
        set = n->key >= key ? n->left : n->right;
    }
    return found;
}

uint32_t sorted_before(struct sorted *s, uint32_t set, uint32_t i)
{
    uint32_t found = SORTED_NONE;

    while (set != SORTED_NONE) {
        const struct sorted_node *n = &s->n[set];
        s->n_visited++;
        if (is_before(n, &s->n[i])) {
            found = set;
            set = n->right;
        } else {
            set = n->left;
        }
    }
    return found;
}

/* Node with this tag, which is in the set. */
static uint32_t find_tag(struct sorted *s, uint32_t set, uint64_t tag)
{
    while (s->n[set].tag != tag) {
        s->n_visited++;
        set = least_of(s, s->n[set].left) == tag ? s->n[set].left : s->n[set].right;
    }
    return set;
}

uint32_t sorted_upto(struct sorted *s, uint32_t set, int64_t most)
{
    uint32_t in = SORTED_NONE; /* subtree with the smallest tag so far, or a node with it */
    uint64_t least = UINT64_MAX;

    while (set != SORTED_NONE) {
        const struct sorted_node *n = &s->n[set];
        s->n_visited++;
        if (n->key > most) {
            set = n->left;
            continue;
        }
        if (least_of(s, n->left) < least) {
            least = least_of(s, n->left);
            in = n->left;
        }
        if (n->tag < least) {
            least = n->tag;
            in = set;
        }
        set = n->right;
    }
    return in == SORTED_NONE ? in : find_tag(s, in, least);
}

/* The bit patterns of non-negative doubles increase with their values. */
int64_t sorted_key_of(double v)
{
    int64_t key;

    CHECK(v >= 0);
    memcpy(&key, &v, sizeof(key));
    return key;
}
