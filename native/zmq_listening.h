/* zmq_listening.h: a writing client waits for answers, again and again, until a core wants to hear of them.
 *
 *     ┌─▶ sockets dry, answers counted ─▶ adds sealed and sent ─▶ news? ─▶ wait ─┐
 *     └──────────────────────────────────────────────────────────────────────────┘
 *
 * What a turn of the loop does when nothing happens but common answers that no quorum
 * needs yet: the same parts (zmq_answers.h, answers.h), without Python in between. It
 * decides nothing, and ends at everything else: native/NATIVE.md has the list.
 *
 * One thread, the client's loop, which waits here instead of polling by itself.
 */
#ifndef EBK_ZMQ_LISTENING_H
#define EBK_ZMQ_LISTENING_H

#include "answers.h"
#include "gil.h"
#include "link_adds.h"
#include "zmq_answers.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi:begin */
/* Why a wait ended. */
enum {
    EBK_HEARD_DUE = 1,   /* its time is over */
    EBK_HEARD_READY = 2, /* a descriptor that is of no link here is ready: outcome.ready */
    EBK_HEARD_HELD = 3,  /* a message is Python's: ebk_zmq_answers_state(), of the link outcome.link */
    EBK_HEARD_NEWS = 4,  /* the cores want to hear of what is counted, or of adds that were sent here */
    EBK_HEARD_BOUND = 5, /* credit_bytes were received on a link: its peer is to be told */
    EBK_HEARD_SIGNAL = 6 /* a signal came: its handler is Python's */
};
enum {
    EBK_HEARD_READY_MAX = 32 /* told at once; the others are still ready */
};

/* A dialled link that is up. */
struct ebk_heard_link {
    void *socket;
    uint64_t number;
    int descriptor;
    uint8_t prefix[24];
};

struct ebk_heard {
    int64_t now_ns; /* when the wait ended */
    bool is_dry;    /* no socket has more, and their descriptors tell when they have */
    uint32_t link;  /* index, of the links as given */
    uint32_t ready_count;
    int ready[32];
};

struct ebk_listening;

/* Listen to these links and watch these other descriptors. drain, answers and sender are borrowed, and must outlive it;
 * so must the sockets. sender: adds that it has take their turns meanwhile. NULL when memory or the system refuses. */
struct ebk_listening *ebk_listening_new(struct ebk_zmq_answers *drain, struct ebk_answers *answers,
                                        struct ebk_link_sender *sender,
                                        const struct ebk_heard_link *links, uint32_t link_count, const int *others,
                                        uint32_t other_count);
void ebk_listening_free(struct ebk_listening *listening);

/* Wait until until_ns of CLOCK_BOOTTIME (over already: look once), or untold_ns from when something is untold, or one of
 * the other reasons. The GIL is given away meanwhile: answers are used by nobody else. */
int ebk_listening_wait(struct ebk_listening *listening, int64_t until_ns, int64_t untold_ns, uint64_t credit_bytes,
                       struct ebk_heard *heard);
/* Bytes of bodies that were counted in the last wait, of the link with this index. */
EBK_SHORT uint64_t ebk_listening_taken(const struct ebk_listening *listening, uint32_t link);
/* cffi:end */

#endif
