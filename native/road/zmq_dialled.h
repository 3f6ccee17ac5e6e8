/* zmq_dialled.h: bodies of dialled ZeroMQ links, from the socket to where common answers are counted.
 *
 * What transports/zmq_intake.py does for every body, for the one kind that is nearly all that a
 * writing client hears. Everything else is held and handed to Python as it came. libzmq
 * is the one that pyzmq has loaded (zmq_calls.h).
 *
 * One thread, the transport's. The bytes of a link are transports/TRANSPORTS.md.
 */
#ifndef EBK_ZMQ_DIALLED_H
#define EBK_ZMQ_DIALLED_H

#include "base/gil.h"
#include "road/answers.h"
#include "road/zmq_accepted.h"

#include <stddef.h>
#include <stdint.h>

/* cffi:begin */
struct ebk_zmq_dialled;

/* What a drain came by. */
struct ebk_zmq_dialled_state {
    uint32_t bodies;     /* received, the held one among them */
    size_t bytes;        /* of them, envelopes included */
    size_t taken_bytes;  /* of the bodies that were counted, without envelopes */
    int more;            /* of the held one: further parts follow, not read here */
    const uint8_t *data; /* the held one, and its second part; valid until the next call */
    size_t size;
    const uint8_t *tail;
    size_t tail_size;
};

/* NULL when memory is refused. After ebk_zmq_load. */
struct ebk_zmq_dialled *ebk_zmq_dialled_new(void);
void ebk_zmq_dialled_free(struct ebk_zmq_dialled *drain);
EBK_SHORT const struct ebk_zmq_dialled_state *ebk_zmq_dialled_state(const struct ebk_zmq_dialled *drain);

/* Receive from a DEALER until it is empty, a bound is reached or a message is held; bodies behind a DATA envelope whose
 * first 24 bytes are prefix are of the link, and offered to answers. Returns EBK_ZMQ_EMPTY, _BOUND or _HELD. */
EBK_SHORT int ebk_zmq_dialled_drain(struct ebk_zmq_dialled *drain, void *socket, uint64_t link, const uint8_t *prefix,
                                    struct ebk_answers *answers, uint32_t bodies_max, size_t bytes_max);
/* cffi:end */

#endif
