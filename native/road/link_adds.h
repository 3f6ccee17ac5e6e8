/* link_adds.h: adds of a writing handle, sealed, sent and counted while the loop waits (P3.2, P3.3, P3.7).
 *
 * A shortcut, never a second opinion: a frame is sealed and sent to every seat where the writer's core would do so; it
 * counts as acknowledged where the core would count it: when ack_quorum seats have answered OK to exactly what was asked,
 * in entry order. A seat is reached over a link, or is a bookie of this loop (seat.h). All else ends the shortcut. The core
 * is told then which frames are on their way, and who has answered.
 * What "common" means, and why each check is enough, is in native/SHORTCUTS.md.
 *
 *     packer ─seal─▶ every seat ─▶ ring ─▶ ack_quorum answered: LAC ─▶ all answered: release
 *                                   └──────── ended: given to the core, frame by frame
 *
 * A seat that is behind holds nobody back: a frame is sealed where ack_quorum seats have room, and the others are sent it
 * later, in order. What is kept for them is bounded by bytes.
 *
 * One thread, the loop's, but for what says "any thread".
 */
#ifndef EBK_LINK_ADDS_H
#define EBK_LINK_ADDS_H

#include "base/gil.h"
#include "road/answers.h"
#include "road/seat.h"
#include "wire/packer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi:begin */
enum {
    EBK_LINK_SEATS_MAX = 7,
    EBK_LINK_FRAMES_MIN = 64,         /* of the ring at first; it is doubled up to the next: powers of two */
    EBK_LINK_FRAMES_MAX = 65536,      /* not answered by all at a time: for memory's safety, bytes are the bound */
    EBK_LINK_FRAME_PRICE = 4096,      /* bytes that a kept frame counts for besides its body: its places, and its block */
    EBK_LINK_TURN_BYTES = 2097152,    /* sent in one go, before the loop looks at everything else again */
    EBK_LINK_TELL_NS = 2000000        /* that the loop is told later, where nobody waits for being told */
};

/* What all handles of a process keep for seats that are behind, with the price of each frame: the form in C of `Backlog`
 * (embedbk/core/backlog.py). Any thread, by ebk_backlog_add. */
struct ebk_backlog {
    uint64_t kept_bytes, bytes_max;
};

struct ebk_link_adds;

struct ebk_link_settings {
    struct ebk_packer *packer;
    struct ebk_links *links; /* borrowed; with answers, NULL: no seat is reached over a link */
    struct ebk_answers *answers;
    struct ebk_link_seat seats[7];
    uint32_t seat_count;
    uint32_t ack_quorum;
    uint64_t ledger_id;
    uint64_t nonce;
    uint8_t key[16];
    int64_t lac; /* nothing above it is on its way */
    uint64_t lac_length;
    uint64_t bytes_max; /* of frames that are not acknowledged; one more may pass it */
    uint64_t behind_max; /* of those that are, kept for seats that are behind, with their price, here and by the core */
    struct ebk_backlog *backlog; /* NULL: nobody counts */
};

struct ebk_link_facts {
    int64_t lac;
    uint64_t lac_length;
    uint32_t pending;       /* frames that are not acknowledged */
    bool is_ending;         /* nothing more goes this way */
    bool has_unsent;        /* then: a seat was not sent all of them */
    int64_t oldest_sent_ns; /* of the frames that a seat has not answered; 0: there is none */
    int64_t longest_ns;     /* that an answer took since it was told last; 0: there was none */
    uint32_t followed;      /* a bit for each seat that said since then that a reader waits there (P6.2) */
    int64_t heard_ns[7];    /* by seat: when it was seen last that it had answered; 0: never */
    bool is_pressed;        /* behind_max is reached: nothing is sealed */
    int64_t silent_ns[7];   /* then, by seat: since when it has answered nothing of what it owes; 0: it owes nothing */
};

/* A frame that not every seat has answered. */
struct ebk_link_frame {
    struct ebk_packed packed;
    uint64_t first_request; /* of seat 0; those of the others follow */
    int64_t sent_ns;
    uint32_t answered;      /* a bit for each seat */
    uint32_t unsent;        /* whom the core has to ask: who was sent nothing, or has it and is not durable yet */
};

EBK_SHORT void ebk_backlog_add(struct ebk_backlog *backlog, int64_t bytes);
EBK_SHORT uint64_t ebk_backlog_kept(const struct ebk_backlog *backlog);

/* ---- adds of one handle; NULL without memory. packer and backlog are borrowed, answers are kept. */
struct ebk_link_adds *ebk_link_adds_new(const struct ebk_link_settings *settings);
/* Nothing is sealed any more, and no answer counts. Frames not handed back are released; waiting threads get EBK_FAILED. */
void ebk_link_adds_close(struct ebk_link_adds *adds);
/* Only after ebk_link_adds_close, when no thread waits. */
void ebk_link_adds_free(struct ebk_link_adds *adds);
/* Any thread: the LAC, told or not, and the length up to it. */
EBK_SHORT int64_t ebk_link_adds_lac(const struct ebk_link_adds *adds, uint64_t *length);
/* Any thread: wait until the entry is acknowledged. is_alone: nobody waits for what is told, so it may be told later.
 * Returns 1: it is; 0: not yet, after timeout_ms or a signal; EBK_FAILED: not this way, they are closed. */
int ebk_link_adds_await(struct ebk_link_adds *adds, int64_t entry_id, bool is_alone, int timeout_ms);
/* What there is to tell; it is told by that. */
EBK_SHORT void ebk_link_adds_tell(struct ebk_link_adds *adds, int64_t now_ns, struct ebk_link_facts *facts);
/* The core keeps so much for seats that are behind, of frames that it had sent before: it counts for behind_max. */
EBK_SHORT void ebk_link_adds_keep_beside(struct ebk_link_adds *adds, uint64_t bytes);
/* This seat has failed: nothing is kept for it any more, it counts for nothing, and nothing more goes this way. */
EBK_SHORT void ebk_link_adds_fail(struct ebk_link_adds *adds, uint32_t seat);
/* For who watches: the frame at this place, counted from the first one ever, once this near seat has it; with its token
 * there, and the LAC that it was told. 0: it has not, or all seats have answered. The body stays the adds' own. */
EBK_SHORT int ebk_link_adds_show(const struct ebk_link_adds *adds, uint64_t place, uint32_t seat,
                                 struct ebk_packed *frame, uint64_t *token, int64_t *lac, uint64_t *lac_length);
/* Seal and send as far as allowed, and count what is acknowledged. */
EBK_SHORT void ebk_link_adds_turn(struct ebk_link_adds *adds, int64_t now_ns);
/* The next frame that is not acknowledged, or that a seat has not answered, in entry order; it is owed an
 * ebk_packer_release. 0: none is left. Nothing goes this way any more, and no answer counts here, from the first one on. */
EBK_SHORT int ebk_link_adds_give(struct ebk_link_adds *adds, struct ebk_link_frame *frame);
/* cffi:end */

/* When its core has to hear of something: now_ns or earlier, at once; INT64_MAX, there is nothing. */
int64_t ebk_link_adds_due_ns(struct ebk_link_adds *adds, int64_t now_ns);
/* Another turn would send something at once. */
bool ebk_link_adds_has_more(const struct ebk_link_adds *adds);

#endif
