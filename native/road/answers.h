/* answers.h: the common answer to an add, counted for a client's cores (P3.3, P3.7, P3.8).
 *
 * A shortcut, never a second opinion: it decides nothing. An answer is counted when it
 * says OK to exactly what was asked, on the link on which it was asked; everything else
 * is passed, its bytes unchanged. What was counted goes to the cores in the order of
 * coming, many at a time, and they count again by their own rules. All that is judged
 * here is *when* they need it: when a frame has as many answers as its ack
 * quorum needs. What that leaves untold, and why it is not missed, is in native/SHORTCUTS.md.
 *
 *     expect ─▶ slots, by request ┐
 *     take(message) ─▶ all of it as expected? ─▶ untold | link, request | link, request |
 *
 * One thread, the client's loop. The plain Python form is embedbk/codec/answers_twin.py.
 */
#ifndef EBK_ANSWERS_H
#define EBK_ANSWERS_H

#include "base/gil.h"

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

/* cffi:begin */
enum {
    EBK_ANSWERS_PASSED = 0, /* not as expected, nothing was counted */
    EBK_ANSWERS_COUNTED = 1
};
enum {
    EBK_ANSWERS_SLOTS_MAX = 262144, /* requests expected at a time; the answers to older ones are passed */
    EBK_ANSWERS_UNTOLD_MAX = 1024 /* more of them are news by themselves */
};

struct ebk_answers;

/* One frame to one seat. */
struct ebk_asked {
    uint64_t link, request_id;
    uint64_t group;  /* the first request of the same frame, perhaps this one */
    uint32_t needed; /* so many answers of the group are news */
    uint64_t nonce, seating, ledger_id;
    int64_t first, last;
};

struct ebk_counted {
    uint64_t link, request_id;
    bool is_followed; /* a reader waits there (P6.2) */
};

/* What anybody of the same thread may read without a call. */
struct ebk_answers_state {
    uint64_t counted; /* ever */
    uint32_t untold;
    uint32_t is_due;  /* the cores need the untold answers */
    uint32_t is_eager; /* may be set: every answer is news */
    uint64_t next_request; /* the next sender takes and raises it */
};

/* NULL when memory is refused. */
struct ebk_answers *ebk_answers_new(void);
void ebk_answers_free(struct ebk_answers *answers);
EBK_SHORT struct ebk_answers_state *ebk_answers_state(struct ebk_answers *answers);

/* A request was sent, or will be. Request ids rise and are never used again. Without memory it is not expected. */
EBK_SHORT void ebk_answers_expect(struct ebk_answers *answers, const struct ebk_asked *asked);

/* An expected request was answered OK in a message that was passed: it counts for its group, and is not told again. */
EBK_SHORT void ebk_answers_answered(struct ebk_answers *answers, uint64_t request_id);

/* Offer one message of a link; borrowed for the call. Returns one of the two above. */
EBK_SHORT int ebk_answers_take(struct ebk_answers *answers, uint64_t link, const uint8_t *message, size_t size);

/* The untold answers, in the order of arrival; valid until the next take. This call delivers them. */
EBK_SHORT const struct ebk_counted *ebk_answers_tell(struct ebk_answers *answers);
/* cffi:end */

struct ebk_link_adds;

/* As expect, of a request of these adds (link_adds.h): its answer goes to them, and counts nowhere else. place,
 * seat: of which frame to which seat. */
void ebk_answers_expect_for(struct ebk_answers *answers, const struct ebk_asked *asked, struct ebk_link_adds *adds,
                            uint64_t place, uint32_t seat);
/* Takes a reference for adds, which get their answers by this call, the same for all; free it once more. */
typedef void ebk_adds_answered(struct ebk_link_adds *adds, uint64_t place, uint32_t seat, bool is_followed);
void ebk_answers_keep(struct ebk_answers *answers, ebk_adds_answered *answered);
/* No request of these adds is expected any more: answers to them are passed. */
void ebk_answers_forget(struct ebk_answers *answers, const struct ebk_link_adds *adds);

#endif
