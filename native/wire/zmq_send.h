/* zmq_send.h: a frame to a ZeroMQ socket from where it stands, by reference.
 *
 * A frame goes to all members of its write set, and each has an envelope and a message
 * header of its own. Joined for each of them, its bytes are copied as often as it has
 * copies; sent as a part of its own, behind a part with the headers, they are copied by
 * the system alone. The block that they stand in is held until ZeroMQ has sent them.
 *
 * The thread of the socket. The parts are transports/TRANSPORTS.md.
 */
#ifndef EBK_ZMQ_SEND_H
#define EBK_ZMQ_SEND_H

#include "base/gil.h"

#include <stddef.h>
#include <stdint.h>

/* cffi:begin */
/* Send head, which is copied, and body, the whole body of a packer's frame that is out (packer.h), as the two parts of
 * one message on a DEALER. Returns EBK_OK; EBK_FULL when the socket takes no more now, EBK_NO_MEMORY, or EBK_FAILED when
 * the socket is over: nothing was sent then. Wants ebk_zmq_load. */
EBK_SHORT int ebk_zmq_send_frame(void *socket, const uint8_t *head, size_t head_size, uint8_t *body, size_t size);
/* cffi:end */

#endif
