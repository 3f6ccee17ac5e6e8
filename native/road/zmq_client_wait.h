/* zmq_client_wait.h: a writing client waits for answers, again and again, until a core wants to hear of them.
 *
 *     ┌─▶ sockets dry, answers counted ─▶ adds sealed and sent ─▶ news? ─▶ wait ─┐
 *     └──────────────────────────────────────────────────────────────────────────┘
 *
 * What a turn of the loop does when nothing happens but common answers that no quorum
 * needs yet: the same parts (zmq_dialled.h, answers.h), without Python in between. It
 * decides nothing, and ends at everything else: native/SHORTCUTS.md has the list.
 *
 * One thread, the client's loop, which waits here instead of polling by itself.
 */
#ifndef EBK_ZMQ_CLIENT_WAIT_H
#define EBK_ZMQ_CLIENT_WAIT_H

#include "base/gil.h"
#include "road/answers.h"
#include "road/links.h"
#include "road/turns.h"
#include "road/zmq_dialled.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi:begin */
/* Why a wait ended. */
enum {
    EBK_CLIENT_WAIT_DUE = 1,   /* its time is over */
    EBK_CLIENT_WAIT_READY = 2, /* a descriptor that is of no link here is ready: outcome.ready */
    EBK_CLIENT_WAIT_HELD = 3,  /* a message is Python's: ebk_zmq_dialled_state(), of the link outcome.link */
    EBK_CLIENT_WAIT_NEWS = 4,  /* the cores want to hear of what is counted, or of adds that were sent here */
    EBK_CLIENT_WAIT_BOUND = 5, /* credit_bytes were received on a link: its peer is to be told */
    EBK_CLIENT_WAIT_SIGNAL = 6 /* a signal came: its handler is Python's */
};

/* A dialled link that is up. */
struct ebk_client_wait_link {
    void *socket;
    uint64_t number;
    int descriptor;
    uint8_t prefix[24];
};

struct ebk_client_wait_outcome {
    int64_t now_ns; /* when the wait ended */
    bool is_dry;    /* no socket has more, and their descriptors tell when they have */
    uint32_t link;  /* index, of the links as given */
    uint32_t ready_count;
    int ready[32]; /* the others are still ready */
};

struct ebk_client_wait;

/* Listen to these links and watch these other descriptors. drain, answers, sending and turns are borrowed, and must outlive
 * it; so must the sockets. turns are taken meanwhile; sending: the links that they send over. NULL when memory or the system refuses. */
struct ebk_client_wait *ebk_client_wait_new(struct ebk_zmq_dialled *drain, struct ebk_answers *answers,
                                            struct ebk_links *sending, struct ebk_turns *turns,
                                            const struct ebk_client_wait_link *links, uint32_t link_count,
                                            const int *others, uint32_t other_count);
void ebk_client_wait_free(struct ebk_client_wait *wait);

/* Wait until until_ns of CLOCK_BOOTTIME (over already: look once), or untold_ns from when something is untold, or one of
 * the other reasons. The GIL is given away meanwhile: answers are used by nobody else. */
int ebk_client_wait_run(struct ebk_client_wait *wait, int64_t until_ns, int64_t untold_ns, uint64_t credit_bytes,
                        struct ebk_client_wait_outcome *outcome);
/* Bytes of bodies that were counted in the last wait, of the link with this index. */
EBK_SHORT uint64_t ebk_client_wait_taken(const struct ebk_client_wait *wait, uint32_t link);
/* cffi:end */

#endif
