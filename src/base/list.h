/* list.h: intrusive doubly linked lists, by pointer and by array index.
 *
 * The links are members of the elements, so that no operation allocates or fails, and all are O(1).
 *
 *   struct list        elements at any address; a link also names its list
 *   struct index_list  elements of one array, linked by index: a link has 8 instead of 24 bytes,
 *                      and the array may be moved
 *
 * A zeroed struct list is empty, and a zeroed struct list_link is in no list. A struct list that is
 * not empty must not be moved or copied. Owner: that of the elements. */
#pragma once

#include "base/base.h"

/* ---- by pointer */

struct list_link {
    struct list *list; /* NULL: in no list; then prev and next are NULL too */
    struct list_link *prev, *next;
};

struct list {
    struct list_link *first, *last; /* NULL: empty */
};

static inline bool list_has(const struct list *l, const struct list_link *k)
{
    return k->list == l;
}

/* Adds k before `next`; NULL: at the end. */
static inline void list_add_before(struct list *l, struct list_link *k, struct list_link *next)
{
    CHECK(!k->list);
    *k = (struct list_link){ l, next ? next->prev : l->last, next };
    *(k->prev ? &k->prev->next : &l->first) = k;
    *(next ? &next->prev : &l->last) = k;
}

static inline void list_add_first(struct list *l, struct list_link *k)
{
    list_add_before(l, k, l->first);
}

static inline void list_add_last(struct list *l, struct list_link *k)
{
    list_add_before(l, k, NULL);
}

static inline void list_remove(struct list_link *k)
{
    struct list *l = k->list;

    CHECK(l);
    *(k->prev ? &k->prev->next : &l->first) = k->next;
    *(k->next ? &k->next->prev : &l->last) = k->prev;
    *k = (struct list_link){ 0 };
}

static inline void *list_element(struct list_link *k, size_t offset)
{
    return k ? (char *)k - offset : NULL;
}

/* The element of type `type` whose member `member` is the link k; NULL if k is NULL. */
#define LIST_ELEMENT(k, type, member) ((type *)list_element(k, offsetof(type, member)))

/* Loop over the elements `at` of type `type`, first to last. The body may remove and free `at`. */
#define LIST_EACH(type, at, l, member)                                                             \
    for (type *at = LIST_ELEMENT((l)->first, type, member), *at##_next;                            \
         at && (at##_next = LIST_ELEMENT(at->member.next, type, member), true); at = at##_next)

/* ---- by index */

#define INDEX_NONE UINT32_MAX

struct index_link {
    uint32_t prev, next; /* INDEX_NONE: there is none; undefined if the element is in no list */
};

struct index_list {
    uint32_t first, last; /* INDEX_NONE: empty */
};

#define INDEX_LIST_EMPTY ((struct index_list){ INDEX_NONE, INDEX_NONE })

struct index_links { /* the links of all elements of an array */
    char *link_0;
    size_t stride; /* bytes */
};

/* The links `member` of the elements of `array`. */
#define INDEX_LINKS(array, member)                                                                 \
    ((struct index_links){ (char *)&(array)->member, sizeof(*(array)) })

static inline struct index_link *index_link(struct index_links all, uint32_t i)
{
    return (struct index_link *)(void *)(all.link_0 + i * all.stride);
}

/* Adds element i between its neighbours `prev` and `next`; INDEX_NONE: an end of the list. */
static inline void index_list_add_between(
    struct index_list *l, struct index_links all, uint32_t i, uint32_t prev, uint32_t next)
{
    *index_link(all, i) = (struct index_link){ prev, next };
    *(prev == INDEX_NONE ? &l->first : &index_link(all, prev)->next) = i;
    *(next == INDEX_NONE ? &l->last : &index_link(all, next)->prev) = i;
}

static inline void index_list_add_first(struct index_list *l, struct index_links all, uint32_t i)
{
    index_list_add_between(l, all, i, INDEX_NONE, l->first);
}

static inline void index_list_add_last(struct index_list *l, struct index_links all, uint32_t i)
{
    index_list_add_between(l, all, i, l->last, INDEX_NONE);
}

/* Adds element i after `prev`; INDEX_NONE: as the first one. */
static inline void index_list_add_after(
    struct index_list *l, struct index_links all, uint32_t i, uint32_t prev)
{
    uint32_t next = prev == INDEX_NONE ? l->first : index_link(all, prev)->next;

    index_list_add_between(l, all, i, prev, next);
}

static inline void index_list_remove(struct index_list *l, struct index_links all, uint32_t i)
{
    const struct index_link k = *index_link(all, i);

    *(k.prev == INDEX_NONE ? &l->first : &index_link(all, k.prev)->next) = k.next;
    *(k.next == INDEX_NONE ? &l->last : &index_link(all, k.next)->prev) = k.prev;
}
