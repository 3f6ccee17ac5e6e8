/* loop_wait.h: the one wait of a host's thread: what a turn of its loop does when nothing uncommon happens, again and again.
 *
 *     ┌─▶ answer what is durable ─▶ receive: accepted, dialled ─▶ count, seal, send ─▶ kick journals ─▶ wait ─┐
 *     └────────────────────────────────────────────────────────────────────────────────────────────────────────┘
 *
 * A bookie over ZeroMQ has the accepted links and the journals, a client the dialled links and the adds, an embedded
 * cluster the adds and the journals of its bookies; what a loop has not is left out of each turn. The parts are those that
 * a turn in Python uses (zmq_accepted.h, add_path.h, zmq_dialled.h, answers.h, turns.h). The wait decides nothing, and
 * ends at everything else: native/SHORTCUTS.md has the list.
 *
 * One thread, the loop's, which waits here instead of polling by itself.
 */
#ifndef EBK_LOOP_WAIT_H
#define EBK_LOOP_WAIT_H

#include "base/gil.h"
#include "road/add_path.h"
#include "road/answers.h"
#include "road/links.h"
#include "road/near.h"
#include "road/turns.h"
#include "road/zmq_accepted.h"
#include "road/zmq_dialled.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi:begin */
/* Why a wait ended. */
enum {
    EBK_LOOP_DUE = 1,           /* its time is over */
    EBK_LOOP_READY = 2,         /* a descriptor is ready that the loop's nodes have to see: outcome.ready */
    EBK_LOOP_HELD_ACCEPTED = 3, /* a message is Python's: ebk_zmq_accepted_held(), of the socket outcome.socket */
    EBK_LOOP_HELD_DIALLED = 4,  /* the same: ebk_zmq_dialled_state() */
    EBK_LOOP_UNSENT = 5,        /* an answer could not be sent: outcome.link, message, size; more may be due */
    EBK_LOOP_JOURNAL = 6,       /* the journal failed, or has made durable what others wait for as well */
    EBK_LOOP_NEWS = 7,          /* the cores want to be notified of what was counted, or of adds that were sent here */
    EBK_LOOP_BOUND = 8,         /* bytes_max or credit_bytes were received */
    EBK_LOOP_SIGNAL = 9         /* a signal came: its handler is Python's */
};

/* All borrowed, and must outlive the wait. */
struct ebk_loop_parts {
    struct ebk_zmq_accepted *accepted; /* NULL: no accepted link is received here */
    struct ebk_zmq_dialled *dialled;   /* NULL: no dialled link is; else with answers and links */
    struct ebk_answers *answers;
    struct ebk_links *links; /* that adds are sent over */
    struct ebk_turns *turns; /* NULL: no adds are sent here */
};

struct ebk_loop_terms {
    struct ebk_add_path *path; /* takes the bodies of accepted links; NULL: none are received */
    int64_t until_ns;          /* of CLOCK_BOOTTIME, the loop's clock; what is over already is one turn */
    int64_t late_ns;           /* once Python has work that no peer waits for, the wait ends so much later at most */
    uint64_t durable;          /* the token up to which the core's node knows of durability */
    bool awaits_journal;       /* others than the add path wait for the journal to pass it */
    uint64_t bytes_max;        /* taken by the add path before its storage has something to do */
    uint64_t credit_bytes;     /* received on one link before its peer is to get credit */
};

struct ebk_loop_outcome {
    int64_t now_ns;  /* when the last turn was taken */
    bool is_dry;     /* no socket has more, and their descriptors tell when they have */
    bool has_news;   /* adds that were sent here have something for their cores */
    uint32_t socket; /* as ebk_loop_wait_accept or ebk_loop_wait_dial numbered it */
    uint64_t link;
    const uint8_t *message; /* valid until the next call on the add path */
    size_t size;
    uint32_t ready_count;
    int ready[32]; /* the others are still ready */
};

struct ebk_loop_wait;

/* NULL when memory or the system refuses. */
struct ebk_loop_wait *ebk_loop_wait_new(const struct ebk_loop_parts *parts);
void ebk_loop_wait_free(struct ebk_loop_wait *wait);

/* What is waited for, until it is closed. Each returns a number, counted from 0, or a code of errors.h. */
/* A ROUTER whose accepted links are received. */
int ebk_loop_wait_accept(struct ebk_loop_wait *wait, void *socket, int descriptor);
/* A DEALER whose one link is up. */
int ebk_loop_wait_dial(struct ebk_loop_wait *wait, void *socket, int descriptor, uint64_t link, const uint8_t *prefix);
/* A journal of the terms' path. */
int ebk_loop_wait_journal(struct ebk_loop_wait *wait, int descriptor);
/* A descriptor that ends the wait; near: a journal's of this bookie, which ends it only where its node has to be stepped. */
int ebk_loop_wait_other(struct ebk_loop_wait *wait, int descriptor, struct ebk_near *near);

/* Take turns until one of the reasons above. Behind it everything taken is kicked, everything durable is answered, and
 * sockets may have more. The GIL is given away meanwhile: no other thread uses the parts, path, table and store. */
int ebk_loop_wait_run(struct ebk_loop_wait *wait, const struct ebk_loop_terms *terms, struct ebk_loop_outcome *outcome);
/* Bytes of bodies that were counted in the last wait, of the dialled link with this number. */
EBK_SHORT uint64_t ebk_loop_wait_taken(const struct ebk_loop_wait *wait, uint32_t socket);
/* cffi:end */

#endif
