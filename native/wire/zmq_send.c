/* zmq_send.c: see zmq_send.h. */
#include "wire/zmq_send.h"

#include "base/errors.h"
#include "wire/packer.h"
#include "wire/zmq_calls.h"

#include <string.h>

/* On ZeroMQ's thread, when the bytes were sent or never will be. */
static void let_go(void *body, void *held)
{
    (void)body;
    ebk_packer_let_go(held);
}

/* A message that is not taken is given back, with what it holds. */
static int send(struct ebk_zmq_message *message, void *socket, int flags)
{
    while (ebk_zmq.send(message, socket, flags | EBK_ZMQ_DONTWAIT) < 0) {
        if (ebk_zmq.last_error() == EINTR) continue;
        const int code = ebk_zmq.last_error() == EAGAIN ? EBK_FULL : EBK_FAILED;
        (void)ebk_zmq.close(message);
        return code;
    }
    return EBK_OK;
}

int ebk_zmq_send_frame(void *socket, const uint8_t *head, size_t head_size, uint8_t *body, size_t size)
{
    EBK_ASSERT(ebk_zmq.is_loaded);
    struct ebk_zmq_message first, second;
    if (ebk_zmq.init_size(&first, head_size) < 0) return EBK_NO_MEMORY;
    memcpy(ebk_zmq.data(&first), head, head_size);
    void *held = ebk_packer_hold(body);
    if (ebk_zmq.init_data(&second, body, size, let_go, held) < 0) {
        ebk_packer_let_go(held);
        (void)ebk_zmq.close(&first);
        return EBK_NO_MEMORY;
    }
    const int code = send(&first, socket, EBK_ZMQ_MORE);
    if (code < 0) {
        (void)ebk_zmq.close(&second);
        return code;
    }
    /* Behind its first part a message is taken whole; with the connection gone in between, ZeroMQ takes both back. */
    return send(&second, socket, 0);
}
