/* solve.h - what the parts of the solver share: see solve.c.
 *
 * solve.c walks and dispatches; solve_branch.c has the keywords that branch, solve_keyword.c those
 * that say one thing.  All of them hold for the literal of `entry`, go on with the tasks at `head`
 * (G_NONE: none are left), and leave what they added to the caller to take back.
 */
#ifndef LODE_GRAMMAR_SOLVE_H
#define LODE_GRAMMAR_SOLVE_H

#include "text/grammar/literal.h"

enum {
    SOLVE_MAX_WALKING = 1200
}; /* tasks under way at once: each is a few frames of the C stack */

/* Where the walk can come back to. */
struct mark {
    size_t entries, tasks, atoms;
};
static inline struct mark mark_of(const struct solver *v) {
    return (struct mark){v->entries.n, v->tasks.n, v->atoms.n};
}
static inline void back_to(struct solver *v, struct mark m) {
    v->entries.n = m.entries;
    v->tasks.n = m.tasks;
    v->atoms.n = m.atoms;
}

/* JSON's type of each of ours. */
extern const uint8_t solve_json_type[TYPE_OBJECT + 1];

/* Does the next task; at the end of the list the alternative is complete. */
int solve_walk(struct solver *v, uint32_t head);

/* ---- what holds from here on ---- */

/* A literal that must hold, found while at `parent`. */
int solve_add_lit(struct solver *v, g_lit lit, uint32_t parent, bool apart, uint32_t *head);
/* Each member of a list of schemas, as literals with these bits. */
int solve_all_members(struct solver *v, uint32_t entry, uint32_t list, g_lit bits, bool apart,
                      uint32_t *head);
int solve_add_atom(struct solver *v, uint32_t entry, struct atom a);
int solve_add_cond(struct solver *v, uint32_t entry, enum number_op op,
                   const struct lode_json *value);
int solve_require(struct solver *v, uint32_t entry, struct lode_str key, bool neg);
int solve_count_between(struct solver *v, uint32_t entry, uint32_t min, uint32_t max);
/* Item i of an array, or the member with that key, is there and what `lit` says holds for it. */
int solve_there_and(struct solver *v, uint32_t entry, bool array, uint32_t i, struct lode_str key, g_lit lit);
/* The alternative needs what cannot be enforced: an error if it is reached. */
int solve_refuse(struct solver *v, uint32_t entry, uint32_t keyword, const char *why);

/* ---- branches: go on with more literals, then take them back ---- */

int solve_branch(struct solver *v, uint32_t entry, g_lit lit, bool apart, uint32_t head);
int solve_branch_two(struct solver *v, uint32_t entry, g_lit a, bool apart_a, g_lit c,
                     uint32_t head);
int solve_any_member(struct solver *v, uint32_t entry, uint32_t list, g_lit bits, bool apart,
                     uint32_t head);

/* ---- keywords: kw is its node; neg: of a schema that must fail by it ---- */

int solve_const(struct solver *v, uint32_t entry, uint32_t head);
int solve_any_of(struct solver *v, uint32_t entry, uint32_t kw, uint32_t head);
int solve_one_of(struct solver *v, uint32_t entry, uint32_t kw, uint32_t head);
int solve_not_one_of(struct solver *v, uint32_t entry, uint32_t kw, uint32_t head);
int solve_if(struct solver *v, uint32_t entry, uint32_t kw, bool neg, uint32_t head);
int solve_dependent(struct solver *v, uint32_t entry, const struct lode_json *map,
                    const struct lode_json *m, uint32_t head);
int solve_not_dependent(struct solver *v, uint32_t entry, uint32_t kw, uint32_t head);

int solve_type(struct solver *v, uint32_t entry, uint32_t kw, bool neg, uint32_t head);
int solve_enum(struct solver *v, uint32_t entry, uint32_t kw, bool neg, uint32_t head);
int solve_number(struct solver *v, uint32_t entry, uint32_t kw, enum number_op op, bool neg,
                 uint32_t head);
int solve_bound(struct solver *v, uint32_t entry, uint32_t kw, enum atom_op op, bool lower,
                bool neg, uint32_t head);
int solve_required(struct solver *v, uint32_t entry, uint32_t kw, bool neg, uint32_t head);
int solve_contains(struct solver *v, uint32_t entry, uint32_t kw, bool neg, uint32_t head);
/* Whether the schema at a node allows everything. */
bool solve_says_true(const struct solver *v, uint32_t node);
int solve_not_members(struct solver *v, uint32_t entry, uint32_t kw, bool array, uint32_t head);
int solve_not_items(struct solver *v, uint32_t entry, uint32_t kw, uint32_t head);
int solve_not_patterns(struct solver *v, uint32_t entry, uint32_t kw, uint32_t head);

#endif
