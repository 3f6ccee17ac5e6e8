/* zmq_dialled.c: see zmq_dialled.h. */
#include "road/zmq_dialled.h"

#include "base/errors.h"
#include "wire/envelope.h"
#include "wire/zmq_calls.h"

#include <stdlib.h>

struct ebk_zmq_dialled {
    struct ebk_zmq_dialled_state state;
    struct ebk_zmq_message body, tail; /* the held one's */
};

struct ebk_zmq_dialled *ebk_zmq_dialled_new(void)
{
    EBK_ASSERT(ebk_zmq.is_loaded);
    struct ebk_zmq_dialled *drain = calloc(1, sizeof *drain);
    if (drain != NULL) {
        (void)ebk_zmq.init(&drain->body);
        (void)ebk_zmq.init(&drain->tail);
    }
    return drain;
}

void ebk_zmq_dialled_free(struct ebk_zmq_dialled *drain)
{
    if (drain == NULL) return;
    (void)ebk_zmq.close(&drain->body);
    (void)ebk_zmq.close(&drain->tail);
    free(drain);
}

const struct ebk_zmq_dialled_state *ebk_zmq_dialled_state(const struct ebk_zmq_dialled *drain)
{
    return &drain->state;
}

int ebk_zmq_dialled_drain(struct ebk_zmq_dialled *drain, void *socket, uint64_t link, const uint8_t *prefix,
                          struct ebk_answers *answers, uint32_t bodies_max, size_t bytes_max)
{
    struct ebk_zmq_dialled_state *const state = &drain->state;
    *state = (struct ebk_zmq_dialled_state){0};
    while (state->bodies < bodies_max && state->bytes < bytes_max) {
        if (!ebk_zmq_receive(&drain->body, socket)) return EBK_ZMQ_EMPTY; /* It replaces what the message held. */
        int more = ebk_zmq.more(&drain->body);
        size_t tail_size = 0;
        if (more) { /* Never of an answer to an add. Parts of one message come together. */
            if (!ebk_zmq_receive(&drain->tail, socket)) return EBK_ZMQ_EMPTY;
            more = ebk_zmq.more(&drain->tail);
            tail_size = ebk_zmq.size(&drain->tail);
        }
        const uint8_t *data = ebk_zmq.data(&drain->body);
        const size_t size = ebk_zmq.size(&drain->body);
        state->bodies += 1;
        state->bytes += size + tail_size;
        if (!more && tail_size == 0 && ebk_envelope_is_body(prefix, data, size, 0) &&
            ebk_answers_take(answers, link, data + EBK_ENVELOPE_BYTES, size - EBK_ENVELOPE_BYTES) == EBK_ANSWERS_COUNTED) {
            state->taken_bytes += size - EBK_ENVELOPE_BYTES;
            continue;
        }
        state->more = more;
        state->data = data;
        state->size = size;
        state->tail = ebk_zmq.data(&drain->tail);
        state->tail_size = tail_size;
        return EBK_ZMQ_HELD;
    }
    return EBK_ZMQ_BOUND;
}
