/* zmq_accepted.h: bodies of accepted ZeroMQ links, from the socket to the add path, and its
 * answers back.
 *
 * What transports/zmq_intake.py does for every body, for the one kind that is nearly all of
 * them: a body in order on a link that is up, which the add path takes. Everything else
 * is held and handed to Python as it came. libzmq is the one that pyzmq has loaded; where
 * it cannot be found (a build that hides it) nothing here is used.
 *
 * One thread, the transport's. The bytes of a link are transports/TRANSPORTS.md.
 */
#ifndef EBK_ZMQ_ACCEPTED_H
#define EBK_ZMQ_ACCEPTED_H

#include "base/gil.h"
#include "road/add_path.h"

#include <stddef.h>
#include <stdint.h>

/* cffi:begin */
struct ebk_zmq_accepted;

enum {
    EBK_ZMQ_EMPTY = 0,   /* the socket has nothing more, and tells when it has */
    EBK_ZMQ_BOUND = 1,   /* bodies_max or bytes_max were taken */
    EBK_ZMQ_HELD = 2     /* ebk_zmq_accepted_held() is for Python */
};

struct ebk_zmq_accepted_held {
    uint8_t route[256];
    uint32_t route_size; /* 0: longer than that, as no ROUTER gives one */
    int more;            /* further parts follow, not read here: no message of ours */
    int descriptor;      /* of the connection, or -1 */
    const uint8_t *data, *tail; /* the first and the second part, valid until the next call */
    size_t size, tail_size;     /* no second one: 0 */
};

/* NULL when memory is refused. */
struct ebk_zmq_accepted *ebk_zmq_accepted_new(void);
void ebk_zmq_accepted_free(struct ebk_zmq_accepted *links);

/* The link `number` came up: bodies from this route of this socket, behind a DATA envelope whose first 24 bytes are
 * prefix, are its. Returns EBK_OK, EBK_USAGE (a route that no ROUTER gives), EBK_NO_MEMORY. */
EBK_SHORT int ebk_zmq_accepted_up(struct ebk_zmq_accepted *links, void *socket, uint64_t number, const uint8_t *route,
                                  size_t route_size, const uint8_t *prefix);
EBK_SHORT void ebk_zmq_accepted_down(struct ebk_zmq_accepted *links, uint64_t number);

/* Receive from a ROUTER until it is empty, a bound is reached or a message is held; bodies of links that are up are
 * offered to path (NULL: to none). Returns one of the three above. */
EBK_SHORT int ebk_zmq_accepted_drain(struct ebk_zmq_accepted *links, void *socket, struct ebk_add_path *path,
                                     uint32_t bodies_max, size_t bytes_max);
EBK_SHORT const struct ebk_zmq_accepted_held *ebk_zmq_accepted_held(const struct ebk_zmq_accepted *links);
/* Send a body on a link that is up, as much as its room allows. Returns 1; or 0, and nothing was sent: no such link is
 * here, it has no room, its connection is gone or full. Python finds out which. */
EBK_SHORT int ebk_zmq_accepted_send(struct ebk_zmq_accepted *links, uint64_t number, const uint8_t *body, size_t size);
/* How many bytes of bodies may be sent on the link from now on; none, before this was said. */
EBK_SHORT void ebk_zmq_accepted_set_room(struct ebk_zmq_accepted *links, uint64_t number, uint64_t bytes);
/* So many; of no such link none. */
EBK_SHORT uint64_t ebk_zmq_accepted_room(struct ebk_zmq_accepted *links, uint64_t number);

/* A link on which bodies were taken or sent since it was last told of, and the bytes of them. Returns 0 when there is
 * none. */
EBK_SHORT int ebk_zmq_accepted_moved(struct ebk_zmq_accepted *links, uint64_t *number, uint64_t *taken, uint64_t *sent);
/* The bytes taken on the link with the most of them, since then. */
EBK_SHORT uint64_t ebk_zmq_accepted_taken_most(const struct ebk_zmq_accepted *links);
/* cffi:end */

#endif
