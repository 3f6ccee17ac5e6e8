/* local_inside.h: what local_adds.c and waiter.c ask each other. */
#ifndef EBK_LOCAL_INSIDE_H
#define EBK_LOCAL_INSIDE_H

#include "local_adds.h"

bool ebk_near_is_open(const struct ebk_near *near);
/* Of one that has not left, as every open one. */
struct ebk_add_path *ebk_near_path(const struct ebk_near *near);
/* Of one that has left: what it was then. */
uint64_t ebk_near_durable(const struct ebk_near *near);
/* A reader waits there for a newer LAC of the ledger, or did lately; nobody does where the bookie has left. */
bool ebk_near_is_followed(const struct ebk_near *near, uint64_t ledger_id);
/* Something is to be told: now, or (`is_late`) when EBK_LOCAL_TELL_MS are over. */
bool ebk_local_adds_has_news(struct ebk_local_adds *adds, int64_t now_ms, bool *is_late);
/* Another turn would store something at once. */
bool ebk_local_adds_has_more(const struct ebk_local_adds *adds);

#endif
