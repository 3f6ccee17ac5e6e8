/* link_tray.h: where adds are laid that go over no socket: messages of one link, until they are carried on.
 *
 * The other backing of a link of links.h, as memory is of the disk's calls (io.h): the
 * same lines seal, send and count while a simulated network loses, doubles and delays what
 * they have sent. What lies here are messages without an envelope.
 */
#ifndef EBK_LINK_TRAY_H
#define EBK_LINK_TRAY_H

#include "base/gil.h"
#include <stdint.h>

/* cffi:begin */
struct ebk_link_tray;

/* Without room; NULL without memory. */
struct ebk_link_tray *ebk_link_tray_new(void);
void ebk_link_tray_free(struct ebk_link_tray *tray);
/* Take so many bytes of messages from now on, then refuse, as a socket whose queue is full. */
EBK_SHORT void ebk_link_tray_set_room(struct ebk_link_tray *tray, uint64_t room);
/* What lies there, in order, each message behind its size in 4 bytes; it is taken by this, and valid until the next one is
 * laid there. */
EBK_SHORT const uint8_t *ebk_link_tray_take(struct ebk_link_tray *tray, uint64_t *size);
/* cffi:end */

/* A message in two pieces. EBK_FULL, EBK_NO_MEMORY: nothing was taken. */
int ebk_link_tray_put(struct ebk_link_tray *tray, const uint8_t *head, uint32_t head_size, const uint8_t *body,
                      uint32_t size);

#endif
