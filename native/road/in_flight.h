/* in_flight.h: the frames of one writing handle that are on their way, and what each seat still owes an answer for.
 *
 * The one owner of that state, for the whole life of a writing handle: all sending, counting and forgetting uses these
 * calls. It decides nothing of the protocol. Frames stand in entry order; a seat is known by its slot, of which each
 * seat has two: while an ensemble change is in flight, its holder has one and the bookie proposed for it the other
 * (P4.2).
 *
 *     frames ring   | done, and owed by a slot | not done ...
 *                   ^ tail                     ^ head       ^ end
 *
 * A frame's place is counted from the first frame ever, so it is never another one's. A frame that is done keeps its bytes
 * until every slot that owes an answer has given it: a seat that says BUSY is sent it again (P7.8, RP33).
 *
 * One thread, the loop's, but for the backlog. The contract is that of FrameTable (embedbk/core/frame_table.py), which is
 * the plain Python form; transports/in_flight.py is the handle of this one.
 */
#ifndef EBK_IN_FLIGHT_H
#define EBK_IN_FLIGHT_H

#include "base/gil.h"
#include "wire/packer.h"

#include <stdbool.h>
#include <stdint.h>

/* cffi:begin */
enum {
    EBK_FLIGHT_SEATS_MAX = 7,
    EBK_FLIGHT_SLOTS_MAX = 14,      /* two of each seat */
    EBK_FLIGHT_FRAMES_MIN = 4,      /* of the ring at first; it is doubled: powers of two */
    EBK_FLIGHT_FRAMES_MAX = 65536,  /* for memory's safety, bytes are the bound */
    EBK_FLIGHT_FRAME_PRICE = 4096   /* bytes that a kept frame counts for besides its body: its places, and its block */
};

/* What all handles of a process keep for seats that are behind, with the price of each frame: the form in C of `Backlog`
 * (embedbk/core/backlog.py). Any thread, by ebk_backlog_add. */
struct ebk_backlog {
    uint64_t kept_bytes, bytes_max;
};

/* What its thread may read without a call. */
struct ebk_flight_state {
    uint64_t tail, head, end;    /* places */
    uint64_t pending_bytes;      /* of the bodies from head on */
    uint64_t behind_count;       /* frames before head that are kept */
    uint64_t behind_bytes;       /* of those, each with its price */
    uint64_t owed_sum;           /* answers that are owed, of all slots */
    uint64_t owed_count[14];     /* by slot: the frames that it was sent and has not answered */
    int64_t oldest_sent_ns[14];  /* by slot: when the first of them was sent */
};

/* One frame, to look at. packed.body: NULL where its bytes are released and only what is owed is left. */
struct ebk_flying {
    struct ebk_packed packed;
    uint32_t acked, received, owed; /* bits by slot: has it durable, holds it in memory (P3.2), has not answered */
};

/* How C sent it (link_adds.h). */
struct ebk_flying_sent {
    uint64_t first_request; /* seat 0's request; those of the other seats follow */
    int64_t lac;            /* every seat gets it with the frame, whenever that is sent */
    uint64_t lac_length;
    uint64_t tokens[7];     /* for near seats: up to where each has to be durable */
};

struct ebk_in_flight;

EBK_SHORT void ebk_backlog_add(struct ebk_backlog *backlog, int64_t bytes);
EBK_SHORT uint64_t ebk_backlog_kept(const struct ebk_backlog *backlog);

/* NULL without memory. */
EBK_SHORT struct ebk_in_flight *ebk_in_flight_new(void);
/* Release every frame. Any thread, once no other uses the table. */
EBK_SHORT void ebk_in_flight_free(struct ebk_in_flight *table);
EBK_SHORT const struct ebk_flight_state *ebk_in_flight_state(const struct ebk_in_flight *table);
/* What is kept counts there from now on; NULL: nothing counts. Borrowed. */
EBK_SHORT void ebk_in_flight_count_in(struct ebk_in_flight *table, struct ebk_backlog *backlog);

/* The newest frame, whose release becomes the table's own. No slot owes an answer for it before ebk_in_flight_owe.
 * Returns its place, or EBK_NO_MEMORY. */
EBK_SHORT int64_t ebk_in_flight_put(struct ebk_in_flight *table, const struct ebk_packed *packed);
/* The place of the frame that begins with this entry, kept or owed; -1: there is none. */
EBK_SHORT int64_t ebk_in_flight_find(const struct ebk_in_flight *table, int64_t first_entry);
/* A frame from tail on, valid until the next one is put. */
EBK_SHORT const struct ebk_flying *ebk_in_flight_at(const struct ebk_in_flight *table, uint64_t place);
/* The frame at head is done: it is kept while a slot owes an answer for it. */
EBK_SHORT void ebk_in_flight_confirm(struct ebk_in_flight *table);
/* Release the oldest kept frame, though answers for it are owed. */
EBK_SHORT void ebk_in_flight_drop_oldest_behind(struct ebk_in_flight *table);
/* Release every kept frame. */
EBK_SHORT void ebk_in_flight_let_go(struct ebk_in_flight *table);
/* The same, and nothing is on its way any more either. */
EBK_SHORT void ebk_in_flight_give_up(struct ebk_in_flight *table);

/* This slot is sent the frame. If it is sent again, the first time counts. */
EBK_SHORT void ebk_in_flight_owe(struct ebk_in_flight *table, uint32_t slot, uint64_t place, int64_t now_ns);
/* When the slot was sent the frame, which it owes. */
EBK_SHORT int64_t ebk_in_flight_sent_ns(const struct ebk_in_flight *table, uint32_t slot, uint64_t place);
/* The slot has all of its part durable. Returns 1, with when it was sent it; 0: it owes no answer, nothing is counted. */
EBK_SHORT int ebk_in_flight_answered(struct ebk_in_flight *table, uint32_t slot, uint64_t place, int64_t *sent_ns);
/* The slot holds its part in memory, and still owes its answer (P3.2). Returns 0: it owes none, or the frame is done. */
EBK_SHORT int ebk_in_flight_took(struct ebk_in_flight *table, uint32_t slot, uint64_t place);
/* The slot owes nothing any more. */
EBK_SHORT void ebk_in_flight_excuse(struct ebk_in_flight *table, uint32_t slot);
/* The bookies in these slots, given as bits, lost them: the slots owe nothing, and no answer for them counts. */
EBK_SHORT void ebk_in_flight_empty(struct ebk_in_flight *table, uint32_t slots);
/* cffi:end */

/* Room for one more. False: there is no memory, or no more are allowed. */
bool ebk_in_flight_reserve(struct ebk_in_flight *table);
/* So much is kept for seats that are behind that nothing more is sent: as `InFlight.is_pressed` (core/in_flight.py). */
bool ebk_in_flight_is_pressed(const struct ebk_in_flight *table, uint64_t behind_max);
/* When and how a frame from tail on was sent, valid until the next one is put; all 0 where C has not sent it. */
struct ebk_flying_sent *ebk_in_flight_sent(const struct ebk_in_flight *table, uint64_t place);

#endif
