/* link_adds.h: adds of a writing handle, sealed, sent and counted while the loop waits (P3.2, P3.3, P3.7).
 *
 * A shortcut, never a second opinion: a frame is sealed and sent to every seat where the writer's core would do so; it
 * counts as acknowledged where the core would count it: when ack_quorum seats have answered OK to exactly what was asked,
 * in entry order. A seat is reached over a link, or is a bookie of this loop (seat.h). All else ends the shortcut.
 * What "common" means, and why each check is enough, is in native/SHORTCUTS.md.
 *
 *     packer ─seal─▶ the handle's table (in_flight.h) ─▶ every seat ─▶ ack_quorum answered: LAC ─▶ all answered: release
 *
 * The table is the one that the writer's core uses. It is lent to these adds, which have no frames of their own: at the end
 * the core finds in it what is on its way and which seats have answered, and learns which requests are open.
 *
 * A seat that is behind holds no other back: a frame is sealed where ack_quorum seats have room, and the others are
 * sent it later, in order. What is kept for them is bounded by bytes.
 *
 * One thread, the loop's, but for what says "any thread".
 */
#ifndef EBK_LINK_ADDS_H
#define EBK_LINK_ADDS_H

#include "base/gil.h"
#include "road/answers.h"
#include "road/in_flight.h"
#include "road/seat.h"
#include "wire/packer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi:begin */
enum {
    EBK_LINK_TURN_BYTES = 2097152,    /* sent in one go, before the loop looks at everything else again */
    EBK_LINK_TELL_NS = 2000000        /* so much later the loop is told, where no caller waits for that */
};

struct ebk_link_adds;

struct ebk_link_settings {
    struct ebk_packer *packer;
    struct ebk_in_flight *table; /* of this handle, borrowed */
    struct ebk_links *links; /* borrowed; with answers, NULL: no seat is reached over a link */
    struct ebk_answers *answers;
    struct ebk_link_seat seats[7];
    uint32_t seat_count;
    uint32_t ack_quorum;
    uint64_t ledger_id;
    uint64_t nonce;
    uint8_t key[16];
    int64_t lac; /* the frames of the table that are not done are above it, and those of the packer above these */
    uint64_t lac_length;
    uint64_t bytes_max; /* of frames that are not acknowledged; one more may pass it */
    uint64_t behind_max; /* of those that are, kept for seats that are behind, with their price */
};

struct ebk_link_facts {
    int64_t lac;
    uint64_t lac_length;
    uint32_t pending;       /* frames that are not acknowledged */
    bool is_ending;         /* nothing more goes this way */
    int64_t oldest_sent_ns; /* of the frames that a seat has not answered; 0: there is none */
    int64_t longest_ns;     /* that an answer took since it was told last; 0: there was none */
    uint32_t followed;      /* a bit for each seat that said since then that a reader waits there (P6.2) */
    int64_t heard_ns[7];    /* by seat: when it was seen last that it had answered; 0: never */
    int64_t answered_ns[7]; /* by seat: when the newest was sent of the frames that it has answered; 0: none */
    bool is_pressed;        /* behind_max is reached: nothing is sealed */
    int64_t silent_ns[7];   /* then, by seat: since when it has answered nothing of what it owes; 0: it owes nothing */
};

/* A frame that was sent this way and is owed an answer; a bit for each seat that owes it. */
struct ebk_link_owed {
    int64_t first_entry;
    uint64_t first_request; /* of seat 0; those of the others follow */
    uint32_t asked;         /* its request is on its way */
    uint32_t unsent;        /* seats that the core has to ask: sent nothing, or has it and is not durable yet */
};

/* ---- adds of one handle; NULL without memory. packer and table are borrowed, answers are kept. */
struct ebk_link_adds *ebk_link_adds_new(const struct ebk_link_settings *settings);
/* Nothing is sealed any more, and no answer counts here; waiting threads get EBK_FAILED. The table is not used any more. */
void ebk_link_adds_close(struct ebk_link_adds *adds);
/* Only after ebk_link_adds_close, when no thread waits. */
void ebk_link_adds_free(struct ebk_link_adds *adds);
/* Any thread: the LAC, told or not, and the length up to it. */
EBK_SHORT int64_t ebk_link_adds_lac(const struct ebk_link_adds *adds, uint64_t *length);
/* Any thread: wait until the entry is acknowledged. is_alone: no other waiter needs the LAC in Python: it may be
 * published later. Returns 1: it is; 0: not yet, after timeout_ms or a signal; EBK_FAILED: not this way, they are
 * closed. */
int ebk_link_adds_await(struct ebk_link_adds *adds, int64_t entry_id, bool is_alone, int timeout_ms);
/* What happened since the last call. */
EBK_SHORT void ebk_link_adds_tell(struct ebk_link_adds *adds, int64_t now_ns, struct ebk_link_facts *facts);
/* Note that this seat failed: nothing is kept for it any more, it counts for nothing, and no frame is sealed here. */
EBK_SHORT void ebk_link_adds_fail(struct ebk_link_adds *adds, uint32_t seat);
/* For an observer: the frame at this place of the table, once it was sent to this near seat; with its token there, and
 * the LAC that it was told. 0: it was not, or all seats have answered. The body stays the table's. */
EBK_SHORT int ebk_link_adds_show(const struct ebk_link_adds *adds, uint64_t place, uint32_t seat,
                                 struct ebk_packed *frame, uint64_t *token, int64_t *lac, uint64_t *lac_length);
/* Seal and send as far as allowed, and count what is acknowledged. */
EBK_SHORT void ebk_link_adds_turn(struct ebk_link_adds *adds, int64_t now_ns);
/* Seal nothing and count no answer here any more. */
EBK_SHORT void ebk_link_adds_end(struct ebk_link_adds *adds);
/* Behind that: the first such frame from this place of the table on, in entry order; *place is then behind it. 0: none. */
EBK_SHORT int ebk_link_adds_next_owed(const struct ebk_link_adds *adds, uint64_t *place, struct ebk_link_owed *owed);
/* cffi:end */

/* When its core has to get news: now_ns or earlier, at once; INT64_MAX, there is none. */
int64_t ebk_link_adds_due_ns(struct ebk_link_adds *adds, int64_t now_ns);
/* Another turn would send something at once. */
bool ebk_link_adds_has_more(const struct ebk_link_adds *adds);

#endif
