/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * list.h - the kernel's circular doubly linked list, as far as it is used here
 */
#ifndef DCM_LIST_H
#define DCM_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct dcm_list {
	struct dcm_list *next;
	struct dcm_list *prev;
};

static inline void dcm_list_init(struct dcm_list *l)
{
	l->next = l;
	l->prev = l;
}

static inline bool dcm_list_empty(const struct dcm_list *l)
{
	return l->next == l;
}

static inline void dcm_list_add_tail(struct dcm_list *n, struct dcm_list *head)
{
	n->prev = head->prev;
	n->next = head;
	head->prev->next = n;
	head->prev = n;
}

/* Delete an entry; leaves @n empty, so that deleting it twice is harmless. */
static inline void dcm_list_del(struct dcm_list *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	dcm_list_init(n);
}

#define dcm_list_entry(ptr, type, member) \
	((type *)((char *)(ptr)-offsetof(type, member)))

#define dcm_list_first(head, type, member) \
	dcm_list_entry((head)->next, type, member)

#define dcm_list_for_each(pos, head, type, member)               \
	for (pos = dcm_list_entry((head)->next, type, member);   \
	     &pos->member != (head);                             \
	     pos = dcm_list_entry(pos->member.next, type, member))

/* The body may delete @pos, and no other entry. */
#define dcm_list_for_each_safe(pos, tmp, head, type, member)       \
	for (pos = dcm_list_entry((head)->next, type, member),     \
	    tmp = dcm_list_entry(pos->member.next, type, member);  \
	     &pos->member != (head);                               \
	     pos = tmp, tmp = dcm_list_entry(tmp->member.next, type, member))

#endif /* DCM_LIST_H */
