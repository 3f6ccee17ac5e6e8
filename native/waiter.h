/* waiter.h: the wait of a loop with bookies on it: as poll(), which takes the turns of adds meanwhile. */
#ifndef EBK_WAITER_H
#define EBK_WAITER_H

#include "gil.h"
#include "link_adds.h"
#include "near.h"

#include <stdint.h>

/* cffi:begin */
struct ebk_waiter;

/* NULL without memory or a descriptor. */
struct ebk_waiter *ebk_waiter_new(void);
void ebk_waiter_free(struct ebk_waiter *waiter);
/* A descriptor that is waited for until it is closed. near: whose journal's it is, or NULL. A code of errors.h. */
int ebk_waiter_add(struct ebk_waiter *waiter, int fd, struct ebk_near *near);
/* Take the turns of these adds, of which no seat is reached over a link, or no longer. begin gives a code of errors.h. */
EBK_SHORT int ebk_waiter_begin(struct ebk_waiter *waiter, struct ebk_link_adds *adds);
EBK_SHORT void ebk_waiter_end(struct ebk_waiter *waiter, const struct ebk_link_adds *adds);
/* From any thread: a packer of those adds has something. */
EBK_SHORT void ebk_waiter_wake(struct ebk_waiter *waiter);
/* The descriptor that is ready when adds have something to tell. */
EBK_SHORT int ebk_waiter_fileno(const struct ebk_waiter *waiter);
/* Up to `room` ready descriptors, 0 after timeout_ms (below 0: never). A signal ends it early, with 0. */
int ebk_waiter_wait(struct ebk_waiter *waiter, int timeout_ms, int *ready, uint32_t room);
/* cffi:end */

#endif
