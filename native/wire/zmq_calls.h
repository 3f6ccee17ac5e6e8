/* zmq_calls.h: the calls of the libzmq that pyzmq has loaded. No header of it is needed: they are found at run time,
 * and the few numbers used here are part of its binary interface since version 4.0. */
#ifndef EBK_ZMQ_CALLS_H
#define EBK_ZMQ_CALLS_H

#include "base/gil.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi:begin */
/* Find the library that made this socket (pyzmq's Socket.underlying) and its calls. Once per process.
 * Returns EBK_OK; EBK_UNSUPPORTED when it, a call of it or this version is not there. */
int ebk_zmq_load(void *socket, int major, int minor, int patch);
/* Take the parts that are left of a message, and let them go, however many there are. Without the library: 0, and
 * nothing is done; else 1. */
int ebk_zmq_skip(void *socket);
/* Between these two calls the C library's rand() gives another row of numbers, from seed on: a ROUTER takes the first
 * number of its routes from it, and no code seeds it. One thread at a time. */
EBK_SHORT void ebk_rand_begin(uint32_t seed);
EBK_SHORT void ebk_rand_end(void);
/* cffi:end */

#define EBK_ZMQ_DONTWAIT 1
#define EBK_ZMQ_MORE 2
#define EBK_ZMQ_SOURCE 2 /* ZMQ_SRCFD */

/* zmq_msg_t: 64 bytes by its ABI. */
struct ebk_zmq_message {
    _Alignas(void *) uint8_t bytes[64];
};

/* Set by ebk_zmq_load. */
extern struct ebk_zmq_calls {
    bool is_loaded;
    int (*init)(struct ebk_zmq_message *);
    int (*init_size)(struct ebk_zmq_message *, size_t);
    int (*init_data)(struct ebk_zmq_message *, void *, size_t, void (*)(void *, void *), void *);
    int (*send)(struct ebk_zmq_message *, void *, int);
    int (*recv)(struct ebk_zmq_message *, void *, int);
    int (*close)(struct ebk_zmq_message *);
    void *(*data)(struct ebk_zmq_message *);
    size_t (*size)(const struct ebk_zmq_message *);
    int (*more)(const struct ebk_zmq_message *);
    int (*get)(const struct ebk_zmq_message *, int);
    int (*last_error)(void);
} ebk_zmq;

/* False: nothing is there. Another refusal than that ends the socket, and its owner sees it by itself. */
static inline bool ebk_zmq_receive(struct ebk_zmq_message *message, void *socket)
{
    while (ebk_zmq.recv(message, socket, EBK_ZMQ_DONTWAIT) < 0)
        if (ebk_zmq.last_error() != EINTR) return false;
    return true;
}

#endif
