/* zmq_bookie_wait.h: a bookie's common turn over ZeroMQ, again and again, until something uncommon is there.
 *
 *     ┌─▶ durable? ─▶ answers out ─▶ sockets dry ─▶ kick ─▶ wait ─┐
 *     └───────────────────────────────────────────────────────────┘
 *
 * What a turn of the loop does when nothing happens but adds of known ledgers: the same
 * parts (zmq_accepted.h, add_path.h) in the same order, without Python in between. It
 * decides nothing, and ends at everything else: native/SHORTCUTS.md has the list.
 *
 * One thread, the bookie's loop, which waits here instead of polling by itself.
 */
#ifndef EBK_ZMQ_BOOKIE_WAIT_H
#define EBK_ZMQ_BOOKIE_WAIT_H

#include "base/gil.h"
#include "road/add_path.h"
#include "road/zmq_accepted.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi:begin */
/* Why a wait ended. */
enum {
    EBK_BOOKIE_WAIT_DUE = 1,     /* its time is over */
    EBK_BOOKIE_WAIT_READY = 2,   /* a descriptor that is not ours is ready: outcome.ready */
    EBK_BOOKIE_WAIT_HELD = 3,    /* a message is Python's: ebk_zmq_accepted_held(), of the socket outcome.socket */
    EBK_BOOKIE_WAIT_UNSENT = 4,  /* an answer could not be sent: outcome.link, message, size; more may be due */
    EBK_BOOKIE_WAIT_JOURNAL = 5, /* the journal failed, or has made durable what others wait for as well */
    EBK_BOOKIE_WAIT_BOUND = 6,   /* bytes_max or credit_bytes were received */
    EBK_BOOKIE_WAIT_SIGNAL = 7   /* a signal came: its handler is Python's */
};

/* What a descriptor that is waited for means. */
enum {
    EBK_WATCH_OTHER = 0,  /* ends the wait */
    EBK_WATCH_SOCKET = 1, /* of a ROUTER that is drained here */
    EBK_WATCH_JOURNAL = 2 /* something became durable, or the journal failed */
};

struct ebk_bookie_wait_terms {
    struct ebk_add_path *path;
    int64_t until_ns;      /* of CLOCK_BOOTTIME, the loop's clock; what is over already is one turn */
    int64_t duties_ns;     /* once something was taken or told, the wait ends so much later at the latest */
    uint64_t durable;      /* the token up to which the core's node knows of durability */
    bool awaits_journal;   /* others than the add path wait for the journal to pass it */
    uint64_t bytes_max;    /* taken by the add path before its storage has something to do */
    uint64_t credit_bytes; /* received on one link before its peer is to be told */
};

struct ebk_bookie_wait_outcome {
    int64_t now_ns; /* when the wait ended */
    int socket;     /* index, of the sockets as given */
    uint64_t link;
    const uint8_t *message; /* valid until the next call on the add path */
    size_t size;
    uint32_t ready_count;
    int ready[32]; /* the others are still ready */
};

struct ebk_bookie_wait;

/* Watch these descriptors, and drain these sockets. Returns NULL when the system refuses a descriptor. links is borrowed
 * and must outlive it; so must the sockets and the descriptors. */
struct ebk_bookie_wait *ebk_bookie_wait_new(struct ebk_zmq_accepted *links, void *const *sockets, uint32_t socket_count,
                                            const int *descriptors, const uint8_t *meanings, uint32_t descriptor_count);
void ebk_bookie_wait_free(struct ebk_bookie_wait *wait);

/* Take turns until one of the reasons above. Behind it everything taken is kicked, everything told has left, and sockets
 * may have more. The GIL is given away meanwhile: path, table and store are used by nobody else. */
int ebk_bookie_wait_run(struct ebk_bookie_wait *wait, const struct ebk_bookie_wait_terms *terms,
                        struct ebk_bookie_wait_outcome *outcome);
/* cffi:end */

#endif
