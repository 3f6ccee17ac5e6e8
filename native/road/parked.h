/* parked.h: long polls for a LAC that a bookie has not answered yet: which wait, for what,
 * until when (P6.2).
 *
 * The plain Python form is embedbk/core/parked.py, which says what each of these decides.
 * One list, as the table: the core and tail_path.c both park in it and wake from it, on
 * the bookie's loop. A poll is in the list, or in the queue that it was woken into.
 */
#ifndef EBK_PARKED_H
#define EBK_PARKED_H

#include "base/gil.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi:begin */
struct ebk_poll {
    uint64_t link, request_id, ledger_id;
    int64_t after_lac;
    int64_t until_ns;
    int64_t lac; /* the pair that woke it; set by its waker */
    uint64_t lac_length;
    uint32_t bytes_max;
    bool is_counted; /* its link's host counts it as not answered yet */
};

/* Polls that were woken and not answered, in the order of coming. Zero: empty. */
struct ebk_poll_queue {
    uint32_t first, last, count; /* places, from 1 on */
};

struct ebk_parked;

/* At most polls_per_link_max of one link; a reader that asked within followed_ns is expected to ask again.
 * NULL when memory is refused. */
struct ebk_parked *ebk_parked_new(uint32_t polls_per_link_max, int64_t followed_ns);
void ebk_parked_free(struct ebk_parked *parked);

/* False: the link has so many, or memory is refused; it is to be answered at once. */
EBK_SHORT bool ebk_parked_park(struct ebk_parked *parked, const struct ebk_poll *poll);
/* A poll for the ledger came. Without memory it is not noted, and hints come later. */
EBK_SHORT void ebk_parked_note_asked(struct ebk_parked *parked, uint64_t ledger_id, int64_t now_ns);
EBK_SHORT bool ebk_parked_is_awaited(const struct ebk_parked *parked, uint64_t ledger_id);
EBK_SHORT bool ebk_parked_is_followed(const struct ebk_parked *parked, uint64_t ledger_id, int64_t now_ns);

/* Move into the queue those that this LAC, or the fence, ends; those whose time is over; all of a link. */
EBK_SHORT void ebk_parked_wake(struct ebk_parked *parked, uint64_t ledger_id, int64_t lac, bool is_fenced,
                               struct ebk_poll_queue *queue);
EBK_SHORT void ebk_parked_expire(struct ebk_parked *parked, int64_t now_ns, struct ebk_poll_queue *queue);
EBK_SHORT void ebk_parked_forget(struct ebk_parked *parked, uint64_t link, struct ebk_poll_queue *queue);
/* Queue a poll that needs no parking. False when memory is refused. */
EBK_SHORT bool ebk_parked_queue(struct ebk_parked *parked, const struct ebk_poll *poll, struct ebk_poll_queue *queue);
/* Take the first of a queue. False: it is empty. */
EBK_SHORT bool ebk_parked_pop(struct ebk_parked *parked, struct ebk_poll_queue *queue, struct ebk_poll *poll);

/* No poll ends by its time before this; INT64_MAX: none does. */
EBK_SHORT int64_t ebk_parked_deadline(const struct ebk_parked *parked);
EBK_SHORT uint32_t ebk_parked_count(const struct ebk_parked *parked);
EBK_SHORT uint32_t ebk_parked_of_link(const struct ebk_parked *parked, uint64_t link);
/* Ledgers that are noted down as awaited or asked for lately. */
EBK_SHORT uint32_t ebk_parked_followed(const struct ebk_parked *parked);
/* cffi:end */

/* The polls of a queue from a place on, for the code that sets what woke them: the place behind, 0 at the end. */
struct ebk_poll *ebk_parked_at(struct ebk_parked *parked, uint32_t place, uint32_t *next);

#endif
